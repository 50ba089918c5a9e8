// What the compiler calls in a kernel's code: -fsanitize=thread (memory, functions), -fsanitize-coverage=trace-pc (basic
// blocks) and -fsanitize=bounds.  Names and meanings are those of the compilers' own run-time libraries.
#pragma once
#include "waiting.h"

// ---- memory

SIMT_INLINE void hook(void* address, u32 size, u8 kind, void* pc) {
    Fiber* fiber = current();
    if (SIMT_LIKELY(on_own_stack(fiber, (u64)address))) return;
    access(fiber, (u64)address, size, kind, pc);
}

// A volatile read is how threads wait for each other: let the others run first, then read what they left.
static SIMT_NOINLINE void volatile_read(void* address, u32 size, void* pc) {
    Fiber* fiber = current();
    if (on_own_stack(fiber, (u64)address)) return;
    poll(fiber, pc);
    access(fiber, (u64)address, size, VOLATILE_READ, pc);
}

#define SIMT_HOOKS(N)                                                                                                      \
    SIMT_API void __tsan_read##N(void* a) { hook(a, N, PLAIN_READ, SIMT_CALLER); }                                         \
    SIMT_API void __tsan_write##N(void* a) { hook(a, N, PLAIN_WRITE, SIMT_CALLER); }                                       \
    SIMT_API void __tsan_unaligned_read##N(void* a) { hook(a, N, PLAIN_READ, SIMT_CALLER); }                               \
    SIMT_API void __tsan_unaligned_write##N(void* a) { hook(a, N, PLAIN_WRITE, SIMT_CALLER); }                             \
    SIMT_API void __tsan_volatile_read##N(void* a) { volatile_read(a, N, SIMT_CALLER); }                                   \
    SIMT_API void __tsan_volatile_write##N(void* a) { hook(a, N, VOLATILE_WRITE, SIMT_CALLER); }                           \
    SIMT_API void __tsan_unaligned_volatile_read##N(void* a) { volatile_read(a, N, SIMT_CALLER); }                         \
    SIMT_API void __tsan_unaligned_volatile_write##N(void* a) { hook(a, N, VOLATILE_WRITE, SIMT_CALLER); }                 \
    SIMT_API void __tsan_read_write##N(void* a) { hook(a, N, PLAIN_READ, SIMT_CALLER); hook(a, N, PLAIN_WRITE, SIMT_CALLER); } \
    SIMT_API void __tsan_unaligned_read_write##N(void* a) { hook(a, N, PLAIN_READ, SIMT_CALLER); hook(a, N, PLAIN_WRITE, SIMT_CALLER); }
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

#define SIMT_MEMORY_FUNCTIONS(PREFIX)                                            \
    SIMT_API void* PREFIX##memcpy(void* to, const void* from, size_t n) {        \
        range_hook(from, n, PLAIN_READ, SIMT_CALLER);                            \
        range_hook(to, n, PLAIN_WRITE, SIMT_CALLER);                             \
        return memcpy(to, from, n);                                              \
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

SIMT_API void __tsan_vptr_read(void**) {}
SIMT_API void __tsan_vptr_update(void**, void*) {}
SIMT_API void __tsan_init() {}

// ---- functions and basic blocks: the shadow call stack, full stacks, loops without end

[[noreturn]] static SIMT_NOINLINE void stack_is_full(Fiber* fiber, void* pc) {
    FiberChecks& checks = fiber->checks;
    u32 line = 0;                                // the innermost call that is remembered: the same for every compiler
    for (u32 i = smaller(checks.depth, DEEPEST_FRAME); i-- && !line;) line = line_at(fiber->block->machine->launch, checks.frames[i]);
    SimtFinding finding = finding_of(fiber, KIND_STACK_OVERFLOW, 0, line ? line : learner_line(fiber, pc));
    add_finding(finding);
    abandon(fiber);
}

SIMT_API void __tsan_func_entry(void* caller) {
    Fiber* fiber = current();
    FiberChecks& checks = fiber->checks;
    if (SIMT_LIKELY(checks.depth < DEEPEST_FRAME)) checks.frames[checks.depth] = caller;
    checks.depth++;
    if (SIMT_UNLIKELY((char*)__builtin_frame_address(0) < fiber->stack + STACK_RESERVE)) stack_is_full(fiber, SIMT_CALLER);
}

SIMT_API void __tsan_func_exit() { current()->checks.depth--; }

// The budget of basic blocks is spent: the loop is named by the first line among the outermost blocks that still run.
static constexpr u64 LOOK_AT_LOOP = 100000;

static SIMT_NOINLINE void budget_is_spent(Fiber* fiber, void* pc) {
    FiberChecks& checks = fiber->checks;
    u32 line = line_at(fiber->block->machine->launch, pc);
    if (line && (!checks.loop_line || checks.depth < checks.loop_depth)) checks.loop_depth = checks.depth, checks.loop_line = line;
    if (line && checks.depth == checks.loop_depth) checks.loop_line = smaller(checks.loop_line, line);
    if (fiber->steps < fiber->block->machine->launch->watchdog + LOOK_AT_LOOP) return;
    SimtFinding finding = finding_of(fiber, KIND_ENDLESS_LOOP, 0, checks.loop_line);
    finding.extra[0] = (i64)fiber->block->machine->launch->watchdog;
    add_finding(finding);
    abandon(fiber);
}

SIMT_API void __sanitizer_cov_trace_pc() {
    Fiber* fiber = current();
    if (SIMT_UNLIKELY((char*)__builtin_frame_address(0) < fiber->stack + STACK_RESERVE)) stack_is_full(fiber, SIMT_CALLER);
    if (SIMT_UNLIKELY(++fiber->steps > most_steps)) budget_is_spent(fiber, SIMT_CALLER);
}

// ---- array bounds: a constant number of elements and an index outside it

struct BoundsPlace { const char* file; u32 line, column; };
struct BoundsType { u16 kind, information; char name[1]; };
struct BoundsData { BoundsPlace place; BoundsType *array, *index; };

[[noreturn]] static void index_out_of_bounds(const BoundsData* data, u64 index, void* pc) {
    Fiber* fiber = current();
    SimtFinding finding = finding_of(fiber, KIND_OUT_OF_BOUNDS, OUT_ARRAY, learner_line(fiber, pc));
    u32 bits = 1u << (data->index->information >> 1);
    bool is_signed = data->index->information & 1;
    finding.extra[0] = !is_signed || bits >= 64 ? (i64)index : (i64)(index << (64 - bits)) >> (64 - bits);
    finding.text = data->array->name;
    add_finding(finding);
    abandon(fiber);                              // the array may lie on the stack: what follows could not be trusted
}
SIMT_API void __ubsan_handle_out_of_bounds(void* data, void* index) {
    index_out_of_bounds((const BoundsData*)data, (u64)index, SIMT_CALLER);
}
SIMT_API void __ubsan_handle_out_of_bounds_abort(void* data, void* index) {
    index_out_of_bounds((const BoundsData*)data, (u64)index, SIMT_CALLER);
}
