// carry_swapped_pair -- decay and input change places in the carry.
//
// Wrong      the pair is (a, b): the state is multiplied by a.
// From       tests/right/chunk_carry.cu
// launch: grid=1 block=2 options=-DCHUNK=4
// args: a=decay[8] b=normal[8] h=nan[8] state=1.5f
// expect: h = scan(a, b, 1.5)
// first-bad: h[4]

#include "affine.cuh"

extern "C" __global__ void carry_swapped_pair(const float* a, const float* b, float* h, float state) {
    __shared__ float2 total[32];
    const int k = threadIdx.x;                              // thread k owns chunk k

    float2 whole = identity();
    for (int i = k * CHUNK; i < (k + 1) * CHUNK; ++i) {
        whole = then(whole, make_float2(a[i], b[i]));
    }
    total[k] = whole;
    __syncthreads();                                        // B0: every total is written before anyone folds them

    float start = state;
    for (int j = 0; j < k; ++j) {
        start = total[j].y * start + total[j].x;  //! wrong-result
    }

    for (int i = k * CHUNK; i < (k + 1) * CHUNK; ++i) {
        start = a[i] * start + b[i];
        h[i] = start;
    }
}
