// partial_masks -- the two halves of a warp do different things, each with the mask of its own lanes.
//
// Right      every lane that a mask names makes the call, and every lane that makes the call is named.
// launch: grid=1 block=64
// args: x=small[64] y=nan[64]
// expect: y = halves(x)

extern "C" __global__ void partial_masks(const float* x, float* y) {
    const int lane = threadIdx.x % 32;
    float v = x[threadIdx.x];
    if (lane < 16) {                                        // lower half: the sum of its 16 lanes
        for (int reach = 8; reach > 0; reach /= 2) {
            v += __shfl_xor_sync(0x0000ffffu, v, reach);
        }
    } else {                                                // upper half: the largest of its 16 lanes
        for (int reach = 8; reach > 0; reach /= 2) {
            v = fmaxf(v, __shfl_xor_sync(0xffff0000u, v, reach));
        }
    }
    y[threadIdx.x] = v;
}
