"""Macros on the CPU: a learner's own may have any name, and those of CUDA's compiler are defined as on a GPU."""

import string

import numpy as np
import pytest
from dialect_compilers import compiler  # noqa: F401 -- a fixture

import ssmlab
from ssmlab.simt import source
from ssmlab.simt.options import host_options

# Names that the dialect's headers, the emitted thunks and the runtime's interface use for their own things.
WORDS = """address alignment arguments bits block call caller constant describe kind kind_of lanes mask measure name
    no_sanitize_thread operand parameter plain pointer rank result rows shape table thread Value value visibility
    Group Integer NAME TYPE OPERATION INDEX Here ELEMENT COUNT SCALAR PAIR SUFFIX MIN MAX Size Parent width""".split()
MACROS = {name: number for number, name in enumerate([*string.ascii_letters, *WORDS], 1)}
TEXT = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <math_constants.h>
__device__ int counter[8];
__constant__ float scale = 2;
template <int LANES, class Number> __global__ void __launch_bounds__(LANES) mixed(Number* out, const int32_t* given) {
    __shared__ alignas(16) Number room[LANES];
    __shared__ half second[LANES];
    __shared__ nv_bfloat16 third[LANES];
    extern __shared__ float more[];
    const auto threads = cooperative_groups::this_thread_block();
    const int at = threads.thread_rank();
    room[at] = Number(at) * scale;
    second[at] = __float2half((float)at);
    third[at] = __float2bfloat16(1.0f);
    more[at] = min(1, at + 1);
    __syncthreads();
    const auto tile = cooperative_groups::tiled_partition<4>(threads);
    atomicAdd(&counter[at], cooperative_groups::reduce(tile, 1, cooperative_groups::plus<int>()));
    out[at] = room[LANES - 1 - at] + __half2float(second[at]) + __bfloat162float(third[at]) + more[at] + counter[at];
    out[at] += 100 * (a + Z) + given[at];
}
"""
NAME = "mixed<8, float>"


@pytest.mark.parametrize("mode", ["checked", "native"])
@pytest.mark.parametrize("given", ["options", "text"])
def test_a_macro_may_have_any_name(given, mode, compiler):  # noqa: F811
    options, text = (), TEXT
    if given == "options":
        options = tuple(f"-D{name}={number}" for name, number in MACROS.items())
    else:
        text = "".join(f"#define {name} {number}\n" for name, number in MACROS.items()) + TEXT
    module = ssmlab.RawModule(code=text, options=options, name_expressions=(NAME,), mode=mode)
    out = np.zeros(8, np.float32)
    module.get_function(NAME)((1,), (8,), (out, np.arange(8, dtype=np.int32)), shared_mem=32)
    at = np.arange(8)
    expected = 2 * (7 - at) + at + 1 + 1 + 4 + 100 * (MACROS["a"] + MACROS["Z"]) + at
    assert out.tolist() == expected.tolist()


def test_lines_and_columns_stay_under_macros_and_headers():
    text = "#define T 3\n#include <cuda_fp16.h>\n" + 'extern "C" __global__ void k(int* x) {\n  x[0] = wrong; }\n'
    with pytest.raises(ssmlab.simt.CompileError) as caught:
        ssmlab.RawKernel(text, "k", ("-DN=8", "-DI=2"))((1,), (1,), (np.zeros(1, np.int32),))
    assert (caught.value.filename, caught.value.line, caught.value.column) == ("kernel.cu", 4, 10)


@pytest.mark.parametrize(
    "options, value",
    [
        (("-DN",), 1),
        (("-DN=",), 0),
        (("-DN=2", "-DN=3"), 3),
        (("-DN=2", "-UN"), 7),
        (("-DF(x)=(x + 1)", "-DN=F(4)"), 5),
        (("-DNDEBUG", "-DN=6"), 6),
    ],
)
def test_options_that_define_do_so_in_their_order(options, value):
    text = """#ifndef N
        #define N 7
        #endif
        extern "C" __global__ void k(int* x) { x[0] = N + 0; assert(x[0] != 6); }"""
    x = np.zeros(1, np.int32)
    ssmlab.RawKernel(text, "k", options)((1,), (1,), (x,))
    assert x[0] == value


@pytest.mark.parametrize("option", ["-DN=1\n2", "-DN=1\\", "-DN=/* one"])
def test_a_macro_that_would_reach_into_the_text_is_refused(option):
    with pytest.raises(ValueError, match="the value of a macro is one line without comments"):
        host_options((option,))


@pytest.mark.parametrize(
    "options, arch", [((), 900), (("-arch=sm_80",), 800), (("--gpu-architecture=compute_75",), 750)]
)
def test_cuda_arch_is_that_of_device_code(options, arch, compiler):  # noqa: F811
    text = """#include <cuda_fp16.h>
        #if defined(__CUDA_ARCH__) && defined(__CUDACC__) && defined(__CUDACC_RTC__) && __CUDACC_VER_MAJOR__ >= 12
        __device__ int arch() { return __CUDA_ARCH__; }
        #else
        #include <cstdio>
        int arch() { asm("nop"); return 0; }
        #endif
        #if __CUDA_ARCH__ >= 800
        extern "C" __global__ void k(int* x) { x[0] = arch(); }
        #else
        extern "C" __global__ void k(int* x) { x[0] = -arch(); }
        #endif
    """
    x = np.zeros(1, np.int32)
    kernel = ssmlab.RawKernel(text, "k", options)
    kernel((1,), (1,), (x,))
    assert x[0] == (arch if arch >= 800 else -arch)


def test_the_translation_and_the_compiler_agree_about_cuda_arch():
    text = "#if __CUDA_ARCH__ >= 800\n__global__ void big() {}\n#else\n__global__ void small() {}\n#endif\n"
    assert list(source.translate(text).kernels) == ["big"]
    assert list(source.translate(text, options=("-arch=sm_75",)).kernels) == ["small"]
    assert list(source.translate(text, options=("-U__CUDA_ARCH__", "-D__CUDA_ARCH__=100")).kernels) == ["small"]
