# %% [markdown]
# # 04 · How does one block scan?
#
# In notebook 02 eight helpers looked to their left whenever you clapped. On a GPU they are called threads, and the
# clap is a barrier. This notebook writes the scan as a kernel, five times, each time with one new idea. On the way
# it settles a question that is easy to get wrong: how many claps does a round need?
#
# *You will be able to*
#
# - **write** a kernel, launch it, and read the report on what it did to memory;
# - **decide** which barriers a kernel needs, and test the answer by leaving out each of them;
# - **count** what a version costs: idle lanes, barriers, bytes, combines, bank conflicts.
#
# *Needs:* notebook 02 (the two scans) and 03 (warps, sectors, banks). No GPU: every kernel runs on a CPU, too.
# About 60 minutes.

# %% tags=["nbval-ignore-output"]
import difflib
import re

import matplotlib.pyplot as plt
import numpy as np
import torch

from ssmlab import RawKernel, check, kernels, lab, reference
from ssmlab.monoid import SUM, hillis_steele

lab.setup()
lab.here()
device = lab.device()

# %% [markdown]
# ## 1. Eight numbers, eight threads
#
# The numbers of notebook 02, and what three claps make of them by hand:
#
# | t | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
# |---|---|---|---|---|---|---|---|---|
# | start | 3 | 1 | 7 | 0 | 4 | 1 | 6 | 3 |
# | after the clap with reach 1 | 3 | 4 | 8 | 7 | 4 | 5 | 7 | 9 |
# | reach 2 | 3 | 4 | 11 | 11 | 12 | 12 | 11 | 14 |
# | reach 4 | **3** | **4** | **11** | **11** | **15** | **16** | **22** | **25** |
#
# A **kernel** is what *one* helper does at a clap, written in CUDA C. Eight **threads** run the same text, and only
# `threadIdx.x` tells them apart: helper 0 finds 0 there, helper 7 finds 7.

# %%
clap = RawKernel(r'''
extern "C" __global__ void clap(const float* x, float* y, int reach) {
    const int t = threadIdx.x;                              // which helper am I?
    y[t] = t < reach ? x[t] : x[t - reach] + x[t];          // nobody there? keep what you have
}
''', "clap")

# %% [markdown]
# It is launched as `clap(grid, block, arguments)`: how many blocks, how many threads in each, one argument for each
# parameter. If the tensors lie on a GPU, the text is compiled for that GPU. If they lie on the CPU, the same text
# is compiled for the CPU, and a program plays the threads. Everything below works with both.
#
# **Claim 4.1** A launch ends when all its threads have ended, and the next one begins after that. So a launch *is*
# a clap, and three launches of eight threads scan eight numbers.

# %%
# check 4.1
x = torch.tensor([3.0, 1, 7, 0, 4, 1, 6, 3], device=device)
claps, row = [], x
for reach in 1, 2, 4:
    after = torch.empty_like(row)
    clap((1,), (8,), (row, after, reach))                   # 1 block of 8 threads
    claps.append(after.int().tolist())
    row = after

assert claps == [[3, 4, 8, 7, 4, 5, 7, 9], [3, 4, 11, 11, 12, 12, 11, 14], [3, 4, 11, 11, 15, 16, 22, 25]]
print("4.1 holds:", *claps, sep="\n")

# %% [markdown]
# It works, and it is dear. Each clap sends every number to the far end of the machine and back, and a launch alone
# takes microseconds. We want all claps in *one* launch. For that the threads need a place nearby where they see
# each other's numbers, and a clap that does not end the launch.
#
# ## 2. A block: a blackboard and a clap
#
# The threads of one **block** have both. `__shared__` memory is their blackboard: all threads of the block see it,
# no other block does. `__syncthreads()` is their clap, the **barrier**: nobody passes it before *all* threads of
# the block have come. Blocks, however, start in any order and cannot wait for each other. (What to do then is
# notebook 05.)
#
# Here everyone writes a number on the board, waits, and reads what the thread at the opposite end wrote. Two blocks
# turn two times 64 numbers around:

# %%
TURN = r'''
extern "C" __global__ void turn(const float* x, float* y) {
    __shared__ float board[64];                             // one for each block
    const int t = threadIdx.x;                              // my place in the block, 0 <= t < 64
    const int i = blockIdx.x * 64 + t;                      // my place among all
    board[t] = x[i];
    __syncthreads();                                        // B0: the board is full before anyone reads
    y[i] = board[63 - t];
}
'''
numbers = torch.arange(128.0, device=device)
turned = torch.empty_like(numbers)
RawKernel(TURN, "turn")((2,), (64,), (numbers, turned))
assert turned.tolist() == [*range(63, -1, -1), *range(127, 63, -1)]        # each block turned its own half

# %% [markdown]
# And without the barrier? We could try, and might be lucky. Better to ask. `check` runs a kernel on the CPU, on
# copies of the arrays, and follows every access of every thread. So it can tell what *could* go wrong, and not only
# what did.
#
# `without` takes a barrier out of a text and leaves all lines in their places. Which two lines will be named?

# %%
def without(text, *names):
    """The same text, but the barriers with these names are gone."""
    for name in names:
        text, found = re.subn(rf"__syncthreads\(\);( +// {name}\b)", r"                \1", text)
        assert found == 1, f"no barrier {name} in this text"
    return text


print(check(RawKernel(without(TURN, "B0"), "turn"), (2,), (64,), (numbers, turned)))

# %% [markdown]
# Read the report from the top. Two blocks of 64 threads, no barrier, 256 bytes of blackboard each. Then a row for
# each line and each memory that it touched: how many **requests** (one instruction of one warp each), and what they
# cost, in *sectors* of global memory or *wavefronts* of shared memory, the ideal beside it. These are the words of
# notebook 03.
#
# Last comes what was found: a **race**. One thread writes a place, another one reads it, and nothing decides which
# comes first. Both lines are named, and one pair of threads as an example. (Lines count from the top of the text.
# In JupyterLab, Shift + L shows their numbers.)
#
# ## 3. In place, in haste
#
# Now all claps in one launch. Load, clap. Then in each round: look left, add, write, clap. Before you go on: is
# there a clap missing?
#
# A program that plays eight threads must let one of them go first, and `lane_order` says which. On a GPU nobody
# chooses, so a kernel is right only if it is right in *every* order. We try three:

