"""The finished kernels of the selective scan under the checker: no race, no bad access, nothing uninitialised."""

import pytest
import torch
from selective_problem import error, gradients, loop, problem

from ssmlab import kernels, selective_kernels
from ssmlab.rawkernel import RawKernel, check
from ssmlab.selective_kernels import Inputs, Variant

FORWARD = Variant(lanes=4, own=2, threads=64, tile=8, resident=1, many=2)
BACKWARD = Variant(lanes=4, own=2, threads=64, tile=4, resident=1, many=2, buffers=2)


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


@pytest.mark.parametrize("packed", [False, True])
def test_every_kernel_is_clean_and_right_with_several_segments_and_lanes(reports, packed):
    values = problem(batch=2, length=70, channels=36, states=7, groups=1, dtype=torch.float32)
    start = finish = None
    if packed:      # one sequence a row, without padding: what it computes is the same
        start, finish = torch.full((2, 70), -2, dtype=torch.int32), torch.full((2, 70), -1, dtype=torch.int32)
        start[:, 0] = finish[:, -1] = torch.arange(2)
    given = {name: value for name, value in values.items() if name != "initial_state"}
    x = Inputs(**given, softplus=True, start=start, finish=finish)
    segment, initial = (32, 3), values["initial_state"]
    final, borders = torch.empty_like(initial), torch.empty(2, 3, 36, 7)
    y = selective_kernels.forward(x, initial, final, segment=segment, borders=borders, variant=FORWARD)
    weights = torch.randn(y.shape), torch.randn(final.shape)
    found = selective_kernels.backward(
        x, weights[0], weights[1], borders, initial, slots=2, segment=segment, variant=BACKWARD, chunk=32
    )
    wanted_y, wanted_final = loop(values)
    assert error(y, wanted_y) <= 1e-5 and error(final, wanted_final) <= 1e-5
    want = gradients(loop, values, weights)
    got = {
        "u": found.du, "delta": found.ddelta, "A": found.dA, "B": found.dB, "C": found.dC, "D": found.dD, "z": found.dz,
        "delta_bias": found.d_bias, "initial_state": found.d_initial,
    }  # fmt: skip
    for name in want:
        assert error(got[name], want[name]) <= 4e-5, name
    assert set(reports) == {
        "selective_totals", "selective_link", "selective_forward", "selective_backward", "selective_sum"
    }  # fmt: skip


def test_the_update_is_clean(reports):
    values = problem(batch=3, length=1, channels=5, states=16, dtype=torch.float32, groups=1)
    state = values["initial_state"].clone()
    y = torch.empty(3, 5)
    selective_kernels.update(
        state, values["u"][:, 0], values["delta"][:, 0], values["A"], values["B"], values["C"], values["D"],
        values["z"][:, 0], values["delta_bias"], True, None, y,
    )  # fmt: skip
    wanted_y, wanted = loop(values)
    assert error(y, wanted_y[:, 0]) <= 1e-5 and error(state, wanted) <= 1e-5
    assert reports == ["selective_update"]
