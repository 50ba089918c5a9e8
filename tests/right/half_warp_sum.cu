// half_warp_sum -- only the lower half of each warp shuffles, and the mask says so.
//
// Right      the mask names lanes 0 to 15, and exactly these make the call.
// launch: grid=1 block=64
// args: x=small[64] y=nan[2]
// expect: y = x.reshape(2, 32)[:, :16].sum(1)

extern "C" __global__ void half_warp_sum(const float* x, float* y) {
    const int lane = threadIdx.x % 32;
    if (lane < 16) {
        float v = x[threadIdx.x];
        for (int reach = 8; reach > 0; reach /= 2) {
            v += __shfl_down_sync(0x0000ffffu, v, reach, 16);
        }
        if (lane == 0) {
            y[threadIdx.x / 32] = v;
        }
    }
}
