// selective_sum -- the second stage of the sums over channels, rows and segments: out[i] = sum over p of part[p][i].
//
// What       dB, dC from one part a block of channels, or, where B or C is fixed, like dA; dA (channels, states), and dD
//            with d delta_bias (2, channels), from one part a batch row and segment. Always in the same order.
//            A launch may hold some steps of each row only: part_row elements of the row_length in dB and dC. Their parts lie
//            part_column apart, and the rows of a part part_batch; parts from number `lent` on lie in dB_rest and dC_rest.
//            With `adds`, sums over steps go on with what is there.
// Used in    ssmlab.selective_scan.
//
// Mapping    a thread adds up VECTOR neighbours i of one of the four. With MANY_PARTS parts or more, the block's threads lie in
//            ROWS rows, which take every ROWS-th part each, then row 0 adds the rows' sums; with fewer, each thread adds up
//            all parts.
// Shared     1 KiB * VECTOR for float.   Barriers   B0.
// compile: -default-device -DELEMENT_BFLOAT16 -DFIXED_B=0 -DFIXED_C=0 -DVECTOR=4 -DMANY_PARTS=8 -DROWS=4
// compile: -default-device -DELEMENT_FLOAT -DFIXED_B=1 -DFIXED_C=1 -DVECTOR=1 -DMANY_PARTS=8 -DROWS=4
#include "selective_element.cuh"

constexpr int THREADS = 256, COLUMNS = THREADS / ROWS;
constexpr int AHEAD = 4;                                    // parts that a thread asks for at once

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

// Of a sum over steps that goes on: what is there. Only sums over channels, which are made at once, may be in a half type.
template <typename TYPE>
__device__ __forceinline__ Sum already(const TYPE*) { return {}; }
template <>
__device__ __forceinline__ Sum already(const real* at) { return *reinterpret_cast<const Sum*>(at); }

extern "C" __global__ __launch_bounds__(THREADS)
void selective_sum(const real* __restrict__ dB_part, const real* __restrict__ dC_part, const real* __restrict__ dA_part,
                   const real* __restrict__ weights_part, const real* __restrict__ dB_rest,
                   const real* __restrict__ dC_rest, TableElement<FIXED_B>::type* __restrict__ dB,
                   TableElement<FIXED_C>::type* __restrict__ dC, real* __restrict__ dA, real* __restrict__ weights,
                   long long rows, long long columns, long long batch, long long dA_count, long long weights_count,
                   long long part_row, long long row_length, long long row_first, long long part_batch,
                   long long part_column, long long lent, int adds) {
    __shared__ alignas(16) Sum sums[ROWS][COLUMNS];
    long long block = blockIdx.x;                           // counts down to this block's place in the array that it takes
    // `pieces` of `length` sums each; the parts of a piece begin part_apart behind those of the piece before it.
    auto add_up = [&](const real* part, const real* rest, auto* out, long long parts, long long here, long long next,
                      long long pieces, long long length, long long part_apart, long long out_apart, bool goes_on) {
        const bool shared_work = parts >= MANY_PARTS;       // the same in all threads
        const int row = shared_work ? threadIdx.x / COLUMNS : 0, apart = shared_work ? ROWS : 1;
        const int across = THREADS / apart * VECTOR;        // sums of a block
        const long long blocks = (length + across - 1) / across;    // of a piece
        if (block >= 0 && block < pieces * blocks) {
            const unsigned piece = (unsigned)block / (unsigned)blocks;      // a grid has less than 2^31 blocks
            const long long i = (unsigned)block % (unsigned)blocks * (long long)across
                                + (shared_work ? threadIdx.x % COLUMNS : threadIdx.x) * VECTOR;
            const long long place = piece * part_apart + i;
            Sum sum = {};
            for (long long p = row; i < length && p < parts; p += AHEAD * apart) {
                Sum more[AHEAD];                            // asked for before the first is used
#pragma unroll
                for (int k = 0; k < AHEAD; ++k) {
                    const long long q = p + k * apart;
                    const real* const from = q < here ? part + q * next : rest + (q - here) * next;
                    more[k] = q < parts ? *reinterpret_cast<const Sum*>(from + place) : Sum{};
                }
#pragma unroll
                for (int k = 0; k < AHEAD; ++k) {
                    sum.add(more[k]);
                }
            }
            if (shared_work) {
                sums[row][threadIdx.x % COLUMNS] = sum;
                __syncthreads();                            // B0: the sums of all rows are there
                for (int r = 1; r < ROWS && row == 0; ++r) {
                    sum.add(sums[r][threadIdx.x]);
                }
            }
            if (row == 0 && i < length) {
                if (goes_on) {
                    sum.add(already(out + i));
                }
                store(out + piece * out_apart + i, sum);
            }
        }
        block -= pieces * blocks;
    };
    auto add_up_table = [&](const real* part, const real* rest, auto* out, bool is_fixed) {
        if (is_fixed) {
            add_up(part, part, out, rows, rows, dA_count, 1, dA_count, 0, 0, adds);
        } else {
            add_up(part, rest, out + row_first, columns, lent, part_column, batch, part_row, part_batch, row_length,
                   false);
        }
    };
    add_up_table(dB_part, dB_rest, dB, FIXED_B);
    add_up_table(dC_part, dC_rest, dC, FIXED_C);
    add_up(dA_part, dA_part, dA, rows, rows, dA_count, 1, dA_count, 0, 0, adds);
    add_up(weights_part, weights_part, weights, rows, rows, weights_count, 1, weights_count, 0, 0, adds);
}
