// simt_vectors.h -- CUDA's built-in vector types: char1 ... double4, make_char1 ... make_double4, dim3.
//
// Sizes and alignments are CUDA's. In checked mode so is the number of accesses that a copy makes, because they are
// counted: a vector of 2 or 4 components is copied by the runtime (vectors.h there), as one word (8 bytes: one 8-byte
// access; 16 bytes: one 16-byte access, the widest a GPU thread has; 32 bytes: two of them), a vector of 1 or 3
// components one component at a time. A plain struct would be copied in whatever pieces the compiler likes: two 8-byte
// accesses, a memcpy, or a range. The makers are the runtime's, too, because this header is compiled with -O0. In native
// mode g++ gets plain structs, which it makes up to 8 times faster; Clang is faster with its vectors.
//
// Constructors take the place of CUDA's aggregates: `float4 v = {1, 2}`, `float4 v{}`, globals without run-time
// initialisation and unions with a vector member all work. `float4 v = 1.0f` works too, here only: CUDA refuses it.
#pragma once

// ---- copies of vectors of 2 and 4 components, makers of all
#if SIMT_CHECKED
#define SIMT_COPY(NAME, ELEMENT, COUNT) \
    NAME(const NAME& from);             \
    NAME& operator=(const NAME& from);
#define SIMT_COPY_WIDE SIMT_COPY
#define SIMT_MAKE(NAME, PARAMETERS, VALUES) NAME make_##NAME PARAMETERS;
#elif defined(__clang__)
#define SIMT_COPY(NAME, ELEMENT, COUNT)                                                                 \
    typedef ELEMENT simt_word __attribute__((__vector_size__(COUNT * sizeof(ELEMENT)), __may_alias__)); \
    NAME(const NAME& from) { *(simt_word*)this = *(const simt_word*)&from; }                            \
    NAME& operator=(const NAME& from) {                                                                 \
        *(simt_word*)this = *(const simt_word*)&from;                                                   \
        return *this;                                                                                   \
    }
#define SIMT_COPY_WIDE(NAME, ELEMENT, COUNT)                                                        \
    typedef ELEMENT simt_word __attribute__((__vector_size__(2 * sizeof(ELEMENT)), __may_alias__)); \
    NAME(const NAME& from) { *this = from; }                                                        \
    NAME& operator=(const NAME& from) {                                                             \
        ((simt_word*)this)[0] = ((const simt_word*)&from)[0];                                       \
        ((simt_word*)this)[1] = ((const simt_word*)&from)[1];                                       \
        return *this;                                                                               \
    }
#else
#define SIMT_COPY(NAME, ELEMENT, COUNT)
#define SIMT_COPY_WIDE(NAME, ELEMENT, COUNT)
#endif
#if !SIMT_CHECKED
#define SIMT_MAKE(NAME, PARAMETERS, VALUES) \
    inline constexpr NAME make_##NAME PARAMETERS { return NAME VALUES; }
#endif

// ---- the types and their makers
#define SIMT_VECTOR1(NAME, ELEMENT)                                     \
    struct NAME {                                                       \
        ELEMENT x;                                                      \
        NAME() = default;                                               \
        SIMT_UNSEEN constexpr NAME(ELEMENT a) : x(a) {}                 \
        constexpr NAME(const NAME& from) : x(from.x) {}                 \
        NAME& operator=(const NAME& from) { x = from.x; return *this; } \
    };                                                                  \
    SIMT_MAKE(NAME, (ELEMENT x), (x))
#define SIMT_VECTOR2(NAME, ELEMENT)                                           \
    struct alignas(2 * sizeof(ELEMENT)) NAME {                                \
        ELEMENT x, y;                                                         \
        NAME() = default;                                                     \
        SIMT_UNSEEN constexpr NAME(ELEMENT a, ELEMENT b = {}) : x(a), y(b) {} \
        SIMT_COPY(NAME, ELEMENT, 2)                                           \
    };                                                                        \
    SIMT_MAKE(NAME, (ELEMENT x, ELEMENT y), (x, y))
