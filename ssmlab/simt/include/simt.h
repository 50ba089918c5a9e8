// simt.h -- CUDA C++ for a host compiler: included before every translated kernel, in both modes.
//
// Barriers, votes and fences are macros for the runtime's functions (runtime/abi.h), shuffles and atomics overloads for
// the types that CUDA has.  None is always_inline or hidden from the hooks: the runtime finds the learner's line
// through the calls that lead to it.
#pragma once
#include "../runtime/abi.h"
#include "simt_vectors.h"
#include "simt_math.h"

inline SimtIndex::operator uint3() const { return uint3(x, y, z); }
inline SimtIndex::operator dim3() const { return dim3(x, y, z); }

// ---- words of the language
#if defined(SIMT_TRUSTED) && !SIMT_CHECKED
// The ops' finished kernels: no look at the watchdog in every basic block, so that loops become vector instructions.
#if defined(__clang__)
#define __global__ __attribute__((no_sanitize("coverage")))
#else
#define __global__ __attribute__((no_sanitize_coverage, optimize("O3")))
#endif
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __noinline__ __attribute__((noinline))
#if SIMT_CHECKED
#define __forceinline__ inline
#else
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define __inline_hint__ inline

// ---- indices
#define threadIdx (simt_thread_index())
#define blockIdx (simt_block_index())
#define blockDim (simt_block_shape())
#define gridDim (simt_grid_shape())
#define warpSize 32

// ---- shared memory: one place in the block for each declaration and each instance of a template that holds it
template <class T, int INDEX, class Here = void> SIMT_UNSEEN T& simt_shared() {
    static const char instance = 0;
    return *(T*)simt_shared_array(INDEX, &instance, sizeof(T), alignof(T), __PRETTY_FUNCTION__);
}

// ---- barriers, fences, time
#define __syncthreads() simt_barrier()
#define __syncthreads_count(predicate) simt_barrier_count((predicate) != 0)
#define __syncthreads_and(predicate) simt_barrier_and((predicate) != 0)
#define __syncthreads_or(predicate) simt_barrier_or((predicate) != 0)
#define __threadfence() simt_fence(SIMT_FENCE_DEVICE)
#define __threadfence_block() simt_fence(SIMT_FENCE_BLOCK)
#define __threadfence_system() simt_fence(SIMT_FENCE_SYSTEM)
#define __nanosleep(nanoseconds) simt_sleep(nanoseconds)
#define clock64() ((long long)simt_clock())
#define clock() ((long)simt_clock())
typedef long clock_t;            // what clock() gives
// The condition of an endless loop without a body, put there by the translation (empty_loops.py): the watchdog sees it.
inline bool simt_always() { return true; }

inline void __syncwarp(unsigned mask = 0xffffffffu) { simt_warp_barrier(mask); }

// ---- text and checks
#define printf simt_printf
#undef assert
#if defined(NDEBUG)
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : simt_assert_failed(#condition, __FILE__, __LINE__))
#endif
#define __trap() simt_trap()

// ---- memory functions; __ldg and its kin are plain reads here
#define memcpy simt_memcpy
#define memmove simt_memmove
#define memset simt_memset
#define __ldg(address) (*(address))
#define __ldca(address) (*(address))
#define __ldcg(address) (*(address))
#define __ldcs(address) (*(address))
#define __stcg(address, value) ((void)(*(address) = (value)))
#define __stcs(address, value) ((void)(*(address) = (value)))

// ---- votes
#define __ballot_sync(mask, predicate) simt_vote(mask, SIMT_VOTE_BALLOT, (predicate) != 0)
#define __any_sync(mask, predicate) ((int)simt_vote(mask, SIMT_VOTE_ANY, (predicate) != 0))
#define __all_sync(mask, predicate) ((int)simt_vote(mask, SIMT_VOTE_ALL, (predicate) != 0))
#define __activemask() simt_active_mask()

// ---- shuffles
template <class T> SIMT_UNSEEN uint64_t simt_to_bits(T value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> SIMT_UNSEEN T simt_from_bits(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

#define SIMT_EXCHANGES(T)                                                                                             \
    inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {                                          \
        return simt_from_bits<T>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_INDEX, lane, width));           \
    }                                                                                                                 \
    inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {                                 \
        return simt_from_bits<T>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_UP, (int)delta, width));        \
    }                                                                                                                 \
    inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {                               \
        return simt_from_bits<T>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_DOWN, (int)delta, width));      \
    }                                                                                                                 \
    inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {                                     \
        return simt_from_bits<T>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_XOR, lanes, width));            \
    }                                                                                                                 \
    inline unsigned __match_any_sync(unsigned mask, T value) {                                                        \
        return simt_match(mask, simt_to_bits(value), SIMT_MATCH_ANY);                                                 \
    }                                                                                                                 \
    inline unsigned __match_all_sync(unsigned mask, T value, int* all) {                                              \
        const unsigned equal = simt_match(mask, simt_to_bits(value), SIMT_MATCH_ALL);                                 \
        *all = equal != 0;                                                                                            \
        return equal;                                                                                                 \
    }
