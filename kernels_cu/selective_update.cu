// selective_update -- one token of the selective scan for many rows at once; the states are updated where they lie.
//
// What       h <- exp(dt A) h + dt B x,  y = (C . h + D x) silu(z), for each row and channel; a row's state is slot
//            indices[row] of a pool, a negative slot is padding: y = 0, no state is touched.
// Used in    ssmlab.selective_state_update; notebook 10.   Oracle: one step of ssmlab.reference.selective_scan.
//
// Mapping    LANES threads share a channel, each owns OWN states; a thread takes its channel in ROWS rows, so that A is read
//            once for them and ROWS states are on their way at the same time.
// Global     the state in and out, 2 * N * sizeof(state) a row and channel, is nearly all there is.
// Barriers   none.
// Needs      LANES, OWN, ROWS, THREADS, WIDE (states in vectors), TABLE_WIDE (B and C too), an element, and STATE_FLOAT,
//            STATE_DOUBLE, STATE_HALF or STATE_BFLOAT16.
// compile: -default-device -DELEMENT_BFLOAT16 -DSTATE_FLOAT -DLANES=4 -DOWN=4 -DROWS=4 -DTHREADS=128 -DWIDE=1 -DTABLE_WIDE=1
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

// OWN neighbouring states in as wide accesses as they allow (WIDE 1: the launcher has looked at strides and addresses).
constexpr int OWNED_BYTES = OWN * sizeof(state_element);
constexpr int ALIGNED = WIDE ? (OWNED_BYTES % 16 == 0 ? 16 : OWNED_BYTES) : (int)sizeof(state_element);
struct alignas(ALIGNED) StatePack {
    state_element at[OWN];
};

extern "C" __global__ __launch_bounds__(THREADS)
void selective_update(state_element* __restrict__ state, const element* __restrict__ x, const element* __restrict__ dt,
                      const real* __restrict__ A, const element* __restrict__ B, const element* __restrict__ C,
                      const real* __restrict__ D, const element* __restrict__ z, const real* __restrict__ dt_bias,
                      const long long* __restrict__ indices, element* __restrict__ y, long long rows, int channels,
                      int states, int groups, int softplus_on, long long state_slot, long long state_channel,
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
    StatePack packs[ROWS];
    state_element* at[ROWS];
    Raw<OWN> b_raw[ROWS], c_raw[ROWS];
    Raw<1> x_raw[ROWS], dt_raw[ROWS], z_raw[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const long long row = first_row + r;
        const long long slot = present && row < rows ? (indices ? indices[row] : row) : -1;
        real_row[r] = slot >= 0;
        at[r] = state + (slot >= 0 ? slot * state_slot : 0) + channel * state_channel + lane * OWN * state_state;
        if (!real_row[r]) {
            continue;
        }
        if (WIDE) {
            packs[r] = *reinterpret_cast<const StatePack*>(at[r]);
        } else {
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                packs[r].at[s] = lane * OWN + s < states ? at[r][s * state_state] : to_state(real(0));
            }
        }
        const element* const b_from = B + row * B_row + group * B_group + lane * OWN * B_state;
        const element* const c_from = C + row * C_row + group * C_group + lane * OWN * C_state;
        if (TABLE_WIDE) {
            b_raw[r] = *reinterpret_cast<const Raw<OWN>*>(b_from);
            c_raw[r] = *reinterpret_cast<const Raw<OWN>*>(c_from);
        }
        x_raw[r] = *reinterpret_cast<const Raw<1>*>(x + row * x_row + channel * x_channel);
        dt_raw[r] = *reinterpret_cast<const Raw<1>*>(dt + row * dt_row + channel * dt_channel);
        if (z && lane == 0) {
            z_raw[r] = *reinterpret_cast<const Raw<1>*>(z + row * z_row + channel * z_channel);
        }
    }
    real rate[OWN];
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        rate[s] = present && lane * OWN + s < states ? A[(long long)channel * states + lane * OWN + s] * LOG2E : real(0);
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
            for (int s = 0; s < OWN; ++s) {
                const int n = lane * OWN + s;
                if (TABLE_WIDE || n < states) {
                    const real b = TABLE_WIDE ? b_raw[r].of(s) : to_real(B[row * B_row + group * B_group + n * B_state]);
                    const real c = TABLE_WIDE ? c_raw[r].of(s) : to_real(C[row * C_row + group * C_group + n * C_state]);
                    const real h = exp_2(step * rate[s]) * from_state(packs[r].at[s]) + drive * b;
                    packs[r].at[s] = to_state(h);
                    sum += c * h;
                }
            }
            if (WIDE) {
                *reinterpret_cast<StatePack*>(at[r]) = packs[r];
            } else {
#pragma unroll
                for (int s = 0; s < OWN; ++s) {
                    if (lane * OWN + s < states) {
                        at[r][s * state_state] = packs[r].at[s];
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
