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
    """Our time and how many times the peer's it is, for each shape: forward and backward, both types."""
    found = {}
    for row in document["rows"]:
        if row["op"] == "selective_scan" and row["peer"]:
            cell = f"{row['ours_ms']:.3f} ms, {row['peer_ms'] / row['ours_ms']:.2f}×"
            found.setdefault(tuple(row["shape"]), {})[row["direction"], row["dtype"]] = cell
    columns = [(direction, dtype) for direction in WAYS for dtype in TYPES]
    for shape, cells in found.items():
        yield [" × ".join(f"{size:,}" for size in shape), *(cells.get(column, "") for column in columns)]


def scan(document):
    """The share of a large copy's speed for rows that fill the GPU, both layouts and types."""
    found = {}
    for row in document["rows"]:
        batch, length, channels = row["shape"]
        if (row["direction"], row["note"]) == ("forward", "block") and batch * channels == 12288:
            cell = f"{100 * row['copy_fraction']:.0f} %"
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
        f"{versions['torch']}, CUDA {versions['cuda']}). z, D, bias and softplus are on.",
        "",
        *table(
            ("batch × length × channels × states", *(f"{way}, {dtype}" for way in WAYS for dtype in TYPES)),
            selective(fused),
        ),
        "",
        f"The scan of (a, b), {plain['date']}: share of a large copy's {plain['copy_gbps']:,.0f} GB/s "
        f"for 8 × 1536 rows (`{plain['command']}`).",
        "",
        *table(
            ("length", "time contiguous, float32", "bfloat16", "channels contiguous, float32", "bfloat16"), scan(plain)
        ),
        END,
    ]  # fmt: skip
    return "\n".join(lines)


def main():
    text = README.read_text(encoding="utf-8")
    before, behind = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(before + render() + behind, encoding="utf-8")


if __name__ == "__main__":
    main()
