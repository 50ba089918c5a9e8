// What orders accesses of different blocks: the value - fence - flag protocol.
//
// A flag is any word of global memory that is written and read by volatile or atomic accesses.
//   a fence       takes a snapshot: what its thread has done so far, and what the thread knows about others
//   a flag write  publishes the thread's newest snapshot at the flag (no fence since the data: the data is not in it)
//   a flag read   finds what is published there; it counts from the thread's next fence or barrier on
// A word of 8 (or 16) bytes that is written and read by one such access each, and brings its own flag along, needs no
// fence: who sees the flag has the value in the same read (global_memory.h, carries_its_own_flag).
// Inside a block barriers and __syncwarp order as usual, so a snapshot stands for: everything the block did before its
// present interval, what the lanes of the warp did up to times known to the thread, and whatever was known by then.
//
// "Does access X come before what this thread does now?" is a search through snapshots, backwards from flag to flag.
#pragma once
#include "shadow.h"

struct Snapshot {
    u32 block, interval;
    u32 thread;                  // NO_THREAD: made by a barrier after all threads had fenced
    u32 acquired;                // newest flag read known (a list, older ones behind it)
    u32 known[32];               // per lane of the thread's warp: times before this are known
};

struct Publication { u32 snapshot, earlier, visited, queue; };   // earlier: of the same flag, before an atomic update

struct FlagRead { u32 publication, next, interval, thread, time; };

static constexpr u32 MOST_ORDER_ENTRIES = 1 << 24;

struct OrderMemory {
    Snapshot* snapshot;
    Publication* publication;
    FlagRead* flag_read;
    u32 snapshots, publications, flag_reads, visit;
    u64 effort;
};
static OrderMemory order;

static u64 order_bytes() {
    return (u64)MOST_ORDER_ENTRIES * (sizeof(Snapshot) + sizeof(Publication) + sizeof(FlagRead));
}

static void open_order(const SimtLaunch* launch) {
    order.snapshot = (Snapshot*)launch->region[REGION_ORDER];
    order.publication = (Publication*)(order.snapshot + MOST_ORDER_ENTRIES);
    order.flag_read = (FlagRead*)(order.publication + MOST_ORDER_ENTRIES);
    order.snapshots = order.publications = order.flag_reads = 1;         // 0 is none
    order.visit = 0;
    order.effort = 0;
}

static bool room(u32 used) {
    if (used < MOST_ORDER_ENTRIES) return true;
    results->order_limit |= 2;
    return false;
}

// ---- the times of a warp (see WarpChecks)

static void open_times(Warp* warp) {
    WarpChecks& checks = warp->checks;
    if (checks.known_interval == warp->block->checks.interval) return;
    checks.known_interval = warp->block->checks.interval;
    checks.time = 0;
    memset(checks.known, 0, sizeof checks.known);
}

// One more event of this lane: what it did so far has a time of its own.
static void advance(Fiber* fiber) {
    open_times(fiber->warp);
    WarpChecks& checks = fiber->warp->checks;
    checks.known[fiber->lane][fiber->lane] = ++checks.time;
}

// __syncwarp: what any of the lanes did or knew, all of them know.
static void join_times(Warp* warp, u32 lanes) {
    open_times(warp);
    WarpChecks& checks = warp->checks;
    u32 together[32] = {};
    checks.time++;
    for (u32 rest = lanes; rest; rest &= rest - 1)
        for (u32 j = 0; j < 32; j++) together[j] = larger(together[j], checks.known[lowest(rest)][j]);
    for (u32 rest = lanes; rest; rest &= rest - 1) together[lowest(rest)] = checks.time;
    for (u32 rest = lanes; rest; rest &= rest - 1) memcpy(checks.known[lowest(rest)], together, sizeof together);
}

// ---- fences, flags

static void accept_flags(Fiber* fiber) {         // flags read so far count from here on
    FiberChecks& checks = fiber->checks;
    if (!checks.pending) return;
    BlockChecks& block = fiber->block->checks;
    while (u32 at = checks.pending) {
        FlagRead& read = order.flag_read[at];
        checks.pending = read.next;
        read.interval = block.interval, read.thread = fiber->thread, read.time = warp_time(fiber);
        read.next = block.acquired;
        block.acquired = at;
    }
    block.pending_threads--;
}

static void take_snapshot(Fiber* fiber) {
    accept_flags(fiber);
    advance(fiber);
    if (fiber->checks.dirty) fiber->checks.dirty = false, fiber->block->checks.dirty_threads--;
    fiber->checks.strong_unit = 0;
    if (!room(order.snapshots)) return;
    Snapshot& snapshot = order.snapshot[order.snapshots];
    fiber->checks.fenced = order.snapshots++;
    fiber->block->checks.ever_fenced = true;
    snapshot.block = (u32)fiber->block->number;
    snapshot.interval = fiber->block->checks.interval;
    snapshot.thread = fiber->thread;
    snapshot.acquired = fiber->block->checks.acquired;
    memcpy(snapshot.known, fiber->warp->checks.known[fiber->lane], sizeof snapshot.known);
}

