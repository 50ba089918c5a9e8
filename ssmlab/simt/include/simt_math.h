// simt_math.h -- CUDA's device math: float and double functions, intrinsics, conversions, bit tricks, min/max/abs.
//
// Declares, rather than includes, the C library's functions: host headers would cost more than the rest of a
// compilation and would offer names that NVRTC lacks. The overloads are NVRTC's: sqrt(2) or max(1.0f, 1) are ambiguous
// there and here. Results are those of the C library, which rounds most functions to within 1 unit in the last place
// (ulp); CUDA's own float functions are within 1 to 4 ulp and differ in the last bits. A GPU program compiled by CuPy
// also flushes float subnormals to zero (-ftz=true); a CPU keeps them.
#pragma once

#if !defined(__clang__)
#define __builtin_assume(condition) ((void)0)      // NVRTC and Clang have it; a hint, so nothing is lost
#endif

// ---- functions of the C library, in float (f), double, and as float overloads of the double name
#define SIMT_LIBM_1(NAME)                                                                             \
    extern "C" double NAME(double);                                                                   \
    extern "C" float NAME##f(float);                                                                  \
    SIMT_UNSEEN float NAME(float x) { return NAME##f(x); }
#define SIMT_LIBM_2(NAME)                                                                             \
    extern "C" double NAME(double, double);                                                           \
    extern "C" float NAME##f(float, float);                                                           \
    SIMT_UNSEEN float NAME(float x, float y) { return NAME##f(x, y); }
#define SIMT_LIBM_TO_INTEGER(RESULT, NAME)                                                            \
    extern "C" RESULT NAME(double);                                                                   \
    extern "C" RESULT NAME##f(float);                                                                 \
    SIMT_UNSEEN RESULT NAME(float x) { return NAME##f(x); }
#define SIMT_LIBM_SCALE(NAME, EXPONENT)                                                               \
    extern "C" double NAME(double, EXPONENT);                                                         \
    extern "C" float NAME##f(float, EXPONENT);                                                        \
    SIMT_UNSEEN float NAME(float x, EXPONENT n) { return NAME##f(x, n); }

SIMT_LIBM_1(acos) SIMT_LIBM_1(acosh) SIMT_LIBM_1(asin) SIMT_LIBM_1(asinh) SIMT_LIBM_1(atan) SIMT_LIBM_1(atanh)
SIMT_LIBM_1(cbrt) SIMT_LIBM_1(ceil) SIMT_LIBM_1(cos) SIMT_LIBM_1(cosh) SIMT_LIBM_1(erf) SIMT_LIBM_1(erfc)
SIMT_LIBM_1(exp) SIMT_LIBM_1(exp2) SIMT_LIBM_1(expm1) SIMT_LIBM_1(fabs) SIMT_LIBM_1(floor) SIMT_LIBM_1(lgamma)
SIMT_LIBM_1(log) SIMT_LIBM_1(log10) SIMT_LIBM_1(log1p) SIMT_LIBM_1(log2) SIMT_LIBM_1(logb) SIMT_LIBM_1(nearbyint)
SIMT_LIBM_1(rint) SIMT_LIBM_1(round) SIMT_LIBM_1(sin) SIMT_LIBM_1(sinh) SIMT_LIBM_1(sqrt) SIMT_LIBM_1(tan)
SIMT_LIBM_1(tanh) SIMT_LIBM_1(tgamma) SIMT_LIBM_1(trunc)
SIMT_LIBM_2(atan2) SIMT_LIBM_2(copysign) SIMT_LIBM_2(fdim) SIMT_LIBM_2(fmax) SIMT_LIBM_2(fmin) SIMT_LIBM_2(fmod)
SIMT_LIBM_2(hypot) SIMT_LIBM_2(nextafter) SIMT_LIBM_2(pow) SIMT_LIBM_2(remainder)
SIMT_LIBM_TO_INTEGER(int, ilogb) SIMT_LIBM_TO_INTEGER(long, lrint) SIMT_LIBM_TO_INTEGER(long, lround)
SIMT_LIBM_TO_INTEGER(long long, llrint) SIMT_LIBM_TO_INTEGER(long long, llround)
SIMT_LIBM_SCALE(ldexp, int) SIMT_LIBM_SCALE(scalbn, int) SIMT_LIBM_SCALE(scalbln, long)
extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
extern "C" double nan(const char*);
extern "C" float nanf(const char*);
SIMT_UNSEEN float fma(float x, float y, float z) { return fmaf(x, y, z); }
SIMT_UNSEEN float pow(float x, int n) { return powf(x, (float)n); }
SIMT_UNSEEN double pow(double x, int n) { return pow(x, (double)n); }
SIMT_UNSEEN double copysign(float x, double sign) { return copysign((double)x, sign); }
SIMT_UNSEEN double copysign(double x, float sign) { return copysign(x, (double)sign); }

// These store through a pointer that may lead to shared or global memory: the store is made here, where the checker
// sees it.
#define SIMT_SPLIT(NAME, REAL, BUILTIN, SECOND)                                                       \
    inline REAL NAME(REAL x, SECOND* second) {                                                        \
        SECOND result;                                                                                \
        const REAL first = BUILTIN(x, &result);                                                       \
        *second = result;                                                                             \
        return first;                                                                                 \
    }
SIMT_SPLIT(frexp, double, __builtin_frexp, int)
SIMT_SPLIT(frexp, float, __builtin_frexpf, int)
SIMT_SPLIT(frexpf, float, __builtin_frexpf, int)
SIMT_SPLIT(modf, double, __builtin_modf, double)
SIMT_SPLIT(modf, float, __builtin_modff, float)
SIMT_SPLIT(modff, float, __builtin_modff, float)
#define SIMT_REMQUO(NAME, REAL, BUILTIN)                                                              \
    inline REAL NAME(REAL x, REAL y, int* quotient) {                                                 \
        int result;                                                                                   \
        const REAL rest = BUILTIN(x, y, &result);                                                     \
        *quotient = result;                                                                           \
        return rest;                                                                                  \
    }
SIMT_REMQUO(remquo, double, __builtin_remquo)
SIMT_REMQUO(remquo, float, __builtin_remquof)
SIMT_REMQUO(remquof, float, __builtin_remquof)

// ---- functions that only CUDA has; the float forms are worked out in double and rounded once
SIMT_UNSEEN double rsqrt(double x) { return 1.0 / sqrt(x); }
SIMT_UNSEEN double rcbrt(double x) { return 1.0 / cbrt(x); }
SIMT_UNSEEN double exp10(double x) { return pow(10.0, x); }
SIMT_UNSEEN double normcdf(double x) { return 0.5 * erfc(-0.70710678118654752440 * x); }
SIMT_UNSEEN double sinpi(double x) {
    double turn = remainder(x, 2.0);                                    // exact, in [-1, 1]
    if (fabs(turn) > 0.5) turn = copysign(1.0, turn) - turn;            // exact; sin(pi t) = sin(pi (1 - t))
    return turn == 0.0 ? copysign(0.0, x) : sin(3.14159265358979323846 * turn);
}
SIMT_UNSEEN double cospi(double x) {
    const double turn = fabs(remainder(x, 2.0));                        // exact, in [0, 1]
    return sin(3.14159265358979323846 * (0.5 - turn));                  // exactly 0 at one half, 1 at 0, -1 at 1
}
#define SIMT_ALSO_IN_FLOAT(NAME)                                                                      \
    SIMT_UNSEEN float NAME##f(float x) { return (float)NAME((double)x); }                             \
    SIMT_UNSEEN float NAME(float x) { return (float)NAME((double)x); }
SIMT_ALSO_IN_FLOAT(rsqrt) SIMT_ALSO_IN_FLOAT(rcbrt) SIMT_ALSO_IN_FLOAT(exp10) SIMT_ALSO_IN_FLOAT(normcdf)
SIMT_ALSO_IN_FLOAT(sinpi) SIMT_ALSO_IN_FLOAT(cospi)

SIMT_UNSEEN double norm3d(double a, double b, double c) { return hypot(hypot(a, b), c); }
SIMT_UNSEEN double norm4d(double a, double b, double c, double d) { return hypot(hypot(a, b), hypot(c, d)); }
SIMT_UNSEEN double rhypot(double a, double b) { return 1.0 / hypot(a, b); }
SIMT_UNSEEN double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
SIMT_UNSEEN double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
SIMT_UNSEEN float norm3df(float a, float b, float c) { return (float)norm3d(a, b, c); }
SIMT_UNSEEN float norm4df(float a, float b, float c, float d) { return (float)norm4d(a, b, c, d); }
SIMT_UNSEEN float rhypotf(float a, float b) { return (float)rhypot((double)a, (double)b); }
SIMT_UNSEEN float rhypot(float a, float b) { return rhypotf(a, b); }
SIMT_UNSEEN float rnorm3df(float a, float b, float c) { return (float)rnorm3d(a, b, c); }
SIMT_UNSEEN float rnorm4df(float a, float b, float c, float d) { return (float)rnorm4d(a, b, c, d); }

#define SIMT_SINE_AND_COSINE(NAME, REAL, SINE, COSINE) \
    inline void NAME(REAL x, REAL* sine, REAL* cosine) { *sine = SINE(x); *cosine = COSINE(x); }
SIMT_SINE_AND_COSINE(sincos, double, sin, cos)
SIMT_SINE_AND_COSINE(sincos, float, sinf, cosf)
SIMT_SINE_AND_COSINE(sincosf, float, sinf, cosf)
SIMT_SINE_AND_COSINE(sincospi, double, sinpi, cospi)
SIMT_SINE_AND_COSINE(sincospi, float, sinpif, cospif)
SIMT_SINE_AND_COSINE(sincospif, float, sinpif, cospif)

// ---- classification
SIMT_UNSEEN bool isnan(float x) { return __builtin_isnan(x); }
SIMT_UNSEEN bool isnan(double x) { return __builtin_isnan(x); }
SIMT_UNSEEN bool isinf(float x) { return fabsf(x) == __builtin_inff(); }
SIMT_UNSEEN bool isinf(double x) { return fabs(x) == __builtin_inf(); }
SIMT_UNSEEN bool isfinite(float x) { return fabsf(x) < __builtin_inff(); }
SIMT_UNSEEN bool isfinite(double x) { return fabs(x) < __builtin_inf(); }

// ---- the bits of a number as another type
#define SIMT_REINTERPRET(NAME, FROM, TO) \
    SIMT_UNSEEN TO NAME(FROM from) { TO to; __builtin_memcpy(&to, &from, sizeof to); return to; }
SIMT_REINTERPRET(__float_as_int, float, int)
SIMT_REINTERPRET(__float_as_uint, float, unsigned int)
SIMT_REINTERPRET(__int_as_float, int, float)
SIMT_REINTERPRET(__uint_as_float, unsigned int, float)
SIMT_REINTERPRET(__double_as_longlong, double, long long)
SIMT_REINTERPRET(__longlong_as_double, long long, double)
SIMT_UNSEEN int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
SIMT_UNSEEN int __double2loint(double x) { return (int)__double_as_longlong(x); }
SIMT_UNSEEN double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned int)high << 32 | (unsigned int)low));
}
SIMT_UNSEEN bool signbit(float x) { return __float_as_int(x) < 0; }
SIMT_UNSEEN bool signbit(double x) { return __double_as_longlong(x) < 0; }

