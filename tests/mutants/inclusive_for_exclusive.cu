// inclusive_for_exclusive -- the inclusive result where the exclusive one was asked for.
//
// Wrong      the state before a step does not contain the step.
// From       tests/right/exclusive_scan.cu
// launch: grid=1 block=4 options=-DTILE=4
// args: a=ones[8] b=3,1,7,0,4,1,6,3 before=nan[8] length=8
// expect: before = exclusive(a, b)
// first-bad: before[0]

#include "affine.cuh"

extern "C" __global__ void inclusive_for_exclusive(const float* a, const float* b, float* before, int length) {
    __shared__ float2 span[2][TILE];
    const int t = threadIdx.x;

    float carry = 0.0f;
    int now = 0;
    for (int first = 0; first < length; first += TILE) {
        const int step = first + t;
        float2 mine = step < length ? make_float2(a[step], b[step]) : identity();
        for (int reach = 1; reach < TILE; reach *= 2) {
            span[now][t] = mine;
            __syncthreads();                                // B0: span[now] is written before anyone looks left
            if (t >= reach) {
                mine = then(span[now][t - reach], mine);
            }
            now = 1 - now;
        }

        span[now][t] = mine;
        __syncthreads();                                    // B1: the tile's results are written before the shift
        const float2 left = mine;  //! wrong-result
        if (step < length) {
            before[step] = left.x * carry + left.y;
        }
        const float2 last = span[now][TILE - 1];
        carry = last.x * carry + last.y;
        now = 1 - now;
    }
}
