// publish_without_barrier -- thread 0 publishes values that the other threads may not have written yet.
//
// Wrong      a fence orders its own thread only; without B0 the other threads' writes are not before it.
// From       tests/right/all_threads_publish.cu
// launch: grid=3 block=64
// args: x=small[192] doubled=nan[192] finished=zero:int32[1] reversed=nan[192]

extern "C" __global__ void publish_without_barrier(const float* x, float* doubled, int* finished, float* reversed) {
    __shared__ bool is_last;
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;
    const int n = gridDim.x * 64;

    doubled[i] = 2.0f * x[i];  //! global-race
    // B0 is missing here
    if (t == 0) {
        __threadfence();                                    // ... and visible to other blocks before it is counted
        is_last = atomicAdd(finished, 1) == (int)gridDim.x - 1;
        __threadfence();                                    // the counter is read before anyone's values
    }
    __syncthreads();                                        // B1: is_last is written before anyone asks
    if (is_last) {
        for (int k = t; k < n; k += 64) {
            reversed[k] = doubled[n - 1 - k];  //! global-race
        }
    }
}
