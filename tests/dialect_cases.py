"""What the kernels of dialect.cu must give, worked out with NumPy and torch, for a CPU and for a GPU alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

TEXT = (Path(__file__).resolve().parent / "dialect.cu").read_text(encoding="utf-8")
OPTIONS = ("-DSCALE=3",)
SHUFFLED = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "unsigned int": "uint32",
    "long long": "int64",
    "unsigned long long": "uint64",
    "__half": "float16",
    "__nv_bfloat16": "uint16",
    "__half2": "float16",
}
INTEGERS = {"int": "int32", "unsigned int": "uint32", "unsigned long long": "uint64"}
SMALL = {"__half": torch.float16, "__nv_bfloat16": torch.bfloat16}
TILES = (32, 16, 8, 4, 2, 1)
EXPRESSIONS = (
    *(f"shuffles<{kind}>" for kind in SHUFFLED),
    *(f"integer_atomics<{kind}>" for kind in INTEGERS),
    *(f"real_atomics<{kind}>" for kind in ("float", "double")),
    *(f"tiles<{size}>" for size in TILES),
    *(
        f"{kernel}<{kind}>"
        for kernel in ("small_to_float", "double_to_small", "small_arithmetic", "small_comparisons")
        for kind in SMALL
    ),
    "scaled<float, 3>",
    "scaled<long long, 5>",
)


@dataclass
class Case:
    """One launch. expected: argument number to the array it must hold afterwards.

    A comparison is exact (NaN equals NaN) unless `tolerance` gives (relative, absolute) bounds, one pair for all or an
    array of each along axis 0. `judge` compares what has no single right value: it gets the arguments afterwards.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: list[Any]
    expected: dict[int, np.ndarray] = field(default_factory=dict)
    tolerance: tuple[Any, Any] | None = None
    judge: Any = None
    shared: int = 0
    cooperative: bool = False

    def compare(self, results: list[Any]) -> None:
        for index, want in self.expected.items():
            got = np.asarray(results[index]).reshape(want.shape)
            assert got.dtype == want.dtype, f"{self.kernel}: argument {index} is {got.dtype}, expected {want.dtype}"
            if self.tolerance is None or got.dtype.kind not in "f":
                same = (got == want) | ((got != got) & (want != want))
            else:
                relative, absolute = (np.reshape(bound, (-1,) + (1,) * (want.ndim - 1)) for bound in self.tolerance)
                with np.errstate(invalid="ignore"):
                    near = np.abs(got.astype(float) - want.astype(float)) <= relative * np.abs(want.astype(float)) + absolute
                same = near | (got == want) | ((got != got) & (want != want))
            where = np.argwhere(~same)[:5]
            assert same.all(), f"{self.kernel}: argument {index} differs at " + ", ".join(
                f"{tuple(map(int, place))}: {got[tuple(place)]!r} instead of {want[tuple(place)]!r}" for place in where
            )
        if self.judge is not None:
            self.judge(results)


FEATURES: dict[str, Any] = {}


def feature(function):
    FEATURES[function.__name__] = function
    return function


def empty(shape, dtype="float32"):
    """Filled with a value that no kernel writes."""
    return np.full(shape, 77, dtype)


# ---- numbers of 16 bits


