// simt_half.h -- the two 16-bit floats, written once: SIMT_SMALL_FLOAT(half, __half, __half2) in cuda_fp16.h makes
// CUDA's half, SIMT_SMALL_FLOAT(bfloat16, __nv_bfloat16, __nv_bfloat162) in cuda_bf16.h its bfloat16.
//
// A number is two bytes and every conversion is worked out on bits, because compilers disagree about 16-bit floats and
// call helper libraries for them. Conversions and + - * / sqrt fma are rounded once, to nearest even, as on a GPU:
// float holds sums, products and quotients of such numbers well enough that rounding to float first changes nothing
// (24 bits are at least 2 * 11 + 2), and fma goes through double with the lost part kept as a sticky last bit.
// Exponentials, logarithms, sines: the exact function rounded; a GPU's may be off by 1 or 2 units in the last place.
// Functions take their operands by value, so that a read of memory is the copy constructor's: one access of 2 or 4
// bytes, in the line that made the copy.
#pragma once

#include "simt.h"

// ---- bits
// Takes quotient, the bits above the cut, to the neighbour that the mode asks for; rest is what was cut off.
SIMT_UNSEEN unsigned int simt_round_bits(unsigned int quotient, unsigned int rest, unsigned int halfway, bool negative,
                                         simt_rounding mode) {
    const bool nearest = rest > halfway || (rest == halfway && (quotient & 1));
    const bool away = rest != 0 && mode == (negative ? simt_rd : simt_ru);
    return quotient + ((mode == simt_rn && nearest) || away);
}
SIMT_UNSEEN unsigned short simt_float_to_bfloat16(float x, simt_rounding mode) {
    const unsigned int bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;                         // the GPU's one NaN
    const bool negative = bits >> 31;
    const unsigned int rounded = simt_round_bits(magnitude >> 16, magnitude & 0xffffu, 0x8000u, negative, mode);
    return (unsigned short)(negative << 15 | rounded);
}
SIMT_UNSEEN unsigned short simt_float_to_half(float x, simt_rounding mode) {
    const unsigned int bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    const bool negative = bits >> 31;
    unsigned int result;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude == 0x7f800000u) {
        result = 0x7c00u;
    } else if (magnitude >= 0x47800000u) {                              // 65536 and up: infinity, or the largest number
        result = mode == simt_rn || mode == (negative ? simt_rd : simt_ru) ? 0x7c00u : 0x7bffu;
    } else if (magnitude >= 0x38800000u) {                              // normal: 2^-14 and up
        const unsigned int rebiased = magnitude - 0x38000000u;          // exponent bias 127 to 15
        result = simt_round_bits(rebiased >> 13, rebiased & 0x1fffu, 0x1000u, negative, mode);
    } else {                                                            // a multiple of 2^-24
        const unsigned int exponent = magnitude >> 23;
        const unsigned int significand = exponent ? (magnitude & 0x7fffffu) | 0x800000u : magnitude;
        const unsigned int shift = 126 - (exponent ? exponent : 1);     // at least 14
        if (shift < 32) {
            const unsigned int rest = significand & ((1u << shift) - 1);
            result = simt_round_bits(significand >> shift, rest, 1u << (shift - 1), negative, mode);
        } else {
            result = simt_round_bits(0, significand != 0, 2, negative, mode);
        }
    }
    return (unsigned short)(negative << 15 | result);
}
SIMT_UNSEEN float simt_bfloat16_to_float(unsigned short bits) { return __uint_as_float((unsigned int)bits << 16); }
SIMT_UNSEEN float simt_half_to_float(unsigned short bits) {
    const unsigned int sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ffu;
    if (exponent == 31) return __uint_as_float(fraction ? 0x7fffffffu : sign | 0x7f800000u);
    if (exponent == 0) return __uint_as_float(sign | __float_as_uint((float)fraction * 0x1p-24f));
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}
// Towards zero, with the last bit set if anything was lost ("round to odd"): a second rounding, to fewer bits, is then
// right.
SIMT_UNSEEN float simt_to_odd_float(double x) {
    const float nearest = simt_to_float(x, simt_rz);
    return x == nearest || isnan(x) ? nearest : __uint_as_float(__float_as_uint(nearest) | 1);
}
SIMT_UNSEEN float simt_to_odd_float(unsigned long long magnitude) {
    const unsigned long long lost = magnitude >> 53 ? magnitude & 4095 : 0;         // more than double can hold
    return simt_to_odd_float((double)((magnitude - lost) | (unsigned long long)(lost != 0) << 12));
}
SIMT_UNSEEN float simt_to_odd_float(long long x) {
    return x < 0 ? -simt_to_odd_float(0ull - (unsigned long long)x) : simt_to_odd_float((unsigned long long)x);
}
SIMT_UNSEEN float simt_fma_to_odd(float x, float y, float z) {
    const double product = (double)x * y, sum = product + z, part = sum - product;  // the product is exact
    const double error = (product - (sum - part)) + (z - part);                     // Knuth's two-sum
    long long bits = __double_as_longlong(sum);
    if (error != 0.0 && isfinite(sum) && !(bits & 1)) bits += (error > 0.0) == (sum > 0.0) ? 1 : -1;
    return simt_to_odd_float(__longlong_as_double(bits));
}

