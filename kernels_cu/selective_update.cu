// selective_update -- one token of the selective scan for many rows at once; the states are updated where they lie.
//
// What       h <- exp(dt A) h + dt B x,  y = (C . h + D x) silu(z), for each row and channel; a row's state is slot
//            indices[row] of a pool, a negative slot is padding: y = 0, no state is touched. A row whose `known` is false
//            begins from zeros: its slot is written and not read.
// Used in    ssmlab.selective_state_update; notebook 10.   Oracle: one step of ssmlab.reference.selective_scan.
//
// Mapping    LANES threads share a channel, each owns OWN states; a thread takes its channel in ROWS rows, so that A is read
//            once for them and ROWS states are on their way at the same time.
// Global     the state in and out, 2 * N * sizeof(state) a row and channel, is nearly all there is.
// Barriers   none.
// Needs      LANES, OWN (a power of two), ROWS, THREADS, WIDE (states in vectors), TABLE_WIDE (A, B and C too),
//            INDEX_INT (indices are ints), KNOWN (there is a `known`), an element, and STATE_FLOAT, STATE_DOUBLE, STATE_HALF
//            or STATE_BFLOAT16.
// compile: -default-device -DELEMENT_BFLOAT16 -DSTATE_FLOAT -DLANES=4 -DOWN=4 -DROWS=4 -DTHREADS=128 -DWIDE=1 -DTABLE_WIDE=1 -DINDEX_INT=0 -DKNOWN=0
// compile: -default-device -DELEMENT_FLOAT -DSTATE_BFLOAT16 -DLANES=2 -DOWN=8 -DROWS=1 -DTHREADS=128 -DWIDE=0 -DTABLE_WIDE=0 -DINDEX_INT=1 -DKNOWN=1
#include "selective_element.cuh"

constexpr int MANY = 1, VECTOR = 1, TABLE = 1, TILE = 4;    // what selective.cuh asks for and this kernel has no use for
#define TIME_INNER 0
#define PACKED 0
#define GATED 0
#define FIXED_B 0
#define FIXED_C 0
#include "selective.cuh"

#if defined(STATE_FLOAT)
typedef float state_element;
__device__ __forceinline__ real from_state(state_element value) { return value; }
__device__ __forceinline__ state_element to_state(real value) { return value; }
#elif defined(STATE_DOUBLE)
typedef double state_element;
__device__ __forceinline__ real from_state(state_element value) { return value; }
__device__ __forceinline__ state_element to_state(real value) { return value; }
#elif defined(STATE_HALF)
#include <cuda_fp16.h>
typedef __half state_element;
__device__ __forceinline__ real from_state(state_element value) { return __half2float(value); }
__device__ __forceinline__ state_element to_state(real value) { return __float2half_rn(value); }
#elif defined(STATE_BFLOAT16)
#include <cuda_bf16.h>
typedef __nv_bfloat16 state_element;
__device__ __forceinline__ real from_state(state_element value) { return __bfloat162float(value); }
__device__ __forceinline__ state_element to_state(real value) { return __float2bfloat16_rn(value); }
#endif

#if INDEX_INT
typedef int slot_index;
#else
typedef long long slot_index;
#endif

// A thread's states are pieces of TOGETHER neighbours, 16 bytes where OWN allows it; the pieces of the LANES threads of a
// channel take turns, so that a warp's access has no gap.
constexpr int BY_16_BYTES = 16 / (int)sizeof(state_element);
constexpr int TOGETHER = OWN < BY_16_BYTES ? OWN : BY_16_BYTES;
constexpr int PIECES = OWN / TOGETHER;
constexpr int PIECE_BYTES = TOGETHER * (int)sizeof(state_element);
__device__ __forceinline__ constexpr int state_of(int lane, int s) {
    return (s / TOGETHER * LANES + lane) * TOGETHER + s % TOGETHER;
}

struct alignas(PIECE_BYTES) States {                        // a piece, in one access
    state_element at[TOGETHER];
};
struct alignas(TOGETHER * sizeof(real) < 16 ? TOGETHER * sizeof(real) : 16) Rates {
    real at[TOGETHER];
};

