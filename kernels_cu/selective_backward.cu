// selective_backward -- all gradients of the fused scan; the states are made again, chunk by chunk, from the saved ones.
//
// What       From the right, with g[t] = dL/dh[t]:  g[t] = C[t] dy[t] + a[t+1] g[t+1], and then
//                w = sum_n g B,  q = sum_n a g h[t-1] A:   du = w delta + D dy,  d delta = w u + q  (softplus' on top)
//                dA += a g h[t-1] delta,  dB = g delta u,  dC = dy h;   dz = dout y silu'(z),  dy = dout silu(z).
// How        A block owns MANY * GROUPS channels (ROUNDS times) of one segment and walks its chunks from the last to the first.
//            1  stage delta, delta*u, dy, B, C of the chunk
//            2  forward from the chunk's saved state; keep the state before each TILE steps in shared memory
//            3  tiles from the last to the first: forward once more, now into registers, then back with g
//            4  gradients of u, delta, z leave; of D and delta_bias are summed over the chunk.
//            dB and dC are sums over channels: over MANY in registers, over GROUPS through shared memory, over blocks by
//            selective_sum. No atomics: every sum has one order, so the gradients are the same bits in every run.
// Used in    ssmlab.selective_scan; notebook 07.   Oracle: autograd of the loop in float64.   Mapping: selective.cuh.
//
// Shared     dynamic, SHARED bytes: struct Layout.
// Work       a state and step: 3 exponentials (2 if every state was saved), about 24 other instructions.
// Barriers   1 a tile of steps (2 with one exchange buffer), 6 a chunk and round.
// compile: -default-device -DELEMENT_BFLOAT16 -DVECTOR=4 -DTABLE=4 -DTIME_INNER=0 -DPACKED=0 -DGATED=1 -DFIXED_B=0 -DFIXED_C=0 -DLANES=4 -DOWN=4 -DMANY=2 -DTHREADS=128 -DTILE=4 -DRESIDENT=3 -DROUNDS=1 -DBUFFERS=1 -DCHUNK=32 -DEVERY=0 -DSHARED=75552
// compile: -default-device -DELEMENT_DOUBLE -DVECTOR=1 -DTABLE=1 -DTIME_INNER=1 -DPACKED=1 -DGATED=0 -DFIXED_B=1 -DFIXED_C=0 -DLANES=2 -DOWN=4 -DMANY=1 -DTHREADS=32 -DTILE=4 -DRESIDENT=1 -DROUNDS=4 -DBUFFERS=1 -DCHUNK=32 -DEVERY=1 -DBORDER_BFLOAT16 -DSHARED=30992
#include "selective.cuh"

constexpr int GROUPS = THREADS / LANES;                     // channels that are worked on side by side
constexpr int CHANNELS = GROUPS * MANY;                     // of one round; thread group i owns channels i * MANY ...
constexpr int PITCH = CHANNELS + TIME_INNER * MANY;
constexpr int TILES = CHUNK / TILE;
constexpr int ITEMS = items_of<CHUNK, CHANNELS>();
constexpr int CELLS = cells_of<CHUNK>();
constexpr int HALF = GROUPS * WIDTH + (WIDTH == 16 ? 16 : 0);   // one exchanged table, padded against bank conflicts

static_assert(CHUNK % TILE == 0, "CHUNK: a multiple of TILE");

struct Layout {                                             // places in the dynamic shared memory, in reals
    static constexpr int drive = 0;                                         // (delta, delta*u), later (w, q)
    static constexpr int slope = drive + 2 * CHUNK * PITCH;                 // dy, later y
    static constexpr int tables = (slope + CHUNK * PITCH + 3) / 4 * 4;      // B, C
    static constexpr int inner = tables + 2 * CHUNK * WIDTH;                // states before tiles 1, 2 ...
    static constexpr int exchange = inner + (EVERY ? 0 : (TILES - 1) * MANY * THREADS * OWN);
    static constexpr int gathered = exchange + BUFFERS * TILE * 2 * HALF;   // dB, dC of the chunk, summed over rounds
    static constexpr int sums = gathered + (ROUNDS > 1 ? 2 * CHUNK * WIDTH : 0);    // dD, d delta_bias of each round
    static constexpr int weights = sums + 2 * ROUNDS * CHANNELS;            // delta_bias, D of this round
    static constexpr int end = weights + 2 * (CHANNELS + ABREAST);
};
constexpr int SHARED_BYTES = Layout::end * (int)sizeof(real) + 2 * CHUNK * (int)sizeof(int);
static_assert(SHARED_BYTES == SHARED, "SHARED: the launcher counts the same shared memory");

