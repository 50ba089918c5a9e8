# %% [markdown]
# # 05 · How does a chunk learn what came before?
#
# One block scans one row of up to 1024 steps; that was notebook 04. Real rows have tens of thousands. So a row is
# cut into chunks, a block each, and every block can begin at once. Only: what happened before its chunk is known to
# a block that may not even have started.
#
# *You will be able to*
#
# - **write** the carry from chunk to chunk, and recognise a wrong one by the step where it first shows;
# - **build** four answers to the question, and count the bytes and the waiting that each costs;
# - **choose** among them from the number of rows and their length, with measurements at hand.
#
# *Needs:* notebooks 02 (chunks in NumPy), 03 (sectors), 04 (barriers, the report). No GPU: every kernel runs on a
# CPU, times come from a measured H200. About 75 minutes.

# %% tags=["nbval-ignore-output"]
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from ssmlab import RawKernel, bench_strategies, check, explain, kernels, lab, reference, scan
from ssmlab.compare import first_difference
from ssmlab.lab import strategies

lab.setup()
lab.here()
device = lab.device()
h200 = json.loads(Path("results/strategies_h200.json").read_text())         # measured by ssmlab.bench_strategies
measured = bench_strategies.measure(torch.device(device), quick=True, show=str) if device == "cuda" else h200
print(f"times in the figures: {measured['device']}, {measured['date']}")

# %% [markdown]
# ## 1. Eight steps, two chunks, by hand
#
# Our recurrence is hₜ = aₜ · hₜ₋₁ + bₜ. Let all a be ½, let b be 3 1 7 0 4 1 6 3, and before the first step the state
# is 8. Two blocks take four steps each. Both begin at once, and as they know nothing, both begin from 0:
#
# | | chunk 0 | | | | chunk 1 | | | |
# |---|---|---|---|---|---|---|---|---|
# | b | 3 | 1 | 7 | 0 | 4 | 1 | 6 | 3 |
# | **1.** each chunk alone, from 0 | 3 | 2½ | 8¼ | 4⅛ | 4 | 3 | 7½ | 6¾ |
# | of the state before the chunk there is left | ½ | ¼ | ⅛ | ¹⁄₁₆ | ½ | ¼ | ⅛ | ¹⁄₁₆ |
#
# The last column of a chunk is its **total**, the pair (A, B) of notebook 01: whatever state h comes in, A · h + B
# goes out. Here the totals are (¹⁄₁₆, 4⅛) and (¹⁄₁₆, 6¾). The states *before* the chunks follow, one from the other:
#
# **2.** Before chunk 0: 8. Before chunk 1: ¹⁄₁₆ · 8 + 4⅛ = 4⅝.
#
# And each step adds what is left of the state before its chunk:
#
# | **3.** corrected | 3 + 4 | 2½ + 2 | 8¼ + 1 | 4⅛ + ½ | 4 + 2⁵⁄₁₆ | 3 + 1⁵⁄₃₂ | 7½ + ³⁷⁄₆₄ | 6¾ + ³⁷⁄₁₂₈ |
# |---|---|---|---|---|---|---|---|---|
# | h | 7 | 4½ | 9¼ | 4⅝ | 6⁵⁄₁₆ | 4⁵⁄₃₂ | 8⁵⁄₆₄ | 7⁵⁄₁₂₈ |

# %%
def in_chunks(a, b, start, chunk, carry):
    """Scan one row: every chunk alone, the carries, the correction. Returns the totals (A, B), the carries, h.

    carry(A, B, before, k) makes before[k], the state before chunk k >= 1, from the totals and the carries so far.
    """
    a, b = a.reshape(-1, chunk), b.reshape(-1, chunk)       # a row for each chunk
    alone, B = reference.scan(a, b)                         # 1. from 0; the last state of each chunk
    left, A = reference.scan(a, 0 * b, np.ones(len(a)))     #    what is left of a state of 1
    before = [start]
    for k in range(1, len(a)):
        before.append(carry(A, B, before, k))               # 2.
    return (A, B), before, (alone + left * np.array(before)[:, None]).ravel()       # 3.


def right_carry(A, B, before, k):
    return A[k - 1] * before[k - 1] + B[k - 1]


a8, b8 = np.full(8, 0.5), np.array([3.0, 1, 7, 0, 4, 1, 6, 3])
(A, B), before, h = in_chunks(a8, b8, 8.0, 4, right_carry)
for k in range(2):
    print(f"chunk {k}: total ({A[k]}, {B[k]}), begins from {before[k]}, corrected {h[4 * k: 4 * k + 4].tolist()}")

# %% [markdown]
# That is the whole method; the rest of this notebook is about step 2, and about doing it on a machine where nobody
# waits for anybody by himself.
#
# **Claim 5.1** With before(k) = A(k − 1) · before(k − 1) + B(k − 1), chunks give what the loop gives, for any chunk
# length. *(The source's formula: it holds.)*

# %%
# check 5.1
assert h.tolist() == [7, 4.5, 9.25, 4.625, 6.3125, 4.15625, 8.078125, 7.0390625]
rng = np.random.default_rng(5)
a, b = rng.uniform(0.5, 1, 96), rng.normal(size=96)
want = reference.scan(a[None], b[None], np.array([8.0]))[0][0]
for chunk in 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96:
    assert np.max(np.abs(in_chunks(a, b, 8.0, chunk, right_carry)[2] - want)) <= 1e-12 * np.max(np.abs(want))
print("5.1 holds")

# %% [markdown]
# ## 2. Almost right
#
# Step 2 is one line, and there are three ways to get it wrong that the source has met. Each looks plausible: take
# the last state that the chunk before has *locally*; apply your *own* total instead of the one before; or take a
# carry with the index *off by one*.

# %%
wrong_carries = {
    "last local element": lambda A, B, before, k: B[k - 1],
    "own total": lambda A, B, before, k: A[k] * before[k - 1] + B[k],
    "off by one": lambda A, B, before, k: before[k - 1],
}
results = {name: in_chunks(a8, b8, 8.0, 4, carry)[2] for name, carry in wrong_carries.items()}

# %%
fig, ax = lab.figure("step t [index]", "state h", height=3.2)
for (name, got), key in zip(results.items(), ("accent", "shared", "bad"), strict=True):
    ax.plot(range(-1, 8), [8, *got], "o-", color=lab.COLORS[key], label=name)
ax.plot(range(-1, 8), [8, *h], "o-", color=lab.COLORS["ink"], label="right")
ax.axvline(3.5, color=lab.COLORS["soft"], linestyle=":")
ax.text(3.6, 9.3, "chunk 1 begins", color=lab.COLORS["soft"])
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# Look at steps 3 and 7. Up to step 3 all four agree, for in chunk 0 nothing has been carried yet. At step 4 they
# part. And then a = ½ does what it always does: it forgets, also the mistake. At step 7 you would need sharp eyes,
# and a test with a loose tolerance that only looks at the last state would be content.
#
# So look for the *first* bad step; it tells where to search. Inside chunk 0: the scan in the block is wrong. At the
# first step of a later chunk: the carry. And as a and b are known, one can even work out what the chunk must have
# begun from. `ssmlab.compare` does that:

# %%
def blame(got, start=8.0, a=a8, b=b8):
    """Where a result parts from the loop, and what that points to."""
    want, _ = reference.scan(a[None], b[None], np.array([start]))
    return first_difference(got[None], want, chunk=4, a=a[None], b=b[None], initial_state=np.array([start]))


for got in results.values():
    print(blame(got), "\n")

# %% [markdown]
# **Claim 5.2** At length 8 and chunk 4, each of the three wrong carries is first seen at step 4, the first of
# chunk 1, and the numbers there name the mistake. But a test needs a state before the first step: from 0, the *last
# local element* **is** the right carry of chunk 1, and *off by one* looks like no carry at all. Without a start it
# takes a third chunk to see the difference.

