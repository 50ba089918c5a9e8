// block_scan_v4 -- inclusive affine scan inside one block: a work-efficient tree, up and down again.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v3   no span is combined twice: totals climb a tree, what came before walks down it again. The work
//            grows like TILE, not like TILE * log2(TILE); but the strides of the tree fall on few banks.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.2.
//
// Mapping    grid = rows, block = TILE / 2 threads; block r owns row r, thread t steps t and t + TILE / 2.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; steps past the end hold (1, 0).
// Shared     2 arrays * 4 * TILE B, static (TILE=256: 2048 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       2 * (TILE - 1) combines (TILE=256: 510) and one multiply-add a step, depth 2 * log2(TILE) + 1.
// Barriers   B0 each round up, B1 each round down, B2 once: 2 * log2(TILE) + 1 (TILE=256: 17).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE / 2)
void block_scan_v4(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float decay[TILE];                           // decay[i], state[i]: the pair of tree node i,
    __shared__ float state[TILE];                           // the node whose steps end at step i
    const int t = threadIdx.x;                              // 0 <= t < TILE / 2
    const long long row = blockIdx.x * (long long)length;

    float2 leaf[2];                                         // the two steps of this thread, kept for the end
    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        leaf[k] = step < length ? make_float2(a[row + step], b[row + step]) : identity();
        decay[step] = leaf[k].x;
        state[step] = leaf[k].y;
    }

    for (int reach = 1; reach < TILE; reach *= 2) {         // up: the right child becomes left, then right
        __syncthreads();                                    // B0: both children are written, then combined
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 first = make_float2(decay[left], state[left]);
            const float2 both = then(first, make_float2(decay[right], state[right]));
            decay[right] = both.x;
            state[right] = both.y;
        }
    }

    if (t == 0) {                                           // thread 0 made the root, clears it: no barrier
        decay[TILE - 1] = identity().x;                     // nothing comes before the whole row
        state[TILE - 1] = identity().y;
    }

    for (int reach = TILE / 2; reach > 0; reach /= 2) {     // down: every node now holds what came before it
        __syncthreads();                                    // B1: the parent is written before its children
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 before = make_float2(decay[right], state[right]);
            const float2 after = then(before, make_float2(decay[left], state[left]));
            decay[left] = before.x;                         // before the left: what came before the parent
            state[left] = before.y;
            decay[right] = after.x;                         // before the right: that, then the left child
            state[right] = after.y;
        }
    }
    __syncthreads();                                        // B2: all leaves are written before one is read

    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        if (step < length) {
            h[row + step] = leaf[k].x * state[step] + leaf[k].y;
        }
    }
}
