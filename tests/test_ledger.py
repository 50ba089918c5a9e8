"""The ledger's integers against what torch keeps, what the compiler lays out, and the sources' own figures."""

import itertools
import re

import nvrtc
import pytest
import torch
from selective_problem import leaves, problem
from torch.utils._python_dispatch import TorchDispatchMode

from ssmlab import kernels, ledger, selective_kernels, selective_plans
from ssmlab.selective import selective_scan


@pytest.mark.parametrize("save", ledger.SAVE)
@pytest.mark.parametrize("length, chunk", [(70, 32), (64, 64), (1, 32), (0, 32)])
def test_saved_bytes_are_what_torch_keeps(save, length, chunk):
    values = leaves(problem(length=length, channels=4, dtype=torch.float32))
    y = selective_scan(**values, delta_softplus=True, save=save, chunk=chunk)
    kept = y.grad_fn.saved_tensors[-1]
    want = ledger.saved_states(2, length, 4, 16, save=save, chunk=chunk)
    assert kept.nbytes == want


def test_without_gradients_nothing_is_kept():
    values = problem(length=40, dtype=torch.float32)
    _, _, borders = torch.ops.ssmlab.selective_scan_forward(*values.values(), None, None, 2, True, 0, "nothing")
    assert borders.nbytes == 0


def test_the_sources_figures_of_saved_states():
    shape = (16, 2048, 1536, 16)
    assert ledger.saved_states(*shape, chunk=256) == 12_582_912                       # A17: 12.6 MB of one array
    assert ledger.saved_states(*shape, save="all") == 3_221_225_472                   # A18: 3.2 GB a layer
    assert 24 * ledger.saved_states(*shape, chunk=256) == 301_989_888                 # 302 MB in 24 layers
    assert 24 * ledger.saved_states(*shape, chunk=256, save="boundaries-bf16") == 150_994_944
    assert ledger.saved_states(*shape, save="all") == 256 * ledger.saved_states(*shape, chunk=256)


def test_fusion_saves_more_of_the_traffic_the_more_states_there_are():
    shares = []
    for states in (1, 2, 4, 8, 16, 32, 64):
        apart = sum(ledger.unfused(8, 1024, 512, states).values())
        fused = ledger.selective_scan(8, 1024, 512, states, itemsize=4).bytes
        shares.append(1 - fused / apart)
    assert shares == sorted(shares)
    assert 0.7 <= shares[0] and shares[4] >= 0.94                                     # A11 says 60 to 80 %


def test_floors_name_what_binds_on_an_h200():
    cost = ledger.selective_scan(16, 2048, 1536, 16, itemsize=2)
    assert cost.exponentials == 16 * 2048 * 1536 * 18
    found = ledger.floors(cost, bandwidth=4.284e12, exponentials=132 * 16 * 1.98e9)
    assert max(found, key=found.get) == "exponentials"
    assert 0.09e-3 <= found["bytes"] <= 0.1e-3 and 0.22e-3 <= found["exponentials"] <= 0.24e-3


def test_two_passes_exponentiate_all_segments_but_the_last_twice():
    once = ledger.selective_scan(1, 65536, 1536, 16)
    twice = ledger.selective_scan(1, 65536, 1536, 16, segments=16)
    assert twice.exponentials - once.exponentials == 65536 * 15 // 16 * 1536 * 17
    assert twice.saved == once.saved


def compile_line(name):
    line = re.search(r"^// compile: *(.+)$", kernels.path(name).read_text(encoding="utf-8"), re.MULTILINE).group(1)
    return line.split(), dict(re.findall(r"-D(\w+)=(\d+)", line))


