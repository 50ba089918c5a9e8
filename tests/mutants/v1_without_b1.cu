// v1_without_b1 -- block_scan_v1 without B1, the second barrier of a scan in place.
//
// Wrong      a fast thread overwrites its span for the next round while a slow neighbour still looks at it.
// From       kernels_cu/block_scan_v1_one_buffer.cu
// launch: grid=2 block=64 options=-DTILE=64
// args: a=decay[2,60] b=normal[2,60] h=nan[2,60] length=60

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void v1_without_b1(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[TILE];                           // span[t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[t] = mine;  //! race
        __syncthreads();                                    // B0: all spans are written before anyone looks
        if (t >= reach) {
            mine = then(span[t - reach], mine);  //! race
        }
        // B1 is missing here
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
