// dialect.cu -- one small kernel for each thing that a kernel may say, the same text for NVRTC and for a CPU.
//
// What       each kernel writes what its feature gives; tests/test_dialect_kernels.py compares it with NumPy.
// Options    -DSCALE=3
// Sizes      blocks of 32 threads (one warp) unless the test says otherwise; arrays hold one element a thread.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <math_constants.h>

namespace cg = cooperative_groups;

static_assert(SCALE == 3, "SCALE: 3");
static_assert(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(double2) == 16, "vectors");

__constant__ float weights[4] = {0.5f, -1.0f, 2.0f, 4.0f};
__constant__ int2 corner = {7, -8};
__device__ int visits = 5;
__device__ float history[3] = {1.0f, 2.0f, 3.0f};

// ---- indices, memory spaces, the language

extern "C" __global__ void indices(int* out) {                     // grid (2, 3, 2), block (4, 2, 3)
    const dim3 shape = blockDim, blocks = gridDim;
    const uint3 thread = threadIdx, block = blockIdx;
    const int rank = (thread.z * shape.y + thread.y) * shape.x + thread.x;
    const int number = (block.z * blocks.y + block.y) * blocks.x + block.x;
    const int place = number * (int)(shape.x * shape.y * shape.z) + rank;
    out[place] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y
               + 100000 * blockIdx.z + 1000000 * (warpSize == 32);
}

extern "C" __global__ void transpose(const float* __restrict__ in, float* __restrict__ out) {   // block (8, 8)
    __shared__ float tile[8][8 + 1];
    __shared__ int rows, columns;
    if (threadIdx.x == 0 && threadIdx.y == 0) rows = 8, columns = 8;
    tile[threadIdx.y][threadIdx.x] = in[threadIdx.y * 8 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * columns + threadIdx.x] = tile[threadIdx.x][threadIdx.y] + (float)(rows - 8);
}

