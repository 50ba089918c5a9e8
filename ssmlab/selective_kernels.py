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
FEW_SEGMENTS = 32  # up to so many, each block of the forward walks through the totals of those before its own
_LONG = 4096  # [steps] from here on the walk through a segment may well end early
_LONGEST = 6144  # [steps] a segment may have; it may also be one whose walk does not end early
_REACH = 3800  # [steps] a walk is expected to take on average
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
    hand: int = 4  # steps whose dB and dC the threads of a warp hand each other at once (backward)

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
    """Constants of selective_forward, for elements of `itemsize` [B].

    busy   enough rows for wide blocks to fill the GPU? Eight states of a channel in one thread need the fewest sums
           over threads and the fewest reads of shared memory, four make twice the threads. On an H200 0.336 and 0.373
           ms at batch 16, length 2048, 1536 channels, bfloat16. At batch 2, length 4096, 5120 channels wide blocks
           would leave most multiprocessors with one of them, where three find room: there four states are better.
    """
    if device.type == "cpu":
        return Variant(*_lanes_and_own_on_cpu(states), 32, 16 if states <= 128 else 4, 1)
    lanes, own = _lanes_and_own(states)
    if itemsize == 8 or lanes < 4 or states > 64:
        return Variant(lanes, own, 64 if lanes == 1 else 128, 16 if states <= 128 else 4, 2 if own <= 4 else 1)
    if lanes == 4:
        return Variant(2, 8, 128, 16, 3, unroll=4) if busy else Variant(4, 4, 128, 32, 3, unroll=8)
    if not busy:
        return Variant(lanes, own, 128, 16, 4, unroll=2)
    return Variant(lanes, own, 128, 16, 2, many=4) if states > 32 else Variant(lanes, own, 128, 16, 3, many=2)


def totals_variant(forward, states, device, itemsize, steps):
    """Constants of selective_totals for segments of `steps`, where those of selective_forward are `forward`.

    It sums nothing over threads, so it has no use for many states in one. In long segments blocks are small: each may
    end its walk as soon as its own channels have forgotten the rest.
    """
    if device.type == "cpu" or itemsize == 8 or _lanes_and_own(states)[0] != 4:
        return forward
    return Variant(8, 2, 128, 32, 6, unroll=2) if steps >= _LONG else Variant(4, 4, 128, 32, 4, unroll=2)


