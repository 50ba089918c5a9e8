// selective_forward -- the whole chain in one kernel: softplus, discretise, recur, contract, skip, gate.
//
// What       y[t] = (C[t] . h[t] + D u[t]) * silu(z[t]) with h[t] = exp(delta[t] A) h[t-1] + delta[t] B[t] u[t]; the states
//            never leave the registers, except one in `chunk` steps, which the backward starts again from.
// Segments   rows that are too few to fill the machine are cut into segments that run at the same time. selective_totals
//            has found what each does to a state. If these are few, `product` and, in `enter`, the totals are given, and
//            each block walks through those before its own; if many, selective_link has, and `enter` is what enters.
// Used in    ssmlab.selective_scan; notebook 06.   Oracle: ssmlab.reference.selective_scan.   Mapping: selective.cuh.
//
// Shared     TILE * CHANNELS * 2 reals (delta, delta*u), TILE * (CHANNELS + 8) (y), TILE * WIDTH * 2 (B, C), static.
// Global     u, delta, z, B, C once in, y once out; states at chunk borders. The next tile is on its way meanwhile.
// Work       a state and step: 1 exponential, 2 multiplies, 2 multiply-adds; a channel and step: 2 exponentials, 1 reciprocal.
// Barriers   B0, B1 a tile.
// Rounding   the recurrence in the loop's order; y sums the states in a fixed order.
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_BFLOAT16 -DVECTOR=4 -DTABLE=4 -DTIME_INNER=0 -DPACKED=0 -DGATED=1 -DFIXED_B=0 -DFIXED_C=0 -DLANES=2 -DOWN=8 -DMANY=1 -DTHREADS=128 -DTILE=16 -DRESIDENT=3 -DUNROLL=4 -DEVERY=0
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_DOUBLE -DVECTOR=1 -DTABLE=1 -DTIME_INNER=1 -DPACKED=1 -DGATED=0 -DFIXED_B=1 -DFIXED_C=0 -DLANES=1 -DOWN=3 -DMANY=1 -DTHREADS=64 -DTILE=16 -DRESIDENT=1 -DUNROLL=1 -DEVERY=1
#include "selective.cuh"

constexpr int CHANNELS = THREADS / LANES * MANY;            // channels of a block
constexpr int PITCH = CHANNELS + TIME_INNER * MANY;         // keeps neighbouring steps of one channel in different banks
constexpr int SUM_PITCH = TIME_INNER ? PITCH : CHANNELS + 8;        // four threads write four steps of a channel at a time
constexpr int ITEMS = items_of<TILE, CHANNELS>();           // accesses of a thread, a tile and a tensor
constexpr int CELLS = cells_of<TILE>();                     // the same of B and C
constexpr int PIECE = OWN < TABLE ? OWN : TABLE;            // states of an access to B or C that one thread owns

static_assert(OWN % PIECE == 0 && TABLE % PIECE == 0, "OWN and TABLE: one must divide the other");