extern "C" __global__ __launch_bounds__(THREADS, RESIDENT)
void selective_backward(const element* __restrict__ u, const element* __restrict__ delta, const real* __restrict__ A,
                        const b_element* __restrict__ B, const c_element* __restrict__ C, const real* __restrict__ D,
                        const element* __restrict__ z, const real* __restrict__ delta_bias, const void* __restrict__ borders,
                        const real* __restrict__ initial, const int* __restrict__ start, const int* __restrict__ finish,
                        const element* __restrict__ dout, const real* __restrict__ d_final,
                        element* __restrict__ du, element* __restrict__ ddelta, element* __restrict__ dz,
                        real* __restrict__ adjoint, real* __restrict__ d_initial, real* __restrict__ dA_part,
                        real* __restrict__ dB_part, real* __restrict__ dC_part, real* __restrict__ sums_part,
                        int length, int channels, int states, int groups, int softplus_on, int segment_steps, int segments,
                        int batches,
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
    real* const exchange = shared + Layout::exchange;
    real* const gathered = shared + Layout::gathered;
    real* const sums = shared + Layout::sums;
    real* const bias = shared + Layout::weights;
    real* const skip = bias + CHANNELS + ABREAST;
    int* const starts = reinterpret_cast<int*>(shared + Layout::end);
    int* const finishes = starts + CHUNK;

    const Place place = place_of(blockIdx.x, channels, groups, CHANNELS * ROUNDS, segments);
    const int lane = threadIdx.x % LANES;
    const int mine = threadIdx.x / LANES;                   // which group of threads; its channels: mine * MANY ...
    const int from = (int)(place.segment * segment_steps);
    const int to = segment_steps < length - from ? from + segment_steps : length;
    const long long chunks = (length + CHUNK - 1) / CHUNK;
    const long long state_row = (place.batch * segments + place.segment) * channels;    // of adjoint and dA_part
    const int in_group = channels / groups;
    const long long column = (place.first - place.group * in_group) / (CHANNELS * ROUNDS);      // which block of the group

    const Strides u_at = {u_batch, u_time, u_channel}, delta_at = {delta_batch, delta_time, delta_channel};
    const Strides z_at = {z_batch, z_time, z_channel}, dout_at = {dout_batch, dout_time, dout_channel};
    const Strides du_at = {du_batch, du_time, du_channel}, ddelta_at = {ddelta_batch, ddelta_time, ddelta_channel};
    const Strides dz_at = {dz_batch, dz_time, dz_channel};
    Table b_at = {nullptr, 0, 0}, c_at = {nullptr, 0, 0};
#if !FIXED_B
    b_at = {B + place.batch * B_batch + place.group * B_group, B_time, B_state};
#endif
#if !FIXED_C
    c_at = {C + place.batch * C_batch + place.group * C_group, C_time, C_state};
#endif
    for (int i = threadIdx.x; i < 2 * ROUNDS * CHANNELS; i += THREADS) {
        sums[i] = 0;
    }
    for (int i = threadIdx.x; ROUNDS > 1 && i < 2 * CHUNK * WIDTH; i += THREADS) {
        gathered[i] = 0;
    }
    auto keep_table = [&](int half, int t, int n, int steps, int first, real value) {       // dB (half 0) or dC of a step
        real* const part = half ? dC_part : dB_part;
        if ((half ? C_MOVES : B_MOVES) && t < steps && n < states) {
            part[(((column * batches + place.batch) * length + first + t) * groups + place.group) * states + n] = value;
        }
    };

    // What a thread carries from chunk to chunk. With one round it stays in registers; with more it waits in memory.
    real rate[MANY][OWN], g[MANY][OWN], dA[MANY][OWN];
    real b_own[MANY][OWN], c_own[MANY][OWN], dB_own[MANY][OWN], dC_own[MANY][OWN];
    bool present[MANY];
    auto fetch = [&](int base, int count) {
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            const long long channel = base + mine * MANY + j;
            present[j] = mine * MANY + j < count;
            const Owned a_row = read_states(A, channel * states + lane * OWN, lane, states, present[j]);
            const Owned g_row = read_states(adjoint, (state_row + channel) * states + lane * OWN, lane, states, present[j]);
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                const int n = lane * OWN + s;
                rate[j][s] = a_row.at[s] * LOG2E;
                g[j][s] = g_row.at[s];
                dA[j][s] = dB_own[j][s] = dC_own[j][s] = 0;
                b_own[j][s] = FIXED_B && present[j] && n < states ? (real)B[channel * B_group + n * B_state] : real(0);
                c_own[j][s] = FIXED_C && present[j] && n < states ? (real)C[channel * C_group + n * C_state] : real(0);
            }
        }
    };
    auto deposit = [&](int base) {
#pragma unroll
        for (int j = 0; j < MANY; ++j) {
            const long long at = (state_row + base + mine * MANY + j) * states + lane * OWN;
            auto add = [&](real* part, const real* more) {
                Owned value = read_states(part, at, lane, states, present[j]);
#pragma unroll
                for (int s = 0; s < OWN; ++s) {
                    value.at[s] += more[s];
                }
                write_states(part, at, lane, states, present[j], value);
            };
            Owned arrived;
#pragma unroll
            for (int s = 0; s < OWN; ++s) {
                arrived.at[s] = g[j][s];
            }
            write_states(adjoint, at, lane, states, present[j], arrived);
            add(dA_part, dA[j]);
            if (FIXED_B) {
                add(dB_part, dB_own[j]);
            }
            if (FIXED_C) {
                add(dC_part, dC_own[j]);
            }
        }
    };

    const int last = from + (to - from - 1) / CHUNK * CHUNK;    // the last chunk, which is the first to be worked on
    for (int first = last; first >= from && from < to; first -= CHUNK) {
        const int steps = to - first;                       // that exist
        __syncthreads();                                    // B0: the last chunk is done with marks and tables
        for (int t = threadIdx.x; PACKED && t < CHUNK; t += THREADS) {
            starts[t] = t < steps ? start[place.batch * length + first + t] : PADDING;
            finishes[t] = t < steps ? finish[place.batch * length + first + t] : -1;
        }
        if (PACKED) {
            __syncthreads();                                // BP: the marks are there before the tables ask for them
        }
#pragma unroll
        for (int i = 0; i < CELLS; ++i) {
            const Cell cell = cell_of<CHUNK>(b_at, c_at, i, states);
            const long long ahead = first * (cell.place < CHUNK * WIDTH ? B_time : C_time);
            stage_cell(tables, cell, load_cell<false>(cell, ahead, steps), !(PACKED && starts[cell.t] == PADDING));
        }
#pragma unroll 1
        for (int round = 0; round < ROUNDS; ++round) {
            const int base = place.first + round * CHANNELS;            // first channel of this round
            const int count = place.count - round * CHANNELS;           // how many exist
            const long long b = place.batch;
            if (count <= 0) {
                break;                                      // the same in every thread of the block
            }
            for (int c = threadIdx.x; c < CHANNELS + ABREAST; c += THREADS) {
                bias[c] = delta_bias && c < count ? delta_bias[base + c] : real(0);
                skip[c] = D && c < count ? D[base + c] : real(0);
            }
            __syncthreads();                                // B1: weights are there; the last round is over

            Place here = place;                             // this round's channels
            here.first = base;
            here.count = count < CHANNELS ? count : CHANNELS;
            const bool all_here = HAS_WHOLE && steps >= CHUNK && here.count == CHANNELS;
            const Spot corner = {0, 0, true};               // where the chunk's first step and channel lie in each tensor
            const long long u_first = u_at.of(here, first, corner), delta_first = delta_at.of(here, first, corner);
            const long long z_first = z_at.of(here, first, corner), dout_first = dout_at.of(here, first, corner);
            const long long du_first = du_at.of(here, first, corner), ddelta_first = ddelta_at.of(here, first, corner);
            const long long dz_first = dz_at.of(here, first, corner);

            // 1  stage
            auto stage = [&](auto whole) {
                constexpr bool WHOLE = decltype(whole)::value && !PACKED;
                Raw<VECTOR> u_raw[ITEMS], delta_raw[ITEMS], dout_raw[ITEMS], z_raw[ITEMS];
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) {
                    const Spot spot = spot_of<CHUNK, CHANNELS>(i);
                    u_raw[i] = load_pack<WHOLE>(u + (u_first + u_at.inside(spot)), spot, steps, here.count);
                    delta_raw[i] = load_pack<WHOLE>(delta + (delta_first + delta_at.inside(spot)), spot, steps, here.count);
                    dout_raw[i] = load_pack<WHOLE>(dout + (dout_first + dout_at.inside(spot)), spot, steps, here.count);
                    if (GATED) {
                        z_raw[i] = load_pack<WHOLE>(z + (z_first + z_at.inside(spot)), spot, steps, here.count);
                    }
                }
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
                            counts[v] = WHOLE || (t < steps && !(PACKED && starts[t] == PADDING));
                            const real raw = delta_raw[i].of(v) + offset.of(v);
                            const real step = softplus_on ? softplus(raw) : raw;
                            pairs.at[v].x = counts[v] ? step : real(0);
                            pairs.at[v].y = counts[v] ? step * u_raw[i].of(v) : real(0);
                            slopes.at[v] = counts[v] ? dout_raw[i].of(v) : real(0);
                        }
                        if (GATED) {
#pragma unroll
                            for (int v = 0; v < VECTOR; ++v) {
                                const real w = z_raw[i].of(v);
                                slopes.at[v] *= counts[v] ? w * sigmoid(w) : real(0);
                            }
                        }
                        put_values(drive, PITCH, spot, pairs);
                        put_values(slope, PITCH, spot, slopes);
                    }
                }
            };
            if (all_here) {
                stage(Whole());
            } else {
                stage(Ragged());
            }
            __syncthreads();                                // B2: the chunk is staged

            // 2  forward from the saved state
            if (ROUNDS > 1 || first == last) {
                fetch(base, count);
            }
            real h[MANY][OWN];
            auto channel_of_mine = [&](int j) { return base + mine * MANY + j; };
            auto place_in = [&](long long row, int j) {     // my first state of channel j in an array of states
                return (row * channels + channel_of_mine(j)) * states + lane * OWN;
            };
            auto saved = [&](long long row, int j) {        // states before or behind a step, as the forward kept them
                return read_borders(borders, place_in(row, j), lane, states, present[j]);
            };
