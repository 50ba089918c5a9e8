// One translation unit, two runtimes.  Read in this order:
//
//   abi.h            every function that others call, and what launch.py exchanges with the runtime
//   context.h        switching stacks                  model.h      machine, block, warp, fiber
//   scheduler.h      who runs next                     barriers.h   __syncthreads, the grid's barrier
//   warp.h           shuffles, votes, __syncwarp       arena.h      shared memory of a block
//   atomics.h  print.h  indices.h                      machine.h    starts blocks, ends the launch
//   faults.h         faults end the launch, not the process
//   native.h         native mode: all of the above and nothing else
//
//   observe.h        where checked mode looks on; check_state.h has what it keeps
//   hooks.h          what the compiler calls           access.h     one access: which memory, is it allowed?
//   watchdog.h       loops without end
//   vectors.h        copies of float2 and its kin      quick.h      the usual accesses
//   sites.h          from code to lines                twins.h      reads that a compiler repeats
//   shadow.h         who touched which word            shared_memory.h  global_memory.h  order.h (fences and flags)
//   requests.h       requests, sectors, wavefronts     waiting.h    barriers that diverge, masks, deadlocks
//   findings.h  fault_findings.h  checked.h
#if SIMT_CHECKED
#include "checked.h"
#else
#include "native.h"
#endif
