// Who is alive: a machine runs some resident blocks, a block has warps, a warp has up to 32 fibers (CUDA threads).
//
// Lanes are numbered as in CUDA.  Positions are the order in which the schedule visits the lanes of a warp: masks named
// `..._positions` are in that order, all other masks are by lane.
#pragma once
#include "context.h"

struct Fiber;
struct Warp;
struct Block;
struct Machine;

#if SIMT_CHECKED
#include "check_state.h"
#else
struct FiberChecks {};
struct WarpChecks {};
struct BlockChecks {};
#endif

enum Wait : u8 { NOTHING, AT_BARRIER, AT_EXCHANGE, AT_ACTIVE_MASK, AT_GRID_BARRIER, EXITED };

struct alignas(64) Fiber {       // what every switch touches comes first: one cache line
    Context context;
    Block* block;
    Warp* warp;
    u64 steps;                   // basic blocks run so far (where trace-pc is on); checked mode: see steps_of
    u32 bit;                     // 1 << position
    u32 thread;                  // linear
    u8 lane, position;
    Wait wait;                   // what for, if it is not runnable
    u32 lane_bit;                // 1 << lane
    char* stack;                 // lowest byte
    FiberChecks checks;          // checked mode: the second and third line
    SimtIndex index;             // threadIdx
    u32 patience;                // native: spins until it lets others run
    u32 active_mask;             // result of simt_active_mask
};

static constexpr u32 STACKS_AHEAD = 4, FIBERS_AHEAD = 8;         // see fetch_soon; so much memory is behind the last

struct Exchange {                // what a lane brings to a warp-wide operation, and what it takes home
    u64 value, result;
    u32 mask;
    u8 operation, mode, source;
    void* pc;
};

struct Warp {
    Block* block;
    u32 slot;                    // place in the block's order
    u32 number;                  // linear thread index / 32
    u32 runnable_positions, live_positions;
    u32 exists, exited, waiting; // lanes; waiting: in an exchange
    u32 asking;                  // lanes in simt_active_mask
    bool mixed;                  // lanes wait with different masks
    Fiber* first;                // of lane 0; the others follow
    u8 lane_at[WARP];            // by position
    Exchange exchange[WARP];
    WarpChecks checks;
};

struct SharedArray {
    const void* instance;
    const char* type;
    int index;
    u32 offset, bytes, grain;
};        // grain: log2 of a cell's bytes
static constexpr u32 MOST_SHARED_ARRAYS = 200, NO_ARRAY = MOST_SHARED_ARRAYS, NO_BUFFER = ~0u;

struct Block {
    Machine* machine;
    u32 slot;
    bool alive;
    u64 number;                  // linear block index
    SimtIndex index;             // blockIdx
    Fiber* fibers;
    u32 warps, runnable;         // runnable: warps (by slot) with a runnable fiber
    u32 live, arrived;           // threads that have not returned; threads at the barrier
    u64 barriers;                // released so far
    int sum, all, any;           // of the predicates at the present barrier
    int last_sum, last_all, last_any;
    char* arena;
    u32 arena_used, array_count;
    SharedArray arrays[MOST_SHARED_ARRAYS + 1];     // those that do not exist (NO_ARRAY) have no bytes
    Warp warp[WARP];
    BlockChecks checks;
};

enum Reason : u8 { BLOCK_DONE, STALLED, ABANDONED, PAUSED };

struct Machine {
    Context main;
    SimtLaunch* launch;
    SimtIndex block_shape, grid_shape;
    u32 threads, resident;
    u64 blocks, started, finished;
    u32 at_grid_barrier;
    Reason reason;
    Block* reason_block;
    Fiber* next;                 // whom a paused launch goes on with
    bool begun, fiber_runs;      // fiber_runs: not the machine itself
    u64 pause_at;                // [ns] on the clock
    u64 random;
    u64 progress;                // grows with every event that can end somebody's wait
    u64 spins, spin_progress;    // fruitless polls since then
    Fiber* fibers;
    Block* block;                // [resident]
    u64* order;                  // block numbers in the order in which they start; null: 0, 1, 2 …
};

// ---- where the stacks are
static constexpr u64 STACK_BYTES = 1 << 17;
static constexpr u64 STACK_RESERVE = 16384;        // for the runtime's own calls, below which a stack is called full
static constexpr u64 STACK_GUARD = 2u << 20;             // below the first stack: room for one function's largest frame

SIMT_INLINE char* stack_of(const SimtLaunch* launch, u64 number) {
    return (char*)launch->region[REGION_STACKS] + STACK_GUARD + number * STACK_BYTES;
}

// How much of its upper end a stack leaves unused: the hot ends must not all share one cache set (2.4 times slower).
SIMT_INLINE u64 stack_shift(u64 number) { return number % 85 * 192; }
