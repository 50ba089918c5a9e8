"""Rounding made visible: bfloat16 and float16 numbers kept in float32 arrays, and errors in units of the last place."""

import numpy as np


def to_bfloat16(x):
    """float32 numbers rounded to the nearest bfloat16 (ties to even), as float32: 8 significant bits, finite x.

    >>> to_bfloat16(np.float32([0.999, 0.25075, 1.0])).tolist()
    [1.0, 0.25, 1.0]
    """
    bits = np.asarray(x, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (bits + half & np.uint32(0xFFFF0000)).view(np.float32)


def to_bfloat16_at_random(x, rng):
    """float32 numbers rounded to one of the two bfloat16 beside them, more often to the nearer: right on average."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    dice = rng.integers(0, 1 << 16, bits.shape, dtype=np.uint32)
    return (bits + dice & np.uint32(0xFFFF0000)).view(np.float32)


def to_float16(x):
    """float32 numbers rounded to float16, as float32: 11 significant bits, 65504 at most."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def flushed(x):
    """float32 numbers with subnormals replaced by zero, as a GPU does it under -ftz=true."""
    x = np.asarray(x, np.float32)
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)


def ulps(computed, exact):
    """(computed - exact) in units of the last place of the float32 nearest to `exact` (float64)."""
    return (computed.astype(np.float64) - exact) / np.spacing(np.abs(exact.astype(np.float32)))


def root_mean_square(errors, axis=-1):
    return np.sqrt(np.mean(np.square(errors), axis=axis))
