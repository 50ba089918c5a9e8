// selective_backward -- all gradients of the fused scan; the states are made again, chunk by chunk, from the saved ones.
//
// What       From the right, with g[t] = dL/dh[t]:  g[t] = C[t] dy[t] + a[t+1] g[t+1], and then
//                w = sum_n g B,  q = sum_n a g h[t-1] A:   du = w delta + D dy,  d delta = w u + q  (softplus' on top)
//                dA += a g h[t-1] delta,  dB = g delta u,  dC = dy h;   dz = dout y silu'(z),  dy = dout silu(z).
// How        A block owns CHANNELS channels of a piece of a row, or of some pieces one after the other (selective_pieces.cuh),
//            and walks through the chunks of each from the last to the first:
//            1  stage delta, delta*u, dy of the chunk. Where states are saved SPAN chunks apart, its chunk and those between
//               it and the saved state are one span: delta, delta*u of a span are staged once
//            2  forward from the saved state to the chunk and through it; the state before each TILE steps stays in shared
//               memory
//            3  tiles from the last to the first: forward once more, now into registers, then back with g
//            4  gradients of u, delta, z leave; each thread adds up what D and delta_bias get from its steps.
//            Many states are taken WIDTH at a time: 2 and 3 run PARTS times, and w, q, y grow from part to part.
//            dB and dC are sums over channels: over MANY in registers, over the channels of a warp through shared memory
//            that no other warp touches (so 2 and 3 need no barrier), over warps once a chunk, over blocks by
//            selective_sum. No atomics: every sum has one order, so the gradients are the same bits in every run.
//            Where the parts of dB and dC would take much memory, the steps from `origin` to `end` are launched at a time,
//            the last ones first, and g goes from one launch to the next through memory (`leave`). Their parts may lie in
//            du, ddelta and dz at steps whose turn has not come: those of `lent` columns in dB_part and dC_part, the others
//            in dB_rest and dC_rest. dA_part may take the place of `enter` or `leave`: a thread reads its own g before.
// Used in    ssmlab.selective_scan; notebook 07.   Oracle: autograd of the loop in float64.   Mapping: selective.cuh.
//
// Constants  HAND: steps whose dB and dC the threads of a warp hand each other at once; the fewer, the less shared memory.
//            ALIKE 1: all (batch, length, channels) tensors have the same strides, so one place is computed for all.
// Shared     dynamic, SHARED bytes: struct Layout. Registers are scarce: with three blocks on a multiprocessor a thread has
//            168, and what does not fit goes to the L1 cache, which is what the blocks' shared memory leaves of 256 KB.
// Work       a state and step: 2 exponentials (1 if every state was saved), about 20 other instructions.
// Barriers   B1, B2 a chunk and part; B3 a piece; B0 a piece, where rows are packed a chunk, and then BP a span.
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_BFLOAT16 -DVECTOR=4 -DTABLE=4 -DTIME_INNER=0 -DPACKED=0 -DGATED=1 -DFIXED_B=0 -DFIXED_C=0 -DLANES=4 -DOWN=4 -DMANY=2 -DTHREADS=128 -DTILE=4 -DRESIDENT=3 -DPARTS=1 -DCHUNK=32 -DSPAN=1 -DEVERY=0 -DHAND=2 -DSTATES_FIT=1 -DALIKE=1 -DSHARED=75808
// compile: -default-device -ftz=true -prec-div=false -DELEMENT_BFLOAT16 -DVECTOR=4 -DTABLE=4 -DTIME_INNER=0 -DPACKED=0 -DGATED=1 -DFIXED_B=0 -DFIXED_C=0 -DLANES=4 -DOWN=4 -DMANY=2 -DTHREADS=128 -DTILE=4 -DRESIDENT=3 -DPARTS=4 -DCHUNK=16 -DSPAN=2 -DEVERY=0 -DHAND=4 -DSTATES_FIT=1 -DALIKE=1 -DSHARED=75808
// compile: -default-device -DELEMENT_DOUBLE -DVECTOR=1 -DTABLE=1 -DTIME_INNER=1 -DPACKED=1 -DGATED=0 -DFIXED_B=1 -DFIXED_C=0 -DLANES=2 -DOWN=4 -DMANY=1 -DTHREADS=32 -DTILE=4 -DRESIDENT=1 -DPARTS=3 -DCHUNK=32 -DSPAN=1 -DEVERY=1 -DHAND=4 -DSTATES_FIT=0 -DALIKE=0 -DBORDER_BFLOAT16 -DSHARED=47136
#include "selective.cuh"
#include "selective_pieces.cuh"

constexpr int GROUPS = THREADS / LANES;                     // thread groups; group i owns channels i * MANY ...
constexpr int CHANNELS = GROUPS * MANY;
constexpr int PITCH = CHANNELS + (TIME_INNER ? MANY : 4);   // keeps the steps that are written together in different banks
constexpr int EVEN = TIME_INNER || PARTS == 1 ? PITCH : CHANNELS;   // the same of dy and y, where room is scarce
constexpr int TILES = CHUNK / TILE;
constexpr int ITEMS = items_of<CHUNK, CHANNELS>();
constexpr int CELLS = cells_of<CHUNK>();
constexpr int WARPS = THREADS / 32;
constexpr int ROWS = 32 / LANES;                            // thread groups of a warp, over which it sums dB and dC
constexpr int EXCHANGE = HAND * 2 * ROWS * WIDTH;           // what a warp's threads hand each other for HAND steps of it
constexpr int QUADS = WIDTH / FOUR;                         // sums of dB or dC of a step, four at a time
constexpr int LOT = HAND == TILE ? FOUR : 2, LOTS = WIDTH / LOT;    // the same, LOT at a time
constexpr int COLUMNS = (HAND * 2 * LOTS + 31) / 32;        // the lots that a thread makes of HAND steps
constexpr bool WHOLE_COLUMNS = HAND * 2 * LOTS % 32 == 0;
constexpr int STRIDE = THREADS * VECTOR / CHANNELS;         // steps between two accesses of a thread, if ...
constexpr bool SAME_CHANNELS = !TIME_INNER && evenly_spaced<CHUNK, CHANNELS>() && CHUNK % STRIDE == 0;
constexpr int KEPT = SAME_CHANNELS ? 1 : ITEMS;             // sums of a thread over time, for dD and d delta_bias

