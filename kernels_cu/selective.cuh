// selective.cuh -- what the selective kernels share: how channels and states lie on threads, how a tile of steps is staged,
// the activations, and the sums over states.
//
// Recurrence h[t] = exp(delta[t] A) h[t-1] + delta[t] B[t] u[t], y[t] = C[t] . h[t], for each channel and its states.
// Mapping    LANES neighbouring threads share one channel, each holds OWN of its states in registers: LANES * OWN = WIDTH
//            places for the states; places behind the last state hold A = B = C = 0, so they stay 0.
//            Time runs in a loop, so the recurrence costs one multiply-add a state and no scan at all.
// Staging    per-step values of a channel (delta, delta*u, ...) are made once, by one thread, and read by LANES threads from
//            shared memory; so do B[t] and C[t], which all channels of a group share.
// Exponents  a = exp(delta A) = exp2(delta A log2(e)): A is scaled once, so each is a multiply and one MUFU instruction.
// Needs      LANES (1, 2, 4 ... 32), OWN, MANY (channels of one thread: 1, 2, 4), THREADS, TILE (a multiple of 4),
//            VECTOR (elements in one access of u, delta, z), TABLE (of B, C),
//            TIME_INNER (1: neighbours in memory are neighbouring steps; 0: channels),
//            PACKED (starts and finishes inside a row, padding), GATED (there is a z),
//            FIXED_B, FIXED_C (one B or C for all steps, (channels, states)), and an element. Also STATES_FIT, if it is known
//            to be 1: every place for a state is one, so nobody need ask while the kernel runs.
#pragma once
#if !defined(STATES_FIT)
#define STATES_FIT 0
#endif
#include "selective_element.cuh"

constexpr int WIDTH = LANES * OWN;                          // places for states
constexpr int FOUR = 4;                                     // steps whose sums over lanes are taken together
constexpr int PADDING = -3, FROM_ZERO = -1;                 // what `start` says of a step; -2: nothing; >= 0: from this state

static_assert(LANES >= 1 && LANES <= 32 && (LANES & (LANES - 1)) == 0, "LANES: a power of two up to 32");
static_assert(TILE % FOUR == 0 && TILE % VECTOR == 0 && THREADS % 32 == 0, "TILE: a multiple of 4; THREADS: of 32");

#if FIXED_B
typedef real b_element;                                     // a fixed B is a weight: it keeps its precision
#else
typedef element b_element;
#endif
#if FIXED_C
typedef real c_element;
#else
typedef element c_element;
#endif

// What a saved state is stored in, if not in a real.
#if defined(BORDER_BFLOAT16)
#include <cuda_bf16.h>
typedef __nv_bfloat16 border;
__device__ __forceinline__ border to_border(real value) { return __float2bfloat16_rn((float)value); }
__device__ __forceinline__ real from_border(border value) { return (real)__bfloat162float(value); }
#endif

// For code that is compiled twice: `Whole` for tiles that exist to the last step and channel, `Ragged` for all others.
template <bool VALUE>
struct Flag {
    static constexpr bool value = VALUE;
};
typedef Flag<true> Whole;
typedef Flag<false> Ragged;
constexpr bool HAS_WHOLE = VECTOR > 1;                      // single elements are the slow way anyway: one text will do

// One value for each channel of an access.
constexpr int ABREAST = TIME_INNER ? 1 : VECTOR;
struct alignas(sizeof(real) * (ABREAST < 16 / (int)sizeof(real) ? ABREAST : 16 / (int)sizeof(real))) Abreast {
    real at[ABREAST];
    __device__ __forceinline__ real of(int v) const { return at[TIME_INNER ? 0 : v]; }
};

struct alignas(2 * sizeof(real)) Two {
    real x, y;
};

#if defined(ELEMENT_DOUBLE)
constexpr double LOG2E = 1.4426950408889634074, LN2 = 0.69314718055994530942;
__device__ __forceinline__ double exp_2(double x) { return exp2(x); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
__device__ __forceinline__ double softplus(double x) { return x > 20.0 ? x : log1p(exp(x)); }
#else
constexpr float LOG2E = 1.44269504088896341f, LN2 = 0.693147180559945309f;
__device__ __forceinline__ float exp_2(float x) { return exp2f(x); }

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + exp2f(-LOG2E * x)); }

