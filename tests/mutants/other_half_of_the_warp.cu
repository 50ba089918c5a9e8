// other_half_of_the_warp -- each half waits for itself and reads the other.
//
// Wrong      the two masks name the halves, and the swap crosses between them.
// From       tests/right/half_warp_exchange.cu
// launch: grid=1 block=64
// args: x=small[64] y=zero[64]
// severity: warning

extern "C" __global__ void other_half_of_the_warp(const float* x, float* y) {
    __shared__ float part[64];
    const int t = threadIdx.x;
    part[t] = x[t];  //! race
    if (t % 32 < 16) {
        __syncwarp(0x0000ffffu);                            // W0: the half's cells are written before they are read
        y[t] = part[t + 16];  //! race
    } else {
        y[t] = -x[t];
    }
}
