"""What ssmlab.bench measures of the scan: the issue's shapes, and the peers that are installed.

Peers on a GPU: accelerated-scan (its Triton kernel), fpscan, torch's compiled associative_scan, and for one long row
CUB's DeviceScan with our operator, through cuda-cccl. On a CPU the forms
that people write in plain torch: a loop over the steps, Blelloch's tree over strided views, and mambapy's pscan.
"""

from __future__ import annotations

import functools
import math

import torch

from . import scan_kernels
from .bench import Case, median_ms
from .scan_op import explain, scan

_GPU = [  # batch, channels, length
    (8, 1536, 512), (8, 1536, 2048), (8, 1536, 8192), (8, 1536, 32768), (8, 1536, 65536), (1, 1536, 2048),
    (1, 1536, 65536), (1, 64, 65536), (1, 1, 2**20), (1, 1, 2**24), (1, 1, 2**28),
]  # fmt: skip
_GPU_BACKWARD = [(8, 1536, 2048), (8, 1536, 8192), (8, 1536, 32768), (1, 64, 65536)]
_GPU_TWO_PASS = [(1, 64, 16384), (1, 1536, 16384), (8, 1536, 16384)]  # chunks of 256 steps: 64 carries a row
_COMPILED = [(2048, torch.float32)]  # each shape costs the compiler many seconds, longer ones minutes
_CPU = [(4, 256, 4096)]
_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def problem(batch, channels, length, dtype, layout, device):
    """a, b (batch, length, channels); "rows": time contiguous, "columns": channels contiguous."""
    shape = (batch, channels, length) if layout == "rows" else (batch, length, channels)
    generator = torch.Generator(device=device).manual_seed(0)
    a = (torch.rand(shape, device=device, generator=generator) * 0.5 + 0.5).to(dtype)
    b = torch.randn(shape, device=device, generator=generator).to(dtype)
    return (a.transpose(1, 2), b.transpose(1, 2)) if layout == "rows" else (a, b)


def cases(device):
    """Cases, made one after another so that only one lies in memory."""
    if device.type == "cpu":
        for batch, channels, length in _CPU:
            for layout in ("columns", "rows"):
                yield _cpu_case(batch, channels, length, layout, device)
        return
    for dtype in _NAMES:
        for size in _GPU:
            for layout in ("rows",) if size[1] == 1 else ("rows", "columns"):
                yield _forward(*size, dtype, layout, device)
        for size in _GPU_TWO_PASS if dtype == torch.float32 else ():
            for layout in ("rows", "columns"):
                yield from _two_passes(*size, layout, device)
        for size in _GPU_BACKWARD:
            for layout in ("rows", "columns"):
                yield _backward(*size, dtype, layout, device)


def _held_by(rows, length, layout):
    """What keeps a shape behind a large copy; "" where nothing does.

    Measured on an H200 for rows that fill it: kernels that do all accesses of the finished ones and none of their
    arithmetic take as long, to within 3 %; a copy is slower after zero_(), which leaves lines to write back, than after
    a sweep that reads. For few rows it is what the algorithm lets one expect, no more.
    """
    if rows == 1:
        waits = "a tile waits for the slowest read before it"
        return f"{waits}; clearing the boards is a launch of its own" if length <= 2**20 else waits
    if rows < 12288:
        return "too few rows to keep all reads under way" if length > 2048 else "launch and first reads"
    if length > 2048:
        return ""
    zeros = "launch, and lines of the sweep that the cache writes back meanwhile"
    return zeros if layout == "rows" else f"{zeros}; accesses of 256 bytes, a row of channels apart"


def _note(how, rows, length, layout):
    return "; ".join(filter(None, (how, _held_by(rows, length, layout))))


def _forward(batch, channels, length, dtype, layout, device):
    a, b = problem(batch, channels, length, dtype, layout, device)
    peers = {"torch.compile associative_scan": _compiled(a, b)} if (length, dtype) in _COMPILED else {}
    if layout == "rows":
        peers.update(_rows_peers(a.transpose(1, 2), b.transpose(1, 2)))
    if batch * channels == 1 and dtype == torch.float32:
        peers.update(_cub(a.flatten(), b.flatten()))
    moved = 3 * a.numel() * a.element_size()
    with torch.no_grad():
        how = explain(a, b).split(":")[0]
    shape, note = (batch, length, channels), _note(how, batch * channels, length, layout)

    def facts():
        """The same two reads and one write without the recurrence."""
        out = torch.empty_like(b)
        return {"torch_add_ms": median_ms(lambda: torch.add(a, b, out=out), device, warmup_ms=5, measure_ms=30)}

    return Case("scan", "forward", shape, _NAMES[dtype], layout, moved, lambda: scan(a, b), peers, note, facts)


def _backward(batch, channels, length, dtype, layout, device):
    a, b = problem(batch, channels, length, dtype, layout, device)
    h, dh = scan(a, b), torch.randn_like(b)
    moved = 5 * a.numel() * a.element_size()

    def ours():
        torch.ops.ssmlab.scan_backward(a, h, None, None, None, dh, None, batch, False, "auto")

    note = _note("", batch * channels, length, layout)
    return Case("scan", "backward", (batch, length, channels), _NAMES[dtype], layout, moved, ours, note=note)