# %%
HASTY = r'''
extern "C" __global__ void hasty(const float* x, float* y) {
    __shared__ float row[TILE];
    const int t = threadIdx.x;
    row[t] = x[t];
    __syncthreads();                                        // B0: the row is loaded before anyone looks left
    for (int reach = 1; reach < TILE; reach *= 2) {
        if (t >= reach) {
            const float left = row[t - reach];
            row[t] = left + row[t];
        }
        __syncthreads();                                    // B1: this round is over before the next one begins
    }
    y[t] = row[t];
}
'''
hasty = RawKernel(HASTY, "hasty", options=("-DTILE=8",))
orders = "forward", "reverse", "random"
hasty_reports = [check(hasty, (1,), (8,), (x, torch.empty_like(x)), lane_order=order, seed=4) for order in orders]
for order, report in zip(orders, hasty_reports, strict=True):
    row = report.arrays[1].int().tolist()
    found = ", ".join(f"{f.kind} of lines {f.line} and {f.other_line}" for f in report.findings)
    print(f"{order:8}", row, "right" if row == claps[-1] else "WRONG", f"({found})")

# %% [markdown]
# Three orders, three results, and the second one is *right*. Tests on a machine that works in that order would be
# green for years. But the verdict is the same each time, because it does not come from the numbers: it asks, for
# any two accesses to one place of which one writes, whether a barrier stands between them.
#
# Here is the pair of threads that the first report names, in both orders:

# %%
race, old = hasty_reports[0].findings[0], x.int().tolist()
(reader, _, _), (writer, _, _) = race.threads

fig, axes = lab.figure("time", columns=2, height=2)
for ax, order in zip(axes, ((writer, reader), (reader, writer)), strict=True):
    seen = claps[0][writer] if order[0] == writer else old[writer]
    words = {writer: f"line {race.other_line}: row[{writer}] = {claps[0][writer]}",
             reader: f"line {race.line}: left = {seen}"}
    for time, t in enumerate(order):
        color = lab.COLORS["right" if t == writer else "left"]
        ax.text(time, t, words[t], ha="center", va="center", color=color,
                bbox={"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": color})
    ax.set(xlim=(-0.6, 1.6), ylim=(reader + 0.6, writer - 0.6), xticks=[])
    ax.set_yticks([writer, reader], [f"thread {writer}", f"thread {reader}"])
    ax.set_title(f"thread {order[0]} is quicker: row[{reader}] becomes {seen + old[reader]}")
    ax.grid(False)
plt.show()

# %% [markdown]
# Look at the boxes: they are the two lines that the report names. On the right thread 2 looks at row[1] in time. It
# sees what was there *before the clap*, and makes 8, as in our table. On the left row[1] has changed already, and
# x₀ slips in. Both orders are allowed.
#
# **Claim 4.2** In place, one barrier a round is a race. The result depends on the order of the threads, the verdict
# does not. Between two warps it is an error, inside one warp a *warning*.
#
# Why only a warning? GPUs used to run the lanes of a warp in lock step. Such code worked by luck, and much of it
# was written. Since 2017 (compute capability 7.0) lanes may drift apart, and nothing holds such code together.

# %%
# check 4.2
assert len({tuple(report.arrays[1].tolist()) for report in hasty_reports}) == 3
assert len({(f.kind, f.line, f.other_line, f.count) for report in hasty_reports for f in report.findings}) == 1
severities = {}
for tile in 8, 64:
    ones = torch.ones(2, tile)
    findings = check(RawKernel(HASTY, "hasty", options=(f"-DTILE={tile}",)), (1,), (tile,), (*ones,)).findings
    severities[tile] = [finding.severity for finding in findings]
assert severities == {8: ["warning"], 64: ["error"]}
print("4.2 holds")

# %% [markdown]
# ## 4. One buffer, two barriers
#
# The cure is in the words "what that one had *before the clap*": look, clap, write, clap. Between the two claps a
# thread keeps its own number in a **register**, a variable that nobody else can see.
#
# We also go on from sums to hₜ = aₜ · hₜ₋₁ + bₜ. A step is the pair (a, b) of notebook 01, and the file
# `affine.cuh` has its combine. The whole ladder shares it:

# %%
print(kernels.path("affine.cuh").read_text(), end="")

# %% [markdown]
# Three helpers: compile a kernel, check one row, compare with the loop. Five rows of 200 steps leave 56 of 256
# threads without a step; those hold the identity (1, 0). A scan adds in another order than the loop (notebook 01),
# so we do not ask for equal bits.

# %%
rng = np.random.default_rng(4)
a, b = rng.uniform(0.5, 0.95, (5, 200)).astype(np.float32), rng.normal(size=(5, 200)).astype(np.float32)
loop, _ = reference.scan(a, b)                              # in float64


def compiled(text, name, tile=256):
    """A kernel of the ladder for rows of up to `tile` steps; it finds affine.cuh in kernels_cu."""
    return RawKernel(text, name, options=(f"-DTILE={tile}", f"-I{kernels.FOLDER}"))


def checked(kernel, threads, steps=256):
    """The report on one block that scans one row."""
    a, b, h = np.full((3, 1, steps), 0.5, np.float32)
    return check(kernel, (1,), (threads,), (a, b, h, steps))


def is_right(kernel, threads):
    """Launch it on this machine, one block a row, and compare with the loop."""
    inputs = [torch.as_tensor(array, device=device) for array in (a, b)]
    h = torch.full_like(inputs[0], torch.nan)               # a place that is not written stays wrong
    kernel((5,), (threads,), (*inputs, h, 200))
    return bool(np.max(np.abs(h.cpu().numpy() - loop)) <= 2.5e-6 * np.max(np.abs(loop)))


# %% [markdown]
# The next cell holds the text of a file of this project, `kernels_cu/block_scan_v1_one_buffer.cu`, and tells you
# when you have changed it. Its head says what to expect, and the comment at each barrier says what it keeps apart.

# %%
text1 = lab.kernel_cell(r'''// block_scan_v1 -- inclusive affine scan inside one block: one shared buffer, two barriers a round.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// New        the first one: pairs go through shared memory, so reads and overwrites must be kept apart.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Hillis & Steele 1986; Blelloch 1990, 1.4.
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     8 * TILE B, static (TILE=256: 2048 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       TILE * log2(TILE) - (TILE - 1) combines (TILE=256: 1793), depth log2(TILE).
// Barriers   B0 and B1 each round: 2 * log2(TILE) (TILE=256: 16).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v1(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[TILE];                           // span[t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[t] = mine;
        __syncthreads();                                    // B0: all spans are written before anyone looks
        if (t >= reach) {
            mine = then(span[t - reach], mine);
        }
        __syncthreads();                                    // B1: all have looked before one overwrites
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
''', mirrors="block_scan_v1_one_buffer.cu")

