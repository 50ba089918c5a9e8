// The usual accesses, whole or not at all.
//
// Usual is one for which nothing has to be found, searched or enlarged: the place in the code touched the same array
// before; it is the first access there of its lane since the barrier; and nobody else has touched the cell since then,
// or only in the same way.  Each function here gives false when it is not one of those, and then nothing has changed:
// access.h does it.  None calls a function, so that who jumps to access.h at its end has no registers to save.
#pragma once
#include "access.h"

template <u32 SIZE, u8 KIND> SIMT_INLINE bool quick_shared(Fiber* fiber, u64 in_arena, void* pc) {
    Block* block = fiber->block;
    u16 site = known_site(pc);
    HotSite& hot = sites.hot[site];
    if (SIMT_UNLIKELY(hot.key != site_key(SPACE_SHARED, access_word(KIND), SIZE))) return false;
    const SharedArray& array = block->arrays[hot.object];
    u32 offset = (u32)in_arena, within = offset - array.offset;
    if (SIMT_UNLIKELY((u64)within + SIZE > array.bytes || SIZE != 1u << array.grain)) return false;
    BlockChecks& of_block = block->checks;
    SharedCell* cell = of_block.cells + array.offset / 4 + within / SIZE;
    WarpChecks& checks = fiber->warp->checks;
    RequestSlot* slot = hot.slot;
    if (SIMT_UNLIKELY(hot.warp != &checks || !is_first(*slot, fiber->lane_bit))) return false;
    constexpr u16 MASK = (1u << SIZE) - 1;
    if (cell->interval != of_block.interval) {
        u32 written = cell->interval < of_block.birth ? 0 : cell->written;
        if (KIND == PLAIN_READ && SIMT_UNLIKELY((written & MASK) != MASK)) return false;
        if (KIND == PLAIN_WRITE) cell->written = written | MASK;
        clear_cell(cell, of_block.interval);
        write_record(fiber, cell->record[0], 0, site, KIND, MASK);
    } else {
        if (KIND == PLAIN_READ && SIMT_UNLIKELY((cell->written & MASK) != MASK)) return false;
        if (SIMT_UNLIKELY(!quick_look(fiber, cell, MASK, KIND, site))) return false;
        if (KIND == PLAIN_WRITE) cell->written |= MASK;
    }
    results->accesses++;
    if (KIND == PLAIN_WRITE) block->machine->progress++;
    record_first(fiber, *slot, hot.object, offset);
    return true;
}

// The first access in this launch to words of global memory.
template <u32 SIZE, u8 KIND> SIMT_INLINE bool quick_global(Fiber* fiber, u64 address, void* pc) {
    const SimtLaunch* launch = here.launch;
    u64 in_heap = address - launch->heap;
    if (SIMT_UNLIKELY(in_heap >= launch->heap_bytes)) return false;
    u32 number = launch->granules[in_heap / 256] - 1u;
    u16 site = known_site(pc);
    HotSite& hot = sites.hot[site];
    if (SIMT_UNLIKELY(hot.key != site_key(SPACE_GLOBAL, access_word(KIND), SIZE) || hot.object != number)) return false;
    const SimtBuffer& buffer = launch->buffers[number];
    u64 offset = address - buffer.address, from = buffer.first_byte + offset;
    if (SIMT_UNLIKELY(offset >= buffer.bytes || offset + SIZE > buffer.bytes || from % 4)) return false;
    WarpChecks& checks = fiber->warp->checks;
    RequestSlot* slot = hot.slot;
    if (SIMT_UNLIKELY(hot.warp != &checks || !is_first(*slot, fiber->lane_bit))) return false;
    GlobalCell* cell = global_cells(launch) + from / 4;
    for (u32 i = 0; i < SIZE / 4; i++)
        if (cell[i].launch == launch->launch_number) return false;
    for (u32 i = 0; i < SIZE / 4; i++) {
        cell[i].launch = launch->launch_number;
        cell[i].links = 0;
        write_global_record(fiber, cell[i].record, 0, site, KIND, 15);
    }
    if (KIND == PLAIN_WRITE && !fiber->checks.dirty) {
        fiber->checks.dirty = true;
        fiber->block->checks.dirty_threads++;
    }
    results->accesses++;
    if (KIND == PLAIN_WRITE) fiber->block->machine->progress++;
    record_first(fiber, *slot, number, (u32)from);
    return true;
}

template <u32 SIZE, u8 KIND> SIMT_INLINE bool quick_access(Fiber* fiber, u64 address, void* pc) {
    static_assert(KIND == PLAIN_READ || KIND == PLAIN_WRITE, "the others have more to do");
    if (SIZE < 4 || SIMT_UNLIKELY(address % SIZE)) return false;
    u64 in_arena = address - (u64)fiber->block->arena;
    if (SIMT_LIKELY(in_arena < here.arena_bytes)) return quick_shared<SIZE, KIND>(fiber, in_arena, pc);
    return quick_global<SIZE, KIND>(fiber, address, pc);
}
