// vote_is_no_fence -- a warp sum with a vote where __syncwarp belongs.
//
// Wrong      votes and shuffles exchange registers; they order no memory.
// From       tests/right/warp_sum_syncwarp.cu
// launch: grid=2 block=64
// args: x=small[128] y=nan[4]
// severity: warning

extern "C" __global__ void vote_is_no_fence(const float* x, float* y) {
    __shared__ float part[64];
    const int t = threadIdx.x;
    const int lane = t % 32;

    part[t] = x[blockIdx.x * 64 + t];  //! race
    for (int reach = 16; reach > 0; reach /= 2) {
        __any_sync(0xffffffffu, 1);                         // a vote is not W0
        if (lane < reach) {
            part[t] += part[t + reach];  //! race
        }
    }

    if (lane == 0) {
        y[blockIdx.x * 2 + t / 32] = part[t];
    }
}