struct alignas(LOT * sizeof(real) < 16 ? LOT * sizeof(real) : 16) Lot {
    real at[LOT];
};

struct Streams {                                            // the raw words of a thread's accesses of a chunk
    Raw<VECTOR> u[ITEMS], delta[ITEMS], dout[ITEMS], z[ITEMS];
};

struct Begin {                                              // what a thread begins a part of a chunk with, on its way
    Owned A[MANY], g[MANY], dA[MANY];
};

static_assert(CHUNK % TILE == 0 && UNIT % CHUNK == 0, "CHUNK: a multiple of TILE; pieces: of CHUNK");
static_assert(WIDTH % FOUR == 0 && TILE * LANES <= 16, "a tile's sums take the place of its warp's states");

struct Layout {                                             // places in the dynamic shared memory, in reals
    static constexpr int drive = 0;                                         // (delta, delta*u) of a span
    static constexpr int slope = drive + 2 * SPAN * CHUNK * PITCH;          // dy
    static constexpr int tables = (slope + CHUNK * EVEN + 3) / 4 * 4;       // B, C, chunk by chunk
    static constexpr int inner = tables + 2 * SPAN * CHUNK * WIDTH;             // states before tiles, then sums
    static constexpr int exchange = inner + TILES * MANY * THREADS * OWN;
    static constexpr int totals = exchange + WARPS * EXCHANGE;              // what a thread adds up for D and delta_bias
    static constexpr int weights = totals + (SAME_CHANNELS ? THREADS * VECTOR * 2 : 0);     // delta_bias, D
    static constexpr int apart = (weights + 2 * (CHANNELS + ABREAST) + 3) / 4 * 4;
    static constexpr int found = apart;                                     // (w, q) of many parts; of one: over drive
    static constexpr int output = PARTS > 1 ? found + 2 * CHUNK * PITCH : slope;    // y before skip and gate
    static constexpr int end = PARTS > 1 ? output + CHUNK * EVEN : apart;
};
constexpr int SHARED_BYTES = Layout::end * (int)sizeof(real) + (PACKED ? 2 * SPAN * CHUNK * (int)sizeof(int) : 0);
static_assert(SHARED_BYTES == SHARED, "SHARED: the launcher counts the same shared memory");

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_backward(const element* __restrict__ u, const element* __restrict__ delta, const real* __restrict__ A,
                        const b_element* __restrict__ B, const c_element* __restrict__ C, const real* __restrict__ D,
                        const element* __restrict__ z, const real* __restrict__ delta_bias,
                        const void* __restrict__ borders,
                        const real* __restrict__ initial, const int* __restrict__ start, const int* __restrict__ finish,
                        const element* __restrict__ dout, const real* __restrict__ d_final,
                        element* __restrict__ du, element* __restrict__ ddelta, element* __restrict__ dz,
                        const real* enter, real* leave, real* __restrict__ carry,
                        real* __restrict__ d_initial, real* dA_part,
                        real* __restrict__ dB_part, real* __restrict__ dC_part, real* __restrict__ dB_rest,
                        real* __restrict__ dC_rest, real* __restrict__ sums_part,
                        int length, int channels, int states, int groups, int softplus_on, int pairs, int head,
                        int others, int slots, int origin, int end, int lent, long long part_batch, long long part_column,
                        long long u_batch, long long u_time, long long u_channel, long long delta_batch,
                        long long delta_time, long long delta_channel, long long z_batch, long long z_time,
                        long long z_channel, long long dout_batch, long long dout_time, long long dout_channel,
                        long long du_batch, long long du_time, long long du_channel, long long ddelta_batch,
                        long long ddelta_time, long long ddelta_channel, long long dz_batch, long long dz_time,
                        long long dz_channel, long long B_batch, long long B_time, long long B_group, long long B_state,
                        long long C_batch, long long C_time, long long C_group, long long C_state) {
    extern __shared__ __align__(16) real shared[];
    Two* const drive = reinterpret_cast<Two*>(shared + Layout::drive);
    real* const slope = shared + Layout::slope;
    real* const tables = shared + Layout::tables;
    real* const inner = shared + Layout::inner;
    real* const bias = shared + Layout::weights;
    real* const skip = bias + CHANNELS + ABREAST;
    real* const output = shared + Layout::output;
    int* const starts = reinterpret_cast<int*>(shared + Layout::end);
    int* const finishes = starts + SPAN * CHUNK;

    const int lane = threadIdx.x % LANES;                   // which of the channel's threads
    const int mine = threadIdx.x / LANES * MANY;            // first channel inside the block
    const int warp = threadIdx.x / 32;
    const unsigned member = threadIdx.x % 32;               // of the warp
    const long long border_rows = (length + SPAN * CHUNK - 1) / (SPAN * CHUNK);     // saved states of a row
    const long long plane = (long long)channels * states;   // elements of a state of all channels
    const long long table_row = (long long)groups * states;
    real* const exchange = shared + Layout::exchange + warp * EXCHANGE;
    auto tile_sums = [&](int tile, int of) {                // dB and dC of a tile, summed over the channels of warp `of`
        return inner + (tile * MANY * THREADS + of * 32) * OWN;
    };

    const Strides u_at = {u_batch, u_time, u_channel};
    auto strides_of = [&](long long batch, long long time, long long channel) {
        return ALIKE ? u_at : Strides{batch, time, channel};
    };
    const Strides delta_at = strides_of(delta_batch, delta_time, delta_channel);
    const Strides z_at = strides_of(z_batch, z_time, z_channel);
    const Strides dout_at = strides_of(dout_batch, dout_time, dout_channel);
    const Strides du_at = strides_of(du_batch, du_time, du_channel);
    const Strides ddelta_at = strides_of(ddelta_batch, ddelta_time, ddelta_channel);
    const Strides dz_at = strides_of(dz_batch, dz_time, dz_channel);
    const Pieces pieces = {pairs, head, others, origin, end};
    const int team = blockIdx.x / (pairs + others), share = blockIdx.x % (pairs + others) - pairs;  // below 0: a head
    long long unit = share < 0 ? 0 : pieces.begin_of(share);
    do {
        const Piece piece = share < 0 ? pieces.head_of(share + pairs) : pieces.piece_at(share, unit);
        const Place place = place_of(team * pairs + piece.pair, channels, groups, CHANNELS, 1);
        const int from = piece.from, to = piece.to;
        const bool ending = to == length;                   // what arrives is the gradient of the final state
        const long long b = place.batch;
        const long long column = place.first % (channels / groups) / CHANNELS;  // which block of the group
        const long long own = (place.first + mine) * (long long)states + lane * OWN;    // this thread's first place in it
        const long long slot_row = b * slots + piece.slot;  // of enter, carry and dA_part
        const bool lies_aside = column >= lent;             // this column's parts of dB and dC
        const long long to_parts = b * part_batch + (lies_aside ? column - lent : column) * part_column
                                   + place.group * states - origin * table_row;
        real* const dB_here = FIXED_B ? nullptr : (lies_aside ? dB_rest : dB_part) + to_parts;
        real* const dC_here = FIXED_C ? nullptr : (lies_aside ? dC_rest : dC_part) + to_parts;
        for (int c = threadIdx.x; c < CHANNELS + ABREAST; c += THREADS) {
            bias[c] = delta_bias && c < place.count ? delta_bias[place.first + c] : real(0);
            skip[c] = D && c < place.count ? D[place.first + c] : real(0);
        }
        // What D and delta_bias get from this thread's accesses. One sum for all of them waits in shared memory for step 4.
        Values<Two> totals[KEPT] = {};
        Values<Two>& waiting = reinterpret_cast<Values<Two>*>(shared + Layout::totals)[threadIdx.x];
        if (SAME_CHANNELS) {
            waiting = totals[0];
        }

        // What a thread carries from chunk to chunk. With one part it stays in registers; with more it waits in memory.
        real rate[MANY][OWN], g[MANY][OWN], dA[MANY][OWN];
        real b_own[MANY][OWN], c_own[MANY][OWN], dB_own[MANY][OWN], dC_own[MANY][OWN];
        bool present[MANY];
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            present[j] = mine + j < place.count;
        }
        auto place_in = [&](long long row, int j, int n0) { // this thread's first state of channel j in an array of states
            return row * plane + own + (j * states + n0 - lane * OWN);
        };
        // n0: the part's first state that is this thread's; row: of `arriving`; goes_on: a part of dA is there already
        auto ask = [&](Begin& begin, int n0, const real* arriving, long long row, bool goes_on) {
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
                begin.A[j] = read_states(A, place_in(0, j, n0), n0, states, present[j]);
                begin.g[j] = read_states(arriving, place_in(row, j, n0), n0, states, present[j] && arriving);
                begin.dA[j] = read_states(dA_part, place_in(slot_row, j, n0), n0, states, present[j] && goes_on);
            }
        };
        auto take = [&](const Begin& begin, int n0) {
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
                const long long channel = place.first + mine + j;
#pragma unroll
                for (int s = 0; s < OWN; ++s) {
                    const bool exists = present[j] && (STATES_FIT || n0 + s < states);
                    rate[j][s] = begin.A[j].at[s] * LOG2E;
                    g[j][s] = begin.g[j].at[s];
                    dA[j][s] = begin.dA[j].at[s];
                    dB_own[j][s] = dC_own[j][s] = 0;
                    b_own[j][s] = FIXED_B && exists ? (real)B[channel * B_group + (n0 + s) * B_state] : real(0);
                    c_own[j][s] = FIXED_C && exists ? (real)C[channel * C_group + (n0 + s) * C_state] : real(0);
                }
            }
        };
        auto put = [&](real* to, long long at, int n0, int j, const real* values, bool add) {   // my states of channel j
            Owned value = read_states(to, at, n0, states, present[j] && add);
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                value.at[s] = add ? value.at[s] + values[s] : values[s];
            }
            write_states(to, at, n0, states, present[j], value);
        };
        auto deposit = [&](int n0, bool begins, bool ends) {    // begins: nothing is there yet; ends: g is at the first step
            const bool add = PARTS > 1 && !begins;
#pragma unroll
            for (int j = 0; j < MANY; ++j) {
                const long long at = place_in(slot_row, j, n0);
                put(dA_part, at, n0, j, dA[j], false);
                if (FIXED_B) {
                    put(dB_part, at, n0, j, dB_own[j], add);
                }
                if (FIXED_C) {
                    put(dC_part, at, n0, j, dC_own[j], add);
                }
                if (PARTS > 1) {
                    put(carry, at, n0, j, g[j], false);
                }
                if (leave && ends && from == origin && from > 0) {  // the steps before are launched next
                    put(leave, place_in(b, j, n0), n0, j, g[j], false);
                }
                if (!PACKED && d_initial && ends && from == 0) {
                    put(d_initial, place_in(b, j, n0), n0, j, g[j], false);
                }
            }
        };
        auto initial_of = [&](int mark, int j, int n) {
            return initial && mark >= 0 && present[j] && n < states ? initial[place_in(mark, j, n)] : real(0);
        };
        auto mark = [&](int first, int place_of_chunk) {    // place_of_chunk: which of the span's chunks it is
            for (int t = threadIdx.x; PACKED && t < CHUNK; t += THREADS) {
                starts[place_of_chunk * CHUNK + t] = t < to - first ? start[b * length + first + t] : PADDING;
                finishes[place_of_chunk * CHUNK + t] = t < to - first ? finish[b * length + first + t] : -1;
            }
        };
        // Loads what is staged of a chunk: u and delta for its `drive`, dout and z for its `slope`.
        auto load = [&](auto whole, auto with_drive, auto with_slope, int first, Streams& raw) {
            constexpr bool WHOLE = decltype(whole)::value && !PACKED;
            constexpr bool DRIVE = decltype(with_drive)::value, SLOPE = decltype(with_slope)::value;
            Walk<const element, CHUNK, CHANNELS> u_walk(u, u_at, place, first), delta_walk(delta, delta_at, place, first);
            Walk<const element, CHUNK, CHANNELS> dout_walk(dout, dout_at, place, first), z_walk(z, z_at, place, first);
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const Spot spot = spot_of<CHUNK, CHANNELS>(i);
                if (DRIVE) {
                    raw.u[i] = load_pack<WHOLE>(u_walk.at, spot, to - first, place.count);
                    raw.delta[i] = load_pack<WHOLE>(delta_walk.at, spot, to - first, place.count);
                    u_walk.next(i);
                    delta_walk.next(i);
                }
                if (SLOPE) {
                    raw.dout[i] = load_pack<WHOLE>(dout_walk.at, spot, to - first, place.count);
                    dout_walk.next(i);
                }
                if (SLOPE && GATED) {
                    raw.z[i] = load_pack<WHOLE>(z_walk.at, spot, to - first, place.count);
                    z_walk.next(i);
                }
            }
        };
        auto stage = [&](auto whole, auto with_drive, auto with_slope, int first, int place_of_chunk, const Streams& raw) {
            constexpr bool WHOLE = decltype(whole)::value && !PACKED;
            constexpr bool DRIVE = decltype(with_drive)::value, SLOPE = decltype(with_slope)::value;
#pragma unroll
            for (int i = 0; i < ITEMS; ++i) {
                const Spot spot = spot_of<CHUNK, CHANNELS>(i);
                if (spot.mine) {
                    const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
                    Values<Two> pairs;
                    Values<real> slopes;
                    bool counts[VECTOR];
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        const int t = step_of(spot, v);
                        counts[v] = WHOLE || (first + t < to && !(PACKED && starts[place_of_chunk * CHUNK + t] == PADDING));
                        if (DRIVE) {
                            const real before = raw.delta[i].of(v) + offset.of(v);
                            const real step = softplus_on ? softplus(before) : before;
                            pairs.at[v].x = counts[v] ? step : real(0);
                            pairs.at[v].y = counts[v] ? step * raw.u[i].of(v) : real(0);
                        }
                        slopes.at[v] = SLOPE && counts[v] ? raw.dout[i].of(v) : real(0);
                    }
                    if (SLOPE && GATED) {
#pragma unroll
                        for (int v = 0; v < VECTOR; ++v) {
                            const real w = raw.z[i].of(v);
                            slopes.at[v] *= counts[v] ? w * sigmoid(w) : real(0);
                        }
                    }
                    if (DRIVE) {
                        put_values(drive + place_of_chunk * CHUNK * PITCH, PITCH, spot, pairs);
                    }
                    if (SLOPE) {
                        put_values(slope, EVEN, spot, slopes);
                    }
                }
            }
        };
        // B and C of a chunk, or B alone.
        auto cell = [&](int i, int part_first, bool with_c) {
            Table b_at = {nullptr, 0, 0}, c_at = {nullptr, 0, 0};
#if !FIXED_B
            b_at = {B + b * B_batch + place.group * B_group + part_first * B_state, B_time, B_state};
#endif
#if !FIXED_C
            if (with_c) {
                c_at = {C + b * C_batch + place.group * C_group + part_first * C_state, C_time, C_state};
            }
#endif
            return cell_of<CHUNK>(b_at, c_at, i, states - part_first);
        };
        auto load_tables = [&](int first, int part_first, bool with_c, Raw<TABLE> (&raw)[CELLS]) {
#pragma unroll
            for (int i = 0; i < CELLS; ++i) {
                const Cell at = cell(i, part_first, with_c);
                raw[i] = load_cell<false>(at, first * (at.place < CHUNK * WIDTH ? B_time : C_time), to - first);
            }
        };
        auto stage_tables = [&](int place_of_chunk, bool with_c, const Raw<TABLE> (&raw)[CELLS]) {
#pragma unroll
            for (int i = 0; i < CELLS; ++i) {
                const Cell at = cell(i, 0, with_c);
                stage_cell(tables + place_of_chunk * 2 * CHUNK * WIDTH, at, raw[i],
                           !(PACKED && starts[place_of_chunk * CHUNK + at.t] == PADDING));
            }
        };
        // Runs h through the first tiles of a staged chunk; with `keep` the state behind each tile stays in shared memory.
        auto run_through = [&](real (&h)[MANY][OWN], int n0, int place_of_chunk, int tiles, auto keep) {
            const Two* const drive_here = drive + place_of_chunk * CHUNK * PITCH;
            const real* const tables_here = tables + place_of_chunk * 2 * CHUNK * WIDTH;
            const int* const starts_here = starts + place_of_chunk * CHUNK;
#pragma unroll 1
            for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
                for (int k = 0; k < TILE; ++k) {
                    const int t = tile * TILE + k;
                    const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive_here + t * PITCH + mine);
                    const Owned b_now = staged<B_MOVES>(tables_here + t * WIDTH + lane * OWN);
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            if (PACKED && starts_here[t] >= FROM_ZERO) {
                                h[j][s] = initial_of(starts_here[t], j, n0 + s);
                            }
                            h[j][s] = exp_2(pair.at[j].x * rate[j][s]) * h[j][s]
                                      + pair.at[j].y * (FIXED_B ? b_own[j][s] : b_now.at[s]);
                        }
                    }
                }
