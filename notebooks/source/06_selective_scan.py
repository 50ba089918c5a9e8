# %% [markdown]
# # 06 · What does selectivity break, and what survives?
#
# So far somebody handed us a and b. In a Mamba layer they come from the data: every token decides for itself how much
# of the past it keeps, and how much of itself it adds. That is called **selectivity**. It ends a famous shortcut, it
# makes a and b sixteen times as large as the input, and it turns a memory-bound kernel into something else. The scan
# itself does not notice.
#
# *You will be able to*
#
# - **turn** a leaking bucket into a step (a, b), in the exact way and in Mamba's;
# - **tell** to the step when a state space model is a convolution, and when only a scan will do;
# - **count** what fusing a chain of kernels saves, and **decide** what binds the fused one.
#
# *Needs:* notebooks 01 (pairs), 03 (sectors, roofs). No GPU: counts are made on the CPU, times come from a measured
# H200. About 60 minutes.

# %% tags=["nbval-ignore-output"]
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import silu, softplus

import ssmlab
from ssmlab import RawKernel, lab, ledger, reference
from ssmlab.devices import DEVICES
from ssmlab.lab import counters
from ssmlab.lab import selective_ladder as ladder

lab.setup()
lab.here()
device = lab.device()
timed = json.loads(Path("results/selective_h200.json").read_text())          # python -m ssmlab.bench selective
counted = json.loads(Path("results/ncu_selective_h200.json").read_text())    # python -m ssmlab.lab.counters
print(f"times: {timed['device']}, {timed['date']}; counters: {counted['device']}, {counted['date']}")

# %% [markdown]
# ## 1. A bucket with a hole
#
# A bucket holds h litres. Through the hole it loses a fixed share of what is in it each second, and a tap fills it:
#
#     h′ = A h + B u,   A < 0
#
# Take A = −ln 2: left alone, the bucket halves every second. Take B = ln 2: with the tap at u for a long time, it fills
# to u and no further. Now tokens arrive. Each says two things: how far to open the tap, **u**, and for how long, **Δ**.
# While it is open, nothing changes, and we know how such a bucket goes on: of what was there, a = exp(Δ A) is left,
# and of u, the rest, 1 − a, has come in. From an empty bucket:
#
# | token | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | u | 4 | 4 | 0 | 8 |
# | Δ [s] | 1 | 2 | 1 | 0 |
# | a = exp(Δ A) | ½ | ¼ | ½ | 1 |
# | (1 − a) · u | 2 | 3 | 0 | 0 |
# | h = a · h + (1 − a) · u | **2** | ¼ · 2 + 3 = **3.5** | **1.75** | **1.75** |
#
# Look at tokens 1 and 3. A long Δ forgets the past and takes the present. Δ = 0 lets a token pass unseen, however loud.
# That is all the machinery: *Δ is the attention a token asks for*.
#
# In general the step is h ← a h + b u with
#
#     a = exp(Δ A)        b = (exp(Δ A) − 1) / A · B
#
# and because it is exact for a tap that is *held* during the step, it is called **zero-order hold**.

# %%
def hold(delta, A, B):
    """The pair (a, b) of a step in which the input is held for `delta` seconds. A is not 0."""
    return np.exp(delta * A), np.expm1(delta * A) / A * B           # expm1(x) = exp(x) - 1, also for tiny x


h, levels = 0.0, []
for u, delta in (4, 1), (4, 2), (0, 1), (8, 0):
    a, b = hold(delta, A=-np.log(2), B=np.log(2))
    h = a * h + b * u
    levels.append(round(h, 9))
assert levels == [2, 3.5, 1.75, 1.75]

# %% [markdown]
# **Claim 6.1** The held step is exact in time: two steps of Δ with the same u are one step of 2 Δ. And its a lies
# between 0 and 1 for every Δ > 0. The naive a = 1 + Δ A has neither property, and from Δ A = −2 on, the bucket explodes.

# %%
# check 6.1
rng = np.random.default_rng(6)
delta, A, B, u, before = rng.uniform(0.01, 5, 1000), -rng.uniform(0.01, 3, 1000), *rng.normal(size=(3, 1000))
(a, b), (a2, b2) = hold(delta, A, B), hold(2 * delta, A, B)
twice, once = a * (a * before + b * u) + b * u, a2 * before + b2 * u
assert np.max(np.abs(twice - once)) <= 1e-13 * np.max(np.abs(once))
assert np.all((0 < a) & (a < 1)) and np.all(np.abs(1 + delta * A)[delta * A < -2] > 1)
naive = (1 + delta * A) ** 2 * before - ((1 + 2 * delta * A) * before)
assert np.max(np.abs(naive)) > 1
print("6.1 holds")

# %% [markdown]
# ### What Mamba does
#
# Mamba keeps a = exp(Δ A) and shortens b to **Δ B**: the first term of (exp(Δ A) − 1) / A · B, if Δ A is small. Asked
# why its code differs from its paper, an author wrote that it is slightly simpler and that nothing measurable changed.
# (Mamba's A is negative everywhere and its Δ positive, so let us write x for |Δ A|.)
#
# **Claim 6.2** The short form lets in x / (1 − exp(−x)) times as much as the tap gave: 5 % too much at x = 0.1, 58 %
# at 1, eight times at x = 8. The decay is the same in both.

# %%
# check 6.2
x = np.array([0.1, 1, 8])
short, exact = x, -np.expm1(-x)                                     # delta B and (exp(delta A) - 1) / A B, for A = -B = -1
assert [round(100 * (ratio - 1)) for ratio in (short / exact)[:2]] == [5, 58]
assert round((short / exact)[2], 1) == 8.0
print("6.2 holds")

# %%
A, B, taps = -np.log(2), np.log(2), [(4, 1), (4, 2), (0, 1), (6, 0.5), (1, 1.5)]
fig, ax = lab.figure("time [s]", "h [litres]", height=3.1)
start, level, other = 0.0, 0.0, 0.0
for u, delta in taps:
    inside = np.linspace(0, delta, 60)
    a, b = hold(inside, A, B)
    ax.plot(start + inside, a * level + b * u, color=lab.COLORS["hillis"])
    ax.hlines(u, start, start + delta, color=lab.COLORS["faint"], linewidth=3)
    start, level, other = start + delta, (a * level + b * u)[-1], a[-1] * other + delta * B * u
    ax.plot(start, level, "o", color=lab.COLORS["hillis"])
    ax.plot(start, other, "s", color=lab.COLORS["bad"], markerfacecolor="none")
ax.text(1.05, 4.12, "the tap, u", color=lab.COLORS["loop"])
ax.text(3.12, 3.25, "held: exact", color=lab.COLORS["hillis"])
ax.text(3.12, 5.35, "b = Δ B", color=lab.COLORS["bad"])
ax.set(xlim=(0, 6.2), ylim=(0, 6.8))
plt.show()

# %% [markdown]
# Look at the line: it is the bucket, second by second, and the dots sit on it, one for each token, at distances that
# the tokens chose. The squares are Mamba's. They decay as the dots do, but the long step that ends at t = 3 lets in 85 %
# too much and lifts them above the tap itself. No bucket can do that. A trained model does not mind: it has learned its
# B with this b.
#
# ### Where Δ comes from
#
# Each channel computes a number from the token and sends it through softplus(x) = log(1 + exp(x)), which makes it
# positive. Why that function, of all?
#
# **Claim 6.3** For A = −1, B = 1 and Δ = softplus(x), the held step *is* the gate of the recurrent networks of old:
# h ← (1 − g) h + g u with g = sigmoid(x). With Mamba's b, g becomes softplus(x) where it multiplies u, which has no
# ceiling.

