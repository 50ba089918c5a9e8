"""selective_scan and selective_state_update: Mamba's recurrence for torch tensors, on a GPU and on a CPU.

    y = selective_scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus=True)           (batch, length, channels)
    y, last = selective_scan(..., initial_state=state, return_final_state=True)            go on, hand the state over
    y = selective_state_update(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus=True)     one token, state in place

The kernels are texts in kernels_cu (selective_forward, selective_totals, selective_link, selective_backward,
selective_sum, selective_update); selective_kernels.py launches them. This file checks what the caller gives, and tells
torch about the operators: what they return (for torch.compile) and what their gradients are.
"""

from __future__ import annotations

import functools

import torch

from . import packing, replay, selective_kernels, selective_plans, strictness
from .dispatching import nobody_listens
from .selective_kernels import ELEMENT, Inputs
from .selective_plans import BORDER, MAX_STATES, real_of

SAVE = ("boundaries", "boundaries-bf16", "all")
MAX_STEPS = 2**31 - 1 - 2**16  # steps and channels are counted in 32 bits inside a row; places in memory in 64


def selective_scan(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, *,
    initial_state=None, has_initial_state=None, return_final_state=False, seq_idx=None, cu_seqlens=None, chunk=None,
    save="boundaries",
):  # fmt: skip
    """Run h[t] = exp(delta[t] A) h[t-1] + delta[t] B[t] u[t], y[t] = C[t] . h[t] + D u[t], then y silu(z), fused.

    u, delta, z     (batch, length, channels) float32, float64, float16 or bfloat16, any strides: a transposed
                    (batch, channels, length) tensor is no copy. Where dtypes differ, all are brought to the widest.
    A               (channels, states), real
    B, C            (batch, length, states), (batch, length, groups, states), or one for all steps: (channels, states)
    D, delta_bias   (channels,)
    delta_softplus  delta becomes softplus(delta + delta_bias), which is the identity above 20
    initial_state   (batch, channels, states), with cu_seqlens (sequences, channels, states). None: zeros.
    has_initial_state   (batch,) or (sequences,) bool: where it is False, zeros take the place of initial_state,
                    whatever an earlier request has left there, NaN too. None: all True.
    seq_idx         (batch, length) integers: a new label begins a new sequence; negative labels are padding: y is 0,
                    the state is untouched, nothing there is read. initial_state enters a row's first sequence only.
    cu_seqlens      (sequences + 1,) int32 or int64 for batch 1: where each sequence begins, and the end
    chunk           [steps] between the states kept for the backward, a multiple of 32; None: 32. With a chunk given, a
                    row gets the same bits alone and in a batch. A larger chunk keeps less: the backward makes
                    the states between again, beyond 64 steps by running the forward once more.
    save            what the backward starts from: "boundaries", float32 (float64) states chunk steps apart;
                    "boundaries-bf16", the same in half the bytes; "all", every state, so that none is made again

    Returns y, of u's shape, dtype and layout; with return_final_state also the state after the last step, float32
            (float64 for float64 inputs), shaped like initial_state. States and sums are kept in that type.
    Raises  ValueError, TypeError that name the argument, its value and the rule.
    Cost    each input is read and y is written once; ledger.selective_scan counts bytes and exponentials.
    Agrees  with ssmlab.reference.selective_scan to 1e-5 (float32), 1e-12 (float64) of the largest |y| where states fade
            within some hundred steps (tests/test_selective.py). Longer memory adds up the roundings of exp(delta A);
            ssmlab.tolerance.exponential says by how much. Bitwise the same from run to run, gradients too. All inputs
            have gradients, through y and the final state.
    Source  Gu & Dao 2023, arXiv 2312.00752.

    >>> one = torch.ones(1, 3, 1)
    >>> selective_scan(one, one, torch.zeros(1, 1), one, one)[0, :, 0]
    tensor([1., 2., 3.])
    """
    start = finish = slots = None
    if seq_idx is not None or cu_seqlens is not None:
        _check_streams(u, delta, z)
        start, finish, slots = _marks(u, seq_idx, cu_seqlens)
    if has_initial_state is not None:
        _check_known(has_initial_state, initial_state)
        initial_state = torch.where(has_initial_state[:, None, None], initial_state, 0.0)
    tensors = u, delta, A, B, C, D, z, delta_bias, initial_state, start, finish
    kind = _kind(tensors)
    options = slots, bool(delta_softplus), chunk, save
    if kind is not None and type(chunk) in _CHUNKS and type(save) is str and (kind, options) in _known:
        y, final = _run(kind, tensors, *options, return_final_state)
        return (y, final) if return_final_state else y

    _check_scan(*tensors[:9], slots, chunk, save)
    dtype = u.dtype
    for other in (delta, z, *(table for table in (B, C) if table.dim() > 2)):
        dtype = dtype if other is None else torch.promote_types(dtype, other.dtype)
    real = real_of(dtype)
    B, C = (table.to(dtype if table.dim() > 2 else real) for table in (B, C))
    ready = (
        u.to(dtype), delta.to(dtype), _weight(A, real), B, C, _weight(D, real), None if z is None else z.to(dtype),
        _weight(delta_bias, real), _weight(initial_state, real), start, finish,
    )  # fmt: skip
    if kind is None or any(was is not now for was, now in zip(tensors, ready, strict=True)):
        kind = _kind(ready)
    else:
        replay.remember(_known, (kind, options), None)
    y, final = _run(kind, ready, *options, return_final_state)
    y = y.to(u.dtype)
    return (y, final) if return_final_state else y


