// scan_lookback -- single pass: every tile is read once, and learns the state before it from what earlier tiles have posted.
//
// What       forward or backward scan; a row is cut into tiles, one block each.
// Algorithm  "lookback". A block draws a ticket, so it never waits for a block that has not started: tickets are drawn in the
//            order in which blocks start. It posts what its tile does to a state (total), looks back for the nearest tile
//            that has posted the state behind it (state), walks that state forward through the totals in between, and posts
//            its own.
// Board      per tile and row the words total.a, total.b, state. A word is 8 bytes: 32 bits of a value and a flag. It arrives
//            whole, so who sees the flag has the value, and no fence is needed (a double takes two words).
// Rounding   the states are walked in the order of the tiles, one by one, wherever the walk begins: state(k) is always
//            total(k) applied to state(k - 1). So the result is bitwise the same whoever posted first.
// Used in    ssmlab.scan; notebook 05.   Oracle: ssmlab.reference.scan.
// Source     Merrill & Garrett 2016, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVR-2016-002.
//
// Mapping    grid = tiles of all rows, ticket -> (tile of the row, group of rows), group fastest.
// Global     each byte moves once; the board is 24 bytes a tile and row (float).
// Barriers   B0 ticket; B1 totals of the warps; B2 state before the tile. Look-back itself is inside single warps.
// Needs      DEPTH: how many tiles one lane looks at; and the tile's options.
#include "scan_tile.cuh"

typedef unsigned long long word;

constexpr int PIECES = sizeof(real) / 4;        // words a value
constexpr int WORDS = 3 * PIECES;               // words a tile and row: total.a, total.b, state
constexpr int LOOKERS = CARRIED == 1 ? 1 : WARPS;                       // warps that look back
constexpr int ROWS_EACH = CARRIED / LOOKERS;                            // rows that one warp looks back for
constexpr int HELPERS = 32 / ROWS_EACH;                                 // lanes that share one row
constexpr int WINDOW = HELPERS * DEPTH;                                 // tiles one look sees
constexpr word POSTED = 1, POSTED_CUT = 2;                              // flag, low half of a word; 0: nothing yet

#if !COLUMNS
static_assert(ROWS == 1, "one row a block");
#endif
static_assert(ROWS_EACH * LOOKERS == CARRIED && ROWS_EACH <= 32 && 32 % ROWS_EACH == 0, "rows must share out over the warps");

struct Board {
    volatile word* words;
    long long tiles, rows;

    // Words of one tile and row lie together along a row, or side by side for neighbouring rows.
    __device__ __forceinline__ volatile word* at(long long tile, long long row, int w) const {
        return words + (COLUMNS ? (tile * WORDS + w) * rows + row : (row * tiles + tile) * WORDS + w);
    }
    __device__ __forceinline__ void post(long long tile, long long row, int value, real number, word flag) const {
        unsigned bits[PIECES];
        *reinterpret_cast<real*>(bits) = number;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            *at(tile, row, value * PIECES + piece) = (word)bits[piece] << 32 | flag;
        }
    }
    __device__ __forceinline__ word read(long long tile, long long row, int value, real& number) const {
        word seen[PIECES];
        word flag = ~(word)0;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            seen[piece] = *at(tile, row, value * PIECES + piece);
        }
        unsigned bits[PIECES];
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            bits[piece] = (unsigned)(seen[piece] >> 32);
            flag &= seen[piece] & 3;
        }
        number = *reinterpret_cast<real*>(bits);
        return flag;
    }
};

struct Window {                                 // what a warp saw: [row][distance], distance 0 is the tile right before
    Span total[ROWS_EACH][WINDOW];
    real state[ROWS_EACH][WINDOW];
};

// The state before `tile` in row `row`; the lanes with the same lane % ROWS_EACH share a row. All lanes must come.
__device__ __forceinline__ real look_back(const Board& board, long long tile, long long row, bool exists, real begin,
                                          Window& window) {
    const int lane = threadIdx.x % 32;
    const int column = lane % ROWS_EACH;
    const int helper = lane / ROWS_EACH;
    int nearest_state, nearest_gap;             // distances
    do {
        nearest_state = WINDOW;
        nearest_gap = WINDOW;
#pragma unroll
        for (int m = DEPTH - 1; m >= 0; --m) {
            const int distance = m * HELPERS + helper;
            const long long other = tile - 1 - distance;
            real state = begin;
            Span total = no_steps();
            word has_state = POSTED, has_total = POSTED;
            if (exists && other >= 0) {
                word has_b;
                has_state = board.read(other, row, 2, state);
                has_total = board.read(other, row, 0, total.a);
                has_b = board.read(other, row, 1, total.b);
                has_total = has_b ? has_total : 0;
            }
#if PACKED
            total.cut = has_total == POSTED_CUT;
#endif
            window.state[column][distance] = state;
            window.total[column][distance] = total;
            nearest_state = has_state ? distance : nearest_state;
            nearest_gap = has_state || has_total ? nearest_gap : distance;
        }
#pragma unroll
        for (int reach = ROWS_EACH; reach < 32; reach *= 2) {
            const int other_state = __shfl_xor_sync(ALL_LANES, nearest_state, reach);
            const int other_gap = __shfl_xor_sync(ALL_LANES, nearest_gap, reach);
            nearest_state = other_state < nearest_state ? other_state : nearest_state;
            nearest_gap = other_gap < nearest_gap ? other_gap : nearest_gap;
        }
    } while (__any_sync(ALL_LANES, nearest_state >= nearest_gap));
    __syncwarp();                               // the window is written
    real state = window.state[column][nearest_state];
#pragma unroll 8
    for (int distance = nearest_state - 1; distance >= 0; --distance) {
        state = apply(window.total[column][distance], state);
    }
    return state;
}

