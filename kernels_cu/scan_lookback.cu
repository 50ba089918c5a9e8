// scan_lookback -- single pass: every tile is read once, and learns the state before it from what earlier tiles have posted.
//
// What       forward or backward scan; a row is cut into pieces, one block each.
// Algorithm  "lookback". A block draws a ticket, so it never waits for a block that has not started: tickets are drawn in the
//            order in which blocks start. It posts what its tile does to a state (total), looks back for the nearest tile
//            that has posted the state behind it (state), walks that state forward through the totals in between, and posts
//            its own.
// Board      per tile and row total.a and total.b; state later takes the place of total.b. Each brings its own flag, so no
//            fence is needed (scan_board.cuh). All words must be 0 at the start, and so must the ticket.
// Rounding   the states are walked in the order of the tiles, one by one, wherever the walk begins: state(k) is always
//            total(k) applied to state(k - 1). So the result is bitwise the same whoever posted first.
// Used in    ssmlab.scan; notebook 05.   Oracle: ssmlab.reference.scan.
// Source     Merrill & Garland 2016, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVR-2016-002.
//
// Mapping    grid = pieces of all rows, ticket -> (piece of the row, group of rows), group fastest. A piece is PARTS tiles.
// Global     PARTS = 1: the tile waits in registers for its state, and each byte moves once. PARTS > 1: a block folds its tiles
//            first and reads them again, from the L2 cache, once the state is there: fewer and larger pieces, so the chain
//            of states is shorter and the registers are free while it waits. 16 bytes a piece and row go to the board.
// Barriers   B0 ticket; B1 one a tile and walk: totals of the warps; B2 state before the piece. Look-back itself is inside
//            single warps.
// Needs      PARTS; DEPTH: how many pieces one lane looks at; and the tile's options.
// compile: -DELEMENT_FLOAT -DWIDE=1 -DCOLUMNS=0 -DTHREADS=128 -DVECTORS=2 -DROWS=1 -DDEPTH=2 -DPARTS=1
// compile: -DELEMENT_DOUBLE -DWIDE=1 -DCOLUMNS=1 -DLANES=8 -DSTRIPS=16 -DSTEPS=2 -DDEPTH=1 -DPARTS=4 -DPACKED=1 -DBACKWARD=1
#include "scan_board.cuh"

constexpr int LOOKERS = CARRIED == 1 ? 1 : WARPS;                       // warps that look back
constexpr int ROWS_EACH = CARRIED / LOOKERS;                            // rows that one warp looks back for
constexpr int HELPERS = 32 / ROWS_EACH;                                 // lanes that share one row
constexpr int WINDOW = HELPERS * DEPTH;                                 // tiles one look sees

#if !COLUMNS
static_assert(ROWS == 1, "one row a block");
#endif
static_assert(ROWS_EACH * LOOKERS == CARRIED && ROWS_EACH <= 32 && 32 % ROWS_EACH == 0, "rows must share out over the warps");

struct Window {                                 // what a warp saw: [row][distance], distance 0 is the tile right before
    Span total[ROWS_EACH][WINDOW];
};

// The state before `tile` in row `row`; the lanes with the same lane % ROWS_EACH share a row. All lanes must come.
__device__ __forceinline__ real look_back(const Board<2>& board, long long tile, long long row, real begin, Window& window) {
    const int lane = threadIdx.x % 32;
    const int column = lane % ROWS_EACH;
    const int helper = lane / ROWS_EACH;
    unsigned mine = 0;                          // the lanes that share my row
#pragma unroll
    for (int h = 0; h < HELPERS; ++h) {
        mine |= 1u << (h * ROWS_EACH);
    }
    mine <<= column;
    int nearest_state, nearest_gap;             // distances
    do {
        word first[DEPTH][PIECES], second[DEPTH][PIECES];               // total.a; total.b or state
#pragma unroll
        for (int m = 0; m < DEPTH; ++m) {
            const long long other = tile - 1 - (m * HELPERS + helper);
            board.read(other > 0 ? other : 0, row, 1, second[m]);
            board.read(other > 0 ? other : 0, row, 0, first[m]);
        }
        nearest_state = WINDOW;
        nearest_gap = WINDOW;
#pragma unroll
        for (int m = DEPTH - 1; m >= 0; --m) {
            const int distance = m * HELPERS + helper;
            const bool start = tile <= distance;                        // the row begins there: that state is known
            const unsigned flag = start ? STATE : flag_of(second[m]);
            Span total = span(value_of(first[m]), start ? begin : value_of(second[m]));
#if PACKED
            total.cut = flag == CUT_TOTAL;
#endif
            window.total[column][distance] = total;                     // .b is the state, if that is what came
            const unsigned states = __ballot_sync(ALL_LANES, flag == STATE) & mine;
            const unsigned gaps = __ballot_sync(ALL_LANES, flag != STATE && !(flag && flag_of(first[m]))) & mine;
            nearest_state = states ? m * HELPERS + (__ffs(states) - 1) / ROWS_EACH : nearest_state;
            nearest_gap = gaps ? m * HELPERS + (__ffs(gaps) - 1) / ROWS_EACH : nearest_gap;
        }
    } while (__any_sync(ALL_LANES, nearest_state >= nearest_gap));
    __syncwarp();                               // the window is written
    real state = window.total[column][nearest_state].b;
#pragma unroll 8
    for (int distance = nearest_state - 1; distance >= 0; --distance) {
        state = apply(window.total[column][distance], state);
    }
    return state;
}

