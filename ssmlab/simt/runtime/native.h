// Native mode: no checks.  Each worker (an OS thread that Python started) runs one block after another.
#pragma once
#include "atomics.h"
#include "indices.h"
#include "machine.h"
#include "print.h"

// All native launches of a process share one region of stacks and one of fibers, each worker has its own part: so the
// stack pointer alone says who is running, on any OS thread, without thread-local storage.
static char* first_stack;
static Fiber* first_fiber;

#if defined(_WIN32)
static Fiber* current() { return (Fiber*)context_now(); }        // a fiber begins with its context
static void set_current(Fiber*) {}
#else
SIMT_INLINE u64 stack_number() { return (u64)((char*)__builtin_frame_address(0) - first_stack) / STACK_BYTES; }
static inline Fiber* current() { return first_fiber + stack_number(); }
static inline void set_current(Fiber*) {}
#endif

static void record(Fiber* fiber, u32 kind, u32 variant, const char* text) {
    SimtLaunch* launch = fiber->block->machine->launch;
    SimtResults* results = results_of(launch);
    SimtFinding finding = {};
    finding.kind = kind, finding.severity = 1, finding.variant = variant;
    finding.access = finding.other_access = ACCESS_NONE;
    finding.space = SPACE_OTHER, finding.object = -2;
    finding.thread = fiber->thread, finding.other_thread = NO_THREAD;
    finding.block = fiber->block->number;
    finding.count = 1;
    finding.text = text;
    results->finding[0] = finding;
    results->findings = 1;
    __atomic_store_n(launch->stop, 1u, __ATOMIC_RELAXED);
}

static void record_assert(Fiber* fiber, const char* expression, void*) { record(fiber, KIND_ASSERT, 0, expression); }
static void too_much_shared(Fiber* fiber) { record(fiber, KIND_OUT_OF_BOUNDS, 99, nullptr); }

SIMT_API void* simt_memcpy(void* to, const void* from, size_t bytes) { return memcpy(to, from, bytes); }
SIMT_API void* simt_memmove(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }
SIMT_API void* simt_memset(void* to, int value, size_t bytes) { return memset(to, value, bytes); }

// Called at every basic block where the kernel was compiled with -fsanitize-coverage=trace-pc: other threads get a turn
// now and then, so that waiting for one of them ends, and an endless loop is given up.
static constexpr u64 STEPS_A_TURN = 1 << 16;

SIMT_API void __sanitizer_cov_trace_pc() {
    Fiber* fiber = current();
    if (SIMT_LIKELY(++fiber->steps % STEPS_A_TURN)) return;
    SimtLaunch* launch = fiber->block->machine->launch;
    if (launch->watchdog && fiber->steps > launch->watchdog) record(fiber, KIND_ENDLESS_LOOP, 0, nullptr);
    if (__atomic_load_n(launch->stop, __ATOMIC_RELAXED)) abandon(fiber);
    let_others_run(fiber);
}

// ---- for launch.py

SIMT_API uint64_t simt_region_bytes(const SimtLaunch* launch, int region) {
    u64 workers = launch->resident;              // native: how many there will be at most
    switch (region) {
    case REGION_STACKS: return STACK_GUARD + workers * MOST_THREADS * STACK_BYTES;
    case REGION_FIBERS: return (workers * MOST_THREADS + FIBERS_AHEAD) * sizeof(Fiber);
    case REGION_BLOCKS: return workers * (sizeof(Block) + sizeof(Machine));
    case REGION_ARENA: return workers * launch->arena_bytes;
    case REGION_RESULTS: return sizeof(SimtResults) + sizeof(SimtFinding) + PRINT_BYTES;   // each worker has its own
    default: return 0;
    }
}

SIMT_API uint32_t simt_run(SimtLaunch* launch) {
    first_stack = stack_of(launch, 0);
    first_fiber = (Fiber*)launch->region[REGION_FIBERS];
    SimtResults* results = results_of(launch);
    memset(results, 0, sizeof *results);
    results->finding = (SimtFinding*)(results + 1);
    results->print = (char*)(results->finding + 1);

    char* place = (char*)launch->region[REGION_BLOCKS] + launch->worker * (sizeof(Block) + sizeof(Machine));
    Machine* machine = (Machine*)place;
    open_machine(machine, launch, 1);
    machine->block = (Block*)(machine + 1);
    machine->fibers = first_fiber + (u64)launch->worker * MOST_THREADS;
    machine->block->slot = 0;
    machine->block->alive = false;
    machine->block->fibers = machine->fibers;
    machine->block->arena = (char*)launch->region[REGION_ARENA] + launch->worker * launch->arena_bytes;
    bool finished = run_machine(machine);
    results->blocks_done = machine->finished;
    if (!finished) __atomic_store_n(launch->stop, 1u, __ATOMIC_RELAXED);
    return !finished;
}
