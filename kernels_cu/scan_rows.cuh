// scan_rows.cuh -- a tile of one row: the threads of a block lie along time. For tensors whose neighbours in memory are
// neighbours in time.
//
// Mapping    block = (THREADS, ROWS); each threadIdx.y owns a row (ROWS > 1 only with THREADS = 32: no barrier then).
//            A warp owns 32 * VECTORS * VEC steps in a row. Vector j of lane l: steps (j * 32 + l) * VEC ... + VEC - 1,
//            so each access of a warp is 512 bytes in one piece.
// Inside     each lane folds its vectors; shuffles scan them across the warp; warp totals meet in shared memory, and every
//            thread walks the carried state through the totals before its own. The walk has one order, always the same.
// Needs      scan_step.cuh before it; THREADS (32 ... 1024), VECTORS, ROWS.
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "THREADS: a multiple of 32, at most 1024");
static_assert(ROWS == 1 || THREADS == 32, "ROWS > 1 needs THREADS = 32");

constexpr int WARPS = THREADS / 32;
constexpr int TILE = THREADS * VECTORS * VEC;   // steps
constexpr int CARRIED = 1;                      // rows of a block
constexpr int STARTS = 1;                       // rows of a thread
constexpr int BLOCK = THREADS * ROWS;

typedef Pack<VEC> Vector;

struct TileShared {
    Span warp[WARPS];
};

// Which row this thread works on; false: none.
__device__ __forceinline__ bool find_row(const Problem& task, long long group, Row& row) {
    const long long index = group * ROWS + (ROWS > 1 ? threadIdx.y : 0);
    if (index >= task.batches * task.channels) {
        return false;
    }
    const long long batch = task.batches == 1 ? 0 : index / task.channels;      // a division takes as long as many steps
    row = row_at(task, batch, index - batch * task.channels);
    return true;
}

__device__ __forceinline__ long long groups_of(const Problem& task) {
    return (task.batches * task.channels + ROWS - 1) / ROWS;
}

// Every thread carries the state of the row: `carries`; one of them `speaks`, that is, writes it.
struct Carrier {
    bool carries, speaks;
    long long channel, number;
};

__device__ __forceinline__ Carrier carrier_of(const Problem& task, const Row& row) {
    return {true, threadIdx.x == 0, row.channel, number_of(task, row.batch, row.channel)};
}

struct Tile {
    Vector a[VECTORS], x[VECTORS];              // as loaded, in memory order
#if BACKWARD && !PACKED
    Vector h[VECTORS];
    element edge[VECTORS];                      // h one position behind the vector
#endif
    Span ahead[VECTORS];                        // all steps of this warp before my vector j
    Span warp_total;

    __device__ __forceinline__ static int place(int j) {        // my vector j, in steps from the tile's first
        const int lane = threadIdx.x % 32;
        const int warp = threadIdx.x / 32;
        return ((warp * VECTORS + j) * 32 + lane) * VEC;
    }
    __device__ __forceinline__ static int slot(int i) {         // step i of a vector, in memory order
        return DESCENDING ? VEC - 1 - i : i;
    }

    __device__ __forceinline__ static long long start(const Problem& task, long long first) {
        return DESCENDING ? task.length - VEC - first - place(0) : first + place(0);
    }

    // Positions first ... first + room - 1, room <= TILE. Places behind them hold steps that change nothing.
    __device__ __forceinline__ void load(const Problem& task, const Row& row, long long first, int room) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
#if WIDE
            const long long at = start(task, first) + (DESCENDING ? -j : j) * 32 * VEC;
            if (place(j) < room) {              // then the whole vector is inside: length is a multiple of VEC
                a[j] = read_pack<VEC>(row.a + at);
                x[j] = read_pack<VEC>(row.x + at);
#if BACKWARD && !PACKED
                h[j] = read_pack<VEC>(row.h + at);
#endif
            } else {
                rest(j);
            }
#else
            rest(j);
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                if (place(j) + i < room) {
                    const long long t = time_of(task, first + place(j) + i);
                    a[j].put(slot(i), row.a[t * task.a_at.time]);
                    x[j].put(slot(i), row.x[t * task.x_at.time]);
#if BACKWARD && !PACKED
                    h[j].put(slot(i), row.h[t * task.h_at.time]);
#endif
                }
            }
#endif
#if BACKWARD && !PACKED
            const long long behind = first + place(j) + VEC;
            edge[j] = behind < task.length ? row.h[time_of(task, behind) * task.h_at.time] : to_element(0);