def explain_selective_scan(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, *, initial_state=None, chunk=None,
    save="boundaries",
):  # fmt: skip
    r"""What `selective_scan` would do with these arguments, in one sentence: how rows are cut, and what is kept.

    Without `chunk` rows are cut so that the batch fills the GPU; with it, each as if it were alone.

    >>> one = torch.ones(1, 3, 1)
    >>> print(*explain_selective_scan(one, one, torch.zeros(1, 1), one, one, chunk=64).split("; "), sep="\n")
    forward: rows whole, 1 block of 32 threads
    backward: rows whole, 1 block of 32 threads
    kept: a state every 64 steps
    """
    _check_scan(u, delta, A, B, C, D, z, delta_bias, initial_state, None, chunk, save)
    if u.numel() == 0:
        return "nothing to do: the tensors are empty"
    moving = [tensor for tensor in (u, delta, z, B, C) if tensor is not None and tensor.dim() > 2]
    dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in moving])
    like = torch.empty(1, dtype=dtype, device=u.device).expand(u.shape)  # what is computed with, without its memory
    groups, whole_batch = next((table.shape[2] for table in (B, C) if table.dim() == 4), 1), not chunk
    variant, (steps, segments) = selective_plans.forward_plan(
        like, groups, A.shape[1], step=chunk or BORDER, whole_batch=whole_batch
    )
    (blocks,) = selective_plans.blocks_of(like, groups, variant, segments)
    cut = "rows whole" if segments == 1 else f"rows in {segments} segments of {steps} steps"
    told = [f"forward: {cut}, {_blocks(blocks, variant)}"]
    gradients = [torch.empty_like(t, dtype=dtype, device="meta") for t in (u, delta, z) if t is not None]
    variant, cuts = selective_plans.backward_plan(
        like, groups, A.shape[1], moving=sum(table.dim() > 2 for table in (B, C)),
        lenders=len(gradients) if all(map(selective_kernels.may_lend, gradients)) else 0, whole_batch=whole_batch,
    )  # fmt: skip
    for cut in cuts:
        what = "rows whole" if cut.slots == 1 else f"rows in up to {cut.slots} pieces of up to {cut.head} steps"
        steps = "" if len(cuts) == 1 else f"steps {cut.origin} to {cut.end - 1}, "
        (blocks,) = selective_plans.backward_blocks(like, groups, variant, cut, whole_batch=whole_batch)
        told.append(f"backward: {steps}{what}, {_blocks(blocks, variant)}")
    every = "step" if save == "all" else f"{chunk or BORDER} steps"
    in_half = " in bfloat16" if save == "boundaries-bf16" else ""
    return "; ".join([*told, f"kept: a state every {every}{in_half}"])