v1 = compiled(text1, "block_scan_v1")
print("right" if is_right(v1, 256) else "WRONG")
print(checked(v1, 256))

# %% [markdown]
# Read it with the text beside you. The board is written in line 29 and read in line 32; each is followed by a
# barrier, in eight rounds. Global memory: every number is moved once, and all sectors are full. A lane asks the
# board for a pair, 8 bytes; a wavefront serves 32 banks of 4 bytes, so a warp needs two of them. There are no
# conflicts, as neighbours sit in neighbouring banks.
#
# **Claim 4.3** In place a round needs two barriers. With both the report is silent; without B0, or without B1,
# lines 29 and 32 race.

# %%
# check 4.3
assert is_right(v1, 256) and checked(v1, 256).ok and checked(v1, 256).barriers == 2 * 8
for name in "B0", "B1":
    (finding,) = checked(compiled(without(text1, name), "block_scan_v1"), 256).findings
    assert (finding.kind, finding.severity) == ("race", "error") and {finding.line, finding.other_line} == {29, 32}
print("4.3 holds")

# %% [markdown]
# ## 5. Two buffers, one barrier
#
# B1 keeps a quick thread from overwriting what a slow neighbour still wants to read. With *two* buffers it cannot
# do that: the next round goes into the other one, then they change over again. That saves a barrier a round and
# costs twice the shared memory.

# %%
text2 = lab.kernel_cell(r'''// block_scan_v2 -- inclusive affine scan inside one block: two shared buffers, one barrier a round.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v1   two buffers take turns: nobody overwrites what a slow neighbour still reads, so B1 is gone.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Hillis & Steele 1986; Blelloch 1990, 1.4.
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     2 buffers * 8 * TILE B, static (TILE=256: 4096 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       TILE * log2(TILE) - (TILE - 1) combines (TILE=256: 1793), depth log2(TILE).
// Barriers   B0 each round: log2(TILE) (TILE=256: 8).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v2(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[2][TILE];                        // span[.][t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    int now = 0;                                            // whose turn it is, private to the thread
    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[now][t] = mine;
        __syncthreads();                                    // B0: span[now] is written before anyone looks,
                                                            //     and nobody looks into the other any more
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);
        }
        now = 1 - now;
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
''', mirrors="block_scan_v2_double_buffer.cu")

v2 = compiled(text2, "block_scan_v2")
print("right" if is_right(v2, 256) else "WRONG")

# %% [markdown]
# Is one really enough? After two rounds the first buffer is written again. Could a thread be so slow that it still
# reads there? No: between that read and this write lies the barrier of the round in between, and the slow one had
# to come to it, too.
#
# **Claim 4.4** With two buffers one barrier a round is enough, and it is needed: 8 barriers instead of 16, for 4096
# bytes instead of 2048.

# %%
# check 4.4
one, two = checked(v1, 256), checked(v2, 256)
assert is_right(v2, 256) and two.ok
assert (one.barriers, two.barriers) == (16, 8) and (one.shared_bytes, two.shared_bytes) == (2048, 4096)
assert {f.kind for f in checked(compiled(without(text2, "B0"), "block_scan_v2"), 256).findings} == {"race"}
print("4.4 holds")

# %% [markdown]
# ### A listing with one barrier too many
#
# The article behind this workbook says in its text that two buffers need one barrier a round. Its listing has two:
# one before the pointers change places, B1, and one after, B2. Which is wrong, the text or the listing? And which
# of the two barriers would you take out? Below is the listing as a kernel.
#
# **Claim 4.5** *Either one* may go, but not both. Nothing stands between them but the change of pointers, and a
# pointer is a variable of one thread: the change touches nothing that another thread can see. The text holds, the
# listing has one barrier too many.

# %%
# check 4.5
ARTICLE = r'''
extern "C" __global__ void article(const float* a, const float* b, float* h) {
    extern __shared__ float smem[];
    float* sa = smem;
    float* sb = smem + CHUNK;
    float* sa2 = smem + 2 * CHUNK;
    float* sb2 = smem + 3 * CHUNK;
    const int base = blockIdx.x * CHUNK;
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
        sa[i] = a[base + i];
        sb[i] = b[base + i];
    }
    __syncthreads();                                        // B0
    for (int offset = 1; offset < CHUNK; offset <<= 1) {
        for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
            if (i >= offset) {
                sa2[i] = sa[i] * sa[i - offset];
                sb2[i] = sa[i] * sb[i - offset] + sb[i];
            } else {
                sa2[i] = sa[i];
                sb2[i] = sb[i];
            }
        }
        __syncthreads();                                    // B1
        float* t;
        t = sa; sa = sa2; sa2 = t;
        t = sb; sb = sb2; sb2 = t;
        __syncthreads();                                    // B2
    }
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
        h[base + i] = sb[i];
    }
}
'''
silent = {}
for dropped in (), ("B0",), ("B1",), ("B2",), ("B1", "B2"):
    kernel = RawKernel(without(ARTICLE, *dropped), "article", options=("-DCHUNK=512",))
    report = check(kernel, (1,), (128,), (*np.full((3, 512), 0.5, np.float32),), shared_mem=16 * 512)
    silent[dropped] = report.ok
    print(f"without {' and '.join(dropped) or 'any change':10}", "silent" if report.ok else "race")

assert silent == {(): True, ("B0",): False, ("B1",): True, ("B2",): True, ("B1", "B2"): False}
assert report.shared_bytes == 8 * 1024                      # "4 arrays of 512 floats are 8 KB": that holds as well
print("4.5 holds")

# %% [markdown]
# ## 6. Who is idle?
#
# In each round the threads with t < reach have nobody to look at. The article says that the first round wastes half
# of them, and later rounds less and less. We let the kernel tell: one more parameter, and whoever combines leaves a
# mark.

# %%
marking = text2.replace("int length)", "int length, unsigned char* busy)")
marking = marking.replace("mine = then(", "busy[reach * TILE + t] = 1;\n            mine = then(")
marks = torch.zeros(256, 256, dtype=torch.uint8, device=device)
ones = torch.ones(3, 1, 256, device=device)
compiled(marking, "block_scan_v2")((1,), (256,), (*ones, 256, marks))

