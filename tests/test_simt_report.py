"""What is counted, and how it is told: numbers that can be worked out by hand, and texts that never change."""

import os
import shutil

import numpy as np
import pytest
from simt_kernels import FILE, LINES, check, only, zeros

import ssmlab
from ssmlab.simt import KernelError, toolchain
from ssmlab.simt.report import Report


def row(report, mark, access, space):
    """The one row of a marked line."""
    rows = [one for one in report.line(LINES[mark]) if (one.access, one.space) == (access, space)]
    assert len(rows) == 1, str(report)
    return rows[0]


# ---- global memory


@pytest.mark.parametrize("stride, sectors", [(1, 4), (2, 8), (4, 16), (8, 32), (33, 32)])
def test_a_stride_costs_a_sector_for_each_lane_in_the_end(stride, sectors):
    report = check("strided", 1, 64, [zeros(64 * stride), zeros(64), np.int32(stride)])
    read = row(report, "strided", "read", "global")
    assert (read.requests, read.sectors, read.ideal_sectors, read.name) == (2, 2 * sectors, 8, "in")
    assert read.lanes == tuple((lane, 4 * stride * lane) for lane in range(32))
    assert report.bytes["global read"] == 256 and report.bytes["global read moved"] == 64 * sectors


def test_a_vector_is_one_request_of_16_bytes():
    report = check("vector_cells", 1, 32, [zeros(128)])
    assert report.ok
    assert row(report, "vector read", "write", "global").size == 16
    assert row(report, "vector read", "write", "global").sectors == 16
    assert row(report, "vector write", "write", "shared").wavefronts == 4
    assert row(report, "vector read", "read", "shared").ideal_wavefronts == 4


def test_structs_and_memcpy_count_as_their_widest_pieces():
    report = check("structs", 1, 32, [zeros(128, "int32"), zeros(276, "int32")])
    assert report.ok and all(one.requests == 1 and one.sectors == 16 for one in report.line(LINES["memcpy"]))
    assert {one.size for one in report.line(LINES["memcpy"])} == {16}


def test_a_long_loop_is_counted_though_lanes_run_one_after_another():
    n = 5000
    report = check("long_loop", 1, 32, [np.ones(32 * n, "float32"), zeros(32), np.int32(n)])
    read = row(report, "long loop", "read", "global")
    assert (read.requests, read.sectors, read.threads) == (n, 4 * n, 32 * n) and report.arrays[1][0] == n


def test_an_index_read_from_memory_counts_once():
    report = check("index_from_memory", 1, 32, [(np.arange(32) % 16).astype("int32"), zeros(16, "int32")])
    assert report.ok and row(report, "index", "read", "global").requests == 1
    assert row(report, "index", "atomic", "shared").requests == 1


# ---- shared memory


@pytest.mark.parametrize("stride, wavefronts", [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (3, 1), (31, 1)])
def test_bank_conflicts_follow_the_stride(stride, wavefronts):
    report = check("banks", 1, 32, [zeros(32), np.int32(stride)])
    write = row(report, "banks", "write", "shared")
    assert (write.wavefronts, write.ideal_wavefronts, write.bank_conflicts) == (wavefronts, 1, wavefronts - 1)
    assert row(report, "broadcast", "read", "shared").wavefronts == 1


@pytest.mark.parametrize("stride, wavefronts", [(1, 2), (2, 4), (16, 32)])
def test_eight_bytes_are_served_by_half_warps(stride, wavefronts):
    report = check("wide_banks", 1, 32, [zeros(32, "float64"), np.int32(stride)])
    write = row(report, "wide banks", "write", "shared")
    assert (write.wavefronts, write.ideal_wavefronts) == (wavefronts, 2)


@pytest.mark.parametrize(
    "schedule", [dict(lane_order="reverse"), dict(lane_order="random", block_order="random", resident=3)]
)
def test_counts_do_not_depend_on_the_schedule(schedule):
    args = [np.ones(256, "float32"), zeros(4), np.int32(64)]
    assert str(check("sums", 4, 256, args, **schedule)) == str(check("sums", 4, 256, args))


def test_barriers_are_counted_for_each_block_and_line():
    report = check("sums", 4, 256, [np.ones(256, "float32"), zeros(4), np.int32(64)])
    assert report.barriers == 9 and sum(report.barrier_lines.values()) == 36
    assert report.shared_bytes == 1024 and list(report.arrays[1]) == [64] * 4


# ---- texts