// ---- min, max, abs: CUDA's overloads; of a signed and an unsigned number the result is unsigned, as in C
#define SIMT_MIN_MAX(RESULT, FIRST, SECOND)                                                             \
    SIMT_UNSEEN RESULT min(FIRST a, SECOND b) { return (RESULT)a < (RESULT)b ? (RESULT)a : (RESULT)b; } \
    SIMT_UNSEEN RESULT max(FIRST a, SECOND b) { return (RESULT)a > (RESULT)b ? (RESULT)a : (RESULT)b; }
#define SIMT_MIN_MAX_MIXED(INTEGER)                                                                   \
    SIMT_MIN_MAX(INTEGER, INTEGER, INTEGER)                                                           \
    SIMT_MIN_MAX(unsigned INTEGER, unsigned INTEGER, unsigned INTEGER)                                \
    SIMT_MIN_MAX(unsigned INTEGER, INTEGER, unsigned INTEGER)                                         \
    SIMT_MIN_MAX(unsigned INTEGER, unsigned INTEGER, INTEGER)
SIMT_MIN_MAX_MIXED(int)
SIMT_MIN_MAX_MIXED(long)
SIMT_MIN_MAX_MIXED(long long)
// Of a number and a NaN these give the number.
SIMT_UNSEEN float min(float a, float b) { return fminf(a, b); }
SIMT_UNSEEN float max(float a, float b) { return fmaxf(a, b); }
SIMT_UNSEEN double min(double a, double b) { return fmin(a, b); }
SIMT_UNSEEN double max(double a, double b) { return fmax(a, b); }
SIMT_UNSEEN double min(float a, double b) { return fmin((double)a, b); }
SIMT_UNSEEN double max(float a, double b) { return fmax((double)a, b); }
SIMT_UNSEEN double min(double a, float b) { return fmin(a, (double)b); }
SIMT_UNSEEN double max(double a, float b) { return fmax(a, (double)b); }
SIMT_UNSEEN unsigned int umin(unsigned int a, unsigned int b) { return min(a, b); }
SIMT_UNSEEN unsigned int umax(unsigned int a, unsigned int b) { return max(a, b); }
SIMT_UNSEEN long long llmin(long long a, long long b) { return min(a, b); }
SIMT_UNSEEN long long llmax(long long a, long long b) { return max(a, b); }
SIMT_UNSEEN unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
SIMT_UNSEEN unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
extern "C" int abs(int);
extern "C" long labs(long);
extern "C" long long llabs(long long);
SIMT_UNSEEN long abs(long x) { return labs(x); }
SIMT_UNSEEN long long abs(long long x) { return llabs(x); }
SIMT_UNSEEN float abs(float x) { return fabsf(x); }
SIMT_UNSEEN double abs(double x) { return fabs(x); }

