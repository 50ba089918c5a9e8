// last_block_sum -- every block leaves a partial sum; the block that finishes last adds them up.
//
// Right      partial, fence, counter: whoever sees the full counter also sees every partial.
// launch: grid=4 block=32
// args: x=small[128] partial=nan[4] finished=zero:int32[1] total=nan[1]
// expect: total = x.sum()

extern "C" __global__ void last_block_sum(const float* x, float* partial, int* finished, float* total) {
    const int lane = threadIdx.x;                           // one warp a block
    float sum = x[blockIdx.x * 32 + lane];
    for (int reach = 16; reach > 0; reach /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, reach);
    }

    if (lane == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();                                    // the partial is visible before it is counted
        const int before = atomicAdd(finished, 1);
        if (before == (int)gridDim.x - 1) {                 // all the others were counted earlier
            __threadfence();                                // the counter is read before the partials
            float all = 0.0f;
            for (int block = 0; block < (int)gridDim.x; ++block) {
                all += partial[block];
            }
            *total = all;
        }
    }
}