reaches = [1, 2, 4, 8, 16, 32, 64, 128]
busy = marks.cpu().numpy()[reaches]                         # (rounds, threads)
idle = 256 - busy.sum(axis=1, dtype=int)
print("idle threads:", *idle)

# %%
fig, (where, share) = lab.figure("thread t [index]", columns=2, width=9, height=2.9, width_ratios=(1.9, 1))
where.imshow(busy, aspect="auto", cmap=plt.matplotlib.colors.ListedColormap([lab.COLORS["bad"], lab.COLORS["faint"]]),
             extent=(0, 256, 7.5, -0.5), interpolation="nearest")
where.vlines(range(32, 256, 32), -0.5, 7.5, color="white", linewidth=1.2)
where.set(title="idle threads (red); white lines part the warps", ylabel="reach of the round", xticks=range(0, 257, 32))
share.barh(range(8), 100 * idle / 256, color=lab.COLORS["bad"])
share.set(title="idle share", xlabel="of 256 threads [%]", xlim=(0, 55), ylim=(7.5, -0.5))
where.set_yticks(range(8), reaches)
share.set_yticks(range(8), reaches)
where.grid(False)
share.grid(False, axis="y")
plt.show()

# %% [markdown]
# Look at the red: one thread in the first round, half of them in the last. So the article has it the wrong way
# round.
#
# But look at the white lines as well. In late rounds *whole warps* are idle, and a warp with nothing to do steps
# over the branch. What costs something is an idle lane in a warp that works, and those are few: 1 + 2 + 4 + 8 + 16,
# all of them in warp 0. The report can count them, from its requests (of warps) and the threads that took part.
#
# **Claim 4.6** The idle share is reach / CHUNK: 1 / CHUNK in the first round, 1/2 in the last. Idle lanes in
# working warps are 31 in all, for rows of any length from 32 on: 19 % for rows of 32, where the article is right to
# call them conspicuous, 2 % for rows of 256.

# %%
# check 4.6
record = hillis_steele(SUM, np.ones(256), record=True).trace        # the scan of notebook 02, from its own record
assert idle.tolist() == reaches == [256 - len(combines) for combines in record]
for tile, percent in (32, 19), (256, 2):
    report = checked(compiled(text2, "block_scan_v2", tile), tile, tile)
    (look,) = [line for line in report.lines if (line.name, line.access) == ("span", "read")]
    assert 32 * look.requests - look.threads == 31 and round(100 * 31 / (32 * look.requests)) == percent
print("4.6 holds")

# %% [markdown]
# ## 7. Registers instead of a blackboard
#
# Inside a warp there is a shorter way. A **shuffle** hands a register from lane to lane, past all memory:
# `__shfl_up_sync(mask, value, 1)` gives each lane the value of its left neighbour. (`mask` names the lanes that
# take part, here all 32.)
#
# So each warp scans its own 32 steps in five rounds of shuffles. Then it must learn what came before, and only that
# goes over the board: one pair a warp. After a single barrier every warp scans the totals for itself.

# %%
text3 = lab.kernel_cell(r'''// block_scan_v3 -- inclusive affine scan inside one block: warps scan in registers, one shared total a warp.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v2   lanes of a warp exchange registers by shuffles; only the warps' totals go through shared memory.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Harris, Garland 2011 (GPU Computing Gems).
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     8 B a warp = TILE / 4 B, static (TILE=256: 64 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       2 scans a warp of 129 combines and one more a step behind warp 0 (TILE=256: 2288), depth 11.
// Barriers   B0: 1, whatever the TILE (TILE=256: 1).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

constexpr int WARPS = TILE / 32;
constexpr unsigned ALL = 0xffffffffu;                       // all lanes of the warp take part in each shuffle

__device__ __forceinline__ float2 warp_scan(float2 mine, int lane) {
    for (int reach = 1; reach < 32; reach *= 2) {           // mine covers the `reach` lanes that end here
        const float2 left = make_float2(__shfl_up_sync(ALL, mine.x, reach), __shfl_up_sync(ALL, mine.y, reach));
        if (lane >= reach) {
            mine = then(left, mine);
        }
    }
    return mine;
}

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v3(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 total[WARPS];                         // total[w] = all steps of warp w, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const int lane = t % 32;                                // place inside the warp
    const int warp = t / 32;                                // 0 <= warp < WARPS
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    mine = warp_scan(mine, lane);
    if (lane == 31) {
        total[warp] = mine;
    }
    __syncthreads();                                        // B0: all totals are written before any is read

    // Each warp scans the totals for itself: a few combines twice are cheaper than a second barrier.
    const float2 upto = warp_scan(lane < WARPS ? total[lane] : identity(), lane);
    const int last = warp > 0 ? warp - 1 : 0;               // the warp whose total comes before this one
    const float2 before = make_float2(__shfl_sync(ALL, upto.x, last), __shfl_sync(ALL, upto.y, last));
    if (warp > 0) {
        mine = then(before, mine);
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
''', mirrors="block_scan_v3_warp_shuffle.cu")

v3 = compiled(text3, "block_scan_v3")
print("right" if is_right(v3, 256) else "WRONG")
print(checked(v3, 256))

# %% [markdown]
# **Claim 4.7** With shuffles 1 barrier of 8 is left, 64 bytes of 4096, and 16 of 241 shared wavefronts. The one
# barrier is needed.

# %%
# check 4.7
def wavefronts(report):
    return sum(line.wavefronts for line in report.lines if line.space == "shared")


three = checked(v3, 256)
assert is_right(v3, 256) and three.ok and (three.barriers, three.shared_bytes) == (1, 64)
assert (wavefronts(two), wavefronts(three)) == (241, 16)
assert {f.kind for f in checked(compiled(without(text3, "B0"), "block_scan_v3"), 256).findings} == {"race"}
print("4.7 holds")

# %% [markdown]
# All lanes must come together for a shuffle. Does it also act as a barrier? One is tempted to think so. In the next
# kernel each lane writes to the board, meets the others, and reads what its partner wrote. Only the way to meet
# differs.
#
# **Claim 4.8** Shuffles and votes exchange registers, and do not order memory. Within a warp that takes
# `__syncwarp()`, within a block `__syncthreads()`. All three results are right here, but two of the three kernels
# are not.

