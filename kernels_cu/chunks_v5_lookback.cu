// chunks_v5 -- scan long rows in chunks, in a single pass: nobody waits for a state, totals are posted and looked up.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v4   a chunk posts its total as soon as it has it. Whoever needs the state before a chunk looks back over
//            totals to the nearest state that is posted, and walks forward from there (decoupled look-back).
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Merrill & Garland 2016, NVR-2016-002.
//
// Mapping    grid = rows * chunks, block = CHUNK threads; tickets as in v4.
// Layout     a, b, h: (rows, length); total, after, flag: (rows, chunks); ticket and flag must be 0 at the start.
// Limits     CHUNK a power of two in [2, 1024].
// Global     reads 8 B, writes 4 B a step, and 20 B a chunk for the board.
// Barriers   B0 each round of scan_chunk; B1 ticket; B2 carry: log2(CHUNK) + 2.
// Rounding   state k is always total k applied to state k - 1, wherever the walk begins: the same bits in every run.
// compile: -DCHUNK=256

#include "chunk.cuh"

constexpr int TOTAL = 1, STATE = 2;                         // flags; 0: nothing is posted yet

// Value, fence, flag: who sees the flag may read the value.
__device__ __forceinline__ void post(volatile int* flag, int what) {
    __threadfence();
    *flag = what;
}

// The state before `chunk`; the flags and values of its row begin at `first`.
__device__ float look_back(const float2* total, const float* after, volatile int* flag, int first, int chunk,
                           float start) {
    int found = 0;
    int k = chunk - 1;
    while (k >= 0) {                                        // back, until a state is found
        do {
            found = flag[first + k];
        } while (found == 0);
        if (found == STATE) {
            break;
        }
        --k;
    }
    __threadfence();                                        // the flags are read before the values
    float state = k >= 0 ? after[first + k] : start;
    for (++k; k < chunk; ++k) {                             // forward again, over the totals in between
        state = total[first + k].x * state + total[first + k].y;
    }
    return state;
}

extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v5(const float* a, const float* b, float* h, const float* start, int rows, int length, int chunks,
               int* ticket, float2* total, float* after, volatile int* flag) {
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
        total[here] = mine;
        post(flag + here, TOTAL);
        const float before = look_back(total, after, flag, row * chunks, chunk, start[row]);
        after[here] = mine.x * before + mine.y;
        post(flag + here, STATE);
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone reads it

    if (step < length) {
        h[at] = mine.x * carry + mine.y;
    }
}
