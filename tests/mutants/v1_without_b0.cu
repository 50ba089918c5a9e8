// v1_without_b0 -- block_scan_v1 without B0: a thread looks left before its neighbour has written.
//
// Wrong      the write of span and the look to the left are unordered.
// From       kernels_cu/block_scan_v1_one_buffer.cu
// launch: grid=2 block=64 options=-DTILE=64
// args: a=decay[2,60] b=normal[2,60] h=nan[2,60] length=60

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void v1_without_b0(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[TILE];                           // span[t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[t] = mine;  //! race
        // B0 is missing here
        if (t >= reach) {
            mine = then(span[t - reach], mine);  //! race
        }
        __syncthreads();                                    // B1: all have looked before one overwrites
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