#pragma unroll
                for (int j = 0; j < MANY && decltype(keep)::value; ++j) {
                    Owned value;
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        value.at[s] = h[j][s];
                    }
                    *reinterpret_cast<Owned*>(inner + (((tile + 1) * MANY + j) * THREADS + threadIdx.x) * OWN) = value;
                }
            }
        };

        const int last = from + (to - from - 1) / CHUNK * CHUNK;    // the last chunk, which is the first to be worked on
        const real* const arriving = ending ? (PACKED ? nullptr : d_final) : slots > 1 ? enter : leave;
        const long long arriving_row = ending || slots == 1 ? b : slot_row;
        if (PARTS == 1) {
            Begin begin;
            ask(begin, lane * OWN, arriving, arriving_row, false);
            take(begin, lane * OWN);
        }
        for (int first = last; first >= from && from < to; first -= CHUNK) {
            const int steps = to - first;                   // that exist
            const bool full = HAS_WHOLE && place.count == CHANNELS, all_here = full && steps >= CHUNK;
            const int chunk = first / CHUNK, behind = EVERY ? 0 : chunk % SPAN; // chunks since the last saved state
            const bool fresh = first == last || behind == SPAN - 1; // nothing of this span has been staged yet
            Two* const drive_here = drive + behind * CHUNK * PITCH;
            const real* const tables_here = tables + behind * 2 * CHUNK * WIDTH;
            const int* const starts_here = starts + behind * CHUNK;
            const int* const finishes_here = finishes + behind * CHUNK;
            Two* const found = PARTS > 1 ? reinterpret_cast<Two*>(shared + Layout::found) : drive_here;
            Streams raw;
            if (PACKED || first == last) {
                __syncthreads();                            // B0: weights are there; the last chunk is done with the marks
            }

            // 1  stage
            if (PACKED && fresh) {
                for (int e = 0; e <= behind; ++e) {
                    mark(first - (behind - e) * CHUNK, e);
                }
                __syncthreads();                            // BP: the marks are there before anyone asks for them
            }
            Raw<TABLE> table_raw[SPAN][CELLS];
            auto load_span_tables = [&](int part_first) {   // B of the chunks up to this one, and this one's C
#pragma unroll
                for (int e = 0; e < SPAN; ++e) {
                    if (e <= behind) {
                        load_tables(first - (behind - e) * CHUNK, part_first, e == behind, table_raw[e]);
                    }
                }
            };
            if (PARTS == 1) {                               // with more, registers are too scarce to wait for them
                load_span_tables(0);
            }
#pragma unroll 1
            for (int e = 0; SPAN > 1 && fresh && e < behind; ++e) { // the chunks that lead here from the saved state
                const int early = first - (behind - e) * CHUNK;
                if (full) {
                    load(Whole(), Flag<true>(), Flag<false>(), early, raw);
                    stage(Whole(), Flag<true>(), Flag<false>(), early, e, raw);
                } else {
                    load(Ragged(), Flag<true>(), Flag<false>(), early, raw);
                    stage(Ragged(), Flag<true>(), Flag<false>(), early, e, raw);
                }
            }
            auto stage_here = [&](auto with_drive) {
                if (all_here) {
                    load(Whole(), with_drive, Flag<true>(), first, raw);
                    stage(Whole(), with_drive, Flag<true>(), first, behind, raw);
                } else {
                    load(Ragged(), with_drive, Flag<true>(), first, raw);
                    stage(Ragged(), with_drive, Flag<true>(), first, behind, raw);
                }
            };
            if (SPAN == 1 || fresh) {
                stage_here(Flag<true>());
            } else {
                stage_here(Flag<false>());
            }

            auto finish = [&](int part) {                   // the chunk's dB and dC of a part, and what goes on with it
                const int part_first = part * WIDTH, n0 = part_first + lane * OWN;
                __syncthreads();                            // B2: w, q, y and the warps' dB and dC of the chunk are there
                for (unsigned i = threadIdx.x; (B_MOVES || C_MOVES) && i < 2 * CHUNK * QUADS; i += THREADS) {
                    const bool second = i >= CHUNK * QUADS; // dC
                    const int t = i / QUADS % CHUNK;
                    const int place_of_sum = ((t % TILE * 2 + second) * QUADS + i % QUADS) * FOUR;
                    Four sum = {};
#pragma unroll
                    for (int w = 0; w < WARPS; ++w) {
                        const Four more = *reinterpret_cast<const Four*>(tile_sums(t / TILE, w) + place_of_sum);
#pragma unroll
                        for (int s = 0; s < FOUR; ++s) {
                            sum.at[s] += more.at[s];
                        }
                    }
                    const int n = part_first + i % QUADS * FOUR;
                    if ((second ? C_MOVES : B_MOVES) && t < steps && (STATES_FIT || n < states)) {
                        real* const to_part = (second ? dC_here : dB_here) + (first + t) * table_row + n;
                        if (STATES_FIT || states % FOUR == 0) {
                            *reinterpret_cast<Four*>(to_part) = sum;
                        } else {
#pragma unroll
                            for (int s = 0; s < FOUR; ++s) {
                                if (n + s < states) {
                                    to_part[s] = sum.at[s];
                                }
                            }
                        }
                    }
                }
                if (PARTS > 1 || first == from) {
                    deposit(n0, first == last, first == from);
                }
            };
#pragma unroll 1
            for (int part = 0;; ++part) {
                const int part_first = part * WIDTH, n0 = part_first + lane * OWN;
                if (PARTS > 1) {
                    load_span_tables(part_first);
                }
                Begin begin;
                if (PARTS > 1) {
                    const bool begins = first == last;
                    ask(begin, n0, begins ? arriving : carry, begins ? arriving_row : slot_row, !begins);
                }
                Owned state[MANY];                          // the saved one
#pragma unroll
                for (int j = 0; j < MANY && !EVERY; ++j) {
                    const long long place_there = place_in(b * border_rows + chunk / SPAN, j, n0);
                    state[j] = read_borders(borders, place_there, n0, states, present[j]);
                }
#pragma unroll
                for (int e = 0; e < SPAN; ++e) {
                    if (e <= behind) {
                        stage_tables(e, e == behind, table_raw[e]);
                    }
                }
                __syncthreads();                            // B1: chunk and tables are staged
                if (PARTS > 1) {
                    take(begin, n0);
                }
                // 2  forward from the saved state
                if (!EVERY) {
                    real h[MANY][OWN];
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            h[j][s] = state[j].at[s];
                        }
                    }
                    for (int e = 0; e < behind; ++e) {
                        run_through(h, n0, e, TILES, Flag<false>());
                    }
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
                        Owned value;
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            value.at[s] = h[j][s];
                        }
                        *reinterpret_cast<Owned*>(inner + (j * THREADS + threadIdx.x) * OWN) = value;
                    }
                    run_through(h, n0, behind, TILES - 1, Flag<true>());
                }

                // 3  tiles from the last to the first
