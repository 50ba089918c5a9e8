"""python -m ssmlab.bench: ours, every peer that is installed, a large copy and the floor, in one process.

    python -m ssmlab.bench                        all ops on the GPU, or on the CPU where there is none
    python -m ssmlab.bench scan --output notebooks/results

Prints a table and writes one JSON a op and device into --output:

    device, date, command, versions, copy_gbps    what was measured, where, with what; a large copy, read + write
    rows                                          one a case, fields of Row

A time is the median of many launches, each after a sweep that empties the GPU's L2 cache, taken with events, as
triton.testing.do_bench does it. Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib
import importlib.metadata
import json
import platform
import shlex
import statistics
import time
from pathlib import Path

import torch

# op: the module whose cases(device) yields a Case each. An op joins by a line here.
OPS = {"scan": "ssmlab.bench_scan", "selective": "ssmlab.bench_selective", "recompute": "ssmlab.bench_recompute"}
_PACKAGES = (
    "ssmlab", "torch", "triton", "cupy-cuda12x", "cupy-cuda13x", "accelerated-scan", "fpscan", "mamba-ssm", "cuda-cccl",
    "mambapy", "numpy",
)  # fmt: skip
_AHEAD = 50  # launches that the CPU is ahead of the GPU while times are taken; a queue holds about a thousand
_CLOCK = 2e9  # [1/s] at least the GPU's


@dataclasses.dataclass
class Case:
    """One thing to measure. moved: [B] each input once, each output once. ours, peers: functions without arguments.

    peers   {name: function, or None where the peer does not take this case}; a peer that raises is reported, not hidden
    facts   a function whose dict is kept in the row: what else was measured, such as memory; "do_bench" is shown
    """

    op: str
    direction: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    moved: int
    ours: object
    peers: dict = dataclasses.field(default_factory=dict)
    note: str = ""
    facts: object = None


@dataclasses.dataclass
class Row:
    """One line of the results. copy_fraction: our bytes a second over those of a large copy. floor_ms: moved / copy.

    ours_ms, peer_ms   of the GPU's work;  calls_ms: from call to call, the CPU's work included, of ours and each peer
                       (on a CPU the two are the same: left empty)
    """

    op: str
    direction: str
    shape: list[int]
    dtype: str
    layout: str
    ours_ms: float
    peer: str | None
    peer_ms: float | None
    copy_fraction: float
    floor_ms: float
    floor_kind: str
    same_copy_ms: float
    peers_ms: dict[str, float | str]
    note: str
    facts: dict = dataclasses.field(default_factory=dict)
    calls_ms: dict[str, float] = dataclasses.field(default_factory=dict)


def median_ms(run, device, *, warmup_ms=30, measure_ms=120):
    """[ms] the median time of run(), as times_ms takes it."""
    return statistics.median(times_ms(run, device, warmup_ms=warmup_ms, measure_ms=measure_ms))


def times_ms(run, device, *, warmup_ms=30, measure_ms=120):
    """[ms] of five or more runs of run(); on a GPU of its work there, however long the CPU takes to launch it."""
    if device.type == "cpu":
        return _times_on_cpu(run)
    sweep = sweep_of(device)
    run()
    torch.cuda.synchronize(device)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(5):
        sweep.zero_()
        run()
    end.record()
    torch.cuda.synchronize(device)
    estimate = max(begin.elapsed_time(end) / 5, 1e-3)
    warmups = max(5, int(warmup_ms / estimate))
    started = time.perf_counter()
    for _ in range(warmups):
        run()
    launch = (time.perf_counter() - started) / warmups  # [s] of the CPU a call, or of the GPU if that is longer
    torch.cuda.synchronize(device)
    repeats = max(5, int(measure_ms / estimate))
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for first in range(0, repeats, _AHEAD):
        # The GPU waits until the CPU has filled its queue: else it would wait between `begin` and the work.
        torch.cuda._sleep(int(_AHEAD * (launch + 20e-6) * _CLOCK))
        for begin, end in pairs[first : first + _AHEAD]:
            sweep.zero_()
            begin.record()
            run()
            end.record()
    torch.cuda.synchronize(device)
    return [begin.elapsed_time(end) for begin, end in pairs]


def sweep_of(device):
    """A tensor of more bytes than any L2 cache: sweep.zero_() leaves nothing else in it."""
    return torch.empty(64 * 2**20, dtype=torch.int32, device=device)


def once_ms(run, sweep):
    """[ms] of the GPU's work in one run of run(), behind sweep.zero_(): for a first look."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    sweep.zero_()
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def do_bench_ms(functions):
    """{name: [ms]} as triton.testing.do_bench takes them: around a call, so that the CPU counts where it is slower.

    functions   {name: function, or None}. Where Triton is missing, there are none.
    """
    try:
        from triton.testing import do_bench
    except ImportError:
        return {}
    return {
        name: do_bench(run, warmup=30, rep=120, return_mode="median") for name, run in functions.items()
        if run is not None
    }  # fmt: skip


def call_ms(run, device, gpu_ms):
    """[ms] from one call to the next if they follow without a pause: the CPU's time for it or the GPU's, the longer.

    gpu_ms   the GPU's time, which decides how many calls are worth a look
    """
    calls = max(2, min(30, int(50 / gpu_ms)))
    run()
    torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - begin) / calls


