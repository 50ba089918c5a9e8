// chunks_v3 -- scan long rows in chunks, in two passes; in between the totals themselves are scanned.
//
// What       before[k] = the state before chunk k of each row, from the totals of its chunks; replaces chunks_v2_carry.
// Since v2   pairs combine in any grouping, so the totals are one more row to scan: a warp takes 32 at a time.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.3.
//
// Mapping    grid = rows, block = 32 threads; block r owns row r, lane l the chunks l, l + 32, l + 64 ...
// Layout     total, before: (rows, chunks).
// Depth      6 dependent steps for 32 chunks, where the chain takes 32.
// Barriers   none: the lanes exchange registers.
// compile: -std=c++17

#include "affine.cuh"

constexpr unsigned ALL = 0xffffffffu;                       // all lanes of the warp take part in each shuffle

__device__ __forceinline__ float2 from_left(float2 mine, int reach) {
    return make_float2(__shfl_up_sync(ALL, mine.x, reach), __shfl_up_sync(ALL, mine.y, reach));
}

extern "C" __global__ __launch_bounds__(32)
void chunks_v3_carry(const float2* total, const float* start, float* before, int rows, int chunks) {
    const int row = blockIdx.x;
    const int lane = threadIdx.x;
    float state = start[row];                               // before the 32 chunks at hand
    for (int first = 0; first < chunks; first += 32) {
        const int k = first + lane;
        float2 mine = k < chunks ? total[row * chunks + k] : identity();
        for (int reach = 1; reach < 32; reach *= 2) {
            const float2 left = from_left(mine, reach);
            if (lane >= reach) {
                mine = then(left, mine);
            }
        }
        const float2 left = from_left(mine, 1);             // exclusive: everything before chunk k, without chunk k
        const float2 earlier = lane > 0 ? left : identity();
        if (k < chunks) {
            before[row * chunks + k] = earlier.x * state + earlier.y;
        }
        state = __shfl_sync(ALL, mine.x * state + mine.y, 31);
    }
}
