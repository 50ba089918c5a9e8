// look_back_in_halves -- the reader takes the flag and the sum of a word in two accesses of 4 bytes.
//
// Wrong      the two halves were written at once, but nothing makes them be read at once: the sum may be an older one.
// From       tests/right/look_back_volatile.cu
// launch: grid=6 block=32
// args: x=small[192] y=nan[192] ticket=zero:int32[1] status=zero:uint64[6]

typedef unsigned long long word;

constexpr unsigned OWN = 1;                                 // the word holds the sum of its own block
constexpr unsigned ALL = 2;                                 // the word holds the sum of all blocks up to its own

__device__ word packed(float sum, unsigned flag) {
    return (word)__float_as_uint(sum) << 32 | flag;
}

extern "C" __global__ void look_back_in_halves(const float* x, float* y, int* ticket, volatile word* status) {
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
        status[number] = packed(sum, number == 0 ? ALL : OWN);  //! global-race
        for (int earlier = number - 1; earlier >= 0; --earlier) {
            word seen = 0;
            while ((unsigned)seen == 0) {
                seen = ((volatile unsigned*)status)[2 * earlier];
            }
            before += __uint_as_float(((volatile unsigned*)status)[2 * earlier + 1]);  //! global-race
            if ((unsigned)seen == ALL) {
                break;
            }
        }
        status[number] = packed(before + sum, ALL);  //! global-race
    }
    before = __shfl_sync(0xffffffffu, before, 31);
    y[number * 32 + lane] = before + sum;
}
