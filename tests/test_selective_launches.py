"""The backward in several launches, whose parts of dB and dC lie where gradients are written later, and in pieces."""

import numpy as np
import pytest
import torch
from selective_problem import error, problem

from ssmlab import kernels, selective_kernels, selective_plans
from ssmlab.rawkernel import RawKernel
from ssmlab.selective import explain_selective_scan
from ssmlab.selective_kernels import Inputs
from ssmlab.selective_plans import Cut, cut_in_pieces
from ssmlab.simt.includes import paste

LENGTH, CHANNELS = 150, 128
CUTS = [Cut(96, LENGTH, True), Cut(64, 96, True), Cut(32, 64), Cut(0, 32)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def gradients(device, states, cuts, dtype=torch.float32, length=LENGTH, packed=False, fixed="", **options):
    values = problem(batch=3, length=length, channels=CHANNELS, states=states, groups=1, dtype=dtype, device=device)
    for name in fixed:
        values[name] = torch.linspace(-1, 1, CHANNELS * states, device=device).reshape(CHANNELS, states)
    initial = values.pop("initial_state")
    start = finish = None
    if packed:                                              # two sequences a row, padding between them
        start, finish = (torch.full((3, length), mark, dtype=torch.int32, device=device) for mark in (-2, -1))
        start[:, 0] = torch.arange(3)
        start[:, 40:45], start[:, 45] = -3, -1
        finish[:, -1] = torch.arange(3)
    x = Inputs(*values.values(), True, start, finish)
    variant = selective_plans.backward_variant(states, initial.device)
    borders = torch.empty(3, -(-length // 32), CHANNELS, states, device=device)
    final = torch.empty_like(initial)
    y = selective_kernels.forward(x, initial, final, borders=borders)
    generator = torch.Generator().manual_seed(1)
    dy, d_final = (torch.randn(like.shape, generator=generator).to(like) for like in (y, final))
    pairs = 3 * (CHANNELS // variant.side_by_side)
    return selective_kernels.backward(
        x, dy, d_final, borders, initial, slots=3, spacing=selective_plans.BORDER, variant=variant,
        cuts=tuple(cut if isinstance(cut, Cut) else cut_in_pieces(*cut[:2], pairs, cut[2], borrows=cut[3])
                   for cut in cuts), **options,
    )  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("states", [4, 16, 40])
def test_several_launches_give_the_bits_of_one(device, states):
    """Steps get theirs whatever is launched with them; sums over steps are made launch by launch, in another order."""
    once = gradients(device, states, [Cut(0, LENGTH)])
    often = gradients(device, states, CUTS)
    for name in ("du", "ddelta", "dz", "dB", "dC", "d_initial"):
        assert torch.equal(getattr(once, name), getattr(often, name)), name
    for name in ("dA", "dD", "d_bias"):
        torch.testing.assert_close(getattr(often, name), getattr(once, name), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_parts_in_a_half_type_fit_where_they_are_put(device):
    once, often = (gradients(device, 4, cuts, torch.bfloat16) for cuts in ([Cut(0, LENGTH)], CUTS))
    assert torch.equal(once.dB, often.dB) and torch.equal(once.dC, often.dC) and torch.equal(once.du, often.du)


@pytest.mark.parametrize("device", DEVICES)
def test_parts_that_find_no_room_in_du_and_ddelta_lie_in_dz(device):
    states, variant = (16, 64) if device == "cuda" else (40, 32)
    cuts = [Cut(64, 128, True), Cut(32, 64), Cut(0, 32)]
    room, part, columns = CHANNELS * 4, states * 4, CHANNELS // variant
    if device == "cuda":                                    # two columns: only one of them in du
        cuts[0] = Cut(32, 128, True)
        room = CHANNELS * 2
    within, aside = selective_plans.lent_columns(cuts[0].origin, cuts[0].end, room, part)
    assert within < columns <= within + aside
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if device == "cuda":
        cuts = [cuts[0], Cut(0, 32)]
    once, often = (gradients(device, states, plan, dtype, length=128) for plan in ([Cut(0, 128)], cuts))
    for name in ("du", "ddelta", "dz", "dB", "dC", "d_initial"):
        assert torch.equal(getattr(once, name), getattr(often, name)), name


def test_the_explanation_names_every_launch(monkeypatch):
    """There are more of them without z, as there is no dz to borrow."""
    launched, counts = [], []
    monkeypatch.setattr(
        selective_kernels, "launcher", lambda file, name, constants: lambda *given: launched.append(name)
    )
    for without in ((), ("z",)):
        values = problem(1, 17000, 256, 8, 1, torch.bfloat16, without=(*without, "initial_state"))
        values.pop("initial_state")
        borders = torch.empty(1, -(-17000 // 32), 256, 8)
        x = Inputs(*values.values(), True, None, None)
        selective_kernels.backward(x, torch.empty_like(values["u"]), None, borders, None)
        counts.append(launched.count("selective_backward"))
        assert explain_selective_scan(**values, delta_softplus=True).count("backward: ") == counts[-1]
        launched.clear()
    assert 1 < counts[0] < counts[1]


def test_totals_of_finer_pieces_give_the_same():
    plans = [[cut_in_pieces(0, LENGTH, 12, 64, finer=finer)] for finer in (1, 2)]
    (one,), (two,) = plans
    assert one.finer_slots == one.slots == two.slots < two.finer_slots
    once, finer = (gradients("cpu", 40, plan) for plan in plans)
    for name in ("du", "ddelta", "dz", "dA", "dB", "dC", "dD", "d_bias", "d_initial"):
        assert error(getattr(finer, name), getattr(once, name)) <= 1e-5, name


PIECES = {
    "in pieces": [(0, LENGTH, 64, False)],
    "in small pieces": [(0, LENGTH, 32, False)],
    "the last launch whole": [(96, LENGTH, 32, True), Cut(0, 96)],
    "all launches": [(96, LENGTH, 32, True), (64, 96, 32, True), (0, 64, 32, False)],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packed", [False, True], ids=["", "packed"])
@pytest.mark.parametrize("states", [4, 40])
@pytest.mark.parametrize("plan", PIECES)
def test_pieces_give_the_gradients_of_whole_rows(device, packed, states, plan):
    whole = gradients(device, states, [Cut(0, LENGTH)], packed=packed)
    pieces = gradients(device, states, PIECES[plan], packed=packed)
    for name in ("du", "ddelta", "dz", "dA", "dB", "dC", "dD", "d_bias", "d_initial"):
        assert error(getattr(pieces, name), getattr(whole, name)) <= 1e-5, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fixed", ["B", "C", "BC"])
def test_pieces_and_launches_sum_the_gradients_of_fixed_tables(device, fixed):
    whole, cut = (gradients(device, 4, plan, fixed=fixed) for plan in (
        [Cut(0, LENGTH)], [(96, LENGTH, 32, False), (0, 96, 32, False)]))  # fmt: skip
    for name in ("du", "ddelta", "dA", "dB", "dC", "d_initial"):
        assert error(getattr(cut, name), getattr(whole, name)) <= 1e-5, name


@pytest.mark.parametrize("device", DEVICES)
def test_rows_cut_as_if_alone_have_the_gradients_of_a_batch(device):
    whole = gradients(device, 16, [Cut(0, LENGTH)])
    columns = CHANNELS // selective_plans.backward_variant(16, torch.device(device)).side_by_side
    alone = gradients(device, 16, [cut_in_pieces(0, LENGTH, columns, 64)], whole_batch=False)
    for name in ("du", "ddelta", "dz", "dA", "dB", "dC", "d_initial"):
        assert error(getattr(alone, name), getattr(whole, name)) <= 1e-5, name
    assert alone.du.isfinite().all()


COUNT = r"""
#include "selective_pieces.cuh"

extern "C" __global__ void count(int pairs, int head, int others, int origin, int end, int* seen, int* most) {
    const Pieces pieces = {pairs, head, others, origin, end};
    const int share = (int)(blockIdx.x * blockDim.x + threadIdx.x) - pairs;
    if (share >= others) {
        return;
    }
    long long unit = share < 0 ? 0 : pieces.begin_of(share);
    do {
        const Piece piece = share < 0 ? pieces.head_of(share + pairs) : pieces.piece_at(share, unit);
        for (int t = piece.from; t < piece.to; ++t) {       // 1 + the slot, once for each step
            atomicAdd(&seen[piece.pair * end + t], 1 + piece.slot);
        }
        atomicMax(&most[piece.pair], 1 + piece.slot);
        unit = share < 0 ? 0 : pieces.behind(piece);
    } while (share >= 0 && unit < pieces.begin_of(share + 1));
}
"""


@pytest.mark.parametrize("pairs", [1, 2, 3, 7, 160])
@pytest.mark.parametrize("head", [32, 64, 96, 320, 1000])
@pytest.mark.parametrize("origin, end", [(0, 1000), (64, 1000), (32, 65), (0, 31)])
def test_every_step_of_every_pair_is_in_one_piece(pairs, head, origin, end):
    kernel = RawKernel(paste(COUNT, "count.cu", [kernels.FOLDER]), "count", mode="native")
    cut = cut_in_pieces(origin, end, pairs, head)
    seen, most = np.zeros((pairs, end), np.int32), np.zeros(pairs, np.int32)
    shared = cut.head or end - origin
    kernel((-(-(pairs + cut.others) // 32),), (32,), (pairs, shared, cut.others, origin, end, seen, most))
    assert most.max() == cut.slots
    assert not seen[:, :origin].any()
    for row, slots in zip(seen[:, origin:], most, strict=True):
        places = np.concatenate([[0], np.flatnonzero(np.diff(row)) + 1, [end - origin]])
        assert row[places[:-1]].tolist() == list(range(1, slots + 1))  # slots from left to right, none twice
        assert np.diff(places).max() <= shared