// ---- fast intrinsics. On a GPU these are one or two hardware instructions with the errors stated; here they are the
// exact functions rounded to float, so the last bits differ, and a kernel that is only right with the exact ones looks
// right here.
SIMT_UNSEEN float __expf(float x) { return expf(x); }               // GPU: 2 + floor(|1.173 x|) ulp
SIMT_UNSEEN float __exp10f(float x) { return exp10f(x); }           // GPU: 2 + floor(|2.97 x|) ulp
SIMT_UNSEEN float __logf(float x) { return logf(x); }               // GPU: 2^-21.41 absolute in [0.5, 2], else 3 ulp
SIMT_UNSEEN float __log2f(float x) { return log2f(x); }             // GPU: 2^-22 absolute in [0.5, 2], else 2 ulp
SIMT_UNSEEN float __log10f(float x) { return log10f(x); }           // GPU: 2^-24 absolute in [0.5, 2], else 3 ulp
SIMT_UNSEEN float __powf(float x, float y) { return powf(x, y); }   // GPU: exp2f(y * __log2f(x)); negative x gives NaN
SIMT_UNSEEN float __sinf(float x) { return sinf(x); }               // GPU: 2^-21.41 absolute in [-pi, pi]
SIMT_UNSEEN float __cosf(float x) { return cosf(x); }               // GPU: 2^-21.19 absolute in [-pi, pi]
SIMT_UNSEEN float __tanf(float x) { return tanf(x); }               // GPU: __sinf(x) / __cosf(x)
SIMT_UNSEEN float __tanhf(float x) { return tanhf(x); }             // GPU: 2^-11 relative
SIMT_SINE_AND_COSINE(__sincosf, float, sinf, cosf)                  // GPU: as __sinf and __cosf
// GPU: 2 ulp. For 2^126 < |y| the result is 0 (NaN for infinite x) on the GPU, and here too.
SIMT_UNSEEN float __fdividef(float x, float y) {
    return fabsf(y) > 0x1p126f && isfinite(y) ? x * 0.0f : x / y;
}
SIMT_UNSEEN float fdividef(float x, float y) { return x / y; }
SIMT_UNSEEN double fdivide(double x, double y) { return x / y; }
SIMT_UNSEEN float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }      // NaN gives 0