def _blocks(count, variant):
    return f"{count} block{'s' * (count != 1)} of {variant.threads} threads"


def selective_state_update(
    state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False, *, state_indices=None,
    has_initial_state=None,
):  # fmt: skip
    """One token for each row: h <- exp(dt A) h + dt B x in place, y = (C . h + D x) silu(z).

    state           (slots, channels, states), any floating-point type and strides; computed in float32 (float64 where x
                    or state are float64) and rounded once to its own type
    x, dt, z        (batch, channels), one of float32, float64, float16, bfloat16
    A               (channels, states)
    B, C            (batch, states) or (batch, groups, states)
    D, dt_bias      (channels,)
    state_indices   (batch,) integers: which slot is each row's. Negative: padding, y is 0 and no state is touched.
                    None: row i has slot i.
    has_initial_state   (batch,) bool: where it is False, the row begins from zeros; what lies in its slot is
                    overwritten and not read, so that a slot can be used again without clearing it. None: all True.

    Returns y (batch, channels) in x's dtype. No gradient: with gradients wanted it is a RuntimeError.
    Raises  ValueError, TypeError that name the argument, its value and the rule; a slot given twice is one.
    Agrees  with one step of ssmlab.reference.selective_scan (tests/test_selective_update.py).
    """
    tensors = state, x, dt, A, B, C, D, z, dt_bias, state_indices, has_initial_state
    kind = _kind(tensors)
    softplus = bool(dt_softplus)
    wanted = torch.is_grad_enabled() and _any_gradient(*tensors[:9])
    if kind is not None and not wanted and (kind, softplus) in _known:
        return _update(*tensors[:9], softplus, state_indices, has_initial_state, kind=kind)

    _check_update(*tensors)
    if wanted:
        raise RuntimeError("selective_state_update has no gradient: call it under torch.no_grad()")
    dtype = x.dtype
    for other in (dt, z, B, C):
        dtype = dtype if other is None else torch.promote_types(dtype, other.dtype)
    if state.dtype == torch.float64:
        dtype = torch.float64
    real = real_of(dtype)
    ready = (
        state, x.to(dtype), dt.to(dtype), _weight(A, real), B.to(dtype), C.to(dtype), _weight(D, real),
        None if z is None else z.to(dtype), _weight(dt_bias, real),
        *(None if row is None else row.contiguous() for row in (state_indices, has_initial_state)),
    )  # fmt: skip
    if kind is None:
        return torch.ops.ssmlab.selective_state_update(*ready[:9], softplus, *ready[9:]).to(x.dtype)
    if all(was is now for was, now in zip(tensors, ready, strict=True)):
        replay.remember(_known, (kind, softplus), None)
    return _update(*ready[:9], softplus, *ready[9:]).to(x.dtype)


_CHUNKS = (int, type(None))
_known = {}  # keys are kinds of calls that have passed all checks and take the tensors as they are


def _kind(tensors):
    """What replay remembers a call by; None where it must go through torch's dispatcher."""
    return replay.kind_of(tensors) if nobody_listens(tensors) else None


def _check_update(state, x, dt, A, B, C, D, z, dt_bias, state_indices, has_initial_state):
    for name, tensor in (("x", x), ("dt", dt), ("z", z)):
        if tensor is None and name == "z":
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}: it must be a torch tensor")
        if tensor.dtype not in ELEMENT:
            raise TypeError(f"{name} has dtype {tensor.dtype}: it must be a real floating-point type")
        if tensor.dim() != 2 or tensor.shape != x.shape:
            shapes = f"{tuple(tensor.shape)}, x has {tuple(x.shape)}"
            raise ValueError(f"{name} has shape {shapes}: both must be (batch, channels)")
    states = _check_weights(x, A, D, dt_bias, ("A", "D", "dt_bias"))
    batch, channels = x.shape
    if not isinstance(state, torch.Tensor) or state.dtype not in ELEMENT:
        raise TypeError("state must be a torch tensor of a real floating-point type")
    if state.dim() != 3 or tuple(state.shape[1:]) != (channels, states):
        raise ValueError(f"state has shape {tuple(state.shape)}: it must be (slots, channels, states) = (slots, "
                         f"{channels}, {states})")  # fmt: skip
    _check_tables(x.unsqueeze(1), *(_as_step(name, table) for name, table in (("B", B), ("C", C))), states)
    if state_indices is None:
        if state.shape[0] != batch:
            raise ValueError(
                f"state has {state.shape[0]} slots, x has batch {batch}: without state_indices they must be equal"
            )
    else:
        _check_indices(state_indices, batch)
    if has_initial_state is not None:
        _check_known(has_initial_state, x)


