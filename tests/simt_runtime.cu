// Small kernels for test_simt_runtime.py and test_simt_report.py, in one text so that one compilation serves all.
// `//@name` marks a line that a test asks for.
#include <cooperative_groups.h>

// ---- shared memory

extern "C" __global__ void shared_race(float* out) {
    __shared__ float cells[64];
    cells[threadIdx.x] = threadIdx.x;                                 //@race write
    out[threadIdx.x] = cells[(threadIdx.x + 33) % 64];                //@race read
}

extern "C" __global__ void warp_race(float* out) {
    __shared__ float cells[32];
    cells[threadIdx.x] = threadIdx.x;                                 //@warp write
    out[threadIdx.x] = cells[31 - threadIdx.x];                       //@warp read
}

extern "C" __global__ void shuffle_is_no_order(float* out) {
    __shared__ float cells[32];
    cells[threadIdx.x] = threadIdx.x;
    const float other = __shfl_xor_sync(0xffffffffu, cells[threadIdx.x], 1);
    out[threadIdx.x] = cells[31 - threadIdx.x] + other;
}

extern "C" __global__ void syncwarp_orders(float* out) {
    __shared__ float cells[32];
    cells[threadIdx.x] = threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = cells[31 - threadIdx.x];
}

// Lanes 0-15 and 16-31 synchronise apart; `reach` decides whether a lane looks into the other half.
extern "C" __global__ void half_syncwarp(float* out, int reach) {
    __shared__ float cells[32];
    const int t = threadIdx.x;
    cells[t] = t;
    __syncwarp(t < 16 ? 0x0000ffffu : 0xffff0000u);
    out[t] = cells[(t + reach) % 32];
}

// Readers of one word: one of them is ordered with the writer, the others are not.
extern "C" __global__ void third_reader(float* out) {
    __shared__ float cell;
    const int t = threadIdx.x;
    if (t == 0) cell = 1;
    __syncthreads();
    out[t] = cell;                                                    //@third read
    if (t < 2) {
        __syncwarp(0x3u);
        if (t == 0) cell = 2;                                         //@third write
    }
}

