// half_warp_exchange -- the lower half of each warp swaps neighbours through shared memory, in step by a partial mask.
//
// Right      __syncwarp with a mask orders the memory of exactly the lanes that it names.
// launch: grid=1 block=64
// args: x=small[64] y=zero[64]
// expect: y = np.where(np.arange(64) % 32 < 16, x[np.arange(64) ^ 1], -x)

extern "C" __global__ void half_warp_exchange(const float* x, float* y) {
    __shared__ float part[64];
    const int t = threadIdx.x;
    if (t % 32 < 16) {
        part[t] = x[t];
        __syncwarp(0x0000ffffu);                            // W0: the half's cells are written before they are read
        y[t] = part[t ^ 1];
    } else {
        y[t] = -x[t];
    }
}
