// chained_no_reader_fence -- the chained scan without the fence between flag and value.
//
// Wrong      the value may be read before the flag.
// From       tests/right/chained_scan.cu
// launch: grid=4 block=64 options=-DTILE=64
// args: a=slow[250] b=normal[250] h=nan[250] length=250 ticket=zero:int32[1] value=nan[4] ready=zero:int32[4]

#include "affine.cuh"

extern "C" __global__ __launch_bounds__(TILE)
void chained_no_reader_fence(const float* a, const float* b, float* h, int length,
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
            // the fence is missing here
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