struct alignas(2 * OWN * sizeof(real) % 16 == 0 ? 16 : 2 * sizeof(real)) Both {    // what a thread reads of B and C at once
    real b[OWN], c[OWN];
};
struct alignas(PIECE * sizeof(real) < 16 ? PIECE * sizeof(real) : 16) Piece {
    real at[PIECE];
};
constexpr int LINKED = MANY * OWN >= 16 ? 2 : MANY * OWN >= 8 ? 4 : 8;   // segments whose totals are asked for at once
constexpr int AT_ONCE = UNROLL;                             // fours of steps that the compiler may interleave

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_forward(const element* __restrict__ u, const element* __restrict__ delta, const real* __restrict__ A,
                       const b_element* __restrict__ B, const c_element* __restrict__ C, const real* __restrict__ D,
                       const element* __restrict__ z, const real* __restrict__ delta_bias, const real* __restrict__ product,
                       const real* __restrict__ enter, const real* __restrict__ initial, const int* __restrict__ start,
                       const int* __restrict__ finish, element* __restrict__ y, real* __restrict__ final,
                       void* __restrict__ borders,
                       int length, int channels, int states, int groups, int softplus_on, int segment_steps, int segments,
                       int chunk,
                       long long u_batch, long long u_time, long long u_channel, long long delta_batch,
                       long long delta_time, long long delta_channel, long long z_batch, long long z_time,
                       long long z_channel, long long y_batch, long long y_time, long long y_channel,
                       long long B_batch, long long B_time, long long B_group, long long B_state,
                       long long C_batch, long long C_time, long long C_group, long long C_state) {
    __shared__ alignas(16) Two drive[TILE * PITCH];         // (delta, delta * u) of a step and channel
    __shared__ alignas(16) real summed[TILE * SUM_PITCH];   // C . h of a step and channel
    __shared__ alignas(16) Both tables[TILE * LANES];       // B and C of a step
    __shared__ alignas(16) real bias[CHANNELS + ABREAST];
    __shared__ alignas(16) real skip[CHANNELS + ABREAST];
    __shared__ int starts[TILE];
    __shared__ int finishes[TILE];

    const Place place = place_of(blockIdx.x, channels, groups, CHANNELS, segments);
    const int lane = lane_of_thread();                      // which of the channel's threads
    const int mine = channel_of_thread() * MANY;            // first channel inside the block
    const int from = place.segment * segment_steps;         // this block's steps: from ... to - 1
    const int to = segment_steps < length - from ? from + segment_steps : length;

    // Where the first access of a thread starts; the others are at a distance from it, and all move on by a tile at a time.
    const Spot origin = spot_of<TILE, CHANNELS>(0);
    const element* u_from = u + Strides{u_batch, u_time, u_channel}.of(place, from, origin);
    const element* delta_from = delta + Strides{delta_batch, delta_time, delta_channel}.of(place, from, origin);
    const element* z_from = GATED ? z + Strides{z_batch, z_time, z_channel}.of(place, from, origin) : nullptr;
    element* y_to = y + Strides{y_batch, y_time, y_channel}.of(place, from, origin);
    auto aside = [&](int item, long long time, long long channel) { return beside<TILE, CHANNELS>(item, time, channel); };
    Spot spots[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        spots[i] = spot_of<TILE, CHANNELS>(i);
    }
    Table b_at = {nullptr, 0, 0}, c_at = {nullptr, 0, 0};
#if !FIXED_B
    b_at = {B + place.batch * B_batch + place.group * B_group + from * B_time, B_time, B_state};
#endif
#if !FIXED_C
    c_at = {C + place.batch * C_batch + place.group * C_group + from * C_time, C_time, C_state};
#endif
    Cell cells[CELLS];
    long long cell_hop[CELLS];                              // from a tile to the next
#pragma unroll
    for (int i = 0; i < CELLS; ++i) {
        cells[i] = cell_of<TILE>(b_at, c_at, i, states);
        cell_hop[i] = !cells[i].from ? 0 : TILE * (cells[i].place < TILE * WIDTH ? B_time : C_time);
    }
    Raw<VECTOR> u_raw[ITEMS], delta_raw[ITEMS], z_raw[ITEMS];
    Raw<TABLE> table_raw[CELLS];
    auto load = [&](auto whole, int first) {                // the raw words of the tile at `first`
        constexpr bool WHOLE = decltype(whole)::value;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            u_raw[i] = load_pack<WHOLE>(u_from + aside(i, u_time, u_channel), spots[i], to - first, place.count);
            delta_raw[i] = load_pack<WHOLE>(
                delta_from + aside(i, delta_time, delta_channel), spots[i], to - first, place.count);
            if (GATED) {
                z_raw[i] = load_pack<WHOLE>(z_from + aside(i, z_time, z_channel), spots[i], to - first, place.count);
            }
        }
        u_from += TILE * u_time;
        delta_from += TILE * delta_time;
        if (GATED) {
            z_from += TILE * z_time;
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            table_raw[i] = load_cell<WHOLE>(cells[i], 0, to - first);
            cells[i].from += cell_hop[i];
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
    load_tile(from);                                        // on its way while the weights are fetched

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
            rate[j][s] = exists(j, s) ? A[state_at(0, j, s)] : real(0);
            h[j][s] = 0;
            if (exists(j, s) && product && initial && !PACKED) {
                h[j][s] = initial[state_at(place.batch, j, s)];
            } else if (exists(j, s) && !product && enter) {
                h[j][s] = enter[state_at(place.batch * segments + place.segment, j, s)];
            }
            b_own[j][s] = FIXED_B && exists(j, s) ? (real)B[weight] : real(0);
            c_own[j][s] = FIXED_C && exists(j, s) ? (real)C[other] : real(0);
        }
    }
    for (int c = threadIdx.x; c < CHANNELS + ABREAST; c += THREADS) {
        bias[c] = delta_bias && c < place.count ? delta_bias[place.first + c] : real(0);
        skip[c] = D && c < place.count ? D[place.first + c] : real(0);
    }
#pragma unroll
    for (int j = 0; j < MANY; ++j) {
#pragma unroll
        for (int s = 0; s < OWN; ++s) {
            rate[j][s] *= LOG2E;
        }
    }
    for (int k = 0; product && k < place.segment; k += LINKED) {    // `enter` holds totals: what selective_link does
        Owned passes[LINKED][MANY], adds[LINKED][MANY];
#pragma unroll
        for (int i = 0; i < LINKED; ++i) {
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
                const bool there = k + i < place.segment && mine + j < place.count;
                const long long at = state_at(place.batch * segments + k + i, j, 0);
                passes[i][j] = read_states(product, at, lane * OWN, states, there);
                adds[i][j] = read_states(enter, at, lane * OWN, states, there);
            }
        }
