// roles_by_warp -- the warps of a block do different work, then meet at one barrier outside the branch.
//
// Right      the branch holds only work; the barrier stands behind it, where all four warps come by.
// launch: grid=1 block=128
// args: x=small[64] y=nan[64]
// expect: y = x * x[::-1]

extern "C" __global__ void roles_by_warp(const float* x, float* y) {
    __shared__ float forward[64];
    __shared__ float backward[64];
    const int t = threadIdx.x;

    if (t < 64) {
        forward[t] = x[t];
    } else {
        backward[127 - t] = x[t - 64];
    }
    __syncthreads();                                        // B0: both copies are written before they are multiplied
    if (t < 64) {
        y[t] = forward[t] * backward[t];
    }
}
