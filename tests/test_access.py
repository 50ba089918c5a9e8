"""The picture of a request says what the report counts, and the report what Nsight Compute counted on an H200."""

import importlib.util
import json
from pathlib import Path

import kernel_files
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from ssmlab import RawKernel, check, kernels
from ssmlab.lab import access_figure, exercises
from ssmlab.lab.access import sectors, wavefronts
from ssmlab.lab.figures import COLORS

NCU = Path(__file__).resolve().parents[1] / "notebooks" / "results" / "ncu_access_h200.json"
FLOATS = np.arange(4096, dtype=np.float32)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def strided(stride, offset=0, element="float", lanes=32):
    kernel = RawKernel(kernels.source("access_stride.cu"), "strided_copy", (f"-DELEMENT={element}",))
    return check(kernel, 1, 32, (FLOATS, FLOATS.copy(), lanes, stride, offset))


def banks(stride, element="float"):
    kernel = RawKernel(kernels.source("access_banks.cu"), "banks", (f"-DELEMENT={element}",))
    return check(kernel, 1, 32, (FLOATS, FLOATS.copy(), stride))


def only(report, space, access):
    (row,) = [row for row in report.lines if (row.space, row.access) == (space, access)]
    return row


def cells(ax, color):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle) and to_hex(patch.get_facecolor()) == color
            and patch.get_alpha() is None]


@pytest.mark.parametrize("element", ["float", "float4"])
@pytest.mark.parametrize("stride, offset", [(0, 0), (1, 0), (1, 1), (2, 0), (3, 5), (8, 0), (31, 2), (32, 0)])
def test_the_sectors_of_one_request_are_those_of_the_report(stride, offset, element):
    row = only(strided(stride, offset, element), "global", "read")
    assert sectors(row.lanes, row.size) == row.sectors


@pytest.mark.parametrize("element", ["float", "float2", "float4"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6, 7, 9, 15, 16, 17, 20, 32, 33])
def test_the_wavefronts_of_one_request_are_those_of_the_report(stride, element):
    row = only(banks(stride, element), "shared", "read")
    assert wavefronts(row.lanes, row.size) == row.wavefronts


@pytest.mark.parametrize("launch", json.loads(NCU.read_text(encoding="utf-8"))["launches"],
                         ids=lambda launch: " ".join(map(str, (launch["kernel"], *launch["scalars"]))))
def test_the_report_counts_what_nsight_compute_counted(launch):
    kernel = RawKernel(kernels.source(launch["file"]), launch["kernel"], tuple(launch["options"]))
    x = np.zeros(1 << 16, np.float32)
    report = check(kernel, tuple(launch["grid"]), tuple(launch["block"]), (x, x.copy(), *launch["scalars"]))

    def total(space, access, what):
        return sum(getattr(row, what) for row in report.lines if (row.space, row.access) == (space, access))

    assert {"requests": total("global", "read", "requests"),
            "sectors read": total("global", "read", "sectors"), "sectors written": total("global", "write", "sectors"),
            "wavefronts read": total("shared", "read", "wavefronts"),
            "wavefronts written": total("shared", "write", "wavefronts"),
            "conflicts read": total("shared", "read", "bank_conflicts")} == launch["ncu"]


TABLE = """extern "C" __global__ void look_up(const int* table, float* y) {
    __shared__ ELEMENT cells[64];
    const int t = threadIdx.x;
    float* words = (float*)cells;
    for (int i = t; i < 64 * sizeof(ELEMENT) / 4; i += 32) { words[i] = i; }
    __syncwarp();
    if (table[t] >= 0) {
        const ELEMENT mine = cells[table[t]];  // line 8
        y[t] = mine.x;
    }
}"""