// ---- arithmetic with the rounding in the name (rn to nearest even, rz to zero, ru up, rd down), never fused into an
// fma
enum simt_rounding { simt_rn, simt_rz, simt_ru, simt_rd };

// Keeps the compiler from fusing what made x with what will use it.
#if defined(__x86_64__)
#define SIMT_UNFUSED(x) asm("" : "+x"(x))
#elif defined(__aarch64__)
#define SIMT_UNFUSED(x) asm("" : "+w"(x))
#else
#define SIMT_UNFUSED(x) asm("" : "+m"(x))
#endif

// nearest: the exact result rounded to nearest; rest: exact minus nearest, only its sign counts. Infinity minus one
// step is the largest finite number, as the directed modes want on overflow.
SIMT_UNSEEN float simt_direct(float nearest, double rest, simt_rounding mode) {
    const bool up = rest > 0.0 && (mode == simt_ru || (mode == simt_rz && nearest < 0.0f));
    const bool down = rest < 0.0 && (mode == simt_rd || (mode == simt_rz && nearest > 0.0f));
    return up ? nextafterf(nearest, __builtin_inff()) : down ? nextafterf(nearest, -__builtin_inff()) : nearest;
}
SIMT_UNSEEN float simt_fma(float x, float y, float z, simt_rounding mode) {
    const float nearest = fmaf(x, y, z);
    const double product = (double)x * y, sum = product + z;            // the product of two floats is exact in double
    const double part = sum - product;                                  // Knuth's two-sum: sum + error is exact
    const double error = (product - (sum - part)) + (z - part);
    return simt_direct(nearest, (sum - nearest) + error, mode);
}
SIMT_UNSEEN float simt_add(float x, float y, simt_rounding mode) { return simt_fma(x, 1.0f, y, mode); }
SIMT_UNSEEN float simt_subtract(float x, float y, simt_rounding mode) { return simt_fma(x, 1.0f, -y, mode); }
SIMT_UNSEEN float simt_multiply(float x, float y, simt_rounding mode) {
    float nearest = x * y;
    SIMT_UNFUSED(nearest);
    return simt_direct(nearest, (double)x * y - nearest, mode);
}
SIMT_UNSEEN float simt_divide(float x, float y, simt_rounding mode) {
    const float nearest = x / y;
    const double rest = x - (double)nearest * y;
    return simt_direct(nearest, y < 0.0f ? -rest : rest, mode);
}
SIMT_UNSEEN float simt_square_root(float x, simt_rounding mode) {
    const float nearest = sqrtf(x);
    return simt_direct(nearest, x - (double)nearest * nearest, mode);
}
#define SIMT_ROUNDED(SUFFIX)                                                                           \
    SIMT_UNSEEN float __fadd_##SUFFIX(float x, float y) { return simt_add(x, y, simt_##SUFFIX); }      \
    SIMT_UNSEEN float __fsub_##SUFFIX(float x, float y) { return simt_subtract(x, y, simt_##SUFFIX); } \
    SIMT_UNSEEN float __fmul_##SUFFIX(float x, float y) { return simt_multiply(x, y, simt_##SUFFIX); } \
    SIMT_UNSEEN float __fdiv_##SUFFIX(float x, float y) { return simt_divide(x, y, simt_##SUFFIX); }   \
    SIMT_UNSEEN float __frcp_##SUFFIX(float x) { return simt_divide(1.0f, x, simt_##SUFFIX); }         \
    SIMT_UNSEEN float __fsqrt_##SUFFIX(float x) { return simt_square_root(x, simt_##SUFFIX); }         \
    SIMT_UNSEEN float __fmaf_##SUFFIX(float x, float y, float z) { return simt_fma(x, y, z, simt_##SUFFIX); }
