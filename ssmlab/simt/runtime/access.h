// One access of one thread, before it happens: what memory is it, may it happen, what does it conflict with?
#pragma once
#include "arena.h"
#include "global_memory.h"
#include "requests.h"
#include "shared_memory.h"
#include "twins.h"

// Variants of findings: which sentence report.py writes.
enum Variant {
    OUT_GLOBAL = 0, OUT_SHARED = 1, OUT_ARRAY = 2,
    WILD_NULL = 0, WILD_NOWHERE = 1, WILD_OTHER_SHARED = 2, WILD_CODE = 3, WILD_CONSTANT = 5
};

static i64 offset_in_object(const Block* block, u32 space, u32 object, u32 address) {
    if (space == SPACE_SHARED) return (i64)address - block->arrays[object].offset;
    const SimtBuffer& buffer = block->machine->launch->buffers[object];
    return (i64)address - (i64)buffer.first_byte;
}

// The site of an access; one place in the code may touch both spaces, or different sizes: each has a site of its own.
SIMT_INLINE u16 site_of_access(Fiber* fiber, void* pc, u32 space, u32 access, u32 size) {
    u16 site = site_at(fiber, pc, space, access, size);
    if (SIMT_LIKELY(sites.hot[site].key == site_key(space, access, size))) return site;
    return variant_site(fiber, pc, space, access, size);
}

[[noreturn]] static SIMT_NOINLINE void refuse(Fiber* fiber, SimtFinding finding, u64 address, u32 size, u8 kind) {
    finding.access = access_word(kind);
    finding.size = size;
    finding.offset = (i64)address;
    add_finding(finding);
    abandon(fiber);
}

static SIMT_NOINLINE void refuse_wild(Fiber* fiber, u64 address, u32 size, u8 kind, void* pc) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    u32 line = learner_line(fiber, pc);
    if (fiber->checks.frame_in_doubt && line == fiber->checks.doubt_line)
        abandon(fiber);    // its index was told already
    if (address - (u64)launch->region[REGION_STACKS] < launch->region_bytes[REGION_STACKS]) {
        u64 stack = (address - (u64)stack_of(launch, 0)) / STACK_BYTES;
        SimtFinding finding = finding_of(fiber, KIND_LOCAL_ESCAPE, 0, line);
        if (stack < (u64)fiber->block->machine->resident * fiber->block->machine->threads) {
            const Fiber& owner = fiber->block->machine->fibers[stack];
            finding.other_thread = owner.thread;
            finding.other_block = owner.block->number;
        }
        refuse(fiber, finding, address, size, kind);
    }
    u32 variant = address < 65536                                                                    ? WILD_NULL
                  : address - (u64)launch->region[REGION_ARENA] < launch->region_bytes[REGION_ARENA] ? WILD_OTHER_SHARED
                                                                                                     : WILD_NOWHERE;
    refuse(fiber, finding_of(fiber, KIND_WILD_ACCESS, variant, line), address, size, kind);
}

static void report_outside(Fiber* fiber, u32 line, u32 space, int32_t object, i64 offset, u64 object_bytes, u32 size,
                           u8 kind) {
    SimtFinding finding = finding_of(fiber, KIND_OUT_OF_BOUNDS, space == SPACE_SHARED ? OUT_SHARED : OUT_GLOBAL, line);
    finding.access = access_word(kind);
    finding.space = space, finding.object = object, finding.offset = offset, finding.size = size;
    finding.bytes = size;
    finding.extra[0] = (i64)object_bytes;
    add_finding(finding);
}

// ---- shared

static SIMT_NOINLINE void outside_shared(Fiber* fiber, u32 offset, u32 size, u8 kind, void* pc) {
    Block* block = fiber->block;
    const SharedArray* nearest = &block->arrays[0];
    for (u32 i = 0; i < block->array_count; i++)
        if (block->arrays[i].offset <= offset && (block->arrays[i].bytes || i)) nearest = &block->arrays[i];
    report_outside(fiber, learner_line(fiber, pc), SPACE_SHARED, nearest->index, (i64)offset - nearest->offset,
                   nearest->bytes, size, kind);
}

SIMT_INLINE void access_shared(Fiber* fiber, u32 offset, u32 size, u8 kind, void* pc) {
    Block* block = fiber->block;
    for (u32 i = 0; i < block->array_count; i++) {
        const SharedArray& array = block->arrays[i];
        if (offset - array.offset >= array.bytes) continue;
        if (offset - array.offset + size > array.bytes) break;
        if (kind != ATOMIC) kind = writes(kind) ? PLAIN_WRITE : PLAIN_READ;      // volatile orders nothing here
        u16 site = site_of_access(fiber, pc, SPACE_SHARED, access_word(kind), size);
        note_object(sites.hot[site], i, bit_of_array(array));
        if (SIMT_LIKELY(site)) record_request(fiber, site, i, offset);
        check_shared(fiber, array, kind, site, offset, size);
        return;
    }
    outside_shared(fiber, offset, size, kind, pc);
}

// ---- global

