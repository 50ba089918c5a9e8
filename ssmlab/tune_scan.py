"""python -m ssmlab.tune_scan: measures tiles and algorithms on this GPU and writes scan_table.json anew.

    python -m ssmlab.tune_scan                     print the table that this GPU would get
    python -m ssmlab.tune_scan --write             write it where the installed package reads it
    python -m ssmlab.tune_scan --only rows 32 forward      one layout, element size [bits], direction; the rest stays

For each layout, element size and direction: the best tile at several lengths of many rows, and, for long rows, the best
algorithm at several numbers of rows. Neighbouring answers that agree become one entry. Some minutes on one GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json

import torch

from . import scan_kernels
from .bench import median_ms
from .bench_scan import problem

_DTYPES = {16: torch.bfloat16, 32: torch.float32, 64: torch.float64}
_MANY = 12288  # rows that fill a GPU
_LENGTHS = (128, 256, 512, 2048, 4096, None)  # None: longer, measured at 16384
_LONG = 16384
_ROWS = (8, 47, 132, 320, 1024, 6144)

# Candidates, as scan_table.json writes them.
_BLOCK = {
    "rows": [
        [32, 1, 4, 0, 1], [32, 2, 1, 0, 1], [32, 2, 4, 0, 1], [32, 4, 4, 0, 1], [64, 2, 1, 0, 1], [64, 4, 1, 0, 1],
        [128, 2, 1, 0, 5], [128, 2, 1, 0, 8], [128, 4, 1, 0, 1], [128, 4, 1, 0, 8], [128, 2, 1, 1, 4],
        [128, 4, 1, 1, 4], [256, 2, 1, 1, 1], [256, 4, 1, 1, 1], [512, 3, 1, 1, 1], [512, 4, 1, 1, 1],
    ],
    "columns": [
        [8, 16, 2, 1, 1], [8, 16, 4, 1, 1], [16, 16, 2, 1, 1], [16, 16, 4, 1, 1], [16, 16, 4, 1, 2], [16, 16, 8, 1, 1],
        [32, 8, 8, 1, 1], [32, 16, 2, 1, 1], [32, 16, 4, 1, 1],
    ],
}  # fmt: skip
_LOOKBACK = {
    "rows": [
        [128, 4, 1, 2, 4, 1], [128, 8, 1, 2, 4, 1], [256, 2, 1, 1, 1, 1], [256, 4, 1, 1, 1, 1], [256, 8, 1, 1, 2, 1],
    ],
    "columns": [
        [8, 16, 4, 2, 1, 1], [8, 16, 8, 2, 1, 1], [8, 32, 4, 2, 2, 4], [8, 32, 8, 2, 2, 1], [16, 16, 4, 1, 1, 4],
    ],
}  # fmt: skip


def candidates(algorithm, layout, bits):
    """Tiles to try; across channels also with each number of channels a thread that fits."""
    tiles = (_BLOCK if algorithm == "block" else _LOOKBACK)[layout]
    if layout == "rows":
        return tiles
    packs = {64: (2,), 32: (4,), 16: (4, 8)}[bits]
    if algorithm == "block":
        return [[*tile, pack] for tile in tiles for pack in packs]
    return [[*tile[:5], pack, tile[5]] for tile in tiles for pack in packs]


def best(layout, bits, direction, rows, length, algorithms, device):
    """(algorithm, tile) that is fastest for `rows` rows of `length` steps; a tile that the GPU refuses is left out."""
    a, b = problem(1, rows, length, _DTYPES[bits], layout, device)
    out, backward = torch.empty_like(b), direction == "backward"
    more = {"h": torch.zeros_like(b), "da": torch.empty_like(b)} if backward else {}
    shape = scan_kernels.shape_of(a, b, out, more.get("h"), more.get("da"))
    times = {}
    for algorithm in algorithms:
        for tile in candidates(algorithm, layout, bits):
            plan = scan_kernels.plan_with(shape, algorithm, tile, "a candidate")
            try:
                took = median_ms(
                    lambda plan=plan: scan_kernels.run(a, b, out, None, None, plan=plan, **more), device,
                    warmup_ms=5, measure_ms=25,
                )  # fmt: skip
            except (RuntimeError, ValueError) as error:  # too much shared memory or too few registers for this tile
                print(f"  passed over: {algorithm} {tile}: {str(error).splitlines()[0]}")
                continue
            times[algorithm, tuple(tile)] = took
    algorithm, tile = min(times, key=times.get)
    return algorithm, list(tile)


def entries(layout, bits, direction, device):
    """The table's entries for one layout, element size and direction, in the order in which they are tried."""
    common = {"layout": layout, "bits": bits, "direction": direction}
    short = []
    for longest in _LENGTHS[:-1]:
        algorithm, tile = best(layout, bits, direction, _MANY, longest, ("block",), device)
        short.append({**common, "algorithm": algorithm, "longest": longest, "most_rows": None, "tile": tile})
    few = []
    for most in _ROWS:
        length = 65536 if most < 1024 else _LONG
        algorithm, tile = best(layout, bits, direction, most, length, ("block", "lookback"), device)
        few.append({**common, "algorithm": algorithm, "longest": None, "most_rows": most, "tile": tile})
    if not any(entry["algorithm"] == "lookback" for entry in few):
        _, tile = best(layout, bits, direction, 1, 65536, ("lookback",), device)
        few.insert(0, {**common, "algorithm": "lookback", "longest": None, "most_rows": 1, "tile": tile})
    algorithm, tile = best(layout, bits, direction, _MANY, _LONG, ("block",), device)
    last = {**common, "algorithm": algorithm, "longest": None, "most_rows": None, "tile": tile}
    return [*merged(short, "longest"), *merged(few, "most_rows"), last]


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
    old = json.loads(scan_kernels.TABLE.read_text(encoding="utf-8"))
    rows = []
    for layout, bits, direction in itertools.product(("rows", "columns"), _DTYPES, ("forward", "backward")):
        if all(word in (layout, str(bits), direction) for word in options.only):
            print(f"measuring {layout}, {bits} bits, {direction}", flush=True)
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
