// scan_columns.cuh -- a tile of neighbouring channels: threads lie across channels first, then along time. For tensors whose
// neighbours in memory are neighbouring channels.
//
// Mapping    block = LANES * STRIPS threads. Thread (strip, lane) owns ACROSS channels (one access wide) and STEPS steps
//            in a row; a block covers LANES * ACROSS channels and STRIPS * STEPS steps.
// Inside     each thread folds its steps; the strips' totals meet in shared memory, and every thread walks the carried states
//            of its channels through the totals before its own. The walk has one order, always the same.
// Needs      scan_step.cuh before it; LANES (1 ... 32), STRIPS, STEPS.
constexpr int ACROSS = WIDE ? VEC : 1;          // channels that one thread owns
constexpr int BLOCK = LANES * STRIPS;
constexpr int WARPS = BLOCK / 32;
constexpr int TILE = STRIPS * STEPS;            // steps
constexpr int CARRIES = ACROSS;                    // states that one thread carries
constexpr int CARRIED = LANES * ACROSS;            // states that one block carries

static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "LANES * STRIPS: a multiple of 32, at most 1024");

typedef Pack<ACROSS> Vector;

struct alignas(ACROSS * sizeof(real) < 16 ? ACROSS * sizeof(real) : 16) Reals {
    real at[ACROSS];
};

struct TileShared {
    Reals a[STRIPS][LANES], b[STRIPS][LANES];
    int cut[STRIPS];
};

// Which channels this thread works on; false: none. Threads beside the last channel still take part in barriers.
__device__ __forceinline__ bool find_row(const Problem& task, long long group, Row& row) {
    const long long groups = (task.channels + CARRIED - 1) / CARRIED;
    row = row_at(task, group / groups, group % groups * CARRIED + threadIdx.x % LANES * ACROSS);
    return true;
}

__device__ __forceinline__ long long groups_of(const Problem& task) {
    return task.batches * ((task.channels + CARRIED - 1) / CARRIED);
}

// Channels of mine that exist.
__device__ __forceinline__ int owned(const Problem& task, const Row& row) {
    const long long rest = task.channels - row.channel;
    return rest < 0 ? 0 : rest < ACROSS ? (int)rest : ACROSS;
}

// Thread that speaks for its carried states, and how many of them exist.
__device__ __forceinline__ int spoken_for(const Problem& task, const Row& row) {
    return threadIdx.x < LANES ? owned(task, row) : 0;
}

struct Tile {
    Vector a[STEPS], x[STEPS];
#if BACKWARD && !PACKED
    Vector h[STEPS];                              // one position later: h before the step
#endif
    Span run[ACROSS];

    __device__ __forceinline__ static int place(int s) {        // my step s, in steps from the tile's first
        return (int)threadIdx.x / LANES * STEPS + s;
    }

    // Positions first ... first + room - 1, room <= TILE. Places behind them hold steps that change nothing.
    __device__ __forceinline__ void load(const Problem& task, const Row& row, long long first, int room) {
        const long long t = time_of(task, first + place(0));
        const element* from_a = row.a + t * task.a_at.time;
        const element* from_x = row.x + t * task.x_at.time;
        const bool mine = owned(task, row) > 0;                         // then all of them: channels is a multiple of ACROSS
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const long long step = DESCENDING ? -s : s;
            if (mine && place(s) < room) {
                a[s] = *reinterpret_cast<const Vector*>(from_a + step * task.a_at.time);
                x[s] = *reinterpret_cast<const Vector*>(from_x + step * task.x_at.time);
            } else {
#pragma unroll
                for (int i = 0; i < ACROSS; ++i) {
                    a[s].at[i] = to_element(1);
                    x[s].at[i] = to_element(0);
                }
            }
#if BACKWARD && !PACKED
            const long long behind = first + place(s) + 1;
            if (mine && behind < task.length) {
                h[s] = *reinterpret_cast<const Vector*>(row.h + time_of(task, behind) * task.h_at.time);
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
        const int mine = owned(task, row);
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const int kind = mark(task, row, first, room, place(s));
#pragma unroll
            for (int i = 0; i < ACROSS; ++i) {
                const long long channel = mine > 0 ? row.channel + i : 0;       // any channel that exists
                const Span step = step_span(task, kind, channel, to_real(a[s].at[i]), to_real(x[s].at[i]));
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

    __device__ __forceinline__ static Span strip_total(const TileShared& shared, int strip, int i) {
        const int lane = threadIdx.x % LANES;
        Span got = span(shared.a[strip][lane].at[i], shared.b[strip][lane].at[i]);
#if PACKED
        got.cut = shared.cut[strip];
#endif
        return got;
    }

    // What the whole tile does to the states, after reduce and a barrier.
    __device__ __forceinline__ void total(const TileShared& shared, Span all[CARRIES]) const {
#pragma unroll
        for (int i = 0; i < ACROSS; ++i) {
            all[i] = strip_total(shared, 0, i);
        }
        for (int strip = 1; strip < STRIPS; ++strip) {
#pragma unroll
            for (int i = 0; i < ACROSS; ++i) {
                all[i] = then(all[i], strip_total(shared, strip, i));
            }
        }
    }

    // From the states before the tile: mine = the states before my steps; state = the states after the tile.
    __device__ __forceinline__ void settle(const TileShared& shared, real state[CARRIES], real mine[CARRIES]) const {
        const int own = threadIdx.x / LANES;
#pragma unroll 4
        for (int strip = 0; strip < STRIPS; ++strip) {
#pragma unroll
            for (int i = 0; i < ACROSS; ++i) {
                if (strip == own) {
                    mine[i] = state[i];
                }
                state[i] = apply(strip_total(shared, strip, i), state[i]);
            }
        }
    }

    __device__ __forceinline__ void emit(const Problem& task, const Row& row, long long first, int room,
                                         const real start[CARRIES]) {
        if (owned(task, row) == 0) {
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
                previous = last ? initial_of(task, row.batch, row.channel + i) : to_real(h[s].at[i]);
#endif
                take_step(task, kind, row.channel + i, to_real(a[s].at[i]), to_real(x[s].at[i]), previous,
                          state[i], value, slope);
                out.at[i] = to_element(value);
#if BACKWARD
                da.at[i] = to_element(slope);
#endif
            }
            const long long at = (t + (DESCENDING ? -s : s)) * task.out_at.time;
            *reinterpret_cast<Vector*>(row.out + at) = out;
#if BACKWARD
            *reinterpret_cast<Vector*>(row.da + at) = da;
#endif
        }
    }
};
