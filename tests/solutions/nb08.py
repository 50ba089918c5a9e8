"""Answers to the exercises of notebook 08, and wrong ones whose explanation must contain the words beside them."""

from math import log2, sqrt

import numpy as np

from ssmlab.lab.exercises.nb08 import DIVIDES
from ssmlab.lab.rounding import to_bfloat16


def edited(*edits):
    """The kernel with each (old, new) applied; an edit that finds nothing is a mistake in this file."""
    text = DIVIDES
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


NO_DIVISION = ("sum = sum + b[at] / product;", "sum = a[at] * sum + b[at];"), ("product * sum;", "sum;")
SAFE = ("b[at] / product", "b[at] / fmaxf(product, 1e-30f)")
UNUSED = ("        product = product * a[at];\n", ""), ("float product = 1.0f, sum", "float sum")
repaired = edited(*NO_DIVISION, *UNUSED)


def stochastic(h, rng):
    bits = h.view(np.uint32) + rng.integers(0, 65536, h.shape, dtype=np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def truncated(h, rng):
    return (h.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def upward(h, rng):
    return ((h.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)


def coin(h, rng):
    return np.where(rng.random(h.shape) < 0.5, truncated(h, rng), upward(h, rng)).astype(np.float32)


def loaded_die(h, rng):
    bits = h.view(np.uint32) + (65536 * rng.random(h.shape) ** 2).astype(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def moves_exact_ones(h, rng):
    return np.where(to_bfloat16(h) == h, 2 * h, stochastic(h, rng)).astype(np.float32)


def counted(memory, length, u):
    return u * (2 * min(memory, length) + 2 * log2(length) + 2)


SOLUTIONS = {"8.A": repaired, "8.B": stochastic, "8.C": counted}
WRONG = {
    "8.A": [
        (DIVIDES + "\n// safe?\n", "exp(-1) at each step"),
        (DIVIDES + "\n// safe?\n", "What do you divide by there"),
        (edited(SAFE), "It is a number at least"),
        (edited(("float product", "double product")), "only moves the wall"),
        (edited(*NO_DIVISION, ("h[at] = sum;", "if (t > 0) { h[at] = sum; }")), "nothing was written there"),
        (edited(*NO_DIVISION, ("row >= rows", "row > rows")), "out-of-bounds"),
        (edited(("decayed_sums(", "my_sums(")), "Keep its name"),
    ],
    "8.B": [
        (lambda h, rng: h, "no bfloat16 number"),
        (lambda h, rng: to_bfloat16(h), "Where is the dice?"),
        (truncated, "Where is the dice?"),
        (upward, "Where is the dice?"),
        (coin, "A fair coin"),
        (loaded_die, "17th bit"),
        (moves_exact_ones, "must stay as it is"),
        (lambda h, rng: h.astype(np.float16), "gave back float16"),
        (lambda h, rng: 2 * to_bfloat16(h), "lies between"),
    ],
    "8.C": [
        (lambda memory, length, u: 1e-5, "The unit roundoff of float64"),
        (lambda memory, length, u: 2 * u * length, "the length alone says too much"),
        (lambda memory, length, u: u * sqrt(memory * log2(length)), "not like its square root"),
        (lambda memory, length, u: u, "may round twice"),
        (lambda memory, length, u: None, "no number"),
        (lambda memory, length, u: float("nan"), "would be red"),
    ],
}
