"""How a scan is laid out over the kernels: algorithm, tile, launches. All tensors (batch, length, channels).

The plan of a call depends on shapes, strides, dtype and device alone, and is remembered. scan_table.json says which
algorithm and which tile a GPU gets; a CPU walks whole rows ("thread") unless another algorithm is named.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from .launching import launcher

ALGORITHMS = ("auto", "thread", "block", "chain", "totals", "lookback", "relay")
TABLE = Path(__file__).with_name("scan_table.json")

_ELEMENT = {
    torch.float32: "ELEMENT_FLOAT",
    torch.float64: "ELEMENT_DOUBLE",
    torch.float16: "ELEMENT_HALF",
    torch.bfloat16: "ELEMENT_BFLOAT16",
}
DTYPES = tuple(_ELEMENT)
_HAS_BEGIN, _WANTS_END, _HAS_INITIAL = 1, 2, 4  # flags, as in scan_step.cuh
_MOST_BLOCKS = 2**31 - 1


def real_of(dtype):
    """What states and sums are kept in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Shape(NamedTuple):
    """What a plan is made from. strides: of a, x, h, out, in elements; aligned: all start at a multiple of 16 bytes."""

    batch: int
    length: int
    channels: int
    strides: tuple[tuple[int, int, int], ...]
    aligned: bool
    dtype: torch.dtype
    device: torch.device
    reverse: bool
    backward: bool
    packed: bool

    @property
    def rows(self):
        return self.batch * self.channels

    @property
    def layout(self):
        """"rows" if neighbours in memory are neighbours in time, else "columns"."""
        if self.channels == 1:
            return "rows"
        times = all(stride[1] == 1 for stride in self.strides)
        return "rows" if times and self.length > 1 else "columns"

    def divides(self, vector):
        """May every `vector` neighbours along the layout's inner axis be one access?"""
        inner, size = (1, self.length) if self.layout == "rows" else (2, self.channels)
        sizes = (self.batch, self.length, self.channels)
        if not self.aligned or size % vector:
            return False
        outer = [axis for axis in range(3) if axis != inner and sizes[axis] > 1]
        return all(
            stride[inner] == 1 and not any(stride[axis] % vector for axis in outer) for stride in self.strides
        )


@dataclass(frozen=True)
class Plan:
    """What a call does. tile: steps of a tile; chunk: steps between carries; blocks: of the main launch."""

    algorithm: str
    layout: str
    wide: bool
    constants: tuple[tuple[str, int], ...]
    tile: int
    chunk: int
    chunks: int
    grid: int
    block: tuple[int, ...]
    reason: str
    mode: tuple[tuple[str, int | None], ...]

    def launcher(self, file, name, *, without=()):
        """The kernel `name`, compiled for this plan."""
        constants = [pair for pair in (*self.constants, *self.mode) if pair[0] not in without]
        return launcher(file, name, tuple(sorted(constants)))

    @functools.cached_property
    def main(self):
        """The kernel that writes the results."""
        name = f"scan_{self.algorithm if self.algorithm in ('thread', 'lookback', 'relay') else 'block'}"
        return self.launcher(f"{name}.cu", name)


@functools.cache
def table():
    """The entries of scan_table.json, in their order."""
    return json.loads(TABLE.read_text(encoding="utf-8"))["entries"]


def _entry(shape, algorithm):
    bits = 8 * shape.dtype.itemsize
    direction = "backward" if shape.backward else "forward"
    named = {"chain": "block", "totals": "block"}.get(algorithm, algorithm)
    fitting = [
        entry for entry in table()
        if (entry["layout"], entry["bits"], entry["direction"]) == (shape.layout, bits, direction)
        and (entry["longest"] is None or shape.length <= entry["longest"])
    ]  # fmt: skip
    for entry in fitting:
        if algorithm == "auto" and (entry["most_rows"] is None or shape.rows <= entry["most_rows"]):
            return entry
    # Named by the caller: the number of rows must not matter.
    for entry in sorted(fitting, key=lambda entry: entry["most_rows"] is not None):
        if algorithm != "auto" and entry["algorithm"] == named:
            return entry
    raise AssertionError(f"scan_table.json has no entry for {shape} and {algorithm!r}")


