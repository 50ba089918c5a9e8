// warp_sum_syncwarp -- every warp sums 32 numbers in its own shared cells, in step by __syncwarp.
//
// Right      lanes of one warp are not in step by themselves; __syncwarp orders their shared memory.
// launch: grid=2 block=64
// args: x=small[128] y=nan[4]
// expect: y = x.reshape(4, 32).sum(1)

extern "C" __global__ void warp_sum_syncwarp(const float* x, float* y) {
    __shared__ float part[64];
    const int t = threadIdx.x;
    const int lane = t % 32;

    part[t] = x[blockIdx.x * 64 + t];
    for (int reach = 16; reach > 0; reach /= 2) {
        __syncwarp();                                       // W0: the warp's cells are written before they are added
        if (lane < reach) {
            part[t] += part[t + reach];
        }
    }

    if (lane == 0) {
        y[blockIdx.x * 2 + t / 32] = part[t];
    }
}
