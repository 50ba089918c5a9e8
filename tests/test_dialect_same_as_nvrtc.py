"""What compiles here compiles with NVRTC, and what NVRTC refuses is refused here: no dialect of one machine grows."""

import re

import nvrtc
import pytest
from dialect_case import EXPRESSIONS, OPTIONS, TEXT
from dialect_compilers import compiler  # noqa: F401 (a fixture)

import ssmlab
from ssmlab.simt.messages import CompileError

FRAME = """#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
extern "C" __global__ void probe(float* a, int n, float4 v, __half h, __half2 h2, __nv_bfloat16 b,
                                 __nv_bfloat162 b2) {
    STATEMENT;
}
"""
ACCEPTED = """
    pow(a[1], n) | pow(2.0, n) | abs(n) | abs(a[1]) | abs(2l) | max(n, 2u) | max((short)1, n) | max(1.0, a[1])
    fmaxf(1.0, n) | isnan(a[1]) | ::expf(1.0f) | ldexp(a[1], 2) | frexp(a[1], &n) | modf(a[1], a) | __expf(1.0)
    __popc(-1) | __clz(1ll) | h + h | h2 * h2 | h2 == h2 | (int)h | (bool)h | a[h] = 1.0f | h < h | fabsf(h)
    exp(h) | __hmax(h, 0.0f) | b + b | (half)b | (nv_bfloat16)h | half(1) | half(1ll) | half('c') | half(true) | -h
    h += h | h++ | h += 1 | h2 += h2 | h ? 1 : 0 | !h | half2(1.0f, 2.0f) | half2{h, h} | hexp(b) | h2exp(h2)
    make_half2(h, h) | (double)h | __hfma(h, h, 1.0f) | float x = h | int x = h | half x = n | half x = 1.0
    a[0] = h | h = a[0] | h = n | h *= 2 | a[0] = h2.x | half x[3] = {1.0f, 2.0f, h} | half x[2] = {} | h2.y = 1.0f
    __half_raw x = h | const half x = h; x + h | __half2 x(h2) | float4 w = v | float4 w = {1, 2, 3, 4}
    float4 w = {1, 2} | float4 w = {} | float4 w{} | float4 w(v) | v.x = 1 | v = make_float4(1, 2, 3, 4)
    int2 i = {1, 2} | dim3 d(1) | dim3 d(1, 2) | dim3 d | uint3 d = {1, 2, 3} | dim3 d = threadIdx
    uint3 t = threadIdx; t.x++ | a[0] = CUDART_INF_F + CUDART_NAN_F + CUDART_PI_F | size_t s = sizeof(double)
    ptrdiff_t p = a - a | memcpy(a, a + 4, 8) | memset(a, 0, 4) | void* p = NULL | a[0] = nanf("")
    a[0] = __int_as_float(0x7f800000) | __builtin_assume(n > 0) | a[0] = __builtin_expect(n, 1)
    clock_t t = clock() | a[0] = warpSize | wchar_t c = 1
    union { float4 w; float x[4]; } u; u.w = v; a[0] = u.x[1]
    auto f = [=](float x) { return x + a[0]; }; a[1] = f(1.0f) | if constexpr (sizeof(n) == 4) a[0] = 1.0f
    static const float t[2] = {1.0f, 2.0f}; a[0] = t[n]
    auto [p, q] = make_float2(1, 2); a[0] = p + q | auto [low, high] = h2; h = low + high
"""
REFUSED = """
    sqrt(n) | exp(n) | log(2) | pow(n, n) | abs(2u) | max(a[1], n) | max(1ll, n) | min(1.0f, 1) | isnan(n)
    atan2(n, 1) | a[0] += h | h + 1.0f | h * 2 | h == 0.0f | h < 1.0f | h != 0 | h + 1.0 | b * 1.0f | h * h2
    min(h, h) | abs(h) | __hadd(h, 1.0f) | half2(1.0f) | half x = b | a[0] = b2 | v + v | v[0] | float2 w = v
    std::max(1, 2) | a[0] = INFINITY | a[0] = NAN | a[0] = FLT_MAX | a[0] = INT_MAX | a[0] = M_PI
    puts("") | strlen("") | uint x = 1 | half x(h2)
"""
HEADERS_ACCEPTED = (
    "cooperative_groups.h", "cooperative_groups/reduce.h", "cooperative_groups/scan.h", "cuda_bf16.h", "cuda_fp16.h",
    "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h", "math_constants.h", "vector_functions.h",
    "vector_types.h", "cuda/std/cstdint", "cuda/std/cstddef", "cuda/std/climits", "cuda/std/limits",
    "cuda/std/type_traits",
)  # fmt: skip
HEADERS_USED = """
    using limits = cuda::std::numeric_limits<float>;
    a[0] = limits::max() + limits::epsilon() + limits::infinity() + cuda::std::numeric_limits<int>::max() + INT_MAX;
    if constexpr (cuda::std::is_same_v<decltype(n), int>) a[1] = (float)cuda::std::uint32_t(3) + uint8_t(4)
"""
HEADERS_REFUSED = (
    "stdint.h", "cstdint", "stddef.h", "cstddef", "math.h", "cmath", "float.h", "cfloat", "limits.h", "climits",
    "limits",
    "stdio.h", "cstdio", "assert.h", "cassert", "string.h", "vector", "algorithm", "type_traits", "iostream",
)  # fmt: skip


