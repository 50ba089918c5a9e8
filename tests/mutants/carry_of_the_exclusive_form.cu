// carry_of_the_exclusive_form -- the carry is the last exclusive value of the tile.
//
// Wrong      the last value that was written is the carry only in the inclusive form.
// From       tests/right/exclusive_scan.cu
// launch: grid=1 block=4 options=-DTILE=4
// args: a=halves[8] b=3,1,7,0,4,1,6,3 before=nan[8] length=8
// expect: before = exclusive(a, b)
// first-bad: before[4]

#include "affine.cuh"

extern "C" __global__ void carry_of_the_exclusive_form(const float* a, const float* b, float* before, int length) {
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
        const float2 left = t > 0 ? span[now][t - 1] : identity();
        if (step < length) {
            before[step] = left.x * carry + left.y;
        }
        const float2 last = span[now][TILE - 2];  //! wrong-result
        carry = last.x * carry + last.y;
        now = 1 - now;
    }
}