def _times_on_cpu(run, budget=1.0):
    run()
    times = []
    stop = time.perf_counter() + budget
    while len(times) < 5 or (time.perf_counter() < stop and len(times) < 200):
        begin = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def copy_gbps(device, *, size=2**30):
    """[GB/s] that a copy of `size` bytes moves, read + write."""
    source = torch.empty(size if device.type == "cuda" else size // 8, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2e-6 * source.numel() / median_ms(lambda: target.copy_(source), device)


def measure(case, device, gbps):
    """A Row. Every peer that can take the case is timed; the fastest stands in peer, peer_ms."""
    ours = median_ms(case.ours, device)
    on_gpu = device.type == "cuda"
    calls, peers = {"ours": call_ms(case.ours, device, ours)} if on_gpu else {}, {}
    for name, run in case.peers.items():
        if run is None:
            continue
        try:
            peers[name] = median_ms(run, device)
            if on_gpu:
                calls[name] = call_ms(run, device, peers[name])
        except Exception as error:  # a peer's fault is a result
            peers[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
    timed = {name: ms for name, ms in peers.items() if isinstance(ms, float)}
    best = min(timed, key=timed.get) if timed else None
    half = torch.empty(max(case.moved // 2, 1), dtype=torch.uint8, device=device)
    other = torch.empty_like(half)
    same_copy = median_ms(lambda: other.copy_(half), device)
    floor = 1e-6 * case.moved / gbps
    return Row(
        case.op, case.direction, list(case.shape), case.dtype, case.layout, ours, best, timed.get(best), floor / ours,
        floor, "bytes over the speed of a large copy", same_copy, peers, case.note,
        case.facts() if case.facts else {}, calls,
    )  # fmt: skip


def slug(device):
    """A device's name as part of a file name: "NVIDIA H200" -> "h200", any CPU -> "cpu"."""
    name = device.removeprefix("NVIDIA ").partition(",")[0]
    return "".join(letter if letter.isalnum() else "_" for letter in name.lower())


def versions():
    """Installed versions of what matters here."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def report(rows, gbps):
    """The rows as a table: times, the ratio to the best peer (above 1: we are faster), the share of copy bandwidth."""
    lines = [f"large copy: {gbps:,.0f} GB/s (read + write)", ""]
    head = (
        "op", "shape", "dtype", "layout", "ours ms", "peer ms", "peer", "ratio", "% copy", "same-size copy ms",
        "call ms", "peer's", "do_bench ms", "peer's", "note",
    )  # fmt: skip
    table = [head]
    for row in rows:
        peer = "" if row.peer_ms is None else f"{row.peer_ms:.4f}"
        ratio = "" if row.peer_ms is None else f"{row.peer_ms / row.ours_ms:.2f}"
        table.append((
            f"{row.op} {row.direction}", "x".join(map(str, row.shape)), row.dtype, row.layout, f"{row.ours_ms:.4f}",
            peer, row.peer or "", ratio, f"{100 * row.copy_fraction:.1f}", f"{row.same_copy_ms:.4f}",
            *(f"{found[name]:.4f}" if name in found else "" for found in (row.calls_ms, row.facts.get("do_bench", {}))
              for name in ("ours", row.peer)), row.note,
        ))  # fmt: skip
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join(lines)


def run(op, device, *, only=None, show=print):
    """Measure an op's cases: the dict that is written as JSON. only: cases whose description contains these words."""
    module = importlib.import_module(OPS[op])
    gbps = copy_gbps(device)
    rows = []
    for case in module.cases(device):
        name = f"{case.op} {case.direction} {'x'.join(map(str, case.shape))} {case.dtype} {case.layout}"
        if only and not all(word in name for word in only):
            continue
        row = measure(case, device, gbps)
        rows.append(row)
        show(f"{name}: {row.ours_ms:.4f} ms, {100 * row.copy_fraction:.1f} % of copy")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return {
        "device": name,
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["python", "-m", "ssmlab.bench", op, *(["--only", *only] if only else [])]),
        "versions": versions(),
        "copy_gbps": gbps,
        "rows": [dataclasses.asdict(row) for row in rows],
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m ssmlab.bench", description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", metavar="op", help=f"which ops: {', '.join(OPS)} (all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="cuda where torch sees a GPU, else cpu")
    parser.add_argument("--only", nargs="+", metavar="word", help="only cases whose description has all these words")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU, for ours and for torch (2)")
    parser.add_argument("--output", type=Path, help="folder for the JSON files; left out: only the table is printed")
    options = parser.parse_args(arguments)
    unknown = [op for op in options.ops if op not in OPS]
    if unknown:
        parser.error(f"op is {unknown[0]!r}: it must be one of {', '.join(OPS)}")
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        torch.set_num_threads(options.threads)
    for op in options.ops or OPS:
        result = run(op, device, only=options.only)
        print(report([Row(**row) for row in result["rows"]], result["copy_gbps"]))
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            path = options.output / f"{op}_{slug(result['device'])}.json"
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(f"written: {path}")


if __name__ == "__main__":
    main()
