"""How fast is CUDA C on this CPU?   python -m ssmlab.simt.bench [--json FILE] [--compiler g++ clang++ zig]

    edit to result      a 60-line scan kernel with one line changed, on 262,144 elements: compile, check, report
    first kernel        a new process and an empty cache: until the first checked result is there, import included
    checked             ns for each checked access to memory, of 4 or 8 bytes (the whole call, copies included)
    native              ns for each thread at each barrier, one block on one core, shared memory in between

The first two are wall time, the others processor time of this process; each is the best of a few. Prints a table with
the bars beside, and writes JSON when asked to.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from .. import kernels
from ..rawkernel import RawKernel, check
from . import toolchain

ELEMENTS = 262_144
KERNEL = "block_scan_v2_double_buffer.cu"
BARS = {  # column: (unit, bar, or a bar for each compiler)
    "edit to result": ("s", 1.0),
    "first kernel": ("s", {"g++": 5.0, "zig": 2.0}),
    "checked, 4 B, blocks of 256": ("ns/access", 40.0),
    "checked, 4 B, blocks of 1024": ("ns/access", 40.0),
    "checked, 8 B, blocks of 256": ("ns/access", 40.0),
    "checked, 8 B, blocks of 1024": ("ns/access", 40.0),
    "native, blocks of 32": ("ns/thread/barrier", 10.0),
    "native, blocks of 256": ("ns/thread/barrier", 10.0),
    "native, blocks of 1024": ("ns/thread/barrier", 10.0),
}

# One round of a scan, over and over: read a neighbour, write the other buffer, meet at the barrier.
ROUNDS = """
extern "C" __global__ void rounds(float* out, int count) {
    __shared__ float cells[2][1024];
    const int t = threadIdx.x;
    cells[0][t] = t;
    __syncthreads();
    for (int round = 0; round < count; ++round) {
        const int now = round % 2;
        cells[1 - now][t] = t > 0 ? 0.5f * (cells[now][t] + cells[now][t - 1]) : cells[now][t];
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + t] = cells[count % 2][t];
}
"""


def seconds(action, times, clock=time.perf_counter):
    """The best of some calls."""
    best = float("inf")
    for _ in range(times):
        start = clock()
        action()
        best = min(best, clock() - start)
    return best


def scan_arguments(tile):
    """(grid, block, arguments) for rows of `tile` steps, ELEMENTS in all."""
    rng = np.random.default_rng(0)
    shape = (ELEMENTS // tile, tile)
    a, b = rng.uniform(0.5, 1.0, (2, *shape)).astype(np.float32)
    return (shape[0],), (tile,), [a, b, np.zeros_like(a), np.int32(tile)]


def scan_call(text, tile):
    """What `check` takes to scan ELEMENTS random steps."""
    kernel = RawKernel(text, "block_scan_v2", options=(f"-DTILE={tile}",), filename=KERNEL)
    return kernel, *scan_arguments(tile)


def checked(call):
    """The report of a launch, which must have no finding."""
    report = check(*call)
    if not report.ok:
        raise RuntimeError(str(report))
    return report


def checked_scan(text, tile):
    """Compile and check one scan; returns its report."""
    return checked(scan_call(text, tile))


def edit_to_result(turns=3):
    """[s] A text never seen before, with everything else warm."""
    text = kernels.source(KERNEL)
    checked_scan(text, 256)

    def edited():
        str(checked_scan(f"{text}// edited {time.time_ns()}\n", 256))

    return seconds(edited, turns)


def first_kernel(compiler, turns=2):
    """[s] In a new process with an empty cache, from its start to the first checked result."""
    program = (
        "import ssmlab; from ssmlab.simt import bench; from ssmlab import kernels;"
        "bench.checked_scan(kernels.source(bench.KERNEL), 256)"
    )

    def fresh():
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "SSMLAB_CACHE": folder, "CXX": compiler}
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)

    return seconds(fresh, turns)


def checked_access(tile, turns=3):
    """[ns] for each access of a scan of pairs (8 bytes an access) that is compiled already."""
    call = scan_call(kernels.source(KERNEL), tile)
    accesses = checked(call).accesses
    return seconds(lambda: checked(call), turns, time.process_time) / accesses * 1e9


def checked_float_access(threads, turns=3):
    """[ns] for each access of the same kernel that native_barrier runs (4 bytes an access), in many blocks."""
    kernel = RawKernel(ROUNDS, "rounds")
    call = [kernel, (ELEMENTS // threads,), (threads,), [np.zeros(ELEMENTS, np.float32), np.int32(8)]]
    accesses = checked(call).accesses
    return seconds(lambda: checked(call), turns, time.process_time) / accesses * 1e9


def native_barrier(threads, turns=5):
    """[ns] for each thread at each barrier."""
    kernel = RawKernel(ROUNDS, "rounds", mode="native")
    count = 2_000_000 // threads
    arguments = [np.zeros(threads, np.float32), np.int32(count)]
    kernel((1,), (threads,), arguments)
    spent = seconds(lambda: kernel((1,), (threads,), arguments), turns, time.process_time)
    return spent / (threads * (count + 1)) * 1e9


def compilers(wanted):
    """{name: what $CXX must be} of the compilers that are here."""
    zig = toolchain.zig_program()
    commands = {name: f"{zig} c++" if name == "zig" and zig else shutil.which(name) for name in wanted}
    return {name: command for name, command in commands.items() if command}


def measure(name, command):
    """{column: number} for one compiler."""
    os.environ["CXX"] = command
    numbers = {"first kernel": first_kernel(command), "edit to result": edit_to_result()}
    numbers |= {f"checked, 4 B, blocks of {tile}": checked_float_access(tile) for tile in (256, 1024)}
    numbers |= {f"checked, 8 B, blocks of {tile}": checked_access(tile) for tile in (256, 1024)}
    numbers |= {f"native, blocks of {threads}": native_barrier(threads) for threads in (32, 256, 1024)}
    return {column: round(numbers[column], 3) for column in BARS}


def bar(column, compiler):
    limit = BARS[column][1]
    return limit.get(compiler) if isinstance(limit, dict) else limit


def table(rows):
    """One line a measurement, one column a compiler; the bar last, and a mark where a number is over it."""
    lines = [f"{'':30}{'':20}" + "".join(f"{name:>10}" for name in rows) + f"{'at most':>16}"]
    for column, (unit, limit) in BARS.items():
        cells = ""
        for name, numbers in rows.items():
            most = bar(column, name)
            over = most is not None and not numbers[column] <= most
            cells += f"{numbers[column]:>9.2f}" + ("!" if over else " ")
        told = ", ".join(f"{k} {v:g}" for k, v in limit.items()) if isinstance(limit, dict) else f"{limit:g}"
        lines.append(f"{column:30}{unit:20}{cells}{told:>16}")
    return "\n".join(lines)


def processor():
    """The processor's name where Linux tells it, else what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    parser.add_argument("--compiler", nargs="+", default=["g++", "clang++", "zig"])
    arguments = parser.parse_args()
    found = compilers(arguments.compiler)
    for name in sorted(set(arguments.compiler) - set(found)):
        print(f"{name} is not installed: left out", file=sys.stderr)
    rows = {name: measure(name, command) for name, command in found.items()}
    print(table(rows))
    if arguments.json:
        versions = {}
        for name, command in found.items():
            os.environ["CXX"] = command
            versions[name] = toolchain.find().version.split(" | ")[0]
        document = {
            "device": processor(), "cores": os.cpu_count(), "system": platform.platform(),
            "python": platform.python_version(), "date": datetime.date.today().isoformat(),
            "command": "python -m ssmlab.simt.bench --json notebooks/results/simt_cpu.json",
            "elements": ELEMENTS, "kernel": KERNEL,
            "compilers": versions, "units": {column: unit for column, (unit, _) in BARS.items()},
            "bars": {column: limit for column, (_, limit) in BARS.items()}, "rows": rows,
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
