// carry_own_total -- a chunk starts with its own total.
//
// Wrong      start(k) ends with total k - 1.
// From       tests/right/chunk_carry.cu
// launch: grid=1 block=2 options=-DCHUNK=4
// args: a=decay[8] b=normal[8] h=nan[8] state=1.5f
// expect: h = scan(a, b, 1.5)
// first-bad: h[0]

#include "affine.cuh"

extern "C" __global__ void carry_own_total(const float* a, const float* b, float* h, float state) {
    __shared__ float2 total[32];
    const int k = threadIdx.x;                              // thread k owns chunk k

    float2 whole = identity();
    for (int i = k * CHUNK; i < (k + 1) * CHUNK; ++i) {
        whole = then(whole, make_float2(a[i], b[i]));
    }
    total[k] = whole;
    __syncthreads();                                        // B0: every total is written before anyone folds them

    float start = state;
    for (int j = 0; j <= k; ++j) {  //! wrong-result
        start = total[j].x * start + total[j].y;
    }

    for (int i = k * CHUNK; i < (k + 1) * CHUNK; ++i) {
        start = a[i] * start + b[i];
        h[i] = start;
    }
}
