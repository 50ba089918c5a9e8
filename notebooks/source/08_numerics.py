# %% [markdown]
# # 08 · When do small numbers hurt?
#
# A scan multiplies decays with each other, hundreds of them, until nothing is left that a float can hold. People
# worry about that, and cut their chunks shorter. Should they? This notebook takes the worries one by one, lets each
# do its worst, and measures. Some turn out to be harmless. Others, which nobody worried about, do not.
#
# *You will be able to*
#
# - **tell** a product that may safely vanish from one that must not;
# - **predict** how the error of a loop, a tree and a compensated sum grows with the length, and choose between them;
# - **derive** the tolerance of a test, and say which of two kernels with different last bits is wrong: often neither.
#
# *Needs:* notebooks 01, 02 and 04 (pairs, trees, the block scan), no GPU. About 75 minutes.

# %% tags=["nbval-ignore-output"]
import json
import math
from decimal import Context, Decimal

import matplotlib.pyplot as plt
import numpy as np
import torch
from hypothesis import strategies as st

import ssmlab
from ssmlab import RawKernel, check, lab, reference, tolerance
from ssmlab.lab import compensated, notebooks, numerics, pairs
from ssmlab.lab.laws import check_laws
from ssmlab.lab.rounding import flushed, root_mean_square, to_bfloat16, to_bfloat16_at_random, to_float16, ulps
from ssmlab.monoid import AFFINE, LOG_AFFINE, SCALED_AFFINE, SUM, Monoid, chunked, hillis_steele
from ssmlab.monoid.ranges import log2_of, scaled, unscaled

lab.setup()
lab.here()
device = lab.device()
rng = np.random.default_rng(8)

# %% [markdown]
# ## 1. A machine with two digits
#
# Imagine a machine that keeps two decimal digits of every result, and exponents from −3 to 3. It adds 1.0 and seven
# times 0.04. By hand that is 1.28, so 1.3 would be as good as the machine can say. In a loop it goes like this:
#
#     1.0 + 0.04 = 1.04, keep two digits: 1.0        and again: 1.0, 1.0, 1.0, …
#
# Seven small numbers, each of them **swallowed**. In pairs it goes better:
#
#     1.0 + 0.04 → 1.0    0.04 + 0.04 = 0.08    0.08    0.08
#     1.0 + 0.08 → 1.1    0.08 + 0.08 = 0.16
#     1.1 + 0.16 → 1.3
#
# Now products of 0.1. The first three are fine, 0.0001 has one digit left, and the fifth **vanishes**: the machine
# has no number between 0 and 0.0001. But look at the state hₜ = 0.1 · hₜ₋₁ + 1. It is 1, 1.1, 1.1, 1.1 …, right to
# its last digit, no matter what became of the product.

# %%
machine = Context(prec=2, Emin=-3, Emax=3)
numbers = [Decimal("1.0")] + 7 * [Decimal("0.04")]


def add_in_a_loop(numbers):
    total = numbers[0]
    for number in numbers[1:]:
        total = machine.add(total, number)
    return total


