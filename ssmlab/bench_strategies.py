"""python -m ssmlab.bench_strategies: how a chunk learns what came before, five ways against the clock; for notebook 05.

    python -m ssmlab.bench_strategies                             print what was measured (about a minute on an H200)
    python -m ssmlab.bench_strategies --output notebooks/results  and write strategies_<gpu>.json there

Three questions, all in float32:
    "shapes"    rows from 1 to 24,576, lengths from 2^9 to 2^24, both layouts: which strategy takes least time?
    "channels"  1536 channels, batch 1 to 16: when is a thread a row enough?                               (claim A13)
    "carries"   16,384 steps in 64 chunks of 256: what does each way to hand the carries on cost?          (claim A15)

A strategy is measured with every tile that scan_table.json has for it, the two-pass ones also with several numbers of
chunks, and its fastest time counts. Launches are replayed from CUDA graphs, so the host's share of the time is left
out. All results of a shape are compared with each other before any time is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
from pathlib import Path

import torch

from . import scan_kernels
from .bench import copy_gbps, median_ms, once_ms, slug, sweep_of, versions
from .bench_carries import carries, compare, recorded

STRATEGIES = ("lookback", "totals", "chain", "block", "thread")  # in the order of measuring: likely winners first
ROWS = (1, 4, 64, 256, 1536, 6144, 24576)
LENGTHS = tuple(2**power for power in range(9, 25))
# For a quick look, also on a GPU with little memory.
FEW_ROWS, FEW_LENGTHS, FEW_CARRIED = (1, 64, 6144), tuple(2**power for power in range(9, 22, 3)), (1, 64, 1536)
MOST_STEPS = 2**27                                                      # rows * length: three arrays of 512 MiB
CHANNELS, BATCHES = 1536, (1, 2, 4, 8, 16)
_CHUNK_COUNTS = (4, 16, 64, 256, 1024)
_HOPELESS, _WORSE = 20, 1.5  # times the best of all, of the same strategy: timed once and not many times
_TOO_LONG = 20                                                         # [ms] expected: left out


def problem(batch, length, channels, layout, device, pool=None):
    """a, b (batch, length, channels) float32; "rows": time contiguous. pool: two flat tensors to take them from."""
    size = batch * length * channels
    a, b = (flat[:size] for flat in (pool or new_pool(size, device)))
    if layout == "rows":
        return tuple(flat.view(batch, channels, length).transpose(1, 2) for flat in (a, b))
    return tuple(flat.view(batch, length, channels) for flat in (a, b))


def new_pool(size, device):
    """Random a in [0.99, 1) and b, flat: a wrong carry is felt for hundreds of steps."""
    generator = torch.Generator(device=device).manual_seed(0)
    a = torch.rand(size, device=device, generator=generator) * 0.01 + 0.99
    return a, torch.randn(size, device=device, generator=generator)


def plans(shape, strategy, blocks_wanted=1056):
    """The plans with which a strategy is tried on a Shape. blocks_wanted: what a two-pass should come close to."""
    if strategy == "thread":
        return [scan_kernels.plan_of(shape, "thread")]
    if strategy in ("block", "lookback"):
        return [scan_kernels.plan_with(shape, strategy, tile, "measured") for tile in tiles(shape, strategy)]
    found = {}
    by_steps = {scan_kernels.plan_with(shape, strategy, tile, "", 2**30).tile: tile for tile in tiles(shape, "block")}
    for count in _CHUNK_COUNTS:
        chunk = -(-shape.length // count)
        steps = max((steps for steps in by_steps if steps <= chunk), default=min(by_steps))
        chunk = -(-chunk // steps) * steps
        found[chunk] = scan_kernels.plan_with(shape, strategy, by_steps[steps], "measured", chunk)
    return sorted(found.values(), key=lambda plan: max(plan.grid / blocks_wanted, blocks_wanted / plan.grid))[:3]


def tiles(shape, algorithm):
    """Every tile that scan_table.json has for this layout and type, whatever the length."""
    entries = json.loads(scan_kernels.TABLE.read_text(encoding="utf-8"))["entries"]
    key = (shape.layout, 8 * shape.dtype.itemsize, "forward", algorithm)
    found = [
        entry["tile"] for entry in entries
        if (entry["layout"], entry["bits"], entry["direction"], entry["algorithm"]) == key
    ]  # fmt: skip
    return [tile for index, tile in enumerate(found) if tile not in found[:index]]


def point(batch, length, channels, layout, device, pool=None, shorter=None):
    """One shape: {"shape", "layout", "ms": {strategy: ms}, "how": {strategy: chunks and blocks of the fastest}}.

    shorter   a point with fewer steps: what would take far too long here, going by it, is left out; its ms is None
    """
    a, b = problem(batch, length, channels, layout, device, pool)
    h, want = torch.empty_like(b), None
    shape = scan_kernels.shape_of(a, b, h)
    sweep = sweep_of(device)
    ms, how = {}, {}
    for strategy in STRATEGIES:
        before = shorter["ms"][strategy] if shorter else 0.0
        if before is None or before * (length / shorter["shape"][1] if shorter else 1) > _TOO_LONG:
            ms[strategy], how[strategy] = None, "left out: too long"
            continue
        for plan in plans(shape, strategy):

            def run(plan=plan):
                scan_kernels.run(a, b, h, None, None, plan=plan)

            run()
            want = h.clone() if want is None else want
            compare(h, want, f"{plan.algorithm} with tiles of {plan.tile} steps")
            replay = recorded(run)
            took = once_ms(replay, sweep)
            best = min((value for value in ms.values() if value is not None), default=took)
            if took <= min(_HOPELESS * best, _WORSE * ms.get(strategy, took)):
                took = median_ms(replay, device, warmup_ms=0, measure_ms=4)
            if strategy not in ms or took < ms[strategy]:
                chunks = f"{plan.chunks} chunks a row, " if plan.chunks > 1 else ""
                ms[strategy] = took
                how[strategy] = f"{chunks}{plan.grid} blocks of {math.prod(plan.block)} threads, tile {plan.tile}"
    return {"shape": [batch, length, channels], "layout": layout, "ms": ms, "how": how}


def shapes(device, rows=ROWS, lengths=LENGTHS, layouts=("rows", "columns"), show=print):
    """A point for every number of rows and every length, both layouts where there is more than one row."""
    pool = new_pool(min(MOST_STEPS, max(rows) * max(lengths)), device)
    found = []
    for layout in layouts:
        for count in rows:
            if layout == "columns" and count == 1:
                continue                                                # one row lies the same way in both
            shorter = None
            for length in lengths:
                if count * length <= MOST_STEPS:
                    shorter = point(1, length, count, layout, device, pool, shorter)
                    found.append(shorter)
            show(line(found[-1]))
    return found


def line(found):
    """A point as one line of text, fastest strategy first."""
    timed = sorted((ms, name) for name, ms in found["ms"].items() if ms is not None)
    times = "  ".join(f"{name} {ms:.4f}" for ms, name in timed)
    return f"{found['layout']:8} {'x'.join(map(str, found['shape'])):18} ms: {times}"


def channels(device, batches=BATCHES, lengths=(2048, 65536), show=print):
    """Claim A13: a thread a row against the others, 1536 channels that lie side by side."""
    found = []
    for length in lengths:
        for batch in batches:
            if batch * CHANNELS * length <= MOST_STEPS:
                found.append(point(batch, length, CHANNELS, "columns", device))
                show(line(found[-1]))
    return found



def measure(device, quick=False, show=print):
    """What is written as JSON. quick: few shapes, for a notebook that draws them while the reader waits."""
    rows, lengths = (FEW_ROWS, FEW_LENGTHS) if quick else (ROWS, LENGTHS)
    found = {
        "device": torch.cuda.get_device_name(device),
        "date": datetime.date.today().isoformat(),
        "command": "python -m ssmlab.bench_strategies" + (" --quick" if quick else ""),
        "versions": versions(),
        "copy_gbps": copy_gbps(device),
        "carries": carries(device, *([FEW_CARRIED] if quick else []), show=show),
        "channels": channels(device, *(((1, 16), (2048,)) if quick else ()), show=show),
        "shapes": shapes(device, rows, lengths, show=show),
    }
    return json.loads(json.dumps(found))                                # as it will be read from a file


def text(found):
    """The JSON: one shape a line, times to a tenth of a microsecond."""
    lists = {key: value for key, value in found.items() if isinstance(value, list)}
    head = json.dumps({key: value for key, value in found.items() if key not in lists}, indent=1)[:-2]
    parts = [head]
    for key, rows in lists.items():
        lines = ",\n".join("  " + json.dumps(_rounded(row)) for row in rows)
        parts.append(f' "{key}": [\n{lines}\n ]')
    return ",\n".join(parts) + "\n}\n"


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m ssmlab.bench_strategies", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="folder for the JSON")
    parser.add_argument("--quick", action="store_true", help="few shapes")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU: a CPU walks whole rows, there is nothing to choose")
    found = measure(torch.device("cuda", torch.cuda.current_device()), options.quick)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        path = options.output / f"strategies_{slug(found['device'])}.json"
        path.write_text(text(found), encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