#pragma unroll 1
                for (int tile = TILES - 1; tile >= 0; --tile) {
                    const int tile_first = tile * TILE;
                    real before[MANY][OWN];                 // the state before the tile
                    real a[TILE][MANY][OWN], now[TILE][MANY][OWN];
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
                        const int t = first + tile_first - 1;
                        Owned value;
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            value.at[s] = 0;
                        }
                        if (EVERY) {
                            if (t >= 0 && t < length) {
                                const long long place_there = place_in(b * (long long)length + t, j, n0);
                                value = read_borders(borders, place_there, n0, states, present[j]);
                            } else if (t < 0 && initial && !PACKED) {
                                value = read_states(initial, place_in(b, j, n0), n0, states, present[j]);
                            }
                        } else {
                            value = *reinterpret_cast<const Owned*>(inner + ((tile * MANY + j) * THREADS + threadIdx.x) * OWN);
                        }
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            before[j][s] = value.at[s];
                        }
                    }
                    // Each thread adds up some columns of dB and dC over the warp's groups. Neighbouring columns of dB and dC
                    // lie in the same banks, so dC takes each pair of groups the other way round.
                    Lot sum[TILE / HAND][COLUMNS];
                    auto add_up_warp = [&](Lot (&sum)[COLUMNS]) {
#pragma unroll
                        for (int c = 0; c < COLUMNS; ++c) {
                            const unsigned i = c * 32 + member, twist = i / LOTS % 2 * WIDTH;
                            const real* const column_at = exchange + i / LOTS * (ROWS * WIDTH) + i % LOTS * LOT;
                            const real* const even = column_at + twist;
                            const real* const odd = column_at + (twist ^ WIDTH);
#pragma unroll
                            for (int row = 0; row < ROWS && (WHOLE_COLUMNS || i < HAND * 2 * LOTS); row += 2) {
                                const Lot x = *reinterpret_cast<const Lot*>(even + row * WIDTH);
                                const Lot y = *reinterpret_cast<const Lot*>(odd + row * WIDTH);
#pragma unroll
                                for (int n = 0; n < LOT; ++n) {
                                    sum[c].at[n] = row == 0 ? x.at[n] + y.at[n] : sum[c].at[n] + (x.at[n] + y.at[n]);
                                }
                            }
                        }
                    };
                    real y_left[TILE / FOUR][MANY][SUMS_LEFT];