// ---- the types
// Checked: a pair is copied by one 4-byte access. Native: in the way that is fastest.
#if SIMT_CHECKED
typedef unsigned int __attribute__((may_alias)) simt_pair_word;
#define SIMT_PAIR_COPY(PAIR)                                                                          \
    PAIR(const PAIR& from) { *(simt_pair_word*)this = *(const simt_pair_word*)&from; }                \
    PAIR& operator=(const PAIR& from) {                                                               \
        *(simt_pair_word*)this = *(const simt_pair_word*)&from;                                       \
        return *this;                                                                                 \
    }
#else
#define SIMT_PAIR_COPY(PAIR)
#endif
#define SIMT_SMALL_FLOAT_TYPES(NAME, SCALAR, PAIR)                                                               \
    struct SCALAR##_raw { unsigned short x; };                                                                   \
    struct PAIR##_raw { unsigned short x, y; };                                                                  \
    struct SCALAR {                                                                                              \
        unsigned short simt_bits;                                                                                \
        SCALAR() = default;                                                                                      \
        SCALAR(const SCALAR& from) : simt_bits(from.simt_bits) {}                                                \
        SCALAR& operator=(const SCALAR& from) { simt_bits = from.simt_bits; return *this; }                      \
        SIMT_UNSEEN static SCALAR simt_make(unsigned short bits) { return SCALAR##_raw{bits}; }                  \
        typedef SCALAR##_raw simt_small_float;                                                                   \
        template <class Other, class = typename Other::simt_small_float>                                         \
        explicit SCALAR(const Other& x) : SCALAR((float)x) {}   /* half from bfloat16, and back */               \
        SIMT_UNSEEN SCALAR(SCALAR##_raw raw) : simt_bits(raw.x) {}                                               \
        SIMT_UNSEEN SCALAR(float x) : simt_bits(simt_float_to_##NAME(x, simt_rn)) {}                             \
        SIMT_UNSEEN SCALAR(double x) : SCALAR(simt_to_odd_float(x)) {}                                           \
        SIMT_UNSEEN SCALAR(long long x) : SCALAR(simt_to_odd_float(x)) {}                                        \
        SIMT_UNSEEN SCALAR(unsigned long long x) : SCALAR(simt_to_odd_float(x)) {}                               \
        SIMT_UNSEEN SCALAR(long x) : SCALAR((long long)x) {}                                                     \
        SIMT_UNSEEN SCALAR(unsigned long x) : SCALAR((unsigned long long)x) {}                                   \
        SIMT_UNSEEN SCALAR(int x) : SCALAR((double)x) {}                                                         \
        SIMT_UNSEEN SCALAR(unsigned int x) : SCALAR((double)x) {}                                                \
        SIMT_UNSEEN SCALAR(short x) : SCALAR((float)x) {}                                                        \
        SIMT_UNSEEN SCALAR(unsigned short x) : SCALAR((float)x) {}                                               \
        operator SCALAR##_raw() const { return SCALAR##_raw{simt_bits}; }                                        \
        operator float() const { return simt_##NAME##_to_float(simt_bits); }                                     \
        operator bool() const { return (simt_bits & 0x7fff) != 0; }                                              \
        SIMT_SMALL_FLOAT_CASTS                                                                                   \
    };                                                                                                           \
    struct alignas(4) PAIR {                                                                                     \
        SCALAR x, y;                                                                                             \
        PAIR() = default;                                                                                        \
        SIMT_UNSEEN PAIR(SCALAR low, SCALAR high) { x.simt_bits = low.simt_bits; y.simt_bits = high.simt_bits; } \
        SIMT_UNSEEN PAIR(PAIR##_raw raw) { x.simt_bits = raw.x; y.simt_bits = raw.y; }                           \
        SIMT_PAIR_COPY(PAIR)                                                                                     \
        operator PAIR##_raw() const { return PAIR##_raw{x.simt_bits, y.simt_bits}; }                             \
    };
#define SIMT_SMALL_FLOAT_CAST(INTEGER) \
    operator INTEGER() const { return simt_to_integer<INTEGER>((float)*this, simt_rz, false); }
#define SIMT_SMALL_FLOAT_CASTS                                                                          \
    SIMT_SMALL_FLOAT_CAST(char) SIMT_SMALL_FLOAT_CAST(signed char) SIMT_SMALL_FLOAT_CAST(unsigned char) \
    SIMT_SMALL_FLOAT_CAST(short) SIMT_SMALL_FLOAT_CAST(unsigned short)                                  \
    SIMT_SMALL_FLOAT_CAST(int) SIMT_SMALL_FLOAT_CAST(unsigned int)                                      \
    SIMT_SMALL_FLOAT_CAST(long) SIMT_SMALL_FLOAT_CAST(unsigned long)                                    \
    SIMT_SMALL_FLOAT_CAST(long long) SIMT_SMALL_FLOAT_CAST(unsigned long long)

// ---- conversions; the names carry the type's
#define SIMT_SMALL_FLOAT_CONVERSIONS(NAME, SCALAR, PAIR)                                                 \
    SIMT_UNSEEN SCALAR __float2##NAME(float x) { return SCALAR(x); }                                     \
    SIMT_UNSEEN SCALAR __double2##NAME(double x) { return SCALAR(x); }                                   \
    SIMT_UNSEEN float __##NAME##2float(SCALAR x) { return (float)x; }                                    \
    SIMT_UNSEEN short __##NAME##_as_short(SCALAR x) { return (short)x.simt_bits; }                       \
    SIMT_UNSEEN unsigned short __##NAME##_as_ushort(SCALAR x) { return x.simt_bits; }                    \
    SIMT_UNSEEN SCALAR __short_as_##NAME(short bits) { return SCALAR::simt_make((unsigned short)bits); } \
    SIMT_UNSEEN SCALAR __ushort_as_##NAME(unsigned short bits) { return SCALAR::simt_make(bits); }       \
    SIMT_UNSEEN PAIR make_##NAME##2(SCALAR x, SCALAR y) { return PAIR(x, y); }                           \
    SIMT_UNSEEN PAIR __halves2##NAME##2(SCALAR low, SCALAR high) { return PAIR(low, high); }             \
    SIMT_UNSEEN PAIR __##NAME##2##NAME##2(SCALAR x) { return PAIR(x, x); }                               \
    SIMT_UNSEEN PAIR __float2##NAME##2_rn(float x) { return PAIR(SCALAR(x), SCALAR(x)); }                \
    SIMT_UNSEEN PAIR __floats2##NAME##2_rn(float x, float y) { return PAIR(SCALAR(x), SCALAR(y)); }      \
    SIMT_UNSEEN PAIR __float22##NAME##2_rn(float2 v) { return PAIR(SCALAR(v.x), SCALAR(v.y)); }          \
    SIMT_UNSEEN float2 __##NAME##22float2(PAIR v) { return float2((float)v.x, (float)v.y); }             \
    SIMT_UNSEEN float __low2float(PAIR v) { return (float)v.x; }                                         \
    SIMT_UNSEEN float __high2float(PAIR v) { return (float)v.y; }                                        \
    SIMT_UNSEEN SCALAR __low2##NAME(PAIR v) { return v.x; }                                              \
    SIMT_UNSEEN SCALAR __high2##NAME(PAIR v) { return v.y; }                                             \
    SIMT_UNSEEN PAIR __low2##NAME##2(PAIR v) { return PAIR(v.x, v.x); }                                  \
    SIMT_UNSEEN PAIR __high2##NAME##2(PAIR v) { return PAIR(v.y, v.y); }                                 \
    SIMT_UNSEEN PAIR __lows2##NAME##2(PAIR v, PAIR w) { return PAIR(v.x, w.x); }                         \
    SIMT_UNSEEN PAIR __highs2##NAME##2(PAIR v, PAIR w) { return PAIR(v.y, w.y); }                        \
    SIMT_UNSEEN PAIR __lowhigh2highlow(PAIR v) { return PAIR(v.y, v.x); }                                \
    SIMT_UNSEEN signed char __##NAME##2char_rz(SCALAR x) { return (signed char)x; }                      \
    SIMT_UNSEEN unsigned char __##NAME##2uchar_rz(SCALAR x) { return (unsigned char)x; }                 \
    SIMT_SMALL_FLOAT_ROUNDINGS(NAME, SCALAR, rn) SIMT_SMALL_FLOAT_ROUNDINGS(NAME, SCALAR, rz)            \
    SIMT_SMALL_FLOAT_ROUNDINGS(NAME, SCALAR, ru) SIMT_SMALL_FLOAT_ROUNDINGS(NAME, SCALAR, rd)
#define SIMT_SMALL_FLOAT_ROUNDINGS(NAME, SCALAR, SUFFIX)                                              \
    SIMT_UNSEEN SCALAR __float2##NAME##_##SUFFIX(float x) {                                           \
        return SCALAR::simt_make(simt_float_to_##NAME(x, simt_##SUFFIX));                             \
    }                                                                                                 \
    SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, short, short, long long)                           \
    SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, ushort, unsigned short, unsigned long long)        \
    SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, int, int, long long)                               \
    SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, uint, unsigned int, unsigned long long)            \
    SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, ll, long long, long long)                          \
    SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, ull, unsigned long long, unsigned long long)