// softplus(x) = max(x, 0) + log(1 + e) with e = exp(-|x|) <= 1, and log(1 + e) = e P(e): nine terms of P (minimax) leave a
// relative error under 1e-7 of their own also where softplus is tiny (log(1 + e) taken literally loses those bits). No division, as the
// special function unit is what a fused forward waits for. Never negative; NaN stays NaN.
__device__ __forceinline__ float softplus_of(float x, float e) {
    float p = 0.00523262424f;
    p = p * e - 0.0295049567f;
    p = p * e + 0.0782254934f;
    p = p * e - 0.13663207f;
    p = p * e + 0.191059887f;
    p = p * e - 0.248429775f;
    p = p * e + 0.333190948f;
    p = p * e - 0.499994934f;
    p = p * e + 0.99999994f;
    return fmaxf(x, 0.0f) + e * p;                          // from 17 on the second term is lost: the identity
}

__device__ __forceinline__ float softplus(float x) { return softplus_of(x, exp2f(-LOG2E * fabsf(x))); }
#endif

// softplus and its derivative from one exponential. Above 20, where softplus is the identity, the derivative is 1.
#if defined(ELEMENT_DOUBLE)
__device__ __forceinline__ Two softplus_and_slope(double x) {
    return Two{softplus(x), x > 20.0 ? 1.0 : sigmoid(x)};
}
#else
__device__ __forceinline__ Two softplus_and_slope(float x) {
    const float e = exp2f(-LOG2E * fabsf(x));
    const float above = 1.0f / (1.0f + e);                  // sigmoid of |x|
    return Two{softplus_of(x, e), x > 0.0f ? above : e * above};
}
#endif

// Where a thread sits in the forward and in totals. Threads of one channel are APART lanes from each other: lanes i and i^1
// of a warp are two channels and own the same states, lanes i and i^2 one channel. So whatever a warp reads of a step,
// whether B and C or what the channels bring, neighbours ask for one address, and a read of 16 bytes serves 16 lanes in one
// turn of the banks instead of 8 (with LANES = 32 there is but one channel in a warp).
constexpr int APART = LANES < 32 ? 2 : 1;

__device__ __forceinline__ int lane_of_thread() { return (int)threadIdx.x / APART % LANES; }    // which of its channel's

__device__ __forceinline__ int channel_of_thread() {        // in the block, in units of MANY
    return (int)threadIdx.x / (LANES * APART) * APART + (int)threadIdx.x % APART;
}

// Sums of four steps over the LANES threads of a channel, which are BETWEEN lanes apart. Each exchange halves what a thread
// still holds, so four sums cost 3 shuffles instead of 8 (LANES = 4). Afterwards value[i] of lane l is the sum of step
// summed_step(l, i), i < SUMS_LEFT.
constexpr int SUMS_LEFT = LANES == 1 ? 4 : LANES == 2 ? 2 : 1;

template <int BETWEEN = 1>
__device__ __forceinline__ void sum_lanes(real value[FOUR], int lane) {
    if (LANES >= 2) {
        const bool odd = lane & 1;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const real send = odd ? value[2 * i] : value[2 * i + 1];
            const real keep = odd ? value[2 * i + 1] : value[2 * i];
            value[i] = keep + __shfl_xor_sync(0xffffffffu, send, BETWEEN);
        }
    }
    if (LANES >= 4) {
        const bool high = lane & 2;
        const real send = high ? value[0] : value[1];
        const real keep = high ? value[1] : value[0];
        value[0] = keep + __shfl_xor_sync(0xffffffffu, send, 2 * BETWEEN);
    }
#pragma unroll
    for (int reach = 4; reach < LANES; reach *= 2) {
        value[0] += __shfl_xor_sync(0xffffffffu, value[0], reach * BETWEEN);
    }
}

__device__ __forceinline__ int summed_step(int lane, int i) {
    return LANES == 1 ? i : LANES == 2 ? 2 * i + (lane & 1) : (lane & 2) + (lane & 1);
}

// Where the channels of a block lie in the row, and how many of them exist. A block never crosses a group of B and C.
struct Place {
    long long batch;
    int segment;
    int group, first, count;                                // channels first ... first + count - 1
};