extern "C" __global__ __launch_bounds__(BLOCK, MIN_BLOCKS)
void scan_lookback(const element* __restrict__ a, const element* __restrict__ x, const element* __restrict__ h,
                   element* __restrict__ out, element* __restrict__ da, const real* __restrict__ begin, real* __restrict__ end,
                   const real* __restrict__ initial, const int* __restrict__ marks, const int* __restrict__ before,
                   long long a_batch, long long a_time, long long a_channel, long long x_batch, long long x_time,
                   long long x_channel, long long h_batch, long long h_time, long long h_channel, long long out_batch,
                   long long out_time, long long out_channel, long long batches, long long channels, long long length,
                   int flags, long long tiles, word* tickets, word* words) {
    __shared__ TileShared shared;
    __shared__ Window windows[LOOKERS];
    __shared__ Span totals[CARRIED];
    __shared__ real incoming[CARRIED];
    __shared__ word drawn;
    const Problem task = {a, x, h, out, da, begin, end, initial, marks, before,
                          {a_batch, a_time, a_channel}, {x_batch, x_time, x_channel}, {h_batch, h_time, h_channel},
                          {out_batch, out_time, out_channel}, batches, channels, length, flags};
    const Board board = {words, tiles, batches * channels};

    if (threadIdx.x == 0) {
        drawn = atomicAdd(tickets, (word)1);
    }
    __syncthreads();                            // B0: the ticket is drawn
    const long long groups = groups_of(task);
    const long long tile_index = (long long)drawn / groups;
    Row row;
    find_row(task, (long long)drawn % groups, row);
    const long long first = tile_index * TILE;
    const int room = room_in_tile(length - first);
    const long long first_row = row.batch * channels + row.channel;     // number of my first row

    Tile tile;
    tile.load(task, row, first, room);
    tile.reduce(task, row, first, room, shared);
    __syncthreads();                            // B1: the totals of all warps are written

    const int speaks = spoken_for(task, row);
    if (threadIdx.x < CARRIED / CARRIES) {
        Span whole[CARRIES];
        tile.total(shared, whole);
#pragma unroll
        for (int i = 0; i < CARRIES; ++i) {
            totals[threadIdx.x * CARRIES + i] = whole[i];
            if (i < speaks) {
                word flag = POSTED;
#if PACKED
                flag = whole[i].cut ? POSTED_CUT : POSTED;
#endif
                board.post(tile_index, first_row + i, 0, whole[i].a, flag);
                board.post(tile_index, first_row + i, 1, whole[i].b, flag);
            }
        }
    }
#if COLUMNS
    __syncthreads();                            // totals[] is written by some warps, read by all
#else
    __syncwarp();                               // totals[0] is written by lane 0, read by its warp
#endif

    const int warp = threadIdx.x / 32;
    if (warp < LOOKERS) {
        const int column = threadIdx.x % 32 % ROWS_EACH;
        const int carried = warp * ROWS_EACH + column;                  // which of the block's rows
#if COLUMNS
        const long long channel = row.channel - threadIdx.x % LANES * ACROSS + carried;
#else
        const long long channel = row.channel;
#endif
        const bool exists = channel < channels;
        const long long number = row.batch * channels + channel;
        const real at_start = exists && !PACKED && task.is(HAS_BEGIN) ? begin[number] : real(0);
        const real state = look_back(board, tile_index, number, exists, at_start, windows[warp]);
        if (threadIdx.x % 32 / ROWS_EACH == 0) {
            const real after = apply(totals[carried], state);
            incoming[carried] = state;
            if (exists) {
                board.post(tile_index, number, 2, after, POSTED);
                if (!PACKED && task.is(WANTS_END) && tile_index == tiles - 1) {
                    end[number] = after;
                }
            }
        }
    }
    __syncthreads();                            // B2: the states before the tile are known

    real state[CARRIES], mine[CARRIES];
#pragma unroll
    for (int i = 0; i < CARRIES; ++i) {
        state[i] = incoming[COLUMNS ? threadIdx.x % (CARRIED / CARRIES) * CARRIES + i : 0];
    }
    tile.settle(shared, state, mine);
    tile.emit(task, row, first, room, mine);
}