#pragma unroll
        for (int i = 0; i < LINKED; ++i) {
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
#pragma unroll
                for (int s = 0; s < OWN && k + i < place.segment; ++s) {
                    const real pass = passes[i][j].at[s], add = adds[i][j].at[s];
                    h[j][s] = pass == real(0) || h[j][s] == real(0) ? add : pass * h[j][s] + add;
                }
            }
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

    Raw<VECTOR> u_kept[ITEMS];                              // u and silu(z), kept while the tile is computed
    real gate[ITEMS][VECTOR];
    bool padding[ITEMS][VECTOR];                            // of a packed row: y is exactly 0, whatever the state is
    auto stage = [&](auto whole, int first) {
        constexpr bool WHOLE = decltype(whole)::value && !PACKED;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spots[i];
            if (spot.mine) {
                const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
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
                    gate[i][v] = counts[v] ? real(1) : real(0);
                    padding[i][v] = PACKED && !counts[v];
                }
                u_kept[i] = u_raw[i];
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
            const Cell cell = cells[i];
            if (cell.mine) {
                const bool second = cell.place >= TILE * WIDTH, counts = !(PACKED && starts[cell.t] == PADDING);
                const int n = cell.place % WIDTH;           // first of its states
#pragma unroll
                for (int k = 0; k < TABLE; k += PIECE) {
                    Piece piece;
#pragma unroll
                    for (int s = 0; s < PIECE; ++s) {
                        piece.at[s] = counts ? table_raw[i].of(k + s) : real(0);
                    }
                    Both& both = tables[cell.t * LANES + (n + k) / OWN];
                    *reinterpret_cast<Piece*>((second ? both.c : both.b) + (n + k) % OWN) = piece;
                }
            }
        }
    };
    auto write = [&](auto whole, int first) {
        constexpr bool WHOLE = decltype(whole)::value;
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            if (spots[i].mine) {
                Values<real> sums = values_at(summed, SUM_PITCH, spots[i]);
                const Abreast weight = *reinterpret_cast<const Abreast*>(skip + spots[i].c);
                Pack<VECTOR> out;
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) {
                    sums.at[v] += D ? weight.of(v) * u_kept[i].of(v) : real(0);
                    out.at[v] = to_element(PACKED && padding[i][v] ? real(0) : sums.at[v] * gate[i][v]);
                }
                store_pack<WHOLE>(y_to + aside(i, y_time, y_channel), spots[i], to - first, place.count, out);
            }
        }
        y_to += TILE * y_time;
    };

    int to_border = 0;                                      // steps to the next state that is saved
    long long next_border = 0;
    if (borders && !EVERY) {
        next_border = place.batch * ((length + chunk - 1) / chunk) + from / chunk;
    }
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
        const Two* pairs = drive + mine;
        const Both* both = tables + lane;
        real* sums_to = summed + mine;
#pragma unroll AT_ONCE
        for (int quad = 0; quad < TILE; quad += FOUR) {
            real sums[MANY][FOUR];
#pragma unroll
            for (int k = 0; k < FOUR; ++k) {
                const int t = quad + k;
                const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(pairs + k * PITCH);
                Both now = {};
                if (B_MOVES && C_MOVES) {
                    now = both[k * LANES];
                } else {
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {         // of a fixed one nothing is staged
                        now.b[s] = B_MOVES ? both[k * LANES].b[s] : real(0);
                        now.c[s] = C_MOVES ? both[k * LANES].c[s] : real(0);
                    }
                }
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    real sum = 0;
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        if (PACKED && starts[t] >= FROM_ZERO) {     // a new sequence: the old state is dropped, not times 0
                            const bool given = initial && starts[t] >= 0 && exists(j, s);
                            h[j][s] = given ? initial[state_at(starts[t], j, s)] : real(0);
                        }
                        const real factor = FIXED_B ? b_own[j][s] : now.b[s];
                        h[j][s] = exp_2(pair.at[j].x * rate[j][s]) * h[j][s] + pair.at[j].y * factor;
                        sum += (FIXED_C ? c_own[j][s] : now.c[s]) * h[j][s];
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
                sum_lanes<APART>(sums[j], lane);
            }
#pragma unroll
            for (int i = 0; i < SUMS_LEFT; ++i) {
                Many whole;
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    whole.at[j] = sums[j][i];
                }
                if (lane < FOUR) {
                    *reinterpret_cast<Many*>(sums_to + summed_step(lane, i) * SUM_PITCH) = whole;
                }
            }
            pairs += FOUR * PITCH;
            both += FOUR * LANES;
            sums_to += FOUR * SUM_PITCH;
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
