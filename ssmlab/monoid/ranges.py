"""The affine step, written down so that products of many decays neither vanish nor lose their digits.

    LOG_AFFINE      (log a, b): products become sums. Keeps the digits of decays near one; one exponential a combine
    SCALED_AFFINE   ((x, e), (y, f)) with a = x 2^e and b = y 2^f: no product and no state is too small to be held
    scaled, unscaled, log2_of       to and from such numbers

A float32 ends at 2^-149, and AFFINE multiplies decays with each other. Where only h is wanted that does no harm; where
one divides by a state or takes its logarithm it does. Notebook 08 compares the three.
"""
import numpy as np

from .algebra import Monoid


def _log_affine(first, second):
    (l1, b1), (l2, b2) = first, second
    return l1 + l2, np.exp(l2) * b1 + b2


# (l, b) stands for the step h -> exp(l) * h + b. l = -inf is a decay of 0.
LOG_AFFINE = Monoid("log affine", _log_affine, identity=(0, 0))


def scaled(numbers):
    """Numbers x as (m, e) with x = m 2^e exactly, 1/2 <= |m| < 1; zero is (0, 0). e is int32.

    >>> m, e = scaled(np.array([1.0, -0.375, 0.0]))
    >>> m.tolist(), e.tolist()
    ([0.5, -0.75, 0.0], [1, -1, 0])
    """
    return np.frexp(numbers)


def unscaled(pair):
    """The numbers themselves, as well as their type holds them: 0 or infinity where the exponent is out of range."""
    m, e = pair
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(m, e)


def log2_of(pair):
    """log2 |x|, also where x itself is too small or too large for its type; -inf for zero. float64."""
    m, e = pair
    with np.errstate(divide="ignore"):
        return np.log2(np.abs(np.asarray(m, np.float64))) + e


def _normal(m, e):
    """(m, e) with m brought back to [1/2, 1); all zeros are (0, 0)."""
    m, shift = np.frexp(m)
    return m, np.where(m == 0, 0, e + shift).astype(np.int32)[()]


def _times(first, second):
    (m1, e1), (m2, e2) = first, second
    return _normal(m1 * m2, e1 + e2)


def _plus(first, second):
    (m1, e1), (m2, e2) = first, second
    top = np.where(m1 == 0, e2, np.where(m2 == 0, e1, np.maximum(e1, e2)))  # the exponent of a zero says nothing
    return _normal(np.ldexp(m1, e1 - top) + np.ldexp(m2, e2 - top), top)


def _scaled_affine(first, second):
    (a1, b1), (a2, b2) = first, second
    return _times(a2, a1), _plus(_times(a2, b1), b2)


# Elements are (scaled(a), scaled(b)). Where AFFINE stays inside the range of its type, both give the same bits.
SCALED_AFFINE = Monoid("scaled affine", _scaled_affine, identity=((0.5, 1), (0.0, 0)))
