// scan_columns.cuh -- a tile of neighbouring channels: threads lie across channels first, then along time. For tensors whose
// neighbours in memory are neighbouring channels.
//
// Mapping    block = LANES * STRIPS threads. Thread (strip, lane) owns ACROSS channels (one access wide) and STEPS steps
//            in a row; a block covers LANES * ACROSS channels and STRIPS * STEPS steps.
// Inside     each thread folds its steps; the strips' totals meet in shared memory; then one thread a channel walks the state
//            through the totals and leaves the state before each strip in its place. The walk has one order, always the same.
// Needs      scan_step.cuh before it; LANES (1 ... 32), STRIPS, STEPS; ACROSS <= VEC channels a thread, if not VEC.
#ifdef PACK
constexpr int ACROSS = PACK;                    // channels that one thread owns
#else
constexpr int ACROSS = WIDE ? VEC : 1;
#endif
constexpr int BLOCK = LANES * STRIPS;
constexpr int WARPS = BLOCK / 32;
constexpr int TILE = STRIPS * STEPS;            // steps
constexpr int CARRIED = LANES * ACROSS;         // rows of a block
constexpr int STARTS = ACROSS;                  // rows of a thread

static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "LANES * STRIPS: a multiple of 32, at most 1024");
static_assert(CARRIED <= BLOCK, "each channel of a block needs a thread to walk its state: STRIPS >= channels a thread");

typedef Pack<ACROSS> Vector;

struct alignas(ACROSS * sizeof(real) < 16 ? ACROSS * sizeof(real) : 16) Reals {
    real at[ACROSS];
};

struct TileShared {
    Reals a[STRIPS][LANES], b[STRIPS][LANES];   // totals of the strips; settle leaves the states before the strips in a
    int cut[STRIPS];
};

// Which channels this thread works on; always true: threads beside the last channel still take part in barriers.
__device__ __forceinline__ bool find_row(const Problem& task, long long group, Row& row) {
    const long long groups = (task.channels + CARRIED - 1) / CARRIED;
    const long long batch = task.batches == 1 ? 0 : group / groups;
    row = row_at(task, batch, (group - batch * groups) * CARRIED + threadIdx.x % LANES * ACROSS);
    return true;
}

__device__ __forceinline__ long long groups_of(const Problem& task) {
    return task.batches * ((task.channels + CARRIED - 1) / CARRIED);
}

// Thread c of a block carries, and writes, the state of the block's channel c.
struct Carrier {
    bool carries, speaks;
    long long channel, number;
};

__device__ __forceinline__ Carrier carrier_of(const Problem& task, const Row& row) {
    const long long channel = row.channel - threadIdx.x % LANES * ACROSS + threadIdx.x;
    const bool exists = threadIdx.x < CARRIED && channel < task.channels;
    return {exists, exists, channel, number_of(task, row.batch, channel)};
}

struct Tile {
    Vector a[STEPS], x[STEPS];
#if BACKWARD && !PACKED
    Vector h[STEPS];                              // one position later: h before the step
#endif

    __device__ __forceinline__ static int place(int s) {        // my step s, in steps from the tile's first
        return (int)threadIdx.x / LANES * STEPS + s;
    }

