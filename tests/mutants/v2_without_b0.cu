// v2_without_b0 -- block_scan_v2 without its only barrier.
//
// Wrong      two buffers keep rounds apart only together with one barrier a round.
// From       kernels_cu/block_scan_v2_double_buffer.cu
// launch: grid=2 block=64 options=-DTILE=64
// args: a=decay[2,60] b=normal[2,60] h=nan[2,60] length=60

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void v2_without_b0(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[2][TILE];                        // span[.][t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    int now = 0;                                            // whose turn it is, private to the thread
    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[now][t] = mine;  //! race
        // B0 is missing here
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);  //! race
        }
        now = 1 - now;
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
