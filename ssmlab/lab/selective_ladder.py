"""The three stages of the selective scan in checked mode: four kernels, one kernel, and the finished one.

    values = problem(1, 16, 64, 16)
    y, reports = unfused(values)          selective_v1_unfused.cu: {step: Report}
    y, report = fused(values, text)       selective_v2_fused.cu, or a text that the reader has edited
    y, report = finished(values)          selective_forward.cu, with the constants that a GPU gets

Arrays are NumPy, float32. Everything runs on the CPU, on copies; y holds NaN wherever nothing was written.
"""

import numpy as np

from ssmlab import RawKernel, check, kernels

ORDER = ("u", "delta", "A", "B", "C", "D", "z", "bias")
STEPS = ("softplus", "discretise", "recur", "contract")
THREADS = 64


def problem(batch, length, channels, states, seed=6):
    """The eight inputs by name: u, delta, z (batch, length, channels), A, B, C, D, bias."""
    rng = np.random.default_rng(seed)
    values = {
        "u": rng.standard_normal((batch, length, channels)),
        "delta": rng.uniform(-3, 1, (batch, length, channels)),
        "A": -np.exp(rng.standard_normal((channels, states))),
        "B": rng.standard_normal((batch, length, states)),
        "C": rng.standard_normal((batch, length, states)),
        "D": rng.standard_normal(channels),
        "z": rng.standard_normal((batch, length, channels)),
        "bias": rng.standard_normal(channels),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


def unfused(values):
    """y and the reports of the four kernels, by step."""
    u, delta, A, B, C, D, z, bias = (values[name] for name in ORDER)
    (batch, length, channels), states = u.shape, A.shape[1]
    wide = (batch, length, channels, states)
    reports = {}

    def launch(step, count, *arguments):
        name = "selective_v1_unfused.cu"
        kernel = RawKernel(kernels.source(name), f"selective_v1_{step}", (f"-DTHREADS={THREADS}",), filename=name)
        reports[step] = check(kernel, _blocks(count), THREADS, arguments)
        return reports[step].arrays

    step = launch("softplus", u.size, delta, bias, _empty(u.shape), u.size, channels)[2]
    count = u.size * states
    a, b = launch("discretise", count, step, u, A, B, _empty(wide), _empty(wide), count, channels, states)[4:6]
    row = channels * states
    h = launch("recur", batch * row, a, b, _empty(wide), batch * row, length, row)[2]
    y = launch("contract", u.size, h, C, u, D, z, _empty(u.shape), u.size, channels, states)[5]
    return y, reports


def v2_text(time_inner=False):
    """The text of selective_v2; time_inner: for u, delta, z and y that lie as (batch, channels, length)."""
    text = kernels.source("selective_v2_fused.cu")
    here, there = "at = time * channels + channel;", "at = row * length + t;"
    if here not in text:
        raise ValueError(f"selective_v2_fused.cu has no line with {here!r}")
    return text.replace(here, there) if time_inner else text


def fused(values, text=None, threads=THREADS):
    """y and the report of selective_v2, from its file or from `text`."""
    u, A = values["u"], values["A"]
    batch, length, channels = u.shape
    name = "selective_v2_fused.cu"
    options = (f"-DTHREADS={threads}", f"-DSTATES={A.shape[1]}")
    kernel = RawKernel(text or kernels.source(name), "selective_v2", options, filename=name)
    arguments = (*(values[name] for name in ORDER), _empty(u.shape), batch, length, channels)
    report = check(kernel, _blocks(batch * channels, threads), threads, arguments)
    return report.arrays[len(ORDER)], report


def finished(values, time_inner=False):
    """y and the report of selective_forward as an H200 runs it on long rows; channels and length multiples of 4.

    time_inner   u, delta, z and y lie in memory as (batch, channels, length), and are passed as views of that
    """
    import torch

    from ssmlab import selective_plans

    given = {name: torch.as_tensor(values[name]) for name in ORDER}
    given["y"] = torch.full_like(given["u"], torch.nan)
    for name in ("u", "delta", "z", "y") if time_inner else ():
        given[name] = given[name].transpose(1, 2).contiguous().transpose(1, 2)
    u, A, B, C = (given[name] for name in "uABC")
    (batch, length, channels), states = u.shape, A.shape[1]
    if length % 4 or channels % 4:
        raise ValueError(f"u has shape {tuple(u.shape)}: length and channels must be multiples of 4 here")
    v = selective_plans.forward_variant(states, torch.device("cuda"), u.element_size())
    constants = {
        "VECTOR": 4, "TABLE": 4 if states % 4 == 0 else 1, "TIME_INNER": int(time_inner), "PACKED": 0, "GATED": 1,
        "FIXED_B": 0, "FIXED_C": 0, "LANES": v.lanes, "OWN": v.own, "MANY": v.many, "THREADS": v.threads,
        "TILE": v.tile, "RESIDENT": v.resident, "UNROLL": v.unroll, "EVERY": 0,
    }  # fmt: skip
    options = ("-std=c++17", "-DELEMENT_FLOAT", *(f"-D{key}={value}" for key, value in constants.items()))
    name = "selective_forward.cu"
    kernel = RawKernel(kernels.source(name), "selective_forward", options, filename=name, strided=True)
    tables = [(*table.stride()[:2], 0, table.stride(2)) for table in (B, C)]
    arguments = (
        u, given["delta"], A, B, C, given["D"], given["z"], given["bias"], None, None, None, None, None, given["y"],
        None, None, length, channels, states, 1, 1, length, 1, 32, *u.stride(), *given["delta"].stride(),
        *given["z"].stride(), *given["y"].stride(), *tables[0], *tables[1],
    )  # fmt: skip
    blocks = batch * -(-channels // v.side_by_side)
    report = check(kernel, blocks, v.threads, arguments)
    return np.asarray(report.arrays[13]), report


def traffic(report, *names, access=None):
    """(requests, sectors, the fewest sectors) of the arrays with these names, in global memory."""
    rows = [row for row in report.lines if row.space == "global" and set(row.name.split(", ")) <= set(names)
            and access in (None, row.access)]
    return tuple(sum(getattr(row, what) for row in rows) for what in ("requests", "sectors", "ideal_sectors"))


def _empty(shape):
    return np.full(shape, np.nan, np.float32)


def _blocks(count, threads=THREADS):
    return -(-count // threads)
