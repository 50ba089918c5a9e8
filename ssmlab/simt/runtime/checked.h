// Checked mode: one OS thread, a chosen schedule, every access looked at.
#pragma once
#include "model.h"

static Fiber nobody;        // "runs" while the library is loaded: static constructors have hooks too
static Fiber* running = &nobody;
static u64 most_steps = ~0ull, first_look = ~0ull;               // watchdog
static Fiber* current() { return running; }

// Steps are counted down here while a fiber runs, because every basic block does it.
static i64 steps_left;           // until the watchdog looks at the running fiber: look_at - steps
static u64 steps_of(const Fiber* fiber) {
    return fiber == running ? fiber->checks.look_at - (u64)steps_left : fiber->steps;
}
static void set_current(Fiber* fiber) {
    running->steps = running->checks.look_at - (u64)steps_left;
    running = fiber;
    steps_left = (i64)(fiber->checks.look_at - fiber->steps);
}
static void look_again_at(Fiber* fiber, u64 steps) {
    fiber->steps = steps_of(fiber);
    fiber->checks.look_at = steps;
    if (fiber == running) steps_left = (i64)(steps - fiber->steps);
}

#include "atomics.h"
#include "fault_findings.h"
#include "hooks.h"
#include "indices.h"
#include "machine.h"
#include "print.h"
#include "vectors.h"

static void record_assert(Fiber* fiber, const char* expression, void* pc) {
    SimtFinding finding = finding_of(fiber, KIND_ASSERT, 0, learner_line(fiber, pc));
    finding.text = expression;
    add_finding(finding);
}

static void too_much_shared(Fiber* fiber, int index, u64 bytes) {
    SimtFinding finding = finding_of(fiber, KIND_OUT_OF_BOUNDS, OUT_OF_ROOM, 0);      // its line is the declaration's
    finding.space = SPACE_SHARED, finding.object = index;
    finding.extra[0] = (i64)bytes;
    finding.extra[1] = fiber->block->arena_used;
    add_finding(finding);
}

// ---- for launch.py

static u64 global_links(const SimtLaunch* launch) { return GLOBAL_LINKS_A_WORD * launch->global_cells + 1024; }

SIMT_API uint64_t simt_region_bytes(const SimtLaunch* launch, int region) {
    u64 threads = (u64)launch->block[0] * launch->block[1] * launch->block[2], resident = launch->resident;
    u64 blocks = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
    u64 shared_links = resident * arena_words(launch) * SHARED_LINKS_A_WORD;
    switch (region) {
    case REGION_STACKS: return STACK_GUARD + resident * threads * STACK_BYTES;
    case REGION_FIBERS: return (resident * threads + FIBERS_AHEAD) * sizeof(Fiber);
    case REGION_BLOCKS: return sizeof(Machine) + resident * sizeof(Block) + (launch->block_order ? blocks * 8 : 0);
    case REGION_ARENA: return resident * launch->arena_bytes;
    case REGION_SHARED_CELLS: return resident * shared_cells_of_block(launch);
    case REGION_GLOBAL_CELLS: return launch->global_cells * sizeof(GlobalCell);
    case REGION_LINKS: return global_links(launch) * sizeof(GlobalLink) + (shared_links + 1) * sizeof(SharedLink);
    case REGION_REQUESTS: return request_bytes();
    case REGION_ORDER: return order_bytes();
    case REGION_SITES: return sites_bytes(launch);
    case REGION_FAULTS: return FAULT_STACK * FAULT_STACKS;
    case REGION_RESULTS:
        return sizeof(SimtResults) + MOST_FINDINGS * sizeof(SimtFinding) + MOST_SITES * sizeof(SimtStats) + PRINT_BYTES;
    default: return 0;
    }
}

static void open_results(const SimtLaunch* launch) {
    results = results_of(launch);
    memset(results, 0, sizeof *results);
    results->finding = (SimtFinding*)(results + 1);
    results->stat = (SimtStats*)(results->finding + MOST_FINDINGS);
    results->print = (char*)(results->stat + MOST_SITES);
    memset(results->stat, 0, sizeof(SimtStats));                 // the others when they are taken
    open_findings();
}

static void make_block_order(Machine* machine, u64* order_of_blocks) {
    u32 schedule = machine->launch->block_order;
    if (!schedule) return;
    for (u64 i = 0; i < machine->blocks; i++) order_of_blocks[i] = schedule == 1 ? machine->blocks - 1 - i : i;
    for (u64 i = machine->blocks; schedule == 2 && i > 1; i--) {
        u64 j = random_next(machine->random) % i, other = order_of_blocks[j];
        order_of_blocks[j] = order_of_blocks[i - 1], order_of_blocks[i - 1] = other;
    }
    machine->order = order_of_blocks;
}

static void open_launch(SimtLaunch* launch, Machine* machine) {
    open_machine(machine, launch, launch->resident);
    machine->block = (Block*)(machine + 1);
    machine->fibers = (Fiber*)launch->region[REGION_FIBERS];
    make_block_order(machine, (u64*)(machine->block + launch->resident));
    for (u32 b = 0; b < launch->resident; b++) {
        Block& block = machine->block[b];
        block.slot = b;
        block.alive = false;
        block.machine = machine;
        block.fibers = machine->fibers + (u64)b * machine->threads;
        block.arena = (char*)launch->region[REGION_ARENA] + b * launch->arena_bytes;
        block.array_count = 0;
        for (SharedArray& array : block.arrays) array.bytes = 0;
        for (u32 w = 0; w < (machine->threads + WARP - 1) / WARP; w++) {
            WarpChecks& checks = block.warp[w].checks;
            memset(checks.page, 0, sizeof checks.page);
            checks.open = nullptr;
            checks.known_interval = 0;
        }
    }
    most_steps = launch->watchdog ? launch->watchdog : ~0ull;
    first_look = next_look(0);
    open_results(launch);
    open_sites(launch, results->stat);
    open_requests(launch);
    open_order(launch);
    GlobalLink* first_link = (GlobalLink*)launch->region[REGION_LINKS];
    links = {first_link, 1, (u32)global_links(launch), (SharedLink*)(first_link + global_links(launch))};
}

SIMT_API uint32_t simt_run(SimtLaunch* launch) {
    Machine* machine = (Machine*)launch->region[REGION_BLOCKS];
    guard_stacks((char*)launch->region[REGION_STACKS], FAULT_GUARD);
    if (!launch->resume) open_launch(launch, machine);
    FaultWatch watch(machine, FAULT_STACKS - 1);
    RunResult result = run_machine(machine);
    set_current(&nobody);
    if (result == RUN_PAUSED) return result;
    for (u32 b = 0; result == RUN_ABANDONED && b < launch->resident; b++)
        if (machine->block[b].alive) observe_block_end(&machine->block[b]);
    close_sites();
    results->stats = sites.count;
    results->sites_lost = sites.lost;
    results->blocks_done = machine->finished;
    results->request_bytes = (u64)(request_memory.next - (char*)launch->region[REGION_REQUESTS]);
    return result;
}
