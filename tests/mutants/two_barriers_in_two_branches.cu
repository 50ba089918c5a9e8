// two_barriers_in_two_branches -- each branch has its own barrier.
//
// Wrong      a barrier is a place: all threads of the block must come to the same one.
// From       tests/right/roles_by_warp.cu
// launch: grid=1 block=128
// args: x=small[64] y=nan[64]

extern "C" __global__ void two_barriers_in_two_branches(const float* x, float* y) {
    __shared__ float forward[64];
    __shared__ float backward[64];
    const int t = threadIdx.x;

    if (t < 64) {
        forward[t] = x[t];
        __syncthreads();                                    // one barrier here  //! divergent-barrier
    } else {
        backward[127 - t] = x[t - 64];
        __syncthreads();                                    // and another one there  //! divergent-barrier
    }
    if (t < 64) {
        y[t] = forward[t] * backward[t];
    }
}