def add_in_pairs(numbers):
    while len(numbers) > 1:
        numbers = [machine.add(x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers[0]


assert sum(numbers) == Decimal("1.28")
assert (add_in_a_loop(numbers), add_in_pairs(numbers)) == (Decimal("1.0"), Decimal("1.3"))

product, h, tenth, seen = Decimal(1), Decimal(0), Decimal("0.1"), []
for _ in range(6):
    product, h = machine.multiply(product, tenth), machine.add(machine.multiply(tenth, h), 1)
    seen.append((product, h))
assert [float(p) for p, _ in seen] == [0.1, 0.01, 0.001, 0.0001, 0, 0]
assert [float(h) for _, h in seen] == [1, 1.1, 1.1, 1.1, 1.1, 1.1]

# %% [markdown]
# So a small number can be hurt in three ways. It can **vanish**, alone, below the least number there is. It can be
# **swallowed** by a large one beside it. And each result is rounded, and the roundings **drift**. We take them in
# this order, with the machines that we have:
#
# | format | digits | smallest normal number | smallest number at all | largest |
# |---|---|---|---|---|
# | float32 | 24 bits | 2⁻¹²⁶ ≈ 1.2e-38 | 2⁻¹⁴⁹ | 3.4e38 |
# | bfloat16 | 8 bits | 2⁻¹²⁶ | 2⁻¹³³ | 3.4e38 |
# | float16 | 11 bits | 2⁻¹⁴ ≈ 6.1e-5 | 2⁻²⁴ | 65504 |
# | float64 | 53 bits | 2⁻¹⁰²² | 2⁻¹⁰⁷⁴ | 1.8e308 |
#
# Between the smallest normal and the smallest number lie the **subnormals**, which have fewer and fewer digits. An
# **ulp** is one unit in the last place, the distance to the next number.

# %%
for dtype, normal, least in ((torch.float32, -126, -149), (torch.bfloat16, -126, -133), (torch.float16, -14, -24),
                             (torch.float64, -1022, -1074)):
    info = torch.finfo(dtype)
    assert info.tiny == 2.0**normal and info.tiny * info.eps == 2.0**least

# %% [markdown]
# ## 2. The product vanishes
#
# In a Mamba layer a step's decay is a = exp(ΔA), with ΔA < 0. A chunk of 256 equal steps multiplies to exp(256 ΔA).
# The article behind this workbook warns: with ΔA = −0.05 that is 2.8e-6, still fine, but with ΔA = −0.3 it is
# 4e-34, "close to the subnormals, precision falls off a cliff". Its cure is to keep chunks short.
#
# **Claim 8.1** exp(256 · −0.05) is 2.76e-6 and exp(256 · −0.3) is 4.43e-34. Both are normal float32 numbers with all
# their digits. The product of a chunk of 256 leaves the normals at ΔA < −0.341.

# %%
# check 8.1
def running_product(exponent, steps=256):
    """exp(exponent) multiplied with itself, in float32, after each step."""
    return np.multiply.accumulate(np.full(steps, np.exp(np.float32(exponent))))


assert [f"{math.exp(256 * x):.2e}" for x in (-0.05, -0.3)] == ["2.76e-06", "4.43e-34"]
normal = np.finfo(np.float32).tiny
assert round(math.log(normal) / 256, 3) == -0.341
assert [bool(running_product(x)[-1] >= normal) for x in (-0.05, -0.3, -0.340, -0.342)] == [True, True, True, False]
print("8.1 holds")

# %% [markdown]
# And the state? We scan 256 steps with Hillis-Steele, whose pairs carry exactly these products, for decays from mild
# to brutal.

# %%
exponents = -0.05, -0.3, -0.6, -2.0, -30.0
inputs = rng.uniform(0, 1, (256, 64)).astype(np.float32)
trees, exact = {}, {}
for x in exponents:
    a = np.full_like(inputs, np.exp(np.float32(x)))
    trees[x] = hillis_steele(AFFINE, (a, inputs)).values              # (products, states)
    exact[x], _ = reference.scan(a, inputs, dim=0)                    # float64

# %%
fig, ax = lab.figure("step t", "size")
steps = np.arange(1, 257)
for x, color in zip(exponents[:3], ("hillis", "blelloch", "chunk"), strict=True):
    product, h = trees[x]
    ax.semilogy(steps, np.exp(x * steps), ":", lw=1, color=lab.COLORS[color])
    ax.semilogy(steps, np.where(product[:, 0] > 0, product[:, 0], np.nan), color=lab.COLORS[color], label=f"ΔA = {x}")
    ax.semilogy(steps, h[:, 0], color=lab.COLORS[color], lw=1)
ax.axhspan(2.0**-149, 2.0**-126, color=lab.COLORS["shared"], alpha=0.25)
ax.text(4, 2e-42, "subnormals", color=lab.COLORS["soft"])
ax.text(150, 1e4, "the states h", color=lab.COLORS["soft"])
ax.set(ylim=(1e-70, 1e8), yticks=[1, 1e-20, 1e-40, 1e-60])
ax.legend(loc="lower left")
plt.show()

# %% [markdown]
# Look at the green line: the product falls through the subnormals (the orange band) and ends there, while the exact
# one (dotted) goes on. Then look at the thin lines on top, the states. Nothing happens to them.
#
# Why? In hₜ = Pₜ · hₛ + (what came after step s) the lost part is Pₜ · hₛ. If Pₜ < 2⁻¹²⁶, this is smaller than the
# last digit of hₜ, unless hₜ is 2¹⁰⁰ times smaller than hₛ was. A product that vanishes says "forgotten", and that
# is true.
#
# **Claim 8.2** At chunk 256 the state is right to 4 ulp from ΔA = −0.05 to −30, where the product is 0 from the
# fourth step on. *Corrected:* no precision is lost, and a shorter chunk gains nothing.

# %%
# check 8.2
assert np.argmax(trees[-30.0][0][:, 0] == 0) == 3
for x in exponents:
    assert np.max(np.abs(ulps(trees[x][1], exact[x]))) <= 4
print("8.2 holds")

# %% [markdown]
# ### Flush to zero
#
# Subnormals cost extra circuits, so GPUs offer to do without: with the compiler option `-ftz=true` a subnormal
# result becomes 0. CuPy always sets that option. A CPU keeps subnormals, and so does the checked mode, which runs
# there. Here is a kernel that multiplies exp(−1) with itself, on the CPU; beside it what an H200 made of the same
# text.

# %%
stored = json.loads((notebooks.RESULTS / "numerics_h200.json").read_text(encoding="utf-8"))
on_gpu = numerics.tiny() if device == "cuda" else stored["tiny"]
p, h = np.zeros((2, 120), np.float32)
kernel = RawKernel(numerics.DIVIDE, "divide", options=("-DKEEP=0",))
report = check(kernel, (1,), (1,), (np.exp(np.full(120, -1, np.float32)), p, h, 120))
_, p, h, _ = report.arrays
rows = {"CPU, checked mode": {"product no longer normal": int(np.argmax(p < normal)),
                              "product zero": int(np.argmax(p == 0)),
                              "h not finite": int(np.argmax(~np.isfinite(h)))}, **on_gpu}
for name, row in rows.items():
    print(f"{name:19}", ", ".join(f"{what} at index {index}" for what, index in row.items()))

# %% [markdown]
# (Forget the last column for a minute. "Subnormals kept" is the same GPU with two instructions of the kernel written
# by hand, so it can keep them if it is asked to.)
#
# **Claim 8.3** Compiled by CuPy, a product on a GPU is 0 as soon as it leaves the normals, 16 steps before the CPU's
# at one e-fold a step. The states have the *same bits* either way.

# %%
# check 8.3
assert report.ok and rows["CPU, checked mode"]["product zero"] == 103
assert rows["as CuPy compiles it"]["product zero"] == 87 == rows["as CuPy compiles it"]["product no longer normal"]
assert rows["subnormals kept"]["product zero"] == 103


def flushing(first, second):
    (a1, b1), (a2, b2) = first, second
    return flushed(a2 * a1), flushed(flushed(a2 * b1) + b2)


for x in exponents:
    a = np.full_like(inputs, np.exp(np.float32(x)))
    products, states = hillis_steele(Monoid("flushing", flushing, identity=(1, 0)), (a, inputs)).values
    assert np.array_equal(states, trees[x][1])
    assert np.array_equal(products, trees[x][0]) == (x > -0.341)
print("8.3 holds")

# %% [markdown]
# ### Gradients
#
# The gradient of a late state with respect to an early input *is* the product, so it vanishes with it. In float32
# nothing that matters is lost: whoever adds such a gradient to another one would not see it. In float16 it is
# different, because float16 ends at 2⁻²⁴. This is why people scale a loss by 2¹⁵ before they go backward, and divide
# it out afterwards.
#
# **Claim 8.4** With ΔA = −0.05, a gradient reaches back 347 steps in float16, 555 if the loss is scaled by 2¹⁵, and
# 2080 in float32. In bfloat16, which has the exponents of float32, it is 1858.

# %%
# check 8.4
def reach(dtype, scale=0):
    """After how many steps exp(-0.05 t) 2^scale rounds to zero."""
    exact = torch.exp(-0.05 * torch.arange(3000, dtype=torch.float64)) * 2.0**scale
    return int(torch.argmax((exact.to(dtype) == 0).int()))


assert [reach(torch.float16), reach(torch.float16, scale=15)] == [347, 555]
assert [reach(torch.float32), reach(torch.bfloat16)] == [2080, 1858]
print("8.4 holds")

# %% [markdown]
# ## 3. When it does hurt
#
# A vanished product hurts whoever wants the product *itself*. Three ways to want it:
#
# **Dividing by it.** With Pₜ = a₀ a₁ … aₜ the recurrence becomes a plain sum: hₜ = Pₜ · Σ bⱼ / Pⱼ. Two cumulative
# operations that every library has, no scan to write. It is tempting, and it is a trap. Take A = −1, Δ = 1, all
# inputs 1. Then 1 / Pₜ = exp(t + 1) grows until it overflows. The true states settle at 1.58.
#
# **Claim 8.5** Dividing by the running product fails at index 88 in float32, and in bfloat16, which has the same
# exponents. In float16 it is index 10, in float64 it is 709. (exp(88) is a float32, exp(89) is not; in float16 the
# sum overflows one step before its last term does.) On a GPU under flush-to-zero it comes one step earlier, because
# P is 0 there already.

# %%
# check 8.5
def first_failure(dtype, steps=1000):
    """The first index at which P * cumsum(1 / P) is not finite, all in `dtype`."""
    a = torch.full((steps,), -1.0, dtype=torch.float64).exp().to(dtype)
    product, total = torch.ones((), dtype=dtype), torch.zeros((), dtype=dtype)
    for t in range(steps):
        product = product * a[t]
        total = total + 1 / product
        if not torch.isfinite(product * total):
            return t
    return None


assert [first_failure(dtype) for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)] == [10, 88, 88, 709]
assert [rows[name]["h not finite"] for name in rows] == [88, 87, 88]
h, _ = reference.scan(np.full(200, math.exp(-1)), np.ones(200), dim=0)
assert abs(h[-1] - 1 / (1 - math.exp(-1))) < 1e-12
print("8.5 holds")

# %% [markdown]
# float64 only moves the wall: eight times further. With ΔA = −8 it stands at index 88 again.
#
# **Dividing one state by another.** A weighted mean runs two recurrences with the same decays, n = Σ of weight times
# value and d = Σ of weights, and gives n / d. Let the first step have weight 1 and value 3, and then comes padding
# with weight 0. The mean stays 3 for ever. n and d decay.
#
# **A huge state.** hₛ = 2¹⁰⁰ and then 67 steps of ⅛ make 2⁻¹⁰¹, a perfectly normal number. The loop gets there. In
# the tree the decays meet each other first.
#
# **Claim 8.6** The mean of two decaying states breaks at index 150, in a loop as in a tree: there it is the state
# that vanishes. The huge state breaks in the tree alone, at index 64, where the loop is right up to its last
# subnormal.

# %%
# check 8.6
mean_steps, weights = 600, np.zeros(600, np.float32)
weights[0] = 1
halves = np.full(mean_steps, 0.5, np.float32)
n, d = (hillis_steele(AFFINE, (halves, value * weights)).values[1] for value in (3, 1))
with np.errstate(divide="ignore", invalid="ignore"):
    mean = n / d

eighths, huge = np.full(100, 1 / 8, np.float32), np.zeros(100, np.float32)
huge[0] = 2.0**100
in_a_tree = hillis_steele(AFFINE, (eighths, huge)).values[1]
in_a_loop = compensated.loop(eighths[:, None], huge[:, None])[:, 0]

assert np.all(mean[:150] == 3) and np.isinf(mean[150]) and np.isnan(mean[-1])
assert np.array_equal(compensated.loop(halves[:, None], weights[:, None])[:, 0], d)
right = np.ldexp(1.0, 100 - 3 * np.arange(100)).astype(np.float32)
assert np.array_equal(in_a_loop, right) and right[64] == 2.0**-92
assert np.argmax(in_a_tree != right) == 64 and in_a_tree[64] == 0
print("8.6 holds")

# %% [markdown]
# ## 4. Two cures, built
#
# The article proposes two. **Logarithms:** keep log a and add instead of multiplying. For Mamba log a = ΔA is there
# before a is. **An exponent offset:** keep a small number as (x, e), meaning x · 2ᵉ with ½ ≤ |x| < 1. After each
# multiplication x is brought back into that range and the shift goes into e.
#
# Both are other ways to write down the same steps, and so they should be monoids. In `ssmlab.monoid` they are
# `LOG_AFFINE`, with pairs (log a, b), and `SCALED_AFFINE`, with pairs of such numbers, one for a and one for b.

# %%
(x, e), _ = SCALED_AFFINE.combine((scaled(0.75), scaled(0.0)), (scaled(0.125), scaled(0.0)))
assert x * 2.0**e == 0.75 * 0.125
print("0.75 · 0.125 =", x, "· 2 to the", e)
small = st.sampled_from([0.0, 0.25, 0.5, -0.75, 1.0, 3.0, 2.0**-700, 2.0**700])     # their products and sums are exact
scaled_steps = st.tuples(small.filter(lambda a: abs(a) != 3), small.map(lambda b: b if abs(b) < 4 else 0.0)).map(
    lambda step: tuple(map(scaled, step)))
print(check_laws(SCALED_AFFINE, scaled_steps, equal=lambda p, q: repr(p) == repr(q)))

# %% [markdown]
# **Claim 8.7** The exponent offset cures all of section 3: one may divide by P, the mean stays 3, the huge state is
# right. Where plain pairs stay in range, it has *the same bits* as they have: it is about range and nothing else. The
# logarithm cures less: log P is known at any depth, but exp(log P) · h is 0 as before.

# %%
# check 8.7
ones = np.ones(1000, np.float32)
P, _ = hillis_steele(SCALED_AFFINE, (scaled(ones * np.exp(np.float32(-1))), scaled(0 * ones))).values
_, total = hillis_steele(SCALED_AFFINE, (scaled(ones), (1 / P[0], -P[1]))).values          # sums of 1 / P
assert abs(unscaled((P[0] * total[0], P[1] + total[1]))[-1] - 1.5819767) < 1e-3 and log2_of(P)[-1] < -1442

n, d = (hillis_steele(SCALED_AFFINE, (scaled(halves), scaled(value * weights))).values[1] for value in (3, 1))
assert np.all(unscaled((n[0] / d[0], n[1] - d[1])) == 3)
P, h = hillis_steele(SCALED_AFFINE, (scaled(eighths), scaled(huge))).values
assert np.array_equal(unscaled(h), right) and log2_of(P)[-1] == -300
log_P, h = hillis_steele(LOG_AFFINE, (np.log(eighths), huge)).values
assert round(log_P[-1] / math.log(2)) == -300 and h[67] == 0

a = rng.uniform(0.5, 1, (100, 64)).astype(np.float32)
plain = hillis_steele(AFFINE, (a, inputs[:100])).values[1]
assert np.array_equal(unscaled(hillis_steele(SCALED_AFFINE, (scaled(a), scaled(inputs[:100]))).values[1]), plain)
print("8.7 holds")

# %% [markdown]
# ### As kernels
#
# Notebook 04's double-buffered scan knows its pairs only through `then` and `identity`. So the edits are short. The
# logarithm needs another `then`; the offset needs four words a pair, two numbers and their exponents. `then` takes the
# exponent out of the bits of a float and puts another one in.

# %%
print(pairs.LOG)
print(pairs.OFFSET, end="")

# %% [markdown]
# **Claim 8.8** All three scan right and without a finding. The offset takes twice the shared memory and twice the
# trips, for a range without end. The logarithm takes the bytes of the plain pair and an exponential a combine, 1793
# of them for 256 steps.

# %%
# check 8.8
def checked_pairs(kind, a, b):
    """The report on one row of up to 256 steps; a is always the decay itself."""
    gates = np.log(a) if kind == "log" else a
    return check(pairs.scan_kernel(kind), (1,), (256,), (gates, b, np.full_like(b, np.nan), b.size))


row_a, row_b = rng.uniform(0.5, 1, (1, 256)).astype(np.float32), rng.normal(size=(1, 256)).astype(np.float32)
loop, _ = reference.scan(row_a, row_b)
print("pairs   bytes shared  wavefronts  huge state")
reports = {}
for kind in "plain", "log", "offset":
    reports[kind] = checked_pairs(kind, row_a, row_b)
    shared = [line for line in reports[kind].lines if line.space == "shared"]
    far = checked_pairs(kind, eighths[None], huge[None]).arrays[2][0, 67]
    print(f"{kind:8}{reports[kind].shared_bytes:12}{sum(line.wavefronts for line in shared):12}  "
          f"{'right' if far == right[67] else 'lost'}")

for report in reports.values():
    assert report.ok and np.max(np.abs(report.arrays[2] - loop)) <= 4e-6 * np.max(np.abs(loop))
assert [reports[kind].shared_bytes for kind in reports] == [4096, 4096, 8192]
loud = pairs.scan_text("log").replace("second) {", 'second) { printf("*");')
stars = check(RawKernel(loud, "block_scan_v2", options=("-DTILE=256",)), (1,), (256,), (row_a, row_b, row_b, 256))
assert stars.printf.count("*") == 1793
print("8.8 holds")

# %% tags=["nbval-ignore-output"]
costs = numerics.costs() if device == "cuda" else stored["costs"]
where = "this GPU" if device == "cuda" else f"{stored['device']}, {stored['date']}"
for kind in "plain", "log", "offset":
    share = costs[f"{kind} [ms]"] / costs["plain [ms]"]
    print(f"{kind:7} {costs[f'{kind} [ms]']:.3f} ms, {share:.2f} × plain   ({where}: {costs['rows']} rows of 256 steps)")

# %% [markdown]
# On the H200 the logarithm took a fifth more time than the plain pair, the offset 2.7 times as long. So when is a cure
# worth it? Never for h alone (claim 8.2). The exponent offset, where you divide by a state or by a product. The
# logarithm has another virtue, and it will surprise us in section 6.
#
# ## 5. Roundings drift: sums
#
# Now to the third hurt. Every step rounds, by half an ulp at most. How do thousands of roundings add up? "float32
# sums of a few thousand terms err by about 1e-5", says the article, "use float64 or Kahan". And a rule that one often
# hears: loops err like √L, or like L if you are unlucky, and trees like log L.
#
# Our contestants, all of them on the same float32 inputs:
#
# - the **loop**, and the **tree** of Hillis and Steele;
# - **chunked**: loops of 64 steps, their totals chained;
# - **Kahan**: what an addition rounds off is kept, and given back with the next input;
# - **Neumaier**: the same, but kept apart to the end, and right also where an input is larger than the sum;
# - **float64** inside, float32 outside.
#
# They get 16384 random inputs in 32 rows. The same cell runs two kinds of decays for the next section, and keeps all
# errors.

# %%
T, rows_of = 2**14, 32
lengths = 2**np.arange(1, 15)
kinds = {
    "sums: a = 1": np.ones((T, rows_of)),
    "0.998 < a < 1, new each step": rng.uniform(0.998, 1, (T, rows_of)),
    "0.998 < a < 1, constant": np.tile(rng.uniform(0.998, 1, rows_of), (T, 1)),
}
ways = {
    "loop": compensated.loop,
    "tree": lambda a, b: hillis_steele(AFFINE, (a, b)).values[1],
    "chunked": lambda a, b: chunked(AFFINE, (a, b), chunk=64).values[1],
    "Kahan": compensated.kahan,
    "Neumaier": compensated.neumaier,
    "float64": compensated.in_float64,
}
many = rng.uniform(0, 1, (T, rows_of)).astype(np.float32)
drift, shares = {}, {}
for kind, gates in kinds.items():
    gates = gates.astype(np.float32)
    truth, _ = reference.scan(gates, many, dim=0)
    bound = tolerance.scan_bound(gates, many, dim=0)
    results = {way: run(gates, many) for way, run in ways.items()}
    drift[kind] = {way: root_mean_square(ulps(h, truth))[lengths - 1] for way, h in results.items()}
    shares[kind] = {way: np.max(np.abs(h - truth) / bound) for way, h in results.items()}

# %%
fig, axes = lab.figure("length L [steps]", "error [ulp, root mean square]", columns=3, width=10, height=3.6, sharey=True)
colors = dict(zip(ways, ("loop", "hillis", "chunk", "accent", "shared", "ink"), strict=True))
for ax, (kind, errors) in zip(axes, drift.items(), strict=True):
    for guide, label in ((lengths / 8, "L"), (np.sqrt(lengths) / 5, "√L"), (np.log2(lengths) / 20, "log L")):
        ax.loglog(lengths, guide, "--", lw=0.8, color=lab.COLORS["soft"], base=2)
        ax.text(lengths[-1] * 1.15, min(guide[-1], 900), label, color=lab.COLORS["soft"], fontsize=8, va="center")
    for way, error in errors.items():
        width = {"Kahan": 5, "Neumaier": 3}.get(way, 1.5)             # they lie on each other
        ax.loglog(lengths, error, color=lab.COLORS[colors[way]], label=way, base=2, lw=width)
    ax.set(title=kind, ylim=(0.15, 1200), yticks=[0.25, 1, 4, 16, 64, 256], yticklabels=[0.25, 1, 4, 16, 64, 256])
axes[0].legend(fontsize=8, loc="upper left")
plt.show()

# %% [markdown]
# Look at the left picture first. The loop follows √L. The tree grows so little that one cannot tell it from level.
# Chunks are in between. The last three lie on each other at 0.3 ulp: that is the rounding of the result itself, one
# cannot do better in float32.
#
# **Claim 8.9** *Sums.* At 16384 terms the loop errs 10 times more than the tree. Kahan, Neumaier and float64 stay below
# half an ulp at any length. *Holds with a condition:* in relative terms the loop errs by about 1e-6 here, by 2.4e-4
# in the worst case of 4096 terms, so 1e-5 is neither typical nor a bound; and a tree does nearly as well as the cures,
# free of charge. (Of 1 + 2¹⁰⁰ + 1 − 2¹⁰⁰ only Neumaier finds the 2. Such cases are rare, and made to be nasty.)

# %%
# check 8.9
four = np.array([[1], [2.0**100], [1], [-(2.0**100)]], np.float32)            # a nasty one: the sum is 2
totals = [int(way(np.ones_like(four), four)[-1, 0]) for way in (ways["float64"], ways["Kahan"], ways["Neumaier"])]
assert totals == [0, 0, 2]
sums = drift["sums: a = 1"]
assert sums["loop"][-1] > 10 * sums["tree"][-1] and np.max(sums["tree"]) < 1
assert all(np.max(sums[way]) < 0.5 for way in ("Kahan", "Neumaier", "float64"))
relative = sums["loop"][-1] * 2.0**-23
assert 5e-7 < relative < 5e-6 and f"{4096 * 2.0**-24:.1e}" == "2.4e-04"
print("8.9 holds")

# %% [markdown]
# ## 6. Roundings drift: decays near one
#
# Now the picture on the right, where each row has one constant decay. The tree is far *above* the loop, on a line
# that rises like L, until it bends. Notebook 01 met this and promised an explanation.
#
# A tree does something that the loop never does: it multiplies decays with each other. With a constant a it squares:
# a², a⁴, a⁸. The first squaring rounds, say by a factor 1 + d. The second squares this as well, (1 + d)² ≈ 1 + 2d, the
# third makes 4d of it. One early rounding is doubled, over and over. With decays that differ, the products of the
# first round have different errors, some up and some down, and they average. Here are the products alone:

# %%
powers = 2**np.arange(1, 11)
gates = rng.uniform(0.998, 1, (1024, 256)).astype(np.float32)
squared, level, in_turn = gates[0], gates, gates[0]
growth = {"squared again and again": [], "a tree of different decays": [], "one after the other": []}
for k in powers:
    squared, level = squared * squared, level[0::2] * level[1::2]
    for _ in range(k // 2):
        in_turn = in_turn * gates[0]
    if k == 2:
        in_turn = gates[0] * gates[0]
    power = gates[0].astype(float)**k
    tree_product = np.prod(gates[:k].astype(float), axis=0)
    for error, product, wanted in zip(growth.values(), (squared, level[0], in_turn), (power, tree_product, power)):
        error.append(root_mean_square((product - wanted) / wanted) * 2.0**24)

# %%
fig, ax = lab.figure("factors k", "relative error of the product [2⁻²⁴]")
for (name, error), color in zip(growth.items(), ("blelloch", "hillis", "loop"), strict=True):
    ax.loglog(powers, error, "o-", base=2, color=lab.COLORS[color], label=name)
for guide, label in ((powers / 6, "k"), (np.sqrt(powers) / 3.4, "√k")):
    ax.loglog(powers, guide, "--", lw=0.8, color=lab.COLORS["soft"], base=2)
    ax.text(powers[-1] * 1.08, guide[-1], label, color=lab.COLORS["soft"], va="center")
ax.set_yticks([0.25, 1, 4, 16, 64, 256], labels=[0.25, 1, 4, 16, 64, 256])
ax.legend()
plt.show()

# %% [markdown]
# Look at the slopes: squaring goes with k, the other two with √k. It ends where the state forgets: a tree's product
# of k factors counts only as long as it is not small, k ≲ 1 / (1 − a). That is the bend.
#
# **Claim 8.10** The error of aᵏ by squaring grows like k, that of k different factors in a tree like √k. So "trees
# grow like log L" is true of sums. With constant decays near one a tree is 10 times worse than the loop, with
# changing ones neither is. *Corrected.*

# %%
# check 8.10
slopes = {name: np.polyfit(np.log(powers), np.log(error), 1)[0] for name, error in growth.items()}
assert 0.9 < slopes["squared again and again"] < 1.1
assert all(0.4 < slopes[name] < 0.7 for name in ("a tree of different decays", "one after the other"))
constant, changing = drift["0.998 < a < 1, constant"], drift["0.998 < a < 1, new each step"]
assert constant["tree"][-1] > 5 * constant["loop"][-1] and np.max(constant["tree"]) > 10 * np.max(constant["loop"])
assert np.max(changing["tree"]) < 2 * np.max(changing["loop"])
print("8.10 holds")

# %% [markdown]
# ### Shorter chunks?
#
# If long products are to blame, then short chunks should help? Think of chunks of two steps. Their total a² has the
# one early rounding d in it, and the chain multiplies it in L / 2 times. That is the same sum. Only what the *loop*
# does is different, it never uses a product at all.
#
# And the logarithm? k · log a instead of aᵏ: an addition rounds relative to the sum, which for k (1 − a) ≲ 1 is a
# number around 1 or below. The error of the product is then an ulp or so, and not k of them.
#
# But now a fair comparison needs care. Where did a come from? From exp(ΔA), *rounded*. Near one a float32 is off by
# up to 2⁻²⁵. That is nothing for a and a lot for 1 − a, which decides how long the state remembers. The logarithm
# has not rounded yet. So we take the exact exp(ΔA) for the truth and look again.

# %%
log_gates = np.log(np.tile(rng.uniform(0.998, 1, rows_of), (T, 1))).astype(np.float32)
rounded = np.exp(log_gates)
truth, _ = reference.scan(np.exp(log_gates.astype(float)), many, dim=0)             # of the decays that were meant
given, _ = reference.scan(rounded, many, dim=0)                                     # of the decays that were rounded
contest = {
    "float64 loop, rounded decays": given,
    "loop": compensated.loop(rounded, many),
    "tree": ways["tree"](rounded, many),
    "tree of logarithms": hillis_steele(LOG_AFFINE, (log_gates, many)).values[1],
}
meant = {name: root_mean_square(ulps(h, truth))[lengths - 1] for name, h in contest.items()}
chunks = {size: chunked(AFFINE, (rounded, many), chunk=size).values[1] for size in (2, 16, 128, T)}
chunk_errors = {size: np.max(root_mean_square(ulps(h, given))) for size, h in chunks.items()}

# %%
fig, ax = lab.figure("length L [steps]", "error [ulp, root mean square]")
for (name, error), color in zip(meant.items(), ("ink", "loop", "hillis", "chunk"), strict=True):
    style = "--" if "float64" in name else "-"
    ax.loglog(lengths, error, style, base=2, color=lab.COLORS[color], label=name)
ax.set_yticks([1, 4, 16, 64, 256, 1024], labels=[1, 4, 16, 64, 256, 1024])
ax.legend()
plt.show()

# %% [markdown]
# Look how the three lie on each other, the float64 loop among them: the damage was done before the first step, when
# exp(ΔA) was rounded. Two thousand ulp are 2e-4. The tree of logarithms stays at one ulp.
#
# **Claim 8.11** For a constant decay near one, rounding exp(ΔA) to float32 costs more than all that loop, tree or
# float64 sums do afterwards. Keeping ΔA costs nothing, and a tree of logarithms is right to a few ulp at any length.
# Chunks of 2 are no better than one tree over everything.
#
# The *logarithm* of the article thus holds, for another reason than it gives. Our own kernels use it where they need
# the product of a whole segment: exp(A · ΣΔ), one exponential and no multiplications. (Trained models seldom need
# it: with a Δ that changes from step to step the roundings of exp(ΔA) average, or nearly so, see section 9. A filter
# with a fixed decay does.)

# %%
# check 8.11
end = {name: error[-1] for name, error in meant.items()}
assert end["float64 loop, rounded decays"] > 100 * end["tree of logarithms"]
assert np.max(meant["tree of logarithms"]) < 4
assert 0.5 < end["loop"] / end["float64 loop, rounded decays"] < 2
assert chunk_errors[2] > 0.5 * chunk_errors[T]
print("8.11 holds")

# %% [markdown]
# One warning goes with logarithms: *add them, never subtract them.* It is tempting to scan ΔA once and to take the
# decay from step s to t as exp(Sₜ − Sₛ). Deep into a row both sums are huge, their digits are coarse, and a small
# difference drowns. A tree does not even keep the sums in order.
#
# **Claim 8.12** From a tree's running sums of ΔA ≤ 0, some decays come out above 1. (vLLM met this as infinite states:
# its pull request 37501 cuts the differences off at 0.)

# %%
# check 8.12
logs = -rng.uniform(20, 40, (4096, 32)).astype(np.float32)
logs[::2] = -rng.uniform(0, 0.01, (2048, 32))                         # every other step hardly decays
S = hillis_steele(SUM, logs).values
assert np.any(np.exp(S[2::2] - S[1:-1:2]) > 1)
print("8.12 holds")

# %% [markdown]
# ## 7. Half the bits
#
# bfloat16 has the exponents of float32 and only 8 bits. "Activations in bfloat16, sums in float32: no loss one can
# feel. But exp in bfloat16 errs too much." Near one, bfloat16 numbers are 2⁻⁸ apart, and a decay like 0.999 has no
# neighbour but 1.
#
# **Claim 8.13** In bfloat16 every decay exp(ΔA) with ΔA > −1/512 is exactly 1: the state forgets nothing any more.

# %%
# check 8.13
assert to_bfloat16(np.exp(np.float32(-0.001))) == 1
edge = next(k for k in range(1, 1000) if to_bfloat16(np.exp(np.float32(-k / 51200))) < 1)
assert 100 <= edge <= 101                                             # hundredths of 1/512
print("8.13 holds")

# %% [markdown]
# Four layers of one kind, with states that remember some 800 steps, on inputs that are bfloat16 already. They differ
# in what is rounded to bfloat16: only the output; the decays; the state after each step; the state at random. (What
# that means comes in a moment.)

# %%
steps = 4096
x = to_bfloat16(rng.uniform(-0.0019, -0.0005, (steps, 64)).astype(np.float32))
b = to_bfloat16(rng.uniform(0, 1, (steps, 64)).astype(np.float32))
truth, _ = reference.scan(np.exp(x.astype(float)), b, dim=0)


def with_state(store):
    """The loop whose state goes through `store` after each step."""
    h, state = np.empty_like(b), np.zeros_like(b[0])
    for t in range(steps):
        state = store(np.exp(x[t]) * state + b[t])
        h[t] = state
    return h


layers = {
    "output rounded": to_bfloat16(compensated.loop(np.exp(x), b)),
    "decays rounded": compensated.loop(to_bfloat16(np.exp(x)), b),
    "state rounded": with_state(to_bfloat16),
    "state rounded at random": with_state(lambda h: to_bfloat16_at_random(h, rng)),
}
off = {name: root_mean_square((h - truth) / truth) for name, h in layers.items()}

# %%
fig, ax = lab.figure("step t", "relative error, root mean square")
for (name, error), color in zip(off.items(), ("chunk", "blelloch", "bad", "hillis"), strict=True):
    ax.loglog(np.arange(2, steps + 1), error[1:], color=lab.COLORS[color], label=name, lw=1.3)
ax.axhline(2.0**-8, ls="--", lw=0.8, color=lab.COLORS["soft"])
ax.text(250, 2.0**-8 * 1.15, "half an ulp of bfloat16, at most", color=lab.COLORS["soft"])
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# Look at the green line: rounding the output costs what one rounding costs, at step 4000 as at step 4. With rounded
# decays the state forgets nothing and grows away. The rounded state goes well for 700 steps and then fails. Rounded at
# random it stays with the truth, with a noise of a few percent.
#
# **Claim 8.14** Rounding only the output never costs more than half a bfloat16 ulp, however long the row. With rounded
# decays the error passes 100 %. The rounded state ends at 256 in all channels, where some 400 would be right. At
# random it is right on average.

# %%
# check 8.14
assert np.max(np.abs(layers["output rounded"] - truth) / truth) < 2.0**-8 * 1.001
assert off["decays rounded"][-1] > 1 and np.min(truth[-1]) > 350 and np.all(layers["state rounded"][-1] == 256)
assert abs(np.mean(layers["state rounded at random"][2000:] / truth[2000:]) - 1) < 0.01

A = torch.full((1, 1), -1.0, device=device)
tensors = [torch.as_tensor(array[None], device=device).bfloat16() for array in (b, -x)]
ones = torch.ones(1, steps, 1, device=device).bfloat16()
y = ssmlab.selective_scan(*tensors, A.expand(64, 1), ones, ones)                    # bfloat16 in, bfloat16 out
want, _ = reference.selective_scan(*(tensor.float().cpu() for tensor in (*tensors, A.expand(64, 1), ones, ones)))
assert y.dtype == torch.bfloat16 and np.max(np.abs(y.float().cpu().numpy() - want) / want) < 2.0**-8 * 1.01
print("8.14 holds")

# %% [markdown]
# ### The state that sticks
#
# Decode one token after the other, and the state rests in memory between two calls. Somebody saves memory and stores
# it in bfloat16. Take h ← 0.999 h + 0.001, which climbs towards 1 and should be at 1 − 0.999¹⁰⁰⁰ = 0.632 after 1000
# steps.

# %%
h, climb = np.float32(0), []
for _ in range(1000):
    h = to_bfloat16(np.float32(0.999) * h + np.float32(0.001))
    climb.append(float(h))
first = next(t for t in range(999) if climb[t + 1] == climb[t])
print("it stands still after", first + 1, "steps, at", climb[first])

# %% [markdown]
# A quarter, for ever. Watch the last step that moves and the first that does not:
#
# - Between ⅛ and ¼ the numbers are 2⁻¹⁰ ≈ 0.00098 apart. At h = 0.249 a step adds 0.001 − 0.001 · 0.249 = 0.00075.
#   That is *more* than half the distance, and it is rounded up to all of it.
# - From ¼ on the numbers are 2⁻⁹ ≈ 0.00195 apart. At ¼ a step adds 0.001 − 0.00025 = 0.00075 as before. That is
#   *less* than half the distance. It is rounded down to nothing, now and ever after.
#
# So each step added 1/1024, which is too much, until it sat at ¼ and no step could move it any more. The increments
# were **swallowed**, the second hurt of section 1.
#
# Three cures. Keep the state in float32: it needs twice the bytes, and this is what our kernels do unless they are
# told otherwise. Round **at random**, up with a probability that says how near the upper neighbour is: then a step of
# 0.38 ulp is taken in 38 % of all cases, and on average all is right. Or keep the lost part in a second bfloat16
# (section 5), which is as large as a float32 and slower.
#
# **Claim 8.15** The bfloat16 state after n steps, from 64 to 256, is exactly n / 1024, then it sticks at ¼. float16 gets to
# 0.644. Rounded at random it is right on average. Our one-token update does the same with the dtypes that it is
# given: ¼ with a bfloat16 state, 0.632 with a float32 one.

# %%
# check 8.15
assert climb[63:256] == [n / 1024 for n in range(64, 257)] and set(climb[255:]) == {0.25} and first == 255
half, dice = np.float32(0), np.zeros(1000, np.float32)
for _ in range(1000):
    half = to_float16(np.float32(0.999) * half + np.float32(0.001))
    dice = to_bfloat16_at_random(np.float32(0.999) * dice + np.float32(0.001), rng)
assert round(float(half), 3) == 0.644 and abs(dice.mean() - (1 - 0.999**1000)) < 0.005

log_decay = torch.full((1, 1), math.log(0.999), device=device)
one = torch.ones(1, 1, device=device)
ends = {}
for dtype in torch.bfloat16, torch.float32:
    state = torch.zeros(1, 1, 1, dtype=dtype, device=device)
    for _ in range(1000):
        ssmlab.selective_state_update(state, 0.001 * one, one, log_decay, one, one)
    ends[dtype] = round(state.item(), 3)
assert ends == {torch.bfloat16: 0.25, torch.float32: 0.632}
print("8.15 holds")

# %% [markdown]
# The same with nothing but ones: how far can each format count?
#
# **Claim 8.16** A running count sticks at 256 in bfloat16, at 2048 in float16, and at 16777216 in float32.

# %%
# check 8.16
def count_up(store, start=0.0):
    """Add 1 until nothing changes any more."""
    total = np.float32(start)
    while store(total + np.float32(1)) != total:
        total = store(total + np.float32(1))
    return int(total)


assert (count_up(to_bfloat16), count_up(to_float16), count_up(np.float32, 2.0**24 - 9)) == (256, 2048, 16777216)
print("8.16 holds")

# %% [markdown]
# ## 8. A tiny Δ
#
# Mamba makes Δ = softplus(x) = log(1 + exp(x)), to keep it positive. For x = −17 that is 4e-8, and 1 + 4e-8 is 1 in
# float32. Its logarithm is 0: the channel stands still and gets no gradient. `log1p(y)` computes log(1 + y) without
# ever forming 1 + y, and `expm1(x)` computes exp(x) − 1 without the 1. The second one is needed by models that
# discretise exactly, with (exp(ΔA) − 1) / A in place of Δ. Mamba itself takes Δ · B and has nothing to subtract.
#
# **Claim 8.17** Taken literally, softplus is 0 for x ≤ −17, and exp(x) − 1 is 0 for −2⁻²⁵ ≤ x < 0. log1p and expm1 keep
# their digits. The softplus of our kernels keeps them to some |x| ulp down to x = −80, and section 9 tells why just that.

# %%
# check 8.17
whole = np.arange(-1, -81, -1, dtype=np.float32)
literal = np.log(np.float32(1) + np.exp(whole))
assert whole[np.argmax(literal == 0)] == -17 and np.all(np.log1p(np.exp(whole)) > 0)
shrinking = -(2.0 ** np.arange(-20, -30, -1)).astype(np.float32)
assert np.array_equal(np.exp(shrinking) - 1 == 0, np.arange(-20, -30, -1) <= -25) and np.all(np.expm1(shrinking) < 0)

raw = torch.as_tensor(whole[None], device=device)                     # one channel for each x
state, one = torch.zeros(1, 80, 1, device=device), torch.ones(1, 1, device=device)
ssmlab.selective_state_update(state, torch.ones_like(raw), raw, torch.zeros(80, 1, device=device), one, one,
                              dt_softplus=True)                       # h = 1 · 0 + Δ · 1 · 1
right_step = np.log1p(np.exp(whole.astype(float)))
assert np.all(np.abs(ulps(state.cpu().numpy()[0, :, 0], right_step)) <= 8 + 1.5 * np.abs(whole))
print("8.17 holds")

# %% [markdown]
# ## 9. A fast exponential
#
# For every step, channel and state there is one exponential, and they bind the fused kernel (notebook 06). A GPU has
# one instruction for them, for 2ˣ. So exp(ΔA) = 2^(Δ · A log₂e), and our kernels multiply A with log₂e *once*, before
# the loop. That saves a multiplication a step and costs digits: the exponent is rounded twice, each time by up to
# 2⁻²⁴ of its size. At size 80 the result is off by 80 · 2⁻²³, a hundred ulp.
#
# Is that bad? We take every float32 between −87.3 and −2⁻²⁴, some 260 million, through the exponentials of a GPU. Where
# none is here, these are the numbers of an H200. The dashed line is what NVIDIA's manual promises of `__expf`,
# 2 + ⌊1.173 |x|⌋ ulp from the rounded result, so half an ulp more from the exact one.

# %%
measured = numerics.exponentials() if device == "cuda" else stored["exponentials"]
worst_ulp, mean_ulp = ({name: np.array(errors) for name, errors in measured[kind].items()}
                       for kind in ("worst [ulp]", "mean [ulp]"))
binades = 2.0 ** np.arange(-24, 7)                                    # |x| from here to twice as much
promise = 2.5 + np.floor(1.173 * 2 * binades)                         # at the far end
ulp_there = np.exp2(np.ceil(np.log2(np.exp(-binades))) - 24)          # of the largest result

# %%
fig, (left, right_ax) = lab.figure("|x|", columns=2, width=9.6, height=3.6)
for name, color in zip(numerics.NAMES[:3], ("loop", "shared", "hillis"), strict=True):
    style = {"color": lab.COLORS[color], "base": 2, "drawstyle": "steps-post", "lw": 4 if name[0] == "_" else 1.8}
    left.loglog(binades, worst_ulp[name], label=name.replace("__", "fast: __"), **style)
    right_ax.loglog(binades, worst_ulp[name] * ulp_there, **style)
left.loglog(binades, promise, "--", lw=0.8, color=lab.COLORS["soft"], base=2, drawstyle="steps-post", label="promised")
left.set(title="worst error [ulp]", yticks=[1, 4, 16, 64], yticklabels=[1, 4, 16, 64])
right_ax.set(title="worst error [absolute]", ylim=(2.0**-45, 2.0**-20))
left.legend()
plt.show()

# %% [markdown]
# Look at the left: the fast forms get worse where |x| is large. (They are one form: the compiler does for `__expf`
# what we do by hand.) Then look at the right, the same errors in absolute terms, as they enter a state. Where they are
# large, the decay is nothing.
#
# The GPU's bfloat16 exponential, `hexp`, is not drawn. It rounds x to 8 bits before it starts, and from |x| = 8 on it
# is off by 8 of its own coarse ulp and more.
#
# **Claim 8.18** The prescaled exponential of our kernels keeps NVIDIA's promise for `__expf`. Its worst absolute
# error over all x is less than 2⁻²². And the rounding of A · log₂e is no error at all, if you wish: it is the exact
# computation for an A that is one ulp away at most.

# %%
# check 8.18
assert np.all(worst_ulp["exp2f(x log2e)"] <= promise) and np.all(worst_ulp["__expf(x)"] <= promise)
assert np.all(worst_ulp["expf(x)"] <= 2.5) and np.max(worst_ulp["exp2f(x log2e)"] * ulp_there) < 2.0**-22
assert np.all(worst_ulp["hexp(bf16(x))"][27:] > 8)                     # from 2³ on
some_A = -rng.uniform(0.1, 100, 10000).astype(np.float32)
prescaled = some_A * np.float32(math.log2(math.e))
assert np.max(np.abs(ulps(some_A, prescaled.astype(float) / math.log2(math.e)))) <= 1
print("8.18 holds")

# %% [markdown]
# Now look at the left end of the left picture. Near x = 0 the result is nearly 1, and the nearest float is half an ulp
# away at most. The GPU is off by up to 1.4 ulp. And not evenly: from 2⁻²³ on its fast form is on average too small, by a
# tenth to a half of an ulp. A bias does not average, however the decays change.
#
# **Claim 8.19** On an H200 exp(ΔA) is biased where decays are near one. 1024 steps of decays that change, 0.998 < a <
# 1, end 84 ulp off there. A tree of logarithms stays at half an ulp: what comes through it has passed ten
# exponentials and not a thousand.

# %%
# check 8.19
on_h200 = {name: np.array(errors) for name, errors in stored["exponentials"]["mean [ulp]"].items()}
assert np.all(on_h200["exp2f(x log2e)"][1:24] < -0.08) and np.min(on_h200["exp2f(x log2e)"][1:24]) < -0.4
assert max(stored["exponentials"]["worst [ulp]"]["exp2f(x log2e)"][:10]) > 1.3
accuracy = stored["accuracy of pairs"]["random gates"]
assert round(accuracy["plain"]) == 84 and accuracy["log"] < 1
print("8.19 holds")

# %% [markdown]
# ## 10. What tolerance?
#
# Everyone who tests a scan writes `1e-5` somewhere. Where does it come from? We can count it. An input bⱼ reaches hₜ
# through k = t − j multiplications and some additions, whatever the brackets. Each rounds, by a factor 1 + d, where
# |d| ≤ u = 2⁻²⁴. So the part of bⱼ in hₜ is off by (k + additions) · u at most, and the additions are k in a loop,
# about 2 log₂ L in a tree. Sum that up over all j and you have a bound, without knowing in which order a kernel
# works. Summing up over all j is, of course, a scan:
#
#     Hₜ = |aₜ| Hₜ₋₁ + |bₜ|             what a state consists of
#     Kₜ = |aₜ| (Kₜ₋₁ + Hₜ₋₁)           the same, each part times its age
#
# The error is at most u · (2 Kₜ + (2 log₂ L + 1) Hₜ). And Kₜ / Hₜ is the mean age of what is in the state: the steps
# that it **remembers**. Not the length of the row, but the memory decides. If decays themselves are off by some u,
# that goes to the multiplications. `ssmlab.tolerance` has it as `scan_bound`, and as `relative_tolerance` for tests
# that have no patience.
#
# **Claim 8.20** All that this notebook tried on given decays stays within the bound: loops, trees, chunks, all
# algorithms of `ssmlab.scan`, with and without fused multiply-adds. A tolerance of 1e-5 is justified for rows of 1024
# steps and states that remember up to 73 of them.

# %%
# check 8.20
assert all(share <= 1 for kind in shares.values() for share in kind.values())
covered = [memory for memory in range(1, 1024) if tolerance.relative_tolerance(memory, 1024) <= 1e-5]
assert covered[-1] == 73
for low in 0.5, 0.998:
    a = torch.as_tensor(np.tile(rng.uniform(low, 1, (1, 1, 32)), (1, 3000, 1)), dtype=torch.float32, device=device)
    b = torch.as_tensor(rng.normal(size=(1, 3000, 32)), dtype=torch.float32, device=device)
    truth, bound = reference.scan(a.cpu(), b.cpu())[0], tolerance.scan_bound(a.cpu(), b.cpu())
    for algorithm in "thread", "block", "chain", "totals", "lookback":
        h = ssmlab.scan(a, b, algorithm=algorithm).cpu().numpy()
        assert np.all(np.abs(h - truth) <= bound)
print("8.20 holds")

# %% [markdown]
# A bound is a worst case. Roundings that go both ways leave its square root, and a test that wants to be sharper than
# the bound must know its inputs. What a bound can do is say *no*: beyond it there is a mistake.
#
# ## 11. Step ≠ scan, and still no mistake
#
# A model decodes token by token and should give what it gave in one pass. It does, up to the last bits. Then somebody
# compares with `==`, and files a bug. Two reasons why bits differ, both legitimate: **other brackets**, as in this whole
# notebook, and **fused multiply-add**. A GPU computes a · h + b with one rounding, unless told not to. The checked
# mode on a CPU takes two. The kernel below leaves nothing to the compiler, and does both.
#
# **Claim 8.21** One rounding or two, loop or tree: in most places the bits differ, and all are within the bound. Both
# kernels are reproducible to the last bit, on every machine.

# %%
# check 8.21
ROUNDINGS = r'''
extern "C" __global__ void roundings(const float* a, const float* b, float* two, float* one, int rows, int length) {
    const int row = threadIdx.x;
    float h = 0.0f, g = 0.0f;
    for (int t = 0; t < length; ++t) {                      // a, b: (length, rows)
        h = __fadd_rn(__fmul_rn(a[t * rows + row], h), b[t * rows + row]);
        g = __fmaf_rn(a[t * rows + row], g, b[t * rows + row]);
        two[t * rows + row] = h;
        one[t * rows + row] = g;
    }
}
'''
a, b = rng.uniform(0.9, 1, (256, 32)).astype(np.float32), rng.uniform(0, 1, (256, 32)).astype(np.float32)
two, one = torch.zeros(2, 256, 32, device=device)
RawKernel(ROUNDINGS, "roundings")((1,), (32,), (*(torch.as_tensor(x, device=device) for x in (a, b)), two, one, 32, 256))
two, one = two.cpu().numpy(), one.cpu().numpy()

tree = hillis_steele(AFFINE, (a, b)).values[1]
truth, bound = reference.scan(a, b, dim=0)[0], tolerance.scan_bound(a, b, dim=0)
assert np.array_equal(two, compensated.loop(a, b)) and np.array_equal(one, compensated.fused(a, b))
for first, second in ((two, one), (two, tree), (one, tree)):
    assert np.mean(first != second) > 0.5
for h in two, one, tree:
    assert np.all(np.abs(h - truth) <= bound)
print("8.21 holds")

# %% [markdown]
# So what may one ask for with `==`? The same kernel, the same brackets, the same bits. Our operators add in a fixed
# order and use no floating-point atomics (adding in the order in which threads happen to come).
#
# **Claim 8.22** With `chunk` given, `selective_scan` has the same bits from run to run, for outputs and gradients,
# and a row has the same bits alone as in a batch. Token by token it stays within the bound.

# %%
# check 8.22
def layer_input(*shape, low, high):
    return torch.as_tensor(rng.uniform(low, high, shape), dtype=torch.float32, device=device)


u, delta = layer_input(3, 96, 8, low=-1, high=1), layer_input(3, 96, 8, low=0.01, high=0.5)
A, B, C = layer_input(8, 1, low=-1, high=-0.1), layer_input(3, 96, 1, low=-1, high=1), torch.ones(3, 96, 1, device=device)


def run(rows):
    inputs = [tensor[rows].clone().requires_grad_() for tensor in (u, delta)]
    y = ssmlab.selective_scan(*inputs, A, B[rows], C[rows], chunk=32)
    y.square().sum().backward()
    return [y.detach(), *(tensor.grad for tensor in inputs)]


once, again, alone = run(slice(0, 3)), run(slice(0, 3)), run(slice(1, 2))
assert all(torch.equal(p, q) for p, q in zip(once, again, strict=True))
assert all(torch.equal(p[1:2], q) for p, q in zip(once, alone, strict=True))

state, tokens = torch.zeros(3, 8, 1, device=device), []
for t in range(96):
    tokens.append(ssmlab.selective_state_update(state, u[:, t], delta[:, t], A, B[:, t], C[:, t]))
tokens, y = torch.stack(tokens, 1).cpu().numpy(), once[0].cpu().numpy()
u, delta, A, B = (tensor.double().cpu().numpy() for tensor in (u, delta, A, B))
exponent, drive = delta * A[:, 0], delta * u * B
truth, _ = reference.scan(np.exp(exponent), drive)
bound = tolerance.scan_bound(np.exp(exponent), drive, inputs=2, decay=tolerance.exponential(exponent, roundings=2, ulp=2.5))
assert np.all(np.abs(y - truth) <= bound) and np.all(np.abs(tokens - truth) <= bound)
print("8.22 holds")

# %% [markdown]
# ## 12. Break it
#
# Back to the exponent offset. Bringing x back into [½, 1) after each multiplication costs instructions. *Leave that
# out*, for the product only: its mantissas multiply, its exponents add, nothing else. What do you expect, for 512 steps
# of a = ½ from a state of 2¹²⁷, whose true states are normal numbers up to step 253?
#
# A mantissa is at least ½. A product of k of them is at least 2⁻ᵏ. In the tree the spans are 1, 2, 4, … steps long.

# %%
lazy = pairs.scan_text("offset").replace("both.x = brought_back(x);", "both.x = x;").replace(" + biased(x) - 126;", ";")
long_a, long_b = np.full((1, 512), 0.5, np.float32), np.zeros((1, 512), np.float32)
long_b[0, 0] = 2.0**127
want = np.ldexp(1.0, 127 - np.arange(512)).astype(np.float32)
for name, text in ("each combine", pairs.scan_text("offset")), ("never", lazy):
    kernel = RawKernel(text, "block_scan_v2", options=("-DTILE=512",))
    h = check(kernel, (1,), (512,), (long_a, long_b, np.zeros_like(long_b), 512)).arrays[2][0]
    wrong = np.flatnonzero(h != want)
    told = f"wrong from index {wrong[0]}: {h[wrong[0]]:.0f} for {want[wrong[0]]}" if len(wrong) else "right"
    print(f"brought back {name:13}", told)

# %% [markdown]
# Nothing happens for 128 steps. Then a span of 128 halves is met for the first time. Its mantissa, 2⁻¹²⁸, is subnormal,
# the bits of its exponent mean something else, and what is read there is nonsense. (Under flush-to-zero it would be 0.)
#
# So one need not bring x back each time. Once in 126 factors is enough for any decays: ½ to the power of 126 is the
# smallest normal number. This is what the article means by *renormalising segment by segment*, and it holds.
#
# ## 13. Exercises
#
# **8.A A kernel that divides.** It computes hₜ = Pₜ · Σ bⱼ / Pⱼ, one thread a row. Repair it, so that it is right for
# *any* decays from 0 to 1, 0 included. *Budget:* float32, one loop.
#
# <details><summary>Hint</summary>
#
# Do you need P and the sum apart from each other? Write down what their product becomes from one step to the next.
#
# </details>

# %% tags=["exercise"]
my_sums = r'''
extern "C" __global__ void decayed_sums(const float* a, const float* b, float* h, int rows, int length) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    float product = 1.0f, sum = 0.0f;
    for (int t = 0; t < length; ++t) {
        const long long at = row * (long long)length + t;
        product = product * a[at];
        sum = sum + b[at] / product;
        h[at] = product * sum;
    }
}
'''

# %% tags=["nbval-ignore-output"]
lab.exercises.check("8.A", my_sums)

# %% [markdown]
# **8.B A state that does not stick.** Two bytes are all that the state gets. Write what turns float32 states into
# bfloat16 numbers (kept in a float32 array), so that h ← 0.999 h + 0.001 arrives where it should, on average. `rng` is
# NumPy's random generator. *Budget:* 1 to 4 lines, without the package's own function.
#
# <details><summary>Hint</summary>
#
# The upper 16 bits of a float32 *are* a bfloat16: `h.view(np.uint32) & np.uint32(0xFFFF0000)` cuts it off. What would
# you have to add before the cut, so that the upper neighbour comes out with the right probability?
#
# </details>

# %% tags=["exercise"]
def my_store(h, rng):
    raise NotImplementedError       # YOUR CODE, 1 to 4 lines: float32 in, float32 out, but all of them bfloat16 numbers


# %% tags=["nbval-ignore-output"]
lab.exercises.check("8.B", my_store)

# %% [markdown]
# **8.C Choose a tolerance.** You test scans of all kinds: loops, trees, chunks, float32 or float64, with states that
# remember from 2 to 8000 steps. Say how far, relative to the largest state, a result may be from the exact one. The
# check brings right results, which must pass, and wrong ones, which must not. *Budget:* 1 line.
#
# <details><summary>Hint</summary>
#
# Section 10: each part of a state has passed as many decays as it is old. Count roundings, times u. What does a tree
# add, and what is the age at most, if the row is short?
#
# </details>

# %% tags=["exercise"]
def my_tolerance(memory, length, u):
    """memory, length [steps]; u is the unit roundoff, 2**-24 for float32."""
    raise NotImplementedError       # YOUR CODE, 1 line


# %% tags=["nbval-ignore-output"]
lab.exercises.check("8.C", my_tolerance)

# %% [markdown]
# ## 14. What we now know
#
# *Vanishing.*
# - The numbers of the article are right (8.1). What it fears does not happen: a product that vanishes takes nothing
#   from h, with subnormals or flushed to zero (8.2, 8.3). *Corrected:* chunk lengths need not follow ΔA.
# - It hurts who divides: by a running product (8.5, index 88), by a state (8.6); who starts from a huge state (8.6);
#   and gradients in float16 (8.4).
# - The exponent offset cures these, with the same bits and twice the bytes (8.7, 8.8). Renormalising once in 126
#   factors is enough. *Holds.*
#
# *Drifting.*
# - In sums loops err like √L, trees hardly, and Kahan, Neumaier and float64 not at all (8.9). *Holds with a
#   condition:* 1e-5 is no law, and a tree needs no Kahan.
# - With a constant decay near one a tree errs like its length, for it squares one rounding (8.10). *Corrected:* "trees
#   grow like log L" is true of sums. Shorter chunks do not help; logarithms do, and they also save what rounding
#   exp(ΔA) costs, which is more (8.11). *Holds, for another reason.* Add them, do not subtract them (8.12).
#
# *Being swallowed.*
# - bfloat16 at the output is harmless, in decays and states it is not (8.13, 8.14). *Holds.* A bfloat16 state sticks
#   at ¼ where 0.632 is right, from step 256 on (8.15).
# - A tiny Δ needs log1p (8.17). A fast exponential errs most where nothing is left to be wrong (8.18). Near one it has a
#   small bias, which long memories add up (8.19).
#
# *Judging.*
# - A tolerance follows from the steps that a state remembers (8.20). Other brackets and fused multiply-adds change bits,
#   not rightness (8.21). The same kernel on the same row gives the same bits (8.22).
#
# **Still untrue or slow.** The bound is the worst case, and most runs are far below it. Nothing here looked at the sum
# over states in y = C · h, which adds its own roundings, as many as there are states.
#
# **Next:** notebook 09, *What does a window remember?*
#
# **Sources**
# - N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd edition, SIAM 2002. Chapters 3 and 4: counting
#   roundings, summation.
# - W. Kahan, *Further remarks on reducing truncation errors*, Communications of the ACM 8 (1), 1965. A. Neumaier,
#   *Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen*, ZAMM 54, 1974.
# - NVIDIA, *CUDA C++ Programming Guide*, appendix on mathematical functions: the bounds of section 9.
# - A. Gu, T. Dao, *Mamba: linear-time sequence modeling with selective state spaces*, 2023, arXiv 2312.00752.