@pytest.mark.parametrize("name", ["selective_forward", "selective_totals"])
def test_static_shared_memory_is_what_the_compiler_lays_out(name):
    options, value = compile_line(f"{name}.cu")
    text = nvrtc.ptx(kernels.source(f"{name}.cu"), f"{name}.cu", options)
    arrays = {size.group(1): int(size.group(2)) for size in re.finditer(r"\.shared .*?(\w+)\[(\d+)\];", text)}
    lanes, own, many, threads, tile, vector = (
        int(value[key]) for key in ("LANES", "OWN", "MANY", "THREADS", "TILE", "VECTOR")
    )
    count = ledger.forward_shared if name == "selective_forward" else ledger.totals_shared
    want = count(tile=tile, channels=threads // lanes * many, width=lanes * own, abreast=vector)
    marks = 2 * tile * 4                                    # a kernel without packing does not use its marks
    assert sum(arrays.values()) in (want, want - marks)


@pytest.mark.parametrize("states", [1, 4, 16, 33, 64, 128, 256, 257, 512])
@pytest.mark.parametrize("real_bytes", [4, 8])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_number_of_states_fits_into_shared_memory(states, real_bytes, device):
    device = torch.device(device)
    variant = selective_plans.backward_variant(states, device, real_bytes)
    parts = selective_plans.backward_parts(states, variant)
    assert parts * variant.width >= states
    for span, time_inner, vector in itertools.product((1, 2), (0, 1), (1, 4)):
        needed = selective_plans.backward_shared(variant, parts, span, time_inner, vector, real_bytes, True)
        assert needed <= 227 * 1024
    for busy in (True, False):
        forward = selective_plans.forward_variant(states, device, real_bytes, busy)
        channels = forward.side_by_side
        static = ledger.forward_shared(
            tile=forward.tile, channels=channels, width=forward.width, abreast=4, real=real_bytes, pitch=channels + 4
        )
        assert forward.width >= states and static <= 48 * 1024


class Asked(TorchDispatchMode):
    """Adds up the bytes of all memory that is asked for."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if "empty" in function._schema.name or "zeros" in function._schema.name:
            self.bytes += result.nbytes
        return result


@pytest.mark.parametrize("states, groups, bounds, head, lends", [
    (16, 1, [130], None, True), (5, 2, [130], None, True), (40, 1, [130], None, True),
    (4, 1, [130, 64, 32], None, True), (4, 1, [130, 64], 32, True), (4, 1, [130, 64], 32, False),
])  # fmt: skip
def test_the_backward_asks_for_the_memory_that_the_ledger_predicts(states, groups, bounds, head, lends):
    batch, length, channels = 2, 130, 96
    values = problem(batch, length, channels, states, groups, torch.float32, without=("initial_state",))
    if not lends:                                           # time lies inside: the first steps are no piece of memory
        values |= {name: values[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("u", "delta", "z")}
    given = (value for name, value in values.items() if name != "initial_state")
    x = selective_kernels.Inputs(*given, True, None, None)
    variant = selective_plans.backward_variant(states, torch.device("cpu"))
    borders = torch.zeros(batch, -(-length // 32), channels, states)
    pairs = batch * groups * -(-channels // groups // variant.side_by_side)
    cuts = tuple(
        selective_plans.cut_in_pieces(origin, end, pairs, head or end, borrows=lends and origin > 0)
        for end, origin in zip(bounds, [*bounds[1:], 0], strict=True)
    )
    with Asked() as asked:
        selective_kernels.backward(
            x, torch.randn(batch, length, channels), None, borders, None, variant=variant, cuts=cuts
        )
    predicted = ledger.backward_memory(
        batch, length, channels, states, groups=groups, itemsize=4, across=variant.side_by_side,
        launches=[(cut.origin, cut.end, cut.slots, cut.finer_slots, cut.borrows) for cut in cuts], lends=lends,
    )  # fmt: skip
    assert asked.bytes == sum(predicted.values())
    assert (max(cut.slots for cut in cuts) > 1) == (head is not None)


H200 = 3, 132  # blocks of a multiprocessor, multiprocessors


def cuts_of(batch, length, channels, states=16, itemsize=2, lenders=3, machine=H200):
    """As bfloat16 (or float32) is launched on a GPU, with 64 channels a block."""
    columns = channels // 64
    return selective_plans.backward_cuts(
        (batch, length, channels), itemsize, 4, columns, states, lenders, (batch * columns, *machine)
    )


def test_launches_keep_the_parts_of_dB_and_dC_small():
    """In bfloat16 they would take as much memory as u: so most of them lie where gradients are written later."""
    found = cuts_of(16, 2048, 1536)
    assert [(cut.origin, cut.end) for cut in found] == [(512, 2048), (128, 512), (32, 128), (0, 32)]
    for cut in found[:-1]:
        assert cut.borrows and 24 * (cut.end - cut.origin) * 16 * 4 * 2 <= 3 * cut.origin * 1536 * 2
    short = cuts_of(64, 512, 1536)
    assert [(cut.origin, cut.end, cut.borrows) for cut in short] == [(128, 512, True), (32, 128, True), (0, 32, False)]
    ungated = cuts_of(16, 2048, 1536, lenders=2)
    assert [(cut.origin, cut.end) for cut in ungated] == [(704, 2048), (256, 704), (96, 256), (32, 96), (0, 32)]
    (once,) = cuts_of(16, 2048, 1536, itemsize=4)
    assert (once.origin, once.end, once.borrows) == (0, 2048, False)


@pytest.mark.parametrize("shape", [(16, 2048, 1536), (64, 512, 1536), (1, 65536, 1536), (32, 1024, 1536)])
def test_with_launches_the_peak_is_that_of_five_tensors_like_u(shape):
    """Four are y and the gradients of u, delta, z; the fifth are the states saved 32 steps apart. The rest is small."""
    batch, length, channels = shape
    found = ledger.backward_memory(
        *shape, 16, launches=[(cut.origin, cut.end, cut.slots, cut.finer_slots, cut.borrows) for cut in cuts_of(*shape)]
    )
    u_bytes = batch * length * channels * 2
    kept = ledger.saved_states(*shape, 16)
    assert u_bytes + kept + sum(found.values()) <= 5.2 * u_bytes


@pytest.mark.parametrize("length", [1, 31, 97, 2048, 5001])
@pytest.mark.parametrize("states, lenders", [(16, 3), (16, 2), (16, 0), (64, 3), (300, 3)])
@pytest.mark.parametrize("machine", [H200, (1, None)], ids=["rows may be cut", "rows are whole"])
@pytest.mark.parametrize("batch", [1, 16])
def test_launches_take_every_step_once(length, states, lenders, machine, batch):
    cuts = cuts_of(batch, length, 1536, states, lenders=lenders, machine=machine)
    assert cuts[0].end == length and cuts[-1].origin == 0
    assert all(later.end == cut.origin and cut.origin % 32 == 0 for cut, later in zip(cuts, cuts[1:], strict=False))


@pytest.mark.parametrize("pairs, length", [(160, 4096), (24, 65536), (24, 2048), (1, 2**20), (576, 2048)])
def test_pieces_fill_the_machine_and_have_the_same_length(pairs, length):
    (cut,) = {selective_plans.cut_in_pieces(0, length, pairs, selective_plans.longest_piece(pairs, length, *H200))}
    resident = 3 * 132
    rounds = -(-(pairs + cut.others) // resident)
    assert cut.slots > 1 and pairs + cut.others > 0.95 * rounds * resident
    assert 0.9 * cut.head < pairs * (length - cut.head) / cut.others <= cut.head


def test_a_token_moves_little_but_its_states():
    cost = ledger.state_update(4096, 4096, 16)
    assert cost.bytes - 2 * 4096 * 4096 * 16 * 4 < 0.07 * cost.bytes


def test_an_unknown_way_to_save_is_refused():
    with pytest.raises(ValueError, match="save is 'half'"):
        ledger.saved_states(1, 1, 1, 1, save="half")
