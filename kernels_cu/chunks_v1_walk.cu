// chunks_v1 -- scan along whole rows: a thread walks a row, so nothing has to be carried between blocks.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// New        the first one: parallel across rows only. The least work there is, and `length` steps one after another.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.
//
// Mapping    thread i of the grid owns row i.
// Layout     element (row, step) lies at row * row_stride + step * step_stride; row_stride 1: a warp reads neighbours.
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Barriers   none.
// Rounding   that of the loop.
// compile: -std=c++17

extern "C" __global__
void chunks_v1(const float* a, const float* b, float* h, const float* start,
               int rows, int length, long long row_stride, long long step_stride) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float state = start[row];
    for (int step = 0; step < length; ++step) {
        const long long at = row * row_stride + step * step_stride;
        state = a[at] * state + b[at];
        h[at] = state;
    }
}
