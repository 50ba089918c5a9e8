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
_MANY_PARTS = 8  # from so many on, eight threads share a sum
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
    unroll: int = 1  # fours of steps that the compiler may interleave (forward, totals)
    chunk: int = BORDER  # steps that are staged at once (backward)

    @property
    def side_by_side(self):
        """Channels of one block."""
        return self.threads // self.lanes * self.many

    @property
    def width(self):
        """Places for states; the backward takes so many at a time."""
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
    """Constants of selective_backward: up to 16 states at a time, and 64 channels a block where that fits."""
    if device.type == "cpu":
        return Variant(1, 16 if states > 4 else 4, 32, 4, 1)
    lanes = 1 if states <= 4 else 2 if states <= 8 else 4
    if real_bytes == 8 or lanes < 4:
        return Variant(lanes, 4, 16 * lanes if lanes > 1 else 32, 4, 1, many=2)
    return Variant(4, 4, 128, 4, 3, many=2, chunk=BORDER if states <= 16 else BORDER // 2)


def backward_parts(states, variant):
    """Times that the backward goes through the channels of a block, WIDTH states at a time."""
    return -(-states // variant.width)


def backward_shared(variant, parts, time_inner, vector, real_bytes):
    """[B] of dynamic shared memory of selective_backward: struct Layout of the kernel, which asserts that it agrees."""
    chunk = variant.chunk
    channels = variant.side_by_side
    pitch = channels + (variant.many if time_inner else 4)
    reals = (3 * chunk * pitch + 3) // 4 * 4 + 2 * chunk * variant.width
    reals += (chunk // variant.tile - 1) * variant.many * variant.threads * variant.own
    reals += variant.tile * 2 * variant.threads * variant.own
    reals += 2 * (channels + (1 if time_inner else vector))
    reals = (reals + 3) // 4 * 4 + (3 * chunk * pitch if parts > 1 else 0)
    return reals * real_bytes + 2 * chunk * 4


@functools.cache
def _divides(shape, strides, vector, inner):
    """Can `vector` neighbours along axis `inner` be one access, wherever it starts at a multiple of `vector`?"""
    others = [stride for axis, stride in enumerate(strides) if axis != inner and shape[axis] > 1]
    return strides[inner] == 1 and all(stride % vector == 0 for stride in others)


def _aligned(tensors, vector):
    """Does every tensor start where an access of `vector` elements may start?"""
    size = vector * tensors[0].element_size()
    return not any(tensor.data_ptr() % size for tensor in tensors)


def layout_of(tensors, groups, side_by_side):
    """(vector, time_inner) for tensors (batch, length, channels): 4 at once along an axis that all are dense in."""
    shape = tensors[0].shape
    if tensors[0].device.type == "cpu":
        return 1, 0
    strides = {tensor.stride() for tensor in tensors}
    aligned = _aligned(tensors, 4)
    fours = aligned and side_by_side % 4 == 0 and shape[2] // groups % 4 == 0
    if fours and all(_divides(shape, each, 4, 2) for each in strides):
        return 4, 0
    if shape[2] > 1 and all(each[1] == 1 for each in strides):
        return (4 if aligned and shape[1] % 4 == 0 and all(_divides(shape, each, 4, 1) for each in strides) else 1), 1
    return 1, 0


def table_of(tables, states):
    """Elements of B and C in one access."""
    if not tables or tables[0].device.type == "cpu" or states % 4 or not _aligned(tables, 4):
        return 1
    return 4 if all(_divides(table.shape, table.stride(), 4, 3) for table in tables) else 1


# ---- pieces of a row


@functools.cache
def _pieces(blocks, resident, processors, most, extra, waiting):
    """How many pieces to cut each row into, when `blocks` blocks work on the uncut rows: (estimated cost, pieces).

    The fullest multiprocessor decides, with rounds of up to `resident` blocks. A block takes 1 of its time where it
    shares a multiprocessor, and each round `waiting` more, for what no other block can fill; two passes cost `extra`
    more. Fitted to H200 timings. The cost is that of one pass over the rows, per block that a multiprocessor has on
    average. The least estimate wins, then the fewest pieces.
    """
    best = (float("inf"), 1)
    for pieces in range(1, most + 1):
        average = blocks * pieces / processors
        fullest = -(-blocks * pieces // processors)
        rounds = -(-fullest // resident)
        cost = (fullest + waiting * rounds) / average * (1 + extra * (pieces - 1) / pieces)
        best = min(best, (cost, pieces))
        if average > 8 * resident:
            break
    return best


@functools.cache
def _processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def _cut(shape, device, groups, variant, extra, waiting, step, whole_batch):
    """(estimated cost, (steps of a piece, pieces of a row)); pieces are multiples of `step`."""
    batch, length, _ = shape
    if device.type == "cpu":
        return 1.0, (length, 1)
    blocks = _columns(shape, groups, variant) * (batch if whole_batch else 1)
    most = max(1, min(length // max(4 * BORDER, step), 2048))
    cost, pieces = _pieces(blocks, variant.resident, _processors(device), most, extra, waiting)
    steps = -(-length // pieces)
    steps = -(-steps // step) * step if pieces > 1 else length
    return cost, (steps, -(-length // steps))


def forward_plan(u, groups, states, *, step=BORDER, whole_batch=True):
    """(Variant, (steps of a piece, pieces of a row)) for the forward.

    step          [steps] between saved states: pieces are multiples of it
    whole_batch   False: choose as if the batch were one row, so that a row gets the same bits alone and in a batch
    """
    return _forward_plan(u.shape, u.device, u.element_size(), groups, states, step, whole_batch)


@functools.lru_cache(4096)
def _forward_plan(shape, device, itemsize, groups, states, step, whole_batch):
    plans = []
    for busy, pace in ((True, 1.0), (False, 1.1)):
        variant = forward_variant(states, device, itemsize, busy)
        cost, segment = _cut(shape, device, groups, variant, 0.55, 0.3, step, whole_batch)
        plans.append((cost * pace, variant, segment))
    return min(plans, key=lambda plan: plan[0])[1:]


def backward_plan(u, groups, states, *, whole_batch=True):
    """(Variant, (steps of a piece, pieces of a row)) for the backward."""
    return _backward_plan(u.shape, u.device, real_of(u.dtype).itemsize, groups, states, whole_batch)


@functools.lru_cache(4096)
def _backward_plan(shape, device, real_bytes, groups, states, whole_batch):
    variant = backward_variant(states, device, real_bytes)
    return variant, _cut(shape, device, groups, variant, 0.22, 0.64, BORDER, whole_batch)[1]


def _columns(shape, groups, variant):
    """Blocks side by side over the channels of (batch, length, channels); none crosses a group."""
    return -(-(shape[2] // groups) // variant.side_by_side) * groups


def _blocks(u, groups, variant, segments):
    """Blocks of a launch: columns, segments and batch rows in one number, which no axis of a grid limits."""
    count = _columns(u.shape, groups, variant) * segments * u.shape[0]
    if count >= 2**31:
        raise ValueError(f"u has shape {tuple(u.shape)}: the launch would need {count} blocks, a GPU takes {2**31 - 1}")
    return (count,)


# ---- launches


@dataclass
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

    def __post_init__(self):
        moving = [table for table in (self.B, self.C) if table.dim() == 4]
        self.moving = moving  # those of B and C that have a row a step
        self.groups = moving[0].shape[2] if moving else 1
        self.states = self.A.shape[1]
        self.real = real_of(self.u.dtype)

    def constants(self, streams, variant):
        """Compile-time constants for these inputs; streams: all (batch, length, channels) tensors of the launch."""
        vector, time_inner = layout_of(streams, self.groups, variant.side_by_side)
        return {
            ELEMENT[self.u.dtype]: None,
            "VECTOR": vector,
            "TABLE": table_of(self.moving, self.states),
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
        _blocks(x.u, x.groups, variant, segments - 1), variant.threads,
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


def _slices(x, columns):
    """How many launches the backward makes, one behind the other, so that the parts of dB and dC do not need too much.

    They may take as much as du, ddelta and dz together, or 16 MB. With up to 16 states one launch is always enough.
    """
    parts = columns * sum(table.numel() for table in x.moving) * x.real.itemsize
    most = max(2**24, 3 * x.u.numel() * x.u.element_size())
    return max(1, min(-(-parts // most), x.u.shape[1] // (4 * BORDER)))


def backward(
    x, dout, d_final, borders, initial, *, slots=None, segment=None, spacing=None, every=False, variant=None,
    slices=None,
):  # fmt: skip
    """All gradients.

    borders   as the forward wrote them, `spacing` steps apart (None: as far as the kernel wants them)
    slots     how many states there are, where rows are packed
    slices    how many launches to make of it
    """
    batch, length, channels = x.u.shape
    steps, segments = segment or (length, 1)
    real, device = x.real, x.u.device
    variant = variant or backward_variant(x.states, device, real.itemsize)
    chunk = variant.chunk
    spacing = chunk if every or spacing is None else spacing
    if spacing > 2 * chunk:
        closer = chunk if spacing % (2 * chunk) else 2 * chunk
        borders, spacing = closer_borders(x, initial, borders, spacing, closer), closer

    def empty(*shape, dtype=real):
        return torch.empty(shape, dtype=dtype, device=device)

    du, ddelta = torch.empty_like(x.u), torch.empty_like(x.delta)
    dz = None if x.z is None else torch.empty_like(x.z)
    streams = [x.u, x.delta, dout, du, ddelta] + ([x.z, dz] if x.z is not None else [])
    constants = x.constants(streams, variant)
    if x.start is None:
        d_initial = empty(batch, channels, x.states)
    else:  # an empty sequence hands the gradient of its state through
        none = d_final is None
        d_initial = torch.zeros((slots, channels, x.states), dtype=real, device=device) if none else d_final.clone()

    columns = _columns(x.u.shape, x.groups, variant) // x.groups
    slices = 1 if segments > 1 else slices or _slices(x, columns)
    enter = leave = None
    if segments > 1:  # they run at the same time: what enters each is found first
        enter = totals(x, (steps, segments), None, adjoint=dout, d_final=d_final)
    elif slices > 1:  # they run one after the other: each leaves what enters the one before it
        steps = -(-length // (slices * BORDER)) * BORDER
        segments = -(-length // steps)
        enter = leave = empty(batch, segments, channels, x.states)
    at_once = segments if leave is None else 1

    parts, rows, weights = backward_parts(x.states, variant), batch * segments, channels * x.states
    carry = empty(rows, weights) if parts > 1 else None
    again = empty(rows, weights) if spacing > chunk else None
    dA_part, sums_part = empty(rows, weights), empty(rows, 2 * channels)
    table_row = x.groups * x.states  # elements of dB and dC in a step
    dB_part, dC_part = (
        empty(rows, weights) if table.dim() == 2 else empty(columns, batch, min(at_once * steps, length) * table_row)
        for table in (x.B, x.C)
    )
    dA, sums = empty(channels, x.states), empty(2, channels)
    dB, dC = (empty(*table.shape, dtype=table.dtype) for table in (x.B, x.C))
    shared = backward_shared(variant, parts, constants["TIME_INNER"], constants["VECTOR"], real.itemsize)
    constants |= _border_constant(borders) | {
        "PARTS": parts, "CHUNK": chunk, "SPAN": spacing // chunk, "EVERY": int(every), "SHARED": shared
    }  # fmt: skip
    for first in reversed(range(0, segments, at_once)):
        here = min(at_once, segments - first)
        _launch(
            "selective_backward", constants, _blocks(x.u, x.groups, variant, here), variant.threads,
            (x.u, x.delta, x.A, x.B, x.C, x.D, x.z, x.delta_bias, borders, initial, x.start, x.finish, dout, d_final,
             du, ddelta, dz, enter, leave, carry, again, d_initial, dA_part, dB_part, dC_part, sums_part, *x.sizes(),
             steps, segments, first, here, batch, *x.u.stride(), *x.delta.stride(), *_strides(x.z), *dout.stride(),
             *du.stride(), *ddelta.stride(), *_strides(dz), *_table_strides(x.B), *_table_strides(x.C)),
            device, shared,
        )  # fmt: skip
        part_row = (min((first + here) * steps, length) - first * steps) * table_row
        complete = first == 0  # what is summed over segments is there with the first of them
        counts = (
            *((weights if complete else 0) if table.dim() == 2 else batch * part_row for table in (x.B, x.C)),
            *((weights, 2 * channels) if complete else (0, 0)),
        )
        _sum_parts(
            (dB_part, dC_part, dA_part, sums_part, dB, dC, dA, sums, rows, columns, *counts, part_row,
             length * table_row, first * steps * table_row),
            [rows if table.dim() == 2 else columns for table in (x.B, x.C)] + [rows, rows], constants, device,
        )  # fmt: skip
    return Gradients(du, ddelta, dA, dB, dC, sums[0], dz, sums[1], d_initial)


def _sum_parts(args, parts, constants, device):
    """Launch selective_sum. args: its arguments; parts: how many are summed for dB, dC, dA, and dD with d_bias."""
    counts = args[10:14]
    vector = 4 if device.type != "cpu" and not any(number % 4 for number in args[10:]) else 1
    grid = sum(
        -(-count // (256 // (8 if many >= _MANY_PARTS else 1) * vector))
        for count, many in zip(counts, parts, strict=True)
    )  # fmt: skip
    element = next(name for name in constants if name.startswith("ELEMENT"))
    constants = {name: constants[name] for name in (element, "FIXED_B", "FIXED_C")}
    if grid:
        _launch(
            "selective_sum", constants | {"VECTOR": vector, "MANY_PARTS": _MANY_PARTS}, (grid,), 256, args, device
        )  # fmt: skip


def update_variant(states, batch, device):
    """(lanes, own, rows, threads): constants of selective_update."""
    if device.type == "cpu":
        return *_lanes_and_own_on_cpu(states), 1, 32
    return *_lanes_and_own(states), 4 if batch >= 512 else 1, 128


def update(state, x, dt, A, B, C, D, z, dt_bias, softplus, indices, y, known=None):
    """One token: state in place, y written. x, dt, z, y (batch, channels); B, C (batch, 1, groups, states).

    indices, known   (batch,) int32 or int64, bool: the slot of each row, and whether there is a state in it; or None
    """
    batch, channels = x.shape
    states, groups, device = A.shape[1], B.shape[2], x.device
    lanes, own, rows, threads = update_variant(states, batch, device)
    full, together = states == lanes * own, min(own, 16 // state.element_size())
    wide = full and state.stride(2) == 1 and all(
        place % (together * state.element_size()) == 0
        for place in (state.data_ptr(), *(stride * state.element_size() for stride in state.stride()[:2]))
    )  # fmt: skip
    table_bytes = together * x.element_size()
    tables_wide = full and table_bytes <= 16 and A.data_ptr() % 16 == 0 and all(
        table.stride(3) == 1 and table.data_ptr() % table_bytes == 0 and table.stride(0) % together == 0
        and table.stride(2) % together == 0 for table in (B, C)
    )  # fmt: skip
    constants = {
        ELEMENT[x.dtype]: None, ELEMENT[state.dtype].replace("ELEMENT", "STATE"): None, "LANES": lanes, "OWN": own,
        "ROWS": rows, "THREADS": threads, "WIDE": int(wide), "TABLE_WIDE": int(tables_wide),
        "INDEX_INT": int(indices is not None and indices.dtype == torch.int32), "KNOWN": int(known is not None),
    }  # fmt: skip
    grid = -(-channels // (threads // lanes)) * -(-batch // rows)
    _launch(
        "selective_update", constants, (grid,), threads,
        (state, x, dt, A, B, C, D, z, dt_bias, indices, known, y, batch, channels, states, groups, int(softplus),
         *state.stride(), *x.stride(), *dt.stride(), *((0, 0) if z is None else z.stride()),
         B.stride(0), B.stride(2), B.stride(3), C.stride(0), C.stride(2), C.stride(3)), device,
    )  # fmt: skip
