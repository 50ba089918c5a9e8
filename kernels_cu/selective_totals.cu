// selective_totals -- what a segment of a row does to whatever enters it: out = product * in + total.
//
// ADJOINT    0: the state, from left to right:   h -> a h + delta u B
//            1: its gradient, from right to left: x -> a (x + C dy), with dy = dout silu(z)
// First of two passes for rows that are too few to fill the machine: all segments run at the same time, then selective_link
// walks through their totals. The product of a segment's decays is one exponential: exp(A sum delta). The last segment's
// totals nobody asks for. With ADJOINT, segments are pieces, finer than those of the backward's blocks
// (selective_pieces.cuh), each done by as many blocks as its `across` channels take, and it is the first, the head, that is
// left out; selective_link_pieces walks through them.
//
// Walk       from the end where the state leaves into the segment: the factor of what a step brings is one exponential of
//            the delta it has yet to pass, total = sum over steps of exp(A (delta behind the step)) delta u B. No step waits
//            for another, and the walk ends where all factors of a block have come to 0: what lies beyond, be it NaN, is
//            multiplied by 0 and not looked at. When that is depends on the data (delta A = -0.05: after 2000 steps), so a
//            segment may as well be walked through to its other end. Not without softplus, as then delta may be negative.
// Used in    ssmlab.selective_scan.   Mapping: selective.cuh.
//
// Shared     TILE * CHANNELS * 2 reals and TILE * WIDTH * 2, static.
// Work       a state and step: 1 exponential, 2 multiplies, 1 multiply-add. It costs the exponentials a second time.
// Barriers   B0, B1 a tile.
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_BFLOAT16 -DVECTOR=4 -DTABLE=4 -DTIME_INNER=0 -DPACKED=0 -DGATED=1 -DFIXED_B=0 -DFIXED_C=0 -DLANES=4 -DOWN=4 -DMANY=1 -DTHREADS=128 -DTILE=32 -DRESIDENT=4 -DUNROLL=2 -DADJOINT=0
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_HALF -DVECTOR=1 -DTABLE=1 -DTIME_INNER=1 -DPACKED=1 -DGATED=0 -DFIXED_B=1 -DFIXED_C=0 -DLANES=8 -DOWN=4 -DMANY=1 -DTHREADS=128 -DTILE=16 -DRESIDENT=1 -DUNROLL=2 -DADJOINT=1
#include "selective.cuh"
#include "selective_pieces.cuh"

