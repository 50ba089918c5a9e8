// group_without_sync -- thread 0 adds the tiles' sums before they are written.
//
// Wrong      a tile of 32 threads is in step with itself, not with the other tiles.
// From       tests/right/group_sum.cu
// launch: grid=2 block=128
// args: x=small[256] y=nan[2]

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void group_without_sync(const float* x, float* y) {
    __shared__ float part[4];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);

    float sum = x[blockIdx.x * 128 + block.thread_rank()];
    for (int reach = tile.size() / 2; reach > 0; reach /= 2) {
        sum += tile.shfl_down(sum, reach);
    }
    if (tile.thread_rank() == 0) {
        part[threadIdx.x / 32] = sum;  //! race
    }
    // block.sync() is missing here
    if (block.thread_rank() == 0) {
        y[blockIdx.x] = part[0] + part[1] + part[2] + part[3];  //! race
    }
}
