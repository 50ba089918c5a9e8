// selective_forward -- the whole chain in one kernel: softplus, discretise, recur, contract, skip, gate.
//
// What       y[t] = (C[t] . h[t] + D u[t]) * silu(z[t]) with h[t] = exp(delta[t] A) h[t-1] + delta[t] B[t] u[t]; the states
//            never leave the registers, except one in `chunk` steps, which the backward starts again from.
// Segments   rows that are too few to fill the machine are cut into segments that run at the same time; the state that
//            enters each comes from selective_totals and selective_link.
// Used in    ssmlab.selective_scan; notebook 06.   Oracle: ssmlab.reference.selective_scan.   Mapping: selective.cuh.
//
// Shared     TILE * CHANNELS * 3 reals (delta, delta*u, y) and TILE * WIDTH * 2 (B, C), static.
// Global     u, delta, z, B, C once in, y once out; states at chunk borders.
// Work       a state and step: 1 exponential, 3 multiplies, 2 multiply-adds; a channel and step: 4 exponentials and the like.
// Barriers   B0, B1 a tile.
// Rounding   the recurrence in the loop's order; y sums the states in a fixed order.
#include "selective.cuh"

constexpr int CHANNELS = THREADS / LANES;                   // channels of a block
constexpr int PITCH = CHANNELS + TIME_INNER;                // an odd row keeps neighbouring steps in different banks
constexpr int ITEMS = items_of<TILE, CHANNELS>();           // accesses of a thread, a tile and a tensor
constexpr int CELLS = cells_of<TILE>();                     // the same of B and C

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_forward(const element* __restrict__ u, const element* __restrict__ delta, const real* __restrict__ A,
                       const b_element* __restrict__ B, const c_element* __restrict__ C, const real* __restrict__ D,
                       const element* __restrict__ z, const real* __restrict__ delta_bias, const real* __restrict__ enter,
                       const real* __restrict__ initial, const int* __restrict__ start, const int* __restrict__ finish,
                       element* __restrict__ y, real* __restrict__ final, void* __restrict__ borders,
                       int length, int channels, int states, int groups, int softplus_on,
                       int segment_steps, int segments, int chunk,
                       long long u_batch, long long u_time, long long u_channel, long long delta_batch,
                       long long delta_time, long long delta_channel, long long z_batch, long long z_time,
                       long long z_channel, long long y_batch, long long y_time, long long y_channel,
                       long long B_batch, long long B_time, long long B_group, long long B_state,
                       long long C_batch, long long C_time, long long C_group, long long C_state) {
    __shared__ Two drive[TILE * PITCH];                     // (delta, delta * u) of a step and channel
    __shared__ real summed[TILE * PITCH];                   // C . h of a step and channel
    __shared__ alignas(16) real tables[2 * TILE * WIDTH];   // B, then C
    __shared__ alignas(16) real bias[CHANNELS + ABREAST];
    __shared__ alignas(16) real skip[CHANNELS + ABREAST];
    __shared__ int starts[TILE];
    __shared__ int finishes[TILE];

    const Place place = place_of(blockIdx.x, channels, groups, CHANNELS, segments);
    const int lane = threadIdx.x % LANES;                   // which of the channel's threads
    const int mine = threadIdx.x / LANES;                   // channel inside the block
    const bool present = mine < place.count;
    const long long channel = place.first + mine;
    const int from = (int)(place.segment * segment_steps);  // this block's steps: from ... to - 1
    const int to = segment_steps < length - from ? from + segment_steps : length;

    const Strides u_at = {u_batch, u_time, u_channel}, delta_at = {delta_batch, delta_time, delta_channel};
    const Strides z_at = {z_batch, z_time, z_channel}, y_at = {y_batch, y_time, y_channel};
    const element* u_tile = u + place.batch * u_batch + place.first * u_channel + from * u_time;        // of the next tile
    const element* delta_tile = delta + place.batch * delta_batch + place.first * delta_channel + from * delta_time;
    const element* z_tile = z ? z + place.batch * z_batch + place.first * z_channel + from * z_time : nullptr;
    element* y_tile = y + place.batch * y_batch + place.first * y_channel + from * y_time;
    Table b_at = {nullptr, 0, 0}, c_at = {nullptr, 0, 0};
#if !FIXED_B
    b_at = {B + place.batch * B_batch + place.group * B_group + from * B_time, B_time, B_state};
#endif
#if !FIXED_C
    c_at = {C + place.batch * C_batch + place.group * C_group + from * C_time, C_time, C_state};
#endif
    Cell cells[CELLS];
#pragma unroll
    for (int i = 0; i < CELLS; ++i) {
        cells[i] = cell_of<TILE>(b_at, c_at, i, states);
    }

    for (int c = threadIdx.x; c < CHANNELS + ABREAST; c += THREADS) {
        bias[c] = delta_bias && c < place.count ? delta_bias[place.first + c] : real(0);
        skip[c] = D && c < place.count ? D[place.first + c] : real(0);
    }
    real rate[OWN], h[OWN], b_own[OWN], c_own[OWN];         // A log2(e), state, and a fixed B and C
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        const int n = lane * OWN + s;
        const bool real_state = present && n < states;
        rate[s] = real_state ? A[channel * states + n] * LOG2E : real(0);
        h[s] = real_state && enter ? enter[((place.batch * segments + place.segment) * channels + channel) * states + n] : real(0);
        b_own[s] = FIXED_B && real_state ? (real)B[channel * B_group + n * B_state] : real(0);
        c_own[s] = FIXED_C && real_state ? (real)C[channel * C_group + n * C_state] : real(0);
    }

    Pack<VECTOR> u_next[ITEMS], delta_next[ITEMS], z_next[ITEMS];
    Pack<TABLE> table_next[CELLS];
    auto load = [&](int first) {                            // raw words of the tile at `first`; the tiles are asked for in turn
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spot_of<TILE, CHANNELS>(i);
            u_next[i] = load_pack(u_tile, u_at, spot, to - first, place.count);
            delta_next[i] = load_pack(delta_tile, delta_at, spot, to - first, place.count);
            if (z_tile) {
                z_next[i] = load_pack(z_tile, z_at, spot, to - first, place.count);
            }
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            table_next[i] = load_cell(cells[i], 0, to - first);
            cells[i].from += cells[i].from ? TILE * (cells[i].place < TILE * WIDTH ? B_time : C_time) : 0;
        }
        u_tile += TILE * u_time;
        delta_tile += TILE * delta_time;
        z_tile += z_tile ? TILE * z_time : 0;
    };
    int to_border_steps = 0;                                // steps to the next state that is saved
    long long next_border = chunk ? from / chunk : 0;
    const long long chunks = chunk ? (length + chunk - 1) / chunk : 0;
    if (from < to) {
        load(from);
    }
    for (int first = from; first < to; first += TILE) {
        const int steps = to - first;                       // that exist; behind them delta is 0 and nothing changes
        if (PACKED || first == from) {
            for (int t = threadIdx.x; PACKED && t < TILE; t += THREADS) {
                starts[t] = t < steps ? start[place.batch * length + first + t] : PADDING;
                finishes[t] = t < steps ? finish[place.batch * length + first + t] : -1;
            }
            __syncthreads();                                // BP: marks, bias and skip are written before anyone reads them
        }

        Pack<VECTOR> u_now[ITEMS], z_now[ITEMS];            // kept for the skip and the gate
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spot_of<TILE, CHANNELS>(i);
            u_now[i] = u_next[i];
            z_now[i] = z_next[i];
            if (spot.mine) {
                const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) {
                    const int t = step_of(spot, v), c = channel_of(spot, v);
                    const real raw = to_real(delta_next[i].at[v]) + offset.of(v);
                    const bool counts = t < steps && !(PACKED && starts[t] == PADDING);
                    const real step = softplus_on ? softplus(raw) : raw;
                    const Two pair = {counts ? step : real(0), counts ? step * to_real(u_now[i].at[v]) : real(0)};
                    if (c < CHANNELS) {
                        drive[t * PITCH + c] = pair;
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            stage_cell(tables, cells[i], table_next[i], !(PACKED && starts[cells[i].t] == PADDING));
        }
        __syncthreads();                                    // B0: the tile is staged; the last tile's y has been read
        if (first + TILE < to) {
            load(first + TILE);
        }
        if (!EVERY && borders && present && to_border_steps == 0) {
            const long long at = ((place.batch * chunks + next_border++) * channels + channel) * states;
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                if (lane * OWN + s < states) {
                    reinterpret_cast<border*>(borders)[at + lane * OWN + s] = to_border(h[s]);
                }
            }
        }
        to_border_steps = (to_border_steps == 0 ? chunk : to_border_steps) - TILE;
#pragma unroll 1
        for (int quad = 0; quad < TILE; quad += FOUR) {
            real sums[FOUR];
#pragma unroll
            for (int k = 0; k < FOUR; ++k) {
                const int t = quad + k;
                if (PACKED && starts[t] >= FROM_ZERO) {     // a new sequence: the old state is dropped, not multiplied by 0
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        const int n = lane * OWN + s;
                        h[s] = initial && starts[t] >= 0 && present && n < states
                                   ? initial[((long long)starts[t] * channels + channel) * states + n] : real(0);
                    }
                }
                const Two pair = drive[t * PITCH + mine];
                const Owned b = *reinterpret_cast<const Owned*>(tables + t * WIDTH + lane * OWN);
                const Owned c = *reinterpret_cast<const Owned*>(tables + (TILE + t) * WIDTH + lane * OWN);
                real sum = 0;
#pragma unroll
                for (int s = 0; s < OWN; ++s) {
                    h[s] = exp_2(pair.x * rate[s]) * h[s] + pair.y * (FIXED_B ? b_own[s] : b.at[s]);
                    sum += (FIXED_C ? c_own[s] : c.at[s]) * h[s];
                }
                sums[k] = sum;
                if (PACKED && finishes[t] >= 0 && final && present) {
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        if (lane * OWN + s < states) {
                            final[((long long)finishes[t] * channels + channel) * states + lane * OWN + s] = h[s];
                        }
                    }
                }
                if (EVERY && borders && present && t < steps) {     // save="all": each state goes to memory
                    const long long at = ((place.batch * length + first + t) * channels + channel) * states;
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        if (lane * OWN + s < states) {
                            reinterpret_cast<border*>(borders)[at + lane * OWN + s] = to_border(h[s]);
                        }
                    }
                }
            }
            sum_lanes(sums, lane);
