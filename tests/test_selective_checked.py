"""The finished kernels of the selective scan under the checker: no race, no bad access, nothing uninitialised."""

import pytest
import torch
from selective_problem import error, gradients, in_float64, loop, problem

from ssmlab import kernels, selective_kernels
from ssmlab.rawkernel import RawKernel, check
from ssmlab.selective_kernels import Inputs
from ssmlab.selective_plans import Variant, cut_in_pieces

FORWARD = Variant(lanes=4, own=2, threads=64, tile=8, resident=1, many=2)
BACKWARD = Variant(lanes=4, own=2, threads=64, tile=4, resident=1, many=2)


@pytest.fixture
def reports(monkeypatch):
    """Every launch runs under check() first, on copies, and then for real."""
    found = []

    def launcher(file, name, constants):
        options = tuple(f"-D{key}" if value is None else f"-D{key}={value}" for key, value in constants)
        kernel = RawKernel(kernels.source(file), name, options, filename=file, strided=True, mode="native")

        def launch(grid, block, args, device, shared_mem=0):
            report = check(kernel, grid, block, args, shared_mem)
            assert report.ok, f"{name}\n{report}"
            found.append(name)
            kernel(grid, block, args, shared_mem=shared_mem)

        return launch

    monkeypatch.setattr(selective_kernels, "launcher", launcher)
    return found


def one_sequence_a_row(batch, length):
    """Marks of rows packed with one sequence each: what is computed is the same."""
    start, finish = (torch.full((batch, length), mark, dtype=torch.int32) for mark in (-2, -1))
    start[:, 0] = finish[:, -1] = torch.arange(batch)
    return start, finish


def named(found):
    """Gradients by the names of the arguments; None where there is no such argument."""
    return {
        "u": found.du, "delta": found.ddelta, "A": found.dA, "B": found.dB, "C": found.dC, "D": found.dD, "z": found.dz,
        "delta_bias": found.d_bias, "initial_state": found.d_initial,
    }  # fmt: skip


@pytest.mark.parametrize("packed", [False, True], ids=["", "packed"])
@pytest.mark.parametrize("fixed, without, every, borders_type", [
    ("", (), False, torch.float32), ("B", (), False, torch.float32), ("C", ("z",), False, torch.float32),
    ("BC", ("D", "delta_bias"), True, torch.float32), ("", ("z", "D"), True, torch.float32),
    ("", (), False, torch.bfloat16),
], ids=str)  # fmt: skip
def test_every_kernel_is_clean_and_right_with_several_segments_and_lanes(
    reports, packed, fixed, without, every, borders_type
):
    values = problem(batch=2, length=70, channels=36, states=7, groups=1, dtype=torch.float32, without=without)
    for name in fixed:
        values[name] = torch.linspace(-1, 1, 36 * 7).reshape(36, 7)
    start, finish = one_sequence_a_row(2, 70) if packed else (None, None)
    given = {name: value for name, value in values.items() if name != "initial_state"}
    x = Inputs(**given, softplus=True, start=start, finish=finish)
    segment, initial = (32, 3), values["initial_state"]
    final = torch.empty_like(initial)
    borders = torch.empty(2, 70 if every else 3, 36, 7, dtype=borders_type)
    y = selective_kernels.forward(x, initial, final, segment=segment, borders=borders, every=every, variant=FORWARD)
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(y.shape, generator=generator), torch.randn(final.shape, generator=generator)
    found = selective_kernels.backward(
        x, weights[0], weights[1], borders, initial, slots=2, every=every, variant=BACKWARD,
        cuts=(cut_in_pieces(0, 70, 4, 32),),
    )  # fmt: skip
    wanted_y, wanted_final = loop(values)
    assert error(y, wanted_y) <= 1e-5 and error(final, wanted_final) <= 1e-5
    want, got = gradients(loop, values, weights), named(found)
    for name in want:
        assert error(got[name], want[name]) <= (4e-5 if borders_type == torch.float32 else 1e-2), name
    assert set(reports) == {
        "selective_totals", "selective_link_pieces", "selective_forward", "selective_backward", "selective_sum"
    }  # fmt: skip


VARIANTS = [(4, 4, 4, 64), (4, 4, 2, 64), (2, 8, 2, 64), (1, 16, 1, 32), (8, 2, 4, 64)]


@pytest.mark.parametrize("states, groups, element, state_type", [
    (16, 1, torch.float32, torch.float32), (16, 5, torch.bfloat16, torch.float32),
    (16, 1, torch.bfloat16, torch.bfloat16), (13, 1, torch.float32, torch.float16),
])  # fmt: skip
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_update_is_clean(reports, monkeypatch, variant, states, groups, element, state_type):
    """As a GPU runs it: several channels a thread, wide accesses, slots, padding, a slot that is used again."""
    monkeypatch.setattr(selective_kernels, "update_variant", lambda *given: variant)
    values = problem(batch=7, length=1, channels=35, states=states, dtype=element, groups=groups)
    known = torch.arange(7) != 2
    indices = torch.tensor([6, 0, 1, -1, 2, 3, 4], dtype=torch.int32)
    pool = torch.full((8, 35, states), 3.0, dtype=state_type)
    pool[indices.long()[indices >= 0]] = values["initial_state"].to(state_type)[indices >= 0]
    values["initial_state"] = torch.where(known[:, None, None], pool[indices.long()], 0).to(torch.float32)
    y = torch.empty(7, 35, dtype=element)
    selective_kernels.update(
        pool, values["u"][:, 0], values["delta"][:, 0], values["A"], values["B"], values["C"], values["D"],
        values["z"][:, 0], values["delta_bias"], True, indices, y, known,
    )  # fmt: skip
    wanted_y, wanted = loop(in_float64(values))
    wanted_y[3] = 0
    limits = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
    assert error(y, wanted_y[:, 0]) <= limits[element]
    assert error(pool[indices.long()[indices >= 0]], wanted[indices >= 0]) <= limits[state_type]
    assert (pool[[5, 7]] == 3).all()
    assert reports == ["selective_update"]


@pytest.mark.parametrize("packed", [False, True], ids=["", "packed"])
@pytest.mark.parametrize("head", [None, 32], ids=["whole", "in pieces"])
def test_many_states_far_borders_and_several_launches_are_clean_and_right(reports, packed, head):
    values = problem(batch=2, length=130, channels=20, states=18, groups=1, dtype=torch.float32)
    start, finish = one_sequence_a_row(2, 130) if packed else (None, None)
    given = {name: value for name, value in values.items() if name != "initial_state"}
    x = Inputs(**given, softplus=True, start=start, finish=finish)
    initial = values["initial_state"]
    final, borders = torch.empty_like(initial), torch.empty(2, 3, 20, 18)
    y = selective_kernels.forward(x, initial, final, borders=borders, spacing=64)
    wanted_y, wanted_final = loop(values)
    assert error(y, wanted_y) <= 1e-5 and error(final, wanted_final) <= 1e-5
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(y.shape, generator=generator), torch.randn(final.shape, generator=generator)
    found = selective_kernels.backward(
        x, weights[0], weights[1], borders, initial, slots=2, spacing=64, variant=BACKWARD,
        cuts=tuple(cut_in_pieces(*steps, 2, head or 130, borrows=steps[0] == 96) for steps in (
            (96, 130), (64, 96), (0, 64))),
    )  # fmt: skip
    assert reports.count("selective_backward") == 3 and ("selective_totals" in reports) == (head is not None)
    want, got = gradients(loop, values, weights), named(found)
    for name in want:
        assert error(got[name], want[name]) <= 4e-5, name
