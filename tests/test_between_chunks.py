"""The kernels of notebook 05, chunks_v1 ... chunks_v5: right in every order of blocks, and each wrong edit is named."""

import re

import numpy as np
import pytest

import ssmlab
from ssmlab import kernels, reference
from ssmlab.compare import first_difference

FILES = [name for name in kernels.names() if name.startswith("chunks_v")]
TEXT = {name.split("_")[1]: kernels.path(name).read_text(encoding="utf-8") for name in FILES}
ORDERS = {
    "forward, one": dict(block_order="forward", resident=1),
    "reverse, one": dict(block_order="reverse", resident=1),
    "random, five": dict(block_order="random", resident=5, seed=1),
    "reverse, all, lanes too": dict(block_order="reverse", resident=64, lane_order="reverse"),
}
SHAPES = [(4, 1, 8), (4, 3, 23), (2, 2, 7), (32, 3, 500), (128, 2, 128), (64, 5, 1)]     # chunk, rows, length
README = (kernels.FOLDER / "README.md").read_text(encoding="utf-8")
BOARD = ["total", "before", "after", "ready", "flag"]                   # arrays that only hand something on
TOLERANCE = 4e-6  # relative to the largest state, as for the ladder of block scans; the worst seen here was 4e-7
each_shape = pytest.mark.parametrize("chunk, rows, length", SHAPES)
each_order = pytest.mark.parametrize("order", ORDERS)


