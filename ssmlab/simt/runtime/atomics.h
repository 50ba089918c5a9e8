// Atomic operations on shared and global memory.  Real atomics in both modes: native blocks run on several OS threads.
#pragma once
#include "observe.h"
#include "scheduler.h"

// The value that an operation leaves behind.
template <class T> SIMT_INLINE T combined(int operation, T old, T operand, T compare) {
    switch (operation) {
    case SIMT_ADD: return (T)(old + operand);
    case SIMT_SUB: return (T)(old - operand);
    case SIMT_EXCHANGE: return operand;
    case SIMT_MIN: return operand < old ? operand : old;
    case SIMT_MAX: return operand > old ? operand : old;
    case SIMT_INCREMENT: return old >= operand ? (T)0 : (T)(old + 1);
    case SIMT_DECREMENT: return old == 0 || old > operand ? operand : (T)(old - 1);
    case SIMT_CAS: return old == compare ? operand : old;
    default: return old;
    }
}
template <class T> SIMT_INLINE T combined_bits(int operation, T old, T operand, T compare) {
    switch (operation) {
    case SIMT_AND: return old & operand;
    case SIMT_OR: return old | operand;
    case SIMT_XOR: return old ^ operand;
    default: return combined(operation, old, operand, compare);
    }
}

template <class T, class Bits> SIMT_INLINE Bits bits_of(T value) {
    Bits bits;
    static_assert(sizeof value == sizeof bits, "same size");
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// One compare-and-swap loop serves every operation; `Bits` is the integer type of T's size.
template <class T, class Bits>
SIMT_INLINE u64 update(int operation, void* address, u64 operand, u64 compare, bool& changed) {
    Bits* place = (Bits*)address;
    Bits old = __atomic_load_n(place, __ATOMIC_RELAXED), next;
    do {
        if constexpr ((T)0.5 == (T)0)            // an integer
            next = (Bits)combined_bits<T>(operation, (T)old, (T)operand, (T)compare);
        else
            next = bits_of<T, Bits>(combined<T>(operation, bits_of<Bits, T>(old), bits_of<Bits, T>((Bits)operand),
                                                bits_of<Bits, T>((Bits)compare)));
    } while (!__atomic_compare_exchange_n(place, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    changed = next != old;
    return old;
}

static constexpr u32 ATOMICS_A_TURN = 256;       // native: a thread that polls with atomics lets others run this often

SIMT_API uint64_t simt_atomic(int operation, int type, void* address, uint64_t operand, uint64_t compare) {
    Fiber* fiber = current();
    u32 size = type == SIMT_U16 ? 2 : type == SIMT_I64 || type == SIMT_U64 || type == SIMT_F64 ? 8 : 4;
    observe_atomic(fiber, address, size, SIMT_CALLER);
    u64 old = 0;
    bool changed = false;
    switch (type) {
    case SIMT_I32: old = update<int, u32>(operation, address, operand, compare, changed); break;
    case SIMT_U32: old = update<u32, u32>(operation, address, operand, compare, changed); break;
    case SIMT_I64: old = update<i64, u64>(operation, address, operand, compare, changed); break;
    case SIMT_U64: old = update<u64, u64>(operation, address, operand, compare, changed); break;
    case SIMT_F32: old = update<float, u32>(operation, address, operand, compare, changed); break;
    case SIMT_F64: old = update<double, u64>(operation, address, operand, compare, changed); break;
    case SIMT_U16: old = update<u16, u16>(operation, address, operand, compare, changed); break;
    }
#if SIMT_CHECKED
    observe_atomic_done(fiber, changed, SIMT_CALLER);
#else
    if (++fiber->patience == ATOMICS_A_TURN) {
        fiber->patience = 0;
        let_others_run(fiber);
    }
#endif
    return old;
}

SIMT_API void simt_fence(int scope) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    observe_fence(current(), scope);
}
