"""Two other ways to write down a step, as edits of the block scan of notebook 04: notebook 08 compares them.

    scan_kernel("plain" | "log" | "offset", tile=256)       the kernel block_scan_v2 that carries such pairs

    plain    (a, b)                      8 bytes; what affine.cuh has
    log      (log a, b)                  8 bytes; products of decays are sums, and each combine takes an exponential.
                                         The kernel is given log a in place of a.
    offset   (a, e), (b, f)              16 bytes; stands for a * 2^e and b * 2^f with 1/2 <= |a|, |b| < 1, so neither
                                         a product nor a state leaves the range of a float
"""

from ssmlab import RawKernel, kernels

FILE = "block_scan_v2_double_buffer.cu"
LOG = r"""// The pair (log a, b) of a step h -> a * h + b. .x is log a: decays multiply, so their logarithms add.
__device__ __forceinline__ float2 then(float2 first, float2 second) {
    return make_float2(first.x + second.x, expf(second.x) * first.y + second.y);
}

__device__ __forceinline__ float2 identity() {
    return make_float2(0.0f, 0.0f);                         // log 1
}
"""
OFFSET = r"""// The step h -> a * h + b with a = x * 2^e and b = y * 2^f, where x and y are 0 or in [1/2, 1).
struct alignas(16) Pair {
    float x;
    int e;
    float y;
    int f;
};

constexpr int NEVER = -(1 << 20);                           // the exponent of 0, below all others

__device__ __forceinline__ int biased(float v) { return __float_as_int(v) >> 23 & 255; }

// v times 2^-k with that k for which the result is in [1/2, 1); v is normal or 0.
__device__ __forceinline__ float brought_back(float v) {
    return v == 0.0f ? 0.0f : __int_as_float((__float_as_int(v) & 0x807fffff) | 0x3f000000);
}

__device__ __forceinline__ float power(int k) {             // 2^k for k <= 0; too small to matter: 0
    return k < -126 ? 0.0f : __int_as_float((k + 127) << 23);
}

__device__ __forceinline__ Pair pair(float a, float b) {
    Pair p;
    p.x = frexpf(a, &p.e);
    p.y = frexpf(b, &p.f);
    p.e = a == 0.0f ? NEVER : p.e;
    p.f = b == 0.0f ? NEVER : p.f;
    return p;
}

__device__ __forceinline__ Pair then(Pair first, Pair second) {
    Pair both;
    const float x = first.x * second.x;
    both.x = brought_back(x);
    both.e = x == 0.0f ? NEVER : first.e + second.e + biased(x) - 126;

    const int age = second.e + first.f;                     // the exponent of second.a * first.b
    const int top = max(age, second.f);
    const float y = second.x * first.y * power(age - top) + second.y * power(second.f - top);
    both.y = brought_back(y);
    both.f = y == 0.0f ? NEVER : top + biased(y) - 126;
    return both;
}

__device__ __forceinline__ Pair identity() {
    return pair(1.0f, 0.0f);
}
"""
LOOK = """const Pair left = span[now][t - reach];
            mine = then(left, mine);"""
OFFSET_EDITS = {
    "make_float2(": "pair(",
    "float2": "Pair",
    "mine = then(span[now][t - reach], mine);": LOOK,
    "= mine.y;": "= ldexpf(mine.y, mine.f);",
}


def scan_text(kind):
    """The text of block_scan_v2 with pairs of this kind. Raises ValueError for a kind that is none of the three."""
    text = kernels.path(FILE).read_text(encoding="utf-8")
    include = '#include "affine.cuh"'
    if kind == "plain":
        return kernels.source(FILE)
    if kind == "log":
        return text.replace(include, LOG)
    if kind == "offset":
        for old, new in OFFSET_EDITS.items():
            text = text.replace(old, new)
        return text.replace(include, OFFSET)
    raise ValueError(f"kind is {kind!r}: it must be 'plain', 'log' or 'offset'")


def scan_kernel(kind, *, tile=256, mode="checked"):
    """The kernel for rows of at most `tile` steps; called as block_scan_v2 is: (rows,), (tile,), (a, b, h, length)."""
    return RawKernel(scan_text(kind), "block_scan_v2", options=(f"-DTILE={tile}",), filename=f"{kind}.cu", mode=mode)
