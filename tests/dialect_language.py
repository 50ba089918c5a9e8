"""The language, memory spaces, order and vectors."""

from __future__ import annotations

import numpy as np
from dialect_case import Case, empty, feature

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
    yield Case(
        "last_block",
        (6,),
        (32,),
        args,
        {1: parts, 2: np.zeros(1, "uint32"), 3: parts.sum(keepdims=True, dtype="int32")},
    )


@feature
def clocks_go_forward():
    yield Case("clocks", (1,), (32,), [empty(32, "int32")], {0: np.ones(32, "int32")})


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
    args = [
        x,
        empty((32, 4)),
        empty((32, 2), "float64"),
        empty((32, 4), "uint8"),
        empty((32, 2), "int16"),
        empty((32, 3)),
    ]
    yield Case("vectors", (1,), (32,), args, want)
    flat = np.arange(128, dtype="float32")
    yield Case("reinterpreted", (1,), (32,), [flat, empty(32)], {1: flat[4 * t + 2] + flat[2 * t + 1]})


@feature
def vectors_in_functions_operators_bindings_and_templates():
    t = np.arange(32)
    x = np.arange(128, dtype="float32").reshape(32, 4)
    pairs = np.arange(64, dtype="float32").reshape(32, 2)
    picked = np.array([[1, 2], [3, 4]], "float32")[t % 2]
    want = x + np.array([1, 2, 3, 4], "float32") + 1 + np.concatenate([picked, pairs[::-1]], axis=1)
    args = [x, pairs, empty((32, 4)), empty(32, "float16")]
    yield Case("vectors_in_use", (1,), (32,), args, {2: want, 3: (31 - t + 0.5).astype("float16")}, shared=64)


@feature
def vector_sizes_and_alignments():
    want = (
        [1, 1, 2, 2, 3, 1, 4, 4, 2, 2, 4, 4, 6, 2, 8, 8]  # char, short
        + [4, 4, 8, 8, 12, 4, 16, 16, 8, 8, 16, 16, 24, 8]  # int, long long
        + [4, 4, 8, 8, 12, 4, 16, 16, 8, 8, 16, 16, 24, 8, 12, 4, 12, 4]  # float, double, dim3, uint3
    )
    yield Case("vector_sizes", (1,), (1,), [empty(48, "int32")], {0: np.array(want, "int32")})


SAID = """plain
-3 4    42|42   |00042 +42
4000000000 ff FF 10 0xff
1234567890123456789 1234567890123456789 112210f47de98115 -5
1.500000 -0.250     1.50|-0.2    | 1.234568e+04 1.20e-04 1e+10
ok text      right|l   | 100%
arguments 2
2
"""  # the last line: CUDA's printf returns how many arguments it was given
