// selective_totals -- what a segment of a row does to whatever enters it: out = product * in + total.
//
// ADJOINT    0: the state, from left to right:   h -> a h + delta u B
//            1: its gradient, from right to left: x -> a (x + C dy), with dy = dout silu(z)
// First of two passes for rows that are too few to fill the machine: all segments run at the same time, then selective_link
// walks through their totals. The product of a segment's decays is one exponential: exp(A sum delta).
// Used in    ssmlab.selective_scan; notebooks 05, 06.   Mapping: selective.cuh.
//
// Shared     TILE * CHANNELS * 2 reals and TILE * WIDTH * 2, static.
// Work       a state and step: 1 exponential, 2 multiplies, 1 multiply-add. It costs the exponentials a second time.
// Barriers   B0, B1 a tile.
#include "selective.cuh"

constexpr int CHANNELS = THREADS / LANES;
constexpr int PITCH = CHANNELS + TIME_INNER;
constexpr int ITEMS = items_of<TILE, CHANNELS>();
constexpr int CELLS = cells_of<TILE>();

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_totals(const element* __restrict__ input, const element* __restrict__ delta, const real* __restrict__ A,
                      const b_element* __restrict__ B, const c_element* __restrict__ C, const element* __restrict__ z,
                      const real* __restrict__ delta_bias, const real* __restrict__ initial, const int* __restrict__ start,
                      const int* __restrict__ finish, const real* __restrict__ d_final, real* __restrict__ product,
                      real* __restrict__ total, int length, int channels, int states, int groups, int softplus_on,
                      int segment_steps, int segments,
                      long long input_batch, long long input_time, long long input_channel, long long delta_batch,
                      long long delta_time, long long delta_channel, long long z_batch, long long z_time,
                      long long z_channel, long long B_batch, long long B_time, long long B_group, long long B_state,
                      long long C_batch, long long C_time, long long C_group, long long C_state) {
    __shared__ Two drive[TILE * PITCH];                     // (delta, delta * u), or (delta, dy)
    __shared__ alignas(16) real tables[2 * TILE * WIDTH];   // B, or C behind it
    __shared__ alignas(16) real bias[CHANNELS + ABREAST];
    __shared__ int starts[TILE];
    __shared__ int finishes[TILE];

    const Place place = place_of(blockIdx.x, channels, groups, CHANNELS, segments);
    const int lane = threadIdx.x % LANES;
    const int mine = threadIdx.x / LANES;
    const bool present = mine < place.count;
    const long long channel = place.first + mine;
    const int from = (int)(place.segment * segment_steps);
    const int to = segment_steps < length - from ? from + segment_steps : length;

    const Strides input_at = {input_batch, input_time, input_channel};
    const Strides delta_at = {delta_batch, delta_time, delta_channel}, z_at = {z_batch, z_time, z_channel};
    input += place.batch * input_batch + place.first * input_channel;
    delta += place.batch * delta_batch + place.first * delta_channel;
    z = ADJOINT && z ? z + place.batch * z_batch + place.first * z_channel : nullptr;
    Table b_at = {nullptr, 0, 0}, c_at = {nullptr, 0, 0};
#if !FIXED_B && !ADJOINT
    b_at = {B + place.batch * B_batch + place.group * B_group, B_time, B_state};
#endif
#if !FIXED_C && ADJOINT
    c_at = {C + place.batch * C_batch + place.group * C_group, C_time, C_state};
#endif
    constexpr bool FIXED = ADJOINT ? FIXED_C : FIXED_B;

    for (int c = threadIdx.x; c < CHANNELS + ABREAST; c += THREADS) {
        bias[c] = delta_bias && c < place.count ? delta_bias[place.first + c] : real(0);
    }
    real rate[OWN], h[OWN], own[OWN];
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        const int n = lane * OWN + s;
        const bool mine_too = present && n < states;
        rate[s] = mine_too ? A[channel * states + n] * LOG2E : real(0);
        h[s] = own[s] = 0;
        if (FIXED && mine_too) {
            own[s] = ADJOINT ? (real)C[channel * C_group + n * C_state] : (real)B[channel * B_group + n * B_state];
        }
    }
    real elapsed = 0;                                       // sum of delta
    bool cut = false;                                       // a sequence starts inside: nothing passes through

    const int tiles = from < to ? (to - from + TILE - 1) / TILE : 0;
    for (int turn = 0; turn < tiles; ++turn) {
        const int first = from + (ADJOINT ? tiles - 1 - turn : turn) * TILE;
        const int steps = to - first;                       // that exist
        for (int t = threadIdx.x; PACKED && t < TILE; t += THREADS) {
            starts[t] = t < steps ? start[place.batch * length + first + t] : PADDING;
            finishes[t] = t < steps ? finish[place.batch * length + first + t] : -1;
        }
        if (PACKED || turn == 0) {
            __syncthreads();                                // BP: marks and bias are there
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spot_of<TILE, CHANNELS>(i);
            const Pack<VECTOR> input_raw = load_pack(input + first * input_time, input_at, spot, steps, place.count);
            const Pack<VECTOR> delta_raw = load_pack(delta + first * delta_time, delta_at, spot, steps, place.count);
            Pack<VECTOR> z_raw = input_raw;
            if (z) {
                z_raw = load_pack(z + first * z_time, z_at, spot, steps, place.count);
            }
            if (spot.mine) {
                const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) {
                    const int t = step_of(spot, v), c = channel_of(spot, v);
                    const bool counts = t < steps && !(PACKED && starts[t] == PADDING);
                    const real raw = to_real(delta_raw.at[v]) + offset.of(v);
                    const real step = softplus_on ? softplus(raw) : raw;
                    const real w = to_real(z_raw.at[v]);
                    const real gain = ADJOINT ? (z ? w * sigmoid(w) : real(1)) : step;
                    const Two pair = {counts ? step : real(0), counts ? gain * to_real(input_raw.at[v]) : real(0)};
                    if (c < CHANNELS) {
                        drive[t * PITCH + c] = pair;
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            const Cell cell = cell_of<TILE>(b_at, c_at, i, states);
            stage_cell(tables, cell, load_cell(cell, first * (ADJOINT ? C_time : B_time), steps),
                       !(PACKED && starts[cell.t] == PADDING));
        }
        __syncthreads();                                    // B0: the tile is staged
#pragma unroll 4
        for (int k = 0; k < TILE; ++k) {
            const int t = ADJOINT ? TILE - 1 - k : k;
            const Two pair = drive[t * PITCH + mine];
            const Owned now = *reinterpret_cast<const Owned*>(tables + ((ADJOINT ? TILE : 0) + t) * WIDTH + lane * OWN);
            const bool starting = PACKED && starts[t] >= FROM_ZERO;
            elapsed += pair.x;
            cut = cut || starting;
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                const int n = lane * OWN + s;
                const real factor = FIXED ? own[s] : now.at[s];
                if (ADJOINT) {
                    if (PACKED && finishes[t] >= 0 && d_final && present && n < states) {
                        h[s] += d_final[((long long)finishes[t] * channels + channel) * states + n];
                    }
                    h[s] = starting ? real(0) : exp_2(pair.x * rate[s]) * (h[s] + pair.y * factor);
                } else {
                    if (starting) {
                        h[s] = initial && starts[t] >= 0 && present && n < states
                                   ? initial[((long long)starts[t] * channels + channel) * states + n] : real(0);
                    }
                    h[s] = exp_2(pair.x * rate[s]) * h[s] + pair.y * factor;
                }
            }
        }
        __syncthreads();                                    // B1: the tile has been read
    }
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        const int n = lane * OWN + s;
        if (present && n < states) {
            const long long at = ((place.batch * segments + place.segment) * channels + channel) * states + n;
            product[at] = cut ? real(0) : exp_2(elapsed * rate[s]);
            total[at] = h[s];
        }
    }
}
