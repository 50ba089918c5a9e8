// scan_element.cuh -- what a scan reads and writes (element), what it computes in (real), sixteen bytes at a time (Wide).
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

constexpr int VEC = 16 / sizeof(element);       // elements in one 16-byte access: 4, 2, 8, 8

template <int COUNT>
struct alignas(sizeof(element) * COUNT) Pack {  // neighbours in memory, read and written in one access
    element at[COUNT];
};