def statements(table):
    return [statement.strip() for line in table.split("\n") for statement in line.split(" | ") if statement.strip()]


def frame(lines):
    """The kernel with each statement in a block and on a line of its own, and the number of the first of them."""
    text = FRAME.replace("    STATEMENT;", "\n".join(f"    {{ {line}; }}" for line in lines))
    return text, 1 + FRAME[: FRAME.index("    STATEMENT;")].count("\n")


def lines_refused_by_nvrtc(text):
    with pytest.raises(AssertionError) as error:
        nvrtc.ptx(text, "probe.cu")
    return {int(line) for line in re.findall(r"probe\.cu\((\d+)\): (?:catastrophic )?error", str(error.value))}


def lines_refused_here(text):
    with pytest.raises(CompileError) as error:
        compile_here(text)
    return {problem.line for problem in error.value.problems}


def compile_here(text):
    ssmlab.RawKernel(text, "probe").compile(device="cpu")


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES[1:])
def test_the_kernels_of_the_dialect_compile_with_nvrtc(architecture):
    """From sm_80 on: older ones lack __reduce_add_sync and atomics on bfloat16."""
    nvrtc.ptx(TEXT, "dialect.cu", OPTIONS, architecture)


def test_every_instance_of_a_template_compiles_with_nvrtc():
    wanted = (f"template __global__ void {expression}{PARAMETERS[name(expression)]};" for expression in EXPRESSIONS)
    text = "\n".join(line.replace("Type", argument(line)) for line in wanted)
    nvrtc.ptx(TEXT + text, "dialect.cu", OPTIONS)


def name(expression):
    return expression.partition("<")[0]


def argument(expression):
    return re.search(r"<([^,>]+)", expression)[1]


PARAMETERS = {
    "shuffles": "(const Type*, Type*)",
    "integer_atomics": "(Type*, Type*)",
    "real_atomics": "(Type*, Type*)",
    "tiles": "(const int*, int*)",
    "scaled": "(const Type*, Type*)",
    "small_to_float": "(const Type*, float*)",
    "double_to_small": "(const double*, Type*)",
    "small_arithmetic": "(const Type*, const Type*, const Type*, Type*, int)",
    "small_comparisons": "(const Type*, const Type*, int*)",
}


@pytest.mark.usefixtures("compiler")
def test_statements_that_cuda_accepts_are_accepted_here_and_by_nvrtc():
    text, _ = frame(statements(ACCEPTED))
    nvrtc.ptx(text, "accepted.cu")
    compile_here(text)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("start", range(0, len(statements(REFUSED)), 15))  # compilers give up after 20 errors
def test_statements_that_nvrtc_refuses_are_refused_here_on_the_same_lines(start):
    refused = statements(REFUSED)[start : start + 15]
    text, first = frame(refused)
    everywhere = set(range(first, first + len(refused)))
    assert lines_refused_by_nvrtc(text) == everywhere
    accepted = everywhere - lines_refused_here(text)
    assert not accepted, [refused[line - first] for line in accepted]


def test_headers_that_nvrtc_has_are_here_too():
    text = "".join(f"#include <{header}>\n" for header in HEADERS_ACCEPTED) + FRAME.replace("STATEMENT", HEADERS_USED)
    nvrtc.ptx(text, "headers.cu")
    compile_here(text)


@pytest.mark.parametrize("header", HEADERS_REFUSED)
def test_headers_that_nvrtc_lacks_are_refused_here(header):
    text = f"#include <{header}>\n" + FRAME.replace("STATEMENT", "a[0] = 1.0f")
    assert lines_refused_by_nvrtc(text) == {1}
    with pytest.raises(CompileError, match=f"kernel.cu:1:.*#include <{header}>"):
        compile_here(text)


def test_integers_of_fixed_width_need_the_header_that_nvrtc_has():
    text = FRAME.replace("STATEMENT", "uint32_t x = 1; int64_t y = x; a[0] = y")
    with pytest.raises(CompileError, match="'uint32_t': NVRTC knows uint32_t only after #include <cuda/std/cstdint>"):
        compile_here(text)
    for way in ("#include <cuda/std/cstdint>\n", "typedef unsigned int uint32_t; using int64_t = long;\n"):
        nvrtc.ptx(way + text, "integers.cu")
        compile_here(way + text)
