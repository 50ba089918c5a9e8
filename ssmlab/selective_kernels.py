"""The launches behind the selective scan: which compile-time constants, how many blocks, which scratch memory.

Everything here takes tensors that selective.py has already checked and brought into one form:
    u, delta, z, dout     (batch, length, channels), one dtype, any strides
    B, C                  (batch, length, groups, states), that dtype, any strides; or fixed: (channels, states), real
    A                     (channels, states) real, contiguous;   D, delta_bias  (channels,) real, contiguous
    initial, final        (slots, channels, states) real, contiguous
    start, finish         (batch, length) int32, contiguous, or None: what kernels_cu/selective.cuh says of marks
"Real" is float64 for float64 inputs, else float32. No axis of u may be empty.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from .launching import launcher

ELEMENT = {
    torch.float32: "ELEMENT_FLOAT",
    torch.float64: "ELEMENT_DOUBLE",
    torch.float16: "ELEMENT_HALF",
    torch.bfloat16: "ELEMENT_BFLOAT16",
}
MAX_STATES = 512  # more would not fit into the shared memory of the backward
MAX_SHARED = 227 * 1024  # [B] of a block: what sm_90 offers
BORDER = 32  # [steps] the closest that saved states can lie; the backward starts again from each


def real_of(dtype):
    """What a dtype is computed in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


# ---- compile-time constants


@dataclass(frozen=True)
class Variant:
    """Compile-time constants of one kernel; the names are those of the kernel files."""

    lanes: int  # threads that share a channel
    own: int  # states of one thread
    threads: int
    tile: int  # steps staged at once (forward, totals), or kept in registers at once (backward)
    resident: int  # blocks of a multiprocessor that the compiler must leave registers for
    many: int = 1  # channels of one thread
    rounds: int = 1  # times that a block takes its channels (backward)
    buffers: int = 1  # exchange buffers for dB and dC (backward)
    unroll: int = 1  # fours of steps that the compiler may interleave (forward, totals)

    @property
    def side_by_side(self):
        """Channels that one block works on at the same time."""
        return self.threads // self.lanes * self.many

    @property
    def across(self):
        """Channels of one block."""
        return self.side_by_side * self.rounds

    @property
    def width(self):
        """Places for states."""
        return self.lanes * self.own


def _lanes_and_own(states):
    lanes = 1
    while lanes < 32 and lanes * 4 < states:
        lanes *= 2
    own = 4
    while lanes * own < states:
        own *= 2
    return lanes, own


def _lanes_and_own_on_cpu(states):
    """Few threads, as each costs a switch; few different texts, as each costs a compilation."""
    return _lanes_and_own(states) if states > 16 else (1, 16 if states > 4 else 4)


def forward_variant(states, device, itemsize=4, busy=True):
    """Constants of selective_forward and selective_totals, for elements of `itemsize` [B].

    busy   enough rows for wide blocks to fill the GPU? Two channels a thread halve the reads of B and C from shared
           memory and give the scheduler two chains; one channel a thread makes twice the threads. On an H200 0.39 and
           0.42 ms at batch 16, length 2048, 1536 channels, bfloat16; 0.57 and 0.44 ms at batch 2, length 4096, 5120.
    """
    if device.type == "cpu":
        return Variant(*_lanes_and_own_on_cpu(states), 32, 16 if states <= 128 else 4, 1)
    lanes, own = _lanes_and_own(states)
    if itemsize == 8 or lanes < 4 or states > 64:
        return Variant(lanes, own, 64 if lanes == 1 else 128, 16 if states <= 128 else 4, 2 if own <= 4 else 1)
    if not busy:
        return Variant(lanes, own, 128, *((32, 4) if itemsize == 2 else (16, 5)), unroll=2)
    return Variant(lanes, own, 128, 16, 2, many=4) if states > 32 else Variant(lanes, own, 128, 16, 4, many=2)


