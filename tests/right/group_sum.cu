// group_sum -- a block sum with cooperative groups: tiles of 32 threads, then the whole block.
//
// Right      block.sync() stands between the tiles' sums and their reader.
// launch: grid=2 block=128
// args: x=small[256] y=nan[2]
// expect: y = x.reshape(2, 128).sum(1)

#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void group_sum(const float* x, float* y) {
    __shared__ float part[4];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);

    float sum = x[blockIdx.x * 128 + block.thread_rank()];
    for (int reach = tile.size() / 2; reach > 0; reach /= 2) {
        sum += tile.shfl_down(sum, reach);
    }
    if (tile.thread_rank() == 0) {
        part[threadIdx.x / 32] = sum;
    }
    block.sync();                                           // B0: every tile's sum is written before they are added
    if (block.thread_rank() == 0) {
        y[blockIdx.x] = part[0] + part[1] + part[2] + part[3];
    }
}
