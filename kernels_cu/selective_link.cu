// selective_link -- second of two passes: what enters each segment of a row, from the totals of the segments before it.
//
// What       enter[0] = initial, enter[k + 1] = product[k] * enter[k] + total[k]. `enter` takes the place of `total`. A product
//            of 0 stops everything, also an infinite state.
// Used in    ssmlab.selective_scan.
//
// Mapping    one thread a (batch, channel, state); BATCH loads are on their way before the first is used.
// Barriers   none.
// compile: -default-device -DELEMENT_FLOAT -DTHREADS=128
#include "selective_element.cuh"

constexpr int BATCH = 32;

extern "C" __global__ __launch_bounds__(THREADS)
void selective_link(const real* __restrict__ product, real* __restrict__ total, const real* __restrict__ initial,
                    long long batches, long long row, int segments) {
    const long long index = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (index >= batches * row) {
        return;
    }
    const long long at = index / row * segments * row + index % row;        // of segment 0
    real carried = initial ? initial[index] : real(0);
    for (int k = 0; k < segments; k += BATCH) {
        real p[BATCH], b[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const long long segment = k + i;
            const bool passed = k + i < segments - 1;       // what comes out behind the last nobody asks for
            p[i] = passed ? product[at + segment * row] : real(0);
            b[i] = passed ? total[at + segment * row] : real(0);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            if (k + i < segments) {
                const long long segment = k + i;
                total[at + segment * row] = carried;
                carried = p[i] == real(0) || carried == real(0) ? b[i] : p[i] * carried + b[i];
            }
        }
    }
}