def _as_step(name, table):
    """(batch, states) or (batch, groups, states) as one step: (batch, 1, groups, states)."""
    if not isinstance(table, torch.Tensor):
        raise TypeError(f"{name} is {type(table).__name__}: it must be a torch tensor")
    if table.dim() not in (2, 3):
        raise ValueError(f"{name} has shape {tuple(table.shape)}: it is (batch, states) or (batch, groups, states)")
    return table[:, None, None] if table.dim() == 2 else table[:, None]


def _check_indices(indices, batch):
    if not isinstance(indices, torch.Tensor) or indices.dtype not in (torch.int32, torch.int64):
        raise TypeError("state_indices must be a torch tensor of int32 or int64")
    if tuple(indices.shape) != (batch,):
        raise ValueError(f"state_indices has shape {tuple(indices.shape)}: it must be (batch,) = ({batch},)")


def _check_known(known, of):
    """has_initial_state, for the rows of `of` (the initial states, or the update's x)."""
    if of is None:
        raise ValueError("has_initial_state is given and initial_state is not: without one all rows begin from zeros")
    if not isinstance(known, torch.Tensor) or known.dtype != torch.bool:
        raise TypeError("has_initial_state must be a torch tensor of bool")
    if not isinstance(of, torch.Tensor) or of.dim() == 0 or tuple(known.shape) != tuple(of.shape[:1]):
        shape = tuple(known.shape)
        raise ValueError(
            f"has_initial_state has shape {shape}: it must be (batch,) or (sequences,), one for each state"
        )
    if known.device != of.device:
        raise ValueError(f"has_initial_state is on {known.device}, the inputs on {of.device}: it must be one device")


def _check_slots(indices, slots):
    """Reads the indices: a slot that is not there, or that two rows would overwrite."""
    used = indices[indices >= 0].sort().values
    if used.numel() and int(used[-1]) >= slots:
        raise ValueError(f"state_indices has {int(used[-1])}: state has {slots} slots, 0 to {slots - 1}")
    twice = used[1:][used[1:] == used[:-1]]
    if twice.numel():
        raise ValueError(f"state_indices has slot {int(twice[0])} twice: two rows would overwrite each other's state")


def _check_scan(u, delta, A, B, C, D, z, delta_bias, initial_state, slots, chunk, save):
    _check_streams(u, delta, z)
    batch, length, channels = u.shape
    if max(length, channels) > MAX_STEPS:
        raise ValueError(f"u has shape {tuple(u.shape)}: length and channels must be at most {MAX_STEPS}")
    states = _check_weights(u, A, D, delta_bias)
    _check_tables(u, B, C, states)
    if save not in SAVE:
        raise ValueError(f"save is {save!r}: it must be one of {', '.join(map(repr, SAVE))}")
    if chunk is not None and not (isinstance(chunk, int) and chunk > 0 and chunk % BORDER == 0):
        raise ValueError(f"chunk is {chunk!r}: it must be a positive multiple of {BORDER} [steps]")
    _check_state(initial_state, u, (batch if slots is None else slots, channels, states))


def _check_streams(u, delta, z):
    for name, tensor in (("u", u), ("delta", delta), ("z", z)):
        if tensor is None and name == "z":
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}: it must be a torch tensor")
        if tensor.dtype not in ELEMENT:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in ELEMENT)
            raise TypeError(f"{name} has dtype {tensor.dtype}: it must be one of {known}")
        if tensor.dim() != 3:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must be (batch, length, channels)")
        if tensor.shape != u.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, u has {tuple(u.shape)}: they must be equal")
        if tensor.device != u.device:
            raise ValueError(f"{name} is on {tensor.device}, u on {u.device}: they must be on one device")