#pragma unroll
                    for (int quad = 0; quad < TILE / FOUR; ++quad) {
                        real y_sums[MANY][FOUR];
#pragma unroll
                        for (int k = quad * FOUR; k < quad * FOUR + FOUR; ++k) {
                            const int t = tile_first + k;
                            const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive_here + t * PITCH + mine);
                            const Owned b_now = staged<B_MOVES>(tables_here + t * WIDTH + lane * OWN);
                            const Owned c_now = staged<C_MOVES>(tables_here + (CHUNK + t) * WIDTH + lane * OWN);
#pragma unroll
                            for (int j = 0; j < MANY; ++j) {
                                real y = 0;
#pragma unroll
                                for (int s = 0; s < OWN; ++s) {
                                    real left = k == 0 ? before[j][s] : now[k == 0 ? 0 : k - 1][j][s];
                                    if (PACKED && starts_here[t] >= FROM_ZERO) {
                                        left = initial_of(starts_here[t], j, n0 + s);
                                    }
                                    a[k][j][s] = exp_2(pair.at[j].x * rate[j][s]);
                                    now[k][j][s] = a[k][j][s] * left + pair.at[j].y * (FIXED_B ? b_own[j][s] : b_now.at[s]);
                                    y += (FIXED_C ? c_own[j][s] : c_now.at[s]) * now[k][j][s];
                                }
                                y_sums[j][k - quad * FOUR] = y;
                            }
                        }
