// grid_needs_more_than_a_block -- a block barrier where the whole grid must meet.
//
// Wrong      __syncthreads waits for the threads of one block only.
// From       tests/right/grid_total.cu
// launch: grid=3 block=64 cooperative=yes
// args: x=small[192] partial=nan[3] y=nan[192]

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void grid_needs_more_than_a_block(const float* x, float* partial, float* y) {
    __shared__ float part[64];
    cg::grid_group grid = cg::this_grid();
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    part[t] = x[i];
    __syncthreads();                                        // B0: the block's numbers are loaded before they are added
    if (t == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 64; ++k) {
            sum += part[k];
        }
        partial[blockIdx.x] = sum;  //! global-race
    }
    __syncthreads();                                        // every block's sum is written before anyone adds them
    y[i] = x[i] - (partial[0] + partial[1] + partial[2]);  //! global-race
}
