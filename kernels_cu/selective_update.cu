// selective_update -- one token of the selective scan for many rows at once; the states are updated where they lie.
//
// What       h <- exp(dt A) h + dt B x,  y = (C . h + D x) silu(z), for each row and channel; a row's state is slot
//            indices[row] of a pool, a negative slot is padding: y = 0, no state is touched. A row whose `known` is false
//            begins from zeros: its slot is written and not read.
// Used in    ssmlab.selective_state_update.   Oracle: one step of ssmlab.reference.selective_scan.
//
// Mapping    a block takes CHANNELS channels of one row. LANES threads share MANY channels, and each owns OWN states of every
//            one of them; what there is one of for a channel (x, dt, z, y, softplus, the gate) is the affair of one thread,
//            which tells the others. So a warp reads and writes 32 * 16 bytes that lie side by side, MANY times.
// Global     the state in and out, 2 * N * sizeof(state) a row and channel, is nearly all there is. A is read anew by each
//            row, from the L2 cache.
// Time       with many rows, DRAM; with few, the latency of one load, or of two where there are slots: so all loads are
//            sent before the first is waited for, and there is no division in front of them unless there are groups.
// Barriers   none.
// Needs      LANES, OWN and MANY (powers of two, MANY up to LANES), THREADS, WIDE (states lie dense in a slot, x, dt and z
//            along the channels), TABLE_WIDE (A, B and C in vectors), GATED (there is a z), GROUPED (there are groups),
//            SLOTS (bytes of an index; 0: row i has slot i), KNOWN (there is a `known`), an element, and STATE_FLOAT,
//            STATE_DOUBLE, STATE_HALF or STATE_BFLOAT16.
// Grid       x: the columns of blocks of all groups; y and z: the rows.
// compile: -default-device -DELEMENT_BFLOAT16 -DSTATE_FLOAT -DLANES=4 -DOWN=4 -DMANY=4 -DTHREADS=64 -DWIDE=1 -DTABLE_WIDE=1 -DGATED=1 -DGROUPED=0 -DSLOTS=0 -DKNOWN=0
// compile: -default-device -DELEMENT_FLOAT -DSTATE_BFLOAT16 -DLANES=2 -DOWN=8 -DMANY=2 -DTHREADS=128 -DWIDE=0 -DTABLE_WIDE=0 -DGATED=0 -DGROUPED=1 -DSLOTS=4 -DKNOWN=1
#include "selective_element.cuh"

constexpr int VECTOR = 1, TABLE = 1, TILE = 4;              // what selective.cuh asks for and this kernel has no use for
#define TIME_INNER 0
#define PACKED 0
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

#if SLOTS == 4
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

constexpr int ACROSS = 32 / LANES;                          // channels side by side in an access of a warp
constexpr int CHANNELS = THREADS / LANES * MANY;            // of a block
static_assert(MANY >= 1 && MANY <= LANES && (MANY & (MANY - 1)) == 0, "MANY: a power of two up to LANES");

// Sums of MANY values over the LANES threads of a channel. Each exchange halves what a thread still holds; afterwards
// value[0] of a lane is sum number lane % MANY.
__device__ __forceinline__ void sum_many(real value[MANY], int lane) {
#pragma unroll
    for (int reach = 1; reach < LANES; reach *= 2) {
        if (reach < MANY) {
            const bool odd = lane & reach;
#pragma unroll
            for (int i = 0; i < MANY / (2 * reach); ++i) {
                const real send = odd ? value[2 * i] : value[2 * i + 1];
                const real keep = odd ? value[2 * i + 1] : value[2 * i];
                value[i] = keep + __shfl_xor_sync(0xffffffffu, send, reach);
            }
        } else {
            value[0] += __shfl_xor_sync(0xffffffffu, value[0], reach);
        }
    }
}

// What the owner of channel m of the LANES threads knows.
__device__ __forceinline__ real told_by(int m, real value) {
    return MANY == 1 ? value : __shfl_sync(0xffffffffu, value, m, LANES);
}

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
    const int in_group = GROUPED ? channels / groups : channels;
    const int columns = (in_group + CHANNELS - 1) / CHANNELS;
    const int group = GROUPED ? (int)blockIdx.x / columns : 0;
    const int lane = threadIdx.x % LANES;
    const int inside = ((int)blockIdx.x - group * columns) * CHANNELS + (int)threadIdx.x / 32 * (ACROSS * MANY)
                     + (int)threadIdx.x % 32 / LANES;       // place in the group of the first of MANY channels
    const int first = group * in_group + inside;            // that channel; the others are ACROSS apart
    const bool exists = inside + lane % MANY * ACROSS < in_group;
    const int mine = exists ? first + lane % MANY * ACROSS : channels - 1;    // whose x, dt, z and y are this thread's
    const long long place = (long long)blockIdx.z * gridDim.y + blockIdx.y;
    const long long row = place < rows ? place : rows - 1;

    // Loads come first, and none waits for another but for its slot. Where a row or channel is missing, what belongs to
    // the last one is read once more, so that no branch lies between them; only states are left alone.
    real rate[MANY][OWN];
    bool there[MANY];