def backward_variant(states, device, real_bytes=4):
    """Constants of selective_backward. A block covers at least 64 channels, so that the sums over blocks stay few."""
    if device.type == "cpu":
        lanes, own = _lanes_and_own_on_cpu(states)
        return Variant(lanes, own, 32, 4, 1, rounds=min(4, lanes))
    lanes, own = _lanes_and_own(states)
    if states > 64:
        return Variant(lanes, own, 32 if states > 256 else 64, 4, 1, rounds=8)
    if real_bytes == 8 or lanes < 4:
        threads = 32 if lanes < 4 else 64
        return Variant(lanes, own, threads, 4, 1, rounds=max(1, 64 * lanes // threads))
    if states > 16:
        return Variant(lanes, own, 256, 4, 1, many=2, rounds=max(1, lanes // 8))
    return Variant(lanes, own, 128, 4, 3, many=2)


def backward_shared(variant, chunk, time_inner, vector, real_bytes, every):
    """[B] of dynamic shared memory of selective_backward: struct Layout of the kernel, which asserts that it agrees."""
    groups = variant.threads // variant.lanes
    channels = groups * variant.many
    pitch = channels + (variant.many if time_inner else 0)
    half = groups * variant.width + (16 if variant.width == 16 else 0)
    reals = (3 * chunk * pitch + 3) // 4 * 4 + 2 * chunk * variant.width
    if not every:
        reals += (chunk // variant.tile - 1) * variant.many * variant.threads * variant.own
    reals += variant.buffers * variant.tile * 2 * half
    if variant.rounds > 1:
        reals += 2 * chunk * variant.width
    reals += 2 * variant.rounds * channels + 2 * (channels + (1 if time_inner else vector))
    return reals * real_bytes + 2 * chunk * 4


def backward_chunk(variant, real_bytes):
    """[steps] that the backward stages at once: BORDER, or what shared memory takes."""
    for chunk in (BORDER, BORDER // 2, BORDER // 4):
        if backward_shared(variant, chunk, 1, 4, real_bytes, False) <= MAX_SHARED:
            return chunk
    raise ValueError(f"{variant.width} states do not fit into {MAX_SHARED} B of shared memory")


def _divides(tensor, vector, inner):
    """Can `vector` neighbours along axis `inner` be one access, wherever it starts at a multiple of `vector`?"""
    if tensor.data_ptr() % (vector * tensor.element_size()):
        return False
    strides = [s for axis, s in enumerate(tensor.stride()) if axis != inner and tensor.shape[axis] > 1]
    return tensor.stride(inner) == 1 and all(stride % vector == 0 for stride in strides)


def layout_of(tensors, groups, side_by_side):
    """(vector, time_inner) for tensors (batch, length, channels): 4 at once along an axis that all are dense in."""
    length, channels = tensors[0].shape[1:]
    if tensors[0].device.type == "cpu":
        return 1, 0
    aligned = side_by_side % 4 == 0 and channels // groups % 4 == 0
    if aligned and all(_divides(tensor, 4, 2) for tensor in tensors):
        return 4, 0
    if channels > 1 and all(tensor.stride(1) == 1 for tensor in tensors):
        return (4 if length % 4 == 0 and all(_divides(tensor, 4, 1) for tensor in tensors) else 1), 1
    return 1, 0


def table_of(tables, states):
    """Elements of B and C in one access."""
    if not tables or tables[0].device.type == "cpu" or states % 4:
        return 1
    return 4 if all(_divides(table, 4, 3) for table in tables) else 1


# ---- pieces of a row


@functools.cache
def _pieces(blocks, resident, processors, most, extra, waiting):
    """How many pieces to cut each row into, when `blocks` blocks work on the uncut rows: (estimated cost, pieces).

    The fullest multiprocessor decides: its blocks over the average. k resident blocks run at k / (k + waiting) of the
    pace, and two passes cost `extra` more: both fitted to H200 timings. The least estimate wins, then the fewest.
    """
    best = (float("inf"), 1)
    for pieces in range(1, most + 1):
        average = blocks * pieces / processors
        fullest = -(-blocks * pieces // processors)
        together = min(fullest, resident)
        cost = fullest / average * (together + waiting) / together * (1 if pieces == 1 else 1 + extra)
        best = min(best, (cost, pieces))
        if average > 8 * resident:
            break
    return best


def _cut(u, groups, variant, extra, waiting, step, whole_batch):
    """(estimated cost, (steps of a piece, pieces of a row)); pieces are multiples of `step`."""
    batch, length, _ = u.shape
    if u.device.type == "cpu":
        return 1.0, (length, 1)
    processors = torch.cuda.get_device_properties(u.device).multi_processor_count
    blocks = _columns(u, groups, variant) * (batch if whole_batch else 1)
    most = max(1, min(length // max(4 * BORDER, step), 2048))
    cost, pieces = _pieces(blocks, variant.resident, processors, most, extra, waiting)
    steps = -(-length // pieces)
    steps = -(-steps // step) * step if pieces > 1 else length
    return cost, (steps, -(-length // steps))


def forward_plan(u, groups, states, *, step=BORDER, whole_batch=True):
    """(Variant, (steps of a piece, pieces of a row)) for the forward.

    step          [steps] between saved states: pieces are multiples of it
    whole_batch   False: choose as if the batch were one row, so that a row gets the same bits alone and in a batch
    """
    plans = []
    for busy, pace in ((True, 1.0), (False, 1.1)):
        variant = forward_variant(states, u.device, u.element_size(), busy)
        cost, segment = _cut(u, groups, variant, 0.55, 0.3, step, whole_batch)
        plans.append((cost * pace, variant, segment))
    return min(plans, key=lambda plan: plan[0])[1:]


def backward_plan(u, groups, states, *, whole_batch=True):
    """(Variant, (steps of a piece, pieces of a row)) for the backward."""
    variant = backward_variant(states, u.device, real_of(u.dtype).itemsize)
    return variant, _cut(u, groups, variant, 0.22, 0.5, BORDER, whole_batch)[1]


def _columns(u, groups, variant):
    """Blocks side by side over the channels; none crosses a group."""
    return -(-(u.shape[2] // groups) // variant.across) * groups


def _blocks(u, groups, variant, segments):
    """Blocks of a launch: columns, segments and batch rows in one number, which no axis of a grid limits."""
    count = _columns(u, groups, variant) * segments * u.shape[0]
    if count >= 2**31:
        raise ValueError(f"u has shape {tuple(u.shape)}: the launch would need {count} blocks, a GPU takes {2**31 - 1}")
    return (count,)


# ---- launches


@dataclass(frozen=True)
class Inputs:
    """What every launch needs; fields as in the module's text, missing ones None."""

    u: torch.Tensor
    delta: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    D: torch.Tensor | None
    z: torch.Tensor | None
    delta_bias: torch.Tensor | None
    softplus: bool
    start: torch.Tensor | None
    finish: torch.Tensor | None

    @property
    def groups(self):
        moving = [table.shape[2] for table in (self.B, self.C) if table.dim() == 4]
        return moving[0] if moving else 1

    @property
    def states(self):
        return self.A.shape[1]

    @property
    def real(self):
        return real_of(self.u.dtype)

    def constants(self, streams, variant):
        """Compile-time constants for these inputs; streams: all (batch, length, channels) tensors of the launch."""
        vector, time_inner = layout_of(streams, self.groups, variant.side_by_side)
        return {
            ELEMENT[self.u.dtype]: None,
            "VECTOR": vector,
            "TABLE": table_of([table for table in (self.B, self.C) if table.dim() == 4], self.states),
            "TIME_INNER": time_inner,
            "PACKED": int(self.start is not None),
            "GATED": int(self.z is not None),
            "FIXED_B": int(self.B.dim() == 2),
            "FIXED_C": int(self.C.dim() == 2),
            "LANES": variant.lanes,
            "OWN": variant.own,
            "MANY": variant.many,
            "THREADS": variant.threads,
            "TILE": variant.tile,
            "RESIDENT": variant.resident,
        }

    def sizes(self):
        """length, channels, states, groups, softplus: in the kernels' order."""
        return self.u.shape[1], self.u.shape[2], self.states, self.groups, int(self.softplus)


def _launch(name, constants, grid, threads, args, device, shared_mem=0):
    launcher(f"{name}.cu", name, tuple(constants.items()))(grid, (threads,), args, device, shared_mem)


def _table_strides(table):
    """Strides of B or C: (batch, time, group, state); of a fixed one the channel's takes the group's place."""
    return table.stride() if table.dim() == 4 else (0, 0, table.stride(0), table.stride(1))


def _strides(tensor):
    return (0, 0, 0) if tensor is None else tensor.stride()


def _border_constant(borders):
    return {"BORDER_BFLOAT16": None} if borders is not None and borders.dtype == torch.bfloat16 else {}


def totals(x, segment, initial=None, *, adjoint=None, d_final=None, variant=None):
    """What enters each segment, (batch, segments, channels, states) real: the state, or with adjoint=dout its gradient.

    segment   (steps, segments) of a plan
    """
    steps, segments = segment
    device = x.u.device
    variant = variant or forward_variant(x.states, device, x.u.element_size())
    stream = x.u if adjoint is None else adjoint
    streams = [stream, x.delta] + ([x.z] if x.z is not None and adjoint is not None else [])
    shape = (x.u.shape[0], segments, x.u.shape[2], x.states)
    product = torch.empty(shape, dtype=x.real, device=device)
    total = torch.empty_like(product)
    constants = x.constants(streams, variant)
    _launch(
        "selective_totals", constants | {"UNROLL": variant.unroll, "ADJOINT": int(adjoint is not None)},
        _blocks(x.u, x.groups, variant, segments), variant.threads,
        (stream, x.delta, x.A, x.B, x.C, x.z, x.delta_bias, initial, x.start, x.finish, d_final, product, total,
         *x.sizes(), steps, segments, *stream.stride(), *x.delta.stride(), *_strides(x.z),
         *_table_strides(x.B), *_table_strides(x.C)), device,
    )  # fmt: skip
    row = shape[2] * shape[3]
    at_edge = (initial if adjoint is None else d_final) if x.start is None else None
    _launch(
        "selective_link", {ELEMENT[x.real]: None, "THREADS": 128}, (-(-shape[0] * row // 128),), 128,
        (product, total, at_edge, shape[0], row, segments, int(adjoint is not None)), device,
    )  # fmt: skip
    return total


def forward(
    x, initial, final, *, segment=None, borders=None, spacing=BORDER, every=False, enter=None, variant=None
):  # fmt: skip
    """y; and into `final` and `borders` (batch, borders, channels, states) what is asked for.

    segment   (steps, segments) of a plan; enter: the states that enter them, if they are known
    borders   a tensor for the state before every `spacing` steps, or behind every step (every=True)
    """
    steps, segments = segment or (x.u.shape[1], 1)
    y = torch.empty_like(x.u)
    variant = variant or forward_variant(x.states, x.u.device, x.u.element_size())
    if segments > 1 and enter is None:
        enter = totals(x, (steps, segments), initial, variant=variant)
    elif enter is None and x.start is None:
        enter = initial
    streams = [x.u, x.delta, y] + ([x.z] if x.z is not None else [])
    _launch(
        "selective_forward",
        x.constants(streams, variant) | _border_constant(borders) | {"UNROLL": variant.unroll, "EVERY": int(every)},
        _blocks(x.u, x.groups, variant, segments), variant.threads,
        (x.u, x.delta, x.A, x.B, x.C, x.D, x.z, x.delta_bias, enter, initial, x.start, x.finish, y, final, borders,
         *x.sizes(), steps, segments, spacing, *x.u.stride(), *x.delta.stride(), *_strides(x.z), *y.stride(),
         *_table_strides(x.B), *_table_strides(x.C)), x.u.device,
    )  # fmt: skip
    return y


def closer_borders(x, initial, borders, spacing, chunk):
    """The states before every `chunk` steps, from those before every `spacing`: the forward once more, all at once."""
    batch, length, channels = x.u.shape
    closer = torch.empty((batch, -(-length // chunk), channels, x.states), dtype=x.real, device=x.u.device)
    forward(
        x, initial, None, segment=(spacing, borders.shape[1]), borders=closer, spacing=chunk, enter=borders.to(x.real)
    )
    return closer


@dataclass(frozen=True)
class Gradients:
    """real: dA, dD, d_bias, d_initial, and those of a fixed B or C; all others in u's dtype."""

    du: torch.Tensor
    ddelta: torch.Tensor
    dA: torch.Tensor
    dB: torch.Tensor
    dC: torch.Tensor
    dD: torch.Tensor
    dz: torch.Tensor | None
    d_bias: torch.Tensor
    d_initial: torch.Tensor


def _sum(parts, dtype):
    """parts summed over axis 0 in one fixed order, as a tensor of `dtype`."""
    out = torch.empty(parts.shape[1:], dtype=dtype, device=parts.device)
    grid = (-(-out.numel() // 32),)
    _launch("selective_sum", {ELEMENT[dtype]: None}, grid, 256, (parts, out, parts.shape[0], out.numel()), parts.device)
    return out


def backward(
    x, dout, d_final, borders, initial, *, slots=None, segment=None, spacing=None, every=False, variant=None, chunk=None
):
    """All gradients.

    borders   as the forward wrote them, `spacing` steps apart (None: as far as the kernel wants them)
    slots     how many states there are, where rows are packed
    """
    batch, length, channels = x.u.shape
    steps, segments = segment or (length, 1)
    real, device = x.real, x.u.device
    variant = variant or backward_variant(x.states, device, real.itemsize)
    chunk = chunk or backward_chunk(variant, real.itemsize)
    if not every and spacing not in (None, chunk):
        borders = closer_borders(x, initial, borders, spacing, chunk)
    du, ddelta = torch.empty_like(x.u), torch.empty_like(x.delta)
    dz = None if x.z is None else torch.empty_like(x.z)
    streams = [x.u, x.delta, dout, du, ddelta] + ([x.z, dz] if x.z is not None else [])
    shape = (batch, segments, channels, x.states)
    d_initial = None
    if x.start is not None:  # an empty sequence hands the gradient of its state through
        none = d_final is None
        d_initial = torch.zeros((slots, channels, x.states), dtype=real, device=device) if none else d_final.clone()
    if segments > 1:
        adjoint = totals(x, (steps, segments), None, adjoint=dout, d_final=d_final)
    elif d_final is not None and x.start is None:
        adjoint = d_final.reshape(shape).clone()
    else:
        adjoint = torch.zeros(shape, dtype=real, device=device)
    dA = torch.zeros(shape, dtype=real, device=device)
    columns = _columns(x.u, x.groups, variant) // x.groups

    def table_parts(table):
        if table.dim() == 2:
            return torch.zeros(shape, dtype=real, device=device)
        return torch.empty((columns, batch, length, x.groups, x.states), dtype=real, device=device)

    dB, dC = table_parts(x.B), table_parts(x.C)
    sums = torch.zeros((batch, segments, channels, 2), dtype=real, device=device)
    constants = x.constants(streams, variant)
    shared = backward_shared(variant, chunk, constants["TIME_INNER"], constants["VECTOR"], real.itemsize, every)
    constants |= _border_constant(borders) | {
        "ROUNDS": variant.rounds, "BUFFERS": variant.buffers, "CHUNK": chunk, "EVERY": int(every), "SHARED": shared
    }  # fmt: skip
    _launch(
        "selective_backward", constants, _blocks(x.u, x.groups, variant, segments), variant.threads,
        (x.u, x.delta, x.A, x.B, x.C, x.D, x.z, x.delta_bias, borders, initial, x.start, x.finish, dout, d_final,
         du, ddelta, dz, adjoint, d_initial, dA, dB, dC, sums, *x.sizes(), steps, segments, batch, *x.u.stride(),
         *x.delta.stride(), *_strides(x.z), *dout.stride(), *du.stride(), *ddelta.stride(), *_strides(dz),
         *_table_strides(x.B), *_table_strides(x.C)), device, shared,
    )  # fmt: skip

    def gather(parts, table):
        return _sum(parts.view(-1, channels, x.states), real) if table.dim() == 2 else _sum(parts, x.u.dtype)

    weights = _sum(sums.view(-1, channels, 2), real)
    return Gradients(
        du, ddelta, _sum(dA.view(-1, channels, x.states), real), gather(dB, x.B), gather(dC, x.C), weights[:, 0], dz,
        weights[:, 1], d_initial if d_initial is not None else adjoint[:, 0],
    )  # fmt: skip


def update(state, x, dt, A, B, C, D, z, dt_bias, softplus, indices, y):
    """One token: state in place, y written. x, dt, z, y (batch, channels); B, C (batch, 1, groups, states)."""
    batch, channels = x.shape
    states, groups, device = A.shape[1], B.shape[2], x.device
    lanes, own = _lanes_and_own_on_cpu(states) if device.type == "cpu" else _lanes_and_own(states)
    bytes_owned = own * state.element_size()
    apart = [stride * state.element_size() for stride in state.stride()[:2]]
    wide = (
        states == lanes * own and state.stride(2) == 1 and state.data_ptr() % min(bytes_owned, 16) == 0
        and not any(stride % min(bytes_owned, 16) for stride in apart)
    )  # fmt: skip
    tables_wide = states == lanes * own and all(
        table.stride(3) == 1 and table.data_ptr() % (own * x.element_size()) == 0
        and table.stride(0) % own == 0 and table.stride(2) % own == 0 for table in (B, C)
    )  # fmt: skip
    tables_wide = tables_wide and own * x.element_size() <= 16
    threads, rows = (32, 1) if device.type == "cpu" else (128, 4 if batch >= 512 else 1)
    constants = {
        ELEMENT[x.dtype]: None, ELEMENT[state.dtype].replace("ELEMENT", "STATE"): None, "LANES": lanes, "OWN": own,
        "ROWS": rows, "THREADS": threads, "WIDE": int(wide),
        "TABLE_WIDE": int(tables_wide),
    }  # fmt: skip
    grid = -(-channels // (threads // lanes)) * -(-batch // rows)
    _launch(
        "selective_update", constants, (grid,), threads,
        (state, x, dt, A, B, C, D, z, dt_bias, indices, y, batch, channels, states, groups, int(softplus),
         *state.stride(), *x.stride(), *dt.stride(), *((0, 0) if z is None else z.stride()),
         B.stride(0), B.stride(2), B.stride(3), C.stride(0), C.stride(2), C.stride(3)), device,
    )  # fmt: skip
