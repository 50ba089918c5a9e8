"""Answers to the exercises of notebook 06, and wrong ones whose explanation must contain the words beside them."""

import numpy as np

from ssmlab import kernels

V2 = kernels.path("selective_v2_fused.cu").read_text(encoding="utf-8")


def edited(text, *edits):
    """The text with each (old, new) applied; an edit that finds nothing is a mistake in this file."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


# ---- 6.A


def scan_with(gain, before=False):
    """An answer whose b is gain(step, A) * B."""

    def my_scan(u, delta, A, B, C):
        h, y = np.zeros(len(A)), []
        for t in range(len(u)):
            old = h
            h = np.exp(delta[t] * A) * h + gain(delta[t], A) * B[t] * u[t]
            y.append(C[t] @ (old if before else h))
        return np.array(y)

    return my_scan


def exact(step, A):
    safe = np.where(A == 0, 1, A)
    return np.where(A == 0, step, np.expm1(step * A) / safe)


def by_subtraction(step, A):
    safe = np.where(A == 0, 1, A)
    return np.where(A == 0, step, (np.exp(step * A) - 1) / safe)


hold = scan_with(exact)


# ---- 6.B

PARAMETER = ("long long length, int channels)", "long long length, int channels, float* state)")
BEGIN = ("h[n] = 0.0f;", "h[n] = state[row * STATES + n];")
LAST = "    }\n}\n"
END = "    }\n    for (int n = 0; n < STATES; ++n) {\n        state[row * STATES + n] = h[n];\n    }\n}\n"


def ending(text, end):
    assert text.endswith(LAST)
    return text.removesuffix(LAST) + end


carried = ending(edited(V2, PARAMETER, BEGIN), END)
UPDATE = "            sum += C[time * STATES + n] * h[n];\n"

# ---- 6.C

OPEN = "    for (long long t = 0; t < length; ++t) {\n"
TILED = """    __shared__ float tile_b[TILE * STATES], tile_c[TILE * STATES];
    for (long long first = 0; first < length; first += TILE) {
        const int steps = length - first < TILE ? (int)(length - first) : TILE;
        const long long from = (batch * length + first) * STATES;
        for (int i = threadIdx.x; i < steps * STATES; i += THREADS) {
            tile_b[i] = B[from + i];
            tile_c[i] = C[from + i];
        }
        __syncthreads();                                    // B0: the tile is there before anyone reads it
    for (long long t = first; t < first + steps; ++t) {
"""
CLOSE = """    }
        __syncthreads();                                    // B1: all have read before it is refilled
    }
}
"""


def tiled(*edits, end=CLOSE, size=8):
    text = edited(V2, (OPEN, TILED.replace("TILE", str(size))),
                  ("B[time * STATES + n]", "tile_b[(t - first) * STATES + n]"),
                  ("C[time * STATES + n]", "tile_c[(t - first) * STATES + n]"))
    return edited(ending(text, end), *edits)


B0 = "        __syncthreads();                                    // B0: the tile is there before anyone reads it\n"
A_WARP_EACH = ("for (int i = threadIdx.x; i < steps * STATES; i += THREADS)",
               "for (int i = threadIdx.x % 32; i < steps * STATES; i += 32)")
SCATTERED = ("tile_b[i] = B[from + i];\n            tile_c[i] = C[from + i];",
             "const int k = i % steps * STATES + i / steps;\n            tile_b[k] = B[from + k];\n"
             "            tile_c[k] = C[from + k];")

LOOP = "        for (int n = 0; n < STATES; ++n) {\n            h[n] = exp2f"
# Half of the lanes read B, half C, and hand them round: right, and each warp reads everything.
shuffled = edited(V2, (LOOP, """        const int lane = threadIdx.x % 32;
        const float mine = (lane < 16 ? B : C)[time * STATES + lane % STATES];
""" + LOOP), ("B[time * STATES + n]", "__shfl_sync(0xffffffff, mine, n)"),
                  ("C[time * STATES + n]", "__shfl_sync(0xffffffff, mine, 16 + n)"))

SOLUTIONS = {"6.A": hold, "6.B": carried, "6.C": tiled()}
WRONG = {
    "6.A": [
        (lambda *problem: None, "`return` missing"),
        (lambda u, delta, A, B, C: np.zeros((len(u), len(A))), "one number a step"),
        (scan_with(lambda step, A: step * np.ones_like(A)), "Mamba's shorter form"),
        (scan_with(exact, before=True), "the state before its step"),
        (scan_with(lambda step, A: np.expm1(step * A)), "the division by A missing"),
        (scan_with(lambda step, A: -np.expm1(step * A) / A), "wrong sign"),
        (scan_with(lambda step, A: np.expm1(step * A) / A), "Without a leak"),
        (scan_with(by_subtraction), "loses nearly all its digits"),
        (scan_with(lambda step, A: np.exp(step * A)), "b = (a - 1) / A * B"),
    ],
    "6.B": [
        (V2 + "\n// and the state?\n", "one argument more"),
        (ending(edited(V2, PARAMETER), END), "nobody looked at it"),
        (edited(V2, PARAMETER, BEGIN), "it holds what was given"),
        (edited(carried, ("state[row * STATES + n] = h[n];", "state[channel * STATES + n] = h[n];")), "global-race"),
        (edited(carried, ("h[n] = state[row * STATES + n]", "h[n] = state[channel * STATES + n]")), "race"),
        (edited(carried, ("h[n] = state[row * STATES + n]", "h[n] = state[row + n]")), "race"),
        (edited(carried, (UPDATE, UPDATE + "            state[row * STATES + n] = h[n];\n")), "stay in registers"),
        (edited(carried, ("selective_v2(", "my_scan(")), "Keep its name"),
    ],
    "6.C": [
        (V2 + "\n// B and C once a block?\n", "Every thread still reads all of it"),
        (shuffled, "Every warp still reads all of it"),
        (tiled((B0, "")), "race"),
        (tiled(end=CLOSE.replace("__syncthreads();", "")), "race"),
        (tiled(A_WARP_EACH), "race"),
        (tiled(("i < steps * STATES; i", "i < steps; i")), "uninitialised"),
        (tiled(("(batch * length + first) * STATES", "first * STATES")), "Whose B and C"),
        (tiled(SCATTERED), "neighbours in memory"),
    ],
}
