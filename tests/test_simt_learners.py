"""Edits that learners make to a kernel of the ladder: each ends soon, in a finding or an error with the line to blame.

The kinds are those that random edits of the ladder brought up (deleted, doubled and swapped lines, other operators,
types and brackets, statements in a barrier's place); the process must survive all of them.
"""

import platform
import re
import shutil

import numpy as np
import pytest

from ssmlab import RawKernel, check, kernels
from ssmlab.simt import CompileError, toolchain

FILE = {
    "v1": "block_scan_v1_one_buffer", "v2": "block_scan_v2_double_buffer", "v3": "block_scan_v3_warp_shuffle",
    "v4": "block_scan_v4_tree",
}  # fmt: skip
BARRIER = "__syncthreads();"
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="Arm gives 0 and goes on")

ENDLESS = [  # what is edited, how, and what the line of the loop begins with
    ("v1", "reach *= 2", "reach *= 1", "for (int reach"),  # a barrier in the loop
    ("v2", "for (", "for (;;) for (", "for (;;)"),
    ("v3", "for (", "for (;;) for (", "for (;;)"),  # a shuffle in the loop
    ("v3", "if (t < length)", "while (t < length)", "while (t"),  # a store in the loop
    ("v4", "if (right", "while (right", "while (right"),  # some lanes only, and a function of the header
    ("v1", BARRIER, "for (;;) __syncwarp();", "for (;;)"),
    ("v1", BARRIER, "for (;;) span[t].x += 1.0f;", "for (;;)"),  # one basic block, which Clang would not look at
    ("v1", BARRIER, "int x = 0; for (;;) x++;", "int x"),
    ("v1", BARRIER, 'while (true) printf("%d", t);', "while (true)"),
    ("v1", BARRIER, "for (;;) memset(h, 0, 4 * length);", "for (;;)"),
]
CAUGHT = [
    ("v1", BARRIER, "int x[1000000]; x[t] = t; h[0] = x[t];", "stack-overflow"),
    ("v1", BARRIER, "h = nullptr; h[t] = 1;", "wild-access"),
    ("v1", BARRIER, "((void (*)())h)();", "wild-access"),
    pytest.param("v1", BARRIER, "int z = t - t; h[0] = t / z;", "division-by-zero", marks=on_x86),
    ("v1", BARRIER, "assert(t < 3);", "assert"),
    ("v1", BARRIER, "__trap();", "assert"),
    ("v1", BARRIER, "if (t % 2) __syncthreads();", "divergent-barrier"),
    # It begins with its own frame: where it goes from there depends on what the compiler keeps where.
    ("v1", BARRIER, "char* p = (char*)&mine; for (int i = 0; i < 1000000; ++i) p[i] = 0;", "wild-access local-escape"),
    ("v1", BARRIER, "memset(h, 0, 1 << 30);", "out-of-bounds"),
    ("v1", "a[at]", "a[at * 1000000]", "wild-access"),
    ("v1", "a[at]", "a[-1]", "out-of-bounds"),
    ("v1", "span[t - reach]", "span[t + reach]", "out-of-bounds"),
]
REFUSED = [
    ("v1", "then(span", "then2(span"), ("v1", "float2 span", "float4 span"), ("v1", ": identity()", ": identity("),
    ("v1", "mine;", "mine"), ("v1", "float2 mine =", "float2& mine ="), ("v1", "threadIdx.x", "threadIdx.w"),
    ("v1", "blockIdx.x", "blockIdx"), ("v1", "length) {", "length {"), ("v1", "[TILE];", "[TILE;"),
    ("v1", "__shared__ float2 span[TILE]", "extern __shared__ float2 span[TILE]"), ("v1", BARRIER, "/*"),
    ("v1", BARRIER, '"'), ("v1", BARRIER, "#error no"), ("v1", BARRIER, "float* q = new float[10];"),
    ("v1", BARRIER, "throw 1;"), ("v1", BARRIER, 'asm("int3;");'), ("v1", BARRIER, "k<<<1, 1>>>();"),
    ("v1", BARRIER, '#include "nothing.h"'), ("v1", BARRIER, "}"),
]  # fmt: skip


