// loop_together -- threads need different numbers of turns, and still leave the loop together.
//
// Right      __syncthreads_or asks everyone; all threads see the same answer and take the same number of turns.
// launch: grid=1 block=96
// args: turns=modulo7:int32[96] y=nan[96]
// expect: y = 0.5 ** turns

extern "C" __global__ void loop_together(const int* turns, float* y) {
    const int t = threadIdx.x;
    int left = turns[t];
    float v = 1.0f;
    while (__syncthreads_or(left > 0)) {                    // B0: goes on as long as anyone has turns left
        if (left > 0) {
            v *= 0.5f;
            --left;
        }
    }
    y[t] = v;
}
