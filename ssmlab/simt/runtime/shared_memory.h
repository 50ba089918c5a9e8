// Hazards in shared memory, and reads of memory that nobody has written.
//
// Barriers order everything in a block, __syncwarp orders the lanes that it names; shuffles and votes order nothing.
#pragma once
#include "shadow.h"

struct PendingRead { SharedCell* cell; u16 site, mask; u32 thread; int32_t object; u32 offset; };
static constexpr u32 MOST_PENDING_READS = 1 << 16;

static u32 arena_words(const SimtLaunch* launch) { return (u32)((launch->arena_bytes + 3) / 4); }
static u64 shared_cells_of_block(const SimtLaunch* launch) {
    return arena_words(launch) * sizeof(SharedCell) + MOST_PENDING_READS * sizeof(PendingRead);
}

static SharedCell* cells_of_block(const Block* block) {
    const SimtLaunch* launch = block->machine->launch;
    return (SharedCell*)((char*)launch->region[REGION_SHARED_CELLS] + block->slot * shared_cells_of_block(launch));
}

static void report_unwritten(Block* block, const PendingRead& read) {
    SimtFinding finding = finding_of(&block->fibers[read.thread], KIND_UNINITIALISED, 0, sites.stats[read.site].line);
    finding.access = ACCESS_READ;
    finding.bytes = ones(read.mask);
    finding.count = (finding.bytes + 3) / 4;
    finding.space = SPACE_SHARED, finding.object = read.object, finding.offset = read.offset;
    finding.size = sites.stats[read.site].size;
    add_finding(finding);
}

// A word that was read before it was written: if another thread writes it in the same interval, in another schedule it
// would have come first, and the finding is the race; else the value was missing for sure.
static SIMT_NOINLINE void remember_unwritten(Fiber* fiber, SharedCell* cell, const Record* record, u16 mask,
                                             int32_t object, u32 offset) {
    Block* block = fiber->block;
    PendingRead read = {cell, record->site, mask, fiber->thread, object, offset};
    if (block->checks.unwritten_count == MOST_PENDING_READS) report_unwritten(block, read);
    else block->checks.unwritten[block->checks.unwritten_count++] = read;
}

