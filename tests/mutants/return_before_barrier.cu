// return_before_barrier -- threads without an element leave before the barrier.
//
// Wrong      a barrier is for all threads of the block; when some have left, anything may happen, on some GPUs a hang.
// From       tests/right/guarded_work.cu
// launch: grid=4 block=256
// args: x=small[1000] y=nan[1000] n=1000

extern "C" __global__ void return_before_barrier(const float* x, float* y, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    const int i = blockIdx.x * 256 + t;

    if (i >= n) {
        return;
    }
    part[t] = x[i];
    __syncthreads();  // B0: the tile is loaded before anyone looks left  //! divergent-barrier
    if (i < n) {
        y[i] = t > 0 ? part[t] - part[t - 1] : part[t];
    }
}
