// look_back_packed -- blocks find the sum before them by looking back; flag and value travel in one 64-bit word.
//
// Right      a word that holds its own flag needs no fence: whoever sees the flag has the value in the same read.
// launch: grid=6 block=32
// args: x=small[192] y=nan[192] ticket=zero:int32[1] status=zero:uint64[6]
// expect: y = np.cumsum(x)

#define OWN 1u                                              // the word holds the sum of its own block
#define ALL 2u                                              // the word holds the sum of all blocks up to its own

extern "C" __global__ void look_back_packed(const float* x, float* y, int* ticket, unsigned long long* status) {
    const int lane = threadIdx.x;                           // one warp a block
    int number = 0;
    if (lane == 0) {
        number = atomicAdd(ticket, 1);
    }
    number = __shfl_sync(0xffffffffu, number, 0);

    float sum = x[number * 32 + lane];
    for (int reach = 1; reach < 32; reach *= 2) {
        const float left = __shfl_up_sync(0xffffffffu, sum, reach);
        if (lane >= reach) {
            sum += left;
        }
    }

    float before = 0.0f;
    if (lane == 31) {
        const unsigned flag = number == 0 ? ALL : OWN;
        atomicExch(&status[number], (unsigned long long)flag << 32 | __float_as_uint(sum));
        for (int earlier = number - 1; earlier >= 0; --earlier) {
            unsigned long long seen = 0;
            while (seen == 0) {
                seen = atomicAdd(&status[earlier], 0ull);
            }
            before += __uint_as_float((unsigned)seen);
            if (seen >> 32 == ALL) {
                break;
            }
        }
        atomicExch(&status[number], (unsigned long long)ALL << 32 | __float_as_uint(before + sum));
    }
    before = __shfl_sync(0xffffffffu, before, 31);
    y[number * 32 + lane] = before + sum;
}
