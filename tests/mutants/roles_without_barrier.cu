// roles_without_barrier -- one warp reads what another warp is still writing.
//
// Wrong      different warps, different work, and nothing between them.
// From       tests/right/roles_by_warp.cu
// launch: grid=1 block=128
// args: x=small[64] y=nan[64]

extern "C" __global__ void roles_without_barrier(const float* x, float* y) {
    __shared__ float forward[64];
    __shared__ float backward[64];
    const int t = threadIdx.x;

    if (t < 64) {
        forward[t] = x[t];
    } else {
        backward[127 - t] = x[t - 64];  //! race
    }
    // B0 is missing here
    if (t < 64) {
        y[t] = forward[t] * backward[t];  //! race
    }
}
