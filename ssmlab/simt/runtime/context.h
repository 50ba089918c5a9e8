// A context is a stack and a place on it.  Switching costs about 3 ns with the assembly here: it saves the registers
// that a called function must keep, changes the stack pointer and returns on the other stack.
//
// x86-64 and aarch64: assembly.  Windows: its own fibers.  Any other POSIX: ucontext (slow: two system calls a switch).
#pragma once
#include "platform.h"

typedef void (*ContextStart)();

#if defined(_WIN32)

extern "C" {
__declspec(dllimport) void* __stdcall CreateFiberEx(size_t, size_t, u32, void(__stdcall*)(void*), void*);
__declspec(dllimport) void* __stdcall ConvertThreadToFiber(void*);
__declspec(dllimport) int __stdcall ConvertFiberToThread();
__declspec(dllimport) void __stdcall SwitchToFiber(void*);
__declspec(dllimport) void __stdcall DeleteFiber(void*);
}

struct Context {
    void* fiber;
    ContextStart start;
};
static void __stdcall context_enter(void* context) { ((Context*)context)->start(); }
SIMT_INLINE void context_open(Context& main) { main.fiber = ConvertThreadToFiber(nullptr); }
SIMT_INLINE void context_close(Context&) { ConvertFiberToThread(); }
static void context_make(Context& c, char*, u64 bytes, ContextStart start) {
    if (c.fiber) DeleteFiber(c.fiber);           // of the thread that had this place before
    c.start = start;
    c.fiber = CreateFiberEx(16384, bytes, 0, context_enter, &c);
}
// The context that runs now: Windows keeps the argument of CreateFiberEx at the start of its own record.
SIMT_INLINE Context* context_now() {
    void** record;
#if defined(__x86_64__)
    asm("movq %%gs:0x20, %0" : "=r"(record));
#else
    asm("ldr %0, [x18, #0x20]" : "=r"(record));
#endif
    return (Context*)*record;
}
SIMT_INLINE void context_switch(Context&, Context& to) { SwitchToFiber(to.fiber); }

#elif defined(__x86_64__) || defined(__aarch64__)

struct Context { void* stack_pointer; };

#if defined(__APPLE__)
#define SIMT_SYMBOL(name) "_" name
#define SIMT_HIDDEN(name) ".private_extern _" name "\n"
#else
#define SIMT_SYMBOL(name) name
#define SIMT_HIDDEN(name) ".hidden " name "\n"
#endif

extern "C" void simt_switch(void** save_here, void* go_there) __attribute__((visibility("hidden")));

// Where the stack is just now.
SIMT_INLINE char* stack_now() {
    char* place;
#if defined(__x86_64__)
    asm("movq %%rsp, %0" : "=r"(place));
#else
    asm("mov %0, sp" : "=r"(place));
#endif
    return place;
}

#if defined(__x86_64__)
static constexpr u32 RETURN_WORD = 6;            // above rbp rbx r12-r15
static constexpr u32 FRAME_WORDS = 8;            // keeps the stack pointer at 16 n + 8 on entry of a function
asm(".text\n.p2align 4\n.globl " SIMT_SYMBOL("simt_switch") "\n" SIMT_HIDDEN("simt_switch")
    SIMT_SYMBOL("simt_switch") ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
#else
static constexpr u32 RETURN_WORD = 11;           // x30
static constexpr u32 FRAME_WORDS = 20;           // x19-x30, d8-d15
asm(".text\n.p2align 4\n.globl " SIMT_SYMBOL("simt_switch") "\n" SIMT_HIDDEN("simt_switch")
    SIMT_SYMBOL("simt_switch") ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");
#endif

SIMT_INLINE void context_open(Context&) {}
SIMT_INLINE void context_close(Context&) {}
static void context_make(Context& c, char* stack, u64 bytes, ContextStart start) {
    void** frame = (void**)((u64)(stack + bytes) & ~15ull) - FRAME_WORDS;
    for (u32 i = 0; i < FRAME_WORDS; i++) frame[i] = nullptr;
    frame[RETURN_WORD] = (void*)start;
    c.stack_pointer = frame;
}
SIMT_INLINE void context_switch(Context& from, Context& to) { simt_switch(&from.stack_pointer, to.stack_pointer); }

#else

#include <ucontext.h>

struct Context { ucontext_t state; };
SIMT_INLINE char* stack_now() { return (char*)__builtin_frame_address(0); }
SIMT_INLINE void context_open(Context&) {}
SIMT_INLINE void context_close(Context&) {}
static void context_make(Context& c, char* stack, u64 bytes, ContextStart start) {
    getcontext(&c.state);
    c.state.uc_stack.ss_sp = stack;
    c.state.uc_stack.ss_size = bytes;
    c.state.uc_link = nullptr;
    makecontext(&c.state, start, 0);
}
SIMT_INLINE void context_switch(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

#endif