#define SIMT_SMALL_FLOAT_INTEGER(NAME, SCALAR, SUFFIX, SHORT_NAME, INTEGER, WIDE)                     \
    SIMT_UNSEEN INTEGER __##NAME##2##SHORT_NAME##_##SUFFIX(SCALAR x) {                                \
        return simt_to_integer<INTEGER>((float)x, simt_##SUFFIX, false);                              \
    }                                                                                                 \
    SIMT_UNSEEN SCALAR __##SHORT_NAME##2##NAME##_##SUFFIX(INTEGER x) {                                \
        return SCALAR::simt_make(simt_float_to_##NAME(simt_to_odd_float((WIDE)x), simt_##SUFFIX));    \
    }

// ---- arithmetic: names that serve both types, each with its form for pairs
#define SIMT_SMALL_FLOAT_EACH(SCALAR, PAIR, NAME, NAME2, VALUE)                                       \
    SIMT_UNSEEN SCALAR NAME(SCALAR a) { return VALUE; }                                               \
    SIMT_UNSEEN PAIR NAME2(PAIR v) { return PAIR(NAME(v.x), NAME(v.y)); }
#define SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, NAME, NAME2, VALUE)                                     \
    SIMT_UNSEEN SCALAR NAME(SCALAR a, SCALAR b) { return VALUE; }                                     \
    SIMT_UNSEEN PAIR NAME2(PAIR v, PAIR w) { return PAIR(NAME(v.x, w.x), NAME(v.y, w.y)); }
