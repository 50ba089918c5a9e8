// dynamic_shared -- two arrays cut from one dynamic piece of shared memory.
//
// Right      the launch gives 2 * blockDim.x floats, and the second array starts behind the first.
// launch: grid=2 block=128 shared=1024
// args: x=small[256] y=nan[256]
// expect: y = x.reshape(2, 128)[:, ::-1] - x.reshape(2, 128)

extern "C" __global__ void dynamic_shared(const float* x, float* y) {
    extern __shared__ float pool[];
    float* up = pool;
    float* down = pool + blockDim.x;
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    up[t] = x[i];
    down[blockDim.x - 1 - t] = x[i];
    __syncthreads();                                        // B0: both arrays are written before they are compared
    y[i] = down[t] - up[t];
}
