// selective_sum -- the second stage of the sums over channels, rows and segments: out[i] = sum over p of part[p][i].
//
// What       dB, dC from one part a block of channels, or, where B or C is fixed, like dA; dA (channels, states), and dD
//            with d delta_bias (2, channels), from one part a batch row and segment. Always in the same order.
//            A launch may hold some steps of each row only: part_row elements of the row_length in dB and dC. Their parts lie
//            part_column apart, and the rows of a part part_batch; parts from number `lent` on lie in dB_rest and dC_rest.
//            With `adds`, sums over steps go on with what is there.
// Used in    ssmlab.selective_scan.
//
// Mapping    a thread adds up VECTOR neighbours i of one of the four. With MANY_PARTS parts or more, 8 rows of 32 threads
//            take every eighth part each, then row 0 adds the 8 sums; with fewer, each thread adds up all parts.
// Shared     1 KiB * VECTOR for float.   Barriers   B0.
// compile: -default-device -DELEMENT_BFLOAT16 -DFIXED_B=0 -DFIXED_C=0 -DVECTOR=4 -DMANY_PARTS=8
// compile: -default-device -DELEMENT_FLOAT -DFIXED_B=1 -DFIXED_C=1 -DVECTOR=1 -DMANY_PARTS=8
#include "selective_element.cuh"

constexpr int ROWS = 8, THREADS = 32 * ROWS;

struct alignas(VECTOR * sizeof(real) < 16 ? VECTOR * sizeof(real) : 16) Sum {
    real at[VECTOR];

    __device__ __forceinline__ void add(const Sum& other) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            at[v] += other.at[v];
        }
    }
};

template <bool FIXED> struct TableElement { typedef element type; };
template <> struct TableElement<true> { typedef real type; };               // the gradient of a weight is not rounded

#if defined(ELEMENT_HALF) || defined(ELEMENT_BFLOAT16)
__device__ __forceinline__ void store(element* to, const Sum& sum) {
    Pack<VECTOR> out;
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        out.at[v] = to_element(sum.at[v]);
    }
    *reinterpret_cast<Pack<VECTOR>*>(to) = out;
}
#endif
__device__ __forceinline__ void store(real* to, const Sum& sum) { *reinterpret_cast<Sum*>(to) = sum; }

// Of a sum over steps that goes on: what is there. Sums over channels are made at once, and only they may be in a half type.
template <typename TYPE>
__device__ __forceinline__ Sum already(const TYPE*) { return {}; }
template <>
__device__ __forceinline__ Sum already(const real* at) { return *reinterpret_cast<const Sum*>(at); }

extern "C" __global__ __launch_bounds__(THREADS)
void selective_sum(const real* __restrict__ dB_part, const real* __restrict__ dC_part, const real* __restrict__ dA_part,
                   const real* __restrict__ weights_part, const real* __restrict__ dB_rest,
                   const real* __restrict__ dC_rest, TableElement<FIXED_B>::type* __restrict__ dB,
                   TableElement<FIXED_C>::type* __restrict__ dC, real* __restrict__ dA, real* __restrict__ weights,
                   long long rows, long long columns, long long dB_count, long long dC_count, long long dA_count,
                   long long weights_count, long long part_row, long long row_length, long long row_first,
                   long long part_batch, long long part_column, long long lent, int adds) {
    __shared__ alignas(16) Sum sums[ROWS][32];
    long long block = blockIdx.x;                           // counts down to this block's place in the array that it takes
    auto add_up = [&](const real* part, const real* rest, auto* out, long long parts, long long count, bool in_rows) {
        const bool shared_work = parts >= MANY_PARTS;       // the same in all threads
        const int row = shared_work ? threadIdx.x / 32 : 0, apart = shared_work ? ROWS : 1;
        const int across = THREADS / apart * VECTOR;        // sums of a block
        const long long blocks = (count + across - 1) / across;
        if (block >= 0 && block < blocks) {
            const long long i = block * across + (shared_work ? threadIdx.x % 32 : threadIdx.x) * VECTOR;
            const long long place = in_rows ? i / part_row * part_batch + i % part_row : i;
            const long long next = in_rows ? part_column : count, here = in_rows ? lent : parts;
            Sum sum = {};
            if (i < count) {
#pragma unroll 4
                for (long long p = row; p < parts; p += apart) {
                    const real* const first = p < here ? part + p * next : rest + (p - here) * next;
                    sum.add(*reinterpret_cast<const Sum*>(first + place));
                }
            }
            if (shared_work) {
                sums[row][threadIdx.x % 32] = sum;
                __syncthreads();                            // B0: all eight sums are there
                for (int r = 1; r < ROWS && row == 0; ++r) {
                    sum.add(sums[r][threadIdx.x]);
                }
            }
            if (row == 0 && i < count && in_rows) {
                store(out + i / part_row * row_length + row_first + i % part_row, sum);
            } else if (row == 0 && i < count) {
                if (adds) {
                    sum.add(already(out + i));
                }
                store(out + i, sum);
            }
        }
        block -= blocks;
    };
    add_up(dB_part, dB_rest, dB, FIXED_B ? rows : columns, dB_count, !FIXED_B);
    add_up(dC_part, dC_rest, dC, FIXED_C ? rows : columns, dC_count, !FIXED_C);
    add_up(dA_part, nullptr, dA, rows, dA_count, false);
    add_up(weights_part, nullptr, weights, rows, weights_count, false);
}