#pragma unroll
            for (int j = 0; j < MANY && !EVERY; ++j) {
                const Owned value = saved(b * chunks + first / CHUNK, j);
#pragma unroll
                for (int s = 0; s < OWN; ++s) {
                    h[j][s] = value.at[s];
                }
            }
            auto initial_of = [&](int mark, int j, int s) {
                const int n = lane * OWN + s;
                return initial && mark >= 0 && present[j] && n < states
                           ? initial[((long long)mark * channels + base + mine * MANY + j) * states + n] : real(0);
            };
#pragma unroll 1
            for (int tile = 0; tile < TILES - 1 && !EVERY; ++tile) {
#pragma unroll
                for (int k = 0; k < TILE; ++k) {
                    const int t = tile * TILE + k;
                    const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive + t * PITCH + mine * MANY);
                    const Owned b_now = *reinterpret_cast<const Owned*>(tables + t * WIDTH + lane * OWN);
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            if (PACKED && starts[t] >= FROM_ZERO) {
                                h[j][s] = initial_of(starts[t], j, s);
                            }
                            h[j][s] = exp_2(pair.at[j].x * rate[j][s]) * h[j][s]
                                      + pair.at[j].y * (FIXED_B ? b_own[j][s] : b_now.at[s]);
                        }
                    }
                }
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    Owned keep;
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        keep.at[s] = h[j][s];
                    }
                    *reinterpret_cast<Owned*>(inner + ((tile * MANY + j) * THREADS + threadIdx.x) * OWN) = keep;
                }
            }

            // 3  tiles from the last to the first