TABLE = """\
index_from_memory: 1 block of 32 threads, 2 barriers a block, 64 B of shared memory a block
line  memory       access  bytes  requests  sectors  ideal  wavefronts  ideal  conflicts
 {0}  shared bins  write       4         1                           1      1          0
 {1}  barrier                            1
 {2}  global in    read        4         1        4      4
 {2}  shared bins  atomic      4         1                           1      1          0
 {3}  barrier                            1
 {4}  shared bins  read        4         1                           1      1          0
 {4}  global out   write       4         1        2      2
global memory: 128 B read (128 B moved), 64 B written (64 B moved)
no findings"""


def test_the_table_reads_line_by_line():
    report = check("index_from_memory", 1, 32, [(np.arange(32) % 16).astype("int32"), zeros(16, "int32")])
    line = LINES["index"]
    assert str(report) == TABLE.format(line - 2, line - 1, line, line + 1, line + 2)


def test_a_race_is_told_with_both_lines_their_code_and_what_to_do():
    report = check("shared_race", 1, 64, [zeros(64)])
    first, second = LINES["race write"], LINES["race read"]
    assert str(only(report)) == (
        f"error: race at {FILE}:{first} and line {second}\n"
        f"  {first:5} | cells[threadIdx.x] = threadIdx.x;\n"
        f"  {second:5} | out[threadIdx.x] = cells[(threadIdx.x + 33) % 64];\n"
        f"  thread (1, 0, 0) writes cells, and in line {second}, thread (32, 0, 0) of the same block reads the same "
        "place: nothing decides which comes first [64 words, 256 bytes]\n"
        "  What to do: put __syncthreads() between the two, where every thread of the block passes it; "
        "or use a second buffer."
    )


def test_an_error_quotes_the_line_and_counts_the_rest():
    report = check("never_written", 2, 64, [zeros(64)])
    text = str(KernelError(report))
    assert text.startswith("kernel never_written: ") and "out[threadIdx.x] = cells[threadIdx.x];" in text
    assert "1 more finding: print(error.report)" in text and "What to do" in text
    assert KernelError(report).finding is report.findings[0] and KernelError(report).report is report


def test_a_report_without_findings_is_ok_and_prints_itself_in_a_notebook():
    report = Report("k", (1, 1, 1), (32, 1, 1), 0)
    assert report.ok and str(report) == "k: 1 block of 32 threads, 0 barriers a block\nno findings"


KERNELS = {
    "shared_race": lambda: (1, 64, [zeros(64)]),
    "third_reader": lambda: (1, 32, [zeros(32)]),
    "atomic_and_plain": lambda: (1, 64, [zeros(1, "int32")]),
    "never_written": lambda: (2, 64, [zeros(64)]),
    "gap_between_arrays": lambda: (1, 32, [zeros(32)]),
    "inner_dimension": lambda: (1, 32, [zeros(32), np.int32(3)]),
    "local_overrun": lambda: (1, 32, [zeros(32), np.int32(5)]),
    "vector_cells": lambda: (1, 32, [zeros(128)]),
    "two_instances": lambda: (1, 32, [zeros(32)]),
    "past_the_end": lambda: (1, 32, [zeros(32), zeros(32), np.int32(2)]),
    "far_away": lambda: (1, 1, [zeros(8), np.int64(1 << 40)]),
    "misaligned": lambda: (1, 4, [zeros(16), zeros(32)]),
    "block_reads_block": lambda: (4, 32, [np.ones(128, "float32"), zeros(128), zeros(128)]),
    "chain": lambda: (16, 32, [zeros(16), zeros(16, "int32"), np.int32(1)]),
    "two_barriers": lambda: (2, 64, [zeros(64, "int32")]),
    "same_barrier_two_calls": lambda: (1, 32, [zeros(32, "int32")]),
    "early_return": lambda: (1, 64, [zeros(64, "int32"), np.int32(50)]),
    "lane_waits_elsewhere": lambda: (1, 32, [zeros(32, "int32")]),
    "different_lines": lambda: (1, 32, [zeros(32, "int32")]),
    "waits_for_nobody": lambda: (4, 64, [zeros(1, "int32"), zeros(64, "int32")]),
    "endless_quiet": lambda: (1, 2, [zeros(4, "int32"), np.int32(10)]),
    "endless_busy": lambda: (1, 2, [zeros(4, "int32"), np.int32(10)]),
    "recursion": lambda: (1, 33, [zeros(33, "int32"), np.int32(1_000_000)]),
    "asserted": lambda: (1, 32, [np.full(32, -1, "int32"), zeros(32, "int32")]),
    "structs": lambda: (1, 32, [zeros(128, "int32"), zeros(276, "int32")]),
    "index_from_memory": lambda: (1, 32, [zeros(32, "int32"), zeros(16, "int32")]),
    "sums": lambda: (4, 256, [np.ones(1200, "float32"), zeros(4), np.int32(300)]),
    "warp_functions": lambda: (1, 64, [zeros(12 * 64, "int32")]),
}
ENDLESS = dict(watchdog=200_000)