static Record* find_record(SharedCell* cell, u16 site) {
    for (Record& record : cell->record)
        if (record.lanes && record.site == site && record.flags & READ_UNWRITTEN) return &record;
    for (u32 at = cell->links; at; at = links.shared[at].next)
        if (links.shared[at].record.site == site && links.shared[at].record.flags & READ_UNWRITTEN)
            return &links.shared[at].record;
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

SIMT_INLINE bool conflict_in_shared(u8 kind, u8 other) {
    return (writes(kind) || writes(other)) && !(kind == ATOMIC && other == ATOMIC);
}

SIMT_INLINE void look_at_shared(Visit& visit, Record& record) {
    if (!record.lanes) {
        if (!visit.empty) visit.empty = &record;
        return;
    }
    u32 other = NO_THREAD;
    if ((record.mask & visit.mask) && conflict_in_shared(record.kind, visit.kind)) {
        Order order = order_in_interval(visit.fiber, record, other);
        if (order != ORDERED) visit.add_conflict(record, other, order);
    }
    if (!visit.mine && visit.alike(record) && join_record(visit.fiber, record)) visit.mine = &record;
    visit.number = larger(visit.number, record.number + 1u);
}

// Every record, all cases; gives the record that the access is in.
static SIMT_NOINLINE Record* visit_shared_cell(Fiber* fiber, SharedCell* cell, u16 mask, u8 kind, u16 site,
                                               const SharedArray& array, u32 offset, u32 size) {
    BlockChecks& checks = fiber->block->checks;
    Visit visit;
    visit.fiber = fiber, visit.site = site, visit.kind = kind, visit.mask = mask;
    for (Record& record : cell->record) look_at_shared(visit, record);
    for (u32 at = cell->links; at; at = links.shared[at].next) look_at_shared(visit, links.shared[at].record);
    if (!visit.mine) {
        Record* place = visit.empty;
        if (!place && checks.link_used < checks.link_end) {
            SharedLink& link = links.shared[checks.link_used];
            link.next = cell->links;
            cell->links = checks.link_used++;
            place = &link.record;
        }
        if (place) write_record(fiber, *place, visit.new_number(), site, kind, mask);
        else results->order_limit |= 1;
        visit.mine = place;
    }
    if (visit.conflicts && !checks.quiet)
        report_conflicts(visit, KIND_RACE, SPACE_SHARED, array.index, (i64)offset - array.offset, size);
    return visit.mine;
}

// The usual cases: nobody else touched the cell, or others read it as this thread does.  Null: it is not one of them.
SIMT_INLINE Record* quick_look(Fiber* fiber, SharedCell* cell, u16 mask, u8 kind, u16 site) {
    if (cell->links) return nullptr;
    u32 lane = fiber->lane_bit, warp = fiber->warp->number, time = warp_time(fiber);
    for (u32 i = 0; i < 2; i++) {
        Record& record = cell->record[i];
        if (!record.lanes) {
            write_record(fiber, record, i, site, kind, mask);
            return &record;
        }
        bool own = record.lanes == lane && record.warp == warp && record.other == NO_OTHER;
        if (!own && (record.mask & mask) && conflict_in_shared(record.kind, kind)) return nullptr;
        if (record.site != site || record.kind != kind || record.mask != mask) continue;
        if (i == 0 && cell->record[1].lanes && conflict_in_shared(cell->record[1].kind, kind)) return nullptr;
        if (record.warp == warp && record.time == time) record.lanes |= lane;
        else if (record.warp != warp) record.other = record.other == NO_OTHER ? (u16)fiber->thread : record.other;
        else return nullptr;
        return &record;
    }
    return nullptr;
}

// The first access in this interval; it will be in record 0.
SIMT_INLINE void clear_cell(SharedCell* cell, u32 interval) {
    cell->interval = interval;
    cell->links = 0;
    cell->record[1].lanes = 0;
}

SIMT_INLINE void check_shared_cell(Fiber* fiber, const SharedArray& array, u32 cell_number, u16 mask, u8 kind, u16 site,
                                   u32 offset, u32 size) {
    BlockChecks& checks = fiber->block->checks;
    SharedCell* cell = checks.cells + cell_number;
    Record* mine;
    if (cell->interval != checks.interval) {
        if (cell->interval < checks.birth) cell->written = 0;
        clear_cell(cell, checks.interval);
        mine = &cell->record[0];
        write_record(fiber, *mine, 0, site, kind, mask);
    } else {
        mine = quick_look(fiber, cell, mask, kind, site);
    }
    if (SIMT_UNLIKELY(!mine)) mine = visit_shared_cell(fiber, cell, mask, kind, site, array, offset, size);
    if (kind == PLAIN_WRITE) {
        cell->written |= mask;
    } else if (SIMT_UNLIKELY((cell->written & mask) != mask)) {
        if (mine && !(mine->flags & READ_UNWRITTEN) && !checks.quiet) {
            mine->flags |= READ_UNWRITTEN;
            remember_unwritten(fiber, cell, mine, (u16)(mask & ~cell->written), array.index, offset - array.offset);
        }
        if (kind == ATOMIC) cell->written |= mask;
    }
}

static SIMT_NOINLINE void check_shared_pieces(Fiber* fiber, const SharedArray& array, u8 kind, u16 site, u32 offset,
                                              u32 size) {
    u32 from = offset - array.offset, end = from + size, grain = 1u << array.grain;
    do {
        u32 cell = from >> array.grain, upto = smaller(end, (cell + 1) << array.grain);
        u16 mask = (u16)(((1u << (upto - from)) - 1) << (from & (grain - 1)));
        check_shared_cell(fiber, array, array.offset / 4 + cell, mask, kind, site, array.offset + from, size);
        from = upto;
    } while (from < end);
}

// An array of float2 or float4 has one cell for each element, others one for each 4 bytes.
SIMT_INLINE void check_shared(Fiber* fiber, const SharedArray& array, u8 kind, u16 site, u32 offset, u32 size) {
    if (SIMT_UNLIKELY(size != 1u << array.grain)) return check_shared_pieces(fiber, array, kind, site, offset, size);
    u32 cell = array.offset / 4 + ((offset - array.offset) >> array.grain);          // accesses are aligned
    check_shared_cell(fiber, array, cell, (u16)((1u << size) - 1), kind, site, offset, size);
}
