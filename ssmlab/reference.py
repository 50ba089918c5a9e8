"""Sequential loops in float64 that are obviously right. NumPy only; nothing of what they judge is imported here."""
import numpy as np


def scan(a, b, initial_state=None, *, dim=1, reverse=False):
    """Solve h[t] = a[t] * h[t-1] + b[t] one step after the other.

    a, b            (batch, length, channels...), equal shapes; time stands on axis `dim`, other axes may lead or trail
    initial_state   the shape of a without axis `dim`: the state before the first step; None means zeros
    reverse         run from the end: h[t] = a[t] * h[t+1] + b[t], and initial_state stands after the last step

    Returns h, shaped like a, and final, shaped like the initial state: the state after the last step taken.
            Length 0 gives an empty h, and final is the initial state. Both are new arrays of float64
            (complex128 for complex inputs; object arrays, e.g. of Fractions, stay exact).
    Raises  ValueError if shapes differ (both are quoted) or dim is no axis of a.
    Source  Martin & Cundy 2018, arXiv 1709.04057, equation 5.

    >>> h, final = scan([[1, 1.5, 0.8, 2]], [[1, -1, 0.5, 2]])
    >>> h
    array([[1. , 0.5, 0.9, 3.8]])
    >>> final
    array([3.8])
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        raise ValueError(f"a has shape {a.shape}, b has {b.shape}: they must be equal")
    if not -a.ndim <= dim < a.ndim:
        raise ValueError(f"dim is {dim}, a has {a.ndim} axes: dim must be one of {list(range(a.ndim))}")
    a, b = np.moveaxis(a, dim, 0), np.moveaxis(b, dim, 0)
    state = np.zeros(a.shape[1:], int) if initial_state is None else np.asarray(initial_state)
    if state.shape != a.shape[1:]:
        raise ValueError(f"initial_state has shape {state.shape}: it must be {a.shape[1:]}, a without axis {dim}")
    dtype = np.result_type(a, b, state, np.float64)
    a, b = a.astype(dtype), b.astype(dtype)

    h = np.empty(a.shape, dtype)
    last = state
    steps = range(len(a))
    for t in reversed(steps) if reverse else steps:
        last = a[t] * last + b[t]
        h[t] = last
    return np.moveaxis(h, 0, dim), np.array(last, dtype)
