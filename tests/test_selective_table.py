"""The ladder of selective kernels: what the README's table states is what headers, ledger and compiler say."""

import pytest
import torch
from selective_problem import problem

pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="CuPy is not installed")
import selective_table as ladder  # noqa: E402

from ssmlab import kernels, ledger, selective_kernels  # noqa: E402
from ssmlab.rawkernel import RawKernel, check  # noqa: E402
from ssmlab.selective_kernels import Inputs  # noqa: E402
from ssmlab.selective_plans import Variant  # noqa: E402


def test_the_table_is_what_is_measured_now():
    wanted, found = ladder.table().splitlines(), ladder.stored().splitlines()
    if wanted[-1] != found[-1]:                             # another compiler: all but its registers must agree
        place = ladder.HEAD.index("registers") + 1
        wanted, found = (
            [[cell for i, cell in enumerate(line.split("|")) if i != place] for line in lines[:-1]]
            for lines in (wanted, found)
        )
    assert found == wanted, "kernels_cu/README.md: run python tests/selective_table.py"


def test_every_selective_kernel_has_a_row():
    names = {path.stem for path in kernels.FOLDER.glob("selective_*.cu")}
    assert set(ladder.NEW) == names


@pytest.mark.parametrize("name", ["selective_v2_fused", "selective_forward", "selective_backward"])
def test_exponentials_of_the_header_are_those_of_the_ledger(name):
    count = ledger.selective_scan_backward if name == "selective_backward" else ledger.selective_scan
    more, less = count(2, 64, 32, 17), count(2, 64, 32, 16)
    assert ladder.exponentials(name) == (more.exponentials - less.exponentials) / (2 * 64 * 32)


def test_the_forward_moves_what_the_ledger_says(monkeypatch):
    """Counted by the checked mode, where one block has all channels: each weight once a row of the batch."""
    batch, length, channels, states = 2, 64, 32, 16
    reports = []

    def launcher(file, name, constants):
        options = tuple(f"-D{key}" if value is None else f"-D{key}={value}" for key, value in constants)
        kernel = RawKernel(kernels.source(file), name, options, filename=file, strided=True)
        return lambda grid, block, args, device, shared=0: reports.append(check(kernel, grid, block, args, shared))

    monkeypatch.setattr(selective_kernels, "launcher", launcher)
    values = problem(batch, length, channels, states, 1, torch.float32, without=("initial_state",))
    x = Inputs(*(value for name, value in values.items() if name != "initial_state"), True, None, None)
    final, borders = torch.empty(batch, channels, states), torch.empty(batch, 2, channels, states)
    variant = Variant(lanes=4, own=4, threads=64, tile=16, resident=1, many=2)
    selective_kernels.forward(x, None, final, borders=borders, variant=variant)
    (report,) = reports
    cost = ledger.selective_scan(batch, length, channels, states, itemsize=4, save="boundaries")
    weights = channels * (states + 2) * 4
    assert report.ok
    assert report.bytes["global read"] == cost.read + (batch - 1) * weights
    assert report.bytes["global written"] == cost.written