extern "C" __global__ __launch_bounds__(THREADS)
void selective_update(state_element* __restrict__ state, const element* __restrict__ x, const element* __restrict__ dt,
                      const real* __restrict__ A, const element* __restrict__ B, const element* __restrict__ C,
                      const real* __restrict__ D, const element* __restrict__ z, const real* __restrict__ dt_bias,
                      const slot_index* __restrict__ indices, const bool* __restrict__ known, element* __restrict__ y,
                      long long rows, int channels, int states, int groups, int softplus_on, long long state_slot,
                      long long state_channel,
                      long long state_state, long long x_row, long long x_channel, long long dt_row, long long dt_channel,
                      long long z_row, long long z_channel, long long B_row, long long B_group, long long B_state,
                      long long C_row, long long C_group, long long C_state) {
    constexpr int CHANNELS = THREADS / LANES;
    const int columns = (channels + CHANNELS - 1) / CHANNELS;
    const int lane = threadIdx.x % LANES;
    const int channel = blockIdx.x % columns * CHANNELS + threadIdx.x / LANES;
    const long long first_row = (long long)(blockIdx.x / columns) * ROWS;
    const bool present = channel < channels;
    const int group = present ? channel / (channels / groups) : 0;

    // All loads of all rows first: a thread has ROWS states and the rest of their rows on the way at the same time.
    bool real_row[ROWS];
    States h[ROWS][PIECES];
    state_element* at[ROWS];
    Raw<TOGETHER> b_raw[ROWS][PIECES], c_raw[ROWS][PIECES];
    Raw<1> x_raw[ROWS], dt_raw[ROWS], z_raw[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const long long row = first_row + r;
        const long long slot = present && row < rows ? (indices ? indices[row] : row) : -1;
        real_row[r] = slot >= 0;
        at[r] = state + (slot >= 0 ? slot * state_slot : 0) + channel * state_channel;
        if (!real_row[r]) {
            continue;
        }
        const bool fresh = KNOWN && !known[row];
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            if (fresh) {                                    // skipped, not multiplied by 0: 0 * NaN is NaN
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    h[r][p].at[i] = to_state(real(0));
                }
            } else if (WIDE) {
                h[r][p] = *reinterpret_cast<const States*>(at[r] + state_of(lane, p * TOGETHER));
            } else {
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int n = state_of(lane, p * TOGETHER + i);
                    h[r][p].at[i] = n < states ? at[r][n * state_state] : to_state(real(0));
                }
            }
            if (TABLE_WIDE) {
                const int n = state_of(lane, p * TOGETHER);
                b_raw[r][p] = *reinterpret_cast<const Raw<TOGETHER>*>(B + row * B_row + group * B_group + n);
                c_raw[r][p] = *reinterpret_cast<const Raw<TOGETHER>*>(C + row * C_row + group * C_group + n);
            }
        }
        x_raw[r] = *reinterpret_cast<const Raw<1>*>(x + row * x_row + channel * x_channel);
        dt_raw[r] = *reinterpret_cast<const Raw<1>*>(dt + row * dt_row + channel * dt_channel);
        if (z && lane == 0) {
            z_raw[r] = *reinterpret_cast<const Raw<1>*>(z + row * z_row + channel * z_channel);
        }
    }
    real rate[OWN];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
        const real* const from = A + (long long)channel * states;
        Rates rates;
        if (TABLE_WIDE && present) {
            rates = *reinterpret_cast<const Rates*>(from + state_of(lane, p * TOGETHER));
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const int n = state_of(lane, p * TOGETHER + i);
            const real one = TABLE_WIDE ? rates.at[i] : present && n < states ? from[n] : real(0);
            rate[p * TOGETHER + i] = one * LOG2E;
        }
    }
    const real bias = present && dt_bias ? dt_bias[channel] : real(0);
    const real skip = present && D ? D[channel] : real(0);

#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const long long row = first_row + r;
        real sum = 0, value = 0;
        if (real_row[r]) {
            value = x_raw[r].of(0);
            real step = dt_raw[r].of(0) + bias;
            step = softplus_on ? softplus(step) : step;
            const real drive = step * value;
#pragma unroll
            for (int p = 0; p < PIECES; ++p) {
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int n = state_of(lane, p * TOGETHER + i);
                    if (TABLE_WIDE || n < states) {
                        const long long b_at = row * B_row + group * B_group + n * B_state;
                        const long long c_at = row * C_row + group * C_group + n * C_state;
                        const real b = TABLE_WIDE ? b_raw[r][p].of(i) : to_real(B[b_at]);
                        const real c = TABLE_WIDE ? c_raw[r][p].of(i) : to_real(C[c_at]);
                        const real next = exp_2(step * rate[p * TOGETHER + i]) * from_state(h[r][p].at[i]) + drive * b;
                        h[r][p].at[i] = to_state(next);
                        sum += c * next;
                    }
                }
                if (WIDE) {
                    *reinterpret_cast<States*>(at[r] + state_of(lane, p * TOGETHER)) = h[r][p];
                } else {
#pragma unroll
                    for (int i = 0; i < TOGETHER; ++i) {
                        const int n = state_of(lane, p * TOGETHER + i);
                        if (n < states) {
                            at[r][n * state_state] = h[r][p].at[i];
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int reach = 1; reach < LANES; reach *= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, reach);
        }
        if (lane == 0 && present && row < rows) {
            real out = 0;
            if (real_row[r]) {
                out = sum + (D ? skip * value : real(0));
                if (z) {
                    const real w = z_raw[r].of(0);
                    out *= w * sigmoid(w);
                }
            }
            y[row * channels + channel] = to_element(out);
        }
    }
}