# %%
# check 6.3
x = np.linspace(-30, 30, 601)
a, b = hold(np.log1p(np.exp(x)), A=-1.0, B=1.0)
gate = 1 / (1 + np.exp(-x))
assert np.max(np.abs(a - (1 - gate))) <= 1e-14 and np.max(np.abs(b - gate)) <= 1e-14
assert np.log1p(np.exp(30)) > 29
print("6.3 holds")

# %% [markdown]
# A Mamba channel has not one bucket but N, usually 16, each with its own A: some halve in a token, some in a
# thousand. All get the same u and the same Δ, each has its own B and C, and what the channel says is C · h, a sum over
# its buckets. B and C are shared by all channels; they, too, are made from the token.
#
# ## 2. Equal steps: an echo
#
# Suppose Δ, B and C are the same for all tokens. The state space models before Mamba were like that. Then a and b are
# constants, and one input u goes through the buckets like a shout through a valley: after k steps its echo has the
# strength K_k = C aᵏ b, whenever it was shouted. By hand, with one bucket, a = ½, b = C = 1, so that K = 1, ½, ¼, ⅛:
#
# | t | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | u | 3 | 1 | 7 | 0 |
# | the scan: y = ½ y + u | 3 | 2.5 | 8.25 | 4.125 |
# | the echoes: | 3 | 1 + ½ · 3 | 7 + ½ · 1 + ¼ · 3 | 0 + ½ · 7 + ¼ · 1 + ⅛ · 3 |
#
# The second row needs no state. It is a **convolution** of u with K, and long convolutions are made with the fast
# Fourier transform, FFT, in a number of operations that grows like L log L, and without a scan.

# %%
def run(u, a, b, c):
    """y[t] = c[t] · h[t] with h[t] = a[t] h[t-1] + b[t] u[t], step by step. u (rows, length); a, b, c (length, states)."""
    h, y = 0, []
    for t in range(u.shape[1]):
        h = a[t] * h + b[t] * u[:, t, None]
        y.append(h @ c[t])
    return np.stack(y, axis=1)


def convolve(u, echo):
    """y[t] = sum of echo[k] u[t - k]. Twice as many frequencies as steps, so that the end does not come round again."""
    size = 2 * len(echo)
    return np.fft.irfft(np.fft.rfft(u, size) * np.fft.rfft(echo, size), size)[..., : len(echo)]


def echo_of(a, b, c, length):
    """K[k] = sum over the states of c a^k b."""
    return (c * b * a ** np.arange(length)[:, None]).sum(axis=1)


shout, one = np.array([[3.0, 1, 7, 0]]), np.ones((4, 1))
assert run(shout, one / 2, one, one).tolist() == [[3, 2.5, 8.25, 4.125]]
assert np.allclose(convolve(shout, echo_of(0.5 * one[0], one[0], one[0], 4)), [[3, 2.5, 8.25, 4.125]])

# %%
states = 4
A, B, C = -np.exp(rng.uniform(-3, 0.5, states)), *rng.normal(size=(2, states))


def coefficients(delta, B=B, C=C):
    """a, b, c (length, states) of Mamba's steps; delta (length,), B and C for all steps or (length, states)."""
    delta = np.asarray(delta)[:, None]
    return np.exp(delta * A), delta * B, C + 0 * delta


def both(length):
    """The same input through the scan and through the FFT, all steps with delta = 0.5."""
    u, (a, b, c) = rng.normal(size=(1, length)), coefficients(np.full(length, 0.5))
    return u, (a, b, c), run(u, a, b, c), convolve(u, echo_of(a[0], b[0], c[0], length))


# %% [markdown]
# **Claim 6.4** (A26, first half) With equal steps the scan is a convolution with K_k = Σₙ Cₙ aₙᵏ bₙ. In float64 the FFT
# gives the same y up to 10⁻¹⁴ of the largest, for 64 steps as for 32,768.

# %%
# check 6.4
for length in 64, 4096, 32768:
    *_, scanned, convolved = both(length)
    assert np.max(np.abs(scanned - convolved)) <= 1e-14 * np.max(np.abs(scanned))
print("6.4 holds")

# %% [markdown]
# And how far is each from the truth? Measured against the same loop in longer numbers, where the machine has them:

# %% tags=["nbval-ignore-output"]
for length in 64, 512, 4096, 32768:
    u, coefficient, scanned, convolved = both(length)
    truth = run(*(values.astype(np.longdouble) for values in (u, *coefficient)))
    errors = [float(np.max(np.abs(y - truth)) / np.max(np.abs(truth))) for y in (scanned, convolved)]
    print(f"{length:6} steps: scan {errors[0]:.1e}, FFT {errors[1]:.1e} of the largest |y|")

# %% [markdown]
# "Of the largest": that is the small print. A scan errs relative to what is in the bucket *now*. An FFT mixes all steps,
# and errs everywhere relative to the loudest.
#
# **Claim 6.5** Let the input stop after 16 steps. The scan follows the echo down to 10⁻³⁰ with twelve right digits; the
# FFT has none left there.

# %%
# check 6.5
length, loud = 256, 16
u = np.where(np.arange(length) < loud, rng.normal(size=(1, length)), 0)
a, b, c = np.full((length, 1), 0.75), np.ones((length, 1)), np.ones((length, 1))
scanned, convolved = run(u, a, b, c)[0], convolve(u, echo_of(a[0], b[0], c[0], length))[0]
tail = scanned[loud - 1] * 0.75 ** np.arange(1, length - loud + 1)           # what must come after the last input
assert np.max(np.abs(scanned[loud:] / tail - 1)) <= 1e-12 and np.abs(tail[-1]) < 1e-28
assert np.abs(convolved[-1] / tail[-1] - 1) > 1
print("6.5 holds")

# %%
fig, ax = lab.figure("step", "|y|", height=2.7)
ax.semilogy(np.abs(convolved), color=lab.COLORS["blelloch"], label="FFT", linewidth=1)
ax.semilogy(np.abs(scanned), color=lab.COLORS["hillis"], label="scan")
ax.axvspan(0, loud, color=lab.COLORS["faint"], alpha=0.6, linewidth=0)
ax.set(xlim=(0, length), ylim=(1e-31, 30))
ax.legend(loc="lower left")
plt.show()

# %% [markdown]
# Look where the two lines part: some 10⁻¹⁶ below the loud part (grey) the FFT's echo drowns in its own rounding. For a
# model that is seldom a problem, in float32 sooner than in float64. But remember it when you compare the two.
#
# ## 3. One step differs
#
# Write down how much of each input is in each output: a matrix M, y = M u. Its entry [t, s] is what is left at step t of
# a shout at step s,
#
#     M[t, s] = Σₙ C[t, n] · a[t, n] ⋯ a[s+2, n] a[s+1, n] · b[s, n]      for s ≤ t
#
# and above the diagonal it is 0: nobody hears the future. With equal steps, M depends on t − s only. It has the same
# number all along each diagonal, and this, no more and no less, makes it a convolution. Here is M, then M with the Δ of
# step 9 alone changed, then with a Δ for every token.

# %%
def matrix(coefficient):
    """M, one column for each input: shout once at each step and write down the answers."""
    return run(np.eye(len(coefficient[0])), *coefficient).T


