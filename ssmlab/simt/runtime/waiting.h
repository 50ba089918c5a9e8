// What checked mode says about barriers, warp-wide operations and waits that never end.
#pragma once
#include "access.h"
#include "warp.h"

enum WaitVariant {
    BARRIER_LINES = 0,
    BARRIER_RETURNED = 1,
    BARRIER_CALLS = 2,
    MASK_WITHOUT_CALLER = 0,
    MASK_LANE_ELSEWHERE = 1,
    MASK_LANE_RETURNED = 2,
    MASK_DIFFERS = 3,
    MASK_OPERATION = 4,
    MASK_LINES = 5,
    DEADLOCK_POLLING = 0,
    DEADLOCK_GRID = 1,
    DEADLOCK_BARRIER = 2
};

// ---- intervals

static void next_interval(Block* block) {
    BlockChecks& checks = block->checks;
    for (u32 w = 0; w < block->warps; w++) close_all_requests(&block->warp[w]);
    judge_unwritten_reads(block);
    checks.link_used = checks.link_first;
    u32 next = block->machine->launch->next_interval++;
    pass_block_barrier(block, next);
    checks.interval = next;
    for (u32 w = 0; w < block->warps; w++) block->warp[w].checks.time = 0;
}

static void observe_block_start(Block* block) {
    const SimtLaunch* launch = block->machine->launch;
    BlockChecks& checks = block->checks;
    memset(&checks, 0, sizeof checks);
    checks.birth = checks.interval = block->machine->launch->next_interval++;
    checks.link_first = checks.link_used = 1 + block->slot * arena_words(launch) * SHARED_LINKS_A_WORD;
    checks.link_end = checks.link_first + arena_words(launch) * SHARED_LINKS_A_WORD;
    checks.unwritten = (PendingRead*)(cells_of_block(block) + arena_words(launch));
    checks.cells = cells_of_block(block);
    accesses_charged = results->accesses;
    for (u32 w = 0; w < block->warps; w++) block->warp[w].checks.time = 0;
    for (u32 i = 0; i < block->machine->threads; i++) {
        FiberChecks& of_thread = block->fibers[i].checks;
        memset(&of_thread, 0, offsetof(FiberChecks, frames));
        of_thread.look_at = first_look;
    }
    if (running->block == block) steps_left = (i64)first_look;   // one of these, in its former life
    block->machine->progress++;
}

static void observe_block_end(Block* block) {
    for (u32 w = 0; w < block->warps; w++) close_all_requests(&block->warp[w]);
    judge_unwritten_reads(block);
    results->barriers = larger(results->barriers, block->barriers);
    u64 bytes = 0;
    for (u32 i = 1; i < block->array_count; i++) bytes += block->arrays[i].bytes;
    results->shared_bytes = larger(results->shared_bytes, bytes);
}

// ---- barriers

static SIMT_NOINLINE void look_at_arrival(Fiber* fiber, void* pc) {
    Block* block = fiber->block;
    BlockChecks& checks = block->checks;
    u64 path = call_path(fiber, pc);
    bool same = block->arrived && path == checks.barrier_path;
    u32 line = fiber->checks.wait_line = same ? checks.barrier_line : learner_line(fiber, pc);
    if (!block->arrived) {
        checks.barrier_line = line, checks.barrier_path = path, checks.barrier_thread = fiber->thread;
        checks.barrier_site = site_at(fiber, pc, SPACE_OTHER, ACCESS_NONE, 0);
        checks.odd = false;
    } else if (!same && !checks.odd) {
        checks.odd = true;
        checks.odd_line = line, checks.odd_thread = fiber->thread;
    }
}

// Mostly it is the barrier at which the others wait, in the kernel itself: the path there is its place.
SIMT_INLINE void observe_barrier_arrival(Fiber* fiber, void* pc) {
    const Block* block = fiber->block;
    if (SIMT_LIKELY(block->arrived && fiber->checks.depth <= 1 && block->checks.barrier_path == (u64)pc))
        fiber->checks.wait_line = block->checks.barrier_line;
    else look_at_arrival(fiber, pc);
}

static void report_divergence(Block* block) {
    BlockChecks& checks = block->checks;
    if (checks.odd && !checks.quiet) {
        SimtFinding finding = finding_of(&block->fibers[checks.barrier_thread], KIND_DIVERGENT_BARRIER, BARRIER_LINES,
                                         checks.barrier_line);
        finding.other_line = checks.odd_line, finding.other_thread = checks.odd_thread;
        if (finding.line == finding.other_line) finding.variant = BARRIER_CALLS;
        if (finding.line > finding.other_line) {
            finding.line = checks.odd_line, finding.thread = checks.odd_thread;
            finding.other_line = checks.barrier_line, finding.other_thread = checks.barrier_thread;
        }
        add_finding(finding);
        checks.quiet = true;
    } else if (block->live < block->machine->threads && !checks.told_return && !checks.quiet) {
        SimtFinding finding = finding_of(&block->fibers[checks.barrier_thread], KIND_DIVERGENT_BARRIER,
                                         BARRIER_RETURNED, checks.barrier_line);
        finding.extra[0] = block->machine->threads - block->live;
        for (u32 i = block->machine->threads; i--;)
            if (block->fibers[i].wait == EXITED) finding.other_thread = i;
            else finding.thread = i;
        add_finding(finding);
        checks.told_return = true;
    }
}

