// Warp-wide operations: shuffles, votes, __syncwarp.  All are one exchange: each lane brings a value and a mask of
// lanes and waits until all lanes of its mask have come; the last one computes everybody's result.
#pragma once
#include "observe.h"
#include "scheduler.h"

// What a shuffle gives that reads from a lane outside the exchange: undefined in CUDA, so something that shows.
static constexpr u64 NOBODYS_VALUE = 0x7FFFFFFF7FFFFFFFu;

enum Operation : u8 { OP_BARRIER, OP_SHUFFLE, OP_VOTE, OP_MATCH, OP_REDUCE };

static unsigned reduce_pair(int mode, unsigned x, unsigned y) {
    switch (mode) {
    case SIMT_REDUCE_ADD: return x + y;
    case SIMT_REDUCE_MIN: return (int)x < (int)y ? x : y;
    case SIMT_REDUCE_MAX: return (int)x > (int)y ? x : y;
    case SIMT_REDUCE_UMIN: return x < y ? x : y;
    case SIMT_REDUCE_UMAX: return x > y ? x : y;
    case SIMT_REDUCE_AND: return x & y;
    case SIMT_REDUCE_OR: return x | y;
    default: return x ^ y;
    }
}

static void compute_results(Warp* warp, u32 group) {
    Exchange* e = warp->exchange;
    u32 first = lowest(group), ballot = 0;
    bool all_equal = true;
    unsigned reduced = (unsigned)e[first].value;
    for (u32 rest = group; rest; rest &= rest - 1) {
        u32 lane = lowest(rest);
        ballot |= (u32)(e[lane].value != 0) << lane;
        all_equal &= e[lane].value == e[first].value;
        if (lane != first) reduced = reduce_pair(e[first].mode, reduced, (unsigned)e[lane].value);
    }
    for (u32 rest = group; rest; rest &= rest - 1) {
        u32 lane = lowest(rest);
        Exchange& mine = e[lane];
        switch (mine.operation) {
        case OP_SHUFFLE:
            mine.result = group >> mine.source & 1 ? e[mine.source].value : NOBODYS_VALUE;
            break;
        case OP_VOTE:
            mine.result = mine.mode == SIMT_VOTE_BALLOT ? ballot
                          : mine.mode == SIMT_VOTE_ANY  ? ballot != 0
                                                        : ballot == group;
            break;
        case OP_MATCH:
            mine.result = mine.mode == SIMT_MATCH_ALL && all_equal ? group : 0;
            for (u32 others = group; mine.mode == SIMT_MATCH_ANY && others; others &= others - 1)
                if (e[lowest(others)].value == mine.value) mine.result |= 1u << lowest(others);
            break;
        case OP_REDUCE: mine.result = reduced; break;
        default: break;
        }
    }
}

// All lanes of `group` are here: let them go.
static void complete_exchange(Warp* warp, u32 group) {
    observe_exchange(warp, group);
    compute_results(warp, group);
    if (warp->exchange[lowest(group)].operation == OP_BARRIER) observe_warp_barrier(warp, group);
    warp->block->machine->progress++;
    warp->waiting &= ~group;
    if (!warp->waiting) warp->mixed = false;
    make_runnable(warp, positions_of(warp, group));
}

// The lanes that a waiting lane waits for; lanes that do not exist or have returned are not waited for.
SIMT_INLINE u32 awaited(Warp* warp, u32 lane) {
    return warp->exchange[lane].mask & warp->exists & ~warp->exited;
}

// Somebody came or left: is anybody's group complete?
static void complete_what_is_complete(Warp* warp) {
    for (u32 rest = warp->waiting; rest; rest &= rest - 1) {
        u32 lane = lowest(rest), group = awaited(warp, lane);
        if (!(warp->waiting >> lane & 1)) continue;              // went with an earlier one
        if (!(group & ~warp->waiting)) complete_exchange(warp, group);
    }
}

static u64 exchange(u32 mask, Operation operation, int mode, u64 value, u32 source, void* pc) {
    Fiber* fiber = current();
    Warp* warp = fiber->warp;
    u32 lane = fiber->lane;
    Exchange& mine = warp->exchange[lane];
    mine.pc = pc;
    mine.operation = operation, mine.mode = (u8)mode, mine.value = value, mine.source = (u8)source;
    mine.mask = mask;
    observe_exchange_arrival(fiber);
    if (!(mask >> lane & 1))
        mine.mask = 1u << lane;        // not in its own mask: nobody waits for it, it waits for nobody
    if (warp->waiting && mine.mask != warp->exchange[lowest(warp->waiting)].mask) warp->mixed = true;
    warp->waiting |= 1u << lane;
    u32 group = awaited(warp, lane);
    if (!(group & ~warp->waiting)) complete_exchange(warp, group);
    else if (SIMT_UNLIKELY(warp->mixed)) complete_what_is_complete(warp);
    if (warp->waiting >> lane & 1) wait(fiber, AT_EXCHANGE);
    return mine.result;
}

SIMT_API void simt_warp_barrier(unsigned mask) { exchange(mask, OP_BARRIER, 0, 0, 0, SIMT_CALLER); }

SIMT_API uint64_t simt_shuffle(unsigned mask, uint64_t value, int mode, int operand, int width) {
    int lane = current()->lane, segment = lane & ~(width - 1), source = lane;
    switch (mode) {
    case SIMT_SHUFFLE_INDEX: source = segment | (operand & (width - 1)); break;
    case SIMT_SHUFFLE_UP: source = lane - operand < segment ? lane : lane - operand; break;
    case SIMT_SHUFFLE_DOWN: source = lane + operand >= segment + width ? lane : lane + operand; break;
    case SIMT_SHUFFLE_XOR: source = (lane ^ operand) >= segment + width ? lane : lane ^ operand; break;
    }
    return exchange(mask, OP_SHUFFLE, mode, value, (u32)source & 31, SIMT_CALLER);
}

SIMT_API unsigned simt_vote(unsigned mask, int mode, int predicate) {
    return (unsigned)exchange(mask, OP_VOTE, mode, predicate != 0, 0, SIMT_CALLER);
}
SIMT_API unsigned simt_match(unsigned mask, uint64_t value, int mode) {
    return (unsigned)exchange(mask, OP_MATCH, mode, value, 0, SIMT_CALLER);
}
SIMT_API unsigned simt_reduce(unsigned mask, int mode, unsigned value) {
    return (unsigned)exchange(mask, OP_REDUCE, mode, value, 0, SIMT_CALLER);
}

// ---- __activemask: the lanes that are at the same place when nobody in the warp can run on
// A GPU gives no guarantee; this is the answer of a warp that is as converged as it can be.

static void resolve_active_mask(Warp* warp) {
    void* place = warp->exchange[lowest(warp->asking)].pc;
    u32 together = 0;
    for (u32 rest = warp->asking; rest; rest &= rest - 1)
        if (warp->exchange[lowest(rest)].pc == place) together |= 1u << lowest(rest);
    for (u32 rest = together; rest; rest &= rest - 1) by_lane(warp, lowest(rest))->active_mask = together;
    warp->asking &= ~together;
    warp->block->machine->progress++;
    make_runnable(warp, positions_of(warp, together));
}

SIMT_API unsigned simt_active_mask() {
    Fiber* fiber = current();
    fiber->warp->exchange[fiber->lane].pc = SIMT_CALLER;
    fiber->warp->asking |= 1u << fiber->lane;
    wait(fiber, AT_ACTIVE_MASK);
    return fiber->active_mask;
}
