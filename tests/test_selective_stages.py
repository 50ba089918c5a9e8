"""The three stages of the selective scan that notebook 06 runs in checked mode."""

import numpy as np
import pytest

from ssmlab import kernels, reference
from ssmlab.lab import selective_ladder as ladder

SHAPES = [(1, 8, 32, 16), (2, 12, 68, 16), (1, 4, 4, 5)]


def wanted(values):
    return reference.selective_scan(*(values[name] for name in ladder.ORDER), delta_softplus=True)[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_all_stages_give_the_reference_without_a_finding(shape):
    values = ladder.problem(*shape)
    want = wanted(values)
    four, reports = ladder.unfused(values)
    assert list(reports) == list(ladder.STEPS)
    found = [(four, report) for report in reports.values()]
    found += [ladder.fused(values), ladder.finished(values), ladder.finished(values, time_inner=True)]
    for y, report in found:
        assert np.max(np.abs(y - want)) <= 1e-5 * np.max(np.abs(want))
        assert report.ok, report


def test_an_edited_text_is_run():
    values = ladder.problem(1, 4, 8, 4)
    text = kernels.source("selective_v2_fused.cu").replace("float sum = skip * in;", "float sum = 0.0f;")
    y, _ = ladder.fused(values, text)
    without = wanted({**values, "D": np.zeros_like(values["D"])})
    assert np.max(np.abs(y - without)) <= 1e-5 * np.max(np.abs(without))


def test_both_layouts_move_the_fewest_sectors_in_the_finished_kernel():
    values = ladder.problem(1, 32, 64, 16)
    for time_inner in (False, True):
        _, report = ladder.finished(values, time_inner)
        for names in (("u", "delta", "z", "y"), ("B", "C")):
            requests, sectors, fewest = ladder.traffic(report, *names)
            assert requests and sectors == fewest == 16 * requests
        assert ladder.traffic(report, "u", "delta", "z", access="read")[1] == 3 * 4 * 32 * 64 // 32


def test_ragged_shapes_are_refused():
    with pytest.raises(ValueError, match="multiples of 4"):
        ladder.finished(ladder.problem(1, 5, 64, 16))


def test_v2_walks_through_both_layouts():
    values = ladder.problem(2, 8, 12, 4)
    turned = {name: np.ascontiguousarray(value.transpose(0, 2, 1)).reshape(value.shape) if name in ("u", "delta", "z")
              else value for name, value in values.items()}  # fmt: skip
    y, _ = ladder.fused(turned, ladder.v2_text(time_inner=True))
    assert np.array_equal(y.reshape(2, 12, 8).transpose(0, 2, 1), ladder.fused(values)[0])
