"""What the selective scan must cost, counted from shapes: bytes, exponentials, multiply-adds, states, shared memory.

Nothing here looks at a tensor or a GPU, and nothing of the package is imported: these are predictions. The tests
compare them with what torch keeps and what the compiler lays out; the notebooks with measured time.

    cost = ledger.selective_scan(16, 2048, 1536, 16, itemsize=2)
    ledger.floors(cost, bandwidth=4.28e12, exponentials=4.18e12)       # seconds that no version can beat
"""

from __future__ import annotations

from dataclasses import dataclass

SAVE = ("boundaries", "boundaries-bf16", "all")


@dataclass(frozen=True)
class Cost:
    """Counts of one call. Bytes: each input once, each output once, as if caches were perfect.

    read, written    [B] of device memory
    saved            [B] that stay for the backward beside the inputs (part of written)
    exponentials     exp, counted once each; special: instructions of the special function unit (exp, and the
                     reciprocals that stand for divisions)
    flops            a multiply-add counted as two; special functions not counted
    """

    read: int
    written: int
    saved: int
    exponentials: int
    special: int
    flops: int

    @property
    def bytes(self):
        return self.read + self.written


def ceil_div(a, b):
    """a / b rounded up."""
    return -(-a // b)


def saved_states(batch, length, channels, states, *, save="boundaries", chunk=32, real=4):
    """[B] that `save` keeps: a state in `chunk` steps, in float32 (real=4), float64 (8) or bfloat16; or every state."""
    if save not in SAVE:
        raise ValueError(f"save is {save!r}: it must be one of {', '.join(map(repr, SAVE))}")
    rows = length if save == "all" else ceil_div(length, chunk)
    return batch * rows * channels * states * (2 if save == "boundaries-bf16" else real)


def _inputs(batch, length, channels, states, groups, itemsize, real, z, D, bias, initial):
    streams = (3 if z else 2) * batch * length * channels * itemsize
    tables = 2 * batch * length * groups * states * itemsize
    weights = channels * (states + (1 if D else 0) + (1 if bias else 0)) * real
    return streams, tables, weights + (batch * channels * states * real if initial else 0)


def selective_scan(
    batch, length, channels, states, *, groups=1, itemsize=2, real=4, z=True, D=True, bias=True, softplus=True,
    initial=False, save=None, chunk=32, segments=1,
):  # fmt: skip
    """Cost of the fused forward.

    itemsize   [B] of an element of u, delta, z, B, C, y; real: of a state
    save       None where no gradient is wanted
    segments   pieces that run at the same time: with more than one, delta, u and B of all
               but the last are read and exponentiated twice
    """
    streams, tables, weights = _inputs(batch, length, channels, states, groups, itemsize, real, z, D, bias, initial)
    steps = batch * length * channels
    kept = 0 if save is None else saved_states(batch, length, channels, states, save=save, chunk=chunk, real=real)
    final = batch * channels * states * real
    read, written = streams + tables + weights, steps * itemsize + kept + final
    exponentials = steps * (states + bool(softplus) + bool(z))
    special = steps * (states + bool(softplus) + 2 * bool(z))
    flops = steps * (states * 6 + 1 + 2 * bool(D) + 2 * bool(z))
    if segments > 1:
        totals = batch * segments * channels * states * real
        twice = steps * (segments - 1) // segments                    # the last segment is gone through once
        read += 2 * twice * itemsize + tables // 2 * (segments - 1) // segments + weights + 3 * totals
        written += 3 * totals
        exponentials += twice * (states + bool(softplus))
        special += twice * (states + bool(softplus))
        flops += twice * states * 4
    return Cost(read, written, kept, exponentials, special, flops)


def selective_scan_backward(
    batch, length, channels, states, *, groups=1, itemsize=2, real=4, z=True, D=True, bias=True, softplus=True,
    initial=False, save="boundaries", chunk=32, across=64, staged=32,
):  # fmt: skip
    """Cost of the backward, one pass.

    across     channels of one block, over which dB and dC are summed in place
    staged     [steps] that a block takes at once, 16 with more than 16 states. Where the saved states lie twice as far
               apart, every second chunk is reached by running through the one before it, which has been staged with it.
               (Farther apart, the forward makes closer ones first: another selective_scan.)
    """
    streams, tables, weights = _inputs(batch, length, channels, states, groups, itemsize, real, z, D, bias, initial)
    steps = batch * length * channels
    kept = saved_states(batch, length, channels, states, save=save, chunk=chunk, real=real)
    parts = ceil_div(channels // groups, across) * 2 * batch * length * groups * states * real
    read = streams + steps * itemsize + tables + weights + kept + parts
    written = streams + tables + parts + channels * (states + 2) * real
    made = 1 if save == "all" else 2                        # times that a is made: on the way there, and in each tile
    through = steps // 2 if save != "all" and chunk > staged else 0
    exponentials = steps * (states * made + 2 * bool(softplus) + 2 * bool(z)) + through * states
    special = steps * (states * made + 3 * bool(softplus) + 4 * bool(z)) + through * states
    flops = steps * states * (6 * made + 15) + through * states * 4
    return Cost(read, written, 0, exponentials, special, flops)


def backward_memory(
    batch, length, channels, states, *, groups=1, itemsize=2, real=4, z=True, across=64, launches=None, lends=True
):  # fmt: skip
    """[B] that the backward asks for, by what for: the sum is its peak, beside the inputs, y and what was saved.

    across     channels of one block: dB and dC have a part for each
    launches   (origin, end, slots, finer slots, borrows) of each, one after the other: its steps, the most pieces of a
               row, the same where totals are made, and whether the parts of dB and dC lie in the gradients of u, delta
               and z. None: one, rows whole
    lends      may scratch lie in the gradients of u and delta where nothing has been written yet?
    """
    launches = launches or [(0, length, 1, 1, False)]
    plane, columns = channels * states, ceil_div(channels // groups, across)

    def scratch(origin, end, slots, finer_slots, borrows):
        rows = batch * slots
        part = 0 if borrows else columns * batch * (end - origin) * groups * states
        products = batch * finer_slots * plane if slots > 1 else 0
        products = 0 if lends and products * real <= end * channels * itemsize else products
        arrays = [
            0 if origin == 0 and slots == 1 and len(launches) > 1 else rows * plane,  # dA; the last may take g's place
            2 * rows * channels,
            rows * plane if states > 16 else 0,
            *(part, part),
            *(products, products),
        ]
        return real * sum(ceil_div(array, 64) * 64 for array in arrays)

    return {
        "gradients of u, delta, z": (3 if z else 2) * batch * length * channels * itemsize,
        "gradients of B, C": 2 * batch * length * groups * states * itemsize,
        "gradients of A, D, delta_bias": (plane + 2 * channels) * real,
        "g between launches": batch * plane * real if len(launches) > 1 else 0,
        "scratch of the launch that needs the most": max(scratch(*launch) for launch in launches),
    }


def unfused(batch, length, channels, states, *, groups=1, itemsize=4, z=True, D=True):
    """[B] that the same chain moves as separate steps, each reading and writing device memory, by step.

    delta' = softplus(delta + bias); a = exp(delta' A); b = delta' B u; h = scan(a, b); y = C . h; y = (y + D u) silu(z)
    """
    steps = batch * length * channels * itemsize
    table = batch * length * groups * states * itemsize
    wide = steps * states
    last = steps * (2 + bool(D) + bool(z)) if D or z else 0
    return {
        "softplus": 2 * steps,
        "decay": steps + channels * states * itemsize + wide,
        "input": 2 * steps + table + wide,
        "scan": 3 * wide,
        "contract": wide + table + steps,
        "skip and gate": last,
    }


def state_update(batch, channels, states, *, groups=1, itemsize=2, state_itemsize=4, real=4, z=True, D=True, bias=True):
    """Cost of one token: the states are read and written, and little else."""
    streams = (3 if z else 2) * batch * channels * itemsize
    state = batch * channels * states * state_itemsize
    weights = channels * (states + (1 if D else 0) + (1 if bias else 0)) * real
    read = streams + 2 * batch * groups * states * itemsize + weights + state
    tokens = batch * channels
    return Cost(
        read, state + tokens * itemsize, 0, tokens * (states + 1 + bool(z)), tokens * (states + 2 + 2 * bool(z)),
        tokens * states * 6,
    )  # fmt: skip


def floors(cost, *, bandwidth, exponentials=None, flops=None):
    """[s] that each resource needs by itself, by name; the largest is the floor, and tells what binds.

    bandwidth      [B/s], best measured with a large copy
    exponentials   [1/s] of the special function units: 16 a clock and multiprocessor on 7.5 to 12.0
    flops          [FLOP/s] of float32
    """
    found = {"bytes": cost.bytes / bandwidth}
    if exponentials is not None:
        found["exponentials"] = cost.special / exponentials
    if flops is not None:
        found["flops"] = cost.flops / flops
    return found


def forward_shared(*, tile, channels, width, abreast, real=4, pitch=None):
    """[B] of static shared memory of selective_forward: (delta, delta u), y, B and C, weights, the marks.

    A row of y is eight longer than the channels, so that threads which write four steps of a channel meet other banks.
    """
    pitch = channels if pitch is None else pitch
    reals = tile * (2 * pitch + max(pitch, channels + 8)) + 2 * tile * width + 2 * (channels + abreast)
    return reals * real + 2 * tile * 4


def totals_shared(*, tile, channels, width, abreast, real=4, pitch=None):
    """[B] of static shared memory of selective_totals: (delta, input), B or C, a bias, the marks."""
    pitch = channels if pitch is None else pitch
    reals = 2 * tile * pitch + 2 * tile * width + channels + abreast
    return reals * real + 2 * tile * 4
