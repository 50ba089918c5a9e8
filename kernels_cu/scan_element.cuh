// scan_element.cuh -- what a scan reads and writes (element), what it computes in (real), several neighbours at a time (Pack).
//
// ELEMENT_FLOAT, ELEMENT_DOUBLE, ELEMENT_HALF or ELEMENT_BFLOAT16 is set by the launcher. Halves are only a way to store:
// every state, product and sum is a real, and only what is written out is rounded.
#pragma once

#if defined(ELEMENT_FLOAT)
typedef float element;
typedef float real;
#elif defined(ELEMENT_DOUBLE)
typedef double element;
typedef double real;
#elif defined(ELEMENT_HALF)
#include <cuda_fp16.h>
typedef __half element;
typedef float real;
__device__ __forceinline__ real to_real(element value) { return __half2float(value); }
__device__ __forceinline__ element to_element(real value) { return __float2half_rn(value); }
__device__ __forceinline__ unsigned bits_of(element value) { return __half_as_ushort(value); }
__device__ __forceinline__ real real_of(unsigned bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
#elif defined(ELEMENT_BFLOAT16)
#include <cuda_bf16.h>
typedef __nv_bfloat16 element;
typedef float real;
__device__ __forceinline__ real to_real(element value) { return __bfloat162float(value); }
__device__ __forceinline__ element to_element(real value) { return __float2bfloat16_rn(value); }
__device__ __forceinline__ unsigned bits_of(element value) { return __bfloat16_as_ushort(value); }
__device__ __forceinline__ real real_of(unsigned bits) { return __uint_as_float(bits << 16); }
#else
#error "say what an element is: -DELEMENT_FLOAT, -DELEMENT_DOUBLE, -DELEMENT_HALF or -DELEMENT_BFLOAT16"
#endif

constexpr int VEC = 16 / sizeof(element);       // elements in one 16-byte access: 4, 2, 8, 8

#if defined(ELEMENT_HALF) || defined(ELEMENT_BFLOAT16)

// Neighbours in memory, kept as the 32-bit words that were loaded and taken apart only where they are used: code that takes
// them apart right behind the load waits there for the memory.
template <int COUNT>
struct Pack {
    unsigned word[(COUNT + 1) / 2];

    __device__ __forceinline__ real get(int i) const { return real_of(word[i / 2] >> i % 2 * 16 & 0xffff); }
    __device__ __forceinline__ void put(int i, element value) {
        const unsigned keep = COUNT == 1 ? 0 : i % 2 ? 0xffffu : 0xffff0000u;
        word[i / 2] = (word[i / 2] & keep) | bits_of(value) << i % 2 * 16;
    }
    // Every element is `value`.
    __device__ __forceinline__ void fill(element value) {
#pragma unroll
        for (int w = 0; w < (COUNT + 1) / 2; ++w) {
            word[w] = bits_of(value) * (COUNT == 1 ? 1u : 0x10001u);
        }
    }
    // The same elements, but the compiler cannot know that (`zero` is 0 at run time). Halves become reals twice, to fold and
    // to walk: without this all the reals of the first time would stay in registers, twice as many as the halves need.
    __device__ __forceinline__ Pack afresh(unsigned zero) const {
        Pack same;
#pragma unroll
        for (int w = 0; w < (COUNT + 1) / 2; ++w) {
            same.word[w] = word[w] ^ zero;
        }
        return same;
    }
};

__device__ __forceinline__ void take(Pack<1>& pack, unsigned short bits) { pack.word[0] = bits; }
__device__ __forceinline__ void take(Pack<2>& pack, unsigned bits) { pack.word[0] = bits; }
__device__ __forceinline__ void take(Pack<4>& pack, uint2 bits) {
    pack.word[0] = bits.x;
    pack.word[1] = bits.y;
}
__device__ __forceinline__ void take(Pack<8>& pack, uint4 bits) {
    pack.word[0] = bits.x;
    pack.word[1] = bits.y;
    pack.word[2] = bits.z;
    pack.word[3] = bits.w;
}
__device__ __forceinline__ unsigned short give(const Pack<1>& pack) { return (unsigned short)pack.word[0]; }
__device__ __forceinline__ unsigned give(const Pack<2>& pack) { return pack.word[0]; }
__device__ __forceinline__ uint2 give(const Pack<4>& pack) { return make_uint2(pack.word[0], pack.word[1]); }
__device__ __forceinline__ uint4 give(const Pack<8>& pack) {
    return make_uint4(pack.word[0], pack.word[1], pack.word[2], pack.word[3]);
}

template <int BYTES> struct Word;
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

template <int COUNT>
__device__ __forceinline__ Pack<COUNT> read_pack(const element* from) {
    Pack<COUNT> pack;
    take(pack, *reinterpret_cast<const typename Word<2 * COUNT>::type*>(from));
    return pack;
}

template <int COUNT>
__device__ __forceinline__ void write_pack(element* to, const Pack<COUNT>& pack) {
    *reinterpret_cast<typename Word<2 * COUNT>::type*>(to) = give(pack);
}

#else

__device__ __forceinline__ real to_real(element value) { return value; }
__device__ __forceinline__ element to_element(real value) { return value; }

template <int COUNT>
struct alignas(sizeof(element) * COUNT) Pack {  // neighbours in memory
    element at[COUNT];

    __device__ __forceinline__ real get(int i) const { return at[i]; }
    __device__ __forceinline__ void put(int i, element value) { at[i] = value; }
    __device__ __forceinline__ void fill(element value) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            at[i] = value;
        }
    }
    __device__ __forceinline__ Pack afresh(unsigned) const { return *this; }
};

template <int COUNT>
__device__ __forceinline__ Pack<COUNT> read_pack(const element* from) {
    return *reinterpret_cast<const Pack<COUNT>*>(from);
}

template <int COUNT>
__device__ __forceinline__ void write_pack(element* to, const Pack<COUNT>& pack) {
    *reinterpret_cast<Pack<COUNT>*>(to) = pack;
}

#endif
