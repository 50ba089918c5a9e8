// guarded_work -- 1000 elements in blocks of 256: the work is guarded, the barrier is not.
//
// Right      every thread of the last, partly filled block reaches the barrier.
// launch: grid=4 block=256
// args: x=small[1000] y=nan[1000] n=1000
// expect: y = steps_inside_tiles(x, 256)

extern "C" __global__ void guarded_work(const float* x, float* y, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    const int i = blockIdx.x * 256 + t;

    if (i < n) {
        part[t] = x[i];
    }
    __syncthreads();                                        // B0: the tile is loaded before anyone looks left
    if (i < n) {
        y[i] = t > 0 ? part[t] - part[t - 1] : part[t];
    }
}