# %%
# check 4.8
PARTNER = r'''
extern "C" __global__ void partner(const float* x, float* y) {
    __shared__ float board[32];
    const int lane = threadIdx.x;
    board[lane] = x[lane];
    MEET;
    y[lane] = board[lane ^ 1];                              // 0 and 1 are partners, 2 and 3, ...
}
'''
silent, lanes = [], torch.arange(32.0)
for meet in "__syncwarp()", "__shfl_sync(0xffffffff, lane, 0)", "__any_sync(0xffffffff, 1)":
    kernel = RawKernel(PARTNER, "partner", options=(f"-DMEET={meet}",))
    report = check(kernel, (1,), (32,), (lanes, torch.empty_like(lanes)))
    assert report.arrays[1].tolist() == [lane ^ 1 for lane in range(32)]
    silent.append(report.ok)
    print(f"{meet:33}", "silent" if report.ok else "race")

assert silent == [True, False, False]
print("4.8 holds")

# %% [markdown]
# ## 8. Less work: the tree
#
# All versions so far do the work of Hillis and Steele, v3 even a little more. Notebook 02 had a tree with 2 (n − 1)
# combines: on the way up it combines pairs, fours, eights; on the way down each node tells its children what comes
# before them. No round has more than n / 2 combines, so half as many threads will do. Decays and states stand in
# two arrays, 4 bytes a lane.

# %%
text4 = lab.kernel_cell(r'''// block_scan_v4 -- inclusive affine scan inside one block: a work-efficient tree, up and down again.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v3   no span is combined twice: totals climb a tree, what came before walks down it again. The work
//            grows like TILE, not like TILE * log2(TILE); but the strides of the tree fall on few banks.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.2.
//
// Mapping    grid = rows, block = TILE / 2 threads; block r owns row r, thread t steps t and t + TILE / 2.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; steps past the end hold (1, 0).
// Shared     2 arrays * 4 * TILE B, static (TILE=256: 2048 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       2 * (TILE - 1) combines (TILE=256: 510) and one multiply-add a step, depth 2 * log2(TILE) + 1.
// Barriers   B0 each round up, B1 each round down, B2 once: 2 * log2(TILE) + 1 (TILE=256: 17).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE / 2)
void block_scan_v4(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float decay[TILE];                           // decay[i], state[i]: the pair of tree node i,
    __shared__ float state[TILE];                           // the node whose steps end at step i
    const int t = threadIdx.x;                              // 0 <= t < TILE / 2
    const long long row = blockIdx.x * (long long)length;

    float2 leaf[2];                                         // the two steps of this thread, kept for the end
    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        leaf[k] = step < length ? make_float2(a[row + step], b[row + step]) : identity();
        decay[step] = leaf[k].x;
        state[step] = leaf[k].y;
    }

    for (int reach = 1; reach < TILE; reach *= 2) {         // up: the right child becomes left, then right
        __syncthreads();                                    // B0: both children are written, then combined
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 first = make_float2(decay[left], state[left]);
            const float2 both = then(first, make_float2(decay[right], state[right]));
            decay[right] = both.x;
            state[right] = both.y;
        }
    }

    if (t == 0) {                                           // thread 0 made the root, clears it: no barrier
        decay[TILE - 1] = identity().x;                     // nothing comes before the whole row
        state[TILE - 1] = identity().y;
    }

    for (int reach = TILE / 2; reach > 0; reach /= 2) {     // down: every node now holds what came before it
        __syncthreads();                                    // B1: the parent is written before its children
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 before = make_float2(decay[right], state[right]);
            const float2 after = then(before, make_float2(decay[left], state[left]));
            decay[left] = before.x;                         // before the left: what came before the parent
            state[left] = before.y;
            decay[right] = after.x;                         // before the right: that, then the left child
            state[right] = after.y;
        }
    }
    __syncthreads();                                        // B2: all leaves are written before one is read

    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        if (step < length) {
            h[row + step] = leaf[k].x * state[step] + leaf[k].y;
        }
    }
}
''', mirrors="block_scan_v4_tree.cu")

v4 = compiled(text4, "block_scan_v4")
print("right" if is_right(v4, 128) else "WRONG")

# %% [markdown]
# How does a round of the tree lie in the banks? One more parameter lets only the rounds with a given reach touch
# memory. Here is what a warp asks for in line 41, where it reads the left children, in the round with reach 16:

# %%
def one_round(text, name):
    """A tree in which only the rounds with reach `only` touch the shared arrays."""
    text = text.replace("int length)", "int length, int only)").replace("right < TILE", "right < TILE && reach == only")
    kernel = compiled(text, name)
    return lambda only: check(kernel, (1,), (128,), (*np.full((3, 1, 256), 0.5, np.float32), 256, only))


lab.access_figure(one_round(text4, "block_scan_v4")(16), 41, name="state")
plt.show()

# %% [markdown]
# Look at the red words: a column is a bank, and eight lanes want eight words of one bank. A round with reach r goes
# in steps of 2r words. From reach 16 on these are whole rows of 32, and all lanes of a warp meet in the *same*
# bank.
#
# **Claim 4.9** The tree makes 510 combines instead of 1793. But of its 684 shared wavefronts 490 are bank
# conflicts: it goes through shared memory more often than any version before.
#
# To count combines we let `then` print a star, and count the stars.

# %%
# check 4.9
def combines(text, name, threads):
    """How often one block calls `then`."""
    loud = kernels.path("affine.cuh").read_text().replace("second) {", 'second) { printf("*");')
    return checked(compiled(text.replace('#include "affine.cuh"', loud), name), threads).printf.count("*")


def conflicts(report):
    return sum(line.bank_conflicts for line in report.lines if line.space == "shared")


four = checked(v4, 128)
assert is_right(v4, 128) and four.ok
assert (combines(text2, "block_scan_v2", 256), combines(text4, "block_scan_v4", 128)) == (1793, 2 * 255)
assert (wavefronts(four), conflicts(four)) == (684, 490)
print("4.9 holds")

# %% [markdown]
# ## 9. One empty word
#
# Notebook 03 had a cure: leave one word empty after every 32, and a stride of 32 goes on by one bank each time.
# These are the lines that v5 has and v4 has not: one small function, and its name in every index.

# %%
text5 = kernels.path("block_scan_v5_tree_padded.cu").read_text()
v5 = compiled(text5, "block_scan_v5")
code4, code5 = (re.sub(" *//.*", "", text).replace("_v4", "_v5").splitlines() for text in (text4, text5))
print(*[line[2:] for line in difflib.ndiff(code4, code5) if re.match(r"\+ +\S|\+ \w", line)], sep="\n")