static_assert(2 * sizeof(TileShared) + LOOKERS * sizeof(Window) + CARRIED * (sizeof(Span) + sizeof(real)) + 8 <= 48 * 1024,
              "a block has 48 KB of static shared memory: take fewer STRIPS or a smaller DEPTH");

extern "C" __global__ __launch_bounds__(BLOCK, MIN_BLOCKS)
void scan_lookback(const element* __restrict__ a, const element* __restrict__ x, const element* __restrict__ h,
                   element* __restrict__ out, element* __restrict__ da, const real* __restrict__ begin, real* __restrict__ end,
                   const real* __restrict__ initial, const int* __restrict__ marks, const int* __restrict__ before,
                   long long a_batch, long long a_time, long long a_channel, long long x_batch, long long x_time,
                   long long x_channel, long long h_batch, long long h_time, long long h_channel, long long out_batch,
                   long long out_time, long long out_channel, long long batches, long long channels, long long length,
                   int flags, long long tiles, word* tickets, word* words) {
    __shared__ TileShared shared[2];
    __shared__ Window windows[LOOKERS];
    __shared__ Span totals[CARRIED];
    __shared__ real incoming[CARRIED];
    __shared__ word drawn;
    const Problem task = {a, x, h, out, da, begin, end, initial, marks, before,
                          {a_batch, a_time, a_channel}, {x_batch, x_time, x_channel}, {h_batch, h_time, h_channel},
                          {out_batch, out_time, out_channel}, batches, channels, length, flags};
    const Board<2> board = {words, tiles, batches * channels};

    if (threadIdx.x == 0) {
        drawn = atomicAdd(tickets, (word)1);
    }
    __syncthreads();                            // B0: the ticket is drawn
    const long long groups = groups_of(task);
    const long long tile_index = (long long)drawn / groups;
    Row row;
    find_row(task, (long long)drawn - tile_index * groups, row);
    const Carrier carrier = carrier_of(task, row);
    const long long start = tile_index * TILE * PARTS;
    const long long limit = start + TILE * PARTS < length ? start + TILE * PARTS : length;

    Tile tile;
    Span whole = no_steps();                    // the piece so far, in the threads that carry a row
    int buffer = 0;
    tile.load(task, row, start, room_in_tile(limit - start));
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part) {
        const long long first = start + part * TILE;
        if (part > 0 && first >= limit) {
            break;                              // the whole block: the row ends here
        }
        tile.reduce(task, row, first, room_in_tile(limit - first), shared[buffer]);
#if PARTS > 1
        if (first + TILE < limit) {
            tile.load(task, row, first + TILE, room_in_tile(limit - first - TILE));
        }
#endif
        __syncthreads();                        // B1: the totals of all warps are written; the other buffer is free
        if (threadIdx.x < CARRIED) {
            whole = PARTS == 1 ? tile.total(shared[buffer]) : then(whole, tile.total(shared[buffer]));
        }
        buffer = 1 - buffer;
    }

    if (threadIdx.x < CARRIED) {
        totals[threadIdx.x] = whole;
        if (carrier.speaks) {
            unsigned flag = TOTAL;
#if PACKED
            flag = whole.cut ? CUT_TOTAL : TOTAL;
#endif
            board.post(tile_index, carrier.number, 0, whole.a, flag);
            board.post(tile_index, carrier.number, 1, whole.b, flag);
        }
    }
    if (LOOKERS > 1) {
        __syncthreads();                        // totals is written by some warps, read by all
    } else {
        __syncwarp();                           // totals[0] is written by lane 0, read by its warp
    }

    const int warp = threadIdx.x / 32;
    if (warp < LOOKERS) {
        const int carried = warp * ROWS_EACH + threadIdx.x % 32 % ROWS_EACH;        // which of the block's rows
        const long long channel = carrier.channel + (CARRIED > 1 ? carried - (int)threadIdx.x : 0);
        const bool exists = channel < channels;
        const long long number = number_of(task, row.batch, exists ? channel : channels - 1);       // any row will do
        const real state = look_back(board, tile_index, number, begin_of(task, number), windows[warp]);
        if (threadIdx.x % 32 / ROWS_EACH == 0) {
            const real after = apply(totals[carried], state);
            incoming[carried] = state;
            if (exists) {
                board.post(tile_index, number, 1, after, STATE);
                if (!PACKED && task.is(WANTS_END) && tile_index == tiles - 1) {
                    end[number] = after;
                }
            }
        }
    }
    __syncthreads();                            // B2: the states before the tile are known

    real state = incoming[CARRIED == 1 ? 0 : threadIdx.x < CARRIED ? threadIdx.x : 0], starts[STARTS];
#if PARTS == 1
    tile.settle(shared[0], carrier, state, starts);
    tile.emit(task, row, start, room_in_tile(limit - start), starts);
#else
    tile.load(task, row, start, room_in_tile(limit - start));
    for (long long first = start; first < limit; first += TILE) {
        const int room = room_in_tile(limit - first);
        tile.reduce(task, row, first, room, shared[buffer]);
        __syncthreads();                        // B1
        tile.settle(shared[buffer], carrier, state, starts);
        tile.emit(task, row, first, room, starts);
        if (first + TILE < limit) {
            tile.load(task, row, first + TILE, room_in_tile(limit - first - TILE));
        }
        buffer = 1 - buffer;
    }
#endif
}
