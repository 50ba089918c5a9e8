// selective_sum -- out[i] = sum over p of part[p][i], always in the same order: the second stage of dA, dB, dC, dD.
//
// Mapping    a block owns 32 neighbours i; 8 rows of threads take every eighth part each, then row 0 adds the 8 sums.
// Shared     1 KiB for float.   Barriers   B0.
// compile: -default-device -DELEMENT_BFLOAT16
#include "selective_element.cuh"

constexpr int ROWS = 8;

extern "C" __global__ __launch_bounds__(32 * ROWS)
void selective_sum(const real* __restrict__ part, element* __restrict__ out, long long parts, long long count) {
    __shared__ real sums[ROWS][32];
    const int column = threadIdx.x % 32;
    const int row = threadIdx.x / 32;
    const long long i = blockIdx.x * 32LL + column;
    real sum = 0;
    if (i < count) {
#pragma unroll 4
        for (long long p = row; p < parts; p += ROWS) {
            sum += part[p * count + i];
        }
    }
    sums[row][column] = sum;
    __syncthreads();                                        // B0: all eight sums are there
    if (row == 0 && i < count) {
        real whole = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            whole += sums[r][column];
        }
        out[i] = to_element(whole);
    }
}
