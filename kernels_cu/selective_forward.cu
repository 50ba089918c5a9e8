// selective_forward -- the whole chain in one kernel: softplus, discretise, recur, contract, skip, gate.
//
// What       y[t] = (C[t] . h[t] + D u[t]) * silu(z[t]) with h[t] = exp(delta[t] A) h[t-1] + delta[t] B[t] u[t]; the states
//            never leave the registers, except one in `chunk` steps, which the backward starts again from.
// Segments   rows that are too few to fill the machine are cut into segments that run at the same time; the state that
//            enters each comes from selective_totals and selective_link.
// Used in    ssmlab.selective_scan; notebook 06.   Oracle: ssmlab.reference.selective_scan.   Mapping: selective.cuh.
//
// Shared     TILE * CHANNELS * 3 reals (delta, delta*u, y) and TILE * WIDTH * 2 (B, C), static.
// Global     u, delta, z, B, C once in, y once out; states at chunk borders. The next tile is on its way meanwhile.
// Work       a state and step: 1 exponential, 2 multiplies, 2 multiply-adds; a channel and step: 2 exponentials, 1 reciprocal.
// Barriers   B0, B1 a tile.
// Rounding   the recurrence in the loop's order; y sums the states in a fixed order.
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_BFLOAT16 -DVECTOR=4 -DTABLE=4 -DTIME_INNER=0 -DPACKED=0 -DGATED=1 -DFIXED_B=0 -DFIXED_C=0 -DLANES=4 -DOWN=4 -DMANY=2 -DTHREADS=128 -DTILE=16 -DRESIDENT=4 -DUNROLL=1 -DEVERY=0
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_DOUBLE -DVECTOR=1 -DTABLE=1 -DTIME_INNER=1 -DPACKED=1 -DGATED=0 -DFIXED_B=1 -DFIXED_C=0 -DLANES=1 -DOWN=3 -DMANY=1 -DTHREADS=64 -DTILE=16 -DRESIDENT=1 -DUNROLL=1 -DEVERY=1
#include "selective.cuh"

