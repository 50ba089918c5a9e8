"""scan: h[t] = a[t] * h[t-1] + b[t] for torch tensors, on a GPU and on a CPU, with all gradients.

    h = scan(a, b)                                                  (batch, length, channels...)
    h, last = scan(a, b, state, return_final_state=True)            go on from a state, hand the next one over
    h = scan(a, b, reverse=True)                                    from the end
    h = scan(a, b, cu_seqlens=borders)                              several sequences in one row

The kernels are texts in kernels_cu (scan_thread, scan_block, scan_two_pass, scan_lookback, scan_relay); scan_kernels.py
chooses among them. This file checks what the caller gives, and tells torch about the two operators,
ssmlab::scan_forward and ssmlab::scan_backward: what they return (for torch.compile) and what their gradients are.
"""

from __future__ import annotations

import math

import torch

from . import packing, scan_kernels
from .dispatching import nobody_listens, refuse_tangents
from .scan_kernels import ALGORITHMS, DTYPES, real_of


def scan(a, b, initial_state=None, *, dim=1, reverse=False, return_final_state=False, algorithm="auto", seq_idx=None,
         cu_seqlens=None):  # fmt: skip
    """Solve h[t] = a[t] * h[t-1] + b[t] along axis `dim`, in parallel.

    a, b            (batch, length, channels...) float32, float64, float16 or bfloat16, equal shapes, any strides: a
                    transposed (batch, channels, length) tensor is no copy. Leading axes before `dim` are batch axes.
    initial_state   the shape of a without axis dim; (sequences, channels...) with cu_seqlens. None: zeros.
    reverse         h[t] = a[t] * h[t+1] + b[t]; initial_state stands behind the last step
    algorithm       "auto", or "thread" (a thread walks a row), "block" (a block walks a row, tile by tile), "chain" and
                    "totals" (two passes; the chunks' totals are chained or scanned), "lookback" (one pass),
                    "relay" (one pass; a warp hands the states on). `explain` tells what "auto" chooses. A named
                    algorithm gives a batch row the same bits alone and in a batch.
    seq_idx         (batch, length) integers: a new label begins a new sequence; negative labels are padding: output 0,
                    state untouched, never read. initial_state enters a row's first sequence; the last one's returns.
    cu_seqlens      (sequences + 1,) int32 or int64 for batch 1: where each sequence begins, and the end

    Returns h, of b's shape and dtype, laid out like b; with return_final_state also the state after the last step, in
            float32 (float64 for float64), shaped like initial_state. States, products and sums are kept in that type.
    Raises  ValueError, TypeError that name the argument, its value and the rule.
    Cost    2 reads and 1 write of every element on a GPU ("chain", "totals": 4 and 1).
    Agrees  with ssmlab.reference.scan to 1e-5 (float32), 1e-12 (float64) of the largest |h| (tests/test_scan.py).
            Bitwise the same from run to run. Gradients of a, b and initial_state, through h and the final state.

    >>> a = torch.tensor([[1, 1.5, 0.8, 2]]); b = torch.tensor([[1, -1, 0.5, 2]])
    >>> scan(a, b)
    tensor([[1.0000, 0.5000, 0.9000, 3.8000]])
    """
    _check(a, b, dim, algorithm, seq_idx, cu_seqlens)
    dim %= a.dim()
    shape = a.shape
    batch, length, channels = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    packed = _packing(seq_idx, cu_seqlens, shape, dim, reverse)
    sequences = None if packed is None or cu_seqlens is None else packed.slots
    state_shape = (*(shape[:dim] if sequences is None else (sequences,)), *shape[dim + 1 :])
    initial = _state(initial_state, a, state_shape, sequences or batch, channels)
    flat_a, flat_b = a, b
    if dim != 1 or a.dim() != 3:
        flat_a, flat_b = a.reshape(batch, length, channels), b.reshape(batch, length, channels)
    marks, before = (None, None) if packed is None else (packed.marks, packed.before)
    slots = batch if packed is None else packed.slots
    given = flat_a, flat_b, initial, marks, before, slots, reverse, algorithm
    tensors = flat_a, flat_b, initial
    recording = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if not recording and nobody_listens(tensors):
        h, final = _forward(*given, wants_end=return_final_state)
    else:
        refuse_tangents("scan", tensors)
        h, final = torch.ops.ssmlab.scan_forward(*given)
    if h.shape != shape:
        h = h.reshape(shape)
    return (h, final.reshape(state_shape)) if return_final_state else h


