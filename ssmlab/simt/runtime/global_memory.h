// Hazards in global memory: between threads of a block (barriers order) and between blocks (order.h).
//
// No NVIDIA tool looks at these; "volatile and atomic accesses do not race among themselves" is CUDA's memory model.
#pragma once
#include "order.h"

static constexpr u32 BLOCKS_A_SITE = 3;          // readers of other blocks that one site keeps for one word

SIMT_INLINE GlobalCell* global_cells(const SimtLaunch* launch) {
    return (GlobalCell*)launch->region[REGION_GLOBAL_CELLS];
}

// Which buffer an address lies in (number + 1), 0 for none.
SIMT_INLINE u32 buffer_at(const SimtLaunch* launch, u64 address) {
    u64 in_heap = address - launch->heap;
    if (SIMT_LIKELY(in_heap < launch->heap_bytes)) return launch->granules[in_heap / 256];
    for (u32 i = launch->argument_buffers; i < launch->buffer_count; i++)
        if (address - launch->buffers[i].address < launch->buffers[i].bytes) return i + 1;
    return 0;
}

SIMT_INLINE void write_global_record(const Fiber* fiber, GlobalRecord& record, u32 number, u16 site, u8 kind,
                                     u16 mask) {
    write_record(fiber, record, number, site, kind, mask);
    record.interval = fiber->block->checks.interval;
    record.block = (u32)fiber->block->number;
}

static GlobalRecord* add_global_link(GlobalCell* cell) {
    if (links.global_used == links.global_end) {
        results->order_limit |= 1;
        return nullptr;
    }
    GlobalLink& link = links.global[links.global_used];
    link.next = cell->links;
    cell->links = links.global_used++;
    return &link.record;
}

// One access, which may touch several words: what is read or written at once.
struct Unit { u64 from, address; u32 size; };    // from: in all buffers

// Does the word that is being read bring its own flag, like the word whose flag the thread has read just now?  Taken for
// it: two accesses of 8 or 16 bytes in whose first 8 bytes the same half is the same, or a small number, and not
// 0. A double, a pointer or a sum that relies on another word's flag is neither, or not for long.
static constexpr u32 MOST_FLAG = 0xFFFF;
static bool carries_its_own_flag(const Fiber* fiber, const Unit& unit) {
    const FiberChecks& checks = fiber->checks;
    if (unit.size < 8 || checks.told_bytes < 8) return false;
    u64 content;
    memcpy(&content, (const void*)unit.address, sizeof content);
    for (u32 i = 0; i < 2; i++) {
        u32 mine = (u32)(content >> 32 * i), told = (u32)(checks.told_value >> 32 * i);
        if (mine && told && (mine == told || (mine <= MOST_FLAG && told <= MOST_FLAG))) return true;
    }
    return false;
}

struct GlobalVisit : Visit {
    const Unit* unit;
    GlobalRecord* oldest = nullptr;    // a record of the same site in another block, to be replaced when there are many
    u32 same_site = 0;
};

SIMT_INLINE void look_at_global(GlobalVisit& visit, GlobalRecord& record) {
    if (record.kind != FLAG) visit.number = larger(visit.number, record.number + 1u);
    Fiber* fiber = visit.fiber;
    bool same_block = record.block == (u32)fiber->block->number;
    bool same_interval = same_block && record.interval == fiber->block->checks.interval;
    u32 other = NO_THREAD;
    if ((record.mask & visit.mask) && (writes(record.kind) || writes(visit.kind)) && record.kind != FLAG &&
        !(strong(record.kind) && strong(visit.kind))) {
        if (same_interval) {
            Order found = order_in_interval(fiber, record, other);
            if (found != ORDERED && !comes_before(fiber, record)) visit.add_conflict(record, other, found);
        } else if (!same_block && !comes_before(fiber, record)) {
            visit.add_conflict(record, record.warp * WARP + lowest(record.lanes), UNORDERED);
        }
    }
    // Volatile values do not race, but one that a flag tells of must be fenced all the same, or the flag may overtake
    // it.
    if (record.kind == VOLATILE_WRITE && visit.kind == VOLATILE_READ && !same_block && (record.mask & visit.mask) &&
        fiber->checks.told_unit && fiber->checks.told_unit != visit.unit->from + 1 &&
        fiber->checks.told_block == record.block && !carries_its_own_flag(fiber, *visit.unit) &&
        !comes_before(fiber, record)) {
        fiber->checks.read_unfenced = true;
        visit.add_conflict(record, record.warp * WARP + lowest(record.lanes), UNORDERED);
    }
    if (visit.mine || !visit.alike(record)) return;
    if (same_interval) {
        if (join_record(fiber, record)) visit.mine = &record;
    } else if (same_block) {                     // older, and a barrier lies between: the new access stands for it
        u16 counted = record.counted;
        write_global_record(fiber, record, record.number, visit.site, visit.kind, visit.mask);
        record.counted = counted;
        visit.mine = &record;
    } else {
        visit.same_site++;
        if (visit.same_site == BLOCKS_A_SITE) visit.oldest = &record;
    }
}

