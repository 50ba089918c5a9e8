"""Look-back under the checks: a word that brings its own flag needs no fence, one that relies on another word does.

The rule is stated in ssmlab/simt/runtime/order.h; small kernels for both sides of it are tests/right/look_back_*.cu and
tests/mutants/look_back_*.cu. Here: the finished scan, whose pairs travel in two such words (four for float64).
"""

import pytest
import torch

from ssmlab import check, launching, scan, scan_kernels

SCHEDULES = [
    dict(),
    dict(lane_order="reverse", block_order="reverse", resident=3),
    dict(lane_order="random", block_order="random", resident=2, seed=5),
]


@pytest.fixture
def reports(monkeypatch):
    """Every launch of the test, checked in several schedules, then carried out."""
    found = []

    def checked(self, grid, block, args, device, shared_mem=0):
        found.extend(check(self.kernel, grid, block, args, shared_mem, **schedule) for schedule in SCHEDULES)
        self.kernel(grid, block, args, shared_mem=shared_mem)

    monkeypatch.setattr(launching.Launcher, "__call__", checked)
    return found


def problem(layout, length, dtype=torch.float32):
    """a, b (1, length, 2) and the steps of one tile for them."""
    shape = (1, 2, length) if layout == "rows" else (1, length, 2)
    a, b = torch.rand(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    if layout == "rows":
        a, b = a.transpose(1, 2), b.transpose(1, 2)
    return a, b, scan_kernels.plan_of(scan_kernels.shape_of(a, b, b), "lookback").chunk


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_finished_look_back_needs_no_fence(dtype, layout, tiles, reports):
    _, _, tile = problem(layout, 8, dtype)
    a, b, _ = problem(layout, (tiles - 1) * tile + 5, dtype)
    scan(a, b, algorithm="lookback")
    assert reports[0].grid[0] == tiles * (2 if layout == "rows" else 1)
    assert all(report.ok and not report.findings for report in reports), [str(r) for r in reports if not r.ok][:1]


def test_neither_does_a_look_back_over_packed_sequences(reports):
    _, _, tile = problem("columns", 8)
    a, b, _ = problem("columns", 3 * tile)
    scan(a, b, algorithm="lookback", cu_seqlens=torch.tensor([0, 5, 2 * tile + 1, 3 * tile], dtype=torch.int32))
    assert len(reports) >= len(SCHEDULES)
    assert all(report.ok and not report.findings for report in reports), [str(r) for r in reports if not r.ok][:1]