SIMT_ROUNDED(rn) SIMT_ROUNDED(rz) SIMT_ROUNDED(ru) SIMT_ROUNDED(rd)
SIMT_UNSEEN float __frsqrt_rn(float x) { return rsqrtf(x); }

// In double only rounding to nearest.
SIMT_UNSEEN double __dadd_rn(double x, double y) { double sum = x + y; SIMT_UNFUSED(sum); return sum; }
SIMT_UNSEEN double __dsub_rn(double x, double y) { double rest = x - y; SIMT_UNFUSED(rest); return rest; }
SIMT_UNSEEN double __dmul_rn(double x, double y) { double product = x * y; SIMT_UNFUSED(product); return product; }
SIMT_UNSEEN double __ddiv_rn(double x, double y) { return x / y; }
SIMT_UNSEEN double __drcp_rn(double x) { return 1.0 / x; }
SIMT_UNSEEN double __dsqrt_rn(double x) { return sqrt(x); }
SIMT_UNSEEN double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

// ---- conversions between numbers. To an integer: out of range gives the nearest end of the range; NaN gives 0, or the
// top bit alone when either side has 64 bits, as the PTX manual says of cvt.
SIMT_UNSEEN double simt_round(double x, simt_rounding mode) {
    return mode == simt_rn ? rint(x) : mode == simt_rz ? trunc(x) : mode == simt_ru ? ceil(x) : floor(x);
}
template <class Integer>
SIMT_UNSEEN Integer simt_to_integer(double x, simt_rounding mode, bool wide) {
    constexpr bool is_signed = (Integer)-1 < (Integer)0;
    constexpr Integer top = (Integer)(1ull << (8 * sizeof(Integer) - 1));       // the smallest signed number
    constexpr Integer largest = is_signed ? (Integer)~top : (Integer)-1;
    constexpr Integer smallest = is_signed ? top : (Integer)0;
    constexpr double half_range = 2.0 * (double)(1ull << (8 * sizeof(Integer) - 2));
    if (isnan(x)) return wide || sizeof(Integer) == 8 ? top : (Integer)0;
    const double whole = simt_round(x, mode);
    if (whole >= (is_signed ? half_range : 2.0 * half_range)) return largest;
    return whole <= (is_signed ? -half_range : 0.0) ? smallest : (Integer)whole;
}
SIMT_UNSEEN float simt_to_float(long long x, simt_rounding mode) {
    const float nearest = (float)x;
    const double high = (double)(x >> 32) * 4294967296.0, low = (double)(x & 0xffffffffll);
    return simt_direct(nearest, (high - nearest) + low, mode);
}
SIMT_UNSEEN float simt_to_float(unsigned long long x, simt_rounding mode) {
    const float nearest = (float)x;
    const double high = (double)(x >> 32) * 4294967296.0, low = (double)(x & 0xffffffffull);
    return simt_direct(nearest, (high - nearest) + low, mode);
}
SIMT_UNSEEN float simt_to_float(double x, simt_rounding mode) {
    return simt_direct((float)x, x - (double)(float)x, mode);
}
#define SIMT_TO_INTEGER(NAME, INTEGER, SUFFIX)                                                        \
    SIMT_UNSEEN INTEGER __float2##NAME##_##SUFFIX(float x) {                                          \
        return simt_to_integer<INTEGER>(x, simt_##SUFFIX, false);                                     \
    }                                                                                                 \
    SIMT_UNSEEN INTEGER __double2##NAME##_##SUFFIX(double x) {                                        \
        return simt_to_integer<INTEGER>(x, simt_##SUFFIX, true);                                      \
    }