extern "C" __global__ void neighbour_bytes(unsigned char* out) {
    __shared__ unsigned char cells[64];
    cells[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = cells[threadIdx.x];
}

extern "C" __global__ void overlapping_bytes(int* out) {
    __shared__ int cells[2];
    const int t = threadIdx.x;
    ((short*)cells)[t % 4] = t;                                       //@bytes
    __syncthreads();
    if (t == 0) out[0] = cells[0];
}

extern "C" __global__ void atomic_sum(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void atomic_and_plain(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;                                    //@plain
    atomicAdd(&sum, 1);                                               //@atomic
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void never_written(float* out) {
    __shared__ float cells[64];
    if (threadIdx.x < 63) cells[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = cells[threadIdx.x];                            //@unwritten
}

extern "C" __global__ void second_tile_unwritten(float* out, int n) {
    extern __shared__ float room[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = i;
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x];
}

extern "C" __global__ void dynamic_overrun(float* out) {
    extern __shared__ float room[];
    room[threadIdx.x] = 1;                                            //@dynamic
    __syncthreads();
    out[threadIdx.x] = room[0];                                       //@dynamic read
}

extern "C" __global__ void gap_between_arrays(float* out) {
    __shared__ float first[8];
    __shared__ float second[8];
    float* p = first;
    second[threadIdx.x % 8] = 0;
    p[8 + threadIdx.x % 2] = 1;                                       //@gap
    out[threadIdx.x] = 0;
}

extern "C" __global__ void inner_dimension(float* out, int column) {
    __shared__ float cells[2][32];
    const int t = threadIdx.x;
    cells[0][t] = 1, cells[1][t] = 2;
    __syncthreads();
    out[t] = cells[0][t + column];                                    //@inner
}

extern "C" __global__ void local_overrun(float* out, int i) {
    float mine[4] = {0, 1, 2, 3};
    __shared__ float shared_cells[4];
    shared_cells[threadIdx.x % 4] = 0;
    mine[i] = 5;                                                      //@local
    out[threadIdx.x] = mine[0] + shared_cells[threadIdx.x % 4];
}

extern "C" __global__ void vector_cells(float4* out) {
    __shared__ float4 cells[32];
    const int t = threadIdx.x;
    cells[t] = make_float4(t, t, t, t);                               //@vector write
    __syncthreads();
    out[t] = cells[31 - t];                                           //@vector read
}

template <class T> __device__ T twice_in_shared(T x) {
    __shared__ T cells[32];
    cells[threadIdx.x] = x;
    return cells[threadIdx.x] * 2;
}
extern "C" __global__ void two_instances(float* out) {
    out[threadIdx.x] = twice_in_shared(1.0f) + twice_in_shared(1);
}

// ---- global memory

extern "C" __global__ void past_the_end(float* out, const float* in, int shift) {
    out[(int)threadIdx.x + shift] = in[threadIdx.x];                  //@past
}

extern "C" __global__ void far_away(float* out, long long at) {
    out[0] = 1;
    out[at] = 2;                                                      //@far
    out[1] = 3;
}

extern "C" __global__ void null_pointer(const float* in, float* out) {
    out[threadIdx.x] = in[threadIdx.x];                               //@null
}

extern "C" __global__ void misaligned(float4* out, const float* in) {
    out[threadIdx.x] = *(const float4*)(in + 1 + 4 * threadIdx.x);    //@misaligned
}

extern "C" __global__ void same_word_twice(int* out) {
    out[0] = blockIdx.x;                                              //@same word
}

extern "C" __global__ void block_reads_block(const float* in, float* out, float* middle) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    middle[i] = in[i];                                                //@middle write
    out[i] = middle[gridDim.x * blockDim.x - 1 - i];                  //@middle read
}

extern "C" __global__ void within_a_block(float* middle, float* out) {
    middle[threadIdx.x] = threadIdx.x;                                //@within write
    if (out != nullptr) out[threadIdx.x] = middle[threadIdx.x ^ 32];  //@within read
}

// Each block passes a sum on: value, fence, flag; flag, fence, value.  `without`: bit 0 no writer's fence, bit 1 no reader's.
extern "C" __global__ void chain(float* value, volatile int* flag, int without) {
    if (threadIdx.x == 0) {
        float before = 0;
        if (blockIdx.x > 0) {
            while (flag[blockIdx.x - 1] == 0) {}                      //@wait
            if (!(without & 2)) __threadfence();
            before = value[blockIdx.x - 1];                           //@chain read
        }
        value[blockIdx.x] = before + 1;                               //@chain write
        if (!(without & 1)) __threadfence();
        flag[blockIdx.x] = 1;
    }
}

// The same with volatile values: no race, but the flag may overtake the value.
extern "C" __global__ void volatile_chain(volatile float* value, volatile int* flag, int without) {
    if (threadIdx.x == 0) {
        float before = 0;
        if (blockIdx.x > 0) {
            while (flag[blockIdx.x - 1] == 0) {}
            __threadfence();
            before = value[blockIdx.x - 1];                           //@volatile read
        }
        value[blockIdx.x] = before + 1;                               //@volatile write
        if (!without) __threadfence();
        flag[blockIdx.x] = 1;
    }
}

// All threads write, then thread 0 tells; `barrier` says whether it waits for them first.
extern "C" __global__ void told_by_one(float* value, int* count, float* out, int barrier) {
    __shared__ int last;
    const int t = threadIdx.x, n = blockDim.x;
    value[blockIdx.x * n + t] = t;                                    //@told write
    __threadfence();
    if (barrier) __syncthreads();
    if (t == 0) last = atomicAdd(count, 1) == (int)gridDim.x - 1;
    __syncthreads();
    if (last) {
        __threadfence();
        float sum = 0;
        for (int b = 0; b < (int)gridDim.x; b++) sum += value[b * n + t ^ 32];   //@told read
        out[t] = sum;
    }
}

extern "C" __global__ void ticket(int* next, int* order) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = atomicAdd(next, 1);
    __syncthreads();
    if (threadIdx.x == 0) order[mine] = blockIdx.x;
}

__device__ int served = 0;
__constant__ float weights[4] = {1, 2, 3, 4};
extern "C" __global__ void module_variables(float* out) {
    const int number = atomicAdd(&served, 1);
    out[number] = weights[threadIdx.x % 4];
}

extern "C" __global__ void shared_pointer_of_another(float** where, float* out) {
    __shared__ float cell;
    if (blockIdx.x == 0) cell = 1, where[0] = &cell;
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 1) out[0] = *where[0];                          //@other block
}

extern "C" __global__ void pointer_to_local(float** where, float* out) {
    float mine = threadIdx.x;
    if (threadIdx.x == 0) where[0] = &mine;
    __syncthreads();
    if (threadIdx.x == 1) out[0] = *where[0];                         //@local escape
    __syncthreads();
}

// ---- barriers and waits

extern "C" __global__ void two_barriers(int* out) {
    if (threadIdx.x < 32) {
        __syncthreads();                                              //@first barrier
    } else {
        __syncthreads();                                              //@second barrier
    }
    out[threadIdx.x] = 1;
}

__device__ void meet() { __syncthreads(); }                           //@in a function
extern "C" __global__ void same_barrier_two_calls(int* out) {
    if (threadIdx.x % 2) meet();
    else meet();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void early_return(int* out, int n) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = 1;
    __syncthreads();                                                  //@after return
    out[threadIdx.x] = 2;
    __syncthreads();
}

extern "C" __global__ void reducing_barriers(int* out) {
    const int t = threadIdx.x;
    out[t] = __syncthreads_count(t % 3 == 0) * 100 + __syncthreads_and(t < 64) * 10 + __syncthreads_or(t == 5);
}

extern "C" __global__ void lane_waits_elsewhere(int* out) {
    const int t = threadIdx.x;
    int x = t;
    if (t != 7) x = __shfl_down_sync(0xffffffffu, x, 1);              //@without lane 7
    __syncthreads();                                                  //@lane 7
    out[t] = x;
}

extern "C" __global__ void lane_has_returned(int* out) {
    const int t = threadIdx.x;
    if (t == 7) return;
    out[t] = __ballot_sync(0xffffffffu, 1);                           //@ballot
}

extern "C" __global__ void not_in_its_mask(int* out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffffu, threadIdx.x, 0);      //@not in mask
}