# %%
# check 5.2
assert {name: (blame(got).step, blame(got).stage) for name, got in results.items()} == {
    name: (4, f"carry: {name}") for name in wrong_carries}
from_zero = {name: blame(in_chunks(a8, b8, 0.0, 4, carry)[2], start=0.0) for name, carry in wrong_carries.items()}
assert from_zero["last local element"] is None and from_zero["off by one"].stage == "carry missing"
a12, b12 = np.full(12, 0.5), np.array([*b8, 2, 5, 0, 1])    # a third chunk: steps 8 to 11
third = blame(in_chunks(a12, b12, 0.0, 4, wrong_carries["last local element"])[2], 0.0, a12, b12)
assert (third.step, third.stage) == (8, "carry: last local element")
print("5.2 holds")

# %% [markdown]
# *(The source names these mistakes and recommends the same tiny case; it does not say that the case needs a start
# that is not zero. Holds with a condition.)*
#
# ## 3. A thread a row: no chunks, no question
#
# Before we carry anything: do we have to? If there are many rows, a thread can take a whole one and walk.

# %%
text1 = lab.kernel_cell(r'''// chunks_v1 -- scan along whole rows: a thread walks a row, so nothing has to be carried between blocks.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// New        the first one: parallel across rows only. The least work there is, and `length` steps one after another.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.
//
// Mapping    thread i of the grid owns row i.
// Layout     element (row, step) lies at row * row_stride + step * step_stride; row_stride 1: a warp reads neighbours.
// Global     reads 8 B, writes 4 B a step; each byte moves once.
// Barriers   none.
// Rounding   that of the loop.
// compile: -std=c++17

extern "C" __global__
void chunks_v1(const float* a, const float* b, float* h, const float* start,
               int rows, int length, long long row_stride, long long step_stride) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float state = start[row];
    for (int step = 0; step < length; ++step) {
        const long long at = row * row_stride + step * step_stride;
        state = a[at] * state + b[at];
        h[at] = state;
    }
}
''', mirrors="chunks_v1_walk.cu")

walk = RawKernel(text1, "chunks_v1")

# %% [markdown]
# Strides say how the tensor lies in memory. (length, rows) is what a projection writes: at every step a warp reads 32
# neighbours. In (rows, length) its 32 lanes are far apart (notebook 03).
#
# **Claim 5.3** A thread a row moves each byte once, 12 a step, if neighbouring rows are neighbours in memory. If
# neighbouring steps are, a warp's request moves 32 sectors where 4 would do.