#pragma unroll
                        for (int j = 0; j < MANY && GATED; ++j) {   // only dz asks for y
                            sum_lanes(y_sums[j], lane);
#pragma unroll
                            for (int i = 0; i < SUMS_LEFT; ++i) {
                                y_left[quad][j][i] = y_sums[j][i];
                            }
                        }
                    }
#pragma unroll
                    for (int quad = TILE / FOUR - 1; quad >= 0; --quad) {
                        real w_sums[MANY][FOUR], q_sums[MANY][FOUR];
#pragma unroll
                        for (int k = quad * FOUR + FOUR - 1; k >= quad * FOUR; --k) {
                            const int t = tile_first + k;
                            const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive_here + t * PITCH + mine);
                            const Many dy = *reinterpret_cast<const Many*>(slope + t * EVEN + mine);
                            const Owned b_now = staged<B_MOVES>(tables_here + t * WIDTH + lane * OWN);
                            const Owned c_now = staged<C_MOVES>(tables_here + (CHUNK + t) * WIDTH + lane * OWN);
                            Owned dB, dC;
#pragma unroll
                            for (int s = 0; s < OWN; ++s) {
                                dB.at[s] = dC.at[s] = 0;
                            }
#pragma unroll
                            for (int j = 0; j < MANY; ++j) {
                                real w = 0, q = 0;
#pragma unroll
                                for (int s = 0; s < OWN; ++s) {
                                    const bool exists = present[j] && (STATES_FIT || n0 + s < states);
                                    real left = k == 0 ? before[j][s] : now[k == 0 ? 0 : k - 1][j][s];
                                    if (PACKED && starts_here[t] >= FROM_ZERO) {
                                        left = initial_of(starts_here[t], j, n0 + s);
                                    }
                                    if (PACKED && finishes_here[t] >= 0 && d_final && exists) {
                                        g[j][s] += d_final[place_in(finishes_here[t], j, n0 + s)];
                                    }
                                    const real gain = g[j][s] + (FIXED_C ? c_own[j][s] : c_now.at[s]) * dy.at[j];
                                    w += gain * (FIXED_B ? b_own[j][s] : b_now.at[s]);
                                    (FIXED_B ? dB_own[j][s] : dB.at[s]) += gain * pair.at[j].y;
                                    (FIXED_C ? dC_own[j][s] : dC.at[s]) += dy.at[j] * now[k][j][s];
                                    g[j][s] = gain * a[k][j][s];
                                    const real through = g[j][s] * left;
                                    q += through * rate[j][s];
                                    dA[j][s] += through * pair.at[j].x;
                                    if (PACKED && starts_here[t] >= FROM_ZERO) { // what arrives at a start stays there
                                        if (d_initial && starts_here[t] >= 0 && exists) {
                                            d_initial[place_in(starts_here[t], j, n0 + s)] = g[j][s];
                                        }
                                        g[j][s] = 0;
                                    }
                                }
                                w_sums[j][k - quad * FOUR] = w;
                                q_sums[j][k - quad * FOUR] = q;
                            }
                            real* const row = exchange + member * OWN;  // the warp's thread groups, in order
                            if (B_MOVES || C_MOVES) {
                                *reinterpret_cast<Owned*>(row + (2 * (k % HAND)) * ROWS * WIDTH) = dB;
                                *reinterpret_cast<Owned*>(row + (2 * (k % HAND) + 1) * ROWS * WIDTH) = dC;
                                if (k % HAND == 0) {
                                    __syncwarp();           // all threads of the warp have handed over theirs
                                    add_up_warp(sum[k / HAND]);
                                    __syncwarp();           // the parts are read: others may take their place
                                }
                            }
                        }
