"""What a GPU's own counters say of the selective scan: python -m ssmlab.lab.counters [file.json]   (under a minute).

Starts itself once more under Nsight Compute (ncu), launches each case below once with the counters on, and writes what
they said. Needs torch, CuPy, a GPU, ncu, and the right to read its counters. mamba_ssm is counted too, if installed.

    unfused      kernels_cu/selective_v1_unfused.cu: four kernels, a, b and h in device memory, for batch 4 only: ncu
                 launches each kernel many times, and puts back before each what the last one overwrote
    v2           kernels_cu/selective_v2_fused.cu
    forward, backward   what ssmlab.selective_scan launches, gradients of all inputs
    …, time inner       the same for tensors of layout (batch, channels, length)

All with z, D, delta_bias and softplus. Sums over a launch, or means over the multiprocessors that are at work. Clocks
are left alone (--clock-control none), caches are flushed before each launch, which is ncu's own habit.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

SHAPE = (16, 2048, 1536, 16)  # batch, length, channels, states
DTYPES = ("float32", "bfloat16")
PEER_ORDER = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
STALLS = ("long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "math_pipe_throttle", "wait", "barrier",
          "dispatch_stall", "not_selected", "no_instruction")  # fmt: skip
METRICS = {  # our words: ncu's
    "time [ns]": "gpu__time_duration.sum",
    "clock [Hz]": "sm__cycles_elapsed.avg.per_second",
    "DRAM read [B]": "dram__bytes_read.sum",
    "DRAM written [B]": "dram__bytes_write.sum",
    "DRAM busy [%]": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "special functions busy [%]": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "special function instructions": "sm__inst_executed_pipe_xu.sum",
    "multiply-adds busy [%]": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "integers busy [%]": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "loads and stores busy [%]": "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "issue slots busy [%]": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "instructions": "sm__inst_executed.sum",
    "resident warps [%]": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "shared wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared wavefronts busy [%]": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "bank conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "read requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "read sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "write requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "write sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "registers of a thread": "launch__registers_per_thread",
    "static shared memory [B]": "launch__shared_mem_per_block_static",
    "dynamic shared memory [B]": "launch__shared_mem_per_block_dynamic",
    "blocks": "launch__grid_size",
    "threads of a block": "launch__block_size",
    **{f"stalled: {name} [warps an issue]": f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"
       for name in STALLS},
}  # fmt: skip
UNFUSED_BATCH = 4
WARM = 20  # launches before the counted one, so that the clock is up
BORDER = "selective_next_case"  # an empty kernel between two cases


# ---- the counted side


def launches():
    """{case: maker}; calling the maker makes the inputs and returns a function to count, or None where it cannot."""
    found = {}
    for dtype in DTYPES:
        found[f"forward {dtype}"] = partial(_forward, dtype, False)
    for dtype in DTYPES:
        found[f"backward {dtype}"] = partial(_backward, dtype)
    found["v2 float32"] = partial(_v2, False)
    found["unfused float32"] = _unfused
    for dtype in DTYPES:
        found[f"forward {dtype}, time inner"] = partial(_forward, dtype, True)
    found["v2 float32, time inner"] = partial(_v2, True)
    for dtype in DTYPES:
        found[f"mamba_ssm forward {dtype}"] = partial(_mamba, dtype, False)
        found[f"mamba_ssm backward {dtype}"] = partial(_mamba, dtype, True)
    return found


def _problem(dtype, time_inner=False, batch=SHAPE[0]):
    import torch

    from ssmlab.bench_selective import problem

    values = problem(batch, *SHAPE[1:], getattr(torch, dtype), torch.device("cuda", torch.cuda.current_device()))
    if time_inner:
        for name in ("u", "delta", "z"):
            values[name] = values[name].transpose(1, 2).contiguous().transpose(1, 2)
    return values


def _forward(dtype, time_inner):
    import torch

    from ssmlab import selective_scan

    values = _problem(dtype, time_inner)

    def run():
        with torch.no_grad():
            selective_scan(**values, delta_softplus=True)

    return run


def _backward(dtype):
    import torch

    from ssmlab import selective_scan

    values = {name: value.requires_grad_() for name, value in _problem(dtype).items()}
    y = selective_scan(**values, delta_softplus=True)
    return partial(torch.autograd.grad, y, list(values.values()), torch.randn_like(y), retain_graph=True)


def _mamba(dtype, backward):
    """The peer on the same numbers, laid out (batch, channels, length) as it wants them; None where it is missing."""
    import torch

    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None
    values = {
        name: value.transpose(1, 2).contiguous() if value.dim() == 3 else value
        for name, value in _problem(dtype).items()
    }
    arguments = [values[name].requires_grad_(backward) for name in PEER_ORDER]
    forward = partial(selective_scan_fn, *arguments, delta_softplus=True)
    if not backward:
        return forward
    y = forward()
    return partial(torch.autograd.grad, y, arguments, torch.randn_like(y), retain_graph=True)


def _v2(time_inner):
    import torch

    from ssmlab import RawKernel
    from ssmlab.lab.selective_ladder import v2_text

    batch, length, channels, states = SHAPE
    values = _problem("float32", time_inner)
    options = ("-DTHREADS=128", f"-DSTATES={states}")
    kernel = RawKernel(v2_text(time_inner), "selective_v2", options, mode="native")
    inputs = [value if value.is_contiguous() else value.transpose(1, 2) for value in values.values()]
    y = torch.empty_like(inputs[0])
    return partial(kernel, -(-batch * channels // 128), 128, (*inputs, y, batch, length, channels))


def _unfused():
    import torch

    from ssmlab import RawKernel, kernels

    _, length, channels, states = SHAPE
    batch = UNFUSED_BATCH
    u, delta, A, B, C, D, z, bias = _problem("float32", batch=batch).values()
    step, y = torch.empty_like(u), torch.empty_like(u)
    a, b, h = (torch.empty(batch, length, channels, states, device="cuda") for _ in range(3))
    rows, name = batch * channels * states, "selective_v1_unfused.cu"
    steps = {
        "softplus": (u.numel(), (delta, bias, step, u.numel(), channels)),
        "discretise": (a.numel(), (step, u, A, B, a, b, a.numel(), channels, states)),
        "recur": (rows, (a, b, h, rows, length, channels * states)),
        "contract": (u.numel(), (h, C, u, D, z, y, u.numel(), channels, states)),
    }
    made = [
        partial(RawKernel(kernels.source(name), f"selective_v1_{step}", ("-DTHREADS=128",), filename=name,
                          mode="native"), -(-count // 128), 128, arguments)
        for step, (count, arguments) in steps.items()
    ]  # fmt: skip

    def run():
        for launch in made:
            launch()

    return run


def launch_all(wanted):
    """Launch the wanted cases; each is counted once, behind WARM launches that are not. Prints the names as it goes."""
    import torch

    from ssmlab import RawKernel

    border = RawKernel(f'extern "C" __global__ void {BORDER}(int* where) {{}}', BORDER, mode="native")
    there = torch.zeros(1, dtype=torch.int32, device="cuda")  # an argument on the GPU: else it would run on the CPU
    border(1, 1, (there,))
    for name, make in launches().items():
        if wanted and not any(word in name for word in wanted):
            continue
        run = make()
        if run is None:
            continue
        for _ in range(WARM):
            run()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        run()
        border(1, 1, (there,))
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        print(f"CASE {name}", flush=True)
        del run
        torch.cuda.empty_cache()


# ---- the counting side


def command(log, wanted):
    """ncu's command line; its table goes to `log`."""
    return [
        "ncu", "--clock-control", "none", "--profile-from-start", "off", "--kernel-name", "regex:^selective", "--csv",
        "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values()), "--log-file", str(log),
        sys.executable, "-m", "ssmlab.lab.counters", "--launch", *wanted,
    ]  # fmt: skip


