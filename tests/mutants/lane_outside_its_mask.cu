// lane_outside_its_mask -- lanes 8 to 15 make a call whose mask does not name them.
//
// Wrong      a mask must name every lane that makes the call.
// From       tests/right/partial_masks.cu
// launch: grid=1 block=64
// args: x=small[64] y=nan[64]

extern "C" __global__ void lane_outside_its_mask(const float* x, float* y) {
    const int lane = threadIdx.x % 32;
    float v = x[threadIdx.x];
    if (lane < 16) {                                        // lower half: the sum of its 16 lanes
        for (int reach = 8; reach > 0; reach /= 2) {
            v += __shfl_xor_sync(0x000000ffu, v, reach);  //! invalid-mask
        }
    } else {                                                // upper half: the largest of its 16 lanes
        for (int reach = 8; reach > 0; reach /= 2) {
            v = fmaxf(v, __shfl_xor_sync(0xffff0000u, v, reach));
        }
    }
    y[threadIdx.x] = v;
}
