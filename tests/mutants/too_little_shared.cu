// too_little_shared -- the launch gives shared memory for one of the two arrays.
//
// Wrong      the second array lies behind the piece that was asked for.
// From       tests/right/dynamic_shared.cu
// launch: grid=2 block=128 shared=512
// args: x=small[256] y=nan[256]

extern "C" __global__ void too_little_shared(const float* x, float* y) {
    extern __shared__ float pool[];
    float* up = pool;
    float* down = pool + blockDim.x;
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    up[t] = x[i];
    down[blockDim.x - 1 - t] = x[i];  //! out-of-bounds
    __syncthreads();                                        // B0: both arrays are written before they are compared
    y[i] = down[t] - up[t];  //! out-of-bounds
}