def parse(text, names):
    """[{"case", "kernels": [{"kernel", one entry a metric}]}] from ncu's CSV and the cases that were launched.

    A metric that ncu could not give on this device is None. Raises ValueError if cases and table do not fit together.
    """
    start = text.find('"ID"')
    if start < 0:
        raise ValueError(f"ncu wrote no table: {text[-2000:]}")
    rows = [row for row in csv.DictReader(io.StringIO(text[start:])) if row["ID"]]  # without the line of the units
    cases, kernels = [], []
    for row in rows:
        kernel = re.sub(r"^void |[<(].*", "", row["Kernel Name"])
        if kernel == BORDER:
            cases.append(kernels)
            kernels = []
        else:
            kernels.append({"kernel": kernel} | {ours: _number(row.get(theirs)) for ours, theirs in METRICS.items()})
    if kernels or len(cases) != len(names) or not all(cases):
        counted = f"{[len(case) for case in cases]} kernels and {len(kernels)} more"
        raise ValueError(f"launched were {names}, counted {counted}")
    return [{"case": name, "kernels": counted} for name, counted in zip(names, cases, strict=True)]


def _number(text):
    try:
        value = float(text.replace(",", ""))
    except (AttributeError, ValueError):  # no such column, or "n/a"
        return None
    return int(value) if value == int(value) else float(f"{value:.5g}")


