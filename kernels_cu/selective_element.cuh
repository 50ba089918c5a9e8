// selective_element.cuh -- what the selective kernels read and write (element), and what they compute in (real).
//
// ELEMENT_FLOAT, ELEMENT_DOUBLE, ELEMENT_HALF or ELEMENT_BFLOAT16 is set by the launcher. Halves are only a way to store:
// every state, product and sum is a real, and only what is written out is rounded.
#pragma once

#if defined(ELEMENT_FLOAT)
typedef float element;
typedef float real;
__device__ __forceinline__ real to_real(element value) { return value; }
__device__ __forceinline__ element to_element(real value) { return value; }
#elif defined(ELEMENT_DOUBLE)
typedef double element;
typedef double real;
__device__ __forceinline__ real to_real(element value) { return value; }
__device__ __forceinline__ element to_element(real value) { return value; }
#elif defined(ELEMENT_HALF)
#include <cuda_fp16.h>
typedef __half element;
typedef float real;
__device__ __forceinline__ real to_real(element value) { return __half2float(value); }
__device__ __forceinline__ element to_element(real value) { return __float2half_rn(value); }
#elif defined(ELEMENT_BFLOAT16)
#include <cuda_bf16.h>
typedef __nv_bfloat16 element;
typedef float real;
__device__ __forceinline__ real to_real(element value) { return __bfloat162float(value); }
__device__ __forceinline__ element to_element(real value) { return __float2bfloat16_rn(value); }
#else
#error "say what an element is: -DELEMENT_FLOAT, -DELEMENT_DOUBLE, -DELEMENT_HALF or -DELEMENT_BFLOAT16"
#endif

template <int COUNT>
struct alignas(sizeof(element) * COUNT) Pack {  // neighbours in memory, written in one access
    element at[COUNT];
};

// Neighbours in memory, read in one access and kept as the raw words they came in. Halves are taken out of a word where they
// are used: taken out behind the load, they would make the thread wait for the load there.
#if defined(ELEMENT_HALF) || defined(ELEMENT_BFLOAT16)
template <int BYTES> struct Word { typedef unsigned type; };
template <> struct Word<2> { typedef unsigned short type; };

__device__ __forceinline__ real from_bits(unsigned bits) {
#if defined(ELEMENT_BFLOAT16)
    return __uint_as_float(bits << 16);
#else
    return __half2float(__ushort_as_half((unsigned short)bits));
#endif
}

template <int COUNT>
struct alignas(sizeof(element) * COUNT) Raw {
    typename Word<2 * COUNT>::type words[COUNT == 1 ? 1 : COUNT / 2];
    __device__ __forceinline__ real of(int i) const { return from_bits(words[i / 2] >> (16 * (i % 2)) & 0xffffu); }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < (COUNT == 1 ? 1 : COUNT / 2); ++i) {
            words[i] = 0;
        }
    }
};
#else
template <int COUNT>
struct alignas(sizeof(element) * COUNT < 16 ? sizeof(element) * COUNT : 16) Raw {
    element words[COUNT];
    __device__ __forceinline__ real of(int i) const { return words[i]; }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            words[i] = 0;
        }
    }
};
#endif
