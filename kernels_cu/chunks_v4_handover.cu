// chunks_v4 -- scan long rows in chunks, in a single pass: each block waits for its left neighbour's state.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v3   one launch and one read: a chunk waits in registers for its state. But the states still come one by one.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.
//
// Mapping    grid = rows * chunks, block = CHUNK threads. A block draws a ticket: its place in the order in which
//            blocks start. Ticket n is chunk n / rows of row n % rows: a block only waits for earlier ones.
// Layout     a, b, h: (rows, length); after, ready: (rows, chunks); ticket and ready must be 0 at the start.
// Limits     CHUNK a power of two in [2, 1024].
// Global     reads 8 B, writes 4 B a step, and 8 B a chunk for the board.
// Barriers   B0 each round of scan_chunk; B1 ticket; B2 carry: log2(CHUNK) + 2.
// compile: -DCHUNK=256

#include "chunk.cuh"

extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v4(const float* a, const float* b, float* h, const float* start, int rows, int length, int chunks,
               int* ticket, float* after, volatile int* ready) {
    __shared__ int number;
    __shared__ float carry;
    if (threadIdx.x == 0) {
        number = atomicAdd(ticket, 1);
    }
    __syncthreads();                                        // B1: the ticket is drawn before anyone reads it
    const int row = number % rows;
    const int chunk = number / rows;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;

    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());

    if (threadIdx.x == CHUNK - 1) {                         // the thread that holds the chunk's total
        const int here = row * chunks + chunk;
        float before = start[row];
        if (chunk > 0) {
            while (ready[here - 1] == 0) {}                 // flag: an earlier ticket, so its block is running
            __threadfence();                                // the flag is read before the value
            before = after[here - 1];
        }
        after[here] = mine.x * before + mine.y;             // value
        __threadfence();                                    // fence: the value is visible before the flag
        ready[here] = 1;                                    // flag
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone reads it

    if (step < length) {
        h[at] = mine.x * carry + mine.y;
    }
}
