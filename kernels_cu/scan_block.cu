// scan_block -- a block walks along its rows, tile after tile, and carries the state in registers.
//
// What       forward or backward scan of a chunk of steps; the whole row is one chunk unless `chunk` < length.
// Algorithm  "block": one chunk a row, nothing crosses blocks. Last pass of "chain" and "totals": many chunks, the state
//            before each comes from `carries`.
// Used in    ssmlab.scan; notebook 05.   Oracle: ssmlab.reference.scan.   Source: Merrill & Grimshaw 2009 (tile walk).
//
// Mapping    grid = groups of rows * chunks, group fastest; block and tile: scan_rows.cuh or scan_columns.cuh.
// Global     each byte moves once; PREFETCH = 1 loads tile k + 1 before tile k is finished.
// Shared     two TileShared: the totals of tile k + 1 must not overwrite those of tile k, which slow threads still read.
// Barriers   B0: one a tile (none if a block is one warp), and one in Tile::settle across channels.
// Rounding   order of combines fixed by the options alone: bitwise the same from run to run, and for a row alone or in a batch.
// compile: -DELEMENT_FLOAT -DWIDE=1 -DCOLUMNS=0 -DTHREADS=128 -DVECTORS=2 -DROWS=1 -DPREFETCH=1
// compile: -DELEMENT_FLOAT -DWIDE=1 -DCOLUMNS=1 -DLANES=8 -DSTRIPS=16 -DSTEPS=2 -DPREFETCH=1 -DBACKWARD=1
// compile: -DELEMENT_BFLOAT16 -DWIDE=1 -DCOLUMNS=0 -DTHREADS=128 -DVECTORS=2 -DROWS=1 -DPREFETCH=1 -DBACKWARD=1 -DPACKED=1
// compile: -DELEMENT_HALF -DWIDE=0 -DCOLUMNS=1 -DLANES=32 -DSTRIPS=8 -DSTEPS=2 -DPREFETCH=0 -DREVERSE=1
#include "scan_tile.cuh"

extern "C" __global__ __launch_bounds__(BLOCK, MIN_BLOCKS)
void scan_block(const element* __restrict__ a, const element* __restrict__ x, const element* __restrict__ h,
                element* __restrict__ out, element* __restrict__ da, const real* __restrict__ begin, real* __restrict__ end,
                const real* __restrict__ initial, const int* __restrict__ marks, const int* __restrict__ before,
                long long a_batch, long long a_time, long long a_channel, long long x_batch, long long x_time,
                long long x_channel, long long h_batch, long long h_time, long long h_channel, long long out_batch,
                long long out_time, long long out_channel, long long batches, long long channels, long long length, int flags,
                long long chunk, int from_carries, const real* __restrict__ carries) {
    __shared__ TileShared shared[2];
    const Problem task = {a, x, h, out, da, begin, end, initial, marks, before,
                          {a_batch, a_time, a_channel}, {x_batch, x_time, x_channel}, {h_batch, h_time, h_channel},
                          {out_batch, out_time, out_channel}, batches, channels, length, flags};
    const long long groups = groups_of(task);
    const long long chunk_index = chunk >= length ? 0 : blockIdx.x / groups;
    Row row;
    if (!find_row(task, blockIdx.x - chunk_index * groups, row)) {
        return;
    }
    const long long start = chunk_index * chunk;
    const long long limit = start + chunk < length ? start + chunk : length;
    const Carrier carrier = carrier_of(task, row);
    real state = 0;                             // before the tile at hand
    if (carrier.carries) {
        state = from_carries ? carries[chunk_index * batches * channels + carrier.number] : begin_of(task, carrier.number);
    }

    Tile tile;
    int buffer = 0;
    tile.load(task, row, start, room_in_tile(limit - start));
    for (long long first = start; first < limit; first += TILE) {
        TileShared& totals = shared[buffer];
        tile.reduce(task, row, first, room_in_tile(limit - first), totals);
#if PREFETCH
        Tile next;
        if (first + TILE < limit) {
            next.load(task, row, first + TILE, room_in_tile(limit - first - TILE));
        }
#endif
        if (WARPS > 1) {
            __syncthreads();                    // B0: all totals are written; the buffer of the tile before is free again
        }
        real starts[STARTS];
        tile.settle(totals, carrier, state, starts);
        tile.emit(task, row, first, room_in_tile(limit - first), starts);
#if PREFETCH
        tile = next;
#else
        if (first + TILE < limit) {
            tile.load(task, row, first + TILE, room_in_tile(limit - first - TILE));
        }
#endif
        buffer = 1 - buffer;
    }

    if (!PACKED && task.is(WANTS_END) && limit == length && carrier.speaks) {
        end[carrier.number] = state;
    }
}