# %% [markdown]
# Which rounds were the bad ones? We take them one by one, in the tree and in the padded tree.

# %%
def per_round(text, name):
    """(wavefronts, conflicts) of the rounds with reach 1, 2, 4, ... 128, up and down together."""
    look = one_round(text, name)
    reports = [look(only) for only in (0, *reaches)]        # 0: only what is around the rounds
    counts = np.array([(wavefronts(report), conflicts(report)) for report in reports])
    return counts[1:] - counts[0]


tree, padded = per_round(text4, "block_scan_v4"), per_round(text5, "block_scan_v5")

# %%
fig, axes = lab.figure("reach of the round [steps]", "shared wavefronts [count]", columns=2, height=2.9, sharey=True)
for ax, counts, title in (axes[0], tree, "v4, the tree"), (axes[1], padded, "v5, one empty word after every 32"):
    needed = counts[:, 0] - counts[:, 1]
    ax.bar(range(8), needed, color=lab.COLORS["shared"], label="needed")
    ax.bar(range(8), counts[:, 1], bottom=needed, color=lab.COLORS["bad"], label="bank conflicts")
    ax.set_title(title)
    ax.set_xticks(range(8), reaches)
    ax.grid(False, axis="x")
axes[1].legend()
plt.show()

# %% [markdown]
# Look at the left panel. Each round does half the work of the one before it, and yet up to reach 16 all of them
# take equally long: the fewer lanes are left, the more of them meet in one bank. On the right every request is one
# wavefront, whatever its stride.
#
# **Claim 4.10** One empty word after every 32 removes all 490 conflicts, and costs 64 bytes.

# %%
# check 4.10
five = checked(v5, 128)
assert is_right(v5, 128) and five.ok
assert (wavefronts(five), conflicts(five)) == (684 - 490, 0)
assert tree.sum(axis=0).tolist() == [658, 490] and padded.sum(axis=0).tolist() == [658 - 490, 0]
assert five.shared_bytes - four.shared_bytes == 64
print("4.10 holds")

# %% [markdown]
# ## 10. The whole ladder
#
# **Claim 4.11** No version is best in everything. The fewest combines come with the most barriers, and the version
# that combines most has the fewest barriers and the least traffic in shared memory.

# %%
# check 4.11
ladder = {"v1 one buffer": (text1, 256), "v2 two buffers": (text2, 256), "v3 shuffles": (text3, 256),
          "v4 tree": (text4, 128), "v5 padded tree": (text5, 128)}
table = []
for number, (text, threads) in enumerate(ladder.values(), start=1):
    report = checked(compiled(text, f"block_scan_v{number}"), threads)
    table.append([combines(text, f"block_scan_v{number}", threads), report.barriers, report.shared_bytes,
                  wavefronts(report) - conflicts(report), conflicts(report)])
table = np.array(table)

print("one row of 256      combines  barriers  bytes  wavefronts  conflicts")
for version, counts in zip(ladder, table, strict=True):
    print(f"{version:18}", *[f"{count:{width}}" for count, width in zip(counts, (9, 9, 6, 11, 10), strict=True)])
work, barriers, space, needed, waste = table.T
assert np.argmax(work) == np.argmin(barriers) == np.argmin(space) == np.argmin(needed + waste) == 2
assert work[4] == work.min() and barriers[4] == barriers.max()
print("4.11 holds")

# %%
fig, axes = lab.figure(columns=4, width=9.6, height=2.5, sharey=True)
columns = ("combines", work), ("barriers", barriers), ("shared memory [B]", space), ("shared wavefronts", needed)
for ax, (title, counts) in zip(axes, columns, strict=True):
    ax.barh(list(ladder), counts, color=lab.COLORS["shared" if ax is axes[3] else "hillis"], label="needed")
    ax.set_title(title)
    ax.grid(False, axis="y")
    ax.locator_params(axis="x", nbins=4)
axes[3].barh(list(ladder), waste, left=needed, color=lab.COLORS["bad"], label="conflicts")
axes[3].legend(loc="upper right")
axes[0].invert_yaxis()
plt.show()

# %% [markdown]
# Look at the panels from left to right. v3 combines most, and is lowest in all others. The trees are the other way
# round. In the last panel v5 takes the red away: without it a tree visits shared memory less often than v1.
#
# Which one is *fast*? Counts do not say that, a clock does: 65,536 rows of 256 steps, if you have a GPU. All
# versions move the same 12 bytes a step through global memory. If that is what takes the time, the ladder is flat.

# %% tags=["nbval-ignore-output"]
if device == "cpu":
    print("no GPU here")
