// scan_relay -- single pass: every tile is read once; its block posts what the tile does to a state, and one warp, which does
// nothing else, walks the state through what is posted and posts the state before every tile.
//
// What       forward or backward scan; a row is cut into tiles, one block each.
// Algorithm  "relay". Decoupled look-back (scan_lookback.cu) without the looking: there every waiting block reads what all
//            blocks before it have posted, and the more blocks wait, the slower each of them sees it. Here only the relay reads
//            totals, the state travels on in its registers, and a waiting block reads one word, which nobody else reads.
//            A band is the rows of one relaying block: first comes its ticket, then those of its tiles, in the order of time.
//            So a tile waits for a relay and for tiles that have all been begun, whatever number of blocks run at once, as
//            long as two do.
// Boards     of totals: a, b; of states: the state before the tile; each for every tile and row (scan_board.cuh).
// Rounding   GROUP tiles, counted from the row's first, are combined in one tree. The state before a tile is the tree's prefix
//            applied to the state before the group: the same operations whenever a total came, so bitwise the same result.
// Used in    ssmlab.scan.   Oracle: ssmlab.reference.scan.
// Source     Merrill & Garland 2016 (the board); the relay is ours.
//
// Mapping    grid = bands + tiles of all rows. LOOP = 1: a block draws tickets until there are none; for a CPU, where blocks
//            that wait for each other must be alive at once, and so must be few.
// Global     each byte moves once; 24 bytes a tile and row (48 for double) go to the boards.
// Barriers   B0 ticket; B1 totals of the warps; B2 state before the tile; B3 (LOOP) all are done with the tile.
// Needs      DEPTH: how many groups the relay looks at in one go; LOOP; and the tile's options.
// compile: -DELEMENT_FLOAT -DWIDE=1 -DCOLUMNS=0 -DTHREADS=256 -DVECTORS=4 -DROWS=1 -DDEPTH=2 -DLOOP=0 -DMIN_BLOCKS=4
// compile: -DELEMENT_DOUBLE -DWIDE=1 -DCOLUMNS=1 -DLANES=8 -DSTRIPS=16 -DSTEPS=2 -DDEPTH=4 -DLOOP=1 -DPACKED=1 -DBACKWARD=1
#include "scan_board.cuh"

constexpr int RELAYED = CARRIED < 32 ? CARRIED : 32;                    // rows of one relaying warp
constexpr int GROUP = 32 / RELAYED;                                     // lanes that share a row; tiles of a group
constexpr int WARPS_EACH = CARRIED / RELAYED;                           // relaying warps for the rows of one tile
constexpr int BAND = WARPS / WARPS_EACH;                                // tiles side by side whose rows one block relays

#if !COLUMNS
static_assert(ROWS == 1, "one row a block");
#endif
static_assert(RELAYED * WARPS_EACH == CARRIED && 32 % RELAYED == 0 && BAND >= 1, "rows must share out over the warps");

// While a thread waits. A GPU needs no help; on a CPU this lets the others run.
__device__ __forceinline__ void let_others_run() {
#if LOOP
    __nanosleep(100);
#endif
}

// The state before a tile, as soon as it is there.
__device__ __forceinline__ real arrived(const Board<1>& states, long long tile, long long row) {
    word seen[PIECES];
    states.read(tile, row, 0, seen);
    while (flag_of(seen) != STATE) {
        let_others_run();
        states.read(tile, row, 0, seen);
    }
    return value_of(seen);
}

// Carries the state of the warp's rows through all their totals. The lanes with the same lane % RELAYED share a row; `posts`:
// the row exists. All lanes of the warp must come.
__device__ __forceinline__ void relay(const Problem& task, const Board<2>& totals, const Board<1>& states, long long row,
                                      bool posts) {
    const int lane = threadIdx.x % 32;
    const int column = lane % RELAYED;
    const int helper = lane / RELAYED;          // which tile of a group
    real state = begin_of(task, row);           // before tile `next`, the first of a group
    int posted = 0;                             // so many states are posted from there on
    for (long long next = 0; next < totals.tiles;) {
        word a[DEPTH][PIECES], b[DEPTH][PIECES];
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            const long long tile = next + d * GROUP + helper;
            totals.read(tile < totals.tiles ? tile : totals.tiles - 1, row, 0, a[d]);
            totals.read(tile < totals.tiles ? tile : totals.tiles - 1, row, 1, b[d]);
        }
        Span total[DEPTH];                      // of tile number `helper` of a group; then of all up to it
        int ready[DEPTH];                       // so many tiles of the group, from its first, have posted in all my warp's rows
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            const unsigned flag = flag_of(b[d]);
            const bool there = flag && flag_of(a[d]) == flag && next + d * GROUP + helper < totals.tiles;
            const unsigned gaps = ~__ballot_sync(ALL_LANES, there);
            ready[d] = gaps ? (__ffs(gaps) - 1) / RELAYED : GROUP;
            total[d] = span(value_of(a[d]), value_of(b[d]));
#if PACKED
            total[d].cut = flag == CUT_TOTAL;
#endif
        }
#pragma unroll
        for (int reach = RELAYED; reach < 32; reach *= 2) {
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) {
                const Span left = from_lanes_left(total[d], reach);
                if (lane >= reach) {
                    total[d] = then(left, total[d]);
                }
            }
        }
        int passed = 0;                         // whole groups behind us
        bool whole = true;
#pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            Span before = no_steps();
            Span all = total[d];
            if (GROUP > 1) {
                const Span left = from_lanes_left(total[d], RELAYED % 32);
                before = helper == 0 ? no_steps() : left;
                all = from_lane(total[d], 32 - RELAYED + column);
            }
            const int place = d * GROUP + helper;
            if (whole && helper <= ready[d] && place >= posted && next + place < totals.tiles && posts) {
                states.post(next + place, row, 0, apply(before, state), STATE);
            }
            if (whole) {
                const int known = d * GROUP + (ready[d] < GROUP ? ready[d] + 1 : GROUP);
                posted = known > posted ? known : posted;
            }
            whole = whole && ready[d] == GROUP;
            if (whole) {
                state = apply(all, state);
                ++passed;
            }
        }
        if (passed == 0 && next + ready[0] == totals.tiles) {           // the row ends in the middle of a group
            state = apply(from_lane(total[0], (ready[0] - 1) * RELAYED + column), state);
            break;
        }
        next += passed * GROUP;
        posted -= passed * GROUP;
        let_others_run();
    }
    if (!PACKED && task.is(WANTS_END) && posts && helper == 0) {
        task.end[row] = state;
    }
}

extern "C" __global__ __launch_bounds__(BLOCK, MIN_BLOCKS)
void scan_relay(const element* __restrict__ a, const element* __restrict__ x, const element* __restrict__ h,
                element* __restrict__ out, element* __restrict__ da, const real* __restrict__ begin, real* __restrict__ end,
                const real* __restrict__ initial, const int* __restrict__ marks, const int* __restrict__ before,
                long long a_batch, long long a_time, long long a_channel, long long x_batch, long long x_time,
                long long x_channel, long long h_batch, long long h_time, long long h_channel, long long out_batch,
                long long out_time, long long out_channel, long long batches, long long channels, long long length,
                int flags, long long tiles, word* tickets, word* total_words, word* state_words) {
    __shared__ TileShared shared;
    __shared__ real incoming[CARRIED];
    __shared__ word drawn;
    const Problem task = {a, x, h, out, da, begin, end, initial, marks, before,
                          {a_batch, a_time, a_channel}, {x_batch, x_time, x_channel}, {h_batch, h_time, h_channel},
                          {out_batch, out_time, out_channel}, batches, channels, length, flags};
    const Board<2> totals = {total_words, tiles, batches * channels};
    const Board<1> states = {state_words, tiles, batches * channels};
    const long long groups = groups_of(task);                           // of rows
    const long long in_band = 1 + BAND * tiles;                         // tickets of a whole band
    do {
        if (threadIdx.x == 0) {
            drawn = atomicAdd(tickets, (word)1);
        }
        __syncthreads();                        // B0: the ticket is drawn
        const long long band = (long long)drawn / in_band;
        const long long place = (long long)drawn - band * in_band;
        const long long left = groups - band * BAND;                    // groups of rows, this band first
        const long long side = left < BAND ? left : BAND;               // tiles side by side in this band
        if (left <= 0 || place > side * tiles) {
            return;                             // the whole block: there are no more tickets
        }
        if (place == 0) {
            const int warp = threadIdx.x / 32;
            const long long group = band * BAND + warp / WARPS_EACH;
#if COLUMNS
            const long long parts = (channels + CARRIED - 1) / CARRIED;                     // groups of a batch row
            const long long batch = group / parts;
            const int carried = warp % WARPS_EACH * RELAYED + threadIdx.x % 32 % RELAYED;   // which of the group's rows
            const long long channel = (group - batch * parts) * CARRIED + carried;
            const bool exists = channel < channels;                     // else any row will do
            const long long number = number_of(task, batch, exists ? channel : channels - 1);
#else
            const bool exists = true;
            const long long number = group;     // a group is a row
#endif
            if (warp < BAND * WARPS_EACH && group < groups) {
                relay(task, totals, states, number, exists);
            }
        } else {
            Row row;
            const long long tile_index = (place - 1) / side;
            find_row(task, band * BAND + (place - 1) - tile_index * side, row);
            const Carrier carrier = carrier_of(task, row);
            const long long first = tile_index * TILE;
            const int room = room_in_tile(length - first);
            Tile tile;
            tile.load(task, row, first, room);
            tile.reduce(task, row, first, room, shared);
            __syncthreads();                    // B1: the totals of all warps are written
            if (threadIdx.x < CARRIED) {
                const Span whole = tile.total(shared);
                if (carrier.speaks) {
                    unsigned flag = TOTAL;
#if PACKED
                    flag = whole.cut ? CUT_TOTAL : TOTAL;
#endif
                    totals.post(tile_index, carrier.number, 0, whole.a, flag);
                    totals.post(tile_index, carrier.number, 1, whole.b, flag);
                }
                incoming[threadIdx.x] = carrier.speaks ? arrived(states, tile_index, carrier.number) : real(0);
            }
            __syncthreads();                    // B2: the states before the tile are known
            real state = incoming[CARRIED == 1 ? 0 : threadIdx.x < CARRIED ? threadIdx.x : 0], starts[STARTS];
            tile.settle(shared, carrier, state, starts);
            tile.emit(task, row, first, room, starts);
        }
#if LOOP
        __syncthreads();                        // B3: all are done with the tile and the ticket
#endif
    } while (LOOP);
}