#endif
        }
    }

    __device__ __forceinline__ void rest(int j) {
        a[j].fill(to_element(1));
        x[j].fill(to_element(0));
#if BACKWARD && !PACKED
        h[j].fill(to_element(0));
#endif
    }

    __device__ __forceinline__ int mark(const Problem& task, const Row& row, long long first, int room, int at) const {
        return !PACKED ? 0 : at < room ? mark_at(task, row, first + at) : PADDING;
    }

    // Totals of vectors, lanes and warps; the warp's total goes to shared memory.
    __device__ __forceinline__ void reduce(const Problem& task, const Row& row, long long first, int room,
                                           TileShared& shared) {
        const int lane = threadIdx.x % 32;
        Span mine[VECTORS];
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            mine[j] = no_steps();
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const int kind = mark(task, row, first, room, place(j) + i);
                const Span step = step_span(task, kind, row.channel, a[j].get(slot(i)), x[j].get(slot(i)));
                mine[j] = i == 0 ? step : then(mine[j], step);
            }
        }
#pragma unroll
        for (int reach = 1; reach < 32; reach *= 2) {
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) {
                const Span left = from_lanes_left(mine[j], reach);
                if (lane >= reach) {
                    mine[j] = then(left, mine[j]);
                }
            }
        }
        warp_total = no_steps();
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            Span left = from_lanes_left(mine[j], 1);
            if (lane == 0) {
                left = no_steps();
            }
            ahead[j] = j == 0 ? left : then(warp_total, left);
            const Span whole = from_lane(mine[j], 31);
            warp_total = j == 0 ? whole : then(warp_total, whole);
        }
        if (WARPS > 1 && lane == 0) {
            shared.warp[threadIdx.x / 32] = warp_total;
        }
    }

    // What the whole tile does to the state, after reduce and a barrier.
    __device__ __forceinline__ Span total(const TileShared& shared) const {
        Span all = WARPS > 1 ? shared.warp[0] : warp_total;
        for (int w = 1; w < WARPS; ++w) {
            all = then(all, shared.warp[w]);
        }
        return all;
    }

    // From the state before the tile: start = the state before my warp; state = the state after the tile. No barrier inside.
    __device__ __forceinline__ void settle(TileShared& shared, const Carrier&, real& state, real start[STARTS]) const {
        start[0] = state;
        if (WARPS == 1) {
            state = apply(warp_total, state);
            return;
        }
        const int warp = threadIdx.x / 32;
#pragma unroll 4
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) {
                start[0] = state;
            }
            state = apply(shared.warp[w], state);
        }
    }

    __device__ __forceinline__ void emit(const Problem& task, const Row& row, long long first, int room,
                                         const real start_of_warp[STARTS]) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            real state = apply(ahead[j], start_of_warp[0]);
            const Vector again_a = a[j].afresh(task.zero());
            const Vector again_x = x[j].afresh(task.zero());
            Vector out;
#if BACKWARD
            Vector da;
#endif
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                const int kind = mark(task, row, first, room, place(j) + i);
                real previous = 0, value, slope = 0;
#if BACKWARD && PACKED
                previous = place(j) + i < room ? h_before(task, row, kind, 0, first + place(j) + i) : real(0);
#elif BACKWARD
                previous = i + 1 < VEC ? h[j].get(slot(i + 1 < VEC ? i + 1 : i)) : to_real(edge[j]);
                if (first + place(j) + i + 1 == task.length) {
                    previous = initial_of(task, row.batch, row.channel);
                }
#endif
                take_step(task, kind, row.channel, again_a.get(slot(i)), again_x.get(slot(i)), previous,
                          state, value, slope);
                out.put(slot(i), to_element(value));
#if BACKWARD
                da.put(slot(i), to_element(slope));
#endif
            }
#if WIDE
            if (place(j) < room) {
                const long long at = start(task, first) + (DESCENDING ? -j : j) * 32 * VEC;
                write_pack<VEC>(row.out + at, out);
#if BACKWARD
                write_pack<VEC>(row.da + at, da);
#endif
            }
#else
#pragma unroll
            for (int i = 0; i < VEC; ++i) {
                if (place(j) + i < room) {
                    const long long t = time_of(task, first + place(j) + i);
                    row.out[t * task.out_at.time] = to_element(out.get(slot(i)));
#if BACKWARD
                    row.da[t * task.out_at.time] = to_element(da.get(slot(i)));
#endif
                }
            }
#endif
        }
    }
};
