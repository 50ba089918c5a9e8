// uneven_loop -- each thread leaves the loop when its own turns are over.
//
// Wrong      the barrier in the loop is reached a different number of times.
// From       tests/right/loop_together.cu
// launch: grid=1 block=96
// args: turns=modulo7:int32[96] y=nan[96]

extern "C" __global__ void uneven_loop(const int* turns, float* y) {
    const int t = threadIdx.x;
    int left = turns[t];
    float v = 1.0f;
    while (left > 0) {
        __syncthreads();  //! divergent-barrier
        if (left > 0) {
            v *= 0.5f;
            --left;
        }
    }
    y[t] = v;
}