    // Positions first ... first + room - 1, room <= TILE. Places behind them hold steps that change nothing.
    __device__ __forceinline__ void load(const Problem& task, const Row& row, long long first, int room) {
        const long long t = time_of(task, first + place(0));
        const element* from_a = row.a + t * task.a_at.time;
        const element* from_x = row.x + t * task.x_at.time;
        const bool mine = row.channel < task.channels;                  // then all of mine: channels is a multiple of ACROSS
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const long long step = DESCENDING ? -s : s;
            if (mine && place(s) < room) {
                a[s] = read_pack<ACROSS>(from_a + step * task.a_at.time);
                x[s] = read_pack<ACROSS>(from_x + step * task.x_at.time);
            } else {
                a[s].fill(to_element(1));
                x[s].fill(to_element(0));
            }
#if BACKWARD && !PACKED
            const long long behind = first + place(s) + 1;
            if (mine && behind < task.length) {
                h[s] = read_pack<ACROSS>(row.h + time_of(task, behind) * task.h_at.time);
            }
#endif
        }
    }

    __device__ __forceinline__ int mark(const Problem& task, const Row& row, long long first, int room, int at) const {
        return !PACKED ? 0 : at < room ? mark_at(task, row, first + at) : PADDING;
    }

    // Totals of my steps; they go to shared memory.
    __device__ __forceinline__ void reduce(const Problem& task, const Row& row, long long first, int room,
                                           TileShared& shared) {
        const bool mine = row.channel < task.channels;
        Span run[ACROSS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int kind = mark(task, row, first, room, place(s));
#pragma unroll
            for (int i = 0; i < ACROSS; ++i) {
                const long long channel = mine ? row.channel + i : 0;           // any channel that exists
                const Span step = step_span(task, kind, channel, a[s].get(i), x[s].get(i));
                run[i] = s == 0 ? step : then(run[i], step);
            }
        }
        const int strip = threadIdx.x / LANES;
        const int lane = threadIdx.x % LANES;
        Reals total_a, total_b;
#pragma unroll
        for (int i = 0; i < ACROSS; ++i) {
            total_a.at[i] = run[i].a;
            total_b.at[i] = run[i].b;
        }
        shared.a[strip][lane] = total_a;
        shared.b[strip][lane] = total_b;
#if PACKED
        if (lane == 0) {
            shared.cut[strip] = run[0].cut;     // the same in every channel
        }
#endif
    }

    // What strip s did to the channel that this thread carries.
    __device__ __forceinline__ static Span strip_total(const TileShared& shared, int strip) {
        Span got = span(reinterpret_cast<const real*>(shared.a[strip])[threadIdx.x],
                        reinterpret_cast<const real*>(shared.b[strip])[threadIdx.x]);
#if PACKED
        got.cut = shared.cut[strip];
#endif
        return got;
    }

    // What the whole tile does to the state that this thread carries, after reduce and a barrier.
    __device__ __forceinline__ Span total(const TileShared& shared) const {
        if (threadIdx.x >= CARRIED) {
            return no_steps();
        }
        Span all = strip_total(shared, 0);
#pragma unroll 8
        for (int strip = 1; strip < STRIPS; ++strip) {
            all = then(all, strip_total(shared, strip));
        }
        return all;
    }

    // From the state before the tile: start = the states before my steps; state = the state after the tile. All threads come.
    __device__ __forceinline__ void settle(TileShared& shared, const Carrier& carrier, real& state, real start[STARTS]) const {
        if (carrier.carries) {
#pragma unroll 8
            for (int strip = 0; strip < STRIPS; ++strip) {
                const Span run = strip_total(shared, strip);
                reinterpret_cast<real*>(shared.a[strip])[threadIdx.x] = state;
                state = apply(run, state);
            }
        }
        __syncthreads();                        // the states before all strips are written
        const Reals mine = shared.a[threadIdx.x / LANES][threadIdx.x % LANES];
#pragma unroll
        for (int i = 0; i < ACROSS; ++i) {
            start[i] = mine.at[i];
        }
    }

    __device__ __forceinline__ void emit(const Problem& task, const Row& row, long long first, int room,
                                         const real start[STARTS]) {
        if (row.channel >= task.channels) {
            return;
        }
        real state[ACROSS];
#pragma unroll
        for (int i = 0; i < ACROSS; ++i) {
            state[i] = start[i];
        }
        const long long t = time_of(task, first + place(0));
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            if (place(s) >= room) {
                return;
            }
            const int kind = mark(task, row, first, room, place(s));
            const Vector again_a = a[s].afresh(task.zero());
            const Vector again_x = x[s].afresh(task.zero());
            Vector out;
#if BACKWARD
            Vector da;
            const bool last = first + place(s) + 1 == task.length;
#endif
#pragma unroll
            for (int i = 0; i < ACROSS; ++i) {
                real previous = 0, value = 0, slope = 0;
#if BACKWARD && PACKED
                previous = h_before(task, row, kind, i, first + place(s));
#elif BACKWARD
                previous = last ? initial_of(task, row.batch, row.channel + i) : h[s].get(i);
#endif
                take_step(task, kind, row.channel + i, again_a.get(i), again_x.get(i), previous,
                          state[i], value, slope);
                out.put(i, to_element(value));
#if BACKWARD
                da.put(i, to_element(slope));
#endif
            }
            const long long at = (t + (DESCENDING ? -s : s)) * task.out_at.time;
            write_pack<ACROSS>(row.out + at, out);
#if BACKWARD
            write_pack<ACROSS>(row.da + at, da);
#endif
        }
    }
};
