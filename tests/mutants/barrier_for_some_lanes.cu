// barrier_for_some_lanes -- the barrier stands inside the guard.
//
// Wrong      in the last block 24 threads never come to the barrier.
// From       tests/right/guarded_work.cu
// launch: grid=4 block=256
// args: x=small[1000] y=nan[1000] n=1000

extern "C" __global__ void barrier_for_some_lanes(const float* x, float* y, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    const int i = blockIdx.x * 256 + t;

    if (i < n) {
        part[t] = x[i];
        __syncthreads();  // B0: the tile is loaded before anyone looks left  //! divergent-barrier
    }
    if (i < n) {
        y[i] = t > 0 ? part[t] - part[t - 1] : part[t];
    }
}
