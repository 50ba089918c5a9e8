"""The measured speeds in README.md: taken from notebooks/results, written, and compared by test_readme.py.

    python tests/readme_speed.py         writes the tables anew, between their two marks
"""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "notebooks" / "results"
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
WAYS, TYPES = ("forward", "backward"), ("bfloat16", "float32")


def read(op):
    return json.loads((RESULTS / f"{op}_h200.json").read_text(encoding="utf-8"))


def table(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def selective(document):
    """Our time, how many times as long the peer takes, and both peaks, for each shape."""
    found = {}
    for row in document["rows"]:
        if row["op"] == "selective_scan" and row["peer"]:
            cell = f"{row['ours_ms']:.3f} ms, {row['peer_ms'] / row['ours_ms']:.2f}×"
            cells = found.setdefault(tuple(row["shape"]), {})
            cells[row["direction"], row["dtype"]] = cell
            if "peer_peak" in row["facts"]:
                ours, theirs = (row["facts"][name] / 1e6 for name in ("peak", "peer_peak"))
                cells["peak", row["dtype"]] = f"{ours:,.0f} / {theirs:,.0f}"
    columns = [(what, dtype) for what in (*WAYS, "peak") for dtype in TYPES]
    for shape, cells in found.items():
        yield [" × ".join(f"{size:,}" for size in shape), *(cells.get(column, "") for column in columns)]


def slow_decay(document):
    """The forwards of single rows again, where nothing is forgotten: what the table's figures owe to their data."""
    for row in document["rows"]:
        if "slow_decay" in row.get("facts", {}):
            shape = " × ".join(f"{size:,}" for size in row["shape"])
            yield f"{shape} {row['dtype']} {row['facts']['slow_decay']:.3f} ms"


def small_backwards(document):
    """The backwards that a call's Python part outlasts: ours, theirs, and what torch's autograd takes by itself."""
    for row in document["rows"]:
        facts = row["facts"]
        if row["ours_ms"] < facts.get("autograd_alone", 0):
            size = " × ".join(f"{n:,}" for n in row["shape"])
            both = facts["do_bench"]
            yield (
                f"{size} {row['dtype']} {both['ours']:.2f} ms, mamba_ssm's {both['mamba_ssm']:.2f}, autograd alone "
                f"{facts['autograd_alone']:.2f}"
            )


def update(document):
    """One token: time, share of the copy's speed, and how many times as long the peer takes."""
    for row in document["rows"]:
        if row["op"] == "selective_state_update":
            calls = row["calls_ms"]
            yield [
                f"{row['shape'][0]:,}", f"{row['ours_ms']:.4f} ms", f"{100 * row['copy_fraction']:.0f} %",
                f"{row['peer_ms'] / row['ours_ms']:.2f}×", f"{calls['mamba_ssm'] / calls['ours']:.2f}×",
            ]  # fmt: skip


def one_row(document):
    """A single row in float32: time, share of the copy's speed, and how many times as long CUB takes."""
    for row in document["rows"]:
        if row["shape"][0] * row["shape"][2] == 1 and row["dtype"] == "float32" and row["direction"] == "forward":
            yield [
                f"{row['shape'][1]:,}", f"{row['ours_ms']:.4f} ms", f"{100 * row['copy_fraction']:.0f} %",
                f"{row['peer_ms'] / row['ours_ms']:.2f}×",
            ]  # fmt: skip


def scan(document):
    """The share of a large copy's speed for rows that fill the GPU, both layouts and types; in brackets, of a + x."""
    found = {}
    for row in document["rows"]:
        batch, length, channels = row["shape"]
        if row["direction"] == "forward" and row["note"].startswith("block") and batch * channels == 12288:
            add = row["floor_ms"] / row["facts"]["torch_add_ms"]
            cell = f"{100 * row['copy_fraction']:.0f} % ({100 * add:.0f})"
            found.setdefault(length, {})[row["layout"], row["dtype"]] = cell
    columns = [(layout, dtype) for layout in ("rows", "columns") for dtype in TYPES[::-1]]
    for length, cells in found.items():
        yield [f"{length:,}", *(cells.get(column, "") for column in columns)]


def render():
    fused, plain = read("selective"), read("scan")
    versions = fused["versions"]
    lines = [
        BEGIN,
        f"{fused['device']}, {fused['date']}: time of the GPU's work, and how many times as long mamba_ssm "
        f"{versions['mamba-ssm']}, built from source, takes in the same process (`{fused['command']}`; torch "
        f"{versions['torch']}, CUDA {versions['cuda']}). z, D, bias and softplus are on. Peak: memory of forward and "
        "backward together beside the inputs, ours / theirs [MB].",
        "",
        *table(
            (
                "batch × length × channels × states",
                *(f"{what}, {dtype}" for what in (*WAYS, "peak") for dtype in TYPES),
            ),
            selective(fused),
        ),
        "",
        "Single rows are cut into segments, and what a segment passes on is summed from its end backwards until the "
        "decay has underflowed to 0. The table's data forgets after some 2,000 steps; where delta is 400 times "
        "smaller, nothing does, and the forward takes: "
        + "; ".join(slow_decay(fused)) + ".",
        "",
        "Where a backward is shorter than what torch's autograd needs on the CPU to call it, a caller waits for that "
        "(`triton.testing.do_bench`; alone: a Function whose backward only asks for memory): "
        + "; ".join(small_backwards(fused)) + ".",
        "",
        "One token (`selective_state_update`: bfloat16 inputs, a float32 state, 4,096 channels × 16 states) beside "
        "mamba_ssm's: the GPU's work, and from call to call.",
        "",
        *table(("rows", "ours", "of a copy's speed", "GPU", "calls"), update(fused)),
        "",
        f"The scan of (a, b), {plain['date']}: share of a large copy's {plain['copy_gbps']:,.0f} GB/s "
        f"for 8 × 1536 rows (`{plain['command']}`). In brackets what torch reaches with `a + x`, which moves the same "
        "bytes: short launches share the GPU with the cache's write-back of what ran before.",
        "",
        *table(
            ("length", "time contiguous, float32", "bfloat16", "channels contiguous, float32", "bfloat16"), scan(plain)
        ),
        "",
        "One row, float32, beside CUB's scan of pairs:",
        "",
        *table(("length", "ours", "of a copy's speed", "CUB"), one_row(plain)),
        END,
    ]  # fmt: skip
    return "\n".join(lines)


def main():
    text = README.read_text(encoding="utf-8")
    before, behind = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(before + render() + behind, encoding="utf-8")


if __name__ == "__main__":
    main()