static void observe_barrier_release(Block* block) {
    report_divergence(block);
    sites.stats[block->checks.barrier_site].requests++;
    next_interval(block);
    take_turns(current(), block->live + TURNS_TO_OPEN);
}

static void observe_leaving(Block* block) { charge_accesses(block); }

static void observe_grid_arrival(Fiber* fiber, void* pc) { fiber->checks.wait_line = learner_line(fiber, pc); }

// A grid barrier orders all blocks: as if everything began anew.
static void observe_grid_release(Machine* machine) {
    for (u32 b = 0; b < machine->resident; b++)
        if (machine->block[b].alive) next_interval(&machine->block[b]);
    charge_accesses(current()->block);           // which hands over to the first block
    for (u32 b = 0; b < machine->resident; b++)
        if (machine->block[b].alive) take_turns(machine->block[b].fibers, machine->threads + TURNS_TO_OPEN);
    machine->launch->launch_number++;            // no record of global memory is older than this
    links.global_used = 1;
}

// ---- warps

static void observe_warp_barrier(Warp* warp, u32 group) {
    for (u32 rest = group; rest; rest &= rest - 1) accept_flags(by_lane(warp, lowest(rest)));
    join_times(warp, group);
    if (group == (warp->exists & ~warp->exited)) close_all_requests(warp);
}

static SimtFinding mask_finding(Warp* warp, u32 lane, u32 variant) {
    Fiber* fiber = by_lane(warp, lane);
    SimtFinding finding = finding_of(fiber, KIND_INVALID_MASK, variant, fiber->checks.wait_line);
    finding.extra[0] = warp->exchange[lane].mask;
    return finding;
}

static void observe_exchange_arrival(Fiber* fiber) {
    Warp* warp = fiber->warp;
    fiber->checks.wait_line = learner_line(fiber, warp->exchange[fiber->lane].pc);
    if (warp->exchange[fiber->lane].mask >> fiber->lane & 1) return;
    SimtFinding finding = mask_finding(warp, fiber->lane, MASK_WITHOUT_CALLER);
    finding.extra[1] = fiber->lane;
    add_finding(finding);
}

static void observe_exchange(Warp* warp, u32 group) {
    take_turns(current(), ones(group));
    u32 first = lowest(group);
    const Exchange& one = warp->exchange[first];
    u32 line = by_lane(warp, first)->checks.wait_line;
    for (u32 rest = group & (group - 1); rest; rest &= rest - 1) {
        u32 lane = lowest(rest);
        const Exchange& other = warp->exchange[lane];
        bool mask = other.mask != one.mask, operation = other.operation != one.operation || other.mode != one.mode;
        bool lines = by_lane(warp, lane)->checks.wait_line != line && one.operation != OP_BARRIER;
        if (SIMT_LIKELY(!mask && !operation && !lines)) continue;
        SimtFinding finding = mask_finding(warp, first, mask ? MASK_DIFFERS : operation ? MASK_OPERATION : MASK_LINES);
        finding.severity = mask || operation;    // different lines: Volta and later allow it, older GPUs do not
        finding.other_line = by_lane(warp, lane)->checks.wait_line;
        finding.other_thread = by_lane(warp, lane)->thread;
        finding.extra[1] = other.mask;
        if (finding.other_line == finding.line && mask) finding.other_line = 0;
        if (finding.other_line && finding.line > finding.other_line) {
            u32 swap = finding.line;
            finding.line = finding.other_line, finding.other_line = swap;
        }
        add_finding(finding);
        break;
    }
    if (u32 gone = one.mask & warp->exited) {
        SimtFinding finding = mask_finding(warp, first, MASK_LANE_RETURNED);
        finding.extra[1] = lowest(gone);
        finding.other_thread = warp->number * WARP + lowest(gone);
        add_finding(finding);
    }
}

// ---- waits that never end