def _two_passes(batch, channels, length, layout, device, chunk=256):
    """Claim A15: the carries of the chunks by a chain, and by a scan of the totals."""
    a, b = problem(batch, channels, length, torch.float32, layout, device)
    h, shape = torch.empty_like(b), (batch, length, channels)
    for algorithm in ("chain", "totals"):

        def ours(algorithm=algorithm):
            scan_kernels.run(a, b, h, None, None, algorithm=algorithm, chunk=chunk)

        moved, note = 3 * a.numel() * a.element_size(), f"{algorithm}, chunks of {chunk} steps"
        yield Case("scan", "forward", shape, "float32", layout, moved, ours, note=note)


def _rows_peers(a, b):
    """Peers for contiguous (batch, channels, length)."""
    found = {}
    try:
        from accelerated_scan.scalar import scan as accelerated

        found["accelerated-scan"] = lambda: accelerated(a, b)
    except ImportError:
        pass
    try:
        import fpscan

        out = torch.empty_like(b)
        found["fpscan"] = lambda: fpscan.scan_forward(a, b, out=out)
    except ImportError:
        pass
    return found


_PAIR = """
struct Pair { float a, b; };
extern "C" __device__ void then(void* first, void* second, void* both) {
    const Pair p = *static_cast<Pair*>(first), q = *static_cast<Pair*>(second);
    *static_cast<Pair*>(both) = {p.a * q.a, q.a * p.b + q.b};
}
"""


def _cub(a, b):
    """CUB's DeviceScan over pairs (a, b) of one float32 row, through cuda-cccl; empty where that is not installed.

    Two ways to hand the pairs over: as two arrays that an iterator joins, and side by side in one array, 8 bytes each.
    Either way CUB writes pairs, too: the running products beside h.
    """
    try:
        from cuda.compute import ZipIterator, make_inclusive_scan
        from cuda.compute.op import RawOp
        from cuda.core import Program, ProgramOptions
    except ImportError:
        return {}

    @functools.cache
    def then():
        major, minor = torch.cuda.get_device_capability(a.device)
        options = ProgramOptions(arch=f"sm_{major}{minor}", relocatable_device_code=True, link_time_optimization=True)
        return RawOp(ltoir=bytes(Program(_PAIR, "c++", options).compile("ltoir").code), name="then")

    def peer(arrays):
        @functools.cache
        def made():  # at the first launch: it takes seconds, and what goes wrong is reported there
            pairs, out = arrays()
            more = {"d_in": pairs, "d_out": out, "op": then(), "init_value": None}
            run = make_inclusive_scan(**more)
            more["num_items"] = len(a)
            scratch = torch.empty(run(temp_storage=None, **more), dtype=torch.uint8, device=a.device)
            return lambda: run(temp_storage=scratch, **more)

        return lambda: made()()

    def joined():
        pairs = torch.stack([a, b], 1).view(torch.float64).flatten()  # only the size of a pair counts
        return pairs, torch.empty_like(pairs)

    def apart():
        return ZipIterator(a, b), ZipIterator(torch.empty_like(a), torch.empty_like(b))

    return {"CUB, two arrays": peer(apart), "CUB, one array of pairs": peer(joined)}


def _compiled(a, b):
    """torch's associative_scan through torch.compile, as its documentation shows it; None where torch has none."""
    try:
        from torch._higher_order_ops.associative_scan import associative_scan
    except ImportError:
        return None

    def then(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    @torch.compile
    def run(a, b):
        return associative_scan(then, (a, b), dim=1)[1]

    return lambda: run(a, b)


def _cpu_case(batch, channels, length, layout, device):
    a, b = problem(batch, channels, length, torch.float32, layout, device)
    moved = 3 * a.numel() * a.element_size()
    peers = {"torch, a loop over steps": lambda: loop(a, b), "torch, tree in place": lambda: tree(a, b)}
    peers.update(_mambapy(a, b))
    shape = (batch, length, channels)
    return Case("scan", "forward", shape, "float32", layout, moved, lambda: scan(a, b), peers, "thread")


def _mambapy(a, b):
    """mambapy's pscan, which takes (batch, length, dims, states): the channels as either. Empty where not installed."""
    try:
        from mambapy.pscan import pscan
    except ImportError:
        return {}
    return {
        f"mambapy pscan, channels as {name}": lambda axis=axis: pscan(a.unsqueeze(axis), b.unsqueeze(axis))
        for name, axis in (("dims", 3), ("states", 2))
    }


def loop(a, b):
    """The recurrence as a Python loop over tensors."""
    h, state = torch.empty_like(b), torch.zeros_like(b[:, 0])
    for t in range(b.shape[1]):
        state = torch.addcmul(b[:, t], a[:, t], state)
        h[:, t] = state
    return h


def tree(a, b):
    """Blelloch's tree over strided views, in place on copies: up, then down (Blelloch 1990). Length a power of two."""
    length = b.shape[1]
    levels = int(math.log2(length))
    if 2**levels != length:
        raise ValueError(f"length is {length}: it must be a power of two")
    a, b = a.clone(), b.clone()
    for level in range(levels):
        step = 2 << level
        right, left = slice(step - 1, None, step), slice(step // 2 - 1, None, step)
        b[:, right].addcmul_(a[:, right], b[:, left])
        a[:, right].mul_(a[:, left])
    for level in reversed(range(levels - 1)):
        step = 2 << level
        right, left = slice(step + step // 2 - 1, None, step), slice(step - 1, length - 1, step)
        b[:, right].addcmul_(a[:, right], b[:, left])
        a[:, right].mul_(a[:, left])
    return b
