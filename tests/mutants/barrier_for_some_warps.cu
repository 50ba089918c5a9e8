// barrier_for_some_warps -- the barrier stands inside the guard, and the guard divides between warps.
//
// Wrong      in the last block a whole warp never comes to the barrier.
// From       tests/right/guarded_work.cu
// launch: grid=4 block=256
// args: x=small[992] y=nan[992] n=992

extern "C" __global__ void barrier_for_some_warps(const float* x, float* y, int n) {
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
