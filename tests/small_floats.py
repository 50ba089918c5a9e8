"""An oracle for half and bfloat16: a table of all their numbers, and the nearest of them by comparison."""

from __future__ import annotations

import numpy as np
import torch

KINDS = {"__half": torch.float16, "__nv_bfloat16": torch.bfloat16}


def widened(bits: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """uint16 bit patterns to float32."""
    return torch.from_numpy(bits.view(np.int16).copy()).view(kind).float().numpy()


def bits_of(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """Numbers that the type holds exactly, to bit patterns; NaN as a GPU makes it."""
    values = np.asarray(values, "float32")
    bits = torch.from_numpy(values).to(kind).view(torch.int16).numpy().view(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), bits)


def as_stored(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """As a kernel's argument: float16, or the bits of bfloat16 as uint16."""
    return bits_of(values, kind).view(np.float16 if kind == torch.float16 else np.uint16)


def numbers(kind: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """All finite numbers of the type, ascending, and whether their bit pattern is even.

    At both ends stands the number that would follow if the exponents went on: rounding there means infinity.
    """
    infinity = int(bits_of(np.inf, kind))
    positive = widened(np.arange(infinity).astype(np.uint16), kind).astype(float)
    positive = np.append(positive, 2 * positive[-1] - positive[-2])
    even = np.arange(infinity + 1) % 2 == 0
    return np.concatenate([-positive[:0:-1], positive]), np.concatenate([even[:0:-1], even])


def rounded(values: np.ndarray, kind: torch.dtype) -> np.ndarray:
    """float64 to the nearest number of the type, ties to the even bit pattern, as float64. Zeros keep the sign."""
    values = np.asarray(values, float)
    table, even = numbers(kind)
    middle = (table[1:] + table[:-1]) / 2  # exact in float64
    index = np.searchsorted(middle, values)  # of a value in the middle: the lower neighbour
    in_the_middle = middle[np.minimum(index, len(middle) - 1)] == values
    result = table[np.where(in_the_middle & ~even[index], index + 1, index)]
    result = np.where(np.abs(result) == table[-1], np.inf, np.abs(result))
    return np.where(np.isnan(values), np.nan, np.copysign(result, values))


def directed(values: np.ndarray, kind: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The largest number of the type that is <= each value and the smallest that is >= it, infinities included."""
    table, _ = numbers(kind)
    table = np.concatenate([[-np.inf], table[1:-1], [np.inf]])
    safe = np.where(np.isnan(values), 0.0, values)
    sides = table[np.searchsorted(table, safe, side="right") - 1], table[np.searchsorted(table, safe, side="left")]
    below, above = (np.where(np.isnan(values), np.nan, np.copysign(side, values)) for side in sides)
    return below, above
