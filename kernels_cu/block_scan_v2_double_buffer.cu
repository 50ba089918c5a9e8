// block_scan_v2 -- inclusive affine scan inside one block: two shared buffers, one barrier a round.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v1   two buffers take turns: nobody overwrites what a slow neighbour still reads, so B1 is gone.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Hillis & Steele 1986; Blelloch 1990, 1.4.
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     2 buffers * 8 * TILE B, static (TILE=256: 4096 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       TILE * log2(TILE) - (TILE - 1) combines (TILE=256: 1793), depth log2(TILE).
// Barriers   B0 each round: log2(TILE) (TILE=256: 8).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v2(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[2][TILE];                        // span[.][t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    int now = 0;                                            // whose turn it is, private to the thread
    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[now][t] = mine;
        __syncthreads();                                    // B0: span[now] is written before anyone looks,
                                                            //     and nobody looks into the other any more
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);
        }
        now = 1 - now;
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
