// v3_without_b0 -- block_scan_v3 without its only barrier.
//
// Wrong      a warp reads the totals before the other warps have written theirs; shuffles order nothing in memory.
// From       kernels_cu/block_scan_v3_warp_shuffle.cu
// launch: grid=2 block=64 options=-DTILE=64
// args: a=decay[2,60] b=normal[2,60] h=nan[2,60] length=60

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
void v3_without_b0(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 total[WARPS];                         // total[w] = all steps of warp w, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const int lane = t % 32;                                // place inside the warp
    const int warp = t / 32;                                // 0 <= warp < WARPS
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    mine = warp_scan(mine, lane);
    if (lane == 31) {
        total[warp] = mine;  //! race
    }
    // B0 is missing here

    // Each warp scans the totals for itself: a few combines twice are cheaper than a second barrier.
    const float2 upto = warp_scan(lane < WARPS ? total[lane] : identity(), lane);  //! race
    const int last = warp > 0 ? warp - 1 : 0;               // the warp whose total comes before this one
    const float2 before = make_float2(__shfl_sync(ALL, upto.x, last), __shfl_sync(ALL, upto.y, last));
    if (warp > 0) {
        mine = then(before, mine);
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
