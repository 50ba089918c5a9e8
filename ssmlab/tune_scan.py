"""python -m ssmlab.tune_scan: measures tiles and algorithms on this GPU and writes scan_table.json anew.

    python -m ssmlab.tune_scan                     print the table that this GPU would get
    python -m ssmlab.tune_scan --write             write it where the installed package reads it
    python -m ssmlab.tune_scan --only rows 32 forward      one layout, element size [bits], direction; the rest stays

For each layout, element size and direction: the best tile at several lengths of many rows, and, for long rows, the best
algorithm at several numbers of rows. Neighbouring answers that agree become one entry. One to two
minutes on an H200; about half of that compiles, on eight CPU cores at once.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from . import scan_kernels
from .bench import median_ms, once_ms, sweep_of
from .bench_scan import problem

_DTYPES = {16: torch.bfloat16, 32: torch.float32, 64: torch.float64}
_MANY = 12288  # rows that fill a GPU
_LENGTHS = (128, 256, 512, 2048, 4096)
_LONG = 16384  # steps, for all that is longer
_ROWS = {1: 2**24, 8: 2**20, 47: 65536, 132: 65536, 1024: _LONG, 6144: _LONG}  # rows: steps
_COMPILERS = 8  # at once
_LOOKS, _LONG_MS, _AHEAD = 5, 8, 2  # launches of every candidate; [ms] for the best few
_NOISE = 0.01

# Candidates, as scan_table.json writes them; the tiles that stand there are tried, too.
_BLOCK = {
    "rows": [
        [32, 1, 4, 0, 1], [32, 2, 4, 0, 1], [64, 2, 1, 0, 1], [128, 2, 1, 0, 8], [128, 4, 1, 0, 8], [128, 4, 1, 1, 4],
        [256, 4, 1, 1, 1], [512, 4, 1, 1, 1],
    ],
    "columns": [[8, 16, 4, 1, 1], [16, 8, 8, 1, 1], [16, 16, 4, 1, 1], [16, 16, 8, 1, 1], [32, 8, 8, 1, 1]],
}  # fmt: skip
_LOOKBACK = {
    "rows": [[256, 2, 1, 1, 1, 1], [256, 4, 1, 1, 1, 1], [256, 8, 1, 1, 2, 1]],
    "columns": [[8, 16, 8, 2, 1, 1], [8, 32, 4, 2, 1, 4], [8, 32, 8, 2, 2, 1]],
}
_RELAY = {
    "rows": [[256, 4, 1, 2, 4], [256, 2, 1, 2, 4], [256, 8, 1, 2, 2]],
    "columns": [[8, 32, 8, 8, 2], [8, 16, 4, 4, 1]],
}
_TILES = {"block": _BLOCK, "lookback": _LOOKBACK, "relay": _RELAY}


def candidates(algorithm, layout, bits):
    """Tiles to try: those above, across channels with each number of channels a thread, and those in the table."""
    tiles = _TILES[algorithm][layout]
    if layout == "columns":
        packs = {64: (2,), 32: (4,), 16: (4, 8)}[bits]
        tiles = [[*tile[:5], pack, *tile[5:]] for tile in tiles for pack in packs]
    known = [
        entry["tile"] for entry in scan_kernels.table()
        if (entry["algorithm"], entry["layout"], entry["bits"]) == (algorithm, layout, bits)
    ]  # fmt: skip
    return [list(tile) for tile in dict.fromkeys(map(tuple, [*tiles, *known]))]


def plans(shape, algorithms, layout, bits):
    """{(algorithm, tile): Plan} of all candidates."""
    return {
        (algorithm, tuple(tile)): scan_kernels.plan_with(shape, algorithm, tile, "a candidate")
        for algorithm in algorithms for tile in candidates(algorithm, layout, bits)
    }  # fmt: skip


def compiled(found, device):
    """The plans whose kernels compile. Several are compiled at once: NVRTC works outside Python's lock."""

    def tried(pair):
        (algorithm, tile), plan = pair
        try:
            with torch.cuda.device(device):  # of this thread
                plan.main.kernel.compile()
        except RuntimeError as error:  # too much shared memory for this tile
            print(f"  passed over: {algorithm} {list(tile)}: {str(error).splitlines()[0]}")
            return False
        return True

    with ThreadPoolExecutor(_COMPILERS) as pool:
        return dict(pair for pair, good in zip(found.items(), pool.map(tried, found.items()), strict=True) if good)