#define SIMT_VECTOR3(NAME, ELEMENT)                                                                 \
    struct NAME {                                                                                   \
        ELEMENT x, y, z;                                                                            \
        NAME() = default;                                                                           \
        SIMT_UNSEEN constexpr NAME(ELEMENT a, ELEMENT b = {}, ELEMENT c = {}) : x(a), y(b), z(c) {} \
        constexpr NAME(const NAME& from) : x(from.x), y(from.y), z(from.z) {}                       \
        NAME& operator=(const NAME& from) { x = from.x; y = from.y; z = from.z; return *this; }     \
    };                                                                                              \
    SIMT_MAKE(NAME, (ELEMENT x, ELEMENT y, ELEMENT z), (x, y, z))
#define SIMT_VECTOR4_OF(NAME, ELEMENT, ALIGNMENT, COPY)                                       \
    struct alignas(ALIGNMENT) NAME {                                                          \
        ELEMENT x, y, z, w;                                                                   \
        NAME() = default;                                                                     \
        SIMT_UNSEEN constexpr NAME(ELEMENT a, ELEMENT b = {}, ELEMENT c = {}, ELEMENT d = {}) \
            : x(a), y(b), z(c), w(d) {}                                                       \
        COPY(NAME, ELEMENT, 4)                                                                \
    };                                                                                        \
    SIMT_MAKE(NAME, (ELEMENT x, ELEMENT y, ELEMENT z, ELEMENT w), (x, y, z, w))
#define SIMT_VECTOR4(NAME, ELEMENT) SIMT_VECTOR4_OF(NAME, ELEMENT, 4 * sizeof(ELEMENT), SIMT_COPY)
#define SIMT_VECTOR4_WIDE(NAME, ELEMENT) SIMT_VECTOR4_OF(NAME, ELEMENT, 16, SIMT_COPY_WIDE)

#define SIMT_VECTORS(NAME, ELEMENT)                               \
    SIMT_VECTOR1(NAME##1, ELEMENT) SIMT_VECTOR2(NAME##2, ELEMENT) \
    SIMT_VECTOR3(NAME##3, ELEMENT) SIMT_VECTOR4(NAME##4, ELEMENT)
#define SIMT_VECTORS_WIDE(NAME, ELEMENT)                          \
    SIMT_VECTOR1(NAME##1, ELEMENT) SIMT_VECTOR2(NAME##2, ELEMENT) \
    SIMT_VECTOR3(NAME##3, ELEMENT) SIMT_VECTOR4_WIDE(NAME##4, ELEMENT)

// All of them: DO(name, type of a component), or WIDE where four components are more than one access can move.
#if __SIZEOF_LONG__ == 8        // Linux, macOS
#define SIMT_VECTORS_OF_LONG(DO, WIDE) WIDE(long, long) WIDE(ulong, unsigned long)
#else                           // Windows
#define SIMT_VECTORS_OF_LONG(DO, WIDE) DO(long, long) DO(ulong, unsigned long)
#endif
#define SIMT_EACH_VECTOR(DO, WIDE)                                                                          \
    DO(char, signed char) DO(uchar, unsigned char) DO(short, short) DO(ushort, unsigned short) DO(int, int) \
    DO(uint, unsigned int) DO(float, float) WIDE(double, double) WIDE(longlong, long long)                  \
    WIDE(ulonglong, unsigned long long) SIMT_VECTORS_OF_LONG(DO, WIDE)
SIMT_EACH_VECTOR(SIMT_VECTORS, SIMT_VECTORS_WIDE)

// The type of gridDim and blockDim: what is not given is 1.
struct dim3 {
    unsigned int x, y, z;
    SIMT_UNSEEN constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
    constexpr dim3(const uint3& from) : x(from.x), y(from.y), z(from.z) {}
    constexpr dim3(const dim3& from) : x(from.x), y(from.y), z(from.z) {}
    dim3& operator=(const dim3& from) { x = from.x; y = from.y; z = from.z; return *this; }
    constexpr operator uint3() const { return uint3(x, y, z); }
};