def measure(wanted=()):
    """The document that is stored: device, date, command, metrics and what was counted."""
    import torch

    result, table = _count(wanted)
    if result.returncode:
        said = (result.stdout + result.stderr)[-3000:]
        raise RuntimeError(f"ncu ended with {result.returncode}: {said}{table[-3000:]}")
    names = [line.removeprefix("CASE ") for line in result.stdout.splitlines() if line.startswith("CASE ")]
    version = subprocess.run(["ncu", "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return {
        "device": torch.cuda.get_device_name(),
        "date": datetime.date.today().isoformat(),
        "command": "python -m ssmlab.lab.counters",
        "ncu": re.search(r"[Vv]ersion (\d[\d.]*)", version)[1],
        "shape": dict(zip(("batch", "length", "channels", "states"), SHAPE, strict=True)),
        "batch of unfused": UNFUSED_BATCH,
        "metrics": METRICS,
        "cases": parse(table, names),
    }


def _count(wanted):
    """(finished process, ncu's table) of one run under ncu."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        result = subprocess.run(command(log, wanted), capture_output=True, text=True, timeout=600)
        return result, log.read_text(encoding="utf-8") if log.exists() else ""


def total(document, case, metric):
    """Sum of a metric over the kernels of a case."""
    (found,) = [entry for entry in document["cases"] if entry["case"] == case]
    return sum(kernel[metric] for kernel in found["kernels"])


def text_of(document):
    """The JSON, a line a kernel."""
    lines = []
    for entry in document["cases"]:
        kernels = ",\n   ".join(json.dumps(kernel) for kernel in entry["kernels"])
        lines.append(f'  {{"case": {json.dumps(entry["case"])}, "kernels": [\n   {kernels}\n  ]}}')
    head = json.dumps({key: value for key, value in document.items() if key != "cases"}, indent=1).removesuffix("\n}")
    return head + ',\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m ssmlab.lab.counters", description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="where the JSON goes; left out: it is printed")
    parser.add_argument("--only", nargs="+", default=[], metavar="word", help="cases whose name has one of these words")
    parser.add_argument("--launch", nargs="*", metavar="word", help="launch the cases, which is what runs under ncu")
    options = parser.parse_args()
    if options.launch is not None:
        launch_all(options.launch)
        return
    text = text_of(measure(options.only))
    if options.file:
        options.file.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
