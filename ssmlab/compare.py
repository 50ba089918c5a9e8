"""Where two results part, and which stage of a chunked scan that points to. NumPy only.

    print(first_difference(h, want, chunk=256, a=a, b=b))
    step 256 of row (0,): chunk 1, offset 0; got 0.25, want 0.75
    carry: chunk 1 started from 0.5, its own total, instead of 1.0 ...

A wrong number late in a row is usually a wrong number earlier: only the first one tells where it comes from. Inside the
first chunk nothing was carried, so the scan inside a block is wrong. At the first step of a later chunk the state that
entered it is wrong, and a and b tell which state that was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Difference:
    """The first step at which two results differ, and what it points to.

    step, row       place on the time axis; place on the other axes, in order
    chunk, offset   step = chunk * (steps of a chunk) + offset, in the order of the scan
    got, want       the two numbers
    stage           "race", "block scan", "carry missing", "carry: last local element", "carry: own total",
                    "carry: off by one", "carry: wrong total", "initial state"
    words           what that means
    """

    step: int
    row: tuple[int, ...]
    chunk: int
    offset: int
    got: float
    want: float
    stage: str
    words: str

    def __str__(self):
        where = f"step {self.step} of row {self.row}: chunk {self.chunk}, offset {self.offset}"
        return f"{where}; got {self.got:.6g}, want {self.want:.6g}\n{self.stage}: {self.words}"


def first_difference(got, want, *, chunk, a=None, b=None, initial_state=None, again=None, dim=1, reverse=False,
                     tolerance=1e-5):  # fmt: skip
    """The first Difference between two results of a scan in chunks, or None if they agree.

    got, want       (batch, length, channels...), time on axis `dim`; anything NumPy can read
    chunk           [steps] between carries
    a, b            the inputs; with them the entering state of a wrong chunk is worked out and named
    initial_state   of the scan; None: zeros
    again           `got` of a second run on the same inputs: if it differs, the fault is a race
    tolerance       relative to the largest |want|; a NaN where none is wanted always differs

    Raises ValueError if shapes differ or chunk < 1.

    >>> a, b = np.full((1, 8), 0.5), np.ones((1, 8))
    >>> want = np.array([[1, 1.5, 1.75, 1.875, 1.9375, 1.96875, 1.984375, 1.9921875]])
    >>> got = np.array([[1, 1.5, 1.75, 1.875, 1, 1.5, 1.75, 1.875]])
    >>> print(first_difference(got, want, chunk=4, a=a, b=b))
    step 4 of row (0,): chunk 1, offset 0; got 1, want 1.9375
    carry missing: chunk 1 began from 0, as if nothing came before it; it should begin from 1.875
    """
    if not chunk >= 1:
        raise ValueError(f"chunk is {chunk}: it must be at least 1 step")
    arrays = {"got": got, "want": want, "a": a, "b": b, "again": again}
    arrays = {name: _time_first(array, dim, reverse) for name, array in arrays.items() if array is not None}
    shape = arrays["want"].shape
    for name, array in arrays.items():
        if array.shape != shape:
            raise ValueError(f"{name} and want have different shapes (time first): {array.shape} and {shape}")
    found = _first(arrays["got"], arrays["want"], tolerance)
    if found is None:
        return None
    position, row = found
    length = shape[0]
    mine = {name: array[(slice(None), *row)] for name, array in arrays.items()}
    start = 0.0 if initial_state is None else float(np.asarray(initial_state, float)[row])
    scale = max(float(np.max(np.abs(arrays["want"][np.isfinite(arrays["want"])]), initial=0)), 1e-300)
    stage, words = _blame(mine, position, chunk, start, tolerance * scale)
    step = length - 1 - position if reverse else position
    number, offset = divmod(position, chunk)
    numbers = float(mine["got"][position]), float(mine["want"][position])
    return Difference(step, row, number, offset, *numbers, stage, words)


def _time_first(array, dim, reverse):
    array = np.moveaxis(np.asarray(array, dtype=float), dim, 0)
    return array[::-1] if reverse else array


def _first(got, want, tolerance):
    """(position, row) of the first step that differs; of its rows the first. None: they agree."""
    if got.size == 0:
        return None
    finite = want[np.isfinite(want)]
    allowed = tolerance * max(float(np.max(np.abs(finite), initial=0)), 1e-300)
    with np.errstate(invalid="ignore"):
        close = (np.abs(got - want) <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want))
    steps = np.flatnonzero(~close.reshape(len(close), -1).all(axis=1))
    if steps.size == 0:
        return None
    position = int(steps[0])
    rows = np.argwhere(~np.atleast_1d(close[position]).reshape(close.shape[1:] or (1,)))
    return position, tuple(int(index) for index in rows[0]) if close.ndim > 1 else ()


def _blame(mine, position, chunk, start, allowed):
    number, offset = divmod(position, chunk)
    again = mine.get("again")
    if again is not None and not np.array_equal(again, mine["got"], equal_nan=True):
        first = int(np.flatnonzero(~((again == mine["got"]) | (np.isnan(again) & np.isnan(mine["got"]))))[0])
        return "race", (
            f"a second run on the same numbers differs from the first from position {first} on: "
            "a barrier, a fence or a flag is missing"
        )
    if number == 0:
        if position == 0 and start != 0:
            return "initial state", f"the very first step is wrong: the scan should begin from {start:.6g}"
        lane = "between two warps" if offset and offset % 32 == 0 else "inside the block"
        return "block scan", f"nothing has been carried yet in the first chunk: the scan {lane} is wrong"
    if offset:
        lane = " Step 32, 64, ... of a chunk begins a new warp." if offset % 32 == 0 else ""
        return "block scan", f"chunk {number} began right and went wrong inside: the carry is good.{lane}"
    if "a" not in mine or "b" not in mine:
        return "carry: wrong total", f"a wrong state entered chunk {number} (give a and b to learn which it was)"
    return _which_carry(mine, number, chunk, start, allowed)


def _which_carry(mine, number, chunk, start, allowed):
    """Compare the state that must have entered the chunk with those that usual mistakes would bring."""
    a, b, got, want = mine["a"], mine["b"], mine["got"], mine["want"]
    length = len(a)

    def totals(k):
        steps = range(k * chunk, min((k + 1) * chunk, length))
        decay, local = 1.0, 0.0
        for t in steps:
            decay, local = a[t] * decay, a[t] * local + b[t]
        return decay, local

    right = want[number * chunk - 1]
    before = want[(number - 1) * chunk - 1] if number > 1 else start
    decay, local = totals(number)
    after = want[min((number + 1) * chunk, length) - 1]
    first = number * chunk
    names = {
        "carry missing": (0.0, "0, as if nothing came before it"),
        "carry: last local element": (totals(number - 1)[1], "the last local element of the chunk before, its B alone"),
        "carry: own total": (decay * before + local, "its own total applied to the state before the chunk before"),
        "carry: off by one": (before, "the state before the chunk before: the index is one too small"),
        "carry: off by one ": (after, "the state behind itself: the index is one too large"),
    }
    for name, (state, meaning) in names.items():
        if abs(a[first] * state + b[first] - got[first]) <= allowed:
            return name.strip(), f"chunk {number} began from {meaning}; it should begin from {right:.6g}"
    entered = (got[first] - b[first]) / a[first] if a[first] else float("nan")
    return "carry: wrong total", f"chunk {number} began from {entered:.6g}; it should begin from {right:.6g}"
