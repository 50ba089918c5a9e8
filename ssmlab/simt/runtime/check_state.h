// What checked mode keeps for each fiber, warp and block.
#pragma once
#include "platform.h"
#include <stddef.h>

struct Fiber;
struct RequestSlot;

static constexpr u32 DEEPEST_FRAME = 24;         // deeper calls are counted, not remembered
static constexpr u32 SITES_A_PAGE = 64, MOST_PAGES = 64;

struct RecentRead { u32 code, steps : 24, size : 8; };
static constexpr u32 RECENT_READS = 3;

struct FiberChecks {
    u64 look_at;                 // at how many steps the watchdog looks next
    u64 recent_address[RECENT_READS];            // twins.h
    RecentRead recent[RECENT_READS];
    u32 recent_next;
    u64 twins_until;             // steps; later no read is the twin of one of these
    u32 depth;                   // functions entered and not left
    bool frame_in_doubt;         // an index was out of bounds: see check_return
    bool dirty;                  // order.h: has written to global memory since its last fence
    bool read_unfenced;          // has read a flag that was put up without a fence after plain values
    u32 wait_line;               // of the barrier, exchange … it waits at
    u32 loop_line, loop_end;     // endless loops: first and last line of the outermost function seen since the budget
    u64 loop_frame;              // ran out, and that function
    u32 doubt_line;              // of the index behind frame_in_doubt
    u32 poll_line;
    u64 poll_progress;           // machine's progress when this fiber last polled in vain
    void* printing;              // where it called printf, while that runs
    void* unchecked;             // where it last touched a constant or a parameter
    // order.h
    u32 fenced;                  // snapshot made by its last fence
    u32 pending;                 // flags it has read since its last fence or barrier
    u64 strong_unit;             // place + 1 of its last volatile or atomic write since its last fence
    u64 told_unit;        // place + 1 of the last flag read that was put up without a fence after a volatile value,
    u64 told_value;              // what was read there
    u32 told_bytes, told_block;                  // how much, and who put it up
    void* frames[DEEPEST_FRAME]; // where each function was called from; the first `depth` count
};

struct WarpChecks {
    RequestSlot* open;           // slots with requests of the present interval, a list
    u32 time;        // grows with each __syncwarp, fence and flag of the warp; 0 at each barrier of the block
    u32 known_interval;          // `known` is all 0 unless this is the present interval
    u32 known[32][32];           // known[i][j] = t: what lane j did before time t comes before what lane i does now
    RequestSlot** page[MOST_PAGES];
};

struct PendingRead;

struct SharedCell;

struct BlockChecks {
    SharedCell* cells;           // shadow.h
    u32 birth;                   // first interval of this block
    u32 interval;                // from barrier to barrier; numbers are never used twice
    u32 link_first, link_used, link_end;
    u64 turns, accesses;         // watchdog.h: all turns; the accesses that are not among them yet
    const Fiber* suspect;        // who is watched, since how many of its steps, and until which turn
    u64 suspect_steps, suspect_until;
    u32 barrier_line, barrier_thread;
    u16 barrier_site;
    bool told_return;            // that threads have returned before a barrier
    u64 barrier_path;
    u32 odd_line, odd_thread;    // a thread that waits at another barrier than the first one
    bool odd;
    bool quiet;                  // after a divergent barrier what follows is its consequence
    PendingRead* unwritten;      // shared_memory.h
    u32 unwritten_count;
    // order.h
    u32 acquired;                // newest flag read that counts
    u32 pending_threads, dirty_threads, fenced;
    bool ever_fenced;
};