def _check_weights(u, A, D, bias, names=("A", "D", "delta_bias")):
    channels = u.shape[-1]
    for name, tensor in zip(names, (A, D, bias), strict=True):
        if tensor is None and name != "A":
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}: it must be a torch tensor")
        if tensor.dtype.is_complex:
            raise TypeError(f"{name} has dtype {tensor.dtype}: complex weights are not supported, they must be real")
        if not tensor.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {tensor.dtype}: it must be a floating-point type")
        if tensor.device != u.device:
            raise ValueError(f"{name} is on {tensor.device}, the inputs on {u.device}: they must be on one device")
        if name != "A" and tuple(tensor.shape) != (channels,):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must be (channels,) = ({channels},)")
    if A.dim() != 2 or A.shape[0] != channels:
        raise ValueError(f"A has shape {tuple(A.shape)}: it must be (channels, states) with {channels} channels")
    if not 1 <= A.shape[1] <= MAX_STATES:
        raise ValueError(f"A has {A.shape[1]} states: 1 to {MAX_STATES} are supported")
    return A.shape[1]


def _check_tables(u, B, C, states):
    batch, length, channels = u.shape
    groups = {}
    for name, table in (("B", B), ("C", C)):
        if not isinstance(table, torch.Tensor):
            raise TypeError(f"{name} is {type(table).__name__}: it must be a torch tensor")
        if table.dtype not in ELEMENT:
            raise TypeError(f"{name} has dtype {table.dtype}: it must be a real floating-point type")
        if table.device != u.device:
            raise ValueError(f"{name} is on {table.device}, u on {u.device}: they must be on one device")
        if table.dim() == 3:
            table = table.unsqueeze(2)
        wanted = (channels, states) if table.dim() == 2 else (batch, length, "groups", states)
        shape = tuple(table.shape)
        if len(shape) != len(wanted) or any(
            want not in (have, "groups") for have, want in zip(shape, wanted, strict=True)
        ):
            raise ValueError(
                f"{name} has shape {shape}: it must be (batch, length, states), (batch, length, groups, states) or, "
                f"one for all steps, (channels, states), with batch {batch}, length {length}, {channels} channels "
                f"and {states} states"
            )
        if table.dim() == 4:
            groups[name] = shape[2]
            if shape[2] < 1 or channels % shape[2]:
                raise ValueError(f"{name} has {shape[2]} groups: they must divide the {channels} channels")
    if len(set(groups.values())) > 1:
        raise ValueError(f"B has {groups['B']} groups, C has {groups['C']}: they must be equal")


def _marks(u, seq_idx, cu_seqlens):
    """start, finish (batch, length) int32 or None, and the number of states. Meanings: kernels_cu/selective.cuh."""
    if seq_idx is not None and cu_seqlens is not None:
        raise ValueError("seq_idx and cu_seqlens are both given: they say the same thing in two ways, give one")
    if seq_idx is None and cu_seqlens is None:
        return None, None, u.shape[0]
    for name, tensor in (("seq_idx", seq_idx), ("cu_seqlens", cu_seqlens)):
        if tensor is not None and tensor.device != u.device:
            raise ValueError(f"{name} is on {tensor.device}, u on {u.device}: they must be on one device")
    if seq_idx is not None:
        packed = packing.from_seq_idx(seq_idx, u.shape[:2])
    elif u.shape[0] != 1:
        raise ValueError(f"u has batch {u.shape[0]}: with cu_seqlens all sequences lie in one row, batch must be 1")
    else:
        packed = packing.from_cu_seqlens(cu_seqlens, u.shape[1])
    marks, slot = packed.marks, packed.marks >> packing.SLOT_SHIFT
    begins = torch.where(marks & packing.FIRST_FROM_SLOT != 0, slot, -1)
    start = torch.where(marks & packing.FIRST != 0, begins, -2)
    start = torch.where(marks & packing.PADDING != 0, -3, start)
    finish = torch.where(marks & packing.LAST_TO_SLOT != 0, slot, -1)
    return start.to(torch.int32).contiguous(), finish.to(torch.int32).contiguous(), packed.slots


