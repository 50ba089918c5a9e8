// What a freestanding runtime needs from the compiler and the C library.
#pragma once
#include "abi.h"
#include <stdarg.h>

extern "C" {
void* memcpy(void*, const void*, size_t);
void* memmove(void*, const void*, size_t);
void* memset(void*, int, size_t);
int vsnprintf(char*, size_t, const char*, va_list);
}

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

#define SIMT_INLINE static inline __attribute__((always_inline))
#define SIMT_NOINLINE __attribute__((noinline))
#define SIMT_LIKELY(x) __builtin_expect(!!(x), 1)
#define SIMT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define SIMT_CALLER __builtin_return_address(0)

// [ns] of a clock that only goes forward, to a few milliseconds: cheap to ask.
#if defined(_WIN32)
extern "C" __declspec(dllimport) unsigned long long __stdcall GetTickCount64();
SIMT_INLINE u64 clock_now() { return GetTickCount64() * 1000000; }
#else
#include <time.h>
#if defined(CLOCK_MONOTONIC_COARSE)
#define SIMT_CLOCK CLOCK_MONOTONIC_COARSE
#else
#define SIMT_CLOCK CLOCK_MONOTONIC
#endif
SIMT_INLINE u64 clock_now() {
    struct timespec now;
    clock_gettime(SIMT_CLOCK, &now);
    return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}
#endif

static constexpr u32 NO_THREAD = 0xFFFFFFFFu;
static constexpr u32 WARP = 32;
static constexpr u32 MOST_THREADS = 1024;        // per block, as on every GPU

SIMT_INLINE u32 lowest(u32 mask) { return (u32)__builtin_ctz(mask); }        // mask != 0
SIMT_INLINE u32 ones(u32 mask) { return (u32)__builtin_popcount(mask); }
template <class T> SIMT_INLINE T smaller(T a, T b) { return a < b ? a : b; }
template <class T> SIMT_INLINE T larger(T a, T b) { return a > b ? a : b; }

// splitmix64: the only random numbers here, for schedules; the same on every machine.
SIMT_INLINE u64 random_next(u64& state) {
    u64 z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