#pragma unroll
    for (int m = 0; m < MANY; ++m) {
        there[m] = inside + m * ACROSS < in_group;
        const real* const from = A + (long long)(first + m * ACROSS) * (TABLE_WIDE ? LANES * OWN : states);
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            Rates rates;
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int n = state_of(lane, p * TOGETHER + i);
                rates.at[i] = !TABLE_WIDE && there[m] && n < states ? from[n] : real(0);
            }
            if (TABLE_WIDE && there[m]) {
                rates = *reinterpret_cast<const Rates*>(from + state_of(lane, p * TOGETHER));
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                rate[m][p * TOGETHER + i] = rates.at[i] * LOG2E;
            }
        }
    }
    const real bias = dt_bias ? dt_bias[mine] : real(0);
    const real skip = D ? D[mine] : real(0);
    const long long slot = SLOTS ? indices[row] : row;
    const bool real_row = slot >= 0 && place < rows;
    const bool fresh = KNOWN && !known[row];                // begins from zeros, not from a product with 0: 0 * NaN is NaN
    const long long channel_step = WIDE ? LANES * OWN : state_channel;
    state_element* const at = state + (slot >= 0 ? slot * state_slot : 0) + first * channel_step;
    States h[MANY][PIECES];
#pragma unroll
    for (int m = 0; m < MANY; ++m) {
        const state_element* const from = at + m * ACROSS * channel_step;
        const bool read = real_row && there[m] && !fresh;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int n = state_of(lane, p * TOGETHER + i);
                h[m][p].at[i] = !WIDE && read && n < states ? from[n * state_state] : to_state(real(0));
            }
            if (WIDE && read) {
                h[m][p] = *reinterpret_cast<const States*>(from + state_of(lane, p * TOGETHER));
            }
        }
    }
    const element* const b_row = B + row * B_row + group * B_group;
    const element* const c_row = C + row * C_row + group * C_group;
    Raw<TOGETHER> b_raw[PIECES], c_raw[PIECES];
    if (TABLE_WIDE) {
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
            b_raw[p] = *reinterpret_cast<const Raw<TOGETHER>*>(b_row + state_of(lane, p * TOGETHER));
            c_raw[p] = *reinterpret_cast<const Raw<TOGETHER>*>(c_row + state_of(lane, p * TOGETHER));
        }
    }
    Raw<1> x_raw, dt_raw, z_raw;
    x_raw = *reinterpret_cast<const Raw<1>*>(x + row * x_row + mine * (WIDE ? 1 : x_channel));
    dt_raw = *reinterpret_cast<const Raw<1>*>(dt + row * dt_row + mine * (WIDE ? 1 : dt_channel));
    if (GATED) {
        z_raw = *reinterpret_cast<const Raw<1>*>(z + row * z_row + mine * (WIDE ? 1 : z_channel));
    }

    const real value = x_raw.of(0);
    real step = dt_raw.of(0) + bias;
    step = softplus_on ? softplus(step) : step;
    const real drive = step * value;
    real sum[MANY];
#pragma unroll
    for (int m = 0; m < MANY; ++m) {
        const real step_m = told_by(m, step), drive_m = told_by(m, drive);
        state_element* const to = at + m * ACROSS * channel_step;
        const bool write = real_row && there[m];
        sum[m] = 0;
#pragma unroll
        for (int p = 0; p < PIECES; ++p) {
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const int n = state_of(lane, p * TOGETHER + i);
                if (TABLE_WIDE || n < states) {
                    const real b = TABLE_WIDE ? b_raw[p].of(i) : to_real(b_row[n * B_state]);
                    const real c = TABLE_WIDE ? c_raw[p].of(i) : to_real(c_row[n * C_state]);
                    const real decay = exp_2(step_m * rate[m][p * TOGETHER + i]);
                    const real next = decay * from_state(h[m][p].at[i]) + drive_m * b;
                    h[m][p].at[i] = to_state(next);
                    sum[m] += c * next;
                    if (!WIDE && write) {
                        to[n * state_state] = h[m][p].at[i];
                    }
                }
            }
            if (WIDE && write) {
                *reinterpret_cast<States*>(to + state_of(lane, p * TOGETHER)) = h[m][p];
            }
        }
    }
    sum_many(sum, lane);
    real out = sum[0] + (D ? skip * value : real(0));
    if (GATED) {
        const real w = z_raw.of(0);
        out *= w * sigmoid(w);
    }
    if (lane < MANY && exists && place < rows) {
        y[row * channels + mine] = to_element(real_row ? out : real(0));
    }
}