__device__ __forceinline__ Place place_of(int block, int channels, int groups, int across, int segments) {
    const int in_group = channels / groups;                 // channels of one group
    const int blocks = (in_group + across - 1) / across;    // blocks of one group
    Place place;
    const int column = block % (blocks * groups);
    const int row = block / (blocks * groups);
    place.segment = row % segments;
    place.batch = row / segments;
    place.group = column / blocks;
    const int inside = column % blocks * across;
    place.first = place.group * in_group + inside;
    place.count = in_group - inside < across ? in_group - inside : across;
    return place;
}

// One access of a tile: VECTOR neighbours, along channels or along time.
struct Spot {
    int t, c;                                               // first step in the tile, first channel in the block
    bool mine;                                              // false: more threads than accesses
};

// Where a tensor (batch, length, channels) lies: strides in elements.
struct Strides {
    long long batch, time, channel;

    __device__ __forceinline__ long long of(const Place& place, long long first, Spot spot) const {
        return place.batch * batch + (first + spot.t) * time + (place.first + spot.c) * channel;
    }

    __device__ __forceinline__ long long inside(Spot spot) const { return spot.t * time + spot.c * channel; }
};

// The packs of a row of the tile lie side by side: packs of one step, or of one channel where time is the inner axis.
template <int STEPS, int ACROSS>
__device__ __forceinline__ constexpr int packs_of() {
    return TIME_INNER ? STEPS / VECTOR : (ACROSS + VECTOR - 1) / VECTOR;
}

template <int STEPS, int ACROSS>
__device__ __forceinline__ Spot spot_of(int item) {
    constexpr int PACKS = packs_of<STEPS, ACROSS>();
    int inner, outer;
    if (THREADS % PACKS == 0) {                             // then all accesses of a thread differ by constants
        inner = (int)threadIdx.x % PACKS;
        outer = item * (THREADS / PACKS) + (int)threadIdx.x / PACKS;
    } else {
        inner = (item * THREADS + (int)threadIdx.x) % PACKS;
        outer = (item * THREADS + (int)threadIdx.x) / PACKS;
    }
    Spot spot;
    spot.t = TIME_INNER ? inner * VECTOR : outer;
    spot.c = TIME_INNER ? outer : inner * VECTOR;
    spot.mine = STEPS * ACROSS % (VECTOR * THREADS) == 0 || outer < (TIME_INNER ? ACROSS : STEPS);
    return spot;
}

template <int STEPS, int ACROSS>
__device__ __forceinline__ constexpr int items_of() {
    return (packs_of<STEPS, ACROSS>() * (TIME_INNER ? ACROSS : STEPS) + THREADS - 1) / THREADS;
}

// Do a thread's accesses of a tile all lie one hop apart, on the same channels (or, where time is inner, the same steps)?
template <int STEPS, int ACROSS>
__device__ __forceinline__ constexpr bool evenly_spaced() {
    return THREADS % packs_of<STEPS, ACROSS>() == 0;
}

// From a thread's first access of a tile to its access number `item`, in elements.
template <int STEPS, int ACROSS>
__device__ __forceinline__ long long beside(int item, long long time, long long channel) {
    const Spot first = spot_of<STEPS, ACROSS>(0), spot = spot_of<STEPS, ACROSS>(item);
    return evenly_spaced<STEPS, ACROSS>()
        ? item * (THREADS / packs_of<STEPS, ACROSS>()) * (TIME_INNER ? channel : time)
        : (spot.t - first.t) * time + (spot.c - first.c) * channel;
}

// A thread's accesses of one tensor, one after another: an addition each instead of a product of strides.
template <typename ELEMENT, int STEPS, int ACROSS>
struct Walk {
    ELEMENT* at;
    Strides strides;

    __device__ __forceinline__ Walk(ELEMENT* tensor, Strides its, const Place& place, long long first) : strides(its) {
        at = tensor ? tensor + strides.of(place, first, spot_of<STEPS, ACROSS>(0)) : nullptr;
    }

    __device__ __forceinline__ void next(int item) {        // from access number `item` to the one behind it
        if (evenly_spaced<STEPS, ACROSS>()) {
            at += THREADS / packs_of<STEPS, ACROSS>() * (TIME_INNER ? strides.channel : strides.time);
        } else {
            at += strides.inside(spot_of<STEPS, ACROSS>(item + 1)) - strides.inside(spot_of<STEPS, ACROSS>(item));
        }
    }
};