def edited(version, before, after):
    """(kernel, arguments of a call) of a file of the ladder with one edit, and the edited text."""
    text = kernels.source(FILE[version] + ".cu")
    assert before in text
    text = text.replace(before, after, 1)
    kernel = RawKernel(text, f"block_scan_{version}", options=("-DTILE=64",), filename="learner.cu")
    rows = [np.ones((2, 64), np.float32) for _ in range(3)]
    return [kernel, (2,), (32 if version == "v4" else 64,), [*rows, np.int32(64)]], text


@pytest.mark.parametrize("compiler", ["g++", "clang++", "zig"])
@pytest.mark.parametrize("version, before, after, line", ENDLESS, ids=[" ".join(case[:3]) for case in ENDLESS])
def test_an_endless_loop_is_named_whatever_it_does(version, before, after, line, compiler, monkeypatch):
    zig = toolchain.zig_program()
    command = (zig and f"{zig} c++") if compiler == "zig" else shutil.which(compiler)
    if not command:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setenv("CXX", command)
    call, _ = edited(version, before, after)
    report = check(*call, watchdog=200_000)
    loops = [str(finding) for finding in report.findings if finding.kind == "endless-loop"]
    assert len(loops) == 1 and not report.complete
    assert re.search(r"\d+ \| +" + re.escape(line), loops[0]), loops[0]


def test_a_long_loop_that_ends_is_not_called_endless():
    call, _ = edited("v1", BARRIER, "for (int i = 0; i < 2000; ++i) __syncthreads();")
    assert check(*call).ok


LIMIT = 200_000
LONG = """#include <cooperative_groups.h>
extern "C" __global__ void work(float* p, int turns) {
    float* mine = p + blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < turns; ++i) { WORK; }
}"""


@pytest.mark.parametrize("work, turns", [("*mine = *mine + 1", 3000), ("cooperative_groups::this_grid().sync()", 1000)])
def test_a_block_is_not_charged_for_what_others_do_beside_it(work, turns):
    kernel = RawKernel(LONG.replace("WORK", work), "work", enable_cooperative_groups=True)
    for blocks in (1, 64):
        p = np.zeros(32 * blocks, np.float32)
        assert check(kernel, blocks, 32, (p, np.int32(turns)), watchdog=LIMIT, resident=blocks).ok
    endless = check(kernel, 2, 32, (np.zeros(64, np.float32), np.int32(2**31 - 1)), watchdog=LIMIT, resident=2)
    assert [finding.kind for finding in endless.findings] == ["endless-loop"]


@pytest.mark.parametrize("version, before, after, kind", CAUGHT)
def test_what_goes_wrong_is_a_finding_with_a_line_of_the_text(version, before, after, kind):
    call, text = edited(version, before, after)
    report = check(*call)
    found = [finding for finding in report.findings if finding.kind in kind.split()]
    assert found and not report.ok, str(report)
    line = re.search(r"^\s*\d+ \| ?(.*)$", str(found[0]), re.MULTILINE)[1].strip()
    assert line in text
    # A frame that is too large is found where the function begins, all else on the line that was edited.
    assert ("block_scan_v1(" if kind == "stack-overflow" else after) in line


@pytest.mark.parametrize("version, before, after", REFUSED, ids=[case[2] for case in REFUSED])
def test_what_is_no_cuda_is_a_compile_error_with_line_and_caret(version, before, after):
    with pytest.raises(CompileError) as caught:
        call, _ = edited(version, before, after)
        check(*call)
    assert re.search(r"^block_scan_v1_one_buffer\.cu:\d+:\d+: error: .*\n.*\n *\^", str(caught.value), re.MULTILINE)


def test_a_kernel_that_lost_its_global_is_told_where_it_stands():
    with pytest.raises(KeyError, match=r"one_buffer\.cu:\d+ has a 'block_scan_v1' that is not __global__"):
        call, _ = edited("v1", "__global__", "__device__")
        check(*call)


def test_too_much_shared_memory_is_refused_with_its_size():
    call, _ = edited("v1", "float2 span[TILE]", "float2 span[TILE * 1000]")
    (finding,) = check(*call).findings
    assert finding.kind == "out-of-bounds" and "TILE * 1000" in finding.text
    assert re.search(r"array span of [\d,]{7,} bytes does not fit", str(finding))
