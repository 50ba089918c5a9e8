// carry_race -- totals are folded before they are written.
//
// Wrong      the barrier between the two phases is missing.
// From       tests/right/chunk_carry.cu
// launch: grid=1 block=2 options=-DCHUNK=4
// args: a=decay[8] b=normal[8] h=nan[8] state=1.5f
// severity: warning

#include "affine.cuh"

extern "C" __global__ void carry_race(const float* a, const float* b, float* h, float state) {
    __shared__ float2 total[32];
    const int k = threadIdx.x;                              // thread k owns chunk k

    float2 whole = identity();
    for (int i = k * CHUNK; i < (k + 1) * CHUNK; ++i) {
        whole = then(whole, make_float2(a[i], b[i]));
    }
    total[k] = whole;  //! race
    // B0 is missing here

    float start = state;
    for (int j = 0; j < k; ++j) {
        start = total[j].x * start + total[j].y;  //! race
    }

    for (int i = k * CHUNK; i < (k + 1) * CHUNK; ++i) {
        start = a[i] * start + b[i];
        h[i] = start;
    }
}