#define SIMT_SMALL_FLOAT_EACH_3(SCALAR, PAIR, NAME, NAME2, VALUE)                                     \
    SIMT_UNSEEN SCALAR NAME(SCALAR a, SCALAR b, SCALAR c) { return VALUE; }                           \
    SIMT_UNSEEN PAIR NAME2(PAIR u, PAIR v, PAIR w) { return PAIR(NAME(u.x, v.x, w.x), NAME(u.y, v.y, w.y)); }
#define SIMT_SMALL_FLOAT_ARITHMETIC(SCALAR, PAIR)                                                                 \
    SIMT_UNSEEN SCALAR simt_saturate(SCALAR a) { return SCALAR(__saturatef((float)a)); }                          \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hadd, __hadd2, SCALAR((float)a + (float)b))                           \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hsub, __hsub2, SCALAR((float)a - (float)b))                           \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmul, __hmul2, SCALAR((float)a * (float)b))                           \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hdiv, __h2div, SCALAR((float)a / (float)b))                           \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hadd_rn, __hadd2_rn, __hadd(a, b))                                    \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hsub_rn, __hsub2_rn, __hsub(a, b))                                    \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmul_rn, __hmul2_rn, __hmul(a, b))                                    \
    SIMT_SMALL_FLOAT_EACH_3(SCALAR, PAIR, __hfma, __hfma2, SCALAR(simt_fma_to_odd((float)a, (float)b, (float)c))) \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hadd_sat, __hadd2_sat, simt_saturate(__hadd(a, b)))                   \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hsub_sat, __hsub2_sat, simt_saturate(__hsub(a, b)))                   \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmul_sat, __hmul2_sat, simt_saturate(__hmul(a, b)))                   \
    SIMT_SMALL_FLOAT_EACH_3(SCALAR, PAIR, __hfma_sat, __hfma2_sat, simt_saturate(__hfma(a, b, c)))                \
    SIMT_SMALL_FLOAT_EACH_3(SCALAR, PAIR, __hfma_relu, __hfma2_relu, __hmax_nan(__hfma(a, b, c), SCALAR(0.0f)))   \
    SIMT_SMALL_FLOAT_EACH(SCALAR, PAIR, __hneg, __hneg2, SCALAR::simt_make(a.simt_bits ^ 0x8000))                 \
    SIMT_SMALL_FLOAT_EACH(SCALAR, PAIR, __habs, __habs2, SCALAR::simt_make(a.simt_bits & 0x7fff))                 \
    SIMT_UNSEEN SCALAR operator+(SCALAR a, SCALAR b) { return __hadd(a, b); }                                     \
    SIMT_UNSEEN SCALAR operator-(SCALAR a, SCALAR b) { return __hsub(a, b); }                                     \
    SIMT_UNSEEN SCALAR operator*(SCALAR a, SCALAR b) { return __hmul(a, b); }                                     \
    SIMT_UNSEEN SCALAR operator/(SCALAR a, SCALAR b) { return __hdiv(a, b); }                                     \
    SIMT_UNSEEN SCALAR operator-(SCALAR a) { return __hneg(a); }                                                  \
    SIMT_UNSEEN SCALAR operator+(SCALAR a) { return a; }                                                          \
    SIMT_UNSEEN PAIR operator+(PAIR a, PAIR b) { return __hadd2(a, b); }                                          \
    SIMT_UNSEEN PAIR operator-(PAIR a, PAIR b) { return __hsub2(a, b); }                                          \
    SIMT_UNSEEN PAIR operator*(PAIR a, PAIR b) { return __hmul2(a, b); }                                          \
    SIMT_UNSEEN PAIR operator/(PAIR a, PAIR b) { return __h2div(a, b); }                                          \
    SIMT_UNSEEN PAIR operator-(PAIR a) { return __hneg2(a); }                                                     \
    SIMT_UNSEEN PAIR operator+(PAIR a) { return a; }                                                              \
    SIMT_SMALL_FLOAT_ASSIGNMENTS(SCALAR, SCALAR(1.0f))                                                            \
    SIMT_SMALL_FLOAT_ASSIGNMENTS(PAIR, PAIR(SCALAR(1.0f), SCALAR(1.0f)))
