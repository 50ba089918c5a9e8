"""Odd but legal kernels, translated, compiled by each compiler and run: they compute what CUDA would compute."""

import shutil

import numpy as np
import nvrtc
import pytest

import ssmlab
from ssmlab.simt import toolchain

COMPILERS = {name: name for name in ("g++", "clang++") if shutil.which(name)}
if toolchain.zig_program():
    COMPILERS["zig"] = f"{toolchain.zig_program()} c++"

# name: (text, kernel, block, arguments, results: argument number to what it holds afterwards)
KERNELS = {
    "two instances of a template have two arrays": (
        """
        template <int K> __device__ int* room() { __shared__ int s[4]; return s; }
        extern "C" __global__ void k(int* x) {
            room<1>()[0] = 5; room<2>()[0] = 6;
            x[0] = room<1>()[0]; x[1] = room<2>()[0]; x[2] = room<1>() == room<1>(); x[3] = room<1>() == room<2>();
        }
        """,
        "k", 1, (np.zeros(4, np.int32),), {0: [5, 6, 1, 0]},
    ),
    "an array of file scope is one array for all functions": (
        """
        __shared__ int total; extern __shared__ float dyn[];
        __device__ void put(int v) { total = v; dyn[1] = v; }
        __global__ void k(int* x) { put(7); x[0] = total; x[1] = (int)dyn[1]; }
        """,
        "k", 1, (np.zeros(2, np.int32),), {0: [7, 7]},
    ),
    "one dynamic array can be cut into pieces of several types": (
        """
        extern "C" __global__ void k(int* x, int n) {
            extern __shared__ __align__(16) unsigned char raw[];
            float2* pairs = reinterpret_cast<float2*>(raw);
            int* counts = (int*)(pairs + n);
            pairs[threadIdx.x] = make_float2(threadIdx.x, 1); counts[threadIdx.x] = 2 * threadIdx.x;
            __syncthreads();
            x[threadIdx.x] = (int)pairs[n - 1 - threadIdx.x].x + counts[threadIdx.x];
        }
        """,
        "k", 4, (np.zeros(4, np.int32), 4), {0: [3, 4, 5, 6]},
    ),
    "two dimensions of dynamic memory": (
        """
        extern "C" __global__ void k(int* x) {
            extern __shared__ int rows[][3];
            rows[threadIdx.x][2] = threadIdx.x + 1;
            x[threadIdx.x] = rows[threadIdx.x][2] + (int)(&rows[1][0] - &rows[0][0]);
        }
        """,
        "k", 2, (np.zeros(2, np.int32),), {0: [4, 5]},
    ),
    "structs, vectors, scalars, pointers and several declarators": (
        """
        struct Pair { float a; int b[2]; };
        template <class A, class B> struct Both { A a; B b; };
        extern "C" __global__ void k(int* x) {
            __shared__ Pair pairs[2], *first; __shared__ struct { int v; } boxes[2];
            __shared__ Both<int, float2> both; __shared__ alignas(32) char text[5]; volatile __shared__ int flag;
            if (threadIdx.x == 0) {
                first = pairs; first->b[1] = 3; boxes[1].v = 4; both.b.y = 5; text[4] = 6; flag = 7;
                x[0] = pairs[0].b[1]; x[1] = boxes[1].v; x[2] = (int)both.b.y; x[3] = text[4]; x[4] = flag;
                x[5] = (unsigned long long)text % 32 + sizeof(pairs) + sizeof(text);
            }
        }
        """,
        "k", 2, (np.zeros(6, np.int32),), {0: [3, 4, 5, 6, 7, 24 + 5]},
    ),
    "tables of constants are read without a finding": (
        """
        static const float weights[3] = {1, 2, 3}; constexpr int powers[2] = {4, 8}; __constant__ int far[2] = {5, 6};
        extern "C" __global__ void k(float* x) {
            const float local[2] = {10, 20}; static constexpr int shifts[2] = {100, 200};
            const int i = threadIdx.x;
            x[i] = weights[i] + powers[i] + far[i] + local[i] + shifts[i];
        }
        """,
        "k", 2, (np.zeros(2, np.float32),), {0: [120, 236]},
    ),
    "goto, switch, lambdas and loops": (
        """
        extern "C" __global__ void k(int* x, int n) {
            auto twice = [](int v) { return 2 * v; };
            int i = 0, sum = 0;
          again:
            switch (i % 3) { case 0: sum += 1; break; case 1: sum += 10; break; default: sum += twice(50); }
            if (++i < n) goto again;
            #pragma unroll 4
            for (int j = 0; j < 3; j++) sum += 1000;
            _Pragma("unroll") do sum += 10000; while (false);
            x[0] = sum;
        }
        """,
        "k", 1, (np.zeros(1, np.int32), 4), {0: [13112]},
    ),
    "specialisations and overloads": (
        """
        template <class T> __global__ void k(T* x) { x[0] = 1; }
        template <> __global__ void k<double>(double* x) { __shared__ double s; s = 2; x[0] = s; }
        template <class T> __device__ T f(T v) { return v; }
        __device__ int f(int v) { return v + 1; }
        template __global__ void k<float>(float* x);
        """,
        "k<double>", 1, (np.zeros(1),), {0: [2]},
    ),
    "kernels behind a macro": (
        """
        #define KERNEL extern "C" __global__ void
        KERNEL k(int* x) { x[0] = BLOCK; }
        """,
        "k", 1, (np.zeros(1, np.int32),), {0: [64]},
    ),
    "kernels made by a macro": (
        """
        #define MAKE(name, T) extern "C" __global__ void name(T* x) { x[0] = 3; }
        MAKE(other, float)
        MAKE(k, int)
        """,
        "k", 1, (np.zeros(1, np.int32),), {0: [3]},
    ),
    "nested namespaces, template bounds, default arguments": (
        """
        namespace a { namespace b {
        constexpr int base = 2;
        template <class T, int N = base * 8>
        __global__ void __launch_bounds__(N * base) k(T* x) { x[threadIdx.x] = N; }
        } }
        """,
        "a::b::k<int>", 2, (np.zeros(2, np.int32),), {0: [16, 16]},
    ),
    "device variables count through launches of one block": (
        """
        __device__ int counter = 3; namespace lab { __device__ float grid[2][2]; }
        extern "C" __global__ void k(int* x) {
            atomicAdd(&counter, 2); lab::grid[1][1] = 4;
            x[0] = counter + (int)lab::grid[1][1];
        }
        """,
        "k", 1, (np.zeros(1, np.int32),), {0: [9]},
    ),
    "branches of the preprocessor": (
        """
        #if BLOCK == 64 && !defined(SMALL)
        #define STEP(x) ((x) + 1)
        #else
        #error not here
        #endif
        #ifdef __CUDA_ARCH__
        #endif
        extern "C" __global__ void k(int* x) { x[0] = STEP(1)
        #if 0
            + 100; }
        #else
            + 10; }
        #endif
        """,
        "k", 1, (np.zeros(1, np.int32),), {0: [12]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", KERNELS)
def test_it_computes_what_cuda_would(name, compiler, monkeypatch):
    monkeypatch.setenv("CXX", COMPILERS[compiler])
    text, kernel, block, args, results = KERNELS[name]
    for mode in ("checked", "native"):
        given = tuple(value.copy() if isinstance(value, np.ndarray) else value for value in args)
        launched = ssmlab.RawKernel(text, kernel, ("-DBLOCK=64",), mode=mode)
        if mode == "checked":
            report = ssmlab.check(launched, 1, block, given, 256)
            assert report.ok, str(report)
            given = report.arrays
        else:
            launched((1,), (block,), given, shared_mem=256)
        for number, want in results.items():
            assert given[number].tolist() == want


@pytest.mark.parametrize("name", KERNELS)
def test_cuda_takes_it_too(name):
    nvrtc.ptx(KERNELS[name][0], "kernel.cu", ("-DBLOCK=64",))