@functools.lru_cache(maxsize=4096)
def plan_of(shape, algorithm, chunk=None):
    """The Plan for a Shape. chunk [steps] between carries of "chain" and "totals"; None: at most 64 chunks a row."""
    if algorithm == "thread" or (algorithm == "auto" and shape.device.type == "cpu"):
        return _thread_plan(shape, "named by the caller" if algorithm == "thread" else "a CPU walks whole rows")
    entry = _entry(shape if chunk is None else shape._replace(length=min(chunk, shape.length)), algorithm)
    name = entry["algorithm"] if algorithm == "auto" else algorithm
    reason = "named by the caller" if algorithm != "auto" else f"first entry of {TABLE.name} that fits"
    return plan_with(shape, name, entry["tile"], reason, chunk)


def plan_with(shape, name, tile, reason, chunk=None):
    """The Plan of an algorithm with a tile as scan_table.json writes it. Raises ValueError for too many blocks."""
    vec = 16 // shape.dtype.itemsize
    tile = list(tile)
    parts = tile.pop() if name == "lookback" else 1
    if shape.layout == "rows":
        threads, vectors, rows, fourth, resident = tile
        wide = shape.divides(vec)
        constants = {"COLUMNS": 0, "THREADS": threads, "VECTORS": vectors, "ROWS": rows}
        steps, block = threads * vectors * vec, (threads, rows)
        groups = -(-shape.rows // rows)
    else:
        lanes, strips, each, fourth, resident, across = tile
        wide = shape.divides(across)
        constants = {"COLUMNS": 1, "LANES": lanes if wide else 32, "STRIPS": strips, "STEPS": each}
        if wide:
            constants["PACK"] = across
        else:
            across, resident = 1, 1
            fourth = min(fourth, 1)
        steps, block = strips * each, (constants["LANES"] * strips,)
        groups = shape.batch * -(-shape.channels // (constants["LANES"] * across))
    constants["WIDE"] = int(wide)
    if name == "lookback":
        constants.update(DEPTH=fourth, PARTS=parts)
    elif name == "relay":
        constants.update(DEPTH=max(fourth, 1), LOOP=int(shape.device.type == "cpu"))
    else:
        constants["PREFETCH"] = fourth
    if wide and not shape.packed:
        constants["MIN_BLOCKS"] = resident
    if name == "block":
        chunk = max(shape.length, 1)
    elif name in ("lookback", "relay"):
        chunk = steps * parts
    elif chunk is None:
        chunk = -(-shape.length // (64 * steps)) * steps
    chunks = -(-shape.length // chunk)
    grid = groups * chunks
    if name == "relay":
        grid += _relaying_blocks(groups, constants, block)
    if grid > _MOST_BLOCKS:
        raise ValueError(
            f"a scan of {shape.rows} rows of {shape.length} steps by {name!r} needs {grid} blocks: "
            f"a GPU takes {_MOST_BLOCKS}"
        )
    if constants.get("LOOP"):
        grid = 2  # one relays, one scans
    return Plan(
        name, shape.layout, wide, tuple(constants.items()), steps, chunk, chunks, grid, block, reason, _mode(shape)
    )


def _relaying_blocks(groups, constants, block):
    """How many blocks relay states for so many groups of rows: BAND groups each, as scan_relay.cu has it."""
    rows = constants["LANES"] * constants.get("PACK", 1) if constants["COLUMNS"] else 1  # of a group
    return -(-groups // (math.prod(block) // 32 // -(-rows // 32)))


def _thread_plan(shape, reason):
    on_cpu = shape.device.type == "cpu"
    vec = 16 // shape.dtype.itemsize
    neighbours = all(stride[2] == 1 for stride in shape.strides) and shape.channels > 1
    if on_cpu:
        across = _cpu_channels(shape.channels) if neighbours else 1
        wide, steps = neighbours, 1 if across > 1 else 8
        tasks = shape.batch * -(-shape.channels // across)
        threads = 1 if tasks <= 64 else 16
    else:
        wide = neighbours and shape.layout == "columns" and shape.divides(vec) and shape.rows >= 32768
        across, steps, threads = vec if wide else 1, 4 if wide else 16, 64
        tasks = shape.batch * -(-shape.channels // across)
    constants = (
        ("CHANNELS", across), ("STEPS", steps), ("THREADS", threads), ("WIDE", int(wide)), ("ALIGNED", int(not on_cpu)),
    )  # fmt: skip
    grid = -(-tasks // threads)
    chunk = max(shape.length, 1)
    return Plan("thread", shape.layout, wide, constants, chunk, chunk, 1, grid, (threads,), reason, _mode(shape))


def _cpu_channels(channels):
    """Neighbouring channels that one thread of a CPU walks: many, so that memory is read in one sweep."""
    divisor = min(channels & -channels, 256)
    return divisor if divisor >= 16 else min(64, 1 << (channels.bit_length() - 1))


def _mode(shape):
    """Compile-time constants that say what is computed."""
    return (
        (_ELEMENT[shape.dtype], None), ("BACKWARD", int(shape.backward)), ("REVERSE", int(shape.reverse)),
        ("PACKED", int(shape.packed)),
    )  # fmt: skip


def run(a, x, out, begin, end, *, h=None, da=None, initial=None, marks=None, before=None, reverse=False,
        algorithm="auto", chunk=None, plan=None):  # fmt: skip
    """One scan into `out` (forward: h; backward: db, and da beside it). Any strides.

    x       b, or the gradient of h if `h` is given: then it is the backward pass, which runs the other way
    begin   the states before the first step (rows or slots, channels) real, contiguous; None: zeros
    end     the same shape; the states after the last step are written there
    initial backward: the forward pass's begin.  marks, before: packing.Packing's
    plan    instead of plan_of's choice
    """
    backward = h is not None
    shape = shape_of(a, x, out, h, da, reverse, marks is not None)
    if 0 in a.shape:
        return
    plan = plan or plan_of(shape, algorithm, chunk)
    batch, length, channels = shape.batch, shape.length, shape.channels
    flags = _HAS_BEGIN * (begin is not None) | _WANTS_END * (end is not None) | _HAS_INITIAL * (initial is not None)
    common = (
        a, x, h, out, da, begin, end, initial, marks, before, *a.stride(), *x.stride(),
        *(h.stride() if backward else (0, 0, 0)), *out.stride(), batch, channels, length, flags,
    )  # fmt: skip
    device = a.device
    if plan.algorithm == "thread":
        last = ()
    elif plan.algorithm == "block":
        last = (plan.chunk, 0, None)
    elif plan.algorithm in ("lookback", "relay"):
        each = (2 if shape.dtype == torch.float64 else 1) * plan.chunks * shape.rows  # words: a number a tile and row
        relays = plan.algorithm == "relay"
        words = torch.zeros(1 + (3 if relays else 2) * each, dtype=torch.int64, device=device)  # ticket, boards
        last = (plan.chunks, words, words[1:], *([words[1 + 2 * each :]] if relays else []))
    else:
        last = (plan.chunk, 1, _carries(a, x, begin, marks, plan, shape, flags))
    plan.main((plan.grid,), plan.block, (*common, *last), device)


def _carries(a, x, begin, marks, plan, shape, flags):
    """The state before every chunk: (chunks, rows)."""
    real, device = real_of(shape.dtype), a.device
    pair_a, pair_b, carries = torch.empty((3, plan.chunks, shape.rows), dtype=real, device=device)
    cuts = torch.empty((plan.chunks, shape.rows), dtype=torch.int32, device=device) if shape.packed else None
    file, without = "scan_two_pass.cu", ("PREFETCH",)
    plan.launcher(file, "scan_totals", without=without)(
        (plan.grid,), plan.block,
        (a, x, begin, marks, *a.stride(), *x.stride(), shape.batch, shape.channels, shape.length, flags, plan.chunk,
         pair_a, pair_b, cuts),
        device,
    )  # fmt: skip
    by_thread = plan.algorithm == "chain"
    at_edge = None if shape.packed else begin
    plan.launcher(file, "carry_chain" if by_thread else "carry_scan", without=without)(
        (-(-shape.rows // (128 if by_thread else 4)),), (128,) if by_thread else (32, 4),
        (pair_a, pair_b, cuts, at_edge, int(at_edge is not None), shape.rows, plan.chunks, carries),
        device,
    )  # fmt: skip
    return carries


def shape_of(a, x, out, h=None, da=None, reverse=False, packed=False):
    """The Shape of a call."""
    aligned = not ((a.data_ptr() | x.data_ptr() | out.data_ptr()) % 16)
    strides = (a.stride(), x.stride(), out.stride())
    if h is not None:
        strides = (*strides, h.stride())
        aligned = aligned and not ((h.data_ptr() | da.data_ptr()) % 16)
    return Shape(*a.shape, strides, aligned, a.dtype, a.device, reverse, h is not None, packed)
