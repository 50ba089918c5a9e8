// lane_never_comes -- the mask names 32 lanes, and 16 of them never make the call.
//
// Wrong      the call waits for lanes that have left the branch.
// From       tests/right/half_warp_sum.cu
// launch: grid=1 block=64
// args: x=small[64] y=nan[2]

extern "C" __global__ void lane_never_comes(const float* x, float* y) {
    const int lane = threadIdx.x % 32;
    if (lane < 16) {
        float v = x[threadIdx.x];
        for (int reach = 8; reach > 0; reach /= 2) {
            v += __shfl_down_sync(0xffffffffu, v, reach, 16);  //! invalid-mask
        }
        if (lane == 0) {
            y[threadIdx.x / 32] = v;
        }
    }
}