def problem(rows, length, seed=0):
    """a, b, start float32: decays near one, so that a wrong carry is felt in chunks far behind it."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(0.97, 1, (rows, length)).astype(np.float32)
    return a, rng.standard_normal((rows, length)).astype(np.float32), rng.standard_normal(rows).astype(np.float32)


def eight():
    """The case of claim A16: 8 steps, a start that is not zero."""
    b = np.array([[3, 1, 7, 0, 4, 1, 6, 3]], np.float32)
    return np.full_like(b, 0.5), b, np.array([8], np.float32)


def kernel(text, name, chunk):
    return ssmlab.RawKernel(text, name, options=(f"-DCHUNK={chunk}", f"-I{kernels.FOLDER}"))


def nan(*shape):
    return np.full(shape, np.nan, np.float32)


def two_passes(a, b, start, chunk, text=TEXT["v2"], carry=TEXT["v2"], name="chunks_v2_carry", **order):
    """The reports on the three launches; the last one's arrays[3] is h."""
    rows, length = a.shape
    count = -(-length // chunk)

    def run(name, grid, block, *args, text=text):
        return ssmlab.check(kernel(text, name, chunk), (grid,), (block,), args, **order)

    totals = run("chunks_v2_totals", rows * count, chunk, a, b, nan(rows, count, 2), length, count)
    middle = run(name, rows, 32, totals.arrays[2], start, nan(rows, count), rows, count, text=carry)
    last = run("chunks_v2_finish", rows * count, chunk, a, b, middle.arrays[2], nan(rows, length), length, count)
    return totals, middle, last


def one_pass(version, a, b, start, chunk, text=None, flag=0, **order):
    """The report on the single launch of v4 or v5; its arrays[2] is h."""
    rows, length = a.shape
    count = -(-length // chunk)
    values = [nan(rows, count, 2)] if version == "v5" else []
    arguments = [a, b, nan(rows, length), start, rows, length, count, np.zeros(1, np.int32), *values, nan(rows, count),
                 np.full((rows, count), flag, np.int32)]
    launched = kernel(text or TEXT[version], f"chunks_{version}", chunk)
    return ssmlab.check(launched, (rows * count,), (chunk,), arguments, **order)


def edited(version, *edits):
    text = TEXT[version]
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def assert_right(report, h, a, b, start):
    assert report.ok, str(report)
    want, _ = reference.scan(a, b, start)
    assert np.max(np.abs(h - want)) <= TOLERANCE * np.max(np.abs(want))


def moved(report, names, access):
    return sum(line.size * line.threads for line in report.lines if line.name in names and line.access == access)


@pytest.mark.parametrize("layout", ["(rows, length)", "(length, rows)"])
@pytest.mark.parametrize("rows, length", [(1, 8), (33, 20), (2, 1), (3, 0)])
def test_a_thread_walks_its_row_in_either_layout(rows, length, layout):
    a, b, start = problem(rows, length)
    flip, strides = (np.asarray, (length, 1)) if layout == "(rows, length)" else (np.transpose, (1, rows))
    arrays = [np.ascontiguousarray(flip(array)) for array in (a, b, nan(rows, length))]
    walk = ssmlab.RawKernel(TEXT["v1"], "chunks_v1")
    report = ssmlab.check(walk, (-(-rows // 32),), (32,), (*arrays, start, rows, length, *strides))
    h = flip(report.arrays[2])
    assert report.ok and (length == 0 or np.allclose(h, reference.scan(a, b, start)[0], rtol=1e-6, atol=1e-6))


@each_order
@each_shape
def test_two_passes_are_right_with_a_chain_and_with_a_scan_of_totals(chunk, rows, length, order):
    a, b, start = problem(rows, length)
    for carry, name in ((TEXT["v2"], "chunks_v2_carry"), (TEXT["v3"], "chunks_v3_carry")):
        totals, middle, last = two_passes(a, b, start, chunk, carry=carry, name=name, **ORDERS[order])
        assert totals.ok and middle.ok, f"{totals}\n{middle}"
        assert_right(last, last.arrays[3], a, b, start)


@each_order
@each_shape
@pytest.mark.parametrize("version", ["v4", "v5"])
def test_one_pass_is_right_whichever_block_starts_first(version, chunk, rows, length, order):
    a, b, start = problem(rows, length)
    report = one_pass(version, a, b, start, chunk, **ORDERS[order])
    assert_right(report, report.arrays[2], a, b, start)


@pytest.mark.parametrize("version", ["v4", "v5"])
def test_one_pass_gives_the_same_bits_in_every_order(version):
    a, b, start = problem(2, 300)
    assert len({one_pass(version, a, b, start, 32, **order).arrays[2].tobytes() for order in ORDERS.values()}) == 1


def test_the_scan_of_totals_goes_on_behind_32_chunks():
    a, b, start = problem(2, 4 * 70)
    _, middle, last = two_passes(a, b, start, 4, carry=TEXT["v3"], name="chunks_v3_carry")
    assert_right(last, last.arrays[3], a, b, start)
    want, _ = reference.scan(a, b, start)
    assert np.allclose(middle.arrays[2][:, 1:], want[:, 3:-1:4], rtol=1e-5, atol=1e-5)


def test_two_passes_read_four_times_and_write_once_and_one_pass_half_as_often():
    a, b, start = problem(2, 256)
    reports = two_passes(a, b, start, 64)
    assert sum(moved(report, "ab", "read") for report in reports) == 16 * 512
    assert sum(moved(report, "h", "write") for report in reports) == 4 * 512
    for version in ("v4", "v5"):
        report = one_pass(version, a, b, start, 64)
        assert (moved(report, "ab", "read"), moved(report, "h", "write")) == (8 * 512, 4 * 512)
        assert all(line.sectors == line.ideal_sectors for line in report.lines if line.name in ("a", "b", "h"))
        assert moved(report, BOARD, "write") == 8 * {"v4": 4 + 4, "v5": 8 + 4 + 4 + 4}[version]


def test_the_table_in_the_readme_counts_right():
    rows = {name: line.strip("|").split("|") for line in README.splitlines() for name in FILES if f"`{name}`" in line}
    assert list(rows) == FILES
    table = {name.split("_")[1]: [cell.strip() for cell in cells[3:6]] for name, cells in rows.items()}
    steps, chunks = 2 * 256, 2 * 4
    launches = {"v2": two_passes(*problem(2, 256), 64), "v4": [one_pass("v4", *problem(2, 256), 64)],
                "v5": [one_pass("v5", *problem(2, 256), 64)]}
    for version, reports in launches.items():
        read, written = (sum(moved(report, *what) for report in reports) for what in (("ab", "read"), ("h", "write")))
        assert table[version][:2] == [str(len(reports)), f"{read // (4 * steps)}, {written // (4 * steps)}"]
        board = sum(moved(report, BOARD, "write") for report in reports)
        if version == "v2":                                             # all 64 threads of a block read one carry
            board += moved(reports[1], ["total"], "read") + moved(reports[2], ["before"], "read") // 64
        assert table[version][2].split()[0] == str(board // chunks)
    assert table["v1"] == ["1", "2, 1", "0"] and table["v3"] == table["v2"]


@pytest.mark.parametrize("chunk", [4, 64])
def test_the_barriers_are_those_of_the_headers(chunk):
    rounds = int(np.log2(chunk))
    totals, middle, last = two_passes(*problem(1, 2 * chunk), chunk)
    assert (totals.barriers, middle.barriers, last.barriers) == (rounds, 0, rounds)
    assert [one_pass(version, *problem(1, 2 * chunk), chunk).barriers for version in ("v4", "v5")] == [rounds + 2] * 2


def test_the_board_costs_what_the_headers_say():
    header = [int(re.search(r"and (\d+) B a chunk for the board", TEXT[version])[1]) for version in ("v4", "v5")]
    assert header == [8, 20]


# ---- wrong on purpose

APPLY, KEEP = "state = total[at].x * state + total[at].y;", "before[at] = state;"
OWN = "before[at] = k > 0 ? total[at].x * before[at - 1] + total[at].y : state;"
WRONG_CARRIES = {
    "carry: last local element": (APPLY, "state = total[at].y;"),
    "carry: own total": (KEEP, OWN),
    "carry: off by one": (KEEP, "before[at] = k > 0 ? before[at - 1] : state;"),
}


@pytest.mark.parametrize("stage", WRONG_CARRIES)
def test_each_wrong_carry_is_named_at_the_first_step_of_chunk_one(stage):
    a, b, start = eight()
    _, middle, last = two_passes(a, b, start, 4, carry=edited("v2", WRONG_CARRIES[stage]))
    assert middle.ok and last.ok
    found = first_difference(last.arrays[3], reference.scan(a, b, start)[0], chunk=4, a=a, b=b, initial_state=start)
    assert (found.step, found.stage) == (4, stage)


def test_from_zero_the_last_local_element_is_no_mistake_at_eight_steps():
    a, b, start = eight()
    _, _, last = two_passes(a, b, 0 * start, 4, carry=edited("v2", WRONG_CARRIES["carry: last local element"]))
    assert_right(last, last.arrays[3], a, b, 0 * start)


@pytest.mark.parametrize("version", ["v4", "v5"])
def test_by_block_index_a_single_pass_hangs_and_by_ticket_it_does_not(version):
    a, b, start = problem(1, 128)
    naive = edited(version, ("number = atomicAdd(ticket, 1);", "number = blockIdx.x;"))
    report = one_pass(version, a, b, start, 32, naive, block_order="reverse", resident=1)
    assert [finding.kind for finding in report.findings] == ["deadlock"]
    assert one_pass(version, a, b, start, 32, block_order="reverse", resident=1).ok


FENCE = {  # up to the comment that tells them apart
    "writer": re.search(r"__threadfence\(\); +// fence:", TEXT["v4"])[0],
    "reader": re.search(r"__threadfence\(\); +// the flag", TEXT["v4"])[0],
    "looker": re.search(r"__threadfence\(\); +// the flags", TEXT["v5"])[0],
}
VALUE, FLAG = "after[here] = mine.x * before + mine.y;", "ready[here] = 1;"
STATE_VALUE, STATE_FLAG = "        after[here] = mine.x * before + mine.y;\n", "        post(flag + here, STATE);\n"
RACES = {  # what is edited, and what the flags hold at the start
    "v4, no fence behind the value": ("v4", [(FENCE["writer"], "// fence:")], 0),
    "v4, no fence behind the flag": ("v4", [(FENCE["reader"], "// the flag")], 0),
    "v4, a flag before the value": ("v4", [(VALUE, "@"), (FLAG, VALUE), ("@", FLAG)], 0),
    "v4, an ordinary flag": ("v4", [("volatile int* ready", "int* ready")], 0),
    "v4, flags of the last launch": ("v4", [], 1),
    "v5, no fence behind the values": ("v5", [("    __threadfence();\n    *flag", "    *flag")], 0),
    "v5, no fence behind the flags": ("v5", [(FENCE["looker"], "// the flags")], 0),
    "v5, the state behind its flag": ("v5", [(STATE_VALUE + STATE_FLAG, STATE_FLAG + STATE_VALUE)], 0),
}


@pytest.mark.parametrize("order", ["random, five", "forward, one"])
@pytest.mark.parametrize("name", RACES)
def test_whatever_breaks_value_fence_flag_is_a_race_on_global_memory(name, order):
    version, edits, flag = RACES[name]
    report = one_pass(version, *problem(1, 256), 32, edited(version, *edits), flag, **ORDERS[order])
    assert {finding.kind for finding in report.findings} == {"global-race"}, str(report)


def test_a_block_that_is_held_up_behind_its_total_holds_up_nobody_who_looks_back():
    a, b, start = problem(1, 512)                                       # 16 chunks
    posting = "post(flag + here, TOTAL);"
    held = edited("v5", (posting, posting + " if (chunk % 4 != 3) { while (flag[chunks - 1] != STATE) {} }"))
    report = one_pass("v5", a, b, start, 32, held, resident=16)
    assert_right(report, report.arrays[2], a, b, start)
    value = "after[here] = mine.x * before + mine.y;"
    held = edited("v4", (value, "if (chunk == 0) { while (ready[here + chunks - 1] == 0) {} } " + value))
    report = one_pass("v4", a, b, start, 32, held, resident=16)
    assert [finding.kind for finding in report.findings] == ["deadlock"]


def test_a_walk_that_forgets_the_totals_in_between_is_wrong_where_somebody_was_held_up():
    a, b, start = problem(1, 512)
    posting, walk = "post(flag + here, TOTAL);", "for (++k; k < chunk; ++k) {"
    held = edited("v5", (posting, posting + " if (chunk % 4 != 3) { while (flag[chunks - 1] != STATE) {} }"),
                  (walk, "for (k = chunk; k < chunk; ++k) {"))
    report = one_pass("v5", a, b, start, 32, held, resident=16)
    assert report.ok
    want, _ = reference.scan(a, b, start)
    found = first_difference(report.arrays[2], want, chunk=32, a=a, b=b, initial_state=start)
    assert (found.chunk, found.offset) == (3, 0) and found.stage.startswith("carry")


@pytest.mark.parametrize("name", FILES)
def test_the_header_says_who_it_is_what_is_new_and_how_it_is_compiled(name):
    lines = kernels.path(name).read_text(encoding="utf-8").splitlines()
    number = int(name[8])
    assert lines[0].startswith(f"// chunks_v{number} -- ") and len(max(lines, key=len)) <= 120
    assert re.match(r"// New " if number == 1 else rf"// Since v{number - 1} ", lines[3])
    assert any(line.startswith("// compile: ") for line in lines)


@pytest.mark.parametrize("chunk", [1, 3, 2048])
def test_a_chunk_that_does_not_fit_is_a_compile_error_with_the_rule(chunk):
    with pytest.raises(RuntimeError, match=r"CHUNK: a power of two in \[2, 1024\]"):
        one_pass("v4", *problem(1, 8), chunk)
