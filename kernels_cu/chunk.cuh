// chunk.cuh -- a block scans one chunk of CHUNK steps, one step a thread: the rounds of block_scan_v2 as a function.
//
// Used in    chunks_v2 ... chunks_v5.   Two shared buffers take turns, so one barrier a round is enough (notebook 04).

#include "affine.cuh"

static_assert(CHUNK >= 2 && CHUNK <= 1024 && (CHUNK & (CHUNK - 1)) == 0, "CHUNK: a power of two in [2, 1024]");

// The steps of the chunk up to and with this thread's, combined; the last thread gets the total. All threads must come.
__device__ __forceinline__ float2 scan_chunk(float2 mine) {
    __shared__ float2 span[2][CHUNK];
    const int t = threadIdx.x;                              // step inside the chunk, 0 <= t < CHUNK
    int now = 0;
    for (int reach = 1; reach < CHUNK; reach *= 2) {
        span[now][t] = mine;
        __syncthreads();                                    // B0: span[now] is written before anyone looks left
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);
        }
        now = 1 - now;
    }
    return mine;
}
