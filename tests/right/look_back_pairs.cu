// look_back_pairs -- blocks find the affine step before them by looking back; a pair is two words, each with a flag.
//
// Right      each word brings its own flag and is used only if that flag is there: no word must come before another.
// launch: grid=6 block=32
// args: a=slow[192] b=normal[192] h=nan[192] ticket=zero:int32[1] status=zero:uint64[12]
// expect: h = scan(a, b)

#include "affine.cuh"

typedef unsigned long long word;

constexpr unsigned OWN = 1;                                 // the pair stands for the steps of its own block
constexpr unsigned ALL = 2;                                 // the pair stands for all steps up to the end of its block

__device__ word packed(float value, unsigned flag) {
    return (word)__float_as_uint(value) << 32 | flag;
}

__device__ float value_of(word seen) {
    return __uint_as_float((unsigned)(seen >> 32));
}

extern "C" __global__ void look_back_pairs(const float* a, const float* b, float* h, int* ticket, volatile word* status) {
    const int lane = threadIdx.x;                           // one warp a block
    int number = 0;
    if (lane == 0) {
        number = atomicAdd(ticket, 1);
    }
    number = __shfl_sync(0xffffffffu, number, 0);

    float2 mine = make_float2(a[number * 32 + lane], b[number * 32 + lane]);
    for (int reach = 1; reach < 32; reach *= 2) {
        const float2 left = make_float2(__shfl_up_sync(0xffffffffu, mine.x, reach), __shfl_up_sync(0xffffffffu, mine.y, reach));
        if (lane >= reach) {
            mine = then(left, mine);
        }
    }

    float2 before = identity();
    if (lane == 31) {
        const unsigned flag = number == 0 ? ALL : OWN;
        status[2 * number] = packed(mine.x, flag);
        status[2 * number + 1] = packed(mine.y, flag);
        for (int earlier = number - 1; earlier >= 0; --earlier) {
            word x = 0, y = 0;
            while ((unsigned)y == 0 || (unsigned)x != (unsigned)y) {
                y = status[2 * earlier + 1];
                x = status[2 * earlier];
            }
            before = then(make_float2(value_of(x), value_of(y)), before);
            if ((unsigned)y == ALL) {
                break;
            }
        }
        const float2 upto = then(before, mine);
        status[2 * number] = packed(upto.x, ALL);
        status[2 * number + 1] = packed(upto.y, ALL);
    }
    before.y = __shfl_sync(0xffffffffu, before.y, 31);      // the state before the block: h starts as 0
    h[number * 32 + lane] = mine.x * before.y + mine.y;
}
