// Who runs next.  One rule: a fiber that must wait is not runnable; nobody polls.
//
// A fiber that waits hands over to the next runnable fiber of its warp, then to the next warp of its block, then to the
// next resident block, without going through a central loop (that would cost two mispredicted returns a switch).  When
// nobody is runnable, or a block is finished, the machine's own context takes over (machine.h).
#pragma once
#include "observe.h"

static Fiber* current();                         // checked.h and native.h
static void set_current(Fiber*);
static void resolve_active_mask(Warp* warp);     // warp.h

SIMT_INLINE Fiber* by_lane(const Warp* warp, u32 lane) { return warp->first + lane; }
SIMT_INLINE Fiber* by_position(const Warp* warp, u32 position) { return warp->first + warp->lane_at[position]; }
SIMT_INLINE bool is_runnable(const Fiber* fiber) { return fiber->warp->runnable_positions & fiber->bit; }

// The mask of positions for a mask of lanes.
SIMT_INLINE u32 positions_of(Warp* warp, u32 lanes) {
    if (warp->block->machine->launch->lane_order == 0) return lanes;
    u32 result = 0;
    for (; lanes; lanes &= lanes - 1) result |= 1u << by_lane(warp, lowest(lanes))->position;
    return result;
}

SIMT_INLINE void make_runnable(Warp* warp, u32 positions) {
    if (!positions) return;
    warp->runnable_positions |= positions;
    warp->block->runnable |= 1u << warp->slot;
}

SIMT_INLINE void make_waiting(Fiber* fiber, Wait why) {
    Warp* warp = fiber->warp;
    fiber->wait = why;
    if (SIMT_LIKELY(warp->runnable_positions &= ~fiber->bit)) return;
    if (warp->asking) resolve_active_mask(warp);
    if (!warp->runnable_positions) warp->block->runnable &= ~(1u << warp->slot);
}

SIMT_INLINE u32 above(u32 bit) { return ~(bit | (bit - 1)); }       // the bits higher than the one that is set

SIMT_INLINE Fiber* first_of(Block* block) {
    const Warp& warp = block->warp[lowest(block->runnable)];
    return by_position(&warp, lowest(warp.runnable_positions));
}

static SIMT_NOINLINE Fiber* first_in_ring_after(Block* block) {
    Machine* machine = block->machine;
    observe_leaving(block);
    for (u32 i = 1; i <= machine->resident; i++) {
        u32 slot = block->slot + i;
        Block& other = machine->block[slot < machine->resident ? slot : slot - machine->resident];
        if (other.alive && other.runnable) return first_of(&other);
    }
    return nullptr;
}

static SIMT_NOINLINE Fiber* next_after_gap(Fiber* fiber) {
    Warp* warp = fiber->warp;
    if (u32 rest = warp->runnable_positions) {
        u32 later = rest & above(fiber->bit);
        return by_position(warp, lowest(later ? later : rest));
    }
    Block* block = warp->block;
    if (u32 rest = block->runnable) {
        u32 later = rest & above(1u << warp->slot);
        const Warp& next = block->warp[lowest(later ? later : rest)];
        return by_position(&next, lowest(next.runnable_positions));
    }
    return first_in_ring_after(block);
}

// After a fiber that waits: stay in the warp as long as anyone there can run.  Mostly that is the next position: asked
// for by a branch, which the processor foresees, so that it knows the next stack before it knows who can run.
SIMT_INLINE Fiber* next_after_waiting(Fiber* fiber) {
    if (SIMT_UNLIKELY(!(fiber->warp->runnable_positions & fiber->bit << 1))) return next_after_gap(fiber);
#if SIMT_CHECKED
    return by_position(fiber->warp, fiber->position + 1u);
#else
    return fiber + 1;            // native lanes are in order
#endif
}

// After a fiber that polls: everybody else gets a turn first.
static SIMT_NOINLINE Fiber* next_after_polling(Fiber* fiber) {
    Warp* warp = fiber->warp;
    Block* block = warp->block;
    if (u32 later = warp->runnable_positions & above(fiber->bit)) return by_position(warp, lowest(later));
    if (u32 later = block->runnable & above(1u << warp->slot)) {
        const Warp& next = block->warp[lowest(later)];
        return by_position(&next, lowest(next.runnable_positions));
    }
    return first_in_ring_after(block);           // comes round to this block last
}

// In a large block each stack has left the nearest cache before its turn comes again.
SIMT_INLINE void fetch_soon(const Fiber* to) {
    __builtin_prefetch(to + FIBERS_AHEAD);
    const char* soon = *(char* const*)&to[STACKS_AHEAD].context;
    __builtin_prefetch(soon);
    __builtin_prefetch(soon + 64);
    __builtin_prefetch(soon + 128);
}

SIMT_INLINE void hand_over(Fiber* from, Fiber* to) {
    if (from == to) return;
    set_current(to);
    fetch_soon(to);
    context_switch(from->context, to->context);
}

static SIMT_NOINLINE void leave(Fiber* fiber, Reason reason) {
    Machine* machine = fiber->block->machine;
    machine->reason = reason;
    machine->reason_block = fiber->block;
    observe_leaving(fiber->block);
    context_switch(fiber->context, machine->main);
}

// Give up the launch.  Never returns: the fibers stay where they are and are overwritten by the next launch.
[[noreturn]] static SIMT_NOINLINE void abandon(Fiber* fiber) {
    leave(fiber, ABANDONED);
    __builtin_unreachable();
}

// A launch comes back to Python a few times a second, which may have been told to stop (Ctrl-C).  Asked where threads end
// and barriers open, and after many basic blocks; the fiber goes on when the launch does.
static constexpr u64 PAUSE_AFTER = 200000000;    // [ns]

SIMT_INLINE void pause_if_due(Fiber* fiber) {
    Machine* machine = fiber->block->machine;
    if (SIMT_LIKELY(clock_now() <= machine->pause_at)) return;
    machine->next = fiber;
    leave(fiber, PAUSED);
}

// Sleep until somebody makes this fiber runnable again.
SIMT_INLINE void wait(Fiber* fiber, Wait why) {
    make_waiting(fiber, why);
    Fiber* next = next_after_waiting(fiber);
    if (SIMT_LIKELY(next != nullptr)) hand_over(fiber, next);
    else leave(fiber, STALLED);
}

// Let the others run, stay runnable.
SIMT_INLINE void let_others_run(Fiber* fiber) { hand_over(fiber, next_after_polling(fiber)); }