// These read and write memory through a reference: the copies in them are seen.
#define SIMT_SMALL_FLOAT_ASSIGNMENTS(TYPE, ONE)                                                       \
    inline TYPE& operator+=(TYPE& a, TYPE b) { return a = a + b; }                                    \
    inline TYPE& operator-=(TYPE& a, TYPE b) { return a = a - b; }                                    \
    inline TYPE& operator*=(TYPE& a, TYPE b) { return a = a * b; }                                    \
    inline TYPE& operator/=(TYPE& a, TYPE b) { return a = a / b; }                                    \
    inline TYPE& operator++(TYPE& a) { return a += ONE; }                                             \
    inline TYPE& operator--(TYPE& a) { return a -= ONE; }                                             \
    inline TYPE operator++(TYPE& a, int) { const TYPE before = a; a = before + ONE; return before; }  \
    inline TYPE operator--(TYPE& a, int) { const TYPE before = a; a = before - ONE; return before; }

// ---- comparisons: of eq come __heq, __heq2 (1.0 or 0.0 each), __hbeq2 (both hold), and __hequ, __hequ2, __hbequ2,
// which also hold when either number is NaN.
#define SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, NAME, OPERATOR)                                     \
    SIMT_UNSEEN bool __h##NAME(SCALAR a, SCALAR b) {                                                  \
        return !simt_either_is_nan(a, b) && (float)a OPERATOR (float)b;                               \
    }                                                                                                 \
    SIMT_UNSEEN bool __h##NAME##u(SCALAR a, SCALAR b) {                                               \
        return simt_either_is_nan(a, b) || (float)a OPERATOR (float)b;                                \
    }                                                                                                 \
    SIMT_SMALL_FLOAT_PAIRWISE(SCALAR, PAIR, NAME) SIMT_SMALL_FLOAT_PAIRWISE(SCALAR, PAIR, NAME##u)
#define SIMT_SMALL_FLOAT_PAIRWISE(SCALAR, PAIR, NAME)                                                      \
    SIMT_UNSEEN bool __hb##NAME##2(PAIR v, PAIR w) { return __h##NAME(v.x, w.x) && __h##NAME(v.y, w.y); }  \
    SIMT_UNSEEN PAIR __h##NAME##2(PAIR v, PAIR w) {                                                        \
        return PAIR(SCALAR(__h##NAME(v.x, w.x) ? 1.0f : 0.0f), SCALAR(__h##NAME(v.y, w.y) ? 1.0f : 0.0f)); \
    }
#define SIMT_SMALL_FLOAT_OPERATORS(TYPE, EQ, NE, LT, LE, GT, GE)                                      \
    SIMT_UNSEEN bool operator==(TYPE a, TYPE b) { return EQ(a, b); }                                  \
    SIMT_UNSEEN bool operator!=(TYPE a, TYPE b) { return NE(a, b); }                                  \
    SIMT_UNSEEN bool operator<(TYPE a, TYPE b) { return LT(a, b); }                                   \
    SIMT_UNSEEN bool operator<=(TYPE a, TYPE b) { return LE(a, b); }                                  \
    SIMT_UNSEEN bool operator>(TYPE a, TYPE b) { return GT(a, b); }                                   \
    SIMT_UNSEEN bool operator>=(TYPE a, TYPE b) { return GE(a, b); }
#define SIMT_SMALL_FLOAT_COMPARISONS(NAME, SCALAR, PAIR)                                                  \
    SIMT_UNSEEN bool __hisnan(SCALAR a) { return isnan((float)a); }                                       \
    SIMT_UNSEEN bool simt_either_is_nan(SCALAR a, SCALAR b) { return __hisnan(a) || __hisnan(b); }        \
    SIMT_UNSEEN int __hisinf(SCALAR a) { return isinf((float)a) ? ((float)a < 0.0f ? -1 : 1) : 0; }       \
    SIMT_UNSEEN PAIR __hisnan2(PAIR v) {                                                                  \
        return PAIR(SCALAR(__hisnan(v.x) ? 1.0f : 0.0f), SCALAR(__hisnan(v.y) ? 1.0f : 0.0f));            \
    }                                                                                                     \
    SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, eq, ==) SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, ne, !=)   \
    SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, lt, <) SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, le, <=)    \
    SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, gt, >) SIMT_SMALL_FLOAT_COMPARISON(SCALAR, PAIR, ge, >=)    \
    SIMT_SMALL_FLOAT_OPERATORS(SCALAR, __heq, __hneu, __hlt, __hle, __hgt, __hge)                         \
    SIMT_SMALL_FLOAT_OPERATORS(PAIR, __hbeq2, __hbneu2, __hblt2, __hble2, __hbgt2, __hbge2)               \
    SIMT_UNSEEN SCALAR simt_extreme(SCALAR a, SCALAR b, bool larger) { /* +0 is larger than -0 */         \
        if (__hisnan(a)) return __hisnan(b) ? SCALAR::simt_make(0x7fff) : b;                              \
        if (__hisnan(b) || __heq(a, b)) return __heq(a, b) && (a.simt_bits >> 15 != 0) == larger ? b : a; \
        return __hlt(a, b) == larger ? b : a;                                                             \
    }                                                                                                     \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmax, __hmax2, simt_extreme(a, b, true))                      \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmin, __hmin2, simt_extreme(a, b, false))                     \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmax_nan, __hmax2_nan,                                        \
                            simt_either_is_nan(a, b) ? SCALAR::simt_make(0x7fff) : __hmax(a, b))          \
    SIMT_SMALL_FLOAT_EACH_2(SCALAR, PAIR, __hmin_nan, __hmin2_nan,                                        \
                            simt_either_is_nan(a, b) ? SCALAR::simt_make(0x7fff) : __hmin(a, b))

