// v4_without_b2 -- block_scan_v4 without B2: a leaf is used before it is final.
//
// Wrong      the last level down writes leaves that other threads own.
// From       kernels_cu/block_scan_v4_tree.cu
// launch: grid=2 block=64 options=-DTILE=128
// args: a=decay[2,120] b=normal[2,120] h=nan[2,120] length=120

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE / 2)
void v4_without_b2(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
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
            state[left] = before.y;  //! race
            decay[right] = after.x;                         // before the right: that, then the left child
            state[right] = after.y;  //! race
        }
    }
    // B2 is missing here

    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        if (step < length) {
            h[row + step] = leaf[k].x * state[step] + leaf[k].y;  //! race
        }
    }
}
