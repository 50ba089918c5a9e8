// chained_block_index -- the chained scan that waits by blockIdx instead of by ticket.
//
// Wrong      no order of blocks is promised: a block may wait for one that cannot start before it ends.
// From       tests/right/chained_scan.cu
// launch: grid=4 block=64 options=-DTILE=64
// args: a=slow[250] b=normal[250] h=nan[250] length=250 ticket=zero:int32[1] value=nan[4] ready=zero:int32[4]
// schedule: block_order=reverse

#include "affine.cuh"

extern "C" __global__ __launch_bounds__(TILE)
void chained_block_index(const float* a, const float* b, float* h, int length,
        int* ticket, float* value, volatile int* ready) {
    __shared__ float2 span[2][TILE];
    __shared__ int number;
    __shared__ float carry;
    const int t = threadIdx.x;

    if (t == 0) {
        number = blockIdx.x;
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
            while (ready[chunk - 1] == 0) {}  // flag: an earlier ticket runs already, so this ends  //! deadlock
            __threadfence();                                // the flag is read before the value
            before = value[chunk - 1];
        }
        value[chunk] = mine.x * before + mine.y;
        __threadfence();                                    // the value is visible before the flag
        ready[chunk] = 1;
        carry = before;
    }
    __syncthreads();  // B2: the carry is written before anyone uses it  //! deadlock

    if (step < length) {
        h[step] = mine.x * carry + mine.y;
    }
}