constexpr int CHANNELS = THREADS / LANES * MANY;            // channels of a block
constexpr int PITCH = CHANNELS + TIME_INNER * MANY;         // keeps neighbouring steps of one channel in different banks
constexpr int ITEMS = items_of<TILE, CHANNELS>();           // accesses of a thread, a tile and a tensor
constexpr int CELLS = cells_of<TILE>();                     // the same of B and C
constexpr int AT_ONCE = UNROLL;                             // fours of steps that the compiler may interleave

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_forward(const element* __restrict__ u, const element* __restrict__ delta, const real* __restrict__ A,
                       const b_element* __restrict__ B, const c_element* __restrict__ C, const real* __restrict__ D,
                       const element* __restrict__ z, const real* __restrict__ delta_bias, const real* __restrict__ enter,
                       const real* __restrict__ initial, const int* __restrict__ start, const int* __restrict__ finish,
                       element* __restrict__ y, real* __restrict__ final, void* __restrict__ borders,
                       int length, int channels, int states, int groups, int softplus_on, int segment_steps, int segments,
                       int chunk,
                       long long u_batch, long long u_time, long long u_channel, long long delta_batch,
                       long long delta_time, long long delta_channel, long long z_batch, long long z_time,
                       long long z_channel, long long y_batch, long long y_time, long long y_channel,
                       long long B_batch, long long B_time, long long B_group, long long B_state,
                       long long C_batch, long long C_time, long long C_group, long long C_state) {
    __shared__ alignas(16) Two drive[TILE * PITCH];         // (delta, delta * u) of a step and channel
    __shared__ alignas(16) real summed[TILE * PITCH];       // C . h of a step and channel
    __shared__ alignas(16) real tables[2 * TILE * WIDTH];   // B, then C
    __shared__ alignas(16) real bias[CHANNELS + ABREAST];
    __shared__ alignas(16) real skip[CHANNELS + ABREAST];
    __shared__ int starts[TILE];
    __shared__ int finishes[TILE];

    const Place place = place_of(blockIdx.x, channels, groups, CHANNELS, segments);
    const int lane = threadIdx.x % LANES;                   // which of the channel's threads
    const int mine = threadIdx.x / LANES * MANY;            // first channel inside the block
    const int from = place.segment * segment_steps;         // this block's steps: from ... to - 1
    const int to = segment_steps < length - from ? from + segment_steps : length;

    // Where each access starts; all of them move on by a tile at a time.
    const element *u_from[ITEMS], *delta_from[ITEMS], *z_from[ITEMS];
    element* y_to[ITEMS];
    Spot spots[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        spots[i] = spot_of<TILE, CHANNELS>(i);
        u_from[i] = u + Strides{u_batch, u_time, u_channel}.of(place, from, spots[i]);
        delta_from[i] = delta + Strides{delta_batch, delta_time, delta_channel}.of(place, from, spots[i]);
        z_from[i] = GATED ? z + Strides{z_batch, z_time, z_channel}.of(place, from, spots[i]) : nullptr;
        y_to[i] = y + Strides{y_batch, y_time, y_channel}.of(place, from, spots[i]);
    }
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

    // A place for a state: channel j of the thread's, state s of its own. Behind the last state or channel nothing is real.
    auto exists = [&](int j, int s) { return mine + j < place.count && lane * OWN + s < states; };
    auto state_at = [&](long long row, int j, int s) {
        return (row * channels + place.first + mine + j) * states + lane * OWN + s;
    };
    real rate[MANY][OWN], h[MANY][OWN], b_own[MANY][OWN], c_own[MANY][OWN];     // A log2(e), state, and a fixed B and C
#pragma unroll
    for (int j = 0; j < MANY; ++j) {
#pragma unroll
        for (int s = 0; s < OWN; ++s) {
            const long long weight = (place.first + mine + j) * B_group + (lane * OWN + s) * B_state;
            const long long other = (place.first + mine + j) * C_group + (lane * OWN + s) * C_state;
            rate[j][s] = exists(j, s) ? A[state_at(0, j, s)] * LOG2E : real(0);
            h[j][s] = exists(j, s) && enter ? enter[state_at(place.batch * segments + place.segment, j, s)] : real(0);
            b_own[j][s] = FIXED_B && exists(j, s) ? (real)B[weight] : real(0);
            c_own[j][s] = FIXED_C && exists(j, s) ? (real)C[other] : real(0);
        }
    }
    auto save = [&](long long row) {
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            Owned value;
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                value.at[s] = h[j][s];
            }
            write_borders(borders, state_at(row, j, 0), lane * OWN, states, mine + j < place.count, value);
        }
    };

    Raw<VECTOR> u_raw[ITEMS], delta_raw[ITEMS], z_raw[ITEMS];
    Raw<TABLE> table_raw[CELLS];
    auto load = [&](auto whole, int first) {                // the raw words of the tile at `first`
        constexpr bool WHOLE = decltype(whole)::value;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            u_raw[i] = load_pack<WHOLE>(u_from[i], spots[i], to - first, place.count);
            delta_raw[i] = load_pack<WHOLE>(delta_from[i], spots[i], to - first, place.count);
            if (GATED) {
                z_raw[i] = load_pack<WHOLE>(z_from[i], spots[i], to - first, place.count);
                z_from[i] += TILE * z_time;
            }
            u_from[i] += TILE * u_time;
            delta_from[i] += TILE * delta_time;
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            table_raw[i] = load_cell<WHOLE>(cells[i], 0, to - first);
            cells[i].from += cells[i].from ? TILE * (cells[i].place < TILE * WIDTH ? B_time : C_time) : 0;
        }
    };
    auto is_whole = [&](int first) { return HAS_WHOLE && to - first >= TILE && place.count == CHANNELS; };
    auto load_tile = [&](int first) {
        if (is_whole(first)) {
            load(Whole(), first);
        } else if (first < to) {
            load(Ragged(), first);
        }
    };

    real skipped[ITEMS][VECTOR], gate[ITEMS][VECTOR];       // D u and silu(z), kept while the tile is computed
    auto stage = [&](auto whole, int first) {
        constexpr bool WHOLE = decltype(whole)::value && !PACKED;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spots[i];
            if (spot.mine) {
                const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
                const Abreast weight = *reinterpret_cast<const Abreast*>(skip + spot.c);
                Values<Two> pairs;
                bool counts[VECTOR];
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) {
                    const int t = step_of(spot, v);
                    counts[v] = WHOLE || (first + t < to && !(PACKED && starts[t] == PADDING));
                    const real raw = delta_raw[i].of(v) + offset.of(v);
                    const real step = softplus_on ? softplus(raw) : raw;
                    pairs.at[v].x = counts[v] ? step : real(0);
                    pairs.at[v].y = counts[v] ? step * u_raw[i].of(v) : real(0);
                    skipped[i][v] = real(0);
                    gate[i][v] = counts[v] ? real(1) : real(0);
                }
                if (D) {
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        skipped[i][v] = counts[v] ? weight.of(v) * u_raw[i].of(v) : real(0);
                    }
                }
                if (GATED) {
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        const real w = z_raw[i].of(v);
                        gate[i][v] = counts[v] ? w * sigmoid(w) : real(0);
                    }
                }
                put_values(drive, PITCH, spot, pairs);
            }
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            stage_cell(tables, cells[i], table_raw[i], !(PACKED && starts[cells[i].t] == PADDING));
        }
    };
    auto write = [&](auto whole, int first) {
        constexpr bool WHOLE = decltype(whole)::value;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (spots[i].mine) {
                const Values<real> sums = values_at(summed, PITCH, spots[i]);
                Pack<VECTOR> out;
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) {
                    out.at[v] = to_element((sums.at[v] + skipped[i][v]) * gate[i][v]);
                }
                store_pack<WHOLE>(y_to[i], spots[i], to - first, place.count, out);
            }
            y_to[i] += TILE * y_time;
        }
    };

    int to_border = 0;                                      // steps to the next state that is saved
    long long next_border = 0;
    if (borders && !EVERY) {
        next_border = place.batch * ((length + chunk - 1) / chunk) + from / chunk;
    }
    load_tile(from);
    for (int first = from; first < to; first += TILE) {
        for (int t = threadIdx.x; PACKED && t < TILE; t += THREADS) {
            starts[t] = first + t < to ? start[place.batch * (long long)length + first + t] : PADDING;
            finishes[t] = first + t < to ? finish[place.batch * (long long)length + first + t] : -1;
        }
        if (PACKED || first == from) {
            __syncthreads();                                // BP: marks, bias and skip are written before anyone reads them
        }
        if (is_whole(first)) {
            stage(Whole(), first);
        } else {
            stage(Ragged(), first);
        }
        __syncthreads();                                    // B0: the tile is staged; the last tile's y has been read
        load_tile(first + TILE);
        if (!EVERY && borders) {
            if (to_border == 0) {
                save(next_border++);
                to_border = chunk;
            }
            to_border -= TILE;
        }
#pragma unroll AT_ONCE
        for (int quad = 0; quad < TILE; quad += FOUR) {
            real sums[MANY][FOUR];
#pragma unroll
            for (int k = 0; k < FOUR; ++k) {
                const int t = quad + k;
                const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive + t * PITCH + mine);
                const Owned b = *reinterpret_cast<const Owned*>(tables + t * WIDTH + lane * OWN);
                const Owned c = *reinterpret_cast<const Owned*>(tables + (TILE + t) * WIDTH + lane * OWN);
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    real sum = 0;
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        if (PACKED && starts[t] >= FROM_ZERO) {     // a new sequence: the old state is dropped, not times 0
                            const bool given = initial && starts[t] >= 0 && exists(j, s);
                            h[j][s] = given ? initial[state_at(starts[t], j, s)] : real(0);
                        }
                        const real factor = FIXED_B ? b_own[j][s] : b.at[s];
                        h[j][s] = exp_2(pair.at[j].x * rate[j][s]) * h[j][s] + pair.at[j].y * factor;
                        sum += (FIXED_C ? c_own[j][s] : c.at[s]) * h[j][s];
                        if (PACKED && finishes[t] >= 0 && final && exists(j, s)) {
                            final[state_at(finishes[t], j, s)] = h[j][s];
                        }
                    }
                    sums[j][k] = sum;
                }
                if (EVERY && borders && first + t < to) {           // save="all": each state goes to memory
                    save(place.batch * (long long)length + first + t);
                }
            }
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
                sum_lanes(sums[j], lane);
            }
#pragma unroll
            for (int i = 0; i < SUMS_LEFT; ++i) {
                Many whole;
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    whole.at[j] = sums[j][i];
                }
                if (lane < FOUR) {
                    *reinterpret_cast<Many*>(summed + (quad + summed_step(lane, i)) * PITCH + mine) = whole;
                }
            }
        }
        __syncthreads();                                    // B1: y is complete; delta, B, C and the marks have been read
        if (is_whole(first)) {
            write(Whole(), first);
        } else {
            write(Ragged(), first);
        }
    }
    if (!PACKED && final && place.segment == segments - 1) {
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                if (exists(j, s)) {
                    final[state_at(place.batch, j, s)] = h[j][s];
                }
            }
        }
    }
}