#pragma unroll
                        for (int j = 0; j < MANY; ++j) {
                            sum_lanes(w_sums[j], lane);
                            sum_lanes(q_sums[j], lane);
                        }
                        if (!B_MOVES && !C_MOVES) {
                            __syncwarp();                   // the warp has read what is overwritten next
                        }
#pragma unroll
                        for (int i = 0; i < SUMS_LEFT; ++i) {
                            const int at_step = tile_first + quad * FOUR + summed_step(lane, i), at = at_step * PITCH + mine;
                            if (lane < FOUR) {
                                ManyTwo both;
                                Many y;
#pragma unroll
                                for (int j = 0; j < MANY; ++j) {
                                    both.at[j] = Two{w_sums[j][i], q_sums[j][i]};
                                    y.at[j] = y_left[quad][j][i];
                                }
                                if (PARTS > 1 && part > 0) {
                                    const ManyTwo sum = *reinterpret_cast<const ManyTwo*>(found + at);
                                    const Many y_sum = *reinterpret_cast<const Many*>(output + at_step * EVEN + mine);
#pragma unroll
                                    for (int j = 0; j < MANY; ++j) {
                                        both.at[j] = Two{both.at[j].x + sum.at[j].x, both.at[j].y + sum.at[j].y};
                                        y.at[j] += GATED ? y_sum.at[j] : real(0);
                                    }
                                }
                                *reinterpret_cast<ManyTwo*>(found + at) = both;
                                if (GATED) {
                                    *reinterpret_cast<Many*>(output + at_step * EVEN + mine) = y;
                                }
                            }
                        }
                    }
                    if (B_MOVES || C_MOVES) {
#pragma unroll
                        for (int c = 0; c < COLUMNS * (TILE / HAND); ++c) {
                            const unsigned i = c % COLUMNS * 32 + member;
                            if (WHOLE_COLUMNS || i < HAND * 2 * LOTS) {
                                *reinterpret_cast<Lot*>(tile_sums(tile, warp) + (c / COLUMNS * HAND * 2 * LOTS + i) * LOT)
                                    = sum[c / COLUMNS][c % COLUMNS];
                            }
                        }
                    }
                }
                if (part == PARTS - 1) {
                    break;
                }
                finish(part);
            }
            // For step 4, on their way while the sums are made. Behind the loop: in it they would take registers all the time.
            if (all_here) {
                load(Whole(), Flag<true>(), Flag<true>(), first, raw);
            } else {
                load(Ragged(), Flag<true>(), Flag<true>(), first, raw);
            }
            finish(PARTS - 1);

            // 4  gradients of u, delta and z
            auto write = [&](auto whole) {
                constexpr bool WHOLE = decltype(whole)::value && !PACKED;
                Walk<element, CHUNK, CHANNELS> du_walk(du, du_at, place, first), ddelta_walk(ddelta, ddelta_at, place, first);
                Walk<element, CHUNK, CHANNELS> dz_walk(dz, dz_at, place, first);
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) {
                    const Spot spot = spot_of<CHUNK, CHANNELS>(i);
                    if (!spot.mine) {
                        continue;
                    }
                    const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
                    const Abreast weight = *reinterpret_cast<const Abreast*>(skip + spot.c);
                    const Values<Two> both = values_at(found, PITCH, spot);         // w, q
                    bool counts[VECTOR];
                    real dy[VECTOR];
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        counts[v] = WHOLE || (step_of(spot, v) < steps && !(PACKED && starts_here[step_of(spot, v)] == PADDING));
                        dy[v] = counts[v] ? raw.dout[i].of(v) : real(0);
                    }
                    if (GATED) {
                        const Values<real> summed = values_at(output, EVEN, spot);  // y before skip and gate
                        Pack<VECTOR> dz_out;
#pragma unroll
                        for (int v = 0; v < VECTOR; ++v) {
                            const real w = raw.z[i].of(v);
                            const real s = sigmoid(w);
                            const real y = summed.at[v] + (counts[v] ? weight.of(v) * raw.u[i].of(v) : real(0));
                            dz_out.at[v] = to_element(counts[v] ? dy[v] * y * s * (real(1) + w * (real(1) - s)) : real(0));
                            dy[v] = counts[v] ? dy[v] * (w * s) : real(0);
                        }
                        store_pack<WHOLE>(dz_walk.at, spot, steps, place.count, dz_out);
                        dz_walk.next(i);
                    }
                    Pack<VECTOR> du_out, ddelta_out;
                    if (SAME_CHANNELS && i == 0) {
                        totals[0] = waiting;
                    }
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        const real value = raw.u[i].of(v);
                        const real before = raw.delta[i].of(v) + offset.of(v);
                        const Two step = softplus_on ? softplus_and_slope(before) : Two{before, real(1)};
                        const real du_value = both.at[v].x * step.x + weight.of(v) * dy[v];
                        const real ddelta_value = (both.at[v].x * value + both.at[v].y * LN2) * step.y;
                        du_out.at[v] = to_element(counts[v] ? du_value : real(0));
                        ddelta_out.at[v] = to_element(counts[v] ? ddelta_value : real(0));
                        Two& total = totals[SAME_CHANNELS ? 0 : i].at[v];
                        total.x += counts[v] ? dy[v] * value : real(0);
                        total.y += counts[v] ? ddelta_value : real(0);
                    }
                    store_pack<WHOLE>(du_walk.at, spot, steps, place.count, du_out);
                    store_pack<WHOLE>(ddelta_walk.at, spot, steps, place.count, ddelta_out);
                    du_walk.next(i);
                    ddelta_walk.next(i);
                }
                if (SAME_CHANNELS) {
                    waiting = totals[0];
                }
            };
            if (all_here) {
                write(Whole());
            } else {
                write(Ragged());
            }
        }

        // 5  sums over the block's threads, in places that only the thread itself has read