extern "C" __global__ void masks_differ(int* out) {
    const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u;
    out[threadIdx.x] = __any_sync(mask, 1);                           //@masks differ
}

extern "C" __global__ void different_functions(int* out) {
    const int t = threadIdx.x;
    int x;
    if (t < 16) x = __any_sync(0xffffffffu, 1);                       //@any
    else x = __shfl_sync(0xffffffffu, t, 0);                          //@shuffle
    out[t] = x;
}

extern "C" __global__ void different_lines(int* out) {
    const int t = threadIdx.x;
    int x;
    if (t < 16) x = __shfl_xor_sync(0xffffffffu, t, 1);               //@line one
    else x = __shfl_xor_sync(0xffffffffu, t, 1);                      //@line two
    out[t] = x;
}

extern "C" __global__ void warp_functions(int* out) {
    const int t = threadIdx.x, lane = t % 32;
    int* mine = out + 12 * t;
    mine[0] = __shfl_sync(~0u, t, 3);
    mine[1] = __shfl_up_sync(~0u, t, 2);
    mine[2] = __shfl_down_sync(~0u, t, 30);
    mine[3] = __shfl_xor_sync(~0u, t, 5);
    mine[4] = __shfl_sync(~0u, t, 9, 8);
    mine[5] = __shfl_up_sync(~0u, t, 3, 4);
    mine[6] = (int)__ballot_sync(~0u, lane % 3 == 0);
    mine[7] = (int)__match_any_sync(~0u, lane % 4);
    mine[8] = __reduce_add_sync(~0u, lane);
    mine[9] = __reduce_max_sync(~0u, -lane);
    mine[10] = lane < 5 ? (int)__activemask() : (int)__activemask();
    mine[11] = (int)__shfl_down_sync(~0u, (double)t, 1);
}

extern "C" __global__ void waits_for_nobody(volatile int* flag, int* out) {
    while (flag[0] == 0) {}                                           //@poll
    out[threadIdx.x] = 1;
}

extern "C" __global__ void lock_twice(int* lock) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    while (atomicCAS(lock, 0, 1) != 0) {}                             //@locked
}

extern "C" __global__ void waits_in_a_block(volatile int* flag, int* out) {
    if (threadIdx.x == 0) {
        while (flag[0] == 0) {}
        out[0] = 1;
    } else if (threadIdx.x == 63) {
        flag[0] = 1;
    }
}

