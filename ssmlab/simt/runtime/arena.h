// A block's shared memory: the dynamic part first, then each static array when its block first meets the declaration.
//
// Checked mode leaves a gap behind each array, so that running past its end is seen, and fills new memory with a
// pattern that is NaN as half, float and double and a huge number as int.
#pragma once
#include "scheduler.h"

#if SIMT_CHECKED
static constexpr u32 ARENA_GAP = 256;
#else
static constexpr u32 ARENA_GAP = 0;
#endif
static constexpr u32 ARENA_ALIGNMENT = 128;      // an array begins at bank 0
static constexpr u32 UNWRITTEN = 0x7FFFFFFFu;
static constexpr u32 OUT_OF_ROOM = 99;           // variant of out-of-bounds, wording.py

SIMT_INLINE u32 round_up(u64 n, u64 step) { return (u32)((n + step - 1) / step * step); }

static SharedArray* new_array(Block* block, int index, const void* instance, u64 bytes, u64 alignment,
                              const char* type) {
    u32 offset = round_up(block->arena_used, larger<u64>(alignment, ARENA_ALIGNMENT));
    if (block->array_count == MOST_SHARED_ARRAYS || offset + bytes + ARENA_GAP > block->machine->launch->arena_bytes)
        return nullptr;
    SharedArray& array = block->arrays[block->array_count++];
    array = {instance, type, index, offset, (u32)bytes, alignment >= 16 ? 4u : alignment >= 8 ? 3u : 2u};
    block->arena_used = round_up(offset + bytes + ARENA_GAP, 4);
#if SIMT_CHECKED
    u32* words = (u32*)(block->arena + offset);
    for (u32 i = 0; i < (block->arena_used - offset) / 4; i++) words[i] = UNWRITTEN;
#endif
    return &array;
}

static void open_arena(Block* block) {
#if SIMT_CHECKED
    for (u32 i = 0; i < block->array_count; i++) block->arrays[i].bytes = 0;
#endif
    block->arena_used = block->array_count = 0;
    new_array(block, -1, nullptr, block->machine->launch->dynamic_shared, 4, "");
}

static void too_much_shared(Fiber*, int index, u64 bytes);         // checked.h, native.h

SIMT_API void* simt_shared_array(int index, const void* instance, size_t bytes, size_t alignment, const char* type) {
    Fiber* fiber = current();
    Block* block = fiber->block;
    for (u32 i = 1; i < block->array_count; i++)
        if (block->arrays[i].index == index && block->arrays[i].instance == instance)
            return block->arena + block->arrays[i].offset;
    SharedArray* array = new_array(block, index, instance, bytes, alignment, type);
    if (!array) {
        too_much_shared(fiber, index, bytes);
        abandon(fiber);
    }
    return block->arena + array->offset;
}

SIMT_API void* simt_dynamic_shared() {
    Block* block = current()->block;
    return block->arena + block->arrays[0].offset;
}
SIMT_API size_t simt_dynamic_shared_bytes() { return current()->block->machine->launch->dynamic_shared; }