constexpr int CHANNELS = THREADS / LANES * MANY;
constexpr int PITCH = CHANNELS + TIME_INNER * MANY;
constexpr int ITEMS = items_of<TILE, CHANNELS>();
constexpr int CELLS = cells_of<TILE>();
constexpr int AT_ONCE = 4 * UNROLL;                         // steps that the compiler may interleave
constexpr bool USES_Z = ADJOINT && GATED;
constexpr bool FIXED = ADJOINT ? FIXED_C : FIXED_B;
constexpr real NOTHING = sizeof(real) == 8 ? -1080 : -150;  // exp_2 of anything below is 0, subnormal numbers included

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_totals(const element* __restrict__ input, const element* __restrict__ delta, const real* __restrict__ A,
                      const b_element* __restrict__ B, const c_element* __restrict__ C, const element* __restrict__ z,
                      const real* __restrict__ delta_bias, const real* __restrict__ initial, const int* __restrict__ start,
                      const int* __restrict__ finish, const real* __restrict__ d_final, real* __restrict__ product,
                      real* __restrict__ total, int length, int channels, int states, int groups, int softplus_on,
                      int segment_steps, int segments, int across, int pairs, int head, int others, int origin, int end,
                      long long input_batch, long long input_time, long long input_channel, long long delta_batch,
                      long long delta_time, long long delta_channel, long long z_batch, long long z_time,
                      long long z_channel, long long B_batch, long long B_time, long long B_group, long long B_state,
                      long long C_batch, long long C_time, long long C_group, long long C_state) {
    __shared__ alignas(16) Two drive[TILE * PITCH];         // (delta, delta * u), or (delta, dy)
    __shared__ alignas(16) real tables[2 * TILE * WIDTH];   // B, or C behind it
    __shared__ alignas(16) real bias[CHANNELS + ABREAST];
    __shared__ int starts[TILE];
    __shared__ int finishes[TILE];

    const int lane = lane_of_thread();
    const int mine = channel_of_thread() * MANY;            // first channel inside the block

    // Without ADJOINT a block has one segment. With it, a share of the pieces: `beside` blocks take a pair of the backward's.
    const int beside = ADJOINT ? (across + CHANNELS - 1) / CHANNELS : 1;
    const Pieces pieces = {pairs, head, others, origin, end};
    const int share = ADJOINT ? blockIdx.x / beside % others : 0, team = ADJOINT ? blockIdx.x / beside / others : 0;
    long long unit = ADJOINT ? pieces.begin_of(share) : 0;
    do {
        Place place;
        Piece piece = {};
        if (ADJOINT) {
            piece = pieces.piece_at(share, unit);
            place = place_of(team * pairs + piece.pair, channels, groups, across, 1);
            const int aside = blockIdx.x % beside * CHANNELS;
            place.first += aside;
            place.count = place.count - aside < CHANNELS ? place.count - aside : CHANNELS;
            place.segment = piece.slot;
        } else {
            place = place_of(blockIdx.x, channels, groups, CHANNELS, segments - 1);
            piece.from = place.segment * segment_steps;
            piece.to = segment_steps < length - piece.from ? piece.from + segment_steps : length;
        }
        const int from = piece.from, to = piece.to;
        const int tiles = from < to ? (to - from + TILE - 1) / TILE : 0;
        auto first_of = [&](int turn) { return from + (ADJOINT ? turn : tiles - 1 - turn) * TILE; };

        // Where each access starts; all of them move on by a tile at a time.
        const long long hop = ADJOINT ? TILE : -TILE;
        const element *input_from[ITEMS], *delta_from[ITEMS], *z_from[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const Spot spot = spot_of<TILE, CHANNELS>(i);
            input_from[i] = input + Strides{input_batch, input_time, input_channel}.of(place, first_of(0), spot);
            delta_from[i] = delta + Strides{delta_batch, delta_time, delta_channel}.of(place, first_of(0), spot);
            z_from[i] = USES_Z ? z + Strides{z_batch, z_time, z_channel}.of(place, first_of(0), spot) : nullptr;
        }
        Table b_at = {nullptr, 0, 0}, c_at = {nullptr, 0, 0};
#if !FIXED_B && !ADJOINT
        b_at = {B + place.batch * B_batch + place.group * B_group + first_of(0) * B_time, B_time, B_state};
#endif
#if !FIXED_C && ADJOINT
        c_at = {C + place.batch * C_batch + place.group * C_group + first_of(0) * C_time, C_time, C_state};
#endif
        Cell cells[CELLS];
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            cells[i] = cell_of<TILE>(b_at, c_at, i, states);
        }

        Raw<VECTOR> input_raw[ITEMS], delta_raw[ITEMS], z_raw[ITEMS];
        Raw<TABLE> table_raw[CELLS];
        auto load = [&](auto whole, int first) {
            constexpr bool WHOLE = decltype(whole)::value;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const Spot spot = spot_of<TILE, CHANNELS>(i);
                input_raw[i] = load_pack<WHOLE>(input_from[i], spot, to - first, place.count);
                delta_raw[i] = load_pack<WHOLE>(delta_from[i], spot, to - first, place.count);
                if (USES_Z) {
                    z_raw[i] = load_pack<WHOLE>(z_from[i], spot, to - first, place.count);
                    z_from[i] += hop * z_time;
                }
                input_from[i] += hop * input_time;
                delta_from[i] += hop * delta_time;
            }
#pragma unroll
            for (int i = 0; i < CELLS; ++i) {
                table_raw[i] = load_cell<WHOLE>(cells[i], 0, to - first);
                cells[i].from += cells[i].from ? hop * (ADJOINT ? C_time : B_time) : 0;
            }
        };
        auto is_whole = [&](int first) { return HAS_WHOLE && to - first >= TILE && place.count == CHANNELS; };
        auto load_tile = [&](int turn) {
            if (turn < tiles && is_whole(first_of(turn))) {
                load(Whole(), first_of(turn));
            } else if (turn < tiles) {
                load(Ragged(), first_of(turn));
            }
        };
        load_tile(0);                                       // on its way while the weights are fetched

        auto exists = [&](int j, int s) { return mine + j < place.count && lane * OWN + s < states; };
        auto state_at = [&](long long row, int j, int s) {
            return (row * channels + place.first + mine + j) * states + lane * OWN + s;
        };
        real rate[MANY][OWN], h[MANY][OWN], own[MANY][OWN];
        real elapsed[MANY], slowest[MANY];                  // sums of delta; rate of the state that decays most slowly
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            elapsed[j] = slowest[j] = 0;
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                const long long weight = ADJOINT ? (place.first + mine + j) * C_group + (lane * OWN + s) * C_state
                                                 : (place.first + mine + j) * B_group + (lane * OWN + s) * B_state;
                rate[j][s] = exists(j, s) ? A[state_at(0, j, s)] : real(0);
                h[j][s] = own[j][s] = 0;
                if (FIXED && exists(j, s)) {
                    own[j][s] = ADJOINT ? (real)C[weight] : (real)B[weight];
                }
            }
        }
        for (int c = threadIdx.x; c < CHANNELS + ABREAST; c += THREADS) {
            bias[c] = delta_bias && c < place.count ? delta_bias[place.first + c] : real(0);
        }
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                rate[j][s] *= LOG2E;
                slowest[j] = exists(j, s) && (s == 0 || rate[j][s] > slowest[j]) ? rate[j][s] : slowest[j];
            }
        }
        bool cut = false;                                   // a sequence starts inside: nothing passes through

        auto stage = [&](auto whole, int first) {
            constexpr bool WHOLE = decltype(whole)::value && !PACKED;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const Spot spot = spot_of<TILE, CHANNELS>(i);
                if (spot.mine) {
                    const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
                    Values<Two> pairs;
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        const int t = step_of(spot, v);
                        const bool counts = WHOLE || (first + t < to && !(PACKED && starts[t] == PADDING));
                        const real raw = delta_raw[i].of(v) + offset.of(v);
                        const real step = softplus_on ? softplus(raw) : raw;
                        pairs.at[v].x = counts ? step : real(0);
                        pairs.at[v].y = counts ? (ADJOINT ? real(1) : step) * input_raw[i].of(v) : real(0);
                    }
                    if (USES_Z) {
#pragma unroll
                        for (int v = 0; v < VECTOR; ++v) {
                            const int t = step_of(spot, v);
                            const bool counts = WHOLE || (first + t < to && !(PACKED && starts[t] == PADDING));
                            const real w = z_raw[i].of(v);
                            pairs.at[v].y *= counts ? w * sigmoid(w) : real(0);
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

        // One tile of the walk. GROWS: where A > 0 (or delta < 0) a factor may be infinite; what is 0 stays 0 even then.
        auto walk = [&](auto grows) {
            constexpr bool GROWS = decltype(grows)::value;
#pragma unroll AT_ONCE
            for (int k = 0; k < TILE; ++k) {
                const int t = ADJOINT ? k : TILE - 1 - k;
                if (PACKED && (cut || (ADJOINT && starts[t] >= FROM_ZERO))) {
                    cut = true;                             // all threads of the block agree
                    break;
                }
                const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive + t * PITCH + mine);
                const Owned now = staged<!FIXED>(tables + ((ADJOINT ? TILE : 0) + t) * WIDTH + lane * OWN);
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    elapsed[j] += ADJOINT ? pair.at[j].x : real(0);
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        real brought = pair.at[j].y * (FIXED ? own[j][s] : now.at[s]);
                        if (ADJOINT && PACKED && finishes[t] >= 0 && d_final && exists(j, s)) {
                            brought += d_final[state_at(finishes[t], j, s)];
                        }
                        h[j][s] += GROWS && brought == real(0) ? real(0) : exp_2(elapsed[j] * rate[j][s]) * brought;
                    }
                    elapsed[j] += ADJOINT ? real(0) : pair.at[j].x;
                }
                if (PACKED && !ADJOINT && starts[t] >= FROM_ZERO) { // a sequence starts here: nothing earlier passes
                    cut = true;
                    for (int j = 0; j < MANY; ++j) {
                        for (int s = 0; s < OWN; ++s) {
                            if (initial && starts[t] >= 0 && exists(j, s)) {
                                const real given = initial[state_at(starts[t], j, s)];
                                h[j][s] += given == real(0) ? real(0) : exp_2(elapsed[j] * rate[j][s]) * given;
                            }
                        }
                    }
                }
            }
        };
        bool grows = !softplus_on;
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            grows = grows || !(slowest[j] <= real(0));
        }
        bool over = false;                                  // whatever this thread has not seen yet is multiplied by 0

        for (int turn = 0; turn < tiles; ++turn) {
            const int first = first_of(turn);
            for (int t = threadIdx.x; PACKED && t < TILE; t += THREADS) {
                starts[t] = first + t < to ? start[place.batch * (long long)length + first + t] : PADDING;
                finishes[t] = first + t < to ? finish[place.batch * (long long)length + first + t] : -1;
            }
            if (PACKED || turn == 0) {
                __syncthreads();                            // BP: marks and bias are there
            }
            if (is_whole(first)) {
                stage(Whole(), first);
            } else {
                stage(Ragged(), first);
            }
            __syncthreads();                                // B0: the tile is staged
            load_tile(turn + 1);
            if (grows) {
                walk(Flag<true>());
            } else if (!over) {
                walk(Flag<false>());
            }
            over = cut || !grows;
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
                over = over && (cut || !exists(j, 0) || slowest[j] * elapsed[j] < NOTHING);
            }
            if (__syncthreads_and(over)) {                  // B1: the tile and its marks have been read
                break;
            }
        }
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            Owned passes, adds;
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                passes.at[s] = cut ? real(0) : exp_2(elapsed[j] * rate[j][s]);
                adds.at[s] = h[j][s];
            }
            const long long at = state_at(place.batch * segments + place.segment, j, 0);
            write_states(product, at, lane * OWN, states, mine + j < place.count, passes);
            write_states(total, at, lane * OWN, states, mine + j < place.count, adds);
        }
        unit = ADJOINT ? pieces.behind(piece) : 0;
    } while (ADJOINT && unit < pieces.begin_of(share + 1));
}
