"""Math, bits and conversions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from dialect_case import Case, empty, feature

# ---- math


def _special(name):
    return lambda x: getattr(torch.special, name)(torch.from_numpy(np.asarray(x))).numpy()


_erf, _erfc, _normcdf, _lgamma = (_special(name) for name in ("erf", "erfc", "ndtr", "gammaln"))
_gamma = np.vectorize(math.gamma)
_rint_rest = np.vectorize(math.remainder)


def _exact_functions(x: np.ndarray) -> list[np.ndarray]:
    """The rows of float_math before the fast ones, in double, in the order of FLOAT_FUNCTIONS."""
    a = np.abs(x)
    return [
        np.arccos(x * 0.25), np.arcsinh(x), np.arctan(x), np.arctan2(x, 2), np.cbrt(x), np.ceil(x),
        np.copysign(2, x),
        np.cos(x), np.cosh(x), _erf(x), _erfc(x), np.exp(x), np.exp2(x), 10.0**x, np.expm1(x), a,
        np.maximum(x - 1, 0), np.floor(x), x * x + 1, np.fmax(x, 0.5), np.fmin(x, 0.5), np.fmod(x, 0.75),
        np.hypot(x, 3), 8 * x, np.log(a), np.log2(a), np.log10(a), np.log1p(a),
        _normcdf(x), a**1.5, _rint_rest(x, 0.75), np.rint(x), np.sign(x) * np.floor(a + 0.5), a**-0.5,
        np.sin(x), np.sinh(x), np.sin(np.pi * x), np.cos(np.pi * x), np.sqrt(a), np.tan(x), np.tanh(x), np.trunc(x),
        _gamma(1.5 + a), _lgamma(1.5 + a), x / 3, np.sqrt(x * x + 5),
    ]  # fmt: skip


def _fast_functions(x: np.ndarray) -> list[np.ndarray]:
    a = np.abs(x)
    return [
        np.exp(x), 10.0**x, np.log(a), np.log2(a), np.log10(a), a**1.5, np.sin(x), np.cos(x), np.tan(x * 0.25),
        x / 3, 1 / x,
        np.sqrt(a), a**-0.5, x * x + 1, x + 1, x - 1, x * x, x / 3, np.clip(x, 0, 1),
    ]  # fmt: skip


FLOAT_BOUND = (
    6e-7,
    2e-7,
)  # CUDA's float functions: up to 5 units in the last place (6e-8 each); sinpi, tgamma, lgamma the worst
FAST_BOUND = (3e-6, 6e-7)  # its fast ones: 2 + 3 |x| units for exponentials, 2^-21 absolute for sines and logarithms


@feature
def math_in_float():
    x = (np.arange(64, dtype="float32") - 31.6) / np.float32(10.3)  # -3.07 … 3.05, neither 0 nor 0.5
    exact, fast = _exact_functions(x.astype(float)), _fast_functions(x.astype(float))
    exact[5], exact[17], exact[31], exact[41] = np.ceil(x), np.floor(x), np.rint(x), np.trunc(x)
    want = np.array(exact + fast).astype("float32")
    counts = (len(exact), len(fast))
    bounds = tuple(
        np.repeat([exact_bound, fast_bound], counts)
        for exact_bound, fast_bound in zip(FLOAT_BOUND, FAST_BOUND, strict=True)
    )
    yield Case("float_math", (2,), (32,), [x, empty(want.shape), 64], {1: want}, bounds)


@feature
def math_in_double():
    x = (np.arange(64) - 31.6) / 10.3
    a = np.abs(x)
    want = [
        np.exp(x), np.log(a), np.sqrt(a), a**-0.5, np.cbrt(x), np.sin(x), np.cos(x), np.tanh(x), a**1.5,
        x**3, _erf(x), np.floor(x), np.rint(x), x * x + 1, np.fmin(x, 0.5), np.fmax(x, 0.5), np.fmod(x, 0.75),
        np.hypot(x, 3), np.exp2(x), 10.0**x, np.log2(a), np.log1p(a), np.expm1(x), np.arctan2(x, 2), np.sin(np.pi * x),
        x * x,
    ]  # fmt: skip
    yield Case("double_math", (2,), (32,), [x, empty((26, 64), "float64"), 64], {1: np.array(want)}, (2e-15, 1e-15))


@feature
def overloads_of_math_names():
    x = ((np.arange(32) - 15.6) / 5.3).astype("float32")
    d = x.astype(float)
    mantissa, exponent = np.frexp(d)
    want = np.exp(d) + np.sqrt(np.abs(d)) + d**2 + np.maximum(d, 0.25) + np.minimum(d, 0.25) + np.abs(d) + np.floor(d)
    want += d * 2 + 1 + np.modf(d)[0] + np.modf(d)[1] + mantissa + exponent + np.sin(d) + np.cos(d)
    yield Case("overloads", (1,), (32,), [x, empty(32)], {1: want.astype("float32")}, (1e-6, 4e-6))


@feature
def classes_of_floats():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3.4e38, -1e30, 2e-38] + [0.5] * 22, "float32")
    nan, inf, finite = np.isnan(x), np.isinf(x), np.isfinite(x)
    want = nan + 2 * inf + 4 * finite + 8 * np.signbit(x) + 16 * nan + 32 * (x == np.inf)
    want = want + 64 * (np.fmax(x, 1) == 1) + 128 * ~nan
    yield Case("classes", (1,), (32,), [x, empty(32, "int32")], {1: want.astype("int32")})


@feature
def least_and_largest_of_mixed_types():
    want = [-1, 2, 2**32 - 1, 3, -1, 3, 7, 2**40, 12]
    yield Case("extremes", (1,), (1,), [empty(9, "int64")], {0: np.array(want, "int64")})


def _signed(x: int, width: int = 32) -> int:
    x %= 2**width
    return x - 2**width if x >> (width - 1) else x


def _bits(x: int, y: int, z: int) -> list[int]:
    """The rows of the kernel `bits` for one thread."""
    wide = x << 32 | y
    reverse = lambda n, width: int(f"{n:0{width}b}"[::-1], 2)  # noqa: E731
    pool = (y << 32 | x).to_bytes(8, "little")
    permuted = int.from_bytes(bytes(pool[z >> 4 * i & 7] for i in range(4)), "little")
    both, shift, clamped = y << 32 | x, z % 32, min(z % 40, 32)
    sx, sy = _signed(x), _signed(y)
    bytes_of = lambda n: [n >> 8 * i & 255 for i in range(4)]  # noqa: E731
    signed_bytes = lambda n: [_signed(b, 8) for b in bytes_of(n)]  # noqa: E731
    return [
        bin(x).count("1"), bin(wide).count("1"), 32 - x.bit_length(), 64 - wide.bit_length(),
        (x & -x).bit_length(), ((x << 32) & -(x << 32)).bit_length(), reverse(x, 32), reverse(wide, 64) >> 32,
        permuted, both << shift >> 32, both >> shift, both << clamped >> 32, both >> clamped,
        sx * sy >> 32, x * y >> 32, _signed(x << 8) // 256 * (_signed(y << 8) // 256), (x & 0xFFFFFF) * (y & 0xFFFFFF),
        _signed(wide, 64) * _signed(z << 20, 64) >> 64, wide * wide >> 64, abs(sx - sy) + z, abs(x - y) + z,
        sum(a * b for a, b in zip(signed_bytes(x), signed_bytes(y), strict=True)) + z,
        sum(a * b for a, b in zip(bytes_of(x), bytes_of(y), strict=True)) + z,
        sx + sy >> 1, sx + sy + 1 >> 1, x + y >> 1, x & 0x7F7FFFFF, x & 0x7F7FFFFF, (wide >> 4) >> 7, x >> 4,
    ]  # fmt: skip


@feature
def bits_of_integers():
    x = np.random.default_rng(6).integers(0, 2**32, 32, "uint32")
    x[:5] = [0, 1, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF]
    want = np.array([_bits(int(x[i]), int(x[(i + 1) % 32]), int(x[(i + 2) % 32])) for i in range(32)], dtype=object).T
    want = (want % 2**32).astype("uint32")
    yield Case("bits", (1,), (32,), [x, empty(want.shape, "uint32"), 32], {1: want})


def _to_integer(x: float, round_, low: int, high: int, nan: int) -> int:
    if math.isnan(x):
        return nan
    if math.isinf(x):
        return high if x > 0 else low
    return min(max(int(round_(x)), low), high)


def _direct(x: Any, mode: str) -> int:
    """The bits of the float that x rounds to: an integer or a double, mode rn, rz, ru or rd."""
    nearest = np.float32(x)
    if (
        mode != "rn" and np.isfinite(nearest) and int(nearest) != x
        if isinstance(x, int)
        else mode != "rn" and float(nearest) != x
    ):
        above = (int(nearest) if isinstance(x, int) else float(nearest)) > x
        if mode == "rd" or (mode == "rz" and x > 0):
            nearest = np.nextafter(nearest, np.float32(-np.inf)) if above else nearest
        else:
            nearest = nearest if above else np.nextafter(nearest, np.float32(np.inf))
    return int(nearest.view("int32"))


def _conversions(x: float, i: int) -> list[int]:
    """The rows of the kernel `conversions` for one thread."""
    d = x * 1.0000001
    n = _signed(0x123456789AB * (i + 1) * (-1 if i % 2 else 1), 64)
    small, positive = _signed(n), n % 2**32
    int32, uint32, int64 = (-(2**31), 2**31 - 1), (0, 2**32 - 1), (-(2**63), 2**63 - 1)
    top = 2**31
    return [
        *(_to_integer(x, f, *int32, 0) for f in (round, math.trunc, math.ceil, math.floor)),
        *(_to_integer(x, f, *uint32, 0) for f in (round, math.trunc)),
        *(_to_integer(x, f, *int64, -(2**63)) for f in (round, math.floor)),
        _signed(_to_integer(x, math.trunc, 0, 2**64 - 1, 2**63), 64),
        _to_integer(d, round, *int32, -top), _to_integer(d, math.trunc, *uint32, top),
        _to_integer(d, math.ceil, *int64, -(2**63)),
        *(0 if math.isnan(d) else _direct(d, mode) for mode in ("rn", "rz", "ru", "rd")),
        _direct(n, "rn"), _direct(n, "rz"), _direct(small, "rn"), _direct(small, "rd"), _direct(positive, "ru"),
        _direct(n % 2**64, "rn"), int(np.float64(small).view("int64")),
    ]  # fmt: skip


@feature
def conversions_between_numbers():
    x = [
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        -2.5,
        0.49999997,
        1e10,
        -1e10,
        1e20,
        -1e20,
        np.inf,
        -np.inf,
        np.nan,
        3.7,
        -3.7,
        0.0,
        -0.0,
    ]
    x = np.array(
        x + [2147483520.0, -2147483648.0, 4294967040.0, 2147483648.0, 1e-30, -1e-30] + [1000.25] * 8, "float32"
    )
    want = np.array([_conversions(float(x[i]), i) for i in range(32)], "int64").T
    nan = np.isnan(x)

    def judge(results):
        got = results[1].reshape(want.shape)
        bad = (got != want) & ~(
            nan & (np.arange(len(want)) // 4 == 3)[:, None]
        )  # rows 12 … 15: the bits of a float NaN
        assert not bad.any(), [(int(r), float(x[c]), int(got[r, c]), int(want[r, c])) for r, c in np.argwhere(bad)[:5]]

    yield Case("conversions", (1,), (32,), [x, empty(want.shape, "int64"), 32], judge=judge)
