"""half and bfloat16."""

from __future__ import annotations

import numpy as np
import torch
from dialect_case import Case, empty, feature
from small_floats import KINDS, as_stored, bits_of, directed, numbers, rounded, widened

# ---- half and bfloat16


@feature
def all_small_floats_widened():
    every = np.arange(65536).astype(np.uint16)
    for kind, dtype in KINDS.items():
        stored = every.view(np.float16) if dtype == torch.float16 else every
        yield Case(f"small_to_float<{kind}>", (256,), (256,), [stored, empty(65536)], {1: widened(every, dtype)})


def _hard_floats(kind: torch.dtype) -> np.ndarray:
    """Midpoints of neighbours of the type and the floats on both sides of them, subnormals and overflow included."""
    table, _ = numbers(kind)
    middle = ((table[1:] + table[:-1]) / 2).astype("float32")[::7]
    random = np.random.default_rng(7).integers(0, 2**32, 4096, "uint32").view("float32")
    largest = torch.finfo(kind).max
    x = [largest, largest * 1.0019, -largest * 1.0021, 3.4028235e38, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 0.0, -0.0]
    x += [*middle, *np.nextafter(middle, -largest), *np.nextafter(middle, largest), *random[~np.isnan(random)]]
    return np.array(x[: len(x) // 256 * 256], "float32")


@feature
def floats_rounded_to_small_ones():
    for (kind, dtype), name in zip(KINDS.items(), ("half", "bfloat16"), strict=True):
        x = _hard_floats(dtype)
        down, up = directed(x.astype(float), dtype)
        rows = rounded(x.astype(float), dtype), np.where(x > 0, down, up), up, down
        want = np.stack([bits_of(row, dtype) for row in rows])
        stored = want.view(np.float16) if dtype == torch.float16 else want

        def judge(results, want=want, x=x, kind=kind):
            got = np.asarray(results[1]).view(np.uint16).reshape(want.shape)
            bad = got != want
            assert not bad.any(), [
                (kind, int(r), x[c], hex(got[r, c]), hex(want[r, c])) for r, c in np.argwhere(bad)[:5]
            ]

        yield Case(f"float_to_{name}", (len(x) // 256,), (256,), [x, empty(want.shape, stored.dtype)], judge=judge)
    for kind, dtype in KINDS.items():
        x = _hard_floats(dtype)[:2048].astype(float)
        x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), x * (1 + 2.0**-30)])
        want = as_stored(rounded(x, dtype), dtype)

        infinity = bits_of([np.inf], dtype)[0]

        def judge(results, want=want, x=x, infinity=infinity):
            # which NaN is not said: CUDA's header makes 0x7FFF, the conversion instruction of sm_90 makes 0x7FC0
            got, right = (np.asarray(row).view(np.uint16) for row in (results[1], want))
            same = (got == right) | (((got & 0x7FFF) > infinity) & ((right & 0x7FFF) > infinity))
            assert same.all(), [(x[i], hex(got[i]), hex(right[i])) for i in np.flatnonzero(~same)[:5]]

        yield Case(f"double_to_small<{kind}>", (len(x) // 256,), (256,), [x, empty(len(x), want.dtype)], judge=judge)


@feature
def arithmetic_of_small_floats():
    for kind, dtype in KINDS.items():
        rng = np.random.default_rng(8)
        a, b, c = (rounded(rng.standard_normal(32) * 3, dtype) for _ in range(3))
        a[0], b[0], c[0] = 1.0078125, 1.5, -(2.0**-14)  # bfloat16: the product is half way, and c decides
        r = lambda value, dtype=dtype: rounded(value, dtype)  # noqa: E731
        half_away = r(a + b)
        exact = [
            a + b, a - b, a * b, a / b, -a, a + b, a - b, a * b, a * b + c, np.maximum(a, b), np.minimum(a, b),
            np.abs(a), -a,
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
        yield Case(
            f"small_arithmetic<{kind}>", (1,), (32,), [*stored, empty(want.shape, stored[0].dtype), 32], judge=judge
        )


@feature
def comparisons_of_small_floats():
    values = [1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0]
    a, b = (np.array(column) for column in zip(*[(x, y) for x in values for y in values][:64], strict=True))
    for kind, dtype in KINDS.items():
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
    for kernel, dtype in zip(("half_pairs", "bfloat16_pairs"), KINDS.values(), strict=True):
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
