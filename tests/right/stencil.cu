// stencil -- a sum of three neighbours through shared memory with a halo on both sides.
//
// Right      every cell that is read was written, the two halo cells too.
// launch: grid=3 block=64
// args: x=small[180] y=nan[180] n=180
// expect: y = np.convolve(x, [1, 1, 1], "same")

extern "C" __global__ void stencil(const float* x, float* y, int n) {
    __shared__ float part[66];                              // part[t + 1] = x[i], with one more cell on each side
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    part[t + 1] = i < n ? x[i] : 0.0f;
    if (t == 0) {
        part[0] = i > 0 ? x[i - 1] : 0.0f;
    }
    if (t == 63) {
        part[65] = i + 1 < n ? x[i + 1] : 0.0f;
    }
    __syncthreads();                                        // B0: tile and halo are loaded before anyone adds
    if (i < n) {
        y[i] = part[t] + part[t + 1] + part[t + 2];
    }
}
