"""What an 8- or 16-byte read of shared memory costs when lanes share addresses: counted by ncu on a GPU.

    python tests/gpu/wide_reads.py [--out FILE]       writes notebooks/results/simt_wide_reads_h200.json, 15 seconds
    python tests/gpu/wide_reads.py --launch           only the launches: what ncu starts

Each table says which element of an array each lane of one warp reads (-1: the lane does not read). Both counts of ncu
are kept: the hardware's, which tests/test_simt_wide_reads.py compares with ours, and that of instrumented machine code.
"""
import argparse
import csv
import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "notebooks" / "results" / "simt_wide_reads_h200.json"
RUNS = [
    {"instrumented": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"},
    {"wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
     "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
     "arbitration": "l1tex__data_bank_conflicts_type_arbitration.sum"},
]
BYTES = (8, 16)
LANES = range(32)
KERNEL = """extern "C" __global__ void wide(const int* table, ELEMENT* out) {
    __shared__ ELEMENT cell[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) {
        ELEMENT v = {};
        v.x = i;
        cell[i] = v;
    }
    __syncthreads();
    const int at = table[threadIdx.x];
    if (at >= 0) out[threadIdx.x] = cell[at];  // line 10
}"""


def tables():
    """{what the lanes share: element of each lane}."""
    chance = random.Random(0)
    return {
        "one address": [5] * 32,
        "neighbours": list(LANES),
        "every second": [2 * t for t in LANES],
        "stride 16": [16 * t for t in LANES],
        "pairs": [t // 2 for t in LANES],
        "pairs at a distance of two": [t // 4 * 2 + t % 2 for t in LANES],
        "pairs at a distance of four": [t // 8 * 4 + t % 4 for t in LANES],
        "pairs at a distance of 16": [t % 16 for t in LANES],
        "fours": [t // 4 for t in LANES],
        "pairs that conflict": [t // 2 * 16 % 64 for t in LANES],
        "pairs, stride 16": [t // 2 * 16 for t in LANES],
        "pairs, stride 8": [t // 2 * 8 for t in LANES],
        "one lane": [5] + [-1] * 31,
        "odd lanes idle": [t // 2 if t % 2 == 0 else -1 for t in LANES],
        "odd lanes idle, own elements": [t if t % 2 == 0 else -1 for t in LANES],
        "pairs, one lane idle": [t // 2 if t != 7 else -1 for t in LANES],
        "pairs, lower half only": [t // 2 if t < 16 else -1 for t in LANES],
        "neighbours, lower half only": [t if t < 16 else -1 for t in LANES],
        "neighbours, upper half only": [t if t >= 16 else -1 for t in LANES],
        "pairs but one": [t // 2 if t != 7 else 40 for t in LANES],
        "pairs in the lower half": [t // 2 if t < 16 else t for t in LANES],
        "pairs in the upper half": [t if t < 16 else t // 2 for t in LANES],
        "pairs at one, then at two": [t // 2 if t < 16 else 16 + t // 4 * 2 + t % 2 for t in LANES],
        "one address in each half": [t // 16 for t in LANES],
        "one address in each half, one bank": [t // 16 * 16 for t in LANES],
        "two addresses, alternating": [t % 2 for t in LANES],
        "two addresses, alternating, one bank": [t % 2 * 16 for t in LANES],
        "reversed": [31 - t for t in LANES],
        "shuffled": chance.sample(range(32), 32),
        "random": [chance.randrange(64) for _ in LANES],
        "random pairs": [element for _ in range(16) for element in [chance.randrange(64)] * 2],
        "random of 4": [chance.randrange(4) for _ in LANES],
    }


def launch():
    import cupy as cp

    out = cp.zeros(128, cp.float32)
    kernels = [cp.RawModule(code=KERNEL, options=(f"-DELEMENT=float{size // 4}",)).get_function("wide")
               for size in BYTES]
    for table in tables().values():
        for kernel in kernels:
            kernel((1,), (32,), (cp.asarray(table, cp.int32), out))
    cp.cuda.runtime.deviceSynchronize()


def counted(text, metrics):
    """[{name: number}] for each launch that ncu's CSV tells of."""
    rows = [row for row in csv.DictReader(io.StringIO(text[text.index('"ID"') :])) if row["ID"]]
    return [{name: int(row[metric].replace(",", "")) for name, metric in metrics.items()} for row in rows]


def document(runs, device, date, version):
    """The JSON, from what `counted` gives for each of RUNS."""
    labels = [(name, size) for name in tables() for size in BYTES]
    rows = [{"lanes": name, "bytes": size, **first, **second}
            for (name, size), first, second in zip(labels, *runs, strict=True)]
    return {"device": device, "date": date, "ncu": version, "command": "python tests/gpu/wide_reads.py", "rows": rows}


def measure(out):
    import datetime

    import cupy as cp
    from compare_tools import version

    runs = []
    for metrics in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "ncu.csv"
            command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--log-file", str(log),
                       "--metrics", ",".join(metrics.values()), sys.executable, __file__, "--launch"]
            subprocess.run(command, timeout=120, check=True)
            runs.append(counted(log.read_text(encoding="utf-8"), metrics))
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    found = document(runs, device, datetime.date.today().isoformat(), version("ncu"))
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launch", action="store_true", help="only the launches")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    launch() if arguments.launch else measure(arguments.out)
