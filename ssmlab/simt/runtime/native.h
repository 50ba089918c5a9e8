// Native mode: no checks.  Each worker (an OS thread that Python started) runs one block after another.
#pragma once
#include "atomics.h"
#include "faults.h"
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
SIMT_INLINE u64 stack_number() { return (u64)(stack_now() - first_stack) / STACK_BYTES; }
static inline Fiber* current() { return first_fiber + stack_number(); }
static inline void set_current(Fiber*) {}
#endif

static void record(Fiber* fiber, u32 kind, u32 variant, const char* text, i64 first = 0, i64 second = 0) {
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
    finding.extra[0] = first, finding.extra[1] = second;
    results->finding[0] = finding;
    results->findings = 1;
    __atomic_store_n(launch->stop, 1u, __ATOMIC_RELAXED);
}

static constexpr u32 WILD_IN_NATIVE_MODE = 4;
static constexpr u64 NATIVE_GUARD = 16384;       // [B] at the low end of a worker's stacks

static Fiber* fiber_to_land_on(Machine* machine) { return machine->fibers; }

static void report_fault(Machine* machine, const Fault& fault) {
    u64 lowest_stack = (u64)machine->fibers->stack, number = (fault.stack_pointer - lowest_stack) / STACK_BYTES;
    Fiber* fiber = machine->fibers + (number < (u64)machine->resident * machine->threads ? number : 0);
    if (fault.address - lowest_stack < NATIVE_GUARD) record(fiber, KIND_STACK_OVERFLOW, 1, nullptr);
    else if (fault.cause == FAULT_DIVISION) record(fiber, KIND_DIVISION_BY_ZERO, 0, nullptr);
    else if (fault.cause == FAULT_INSTRUCTION) record(fiber, KIND_ASSERT, 0, "__trap()");
    else record(fiber, KIND_WILD_ACCESS, WILD_IN_NATIVE_MODE, nullptr);
}

static void record_assert(Fiber* fiber, const char* expression, void*) { record(fiber, KIND_ASSERT, 0, expression); }
static void too_much_shared(Fiber* fiber, int, u64 bytes) {
    record(fiber, KIND_OUT_OF_BOUNDS, OUT_OF_ROOM, nullptr, (i64)bytes, fiber->block->arena_used);
}

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
    pause_if_due(fiber);
    let_others_run(fiber);
}

// ---- for launch.py

// A launch whose blocks wait for each other (cooperative) has the stacks of all workers and keeps all blocks alive.
SIMT_INLINE u32 blocks_at_once(const SimtLaunch* launch) {
    return launch->whole_grid ? launch->grid[0] * launch->grid[1] * launch->grid[2] : 1;
}

SIMT_API uint64_t simt_region_bytes(const SimtLaunch* launch, int region) {
    u64 workers = launch->resident;              // native: how many there will be at most
    switch (region) {
    case REGION_STACKS: return STACK_GUARD + workers * MOST_THREADS * STACK_BYTES;
    case REGION_FIBERS: return (workers * MOST_THREADS + FIBERS_AHEAD) * sizeof(Fiber);
    case REGION_BLOCKS: return larger<u64>(workers, blocks_at_once(launch)) * (sizeof(Block) + sizeof(Machine));
    case REGION_ARENA: return larger<u64>(workers, blocks_at_once(launch)) * launch->arena_bytes;
    case REGION_FAULTS: return FAULT_STACK * FAULT_STACKS;
    case REGION_RESULTS: return sizeof(SimtResults) + sizeof(SimtFinding) + PRINT_BYTES;   // each worker has its own
    default: return 0;
    }
}

static void open_launch(SimtLaunch* launch, Machine* machine) {
    first_stack = stack_of(launch, 0);
    first_fiber = (Fiber*)launch->region[REGION_FIBERS];
    SimtResults* results = results_of(launch);
    memset(results, 0, sizeof *results);
    results->finding = (SimtFinding*)(results + 1);
    results->print = (char*)(results->finding + 1);

    open_machine(machine, launch, blocks_at_once(launch));
    machine->block = (Block*)(machine + 1);
    machine->fibers = first_fiber + (u64)launch->worker * MOST_THREADS;
    for (u32 b = 0; b < machine->resident; b++) {
        Block& block = machine->block[b];
        block.slot = b;
        block.alive = false;
        block.machine = machine;
        block.fibers = machine->fibers + (u64)b * machine->threads;
        block.arena = (char*)launch->region[REGION_ARENA] + (launch->worker + b) * launch->arena_bytes;
    }
}

SIMT_API uint32_t simt_run(SimtLaunch* launch) {
    char* place = (char*)launch->region[REGION_BLOCKS] + launch->worker * (sizeof(Block) + sizeof(Machine));
    Machine* machine = (Machine*)place;
    if (!launch->resume) open_launch(launch, machine);
    guard_stacks(stack_of(launch, (u64)launch->worker * MOST_THREADS), NATIVE_GUARD);
    FaultWatch watch(machine, launch->worker);
    RunResult result = run_machine(machine);
    results_of(launch)->blocks_done = machine->finished;
    if (result == RUN_ABANDONED) __atomic_store_n(launch->stop, 1u, __ATOMIC_RELAXED);
    return result;
}