// ---- functions of one number
#define SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, NAME, OF_FLOAT) \
    SIMT_SMALL_FLOAT_EACH(SCALAR, PAIR, h##NAME, h2##NAME, SCALAR(OF_FLOAT((float)a)))
#define SIMT_SMALL_FLOAT_FUNCTIONS(SCALAR, PAIR)                                                                 \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, ceil, ceilf) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, floor, floorf)  \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, rint, rintf) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, trunc, truncf)  \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, sqrt, sqrtf) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, rsqrt, rsqrtf)  \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, rcp, __frcp_rn) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, tanh, tanhf) \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, exp, expf) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, exp2, exp2f)      \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, exp10, exp10f) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, log, logf)    \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, log2, log2f) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, log10, log10f)  \
    SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, sin, sinf) SIMT_SMALL_FLOAT_FUNCTION(SCALAR, PAIR, cos, cosf)

// ---- warps and atomics
#define SIMT_SMALL_FLOAT_WARP(TYPE)                                                                                 \
    inline TYPE __shfl_sync(unsigned int mask, TYPE value, int lane, int width = 32) {                              \
        return simt_from_bits<TYPE>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_INDEX, lane, width));      \
    }                                                                                                               \
    inline TYPE __shfl_up_sync(unsigned int mask, TYPE value, unsigned int delta, int width = 32) {                 \
        return simt_from_bits<TYPE>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_UP, (int)delta, width));   \
    }                                                                                                               \
    inline TYPE __shfl_down_sync(unsigned int mask, TYPE value, unsigned int delta, int width = 32) {               \
        return simt_from_bits<TYPE>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_DOWN, (int)delta, width)); \
    }                                                                                                               \
    inline TYPE __shfl_xor_sync(unsigned int mask, TYPE value, int lanes, int width = 32) {                         \
        return simt_from_bits<TYPE>(simt_shuffle(mask, simt_to_bits(value), SIMT_SHUFFLE_XOR, lanes, width));       \
    }