// At a barrier of the block: pending flags count now; if every thread has fenced what it wrote, all of it is fenced.
static void pass_block_barrier(Block* block, u32 next_interval) {
    BlockChecks& checks = block->checks;
    for (u32 i = 0; checks.pending_threads && i < block->machine->threads; i++) accept_flags(&block->fibers[i]);
    if (!checks.ever_fenced || checks.dirty_threads || !room(order.snapshots)) return;
    Snapshot& snapshot = order.snapshot[order.snapshots];
    checks.fenced = order.snapshots++;
    snapshot.block = (u32)block->number;
    snapshot.interval = next_interval;
    snapshot.thread = NO_THREAD;
    snapshot.acquired = checks.acquired;
}

SIMT_INLINE u32 newest_snapshot(const Fiber* fiber) {
    u32 own = fiber->checks.fenced, all = fiber->block->checks.fenced;
    if (!own || !all) return own | all;
    return order.snapshot[own].interval >= order.snapshot[all].interval ? own : all;
}

// Is a flag put up now one that tells of values which no fence has followed?
static bool is_unfenced(const Fiber* fiber) {
    return fiber->checks.dirty || (!newest_snapshot(fiber) && fiber->block->checks.dirty_threads);
}

static u32 publish(Fiber* fiber, u32 earlier, bool update) {
    u32 snapshot = newest_snapshot(fiber);
    if (!snapshot) return update ? earlier : 0;
    if (!room(order.publications)) return earlier;
    order.publication[order.publications] = {snapshot, update ? earlier : 0, 0, 0};
    return order.publications++;
}

static void read_flag(Fiber* fiber, u32 publication) {
    FiberChecks& checks = fiber->checks;
    if (!publication || (checks.pending && order.flag_read[checks.pending].publication == publication)) return;
    if (!room(order.flag_reads)) return;
    if (!checks.pending) fiber->block->checks.pending_threads++;
    order.flag_read[order.flag_reads] = {publication, checks.pending, 0, 0, 0};
    checks.pending = order.flag_reads++;
}

// ---- the search

static bool in_snapshot(const Snapshot& snapshot, const GlobalRecord& record) {
    if (record.block != snapshot.block) return false;
    if (record.interval != snapshot.interval) return record.interval < snapshot.interval;
    if (snapshot.thread == NO_THREAD || record.warp != snapshot.thread / WARP) return false;
    if (record.other != NO_OTHER) return false;
    for (u32 rest = record.lanes; rest; rest &= rest - 1)
        if (snapshot.known[lowest(rest)] <= record.time) return false;
    return true;
}

// Was the flag read, in the same block, before the snapshot was made?
static bool read_before(const FlagRead& read, const Snapshot& snapshot) {
    if (read.interval != snapshot.interval) return read.interval < snapshot.interval;
    if (snapshot.thread == NO_THREAD) return false;
    if (read.thread == snapshot.thread) return true;
    return read.thread / WARP == snapshot.thread / WARP && snapshot.known[read.thread % WARP] > read.time;
}

static constexpr u64 MOST_EFFORT = 100u << 20;   // steps of all searches of one launch

static bool comes_before(Fiber* fiber, const GlobalRecord& record) {
    Snapshot now;
    open_times(fiber->warp);
    now.block = (u32)fiber->block->number, now.interval = fiber->block->checks.interval, now.thread = fiber->thread;
    now.acquired = fiber->block->checks.acquired;
    memcpy(now.known, fiber->warp->checks.known[fiber->lane], sizeof now.known);
    if (!now.acquired) return false;

    u32 visit = ++order.visit, first = 0, last = 0;
    const Snapshot* at = &now;
    for (;;) {
        for (u32 i = at->acquired; i; i = order.flag_read[i].next) {
            const FlagRead& read = order.flag_read[i];
            if (++order.effort > MOST_EFFORT) {
                results->order_limit |= 4;
                return true;
            }
            if (!read_before(read, *at)) continue;
            for (u32 p = read.publication; p && order.publication[p].visited != visit;
                 p = order.publication[p].earlier) {
                Publication& publication = order.publication[p];
                publication.visited = visit;
                publication.queue = 0;
                if (in_snapshot(order.snapshot[publication.snapshot], record)) return true;
                if (last) order.publication[last].queue = p;
                else first = p;
                last = p;
            }
        }
        if (!first) return false;
        at = &order.snapshot[order.publication[first].snapshot];
        first = order.publication[first].queue;
        if (!first) last = 0;
    }
}