@pytest.mark.parametrize("table, float2, float4", [
    ([7] * 32, 1, 2),
    (list(range(32)), 2, 4),
    ([2 * t for t in range(32)], 4, 8),
    ([t // 2 for t in range(32)], 1, 2),
    ([t // 4 * 2 + t % 2 for t in range(32)], 1, 2),
    ([t % 16 for t in range(32)], 2, 4),
    ([t // 2 * 16 % 64 for t in range(32)], 4, 8),
    ([5] + [-1] * 31, 1, 1),
], ids=["one address", "neighbours", "every second", "pairs", "pairs at a distance of two", "halves alike",
        "pairs that conflict", "one lane"])
def test_a_wide_read_in_which_neighbours_agree_takes_half_the_wavefronts(table, float2, float4):
    """As an H200 counts them, like more patterns (test_simt_wide_reads.py)."""
    for element, expected in (("float2", float2), ("float4", float4)):
        kernel = RawKernel(TABLE, "look_up", (f"-DELEMENT={element}",))
        report = check(kernel, 1, 32, (np.array(table, np.int32), np.zeros(32, np.float32)))
        (row,) = [row for row in report.line(8) if row.space == "shared"]
        assert row.wavefronts == expected, element
        assert wavefronts(row.lanes, row.size) == expected


COUNTED = json.loads((NCU.parent / "simt_vs_tools.json").read_text(encoding="utf-8"))["counters"]
WIDE = [row for row in COUNTED if row["id"].startswith(("leader_pointer", "tile_loop_scan", "shared_vectors"))]


@pytest.mark.parametrize("counted", WIDE, ids=[row["id"] for row in WIDE])
def test_wide_accesses_of_shared_memory_are_counted_as_by_ncu(counted):
    (case,) = [case for path in kernel_files.RIGHT for case in kernel_files.launches(path) if case.id == counted["id"]]
    report = kernel_files.check(case)
    for name in ("shared read wavefronts", "shared read bank_conflicts", "shared write wavefronts"):
        space, access, what = name.split()
        mine = sum(getattr(row, what) for row in report.lines if (row.space, row.access) == (space, access))
        assert mine == counted["counters"][name]["ncu"], name


def test_a_word_that_was_asked_for_is_a_cell_with_its_lane():
    report = strided(2)
    ax = access_figure(report, only(report, "global", "read").line, access="read")
    assert sorted(int(text.get_text()) for text in ax.texts) == list(range(32))
    assert len(cells(ax, COLORS["global"])) == 32
    assert ax.get_title(loc="left") == "read of x, 32 lanes, 4 B each: 8 sectors, 4 would do"


def test_sixteen_bytes_are_four_cells():
    report = strided(1, element="float4")
    ax = access_figure(report, only(report, "global", "read").line, access="read")
    assert len(cells(ax, COLORS["global"])) == 128
    assert ax.get_title(loc="left") == "read of x, 32 lanes, 16 B each: 16 sectors, the fewest"


def test_words_that_wait_for_their_bank_are_red():
    report = banks(16)
    ax = access_figure(report, only(report, "shared", "read").line, access="read", name="tile")
    assert (len(cells(ax, COLORS["shared"])), len(cells(ax, COLORS["bad"]))) == (2, 30)
    assert ax.get_title(loc="left").endswith("16 wavefronts, 1 would do")


def test_conflicts_are_judged_among_the_lanes_that_are_served_together():
    report = banks(1, "float4")
    ax = access_figure(report, only(report, "shared", "read").line, access="read", name="tile")
    assert not cells(ax, COLORS["bad"]) and ax.get_title(loc="left").endswith("4 wavefronts, the fewest")


def test_many_lanes_on_one_word_share_a_cell():
    ax = access_figure(strided(0), 7, access="read")
    assert [text.get_text() for text in ax.texts] == ["0-31"]


def test_a_long_picture_is_cut_and_says_so():
    ax = access_figure(strided(32), 7, access="read", rows=5)
    assert [text.get_text() for text in ax.texts if "rows" in text.get_text()] == ["… and 28 more rows like these"]
    assert len(ax.get_yticks()) == 4


def test_few_lanes_have_few_cells():
    ax = access_figure(strided(1, lanes=3), 7, access="read")
    assert ax.get_title(loc="left") == "read of x, 3 lanes, 4 B each: 1 sector, the fewest"


def test_an_unclear_choice_is_refused_with_what_there_is():
    with pytest.raises(ValueError, match="line 7 has read of x, write of y: choose one"):
        access_figure(strided(1), 7)
    with pytest.raises(ValueError, match="line 1 has no access to memory"):
        access_figure(strided(1), 1)
    with pytest.raises(ValueError, match="line 7 has read of x, write of y"):
        access_figure(strided(1), 7, name="z")


def test_other_right_answers_to_the_exercises_pass_too():
    path = Path(__file__).parent / "solutions" / "nb03.py"
    spec = importlib.util.spec_from_file_location("solutions_03", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for key, answer in module.ALSO_RIGHT:
        exercises.check(key, answer)
