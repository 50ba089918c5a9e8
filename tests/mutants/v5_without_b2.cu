// v5_without_b2 -- block_scan_v5 without B2: a leaf is used before it is final.
//
// Wrong      the last level down writes leaves that other threads own.
// From       kernels_cu/block_scan_v5_tree_padded.cu
// launch: grid=2 block=64 options=-DTILE=128
// args: a=decay[2,120] b=normal[2,120] h=nan[2,120] length=120

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

constexpr int SLOTS = TILE + TILE / 32;

__device__ __forceinline__ int slot(int node) {             // where a node lives: one empty word after 32
    return node + node / 32;
}

extern "C" __global__ __launch_bounds__(TILE / 2)
void v5_without_b2(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float decay[SLOTS];                          // at slot(i) of both: the pair of tree node i,
    __shared__ float state[SLOTS];                          // the node whose steps end at step i
    const int t = threadIdx.x;                              // 0 <= t < TILE / 2
    const long long row = blockIdx.x * (long long)length;

    float2 leaf[2];                                         // the two steps of this thread, kept for the end
    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        leaf[k] = step < length ? make_float2(a[row + step], b[row + step]) : identity();
        decay[slot(step)] = leaf[k].x;
        state[slot(step)] = leaf[k].y;
    }

    for (int reach = 1; reach < TILE; reach *= 2) {         // up: the right child becomes left, then right
        __syncthreads();                                    // B0: both children are written, then combined
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 first = make_float2(decay[slot(left)], state[slot(left)]);
            const float2 both = then(first, make_float2(decay[slot(right)], state[slot(right)]));
            decay[slot(right)] = both.x;
            state[slot(right)] = both.y;
        }
    }

    if (t == 0) {                                           // thread 0 made the root, clears it: no barrier
        decay[slot(TILE - 1)] = identity().x;               // nothing comes before the whole row
        state[slot(TILE - 1)] = identity().y;
    }

    for (int reach = TILE / 2; reach > 0; reach /= 2) {     // down: every node now holds what came before it
        __syncthreads();                                    // B1: the parent is written before its children
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 before = make_float2(decay[slot(right)], state[slot(right)]);
            const float2 after = then(before, make_float2(decay[slot(left)], state[slot(left)]));
            decay[slot(left)] = before.x;                   // before the left: what came before the parent
            state[slot(left)] = before.y;  //! race
            decay[slot(right)] = after.x;                   // before the right: that, then the left child
            state[slot(right)] = after.y;  //! race
        }
    }
    // B2 is missing here

    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        if (step < length) {
            h[row + step] = leaf[k].x * state[slot(step)] + leaf[k].y;  //! race
        }
    }
}
