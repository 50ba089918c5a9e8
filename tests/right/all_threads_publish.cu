// all_threads_publish -- all threads of a block write, one of them publishes: barrier, fence, counter.
//
// Right      the barrier hands everyone's writes to thread 0, and its fence covers them all (fences are cumulative).
// launch: grid=3 block=64
// args: x=small[192] doubled=nan[192] finished=zero:int32[1] reversed=nan[192]
// expect: reversed = 2 * x[::-1]

extern "C" __global__ void all_threads_publish(const float* x, float* doubled, int* finished, float* reversed) {
    __shared__ bool is_last;
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;
    const int n = gridDim.x * 64;

    doubled[i] = 2.0f * x[i];
    __syncthreads();                                        // B0: the block's values are written before it is counted
    if (t == 0) {
        __threadfence();                                    // ... and visible to other blocks before it is counted
        is_last = atomicAdd(finished, 1) == (int)gridDim.x - 1;
        __threadfence();                                    // the counter is read before anyone's values
    }
    __syncthreads();                                        // B1: is_last is written before anyone asks
    if (is_last) {
        for (int k = t; k < n; k += 64) {
            reversed[k] = doubled[n - 1 - k];
        }
    }
}