#pragma unroll 1
            for (int tile = TILES - 1; tile >= 0; --tile) {
                real before[MANY][OWN];                     // the state before the tile
                real a[TILE][MANY][OWN], now[TILE][MANY][OWN];
#pragma unroll
                for (int j = 0; j < MANY; ++j) {
                    const int t = first + tile * TILE - 1;
                    Owned value;
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        value.at[s] = 0;
                    }
                    if (EVERY) {
                        if (t >= 0 && t < length) {
                            value = saved(b * (long long)length + t, j);
                        } else if (t < 0 && initial && !PACKED) {
                            value = read_states(initial, place_in(b, j), lane, states, present[j]);
                        }
                    } else if (tile > 0) {
                        const int slot = ((tile - 1) * MANY + j) * THREADS + (int)threadIdx.x;
                        value = *reinterpret_cast<const Owned*>(inner + slot * OWN);
                    } else {
                        value = saved(b * chunks + first / CHUNK, j);
                    }
#pragma unroll
                    for (int s = 0; s < OWN; ++s) {
                        before[j][s] = value.at[s];
                    }
                }
                real y_left[TILE / FOUR][MANY][SUMS_LEFT];
#pragma unroll
                for (int quad = 0; quad < TILE / FOUR; ++quad) {
                    real y_sums[MANY][FOUR];
#pragma unroll
                    for (int k = quad * FOUR; k < quad * FOUR + FOUR; ++k) {
                        const int t = tile * TILE + k;
                        const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive + t * PITCH + mine * MANY);
                        const Owned b_now = *reinterpret_cast<const Owned*>(tables + t * WIDTH + lane * OWN);
                        const Owned c_now = *reinterpret_cast<const Owned*>(tables + (CHUNK + t) * WIDTH + lane * OWN);
#pragma unroll
                        for (int j = 0; j < MANY; ++j) {
                            real y = 0;
#pragma unroll
                            for (int s = 0; s < OWN; ++s) {
                                real left = k == 0 ? before[j][s] : now[k == 0 ? 0 : k - 1][j][s];
                                if (PACKED && starts[t] >= FROM_ZERO) {
                                    left = initial_of(starts[t], j, s);
                                }
                                a[k][j][s] = exp_2(pair.at[j].x * rate[j][s]);
                                now[k][j][s] = a[k][j][s] * left + pair.at[j].y * (FIXED_B ? b_own[j][s] : b_now.at[s]);
                                y += (FIXED_C ? c_own[j][s] : c_now.at[s]) * now[k][j][s];
                            }
                            y_sums[j][k - quad * FOUR] = y;
                        }
                    }
