"""The ladder of selective kernels in kernels_cu/README.md: measured, written, and compared by test_selective_table.py.

    python tests/selective_table.py         writes the table anew, between its two marks
"""

import re
import sys
from pathlib import Path

import cubin
import nvrtc
from cupy_backends.cuda.libs import nvrtc as compiler

from ssmlab import kernels, ledger

README = kernels.FOLDER / "README.md"
BEGIN, END = "<!-- selective: begin -->", "<!-- selective: end -->"
SHAPE = (16, 2048, 1536, 16)  # batch, length, channels, states; float32, with z, D, bias and softplus
HEAD = (
    "file", "what is new", "kernels", "bytes a step and channel", "exponentials a state and step", "registers",
    "shared bytes",
)  # fmt: skip
NEW = {
    "selective_v1_unfused": "the chain as a framework runs it: four kernels, each reads and writes device memory",
    "selective_v2_fused": "one kernel, a thread a channel: a, b and h stay in registers",
    "selective_v3_recompute": "backwards: chunk by chunk, each forward once more from its saved state, then back",
    "selective_forward": "2 or 4 threads share a channel, tiles are staged in shared memory and fetched ahead; "
    "states at chunk borders are kept",
    "selective_totals": "few rows: segments run at the same time; first pass, what each does to a state, "
    "as far back as something is left of a step",
    "selective_link": "... second pass: the state that enters each segment",
    "selective_link_pieces": "... of the backward: the gradient that enters each piece of a row",
    "selective_backward": "all gradients from kept states: dB and dC summed over channels in shared memory",
    "selective_sum": "... and over blocks, in one order: no atomics",
    "selective_update": "one token for many rows, the states where they lie",
}


def compile_options(name):
    """The constants on the first `// compile:` line of a kernel."""
    return re.search(r"^// compile: *(.+)$", kernels.path(f"{name}.cu").read_text(encoding="utf-8"), re.M)[1].split()


def bytes_moved(name):
    """[B] of global memory a step and channel, from the ledger; None where the kernel moves parts of others."""
    batch, length, channels, states = SHAPE
    steps = batch * length * channels
    fused = ledger.selective_scan(*SHAPE, itemsize=4)
    saved = ledger.selective_scan(*SHAPE, itemsize=4, save="boundaries")
    costs = {
        "selective_v1_unfused": sum(ledger.unfused(*SHAPE).values()),
        "selective_v2_fused": fused.bytes - batch * channels * states * 4,              # no final state
        "selective_forward": saved.bytes,
        "selective_backward": ledger.selective_scan_backward(*SHAPE, itemsize=4).bytes,
    }
    if name == "selective_update":
        return ledger.state_update(4096, 4096, states).bytes / (4096 * 4096)
    return costs[name] / steps if name in costs else None


def exponentials(name):
    """What the header says: "a state and step: 1 exponential"; None where it says nothing of the kind."""
    text = kernels.path(f"{name}.cu").read_text(encoding="utf-8")
    found = re.search(r"^// Work .*?a state and step: (\d) exponential", text, re.M)
    return found and int(found[1])


def shared_bytes(name):
    """[B] that a block takes: static, as the compiler lays it out, or dynamic, as the launcher asks for."""
    options = compile_options(name)
    dynamic = [int(option.split("=")[1]) for option in options if option.startswith("-DSHARED=")]
    code = nvrtc.ptx(kernels.source(f"{name}.cu"), f"{name}.cu", options)
    return sum(dynamic) + sum(int(size) for size in re.findall(r"\.shared \.align \d+ \.b\d+ \w+\[(\d+)\]", code))


def registers(name):
    counts = cubin.registers(kernels.source(f"{name}.cu"), f"{name}.cu", compile_options(name))
    return max(counts.values()), len(counts)


def rows():
    for name, new in NEW.items():
        count, kernels_in_it = registers(name)
        moved, powers = bytes_moved(name), exponentials(name)
        yield (
            f"`{name}.cu`", new, str(kernels_in_it), "" if moved is None else f"{moved:.1f}", str(powers or ""),
            str(count), str(shared_bytes(name)),
        )  # fmt: skip


def version():
    return "{}.{}".format(*compiler.getVersion())


def table():
    lines = [" | ".join(cells) for cells in (HEAD, ["---"] * len(HEAD), *rows())]
    said = f"Registers: for sm_90 by NVRTC {version()}, with the constants of each file's first `compile:` line."
    return "\n".join([*(f"| {line} |" for line in lines), "", said])


def stored():
    text = README.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip()


def main():
    text = README.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    README.write_text(f"{before}\n{table()}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
