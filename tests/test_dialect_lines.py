"""Accesses made inside the dialect's headers are counted, with their true sizes, in the line that asked for them."""

import numpy as np
import pytest
from dialect_compilers import compiler  # noqa: F401 (a fixture)

import ssmlab

TEXT = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
struct Row { float4 v; float2 w; };
extern "C" __global__ void lines(float4* f4, double4* d4, float3* f3, uchar4* u4, __half* h, __half2* h2,
                                 __nv_bfloat16* b, float* x, int* e, Row* rows) {
    const int t = threadIdx.x;
    __shared__ float4 tile[32];
    float4 v = f4[t];                         // global read 16 x1
    tile[t] = v;                              // shared write 16 x1
    d4[t] = d4[t + 32];                       // global read 16 x2, global write 16 x2
    f3[t] = f3[t + 32];                       // global read 4 x3, global write 4 x3
    u4[t] = u4[t + 32];                       // global read 4 x1, global write 4 x1
    __half y = h[t];                          // global read 2 x1
    h[t] = y + h[t + 32];                     // global read 2 x1, global write 2 x1
    h2[t] += h2[t + 32];                      // global read 4 x2, global write 4 x1
    float w = h[t];                           // global read 2 x1
    w += __half2float(h[t]) + (float)__ldg(&h[t]);    // global read 2 x2
    x[t] = frexp(w, &e[t]);                   // global write 4 x2
    sincosf(w, &x[t], &x[t + 32]);            // global write 4 x2
    Row row = rows[t];                        // global read 16 x1, global read 8 x1
    rows[t + 32] = row;                       // global write 16 x1, global write 8 x1
    x[t] = tile[t].x + rows[t].v.y;           // global read 4 x1, shared read 4 x1, global write 4 x1
    f4[t] = make_float4(1, 2, 3, 4);          // global write 16 x1
    if (h[t] < y) h[t] = hexp(h[t]);          // global read 2 x1
    b[t] = w;                                 // global write 2 x1
    h[t]++;                                   // global read 2 x1, global write 2 x1
    x[t] = min(x[t], x[t + 32]);              // global read 4 x2, global write 4 x1
}
extern "C" __global__ void stray(const __half2* h2, float* x) {
    x[threadIdx.x] = __low2float(h2[threadIdx.x]);
}
"""


def arguments():
    floats = [np.ones(shape, "float32") for shape in ((32, 4), (64, 3), 64, 64 * 8)]
    halves = [np.ones(64, "float16"), np.ones((64, 2), "float16")]
    f4, f3, x, rows = floats
    return [
        f4,
        np.ones((64, 4)),
        f3,
        np.ones((64, 4), "uint8"),
        *halves,
        np.ones(32, "uint16"),
        x,
        np.ones(32, "int32"),
        rows,
    ]


@pytest.mark.usefixtures("compiler")
def test_a_line_owns_the_accesses_that_headers_make_for_it():
    report = ssmlab.check(ssmlab.RawKernel(TEXT, "lines"), (1,), (32,), arguments())
    assert report.ok, str(report)
    for number, line in enumerate(TEXT.splitlines(), 1):
        got = {}
        for row in report.line(number):
            key = f"{row.space} {row.access} {row.size}"
            got[key] = got.get(key, 0) + row.requests
        _, _, said = line.partition("// ")
        want = dict(item.rsplit(" x", 1) for item in said.split(", ")) if said else {}
        assert got == {key: int(count) for key, count in want.items()}, f"line {number}: {line}"


@pytest.mark.usefixtures("compiler")
def test_a_finding_inside_a_header_names_the_line_that_led_there():
    report = ssmlab.check(
        ssmlab.RawKernel(TEXT, "stray"), (1,), (32,), (np.ones((31, 2), "float16"), np.ones(32, "float32"))
    )
    (finding,) = report.findings
    assert (finding.kind, finding.access) == ("out-of-bounds", "read")
    assert TEXT.splitlines()[finding.line - 1].strip().startswith("x[threadIdx.x] = __low2float")