#pragma unroll
                    for (int j = 0; j < MANY && GATED; ++j) {       // only dz asks for y
                        sum_lanes(y_sums[j], lane);
#pragma unroll
                        for (int i = 0; i < SUMS_LEFT; ++i) {
                            y_left[quad][j][i] = y_sums[j][i];
                        }
                    }
                }
                real* const buffer = exchange + (tile % BUFFERS) * TILE * 2 * HALF;     // two that take turns save a barrier
#pragma unroll
                for (int quad = TILE / FOUR - 1; quad >= 0; --quad) {
                    real w_sums[MANY][FOUR], q_sums[MANY][FOUR];
#pragma unroll
                    for (int k = quad * FOUR + FOUR - 1; k >= quad * FOUR; --k) {
                        const int t = tile * TILE + k;
                        const ManyTwo pair = *reinterpret_cast<const ManyTwo*>(drive + t * PITCH + mine * MANY);
                        const Many dy = *reinterpret_cast<const Many*>(slope + t * PITCH + mine * MANY);
                        const Owned b_now = *reinterpret_cast<const Owned*>(tables + t * WIDTH + lane * OWN);
                        const Owned c_now = *reinterpret_cast<const Owned*>(tables + (CHUNK + t) * WIDTH + lane * OWN);
                        Owned dB, dC;
#pragma unroll
                        for (int s = 0; s < OWN; ++s) {
                            dB.at[s] = dC.at[s] = 0;
                        }
#pragma unroll
                        for (int j = 0; j < MANY; ++j) {
                            const long long channel = base + mine * MANY + j;
                            real w = 0, q = 0;
#pragma unroll
                            for (int s = 0; s < OWN; ++s) {
                                const int n = lane * OWN + s;
                                real left = k == 0 ? before[j][s] : now[k == 0 ? 0 : k - 1][j][s];
                                if (PACKED && starts[t] >= FROM_ZERO) {
                                    left = initial_of(starts[t], j, s);
                                }
                                if (PACKED && finishes[t] >= 0 && d_final && present[j] && n < states) {
                                    g[j][s] += d_final[((long long)finishes[t] * channels + channel) * states + n];
                                }
                                const real gain = g[j][s] + (FIXED_C ? c_own[j][s] : c_now.at[s]) * dy.at[j];
                                w += gain * (FIXED_B ? b_own[j][s] : b_now.at[s]);
                                (FIXED_B ? dB_own[j][s] : dB.at[s]) += gain * pair.at[j].y;
                                (FIXED_C ? dC_own[j][s] : dC.at[s]) += dy.at[j] * now[k][j][s];
                                g[j][s] = gain * a[k][j][s];
                                const real through = g[j][s] * left;
                                q += through * rate[j][s];
                                dA[j][s] += through * pair.at[j].x;
                                if (PACKED && starts[t] >= FROM_ZERO) {     // what arrives at a start stays there
                                    if (d_initial && starts[t] >= 0 && present[j] && n < states) {
                                        d_initial[((long long)starts[t] * channels + channel) * states + n] = g[j][s];
                                    }
                                    g[j][s] = 0;
                                }
                            }
                            w_sums[j][k - quad * FOUR] = w;
                            q_sums[j][k - quad * FOUR] = q;
                        }
                        if (B_MOVES) {
                            *reinterpret_cast<Owned*>(buffer + (2 * k) * HALF + mine * WIDTH + lane * OWN) = dB;
                        }
                        if (C_MOVES) {
                            *reinterpret_cast<Owned*>(buffer + (2 * k + 1) * HALF + mine * WIDTH + lane * OWN) = dC;
                        }
                    }
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
                        sum_lanes(w_sums[j], lane);
                        sum_lanes(q_sums[j], lane);
                    }
                    __syncwarp();                           // every thread of the channel has read the places written next
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
#pragma unroll
                        for (int i = 0; i < SUMS_LEFT; ++i) {
                            const int t = tile * TILE + quad * FOUR + summed_step(lane, i);
                            if (lane < FOUR) {
                                drive[t * PITCH + mine * MANY + j] = Two{w_sums[j][i], q_sums[j][i]};
                                if (GATED) {
                                    slope[t * PITCH + mine * MANY + j] = y_left[quad][j][i];
                                }
                            }
                        }
                    }
                }
                if (B_MOVES || C_MOVES) {
                    __syncthreads();                        // B3: the tile's dB and dC are all there, and so is w, q, y
#pragma unroll
                    for (int i = threadIdx.x; i < TILE * 2 * WIDTH; i += THREADS) {
                        const int k = i / (2 * WIDTH), half = i / WIDTH % 2, n = i % WIDTH;
                        const real* const column_of = buffer + (2 * k + half) * HALF + n;
                        real some[FOUR] = {0, 0, 0, 0};     // four sums side by side: additions need not wait for each other
#pragma unroll
                        for (int other = 0; other < GROUPS; ++other) {
                            some[other % FOUR] += column_of[other * WIDTH];
                        }
                        const real sum = (some[0] + some[1]) + (some[2] + some[3]);
                        if (ROUNDS > 1) {
                            gathered[(half * CHUNK + tile * TILE + k) * WIDTH + n] += sum;
                        } else {
                            keep_table(half, tile * TILE + k, n, steps, first, sum);
                        }
                    }
                    if (BUFFERS == 1) {
                        __syncthreads();                    // B3b: the tile's dB and dC have been read
                    }
                }
            }
            __syncthreads();                                // B4: w, q and y of the whole chunk are there
            if (ROUNDS > 1 || first == from) {
                deposit(base);
            }

            // 4  gradients of u, delta and z
            auto write = [&](auto whole) {
                constexpr bool WHOLE = decltype(whole)::value && !PACKED;
                Raw<VECTOR> u_all[ITEMS], delta_all[ITEMS], dout_all[ITEMS], z_all[ITEMS];
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) {
                    const Spot spot = spot_of<CHUNK, CHANNELS>(i);
                    u_all[i] = load_pack<WHOLE>(u + (u_first + u_at.inside(spot)), spot, steps, here.count);
                    delta_all[i] = load_pack<WHOLE>(delta + (delta_first + delta_at.inside(spot)), spot, steps, here.count);
                    dout_all[i] = load_pack<WHOLE>(dout + (dout_first + dout_at.inside(spot)), spot, steps, here.count);
                    if (GATED) {
                        z_all[i] = load_pack<WHOLE>(z + (z_first + z_at.inside(spot)), spot, steps, here.count);
                    }
                }
