"""Launches every scan kernel at small shapes on a GPU, for NVIDIA's compute-sanitizer, and compares with the loop.

    python tests/gpu/drive_scan.py                                   all algorithms, layouts, directions, packings
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 python tests/gpu/drive_scan.py

Without the allocator's cache every tensor is an allocation of its own, so that memcheck sees an access beside it.
tests/gpu/sanitize_ops.sh runs all four tools.
"""

import itertools
import sys

import numpy as np
import torch

from ssmlab import reference, scan

_LENGTHS = {
    "thread": (1, 70), "block": (1, 67, 520), "chain": (300,), "totals": (300,), "lookback": (1, 700, 9000),
    "relay": (1, 700, 9000),
}  # fmt: skip


def cases():
    """(algorithm, layout, dtype, reverse, packed, length), few enough for a tool that slows a kernel a hundredfold."""
    ways = itertools.product(_LENGTHS, ("rows", "columns"), (False, True), (False, True))
    for algorithm, layout, reverse, packed in ways:
        for length in _LENGTHS[algorithm]:
            yield algorithm, layout, torch.float32, reverse, packed, length
        if not reverse:
            yield algorithm, layout, torch.bfloat16, reverse, packed, _LENGTHS[algorithm][-1]


def drive(algorithm, layout, dtype, reverse, packed, length):
    """One scan forward and backward; the error of h relative to the largest |h|."""
    generator = torch.Generator().manual_seed(length)
    batch, channels = (1, 8) if packed else (2, 8)
    shape = (batch, channels, length) if layout == "rows" else (batch, length, channels)
    a = (torch.rand(shape, generator=generator) * 1.4 - 0.4).to(dtype)
    b = torch.randn(shape, generator=generator).to(dtype)
    if layout == "rows":
        a, b = a.transpose(1, 2), b.transpose(1, 2)
    borders = [0, 0, length // 3, length - 1, length] if packed else [0, length]
    states = torch.randn((len(borders) - 1 if packed else batch, channels), generator=generator)
    leaves = [tensor.cuda().requires_grad_() for tensor in (a, b, states)]
    more = {"cu_seqlens": torch.tensor(borders, device="cuda")} if packed else {}
    h, final = scan(*leaves, reverse=reverse, return_final_state=True, algorithm=algorithm, **more)
    (h.float().sum() + final.sum()).backward()
    torch.cuda.synchronize()
    want = np.zeros(b.shape)
    for number, (begin, end) in enumerate(itertools.pairwise(borders)):
        start = states[number : number + 1] if packed else states
        piece = (tensor[:, begin:end].double().numpy() for tensor in (a, b))
        want[:, begin:end] = reference.scan(*piece, start.double().numpy(), reverse=reverse)[0]
    assert all(bool(torch.isfinite(leaf.grad).all()) for leaf in leaves)
    return float(np.max(np.abs(h.detach().double().cpu().numpy() - want)) / np.max(np.abs(want)))


def main():
    share, shares = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 1 else (0, 1)
    done = 0
    for case in itertools.islice(cases(), share, None, shares):
        found = drive(*case)
        if not found <= (1e-5 if case[2] == torch.float32 else 2**-7):
            sys.exit(f"{case}: differs from the loop by {found} of its largest number")
        done += 1
    print(f"{done} scans forward and backward, algorithms {', '.join(_LENGTHS)}: right")


if __name__ == "__main__":
    main()
