"""A launch of a kernel of dialect.cu and what it must leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from small_floats import KINDS

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

TILES = (32, 16, 8, 4, 2, 1)
EXPRESSIONS = (
    *(f"shuffles<{kind}>" for kind in SHUFFLED),
    *(f"integer_atomics<{kind}>" for kind in INTEGERS),
    *(f"real_atomics<{kind}>" for kind in ("float", "double")),
    *(f"tiles<{size}>" for size in TILES),
    *(
        f"{kernel}<{kind}>"
        for kernel in ("small_to_float", "double_to_small", "small_arithmetic", "small_comparisons")
        for kind in KINDS
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
                    near = (
                        np.abs(got.astype(float) - want.astype(float))
                        <= relative * np.abs(want.astype(float)) + absolute
                    )
                same = near | (got == want) | ((got != got) & (want != want))
            where = np.argwhere(~same)[:5]
            assert same.all(), f"{self.kernel}: argument {index} differs at " + ", ".join(
                f"{tuple(map(int, place))}: {got[tuple(place)]!r} instead of {want[tuple(place)]!r}" for place in where
            )
        if self.judge is not None:
            self.judge(results)


def feature(cases):
    """Marks a function without arguments that yields the launches of one feature; its name is the feature's."""
    cases.is_feature = True
    return cases


def empty(shape, dtype="float32"):
    """Filled with a value that no kernel writes."""
    return np.full(shape, 77, dtype)
