// warp_in_lock_step -- a warp sum that trusts the warp to run in step.
//
// Wrong      lanes may drift apart since compute capability 7.0; __syncwarp puts them in step.
// From       tests/right/warp_sum_syncwarp.cu
// launch: grid=2 block=64
// args: x=small[128] y=nan[4]
// severity: warning

extern "C" __global__ void warp_in_lock_step(const float* x, float* y) {
    __shared__ float part[64];
    const int t = threadIdx.x;
    const int lane = t % 32;

    part[t] = x[blockIdx.x * 64 + t];  //! race
    for (int reach = 16; reach > 0; reach /= 2) {
        // W0 is missing here
        if (lane < reach) {
            part[t] += part[t + reach];  //! race
        }
    }

    if (lane == 0) {
        y[blockIdx.x * 2 + t / 32] = part[t];
    }
}