#define SIMT_TO_FLOAT(NAME, NUMBER, EXACT, SUFFIX) \
    SIMT_UNSEEN float __##NAME##2float_##SUFFIX(NUMBER x) { return simt_to_float((EXACT)x, simt_##SUFFIX); }
#define SIMT_CONVERSIONS(SUFFIX)                                                                      \
    SIMT_TO_INTEGER(int, int, SUFFIX) SIMT_TO_INTEGER(uint, unsigned int, SUFFIX)                     \
    SIMT_TO_INTEGER(ll, long long, SUFFIX) SIMT_TO_INTEGER(ull, unsigned long long, SUFFIX)           \
    SIMT_TO_FLOAT(int, int, double, SUFFIX) SIMT_TO_FLOAT(uint, unsigned int, double, SUFFIX)         \
    SIMT_TO_FLOAT(ll, long long, long long, SUFFIX)                                                   \
    SIMT_TO_FLOAT(ull, unsigned long long, unsigned long long, SUFFIX)                                \
    SIMT_TO_FLOAT(double, double, double, SUFFIX)
SIMT_CONVERSIONS(rn) SIMT_CONVERSIONS(rz) SIMT_CONVERSIONS(ru) SIMT_CONVERSIONS(rd)
SIMT_UNSEEN double __int2double_rn(int x) { return x; }
SIMT_UNSEEN double __uint2double_rn(unsigned int x) { return x; }
SIMT_UNSEEN double __ll2double_rn(long long x) { return (double)x; }
SIMT_UNSEEN double __ull2double_rn(unsigned long long x) { return (double)x; }