__device__ __forceinline__ int step_of(Spot spot, int v) { return TIME_INNER ? spot.t + v : spot.t; }
__device__ __forceinline__ int channel_of(Spot spot, int v) { return TIME_INNER ? spot.c : spot.c + v; }

// VECTOR neighbours as raw bytes: they are converted where they are used, not where the load would still be waited for.
// Whole accesses lie inside or outside: where VECTOR > 1 the launcher has made sure that it divides counts and strides.
template <bool WHOLE>
__device__ __forceinline__ Raw<VECTOR> load_pack(const element* from, Spot spot, int steps, int count) {
    Raw<VECTOR> raw;
    if (spot.mine && (WHOLE || (spot.t < steps && spot.c < count))) {
        raw = *reinterpret_cast<const Raw<VECTOR>*>(from);
    } else {
        raw.clear();
    }
    return raw;
}

template <bool WHOLE>
__device__ __forceinline__ void store_pack(element* to, Spot spot, int steps, int count, Pack<VECTOR> pack) {
    if (spot.mine && (WHOLE || (spot.t < steps && spot.c < count))) {
        *reinterpret_cast<Pack<VECTOR>*>(to) = pack;
    }
}

// VECTOR values of an access in shared memory, one row of `pitch` a step.
template <typename VALUE>
struct alignas(TIME_INNER ? alignof(VALUE) : sizeof(VALUE) * VECTOR < 16 ? sizeof(VALUE) * VECTOR : 16) Values {
    VALUE at[VECTOR];
};

template <typename VALUE>
__device__ __forceinline__ Values<VALUE> values_at(const VALUE* tile, int pitch, Spot spot) {
    Values<VALUE> values;
    if (TIME_INNER) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            values.at[v] = tile[(spot.t + v) * pitch + spot.c];
        }
    } else {
        values = *reinterpret_cast<const Values<VALUE>*>(tile + spot.t * pitch + spot.c);
    }
    return values;
}

template <typename VALUE>
__device__ __forceinline__ void put_values(VALUE* tile, int pitch, Spot spot, Values<VALUE> values) {
    if (TIME_INNER) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            tile[(spot.t + v) * pitch + spot.c] = values.at[v];
        }
    } else {
        *reinterpret_cast<Values<VALUE>*>(tile + spot.t * pitch + spot.c) = values;
    }
}

// B and C of one group, each (length, states), strides in elements. TABLE neighbours along the states in one access; where
// that cannot be, single elements, threads along whichever axis is contiguous. Both are staged by one list of accesses.
struct Table {
    const element* first;                                   // step 0, state 0; null: nothing to stage
    long long time, state;
};

constexpr bool B_MOVES = !FIXED_B, C_MOVES = !FIXED_C;      // is there one row a step?

struct Cell {
    const element* from;
    int t, place;                                           // step in the tile, place in the staged pair of tables
    bool mine;
};

template <int STEPS>
__device__ __forceinline__ constexpr int cells_of() { return (2 * STEPS * WIDTH / TABLE + THREADS - 1) / THREADS; }

// Staged as two tables of STEPS * WIDTH reals, B and then C.
template <int STEPS>
__device__ __forceinline__ Cell cell_of(Table b, Table c, int item, int states) {
    constexpr int CELLS = STEPS * WIDTH / TABLE;            // accesses of one table
    int i = item * THREADS + (int)threadIdx.x;
    const bool second = i >= CELLS;
    const Table at = second ? c : b;
    i -= second ? CELLS : 0;
    const bool along_time = TABLE == 1 && at.time < at.state;
    Cell cell;
    cell.t = along_time ? i % STEPS : i / (WIDTH / TABLE);
    const int n = along_time ? i / STEPS : i % (WIDTH / TABLE) * TABLE;
    cell.place = (second ? STEPS * WIDTH : 0) + cell.t * WIDTH + n;
    cell.mine = (2 * CELLS % THREADS == 0 || i < CELLS) && at.first != nullptr;
    cell.from = n < states ? at.first + cell.t * at.time + n * at.state : nullptr;
    return cell;
}