SIMT_EXCHANGES(int)
SIMT_EXCHANGES(unsigned int)
SIMT_EXCHANGES(long)
SIMT_EXCHANGES(unsigned long)
SIMT_EXCHANGES(long long)
SIMT_EXCHANGES(unsigned long long)
SIMT_EXCHANGES(float)
SIMT_EXCHANGES(double)
#undef SIMT_EXCHANGES

#define SIMT_REDUCTIONS(T, MIN, MAX)                                                                                  \
    inline T __reduce_add_sync(unsigned mask, T value) {                                                              \
        return (T)simt_reduce(mask, SIMT_REDUCE_ADD, (unsigned)value);                                                \
    }                                                                                                                 \
    inline T __reduce_min_sync(unsigned mask, T value) { return (T)simt_reduce(mask, MIN, (unsigned)value); }         \
    inline T __reduce_max_sync(unsigned mask, T value) { return (T)simt_reduce(mask, MAX, (unsigned)value); }
SIMT_REDUCTIONS(int, SIMT_REDUCE_MIN, SIMT_REDUCE_MAX)
SIMT_REDUCTIONS(unsigned int, SIMT_REDUCE_UMIN, SIMT_REDUCE_UMAX)
#undef SIMT_REDUCTIONS
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) { return simt_reduce(mask, SIMT_REDUCE_AND, value); }
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) { return simt_reduce(mask, SIMT_REDUCE_OR, value); }
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) { return simt_reduce(mask, SIMT_REDUCE_XOR, value); }

// ---- atomics
#define SIMT_ATOMIC(NAME, OPERATION, T, TYPE)                                                                         \
    inline T NAME(T* address, T value) {                                                                              \
        return simt_from_bits<T>(simt_atomic(OPERATION, TYPE, address, simt_to_bits(value), 0));                      \
    }
#define SIMT_ATOMIC_INTEGERS(NAME, OPERATION)                                                                         \
    SIMT_ATOMIC(NAME, OPERATION, int, SIMT_I32)                                                                       \
    SIMT_ATOMIC(NAME, OPERATION, unsigned int, SIMT_U32)                                                              \
    SIMT_ATOMIC(NAME, OPERATION, unsigned long long, SIMT_U64)
SIMT_ATOMIC_INTEGERS(atomicAdd, SIMT_ADD)
SIMT_ATOMIC(atomicAdd, SIMT_ADD, float, SIMT_F32)
SIMT_ATOMIC(atomicAdd, SIMT_ADD, double, SIMT_F64)
SIMT_ATOMIC(atomicSub, SIMT_SUB, int, SIMT_I32)
SIMT_ATOMIC(atomicSub, SIMT_SUB, unsigned int, SIMT_U32)
SIMT_ATOMIC_INTEGERS(atomicExch, SIMT_EXCHANGE)
SIMT_ATOMIC(atomicExch, SIMT_EXCHANGE, float, SIMT_F32)
SIMT_ATOMIC_INTEGERS(atomicMin, SIMT_MIN)
SIMT_ATOMIC(atomicMin, SIMT_MIN, long long, SIMT_I64)
SIMT_ATOMIC_INTEGERS(atomicMax, SIMT_MAX)
SIMT_ATOMIC(atomicMax, SIMT_MAX, long long, SIMT_I64)
SIMT_ATOMIC(atomicInc, SIMT_INCREMENT, unsigned int, SIMT_U32)
SIMT_ATOMIC(atomicDec, SIMT_DECREMENT, unsigned int, SIMT_U32)
SIMT_ATOMIC_INTEGERS(atomicAnd, SIMT_AND)
SIMT_ATOMIC_INTEGERS(atomicOr, SIMT_OR)
SIMT_ATOMIC_INTEGERS(atomicXor, SIMT_XOR)
#undef SIMT_ATOMIC_INTEGERS
#undef SIMT_ATOMIC

#define SIMT_ATOMIC_CAS(T, TYPE)                                                                                      \
    inline T atomicCAS(T* address, T compare, T value) {                                                              \
        return simt_from_bits<T>(simt_atomic(SIMT_CAS, TYPE, address, simt_to_bits(value), simt_to_bits(compare)));   \
    }
SIMT_ATOMIC_CAS(int, SIMT_I32)
SIMT_ATOMIC_CAS(unsigned int, SIMT_U32)
SIMT_ATOMIC_CAS(unsigned long long, SIMT_U64)
SIMT_ATOMIC_CAS(unsigned short, SIMT_U16)
#undef SIMT_ATOMIC_CAS

// The narrower and wider forms are the same on one machine.
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicSub_block atomicSub
#define atomicSub_system atomicSub
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicMin_block atomicMin
#define atomicMin_system atomicMin
#define atomicMax_block atomicMax
#define atomicMax_system atomicMax
#define atomicInc_block atomicInc
#define atomicInc_system atomicInc
#define atomicDec_block atomicDec
#define atomicDec_system atomicDec
#define atomicAnd_block atomicAnd
#define atomicAnd_system atomicAnd
#define atomicOr_block atomicOr
#define atomicOr_system atomicOr
#define atomicXor_block atomicXor
#define atomicXor_system atomicXor
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