#pragma unroll
            for (int i = 0; i < SUMS_LEFT; ++i) {
                if (lane < FOUR) {
                    summed[(quad + summed_step(lane, i)) * PITCH + mine] = sums[i];
                }
            }
        }
        __syncthreads();                                    // B1: y is complete; delta, B and C have been read
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spot_of<TILE, CHANNELS>(i);
            const Abreast weight = *reinterpret_cast<const Abreast*>(skip + (spot.mine ? spot.c : 0));
            Pack<VECTOR> out;
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) {
                const int t = step_of(spot, v), c = channel_of(spot, v);
                real value = 0;
                if (spot.mine && c < CHANNELS && !(PACKED && starts[t] == PADDING)) {
                    value = summed[t * PITCH + c] + (D ? weight.of(v) * to_real(u_now[i].at[v]) : real(0));
                    if (z) {
                        const real w = to_real(z_now[i].at[v]);
                        value *= w * sigmoid(w);
                    }
                }
                out.at[v] = to_element(value);
            }
            store_pack(y_tile, y_at, spot, steps, place.count, out);
        }
        y_tile += TILE * y_time;
        if (PACKED) {
            __syncthreads();                                // B2: the marks have been read before the next tile's are written
        }
    }
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        const int n = lane * OWN + s;
        if (!PACKED && final && present && n < states && place.segment == segments - 1) {
            final[(place.batch * channels + channel) * states + n] = h[s];
        }
    }
}