#pragma unroll
        for (int i = 0; i < KEPT; ++i) {
            if (spot_of<CHUNK, CHANNELS>(i).mine) {
                put_values(drive, PITCH, spot_of<CHUNK, CHANNELS>(i), totals[i]);
            }
        }
        __syncthreads();                                    // B3: all threads' sums are there
        for (int i = threadIdx.x; i < 2 * CHANNELS; i += THREADS) {
            const int c = i / 2;
            if (c < place.count) {
                real sum = 0;
#pragma unroll 8
                for (int t = 0; t < (SAME_CHANNELS ? STRIDE : CHUNK); ++t) {
                    sum += i % 2 ? drive[t * PITCH + c].y : drive[t * PITCH + c].x;
                }
                sums_part[(slot_row * 2 + i % 2) * channels + place.first + c] = sum;
            }
        }
        for (int extra = piece.slot + 1; piece.closes && extra < slots; ++extra) {  // slots that this pair has no use for
            const long long row = b * slots + extra;
            for (int i = threadIdx.x; i < place.count * states; i += THREADS) {
                const long long at = row * plane + place.first * (long long)states + i;
                dA_part[at] = 0;
                if (FIXED_B) {
                    dB_part[at] = 0;
                }
                if (FIXED_C) {
                    dC_part[at] = 0;
                }
            }
            for (int i = threadIdx.x; i < 2 * place.count; i += THREADS) {
                sums_part[(row * 2 + i % 2) * channels + place.first + i / 2] = 0;
            }
        }
        unit = share < 0 ? 0 : pieces.behind(piece);
    } while (share >= 0 && unit < pieces.begin_of(share + 1));
}
