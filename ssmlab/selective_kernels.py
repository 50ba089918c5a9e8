"""The launches behind the selective scan, and their scratch memory.

Everything here takes tensors that selective.py has already checked and brought into one form:
    u, delta, z, dout     (batch, length, channels), one dtype, any strides
    B, C                  (batch, length, groups, states), that dtype, any strides; or fixed: (channels, states), real
    A                     (channels, states) real, contiguous;   D, delta_bias  (channels,) real, contiguous
    initial, final        (slots, channels, states) real, contiguous
    start, finish         (batch, length) int32, contiguous, or None: what kernels_cu/selective.cuh says of marks
"Real" is float64 for float64 inputs, else float32. No axis of u may be empty.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch

from .launching import launcher
from .selective_plans import (
    BORDER,
    adjoint_variant,
    backward_blocks,
    backward_parts,
    backward_plan,
    backward_shared,
    blocks_of,
    columns_of,
    forward_variant,
    lanes_and_own,
    lanes_and_own_on_cpu,
    layout_of,
    lent_columns,
    real_of,
    table_of,
    totals_variant,
)

ELEMENT = {
    torch.float32: "ELEMENT_FLOAT",
    torch.float64: "ELEMENT_DOUBLE",
    torch.float16: "ELEMENT_HALF",
    torch.bfloat16: "ELEMENT_BFLOAT16",
}
FEW_SEGMENTS = 32  # up to so many, each block of the forward walks through the totals of those before its own
_MANY_PARTS, _SUM_ROWS = 8, 4  # from so many parts on, so many threads share a sum
_GRAIN = 64  # scratch arrays begin at multiples of so many elements


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


def totals(x, segment, initial=None, *, variant=None, link=True):
    """The state that enters each segment, (batch, segments, channels, states) real.

    segment   (steps, segments) of a plan
    link      False: (product, total) of each segment instead, for a forward that links them itself
    """
    steps, segments = segment
    device, itemsize = x.u.device, x.u.element_size()
    if variant is None:
        variant = totals_variant(forward_variant(x.states, device, itemsize), x.states, device, itemsize, steps)
    product = torch.empty((x.u.shape[0], segments, x.u.shape[2], x.states), dtype=x.real, device=device)
    total = torch.empty_like(product)
    _launch_totals(
        x, x.u, variant, blocks_of(x.u, x.groups, variant, segments - 1), (steps, segments, 0, 0, 0, 0, 0, 0), initial,
        None, product, total,
    )  # fmt: skip
    if not link:
        return product, total
    batch, row = x.u.shape[0], x.u.shape[2] * x.states
    _launch(
        "selective_link", {ELEMENT[x.real]: None, "THREADS": 128}, (-(-batch * row // 128),), 128,
        (product, total, initial if x.start is None else None, batch, row, segments), device,
    )  # fmt: skip
    return total


def _adjoints(x, dout, cut, pairs, across, edge, d_final, scratch, enter):
    """Into `enter` (batch, slots, channels, states) the gradient that enters each piece of a Cut from the right.

    pairs, across    what shares its steps: so many rows, times blocks of so many channels
    edge             what enters the last pieces, or None; d_final: of packed sequences, by their number
    scratch          for products and for totals of the finer pieces
    """
    variant = adjoint_variant(x.states, x.u.device, x.u.element_size())
    batch, _, channels = x.u.shape
    teams = columns_of(x.u.shape, x.groups, across) * batch // pairs
    shares = cut.others * cut.finer
    pieces = pairs, cut.head, shares, cut.origin, cut.end
    _launch_totals(
        x, dout, variant, (teams * shares * -(-across // variant.side_by_side),), (0, cut.finer_slots, across, *pieces),
        None, d_final, *scratch, adjoint=True,
    )  # fmt: skip
    _launch(
        "selective_link_pieces", {ELEMENT[x.real]: None, "THREADS": 128, "BATCH": _batch(cut.finer_slots - 1)},
        (batch * -(-channels * x.states // 128),), 128,
        (*scratch, edge, enter, channels, x.states, x.groups, across, pairs, cut.head, cut.others, cut.slots,
         cut.finer, cut.finer_slots, cut.origin, cut.end), x.u.device,
    )  # fmt: skip


def _batch(pieces):
    """How many pieces selective_link_pieces asks for at once: a power of two, so that few texts are compiled."""
    return min(32, max(4, 1 << (pieces - 1).bit_length()))


def _launch_totals(x, stream, variant, grid, sizes, initial, d_final, product, total, adjoint=False):
    streams = [stream, x.delta] + ([x.z] if x.z is not None and adjoint else [])
    _launch(
        "selective_totals", x.constants(streams, variant) | {"UNROLL": variant.unroll, "ADJOINT": int(adjoint)}, grid,
        variant.threads,
        (stream, x.delta, x.A, x.B, x.C, x.z, x.delta_bias, initial, x.start, x.finish, d_final, product, total,
         *x.sizes(), *sizes, *stream.stride(), *x.delta.stride(), *_strides(x.z), *_table_strides(x.B),
         *_table_strides(x.C)), x.u.device,
    )  # fmt: skip


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


def _for_fours(tensor):
    """tensor, or a copy of it where four of its elements cannot be read at once."""
    if tensor is None or tensor.data_ptr() % (4 * tensor.element_size()) == 0:
        return tensor
    return tensor.clone()


def may_lend(gradient):
    """May scratch lie in a gradient (batch, length, channels) where its later steps will be written?"""
    return gradient.is_contiguous() and gradient.stride(0) * gradient.element_size() % 16 == 0


def backward(
    x, dout, d_final, borders, initial, *, slots=None, spacing=None, every=False, whole_batch=True, variant=None,
    cuts=None,
):  # fmt: skip
    """All gradients.

    borders         as the forward wrote them, `spacing` steps apart (None: as far as the kernel wants them)
    slots           how many states there are, where rows are packed
    whole_batch     False: rows are cut as if each were alone
    variant, cuts   in place of those of backward_plan
    """
    batch, length, channels = x.u.shape
    real, device = x.real, x.u.device
    du, ddelta = torch.empty_like(x.u), torch.empty_like(x.delta)
    dz = None if x.z is None else torch.empty_like(x.z)
    gradients = [du, ddelta] if dz is None else [du, ddelta, dz]
    lent = [grad.view(-1).view(real) for grad in gradients] if all(map(may_lend, gradients)) else []
    planned = backward_plan(
        x.u, x.groups, x.states, moving=len(x.moving), lenders=len(lent), whole_batch=whole_batch
    )  # fmt: skip
    variant, cuts = variant or planned[0], cuts or planned[1]
    chunk, across = variant.chunk, variant.side_by_side
    spacing = chunk if every or spacing is None else spacing
    parts = backward_parts(x.states, variant)
    A, d_final, initial = map(_for_fours, (x.A, d_final, initial))
    if spacing > 2 * chunk:
        closer = chunk if parts == 1 or spacing % (2 * chunk) else 2 * chunk
        borders, spacing = closer_borders(x, initial, borders, spacing, closer), closer

    def empty(*shape, dtype=real):
        return torch.empty(shape, dtype=dtype, device=device)

    streams = [x.u, x.delta, dout, du, ddelta] + ([x.z, dz] if x.z is not None else [])
    constants = x.constants(streams, variant)
    if initial is None:
        d_initial = None
    elif x.start is None:
        d_initial = empty(batch, channels, x.states)
    else:  # an empty sequence hands the gradient of its state through
        none = d_final is None
        d_initial = torch.zeros((slots, channels, x.states), dtype=real, device=device) if none else d_final.clone()

    all_columns = columns_of(x.u.shape, x.groups, across)
    columns = all_columns // x.groups
    table_row = x.groups * x.states  # elements of dB and dC in a step
    weights = channels * x.states
    pairs = all_columns * (batch if whole_batch else 1)
    fixed = [table.dim() == 2 for table in (x.B, x.C)]
    leave = empty(batch, channels, x.states) if len(cuts) > 1 else None  # each launch leaves what enters the next one

    def needs(cut):
        """Elements of scratch memory that a launch needs, array by array: what enters its pieces, whose place their
        part of dA takes; dD and d delta_bias; g between the parts of the states; parts of dB, dC; products; totals."""
        rows = batch * cut.slots
        last = cut.origin == 0 and cut.slots == 1 and leave is not None  # then dA may take the place of what enters
        tables = [
            rows * weights if given else 0 if cut.borrows else columns * batch * (cut.end - cut.origin) * table_row
            for given in fixed
        ]
        products = batch * cut.finer_slots * weights if cut.slots > 1 else 0
        if lent and products <= cut.end * channels * x.u.element_size() // real.itemsize:
            products = 0  # du and ddelta have nothing yet in their first steps
        sums = rows * 2 * channels, rows * weights * (parts > 1)
        return [0 if last else rows * weights, *sums, *tables, products, products]

    needed = {cut: [-(-count // _GRAIN) * _GRAIN for count in needs(cut)] for cut in cuts}
    scratch = empty(max(map(sum, needed.values())))
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
        ends = list(itertools.accumulate(needed[cut]))
        dA_part, sums_part, carry, dB_part, dC_part, *products = (
            scratch[end - count : end] for count, end in zip(needed[cut], ends, strict=True)
        )
        dA_part = leave if needed[cut][0] == 0 else dA_part
        carry = carry if parts > 1 else None
        dB_rest = dC_rest = None
        within = columns
        if cut.borrows:
            room, part = channels * x.u.element_size(), table_row * real.itemsize
            within = min(lent_columns(cut.origin, cut.end, room, part)[0], columns)
            dB_part, dC_part = lent[:2]
            if within < columns:  # the others share dz
                dB_rest, dC_rest = lent[2], lent[2][cut.origin * room // 2 // real.itemsize :]
        enter = None
        if cut.slots > 1:
            rows = (batch, cut.slots, channels, x.states)
            enter = dA_part[: math.prod(rows)].view(rows)
            products = products if needed[cut][-1] else lent[:2]
            edge = leave if cut.end < length else d_final if x.start is None else None
            _adjoints(x, dout, cut, pairs, across, edge, d_final, products, enter)
        part_row = (cut.end - cut.origin) * table_row
        part_batch = length * channels * x.u.element_size() // real.itemsize if cut.borrows else columns * part_row
        head = cut.end - cut.origin if cut.head is None else cut.head
        rows = batch * cut.slots
        _launch(
            "selective_backward", constants,
            backward_blocks(x.u, x.groups, variant, cut, whole_batch=whole_batch), variant.threads,
            (x.u, x.delta, A, x.B, x.C, x.D, x.z, x.delta_bias, borders, initial, x.start, x.finish, dout, d_final,
             du, ddelta, dz, enter, leave, carry, d_initial, dA_part, dB_part, dC_part, dB_rest, dC_rest,
             sums_part, *x.sizes(), pairs, head, cut.others, cut.slots, cut.origin, cut.end, within, part_batch,
             part_row, *x.u.stride(),
             *x.delta.stride(), *_strides(x.z), *dout.stride(), *du.stride(), *ddelta.stride(), *_strides(dz),
             *_table_strides(x.B), *_table_strides(x.C)), device, shared,
        )  # fmt: skip
        _sum_parts(
            (dB_part, dC_part, dA_part, sums_part, dB_rest, dC_rest, dB, dC, dA, sums, rows, columns, batch, weights,
             2 * channels, part_row, length * table_row, cut.origin * table_row, part_batch, part_row, within,
             int(cut is not cuts[0])), fixed, constants, device,
        )  # fmt: skip
    return Gradients(du, ddelta, dA, dB, dC, sums[0], dz, sums[1], d_initial)


def _sum_parts(args, fixed, constants, device):
    """Launch selective_sum. args: its arguments; fixed: are B, C?"""
    rows, columns, batch, weights, per_channel, part_row = args[10:16]
    vector = 4 if device.type != "cpu" and not any(number % 4 for number in args[13:20]) else 1
    table = columns, batch, part_row
    sums = [(rows, 1, weights) if given else table for given in fixed] + [(rows, 1, weights), (rows, 1, per_channel)]
    across = [256 // (_SUM_ROWS if parts >= _MANY_PARTS else 1) * vector for parts, _, _ in sums]
    grid = sum(pieces * -(-count // width) for (_, pieces, count), width in zip(sums, across, strict=True))
    element = next(name for name in constants if name.startswith("ELEMENT"))
    constants = {name: constants[name] for name in (element, "FIXED_B", "FIXED_C")}
    constants |= {"VECTOR": vector, "MANY_PARTS": _MANY_PARTS, "ROWS": _SUM_ROWS}
    _launch("selective_sum", constants, (grid,), 256, args, device)


def update_variant(states, batch, device):
    """(lanes, own, many, threads): constants of selective_update.

    Few rows are over before many channels a thread pay for the longer code: on an H200, 4096 channels, 16 states, 5.9
    and 6.3 us at 1 row, 597 and 557 us at 4096 rows (an empty kernel of one row's blocks takes 4.3 us).
    """
    if device.type == "cpu":
        return *lanes_and_own_on_cpu(states), 1, 32
    lanes, own = lanes_and_own(states)
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