# %%
# check 5.3
rows, length = 64, 40
a, b = rng.uniform(0.5, 1, (rows, length)).astype(np.float32), rng.normal(size=(rows, length)).astype(np.float32)
start = rng.normal(size=rows).astype(np.float32)
loop, _ = reference.scan(a, b, start)
sectors = {}
for layout, flip, strides in ("(length, rows)", np.transpose, (1, rows)), ("(rows, length)", np.asarray, (length, 1)):
    inputs = np.ascontiguousarray(flip(a)), np.ascontiguousarray(flip(b))
    report = check(walk, (2,), (32,), (*inputs, np.zeros_like(inputs[0]), start, rows, length, *strides))
    assert report.ok and np.max(np.abs(flip(report.arrays[2]) - loop)) <= 1e-6 * np.max(np.abs(loop))
    moved = [line for line in report.lines if line.name in ("a", "b", "h")]
    sectors[layout] = sorted({line.sectors // line.requests for line in moved})
    assert sum(line.size * line.threads for line in moved) == 12 * rows * length
assert sectors == {"(length, rows)": [4], "(rows, length)": [32]}
print("5.3 holds: sectors a request", sectors)

# %% [markdown]
# So in the first layout the walk is perfect in bytes, and no combine is wasted. What it lacks is people. The source
# says: "16 · 1536, more than twenty thousand channels at once, are enough to fill a GPU; with a small batch and a
# narrow model the parallelism will not suffice." Let us ask the clock: 1536 channels, batches from 1 to 16, against
# the best of the other strategies.

# %%
short = [point for point in measured["channels"] if point["shape"][1] == 2048]
batches = [point["shape"][0] for point in short]
fig, ax = lab.figure("rows: batch × 1536 channels", "time [ms]", height=3.2)
for name in "thread", "block", "lookback":
    color, label = strategies.STRATEGIES[name]
    ax.plot([1536 * batch for batch in batches], [point["ms"][name] for point in short], "o-", color=color, label=label)
floor = [12e-6 * 2048 * 1536 * batch / measured["copy_gbps"] for batch in batches]
ax.plot([1536 * batch for batch in batches], floor, ":", color=lab.COLORS["ink"], label="a copy of as many bytes")
ax.set(xscale="log", yscale="log", title=f"2048 steps, (length, channels); {measured['device']}, {measured['date']}")
ax.set_xticks([1536 * batch for batch in batches], [f"{1536 * batch:,}" for batch in batches])
ax.minorticks_off()
ax.legend()
plt.show()

# %% [markdown]
# Look at the grey line: it hardly rises. Eight times the rows, 1536 to 12,288, take the walk a seventh longer. Work
# that costs no time was done by threads that stood idle before, so the GPU is far from full, even at the far right: it
# could hold 132 · 2048 threads, and 24,576 are 9 % of them. Each thread waits for its own loads, and there are too few
# others to fill the wait. The two lines below, with many threads to a row, rise with the dotted one, the bytes.
#
# **Claim 5.4** On an H200, 16 · 1536 rows are not enough for a thread a row: it takes 1.4 times as long as a block a
# row. With 1536 rows it takes 7 times as long as look-back, and if they are 65,536 steps long, 14 times. *(So the
# source is right about small batches, and too hopeful about large ones: measured otherwise.)*

# %%
# check 5.4
few, more, many, long = (strategies.at(h200["channels"], length, 1536, batch=batch)["ms"]
                         for length, batch in ((2048, 1), (2048, 8), (2048, 16), (65536, 1)))
assert round(more["thread"] / few["thread"], 2) == 1.14
assert round(24576 / (132 * 2048), 2) == 0.09
assert round(many["thread"] / many["block"], 1) == 1.4
assert [round(case["thread"] / case["lookback"]) for case in (few, long)] == [7, 14]
print("5.4 holds")

# %% [markdown]
# ## 4. Two passes and a chain
#
# Fewer rows, or longer ones: then chunks. Between blocks there is no barrier, but between *launches* there is
# (claim 4.1). So three launches, one for each step of section 1, with one change. We do not keep what each chunk
# found alone. The second pass scans the chunk *again* and begins from the right state: reading two numbers a step
# is cheaper than writing two and reading them back.
#
# The scan inside a chunk is v2 of the ladder of notebook 04, now a function in `chunk.cuh`:

# %%
print(kernels.path("chunk.cuh").read_text(), end="")

# %%
text2 = lab.kernel_cell(r'''// chunks_v2 -- scan long rows in chunks, in two passes; in between a serial chain makes the carries.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v1   a row is cut into chunks, a block each. Totals first, then carries, then every chunk again with its carry.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.3.
//
// Mapping    totals, finish: grid = rows * chunks, block = CHUNK threads; block r * chunks + k owns chunk k of row r.
//            carry: thread i of the grid owns row i.
// Layout     a, b, h: (rows, length); total, before: (rows, chunks); chunks = ceil(length / CHUNK).
// Limits     CHUNK a power of two in [2, 1024].
// Global     totals reads 8 B, finish reads 8 B and writes 4 B a step: 20 B where 12 would do.
// Barriers   B0 each round of scan_chunk: log2(CHUNK) in totals and in finish; none in carry.
// compile: -DCHUNK=256

#include "chunk.cuh"

// First pass: what each chunk does to a state.
extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v2_totals(const float* a, const float* b, float2* total, int length, int chunks) {
    const int row = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;
    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());
    if (threadIdx.x == CHUNK - 1) {
        total[blockIdx.x] = mine;
    }
}

// Between the passes: the state before each chunk, one after another.
extern "C" __global__
void chunks_v2_carry(const float2* total, const float* start, float* before, int rows, int chunks) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float state = start[row];
    for (int k = 0; k < chunks; ++k) {
        const int at = row * chunks + k;
        before[at] = state;                                 // written before total k is applied
        state = total[at].x * state + total[at].y;
    }
}

// Second pass: the chunk again, from the state before it.
extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v2_finish(const float* a, const float* b, const float* before, float* h, int length, int chunks) {
    const int row = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;
    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());
    if (step < length) {
        h[at] = mine.x * before[blockIdx.x] + mine.y;
    }
}
''', mirrors="chunks_v2_chain.cu")


# %% [markdown]
# First the eight numbers, with blocks of four threads. Between the launches we look at what the kernels hand on.

# %%
def compiled(text, name, chunk):
    """A kernel for chunks of this many steps; it finds chunk.cuh in kernels_cu."""
    return RawKernel(text, name, options=(f"-DCHUNK={chunk}", f"-I{kernels.FOLDER}"))


def two_passes(carry, a, b, start, chunk):
    """Totals, carries, and all chunks again. Returns h, what was handed on, and the launches."""
    rows, length = a.shape
    count = -(-length // chunk)
    total, before, h = (a.new_full(shape, torch.nan) for shape in ((rows, count, 2), (rows, count), a.shape))
    launches = [
        (compiled(text2, "chunks_v2_totals", chunk), rows * count, chunk, (a, b, total, length, count)),
        (carry, rows, 32, (total, start, before, rows, count)),             # v2 asks for a thread a row: enough
        (compiled(text2, "chunks_v2_finish", chunk), rows * count, chunk, (a, b, before, h, length, count)),
    ]
    for kernel, grid, block, arguments in launches:
        kernel((grid,), (block,), arguments)
    return h, total, before, launches


eight = [torch.tensor(array, dtype=torch.float32, device=device) for array in (a8[None], b8[None], [8.0])]
chain = compiled(text2, "chunks_v2_carry", 4)
h, total, before, _ = two_passes(chain, *eight, 4)
print("totals ", total.tolist())
print("before ", before.tolist())
print("h      ", h.tolist())

# %% [markdown]
# The same numbers as on paper. Now longer rows, and the bytes. The report knows how many each line asked for.

# %%
def problem(rows, length):
    """a, b, start on this machine, and what the loop makes of them. States fade slowly: a lost carry is felt."""
    a, b = rng.uniform(0.99, 1, (rows, length)).astype(np.float32), rng.normal(size=(rows, length)).astype(np.float32)
    start = rng.normal(size=rows).astype(np.float32)
    return [torch.as_tensor(array, device=device) for array in (a, b, start)], reference.scan(a, b, start)[0]


def is_right(h, want):
    return bool(np.max(np.abs(h.cpu().numpy() - want)) <= 1e-5 * np.max(np.abs(want)))


def moved(reports, names, access):
    """Bytes that threads asked for in the arrays with these names."""
    return sum(line.size * line.threads for report in reports for line in report.lines
               if line.name in names and line.access == access)


# %% [markdown]
# **Claim 5.5** Two passes read 16 bytes a step and write 4 (four reads and one write), where 12 would do. What is
# handed on is little: 24 bytes a chunk.

# %%
# check 5.5
(inputs, want), chunk = problem(3, 2000), 128               # 16 chunks a row, the last one short
h, total, before, launches = two_passes(chain, *inputs, chunk)
assert is_right(h, want)
reports = [check(kernel, (grid,), (block,), arguments) for kernel, grid, block, arguments in launches]
assert all(report.ok for report in reports)
assert moved(reports, "ab", "read") == 16 * 3 * 2000 and moved(reports, "h", "write") == 4 * 3 * 2000
handed = moved(reports[:2], ["total", "before"], "write") + moved(reports[1:2], ["total"], "read") + 4 * before.numel()
assert handed == 24 * 3 * 16                                # total: 8 written and read; before: 4 written and read
print("5.5 holds")

# %% [markdown]
# On a machine where bytes are all that counts, two passes reach 12/20 of the speed of one: 60 %. Unless the second
# read finds the numbers still in the L2 cache, which on an H200 holds 63 MB.
#
# ## 5. The totals are a row, too
#
# Between the passes one thread a row walks along the totals, one after another. K chunks, K dependent steps, each
# waiting for a load. But totals are pairs, pairs combine, and what combines can be scanned: a warp takes 32 totals
# at a time.

# %%
text3 = lab.kernel_cell(r'''// chunks_v3 -- scan long rows in chunks, in two passes; in between the totals themselves are scanned.
//
// What       before[k] = the state before chunk k of each row, from the totals of its chunks; replaces chunks_v2_carry.
// Since v2   pairs combine in any grouping, so the totals are one more row to scan: a warp takes 32 at a time.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.3.
//
// Mapping    grid = rows, block = 32 threads; block r owns row r, lane l the chunks l, l + 32, l + 64 ...
// Layout     total, before: (rows, chunks).
// Depth      6 dependent steps for 32 chunks, where the chain takes 32.
// Barriers   none: the lanes exchange registers.
// compile: -std=c++17

#include "affine.cuh"

constexpr unsigned ALL = 0xffffffffu;                       // all lanes of the warp take part in each shuffle

__device__ __forceinline__ float2 from_left(float2 mine, int reach) {
    return make_float2(__shfl_up_sync(ALL, mine.x, reach), __shfl_up_sync(ALL, mine.y, reach));
}

extern "C" __global__ __launch_bounds__(32)
void chunks_v3_carry(const float2* total, const float* start, float* before, int rows, int chunks) {
    const int row = blockIdx.x;
    const int lane = threadIdx.x;
    float state = start[row];                               // before the 32 chunks at hand
    for (int first = 0; first < chunks; first += 32) {
        const int k = first + lane;
        float2 mine = k < chunks ? total[row * chunks + k] : identity();
        for (int reach = 1; reach < 32; reach *= 2) {
            const float2 left = from_left(mine, reach);
            if (lane >= reach) {
                mine = then(left, mine);
            }
        }
        const float2 left = from_left(mine, 1);             // exclusive: everything before chunk k, without chunk k
        const float2 earlier = lane > 0 ? left : identity();
        if (k < chunks) {
            before[row * chunks + k] = earlier.x * state + earlier.y;
        }
        state = __shfl_sync(ALL, mine.x * state + mine.y, 31);
    }
}
''', mirrors="chunks_v3_totals.cu")

scan_of_totals = RawKernel(text3, "chunks_v3_carry", options=(f"-I{kernels.FOLDER}",))

# %% [markdown]
# Mind one line: the carry is *exclusive*. Before chunk k stand the totals up to k − 1, without its own. In a chain
# this comes from writing before applying; here everyone takes the result of the left neighbour.
#
# **Claim 5.6** The scan of the totals makes the same carries as the chain. For 64 chunks 12 steps wait for each
# other, not 64.

# %%
# check 5.6
h, total, scanned, launches = two_passes(scan_of_totals, *inputs, chunk)
assert is_right(h, want) and torch.allclose(scanned, before, rtol=1e-5, atol=1e-5)
(totals_of_64, _), counting = problem(2, 64), text3
for line in "mine = then(left, mine);", "state = __shfl_sync(ALL, mine.x * state + mine.y, 31);":
    assert counting.count(line) == 1
    counting = counting.replace(line, line + ' if (row == 0 && lane == 31) printf("*");')
pairs = torch.stack(totals_of_64[:2], dim=-1).contiguous()  # any 64 pairs
counted = RawKernel(counting, "chunks_v3_carry", options=(f"-I{kernels.FOLDER}",))
report = check(counted, (2,), (32,), (pairs, totals_of_64[2], torch.zeros(2, 64, device=device), 2, 64))
assert report.printf.count("*") == 12                       # the last lane has a left neighbour in every round
print("5.6 holds")

# %% [markdown]
# ## 6. One pass: hand it over
#
# Two passes read everything twice because nobody could wait. Suppose a block could wait: it scans its chunk, keeps
# it in registers, waits until its left neighbour says "here is the state", and is done. One launch, one read.
#
# Waiting for a neighbour is a loop that looks at a flag. The first idea is: block k takes chunk k.

# %%
text4 = lab.kernel_cell(r'''// chunks_v4 -- scan long rows in chunks, in a single pass: each block waits for its left neighbour's state.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v3   one launch and one read: a chunk waits in registers for its state. But the states still come one by one.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.
//
// Mapping    grid = rows * chunks, block = CHUNK threads. A block draws a ticket: its place in the order in which
//            blocks start. Ticket n is chunk n / rows of row n % rows: a block only waits for earlier ones.
// Layout     a, b, h: (rows, length); after, ready: (rows, chunks); ticket and ready must be 0 at the start.
// Limits     CHUNK a power of two in [2, 1024].
// Global     reads 8 B, writes 4 B a step, and 8 B a chunk for the board.
// Barriers   B0 each round of scan_chunk; B1 ticket; B2 carry: log2(CHUNK) + 2.
// compile: -DCHUNK=256

#include "chunk.cuh"

extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v4(const float* a, const float* b, float* h, const float* start, int rows, int length, int chunks,
               int* ticket, float* after, volatile int* ready) {
    __shared__ int number;
    __shared__ float carry;
    if (threadIdx.x == 0) {
        number = atomicAdd(ticket, 1);
    }
    __syncthreads();                                        // B1: the ticket is drawn before anyone reads it
    const int row = number % rows;
    const int chunk = number / rows;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;

    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());

    if (threadIdx.x == CHUNK - 1) {                         // the thread that holds the chunk's total
        const int here = row * chunks + chunk;
        float before = start[row];
        if (chunk > 0) {
            while (ready[here - 1] == 0) {}                 // flag: an earlier ticket, so its block is running
            __threadfence();                                // the flag is read before the value
            before = after[here - 1];
        }
        after[here] = mine.x * before + mine.y;             // value
        __threadfence();                                    // fence: the value is visible before the flag
        ready[here] = 1;                                    // flag
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone reads it

    if (step < length) {
        h[at] = mine.x * carry + mine.y;
    }
}
''', mirrors="chunks_v4_handover.cu")

# %% [markdown]
# Before the ticket is explained, take it away. `naive` gives block k the chunk k:

# %%
def edited(text, *edits):
    """The text with each (old, new) applied, all other lines where they were."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def board(rows, count, *, values):
    """A ticket, places for values of these many floats a chunk, and a flag for each chunk."""
    spaces = [torch.full((rows, count, width), torch.nan, device=device) for width in values]
    return [torch.zeros(1, dtype=torch.int32, device=device), *spaces,
            torch.zeros(rows, count, dtype=torch.int32, device=device)]


def one_pass(text, a, b, start, chunk, *, values=(1,), name="chunks_v4"):
    """(kernel, grid, block, arguments) of a single-pass version; h is arguments[2]."""
    rows, length = a.shape
    count = -(-length // chunk)
    return (compiled(text, name, chunk), (rows * count,), (chunk,),
            (a, b, torch.full_like(b, torch.nan), start, rows, length, count, *board(rows, count, values=values)))


naive = edited(text4, ("number = atomicAdd(ticket, 1);", "number = blockIdx.x;"))
(inputs, want) = problem(1, 128)
launch = one_pass(naive, *inputs, 32)                       # 4 chunks of 32 steps
for order in "forward", "reverse":
    report = check(*launch, block_order=order, resident=1)
    print(f"blocks start in {order} order:", "silent, right" if report.ok else report.findings[0], "\n")

# %% [markdown]
# Nothing promises that block 0 starts first, and not all blocks of a launch fit on a GPU at the same time. On our
# small machine one block fits (`resident=1`) and the last one is started first. It waits for a neighbour who waits
# for its place. That is a **deadlock**: a real GPU hangs, and which launches hang may depend on its size.
#
# The cure: a block takes its chunk not from its name tag but from a **ticket**, drawn when it starts. Whoever has
# ticket n knows that tickets 0 to n − 1 belong to blocks that *are running already*. Waiting for them ends.
#
# **Claim 5.7** By block index, the hand-over hangs in an unlucky order. With tickets it is right in every order,
# even if only one block fits on the machine.

# %%
# check 5.7
hung = check(*launch, block_order="reverse", resident=1)
assert [finding.kind for finding in hung.findings] == ["deadlock"] and not hung.complete
inputs, want = problem(2, 250)
launch = one_pass(text4, *inputs, 32)
for order in "forward", "reverse", "random":
    for resident in 1, 3, 16:
        report = check(*launch, block_order=order, resident=resident, seed=5)
        assert report.ok and is_right(report.arrays[2], want)
kernel, grid, block, arguments = launch
kernel(grid, block, arguments)                              # on this machine
assert is_right(arguments[2], want)
print("5.7 holds")

# %% [markdown]
# *(Tickets rest on one fact: a block that has started keeps running until it ends. GPUs work that way.)*
#
# ### Value, fence, flag
#
# The neighbour needs a number, and the flag says that it is there. But a GPU may let writes become visible in
# another order than they were made, and reads happen earlier than they stand in the text. A **fence**,
# `__threadfence()`, forbids that: what stood before it is visible before what stands behind it. The writer needs one
# (value, *fence*, flag), and the reader needs one (flag, *fence*, value). And the flag is `volatile`, so that the
# compiler really looks each time.
#
# Here is the kernel as it stands, and four edits of it. All five give right numbers on this CPU. What does the report
# say?

# %%
writer = ("        __threadfence();                                    // fence:", "        // fence:")
reader = ("            __threadfence();                                // the flag", "            // the flag")
value, flag = "after[here] = mine.x * before + mine.y;", "ready[here] = 1;"
edits = {
    "as it is": [],
    "no fence behind the value": [writer],
    "no fence behind the flag": [reader],
    "flag, fence, value": [(value, "@"), (flag, value), ("@", flag)],
    "a flag that is an ordinary int": [("volatile int* ready", "int* ready")],
}
flag_reports = {name: check(*one_pass(edited(text4, *edit), *inputs, 32), resident=4) for name, edit in edits.items()}
for name, report in flag_reports.items():
    found = "; ".join(f"{f.kind} of lines {f.line} and {f.other_line}" for f in report.findings)
    print(f"{name:31} {'right' if is_right(report.arrays[2], want) else 'WRONG'}   {found or 'silent'}")

# %% [markdown]
# **Claim 5.8** Without either fence, with the flag before the value, or with an ordinary flag, nothing orders the
# writing of `after` and the reading of it. The report says so, although the numbers are right.
#
# *(Kernels with the same edits, `chained_*` in `tests/mutants`, were run on an H200. NVIDIA's tools say nothing: they do
# not look for races on global memory. The one with the ordinary flag hangs, as the compiler looks once and then waits
# for ever. See the table in `kernels_cu/README.md`.)*

# %%
# check 5.8
lines = text4.splitlines()
touching = {number for number, line in enumerate(lines, 1) if re.search(r"= after\[|after\[here\] =", line)}
for name, report in flag_reports.items():
    if name == "as it is":
        assert report.ok
    elif name == "flag, fence, value":                      # the value stands two lines lower there
        assert {finding.kind for finding in report.findings} == {"global-race"}
    else:
        races = [{f.line, f.other_line} for f in report.findings if f.kind == "global-race"]
        assert touching in races and len(races) == len(report.findings)
print("5.8 holds")

# %% [markdown]
# ### What one pass costs
#
# **Claim 5.9** One pass reads 8 bytes a step and writes 4: two reads and one write. Beside that go 20 bytes a chunk
# to and from the board.

# %%
# check 5.9
(inputs, want), chunk = problem(3, 2048), 128
report = check(*one_pass(text4, *inputs, chunk))
assert report.ok and is_right(report.arrays[2], want)
assert moved([report], "ab", "read") == 8 * 3 * 2048 and moved([report], "h", "write") == 4 * 3 * 2048
chunks, later = 3 * 16, 3 * 15                              # nobody waits in front of the first chunk of a row
posted = moved([report], ["after", "ready"], "write")
fetched = moved([report], ["after", "ready", "start"], "read")
assert posted == 8 * chunks and fetched == 4 * chunks + 8 * later
print("5.9 holds")

# %% [markdown]
# ## 7. Look back
#
# The hand-over has a weak spot. Chunk k waits for the state behind chunk k − 1, which waits for k − 2 … One block
# that is held up holds up everybody behind it.
#
# Does it have to? The *total* of a chunk depends on no other chunk. So post it at once, long before the state is
# known. Whoever needs the state before chunk k then looks back: has k − 1 posted its state? Take it. Only its total?
# Remember that, and ask k − 2. And so on, until a state turns up, or the beginning of the row. This is **decoupled
# look-back** (Merrill and Garland 2016).

# %%
text5 = lab.kernel_cell(r'''// chunks_v5 -- scan long rows in chunks, in a single pass: nobody waits for a state, totals are posted and looked up.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v4   a chunk posts its total as soon as it has it. Whoever needs the state before a chunk looks back over
//            totals to the nearest state that is posted, and walks forward from there (decoupled look-back).
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Merrill & Garland 2016, NVR-2016-002.
//
// Mapping    grid = rows * chunks, block = CHUNK threads; tickets as in v4.
// Layout     a, b, h: (rows, length); total, after, flag: (rows, chunks); ticket and flag must be 0 at the start.
// Limits     CHUNK a power of two in [2, 1024].
// Global     reads 8 B, writes 4 B a step, and 20 B a chunk for the board.
// Barriers   B0 each round of scan_chunk; B1 ticket; B2 carry: log2(CHUNK) + 2.
// Rounding   state k is always total k applied to state k - 1, wherever the walk begins: the same bits in every run.
// compile: -DCHUNK=256

#include "chunk.cuh"

constexpr int TOTAL = 1, STATE = 2;                         // flags; 0: nothing is posted yet

// Value, fence, flag: who sees the flag may read the value.
__device__ __forceinline__ void post(volatile int* flag, int what) {
    __threadfence();
    *flag = what;
}

// The state before `chunk`; the flags and values of its row begin at `first`.
__device__ float look_back(const float2* total, const float* after, volatile int* flag, int first, int chunk,
                           float start) {
    int found = 0;
    int k = chunk - 1;
    while (k >= 0) {                                        // back, until a state is found
        do {
            found = flag[first + k];
        } while (found == 0);
        if (found == STATE) {
            break;
        }
        --k;
    }
    __threadfence();                                        // the flags are read before the values
    float state = k >= 0 ? after[first + k] : start;
    for (++k; k < chunk; ++k) {                             // forward again, over the totals in between
        state = total[first + k].x * state + total[first + k].y;
    }
    return state;
}

extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v5(const float* a, const float* b, float* h, const float* start, int rows, int length, int chunks,
               int* ticket, float2* total, float* after, volatile int* flag) {
    __shared__ int number;
    __shared__ float carry;
    if (threadIdx.x == 0) {
        number = atomicAdd(ticket, 1);
    }
    __syncthreads();                                        // B1: the ticket is drawn before anyone reads it
    const int row = number % rows;
    const int chunk = number / rows;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;

    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());

    if (threadIdx.x == CHUNK - 1) {                         // the thread that holds the chunk's total
        const int here = row * chunks + chunk;
        total[here] = mine;
        post(flag + here, TOTAL);
        const float before = look_back(total, after, flag, row * chunks, chunk, start[row]);
        after[here] = mine.x * before + mine.y;
        post(flag + here, STATE);
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone reads it

    if (step < length) {
        h[at] = mine.x * carry + mine.y;
    }
}
''', mirrors="chunks_v5_lookback.cu")

# %% [markdown]
# Two flags now, TOTAL and STATE, and each goes up behind its value and a fence. `look_back` runs back over flags
# until it finds a state, and forward again over the totals in between.
#
# Is it true that nobody is held up? We can ask. An edit makes some blocks wait at the worst moment, right after
# their total: until the *last* chunk of the row has finished. In the hand-over that must be the end.

# %%
hold4 = edited(text4, (value, "if (chunk == 0) { while (ready[here + chunks - 1] == 0) {} } " + value))
posting = "post(flag + here, TOTAL);"
hold5 = edited(text5, (posting, posting + " if (chunk % 4 != 3) { while (flag[chunks - 1] != STATE) {} }"))
inputs, want = problem(1, 512)                              # 16 chunks of 32 steps
held4 = check(*one_pass(hold4, *inputs, 32), resident=16)
held5 = check(*one_pass(hold5, *inputs, 32, values=(2, 1), name="chunks_v5"), resident=16)
print("hand-over:", held4.findings[0].kind)
print("look-back:", "right" if held5.ok and is_right(held5.arrays[2], want) else "WRONG")

# %% [markdown]
# Twelve of sixteen blocks are held up until the very last chunk is done, and the last chunk gets done. How? We let
# the kernel write down where each chunk looked, and what it found:

# %%
seeing = edited(
    hold5,
    ("                           float start) {", "                           float start, int* seen) {"),
    ("        if (found == STATE) {", "        seen[chunk * 16 + k] = found;\n        if (found == STATE) {"),
    ("row * chunks, chunk, start[row])", "row * chunks, chunk, start[row], seen)"),
    ("float2* total, float* after, volatile int* flag) {", "float2* total, float* after, volatile int* flag, int* seen) {"),
)
kernel, grid, block, arguments = one_pass(seeing, *inputs, 32, values=(2, 1), name="chunks_v5")
blank = torch.zeros(16, 16, dtype=torch.int32, device=device)
seen = check(kernel, grid, block, (*arguments, blank), resident=16).arrays[-1]

# %%
fig, ax = lab.figure("found posted by chunk", "looks back from chunk", height=3.6, width=5.4)
colors = plt.matplotlib.colors.ListedColormap(["white", lab.COLORS["shared"], lab.COLORS["chunk"]])
ax.imshow(seen.numpy(), cmap=colors, vmin=0, vmax=2, extent=(-0.5, 15.5, 15.5, -0.5))
ax.plot([], [], "s", color=lab.COLORS["shared"], label="its total")
ax.plot([], [], "s", color=lab.COLORS["chunk"], label="its state")
ax.set(xticks=range(0, 16, 3), yticks=range(0, 16, 3))
ax.grid(False)
ax.legend(loc="upper right")
plt.show()

# %% [markdown]
# Look at rows 3, 7, 11 and 15, the chunks that were not held up. Each steps over the three totals in front of it and
# takes the state behind them, or the start of the row. The others came when all was over: they found a state right
# in front of them.
#
# **Claim 5.10** With look-back a block that is held up after its total holds up nobody; in the hand-over it holds up
# all behind it. The result has the same bits in any order of events, because a state is always the total applied to
# the state before it, wherever the walk begins. And it stays at two reads and one write.

# %%
# check 5.10
assert [finding.kind for finding in held4.findings] == ["deadlock"] and held5.ok
assert [seen[k].tolist().count(1) for k in (3, 7, 11, 15)] == [3, 3, 3, 3]
launch = one_pass(text5, *inputs, 32, values=(2, 1), name="chunks_v5")
bits = {held5.arrays[2].numpy().tobytes()}
for order in "forward", "reverse", "random":
    for resident in 1, 5, 16:
        report = check(*launch, block_order=order, resident=resident, seed=5)
        assert report.ok and is_right(report.arrays[2], want)
        bits.add(report.arrays[2].numpy().tobytes())
assert len(bits) == 1
assert moved([report], "ab", "read") == 8 * 512 and moved([report], "h", "write") == 4 * 512
print("5.10 holds")

# %% [markdown]
# Our `look_back` asks one chunk after another, with one thread, and the others stand by. `ssmlab.scan` lets a whole
# warp look, and packs flag and value into one word; exercises 5.B and 5.C get you there.
#
# ## 8. What does the waiting cost?
#
# The source measured: 16,384 steps, chunks of 256, so 64 of them; scanning the totals "lowered the tail latency by
# almost forty percent" against handing the state from block to block. Here are our four ways on an H200, the very
# kernels of this notebook, with the same scan inside the chunk, for four numbers of rows.

# %% tags=["nbval-ignore-output"]
ways = {"chain": "two passes, chain", "totals": "two passes, totals scanned", "handover": "one pass, hand-over",
        "lookback": "one pass, look-back"}
shades = [strategies.STRATEGIES["chain"][0], strategies.STRATEGIES["totals"][0], lab.COLORS["shared"],
          strategies.STRATEGIES["lookback"][0]]
fig, axes = lab.figure(columns=len(measured["carries"]), width=9.6, height=2.7)
for ax, case in zip(axes, measured["carries"], strict=True):
    ax.bar(range(4), [1000 * case["ms"][way] for way in ways], color=shades)
    ax.plot(range(4), [1000 * case["p99_ms"][way] for way in ways], "_", color=lab.COLORS["ink"], markersize=14)
    ax.set(title=f"{case['rows']:,} row{'s' * (case['rows'] > 1)}", xticks=[])
axes[0].set_ylabel("time [µs]")
handles = [plt.Rectangle((0, 0), 1, 1, color=shade) for shade in shades]
fig.legend(handles, ways.values(), loc="outside lower center", ncols=4, fontsize=9)
plt.show()

# %% [markdown]
# Look at the first panel, one row: here the waiting is all there is. The hand-over needs a microsecond for each of its
# 64 hops. Look-back does not hop, and the totals, scanned, beat the chain. To the right other blocks have work while
# one waits, and the waiting disappears behind it. The dashes are 99th percentiles: they sit on the bars, so the tail
# is no matter of bad luck here, it is the chain itself.
#
# **Claim 5.11** At 64 chunks, one row: scanning the totals takes 27 % less time than the chain between the passes and
# 87 % less than handing over from block to block; look-back takes a quarter of the hand-over. With 1536 rows the
# totals save 3 %, and the single pass with hand-over is fastest. With 24,576 rows chain, totals and hand-over are
# within 2 %.
#
# So "almost forty percent" is neither wrong nor a law. Between 27 and 87 it depends on which chain is meant, and it is
# gone when there are enough rows. *(Measured otherwise.)*

# %%
# check 5.11
assert [(case["rows"], case["length"] // case["chunk"]) for case in h200["carries"]] == [
    (1, 64), (64, 64), (1536, 64), (24576, 64)]
one, _, channels, batch = (case["ms"] for case in h200["carries"])
assert round(100 * (1 - one["totals"] / one["chain"])) == 27
assert round(100 * (1 - one["totals"] / one["handover"])) == 87 and round(one["handover"] / one["lookback"]) == 4
assert round(1000 * one["handover"] / 64) == 1              # [µs] a hop
assert round(100 * (1 - channels["totals"] / channels["chain"])) == 3 and min(channels, key=channels.get) == "handover"
assert max(batch[way] for way in ("chain", "totals", "handover")) <= 1.02 * min(batch.values())
print("5.11 holds")

# %% [markdown]
# ## 9. Which one, when?
#
# Now the finished kernels of `ssmlab.scan`, which can do all of it: `algorithm="thread"` walks a row, `"block"` gives
# a row to a block that walks along in tiles (the end of notebook 04), `"chain"` and `"totals"` make two passes,
# `"lookback"` one. On an H200 each was tried on rows from 1 to 24,576 and lengths from 512 to 16 million, in both
# layouts, with several tiles and numbers of chunks, and its best time counts. (Replayed from CUDA graphs: what the host
# needs for one launch or three is not in it.)

# %%
fig, axes = lab.figure("length [steps]", "rows", columns=2, width=10.5, height=3.7, sharey=True)
for ax, layout, words in zip(axes, ("rows", "columns"), ("steps are neighbours", "channels are neighbours"), strict=True):
    strategies.strategy_map(measured["shapes"], layout, ax)
    ax.set_title(f"{words}; {measured['device']}, {measured['date']}")
strategies.strategy_legend(fig, measured["shapes"])
plt.show()

# %% [markdown]
# Look at the two colours that fill the maps, and at the one that is missing. A number says how many times as long the
# best of the losers took; where two are within 5 %, they share the box.
#
# - *Steps are neighbours* (left). Where rows are many, or short, a **block a row** wins: it carries the state along in a
#   register, and that costs nothing. Few and long rows leave most of the GPU without a block; there **look-back** wins.
# - *Channels are neighbours* (right). A block takes a whole strip of channels, so there are fewer blocks to go round,
#   and look-back wins much earlier.
# - **Two passes** win in one corner, where 4 channels stand side by side and are very long: a tile of look-back is short
#   there, and tens of thousands of tiles wait for their turn. With 64 channels the two are level.
# - **A thread a row** wins nowhere.
#
# **Claim 5.12** On this H200, for 2²⁶ numbers and more with steps as neighbours, two passes take 1.4 to 1.7 times as
# long as the best single pass (the bytes say 1.67). Scanning the totals is nowhere slower than the chain by more than
# a tenth, and up to 1.5 times as fast. Up to 16,384 neighbouring steps a block a row is best, however many rows there are. A
# thread a row takes 1.3 times as long as the best, or more.

# %%
# check 5.12
points = h200["shapes"]
best = [min(ms for ms in point["ms"].values() if ms is not None) for point in points]
rows_of = {layout: [(point, least) for point, least in zip(points, best, strict=True) if point["layout"] == layout]
           for layout in ("rows", "columns")}
large = [point["ms"]["totals"] / least for point, least in rows_of["rows"] if np.prod(point["shape"]) >= 2**26]
assert round(min(large), 1) == 1.4 and round(max(large), 1) == 1.7
gains = [point["ms"]["chain"] / point["ms"]["totals"] for point in points]
assert min(gains) >= 0.9 and round(max(gains), 1) == 1.5
short = [point for point, _ in rows_of["rows"] if point["shape"][1] <= 16384]
assert all(strategies.winners(point)[0][0] == "block" for point in short)
walks = [point["ms"]["thread"] / least for point, least in zip(points, best, strict=True) if point["ms"]["thread"]]
assert min(walks) >= 1.3 and not any("thread" in strategies.winners(point)[0] for point in points)
corner = [point["shape"][2] for point in points if set(strategies.winners(point)[0]) <= {"chain", "totals"}]
assert set(corner) == {4} and len(rows_of["columns"]) > len(corner)
print("5.12 holds")

# %% [markdown]
# *(The source: "up to a few thousand steps two passes are good enough; for tens of thousands scan between the chunks by
# a tree, or in two levels; the single pass is serial from block to block, and its tail shows." The tree does beat the
# chain. But a few thousand steps need no second pass, and the single pass need not be serial: measured otherwise.)*

# %% [markdown]
# `ssmlab.scan` chooses by such measurements (they stand in `scan_table.json`), and `explain` tells what it
# would do. For a single row it knows one way more, which came after these maps: `"relay"`, a look-back in which nobody
# looks. With some hundred blocks waiting, each reading what all the others have posted, the readers hinder one another;
# there one warp alone reads the totals, walks the state through them and posts what each tile waits for, a word for each.
# Here, on this machine:

# %% tags=["nbval-ignore-output"]
for length, channels in (2048, 1536), (65536, 64), (2**20, 1):
    print(explain(*torch.zeros(2, 1, length, channels, device=device)))

# %% [markdown]
# ## 10. Cut anywhere
#
# A row that was cut into chunks can as well be cut into *calls*: today 40 steps, tomorrow 57. What goes from one to
# the other is again nothing but the state. `scan` takes an initial state and hands back the final one.
#
# And in training? The gradient takes the same way back. What arrives at the final state of the first piece is how
# much the second piece cared about it, and it has to flow on into the first piece's a and b.
#
# **Claim 5.13** A row of 97 steps, cut at any of its 98 places: h, the final state, and the gradients with respect to
# a, b and the start are those of the uncut row.

# %%
# check 5.13
a, b = (torch.tensor(array, requires_grad=True, device=device)
        for array in (rng.uniform(0.5, 1, (1, 97, 3)), rng.normal(size=(1, 97, 3))))
start = torch.zeros(1, 3, dtype=torch.float64, device=device, requires_grad=True)
care, care_last = (torch.tensor(rng.normal(size=shape), device=device) for shape in ((1, 97, 3), (1, 3)))


def in_two_pieces(cut):
    first, middle = scan(a[:, :cut], b[:, :cut], start, return_final_state=True)
    second, last = scan(a[:, cut:], b[:, cut:], middle, return_final_state=True)
    return torch.cat([first, second], dim=1), last


def with_gradients(h, last):
    loss = (care * h).sum() + (care_last * last).sum()
    return h, last, *torch.autograd.grad(loss, (a, b, start))


whole = with_gradients(*scan(a, b, start, return_final_state=True))
for cut in range(98):
    for got, uncut in zip(with_gradients(*in_two_pieces(cut)), whole, strict=True):
        assert torch.max(torch.abs(got - uncut)) <= 1e-12 * torch.max(torch.abs(uncut))
print("5.13 holds")

# %% [markdown]
# ## 11. Break it
#
# *Use the board twice.* The flags of the last launch are still up. Why clear them, they will go up anyway? What do
# you expect of h, and of the report?

# %%
inputs, want = problem(1, 128)
kernel, grid, block, arguments = one_pass(text4, *inputs, 32)
arguments[-1].fill_(1)                                      # the flags, as a launch leaves them
report = check(kernel, grid, block, arguments, resident=4)
print("right" if is_right(report.arrays[2], want) else "WRONG")
print(report.findings[0])

# %% [markdown]
# Here the values came in time, by luck. On a GPU a block may read the value of the *last* launch, and if both
# launches got the same inputs, no test will ever notice.
#
# *Swap the pair.* In the chain, multiply with B and add A: `state = total[at].y * state + total[at].x`. There is no
# race and no wrong index. Who can find this?

# %%
swapped = edited(text2, ("total[at].x * state + total[at].y", "total[at].y * state + total[at].x"))
h, total, before, launches = two_passes(compiled(swapped, "chunks_v2_carry", 4), *eight, 4)
print("the report:", "silent" if all(check(k, (g,), (t,), args).ok for k, g, t, args in launches) else "speaks")
print(blame(h.cpu().numpy()[0]))

# %% [markdown]
# Only the numbers. The report knows who touched what and when, not what you meant. So each kernel needs both: a
# report that is silent, and a comparison with the loop, at a size where mistakes show. This mistake is on nobody's
# list, but the state that chunk 1 began from tells enough: 33.0625 is 4⅛ · 8 + ¹⁄₁₆, the pair the wrong way round.
#
# Break more of them: `int k = 1` in the loop of the chain, `mine` in place of `earlier` in the last lines of v3, or
# `found != STATE` in the look-back of v5. Which of the two will tell, the report or the numbers?
#
# ## 12. Exercises
#
# Each starts from a kernel of this notebook. Edit the text, run both cells. The check looks at the numbers *and* at
# the report. Keep the names of the kernels.
#
# **5.A Hand over the end.** To cut a row into calls, one needs the state behind its last step. Let
# `chunks_v2_carry` give it: one more parameter at the end, `float* last`, with a place for each row. *Budget:* one
# line in the body.
#
# <details><summary>Hint</summary>
#
# What does `state` hold when the loop is over? And if there is no chunk at all?
#
# </details>

# %% tags=["exercise", "nbval-ignore-output"]
my_last = lab.kernel_cell(r'''// chunks_v2 -- scan long rows in chunks, in two passes; in between a serial chain makes the carries.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v1   a row is cut into chunks, a block each. Totals first, then carries, then every chunk again with its carry.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Blelloch 1990, 1.3.
//
// Mapping    totals, finish: grid = rows * chunks, block = CHUNK threads; block r * chunks + k owns chunk k of row r.
//            carry: thread i of the grid owns row i.
// Layout     a, b, h: (rows, length); total, before: (rows, chunks); chunks = ceil(length / CHUNK).
// Limits     CHUNK a power of two in [2, 1024].
// Global     totals reads 8 B, finish reads 8 B and writes 4 B a step: 20 B where 12 would do.
// Barriers   B0 each round of scan_chunk: log2(CHUNK) in totals and in finish; none in carry.
// compile: -DCHUNK=256

#include "chunk.cuh"

// First pass: what each chunk does to a state.
extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v2_totals(const float* a, const float* b, float2* total, int length, int chunks) {
    const int row = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;
    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());
    if (threadIdx.x == CHUNK - 1) {
        total[blockIdx.x] = mine;
    }
}

// Between the passes: the state before each chunk, one after another.
extern "C" __global__
void chunks_v2_carry(const float2* total, const float* start, float* before, int rows, int chunks) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float state = start[row];
    for (int k = 0; k < chunks; ++k) {
        const int at = row * chunks + k;
        before[at] = state;                                 // written before total k is applied
        state = total[at].x * state + total[at].y;
    }
}

// Second pass: the chunk again, from the state before it.
extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v2_finish(const float* a, const float* b, const float* before, float* h, int length, int chunks) {
    const int row = blockIdx.x / chunks;
    const int chunk = blockIdx.x % chunks;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;
    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());
    if (step < length) {
        h[at] = mine.x * before[blockIdx.x] + mine.y;
    }
}
''', mirrors="chunks_v2_chain.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("5.A", my_last)

# %% [markdown]
# **5.B No fence.** A word of 64 bits arrives as a whole. Put flag *and* state into one: 32 bits each. The last two
# parameters of `chunks_v4`, `after` and `ready`, become one: `unsigned long long* word`, all 0 at the start.
# *Budget:* no `__threadfence()`.
#
# <details><summary>Hint</summary>
#
# `__float_as_uint` turns a float into its 32 bits and `__uint_as_float` turns them back; a state may well be 0, so
# the flag needs bits of its own. Write with `atomicExch(&word[…], …)`, look with `atomicAdd(&word[…], 0ull)`: both
# touch the word as a whole, and really each time.
#
# </details>

# %% tags=["exercise", "nbval-ignore-output"]
my_word = lab.kernel_cell(r'''// chunks_v4 -- scan long rows in chunks, in a single pass: each block waits for its left neighbour's state.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v3   one launch and one read: a chunk waits in registers for its state. But the states still come one by one.
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.
//
// Mapping    grid = rows * chunks, block = CHUNK threads. A block draws a ticket: its place in the order in which
//            blocks start. Ticket n is chunk n / rows of row n % rows: a block only waits for earlier ones.
// Layout     a, b, h: (rows, length); after, ready: (rows, chunks); ticket and ready must be 0 at the start.
// Limits     CHUNK a power of two in [2, 1024].
// Global     reads 8 B, writes 4 B a step, and 8 B a chunk for the board.
// Barriers   B0 each round of scan_chunk; B1 ticket; B2 carry: log2(CHUNK) + 2.
// compile: -DCHUNK=256

#include "chunk.cuh"

extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v4(const float* a, const float* b, float* h, const float* start, int rows, int length, int chunks,
               int* ticket, float* after, volatile int* ready) {
    __shared__ int number;
    __shared__ float carry;
    if (threadIdx.x == 0) {
        number = atomicAdd(ticket, 1);
    }
    __syncthreads();                                        // B1: the ticket is drawn before anyone reads it
    const int row = number % rows;
    const int chunk = number / rows;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;

    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());

    if (threadIdx.x == CHUNK - 1) {                         // the thread that holds the chunk's total
        const int here = row * chunks + chunk;
        float before = start[row];
        if (chunk > 0) {
            while (ready[here - 1] == 0) {}                 // flag: an earlier ticket, so its block is running
            __threadfence();                                // the flag is read before the value
            before = after[here - 1];
        }
        after[here] = mine.x * before + mine.y;             // value
        __threadfence();                                    // fence: the value is visible before the flag
        ready[here] = 1;                                    // flag
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone reads it

    if (step < length) {
        h[at] = mine.x * carry + mine.y;
    }
}
''', mirrors="chunks_v4_handover.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("5.B", my_word)

# %% [markdown]
# **5.C A warp looks back.** One thread asks for one flag after another; each answer takes as long as a walk to the L2
# and back. Let all 32 lanes of the last warp look at once, each at another chunk. *Budget:* to step over 40 totals,
# the flags are asked for in two requests, not in 41. (A request is one instruction of one warp.) The walk forward over
# the values may stay as it is.
#
# <details><summary>Hint</summary>
#
# Lane l looks at chunk − 1 − l, and waits until that one has posted something. In front of the row everyone finds a
# state: the start. `__ballot_sync(0xffffffffu, found == STATE)` hands every lane a word with a bit for each lane, and
# `__ffs` finds the lowest bit: the nearest state. No bit? Then all look 32 chunks further left.
#
# </details>
#
# <details><summary>Second hint</summary>
#
# All lanes must come to the ballot: the `if` around the call becomes `threadIdx.x >= CHUNK - 32`, and what only one
# thread may do (posting) stays with `threadIdx.x == CHUNK - 1`. And a ballot orders no memory (claim 4.8 again): a value
# may be read by another lane than the one that saw its flag, so each lane makes its fence, then `__syncwarp()`, then
# the values are read. The check uses chunks of 32 steps and more.
#
# </details>

# %% tags=["exercise", "nbval-ignore-output"]
my_warp = lab.kernel_cell(r'''// chunks_v5 -- scan long rows in chunks, in a single pass: nobody waits for a state, totals are posted and looked up.
//
// What       h[t] = a[t] * h[t-1] + b[t] for each row, from h[-1] = start[row].
// Since v4   a chunk posts its total as soon as it has it. Whoever needs the state before a chunk looks back over
//            totals to the nearest state that is posted, and walks forward from there (decoupled look-back).
// Used in    notebook 05.  Oracle: ssmlab.reference.scan.  Source: Merrill & Garland 2016, NVR-2016-002.
//
// Mapping    grid = rows * chunks, block = CHUNK threads; tickets as in v4.
// Layout     a, b, h: (rows, length); total, after, flag: (rows, chunks); ticket and flag must be 0 at the start.
// Limits     CHUNK a power of two in [2, 1024].
// Global     reads 8 B, writes 4 B a step, and 20 B a chunk for the board.
// Barriers   B0 each round of scan_chunk; B1 ticket; B2 carry: log2(CHUNK) + 2.
// Rounding   state k is always total k applied to state k - 1, wherever the walk begins: the same bits in every run.
// compile: -DCHUNK=256

#include "chunk.cuh"

constexpr int TOTAL = 1, STATE = 2;                         // flags; 0: nothing is posted yet

// Value, fence, flag: who sees the flag may read the value.
__device__ __forceinline__ void post(volatile int* flag, int what) {
    __threadfence();
    *flag = what;
}

// The state before `chunk`; the flags and values of its row begin at `first`.
__device__ float look_back(const float2* total, const float* after, volatile int* flag, int first, int chunk,
                           float start) {
    int found = 0;
    int k = chunk - 1;
    while (k >= 0) {                                        // back, until a state is found
        do {
            found = flag[first + k];
        } while (found == 0);
        if (found == STATE) {
            break;
        }
        --k;
    }
    __threadfence();                                        // the flags are read before the values
    float state = k >= 0 ? after[first + k] : start;
    for (++k; k < chunk; ++k) {                             // forward again, over the totals in between
        state = total[first + k].x * state + total[first + k].y;
    }
    return state;
}

extern "C" __global__ __launch_bounds__(CHUNK)
void chunks_v5(const float* a, const float* b, float* h, const float* start, int rows, int length, int chunks,
               int* ticket, float2* total, float* after, volatile int* flag) {
    __shared__ int number;
    __shared__ float carry;
    if (threadIdx.x == 0) {
        number = atomicAdd(ticket, 1);
    }
    __syncthreads();                                        // B1: the ticket is drawn before anyone reads it
    const int row = number % rows;
    const int chunk = number / rows;
    const int step = chunk * CHUNK + threadIdx.x;
    const long long at = row * (long long)length + step;

    const float2 mine = scan_chunk(step < length ? make_float2(a[at], b[at]) : identity());

    if (threadIdx.x == CHUNK - 1) {                         // the thread that holds the chunk's total
        const int here = row * chunks + chunk;
        total[here] = mine;
        post(flag + here, TOTAL);
        const float before = look_back(total, after, flag, row * chunks, chunk, start[row]);
        after[here] = mine.x * before + mine.y;
        post(flag + here, STATE);
        carry = before;
    }
    __syncthreads();                                        // B2: the carry is written before anyone reads it

    if (step < length) {
        h[at] = mine.x * carry + mine.y;
    }
}
''', mirrors="chunks_v5_lookback.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("5.C", my_warp)

# %% [markdown]
# ## What we now know
#
# - A chunk begins from the total of the chunk before it, applied to that one's own beginning (5.1, *holds*). A wrong
#   carry is named by the first bad step, if the test begins from a state (5.2, *holds with a condition*).
# - A thread a row moves the fewest bytes (5.3), but needs far more rows than one thinks (5.4, *measured otherwise*).
# - Two passes read four numbers a step and write one (5.5). The carries in between are a scan of their own (5.6).
# - One pass reads two and writes one (5.9). It needs tickets, or it hangs (5.7), and value, fence, flag (5.8). With
#   look-back a block that is held up holds up nobody (5.10).
# - On the clock the way of the carries matters if rows are few, and not if they are many (5.11, *measured otherwise*).
#   Up to some ten thousand steps a block walks the row, beyond that look-back wins; two passes win in a corner (5.12,
#   *measured otherwise*).
# - A row can be cut anywhere, for its gradients, too (5.13).
#
# *Still untrue or slow.* Our chunks have a step for each thread and eight to ten barriers; with many rows that takes the time,
# whatever the carries do. `ssmlab.scan` gives a thread several steps; notebook 13 measures how far that gets. And in a
# real model a and b are not there to be read: they are made from something smaller.
#
# *Next:* [06 · What does selectivity break, and what survives?](06_selective_scan.ipynb)
#
# *Sources.* D. Merrill, M. Garland: Single-pass parallel prefix scan with decoupled look-back, NVIDIA NVR-2016-002, 2016.
# G. E. Blelloch: Prefix sums and their applications, 1990 (section 1.3: sums in chunks). S. Chatterjee, G. E.
# Blelloch, M. Zagha: Scan primitives for vector computers, 1990. E. Martin, C. Cundy: Parallelizing linear recurrent
# neural nets over sequence length, 2018. NVIDIA: CUDA C++ programming guide (memory fence functions).
