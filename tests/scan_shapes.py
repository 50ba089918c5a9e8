"""Random small shapes of the scan against the loop: each number is a case, the same on every machine.

    python tests/scan_shapes.py 0 1000000           every case of that range, on a CPU; ends with the largest error

tests/test_scan.py runs the first thousand.
"""

import sys

import numpy as np
import torch

from ssmlab import reference, scan, scan_kernels

ALLOWED = 1e-5  # of the largest |h|, as in test_scan.py


def drawn(number):
    """(a, b, state, options of scan) of case `number`."""
    rng = np.random.default_rng(number)
    batch, length, channels = (int(rng.integers(1, most)) for most in (4, 70, 5))
    transposed, reverse = bool(number % 2), bool(rng.integers(2))
    shape = (batch, channels, length) if transposed else (batch, length, channels)
    a = torch.from_numpy(rng.uniform(-0.4, 1.0, shape).astype(np.float32))
    b = torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    if transposed:
        a, b = a.transpose(1, 2), b.transpose(1, 2)
    state = torch.from_numpy(rng.standard_normal((batch, channels)).astype(np.float32)) if rng.integers(4) else None
    algorithm = scan_kernels.ALGORITHMS[int(rng.integers(len(scan_kernels.ALGORITHMS)))]
    return a, b, state, {"reverse": reverse, "algorithm": algorithm}


def worst(number):
    """The larger error of h and of the final state, relative to the largest |h|; NaN stays NaN."""
    a, b, state, options = drawn(number)
    got = scan(a, b, state, return_final_state=True, **options)
    start = None if state is None else state.double().numpy()
    want = reference.scan(a.double().numpy(), b.double().numpy(), start, reverse=options["reverse"])
    errors = [np.abs(x.double().numpy() - y).max() for x, y in zip(got, want, strict=True)]
    return float(np.max(errors) / np.abs(want[0]).max())


def describe(number):
    """Case `number` in words."""
    a, _, state, options = drawn(number)
    given = "no state" if state is None else "a state"
    return f"case {number}: {tuple(a.shape)}, strides {a.stride()}, {given}, {options}"


def main():
    first, last = (int(word) for word in sys.argv[1:3])
    torch.set_num_threads(1)
    largest = 0.0
    for number in range(first, last):
        found = worst(number)
        if not found <= ALLOWED:
            sys.exit(f"{describe(number)}: differs from the loop by {found} of its largest number")
        largest = max(largest, found)
        if (number + 1 - first) % 50_000 == 0:
            print(f"{number + 1 - first} cases right, largest error {largest:.2e}", flush=True)
    print(f"{last - first} cases right, largest error {largest:.2e}")


if __name__ == "__main__":
    main()
