"""Claim A15 against the clock: the kernels chunks_v2 ... chunks_v5 of notebook 05, the same block scan in all of them.

    from ssmlab.bench_carries import carries
    carries(torch.device("cuda", 0))            16,384 steps in 64 chunks of 256, 1 to 24,576 rows

Part of `python -m ssmlab.bench_strategies`.
"""

from __future__ import annotations

import functools
import statistics

import torch

from . import kernels
from .bench import times_ms
from .rawkernel import RawKernel

WAYS = ("chain", "totals", "handover", "lookback")


def compare(h, want, name):
    """Raise RuntimeError if h is not `want` up to rounding: a wrong result has no speed."""
    apart, scale = (h - want).abs().max().item(), want.abs().max().item()
    if not apart <= 1e-4 * scale:
        raise RuntimeError(f"{name}: differs by {apart:.3g} from what it should be, the largest state is {scale:.3g}")


class Ladder:
    """The teaching kernels on one problem: a, b (rows, length) and start (rows,), float32, contiguous, one device.

    chain(), totals(), handover(), lookback()   each scans into h
    carry_by_chain(), carry_by_scan()           the middle kernel of the first two
    """

    def __init__(self, a, b, start, chunk):
        rows, length = a.shape
        count = -(-length // chunk)
        self.a, self.b, self.start, self.h = a, b, start, torch.empty_like(b)
        self.rows, self.length, self.count, self.chunk = rows, length, count, chunk
        self.total, self.before = a.new_empty(rows, count, 2), a.new_empty(rows, count)
        self.board = torch.zeros(1 + rows * count, dtype=torch.int32, device=a.device)     # the ticket, then the flags
        self._kernel = functools.cache(self._compile)

    def _compile(self, file, name):
        return RawKernel(kernels.source(file), name, (f"-DCHUNK={self.chunk}",), mode="native", filename=file)

    def _chunks(self, name, *arguments, file="chunks_v2_chain.cu"):
        self._kernel(file, name)((self.rows * self.count,), (self.chunk,), arguments)

    def chain(self):
        """Two passes; one thread a row makes the carries."""
        self._two_passes(self.carry_by_chain)

    def totals(self):
        """Two passes; a warp a row scans the totals."""
        self._two_passes(self.carry_by_scan)

    def _two_passes(self, carry):
        self._chunks("chunks_v2_totals", self.a, self.b, self.total, self.length, self.count)
        carry()
        self._chunks("chunks_v2_finish", self.a, self.b, self.before, self.h, self.length, self.count)

    def carry_by_chain(self):
        """The states before all chunks, from `total`, one after another."""
        carry = self._kernel("chunks_v2_chain.cu", "chunks_v2_carry")
        carry((-(-self.rows // 32),), (32,), (self.total, self.start, self.before, self.rows, self.count))

    def carry_by_scan(self):
        """The same by a scan."""
        carry = self._kernel("chunks_v3_totals.cu", "chunks_v3_carry")
        carry((self.rows,), (32,), (self.total, self.start, self.before, self.rows, self.count))

    def handover(self):
        """One pass; a block waits for its left neighbour's state."""
        self.board.zero_()
        self._chunks("chunks_v4", self.a, self.b, self.h, self.start, self.rows, self.length, self.count, self.board,
                     self.before, self.board[1:], file="chunks_v4_handover.cu")

    def lookback(self):
        """One pass; a block looks back over posted totals."""
        self.board.zero_()
        self._chunks("chunks_v5", self.a, self.b, self.h, self.start, self.rows, self.length, self.count, self.board,
                     self.total, self.before, self.board[1:], file="chunks_v5_lookback.cu")


def recorded(run):
    """run as a CUDA graph: what the host needs for several launches is left out of its time. run() went well before."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()                                                      # the first replay loads it onto the GPU
    return graph.replay


def carries(device, rows=(1, 64, 1536, 24576), length=16384, chunk=256, show=print):
    """A measurement for each number of rows: {"rows", "length", "chunk", "ms", "p99_ms"}.

    ms, p99_ms    {way: median, 99th percentile of many launches}, ways as in WAYS
    """
    return [_carries(device, count, length, chunk, show) for count in rows]


def _carries(device, rows, length, chunk, show):
    generator = torch.Generator(device=device).manual_seed(0)
    a = torch.rand(rows, length, device=device, generator=generator) * 0.01 + 0.99
    b = torch.randn(rows, length, device=device, generator=generator)
    ladder = Ladder(a, b, torch.randn(rows, device=device, generator=generator), chunk)
    want, times = None, {}
    for way in WAYS:
        ladder.h.fill_(torch.nan)
        getattr(ladder, way)()
        want = ladder.h.clone() if want is None else want
        compare(ladder.h, want, f"{way}, {rows} rows")
        times[way] = times_ms(recorded(getattr(ladder, way)), device, measure_ms=100)
    ms = {way: statistics.median(values) for way, values in times.items()}
    late = {way: statistics.quantiles(values, n=100)[98] for way, values in times.items()}
    show(f"{rows} rows, {length} steps, chunks of {chunk}, ms: "
         + "  ".join(f"{way} {ms[way]:.4f} (p99 {late[way]:.4f})" for way in WAYS))
    return {"rows": rows, "length": length, "chunk": chunk, "ms": ms, "p99_ms": late}
