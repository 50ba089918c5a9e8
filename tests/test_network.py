"""The picture of a scan shows exactly what was recorded, legibly."""

import functools

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from ssmlab import lab
from ssmlab.monoid import CONCAT, SUM, Combine, Copy, blelloch, chunked, hillis_steele, replay, serial

SCANS = [serial, hillis_steele, blelloch, functools.partial(chunked, chunk=3)]


@pytest.fixture(autouse=True)
def drawing():
    matplotlib.use("Agg")
    lab.setup()
    yield
    plt.close("all")


def lines(ax, color, lit=True):
    """(column above, column below, round) of the lines of one colour."""
    return sorted((int(line.get_xdata()[0]), int(line.get_xdata()[1]), int(line.get_ydata()[1]))
                  for line in ax.lines if len(line.get_xdata()) == 2 and to_hex(line.get_color()) == lab.COLORS[color]
                  and (line.get_alpha() == 1) == lit)


def events(result, kind):
    return [(row, event) for row, events in enumerate(result.trace, start=1) for event in events
            if isinstance(event, kind)]


@pytest.mark.parametrize("length", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("scan", SCANS)
def test_every_combine_has_its_two_lines_and_every_move_its_dashes(scan, exclusive, length):
    result = scan(SUM, np.ones(length), exclusive=exclusive, record=True)
    ax = lab.network(result)
    combines, copies = events(result, Combine), events(result, Copy)
    assert lines(ax, "left") == sorted((event.left, event.target, row) for row, event in combines)
    assert lines(ax, "right") == sorted((event.right, event.target, row) for row, event in combines)
    assert lines(ax, "soft") == sorted((event.source, event.target, row) for row, event in copies)
    assert len(lines(ax, "left")) == result.combines


@pytest.mark.parametrize("scan", SCANS)
def test_following_a_step_leaves_a_tree_over_all_that_came_before(scan):
    for follow in (0, 4, 7):
        ax = lab.network(scan(SUM, np.ones(8), record=True), follow=follow)
        lit, pale = lines(ax, "left"), lines(ax, "left", lit=False)
        assert len(lit) >= follow and len(lit) + len(pale) == len(lines(lab.network(scan(SUM, np.ones(8), record=True)),
                                                                        "left"))
    assert len(lines(lab.network(hillis_steele(SUM, np.ones(16), record=True), follow=15), "left")) == 15


def test_boxes_show_the_replayed_cells_and_the_margin_the_counts():
    result = blelloch(SUM, [3, 1, 7, 0, 4], exclusive=True, record=True)
    ax = lab.network(result, snapshots=replay(SUM, [3, 1, 7, 0, 4], result))
    row = {text.get_position()[0]: text.get_text() for text in ax.texts if text.get_position()[1] == 7}
    assert [row[cell] for cell in range(5)] == ["0", "3", "4", "11", "11"]
    assert [label.get_text() for label in ax.get_xticklabels()] == [*"01234", "pad", "pad", "pad", "total"]
    assert [label.get_text() for label in ax.get_yticklabels()][3:6] == ["round 3", "move", "round 4"]
    margin = [text.get_text() for text in ax.texts if "combine" in text.get_text()]
    assert margin == ["4 combines", "2 combines", "1 combine", "1 combine", "2 combines", "4 combines"]


def test_a_reversed_scan_counts_its_columns_down():
    ax = lab.network(serial(SUM, np.ones(3), reverse=True, record=True))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "1", "0"]


@pytest.mark.parametrize("word", ["abcdefgh", "abcdefghi"])
def test_no_text_sticks_out_of_its_box_and_no_boxes_touch(word):
    result = chunked(CONCAT, word, chunk=3, record=True)
    ax = lab.network(result, snapshots=replay(CONCAT, word, result))
    ax.figure.canvas.draw()
    boxes = [patch.get_window_extent() for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    for text in ax.texts:
        if text.get_text() in word and not text.get_path_effects():
            extent = text.get_window_extent()
            assert any(box.x0 < extent.x0 and extent.x1 < box.x1 and box.y0 < extent.y0 and extent.y1 < box.y1
                       for box in boxes), text.get_text()
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_nothing_to_draw_is_drawn_without_complaint():
    for scan in SCANS:
        lab.network(scan(SUM, [], record=True)).figure.canvas.draw()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="scan with record=True first"):
        lab.network(hillis_steele(SUM, [1, 2]))
    with pytest.raises(ValueError, match="follow is 2: it must be a step, 0 to 1"):
        lab.network(hillis_steele(SUM, [1, 2], record=True), follow=2)