@pytest.fixture(scope="module")
def reports_of_the_first_compiler():
    return {name: check(name, *make(), **(ENDLESS if "endless" in name else {})) for name, make in KERNELS.items()}


@pytest.mark.parametrize("compiler", ["g++", "clang++", "zig"])
def test_reports_are_the_same_from_every_compiler(compiler, reports_of_the_first_compiler, monkeypatch):
    zig = toolchain.zig_program()
    command = (zig and f"{zig} c++") if compiler == "zig" else shutil.which(compiler)
    if not command:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setitem(os.environ, "CXX", command)
    for name, make in KERNELS.items():
        report = check(name, *make(), **(ENDLESS if "endless" in name else {}))
        first = reports_of_the_first_compiler[name]
        assert str(report) == str(first)
        assert (report.findings, report.lines, report.accesses) == (first.findings, first.lines, first.accesses)


MODULE_MEMORY = """struct Pair { int a, b; };
struct Row { float a, b, c[6]; };
__device__ char pad = 1;
__device__ float table[100];
__device__ char letters[40];
extern "C" __global__ void tables(float* y) {
    const int t = threadIdx.x;
    table[t] = y[t];
    letters[t] = t % 8;
    __syncthreads();
    y[t] = table[31 - t] + letters[t] + pad;
}
extern "C" __global__ void structs(const Row* x, Row* y, const Pair* p, Pair* q) {
    const int t = threadIdx.x;
    Row one = x[t];
    one.a += 1;
    y[t] = one;
    Pair two = p[t];
    two.b = two.a;
    q[t] = two;
}"""
COUNTED_ALIKE = {
    "tables": {(8, "read", "y"): (1, 4), (8, "write", "table"): (1, 4), (9, "write", "letters"): (1, 1),
               (11, "read", "table"): (1, 4), (11, "read", "letters"): (1, 1), (11, "read", "pad"): (1, 1),
               (11, "write", "y"): (1, 4)},
    "structs": {(15, "read", "x"): (2, 64), (17, "write", "y"): (2, 64), (18, "read", "p"): (1, 8),
                (20, "write", "q"): (1, 8)},
}  # fmt: skip


@pytest.mark.parametrize("compiler", ["g++", "clang++", "zig"])
def test_copies_of_structs_and_variables_of_the_module_count_alike_from_every_compiler(compiler, monkeypatch):
    zig = toolchain.zig_program()
    command = (zig and f"{zig} c++") if compiler == "zig" else shutil.which(compiler)
    if not command:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CXX", command)
    module = ssmlab.RawModule(code=MODULE_MEMORY)
    arguments = {"tables": [zeros(32)], "structs": [zeros(256), zeros(256), zeros(64, "int32"), zeros(64, "int32")]}
    for name, expected in COUNTED_ALIKE.items():
        report = ssmlab.check(module.get_function(name), 1, 32, arguments[name])
        found = {(row.line, row.access, row.name): (row.requests, row.sectors) for row in report.lines}
        assert report.ok and found == expected


TWO_ORDERS = """__device__ float* left() { __shared__ float a[32]; return a; }
__device__ float* right() { __shared__ float b[32]; return b; }
extern "C" __global__ void either(float* y) {
    float* mine = blockIdx.x ? right() : left();
    float* other = blockIdx.x ? left() : right();
    mine[threadIdx.x] = 1.0f;
    other[threadIdx.x] = 2.0f;
    y[threadIdx.x + 32 * blockIdx.x] = mine[threadIdx.x] + other[threadIdx.x];
}"""


def test_a_line_names_its_arrays_though_blocks_meet_them_in_different_orders():
    report = ssmlab.check(ssmlab.RawKernel(TWO_ORDERS, "either"), 2, 32, [zeros(64)])
    named = {row.line: (row.name, row.requests) for row in report.lines if row.space == "shared"}
    assert report.ok and named == {6: ("a, b", 2), 7: ("a, b", 2), 8: ("a, b", 4)}