def _check_state(state, u, shape):
    if state is None:
        return
    if not isinstance(state, torch.Tensor):
        raise TypeError(f"initial_state is {type(state).__name__}: it must be a torch tensor")
    if tuple(state.shape) != tuple(shape):
        raise ValueError(f"initial_state has shape {tuple(state.shape)}: it must be {tuple(shape)}")
    if not state.dtype.is_floating_point:
        raise TypeError(f"initial_state has dtype {state.dtype}: it must be a floating-point type")
    if state.device != u.device:
        raise ValueError(f"initial_state is on {state.device}, u on {u.device}: they must be on one device")


def _weight(tensor, real):
    return None if tensor is None else tensor.to(real).contiguous()


def _any_gradient(*tensors):
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


# ---- the operators

_library = torch.library.Library("ssmlab", "FRAGMENT")
_INPUTS = (
    "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias, Tensor? initial, "
    "Tensor? start, Tensor? finish, SymInt slots, bool softplus, SymInt chunk, str save"
)
_library.define(f"selective_scan_forward({_INPUTS}) -> (Tensor, Tensor, Tensor)")
_library.define(
    f"selective_scan_backward({_INPUTS}, Tensor borders, Tensor dy, Tensor? dfinal) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_library.define(
    "selective_state_update(Tensor(a!) state, Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, "
    "Tensor? dt_bias, bool softplus, Tensor? indices, Tensor? known=None) -> Tensor"
)