def backward_variant(states, device, real_bytes=4):
    """Constants of selective_backward: up to 16 states at a time, and 64 channels a block where that fits.

    Three blocks fit into a multiprocessor: 168 registers a thread, and not more than 75 KB of shared memory each. With
    many states, which need room for the sums of their parts, fewer steps are staged at once.
    """
    if device.type == "cpu":
        return Variant(1, 16 if states > 4 else 4, 32, 4, 1, hand=2 if states <= 16 else 4)
    lanes = 1 if states <= 4 else 2 if states <= 8 else 4
    if real_bytes == 8 or lanes < 4:
        return Variant(lanes, 4, 16 * lanes if lanes > 1 else 32, 4, 1, many=2)
    if states <= 16:
        return Variant(4, 4, 128, 4, 3, many=2, hand=2)
    return Variant(4, 4, 128, 4, 3, many=2, chunk=BORDER // 2)


def adjoint_variant(states, device, itemsize=4):
    """Constants of selective_totals for the backward: one channel a thread, 6 blocks of a multiprocessor.

    On an H200 0.22 ms where the forward's take 0.24 (batch 2, length 4096, 5120 channels, bfloat16).
    """
    variant = forward_variant(states, device, itemsize)
    if device.type == "cpu" or itemsize == 8 or _lanes_and_own(states) != (4, 4):
        return variant
    return Variant(4, 4, 128, 16, 6, unroll=4)


def backward_parts(states, variant):
    """Times that the backward goes through the channels of a block, WIDTH states at a time."""
    return -(-states // variant.width)


def backward_shared(variant, parts, span, time_inner, vector, real_bytes, packed):
    """[B] of dynamic shared memory of selective_backward: struct Layout of the kernel, which asserts that it agrees."""
    chunk, channels, threads = variant.chunk, variant.side_by_side, variant.threads
    pitch = channels + (variant.many if time_inner else 4)
    even = pitch if time_inner or parts == 1 else channels
    packs = -(-channels // vector)
    same_channels = not time_inner and threads % packs == 0 and chunk % (threads * vector // channels) == 0
    reals = (2 * span * chunk * pitch + chunk * even + 3) // 4 * 4 + 2 * span * chunk * variant.width
    reals += chunk // variant.tile * variant.many * threads * variant.own
    reals += variant.hand * 2 * threads * variant.own
    reals += threads * vector * 2 if same_channels else 0
    reals += 2 * (channels + (1 if time_inner else vector))
    reals = (reals + 3) // 4 * 4 + (chunk * (2 * pitch + even) if parts > 1 else 0)
    return reals * real_bytes + (2 * span * chunk * 4 if packed else 0)


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
def _processors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.lru_cache(4096)
def _forward_pieces(blocks, length, step, resident, processors, waiting):
    """(estimated cost, (steps of a piece, pieces of a row)), when `blocks` blocks work on the uncut rows.

    step      [steps] that a piece is a multiple of
    waiting   what each round of blocks takes more, for what no other block can fill

    The fullest multiprocessor decides, with rounds of up to `resident` blocks. A block takes 1 of its time where it
    shares a multiprocessor. Two passes cost 0.85 more, less where pieces are longer than what the first pass is
    expected to reach. Fitted to H200 timings. The cost is that of one pass over the rows, per block that a
    multiprocessor has on average. The least estimate wins, then the fewest pieces.
    """
    most = max(1, min(length // max(4 * BORDER, step), 2048))
    best = (float("inf"), 1)
    for pieces in range(1, most + 1):
        steps = length / pieces
        if steps > _LONGEST and 1 < pieces < most:
            continue
        average = blocks * pieces / processors
        fullest = -(-blocks * pieces // processors)
        rounds = -(-fullest // resident)
        passes = 1 + 0.85 * min(1, _REACH / max(steps, 1)) * (pieces - 1) / pieces
        best = min(best, ((fullest + waiting * rounds) / average * passes, pieces))
        if average > 8 * resident and steps <= _LONGEST:
            break
    cost, pieces = best
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
    batch, length, _ = shape
    plans = []
    for busy in (True, False):
        variant = forward_variant(states, device, itemsize, busy)
        if device.type == "cpu":
            return variant, (length, 1)
        blocks = _columns(shape, groups, variant) * (batch if whole_batch else 1)
        waiting = 12 / (variant.own * variant.many)  # however little a block does, some of its time is latency
        pace = 0.82 if variant.lanes == 4 else 1.0  # of a state and step, where many threads work side by side
        cost, segment = _forward_pieces(blocks, length, step, variant.resident, _processors(device), waiting)
        plans.append((cost * pace, variant, segment))
    return min(plans, key=lambda plan: plan[0])[1:]


def backward_plan(u, groups, states, *, whole_batch=True):
    """(Variant, (steps of a piece, pieces of a row)) for the backward."""
    return _backward_plan(u.shape, u.device, real_of(u.dtype).itemsize, groups, states, whole_batch)


@functools.lru_cache(4096)
def _backward_plan(shape, device, real_bytes, groups, states, whole_batch):
    variant = backward_variant(states, device, real_bytes)
    batch, length, _ = shape
    if device.type == "cpu":
        return variant, (length, 1)
    blocks = _columns(shape, groups, variant) * (batch if whole_batch else 1)
    return variant, _backward_pieces(blocks, length, variant.resident, _processors(device))


@functools.lru_cache(4096)
def _backward_pieces(blocks, length, resident, processors):
    """(steps of a piece, pieces of a row) of the least estimated time, when `blocks` blocks work on the uncut rows.

    The fullest multiprocessor decides. It works on `resident` blocks at a time. Fewer take less time, nearly in
    proportion where they are all, less so at the end of many, where they have begun at different times. To begin a
    block takes as long as 16 steps. Cut rows need the totals first: 0.22 of the time of all pieces but one. Fitted to
    H200 timings: 1.28, 1.26, 1.24, 1.25 ms in 4, 7, 12, 19 pieces at batch 2, length 4096, 5120 channels.
    """
    best = (float("inf"), length, 1)
    for asked in range(1, max(1, min(length // (4 * BORDER), 2048)) + 1):
        steps = length if asked == 1 else -(-length // (asked * BORDER)) * BORDER
        pieces = -(-length // steps)
        rounds, left = divmod(-(-blocks * pieces // processors), resident)
        time = rounds + (left / resident) ** (0.4 if rounds else 0.85)
        time *= (steps + 16) * (1 + 0.22 * (pieces - 1) / pieces)
        best = min(best, (time, steps, pieces), key=lambda found: (found[0], found[2]))
        if blocks * pieces > 8 * resident * processors:
            break
    return best[1:]


def _columns(shape, groups, variant):
    """Blocks side by side over the channels of (batch, length, channels); none crosses a group."""
    return -(-(shape[2] // groups) // variant.side_by_side) * groups


def blocks_of(u, groups, variant, segments):
    """(blocks,) of a launch over u (batch, length, channels), each row in `segments`, channels in `groups`.

    One number, which no axis of a grid limits. Raises ValueError where it is more than a GPU takes.
    """
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


def totals(x, segment, initial=None, *, adjoint=None, d_final=None, variant=None, link=True):
    """What enters each segment, (batch, segments, channels, states) real: the state, or with adjoint=dout its gradient.

    segment   (steps, segments) of a plan
    link      False: (product, total) of each segment instead, for a forward that links them itself
    """
    steps, segments = segment
    device = x.u.device
    itemsize = x.u.element_size()
    if variant is None:
        variant = totals_variant(forward_variant(x.states, device, itemsize), x.states, device, itemsize, steps)
    stream = x.u if adjoint is None else adjoint
    streams = [stream, x.delta] + ([x.z] if x.z is not None and adjoint is not None else [])
    shape = (x.u.shape[0], segments, x.u.shape[2], x.states)
    product = torch.empty(shape, dtype=x.real, device=device)
    total = torch.empty_like(product)
    constants = x.constants(streams, variant)
    _launch(
        "selective_totals", constants | {"UNROLL": variant.unroll, "ADJOINT": int(adjoint is not None)},
        blocks_of(x.u, x.groups, variant, segments - 1), variant.threads,
        (stream, x.delta, x.A, x.B, x.C, x.z, x.delta_bias, initial, x.start, x.finish, d_final, product, total,
         *x.sizes(), steps, segments, *stream.stride(), *x.delta.stride(), *_strides(x.z),
         *_table_strides(x.B), *_table_strides(x.C)), device,
    )  # fmt: skip
    if not link:
        return product, total
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
    product = None
    if segments > 1 and enter is None:
        first = totals_variant(variant, x.states, x.u.device, x.u.element_size(), steps)
        few = segments <= FEW_SEGMENTS
        enter = totals(x, (steps, segments), initial, variant=first, link=not few)
        if few:
            product, enter = enter
    elif enter is None and x.start is None:
        enter = initial
    streams = [x.u, x.delta, y] + ([x.z] if x.z is not None else [])
    unroll = variant.unroll if x.start is None else min(variant.unroll, 2)  # a packed step is long, to compile as well
    _launch(
        "selective_forward",
        x.constants(streams, variant) | _border_constant(borders) | {"UNROLL": unroll, "EVERY": int(every)},
        blocks_of(x.u, x.groups, variant, segments), variant.threads,
        (x.u, x.delta, x.A, x.B, x.C, x.D, x.z, x.delta_bias, product, enter, initial, x.start, x.finish, y, final,
         borders, *x.sizes(), steps, segments, spacing, *x.u.stride(), *x.delta.stride(), *_strides(x.z), *y.stride(),
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
    d_initial: torch.Tensor | None


@dataclass(frozen=True)
class Cut:
    """Steps origin ... end - 1 of every row, worked on in one launch.

    borrows   the parts of dB and dC lie in du and ddelta, at steps whose turn has not come
    """

    origin: int
    end: int
    borrows: bool = False


def _aligned(tensor):
    """tensor, or a copy of it where four of its elements cannot be read at once."""
    if tensor is None or tensor.data_ptr() % (4 * tensor.element_size()) == 0:
        return tensor
    return tensor.clone()


@functools.lru_cache(4096)
def backward_cuts(shape, itemsize, real_bytes, columns, table_row, may_borrow):
    """The launches of the backward, the first one first, so that the parts of dB and dC do not need too much memory.

    columns, table_row   parts, and elements of each in a step

    All at once where that needs no more than 8 MB, or 5/8 of u's memory. Else the last steps first, with their parts
    where du and ddelta will be written later, until what is left needs less than a fortieth of u's memory; an eighth
    where rows are shorter than 1024, as to begin all blocks once more takes as long as 16 steps. On an H200, bfloat16,
    1536 channels: 1.22 ms and 608 MB become 1.27 and 510 (batch 16, length 2048), 1.21 and 613 1.25 and 531 (64, 512).
    With many states the parts are larger than du and ddelta: then a launch has parts of up to 2 times the memory of u.
    """
    batch, length, channels = shape
    step = 2 * columns * table_row * real_bytes * batch  # [B] of parts
    u_bytes = batch * length * channels * itemsize
    rest = u_bytes // (40 if length >= 32 * BORDER else 8)
    cuts, end = [], length
    while end > 0:
        few = step * end <= (max(2**23, u_bytes * 5 // 8) if end == length else rest)
        room = channels * itemsize  # in du, and as much in ddelta, of a step and row
        fitting = end * room // (room + columns * table_row * real_bytes)
        if few or end <= BORDER:
            cuts.append(Cut(0, end))
        elif may_borrow and fitting > end // 2:
            cuts.append(Cut(-(-(end - fitting) // BORDER) * BORDER, end, True))
        else:
            most = max(2 * u_bytes // step // BORDER, 1) * BORDER
            cuts.append(Cut(max((end - 1) // BORDER * BORDER - most + BORDER, 0), end))
        end = cuts[-1].origin
    return cuts


def backward(
    x, dout, d_final, borders, initial, *, slots=None, segment=None, spacing=None, every=False, variant=None,
    cuts=None,
):  # fmt: skip
    """All gradients.

    borders   as the forward wrote them, `spacing` steps apart (None: as far as the kernel wants them)
    slots     how many states there are, where rows are packed
    cuts      the launches to make of it
    """
    batch, length, channels = x.u.shape
    steps, segments = segment or (length, 1)
    real, device = x.real, x.u.device
    variant = variant or backward_variant(x.states, device, real.itemsize)
    chunk = variant.chunk
    spacing = chunk if every or spacing is None else spacing
    parts = backward_parts(x.states, variant)
    A, d_final, initial = map(_aligned, (x.A, d_final, initial))
    if spacing > 2 * chunk:
        closer = chunk if parts == 1 or spacing % (2 * chunk) else 2 * chunk
        borders, spacing = closer_borders(x, initial, borders, spacing, closer), closer

    def empty(*shape, dtype=real):
        return torch.empty(shape, dtype=dtype, device=device)

    du, ddelta = torch.empty_like(x.u), torch.empty_like(x.delta)
    dz = None if x.z is None else torch.empty_like(x.z)
    streams = [x.u, x.delta, dout, du, ddelta] + ([x.z, dz] if x.z is not None else [])
    constants = x.constants(streams, variant)
    if initial is None:
        d_initial = None
    elif x.start is None:
        d_initial = empty(batch, channels, x.states)
    else:  # an empty sequence hands the gradient of its state through
        none = d_final is None
        d_initial = torch.zeros((slots, channels, x.states), dtype=real, device=device) if none else d_final.clone()

    columns = _columns(x.u.shape, x.groups, variant) // x.groups
    table_row = x.groups * x.states  # elements of dB and dC in a step
    dense = all(grad.is_contiguous() and grad.stride(0) * grad.element_size() % 16 == 0 for grad in (du, ddelta))
    if segments > 1 or not x.moving:
        cuts = [Cut(0, length)]
    cuts = cuts or backward_cuts(
        x.u.shape, x.u.element_size(), real.itemsize, columns, table_row, dense and len(x.moving) == 2
    )
    enter = leave = None
    if segments > 1:  # they run at the same time: what enters each is found first
        enter = totals(
            x, (steps, segments), None, adjoint=dout, d_final=d_final,
            variant=adjoint_variant(x.states, device, x.u.element_size()),
        )  # fmt: skip
    elif len(cuts) > 1:  # each launch leaves what enters the one before it
        leave = empty(batch, channels, x.states)
    rows, weights = batch * segments, channels * x.states
    carry = empty(rows, weights) if parts > 1 else None
    dA_part, sums_part = empty(rows, weights), empty(rows, 2 * channels)
    longest = max((cut.end - cut.origin for cut in cuts if not cut.borrows), default=0)
    own_parts = [
        empty(rows, weights) if table.dim() == 2 else empty(columns, batch, longest * table_row)
        for table in (x.B, x.C)
    ]  # fmt: skip
    borrowed = [grad.view(real) for grad in (du, ddelta)] if any(cut.borrows for cut in cuts) else own_parts
    dA, sums = empty(channels, x.states), empty(2, channels)
    dB, dC = (empty(*table.shape, dtype=table.dtype) for table in (x.B, x.C))
    span = spacing // chunk
    shared = backward_shared(
        variant, parts, span, constants["TIME_INNER"], constants["VECTOR"], real.itemsize, x.start is not None
    )  # fmt: skip
    constants |= _border_constant(borders) | {
        "PARTS": parts, "CHUNK": chunk, "SPAN": span, "EVERY": int(every), "SHARED": shared, "HAND": variant.hand,
        "STATES_FIT": int(x.states == parts * variant.width),
        "ALIKE": int(len({tensor.stride() for tensor in streams}) == 1),
    }  # fmt: skip
    for cut in cuts:
        dB_part, dC_part = borrowed if cut.borrows else own_parts
        part_row = (cut.end - cut.origin) * table_row
        part_batch = length * channels * x.u.element_size() // real.itemsize if cut.borrows else columns * part_row
        first = cut.origin // steps if segments > 1 else 0
        here = -(-(cut.end - cut.origin) // steps)
        _launch(
            "selective_backward", constants, blocks_of(x.u, x.groups, variant, here), variant.threads,
            (x.u, x.delta, A, x.B, x.C, x.D, x.z, x.delta_bias, borders, initial, x.start, x.finish, dout, d_final,
             du, ddelta, dz, enter, leave, carry, d_initial, dA_part, dB_part, dC_part, sums_part, *x.sizes(),
             steps, segments, first, here, cut.origin, cut.end, part_batch, part_row, *x.u.stride(),
             *x.delta.stride(), *_strides(x.z), *dout.stride(), *du.stride(), *ddelta.stride(), *_strides(dz),
             *_table_strides(x.B), *_table_strides(x.C)), device, shared,
        )  # fmt: skip
        complete = cut.origin == 0  # what is summed over segments is there with the first of them
        counts = (
            *((weights if complete else 0) if table.dim() == 2 else batch * part_row for table in (x.B, x.C)),
            *((weights, 2 * channels) if complete else (0, 0)),
        )
        _sum_parts(
            (dB_part, dC_part, dA_part, sums_part, dB, dC, dA, sums, rows, columns, *counts, part_row,
             length * table_row, cut.origin * table_row, part_batch, part_row),
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
    """(lanes, own, many, threads): constants of selective_update.

    Few rows are over before many channels a thread pay for the longer code: on an H200, 4096 channels, 16 states, 5.9
    and 6.3 us at 1 row, 597 and 557 us at 4096 rows (an empty kernel of one row's blocks takes 4.3 us).
    """
    if device.type == "cpu":
        return *_lanes_and_own_on_cpu(states), 1, 32
    lanes, own = _lanes_and_own(states)
    many = min(lanes, max(1, 16 // own))  # 16 states a thread, which leave registers for enough blocks
    return (lanes, own, 1, 256) if batch <= 8 else (lanes, own, many, 64)


def update(state, x, dt, A, B, C, D, z, dt_bias, softplus, indices, y, known=None):
    """One token: state in place, y written. x, dt, z, y (batch, channels); B, C (batch, 1, groups, states).

    indices, known   (batch,) int32 or int64, bool: the slot of each row, and whether there is a state in it; or None
    """
    batch, channels = x.shape
    states, groups, device = A.shape[1], B.shape[2], x.device
    lanes, own, many, threads = update_variant(states, batch, device)
    full, together = states == lanes * own, min(own, 16 // state.element_size())
    wide = (
        full and state.stride(2) == 1 and state.stride(1) == states and state.stride(0) % together == 0
        and state.data_ptr() % (together * state.element_size()) == 0
        and all(row is None or row.stride(1) == 1 for row in (x, dt, z))
    )  # fmt: skip
    table_bytes = together * x.element_size()
    tables_wide = full and table_bytes <= 16 and A.data_ptr() % 16 == 0 and all(
        table.stride(3) == 1 and table.data_ptr() % table_bytes == 0 and table.stride(0) % together == 0
        and table.stride(2) % together == 0 for table in (B, C)
    )  # fmt: skip
    constants = {
        ELEMENT[x.dtype]: None, ELEMENT[state.dtype].replace("ELEMENT", "STATE"): None, "LANES": lanes, "OWN": own,
        "MANY": many, "THREADS": threads, "WIDE": int(wide), "TABLE_WIDE": int(tables_wide),
        "GATED": int(z is not None), "GROUPED": int(groups > 1),
        "SLOTS": 0 if indices is None else indices.element_size(), "KNOWN": int(known is not None),
    }  # fmt: skip
    columns = groups * -(-(channels // groups) // (threads // lanes * many))
    across = min(batch, 65535)  # what a grid may have along its second axis
    _launch(
        "selective_update", constants, (columns, across, -(-batch // across)), threads,
        (state, x, dt, A, B, C, D, z, dt_bias, indices, known, y, batch, channels, states, groups, int(softplus),
         *state.stride(), *x.stride(), *dt.stride(), *((0, 0) if z is None else z.stride()),
         B.stride(0), B.stride(2), B.stride(3), C.stride(0), C.stride(2), C.stride(3)), device,
    )  # fmt: skip
