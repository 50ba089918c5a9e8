// What the compiler calls in a kernel's code: -fsanitize=thread (memory, functions), -fsanitize-coverage=trace-pc
// (basic blocks) and -fsanitize=bounds.  Names and meanings are those of the compilers' own run-time libraries.
#pragma once
#include "quick.h"
#include "waiting.h"

// ---- memory

// The usual accesses have a function each, in which the compiler knows size and kind.
template <u32 SIZE, u8 KIND> static SIMT_NOINLINE void access_of(Fiber* fiber, u64 address, void* pc) {
    if (KIND == PLAIN_WRITE) forget_twins(fiber, address, SIZE);
    else if (is_twin(fiber, address, SIZE, pc)) return;
    if (SIMT_UNLIKELY((!quick_access<SIZE, KIND>(fiber, address, pc)))) look_at_memory(fiber, address, SIZE, KIND, pc);
}

SIMT_INLINE void hook(void* address, u32 size, u8 kind, void* pc) {
    Fiber* fiber = current();
    if (SIMT_LIKELY(is_private(fiber, (u64)address))) return;
    if (size == 4 && kind == PLAIN_READ) access_of<4, PLAIN_READ>(fiber, (u64)address, pc);
    else if (size == 4 && kind == PLAIN_WRITE) access_of<4, PLAIN_WRITE>(fiber, (u64)address, pc);
    else if (size == 8 && kind == PLAIN_READ) access_of<8, PLAIN_READ>(fiber, (u64)address, pc);
    else if (size == 8 && kind == PLAIN_WRITE) access_of<8, PLAIN_WRITE>(fiber, (u64)address, pc);
    else access(fiber, (u64)address, size, kind, pc);
}

// A volatile read is how threads wait for each other: let the others run first, then read what they left.
static SIMT_NOINLINE void volatile_read(void* address, u32 size, void* pc) {
    Fiber* fiber = current();
    if (is_private(fiber, (u64)address)) return;
    poll(fiber, pc);
    access(fiber, (u64)address, size, VOLATILE_READ, pc);
}

#define SIMT_HOOKS(N)                                                                                      \
    SIMT_API void __tsan_read##N(void* a) { hook(a, N, PLAIN_READ, SIMT_CALLER); }                         \
    SIMT_API void __tsan_write##N(void* a) { hook(a, N, PLAIN_WRITE, SIMT_CALLER); }                       \
    SIMT_API void __tsan_unaligned_read##N(void* a) { hook(a, N, PLAIN_READ, SIMT_CALLER); }               \
    SIMT_API void __tsan_unaligned_write##N(void* a) { hook(a, N, PLAIN_WRITE, SIMT_CALLER); }             \
    SIMT_API void __tsan_volatile_read##N(void* a) { volatile_read(a, N, SIMT_CALLER); }                   \
    SIMT_API void __tsan_volatile_write##N(void* a) { hook(a, N, VOLATILE_WRITE, SIMT_CALLER); }           \
    SIMT_API void __tsan_unaligned_volatile_read##N(void* a) { volatile_read(a, N, SIMT_CALLER); }         \
    SIMT_API void __tsan_unaligned_volatile_write##N(void* a) { hook(a, N, VOLATILE_WRITE, SIMT_CALLER); } \
    SIMT_API void __tsan_read_write##N(void* a) {                                                          \
        hook(a, N, PLAIN_READ, SIMT_CALLER);                                                               \
        hook(a, N, PLAIN_WRITE, SIMT_CALLER);                                                              \
    }                                                                                                      \
    SIMT_API void __tsan_unaligned_read_write##N(void* a) {                                                \
        hook(a, N, PLAIN_READ, SIMT_CALLER);                                                               \
        hook(a, N, PLAIN_WRITE, SIMT_CALLER);                                                              \
    }
SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)
#undef SIMT_HOOKS

SIMT_INLINE void range_hook(const void* address, u64 bytes, u8 kind, void* pc) {
    if (bytes) access_range(current(), (u64)address, bytes, kind, pc);
}
SIMT_API void __tsan_read_range(void* a, size_t n) { range_hook(a, n, PLAIN_READ, SIMT_CALLER); }
SIMT_API void __tsan_write_range(void* a, size_t n) { range_hook(a, n, PLAIN_WRITE, SIMT_CALLER); }