def explain(a, b, *, dim=1, reverse=False, algorithm="auto", backward=False, packed=False):
    """What `scan` would do with these tensors, in one sentence.

    >>> explain(torch.zeros(2, 8, 3), torch.zeros(2, 8, 3))
    'thread: 6 rows of 8 steps, columns, 4 blocks of 1 thread (a CPU walks whole rows)'
    """
    _check(a, b, dim, algorithm, None, None)
    dim %= a.dim()
    shape = a.shape
    flat = [
        tensor.reshape(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])).detach() for tensor in (a, b)
    ]
    if 0 in flat[0].shape:
        return "nothing to do: the tensors are empty"
    out = torch.empty_like(flat[1], device="meta")
    probe = scan_kernels.Shape(
        *flat[0].shape, (flat[0].stride(), flat[1].stride(), out.stride()), not any(t.data_ptr() % 16 for t in flat),
        a.dtype, a.device, reverse, backward, packed,
    )  # fmt: skip
    plan = scan_kernels.plan_of(probe, algorithm)
    threads = math.prod(plan.block)
    tiles = "" if plan.algorithm == "thread" else f", tiles of {plan.tile} steps"
    chunks = f", {plan.chunks} chunks a row" if plan.algorithm in ("chain", "totals") else ""
    access = ", 16-byte accesses" if plan.wide and a.device.type != "cpu" else ""
    return (
        f"{plan.algorithm}: {probe.rows} row{'s' * (probe.rows != 1)} of {probe.length} "
        f"step{'s' * (probe.length != 1)}, {plan.layout}{tiles}{chunks}, "
        f"{plan.grid} block{'s' * (plan.grid != 1)} of {threads} thread{'s' * (threads != 1)}{access} ({plan.reason})"
    )


def _check(a, b, dim, algorithm, seq_idx, cu_seqlens):
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}: it must be a torch tensor")
    if a.shape != b.shape:
        raise ValueError(f"a has shape {tuple(a.shape)}, b has {tuple(b.shape)}: they must be equal")
    if a.dtype != b.dtype:
        raise TypeError(f"a has dtype {a.dtype}, b has {b.dtype}: they must be equal")
    if a.dtype not in DTYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise TypeError(f"a has dtype {a.dtype}: it must be one of {known}")
    if a.device != b.device:
        raise ValueError(f"a is on {a.device}, b on {b.device}: they must be on one device")
    if not -a.dim() <= dim < a.dim():
        raise ValueError(f"dim is {dim}, a has {a.dim()} axes: dim must be one of {list(range(a.dim()))}")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm is {algorithm!r}: it must be one of {', '.join(map(repr, ALGORITHMS))}")
    if seq_idx is not None and cu_seqlens is not None:
        raise ValueError("seq_idx and cu_seqlens are both given: they say the same thing in two ways, give one")
    for name, tensor in (("seq_idx", seq_idx), ("cu_seqlens", cu_seqlens)):
        if tensor is not None and tensor.device != a.device:
            raise ValueError(f"{name} is on {tensor.device}, a on {a.device}: they must be on one device")


def _packing(seq_idx, cu_seqlens, shape, dim, reverse):
    if seq_idx is None and cu_seqlens is None:
        return None
    if dim != 1:
        raise ValueError(f"dim is {dim}: packed rows are (batch, length, channels...), time on axis 1")
    if seq_idx is not None:
        return packing.from_seq_idx(seq_idx, shape[:2], reverse=reverse)
    if shape[0] != 1:
        raise ValueError(f"a has batch {shape[0]}: with cu_seqlens all sequences lie in one row, batch must be 1")
    return packing.from_cu_seqlens(cu_seqlens, shape[1], reverse=reverse)


