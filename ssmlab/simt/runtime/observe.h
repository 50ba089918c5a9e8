// The points at which checked mode looks at what the scheduler does.  In native mode all of them are nothing.
#pragma once
#include "model.h"

#if SIMT_CHECKED
static void observe_block_start(Block*);
static void observe_block_end(Block*);
SIMT_INLINE void observe_barrier_arrival(Fiber*, void* pc);
static void observe_barrier_release(Block*);
static void observe_leaving(Block*);             // another block, or the machine, goes on
static void observe_grid_arrival(Fiber*, void* pc);
static void observe_grid_release(Machine*);
static void observe_exchange_arrival(Fiber*);
static void observe_exchange(Warp*, u32 group);
static void observe_warp_barrier(Warp*, u32 group);
static void observe_fence(Fiber*, int scope);
static bool observe_stall(Machine*);             // nobody is runnable: true if somebody is now
static void observe_atomic(Fiber*, void* address, u32 size, void* pc);
static void observe_atomic_done(Fiber*, bool changed, void* pc);
static void observe_sleep(Fiber*, void* pc);
static void observe_print(Fiber*, void* pc);     // null: it is printed
#else
SIMT_INLINE void observe_block_start(Block*) {}
SIMT_INLINE void observe_block_end(Block*) {}
SIMT_INLINE void observe_barrier_arrival(Fiber*, void*) {}
SIMT_INLINE void observe_barrier_release(Block*) {}
SIMT_INLINE void observe_leaving(Block*) {}
SIMT_INLINE void observe_grid_arrival(Fiber*, void*) {}
SIMT_INLINE void observe_grid_release(Machine*) {}
SIMT_INLINE void observe_exchange_arrival(Fiber*) {}
SIMT_INLINE void observe_exchange(Warp*, u32) {}
SIMT_INLINE void observe_warp_barrier(Warp*, u32) {}
SIMT_INLINE void observe_fence(Fiber*, int) {}
SIMT_INLINE bool observe_stall(Machine*) { return false; }
SIMT_INLINE void observe_atomic(Fiber*, void*, u32, void*) {}
SIMT_INLINE void observe_print(Fiber*, void*) {}
#endif