// The copies that compilers make of small structs, mostly local ones (threadIdx: 12 bytes).
SIMT_INLINE bool copy_small_private(void* to, const void* from, size_t n) {
    const Fiber* fiber = current();
    if (n < 8 || n > 16 || !is_private(fiber, (u64)from) || !is_private(fiber, (u64)to)) return false;
    typedef u64 Word __attribute__((aligned(1), may_alias));
    u64 head = *(const Word*)from, tail = *(const Word*)((const char*)from + n - 8);         // they may overlap
    *(Word*)to = head, *(Word*)((char*)to + n - 8) = tail;
    return true;
}

#define SIMT_MEMORY_FUNCTIONS(PREFIX)                                            \
    SIMT_API void* PREFIX##memcpy(void* to, const void* from, size_t n) {        \
        if (copy_small_private(to, from, n)) return to;                          \
        range_hook(from, n, PLAIN_READ, SIMT_CALLER);                            \
        range_hook(to, n, PLAIN_WRITE, SIMT_CALLER);                             \
        return memmove(to, from, n); /* not memcpy, which is looked at below */  \
    }                                                                            \
    SIMT_API void* PREFIX##memmove(void* to, const void* from, size_t n) {       \
        range_hook(from, n, PLAIN_READ, SIMT_CALLER);                            \
        range_hook(to, n, PLAIN_WRITE, SIMT_CALLER);                             \
        return memmove(to, from, n);                                             \
    }                                                                            \
    SIMT_API void* PREFIX##memset(void* to, int value, size_t n) {               \
        range_hook(to, n, PLAIN_WRITE, SIMT_CALLER);                             \
        return memset(to, value, n);                                             \
    }
SIMT_MEMORY_FUNCTIONS(simt_)
SIMT_MEMORY_FUNCTIONS(__tsan_)
#undef SIMT_MEMORY_FUNCTIONS

#if defined(__clang__)
// Clang before 15 copies structs by plain calls of memcpy: those from kernels are looked at too.
extern "C" __attribute__((visibility("hidden"), no_builtin("memcpy"))) void* memcpy(void* to, const void* from,
                                                                                    size_t n) {
    if (copy_small_private(to, from, n)) return to;
    Fiber* fiber = current();
    if (fiber->block &&
        (u64)SIMT_CALLER - fiber->block->machine->launch->text < fiber->block->machine->launch->text_bytes) {
        range_hook(from, n, PLAIN_READ, SIMT_CALLER);
        range_hook(to, n, PLAIN_WRITE, SIMT_CALLER);
    }
    return memmove(to, from, n);
}
#endif

SIMT_API void __tsan_vptr_read(void**) {}
SIMT_API void __tsan_vptr_update(void**, void*) {}
SIMT_API void __tsan_init() {}

// ---- functions: the shadow call stack, full stacks (basic blocks: watchdog.h)

[[noreturn]] static SIMT_NOINLINE void stack_is_full(Fiber* fiber, void* pc) {
    FiberChecks& checks = fiber->checks;
    u32 line = 0;                                // the innermost call that is remembered: the same for every compiler
    for (u32 i = smaller(checks.depth, DEEPEST_FRAME); i-- && !line;)
        line = line_at(fiber->block->machine->launch, checks.frames[i]);
    SimtFinding finding = finding_of(fiber, KIND_STACK_OVERFLOW, 0, line ? line : learner_line(fiber, pc));
    add_finding(finding);
    abandon(fiber);
}

// At -O0 every function keeps its caller's frame pointer and return address at a known place of its frame.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-address"
SIMT_INLINE void** frame_of_caller() { return (void**)__builtin_frame_address(1); }
#pragma GCC diagnostic pop

SIMT_API void __tsan_func_entry(void* caller) {
    Fiber* fiber = current();
    FiberChecks& checks = fiber->checks;
    u32 depth = checks.depth;
    checks.depth = depth + 1;
    if (SIMT_LIKELY(depth < DEEPEST_FRAME)) checks.frames[depth] = caller;
    if (SIMT_UNLIKELY(stack_now() < fiber->stack + STACK_RESERVE)) stack_is_full(fiber, SIMT_CALLER);
}