def _state(state, a, shape, rows, channels):
    if state is None:
        return None
    if not isinstance(state, torch.Tensor):
        raise TypeError(f"initial_state is {type(state).__name__}: it must be a torch tensor")
    if tuple(state.shape) != tuple(shape):
        raise ValueError(f"initial_state has shape {tuple(state.shape)}: it must be {tuple(shape)}")
    if not state.dtype.is_floating_point:
        raise TypeError(f"initial_state has dtype {state.dtype}: it must be a floating-point type")
    if state.device != a.device:
        raise ValueError(f"initial_state is on {state.device}, a on {a.device}: they must be on one device")
    return state.to(real_of(a.dtype)).reshape(rows, channels).contiguous()


# ---- the operators

_library = torch.library.Library("ssmlab", "FRAGMENT")
_library.define(
    "scan_forward(Tensor a, Tensor b, Tensor? initial, Tensor? marks, Tensor? before, SymInt slots, bool reverse, "
    "str algorithm) -> (Tensor, Tensor)"
)
_library.define(
    "scan_backward(Tensor a, Tensor h, Tensor? initial, Tensor? marks, Tensor? before, Tensor dh, Tensor? dfinal, "
    "SymInt slots, bool reverse, str algorithm) -> (Tensor, Tensor, Tensor)"
)


def _forward(a, b, initial, marks, before, slots, reverse, algorithm, wants_end=True):
    h = torch.empty_like(b)
    final = _end(initial, marks, slots, a) if wants_end else None
    scan_kernels.run(a, b, h, initial, final, marks=marks, reverse=reverse, algorithm=algorithm)
    return h, final


def _end(begin, marks, slots, a):
    """Where the states go that leave the scan; filled already for rows through which no step runs."""
    shape, real = (slots, a.shape[2]), real_of(a.dtype)
    if marks is None and a.shape[1]:
        return torch.empty(shape, dtype=real, device=a.device)
    return torch.zeros(shape, dtype=real, device=a.device) if begin is None else begin.clone()


def _backward(a, h, initial, marks, before, dh, dfinal, slots, reverse, algorithm):
    db, da = torch.empty_like(h), torch.empty_like(h)
    d_initial = _end(dfinal, marks, slots, a)
    scan_kernels.run(
        a, dh, db, dfinal, d_initial, h=h, da=da, initial=initial, marks=marks, before=before, reverse=reverse,
        algorithm=algorithm,
    )  # fmt: skip
    return da, db, d_initial


for _device in ("CPU", "CUDA"):
    _library.impl("scan_forward", _forward, _device)
    _library.impl("scan_backward", _backward, _device)


@torch.library.register_fake("ssmlab::scan_forward", lib=_library)
def _(a, b, initial, marks, before, slots, reverse, algorithm):
    return torch.empty_like(b), a.new_empty((slots, a.shape[2]), dtype=real_of(a.dtype))


@torch.library.register_fake("ssmlab::scan_backward", lib=_library)
def _(a, h, initial, marks, before, dh, dfinal, slots, reverse, algorithm):
    return torch.empty_like(h), torch.empty_like(h), a.new_empty((slots, a.shape[2]), dtype=real_of(a.dtype))


def _setup_context(ctx, inputs, output):
    a, _, initial, marks, before, slots, reverse, algorithm = inputs
    h, _ = output
    ctx.save_for_backward(a, h, initial, marks, before)
    ctx.slots, ctx.reverse, ctx.algorithm = slots, reverse, algorithm


def _gradient(ctx, dh, dfinal):
    a, h, initial, marks, before = ctx.saved_tensors
    if dh is None:
        dh = torch.zeros_like(h)
    if dfinal is not None:
        dfinal = dfinal.contiguous()
    da, db, d_initial = torch.ops.ssmlab.scan_backward(
        a, h, initial, marks, before, dh, dfinal, ctx.slots, ctx.reverse, ctx.algorithm
    )
    needs = ctx.needs_input_grad
    return (
        da if needs[0] else None, db if needs[1] else None, d_initial if initial is not None and needs[2] else None,
        None, None, None, None, None,
    )  # fmt: skip


torch.library.register_autograd("ssmlab::scan_forward", _gradient, setup_context=_setup_context, lib=_library)
