// block_scan_v3 -- inclusive affine scan inside one block: warps scan in registers, one shared total a warp.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v2   lanes of a warp exchange registers by shuffles; only the warps' totals go through shared memory.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Harris, Garland 2011 (GPU Computing Gems).
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     8 B a warp = TILE / 4 B, static (TILE=256: 64 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       2 scans a warp of 129 combines and one more a step behind warp 0 (TILE=256: 2288), depth 11.
// Barriers   B0: 1, whatever the TILE (TILE=256: 1).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

constexpr int WARPS = TILE / 32;
constexpr unsigned ALL = 0xffffffffu;                       // all lanes of the warp take part in each shuffle

__device__ __forceinline__ float2 warp_scan(float2 mine, int lane) {
    for (int reach = 1; reach < 32; reach *= 2) {           // mine covers the `reach` lanes that end here
        const float2 left = make_float2(__shfl_up_sync(ALL, mine.x, reach), __shfl_up_sync(ALL, mine.y, reach));
        if (lane >= reach) {
            mine = then(left, mine);
        }
    }
    return mine;
}

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v3(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 total[WARPS];                         // total[w] = all steps of warp w, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const int lane = t % 32;                                // place inside the warp
    const int warp = t / 32;                                // 0 <= warp < WARPS
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    mine = warp_scan(mine, lane);
    if (lane == 31) {
        total[warp] = mine;
    }
    __syncthreads();                                        // B0: all totals are written before any is read

    // Each warp scans the totals for itself: a few combines twice are cheaper than a second barrier.
    const float2 upto = warp_scan(lane < WARPS ? total[lane] : identity(), lane);
    const int last = warp > 0 ? warp - 1 : 0;               // the warp whose total comes before this one
    const float2 before = make_float2(__shfl_sync(ALL, upto.x, last), __shfl_sync(ALL, upto.y, last));
    if (warp > 0) {
        mine = then(before, mine);
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
