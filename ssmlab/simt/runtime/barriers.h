// __syncthreads and its reducing forms, and the barrier of a whole grid.
//
// As on the hardware, a thread that has returned counts as arrived; checked mode reports it (observe_barrier_release).
#pragma once
#include "observe.h"
#include "scheduler.h"

SIMT_INLINE void let_all_run(Block* block) {
    for (u32 w = 0; w < block->warps; w++) {
        Warp& warp = block->warp[w];
        if (!(warp.runnable_positions = warp.live_positions)) continue;
        block->runnable |= 1u << w;
    }
}

static SIMT_NOINLINE void release_barrier(Block* block) {
    observe_barrier_release(block);
    block->machine->progress++;
    block->barriers++;
    block->last_sum = block->sum, block->last_all = block->all, block->last_any = block->any;
    block->sum = 0, block->all = 1, block->any = 0;
    block->arrived = 0;
    let_all_run(block);
}

static SIMT_NOINLINE void open_barrier(Fiber* last) {
    pause_if_due(last);
    release_barrier(last->block);                // this fiber is runnable too; the first in order goes on
    hand_over(last, first_of(last->block));
}

// All that a waiting thread does is done before the switch, which so returns to the kernel directly.
SIMT_INLINE void pass_barrier(Fiber* fiber, void* pc) {
    Block* block = fiber->block;
    observe_barrier_arrival(fiber, pc);
    if (SIMT_LIKELY(++block->arrived != block->live)) return wait(fiber, AT_BARRIER);
    open_barrier(fiber);
}

static Block* pass_reducing_barrier(int predicate, void* pc) {
    Fiber* fiber = current();
    Block* block = fiber->block;
    block->sum += predicate != 0;
    block->all &= predicate != 0;
    block->any |= predicate != 0;
    pass_barrier(fiber, pc);
    return block;
}

SIMT_API void simt_barrier() { pass_barrier(current(), SIMT_CALLER); }
SIMT_API int simt_barrier_count(int predicate) { return pass_reducing_barrier(predicate, SIMT_CALLER)->last_sum; }
SIMT_API int simt_barrier_and(int predicate) { return pass_reducing_barrier(predicate, SIMT_CALLER)->last_all; }
SIMT_API int simt_barrier_or(int predicate) { return pass_reducing_barrier(predicate, SIMT_CALLER)->last_any; }

// ---- the grid's barrier: the last thread of the last block lets everybody go

static void release_grid(Machine* machine) {
    observe_grid_release(machine);
    machine->progress++;
    machine->at_grid_barrier = 0;
    for (u32 b = 0; b < machine->resident; b++)
        if (machine->block[b].alive) let_all_run(&machine->block[b]);
}

SIMT_API void simt_grid_barrier() {
    Fiber* fiber = current();
    Machine* machine = fiber->block->machine;
    observe_grid_arrival(fiber, SIMT_CALLER);
    if (++machine->at_grid_barrier == machine->blocks * machine->threads) {
        release_grid(machine);
        hand_over(fiber, first_of(&machine->block[0]));
    } else {
        wait(fiber, AT_GRID_BARRIER);
    }
}
