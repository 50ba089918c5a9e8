"""Shuffles, votes, atomics and cooperative groups."""

from __future__ import annotations

import numpy as np
from dialect_case import INTEGERS, SHUFFLED, TILES, Case, empty, feature
from small_floats import KINDS, bits_of

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
            np.full(32, 5), (7 * lane + 3) % 32, start(8) + (lane + 1) % 8, up(1, 32), up(5, 8), down(3, 32),
            down(2, 16),
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
    yield Case(
        "votes", (1,), (32,), [x, empty((10, 32), "uint32")], {1: np.array(want).astype("int64").astype("uint32")}
    )


@feature
def reductions_of_a_warp():
    x = np.random.default_rng(5).integers(-1000, 1000, 32).astype("int32")
    u = x.view("uint32")
    want = [
        x.sum(),
        x.min(),
        x.max(),
        u.max(),
        np.bitwise_and.reduce(u),
        np.bitwise_or.reduce(u),
        np.bitwise_xor.reduce(u),
    ]
    want = np.array([int(value) & 0xFFFFFFFF for value in want]).astype("uint32").view("int32")
    yield Case("warp_reductions", (1,), (32,), [x, empty((7, 32), "int32")], {1: np.repeat(want, 32).reshape(7, 32)})


# ---- atomics


def _is_one_chain(start: int, olds: list[int], after: list[int], end: int, what: str) -> None:
    """Each operation saw what another one left: the values seen and left are the same, but for start and end."""
    assert sorted([*olds, end]) == sorted([start, *after]), f"{what}: from {start}, saw {sorted(olds)}, left {end}"


@feature
def atomics_on_integers_in_global_and_shared_memory():
    lanes = np.arange(32)
    for kind, dtype in INTEGERS.items():
        wide = 8 * np.dtype(dtype).itemsize
        start = [100, 5, 50, 7, 0xFFFF, 0, 0xAAAA, 1]
        steps = [
            lambda old, t: old + t * 37 % 64, lambda old, t: max(old, t * 37 % 64),
            lambda old, t: min(old, t * 37 % 64),
            lambda old, t: t + 1, lambda old, t: old & ~(1 << t % 16), lambda old, t: old | 1 << t % 16,
            lambda old, t: old ^ 1 << t % 16, lambda old, t: old + 2,
        ]  # fmt: skip

        def judge(results, kind=kind, wide=wide, start=start, steps=steps):
            cells, olds = results[0].tolist(), results[1].reshape(2, 8, 32).tolist()
            for space in range(2):
                for row, step in enumerate(steps):
                    seen = olds[space][row]
                    after = [step(old, t) % 2**wide for old, t in zip(seen, lanes.tolist(), strict=True)]
                    _is_one_chain(
                        start[row], seen, after, cells[8 * space + row], f"{kind}, space {space}, operation {row}"
                    )
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
        assert results[0].tolist() == [1000 - 496, 32, 31]
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
    half, bfloat16 = KINDS.values()
    args = [np.zeros(2, "float16"), np.zeros(2, "float16"), np.zeros(2, "uint16"), np.zeros(2, "uint16")]
    want = {
        0: np.array([16, 0], "float16"),
        1: np.array([32, -64], "float16"),
        2: bits_of([64.0, 0.0], bfloat16),
        3: bits_of([32.0, 8.0], bfloat16),
    }
    yield Case("small_atomics", (1,), (32,), args, want)


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
