"""Answers to the exercises of notebook 03, and wrong ones whose explanation must contain the words beside them."""

from ssmlab import kernels
from ssmlab.devices import occupancy

runs = kernels.path("access_runs.cu").read_text(encoding="utf-8")
crosswise = kernels.path("access_transpose.cu").read_text(encoding="utf-8")

MINE = "const int i = thread * RUN + k;"
LOOP = """\
for (int k = 0; k < RUN; k++) {
        const int i = thread * RUN + k;
        if (i < n) {
            y[i] = 2 * x[i];
        }
    }"""
BY_FOURS = """\
if (thread * 4 + 3 < n) {
        float4 v = ((const float4*)x)[thread];
        STORE
    } else {
        for (int i = thread * 4; i < n; i++) {
            y[i] = 2 * x[i];
        }
    }"""
whole = "((float4*)y)[thread] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);"
piecewise = "y[4*thread] = 2*v.x; y[4*thread + 1] = 2*v.y; y[4*thread + 2] = 2*v.z; y[4*thread + 3] = 2*v.w;"


def edited(text, *changes):
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


striped = edited(runs, (MINE, "const int i = (blockIdx.x * RUN + k) * blockDim.x + threadIdx.x;"))
by_fours = edited(runs, (LOOP, BY_FOURS))
backwards = "+ 32 - threadIdx.x % 32 + threadIdx.x / 32 * 32;\n        if"


def chunk(device, blocks, threads):
    best = 0
    size = 1
    while occupancy(device, threads, 16 * size, 24).blocks >= blocks:
        best, size = size, 2 * size
    return best


def by_division(device, blocks, threads):
    if device.generation.threads_per_sm // threads < blocks:
        return 0
    return power_below(device.generation.shared_per_sm // blocks // 16)


def power_below(n):
    return 1 << (n.bit_length() - 1)


swizzled = edited(crosswise, ("tile[line][lane] =", "tile[line][lane ^ line] ="),
                  ("= tile[lane][line]", "= tile[lane][line ^ lane]"))
SOLUTIONS = {"3.A": striped, "3.B": edited(crosswise, ("tile[32][32]", "tile[32][33]")), "3.C": chunk}
ALSO_RIGHT = [("3.A", edited(by_fours, ("STORE", whole))), ("3.B", swizzled)]
WRONG = {
    "3.A": [
        (edited(runs, (MINE, "const int i = thread + k * 32;")), "several threads write the same place and"),
        (edited(runs, (MINE, "const int i = thread + k * blockDim.x;")), "numbers are left out, the first at"),
        (edited(striped, ("if (i < n) {", "if (true) {")), "out-of-bounds"),
        (edited(striped, ("k < RUN", "k < RUN * 2")), "several threads write the same place."),
        (edited(striped, ("y[i] = 2 * x[i];", "y[i] = x[i] + x[n - 1 - i] - x[n - 1 - i] + x[i];")), "only 4096"),
        (edited(striped, ("y[i] = 2 * x[i]", "y[i] = 3 * x[i]")), "y[0] must be 2, yours holds 3"),
        (edited(runs, ("k < RUN", "k < RUN / 1")), "lane 0 takes x[0] and lane 1 x[4]"),
        (edited(by_fours, ("STORE", piecewise)), "the writes of y move"),
        (edited(striped, ("+ threadIdx.x;\n        if", backwards)), "nobody wrote y[0]. Which"),
    ],
    "3.B": [
        (edited(crosswise, ("tile[32][32]", "tile[33][32]")), "Which of the two sizes"),
        (edited(crosswise, ("tile[32][32]", "tile[32][34]")), "the common factor 2"),
        (edited(crosswise, ("tile[32][32]", "tile[32][36]")), "the common factor 4"),
        (edited(crosswise, ("tile[line][lane] =", "tile[lane][line] ="), ("= tile[lane][line]", "= tile[line][lane]")),
         "a write of the tile takes 32 wavefronts"),
        (edited(crosswise, ("tile[32][32]", "tile[32][35]")), "one word more a row is enough"),
        (edited(crosswise, ("tile[32][32]", "tile[32][33]"), ("    __syncthreads();", "    ")), "race"),
        (edited(crosswise, ("tile[line][lane] = x[(row + line) * columns + column + lane]",
                            "y[(column + lane) * rows + row + line] = x[(row + line) * columns + column + lane]"),
                ("y[(column + line) * rows + row + lane] = tile[lane][line];", "")), "keep both sides coalesced"),
        (edited(crosswise, ("tile[32][32]", "tile[32][33]"), ("* rows + row + lane", "* rows + row + 31 - lane")),
         "yours holds"),
    ],
    "3.C": [
        (by_division, "the driver adds 1 KB"),
        (lambda device, blocks, threads: chunk(device, blocks, 32), "the answer is 0"),
        (lambda device, blocks, threads: 16 * chunk(device, blocks, threads), "in bytes"),
        (lambda device, blocks, threads: chunk(device, blocks, threads) // 2, "still leaves room"),
        (lambda device, blocks, threads: device.generation.shared_per_sm // blocks // 16 - 64, "a power of two"),
        (lambda device, blocks, threads: 2048, "2 blocks of 256 threads"),
        (lambda device, blocks, threads: chunk(device, 1, threads), "an SM has"),
        (lambda device, blocks, threads: None, "a `return` missing"),
    ],
}