// ---- bits of integers (written out: the compilers' own popcount calls a helper library that is not linked)
SIMT_UNSEEN int __popcll(unsigned long long x) {
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}
SIMT_UNSEEN int __popc(unsigned int x) { return __popcll(x); }
SIMT_UNSEEN int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
SIMT_UNSEEN int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
SIMT_UNSEEN int __ffs(int x) { return x ? __builtin_ctz((unsigned int)x) + 1 : 0; }
SIMT_UNSEEN int __ffsll(long long x) { return x ? __builtin_ctzll((unsigned long long)x) + 1 : 0; }
SIMT_UNSEEN unsigned long long __brevll(unsigned long long x) {
    x = (x & 0x5555555555555555ull) << 1 | (x >> 1 & 0x5555555555555555ull);
    x = (x & 0x3333333333333333ull) << 2 | (x >> 2 & 0x3333333333333333ull);
    x = (x & 0x0f0f0f0f0f0f0f0full) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0full);
    return __builtin_bswap64(x);
}
SIMT_UNSEEN unsigned int __brev(unsigned int x) { return (unsigned int)(__brevll(x) >> 32); }
// Byte i of the result is byte (selector >> 4 i & 7) of the eight bytes of high:low.
SIMT_UNSEEN unsigned int __byte_perm(unsigned int low, unsigned int high, unsigned int selector) {
    const unsigned long long both = (unsigned long long)high << 32 | low;
    unsigned int result = 0;
    for (int i = 0; i < 4; i++) result |= (unsigned int)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}
SIMT_UNSEEN unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
    return (unsigned int)(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
SIMT_UNSEEN unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
    return (unsigned int)(((unsigned long long)high << 32 | low) >> (shift & 31));
}
SIMT_UNSEEN unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int shift) {
    return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
SIMT_UNSEEN unsigned int __funnelshift_rc(unsigned int low, unsigned int high, unsigned int shift) {
    return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}

// ---- integer arithmetic
SIMT_UNSEEN int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
SIMT_UNSEEN unsigned int __umulhi(unsigned int x, unsigned int y) {
    return (unsigned int)((unsigned long long)x * y >> 32);
}
SIMT_UNSEEN long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
SIMT_UNSEEN unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
SIMT_UNSEEN int __mul24(int x, int y) {
    const long long low_x = (int)((unsigned int)x << 8) >> 8, low_y = (int)((unsigned int)y << 8) >> 8;
    return (int)(low_x * low_y);
}
SIMT_UNSEEN unsigned int __umul24(unsigned int x, unsigned int y) { return (x & 0xffffffu) * (y & 0xffffffu); }
SIMT_UNSEEN unsigned int __sad(int x, int y, unsigned int z) {
    return z + (x > y ? (unsigned int)x - (unsigned int)y : (unsigned int)y - (unsigned int)x);
}
SIMT_UNSEEN unsigned int __usad(unsigned int x, unsigned int y, unsigned int z) { return z + (x > y ? x - y : y - x); }
SIMT_UNSEEN int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
SIMT_UNSEEN int __rhadd(int x, int y) { return (int)(((long long)x + y + 1) >> 1); }
SIMT_UNSEEN unsigned int __uhadd(unsigned int x, unsigned int y) {
    return (unsigned int)(((unsigned long long)x + y) >> 1);
}
SIMT_UNSEEN unsigned int __urhadd(unsigned int x, unsigned int y) {
    return (unsigned int)(((unsigned long long)x + y + 1) >> 1);
}
// c plus the sum of the products of the four bytes
SIMT_UNSEEN int __dp4a(int a, int b, int c) {
    unsigned int sum = (unsigned int)c;                                 // wraps, as the GPU's does
    for (int i = 0; i < 32; i += 8) sum += (unsigned int)((signed char)(a >> i) * (signed char)(b >> i));
    return (int)sum;
}
SIMT_UNSEEN unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