// After an index out of bounds the frame may have been written over: the function may return only to where it came
// from.
static SIMT_NOINLINE void check_return(Fiber* fiber, void** frame) {
    FiberChecks& checks = fiber->checks;
    bool whole = checks.depth < DEEPEST_FRAME && frame[1] == checks.frames[checks.depth];
    if (checks.depth)
        whole = whole && frame[0] > (void*)frame && is_private(fiber, (u64)frame[0]);        // else: the runtime's
    if (!whole) abandon(fiber);
}

SIMT_API void __tsan_func_exit() {
    Fiber* fiber = current();
    fiber->checks.depth--;
    if (SIMT_UNLIKELY(fiber->checks.frame_in_doubt)) check_return(fiber, frame_of_caller());
}

// ---- array bounds: a constant number of elements and an index outside it

struct BoundsPlace { const char* file; u32 line, column; };
struct BoundsType { u16 kind, information; char name[1]; };
struct BoundsData { BoundsPlace place; BoundsType *array, *index; };

SIMT_INLINE const char* skip_spaces(const char* text) {
    while (*text == ' ' || *text == '\'') text++;
    return text;
}

// Do two texts agree, spaces and quotes aside, up to the end of `part`?
static bool begins_with(const char* text, const char* part) {
    for (;; text++, part++) {
        text = skip_spaces(text), part = skip_spaces(part);
        if (!*part) return true;
        if (*text != *part) return false;
    }
}

// Is `name`, such as 'float [64]', the type of this array or of its rows?  array.type: "… T = float [2][64] …"
static bool is_type_of(const SharedArray& array, const char* name) {
    const char* type = array.type;
    while (*type && !begins_with(type, "T = ")) type++;
    if (!*type) return false;
    const char* element = type + 4;
    const char *dimensions = element, *wanted = name;
    while (*wanted && *wanted != '[') wanted++;
    for (const char* at = name; at < wanted; at++) {                 // the element's type, letter by letter
        dimensions = skip_spaces(dimensions), at = skip_spaces(at);
        if (at >= wanted) break;
        if (*dimensions++ != *at) return false;
    }
    for (dimensions = skip_spaces(dimensions); *dimensions == '['; dimensions = skip_spaces(dimensions)) {
        if (begins_with(dimensions, wanted)) return true;
        while (*dimensions && *dimensions != ']') dimensions++;
        if (*dimensions) dimensions++;
    }
    return false;
}

// How many of the block's arrays have that type; `one`: the last of them.
static u32 shared_arrays_of_type(const Block* block, const char* name, const SharedArray*& one) {
    u32 count = 0;
    for (u32 i = 1; i < block->array_count; i++)
        if (is_type_of(block->arrays[i], name)) one = &block->arrays[i], count++;
    return count;
}

static void index_out_of_bounds(const BoundsData* data, u64 index, void* pc) {
    Fiber* fiber = current();
    const SharedArray* shared = nullptr;
    u32 shared_count = shared_arrays_of_type(fiber->block, data->array->name, shared);
    SimtFinding finding = finding_of(fiber, KIND_OUT_OF_BOUNDS, OUT_ARRAY, learner_line(fiber, pc));
    u32 bits = 1u << (data->index->information >> 1);
    bool is_signed = data->index->information & 1;
    finding.extra[0] = !is_signed || bits >= 64 ? (i64)index : (i64)(index << (64 - bits)) >> (64 - bits);
    finding.text = data->array->name;
    if (shared_count == 1) finding.space = SPACE_SHARED, finding.object = shared->index;
    add_finding(finding);
    // A local array lies in the frame, and what follows could not be trusted.  A shared one may be overrun a little;
    // should the name mislead (a local array of the same type), the function's return is watched.
    if (!shared) abandon(fiber);
    fiber->checks.frame_in_doubt = true;
    fiber->checks.doubt_line = finding.line;
}
SIMT_API void __ubsan_handle_out_of_bounds(void* data, void* index) {
    index_out_of_bounds((const BoundsData*)data, (u64)index, SIMT_CALLER);
}
SIMT_API void __ubsan_handle_out_of_bounds_abort(void* data, void* index) {
    index_out_of_bounds((const BoundsData*)data, (u64)index, SIMT_CALLER);
}
