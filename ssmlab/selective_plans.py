"""How the selective kernels are launched: compile-time constants, blocks, how rows are cut. Nothing is launched here.

A row may be cut in two ways. The forward has segments: equal pieces of every row. The backward has launches (Cut), one
after another to save memory, and in each of them pieces (kernels_cu/selective_pieces.cuh), so that all blocks have the
same to do. Both follow from shapes, dtype and device alone.
"""

from __future__ import annotations

import bisect
import functools
from dataclasses import dataclass

import torch

MAX_STATES = 512  # more would not fit into the shared memory of the backward
BORDER = 32  # [steps] the closest that saved states can lie; the backward starts again from each
_MUCH = 2**20  # [steps of a block] from which on cut rows are launched more than once, to save memory
_LONG = 4096  # [steps] from here on the walk through a segment may well end early
_LONGEST = 6144  # [steps] a segment may have; it may also be one whose walk does not end early
_REACH = 3800  # [steps] a walk is expected to take on average


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


def lanes_and_own(states):
    lanes = 1
    while lanes < 32 and lanes * 4 < states:
        lanes *= 2
    own = 4
    while lanes * own < states:
        own *= 2
    return lanes, own


def lanes_and_own_on_cpu(states):
    """Few threads, as each costs a switch; few different texts, as each costs a compilation."""
    return lanes_and_own(states) if states > 16 else (1, 16 if states > 4 else 4)


