// block_scan_v1 -- inclusive affine scan inside one block: one shared buffer, two barriers a round.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// New        the first one: pairs go through shared memory, so reads and overwrites must be kept apart.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Hillis & Steele 1986; Blelloch 1990, 1.4.
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     8 * TILE B, static (TILE=256: 2048 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       TILE * log2(TILE) - (TILE - 1) combines (TILE=256: 1793), depth log2(TILE).
// Barriers   B0 and B1 each round: 2 * log2(TILE) (TILE=256: 16).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v1(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[TILE];                           // span[t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[t] = mine;
        __syncthreads();                                    // B0: all spans are written before anyone looks
        if (t >= reach) {
            mine = then(span[t - reach], mine);
        }
        __syncthreads();                                    // B1: all have looked before one overwrites
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