def widened(bits: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """uint16 bit patterns to float32."""
    return torch.from_numpy(bits.view(np.int16).copy()).view(kind).float().numpy()


def bits_of(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """Numbers that the type holds exactly, to bit patterns."""
    return torch.from_numpy(np.asarray(values, "float32")).to(kind).view(torch.int16).numpy().view(np.uint16)


def neighbours(values: np.ndarray, kind: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The largest number of the type that is <= each value and the smallest that is >= it; infinities count as numbers."""
    table = np.unique(widened(np.arange(65536).astype(np.uint16), kind).astype(float))
    table = table[~np.isnan(table)]
    safe = np.where(np.isnan(values), 0.0, values).astype(float)
    return table[np.searchsorted(table, safe, side="right") - 1], table[np.searchsorted(table, safe, side="left")]


def rounded(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """float64 to the nearest number of the type, ties to the even bit pattern, as float64."""
    values = np.asarray(values, float)
    below, above = neighbours(values, kind)
    largest = float(torch.finfo(kind).max)
    step = largest - float(widened(np.array([bits_of(largest, kind).item() - 1], np.uint16), kind)[0])
    below, above = (np.where(np.isinf(edge), np.copysign(largest + step, edge), edge) for edge in (below, above))
    with np.errstate(invalid="ignore"):
        down, up = values - below, above - values
    tie_goes_down = np.isfinite(values) & (bits_of(np.clip(below, -largest, largest), kind) % 2 == 0) & (np.abs(below) <= largest)
    result = np.where((down < up) | ((down == up) & tie_goes_down), below, above)
    result = np.where(np.abs(result) > largest, np.copysign(np.inf, result), result)
    result = np.where(np.isinf(values) | np.isnan(values), values, result)
    return np.copysign(result, np.where(np.isnan(values), 1.0, values))


def as_stored(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """As a kernel's argument: float16, or the bits of bfloat16 as uint16."""
    return bits_of(values, kind).view(np.float16 if kind == torch.float16 else np.uint16)


# ---- the language


@feature
def indices_in_three_dimensions():
    want = [
        x + 10 * y + 100 * z + 1000 * bx + 10000 * by + 100000 * bz + 1000000
        for bz in range(2) for by in range(3) for bx in range(2) for z in range(3) for y in range(2) for x in range(4)
    ]  # fmt: skip
    yield Case("indices", (2, 3, 2), (4, 2, 3), [empty(288, "int32")], {0: np.array(want, "int32")})


@feature
def static_shared_arrays_of_two_dimensions():
    square = np.arange(64, dtype="float32").reshape(8, 8)
    yield Case("transpose", (1,), (8, 8), [square, empty((8, 8))], {1: square.T.copy()})


@feature
def dynamic_shared_memory():
    x = np.arange(40.0)
    yield Case("reverse_dynamic", (1,), (40,), [x, empty(40, "float64")], {1: x[::-1].copy()}, shared=320)


@feature
def templates():
    x = np.arange(32, dtype="float32")
    yield Case("scaled<float, 3>", (1,), (32,), [x, empty(32)], {1: 3 * x[::-1]})
    n = np.arange(32, dtype="int64") << 40
    yield Case("scaled<long long, 5>", (1,), (32,), [n, empty(32, "int64")], {1: 5 * n[::-1]})


@feature
def structs_in_arguments_and_in_shared_memory():
    maps = (np.arange(64, dtype="float32") % 7).reshape(32, 2)
    last = np.array([0.5, 3.0], "float32")
    both = np.stack([maps[:, 0] * 0.5, 0.5 * maps[:, 1] + 3.0], axis=1)
    want = np.roll(both[:, 0] * 2 + both[:, 1], -1).astype("float32")
    yield Case("structs", (1,), (32,), [maps, last.tobytes(), empty(32)], {2: want})


@feature
def constant_memory_and_device_variables():
    weights = np.tile(np.array([0.5, -1.0, 2.0, 4.0], "float32"), 8)
    yield Case("constants", (1,), (32,), [empty(32)], {0: weights * 3 - 1})
    for _ in range(2):
        yield Case("variables", (1,), (32,), [empty(32)], {0: (np.arange(32) % 3 + 11).astype("float32")})


@feature
def functions_enums_lambdas_and_loops():
    want = np.where(np.arange(32) % 2, 15, 70).astype("int32")
    yield Case("language", (1,), (32,), [empty(32, "int32"), False, 3], {0: want})
    yield Case("language", (1,), (32,), [empty(32, "int32"), True, 3], {0: -want})


# ---- order


@feature
def barriers_that_count():
    x = np.arange(64, dtype="int32")
    yield Case("barriers", (1,), (64,), [x, empty(64, "int32")], {1: np.full(64, 63010, "int32")})
    yield Case("barriers", (1,), (64,), [x + 1, empty(64, "int32")], {1: np.full(64, 64110, "int32")})
    yield Case("barriers", (1,), (64,), [x * 0, empty(64, "int32")], {1: np.full(64, 0, "int32")})


@feature
def barriers_of_a_warp():
    x = np.arange(64, dtype="float32")
    yield Case("warp_sum", (1,), (64,), [x, empty(64)], {1: np.repeat(x.reshape(2, 32).sum(axis=1), 32)})


@feature
def fences_volatile_and_the_last_block():
    x = np.arange(6 * 32, dtype="int32")
    parts = x.reshape(6, 32).sum(axis=1).astype("int32")
    args = [x, empty(6, "int32"), np.zeros(1, "uint32"), empty(1, "int32")]
    yield Case("last_block", (6,), (32,), args, {1: parts, 2: np.zeros(1, "uint32"), 3: parts.sum(keepdims=True, dtype="int32")})


@feature
def clocks_go_forward():
    yield Case("clocks", (1,), (32,), [empty(32, "int32")], {0: np.ones(32, "int32")})


# ---- warps


def _shuffle_sources() -> np.ndarray:
    """sources[way][lane]: the lane whose value each lane gets."""
    lane = np.arange(32)
    start = lambda width: lane // width * width  # noqa: E731
    up = lambda delta, width: np.where(lane - delta >= start(width), lane - delta, lane)  # noqa: E731
    down = lambda delta, width: np.where(lane + delta < start(width) + width, lane + delta, lane)  # noqa: E731
    xor = lambda mask, width: np.where((lane ^ mask) < start(width) + width, lane ^ mask, lane)  # noqa: E731
    return np.array(
        [
            np.full(32, 5), (7 * lane + 3) % 32, start(8) + (lane + 1) % 8, up(1, 32), up(5, 8), down(3, 32), down(2, 16),
            xor(1, 32), xor(16, 32), xor(9, 8), np.where(lane < 16, 15 - lane % 16, lane ^ 3),
        ]
    )  # fmt: skip


@feature
def shuffles_of_every_type():
    rng = np.random.default_rng(3)
    for kind, dtype in SHUFFLED.items():
        shape = (32, 2) if kind == "__half2" else (32,)
        info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
        x = rng.integers(info.min, info.max, shape, dtype) if info else rng.standard_normal(shape).astype(dtype)
        yield Case(f"shuffles<{kind}>", (1,), (32,), [x, empty((11, *shape), dtype)], {1: x[_shuffle_sources()]})


def _mask(members: np.ndarray) -> int:
    return sum(1 << int(lane) for lane in np.flatnonzero(members))


@feature
def votes_matches_and_the_active_mask():
    x = np.random.default_rng(4).integers(-5, 9, 32).astype("int32")
    odd = np.arange(32) % 2 == 1
    third = np.fmod(x, 3)
    want = [
        np.full(32, _mask(x > 0)), np.full(32, (x == 7).any()), np.full(32, (x > 0).all()),
        np.where(odd, 0xAAAAAAAA, 0), np.where(odd, _mask((x > 0) & odd), 1),
        [_mask(third == value) for value in third], np.repeat([0xFFFF, 0xFFFF0000], 16),
        np.full(32, 0xFFFFFFFF), np.ones(32), np.zeros(32),
    ]  # fmt: skip
    yield Case("votes", (1,), (32,), [x, empty((10, 32), "uint32")], {1: np.array(want).astype("int64").astype("uint32")})


@feature
def reductions_of_a_warp():
    x = np.random.default_rng(5).integers(-1000, 1000, 32).astype("int32")
    u = x.view("uint32")
    want = [x.sum(), x.min(), x.max(), u.max(), np.bitwise_and.reduce(u), np.bitwise_or.reduce(u), np.bitwise_xor.reduce(u)]
    want = np.array([int(value) & 0xFFFFFFFF for value in want]).astype("uint32").view("int32")
    yield Case("warp_reductions", (1,), (32,), [x, empty((7, 32), "int32")], {1: np.repeat(want, 32).reshape(7, 32)})


# ---- atomics


def _is_one_chain(start: int, olds: list[int], after: list[int], end: int, what: str) -> None:
    """Each operation saw the value that another one left: the values seen and left are the same, start and end apart."""
    assert sorted([*olds, end]) == sorted([start, *after]), f"{what}: from {start}, saw {sorted(olds)}, left {end}"


@feature
def atomics_on_integers_in_global_and_shared_memory():
    lanes = np.arange(32)
    for kind, dtype in INTEGERS.items():
        wide = 8 * np.dtype(dtype).itemsize
        start = [100, 5, 50, 7, 0xFFFF, 0, 0xAAAA, 1]
        steps = [
            lambda old, t: old + t * 37 % 64, lambda old, t: max(old, t * 37 % 64), lambda old, t: min(old, t * 37 % 64),
            lambda old, t: t + 1, lambda old, t: old & ~(1 << t % 16), lambda old, t: old | 1 << t % 16,
            lambda old, t: old ^ 1 << t % 16, lambda old, t: old + 2,
        ]  # fmt: skip

        def judge(results, kind=kind, wide=wide, start=start, steps=steps):
            cells, olds = results[0].tolist(), results[1].reshape(2, 8, 32).tolist()
            for space in range(2):
                for row, step in enumerate(steps):
                    seen = olds[space][row]
                    after = [step(old, t) % 2**wide for old, t in zip(seen, lanes.tolist(), strict=True)]
                    _is_one_chain(start[row], seen, after, cells[8 * space + row], f"{kind}, space {space}, operation {row}")
                assert cells[8 * space] == 100 + sum(t * 37 % 64 for t in range(32))
                assert cells[8 * space + 1 : 8 * space + 3] == [63, 0]
                assert cells[8 * space + 4 : 8 * space + 8] == [0, 0xFFFF, 0xAAAA, 65]

        cells = np.array(start + [0] * 8, dtype)
        yield Case(f"integer_atomics<{kind}>", (1,), (32,), [cells, empty((2, 8, 32), dtype)], judge=judge)


@feature
def atomics_that_wrap_and_atomics_with_a_scope():
    up, down = [], []
    high, low = 0, 3
    for _ in range(32):
        up.append(high)
        down.append(low)
        high = 0 if high >= 4 else high + 1
        low = 4 if low == 0 or low > 4 else low - 1

    def judge(results):
        assert results[0].tolist() == [1000 - 496, 32, 496 - 3]
        assert results[1].tolist() == [1000 - 32, high, low]
        assert sorted(results[2][:32].tolist()) == sorted(up)
        assert sorted(results[2][32:].tolist()) == sorted(down)

    args = [np.array([1000, 0, -3], "int32"), np.array([1000, 0, 3], "uint32"), empty(64, "uint32")]
    yield Case("more_atomics", (1,), (32,), args, judge=judge)


@feature
def atomics_on_floats():
    for kind, dtype in (("float", "float32"), ("double", "float64")):

        def judge(results, kind=kind):
            cells, olds = results[0].tolist(), results[1].tolist()
            assert cells == [10.0 + 496.0, 1.0 + 16.0]
            _is_one_chain(10.0, olds, [old + t for t, old in enumerate(olds)], cells[0], kind)

        yield Case(f"real_atomics<{kind}>", (1,), (32,), [np.array([10.0, 1.0], dtype), empty(32, dtype)], judge=judge)

    def exchanged(results):
        _is_one_chain(-1.0, results[1].tolist(), [float(t) for t in range(32)], results[0].item(), "exchange")

    yield Case("exchange_float", (1,), (32,), [np.array([-1.0], "float32"), empty(32)], judge=exchanged)


@feature
def atomics_on_half_and_bfloat16():
    half, bfloat16 = SMALL.values()
    args = [np.zeros(2, "float16"), np.zeros(2, "float16"), np.zeros(2, "uint16"), np.zeros(2, "uint16")]
    want = {
        0: np.array([16, 0], "float16"),
        1: np.array([32, -64], "float16"),
        2: bits_of([64.0, 0.0], bfloat16),
        3: bits_of([32.0, 8.0], bfloat16),
    }
    yield Case("small_atomics", (1,), (32,), args, want)


# ---- vectors


@feature
def vector_types():
    x = np.arange(128, dtype="float32").reshape(32, 4)
    v = x + np.array([1, 0, 0, 0], "float32")
    w = v[::-1].copy()
    w[:, 3] = w[:, 0] + w[:, 1]
    t = np.arange(32)
    want = {
        1: w,
        2: v[:, :2].astype("float64"),
        3: np.stack([t, t * 0 + 1, t * 0 + 2, t * 0 + 255], axis=1).astype("uint8"),
        4: np.stack([t * 0, -t], axis=1).astype("int16"),
        5: np.stack([t * 0 + 1, t, t * 0 + 3], axis=1).astype("float32"),
    }
    args = [x, empty((32, 4)), empty((32, 2), "float64"), empty((32, 4), "uint8"), empty((32, 2), "int16"), empty((32, 3))]
    yield Case("vectors", (1,), (32,), args, want)
    flat = np.arange(128, dtype="float32")
    yield Case("reinterpreted", (1,), (32,), [flat, empty(32)], {1: flat[4 * t + 2] + flat[2 * t + 1]})


@feature
def vector_sizes_and_alignments():
    want = (
        [1, 1, 2, 2, 3, 1, 4, 4, 2, 2, 4, 4, 6, 2, 8, 8]  # char, short
        + [4, 4, 8, 8, 12, 4, 16, 16, 8, 8, 16, 16, 24, 8]  # int, long long
        + [4, 4, 8, 8, 12, 4, 16, 16, 8, 8, 16, 16, 24, 8, 12, 4, 12, 4]  # float, double, dim3, uint3
    )
    yield Case("vector_sizes", (1,), (1,), [empty(48, "int32")], {0: np.array(want, "int32")})


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
        np.arccos(1 / (1 + x * x)), np.arcsinh(x), np.arctan(x), np.arctan2(x, 2), np.cbrt(x), np.ceil(x), np.copysign(2, x),
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
        np.exp(x), 10.0**x, np.log(a), np.log2(a), np.log10(a), a**1.5, np.sin(x), np.cos(x), np.tan(x * 0.25), x / 3, 1 / x,
        np.sqrt(a), a**-0.5, x * x + 1, x + 1, x - 1, x * x, x / 3, np.clip(x, 0, 1),
    ]  # fmt: skip


FLOAT_BOUND = (6e-7, 2e-7)  # CUDA's float functions: up to 5 units in the last place (6e-8 each); sinpi, tgamma, lgamma the worst
FAST_BOUND = (3e-6, 6e-7)  # its fast ones: 2 + 3 |x| units for exponentials, 2^-21 absolute for sines and logarithms


@feature
def math_in_float():
    x = (np.arange(64, dtype="float32") - 31.6) / np.float32(10.3)  # -3.07 … 3.05, neither 0 nor 0.5
    exact, fast = _exact_functions(x.astype(float)), _fast_functions(x.astype(float))
    exact[5], exact[17], exact[31], exact[41] = np.ceil(x), np.floor(x), np.rint(x), np.trunc(x)
    want = np.array(exact + fast).astype("float32")
    counts = (len(exact), len(fast))
    bounds = tuple(np.repeat([exact_bound, fast_bound], counts) for exact_bound, fast_bound in zip(FLOAT_BOUND, FAST_BOUND, strict=True))
    yield Case("float_math", (2,), (32,), [x, empty(want.shape), 64], {1: want}, bounds)


@feature
def math_in_double():
    x = (np.arange(64) - 31.6) / 10.3
    a = np.abs(x)
    want = [
        np.exp(x), np.log(a), np.sqrt(a), a**-0.5, np.cbrt(x), np.sin(x), np.cos(x), np.tanh(x), a**1.5,
        x**3, _erf(x), np.floor(x), np.rint(x), x * x + 1, np.fmin(x, 0.5), np.fmax(x, 0.5), np.fmod(x, 0.75),
        np.hypot(x, 3), np.exp2(x), 10.0**x, np.log2(a), np.log1p(a), np.expm1(x), np.arctan2(x, 2), np.sin(np.pi * x), x * x,
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
    if mode != "rn" and np.isfinite(nearest) and int(nearest) != x if isinstance(x, int) else mode != "rn" and float(nearest) != x:
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
        _to_integer(d, round, *int32, -top), _to_integer(d, math.trunc, *uint32, top), _to_integer(d, math.ceil, *int64, -(2**63)),
        *(0 if math.isnan(d) else _direct(d, mode) for mode in ("rn", "rz", "ru", "rd")),
        _direct(n, "rn"), _direct(n, "rz"), _direct(small, "rn"), _direct(small, "rd"), _direct(positive, "ru"),
        _direct(n % 2**64, "rn"), int(np.float64(small).view("int64")),
    ]  # fmt: skip


@feature
def conversions_between_numbers():
    x = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 1e10, -1e10, 1e20, -1e20, np.inf, -np.inf, np.nan, 3.7, -3.7, 0.0, -0.0]
    x = np.array(x + [2147483520.0, -2147483648.0, 4294967040.0, 2147483648.0, 1e-30, -1e-30] + [1000.25] * 8, "float32")
    want = np.array([_conversions(float(x[i]), i) for i in range(32)], "int64").T
    nan = np.isnan(x)

    def judge(results):
        got = results[1].reshape(want.shape)
        bad = (got != want) & ~(nan & (np.arange(len(want)) // 4 == 3)[:, None])  # rows 12 … 15: the bits of a float NaN
        assert not bad.any(), [(int(r), float(x[c]), int(got[r, c]), int(want[r, c])) for r, c in np.argwhere(bad)[:5]]

    yield Case("conversions", (1,), (32,), [x, empty(want.shape, "int64"), 32], judge=judge)


# ---- half and bfloat16


@feature
def all_small_floats_widened():
    every = np.arange(65536).astype(np.uint16)
    for kind, dtype in SMALL.items():
        stored = every.view(np.float16) if dtype == torch.float16 else every
        yield Case(f"small_to_float<{kind}>", (256,), (256,), [stored, empty(65536)], {1: widened(every, dtype)})


def _hard_floats(kind: torch.dtype) -> np.ndarray:
    """All midpoints of neighbours of the type and their float neighbours on both sides (for subnormals and overflow too)."""
    table = np.unique(widened(np.arange(65536).astype(np.uint16), kind).astype(float))
    table = table[np.isfinite(table)][::7]
    middle = ((table[1:] + table[:-1]) / 2).astype("float32")
    largest = torch.finfo(kind).max
    extra = np.array([largest, largest * 1.0019, -largest * 1.0021, 3.4028235e38, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 0.0, -0.0])
    random = np.random.default_rng(7).integers(0, 2**32, 4096, "uint32").view("float32")
    with np.errstate(over="ignore"):
        low, high = np.nextafter(middle, np.float32(-np.inf)), np.nextafter(middle, np.float32(np.inf))
        x = np.concatenate([middle, low, high, random, extra.astype("float32")])
    return x[: len(x) // 256 * 256] if len(x) % 256 else x


@feature
def floats_rounded_to_small_ones():
    for (kind, dtype), name in zip(SMALL.items(), ("half", "bfloat16"), strict=True):
        x = _hard_floats(dtype)
        nearest = torch.from_numpy(x).to(dtype).view(torch.int16).numpy().view(np.uint16)
        below, above = neighbours(x, dtype)
        # the sign of a zero is the number's own
        down, up = (np.copysign(side, x.astype(float)) for side in (below, above))
        towards = np.where(x > 0, down, up)
        want = np.stack([nearest, *(bits_of(side, dtype) for side in (towards, up, down))])
        want[:, np.isnan(x)] = 0x7FFF
        stored = want.view(np.float16) if dtype == torch.float16 else want

        def judge(results, want=want, x=x, kind=kind):
            got = np.asarray(results[1]).view(np.uint16).reshape(want.shape)
            bad = got != want
            assert not bad.any(), [(kind, int(r), x[c], hex(got[r, c]), hex(want[r, c])) for r, c in np.argwhere(bad)[:5]]

        yield Case(f"float_to_{name}", (len(x) // 256,), (256,), [x, empty(want.shape, stored.dtype)], judge=judge)
    for kind, dtype in SMALL.items():
        x = _hard_floats(dtype)[:2048].astype(float)
        x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), x * (1 + 2.0**-30)])
        x = np.where(np.isnan(x), 1.0, x)
        want = as_stored(rounded(x, dtype), dtype)
        yield Case(f"double_to_small<{kind}>", (len(x) // 256,), (256,), [x, empty(len(x), want.dtype)], {1: want})


@feature
def arithmetic_of_small_floats():
    for kind, dtype in SMALL.items():
        rng = np.random.default_rng(8)
        a, b, c = (rounded(rng.standard_normal(32) * 3, dtype) for _ in range(3))
        a[0], b[0], c[0] = rounded(np.array([1.0078125, 1.5, -(2.0**-14)]), dtype)  # bfloat16: a product half way, nudged by c
        r = lambda value, dtype=dtype: rounded(value, dtype)  # noqa: E731
        half_away = r(a + b)
        exact = [
            a + b, a - b, a * b, a / b, -a, a + b, a - b, a * b, a * b + c, np.maximum(a, b), np.minimum(a, b), np.abs(a), -a,
            np.sqrt(np.abs(a)), np.floor(a), np.ceil(a), np.rint(a), np.trunc(a), a, r(half_away * 2) + 1,
            np.exp(a), np.log(np.abs(a)), np.sin(a), np.cos(a), 1 / a, np.abs(a) ** -0.5, np.exp2(a),
        ]  # fmt: skip
        want = np.stack([r(value) for value in exact])
        unit = float(torch.finfo(dtype).eps)
        slack = np.array([0.0] * 20 + [2.0 * unit] * 7)  # functions: a GPU's may be off by 2 units in the last place
        slack[[3, 13]] = unit  # division and square root

        def judge(results, want=want, slack=slack, dtype=dtype, kind=kind):
            got = widened(np.asarray(results[3]).view(np.uint16).reshape(-1), dtype).reshape(want.shape).astype(float)
            bad = ~(np.abs(got - want) <= slack[:, None] * np.maximum(np.abs(want), 0.1))
            assert not bad.any(), [(kind, int(i), int(j), got[i, j], want[i, j]) for i, j in np.argwhere(bad)[:5]]

        stored = [as_stored(x, dtype) for x in (a, b, c)]
        yield Case(f"small_arithmetic<{kind}>", (1,), (32,), [*stored, empty(want.shape, stored[0].dtype), 32], judge=judge)


@feature
def comparisons_of_small_floats():
    values = [1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0]
    a, b = (np.array(column) for column in zip(*[(x, y) for x in values for y in values][:64], strict=True))
    for kind, dtype in SMALL.items():
        with np.errstate(invalid="ignore"):
            want = (a == b) + 2 * (a != b) + 4 * (a < b) + 8 * (a <= b) + 16 * (a > b) + 32 * (a >= b) + 64 * (a == b)
            want = want + 128 * ~(a >= b) + 256 * np.isnan(a) + 512 * np.isinf(b)
        args = [as_stored(a, dtype), as_stored(b, dtype), empty(64, "int32")]
        yield Case(f"small_comparisons<{kind}>", (1,), (64,), args, {2: want.astype("int32")})


@feature
def pairs_of_small_floats():
    v = np.random.default_rng(9).integers(-8, 9, (32, 2)).astype(float)  # products and sums of these are exact
    w = np.roll(v, -1, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.maximum(v, w) / (v < w)
    rows = [
        v * w + 1 + np.stack([w[:, 0], v[:, 1]], axis=1), (v + w) * v[:, 1:] - w[:, ::-1], quotient, v + w,
        np.stack([np.ones(32), (v == w).all(axis=1)], axis=1),
    ]  # fmt: skip
    for kernel, dtype in zip(("half_pairs", "bfloat16_pairs"), SMALL.values(), strict=True):
        want = np.stack([rounded(row, dtype) for row in rows])

        def judge(results, want=want, dtype=dtype, kernel=kernel):
            got = widened(np.asarray(results[1]).view(np.uint16).reshape(-1), dtype).reshape(want.shape).astype(float)
            bad = ~((got == want) | (np.isnan(got) & np.isnan(want)))
            assert not bad.any(), [(kernel, *map(int, i), got[tuple(i)], want[tuple(i)]) for i in np.argwhere(bad)[:5]]

        first = as_stored(v, dtype)
        args = [first, empty((5, 32, 2), first.dtype), empty((32, 2))]
        yield Case(kernel, (1,), (32,), args, {2: (v + w).astype("float32")}, judge=judge)


@feature
def small_floats_and_integers():
    x = np.random.default_rng(10).integers(-3000, 3000, 32).astype("int32")
    x[:4] = [65519, 65520, -70000, 2049]
    half = torch.float16
    scaled = rounded((x.astype("float32") * np.float32(0.01)).astype(float), half)
    rows = [rounded(x, half), rounded(x, half), rounded(3.0 * x, half), -scaled]
    back = np.concatenate([np.rint(scaled) * 100 + np.trunc(scaled), np.trunc(scaled) + 1000 * (scaled != 0)])
    args = [x, empty((4, 32), "float16"), empty(64, "int32")]
    yield Case("half_integers", (1,), (32,), args, {1: as_stored(np.stack(rows), half), 2: back.astype("int32")})


# ---- cooperative groups


@feature
def groups_of_a_block():
    x = np.random.default_rng(11).integers(0, 100, 64).astype("int32")
    want = np.concatenate([np.full(64, 10 * x.sum() + 1), x.reshape(8, 8).sum(axis=1)]).astype("int32")
    yield Case("block_groups", (1,), (16, 4), [x, empty(72, "int32")], {1: want})


@feature
def tiles_of_a_warp():
    x = np.random.default_rng(12).integers(0, 64, 64).astype("int32")
    for size in TILES:
        tiles = x.reshape(-1, size)
        rank, tile = np.tile(np.arange(size), 64 // size), np.repeat(np.arange(64 // size), size)
        each = lambda values, size=size: np.repeat(values, size)  # noqa: E731
        scan = tiles.cumsum(axis=1)
        ballot = [_mask(row % 3 == 0) for row in tiles]
        want = [
            rank + 100 * tile + 10000 * (64 // size) + 1000000 * size, each(tiles[:, -1]),
            np.where(rank > 0, np.roll(x, 1), x), np.where(rank < size - 1, np.roll(x, -1), x),
            tiles[:, np.arange(size) ^ size // 2].ravel(), each((tiles > 60).any(axis=1) + 2 * (tiles > 5).all(axis=1)),
            each(ballot), each(tiles.sum(axis=1)), each(tiles.max(axis=1)), scan.ravel(), (scan - tiles).ravel(),
        ]  # fmt: skip
        want = (np.array(want).astype("int64") % 2**32).astype("uint32").view("int32")
        yield Case(f"tiles<{size}>", (1,), (64,), [x, empty((11, 64), "int32")], {1: want})
    t = np.arange(64)
    yield Case("tile_of_tile", (1,), (64,), [empty(64, "int32")], {0: (t // 8 % 4 * 100 + 41).astype("int32")})


@feature
def groups_of_active_lanes():
    x = np.random.default_rng(13).integers(-5, 9, 32).astype("int32")
    lanes = np.flatnonzero(x > 0)
    active = x[lanes]
    count = len(active)
    rows = [
        np.arange(count) + 100 * count, np.full(count, active[1]), np.concatenate([active[:1], active[:-1]]),
        np.concatenate([active[1:], active[-1:]]), np.full(count, _mask(active % 2)), np.full(count, active.sum()),
    ]  # fmt: skip
    want = empty((6, 32), "int32")
    want[:, lanes] = rows
    yield Case("coalesced", (1,), (32,), [x, empty((6, 32), "int32")], {1: want})


@feature
def barriers_of_the_grid():
    x = np.random.default_rng(14).integers(0, 100, 96).astype("int32")
    want = 2 * x[::-1] + np.repeat(np.arange(3), 32) * 1000 + 1
    args = [x, empty(96, "int32"), empty(96, "int32")]
    yield Case("whole_grid", (3,), (32,), args, {1: 2 * x, 2: want.astype("int32")}, cooperative=True)


SAID = "".join(
    [
        "plain\n",
        "%d %i %5d|%-5d|%05d %+d\n" % (-3, 4, 42, 42, 42, 42),
        "%d %x %X %o %#x\n" % (4000000000, 255, 255, 8, 255),
        "%d %d %x %d\n" % (1234567890123456789, 1234567890123456789, 1234567890123456789, -5),
        "%f %.3f %8.2f|%-8.1f| %e %.2e %g\n" % (1.5, -0.25, 1.5, -0.25, 12345.678, 0.00012, 1e10),
        "ok text      right|l   | 100%\n",
        "arguments 2\n",
        "2\n",  # CUDA's printf returns how many arguments it was given
    ]
)
