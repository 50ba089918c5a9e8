// padding_forgets -- the steps behind the end of a row are padded with (0, 0).
//
// Wrong      (0, 0) is not the identity: the state falls to 0 in the padding, and only the final state shows it.
// From       tests/right/tile_loop_scan.cu
// launch: grid=2 block=64 options=-DTILE=64
// args: a=slow[2,200] b=normal[2,200] h=nan[2,200] last=nan[2] length=200
// expect: h = scan(a, b); last = scan(a, b)[:, -1]
// first-bad: last[0]

#include "affine.cuh"

constexpr int WARPS = TILE / 32;
constexpr unsigned ALL = 0xffffffffu;

__device__ float2 warp_scan(float2 mine, int lane) {
    for (int reach = 1; reach < 32; reach *= 2) {
        const float2 left = make_float2(__shfl_up_sync(ALL, mine.x, reach), __shfl_up_sync(ALL, mine.y, reach));
        if (lane >= reach) {
            mine = then(left, mine);
        }
    }
    return mine;
}

extern "C" __global__ __launch_bounds__(TILE)
void padding_forgets(const float* a, const float* b, float* h, float* last, int length) {
    __shared__ float2 total[WARPS];
    const int t = threadIdx.x;
    const int warp = t / 32;
    const int row = blockIdx.x * length;

    float carry = 0.0f;                                     // the state before this tile, the same in all threads
    for (int first = 0; first < length; first += TILE) {
        const int step = first + t;
        float2 mine = step < length ? make_float2(a[row + step], b[row + step]) : float2{0, 0};  //! wrong-result
        mine = warp_scan(mine, t % 32);
        if (t % 32 == 31) {
            total[warp] = mine;
        }
        __syncthreads();                                    // B0: every total is written before anyone folds them

        float2 before = identity();                         // the warps before this one
        float2 tile = identity();                           // all warps
        for (int w = 0; w < WARPS; ++w) {
            const float2 one = total[w];
            if (w < warp) {
                before = then(before, one);
            }
            tile = then(tile, one);
        }
        __syncthreads();                                    // B1: everyone has read the totals before the next turn

        const float start = before.x * carry + before.y;
        if (step < length) {
            h[row + step] = mine.x * start + mine.y;
        }
        carry = tile.x * carry + tile.y;
    }
    if (t == 0) {
        last[blockIdx.x] = carry;                           // the padding of the last tile must not change it
    }
}