// A loop around compare-and-swap: a report counts each try as one atomic access, the first of which only asks what is
// there. On a GPU it is one instruction.
#define SIMT_SMALL_FLOAT_ATOMIC(TYPE, BITS)                                                           \
    inline TYPE atomicAdd(TYPE* address, TYPE value) {                                                \
        uint64_t seen = 0, expected;                                                                  \
        do {                                                                                          \
            expected = seen;                                                                          \
            const uint64_t sum = simt_to_bits(simt_from_bits<TYPE>(expected) + value);                \
            seen = simt_atomic(SIMT_CAS, BITS, address, sum, expected);                               \
        } while (seen != expected);                                                                   \
        return simt_from_bits<TYPE>(seen);                                                            \
    }

#define SIMT_SMALL_FLOAT(NAME, SCALAR, PAIR)                                                          \
    SIMT_SMALL_FLOAT_TYPES(NAME, SCALAR, PAIR)                                                        \
    SIMT_SMALL_FLOAT_CONVERSIONS(NAME, SCALAR, PAIR)                                                  \
    SIMT_SMALL_FLOAT_COMPARISONS(NAME, SCALAR, PAIR)                                                  \
    SIMT_SMALL_FLOAT_ARITHMETIC(SCALAR, PAIR)                                                         \
    SIMT_SMALL_FLOAT_FUNCTIONS(SCALAR, PAIR)                                                          \
    SIMT_SMALL_FLOAT_WARP(SCALAR) SIMT_SMALL_FLOAT_WARP(PAIR)                                         \
    SIMT_SMALL_FLOAT_ATOMIC(SCALAR, SIMT_U16) SIMT_SMALL_FLOAT_ATOMIC(PAIR, SIMT_U32)