// The flag's record: what was published there is kept in `time`, what the word held before in `interval`, the bytes of
// the volatile access that put it up in `counted`.
static GlobalRecord* flag_of(GlobalCell* cell) {
    for (u32 at = cell->links; at; at = links.global[at].next)
        if (links.global[at].record.kind == FLAG) return &links.global[at].record;
    return nullptr;
}

enum UnfencedFlag : u8 { UNFENCED_PLAIN = 1, UNFENCED_VOLATILE = 2 };

// A flag that was up before it was put up tells its reader nothing: only a changed value passes on what was published.
// Who reads only a part of a wide volatile word has not yet read what came with it.
static SIMT_NOINLINE void check_flag(Fiber* fiber, GlobalCell* cell, const Unit& unit, u8 kind, u32 value) {
    FiberChecks& checks = fiber->checks;
    GlobalRecord* flag = flag_of(cell);
    if (kind != VOLATILE_WRITE && flag && value != flag->interval) {
        read_flag(fiber, flag->time);
        if (flag->flags & UNFENCED_PLAIN) checks.read_unfenced = true;
        if (flag->flags & UNFENCED_VOLATILE || unit.size < flag->counted) {
            checks.told_unit = unit.from + 1, checks.told_bytes = unit.size, checks.told_block = flag->block;
            checks.told_value = 0;
            memcpy(&checks.told_value, (const void*)unit.address, smaller(unit.size, 8u));
        }
    }
    if (kind == VOLATILE_READ) return;
    bool other_value = checks.strong_unit && checks.strong_unit != unit.from + 1;
    u8 unfenced = (is_unfenced(fiber) ? UNFENCED_PLAIN : 0) | (other_value ? UNFENCED_VOLATILE : 0);
    checks.strong_unit = unit.from + 1;
    u32 publication = publish(fiber, flag ? flag->time : 0, kind == ATOMIC);
    advance(fiber);
    bool wide = unit.size > 4 && kind == VOLATILE_WRITE;
    if (!flag && (publication || unfenced || wide)) {
        flag = add_global_link(cell);
        if (!flag) return;
        *flag = {};
        flag->kind = FLAG, flag->lanes = 1, flag->number = 255;
    }
    if (!flag) return;
    flag->time = publication, flag->interval = value, flag->flags = unfenced;
    flag->block = (u32)fiber->block->number;
    flag->counted = wide ? (u16)unit.size : 0;
}

enum FenceVariant { FENCE_UNKNOWN = 0, FENCE_BEFORE_FLAG = 1, FENCE_AFTER_FLAG = 2 };

// What a thread that runs into a race with another block probably lacks.
static u32 missing_fence(const Fiber* fiber) {
    if (fiber->checks.read_unfenced) return FENCE_BEFORE_FLAG;
    return fiber->checks.pending ? FENCE_AFTER_FLAG : FENCE_UNKNOWN;
}

// Every record, all cases.
static SIMT_NOINLINE void visit_global_cell(Fiber* fiber, GlobalCell* cell, const Unit& unit, u8 mask, u8 kind,
                                            u16 site, u32 object, i64 offset) {
    GlobalVisit visit;
    visit.fiber = fiber, visit.site = site, visit.kind = kind, visit.mask = mask, visit.unit = &unit;
    look_at_global(visit, cell->record);
    for (u32 at = cell->links; at; at = links.global[at].next) look_at_global(visit, links.global[at].record);
    if (!visit.mine) {
        GlobalRecord* place = visit.oldest ? visit.oldest : add_global_link(cell);
        if (place) write_global_record(fiber, *place, visit.new_number(), site, kind, mask);
        visit.mine = place;
    }
    if (SIMT_UNLIKELY(visit.conflicts) && !fiber->block->checks.quiet)
        report_conflicts(visit, KIND_GLOBAL_RACE, SPACE_GLOBAL, (int32_t)object, offset, unit.size,
                         missing_fence(fiber));
}

SIMT_INLINE void check_global_word(Fiber* fiber, u64 word, const Unit& unit, u8 mask, u8 kind, u16 site, u32 object,
                                   i64 offset) {
    const SimtLaunch* launch = here.launch;
    GlobalCell* cell = global_cells(launch) + word;
    if (cell->launch != launch->launch_number) {
        cell->launch = launch->launch_number;
        cell->links = 0;
        write_global_record(fiber, cell->record, 0, site, kind, mask);
    } else {
        visit_global_cell(fiber, cell, unit, mask, kind, site, object, offset);
    }
    if (SIMT_UNLIKELY(strong(kind))) {
        check_flag(fiber, cell, unit, kind,
                   *(const u32*)(unit.address + (larger(word * 4, unit.from) - unit.from) & ~3ull));
    } else if (kind == PLAIN_WRITE && !fiber->checks.dirty) {
        fiber->checks.dirty = true;
        fiber->block->checks.dirty_threads++;
    }
}
