"""Launches every selective kernel at small shapes on a GPU, for NVIDIA's compute-sanitizer, and compares with the loop.

    python tests/gpu/drive_selective.py          every kernel, layout, type, flag and way to keep states
    tests/gpu/sanitize_ops.sh                    the same under all four tools

PYTORCH_NO_CUDA_MEMORY_CACHING=1 makes every tensor an allocation of its own, so that memcheck sees an access beside it.
"""

import contextlib
import itertools
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from selective_problem import error, gradients, in_float64, loop, problem  # noqa: E402

from ssmlab import selective_kernels, selective_plans  # noqa: E402
from ssmlab.selective import selective_scan, selective_state_update  # noqa: E402

LIMIT = {torch.float64: 1e-12, torch.float32: 4e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
NOTHING = ("D", "z", "delta_bias", "initial_state")
F32, BF16, F64 = torch.float32, torch.bfloat16, torch.float64

# (length, channels, states, type, layout, more): few, as a tool slows a kernel a hundredfold and each is a compilation.
SCANS = [
    (300, 72, 16, BF16, "channels", {}),                    # cut into segments: totals and link, forwards and backwards
    (300, 72, 16, F32, "time", {"packed": True}),
    (67, 36, 16, F32, "slices", {"without": NOTHING}),
    (67, 36, 16, BF16, "channels", {"save": "all"}),
    (97, 36, 16, BF16, "time", {"save": "boundaries-bf16", "chunk": 64}),
    (35, 20, 5, F32, "channels", {"fixed": "BC"}),
    (35, 20, 33, BF16, "channels", {"padded": True, "groups": 1}),
    (33, 12, 257, F32, "channels", {"groups": 1}),
    (45, 20, 3, F64, "channels", {"padded": True}),
    (1, 20, 64, F32, "channels", {}),
    # several launches, (from, to, steps of a piece) each: parts of dB and dC in du, ddelta and, at the second, in dz
    (120, 160, 16, BF16, "channels", {"groups": 1, "cuts": [(96, 120, 32), (32, 96, 32), (0, 32, 32)]}),
    (120, 160, 20, F32, "channels", {"groups": 1, "cuts": [(96, 120, 32), (64, 96, 32), (0, 64, 64)], "padded": True}),
]
TOKENS = [(3, 40, 16, BF16, F32), (600, 40, 16, BF16, F32), (5, 36, 20, F32, BF16), (5, 36, 5, F64, F64)]


def laid_out(values, layout):
    """On the GPU; rows along channels, along time, or slices of wider rows."""
    moved = {name: value if value is None else value.cuda() for name, value in values.items()}
    for name in ("u", "delta", "z") if layout != "channels" else ():
        value = moved[name]
        if value is None:
            continue
        if layout == "time":
            moved[name] = value.transpose(1, 2).contiguous().transpose(1, 2)
        else:
            wide = torch.zeros(*value.shape[:2], value.shape[2] + 3, dtype=value.dtype, device="cuda")
            wide[..., 1:-2] = value
            moved[name] = wide[..., 1:-2]
    return moved


@contextlib.contextmanager
def launched_as(cuts):
    """The backward on a GPU in these launches, all but the last one with borrowed memory; None: as it would be."""
    usual = selective_kernels.backward_plan

    def plan(u, groups, states, **options):
        variant, found = usual(u, groups, states, **options)
        pairs = u.shape[0] * selective_plans.columns_of(u.shape, groups, variant.side_by_side)
        if cuts is not None and u.is_cuda:
            found = tuple(selective_plans.cut_in_pieces(*cut[:2], pairs, cut[2], borrows=cut[0] > 0) for cut in cuts)
        return variant, found

    selective_kernels.backward_plan = plan
    try:
        yield
    finally:
        selective_kernels.backward_plan = usual


def drive_scan(length, channels, states, dtype, layout, more):
    """y, final state and all gradients against the CPU's kernels in float64; the worst error over its limit."""
    packed, padded, fixed = (more.get(name, "") for name in ("packed", "padded", "fixed"))
    batch = 1 if packed else 2
    values = problem(
        batch, length, channels, states, more.get("groups", 2), dtype, without=more.get("without", ())
    )  # fmt: skip
    for name in fixed:
        values[name] = values["A"].roll(ord(name), 0).clone()
    marks = {}
    if packed:
        marks["cu_seqlens"] = torch.tensor([0, length // 3, length // 3, length - 1, length])
        values["initial_state"] = problem(4, channels=channels, states=states, dtype=dtype)["initial_state"]
    if padded:
        marks["seq_idx"] = torch.zeros(batch, length, dtype=torch.int32)
        marks["seq_idx"][:, :3], marks["seq_idx"][:, 11:14], marks["seq_idx"][:, -5:] = -1, -1, 4
    options = {name: more[name] for name in ("save", "chunk") if name in more}

    def scan(given, marks=marks, options=options):
        return selective_scan(**given, delta_softplus=True, return_final_state=True, **marks, **options)

    exact = in_float64(values)
    outputs = [scan(exact, options={})] if marks else [loop(exact)]
    weights = [torch.randn(t.shape, dtype=F64) for t in outputs[0]]
    want = gradients((lambda given: scan(given, options={})) if marks else loop, exact, weights)
    there = {name: tensor.cuda() for name, tensor in marks.items()}
    moved = laid_out(values, layout)
    with launched_as(more.get("cuts")):
        got = gradients(lambda given: scan(given, there), moved, [weight.cuda() for weight in weights])
    torch.cuda.synchronize()
    worst = [error(a.cpu(), b) for a, b in zip(scan(moved, there), outputs[0], strict=True)]
    rough = 1e-2 if options.get("save") == "boundaries-bf16" else 0.0
    worst += [error(got[name].cpu(), want[name]) - rough for name in want]
    return float(np.max(worst)) / LIMIT[dtype]             # NaN stays


def drive_token(batch, channels, states, dtype, state_dtype):
    """One token with slots, padding and a fresh slot, in pools as they are and strided."""
    values = problem(batch, 1, channels, states, 2, dtype)
    state = values["initial_state"].to(state_dtype)
    known = torch.arange(batch) % 5 != 1
    values["initial_state"] = torch.where(known[:, None, None], state, 0.0).to(values["A"].dtype)
    want_y, want = loop(in_float64(values))
    indices = torch.arange(batch).flip(0).to(torch.int32)
    pool = torch.full((batch, channels, states), float("nan"), dtype=state_dtype, device="cuda")
    pool[indices.long().cuda()] = torch.where(known[:, None, None], state, float("nan")).cuda()
    indices[0] = -1
    moved = laid_out(values, "slices")
    y = selective_state_update(
        pool, moved["u"][:, 0], moved["delta"][:, 0], moved["A"], moved["B"][:, 0], moved["C"][:, 0], moved["D"],
        moved["z"][:, 0], moved["delta_bias"], True, state_indices=indices.cuda(), has_initial_state=known.cuda(),
    )  # fmt: skip
    torch.cuda.synchronize()
    want_y[0] = 0
    y_error = error(y.cpu(), want_y[:, 0])
    state_error = error(pool.cpu()[indices[1:].long()], want[1:])
    return float(np.max([y_error / LIMIT[dtype], state_error / max(LIMIT[dtype], LIMIT[state_dtype])]))


def main():
    share, shares = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 1 else (0, 1)
    torch.manual_seed(0)
    cases = [(drive_scan, case) for case in SCANS] + [(drive_token, case) for case in TOKENS]
    done = 0
    for drive, case in itertools.islice(cases, share, None, shares):
        found = drive(*case)
        if not found <= 1:
            sys.exit(f"{drive.__name__}{case}: differs from the loop by {found} times what is allowed")
        done += 1
    print(f"{done} calls of the selective ops: right")


if __name__ == "__main__":
    main()
