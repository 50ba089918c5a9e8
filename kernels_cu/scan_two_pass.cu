// scan_two_pass -- what a chunk learns from the chunks before it, in passes over totals.
//
// What       scan_totals: the pair (a, b) of each chunk of each row: what the chunk does to the state before it.
//            carry_chain: state before chunk k = pair(k - 1) applied to state before chunk k - 1, one thread a row.
//            carry_scan:  the same states by a warp a row, 32 pairs at a time: depth log2 in place of a chain.
//            Then scan_block runs each chunk again from its state.
// Algorithm  "chain" (scan_totals, carry_chain, scan_block) and "totals" (scan_totals, carry_scan, scan_block).
// Used in    ssmlab.scan; notebook 05.   Oracle: ssmlab.reference.scan.   Source: Blelloch 1990; Chatterjee et al. 1990.
//
// Layout     pair_a, pair_b, cuts, carries: (chunks, rows), row = batch * channels + channel.
// Global     a and b are read twice: 20 bytes a step where 12 would do, unless they still lie in the L2 cache.
// Barriers   B0: one a tile in scan_totals (none if a block is one warp); none in the others.
// Rounding   fixed order of combines.
// compile: -DELEMENT_FLOAT -DWIDE=1 -DCOLUMNS=0 -DTHREADS=128 -DVECTORS=2 -DROWS=1
// compile: -DELEMENT_DOUBLE -DWIDE=0 -DCOLUMNS=1 -DLANES=8 -DSTRIPS=16 -DSTEPS=2 -DPACKED=1 -DREVERSE=1
#include "scan_tile.cuh"

extern "C" __global__ __launch_bounds__(BLOCK, MIN_BLOCKS)
void scan_totals(const element* __restrict__ a, const element* __restrict__ x, const real* __restrict__ begin,
                 const int* __restrict__ marks, long long a_batch, long long a_time, long long a_channel, long long x_batch,
                 long long x_time, long long x_channel, long long batches, long long channels, long long length, int flags,
                 long long chunk, real* __restrict__ pair_a, real* __restrict__ pair_b, int* __restrict__ cuts) {
    __shared__ TileShared shared[2];
    Problem task = {};
    task.a = a;
    task.x = x;
    task.begin = begin;
    task.marks = marks;
    task.a_at = {a_batch, a_time, a_channel};
    task.x_at = {x_batch, x_time, x_channel};
    task.batches = batches;
    task.channels = channels;
    task.length = length;
    task.flags = flags;
    task.h = a;                                 // the totals need neither h nor its strides; any memory that may be read
    task.h_at = task.a_at;
    const long long groups = groups_of(task);
    const long long chunk_index = blockIdx.x / groups;
    Row row;
    if (!find_row(task, blockIdx.x % groups, row)) {
        return;
    }
    const long long start = chunk_index * chunk;
    const long long limit = start + chunk < length ? start + chunk : length;

    Span sum = no_steps();
    int buffer = 0;
    for (long long first = start; first < limit; first += TILE) {
        Tile tile;
        tile.load(task, row, first, room_in_tile(limit - first));
        tile.reduce(task, row, first, room_in_tile(limit - first), shared[buffer]);
        if (WARPS > 1) {
            __syncthreads();                    // B0: all totals are written; the buffer of the tile before is free again
        }
        sum = then(sum, tile.total(shared[buffer]));
        buffer = 1 - buffer;
    }

    const Carrier carrier = carrier_of(task, row);
    if (carrier.speaks) {
        const long long index = chunk_index * batches * channels + carrier.number;
        pair_a[index] = sum.a;
        pair_b[index] = sum.b;
#if PACKED
        cuts[index] = sum.cut;
#endif
    }
}

__device__ __forceinline__ Span pair_at(const real* pair_a, const real* pair_b, const int* cuts, long long index) {
    Span pair = span(pair_a[index], pair_b[index]);
#if PACKED
    pair.cut = cuts[index];
#endif
    return pair;
}

// One thread a row.
extern "C" __global__ void carry_chain(const real* __restrict__ pair_a, const real* __restrict__ pair_b,
                                       const int* __restrict__ cuts, const real* __restrict__ begin, int has_begin,
                                       long long rows, long long chunks, real* __restrict__ carries) {
    const long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    real state = has_begin ? begin[row] : real(0);
    for (long long k = 0; k < chunks; ++k) {
        carries[k * rows + row] = state;
        state = apply(pair_at(pair_a, pair_b, cuts, k * rows + row), state);
    }
}

// One warp a row; block = (32, rows in a block).
extern "C" __global__ void carry_scan(const real* __restrict__ pair_a, const real* __restrict__ pair_b,
                                      const int* __restrict__ cuts, const real* __restrict__ begin, int has_begin,
                                      long long rows, long long chunks, real* __restrict__ carries) {
    const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
    if (row >= rows) {
        return;                                 // a whole warp leaves, nobody waits for it
    }
    const int lane = threadIdx.x;
    real state = has_begin ? begin[row] : real(0);                      // before the 32 chunks at hand
    for (long long first = 0; first < chunks; first += 32) {
        const long long k = first + lane;
        Span mine = k < chunks ? pair_at(pair_a, pair_b, cuts, k * rows + row) : no_steps();
        for (int reach = 1; reach < 32; reach *= 2) {
            const Span left = from_lanes_left(mine, reach);
            if (lane >= reach) {
                mine = then(left, mine);
            }
        }
        Span before = from_lanes_left(mine, 1);
        if (lane == 0) {
            before = no_steps();
        }
        if (k < chunks) {
            carries[k * rows + row] = apply(before, state);
        }
        state = apply(from_lane(mine, 31), state);
    }
}
