// last_block_plain_counter -- the blocks count themselves without an atomic.
//
// Wrong      two blocks read the same count, and both or none think they are last.
// From       tests/right/last_block_sum.cu
// launch: grid=4 block=32
// args: x=small[128] partial=nan[4] finished=zero:int32[1] total=nan[1]

extern "C" __global__ void last_block_plain_counter(const float* x, float* partial, int* finished, float* total) {
    const int lane = threadIdx.x;                           // one warp a block
    float sum = x[blockIdx.x * 32 + lane];
    for (int reach = 16; reach > 0; reach /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, reach);
    }

    if (lane == 0) {
        partial[blockIdx.x] = sum;  //! global-race
        __threadfence();                                    // the partial is visible before it is counted
        const int before = (*finished)++;  //! global-race
        if (before == (int)gridDim.x - 1) {                 // all the others were counted earlier
            __threadfence();                                // the counter is read before the partials
            float all = 0.0f;
            for (int block = 0; block < (int)gridDim.x; ++block) {
                all += partial[block];  //! global-race
            }
            *total = all;
        }
    }
}
