// arrays_overlap -- the second array starts inside the first.
//
// Wrong      the two arrays share half of their cells.
// From       tests/right/dynamic_shared.cu
// launch: grid=2 block=128 shared=1024
// args: x=small[256] y=nan[256]

extern "C" __global__ void arrays_overlap(const float* x, float* y) {
    extern __shared__ float pool[];
    float* up = pool;
    float* down = pool + blockDim.x / 2;
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    up[t] = x[i];  //! race
    down[blockDim.x - 1 - t] = x[i];  //! race
    __syncthreads();                                        // B0: both arrays are written before they are compared
    y[i] = down[t] - up[t];
}