template <bool WHOLE>
__device__ __forceinline__ Raw<TABLE> load_cell(Cell cell, long long offset, int steps) {
    Raw<TABLE> raw;
    if (cell.mine && cell.from && (WHOLE || cell.t < steps)) {
        raw = *reinterpret_cast<const Raw<TABLE>*>(cell.from + offset);
    } else {
        raw.clear();
    }
    return raw;
}

struct alignas(TABLE * sizeof(real) < 16 ? TABLE * sizeof(real) : 16) TableReals {
    real at[TABLE];
};

__device__ __forceinline__ void stage_cell(real* tables, Cell cell, Raw<TABLE> raw, bool counts) {
    if (cell.mine) {
        TableReals values;
#pragma unroll
        for (int i = 0; i < TABLE; ++i) {
            values.at[i] = counts ? raw.of(i) : real(0);
        }
        *reinterpret_cast<TableReals*>(tables + cell.place) = values;
    }
}

// What one thread reads of its MANY neighbouring channels at once.
struct alignas(sizeof(real) * MANY < 16 ? sizeof(real) * MANY : 16) Many {
    real at[MANY];
};
struct alignas(2 * sizeof(real) * MANY < 16 ? 2 * sizeof(real) * MANY : 16) ManyTwo {
    Two at[MANY];
};

// A vector of the states that one thread owns, in an array of WIDTH places a row.
struct alignas(sizeof(real) * (OWN % 4 == 0 ? 4 : OWN % 2 == 0 ? 2 : 1)) Owned {
    real at[OWN];
};

struct alignas(16) Four {
    real at[FOUR];
};

// A step's staged B or C of the states that a thread owns; of a fixed one nothing is staged, and nobody asks for it.
template <bool MOVES>
__device__ __forceinline__ Owned staged(const real* at) {
    Owned value = {};
    if (MOVES) {
        value = *reinterpret_cast<const Owned*>(at);
    }
    return value;
}

// The thread's states of one channel in a dense array (channels, states): `at` is the place of the first, which is state
// number `first`. Where every place for a state is one, they are read and written as a vector.
__device__ __forceinline__ Owned read_states(const real* from, long long at, int first, int states, bool present) {
    Owned value;
    if ((STATES_FIT || states % WIDTH == 0) && present) {
        value = *reinterpret_cast<const Owned*>(from + at);
    } else if (STATES_FIT) {
#pragma unroll
        for (int s = 0; s < OWN; ++s) {
            value.at[s] = 0;
        }
    } else {
#pragma unroll
        for (int s = 0; s < OWN; ++s) {
            value.at[s] = present && first + s < states ? from[at + s] : real(0);
        }
    }
    return value;
}

__device__ __forceinline__ void write_states(real* to, long long at, int first, int states, bool present, Owned value) {
    if ((STATES_FIT || states % WIDTH == 0) && present) {
        *reinterpret_cast<Owned*>(to + at) = value;
    } else if (!STATES_FIT) {
#pragma unroll
        for (int s = 0; s < OWN; ++s) {
            if (present && first + s < states) {
                to[at + s] = value.at[s];
            }
        }
    }
}

// The same for saved states, which may be stored in fewer bits.
#if defined(BORDER_BFLOAT16)
__device__ __forceinline__ Owned read_borders(const void* from, long long at, int first, int states, bool present) {
    Owned value;
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        const bool exists = present && first + s < states;
        value.at[s] = exists ? from_border(reinterpret_cast<const border*>(from)[at + s]) : real(0);
    }
    return value;
}

__device__ __forceinline__ void write_borders(void* to, long long at, int first, int states, bool present, Owned value) {
#pragma unroll
    for (int s = 0; s < OWN; ++s) {
        if (present && first + s < states) {
            reinterpret_cast<border*>(to)[at + s] = to_border(value.at[s]);
        }
    }
}
#else
__device__ __forceinline__ Owned read_borders(const void* from, long long at, int first, int states, bool present) {
    return read_states(reinterpret_cast<const real*>(from), at, first, states, present);
}

__device__ __forceinline__ void write_borders(void* to, long long at, int first, int states, bool present, Owned value) {
    write_states(reinterpret_cast<real*>(to), at, first, states, present, value);
}
#endif
