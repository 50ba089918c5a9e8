// The machine: starts blocks, looks after finished and stalled ones, ends the launch.
#pragma once
#include "arena.h"
#include "barriers.h"
#include "warp.h"

static void run_fiber() {
    Fiber* fiber = current();
    const SimtLaunch* launch = fiber->block->machine->launch;
    launch->kernel(launch->arguments);

    fiber = current();
    if (fiber->position == 0) pause_if_due(fiber);
    Block* block = fiber->block;
    Warp* warp = fiber->warp;
    block->machine->progress++;
    warp->exited |= 1u << fiber->lane;
    warp->live_positions &= ~fiber->bit;
    make_waiting(fiber, EXITED);
    block->live--;
    if (warp->waiting) complete_what_is_complete(warp);
    if (block->live && block->arrived == block->live) release_barrier(block);
    if (!block->live) leave(fiber, BLOCK_DONE);
    else if (Fiber* next = next_after_waiting(fiber)) hand_over(fiber, next);
    else leave(fiber, STALLED);
    __builtin_unreachable();
}

static SimtIndex index_of(u64 linear, SimtIndex shape) {
    return {(u32)(linear % shape.x), (u32)(linear / shape.x % shape.y), (u32)(linear / ((u64)shape.x * shape.y))};
}

static SimtIndex index_after(SimtIndex index, SimtIndex shape) {
    if (++index.x == shape.x) index.x = 0, index.y++;
    if (index.y == shape.y) index.y = 0, index.z++;
    return index;
}

// The order in which positions map to lanes (or slots to warps), for one of the three schedules.
static void make_order(u8* order, u32 count, u32 schedule, u64& random) {
    for (u32 i = 0; i < count; i++) order[i] = (u8)(schedule == 1 ? count - 1 - i : i);
    for (u32 i = count; schedule == 2 && i > 1; i--) {
        u32 j = (u32)(random_next(random) % i);
        u8 other = order[j];
        order[j] = order[i - 1], order[i - 1] = other;
    }
}

static void start_block(Machine* machine, Block* block, u64 number) {
    const SimtLaunch* launch = machine->launch;
    block->machine = machine;
    block->number = number;
    block->index = index_of(number, machine->grid_shape);
    block->alive = true;
    block->warps = (machine->threads + WARP - 1) / WARP;
    block->live = machine->threads;
    block->arrived = 0, block->barriers = 0;
    block->sum = 0, block->all = 1, block->any = 0;
    block->runnable = 0;

    u8 warp_order[WARP], lane_order[WARP];
    make_order(warp_order, block->warps, launch->lane_order, machine->random);
    for (u32 slot = 0; slot < block->warps; slot++) {
        Warp& warp = block->warp[slot];
        u32 first = warp_order[slot] * WARP, lanes = smaller(WARP, machine->threads - first);
        warp.block = block;
        warp.slot = slot;
        warp.number = warp_order[slot];
        warp.exists = lanes == WARP ? ~0u : (1u << lanes) - 1;
        warp.exited = warp.waiting = warp.asking = warp.runnable_positions = 0;
        warp.mixed = false;
        warp.first = &block->fibers[first];
        make_order(lane_order, lanes, launch->lane_order, machine->random);
        SimtIndex index[WARP] = {index_of(first, machine->block_shape)};
        for (u32 lane = 1; lane < lanes; lane++) index[lane] = index_after(index[lane - 1], machine->block_shape);
        for (u32 position = 0; position < lanes; position++) {
            u32 lane = lane_order[position], thread = first + lane;
            Fiber& fiber = block->fibers[thread];
            fiber.block = block;
            fiber.warp = &warp;
            u64 stack = (u64)(&fiber - machine->fibers) + (u64)launch->worker * MOST_THREADS;
            fiber.stack = stack_of(launch, stack);
            fiber.index = index[lane];
            fiber.thread = thread;
            fiber.lane = (u8)lane, fiber.position = (u8)position;
            fiber.lane_bit = 1u << lane, fiber.bit = 1u << position;
            fiber.wait = NOTHING;
            fiber.patience = 0;
            fiber.steps = 0;
            context_make(fiber.context, fiber.stack, STACK_BYTES - stack_shift(stack), run_fiber);
            warp.lane_at[position] = (u8)lane;
        }
        warp.live_positions = warp.exists;
        make_runnable(&warp, warp.live_positions);
    }
    open_arena(block);
    machine->started++;
    observe_block_start(block);
}

static bool next_block_number(Machine* machine, u64& number) {
    if (u64* shared = machine->launch->next_block) {         // native: workers take the lowest number that is left
        number = __atomic_fetch_add(shared, 1, __ATOMIC_RELAXED);
        return number < machine->blocks && !__atomic_load_n(machine->launch->stop, __ATOMIC_RELAXED);
    }
    if (machine->started == machine->blocks) return false;
    number = machine->order ? machine->order[machine->started] : machine->started;
    return true;
}

static Fiber* any_runnable(Machine* machine) {
    for (u32 b = 0; b < machine->resident; b++)
        if (machine->block[b].alive && machine->block[b].runnable) return first_of(&machine->block[b]);
    return nullptr;
}

static void start_machine(Machine* machine) {
    machine->begun = true;
    u64 number;
    for (u32 b = 0; b < machine->resident && next_block_number(machine, number); b++)
        start_block(machine, &machine->block[b], number);
    machine->next = any_runnable(machine);
}

// Runs the launch to its end, or for a while.
static RunResult run_machine(Machine* machine) {
    context_open(machine->main);
    if (!machine->begun) start_machine(machine);
    machine->pause_at = clock_now() + PAUSE_AFTER;
    u64 number;
    bool finished = true, paused = false;
    for (Fiber* next = machine->next; next;) {
        set_current(next);
        machine->fiber_runs = true;
        context_switch(machine->main, next->context);
        machine->fiber_runs = false;
        if (machine->reason == ABANDONED) {
            finished = false;
            break;
        }
        if (machine->reason == PAUSED) {
            paused = true;
            break;
        }
        if (machine->reason == BLOCK_DONE) {
            Block* block = machine->reason_block;
            machine->finished++;
            observe_block_end(block);
            block->alive = false;
            if (next_block_number(machine, number)) start_block(machine, block, number);
            next = block->alive ? first_of(block) : first_in_ring_after(block);
            if (!next && machine->finished == machine->started) break;
        } else {
            next = nullptr;
        }
        if (!next && observe_stall(machine)) next = any_runnable(machine);
        if (!next) finished = false;
    }
    context_close(machine->main);
    return paused ? RUN_PAUSED : finished ? RUN_FINISHED : RUN_ABANDONED;
}

// What both modes set up alike.
static void open_machine(Machine* machine, SimtLaunch* launch, u32 resident) {
    memset(machine, 0, sizeof *machine);
    machine->launch = launch;
    machine->block_shape = {launch->block[0], launch->block[1], launch->block[2]};
    machine->grid_shape = {launch->grid[0], launch->grid[1], launch->grid[2]};
    machine->threads = launch->block[0] * launch->block[1] * launch->block[2];
    machine->blocks = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
    machine->resident = resident;
    machine->random = launch->seed;
}
