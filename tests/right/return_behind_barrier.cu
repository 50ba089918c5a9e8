// return_behind_barrier -- threads without an element leave, but only behind the last barrier.
//
// Right      a return is no hazard where nobody waits any more.
// launch: grid=4 block=256
// args: x=small[1000] y=nan[1000] n=1000
// expect: y = steps_inside_tiles(x, 256)

extern "C" __global__ void return_behind_barrier(const float* x, float* y, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    const int i = blockIdx.x * 256 + t;

    part[t] = i < n ? x[i] : 0.0f;
    __syncthreads();                                        // B0: the tile is loaded before anyone looks left
    if (i >= n) {
        return;
    }
    y[i] = t > 0 ? part[t] - part[t - 1] : part[t];
}
