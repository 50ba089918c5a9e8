// scan_tile.cuh -- picks the tile: COLUMNS = 0: threads along time (scan_rows.cuh), 1: across channels (scan_columns.cuh).
#pragma once
#include "scan_step.cuh"

#if COLUMNS
#include "scan_columns.cuh"
#else
#include "scan_rows.cuh"
#endif

#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif

static_assert(2 * sizeof(TileShared) <= 48 * 1024, "a block has 48 KB of static shared memory: take fewer STRIPS");

__device__ __forceinline__ int room_in_tile(long long steps) {
    return steps < TILE ? (int)steps : TILE;
}
