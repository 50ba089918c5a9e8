// lane_elsewhere -- the lower half names all 32 lanes, but the upper half is in the other branch.
//
// Wrong      a named lane must come to the same call.
// From       tests/right/partial_masks.cu
// launch: grid=1 block=64
// args: x=small[64] y=nan[64]

extern "C" __global__ void lane_elsewhere(const float* x, float* y) {
    const int lane = threadIdx.x % 32;
    float v = x[threadIdx.x];
    if (lane < 16) {                                        // lower half: the sum of its 16 lanes
        for (int reach = 8; reach > 0; reach /= 2) {
            v += __shfl_xor_sync(0xffffffffu, v, reach);  //! invalid-mask
        }
    } else {                                                // upper half: the largest of its 16 lanes
        for (int reach = 8; reach > 0; reach /= 2) {
            v = fmaxf(v, __shfl_xor_sync(0xffff0000u, v, reach));
        }
    }
    y[threadIdx.x] = v;
}