def best(layout, bits, direction, rows, length, algorithms, device, before=None):
    """(algorithm, tile) that is fastest for `rows` rows of `length` steps.

    All candidates get a short look, the best few a longer one. before: the answer for the shape before this one, which
    stays if it is as good to within the noise, so that the table changes only where that brings something.
    """
    a, b = problem(1, rows, length, _DTYPES[bits], layout, device)
    out, backward = torch.empty_like(b), direction == "backward"
    more = {"h": torch.zeros_like(b), "da": torch.empty_like(b)} if backward else {}
    shape = scan_kernels.shape_of(a, b, out, more.get("h"), more.get("da"))
    found = compiled(plans(shape, algorithms, layout, bits), device)

    run = {
        choice: functools.partial(scan_kernels.run, a, b, out, None, None, plan=plan, **more)
        for choice, plan in found.items()
    }
    sweep, short = sweep_of(device), {}
    for choice in run:
        try:
            run[choice]()
            short[choice] = statistics.median(once_ms(run[choice], sweep) for _ in range(_LOOKS))
        except (RuntimeError, ValueError) as error:  # too few registers for this tile
            print(f"  passed over: {choice[0]} {list(choice[1])}: {str(error).splitlines()[0]}")
    ahead = set(sorted(short, key=short.get)[:_AHEAD])
    if before in short:
        ahead.add(before)
    longer = {choice: median_ms(run[choice], device, warmup_ms=0, measure_ms=_LONG_MS) for choice in ahead}
    choice = min(longer, key=longer.get)
    return before if before in longer and longer[before] <= (1 + _NOISE) * longer[choice] else choice


def entries(layout, bits, direction, device):
    """The table's entries for one layout, element size and direction, in the order in which they are tried.

    Each algorithm that a caller may name has one: behind the last, which fits everything, if it was never the fastest.
    """
    common = {"layout": layout, "bits": bits, "direction": direction}

    def entry(rows, length, algorithms, before, **limits):
        algorithm, tile = best(layout, bits, direction, rows, length, algorithms, device, before)
        limits = {"longest": None, "most_rows": None} | limits
        return (algorithm, tile), {**common, "algorithm": algorithm, **limits, "tile": list(tile)}

    short, few, before = [], [], None
    for longest in _LENGTHS:
        before, made = entry(_MANY, longest, ("block",), before, longest=longest)
        short.append(made)
    before = None
    some = {most: length for most, length in _ROWS.items() if layout == "rows" or most > 1}  # one column is a row
    for most, length in some.items():
        before, made = entry(most, length, tuple(_TILES), before, most_rows=most)
        few.append(made)
    _, last = entry(_MANY, _LONG, ("block",), None)
    taken = {made["algorithm"] for made in few}
    fewest = min(some)
    named = [entry(fewest, some[fewest], (name,), None)[1] for name in ("lookback", "relay") if name not in taken]
    return [*merged(short, "longest"), *merged(few, "most_rows"), last, *named]


def merged(rows, limit):
    """Neighbours with the same answer become the one with the larger limit."""
    kept = []
    for row in rows:
        if kept and all(kept[-1][key] == row[key] for key in ("algorithm", "tile")):
            kept.pop()
        kept.append(row)
    return sorted(kept, key=lambda row: row[limit])


def text(name, about, rows):
    """scan_table.json, one entry a line."""
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    head = f'{{\n  "measured on": {json.dumps(name)},\n  "about": {json.dumps(about)},\n  "entries": [\n'
    return f"{head}{lines}\n  ]\n}}\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m ssmlab.tune_scan", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {scan_kernels.TABLE.name}")
    parser.add_argument("--only", nargs="+", default=[], metavar="word", help="layout, bits, direction; the rest stays")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU: the table is about GPUs")
    words = {"rows", "columns", "forward", "backward", *map(str, _DTYPES)}
    if not words.issuperset(options.only):
        parser.error(f"--only is {options.only}: its words must be among {', '.join(sorted(words))}")
    device = torch.device("cuda", torch.cuda.current_device())
    began = time.perf_counter()
    old = json.loads(scan_kernels.TABLE.read_text(encoding="utf-8"))
    rows = []
    for layout, bits, direction in itertools.product(("rows", "columns"), _DTYPES, ("forward", "backward")):
        if all(word in (layout, str(bits), direction) for word in options.only):
            print(f"{time.perf_counter() - began:.0f} s: {layout}, {bits} bits, {direction}", flush=True)
            rows += entries(layout, bits, direction, device)
        else:
            key = (layout, bits, direction)
            rows += [row for row in old["entries"] if (row["layout"], row["bits"], row["direction"]) == key]
    table = text(torch.cuda.get_device_name(device), old["about"], rows)
    print(table)
    if options.write:
        scan_kernels.TABLE.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
