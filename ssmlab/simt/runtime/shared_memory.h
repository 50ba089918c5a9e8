// Hazards in shared memory, and reads of memory that nobody has written.
//
// Barriers order everything in a block, __syncwarp orders the lanes that it names; shuffles and votes order nothing.
#pragma once
#include "shadow.h"

struct PendingRead { SharedCell* cell; u16 site; u8 mask; u8 unused; u32 thread; int32_t object; u32 offset; };
static constexpr u32 MOST_PENDING_READS = 1 << 16;

static u32 arena_words(const SimtLaunch* launch) { return (u32)((launch->arena_bytes + 3) / 4); }
static u64 shared_cells_of_block(const SimtLaunch* launch) {
    return arena_words(launch) * sizeof(SharedCell) + MOST_PENDING_READS * sizeof(PendingRead);
}

SIMT_INLINE SharedCell* cells_of(const Block* block) {
    const SimtLaunch* launch = block->machine->launch;
    return (SharedCell*)((char*)launch->region[REGION_SHARED_CELLS] + block->slot * shared_cells_of_block(launch));
}

static void report_unwritten(Block* block, const PendingRead& read) {
    SimtFinding finding = finding_of(&block->fibers[read.thread], KIND_UNINITIALISED, 0, sites.stats[read.site].line);
    finding.access = ACCESS_READ;
    finding.bytes = ones(read.mask);
    finding.space = SPACE_SHARED, finding.object = read.object, finding.offset = read.offset;
    finding.size = sites.stats[read.site].size;
    add_finding(finding);
}

// A word that was read before it was written: if another thread writes it in the same interval, in another schedule it
// would have come first, and the finding is the race; else the value was missing for sure.
static SIMT_NOINLINE void remember_unwritten(Fiber* fiber, SharedCell* cell, const Record* record, u8 mask, int32_t object, u32 offset) {
    Block* block = fiber->block;
    PendingRead read = {cell, record->site, mask, 0, fiber->thread, object, offset};
    if (block->checks.unwritten_count == MOST_PENDING_READS) report_unwritten(block, read);
    else block->checks.unwritten[block->checks.unwritten_count++] = read;
}

static Record* find_record(SharedCell* cell, u16 site) {
    for (Record& record : cell->record)
        if (record.lanes && record.site == site && record.flags & READ_UNWRITTEN) return &record;
    for (u32 at = cell->links; at; at = links.all[at].next)
        if (links.all[at].record.site == site && links.all[at].record.flags & READ_UNWRITTEN) return &links.all[at].record;
    return nullptr;
}

static void judge_unwritten_reads(Block* block) {
    for (u32 i = 0; i < block->checks.unwritten_count; i++) {
        const PendingRead& read = block->checks.unwritten[i];
        const Record* record = find_record(read.cell, read.site);
        if (!record || !(record->flags & IN_A_RACE)) report_unwritten(block, read);
    }
    block->checks.unwritten_count = 0;
}

SIMT_INLINE void look_at_shared(Visit& visit, Record& record) {
    if (!record.lanes) {
        if (!visit.empty) visit.empty = &record, visit.empty_number = visit.number;
    } else {
        u32 other = NO_THREAD;
        bool conflicting = (record.mask & visit.mask) && (writes(record.kind) || writes(visit.kind)) &&
                           !(record.kind == ATOMIC && visit.kind == ATOMIC);
        if (conflicting) {
            Order order = order_in_interval(visit.fiber, record, other);
            if (order != ORDERED) visit.add_conflict(record, other, order);
        }
        if (!visit.mine && visit.alike(record) && join_record(visit.fiber, record)) visit.mine = &record;
    }
    visit.number++;
}

static void check_shared_word(Fiber* fiber, u32 word, u8 mask, u8 kind, u16 site, int32_t object, u32 offset, u32 size) {
    Block* block = fiber->block;
    SharedCell* cell = cells_of(block) + word;
    if (cell->birth != block->checks.birth) cell->birth = block->checks.birth, cell->written = 0;
    if (cell->interval != block->checks.interval) {
        cell->interval = block->checks.interval;
        cell->links = 0;
        cell->record[0].lanes = cell->record[1].lanes = 0;
    }
    Visit visit;
    visit.fiber = fiber, visit.site = site, visit.kind = kind, visit.mask = mask;
    for (Record& record : cell->record) look_at_shared(visit, record);
    for (u32 at = cell->links; at; at = links.all[at].next) look_at_shared(visit, links.all[at].record);
    if (!visit.mine) {
        Record* place = visit.empty ? visit.empty : add_link(cell->links, block->checks.link_used, block->checks.link_end);
        if (place) write_record(fiber, *place, visit.empty ? visit.empty_number : visit.number, site, kind, mask);
        visit.mine = place;
    }
    if (SIMT_UNLIKELY(visit.conflicts) && !block->checks.quiet)
        report_conflicts(visit, KIND_RACE, 0, SPACE_SHARED, object, offset, size);
    if (writes(kind) && kind != ATOMIC) {
        cell->written |= mask;
    } else if (SIMT_UNLIKELY((cell->written & mask) != mask)) {
        if (visit.mine && !(visit.mine->flags & READ_UNWRITTEN) && !block->checks.quiet) {
            visit.mine->flags |= READ_UNWRITTEN;
            remember_unwritten(fiber, cell, visit.mine, (u8)(mask & ~cell->written), object, offset);
        }
        if (kind == ATOMIC) cell->written |= mask;
    }
}