def _borders_shape(u, A, chunk, save):
    """Shape and dtype of what the forward keeps; chunk 0 means the default."""
    batch, length, channels = u.shape
    if save == "nothing":
        return (0,), real_of(u.dtype)
    steps = 1 if save == "all" else chunk or BORDER
    dtype = torch.bfloat16 if save == "boundaries-bf16" else real_of(u.dtype)
    return (batch, (length + steps - 1) // steps, channels, A.shape[1]), dtype


def _by_group(B, C):
    """(batch, length, states) as (batch, length, 1, states); the other forms as they are."""
    return (table.unsqueeze(2) if table.dim() == 3 else table for table in (B, C))


def _forward(
    u, delta, A, B, C, D, z, delta_bias, initial, start, finish, slots, softplus, chunk, save, final_wanted
):  # fmt: skip
    """(y, final state or None, what is kept); everything here follows from the kind of call (replay.py)."""
    shape, dtype = _borders_shape(u, A, chunk, save)
    borders = torch.empty(shape, dtype=dtype, device=u.device)
    final = _passed_through(initial, start, slots, u, A) if final_wanted else None
    if u.numel() == 0:
        return torch.empty_like(u), final, borders
    x = Inputs(u, delta, A, *_by_group(B, C), D, z, delta_bias, softplus, start, finish)
    spacing = chunk or BORDER
    variant, segment = selective_plans.forward_plan(u, x.groups, x.states, step=spacing, whole_batch=not chunk)
    y = selective_kernels.forward(
        x, initial, final, segment=segment, borders=None if save == "nothing" else borders, spacing=spacing,
        every=save == "all", variant=variant,
    )  # fmt: skip
    return y, final, borders


def _passed_through(state, start, slots, u, A):
    """Where final states go; filled already for rows and sequences through which no step runs."""
    shape, real = (slots, u.shape[2], A.shape[1]), real_of(u.dtype)
    if start is None and u.numel():
        return torch.empty(shape, dtype=real, device=u.device)
    return torch.zeros(shape, dtype=real, device=u.device) if state is None else state.clone()


def _backward(
    u, delta, A, B, C, D, z, delta_bias, initial, start, finish, borders, dy, dfinal, slots, softplus, chunk, save
):  # fmt: skip
    """Gradients of the first nine, None for those that are None."""
    real = real_of(u.dtype)
    if u.numel() == 0:
        d_initial = _passed_through(dfinal, start, slots, u, A)
        zeros = [torch.zeros_like(tensor) for tensor in (u, delta, A, B, C)]
        dD, d_bias = (torch.zeros(u.shape[2], dtype=real, device=u.device) for _ in range(2))
        found = *zeros, dD, None if z is None else torch.zeros_like(z), d_bias, d_initial
    else:
        if dy is None:
            dy = torch.zeros_like(u)
        elif dy.stride() != u.stride():  # an expanded gradient, say, of stride 0
            dy = torch.empty_like(u).copy_(dy)
        if dfinal is not None:
            dfinal = dfinal.contiguous()
        x = Inputs(u, delta, A, *_by_group(B, C), D, z, delta_bias, softplus, start, finish)
        grads = selective_kernels.backward(
            x, dy, dfinal, borders, initial, slots=slots, spacing=chunk or BORDER, every=save == "all",
            whole_batch=not chunk,
        )
        found = (
            grads.du, grads.ddelta, grads.dA, grads.dB.view(B.shape), grads.dC.view(C.shape), grads.dD, grads.dz,
            grads.d_bias, grads.d_initial,
        )  # fmt: skip
    given = u, delta, A, B, C, D, z, delta_bias, initial
    return tuple(None if tensor is None else grad for tensor, grad in zip(given, found, strict=True))


def _update_kernel(state, x, dt, A, B, C, D, z, dt_bias, indices, known, softplus):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if y.numel():
        B, C = (table.view(x.shape[0], 1, -1, A.shape[1]) for table in (B, C))
        selective_kernels.update(state, x, dt, A, B, C, D, z, dt_bias, softplus, indices, y, known)
    return (y,)


# What the operators run: the above, repeated by replay.py where the kind of call is known.


def _forward_operator(*inputs):
    return replay.run(_forward, inputs[:11], (*inputs[11:], True))


def _backward_operator(*inputs):
    *tensors, slots, softplus, chunk, save, borders, dy, dfinal = inputs
    found = list(replay.run(_backward, (*tensors, borders, dy, dfinal), (slots, softplus, chunk, save)))
    u, A, channels, real = tensors[0], tensors[2], tensors[0].shape[2], real_of(tensors[0].dtype)
    # An operator returns tensors only: something stands for a gradient that nobody will ask for.
    for place, shape, dtype in (
        (5, (channels,), real), (6, (0,), u.dtype), (7, (channels,), real), (8, (slots, channels, A.shape[1]), real)
    ):  # fmt: skip
        if found[place] is None:
            found[place] = u.new_zeros(shape, dtype=dtype)
        elif place != 6:
            found[place] = found[place].contiguous()
    return tuple(found)


def _update(state, x, dt, A, B, C, D, z, dt_bias, softplus, indices, known=None, kind=None):
    if indices is not None and strictness.careful():
        _check_slots(indices, state.shape[0])
    tensors = state, x, dt, A, B, C, D, z, dt_bias, indices, known
    (y,) = replay.run(_update_kernel, tensors, (softplus,), kind)
    if not state.is_inference():
        torch.autograd.graph.increment_version(state)
    return y


for _device in ("CPU", "CUDA"):
    _library.impl("selective_scan_forward", _forward_operator, _device)
    _library.impl("selective_scan_backward", _backward_operator, _device)
    _library.impl("selective_state_update", _update, _device)


@torch.library.register_fake("ssmlab::selective_scan_forward", lib=_library)
def _(u, delta, A, B, C, D, z, delta_bias, initial, start, finish, slots, softplus, chunk, save):
    shape, dtype = _borders_shape(u, A, chunk, save)
    final = u.new_empty((slots, u.shape[2], A.shape[1]), dtype=real_of(u.dtype))
    return torch.empty_like(u), final, u.new_empty(shape, dtype=dtype)


@torch.library.register_fake("ssmlab::selective_scan_backward", lib=_library)
def _(u, delta, A, B, C, D, z, delta_bias, initial, start, finish, slots, softplus, chunk, save, borders, dy, dfinal):
    real = real_of(u.dtype)
    dB, dC = (table.new_empty(table.shape) for table in (B, C))
    dD, d_bias = (u.new_empty(u.shape[2], dtype=real) for _ in range(2))
    dz = u.new_empty(0) if z is None else torch.empty_like(z)
    d_initial = u.new_empty((slots, u.shape[2], A.shape[1]), dtype=real)
    return torch.empty_like(u), torch.empty_like(delta), A.new_empty(A.shape), dB, dC, dD, dz, d_bias, d_initial


@torch.library.register_fake("ssmlab::selective_state_update", lib=_library)
def _(state, x, dt, A, B, C, D, z, dt_bias, softplus, indices, known=None):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _below_autograd(*inputs):
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.ssmlab.selective_scan_forward(*inputs)


class _SelectiveScan(torch.autograd.Function):
    """The forward below autograd, and its gradient; there is no second one, and asking for it raises.

    torch.library.register_autograd would do the same, but looks up each of the 15 arguments in the operator's schema at
    every call, which takes longer than a small scan. With a `kind` (of plain tensors) the dispatcher is left out.
    """

    @staticmethod
    def forward(ctx, kind, final_wanted, *inputs):
        if kind is None:
            y, final, borders = _below_autograd(*inputs)
        else:
            y, final, borders = replay.run(_forward, inputs[:11], (*inputs[11:], final_wanted), kind)
        ctx.save_for_backward(*inputs[:11], borders)
        ctx.options, ctx.kind, ctx.lie = inputs[11:], kind, kind and _lie((*inputs[:11], borders))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(borders)
        return y, final, borders

    @staticmethod
    def backward(ctx, dy, dfinal, _):
        return _gradients_once(ctx, dy, dfinal) if torch.is_grad_enabled() else _gradients(ctx, dy, dfinal)


def _lie(tensors):
    """Where tensors lie, and how."""
    return [None if tensor is None else (tensor.data_ptr(), tensor.stride()) for tensor in tensors]


def _gradients(ctx, dy, dfinal):
    saved = ctx.saved_tensors
    tensors = (*saved, dy, dfinal)
    if ctx.kind is not None and _lie(saved) == ctx.lie:
        kind = _kind((dy, dfinal))
        kind = kind and (ctx.kind, kind)
    else:  # they were put away and brought back
        kind = _kind(tensors)
    if kind is not None:
        found = replay.run(_backward, tensors, ctx.options, kind)
    else:
        dy = torch.zeros_like(tensors[0]) if dy is None else dy
        found = torch.ops.ssmlab.selective_scan_backward(*tensors[:11], *ctx.options, tensors[11], dy, dfinal)
    wanted = (
        grad if needed and tensor is not None else None
        for grad, needed, tensor in zip(found, ctx.needs_input_grad[2:], tensors, strict=False)
    )
    return (None, None, *wanted, None, None, None, None, None, None)


# torch.autograd.Function.apply without its look at function transforms, which a `kind` has ruled out
_apply_plain = super(torch.autograd.Function, _SelectiveScan).apply
_gradients_once = torch.autograd.function.once_differentiable(_gradients)


def _with_gradient(*inputs):
    return _SelectiveScan.apply(None, True, *inputs) if torch.is_grad_enabled() else _below_autograd(*inputs)


_library.impl("selective_scan_forward", _with_gradient, "Autograd")


def _run(kind, tensors, slots, softplus, chunk, save, final_wanted):
    """(y, final state or None) of tensors that have passed all checks and need no conversion."""
    wanted = torch.is_grad_enabled() and _any_gradient(*tensors[:9])
    options = tensors[0].shape[0] if slots is None else slots, softplus, chunk or 0, save if wanted else "nothing"
    if kind is None:
        y, final, _ = torch.ops.ssmlab.selective_scan_forward(*tensors, *options)
    elif wanted:
        y, final, _ = _apply_plain(kind, final_wanted, *tensors, *options)
    else:
        y, final, _ = replay.run(_forward, tensors, (*options, final_wanted), kind)
    return y, final
