// chained_stale_flag -- the chained scan with the flags of the last launch still up.
//
// Wrong      nobody put the flags down again, so nobody waits.
// From       tests/right/chained_scan.cu
// launch: grid=4 block=64 options=-DTILE=64
// args: a=slow[250] b=normal[250] h=nan[250] length=250 ticket=zero:int32[1] value=nan[4] ready=ones:int32[4]
// schedule: resident=4

#include "affine.cuh"

extern "C" __global__ __launch_bounds__(TILE)
void chained_stale_flag(const float* a, const float* b, float* h, int length,
        int* ticket, float* value, volatile int* ready) {
    __shared__ float2 span[2][TILE];
    __shared__ int number;
    __shared__ float carry;
    const int t = threadIdx.x;

    if (t == 0) {
        number = atomicAdd(ticket, 1);                      // blocks are numbered in the order in which they start
    }
    __syncthreads();                                        // B0: the number is written before anyone uses it
    const int chunk = number;
    const int step = chunk * TILE + t;

    float2 mine = step < length ? make_float2(a[step], b[step]) : identity();
    int now = 0;
    for (int reach = 1; reach < TILE; reach *= 2) {
        span[now][t] = mine;
        __syncthreads();                                    // B1: span[now] is written before anyone looks left
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);
        }
        now = 1 - now;
    }

    if (t == TILE - 1) {                                    // this thread holds the whole chunk
        float before = 0.0f;
        if (chunk > 0) {
            while (ready[chunk - 1] == 0) {}                // flag: an earlier ticket runs already, so this ends
            __threadfence();                                // the flag is read before the value
            before = value[chunk - 1];  //! global-race
        }
        value[chunk] = mine.x * before + mine.y;  //! global-race
        __threadfence();                                    // the value is visible before the flag
        ready[chunk] = 1;
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone uses it

    if (step < length) {
        h[step] = mine.x * carry + mine.y;
    }
}