else:
    a_gpu, b_gpu, h_gpu = torch.rand(3, 65536, 256, device=device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for number, (version, (text, threads)) in enumerate(ladder.items(), start=1):
        options = ("-DTILE=256", f"-I{kernels.FOLDER}")
        kernel = RawKernel(text, f"block_scan_v{number}", options=options, mode="native")
        for repeats in 3, 50:                               # the first three warm up
            start.record()
            for _ in range(repeats):
                kernel((65536,), (threads,), (a_gpu, b_gpu, h_gpu, 256))
            end.record()
            torch.cuda.synchronize()
        milliseconds = start.elapsed_time(end) / repeats
        print(f"{version:16} {1000 * milliseconds:6.0f} µs, {3 * h_gpu.nbytes / milliseconds / 1e6:6.0f} GB/s")

# %% [markdown]
# An H200 printed 101, 96, 87, 235 and 95 µs (29 November 2026). Four of the five are close together, although one
# has 1 barrier and another 17, one 510 combines and another 2288. All four still run at only half the rate of a
# plain copy; notebook 13 asks why. What stands out are the bank conflicts: they take more time than all the rest of
# v4.
#
# ## 11. Break it
#
# *Leave out a barrier.* The ladder has ten of them, and each has a comment that says what it keeps apart. Before
# you run the next cell, choose one and say which lines will race.
#
# **Claim 4.12** Not one of the ten barriers can go.

# %%
# check 4.12
for number, (version, (text, threads)) in enumerate(ladder.items(), start=1):
    for name in re.findall(r"__syncthreads\(\); +// (B\d)", text):
        report = checked(compiled(without(text, name), f"block_scan_v{number}"), threads)
        assert {finding.kind for finding in report.findings} == {"race"}
        racing = sorted({line for finding in report.findings for line in (finding.line, finding.other_line)})
        print(f"{version:16} without {name}: a race of lines", *racing)
print("4.12 holds")

# %% [markdown]
# *Put a barrier where not everyone comes by.* Two edits of v1 that look like savings. Threads behind the end of the
# row leave at once: they have nothing to do. And B1 moves into the branch: who did not look need not wait. What do
# you expect?

# %%
look = "mine = then(span[t - reach], mine);"
leaving = text1.replace("    float2 mine", "    if (t >= length) return;\n    float2 mine")
branch = without(text1, "B1").replace(look, look + "\n            __syncthreads();")
for text in leaving, branch:
    print(checked(compiled(text, "block_scan_v1"), 256, steps=200).findings[0])

# %% [markdown]
# A barrier waits for *all* threads of the block. Some GPUs count a thread that has left as one that came, but
# nothing promises that, and others wait for ever. So guard the work, never the barrier. v1 does: whoever has no
# step holds the identity, and comes to every clap.
#
# *Use the board twice.* A row of 200 steps, and only 64 threads: the block walks along the row in tiles and takes
# the state with it. Each tile alone is v2. Where is the trouble?

# %%
WALK = r'''
#include "affine.cuh"

extern "C" __global__ void walk(const float* a, const float* b, float* h, int length) {
    __shared__ float2 span[2][TILE];
    const int t = threadIdx.x;
    float state = 0.0f;                                     // before this tile, the same in all threads
    for (int first = 0; first < length; first += TILE) {
        float2 mine = first + t < length ? make_float2(a[first + t], b[first + t]) : identity();
        int now = 0;
        for (int reach = 1; reach < TILE; reach *= 2) {     // the rounds of v2
            span[now][t] = mine;
            __syncthreads();                                // B0
            if (t >= reach) {
                mine = then(span[now][t - reach], mine);
            }
            now = 1 - now;
        }
        span[now][t] = mine;
        __syncthreads();                                    // B1: the tile is done before anyone looks at its end
        if (first + t < length) {
            h[first + t] = mine.x * state + mine.y;
        }
        const float2 tile = span[now][TILE - 1];
        state = tile.x * state + tile.y;
    }
}
'''
walk, ones = compiled(WALK, "walk", 64), np.ones((3, 200), np.float32)          # a = b = 1: the states are 1, 2, 3 …
for order in orders:
    report = check(walk, (1,), (64,), (*ones, 200), lane_order=order, seed=4)
    right = int(np.sum(report.arrays[2] == np.arange(1, 201)))
    found = ", ".join(f"{f.kind} of lines {f.line} and {f.other_line}" for f in report.findings)
    print(f"{order:8} {right} of 200 steps are right ({found})")

# %% [markdown]
# A quick thread begins the next tile and writes into `span[0]`, while a slow one has not yet read the end of the
# last tile there. Such a kernel may pass its tests for months; one like it, in a CUDA library, failed once in about
# 1300 runs. A barrier at the end of the turn cures it. So does letting `now` go on changing: remove `int now = 0;`
# from the loop, put it before the loop, and add one more `now = 1 - now;` at its end. Try both.
#
# ## 12. Exercises
#
# Each starts from a kernel of the ladder. Edit the text, run both cells. The check looks at the numbers *and* at
# the report. Keep the name and the parameters of the kernel.
#
# **4.A Make it exclusive.** h[t] shall be the state *before* step t, so h[0] = 0. *Budget:* at most one barrier
# more.
#
# <details><summary>Hint</summary>
#
# There is a way without any further barrier: whose result does thread t hold in its hand, and where does that
# belong? Mind both ends of the row.
#
# </details>

# %% tags=["exercise", "nbval-ignore-output"]
my_exclusive = lab.kernel_cell(r'''// block_scan_v2 -- inclusive affine scan inside one block: two shared buffers, one barrier a round.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v1   two buffers take turns: nobody overwrites what a slow neighbour still reads, so B1 is gone.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Hillis & Steele 1986; Blelloch 1990, 1.4.
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     2 buffers * 8 * TILE B, static (TILE=256: 4096 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       TILE * log2(TILE) - (TILE - 1) combines (TILE=256: 1793), depth log2(TILE).
// Barriers   B0 each round: log2(TILE) (TILE=256: 8).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v2(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[2][TILE];                        // span[.][t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    int now = 0;                                            // whose turn it is, private to the thread
    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[now][t] = mine;
        __syncthreads();                                    // B0: span[now] is written before anyone looks,
                                                            //     and nobody looks into the other any more
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);
        }
        now = 1 - now;
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
''', mirrors="block_scan_v2_double_buffer.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("4.A", my_exclusive)

# %% [markdown]
# **4.B Two steps a thread.** The kernel is launched with TILE / 2 threads and still scans TILE steps: thread t owns
# steps 2t and 2t + 1. *Budget:* log₂ TILE barriers, and half the shared memory of v2: a pair for each thread,
# twice.
#
# <details><summary>Hint</summary>
#
# Combine your two steps into one pair, and scan these pairs as v2 does, with TILE / 2 in place of TILE. Then you
# know what everything *up to and with* your two steps does. The first of your steps needs what everything *before*
# them does, and your left neighbour knows that. One more look over the board.
#
# </details>

# %% tags=["exercise", "nbval-ignore-output"]
my_two_steps = lab.kernel_cell(r'''// block_scan_v2 -- inclusive affine scan inside one block: two shared buffers, one barrier a round.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v1   two buffers take turns: nobody overwrites what a slow neighbour still reads, so B1 is gone.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Hillis & Steele 1986; Blelloch 1990, 1.4.
//
// Mapping    grid = rows, block = TILE threads; block r owns row r, thread t owns step t.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; threads past the end hold (1, 0).
// Shared     2 buffers * 8 * TILE B, static (TILE=256: 4096 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       TILE * log2(TILE) - (TILE - 1) combines (TILE=256: 1793), depth log2(TILE).
// Barriers   B0 each round: log2(TILE) (TILE=256: 8).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE)
void block_scan_v2(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float2 span[2][TILE];                        // span[.][t] = the steps that end at t, combined
    const int t = threadIdx.x;                              // step inside the row, 0 <= t < TILE
    const long long at = blockIdx.x * (long long)length + t;

    float2 mine = t < length ? make_float2(a[at], b[at]) : identity();

    int now = 0;                                            // whose turn it is, private to the thread
    for (int reach = 1; reach < TILE; reach *= 2) {         // mine covers the `reach` steps that end at t
        span[now][t] = mine;
        __syncthreads();                                    // B0: span[now] is written before anyone looks,
                                                            //     and nobody looks into the other any more
        if (t >= reach) {
            mine = then(span[now][t - reach], mine);
        }
        now = 1 - now;
    }

    if (t < length) {
        h[at] = mine.y;
    }
}
''', mirrors="block_scan_v2_double_buffer.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("4.B", my_two_steps)

# %% [markdown]
# **4.C No conflicts, and not a byte more.** v5 keeps the lanes of the tree apart with empty words. Do it without
# them: no bank conflict at all, in the 8 · TILE bytes that v4 has. *Budget:* one small function, as in v5.
#
# <details><summary>Hint</summary>
#
# Think of the board as rows of 32 words, one a bank. The tree's nodes of a round often stand below each other, in
# one column. Nothing says that every row must be stored in the same order.
#
# </details>
#
# <details><summary>Second hint</summary>
#
# Node n stands in row n / 32. Let row r keep its word c in column c ^ r: an exclusive or with r only mixes the
# columns of the row, as r is below 32.
#
# </details>

# %% tags=["exercise", "nbval-ignore-output"]
my_banks = lab.kernel_cell(r'''// block_scan_v4 -- inclusive affine scan inside one block: a work-efficient tree, up and down again.
//
// What       h[t] = a[t] * h[t-1] + b[t], h[-1] = 0, for each row of `length` steps.
// Since v3   no span is combined twice: totals climb a tree, what came before walks down it again. The work
//            grows like TILE, not like TILE * log2(TILE); but the strides of the tree fall on few banks.
// Used in    notebook 04.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.2.
//
// Mapping    grid = rows, block = TILE / 2 threads; block r owns row r, thread t steps t and t + TILE / 2.
// Layout     a, b, h: (rows, length) float32, step contiguous: neighbour threads, neighbour words.
// Limits     TILE a power of two in [32, 1024]; 0 <= length <= TILE; steps past the end hold (1, 0).
// Shared     2 arrays * 4 * TILE B, static (TILE=256: 2048 B).
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Work       2 * (TILE - 1) combines (TILE=256: 510) and one multiply-add a step, depth 2 * log2(TILE) + 1.
// Barriers   B0 each round up, B1 each round down, B2 once: 2 * log2(TILE) + 1 (TILE=256: 17).
// Rounding   another order of combines than the loop; tolerance and its reason in tests/test_ladder.py.

#include "affine.cuh"

static_assert(TILE >= 32 && TILE <= 1024 && (TILE & (TILE - 1)) == 0, "TILE: a power of two in [32, 1024]");

extern "C" __global__ __launch_bounds__(TILE / 2)
void block_scan_v4(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, int length) {
    __shared__ float decay[TILE];                           // decay[i], state[i]: the pair of tree node i,
    __shared__ float state[TILE];                           // the node whose steps end at step i
    const int t = threadIdx.x;                              // 0 <= t < TILE / 2
    const long long row = blockIdx.x * (long long)length;

    float2 leaf[2];                                         // the two steps of this thread, kept for the end
    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        leaf[k] = step < length ? make_float2(a[row + step], b[row + step]) : identity();
        decay[step] = leaf[k].x;
        state[step] = leaf[k].y;
    }

    for (int reach = 1; reach < TILE; reach *= 2) {         // up: the right child becomes left, then right
        __syncthreads();                                    // B0: both children are written, then combined
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 first = make_float2(decay[left], state[left]);
            const float2 both = then(first, make_float2(decay[right], state[right]));
            decay[right] = both.x;
            state[right] = both.y;
        }
    }

    if (t == 0) {                                           // thread 0 made the root, clears it: no barrier
        decay[TILE - 1] = identity().x;                     // nothing comes before the whole row
        state[TILE - 1] = identity().y;
    }

    for (int reach = TILE / 2; reach > 0; reach /= 2) {     // down: every node now holds what came before it
        __syncthreads();                                    // B1: the parent is written before its children
        const int right = 2 * reach * (t + 1) - 1;
        const int left = right - reach;
        if (right < TILE) {
            const float2 before = make_float2(decay[right], state[right]);
            const float2 after = then(before, make_float2(decay[left], state[left]));
            decay[left] = before.x;                         // before the left: what came before the parent
            state[left] = before.y;
            decay[right] = after.x;                         // before the right: that, then the left child
            state[right] = after.y;
        }
    }
    __syncthreads();                                        // B2: all leaves are written before one is read

    for (int k = 0; k < 2; ++k) {
        const int step = t + k * (TILE / 2);
        if (step < length) {
            h[row + step] = leaf[k].x * state[step] + leaf[k].y;
        }
    }
}
''', mirrors="block_scan_v4_tree.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("4.C", my_banks)

# %% [markdown]
# ## What we now know
#
# - A launch is a clap (4.1). Inside a launch the threads of a block have a blackboard and a clap of their own.
# - A race is two accesses to one place, one of them a write, with no barrier in between. Results depend on the
#   order of the threads, the verdict does not; right numbers prove nothing (4.2).
# - In place a round needs two barriers (4.3), with two buffers one (4.4). *Source: its text holds, its listing has
#   one too many* (4.5).
# - The idle share doubles from 1 / CHUNK to 1/2. *Corrected: the source has it falling.* In working warps only 31
#   lanes are idle (4.6).
# - Shuffles save nearly all barriers and shared traffic (4.7), but order no memory (4.8).
# - The tree combines least (4.9); its strides meet in few banks, and one empty word after every 32 cures that
#   (4.10).
# - No version is best in everything (4.11), and none of their barriers can go (4.12).
#
# *Still untrue or slow.* A row had to fit into one block. `walk` goes further, but with one block a row, and each
# tile waits for the one before it: most of a GPU would stand idle.
#
# *Next:* [05 · How does a chunk learn what came before?](05_between_chunks.ipynb)
#
# *Sources.* W. D. Hillis, G. L. Steele: Data parallel algorithms, 1986. G. E. Blelloch: Prefix sums and their
# applications, 1990. M. Harris, S. Sengupta, J. D. Owens: Parallel prefix sum (scan) with CUDA, GPU Gems 3, chapter
# 39, 2007 (the padded tree). M. Harris, M. Garland: Optimizing parallel prefix operations for the Fermi
# architecture, GPU Computing Gems, chapter 3, 2011 (warps first). NVIDIA: CUDA C++ programming guide
# (synchronization, warp shuffles) and the guide of compute-sanitizer, whose words our report uses.