extern "C" __global__ void reverse_dynamic(const double* in, double* out) {     // shared: 8 bytes a thread
    extern __shared__ double room[];
    room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

template <typename Number, int FACTOR>
__global__ void scaled(const Number* in, Number* out) {
    __shared__ Number copy[32];
    copy[threadIdx.x] = in[threadIdx.x] * (Number)FACTOR;
    __syncthreads();
    out[threadIdx.x] = copy[31 - threadIdx.x];
}

struct Affine {
    float a, b;
    __device__ float operator()(float x) const { return a * x + b; }
    __device__ static Affine then(Affine first, Affine second) {
        Affine both;
        both.a = first.a * second.a;
        both.b = second.a * first.b + second.b;
        return both;
    }
};

extern "C" __global__ void structs(const Affine* maps, Affine last, float* out) {
    __shared__ Affine chain[32];
    chain[threadIdx.x] = Affine::then(maps[threadIdx.x], last);
    __syncthreads();
    const Affine neighbour = chain[(threadIdx.x + 1) % 32];
    out[threadIdx.x] = neighbour(2.0f);
}

extern "C" __global__ void constants(float* out) {
    out[threadIdx.x] = weights[threadIdx.x % 4] * SCALE + corner.x + corner.y;
}

extern "C" __global__ void variables(float* out) {
    const int before = atomicAdd(&visits, 1);
    __syncthreads();
    out[threadIdx.x] = history[threadIdx.x % 3] + (before >= 5 && visits == 37 ? 10.0f : 0.0f);
    __syncthreads();
    if (threadIdx.x == 0) visits = 5;
}

namespace shapes {
__device__ __noinline__ int twice(int x) { return 2 * x; }
__host__ __device__ __forceinline__ constexpr int thrice(int x) { return 3 * x; }
}  // namespace shapes

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

enum class Kind { even, odd };

extern "C" __global__ __launch_bounds__(32, 1) void language(int* out, bool negate, unsigned char offset) {
    constexpr int STEPS = shapes::thrice(2);
    int sum = 0, powers[STEPS];
#pragma unroll
    for (int i = 0; i < STEPS; i++) powers[i] = 1 << i;
    const Kind kind = threadIdx.x % 2 ? Kind::odd : Kind::even;
    switch (kind) {
        case Kind::even: sum += shapes::twice(powers[STEPS - 1]); break;
        case Kind::odd: sum += fibonacci(6); break;
    }
    auto add = [&sum](int x) { sum += x; };
    add(offset);
    do { add(1); } while (sum % 5);
    out[threadIdx.x] = negate ? -sum : sum;
}

// ---- order: barriers, fences, volatile

extern "C" __global__ void barriers(const int* in, int* out) {                  // block 64
    const int t = threadIdx.x;
    const int count = __syncthreads_count(in[t] > 0);
    const int all = __syncthreads_and(in[t] > 0);
    const int some = __syncthreads_or(in[t] > 62);
    const int none = __syncthreads_or(in[t] > 100);
    out[t] = count * 1000 + (all != 0) * 100 + (some != 0) * 10 + (none != 0);
}

extern "C" __global__ void warp_sum(const float* in, float* out) {              // block 64
    __shared__ float part[64];
    const int lane = threadIdx.x % 32;
    part[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    for (int reach = 16; reach > 0; reach /= 2) {
        const float right = lane < reach ? part[threadIdx.x + reach] : 0.0f;
        __syncwarp();
        if (lane < reach) part[threadIdx.x] += right;
        __syncwarp(0xffffffffu);
    }
    out[threadIdx.x] = part[threadIdx.x / 32 * 32];
}

extern "C" __global__ void last_block(const int* in, int* parts, unsigned int* ticket, int* out) {   // block 32
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int i = 0; i < 32; i++) sum += in[blockIdx.x * 32 + i];
        volatile int* visible = parts;
        visible[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        __threadfence();
        int total = 0;
        for (int i = 0; i < (int)gridDim.x; i++) total += ((volatile int*)parts)[i];
        *out = total;
    }
    __threadfence_block();
    __threadfence_system();
}

extern "C" __global__ void clocks(int* out) {
    const long long before = clock64();
    __nanosleep(20);
    const clock_t early = clock();
    out[threadIdx.x] = clock64() >= before && early != 0;
}

// ---- warps

template <typename Number>
__global__ void shuffles(const Number* in, Number* out) {          // out[way][lane]
    const int lane = threadIdx.x;
    const Number mine = in[lane];
    const unsigned int all = 0xffffffffu;
    out[0 * 32 + lane] = __shfl_sync(all, mine, 5);
    out[1 * 32 + lane] = __shfl_sync(all, mine, 7 * lane + 3);
    out[2 * 32 + lane] = __shfl_sync(all, mine, lane + 1, 8);
    out[3 * 32 + lane] = __shfl_up_sync(all, mine, 1);
    out[4 * 32 + lane] = __shfl_up_sync(all, mine, 5, 8);
    out[5 * 32 + lane] = __shfl_down_sync(all, mine, 3);
    out[6 * 32 + lane] = __shfl_down_sync(all, mine, 2, 16);
    out[7 * 32 + lane] = __shfl_xor_sync(all, mine, 1);
    out[8 * 32 + lane] = __shfl_xor_sync(all, mine, 16);
    out[9 * 32 + lane] = __shfl_xor_sync(all, mine, 9, 8);
    Number half_warp = mine;
    if (lane < 16) half_warp = __shfl_sync(0x0000ffffu, mine, 15 - lane);
    else half_warp = __shfl_xor_sync(0xffff0000u, mine, 3);
    out[10 * 32 + lane] = half_warp;
}

extern "C" __global__ void votes(const int* in, unsigned int* out) {            // out[way][lane]
    const int lane = threadIdx.x;
    const bool positive = in[lane] > 0;
    out[0 * 32 + lane] = __ballot_sync(0xffffffffu, positive);
    out[1 * 32 + lane] = __any_sync(0xffffffffu, in[lane] == 7) ? 1 : 0;
    out[2 * 32 + lane] = __all_sync(0xffffffffu, positive) ? 1 : 0;
    unsigned int active = 0, ballot = 0;
    if (lane % 2) {
        active = __activemask();
        ballot = __ballot_sync(0xaaaaaaaau, positive);
    } else {
        ballot = __all_sync(0x55555555u, in[lane] > -100);
    }
    out[3 * 32 + lane] = active;
    out[4 * 32 + lane] = ballot;
    int equal = -1;
    out[5 * 32 + lane] = __match_any_sync(0xffffffffu, in[lane] % 3);
    out[6 * 32 + lane] = __match_any_sync(0xffffffffu, (unsigned long long)(lane / 16) << 40);
    out[7 * 32 + lane] = __match_all_sync(0xffffffffu, lane / 32, &equal);
    out[8 * 32 + lane] = (unsigned int)equal;
    out[9 * 32 + lane] = __match_all_sync(0xffffffffu, lane, &equal) + (unsigned int)equal;
}

extern "C" __global__ void warp_reductions(const int* in, int* out) {           // out[way][lane]; sm_80 and newer
    const int lane = threadIdx.x, mine = in[lane];
    out[0 * 32 + lane] = __reduce_add_sync(0xffffffffu, mine);
    out[1 * 32 + lane] = __reduce_min_sync(0xffffffffu, mine);
    out[2 * 32 + lane] = __reduce_max_sync(0xffffffffu, mine);
    out[3 * 32 + lane] = (int)__reduce_max_sync(0xffffffffu, (unsigned int)mine);
    out[4 * 32 + lane] = (int)__reduce_and_sync(0xffffffffu, (unsigned int)mine);
    out[5 * 32 + lane] = (int)__reduce_or_sync(0xffffffffu, (unsigned int)mine);
    out[6 * 32 + lane] = (int)__reduce_xor_sync(0xffffffffu, (unsigned int)mine);
}

// ---- atomics: cells[k] takes part in operation k only; olds[k][thread] is what it returned

template <typename Integer>
__global__ void integer_atomics(Integer* cells, Integer* olds) {
    __shared__ Integer near[8];
    const int t = threadIdx.x, lanes = blockDim.x;
    const Integer mine = (Integer)(t * 37 % 64);
    if (t < 8) near[t] = cells[t];
    __syncthreads();
    Integer* places[2] = {cells, near};
    for (int space = 0; space < 2; space++) {
        Integer* cell = places[space];
        Integer* old = olds + space * 8 * lanes + t;
        old[0 * lanes] = atomicAdd(&cell[0], mine);
        old[1 * lanes] = atomicMax(&cell[1], mine);
        old[2 * lanes] = atomicMin(&cell[2], mine);
        old[3 * lanes] = atomicExch(&cell[3], (Integer)(t + 1));
        old[4 * lanes] = atomicAnd(&cell[4], (Integer)~((Integer)1 << t % 16));
        old[5 * lanes] = atomicOr(&cell[5], (Integer)((Integer)1 << t % 16));
        old[6 * lanes] = atomicXor(&cell[6], (Integer)((Integer)1 << t % 16));
        Integer seen = 0, expected;                                // the first comparison only asks what is there
        do {
            expected = seen;
            seen = atomicCAS(&cell[7], expected, (Integer)(expected + 2));
        } while (seen != expected);
        old[7 * lanes] = seen;
    }
    __syncthreads();
    if (t < 8) cells[8 + t] = near[t];
}

extern "C" __global__ void more_atomics(int* signed_cells, unsigned int* cells, unsigned int* olds) {
    const int t = threadIdx.x;
    atomicSub(&signed_cells[0], t);
    atomicSub(&cells[0], 1u);
    olds[t] = atomicInc(&cells[1], 4u);
    olds[32 + t] = atomicDec(&cells[2], 4u);
    atomicAdd_block(&signed_cells[1], 1);
    atomicMax_system(&signed_cells[2], t);
}

template <typename Real>
__global__ void real_atomics(Real* cells, Real* olds) {
    __shared__ Real near;
    const int t = threadIdx.x;
    if (t == 0) near = cells[1];
    __syncthreads();
    olds[t] = atomicAdd(&cells[0], (Real)t);
    atomicAdd(&near, (Real)0.5);
    __syncthreads();
    if (t == 0) cells[1] = near;
}

extern "C" __global__ void exchange_float(float* cell, float* olds) {
    olds[threadIdx.x] = atomicExch(cell, (float)threadIdx.x);
}

extern "C" __global__ void small_atomics(__half* h, __half2* h2, __nv_bfloat16* b, __nv_bfloat162* b2) {
    atomicAdd(h, __float2half(0.5f));
    atomicAdd(h2, __floats2half2_rn(1.0f, -2.0f));
    atomicAdd(b, __float2bfloat16(2.0f));
    atomicAdd(b2, __floats2bfloat162_rn(1.0f, 0.25f));
}

// ---- vectors

extern "C" __global__ void vectors(const float4* in, float4* out, double2* pairs, uchar4* bytes, short2* shorts,
                                   float3* triples) {
    const int t = threadIdx.x;
    __shared__ float4 tile[32];
    float4 v = __ldg(&in[t]);
    v.x += 1.0f;
    tile[t] = v;
    __syncthreads();
    float4 w = tile[31 - t];
    const float2 low = make_float2(w.x, w.y);
    float* parts = &w.z;
    parts[1] = low.x + low.y;
    out[t] = w;
    const double2 pair = {v.x, v.y};
    pairs[t] = pair;
    bytes[t] = make_uchar4((unsigned char)t, 1, 2, 255);
    short2 both = {};
    both.y = (short)-t;
    shorts[t] = both;
    const int3 whole = make_int3(1, t, 3);
    triples[t] = make_float3(whole.x, whole.y, whole.z);
}

extern "C" __global__ void vector_sizes(int* out) {                // (size, alignment) of 24 types
    int i = 0;
#define SIZE(type) out[i++] = (int)sizeof(type), out[i++] = (int)alignof(type)
    SIZE(char1); SIZE(char2); SIZE(uchar3); SIZE(char4); SIZE(short1); SIZE(ushort2); SIZE(short3); SIZE(ushort4);
    SIZE(int1); SIZE(uint2); SIZE(int3); SIZE(uint4); SIZE(longlong1); SIZE(ulonglong2); SIZE(longlong3); SIZE(float1);
    SIZE(float2); SIZE(float3); SIZE(float4); SIZE(double1); SIZE(double2); SIZE(double3); SIZE(dim3); SIZE(uint3);
}

extern "C" __global__ void reinterpreted(const float* in, float* out) {         // 128 floats read as float4, as float2
    const float4 four = reinterpret_cast<const float4*>(in)[threadIdx.x];
    const float2 two = reinterpret_cast<const float2*>(in)[threadIdx.x];
    union { float4 vector; float component[4]; } both;
    both.vector = four;
    out[threadIdx.x] = both.component[2] + two.y;
}

using Vector = float4;
__constant__ float4 shift = {1, 2, 3, 4};
__device__ Vector operator+(Vector a, const Vector& b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ inline float2& operator+=(float2& a, float2 b) {
    a.x += b.x, a.y += b.y;
    return a;
}
template <typename Content>
struct Box {
    Content content;
    __half label[2];
};

extern "C" __global__ void vectors_in_use(const float4* in, const float2* pairs, float4* out, __half* labels) {
    extern __shared__ __align__(16) unsigned char bytes[];          // shared: 64
    __shared__ Box<float2> boxes[32];
    __half* near = reinterpret_cast<__half*>(bytes);
    const int t = threadIdx.x;
    float2 parts[3] = {{1, 2}, {3, 4}};
    parts[2] += pairs[t];
    near[t] = __int2half_rn(t);
    boxes[t].content = parts[2];
    boxes[t].label[0] = boxes[t].label[1] = __float2half(0.5f);
    __syncthreads();
    const Box<float2> box = boxes[31 - t];
    auto pick = [&](int i) { return parts[i]; };
    const auto [a, b] = pick(t % 2);
    auto [x, y, z, w] = in[t] + shift;
    constexpr float4 one = {1, 1, 1, 1};
    Vector sums[2] = {};
    sums[1] = make_float4(x + a, y + b, z + box.content.x, w + box.content.y) + one;
    out[t] = sums[0] + sums[1];
    labels[t] = near[31 - t] + box.label[1];
}

// ---- math: out[function][i] of in[i]

#define FLOAT_FUNCTIONS(F)                                                                                       \
    F(acosf(x * 0.25f)) F(asinhf(x)) F(atanf(x)) F(atan2f(x, 2.0f)) F(cbrtf(x)) F(ceilf(x))                \
    F(copysignf(2.0f, x)) F(cosf(x)) F(coshf(x)) F(erff(x)) F(erfcf(x)) F(expf(x)) F(exp2f(x)) F(exp10f(x))      \
    F(expm1f(x)) F(fabsf(x)) F(fdimf(x, 1.0f)) F(floorf(x)) F(fmaf(x, x, 1.0f)) F(fmaxf(x, 0.5f))                \
    F(fminf(x, 0.5f)) F(fmodf(x, 0.75f)) F(hypotf(x, 3.0f)) F(ldexpf(x, 3)) F(logf(fabsf(x))) F(log2f(fabsf(x))) \
    F(log10f(fabsf(x))) F(log1pf(fabsf(x))) F(normcdff(x)) F(powf(fabsf(x), 1.5f)) F(remainderf(x, 0.75f))       \
    F(rintf(x)) F(roundf(x)) F(rsqrtf(fabsf(x))) F(sinf(x)) F(sinhf(x)) F(sinpif(x)) F(cospif(x))                \
    F(sqrtf(fabsf(x))) F(tanf(x)) F(tanhf(x)) F(truncf(x)) F(tgammaf(1.5f + fabsf(x)))                           \
    F(lgammaf(1.5f + fabsf(x))) F(fdividef(x, 3.0f)) F(norm3df(x, 1.0f, 2.0f))
#define FAST_FUNCTIONS(F)                                                                                  \
    F(__expf(x)) F(__exp10f(x)) F(__logf(fabsf(x))) F(__log2f(fabsf(x))) F(__log10f(fabsf(x)))             \
    F(__powf(fabsf(x), 1.5f)) F(__sinf(x)) F(__cosf(x)) F(__tanf(x * 0.25f)) F(__fdividef(x, 3.0f))        \
    F(__frcp_rn(x)) F(__fsqrt_rn(fabsf(x))) F(__frsqrt_rn(fabsf(x))) F(__fmaf_rn(x, x, 1.0f))              \
    F(__fadd_rn(x, 1.0f)) F(__fsub_rn(x, 1.0f)) F(__fmul_rn(x, x)) F(__fdiv_rn(x, 3.0f)) F(__saturatef(x))
#define DOUBLE_FUNCTIONS(F)                                                                                     \
    F(exp(x)) F(log(fabs(x))) F(sqrt(fabs(x))) F(rsqrt(fabs(x))) F(cbrt(x)) F(sin(x)) F(cos(x)) F(tanh(x))      \
    F(pow(fabs(x), 1.5)) F(pow(x, 3)) F(erf(x)) F(floor(x)) F(rint(x)) F(fma(x, x, 1.0)) F(fmin(x, 0.5))        \
    F(fmax(x, 0.5)) F(fmod(x, 0.75)) F(hypot(x, 3.0)) F(exp2(x)) F(exp10(x)) F(log2(fabs(x))) F(log1p(fabs(x))) \
    F(expm1(x)) F(atan2(x, 2.0)) F(sinpi(x)) F(__dmul_rn(x, x))
#define STORE(expression) out[row++ * count + i] = (expression);

extern "C" __global__ void float_math(const float* in, float* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float x = in[i];
    int row = 0;
    FLOAT_FUNCTIONS(STORE)
    FAST_FUNCTIONS(STORE)
}

extern "C" __global__ void double_math(const double* in, double* out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double x = in[i];
    int row = 0;
    DOUBLE_FUNCTIONS(STORE)
}

extern "C" __global__ void overloads(const float* in, float* out) {             // float overloads of the double names
    const float x = in[threadIdx.x];
    float whole, sine, cosine;
    int exponent;
    const float rest = modf(x, &whole);
    const float mantissa = frexp(x, &exponent);
    sincosf(x, &sine, &cosine);
    out[threadIdx.x] = exp(x) + sqrt(fabs(x)) + pow(x, 2) + max(x, 0.25f) + min(x, 0.25f) + abs(x) + floor(x)
                     + fmaf(x, 2.0f, 1.0f) + rest + whole + mantissa + exponent + sine + cosine;
    static_assert(sizeof(exp(x)) == 4 && sizeof(max(x, 1.0)) == 8, "overloads");
}

extern "C" __global__ void classes(const float* in, int* out) {
    const float x = in[threadIdx.x];
    out[threadIdx.x] = (isnan(x) ? 1 : 0) + (isinf(x) ? 2 : 0) + (isfinite(x) ? 4 : 0) + (signbit(x) ? 8 : 0)
                     + (isnan((double)x) ? 16 : 0) + (x == CUDART_INF_F ? 32 : 0) + (fmaxf(x, 1.0f) == 1.0f ? 64 : 0)
                     + (max(x, CUDART_NAN_F) == x ? 128 : 0);
}

extern "C" __global__ void extremes(long long* out) {              // min, max, abs with mixed types
    int i = 0;
    out[i++] = min(-1, 2);
    out[i++] = min(-1, 2u);                                        // as unsigned: 2
    out[i++] = max(-1, 2u);                                        // as unsigned: 4294967295
    out[i++] = max(-5ll, 3ll);
    out[i++] = (long long)max(-1ll, 1ull);                         // as unsigned: all ones
    out[i++] = (long long)min(3ul, 7ul);
    out[i++] = abs(-7);
    out[i++] = abs(-(1ll << 40));
    out[i++] = (long long)umin(3u, 4u) + llmax(-1, 1) + (long long)ullmin(9, 8);
}

extern "C" __global__ void bits(const unsigned int* in, unsigned int* out, int count) {        // out[function][i]
    const int i = threadIdx.x;
    const unsigned int x = in[i], y = in[(i + 1) % count], z = in[(i + 2) % count];
    const unsigned long long wide = (unsigned long long)x << 32 | y;
    int row = 0;
    STORE(__popc(x)) STORE(__popcll(wide)) STORE(__clz((int)x)) STORE(__clzll((long long)wide)) STORE(__ffs((int)x))
    STORE(__ffsll((long long)((unsigned long long)x << 32))) STORE(__brev(x))
    STORE((unsigned int)(__brevll(wide) >> 32)) STORE(__byte_perm(x, y, z)) STORE(__funnelshift_l(x, y, z))
    STORE(__funnelshift_r(x, y, z)) STORE(__funnelshift_lc(x, y, z % 40)) STORE(__funnelshift_rc(x, y, z % 40))
    STORE((unsigned int)__mulhi((int)x, (int)y)) STORE(__umulhi(x, y)) STORE((unsigned int)__mul24((int)x, (int)y))
    STORE(__umul24(x, y)) STORE((unsigned int)__mul64hi((long long)wide, (long long)z << 20))
    STORE((unsigned int)__umul64hi(wide, wide)) STORE(__sad((int)x, (int)y, z)) STORE(__usad(x, y, z))
    STORE((unsigned int)__dp4a((int)x, (int)y, (int)z)) STORE(__dp4a(x, y, z))
    STORE((unsigned int)__hadd((int)x, (int)y)) STORE((unsigned int)__rhadd((int)x, (int)y)) STORE(__uhadd(x, y))
    STORE(__float_as_uint(__uint_as_float(x & 0x7f7fffffu)))
    STORE((unsigned int)__float_as_int(__int_as_float((int)(x & 0x7f7fffffu))))
    STORE((unsigned int)(__double_as_longlong(__longlong_as_double((long long)(wide >> 4))) >> 7))
    STORE((unsigned int)__double2hiint(__hiloint2double((int)(x >> 4), (int)y)))
}

extern "C" __global__ void conversions(const float* in, long long* out, int count) {           // out[function][i]
    const int i = threadIdx.x;
    const float x = in[i];
    const double d = (double)x * 1.0000001;
    int row = 0;
    STORE(__float2int_rn(x)) STORE(__float2int_rz(x)) STORE(__float2int_ru(x)) STORE(__float2int_rd(x))
    STORE(__float2uint_rn(x)) STORE(__float2uint_rz(x)) STORE(__float2ll_rn(x)) STORE(__float2ll_rd(x))
    STORE((long long)__float2ull_rz(x)) STORE(__double2int_rn(d)) STORE(__double2uint_rz(d))
    STORE(__double2ll_ru(d)) STORE(__float_as_int(__double2float_rn(d))) STORE(__float_as_int(__double2float_rz(d)))
    STORE(__float_as_int(__double2float_ru(d))) STORE(__float_as_int(__double2float_rd(d)))
    const long long n = 0x123456789abll * (i + 1) * (i % 2 ? -1 : 1);
    STORE(__float_as_int(__ll2float_rn(n))) STORE(__float_as_int(__ll2float_rz(n)))
    STORE(__float_as_int(__int2float_rn((int)n))) STORE(__float_as_int(__int2float_rd((int)n)))
    STORE(__float_as_int(__uint2float_ru((unsigned int)n)))
    STORE(__float_as_int(__ull2float_rn((unsigned long long)n)))
    STORE(__double_as_longlong(__int2double_rn((int)n)))
}

// ---- half and bfloat16

template <typename Small>
__device__ float widen(Small x);
template <>
__device__ float widen<__half>(__half x) { return __half2float(x); }
template <>
__device__ float widen<__nv_bfloat16>(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename Small>
__global__ void small_to_float(const Small* in, float* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = widen<Small>(in[i]);
}
extern "C" __global__ void float_to_half(const float* in, __half* out) {        // out[rounding][i]
    const int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    out[i] = __float2half(in[i]);
    out[count + i] = __float2half_rz(in[i]);
    out[2 * count + i] = __float2half_ru(in[i]);
    out[3 * count + i] = __float2half_rd(in[i]);
}
extern "C" __global__ void float_to_bfloat16(const float* in, __nv_bfloat16* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
    out[i] = __float2bfloat16(in[i]);
    out[count + i] = __float2bfloat16_rz(in[i]);
    out[2 * count + i] = __float2bfloat16_ru(in[i]);
    out[3 * count + i] = __float2bfloat16_rd(in[i]);
}
template <typename Small>
__global__ void double_to_small(const double* in, Small* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = Small(in[i]);
}

template <typename Small>
__global__ void small_arithmetic(const Small* a, const Small* b, const Small* c, Small* out, int count) {
    const int i = threadIdx.x;
    const Small x = a[i], y = b[i], z = c[i];
    int row = 0;
    STORE(x + y) STORE(x - y) STORE(x * y) STORE(x / y) STORE(-x) STORE(__hadd(x, y)) STORE(__hsub(x, y))
    STORE(__hmul(x, y)) STORE(__hfma(x, y, z)) STORE(__hmax(x, y)) STORE(__hmin(x, y)) STORE(__habs(x))
    STORE(__hneg(x)) STORE(hsqrt(__habs(x))) STORE(hfloor(x)) STORE(hceil(x)) STORE(hrint(x)) STORE(htrunc(x))
    STORE(__ldg(&a[i]))
    Small total = x;
    total += y;
    total *= Small(2.0f);
    total++;
    STORE(total) STORE(hexp(x)) STORE(hlog(__habs(x))) STORE(hsin(x)) STORE(hcos(x)) STORE(hrcp(x))
    STORE(hrsqrt(__habs(x))) STORE(hexp2(x))
}

template <typename Small>
__global__ void small_comparisons(const Small* a, const Small* b, int* out) {
    const Small x = a[threadIdx.x], y = b[threadIdx.x];
    out[threadIdx.x] = (x == y) + 2 * (x != y) + 4 * (x < y) + 8 * (x <= y) + 16 * (x > y) + 32 * (x >= y)
                     + 64 * __heq(x, y) + 128 * __hltu(x, y) + 256 * __hisnan(x) + 512 * (__hisinf(y) != 0);
}

extern "C" __global__ void half_pairs(const __half2* in, __half2* out, float2* wide) {
    const int i = threadIdx.x;
    const half2 v = in[i], w = in[(i + 1) % 32];
    out[i] = __hfma2(v, w, __float2half2_rn(1.0f)) + __halves2half2(__low2half(w), __high2half(v));
    out[32 + i] = __hadd2(v, w) * __half2half2(v.y) - __lowhigh2highlow(w);
    out[64 + i] = __hmax2(v, w) / __hlt2(v, w);
    const float2 both = __half22float2(v);
    wide[i] = make_float2(both.x + __low2float(w), both.y + __high2float(w));
    out[96 + i] = __float22half2_rn(wide[i]);
    out[128 + i] = make_half2(__hbeq2(v, v) ? 1.0f : 0.0f, v == w ? 1.0f : 0.0f);
}
extern "C" __global__ void bfloat16_pairs(const __nv_bfloat162* in, __nv_bfloat162* out, float2* wide) {
    const int i = threadIdx.x;
    const nv_bfloat162 v = in[i], w = in[(i + 1) % 32];
    out[i] = __hfma2(v, w, __float2bfloat162_rn(1.0f)) + __halves2bfloat162(__low2bfloat16(w), __high2bfloat16(v));
    out[32 + i] = __hadd2(v, w) * __bfloat162bfloat162(v.y) - __lowhigh2highlow(w);
    out[64 + i] = __hmax2(v, w) / __hlt2(v, w);
    const float2 both = __bfloat1622float2(v);
    wide[i] = make_float2(both.x + __low2float(w), both.y + __high2float(w));
    out[96 + i] = __float22bfloat162_rn(wide[i]);
    out[128 + i] = make_bfloat162(__hbeq2(v, v) ? 1.0f : 0.0f, v == w ? 1.0f : 0.0f);
}

extern "C" __global__ void half_integers(const int* in, __half* out, int* back) {
    const int i = threadIdx.x;
    out[i] = __int2half_rn(in[i]);
    out[32 + i] = __half(in[i]);
    out[64 + i] = __ll2half_rn((long long)in[i] * 3);
    const half x = __float2half((float)in[i] * 0.01f);
    back[i] = __half2int_rn(x) * 100 + __half2int_rz(x);
    back[32 + i] = (int)x + (x ? 1000 : 0);
    out[96 + i] = __ushort_as_half((unsigned short)(__half_as_ushort(x) ^ 0x8000));
}

// ---- text, checks

extern "C" __global__ void say(long long big, const float* in) {   // one thread
    printf("plain\n");
    printf("%d %i %5d|%-5d|%05d %+d\n", -3, 4, 42, 42, 42, 42);
    printf("%u %x %X %o %#x\n", 4000000000u, 255u, 255u, 8u, 255u);
    printf("%lld %llu %llx %ld\n", big, (unsigned long long)big, (unsigned long long)big, -5l);
    printf("%f %.3f %8.2f|%-8.1f| %e %.2e %g\n", in[0], in[1], in[0], in[1], 12345.678, 0.00012, 1e10);
    printf("%c%c %s %10s|%-4s| 100%%\n", 'o', 'k', "text", "right", "l");
    const int written = printf("%s %d\n", "arguments", 2);
    printf("%d\n", written);
}

extern "C" __global__ void say_each(int unused) { printf("block %d thread %d\n", (int)blockIdx.x, (int)threadIdx.x); }

extern "C" __global__ void asserts(const int* in, int* out) {
    assert(in[threadIdx.x] >= 0);
    assert(in[threadIdx.x] < 1000 && "in range");
    out[threadIdx.x] = in[threadIdx.x];
}

// ---- cooperative groups

__device__ int sum_of_group(cg::thread_group group, int* room, int mine) {      // the tree of NVIDIA's introduction
    const int rank = group.thread_rank();
    for (int reach = group.size() / 2; reach > 0; reach /= 2) {
        room[rank] = mine;
        group.sync();
        if (rank < reach) mine += room[rank + reach];
        group.sync();
    }
    return mine;
}

extern "C" __global__ void block_groups(const int* in, int* out) {              // block (16, 4)
    __shared__ int room[64];
    const cg::thread_block block = cg::this_thread_block();
    const int rank = block.thread_rank();
    const int total = sum_of_group(block, room, in[rank]);
    if (rank == 0) room[0] = total;
    block.sync();
    const auto tile = cg::tiled_partition(block, 8);
    const int everything = room[0];
    block.sync();
    const int of_eight = sum_of_group(tile, room + rank / 8 * 8, in[rank]);
    const dim3 place = block.thread_index(), shape = block.group_dim();
    out[rank] = everything * 10 + (block.size() == 64 && place.x == threadIdx.x && shape.y == 4);
    if (tile.thread_rank() == 0) out[64 + rank / 8] = of_eight;
}

template <int SIZE>
__global__ void tiles(const int* in, int* out) {                   // block 64, out[way][thread]
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<SIZE>(block);
    const int t = threadIdx.x, mine = in[t];
    out[0 * 64 + t] = tile.thread_rank() + 100 * tile.meta_group_rank() + 10000 * tile.meta_group_size()
                    + 1000000 * tile.size();
    out[1 * 64 + t] = tile.shfl(mine, SIZE - 1);
    out[2 * 64 + t] = tile.shfl_up(mine, 1);
    out[3 * 64 + t] = tile.shfl_down(mine, 1);
    out[4 * 64 + t] = tile.shfl_xor(mine, SIZE / 2);
    out[5 * 64 + t] = (tile.any(mine > 60) ? 1 : 0) + (tile.all(mine > 5) ? 2 : 0);
    out[6 * 64 + t] = (int)tile.ballot(mine % 3 == 0);
    out[7 * 64 + t] = cg::reduce(tile, mine, cg::plus<int>());
    out[8 * 64 + t] = cg::reduce(tile, mine, cg::greater<int>());
    out[9 * 64 + t] = cg::inclusive_scan(tile, mine);
    out[10 * 64 + t] = cg::exclusive_scan(tile, mine, cg::plus<int>());
    tile.sync();
}

extern "C" __global__ void tile_of_tile(int* out) {                // block 64
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const auto quarter = cg::tiled_partition<8>(warp);
    cg::thread_block_tile<8> same = quarter;
    out[threadIdx.x] = quarter.meta_group_rank() * 100 + quarter.meta_group_size() * 10
                     + (same.thread_rank() == threadIdx.x % 8);
}

extern "C" __global__ void coalesced(const int* in, int* out) {    // out[way][lane], only lanes with in > 0 write
    const int lane = threadIdx.x;
    if (in[lane] > 0) {
        const cg::coalesced_group active = cg::coalesced_threads();
        out[0 * 32 + lane] = active.thread_rank() + 100 * active.size();
        out[1 * 32 + lane] = active.shfl(in[lane], 1);
        out[2 * 32 + lane] = active.shfl_up(in[lane], 1);
        out[3 * 32 + lane] = active.shfl_down(in[lane], 1);
        out[4 * 32 + lane] = (int)active.ballot(in[lane] % 2);
        out[5 * 32 + lane] = cg::reduce(active, in[lane], cg::plus<int>());
        active.sync();
    }
}

extern "C" __global__ void whole_grid(const int* in, int* between, int* out) {  // cooperative launch
    const cg::grid_group grid = cg::this_grid();
    const int i = (int)grid.thread_rank(), count = (int)grid.size();
    between[i] = in[i] * 2;
    grid.sync();
    out[i] = between[count - 1 - i] + (int)grid.block_rank() * 1000
           + (grid.is_valid() && grid.num_blocks() == gridDim.x);
}
