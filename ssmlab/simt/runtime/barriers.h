// __syncthreads and its reducing forms, and the barrier of a whole grid.
//
// As on the hardware, a thread that has returned counts as arrived; checked mode reports it (observe_barrier_release).
#pragma once
#include "observe.h"
#include "scheduler.h"

static void release_barrier(Block* block) {
    observe_barrier_release(block);
    block->machine->progress++;
    block->barriers++;
    block->last_sum = block->sum, block->last_all = block->all, block->last_any = block->any;
    block->sum = 0, block->all = 1, block->any = 0;
    block->arrived = 0;
    for (u32 w = 0; w < block->warps; w++) {
        Warp& warp = block->warp[w];
        u32 positions = warp.barrier_positions;
        warp.barrier_positions = 0;
        make_runnable(&warp, positions);
    }
}

SIMT_INLINE Block* pass_barrier(int predicate, void* pc) {
    Fiber* fiber = current();
    Block* block = fiber->block;
    observe_barrier_arrival(fiber, pc);
    block->sum += predicate != 0;
    block->all &= predicate != 0;
    block->any |= predicate != 0;
    fiber->warp->barrier_positions |= 1u << fiber->position;
    if (++block->arrived == block->live) {
        release_barrier(block);                  // this fiber is runnable too; the first in order goes on
        hand_over(fiber, first_of(block));
    } else {
        wait(fiber, AT_BARRIER);
    }
    fiber->wait = RUNNING;
    return block;
}

SIMT_API void simt_barrier() { pass_barrier(0, SIMT_CALLER); }
SIMT_API int simt_barrier_count(int predicate) { return pass_barrier(predicate, SIMT_CALLER)->last_sum; }
SIMT_API int simt_barrier_and(int predicate) { return pass_barrier(predicate, SIMT_CALLER)->last_all; }
SIMT_API int simt_barrier_or(int predicate) { return pass_barrier(predicate, SIMT_CALLER)->last_any; }

// ---- the grid's barrier: the last thread of the last block lets everybody go

static void release_grid(Machine* machine) {
    observe_grid_release(machine);
    machine->progress++;
    machine->at_grid_barrier = 0;
    for (u32 b = 0; b < machine->resident; b++) {
        Block& block = machine->block[b];
        for (u32 w = 0; block.alive && w < block.warps; w++) {
            u32 positions = block.warp[w].barrier_positions;
            block.warp[w].barrier_positions = 0;
            make_runnable(&block.warp[w], positions);
        }
    }
}

SIMT_API void simt_grid_barrier() {
    Fiber* fiber = current();
    Machine* machine = fiber->block->machine;
    observe_grid_arrival(fiber, SIMT_CALLER);
    fiber->warp->barrier_positions |= 1u << fiber->position;
    if (++machine->at_grid_barrier == machine->blocks * machine->threads) {
        release_grid(machine);
        hand_over(fiber, first_of(&machine->block[0]));
    } else {
        wait(fiber, AT_GRID_BARRIER);
    }
    fiber->wait = RUNNING;
}
