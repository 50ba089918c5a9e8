// What the vector types of simt_vectors.h do in checked mode: copies, which are looked at, and make_float2 and its kin.
//
// They are here and not in the header because a kernel's text is compiled with -O0: two calls more for each copy.
#pragma once
#include "../include/simt_vectors.h"
#include "quick.h"

// A vector type's copy: one read, one write.  Two places in the code, as it were: the last two bytes of the call.
SIMT_INLINE void* place_of_read(void* caller) { return (char*)caller - 1; }

// Copied in pieces as large as components: the processor is slow to read at once what was just written in two halves.
template <class Piece, u32 COUNT> SIMT_INLINE void copy_pieces(void* to, const void* from) {
    Piece piece[COUNT];
    for (u32 i = 0; i < COUNT; i++) {
        piece[i] = ((const Piece*)from)[i];
        asm("" : "+r"(piece[i]));                // or the compiler makes one of them again
    }
    for (u32 i = 0; i < COUNT; i++) ((Piece*)to)[i] = piece[i];
}
// Each is a jump to the next at its end, so that the quick ones save no register: hence they all return `to`.
template <class Piece, u32 COUNT>
static SIMT_NOINLINE void* slow_read_and_copy(Fiber* fiber, void* to, const void* from, void* caller) {
    look_at_memory(fiber, (u64)from, sizeof(Piece) * COUNT, PLAIN_READ, place_of_read(caller));
    copy_pieces<Piece, COUNT>(to, from);
    return to;
}
template <class Piece, u32 COUNT>
static SIMT_NOINLINE void* slow_write_and_copy(Fiber* fiber, void* to, const void* from, void* caller) {
    if (!is_private(fiber, (u64)from))
        look_at_memory(fiber, (u64)from, sizeof(Piece) * COUNT, PLAIN_READ, place_of_read(caller));
    forget_twins(fiber, (u64)to, sizeof(Piece) * COUNT);
    look_at_memory(fiber, (u64)to, sizeof(Piece) * COUNT, PLAIN_WRITE, caller);
    copy_pieces<Piece, COUNT>(to, from);
    return to;
}
// Those of float2, float4 and the like; each copy of quick.h costs the first kernel 30 ms of compilation.
template <class Piece, u32 COUNT, u8 KIND> SIMT_INLINE bool quick_copy(Fiber* fiber, const void* address, void* pc) {
    if constexpr (sizeof(Piece) == 4 && COUNT > 1)
        return quick_access<sizeof(Piece) * COUNT, KIND>(fiber, (u64)address, pc);
    return false;
}
template <class Piece, u32 COUNT>
static SIMT_NOINLINE void* read_and_copy(Fiber* fiber, void* to, const void* from, void* caller) {
    if (SIMT_UNLIKELY((!quick_copy<Piece, COUNT, PLAIN_READ>(fiber, from, place_of_read(caller)))))
        return slow_read_and_copy<Piece, COUNT>(fiber, to, from, caller);
    copy_pieces<Piece, COUNT>(to, from);
    return to;
}
template <class Piece, u32 COUNT>
static SIMT_NOINLINE void* write_and_copy(Fiber* fiber, void* to, const void* from, void* caller) {
    if (SIMT_UNLIKELY(!is_private(fiber, (u64)from)) ||
        SIMT_UNLIKELY((!quick_copy<Piece, COUNT, PLAIN_WRITE>(fiber, to, caller))))
        return slow_write_and_copy<Piece, COUNT>(fiber, to, from, caller);
    forget_twins(fiber, (u64)to, sizeof(Piece) * COUNT);
    copy_pieces<Piece, COUNT>(to, from);
    return to;
}
template <class Piece, u32 COUNT> static SIMT_NOINLINE void* copy_of(void* to, const void* from, void* caller) {
    Fiber* fiber = current();
    if (!is_private(fiber, (u64)to)) return write_and_copy<Piece, COUNT>(fiber, to, from, caller);
    if (!is_private(fiber, (u64)from)) return read_and_copy<Piece, COUNT>(fiber, to, from, caller);
    copy_pieces<Piece, COUNT>(to, from);
    return to;
}

// Four components of 8 bytes are two words of 16, the widest that a GPU thread copies at once.
template <u32 BYTES, u32 COMPONENTS> SIMT_INLINE void* copy_vector(void* to, const void* from, void* caller) {
    if constexpr (BYTES == 2) return copy_of<u16, 1>(to, from, caller);
    else if constexpr (BYTES == 4) return copy_of<u32, 1>(to, from, caller);
    else if constexpr (BYTES == 8) return copy_of<u32, 2>(to, from, caller);
    else if constexpr (BYTES == 16 && COMPONENTS == 4) return copy_of<u32, 4>(to, from, caller);
    else if constexpr (BYTES == 16) return copy_of<u64, 2>(to, from, caller);
    else {
        static_assert(BYTES == 32, "a vector has 2, 4, 8, 16 or 32 bytes");
        copy_of<u64, 2>(to, from, caller);
        copy_of<u64, 2>((char*)to + 16, (const char*)from + 16, caller);
        return to;
    }
}

#define SIMT_DEFINE_COPIES(NAME, COMPONENTS)                                                                         \
    NAME::NAME(const NAME& from) { copy_vector<sizeof(NAME), COMPONENTS>(this, &from, SIMT_CALLER); }                \
    NAME& NAME::operator=(const NAME& from) {                                                                        \
        return *(NAME*)copy_vector<sizeof(NAME), COMPONENTS>(this, &from, SIMT_CALLER);                              \
    }
#define SIMT_DEFINE_VECTORS(NAME, ELEMENT)                                                                           \
    SIMT_DEFINE_COPIES(NAME##2, 2)                                                                                   \
    SIMT_DEFINE_COPIES(NAME##4, 4)                                                                                   \
    NAME##1 make_##NAME##1(ELEMENT x) { return NAME##1(x); }                                                         \
    NAME##2 make_##NAME##2(ELEMENT x, ELEMENT y) { return NAME##2(x, y); }                                           \
    NAME##3 make_##NAME##3(ELEMENT x, ELEMENT y, ELEMENT z) { return NAME##3(x, y, z); }                             \
    NAME##4 make_##NAME##4(ELEMENT x, ELEMENT y, ELEMENT z, ELEMENT w) { return NAME##4(x, y, z, w); }
SIMT_EACH_VECTOR(SIMT_DEFINE_VECTORS, SIMT_DEFINE_VECTORS)
#undef SIMT_DEFINE_VECTORS
#undef SIMT_DEFINE_COPIES
