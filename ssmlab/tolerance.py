"""How far may a scan in floating point be from the exact one? Counted from its roundings; NumPy only.

    scan_bound(a, b)                        for each h[t] a bound on its error, whatever the order of combines
    relative_tolerance(memory, length)      the same without the data, relative to the largest |h|: for tests
    remembered(a, b)                        [steps] the mean age of what a state consists of
    exponential(x)                          what a decay exp(x) adds to that

The idea. b[j] reaches h[t] through k = t - j multiplications and some additions. Each rounds, by a factor 1 + d with
|d| <= u, the unit roundoff: 2^-24 for float32. So the part of h[t] that came from b[j] is off by a factor of at most
(1 + u)^n - 1, where n is that count. Brackets may stand anywhere: there are k multiplications in any case, fusing them
with additions only saves roundings, and the additions are k + 1 in a loop and at most the depth in a tree. What is left
is to add up the parts, which is itself a scan.
"""
from math import ceil, log2

import numpy as np

from . import reference

UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}  # rounding to nearest


def scan_bound(a, b, initial_state=None, *, unit=UNIT["float32"], depth=None, decay=0, inputs=0, dim=1):
    """A bound on |computed h - exact h| for h[t] = a[t] * h[t-1] + b[t], however it is bracketed, fused or not.

    a, b            (batch, length, channels...), time on axis `dim`: the exact ones
    initial_state   the shape of a without axis dim; None means zeros
    unit            unit roundoff u of the arithmetic: one rounding changes a number by a factor 1 + d, |d| <= u
    depth           [additions] at most, between any b[j] and any h[t]. None: t - j of the loop and 2 ceil(log2 length)
                    + 1 of a tree that goes up and down again, together: it holds for both and for what mixes them
    decay           relative error of the a that were used, in units of u: a number, or an array like a; `exponential`
    inputs          relative error of the b that were used, in units of u

    Returns the bound, float64, shaped like a. It counts the worst case, where all roundings go the same way.
    Raises  ValueError if shapes differ, or if so many roundings pile up that there is no bound (u times them >= 1).
    Source  the model of Higham, Accuracy and Stability of Numerical Algorithms, chapter 3, applied to the recurrence.

    >>> scan_bound(np.ones((1, 4)), np.ones((1, 4)), unit=1e-9, depth=2).round(10)
    array([[2.0e-09, 5.0e-09, 9.0e-09, 1.4e-08]])
    """
    a, b = np.abs(np.asarray(a, np.float64)), np.abs(np.asarray(b, np.float64))
    decay = np.broadcast_to(np.asarray(decay, np.float64), a.shape)
    parts, before = _parts(a, b, initial_state, dim)
    count = reference.scan(a, a * (1 + decay) * before, dim=dim)[0] + inputs * parts        # multiplications
    most = depth
    if depth is None:
        most = a.shape[dim] + _up_and_down(a.shape[dim])
        count += reference.scan(a, a * before, dim=dim)[0] + _up_and_down(a.shape[dim]) * parts
    else:
        count += depth * parts
    pile = unit * (most + inputs + np.max(np.cumsum(1 + decay, axis=dim), initial=0))
    if not pile < 1:
        raise ValueError(f"unit is {unit:g}, and up to {pile / unit:.0f} roundings pile up: there is no bound any more")
    return unit * count / (1 - pile)


def relative_tolerance(memory, length, *, unit=UNIT["float32"], decay=0):
    """|computed h - exact h| over the largest |h| that a right scan may show, for inputs b of one sign.

    memory   [steps] that a state remembers: 1 / (1 - a) for decays up to a; infinite for plain sums
    length   [steps]
    unit     unit roundoff of the arithmetic
    decay    relative error of each decay in units of u, see `exponential`

    Two roundings and one decay a remembered step, and the additions of a tree.

    >>> f"{relative_tolerance(20, 1000):.1e}, {relative_tolerance(1000, 1000):.1e}"
    '3.6e-06, 1.2e-04'
    """
    pile = unit * ((2 + decay) * length + _up_and_down(length))
    if not pile < 1:
        raise ValueError(f"length is {length}, unit {unit:g}: so many roundings may leave nothing of a number")
    return unit * ((2 + decay) * min(memory, length) + _up_and_down(length)) / (1 - pile)


def remembered(a, b, initial_state=None, *, dim=1):
    """[steps] the mean age of what each h[t] consists of: how many decays a part has passed, weighted by its size.

    A constant a and b tend to a / (1 - a), plain sums to half their length.

    >>> remembered(np.full((1, 500), 0.9), np.ones((1, 500)))[:, -1].round(3)
    array([9.])
    """
    a, b = np.abs(np.asarray(a, np.float64)), np.abs(np.asarray(b, np.float64))
    parts, before = _parts(a, b, initial_state, dim)
    ages, _ = reference.scan(a, a * before, dim=dim)
    return np.divide(ages, parts, out=np.zeros_like(ages), where=parts > 0)


def exponential(x, *, roundings=1, ulp=1):
    """Relative error of exp(x) in units of u, for `decay` above.

    roundings   of the exponent: 1 for exp(delta * A), 2 for exp2(delta * (A * log2 e)). Each moves x by up to u |x|.
    ulp         [ulp] error of the function itself: 1 for a good expf, 2.5 for a GPU's. One ulp is up to 2 u.
    """
    return roundings * np.abs(x) + 2 * ulp


def _up_and_down(length):
    return 2 * ceil(log2(max(length, 1))) + 1


def _parts(a, b, initial_state, dim):
    """What h consists of, all parts positive, and the same one step before, the initial state (or zeros) in front."""
    start = None if initial_state is None else np.abs(np.asarray(initial_state, np.float64))
    parts, _ = reference.scan(a, b, start, dim=dim)
    moved = np.moveaxis(parts, dim, 0)
    first = np.zeros((1, *moved.shape[1:])) if start is None else start[None]
    return parts, np.moveaxis(np.concatenate([first, moved])[:len(moved)], 0, dim)