// Lanes wait for a lane that is somewhere else for good: say so, and let those that are here go on.
static bool free_exchange(Warp* warp) {
    u32 first = lowest(warp->waiting), mask = warp->exchange[first].mask, here = 0;
    for (u32 rest = warp->waiting; rest; rest &= rest - 1)
        if (warp->exchange[lowest(rest)].mask == mask) here |= 1u << lowest(rest);
    u32 missing = mask & warp->exists & ~warp->exited & ~here;
    SimtFinding finding = mask_finding(warp, first, MASK_LANE_ELSEWHERE);
    if (missing) {
        const Fiber* fiber = by_lane(warp, lowest(missing));
        finding.extra[1] = lowest(missing);
        finding.other_thread = fiber->thread;
        finding.other_line = fiber->checks.wait_line;
        if (finding.other_line == finding.line)
            finding.variant = MASK_DIFFERS, finding.extra[1] = warp->exchange[lowest(missing)].mask;
    }
    add_finding(finding);
    complete_exchange(warp, here);
    return true;
}

static bool observe_stall(Machine* machine) {
    for (u32 b = 0; b < machine->resident; b++)
        for (u32 w = 0; machine->block[b].alive && w < machine->block[b].warps; w++)
            if (machine->block[b].warp[w].waiting) return free_exchange(&machine->block[b].warp[w]);
    // What is left: a grid barrier that not everybody reaches, with or without threads at a block's barrier.
    SimtFinding worst = {};
    for (u32 b = 0; b < machine->resident; b++) {
        for (u32 i = 0; machine->block[b].alive && i < machine->threads; i++) {
            const Fiber& fiber = machine->block[b].fibers[i];
            if (fiber.wait == EXITED) continue;
            u32 line = fiber.checks.wait_line;
            if (!worst.line || (fiber.wait == AT_GRID_BARRIER && worst.variant != DEADLOCK_GRID)) {
                u32 other = worst.line;
                worst = finding_of(&fiber, KIND_DEADLOCK,
                                   fiber.wait == AT_GRID_BARRIER ? DEADLOCK_GRID : DEADLOCK_BARRIER, line);
                worst.other_line = other;
            } else if (line != worst.line && !worst.other_line) {
                worst.other_line = line;
            }
        }
    }
    worst.extra[0] = machine->resident;
    worst.extra[1] = (i64)machine->blocks;
    worst.extra[2] = (i64)machine->finished;
    add_finding(worst);
    return false;
}

static constexpr u64 PATIENT_POLLS = 100000;     // a wait that ends takes fewer than this, or 8 by each thread

[[noreturn]] static SIMT_NOINLINE void report_polling(Fiber* fiber) {
    Machine* machine = fiber->block->machine;
    SimtFinding finding = {};
    u32 other = 0;
    for (u32 b = 0; b < machine->resident; b++) {
        for (u32 i = 0; machine->block[b].alive && i < machine->threads; i++) {
            const Fiber& one = machine->block[b].fibers[i];
            if (one.wait == EXITED) continue;
            bool polls = is_runnable(&one) && one.checks.poll_line && one.checks.poll_progress == machine->progress;
            if (!polls) {
                if (!is_runnable(&one) && (!other || one.checks.wait_line < other)) other = one.checks.wait_line;
            } else if (!finding.line || one.checks.poll_line < finding.line) {
                finding = finding_of(&one, KIND_DEADLOCK, DEADLOCK_POLLING, one.checks.poll_line);
            }
        }
    }
    finding.other_line = other;
    finding.extra[0] = machine->resident, finding.extra[1] = (i64)machine->blocks,
    finding.extra[2] = (i64)machine->finished;
    add_finding(finding);
    abandon(fiber);
}

static bool any_asking(Machine* machine) {
    for (u32 b = 0; b < machine->resident; b++)
        for (u32 w = 0; machine->block[b].alive && w < machine->block[b].warps; w++)
            if (machine->block[b].warp[w].asking) {
                resolve_active_mask(&machine->block[b].warp[w]);
                return true;
            }
    return false;
}

// This thread looks whether something has happened, and will look again: everybody else first.
static SIMT_NOINLINE void poll(Fiber* fiber, void* pc) {
    Machine* machine = fiber->block->machine;
    fiber->checks.poll_progress = machine->progress;
    fiber->checks.poll_line = learner_line(fiber, pc);
    if (machine->spin_progress != machine->progress) {
        machine->spin_progress = machine->progress;
        machine->spins = 0;
    } else if (++machine->spins > larger<u64>(PATIENT_POLLS, 8ull * machine->resident * machine->threads)) {
        if (!any_asking(machine)) report_polling(fiber);
    }
    let_others_run(fiber);
}

static void observe_sleep(Fiber* fiber, void* pc) { poll(fiber, pc); }

static void observe_fence(Fiber* fiber, int scope) {
    if (scope != SIMT_FENCE_BLOCK) take_snapshot(fiber);
}

static void observe_atomic(Fiber* fiber, void* address, u32 size, void* pc) {
    if (!is_private(fiber, (u64)address)) access(fiber, (u64)address, size, ATOMIC, pc);
}

static void observe_atomic_done(Fiber* fiber, bool changed, void* pc) {
    if (changed) fiber->block->machine->progress++;
    else poll(fiber, pc);
}
