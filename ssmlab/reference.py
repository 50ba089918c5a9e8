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


def selective_scan(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, *,
    initial_state=None, seq_idx=None, cu_seqlens=None,
):  # fmt: skip
    """Mamba's selective scan, one step, one channel and one state after the other.

    For each step h = exp(delta A) h + delta B u, y = C . h + D u, and y silu(z) if there is a z; delta_bias is added to
    delta first, then softplus if asked (the identity above 20).

    u, delta, z     (batch, length, channels)
    A               (channels, states)
    B, C            (batch, length, states), (batch, length, groups, states), or fixed: (channels, states)
    D, delta_bias   (channels,)
    initial_state   (batch, channels, states), with cu_seqlens (sequences, channels, states); None means zeros
    seq_idx         (batch, length) labels; a change of label starts again from zero, negative labels are padding:
                    y is 0 there and the state passes through. Only a row's first fragment sees its initial state
    cu_seqlens      (sequences + 1,) cumulative lengths of the sequences that lie one after the other in batch row 0

    Returns y (batch, length, channels) and the final states: (batch, channels, states), the last fragment's, or one for
            each sequence of cu_seqlens. Both are new arrays of float64.
    Source  Gu & Dao 2023, arXiv 2312.00752, algorithm 2 and equation 2.

    >>> y, final = selective_scan(*np.ones((2, 1, 3, 1)), [[0.0]], *np.ones((2, 1, 3, 1)))
    >>> y[0, :, 0]
    array([1., 2., 3.])
    """
    u, delta, A, B, C = (np.asarray(item, np.float64) for item in (u, delta, A, B, C))
    batch, length, channels = u.shape
    states = A.shape[1]
    delta = delta + (0.0 if delta_bias is None else np.asarray(delta_bias, np.float64))
    if delta_softplus:
        delta = np.where(delta > 20, delta, np.log1p(np.exp(np.minimum(delta, 20))))

    def of_channel(table, b, t):
        """(channels, states) of B or C at a step: a group of neighbouring channels shares a row."""
        if table.ndim == 2:
            return table
        rows = table[b, t].reshape(-1, states)
        return np.repeat(rows, channels // len(rows), axis=0)

    slots = batch if cu_seqlens is None else len(cu_seqlens) - 1
    begin = np.zeros((slots, channels, states)) if initial_state is None else np.asarray(initial_state, np.float64)
    final = np.array(begin)
    y = np.zeros(u.shape)
    for b in range(batch):
        h, label, slot = begin[b] if slots else None, None, b
        for t in range(length):
            if cu_seqlens is not None:
                slot = int(np.searchsorted(np.asarray(cu_seqlens), t, side="right")) - 1
                if t == cu_seqlens[slot]:
                    h = begin[slot]
            elif seq_idx is not None:
                now = int(seq_idx[b][t])
                if now < 0:
                    continue
                if label is not None and now != label:
                    h = np.zeros((channels, states))
                label = now
            a = np.exp(delta[b, t][:, None] * A)
            h = a * h + (delta[b, t] * u[b, t])[:, None] * of_channel(B, b, t)
            y[b, t] = np.sum(of_channel(C, b, t) * h, axis=1)
            if D is not None:
                y[b, t] += np.asarray(D, np.float64) * u[b, t]
            if z is not None:
                gate = np.asarray(z, np.float64)[b, t]
                y[b, t] *= gate / (1 + np.exp(-gate))
            final[slot] = h
    return y, final
