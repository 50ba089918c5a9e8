// chunks_v2 -- scan long rows in chunks, in two passes; in between a serial chain makes the carries.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v1   a row is cut into chunks, a block each. Totals first, then carries, then every chunk again with its carry.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.3.
//
// Mapping    totals, finish: grid = rows * chunks, block = CHUNK threads; block r * chunks + k owns chunk k of row r.
//            carry: thread i of the grid owns row i.
// Layout     a, b, h: (rows, length); total, before: (rows, chunks); chunks = ceil(length / CHUNK).
// Limits     CHUNK a power of two in [2, 1024].
// Global     totals reads 8 B, finish reads 8 B and writes 4 B a step: 20 B where 12 would do.
// Barriers   B0 each round of scan_chunk: log2(CHUNK) in totals and in finish; none in carry.
// compile: -DCHUNK=256

#include "chunk.cuh"

// First pass: what each chunk does to a state.
extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v2_totals(const float* a, const float* b, float2* total, int length, int chunks) {
    const int row = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;
    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());
    if (threadIdx.x == CHUNK - 1) {
        total[blockIdx.x] = mine;
    }
}

// Between the passes: the state before each chunk, one after another.
extern "C" __global__
void chunks_v2_carry(const float2* total, const float* start, float* before, int rows, int chunks) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float state = start[row];
    for (int k = 0; k < chunks; ++k) {
        const int at = row * chunks + k;
        before[at] = state;                                 // written before total k is applied
        state = total[at].x * state + total[at].y;
    }
}

// Second pass: the chunk again, from the state before it.
extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v2_finish(const float* a, const float* b, const float* before, float* h, int length, int chunks) {
    const int row = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;
    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());
    if (step < length) {
        h[at] = mine.x * before[blockIdx.x] + mine.y;
    }
}