def forward_variant(states, device, itemsize=4, busy=True):
    """Constants of selective_forward, for elements of `itemsize` [B].

    busy   enough rows for wide blocks to fill the GPU? Eight states of a channel in one thread need the fewest sums
           over threads and the fewest reads of shared memory, four make twice the threads. On an H200 0.336 and 0.373
           ms at batch 16, length 2048, 1536 channels, bfloat16. At batch 2, length 4096, 5120 channels wide blocks
           would leave most multiprocessors with one of them, where three find room: there four states are better.
    """
    if device.type == "cpu":
        return Variant(*lanes_and_own_on_cpu(states), 32, 16 if states <= 128 else 4, 1)
    lanes, own = lanes_and_own(states)
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
    end its walk as soon as its own channels have forgotten the rest. Short ones it goes through, and then eight states
    in a thread read least: on an H200 52.7 us for the forward of one row of 2048 steps, 53.3 with four.
    """
    if device.type == "cpu" or itemsize == 8 or lanes_and_own(states)[0] != 4:
        return forward
    if steps <= 512:
        return Variant(2, 8, 64, 16, 8, unroll=4)
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
    if device.type == "cpu" or itemsize == 8 or lanes_and_own(states) != (4, 4):
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
    expected to reach. A cut must promise a fifth: at batch 4, length 2048, 1536 channels the estimate sees a gain of
    less in two pieces, which take 154 us, and whole rows 145. Fitted to H200 timings. The cost is that of one pass over
    the rows, per block that a multiprocessor has on average. The least estimate wins, then the fewest pieces.
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
        passes *= 1.2 if pieces > 1 else 1.0
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
        blocks = columns_of(shape, groups, variant.side_by_side) * (batch if whole_batch else 1)
        waiting = 12 / (variant.own * variant.many)  # however little a block does, some of its time is latency
        pace = 0.82 if variant.lanes == 4 else 1.0  # of a state and step, where many threads work side by side
        cost, segment = _forward_pieces(blocks, length, step, variant.resident, _processors(device), waiting)
        plans.append((cost * pace, variant, segment))
    return min(plans, key=lambda plan: plan[0])[1:]


@dataclass(frozen=True)
class Cut:
    """Steps origin ... end - 1 of every row, worked on in one launch.

    borrows         the parts of dB and dC lie in du, ddelta and dz, at steps whose turn has not come
    head, others    how blocks share the steps: kernels_cu/selective_pieces.cuh. (None, 0): each row is one piece
    slots           the most pieces of a row
    finer           so many pieces are a share cut into where totals are made; finer_slots: the most of a row
    """

    origin: int
    end: int
    borrows: bool = False
    head: int | None = None
    others: int = 0
    slots: int = 1
    finer: int = 1
    finer_slots: int = 1


def cut_in_pieces(origin, end, pairs, head, *, borrows=False, finer=None):
    """A Cut in pieces of up to `head` [steps]; pairs: rows, times blocks side by side, that share their steps.

    finer   None: so many that totals are of 512 steps or more, and up to 64 in a row, which are linked one after the
            other. On an H200 totals take 0.159 ms with 3 and 0.184 with 1 (batch 2, length 4096, 5120 channels,
            bfloat16): more and shorter blocks fill the multiprocessors evenly
    """
    tail = -(-(end - origin - head) // BORDER)  # of each pair, in units of the pieces
    if tail <= 0:
        return Cut(origin, end, borrows)
    others = -(-pairs * tail * BORDER // head)
    finer = finer or max(1, min(head // 512, 64 * pairs // others, pairs * tail // others))
    slots, finer_slots = _slots(pairs, tail, others), _slots(pairs, tail, others * finer)
    return Cut(origin, end, borrows, head, others, slots, finer, finer_slots)


def _slots(pairs, tail, shares):
    """The most pieces of a pair, its head among them, where the tails of all are cut into so many shares."""

    def share_of(unit):
        return ((unit + 1) * shares - 1) // (pairs * tail)

    return max(2 + share_of((pair + 1) * tail - 1) - share_of(pair * tail) for pair in range(pairs))


def backward_plan(u, groups, states, *, moving=2, lenders=3, whole_batch=True):
    """(Variant, (Cut, ...)) for the backward.

    moving        how many of B and C have a row a step
    lenders       in how many of du, ddelta and dz parts of dB and dC may lie: 0, 2 or 3
    whole_batch   False: rows are cut as if each were alone
    """
    real_bytes = real_of(u.dtype).itemsize
    return _backward_plan(u.shape, u.device, u.element_size(), real_bytes, groups, states, moving, lenders,
                          whole_batch)  # fmt: skip


@functools.lru_cache(4096)
def _backward_plan(shape, device, itemsize, real_bytes, groups, states, moving, lenders, whole_batch):
    variant = backward_variant(states, device, real_bytes)
    columns = columns_of(shape, groups, variant.side_by_side)
    pairs = columns * (shape[0] if whole_batch else 1)
    machine = pairs, variant.resident, None if device.type == "cpu" else _processors(device)
    at_once = _shared_out(0, shape[1], *machine)
    if not moving:
        return variant, (at_once,)
    if not whole_batch and at_once.slots == 1:  # then launches do not change what a row gets
        machine = pairs, variant.resident, None
    elif not whole_batch:
        shape = (1, *shape[1:])
    return variant, backward_cuts(
        shape, itemsize, real_bytes, columns // groups, groups * states, lenders if moving == 2 else 0, machine
    )


def _shared_out(origin, end, pairs, resident, processors, borrows=False):
    """The Cut for these steps. processors: None where rows stay whole."""
    head = end - origin if processors is None else longest_piece(pairs, end - origin, resident, processors)
    return cut_in_pieces(origin, end, pairs, head, borrows=borrows)


@functools.lru_cache(4096)
def longest_piece(pairs, steps, resident, processors):
    """[steps] of the longest pieces, when `pairs` share them on so many multiprocessors; `steps`: rows stay whole.

    The fullest multiprocessor decides. It works on `resident` blocks at a time. Fewer take less time, nearly in
    proportion where they are all, less so at the end of many, where they have begun at different times. To begin a
    piece takes as long as 16 steps. Cut rows need the totals first: 0.22 of the time of all that is not a head. Fitted
    to H200 timings.
    """
    best = (float("inf"), steps)
    units = -(-steps // BORDER)
    for blocks in (pairs, *(rounds * resident * processors for rounds in range(1, 5))):
        head = max(4, -(-pairs * units // blocks))
        if blocks < pairs or (blocks > pairs and head >= units):
            continue
        tail = units - head if blocks > pairs else 0
        launched = pairs + (-(-pairs * tail // head) if tail else 0)
        rounds, left = divmod(-(-launched // processors), resident)
        time = rounds + (left / resident) ** (0.4 if rounds else 0.85)
        time *= 0.97 * (steps + 16) if not tail else (head * BORDER + 32) * (1 + 0.22 * tail / units)
        time *= 1.022 if tail and launched <= resident * processors else 1.0  # where no block is left to fill gaps
        best = min(best, (time, head * BORDER if tail else steps))
    return best[1]


@functools.lru_cache(4096)
def backward_cuts(shape, itemsize, real_bytes, columns, table_row, lenders, machine=(1, 1, None)):
    """The launches of the backward, the first one first, so that the parts of dB and dC do not need too much memory.

    columns, table_row   parts, and elements of each in a step
    lenders              in how many of du, ddelta and dz parts may lie
    machine              (pairs that share their steps, blocks of a multiprocessor, multiprocessors or None)

    All at once where that needs no more than 8 MB, or 5/8 of u's memory, or where there is but one part. Else the last
    steps first, with their parts where the gradients will be written later, until what is left needs little. To begin
    all blocks once more takes as long as 16 steps. Where rows are cut, what enters their pieces has to be found each
    time as well: little work is launched twice at most, and that only where it brings the parts below 3/8 of u's
    memory. With many states the parts are larger than the gradients: then a launch has parts of up to 2 times the
    memory of u.
    On an H200, bfloat16, 1536 channels: 1.20 ms and 608 MB become 1.24 and 509 (batch 16, length 2048), 2.93 and 1216
    become 3.00 and 1025 (1, 65536).
    """
    batch, length, channels = shape
    step = 2 * columns * table_row * real_bytes * batch  # [B] of parts
    u_bytes = batch * length * channels * itemsize
    at_once = _shared_out(0, length, *machine)
    little = at_once.slots > 1 and machine[0] * length < _MUCH
    if columns == 1 or step * length <= max(2**23, u_bytes * (3 if little else 5) // 8):
        return (at_once,)

    def fits(origin, end):
        within = lent_columns(origin, end, channels * itemsize, table_row * real_bytes)
        return lenders > 0 and within[0] + (within[1] if lenders == 3 else 0) >= columns

    if little:
        half = -(-length // 2 // BORDER) * BORDER
        if step * half > u_bytes * 3 // 8 or not fits(half, length):
            return (at_once,)
        return _shared_out(half, length, *machine, True), _shared_out(0, half, *machine)
    rest = u_bytes // (16 if at_once.slots > 1 else 40 if length >= 32 * BORDER else 8)
    cuts, end = [], length
    while end > 0:
        origin, borrows = 0, False
        if end > BORDER and step * end > rest:
            middle = end // 2 // BORDER * BORDER
            borrows = fits(middle, end)
            if borrows:
                origin = BORDER * bisect.bisect_left(range(middle // BORDER), True, key=lambda n: fits(n * BORDER, end))
            else:
                most = max(2 * u_bytes // step // BORDER, 1) * BORDER
                origin = max((end - 1) // BORDER * BORDER - most + BORDER, 0)
        cuts.append(_shared_out(origin, end, *machine, borrows))
        end = origin
    return tuple(cuts)


def lent_columns(origin, end, room, part):
    """How many columns of blocks find room for their parts of dB and dC in du and ddelta, and how many in dz.

    room   [B] of a step in each of the three;  part: [B] of a step of a column's dB, and as many of dC
    """
    part *= end - origin
    return origin * room // part, origin * room // 2 // part


def columns_of(shape, groups, across):
    """Blocks of `across` channels side by side over those of (batch, length, channels); none crosses a group."""
    return -(-(shape[2] // groups) // across) * groups


def blocks_of(u, groups, variant, segments):
    """(blocks,) of a launch over u (batch, length, channels), each row in `segments`, channels in `groups`."""
    return grid_of(u, columns_of(u.shape, groups, variant.side_by_side) * segments * u.shape[0])


def backward_blocks(u, groups, variant, cut, *, whole_batch=True):
    """(blocks,) of a launch of the backward over u."""
    columns = columns_of(u.shape, groups, variant.side_by_side)
    teams, pairs = (1, columns * u.shape[0]) if whole_batch else (u.shape[0], columns)
    return grid_of(u, teams * (pairs + cut.others))


def grid_of(u, blocks):
    """(blocks,): one number, which no axis of a grid limits. Raises ValueError where it is more than a GPU takes."""
    if blocks >= 2**31:
        shape = tuple(u.shape)
        raise ValueError(f"u has shape {shape}: the launch would need {blocks} blocks, a GPU takes {2**31 - 1}")
    return (blocks,)