static SIMT_NOINLINE void outside_global(Fiber* fiber, u64 address, u32 size, u8 kind, void* pc) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    u32 nearest = 0;
    u64 least = ~0ull;
    for (u32 i = 0; i < launch->argument_buffers; i++) {
        const SimtBuffer& buffer = launch->buffers[i];
        u64 distance = address < buffer.address ? buffer.address - address : address - (buffer.address + buffer.bytes);
        if (address >= buffer.address && address < buffer.address + buffer.bytes) distance = 0;
        if (distance < least) least = distance, nearest = i;
    }
    const SimtBuffer& buffer = launch->buffers[nearest];
    report_outside(fiber, learner_line(fiber, pc), SPACE_GLOBAL, (int32_t)nearest, (i64)(address - buffer.address),
                   buffer.bytes, size, kind);
}

SIMT_INLINE void access_global(Fiber* fiber, u32 number, u64 address, u32 size, u8 kind, void* pc) {
    const SimtBuffer& buffer = fiber->block->machine->launch->buffers[number];
    u64 offset = address - buffer.address;
    if (SIMT_UNLIKELY(offset >= buffer.bytes || offset + size > buffer.bytes)) {
        outside_global(fiber, address, size, kind, pc);
        return;
    }
    u16 site = site_of_access(fiber, pc, SPACE_GLOBAL, access_word(kind), size);
    note_object(sites.hot[site], number, bit_of_buffer(number));
    const Unit unit = {buffer.first_byte + offset, address, size};
    if (SIMT_LIKELY(site)) record_request(fiber, site, number, (u32)unit.from);
    for (u64 from = unit.from, end = from + size; from < end;) {
        u64 word = from / 4, upto = smaller(end, word * 4 + 4);
        u8 mask = (u8)(((1u << (upto - from)) - 1) << from % 4);
        check_global_word(fiber, word, unit, mask, kind, site, number, (i64)(offset + (from - unit.from)));
        from = upto;
    }
}

// ---- all memory but the thread's own stack

static SIMT_NOINLINE void refuse_misaligned(Fiber* fiber, u64 address, u32 size, u8 kind, void* pc) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    SimtFinding finding = finding_of(fiber, KIND_MISALIGNED, 0, learner_line(fiber, pc));
    finding.extra[0] = (i64)(address & (size - 1));
    u32 buffer = buffer_at(launch, address);
    if (address - (u64)fiber->block->arena < launch->arena_bytes) finding.space = SPACE_SHARED;
    if (buffer) finding.space = SPACE_GLOBAL, finding.object = (int32_t)buffer - 1;
    refuse(fiber, finding, address, size, kind);
}

// Neither shared memory nor in a buffer.
static SIMT_NOINLINE void access_elsewhere(Fiber* fiber, u64 address, u32 size, u8 kind, void* pc) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    if (address - launch->heap < launch->heap_bytes) {
        outside_global(fiber, address, size, kind, pc);
        return;
    }
    if (address - launch->parameters < launch->parameters_bytes || address - launch->image < launch->image_bytes) {
        results->accesses--;                     // a parameter, a literal: not what this is about
        fiber->checks.unchecked = pc;            // but a write there faults
        return;
    }
    refuse_wild(fiber, address, size, kind, pc);
}

static SIMT_NOINLINE void look_at_memory(Fiber* fiber, u64 address, u32 size, u8 kind, void* pc) {
    Block* block = fiber->block;
    results->accesses++;
    if (writes(kind) && kind != ATOMIC) block->machine->progress++;
    if (SIMT_UNLIKELY(address & (size - 1))) return refuse_misaligned(fiber, address, size, kind, pc);
    u64 in_arena = address - (u64)block->arena;
    if (in_arena < here.arena_bytes) return access_shared(fiber, (u32)in_arena, size, kind, pc);
    if (u32 buffer = buffer_at(here.launch, address)) return access_global(fiber, buffer - 1, address, size, kind, pc);
    access_elsewhere(fiber, address, size, kind, pc);
}

static SIMT_NOINLINE void access(Fiber* fiber, u64 address, u32 size, u8 kind, void* pc) {
    if (kind != PLAIN_READ) forget_twins(fiber, address, size);
    else if (is_twin(fiber, address, size, pc)) return;
    look_at_memory(fiber, address, size, kind, pc);
}

// Not to be looked at: the thread's own stack, and anything before a thread runs.
SIMT_INLINE bool is_private(const Fiber* fiber, u64 address) {
    return address - (u64)fiber->stack < STACK_BYTES || SIMT_UNLIKELY(!fiber->block);
}

// A copy of any size counts as the fewest accesses of 16, 8, 4, 2 or 1 bytes that its place and size allow.
static SIMT_NOINLINE void access_range(Fiber* fiber, u64 address, u64 bytes, u8 kind, void* pc) {
    if (is_private(fiber, address) && is_private(fiber, address + bytes - 1)) return;
    while (bytes) {
        u32 size = 16;
        while (address % size || bytes < size) size /= 2;
        if (!is_private(fiber, address)) access(fiber, address, size, kind, pc);
        address += size, bytes -= size;
    }
}