extern "C" __global__ void whole_grid(int* out, int* seen) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    out[i] = i;
    cooperative_groups::this_grid().sync();                           //@grid sync
    seen[i] = out[n - 1 - i];
}

// ---- ends of a launch

extern "C" __global__ void endless_quiet(int* out, int n) {
    out[0] = 1;
    int i = 0;
    while (i < n) {                                                   //@quiet loop
        i = i * 1;
    }
    out[1] = i;
}

__device__ int same(int x) {
    for (int i = 0; i < 3; i++) x += i - i;
    return x;
}
extern "C" __global__ void endless_busy(int* out, int n) {
    for (int i = 0; i < n;) {                                         //@busy loop
        out[0] = same(i);
    }
}

__device__ int deeper(int n) { return n == 0 ? 0 : 1 + deeper(n - 1); }   //@deeper
extern "C" __global__ void recursion(int* out, int n) { out[threadIdx.x] = deeper(n); }

extern "C" __global__ void asserted(const int* in, int* out) {
    assert(in[threadIdx.x] >= 0);                                     //@assert
    out[threadIdx.x] = in[threadIdx.x];
}

extern "C" __global__ void prints(int rounds) {
    for (int r = 0; r < rounds; r++) {
        printf("round %d block %d thread %d %.2f\n", r, blockIdx.x, threadIdx.x, r + 0.5f);
        __syncthreads();
    }
}

extern "C" __global__ void prints_much() {
    for (int i = 0; i < 100; i++) printf("%0200d\n", i);
}

// ---- counting

extern "C" __global__ void strided(const float* in, float* out, int stride) {
    out[threadIdx.x] = in[threadIdx.x * stride];                      //@strided
}

extern "C" __global__ void banks(float* out, int stride) {
    __shared__ float cells[1024];
    cells[threadIdx.x * stride] = 1;                                  //@banks
    __syncthreads();
    out[threadIdx.x] = cells[0];                                      //@broadcast
}

extern "C" __global__ void wide_banks(double* out, int stride) {
    __shared__ double cells[512];
    cells[threadIdx.x * stride % 512] = 1;                            //@wide banks
    out[threadIdx.x] = 0;
}

extern "C" __global__ void long_loop(const float* in, float* out, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += in[i * 32 + threadIdx.x];      //@long loop
    out[threadIdx.x] = sum;
}

extern "C" __global__ void index_from_memory(const int* in, int* out) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x]], 1);                             //@index
    __syncthreads();
    if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}

extern "C" __global__ void structs(const int* in, int* out) {
    struct Four { int a, b, c, d; };
    ((Four*)out)[threadIdx.x] = ((const Four*)in)[threadIdx.x];       //@struct
    struct Many { int a[20]; };
    if (threadIdx.x == 0) *(Many*)(out + 256) = *(const Many*)in;     //@large struct
    memcpy(out + 128 + 4 * threadIdx.x, in + 4 * threadIdx.x, 16);    //@memcpy
}

// ---- native mode

extern "C" __global__ void sums(const float* in, float* out, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    float mine = 0;
    for (int i = t; i < n; i += 256) mine += in[blockIdx.x * n + i];
    part[t] = mine;
    __syncthreads();
    for (int reach = 128; reach > 0; reach /= 2) {
        if (t < reach) part[t] += part[t + reach];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void every_atomic(int* i, unsigned* u, unsigned long long* w, float* f, double* d) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&i[0], t);
    atomicSub(&i[1], t);
    atomicMin(&i[2], -t);
    atomicMax(&i[3], t);
    atomicAnd(&i[4], ~(1 << t % 31));
    atomicOr(&i[5], 1 << t % 31);
    atomicXor(&i[6], t);
    atomicInc(&u[0], 9);
    atomicDec(&u[1], 9);
    atomicMax(&u[2], 0x80000000u + t);
    atomicAdd(&w[0], 1ull << 40);
    atomicAdd(&f[0], 1.0f);
    atomicAdd(&d[0], 0.5);
    int old = atomicAdd(&i[7], 0), seen;
    do {
        seen = old;
        old = atomicCAS(&i[7], seen, seen + 1);
    } while (old != seen);
}
