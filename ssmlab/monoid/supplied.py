"""The monoids of this workbook. All of them are written "first, then second"; most do not commute."""
import operator

import numpy as np

from .algebra import Monoid
from .sequences import each

SUM = Monoid("addition", operator.add, identity=0)
CONCAT = Monoid.elementwise("concatenation", operator.add, identity="")


def _affine(first, second):
    (a1, b1), (a2, b2) = first, second
    return a2 * a1, a2 * b1 + b2


# (a, b) stands for the step h -> a * h + b: scalars, or a state of many channels, each on its own.
AFFINE = Monoid("affine", _affine, identity=(1, 0))


def _max_plus(first, second):
    (a1, b1), (a2, b2) = first, second
    return a2 + a1, np.maximum(a2 + b1, b2)


# (a, b) stands for the step h -> max(a + h, b): AFFINE with + for * and max for +, as in dynamic programming.
MAX_PLUS = Monoid("max-plus", _max_plus, identity=(0, -np.inf))


def matrix(k):
    """k x k matrices, shape (length, k, k), as steps h -> M h: `first`, then `second` is second @ first.

    Work k³ products a combine.
    """
    return Monoid(f"{k}x{k} matrices", lambda first, second: second @ first, identity=np.eye(k, dtype=int))


MATRIX_2X2 = matrix(2)


def matrix_affine(k):
    """Pairs (A, b), shapes (length, k, k) and (length, k), as steps h -> A h + b on a state of k numbers that mix.

    >>> from ssmlab.monoid import companion, hillis_steele
    >>> _, states = hillis_steele(matrix_affine(2), companion([1, 1], [1, 0, 0, 0, 0, 0])).values
    >>> states[:, 0]
    array([1, 1, 2, 3, 5, 8])
    """
    def combine(first, second):
        (A1, b1), (A2, b2) = first, second
        return A2 @ A1, (A2 @ b1[..., None])[..., 0] + b2

    return Monoid(f"{k}x{k} affine", combine, identity=(np.eye(k, dtype=int), np.zeros(k, int)))


def companion(coefficients, inputs):
    """The recurrence h[t] = c[0] h[t-1] + … + c[k-1] h[t-k] + u[t] as items (A, b) for `matrix_affine(k)`.

    coefficients   (k,), or (length, k) if they change with time
    inputs         (length,)

    Returns A (length, k, k) and b (length, k). The state is (h[t], …, h[t-k+1]): column 0 of the scanned b is h,
            from a zero state.
    """
    u = np.asarray(inputs)
    c = np.asarray(coefficients)
    k = c.shape[-1]
    if c.shape not in ((k,), (len(u), k)):
        raise ValueError(f"coefficients have shape {c.shape}: it must be (k,) or (length, k), here ({len(u)}, k)")
    dtype = np.result_type(c, u)
    A = np.zeros((len(u), k, k), dtype)
    A[:, 0, :] = c
    A[:, range(1, k), range(k - 1)] = 1
    b = np.zeros((len(u), k), dtype)
    b[:, 0] = u
    return A, b


def segmented(monoid):
    """The same operation that starts afresh wherever a flag is set: packed sequences in one scan.

    Items are (starts, items). starts (length,) of bool is True at the first step of each sequence; with reverse=True at
    the first that the scan meets, which is the last in time.

    >>> from ssmlab.monoid import SUM, hillis_steele
    >>> _, sums = hillis_steele(segmented(SUM), ([True, False, False, True, False], [1, 1, 1, 1, 1])).values
    >>> sums
    array([1, 2, 3, 1, 2])
    """
    def combine(first, second):
        (started, x), (starts, y) = first, second
        if np.ndim(starts) == 0:                            # single elements
            return bool(started or starts), y if starts else monoid.combine(x, y)
        joined = monoid.combine_slices(x, y)

        def restart(fresh, old):
            return np.where(starts.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, old)
        return started | starts, each(restart, y, joined)

    identity = None if monoid.identity is None else (False, monoid.identity)
    return Monoid(f"segmented {monoid.name}", combine, identity)