steps, odd = 24, 9
equal = np.full(steps, 0.5)
one_differs = np.where(np.arange(steps) == odd, 2.0, equal)
every = rng.uniform(0, 1.5, steps)
pictures = {"equal steps": equal, f"Δ of step {odd} differs": one_differs, "every token its own Δ": every}

# %%
fig, axes = lab.figure(columns=3, width=8.4, height=3.1)
limit = np.max(np.abs(matrix(coefficients(equal))))
for ax, (title, delta) in zip(axes, pictures.items()):
    M = matrix(coefficients(delta))
    ax.imshow(np.where(np.tri(steps, dtype=bool), M, np.nan), cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set(title=title, xlabel="input s", xticks=[0, odd, steps - 1], yticks=[0, odd, steps - 1])
    ax.grid(False)
axes[0].set_ylabel("output t")
axes[1].add_patch(plt.Rectangle((-0.5, odd - 0.5), odd + 1, steps - odd, fill=False, linewidth=2, edgecolor=lab.COLORS["ink"]))
plt.show()

# %% [markdown]
# Look left: stripes. In the middle a rectangle has changed, and the stripes outside it have not. On the right there are
# no stripes any more, and with them goes the convolution.
#
# The rectangle is no accident. A shout is weakened by the steps that come after it, so a[9] is in the entry [t, s]
# only if s < 9 ≤ t, and b[9] only if s = 9.
#
# **Claim 6.6** (A26, second half) If the Δ of step k alone differs, exactly the entries with s ≤ k ≤ t change. So the
# convolution with the common echo is right before step k, and the first step at which it is wrong is step k itself.
# For every k.

# %%
# check 6.6
u, common = rng.normal(size=(1, steps)), coefficients(equal)
convolved = convolve(u, echo_of(common[0][0], common[1][0], common[2][0], steps))
t, s = np.indices((steps, steps))
for k in range(steps):
    differing = coefficients(np.where(np.arange(steps) == k, 2.0, equal))
    wrong = np.flatnonzero(np.abs(run(u, *differing) - convolved)[0] > 1e-12)
    assert wrong[0] == k
    changed = np.abs(matrix(differing) - matrix(common)) > 1e-12
    assert np.array_equal(changed, (s <= k) & (k <= t))
print(f"6.6 holds: with step {odd} changed, step {odd} is the first that the convolution gets wrong")

# %% [markdown]
# ### Is it Δ, or B, or C?
#
# The source says that Δ, B and C all vary, and that "the trick with the long convolution fails". Look at the formula of
# M again. b stands at its right end and C at its left end. Only a is in between.
#
# **Claim 6.7** (A26, corrected) Varying B and C alone do not end the convolution: y = Σₙ Cₙ · (echoₙ ∗ (bₙ · u)), where
# the echo is aₙᵏ. They make it N convolutions instead of one. What ends it is a Δ that varies.

# %%
# check 6.7
varying = coefficients(np.full(steps, 0.5), B=rng.normal(size=(steps, states)), C=rng.normal(size=(steps, states)))
a, b, c = varying
echoes = a[0] ** np.arange(steps)[:, None]                                   # (steps, states)
by_parts = sum(c[:, n] * convolve(b[:, n] * u, echoes[:, n]) for n in range(states))
assert np.max(np.abs(by_parts - run(u, *varying))) <= 1e-13
assert not np.allclose(np.diag(matrix(varying), -1), matrix(varying)[1, 0])  # and M has no stripes
print("6.7 holds")

# %% [markdown]
# Sixteen FFTs there and sixteen back, for each channel: by then a scan, which costs two multiply-adds a state and step,
# is the cheaper one anyway.
#
# ## 4. What survives
#
# A token's step is still the pair (a, b u) of notebook 01, whoever made it. So everything that we know about pairs goes
# through: any bracket, any tree, any chunk. In particular, **any cut**: run the first part, keep the state, run the
# second part from there. `ssmlab.selective_scan` is the finished operator; it takes and returns states.

# %%
def random_problem(batch, length, channels, states, groups=1):
    """Inputs by name in float64, on this machine's device; B and C (batch, length, groups, states)."""
    def random(*shape):
        return torch.as_tensor(rng.normal(size=shape), device=device)
    return {"u": random(batch, length, channels), "delta": random(batch, length, channels) - 1,
            "A": -torch.exp(random(channels, states)), "B": random(batch, length, groups, states),
            "C": random(batch, length, groups, states), "D": random(channels), "z": random(batch, length, channels),
            "delta_bias": random(channels)}


def part(values, begin, end):
    """The steps begin ... end - 1 of everything that has steps."""
    return {name: value[:, begin:end] if value.dim() > 2 else value for name, value in values.items()}


def scan(values, **options):
    return ssmlab.selective_scan(**values, delta_softplus=True, return_final_state=True, **options)


def agree(left, right):
    return bool((left - right).abs().max() <= 1e-12 * right.abs().max())


# %% [markdown]
# **Claim 6.8** Cut anywhere, also before the first step and behind the last: outputs and final state are those of the
# uncut run, to 10⁻¹² in float64.

# %%
# check 6.8
values = random_problem(batch=2, length=21, channels=6, states=4)
y, last = scan(values)
want, _ = reference.selective_scan(*(value.cpu().numpy() for value in values.values()), delta_softplus=True)
assert np.max(np.abs(y.cpu().numpy() - want)) <= 1e-12 * np.max(np.abs(want))
for cut in range(22):
    first, state = scan(part(values, 0, cut))
    second, end = scan(part(values, cut, 21), initial_state=state)
    assert agree(torch.cat([first, second], dim=1), y) and agree(end, last)
print("6.8 holds: 22 cuts")

# %% [markdown]
# What went through the cut? The state: N numbers for each channel, and no more, however long the past was. You can see
# this in M. Cut it at step k: the block below left, outputs from k on, inputs before k, is all that the past does to the
# future. It is a large block of numbers, and yet:
#
# **Claim 6.9** With N states, every such block has rank N at most, whatever the Δ, B and C of the tokens. Through any cut
# pass N numbers. (Matrices like this are called *semiseparable*.)

# %%
# check 6.9
selective = coefficients(rng.uniform(0.1, 1, 64), B=rng.normal(size=(64, states)), C=rng.normal(size=(64, states)))
M = matrix(selective)
ranks = [int(np.linalg.matrix_rank(M[k:, :k])) for k in range(1, 64)]
assert ranks == [min(k, 64 - k, states) for k in range(1, 64)]
assert np.linalg.matrix_rank(np.tril(rng.normal(size=(64, 64)))[32:, :32]) == 32      # no state: nothing is forgotten
print("6.9 holds: a block of 32 x 32 has rank", ranks[31])

# %% [markdown]
# So that is what selectivity breaks, and what it leaves: *the stripes are gone, the small rank stays*. It is the rank that
# chunked scans, decoding and notebook 05 live on.
#
# And if two sequences lie in one row, one behind the other? Then at the border the past must not pass at all, a = 0.
#
# **Claim 6.10** Packed rows (`cu_seqlens` says where each sequence begins) give what the sequences give alone, the final
# states too. An empty sequence gets a zero state.

# %%
# check 6.10
packed = random_problem(batch=1, length=20, channels=6, states=4)
borders = [0, 7, 7, 19, 20]
y, last = scan(packed, cu_seqlens=torch.tensor(borders, device=device))
for index, (begin, end) in enumerate(zip(borders, borders[1:])):
    alone, state = scan(part(packed, begin, end))
    assert torch.equal(state[0], last[index]) if begin == end else agree(alone, y[:, begin:end]) and agree(state[0], last[index])
assert not last[1].any()
print("6.10 holds")

# %% [markdown]
# ## 5. What a framework would do
#
# Now to the price. Here is the whole chain as you would write it in PyTorch: six steps, each reads tensors and writes a
# tensor. `yield` says which.

# %%
def chain(u, delta, A, B, C, D, z, bias):
    """(name, what the step reads, what it writes), and at last y. u, delta, z (batch, length, channels)."""
    step = softplus(delta + bias)
    yield "softplus", (delta,), step
    a = torch.exp(step[..., None] * A)                              # (batch, length, channels, states)
    yield "decay", (step, A), a
    b = (step * u)[..., None] * B[:, :, None]
    yield "input", (step, u, B), b
    h = ssmlab.scan(a, b)
    yield "scan", (a, b), h
    inner = (C[:, :, None] * h).sum(dim=-1)
    yield "contract", (h, C), inner
    y = (inner + D * u) * silu(z)
    yield "skip and gate", (inner, u, z), y


def moved(values):
    """{step: bytes of the tensors that it reads and writes}, and y."""
    found = {}
    for name, read, written in chain(*values):
        found[name] = sum(tensor.nbytes for tensor in (*read, written))
    return found, written


def tensors(batch, length, channels, states):
    return [torch.as_tensor(value, device=device) for value in ladder.problem(batch, length, channels, states).values()]


# %%
example = tensors(1, 64, 256, 16)
found, y = moved(example)
fused_y = ssmlab.selective_scan(*example, delta_softplus=True)
assert (y - fused_y).abs().max() <= 1e-5 * y.abs().max()
words = {name: round(total / (4 * 64 * 256), 1) for name, total in found.items()}
print("numbers moved for each step of each channel, 16 states:", words, "together", round(sum(words.values())))

# %% [markdown]
# In units of one number for each step and channel: u is 1, and a, b and h are 16 each, because every bucket has its own.
# The fused kernel reads u, Δ, z and writes y: **4**. (B and C are shared by all channels, here 256, and hardly count.)
#
# **Claim 6.11** (A11) The chain moves 6 N + 10 numbers where the fused kernel moves 4: fusing saves 75 % with one state,
# 96 % with 16, 99 % with 64. The source's "60 to 80 %" is right for one state (and for two, if neighbouring steps are
# joined: 6 N + 7). `ledger` predicts the bytes of both exactly.

# %%
# check 6.11
batch, length, channels = 1, 64, 256
saved = {}
for states_now in (1, 2, 4, 8, 16, 32, 64):
    now = tensors(batch, length, channels, states_now)
    found, _ = moved(now)
    assert found == ledger.unfused(batch, length, channels, states_now)
    y, last = ssmlab.selective_scan(*now, delta_softplus=True, return_final_state=True)
    fused_bytes = sum(tensor.nbytes for tensor in (*now, y, last))
    assert fused_bytes == ledger.selective_scan(batch, length, channels, states_now, itemsize=4).bytes
    fused_bytes = ledger.selective_scan(16, 2048, 1536, states_now, itemsize=4).bytes
    saved[states_now] = 1 - fused_bytes / sum(ledger.unfused(16, 2048, 1536, states_now).values())
assert [round(100 * saved[n]) for n in (1, 2, 16, 64)] == [75, 82, 96, 99]
assert [round(100 * (1 - 4 / (6 * n + 7))) for n in (1, 2, 16)] == [69, 79, 96]
print("6.11 holds: saved in %", {n: round(100 * share) for n, share in saved.items()})

# %%
fig, (left, right) = lab.figure(columns=2, height=3.1, width=8.4, gridspec_kw={"width_ratios": [5, 4]})
bottom = np.zeros(len(saved))
palette = ["soft", "hillis", "global", "blelloch", "shared", "accent"]
for name, color in zip(ledger.unfused(1, 1, 1, 1), palette):
    height = np.array([ledger.unfused(16, 2048, 1536, n)[name] / (4 * 16 * 2048 * 1536) for n in saved])
    left.bar([str(n) for n in saved], height, bottom=bottom, color=lab.COLORS[color], label=name)
    bottom += height
left.axhline(4, color=lab.COLORS["ink"], linewidth=1)
left.annotate("fused: 4", (-0.6, 4), (-0.45, 60), fontsize=9, arrowprops={"arrowstyle": "-"})
left.set(xlabel="states", ylabel="numbers moved", title="for each step of each channel")
left.legend(fontsize=8.5)
right.axhspan(60, 80, color=lab.COLORS["faint"])
right.plot([str(n) for n in saved], [100 * share for share in saved.values()], "o-", color=lab.COLORS["chunk"])
right.text(3.2, 69, "what the source says", fontsize=9)
right.set(xlabel="states", title="saved by fusing [%]", ylim=(50, 101))
plt.show()

# %% [markdown]
# Look left: nearly all of each bar is a, b and h, which are written by one step to be read by the next. The thin line is
# all that the fused kernel moves. Right: the band of the source, and what the count says.
#
# The source also lists the projections among what is fused. We know of no kernel that does so, and neither does ours:
# those are matrix products, which run best as matrix products, before and after. What is fused is everything from
# softplus to the gate.
#
# ## 6. One kernel
#
# The chain as kernels is `kernels_cu/selective_v1_unfused.cu`: four of them, as two steps at a time are easily joined.
# Here is the same work in one. A thread owns a channel, walks along time, and keeps all buckets of the channel in its
# registers. Change it as you like; the cell below runs it on this machine, checks it, and prints what it did to memory.

# %%
text2 = lab.kernel_cell(r'''// selective_v2 -- the same chain in one kernel: the states stay in registers, nothing of their size touches memory.
//
// What       y[t] = (C[t] . h[t] + D u[t]) silu(z[t]), h[t] = exp(delta' A) h[t-1] + delta' B[t] u[t].
// Since v1   one launch instead of four; a, b and h are never stored.
// Used in    notebook 06.   Oracle: ssmlab.reference.selective_scan.
// Next       selective_forward: threads share a channel, tiles are staged in shared memory and fetched ahead.
//
// Mapping    one thread a channel of a batch row; it walks along time with its STATES states.
// Layout     u, delta, z, y (batch, length, channels), B, C (batch, length, states), A (channels, states), all contiguous
//            float32: neighbour threads, neighbour words; B and C are the same word for all threads of a row.
// Limits     STATES states, in registers.
// Global     each input once, each output once.
// Work       a state and step: 1 exponential, 2 multiplies, 2 multiply-adds.
// Barriers   none: a thread waits for its own loads only, and there are as many threads as channels, which is too few.
// Rounding   the recurrence in the loop's order; y sums the states from the first to the last.
// compile: -DTHREADS=128 -DSTATES=16

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v2(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A,
                  const float* __restrict__ B, const float* __restrict__ C, const float* __restrict__ D,
                  const float* __restrict__ z, const float* __restrict__ bias, float* __restrict__ y, int batches,
                  long long length, int channels) {
    const long long row = blockIdx.x * (long long)THREADS + threadIdx.x;    // (batch, channels)
    if (row >= (long long)batches * channels) {
        return;
    }
    const int channel = row % channels;
    const long long batch = row / channels;
    const float skip = D[channel], offset = bias[channel];
    float rate[STATES], h[STATES];
    for (int n = 0; n < STATES; ++n) {
        rate[n] = A[channel * STATES + n] * 1.44269504f;    // exp(x) = exp2(x log2(e))
        h[n] = 0.0f;
    }
    for (long long t = 0; t < length; ++t) {
        const long long time = batch * length + t;          // (batch, length)
        const long long at = time * channels + channel;     // (batch, length, channels)
        const float in = u[at], raw = delta[at] + offset, gate = z[at];
        const float step = raw > 20.0f ? raw : log1pf(expf(raw));
        float sum = skip * in;
        for (int n = 0; n < STATES; ++n) {
            h[n] = exp2f(step * rate[n]) * h[n] + step * in * B[time * STATES + n];
            sum += C[time * STATES + n] * h[n];
        }
        y[at] = sum * gate / (1.0f + expf(-gate));
    }
}
''', mirrors="selective_v2_fused.cu")

# %%
def launch(text, batch=2, length=50, channels=100, states=16):
    """Run the text on this machine and compare with the reference."""
    given = ladder.problem(batch, length, channels, states)
    arguments = [torch.as_tensor(value, device=device) for value in given.values()]
    y = torch.full_like(arguments[0], torch.nan)
    kernel = RawKernel(text, "selective_v2", options=("-DTHREADS=128", f"-DSTATES={states}"))
    kernel((-(-batch * channels // 128),), (128,), (*arguments, y, batch, length, channels))
    want, _ = reference.selective_scan(*given.values(), delta_softplus=True)
    error = np.max(np.abs(y.cpu().numpy() - want)) / np.max(np.abs(want))
    return "right" if error <= 1e-5 else "WRONG"


print(launch(text2))
small = ladder.problem(1, 16, 64, 16)
y2, report2 = ladder.fused(small, text2)
print(report2)

# %% [markdown]
# Read the rows of u, delta, z and y: each number once, in full sectors. B and C: many requests, 1 sector each, as all
# threads of a warp ask for the same number at the same time. The rows of h, a and b: there are none.
#
# **Claim 6.12** Asked by `check`: of results as large as u, the four kernels write 3 N + 2 (50 with 16 states), the fused
# one 1. It reads u, Δ and z once each.

# %%
# check 6.12
_, reports = ladder.unfused(small)
size = small["u"].nbytes
assert sum(report.bytes["global written"] for report in reports.values()) == (3 * 16 + 2) * size == 50 * size
assert report2.bytes["global written"] == size
reads = {row.name: row.threads * row.size for row in report2.lines if row.access == "read"}
assert [reads[name] for name in ("u", "delta", "z")] == [size] * 3
print("6.12 holds")

# %% [markdown]
# `check` counts what threads ask for; it knows no caches. What really crosses the pins of the memory, the GPU's own
# counters say; `ssmlab.lab.counters` reads them with Nsight Compute. Batch 16 (4 for the four kernels), 2048 steps, 1536
# channels, 16 states:

# %%
shape = tuple(counted["shape"].values())                            # batch, length, channels, states
quarter = counted["batch of unfused"], *shape[1:]
predicted = {"unfused float32": sum(ledger.unfused(*quarter).values()) - 3 * 4 * int(np.prod(quarter[:3])),  # in 4 kernels
             "v2 float32": ledger.selective_scan(*shape, itemsize=4).bytes,
             "forward float32": ledger.selective_scan(*shape, itemsize=4).bytes,
             "forward bfloat16": ledger.selective_scan(*shape, itemsize=2).bytes}
crossed = {case: sum(counters.total(counted, case, f"DRAM {way} [B]") for way in ("read", "written"))
           for case in (*predicted, "v2 float32, time inner")}
for case in predicted:
    print(f"{case:16} predicted {predicted[case] / 1e9:5.2f} GB, crossed {crossed[case] / 1e9:5.2f} GB")

# %% [markdown]
# **Claim 6.13** (measured on an H200) What crosses the pins is what the ledger predicts, within 3 %, for the four kernels
# and for the fused ones, ours and v2. Fusing saves 96 % there, too.

# %%
# check 6.13
assert all(abs(crossed[case] / predicted[case] - 1) <= 0.03 for case in predicted)
one_row = crossed["forward float32"] / shape[0], crossed["unfused float32"] / quarter[0]
assert round(100 * (1 - one_row[0] / one_row[1])) == 96
print("6.13 holds")

# %% [markdown]
# ## 7. What binds it now?
#
# "Four operations for 16 bytes, the ridge at 10 to 20: one hundred per cent bound by bandwidth", says the source (A10).
# Notebook 03 found that true of the scan of (a, b), and put three roofs over the fused one. Now we can ask the GPU. First
# the floors, each in the time that an H200 would need if nothing else cost anything: the ledger's bytes at the speed of
# a large copy, its special functions at 16 a clock and multiprocessor, its multiply-adds at 128.
#
# (The special functions are 16 exponentials a step and channel, and three more that one forgets: an exponential for
# softplus, whose logarithm is a polynomial of multiply-adds, and an exponential and a reciprocal for the gate.)

# %%
h200 = DEVICES["H200"]
peaks = {"bandwidth": 1e9 * timed["copy_gbps"], "exponentials": h200.exponentials, "flops": h200.flops}
floors = {dtype: ledger.floors(ledger.selective_scan(*shape, itemsize=size), **peaks)
          for dtype, size in (("float32", 4), ("bfloat16", 2))}
unfused_floor = sum(ledger.unfused(*shape).values()) / peaks["bandwidth"]    # [s]

# %% [markdown]
# **Claim 6.14** (A10) The unfused chain is bound by bytes on an H200, 20 times over. Fused, the highest floor is that of
# the special functions, in float32 (about 1.2 times that of the bytes) and in bfloat16 (about 2.4 times).

# %%
# check 6.14
assert unfused_floor > 20 * floors["float32"]["exponentials"]
for dtype, times in ("float32", 1.2), ("bfloat16", 2.4):
    assert max(floors[dtype], key=floors[dtype].get) == "exponentials"
    assert abs(floors[dtype]["exponentials"] / floors[dtype]["bytes"] - times) <= 0.1
print("6.14 holds")

# %%
def milliseconds(dtype, who="ours_ms"):
    (row,) = [row for row in timed["rows"] if row["op"] == "selective_scan" and row["direction"] == "forward"
              and row["shape"] == list(shape) and row["dtype"] == dtype]
    return row[who]


bars = {f"{name}, {dtype}": milliseconds(dtype, who) for name, who in (("mamba_ssm", "peer_ms"), ("ours", "ours_ms"))
        for dtype in floors}
shares = {name: {floor: 100e3 * floors[name.split(", ")[1]][floor] / ms for floor in ("exponentials", "flops", "bytes")}
          for name, ms in bars.items()}                             # [%] of the time that the floor alone would take

# %%
fig, (left, right) = lab.figure(columns=2, width=8.8, height=2.9, gridspec_kw={"width_ratios": [4, 5]})
for place, (name, ms) in enumerate(bars.items()):
    left.barh(place, ms, color=lab.COLORS["good" if "ours" in name else "soft"])
    left.text(ms + 0.03, place, f"{ms:.2f}", va="center", fontsize=9)
    left.plot([1e3 * max(floors[name.split(", ")[1]].values())] * 2, [place - 0.4, place + 0.4], color=lab.COLORS["bad"])
left.set(xlim=(0, 2), xlabel=f"ms; {timed['device']}", title="time, and the highest floor (red)")
left.set_yticks(range(len(bars)), list(bars))
left.invert_yaxis()
for index, (floor, color) in enumerate(zip(("exponentials", "flops", "bytes"), ("blelloch", "soft", "global"))):
    label = {"exponentials": "special functions", "flops": "multiply-adds", "bytes": "bytes"}[floor]
    height = [share[floor] for share in shares.values()]
    right.bar(np.arange(len(bars)) + 0.25 * index - 0.25, height, 0.25, color=lab.COLORS[color], label=label)
right.set(ylim=(0, 100), title="used, of what an H200 has [%]")
right.set_xticks(range(len(bars)), [name.replace(", ", "\n") for name in bars], fontsize=8.5)
right.legend(fontsize=8.5, loc="upper left")
plt.show()

# %% [markdown]
# Look right: in no kernel is anything full, and in none are bytes the tallest bar. The special functions are, in all four.
#
# **Claim 6.15** (measured on an H200) The best known kernel uses a ninth of a copy's bandwidth, in float32 as in bfloat16.
# Ours uses five times as much in float32, more than twice as much in bfloat16, and two thirds of the special functions in
# both: halving the bytes saves hardly any time, less than a twentieth, since bytes are not what it waits for.

# %%
# check 6.15
for dtype in floors:
    theirs, mine = shares[f"mamba_ssm, {dtype}"], shares[f"ours, {dtype}"]
    assert max(mine, key=mine.get) == max(theirs, key=theirs.get) == "exponentials" and mine["exponentials"] > 65
    assert 10 <= theirs["bytes"] <= 12 and mine["bytes"] > {"float32": 5, "bfloat16": 2}[dtype] * theirs["bytes"]
assert 0.95 <= bars["ours, bfloat16"] / bars["ours, float32"] <= 1
print("6.15 holds")

# %% [markdown]
# "Used" was a division: what must be done, over the time it took. The counters see what was done. How busy was each part of
# a multiprocessor, and how many instructions does a state take a step?

# %%
cases = {"mamba\nfloat32": "mamba_ssm forward float32", "mamba\nbfloat16": "mamba_ssm forward bfloat16",
         "v2\nfloat32": "v2 float32", "ours\nfloat32": "forward float32", "ours\nbfloat16": "forward bfloat16"}
units = {"special functions": "blelloch", "issue slots": "hillis", "shared wavefronts": "shared", "multiply-adds": "soft",
         "DRAM": "global"}
busy = {unit: [counters.total(counted, case, f"{unit} busy [%]") for case in cases.values()] for unit in units}
work = np.prod(shape)                                               # states of all steps of all channels
each = [32 * counters.total(counted, case, "instructions") / work for case in cases.values()]

# %%
for column, (name, case) in enumerate(cases.items()):
    order = sorted(units, key=lambda unit: -busy[unit][column])
    warps = 0.64 * counters.total(counted, case, "resident warps [%]")      # a multiprocessor could hold 64
    print(f"{' '.join(name.split()):14} " + ", ".join(f"{unit} {busy[unit][column]:.0f} %" for unit in order)
          + f"; {warps:.0f} warps, {each[column]:.1f} instructions")

# %%
fig, ax = lab.figure(width=8.2, height=3.1)
for index, (unit, color) in enumerate(units.items()):
    ax.bar(np.arange(len(cases)) + 0.16 * index - 0.32, busy[unit], 0.16, color=lab.COLORS[color], label=unit)
for place, count in enumerate(each):
    ax.text(place, 93, f"{count:.1f} instructions", ha="center", fontsize=9)
ax.set(ylim=(0, 120), yticks=range(0, 101, 20), title=f"how busy [%]; {counted['device']}, {counted['date']}")
ax.set_xticks(range(len(cases)), list(cases))
ax.legend(fontsize=8.5, ncols=5, loc="upper center")
plt.show()

# %% [markdown]
# Look at the last two groups: special functions, issue slots and shared memory are all busier than DRAM, and close
# together. Nothing is full, so no single roof explains the rest: few warps live on a multiprocessor, as each holds its
# states in registers, and at times all of them wait: for a special function, for shared memory, for the instruction
# before.
#
# Five instructions a state and step are the work itself: a product, an exponential, a product, two multiply-adds. Ours
# takes less than twice as many; the others stage tiles, sum over lanes, round. mamba_ssm takes about 20, and its float32
# form fills something that no roof has shown: shared memory, more than 80 % busy, more than half of it with bank
# conflicts. And v2 is busy with nothing. It waits for its loads, with 6 warps on a multiprocessor that could hold 64.
#
# **Claim 6.16** (measured on an H200) Ours issues as many special functions as the ledger counts, within 1 %. They are
# busier than DRAM in both types, by more than a third. mamba_ssm's float32 kernel is bound by shared memory. None of them
# is bound by bandwidth.

# %%
# check 6.16
for dtype, size in ("float32", 4), ("bfloat16", 2):
    expected = ledger.selective_scan(*shape, itemsize=size).special
    made = 32 * counters.total(counted, f"forward {dtype}", "special function instructions")
    assert abs(made / expected - 1) <= 0.01
    column = list(cases.values()).index(f"forward {dtype}")
    assert min(busy[unit][column] for unit in ("special functions", "issue slots", "shared wavefronts")) \
        > busy["DRAM"][column] and busy["special functions"][column] > 4 / 3 * busy["DRAM"][column]
    assert each[column] < 10 and max(busy[unit][column] for unit in units) < 95
assert max(busy, key=lambda unit: busy[unit][0]) == "shared wavefronts" and busy["shared wavefronts"][0] > 80
conflicts, wavefronts = (counters.total(counted, cases["mamba\nfloat32"], what)
                         for what in ("bank conflicts", "shared wavefronts"))
assert conflicts > wavefronts / 2 and max(busy["DRAM"]) < 65
print("6.16 holds")

# %% [markdown]
# ## 8. Which way do the tensors lie?
#
# u, Δ, z and y have steps and channels. A projection writes **(batch, length, channels)**: neighbours in memory are
# neighbouring channels. Other code wants **(batch, channels, length)**. A thread that owns a channel does not care, its
# warp does: 32 channels of one step are 4 sectors there, and 32 here (notebook 03). One line of the kernel decides:

# %%
turned_text = text2.replace("at = time * channels + channel;", "at = row * length + t;      ")


def turned(array):
    """The same numbers in the other order, (batch, channels, length), under the old shape."""
    return np.ascontiguousarray(array.transpose(0, 2, 1)).reshape(array.shape)


wide = ladder.problem(1, 32, 64, 16)
other_order = {name: turned(value) if name in ("u", "delta", "z") else value for name, value in wide.items()}
(y_columns, columns), (y_rows, rows) = ladder.fused(wide, text2), ladder.fused(other_order, turned_text)
assert np.array_equal(turned(y_columns), y_rows)

# %%
fig, axes = lab.figure(rows=2, height=3.0, height_ratios=[1, 6])
for ax, report, layout in zip(axes, (columns, rows), ("(length, channels)", "(channels, length)")):
    line = next(row.line for row in report.lines if row.name == "u")
    lab.access_figure(report, line, access="read", name="u", ax=ax, rows=6, title=layout)
plt.show()

# %% [markdown]
# Look at the lanes: the same 32 numbers of u, once in four full sectors, once in 32 sectors that are one eighth useful.
# The other seven eighths are the next seven steps. If they are still in the cache when their turn comes, little is lost:
# on an H200, v2 moves eight times the sectors of these tensors to its threads in this order, and 6 % more bytes through
# the pins. It has so few warps at work that the cache keeps nearly everything. Notebook 03 had a case where it did not:
# 22 % of the bandwidth.
#
# The finished kernel does not leave that to luck. A block takes a tile of steps and channels, reads it *along whatever is
# innermost*, several neighbours a thread, puts it into shared memory, and walks through time there. So it needs no copy
# of a transposed tensor: it takes strides.
#
# **Claim 6.17** One thread a channel: 4 sectors a request for (length, channels), 32 for (channels, length). The finished
# kernel moves the fewest possible in both. The counters of an H200 say the same: of v2 to the sector, of the finished
# kernel as many in one layout as in the other, within 1 %.

# %%
# check 6.17
def a_request(report, *names):
    requests, sectors, fewest = ladder.traffic(report, *names)
    return sectors // requests, fewest // requests


assert a_request(columns, "u", "delta", "z", "y") == (4, 4)
assert a_request(rows, "u", "delta", "z", "y") == (32, 4)
for time_inner in False, True:
    y, report = ladder.finished(wide, time_inner=time_inner)
    assert report.ok and np.max(np.abs(y - y_columns)) <= 1e-5 * np.max(np.abs(y_columns))
    assert all(moved == fewest > 4 for moved, fewest in (a_request(report, "u", "delta", "z", "y"),
                                                         a_request(report, "B", "C")))
names = "v2 float32", "v2 float32, time inner", "forward float32", "forward float32, time inner"
read, written = ([counters.total(counted, name, f"{way} sectors") for name in names] for way in ("read", "write"))
uses = 3 * int(np.prod(shape[:3])) // 8                             # sectors of u, delta and z, if all were full
assert read[1] - read[0] == 7 * uses and written[1] == 8 * written[0]        # as check counted
assert abs(read[3] / read[2] - 1) <= 0.01 and abs(written[3] / written[2] - 1) <= 0.01
print("6.17 holds")

# %% [markdown]
# ## 9. What rides along
#
# The bias and softplus, the skip D · u, the gate z: none of them is needed for a scan. Each would be a kernel of its own in
# a framework, and each touches a tensor that the fused kernel has in its hands anyway.
#
# **Claim 6.18** In the fused kernel softplus, bias and D cost no further pass over anything, and the gate costs one number
# for each step and channel: z itself. As steps of their own they would move 2 and 4.

# %%
# check 6.18
one_number = 4 * 16 * 2048 * 1536                           # [B] u, say
def fused_bytes(**options):
    return ledger.selective_scan(16, 2048, 1536, 16, itemsize=4, **options).bytes


assert fused_bytes() - fused_bytes(z=False) == one_number
assert fused_bytes() - fused_bytes(D=False) == fused_bytes() - fused_bytes(bias=False) == 4 * 1536
assert fused_bytes() == fused_bytes(softplus=False)
steps_alone = ledger.unfused(16, 2048, 1536, 16)
assert (steps_alone["softplus"], steps_alone["skip and gate"]) == (2 * one_number, 4 * one_number)
print("6.18 holds")

# %% [markdown]
# And B and C? They are 2 N numbers for each step, and they are nearly free for one reason: 1536 channels *share* them.
# Where a model wants more variety it makes **groups**: the channels of a group share a B and a C.
#
# **Claim 6.19** Groups are separate problems: two groups give what two scans over the halves of the channels give. They
# cost little while they are few: with 8 groups the fused kernel moves 4 % more, with a group for each channel 9 times
# as much.

# %%
# check 6.19
values = random_problem(batch=2, length=21, channels=6, states=4, groups=2)
y, last = scan(values)
for group in 0, 1:
    mine = slice(3 * group, 3 * group + 3)
    half = {name: value[..., group : group + 1, :] if name in "BC" else value[mine] if name in ("A", "D", "delta_bias")
            else value[..., mine] for name, value in values.items()}
    alone, state = scan(half)
    assert agree(alone, y[..., mine]) and agree(state, last[:, mine])
assert round(100 * (fused_bytes(groups=8) / fused_bytes() - 1)) == 4
assert round(fused_bytes(groups=1536) / fused_bytes()) == 9
print("6.19 holds")

# %% [markdown]
# ## 10. Break it
#
# One edit: let the kernel use the C of the token *before*. What do you expect: a wrong number, a finding, or both? And
# where?

# %%
late = text2.replace("C[time * STATES + n]", "C[(time - 1) * STATES + n]")
two_rows = ladder.problem(2, 6, 32, 16)
y_late, report = ladder.fused(two_rows, late)
print(report.findings[0])

want, _ = reference.selective_scan(*two_rows.values(), delta_softplus=True)
for row in 0, 1:
    wrong = np.flatnonzero(~np.isclose(y_late[row], want[row], rtol=1e-5, atol=1e-5).all(axis=1))
    print(f"row {row}: the first wrong step is {wrong[0]}")

# %% [markdown]
# The finding belongs to row 0 alone: its first token has nothing before it, and the kernel reads in front of C. Row 1
# does the same mistake without any finding, because in front of *its* C lies memory that exists: the last token of row
# 0. A stranger's token, silently. Tests with a batch of 1 do not see that, and a checker does not either. Only the numbers
# do.
#
# Break one yourself. Remove `* 1.44269504f`, and say before you run it: which is the *first* wrong step, and why is it not
# step 0? (`exp2f` is the base-2 exponential; the factor is log₂ e.)
#
# ## Exercises
#
# ### Exercise 6.A: hold it
#
# Write the scan of one channel with the exact hold of section 1. u and delta have shape (length,), A (states,), B and C
# (length, states). Give back y, (length,). Some states may not leak at all (A = 0), some hardly.
#
# <details><summary>Hint</summary>Where A is 0, the bucket just fills: b = Δ B. Where Δ A is tiny, exp(Δ A) − 1 is the
# difference of two numbers that agree in nearly all digits; <code>np.expm1</code> never forms it.</details>

# %% tags=["exercise"]
def my_scan(u, delta, A, B, C):
    raise NotImplementedError   # YOUR CODE, about 8 lines

# %% tags=["nbval-ignore-output"]
lab.exercises.check("6.A", my_scan)

# %% [markdown]
# ### Exercise 6.B: go on from here
#
# Give the kernel one parameter more, behind `channels`: `float* state`, (batch, channels, STATES). It begins from what is
# there, and leaves there what comes out. A piece of no steps hands it through.
#
# *Budget:* every number of the state is read once and written once.
#
# <details><summary>Hint</summary><code>row</code> numbers the channels of all batch rows. Where do the states of a row
# begin?</details>

# %% tags=["exercise", "nbval-ignore-output"]
my_carried = lab.kernel_cell(r'''// selective_v2 -- the same chain in one kernel: the states stay in registers, nothing of their size touches memory.
//
// What       y[t] = (C[t] . h[t] + D u[t]) silu(z[t]), h[t] = exp(delta' A) h[t-1] + delta' B[t] u[t].
// Since v1   one launch instead of four; a, b and h are never stored.
// Used in    notebook 06.   Oracle: ssmlab.reference.selective_scan.
// Next       selective_forward: threads share a channel, tiles are staged in shared memory and fetched ahead.
//
// Mapping    one thread a channel of a batch row; it walks along time with its STATES states.
// Layout     u, delta, z, y (batch, length, channels), B, C (batch, length, states), A (channels, states), all contiguous
//            float32: neighbour threads, neighbour words; B and C are the same word for all threads of a row.
// Limits     STATES states, in registers.
// Global     each input once, each output once.
// Work       a state and step: 1 exponential, 2 multiplies, 2 multiply-adds.
// Barriers   none: a thread waits for its own loads only, and there are as many threads as channels, which is too few.
// Rounding   the recurrence in the loop's order; y sums the states from the first to the last.
// compile: -DTHREADS=128 -DSTATES=16

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v2(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A,
                  const float* __restrict__ B, const float* __restrict__ C, const float* __restrict__ D,
                  const float* __restrict__ z, const float* __restrict__ bias, float* __restrict__ y, int batches,
                  long long length, int channels) {
    const long long row = blockIdx.x * (long long)THREADS + threadIdx.x;    // (batch, channels)
    if (row >= (long long)batches * channels) {
        return;
    }
    const int channel = row % channels;
    const long long batch = row / channels;
    const float skip = D[channel], offset = bias[channel];
    float rate[STATES], h[STATES];
    for (int n = 0; n < STATES; ++n) {
        rate[n] = A[channel * STATES + n] * 1.44269504f;    // exp(x) = exp2(x log2(e))
        h[n] = 0.0f;
    }
    for (long long t = 0; t < length; ++t) {
        const long long time = batch * length + t;          // (batch, length)
        const long long at = time * channels + channel;     // (batch, length, channels)
        const float in = u[at], raw = delta[at] + offset, gate = z[at];
        const float step = raw > 20.0f ? raw : log1pf(expf(raw));
        float sum = skip * in;
        for (int n = 0; n < STATES; ++n) {
            h[n] = exp2f(step * rate[n]) * h[n] + step * in * B[time * STATES + n];
            sum += C[time * STATES + n] * h[n];
        }
        y[at] = sum * gate / (1.0f + expf(-gate));
    }
}
''', mirrors="selective_v2_fused.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("6.B", my_carried)

# %% [markdown]
# ### Exercise 6.C: one block, one B
#
# In the report of section 6 every thread asks for every number of B and C. The threads of a block all want the same ones.
# Let the block read each number *once*, through shared memory. The check launches blocks of 64 threads, and 64 divides
# the number of channels, so a block lies inside one batch row.
#
# *Budget:* 2 · STATES numbers of B and C for each step and block, in full sectors; any number of barriers that makes it
# right, for any length.
#
# <details><summary>Hint</summary>Take 8 steps of B and C at a time; they are neighbours in memory, so thread i takes number
# i, i + THREADS, … Two barriers for each tile: one before anyone reads it, one before anyone overwrites it. And mind the
# last tile.</details>

# %% tags=["exercise", "nbval-ignore-output"]
my_shared = lab.kernel_cell(r'''// selective_v2 -- the same chain in one kernel: the states stay in registers, nothing of their size touches memory.
//
// What       y[t] = (C[t] . h[t] + D u[t]) silu(z[t]), h[t] = exp(delta' A) h[t-1] + delta' B[t] u[t].
// Since v1   one launch instead of four; a, b and h are never stored.
// Used in    notebook 06.   Oracle: ssmlab.reference.selective_scan.
// Next       selective_forward: threads share a channel, tiles are staged in shared memory and fetched ahead.
//
// Mapping    one thread a channel of a batch row; it walks along time with its STATES states.
// Layout     u, delta, z, y (batch, length, channels), B, C (batch, length, states), A (channels, states), all contiguous
//            float32: neighbour threads, neighbour words; B and C are the same word for all threads of a row.
// Limits     STATES states, in registers.
// Global     each input once, each output once.
// Work       a state and step: 1 exponential, 2 multiplies, 2 multiply-adds.
// Barriers   none: a thread waits for its own loads only, and there are as many threads as channels, which is too few.
// Rounding   the recurrence in the loop's order; y sums the states from the first to the last.
// compile: -DTHREADS=128 -DSTATES=16

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v2(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A,
                  const float* __restrict__ B, const float* __restrict__ C, const float* __restrict__ D,
                  const float* __restrict__ z, const float* __restrict__ bias, float* __restrict__ y, int batches,
                  long long length, int channels) {
    const long long row = blockIdx.x * (long long)THREADS + threadIdx.x;    // (batch, channels)
    if (row >= (long long)batches * channels) {
        return;
    }
    const int channel = row % channels;
    const long long batch = row / channels;
    const float skip = D[channel], offset = bias[channel];
    float rate[STATES], h[STATES];
    for (int n = 0; n < STATES; ++n) {
        rate[n] = A[channel * STATES + n] * 1.44269504f;    // exp(x) = exp2(x log2(e))
        h[n] = 0.0f;
    }
    for (long long t = 0; t < length; ++t) {
        const long long time = batch * length + t;          // (batch, length)
        const long long at = time * channels + channel;     // (batch, length, channels)
        const float in = u[at], raw = delta[at] + offset, gate = z[at];
        const float step = raw > 20.0f ? raw : log1pf(expf(raw));
        float sum = skip * in;
        for (int n = 0; n < STATES; ++n) {
            h[n] = exp2f(step * rate[n]) * h[n] + step * in * B[time * STATES + n];
            sum += C[time * STATES + n] * h[n];
        }
        y[at] = sum * gate / (1.0f + expf(-gate));
    }
}
''', mirrors="selective_v2_fused.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("6.C", my_shared)

# %% [markdown]
# ## What we now know
#
# - 6.1, 6.3 A token says how long it holds the tap open. Held steps are exact, always stable, and a gate in disguise.
# - 6.2 Mamba's b = Δ B lets in more than the tap gave; its a is the exact one.
# - 6.4, 6.5 *Source (A26): holds.* Equal steps are a convolution, and an FFT gives what the scan gives, relative to the
#   loudest step.
# - 6.6 *Source (A26): holds, to the step.* The first token whose Δ differs is the first one that the convolution gets
#   wrong; the outputs before it stay right.
# - 6.7 *Source (A26), corrected*: varying B and C alone would make it N convolutions. It is Δ that ends it.
# - 6.8 to 6.10 What survives: the pairs, so every bracket and every cut; at most N numbers through a cut; packed rows.
# - 6.11 to 6.13 *Source (A11), measured otherwise*: "60 to 80 %" is what fusing saves with one state. With 16 it is 96 %,
#   by the ledger, by the tensors, and at the pins of the memory.
# - 6.14 to 6.16 *Source (A10), corrected*: the unfused chain is bound by bytes; the fused scan on an H200 is not. Its
#   special functions bind first, in float32 and in bfloat16, with instructions and shared memory close behind; and no
#   kernel that we know is at its roof.
# - 6.17 Channels innermost, or a kernel that reads along whatever is innermost.
# - 6.18, 6.19 Softplus, skip and gate ride along; B and C are cheap because channels share them.
#
# *Still untrue or slow.* The special functions of our kernel rest at times, and nothing else is full either; notebook 13
# asks why. One thread a channel needs very many channels, and long sequences with few of them have to be cut
# (notebook 05). And this was a forward pass only: training wants the states back, and h was never written anywhere.
#
# *Next:* [07 · Store the states or compute them twice?](07_recompute.ipynb)
#
# *Sources.* A. Gu, T. Dao: Mamba, 2023, arXiv 2312.00752 (section 2: the hold; theorem 1: the gate; algorithm 2). A. Gu,
# K. Goel, C. Ré: S4, 2021, arXiv 2111.00396 (the convolution). T. Dao, A. Gu: Transformers are SSMs, 2024, arXiv
# 2405.21060 (semiseparable matrices). "Slightly simpler": A. Gu in state-spaces/mamba, issue 114. NVIDIA: CUDA C++
# Programming Guide (16 special functions a clock and multiprocessor), Nsight Compute (counters). Measured on an H200:
# `results/selective_h200.json` and `results/ncu_selective_h200.json`.
