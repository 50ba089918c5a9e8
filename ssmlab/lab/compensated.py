"""The recurrence as a loop in float32, plain and with its rounding errors kept.

    loop, fused, kahan, neumaier, in_float64      (a, b) -> h, all (length, ...) float32, time on axis 0, from zero

What rounding takes from a product or a sum is itself a float (barring underflow), so it can be computed and kept. Both
compensated loops carry it in a second number, which decays along with the state: it is what the state lacks. `kahan`
gives it back with the next input, `neumaier` only where the state is read.
Source   Kahan, "Further remarks on reducing truncation errors", 1965, and Neumaier 1974, for sums; here the rounding of
         the multiplication is kept as well.
"""

import numpy as np


def loop(a, b):
    """h = a * h + b with two roundings a step."""
    return _walk(a, b, lambda a, h, b: a * h + b)


def fused(a, b):
    """h = fma(a, h, b) with one rounding a step: a * h is exact in float64."""
    return _walk(a, b, lambda a, h, b: (_wide(a) * h + b).astype(np.float32))


def in_float64(a, b):
    """The state in float64, rounded when it is handed out."""
    h, state = np.empty_like(b), np.zeros(b.shape[1:])
    for t in range(len(b)):
        state = a[t] * state + b[t]
        h[t] = state
    return h


def kahan(a, b):
    """What a step loses comes back with the next input. It fails where an input is larger than the state."""
    h, state, lost = np.empty_like(b), np.zeros_like(b[0]), np.zeros_like(b[0])
    for t in range(len(b)):
        kept = a[t] * state
        lost = a[t] * lost + (_wide(a[t]) * state - kept).astype(np.float32)
        add = b[t] + lost
        state = kept + add
        lost = add - (state - kept)
        h[t] = state
    return h


def neumaier(a, b):
    """What a step loses, from whichever side it came, is kept beside the state and added where the state is read."""
    h, state, lost = np.empty_like(b), np.zeros_like(b[0]), np.zeros_like(b[0])
    for t in range(len(b)):
        kept = a[t] * state
        lost = a[t] * lost + (_wide(a[t]) * state - kept).astype(np.float32)
        state = kept + b[t]
        lost += np.where(np.abs(kept) >= np.abs(b[t]), (kept - state) + b[t], (b[t] - state) + kept)
        h[t] = state + lost
    return h


def _walk(a, b, step):
    h, state = np.empty_like(b), np.zeros_like(b[0])
    for t in range(len(b)):
        state = step(a[t], state, b[t])
        h[t] = state
    return h


def _wide(x):
    return np.asarray(x, np.float64)
