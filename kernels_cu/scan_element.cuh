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

template <int BYTES> struct Word;
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

// Each input is read once: __ldcs marks its cache lines as the first to go, so that they push nothing useful out of the L2.
template <int COUNT>
__device__ __forceinline__ Pack<COUNT> read_once(const element* from) {
    typedef typename Word<sizeof(element) * COUNT>::type word;
    const word bits = __ldcs(reinterpret_cast<const word*>(from));
    return *reinterpret_cast<const Pack<COUNT>*>(&bits);
}

template <int COUNT>
__device__ __forceinline__ void write_out(element* to, Pack<COUNT> pack) {
#if STREAM_STORES
    typedef typename Word<sizeof(element) * COUNT>::type word;
    __stcs(reinterpret_cast<word*>(to), *reinterpret_cast<const word*>(&pack));
#else
    *reinterpret_cast<Pack<COUNT>*>(to) = pack;
#endif
}

// The same pack, but the compiler cannot know that (`zero` is 0 at run time). Halves are converted to real twice, to fold and
// to walk: without this the compiler keeps all reals of the first time in registers, twice as many as the halves need.
template <int COUNT>
__device__ __forceinline__ Pack<COUNT> afresh(Pack<COUNT> pack, unsigned zero) {
    if (sizeof(element) == 2 && COUNT >= 2) {
        unsigned* bits = reinterpret_cast<unsigned*>(&pack);
#pragma unroll
        for (int i = 0; i < COUNT / 2; ++i) {
            bits[i] ^= zero;
        }
    }
    return pack;
}