#pragma unroll
                for (int i = 0; i < ITEMS; ++i) {
                    const Spot spot = spot_of<CHUNK, CHANNELS>(i);
                    if (!spot.mine) {
                        continue;
                    }
                    const Raw<VECTOR> u_raw = u_all[i], delta_raw = delta_all[i], dout_raw = dout_all[i], z_raw = z_all[i];
                    const Abreast offset = *reinterpret_cast<const Abreast*>(bias + spot.c);
                    const Abreast weight = *reinterpret_cast<const Abreast*>(skip + spot.c);
                    const Values<Two> both = values_at(drive, PITCH, spot);        // w, q
                    Values<Two> sums_of;                                            // what D and delta_bias get
                    bool counts[VECTOR];
                    real dy[VECTOR];
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        counts[v] = WHOLE || (step_of(spot, v) < steps && !(PACKED && starts[step_of(spot, v)] == PADDING));
                        dy[v] = counts[v] ? dout_raw.of(v) : real(0);
                    }
                    if (GATED) {
                        const Values<real> summed = values_at(slope, PITCH, spot);  // y before skip and gate
                        Pack<VECTOR> dz_out;
#pragma unroll
                        for (int v = 0; v < VECTOR; ++v) {
                            const real w = z_raw.of(v);
                            const real s = sigmoid(w);
                            const real y = summed.at[v] + (D ? weight.of(v) * u_raw.of(v) : real(0));
                            dz_out.at[v] = to_element(counts[v] ? dy[v] * y * s * (real(1) + w * (real(1) - s)) : real(0));
                            dy[v] = counts[v] ? dy[v] * (w * s) : real(0);
                        }
                        store_pack<WHOLE>(dz + (dz_first + dz_at.inside(spot)), spot, steps, here.count, dz_out);
                    }
                    Pack<VECTOR> du_out, ddelta_out;
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) {
                        const real value = u_raw.of(v);
                        const real raw = delta_raw.of(v) + offset.of(v);
                        const Two step = softplus_on ? softplus_and_slope(raw) : Two{raw, real(1)};
                        const real du_value = both.at[v].x * step.x + (D ? weight.of(v) * dy[v] : real(0));
                        const real ddelta_value = (both.at[v].x * value + both.at[v].y * LN2) * step.y;
                        sums_of.at[v].x = counts[v] ? dy[v] * value : real(0);
                        sums_of.at[v].y = counts[v] ? ddelta_value : real(0);
                        du_out.at[v] = to_element(counts[v] ? du_value : real(0));
                        ddelta_out.at[v] = to_element(sums_of.at[v].y);
                    }
                    put_values(drive, PITCH, spot, sums_of);
                    store_pack<WHOLE>(du + (du_first + du_at.inside(spot)), spot, steps, here.count, du_out);
                    element* const ddelta_to = ddelta + (ddelta_first + ddelta_at.inside(spot));
                    store_pack<WHOLE>(ddelta_to, spot, steps, here.count, ddelta_out);
                }
            };
            if (all_here) {
                write(Whole());
            } else {
                write(Ragged());
            }
            __syncthreads();                                // B5: what D and delta_bias get from each step is there
            for (int i = threadIdx.x; i < 2 * CHANNELS; i += THREADS) {
                const int c = i / 2;
                real sum = 0;
#pragma unroll 8
                for (int t = 0; t < CHUNK; ++t) {
                    sum += i % 2 ? drive[t * PITCH + c].y : drive[t * PITCH + c].x;
                }
                sums[2 * round * CHANNELS + 2 * c + i % 2] += sum;
            }
        }
        if (ROUNDS > 1 && (B_MOVES || C_MOVES)) {
            __syncthreads();                                // B6: all rounds have added their dB and dC
            for (int i = threadIdx.x; i < 2 * CHUNK * WIDTH; i += THREADS) {
                keep_table(i / (CHUNK * WIDTH), i / WIDTH % CHUNK, i % WIDTH, steps, first, gathered[i]);
                gathered[i] = 0;
            }
        }
    }
    __syncthreads();                                        // B7: the sums of every round are complete
    for (int i = threadIdx.x; i < 2 * ROUNDS * CHANNELS; i += THREADS) {
        const int c = i / 2;
        if (c < place.count) {
            sums_part[((place.batch * segments + place.segment) * channels + place.first + c) * 2 + i % 2] = sums[i];
        }
    }
}
