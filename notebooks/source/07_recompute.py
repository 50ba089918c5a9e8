# %% [markdown]
# # 07 · Store the states or compute them twice?
#
# The selective scan forgets its states on purpose: they stay in registers, and only y leaves the kernel. Then training
# asks for gradients, and the gradients ask for the states. All of them, and from the last to the first.
#
# *You will be able to*
#
# - **derive** the backward of a selective scan line by line, and say which gradients need the states at all;
# - **predict** to the byte what a training step keeps, for any shape and any way to save;
# - **choose** between storing and computing twice, from time, memory and accuracy.
#
# *Needs:* notebook 01 (pairs) and 06 (the fused scan). No GPU: times come from a measured H200. About 60 minutes.

# %% tags=["nbval-ignore-output"]
import json
from fractions import Fraction
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import silu, softplus

from ssmlab import RawKernel, bench, check, compare, lab, ledger, scan, selective_plans, selective_scan
from ssmlab.bench_recompute import kept, peak
from ssmlab.devices import DEVICES

lab.setup()
lab.here()
device = lab.device()
h200 = json.loads(Path("results/recompute_h200.json").read_text())          # measured by ssmlab.bench
print(f"times in the figures: {h200['device']}, {h200['date']}")

# %% [markdown]
# ## 1. Three steps there, three steps back
#
# A state starts from nothing, halves at each step, and takes in 4, 2, 8:
#
# h₀ = ½ · 0 + **4** = 4,  h₁ = ½ · 4 + **2** = 4,  h₂ = ½ · 4 + **8** = 10.
#
# Let the loss be the sum of the states, 18. If b₀ were larger by one, h₀ would be larger by 1, h₁ by ½, h₂ by ¼, and the
# loss by 1.75. Nobody adds up such lists for each step. From the *end* it is one line. What the loss feels of h₂ is g₂ = 1.
# Of h₁ it feels 1 directly, and ½ g₂ by way of h₂. And so on:
#
# | t | 0 | 1 | 2 | |
# |---|---|---|---|---|
# | hₜ | 4 → | 4 → | 10 | from left to right |
# | gₜ = 1 + ½ gₜ₊₁ | 1.75 | ← 1.5 | ← 1 | from right to left |
# | gradient of bₜ: gₜ | 1.75 | 1.5 | 1 | |
# | gradient of aₜ: gₜ · hₜ₋₁ | 0 | 6 | 4 | the state *before* the step |
#
# The last row is what this notebook is about. g comes from the right, h from the left, and they must meet.

# %%
a = torch.full((3,), 0.5, requires_grad=True)
b = torch.tensor([4.0, 2, 8], requires_grad=True)
h, loss = 0, 0
for t in range(3):
    h = a[t] * h + b[t]
    loss = loss + h
da, db = torch.autograd.grad(loss, (a, b))
assert loss == 18 and db.tolist() == [1.75, 1.5, 1.0] and da.tolist() == [0, 6, 4]

# %% [markdown]
# **Claim 7.1** The way back is a scan, too: the same recurrence from the end, with the decays shifted by one step, because
# gₜ₊₁ comes back through aₜ₊₁. So everything that notebooks 01 to 05 know about scans is true of it.

# %%
# check 7.1
def adjoint(a, slope):
    """g[t] = slope[t] + a[t+1] g[t+1] for (batch, length, channels)."""
    shifted = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], dim=1)
    return scan(shifted, slope, reverse=True)


assert adjoint(a.detach()[None, :, None], torch.ones(1, 3, 1)).flatten().tolist() == db.tolist()

torch.manual_seed(7)
a, b, slope = torch.rand(2, 200, 3, dtype=torch.float64), *torch.randn(2, 2, 200, 3, dtype=torch.float64)
(db,) = torch.autograd.grad(scan(a, b.requires_grad_()), b, slope)
g = slope.clone()
for t in reversed(range(199)):
    g[:, t] += a[:, t + 1] * g[:, t + 1]
assert all(torch.max(torch.abs(found - g)) <= 1e-12 for found in (adjoint(a, slope), db))
print("7.1 holds")

# %% [markdown]
# ## 2. Line by line
#
# Here is the whole forward of a Mamba layer's scan, in the plainest torch there is. It gives back everything that it met on
# the way, by name, so that we can ask autograd for the gradient of each, and compare it with ours.

# %%
def plain(u, delta, A, B, C, D, z, delta_bias, initial):
    """u, delta, z (batch, length, channels); A (channels, states); B, C (batch, length, states)."""
    step = softplus(delta + delta_bias)                     # line 1
    a = torch.exp(step[..., None] * A)                      # line 2   (batch, length, channels, states)
    b = (step * u)[..., None] * B[:, :, None]               # line 3
    h, state = [], initial
    for t in range(u.shape[1]):
        state = a[:, t] * state + b[:, t]                   # line 4
        h.append(state)
    v = (C[:, :, None] * torch.stack(h, 1)).sum(-1) + D * u           # line 5
    y = v * silu(z)                                         # line 6
    return dict(step=step, a=a, b=b, h=h, v=v, y=y)


NAMES = "u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial"


def problem(batch, length, channels, states, dtype=torch.float64, device="cpu"):
    """Random inputs of `plain` by name, which want gradients. Weights and states are never halves."""
    generator = torch.Generator().manual_seed(7)
    sizes = [(batch, length, channels)] * 2 + [(channels, states)] + [(batch, length, states)] * 2
    sizes += [(channels,), (batch, length, channels), (channels,), (batch, channels, states)]
    values = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    values[1], values[2] = values[1] - 1, -torch.exp(0.5 * values[2])       # delta around -1, A negative
    dtypes = {name: torch.promote_types(dtype, torch.float32) for name in ("A", "D", "delta_bias", "initial")}
    return {name: value.to(device, dtypes.get(name, dtype)).requires_grad_() for name, value in zip(NAMES, values)}


# %% [markdown]
# The loss shall look at y *and* at the final state: the next piece of a long text begins from that state, and sends a
# gradient back. (Some libraries drop it without a word.) Then we ask autograd for its opinion about everything.

# %%
batch, length, channels, states = 2, 12, 3, 4
x = problem(batch, length, channels, states)
on_the_way = plain(**x)
h = on_the_way.pop("h")
dout = torch.randn(batch, length, channels, dtype=torch.float64)            # what arrives at y
d_final = torch.randn(batch, channels, states, dtype=torch.float64)         # and at the final state
loss = (on_the_way["y"] * dout).sum() + (h[-1] * d_final).sum()

found = torch.autograd.grad(loss, [*x.values(), *on_the_way.values(), *h])
auto = dict(zip([*x, *on_the_way], found))
auto["h"] = torch.stack(found[-length:], 1)                 # (batch, length, channels, states)

# from here on everything is a number: no graph, no autograd
u, delta, A, B, C, D, z, delta_bias, initial = (value.detach() for value in x.values())
step, a, b, v, y = (value.detach() for value in on_the_way.values())
h = torch.stack(h, 1).detach()
before = torch.cat([initial[:, None], h[:, :-1]], dim=1)    # h[t-1] for every t


def same(ours, *names):
    """Is each of ours what autograd found, in shape and in number?"""
    pairs = [(mine, auto[name]) for mine, name in zip(ours, names, strict=True)]
    return all(mine.shape == right.shape and torch.max(torch.abs(mine - right)) <= 1e-12 * right.abs().max()
               for mine, right in pairs)

# %% [markdown]
# We go through the lines from the last to the first, and at each we ask: what comes in from the right, and where does it
# go? Two rules do it all. A factor's gradient is what comes in, times the *other* factor. And what the forward spreads over
# an axis, the backward sums over it.
#
# **Line 6**, y = v · silu(z). With s = 1 / (1 + e⁻ᶻ), silu(z) = z s has the derivative s (1 + z (1 − s)).
#
# **Line 5**, v = Σₙ C h + D u. C is spread over the channels, so its gradient is a sum over channels. D is spread over
# batch and steps.
#
# **Claim 7.2** dz = dout · v · s (1 + z (1 − s)) and dv = dout · z s. Then dC = Σ over channels of dv h, and dD = Σ over
# batch and steps of dv u.

# %%
# check 7.2
s = torch.sigmoid(z)
dz = dout * v * s * (1 + z * (1 - s))
dv = dout * z * s
dC = (dv[..., None] * h).sum(2)
dD = (dv * u).sum((0, 1))
assert same((dz, dv, dC, dD), "z", "v", "C", "D")
print("7.2 holds")

# %% [markdown]
# **Line 4**, the recurrence. A state is read twice: by line 5 of its own step, and by line 4 of the next step. The last one
# is read by whoever takes the final state: that is where d_final comes in, and it comes in nowhere else.
#
# **Claim 7.3** gₜ = Cₜ dvₜ + aₜ₊₁ gₜ₊₁, and behind the last step stands d_final. What arrives in front of the first step,
# a₀ g₀, is the gradient of the initial state. So the backward takes a gradient in at one end and hands one out at the
# other, as the forward does with states, and long texts can be cut anywhere.

# %%
# check 7.3
g, arriving = torch.empty_like(h), d_final
for t in reversed(range(length)):
    g[:, t] = C[:, t, None] * dv[:, t, :, None] + arriving  # (batch, channels, states)
    arriving = a[:, t] * g[:, t]
d_initial = arriving
assert same((g, d_initial), "h", "initial")
print("7.3 holds")

# %% [markdown]
# **Line 4 again**, now for its other factors: da = g · hₜ₋₁ and db = g, as in the table of section 1.
#
# **Line 3**, b = δ u B, with δ for the step. **Line 2**, a = exp(δ A), whose derivative is a itself, times A or δ. Both end
# at δ, and what arrives there on two ways is added. B is spread over channels, A over batch and steps.
#
# **Line 1**, δ = softplus(delta + bias): the derivative of softplus is the sigmoid.
#
# **Claim 7.4** With w = Σₙ g B and q = Σₙ g hₜ₋₁ a A: du = w δ + D dv, and dδ = w u + q, which times sigmoid(delta + bias) is
# the gradient of delta. dB = Σ over channels of g δ u, dA = Σ over batch and steps of g hₜ₋₁ a δ. Now all nine inputs have
# their gradients.

# %%
# check 7.4
da, db = g * before, g
w = (g * B[:, :, None]).sum(-1)
q = (da * a * A).sum(-1)
du = w * step + D * dv
dstep = w * u + q
dB = (g * (step * u)[..., None]).sum(2)
dA = (da * a * step[..., None]).sum((0, 1))
ddelta = dstep * torch.sigmoid(delta + delta_bias)
dbias = ddelta.sum((0, 1))
assert same((da, db, dstep), "a", "b", "step")
assert same((du, ddelta, dA, dB, dC, dD, dz, dbias, d_initial), *NAMES)
print("7.4 holds")

# %% [markdown]
# The package's kernel does these lines and no others; its head lists them. It agrees:

# %%
def op(values, **more):
    """selective_scan on the inputs of `plain`: (y, final state)."""
    values = dict(values)
    state = values.pop("initial")
    return selective_scan(**values, delta_softplus=True, initial_state=state, return_final_state=True, **more)


there = {name: value.detach().to(device).requires_grad_() for name, value in x.items()}
ours = torch.autograd.grad(op(there), list(there.values()), (dout.to(device), d_final.to(device)))
assert same([gradient.cpu() for gradient in ours], *NAMES)

# %% [markdown]
# ### Who needs the states?
#
# Look at the lines once more. Which of the nine would come out right if h were lost? A NaN will show it: fill h with NaN,
# and see where it spreads.
#
# **Claim 7.5** The gradients of delta, A, C, z and the bias need the states, directly or by way of v, da and q. Those of u,
# B, D and the initial state do not: for them the adjoint g is enough, and g asks for a only, which the inputs give.

# %%
# check 7.5
def gradients(h):
    """All nine, in the order of NAMES, from given states; g, w and all else that needs none as above."""
    before = torch.cat([initial[:, None], h[:, :-1]], dim=1)
    v = (C[:, :, None] * h).sum(-1) + D * u
    da = g * before
    ddelta = (w * u + (da * a * A).sum(-1)) * torch.sigmoid(delta + delta_bias)
    dA, dC = (da * a * step[..., None]).sum((0, 1)), (dv[..., None] * h).sum(2)
    return du, ddelta, dA, dB, dC, dD, dout * v * s * (1 + z * (1 - s)), ddelta.sum((0, 1)), d_initial


assert same(gradients(h), *NAMES)
without = gradients(torch.full_like(h, torch.nan))
lost = [name for name, gradient in zip(NAMES, without) if gradient.isnan().any()]
assert lost == ["delta", "A", "C", "z", "delta_bias"]
print("7.5 holds:", *lost)

# %% [markdown]
# ## 3. Last made, first used
#
# g runs from right to left, and meets hₜ₋₁ at step t. So the state made *last* is used *first*, and the state made first has
# to wait for the whole way there and back. The source concludes: sweep the whole chunk forwards first, to have all its hₜ,
# and only then go backwards.
#
# Must it be so? One could walk back without having stored anything. If hₜ = aₜ hₜ₋₁ + bₜ, then hₜ₋₁ = (hₜ − bₜ) / aₜ, and the
# last state is enough to find all others. With fractions it works. Do you trust it with floats?

# %%
def walk(a, b, state=0):
    """All states, from the first to the last."""
    found = []
    for decay, more in zip(a, b):
        state = decay * state + more
        found.append(state)
    return found


def walk_back(a, b, last):
    """All states, from the last one alone."""
    found = [last]
    for t in range(len(a) - 1, 0, -1):
        found.append((found[-1] - b[t]) / a[t])
    return found[::-1]


rng = np.random.default_rng(7)
a64, b64 = rng.uniform(0.3, 0.7, 64), rng.normal(size=64)
exact_a, exact_b = ([Fraction(round(1000 * value), 1000) for value in values] for values in (a64, b64))
a32, b32 = a64.astype(np.float32), b64.astype(np.float32)
right = np.array(walk(a32, b32, np.float32(0)))
off = np.abs(np.array(walk_back(a32, b32, right[-1])) - right) / np.abs(right).max()

# %%
fig, ax = lab.figure("step t [index]", "error of hₜ, relative", height=2.9)
ax.semilogy(range(63), off[:63], "o-", color=lab.COLORS["bad"], markersize=3.5)
ax.axhline(1, color=lab.COLORS["ink"], linewidth=1)
ax.text(62, 3, "above: no digit is right any more", color=lab.COLORS["ink"])
ax.annotate("", (40, 3e10), (58, 3e10), arrowprops={"arrowstyle": "->", "color": lab.COLORS["soft"]})
ax.text(62, 1e11, "walking back from h₆₃, in float32", color=lab.COLORS["soft"])
ax.set(xlim=(64, -1), ylim=(1e-8, 1e14))
plt.show()

# %% [markdown]
# Look along the walk, which starts on the left at the end of the row. A decay of ½ loses one bit of the past at each step,
# and dividing by it asks for that bit back. The rounding error of the last state doubles with every step, and after two
# dozen steps a float32 has nothing left. (Others have stored the lost bits and put them back; see the sources.)
#
# **Claim 7.6** The recurrence can be run backwards exactly in fractions. In float32, with decays around ½, the last state
# says nothing about those more than 40 steps earlier. So the states must be made from left to right and be there when g
# comes: the source's order *holds*, and rounding is the reason.

# %%
# check 7.6
assert walk_back(exact_a, exact_b, walk(exact_a, exact_b)[-1]) == walk(exact_a, exact_b)
assert off[60:].max() <= 1e-5 and off[:63 - 40].min() > 1
print("7.6 holds")

# %% [markdown]
# ## 4. Borders
#
# Between storing all states and storing none lies what the source and the Mamba paper do: keep a state at the **border** of
# each chunk. When g arrives at a chunk, start from the border, make the chunk's states once more, use them from the last to
# the first, forget them.
#
# One channel and one state in plain Python, so that it can count: `alive` notes after each piece of work how many states are
# held. We try it on our three steps, in chunks of 2.

# %%
def recomputing(a, b, slope, chunk, initial=0, d_final=0):
    """(da, db, d_initial) and the number of states alive, with a state kept in front of each chunk."""
    borders, alive, h = [], [], initial
    for t in range(len(a)):
        if t % chunk == 0:
            borders.append(h)                               # the state *before* the chunk
        h = a[t] * h + b[t]
        alive.append(len(borders))
    da, db, arriving = [None] * len(a), [None] * len(a), d_final
    while borders:                                          # chunks from the last to the first
        inside = [borders.pop()]
        first = len(borders) * chunk
        steps = range(first, min(first + chunk, len(a)))
        for t in steps:                                     # there: the chunk's states, once more
            inside.append(a[t] * inside[-1] + b[t])
            alive.append(len(borders) + len(inside))
        for t in reversed(steps):                           # and back
            inside.pop()                                    # h[t] is used up, inside[-1] is h[t-1]
            g = slope[t] + arriving
            da[t], db[t] = g * inside[-1], g
            arriving = a[t] * g
            alive.append(len(borders) + len(inside))
    return (da, db, arriving), alive


(da, db, d_initial), alive = recomputing([Fraction(1, 2)] * 3, [4, 2, 8], [1, 1, 1], chunk=2)
assert da == [0, 6, 4] and db == [1.75, 1.5, 1] and d_initial == Fraction(7, 8)
print("states alive:", *alive)

# %% [markdown]
# The first three numbers are the way there: one border, then two. Then chunk 1, which has a single step, and chunk 0, which
# has two: up to three states, down again.
#
# **Claim 7.7** The chunk changes nothing: with fractions, every chunk length gives exactly the same gradients, also those
# that do not divide the length. If it divides the length, at most length / chunk + chunk states are alive. That is least at
# the square root: 2 √L states instead of L, for one more forward.

# %%
# check 7.7
exact_slope = [Fraction(k % 7 - 3) for k in range(64)]
runs = {chunk: recomputing(exact_a, exact_b, exact_slope, chunk, Fraction(2, 3), Fraction(5))
        for chunk in range(1, 66)}
assert all(found == runs[1][0] for found, _ in runs.values())

most = {chunk: max(alive) for chunk, (_, alive) in runs.items() if 64 % chunk == 0 and chunk > 1}
assert most == {chunk: 64 // chunk + chunk for chunk in (2, 4, 8, 16, 32, 64)}
assert min(most, key=most.get) == 8 and all(len(alive) == 3 * 64 for _, alive in runs.values())
print("7.7 holds:", most)

# %%
fig, ax = lab.figure("work done [steps]", "states alive", height=3.2)
for chunk, color, label in ((1, "bad", "every state is stored"), (32, "shared", "a border every 32 steps"),
                            (8, "good", "a border every 8 steps")):
    ax.plot(range(1, 193), runs[chunk][1], color=lab.COLORS[color], label=label)
ax.axvline(64.5, color=lab.COLORS["soft"], linestyle=":")
ax.text(62, 69, "there", ha="right", color=lab.COLORS["soft"])
ax.text(67, 69, "back", color=lab.COLORS["soft"])
ax.set(ylim=(0, 76), xticks=range(0, 193, 32))
ax.legend(loc="upper right")
plt.show()

# %% [markdown]
# Look at the red line first: everything is kept until the way there is over, 64 states, and then given back one by one. The
# others stay low on the way there, and grow a tooth for each chunk on the way back: up while its states are made, down while
# they are used. The green one never holds more than 16. For that each step was computed twice.
#
# On a GPU the two terms do not live in the same place. Borders wait in DRAM from the forward until the backward, through all
# layers of a model. The states of *one* chunk live in shared memory or in registers, for some microseconds. There is little
# room for them, and that limits the chunk; what stays in DRAM is length / chunk.
#
# ## 5. The kernel
#
# The next step after `selective_v2` of notebook 06: one thread for a channel, now on the way back. `h` is the blackboard for
# one chunk. Find the lines of claims 7.2 to 7.4 in it. (Gate and softplus are left out: they want nothing of the states
# but v.)

# %%
text3 = lab.kernel_cell(r'''// selective_v3 -- all gradients of the fused scan; states are made again, chunk by chunk, from the saved ones.
//
// What       h[t] = exp(delta A) h[t-1] + delta B[t] u[t],  y[t] = C[t] . h[t] + D u[t].  From the right,
//            g[t] = dL/dh[t] = C[t] dy[t] + a[t+1] g[t+1], and behind the last step the final state's gradient.
// Since v2   backwards. A chunk runs forward once more, from its border, and its states wait in shared memory.
//            Then it runs from its end to its start.
// Used in    notebook 07.   Oracle: autograd of the loop in float64.
// Next       selective_backward: threads share a channel and keep TILE steps in registers; softplus and gate.
//
// Mapping    a block is one warp and has 32 channels of a batch row, a thread each, with its STATES states.
//            grid = batch * ceil(channels / 32). Lanes past the last channel hold zeros, for the shuffles.
// Layout     u, delta, dy, du, ddelta (batch, length, channels), B, C (batch, length, states),
//            A (channels, states), borders (batch, chunks, channels, states): the state before each chunk,
//            d_final, d_initial (batch, channels, states). All contiguous float32.
//            Parts, for the caller to add up over their first axis: dA_part (batch, channels, states),
//            dD_part (batch, channels), dB_part, dC_part (warps, batch, length, states).
// Limits     CHUNK * STATES * 128 B of shared memory, at most 48 KB.
// Shared     CHUNK * STATES * 32 * 4 B, static (CHUNK=8, STATES=16: 16384 B).
// Work       a state and step: 2 exponentials, one on the way there and one on the way back.
// Barriers   none: a thread reads back what it wrote itself.
// Sums       no atomics: states inside a thread, channels by shuffles, the rest by the caller, in one order.
// compile: -DCHUNK=8 -DSTATES=16

static_assert(CHUNK * STATES * 128 <= 48 * 1024, "CHUNK * STATES: the chunk's states must fit into 48 KB");

__device__ __forceinline__ float warp_sum(float value) {    // the sum over all lanes, in every lane
    for (int reach = 16; reach > 0; reach /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, reach);
    }
    return value;
}

extern "C" __global__ __launch_bounds__(32)
void selective_v3(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A,
                  const float* __restrict__ B, const float* __restrict__ C, const float* __restrict__ D,
                  const float* __restrict__ borders, const float* __restrict__ dy,
                  const float* __restrict__ d_final, float* __restrict__ du, float* __restrict__ ddelta,
                  float* __restrict__ dA_part, float* __restrict__ dB_part, float* __restrict__ dC_part,
                  float* __restrict__ dD_part, float* __restrict__ d_initial, int batches, int length, int channels) {
    __shared__ float h[CHUNK][STATES][32];                  // behind each step; a lane has its own column
    const int lane = threadIdx.x;
    const int warps = (channels + 31) / 32;
    const int warp = blockIdx.x % warps;
    const int batch = blockIdx.x / warps;
    const int channel = warp * 32 + lane;
    const bool here = channel < channels;                   // does this lane have a channel?
    const int chunks = (length + CHUNK - 1) / CHUNK;
    const long long row = ((long long)batch * channels + channel) * STATES;

    float rate[STATES], g[STATES], dA[STATES], dD = 0.0f;
    for (int n = 0; n < STATES; ++n) {
        rate[n] = here ? A[channel * STATES + n] : 0.0f;
        g[n] = here ? d_final[row + n] : 0.0f;
        dA[n] = 0.0f;
    }
    for (int k = chunks - 1; k >= 0; --k) {                 // from the last chunk to the first
        const int first = k * CHUNK;
        const int steps = length - first < CHUNK ? length - first : CHUNK;
        const float* border = borders + (((long long)batch * chunks + k) * channels + channel) * STATES;

        float now[STATES];
        for (int n = 0; n < STATES; ++n) {
            now[n] = here ? border[n] : 0.0f;
        }
        for (int t = 0; t < steps; ++t) {                   // there: the states of the chunk, once more
            const long long time = (long long)batch * length + first + t;
            const float step = here ? delta[time * channels + channel] : 0.0f;
            const float input = here ? u[time * channels + channel] : 0.0f;
            for (int n = 0; n < STATES; ++n) {
                now[n] = expf(step * rate[n]) * now[n] + step * B[time * STATES + n] * input;
                h[t][n][lane] = now[n];
            }
        }
        for (int t = steps - 1; t >= 0; --t) {              // and back
            const long long time = (long long)batch * length + first + t;
            const float step = here ? delta[time * channels + channel] : 0.0f;
            const float input = here ? u[time * channels + channel] : 0.0f;
            const float slope = here ? dy[time * channels + channel] : 0.0f;
            float through_b = 0.0f, through_a = 0.0f;       // what reaches delta * u, and delta by the decay
            for (int n = 0; n < STATES; ++n) {
                const float before = t > 0 ? h[t - 1][n][lane] : here ? border[n] : 0.0f;
                g[n] += C[time * STATES + n] * slope;       // now g[n] is dL/dh[t]
                const float dB = warp_sum(g[n] * step * input);
                const float dC = warp_sum(h[t][n][lane] * slope);
                if (lane == 0) {
                    const long long part = ((long long)warp * batches * length + time) * STATES + n;
                    dB_part[part] = dB;
                    dC_part[part] = dC;
                }
                through_b += g[n] * B[time * STATES + n];
                g[n] *= expf(step * rate[n]);               // on its way to step t - 1
                through_a += g[n] * before * rate[n];
                dA[n] += g[n] * before * step;
            }
            if (here) {
                du[time * channels + channel] = through_b * step + D[channel] * slope;
                ddelta[time * channels + channel] = through_b * input + through_a;
                dD += slope * input;
            }
        }
    }
    if (here) {
        for (int n = 0; n < STATES; ++n) {
            d_initial[row + n] = g[n];
            dA_part[row + n] = dA[n];
        }
        dD_part[(long long)batch * channels + channel] = dD;
    }
}
''', mirrors="selective_v3_recompute.cu")

# %% [markdown]
# It takes borders, so somebody must make them: here a loop, so that you see what they are.
#
# **Claim 7.8** The kernel's gradients are those of autograd in float64, up to float32 rounding, also where the last chunk is
# short (21 steps in chunks of 8) and where lanes have no channel (40 channels for two warps). It has no barrier, no race, and
# no bank conflict: each lane writes and reads its own column of the blackboard.

# %%
def borders_of(a, b, initial, chunk):
    """(batch, chunks, channels, states): the state before each chunk."""
    found, state = [], initial
    for t in range(a.shape[1]):
        if t % chunk == 0:
            found.append(state)
        state = a[:, t] * state + b[:, t]
    return torch.stack(found, 1)


def launch_of(text, x, dy, d_final, chunk=8):
    """Kernel, grid, block, arguments (results from the tenth on). x: as for `plain`, delta being the step itself."""
    u, step, A, B, C, D = (x[name].detach() for name in NAMES[:6])
    (batch, length, channels), states = u.shape, A.shape[1]
    a, b = torch.exp(step[..., None] * A), (step * u)[..., None] * B[:, :, None]
    given = u, step, A, B, C, D, borders_of(a, b, x["initial"].detach(), chunk), dy, d_final
    given = [value.float().contiguous().to(device) for value in given]
    warps, row = -(-channels // 32), (batch, channels, states)
    sizes = (*[(batch, length, channels)] * 2, row, *[(warps, batch, length, states)] * 2, row[:2], row)
    results = [torch.full(size, torch.nan, device=device) for size in sizes]
    kernel = RawKernel(text, "selective_v3", options=(f"-DCHUNK={chunk}", f"-DSTATES={states}"))
    return kernel, (batch * warps,), (32,), (*given, *results, batch, length, channels)


# %%
# check 7.8
wide = problem(2, 21, 40, 4)
inside = plain(**wide)                                      # its v is what the kernel calls y
dy, d_last = torch.randn_like(inside["v"]), torch.randn_like(wide["initial"])
leaves = [wide["u"], inside["step"], *[wide[name] for name in "ABCD"], wide["initial"]]
exact = torch.autograd.grad((inside["v"] * dy).sum() + (inside["h"][-1] * d_last).sum(), leaves)

kernel, *launch = launch_of(text3, wide | {"delta": inside["step"]}, dy, d_last)
kernel(*launch)
du, dstep, dA, dB, dC, dD, d_initial = (result.cpu() for result in launch[2][9:16])
found = du, dstep, dA.sum(0), dB.sum(0), dC.sum(0), dD.sum(0), d_initial    # the parts are added up here
assert all(torch.max(torch.abs(f - e)) <= 1e-5 * e.abs().max() for f, e in zip(found, exact, strict=True))

report = check(kernel, *launch)
assert report.ok and report.barriers == 0 and report.shared_bytes == 8 * 4 * 32 * 4
assert sum(line.bank_conflicts for line in report.lines if line.space == "shared") == 0
print("7.8 holds")

# %% [markdown]
# The kernel of the package goes the same way with more threads. Several share a channel, each keeps a few steps at a time in
# registers, and shared memory holds only the state in front of each few. It starts anew every `selective_plans.BORDER`
# steps, so this is how far apart `selective_scan` keeps its borders, unless you say otherwise. If you ask for a larger
# `chunk`, it keeps fewer. Up to twice as far apart, the backward runs through the steps between on its way; farther apart, it
# begins by making the missing borders with another forward.
#
# ## 6. The account
#
# Before anything runs: what will be kept? The source's layer has batch 16, length 2048, 1536 channels with 16 states, and
# chunks of 256 steps. MB are 10⁶ bytes here, GB 10⁹. `ledger.saved_states` does the multiplication.
#
# **Claim 7.9** One state for each channel is 393,216 numbers, 1.573 MB in float32 (1.5 MiB), and the 8 chunks keep 12.58 MB:
# the source's 1.5 and 12.6 MB. But it says that a *pair* (A, B) is kept for each chunk, and that would be 25.2 MB. Totals
# are pairs while a forward finds its way between chunks (notebook 05); the backward wants only h. So the figure *holds with a
# condition*: one array.

# %%
# check 7.9
LAYER = 16, 2048, 1536, 16                                  # batch, length, channels, states
assert 16 * 1536 * 16 == 393_216 and 2048 // 256 == 8
assert ledger.saved_states(16, 256, 1536, 16, chunk=256) == 1_572_864 == 1.5 * 2**20
assert ledger.saved_states(*LAYER, chunk=256) == 12_582_912
assert 2 * ledger.saved_states(*LAYER, chunk=256) == 25_165_824                    # a pair
print("7.9 holds")

# %% [markdown]
# **Claim 7.10** All states are 805,306,368 numbers: 3.221 GB for a layer and 77.3 GB for 24 (the source rounds to 3.2 first,
# and gets 76.8). Borders are 302 MB for 24 layers, in bfloat16 151 MB. Between all and borders stands exactly the chunk
# length. *Holds.*

# %%
# check 7.10
every, borders = ledger.saved_states(*LAYER, save="all"), ledger.saved_states(*LAYER, chunk=256)
assert (every, 24 * every) == (3_221_225_472, 77_309_411_328) and every == 4 * 805_306_368
assert 24 * borders == 301_989_888
assert 24 * ledger.saved_states(*LAYER, save="boundaries-bf16", chunk=256) == 150_994_944
assert every == 256 * borders
print("7.10 holds")

# %% [markdown]
# ### What else is kept
#
# The states are not all. u, delta, z, B and C must be there in the backward as well, say in bfloat16. They are inputs: other
# layers made them, and the scan only keeps them from being freed.

# %%
near = selective_plans.BORDER
ways = {"all": ("all", near), f"every {near} steps": ("boundaries", near), "every 256": ("boundaries", 256),
        "every 256, bfloat16": ("boundaries-bf16", 256)}
sizes = {name: ledger.saved_states(*LAYER, save=save, chunk=chunk) for name, (save, chunk) in ways.items()}
inputs = 3 * 16 * 2048 * 1536 * 2 + 2 * 16 * 2048 * 16 * 2  # [B] u, delta, z; B, C

fig, ax = lab.figure("kept by one layer for its backward [MB]", height=2.5)
ax.barh([*sizes], inputs / 1e6, color=lab.COLORS["global"], label="u, delta, z, B, C in bfloat16")
ax.barh([*sizes], [size / 1e6 for size in sizes.values()], left=inputs / 1e6, color=lab.COLORS["bad"],
        label="states")
for name, size in sizes.items():
    ax.text((inputs + size) / 1e6 + 30, name, f"{size / 1e6:,.1f} MB of states", va="center", fontsize=9)
ax.set(xlim=(0, 4500))
ax.invert_yaxis()
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# Look at the red. The first borders are what counts. From then on the blue is what is left, and no way of keeping states
# makes that smaller.
#
# **Claim 7.11** With borders 256 apart, states are 4 % of what this layer keeps; half of their bytes are 2 % of the layer.

# %%
# check 7.11
assert round(100 * borders / (borders + inputs)) == 4 and round(100 * (borders / 2) / (borders + inputs)) == 2
print("7.11 holds")

# %% [markdown]
# ## 7. To the byte
#
# A prediction in integers can be *equal* to what happens. torch tells what autograd keeps: each tensor that is saved goes
# through a hook, if one is set, and `kept` adds up the bytes of all that are not inputs. Where there is a GPU, `peak` also
# asks its allocator, which sees everything.
#
# **Claim 7.12** For each way to save, each chunk, and a length that no chunk divides, what the package keeps beside inputs
# and y is what the ledger predicts, to the byte.

# %%
# check 7.12
small = problem(2, 300, 8, 16, torch.float32, device)
table = [(save, chunk) for save in ledger.SAVE for chunk in (near, 2 * near, 4 * near)]
for save, chunk in table:
    def forward(save=save, chunk=chunk):
        return op(small, save=save, chunk=chunk)[0]

    predicted = ledger.saved_states(2, 300, 8, 16, save=save, chunk=chunk)
    assert kept(forward, [*small.values()]) == predicted
    if device == "cuda":
        stays, _ = peak(forward, lambda y: torch.autograd.grad(y, [*small.values()], torch.ones_like(y)))
        assert stays == predicted
print("7.12 holds for", len(table), "ways to save")

# %% [markdown]
# ## 8. Borders in half the bytes
#
# bfloat16 keeps 8 bits of a number. Which results feel it? Not y: the forward goes on with its float32 state, and what it
# writes to a border is a copy. And of the gradients only those that need states at all. Claim 7.5 has listed them.

# %%
shape = 2, 8 * near, 16, 16                                 # eight chunks of the default size
slopes = [torch.randn(size, generator=torch.Generator().manual_seed(3)).bfloat16().to(device)
          for size in ((2, 8 * near, 16), (2, 16, 16))]     # of y and the final state, exact in every dtype


def results(values, slopes=slopes, **more):
    """y, the final state and the nine gradients, in float64 on the CPU, by name."""
    out = op(values, **more)
    found = torch.autograd.grad(out, [*values.values()], [slope.to(o.dtype) for slope, o in zip(slopes, out)])
    return {name: value.detach().double().cpu() for name, value in zip(("y", "final", *NAMES), (*out, *found))}


def relative(found, wanted):
    """{name: largest difference over the largest number}."""
    return {name: float((found[name] - right).abs().max() / right.abs().max()) for name, right in wanted.items()}


# %% [markdown]
# **Claim 7.13** With borders in bfloat16, y, the final state and the gradients of u, B, D and the initial state are what they
# were. Those of delta, A, C, z and the bias change, by less than 2⁻⁸ of the largest.

# %%
# check 7.13
single = problem(*shape, torch.float32, device)
wide4, narrow4 = (results(single, save=save, chunk=4 * near) for save in ("boundaries", "boundaries-bf16"))
felt = relative(narrow4, wide4)
assert all(felt[name] <= 1e-6 for name in ("y", "final", "u", "B", "D", "initial"))
assert all(1e-5 <= felt[name] <= 2**-8 for name in lost)
print("7.13 holds")

# %%
fig, ax = lab.figure("step t [index]", "change of delta's gradient, relative", height=3)
change = (narrow4["delta"] - wide4["delta"]).abs().amax((0, 2)) / wide4["delta"].abs().max()
ax.semilogy(change.clamp_min(1e-9), color=lab.COLORS["bad"], linewidth=1.2)
ax.axhline(2**-9, color=lab.COLORS["soft"], linestyle=":")
ax.text(8 * near, 2**-9 * 1.3, "2⁻⁹, half a unit of bfloat16", ha="right", color=lab.COLORS["soft"])
ax.set(xticks=range(0, 8 * near + 1, 4 * near), ylim=(1e-9, 1e-2), xlim=(0, 8 * near))
plt.show()

# %% [markdown]
# Look at where the teeth stand: behind each of the two borders. There the rounding is fresh, and the decays let it fade with
# every step. It does *not* add up from chunk to chunk, because each border is rounded once, from a state that never was.
# (A state that is *carried on* in bfloat16 is another matter: notebook 08.) The slower a state decays, the longer a tooth.
#
# If u, delta and the others are bfloat16 themselves, their gradients are rounded to bfloat16 when they are written, and the
# teeth drown in that. The gradients of weights are different: those of A and the bias are float32 sums over all steps.

# %%
halves = problem(*shape, torch.bfloat16, device)
exact = results({name: value.detach().double().requires_grad_() for name, value in halves.items()})
error = {save: relative(results(halves, save=save), exact) for save in ("boundaries", "boundaries-bf16")}

fig, ax = lab.figure("", "error against float64, relative", height=3)
places = np.arange(len(NAMES) + 1)
for shift, save, color in (-0.2, "boundaries", "good"), (0.2, "boundaries-bf16", "bad"):
    heights = [error[save][name] for name in ("y", *NAMES)]
    ax.bar(places + shift, heights, 0.4, color=lab.COLORS[color], label=f'save="{save}"')
ax.set(yscale="log", ylim=(1e-8, 1e-1))
ax.set_xticks(places, ["y", *[f"d {name.removeprefix('delta_')}" for name in NAMES]])
ax.legend(loc="upper right", ncols=2)
plt.show()

# %% [markdown]
# Look at the pairs, inputs in bfloat16. Nearly everywhere the bars are equal: that error is the rounding of the result
# itself. Only where the result is a float32 weight, A or the bias, the borders are the largest rounding of the whole way, and
# one sees it: from 10⁻⁷ to nearly 10⁻³. Beside the noise of a training step that is little. It is not nothing.
#
# **Claim 7.14** With inputs in bfloat16, borders in bfloat16 raise the error of y and of the per-step gradients by less than
# a third; that of A's gradient they raise more than a hundredfold.

# %%
# check 7.14
raised = {name: error["boundaries-bf16"][name] / error["boundaries"][name] for name in exact}
assert all(raised[name] <= 4 / 3 for name in ("y", "u", "delta", "B", "C", "z"))
assert raised["A"] >= 100
print("7.14 holds")

# %% [markdown]
# ## 9. The same bits, every time
#
# dB is a sum over channels, dA over batch and steps. Threads that all add into one number with an *atomic* add get the right
# sum up to rounding, and the rounding depends on who came first. The best known kernel of this kind works so, and its
# authors say that its gradients differ from run to run. Then nobody can tell a bug from bad luck.
#
# Here every sum has one order, as in `selective_v3`: states inside a thread, then lanes, then parts in memory, which a last
# small kernel adds up from the first to the last.
#
# **Claim 7.15** 200 orders of the same 4096 float32 numbers give many different sums. Ten backwards of the package give the
# same bits in all nine gradients, and with `chunk` given, a row of the batch has the bits that it has alone.

# %%
# check 7.15
numbers = rng.normal(size=4096).astype(np.float32)
assert len({float(np.cumsum(rng.permutation(numbers))[-1]) for _ in range(200)}) >= 20

first, *others = (results(single) for _ in range(10))
assert all(torch.equal(first[name], other[name]) for other in others for name in first)

both = results(single, chunk=near)
row = {name: value if name in ("A", "D", "delta_bias") else value[1:] for name, value in single.items()}
alone = results(row, [slope[1:] for slope in slopes], chunk=near)           # row 1
per_row = "y", "final", "u", "delta", "B", "C", "z", "initial"
assert all(torch.equal(alone[name][0], both[name][1]) for name in per_row)
print("7.15 holds")

# %% [markdown]
# ## 10. What does it cost?
#
# The source measured a training step: with borders it took 18 % longer than with all states stored, and 21 % longer with
# borders in bfloat16. Before we measure, count. For each state of each step,
#
# - computing twice asks for one more exponential (and a few multiply-adds);
# - storing asks for 4 bytes written in the forward and 4 bytes read in the backward.
#
# Which is dearer? `ssmlab.devices` has the bandwidth of real GPUs, and how many exponentials they make in a second. (There
# are several times as many units for multiply-adds, so these do not bind.)

# %%
def shares(device):
    """[s] for our layer: to store and read all states, and to make the exponentials once more."""
    store = ledger.selective_scan(*LAYER, save="all").saved + ledger.saved_states(*LAYER, save="all")
    again = (ledger.selective_scan_backward(*LAYER, save="boundaries").exponentials
             - ledger.selective_scan_backward(*LAYER, save="all").exponentials)
    return store / device.bandwidth, again / device.exponentials


assert ledger.selective_scan(*LAYER, save="all").saved == every
assert 2 * every == 6_442_450_944
cost = {name: shares(chip) for name, chip in DEVICES.items() if chip.boost}        # where the clock is known

# %%
fig, ax = lab.figure("time for the layer, at least [ms]", height=3.4)
store, again = 1e3 * np.array([*cost.values()]).T
places = range(len(cost))
ax.hlines(places, again, store, color=lab.COLORS["faint"], linewidth=2, zorder=1)
ax.plot(store, places, "o", color=lab.COLORS["bad"], label="states to DRAM and back")
ax.plot(again, places, "o", color=lab.COLORS["good"], label="exponentials once more")
ax.set(xscale="log", ylim=(len(cost) - 0.5, -0.5))
ax.set_yticks(places, [*cost])
ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
plt.show()

# %% [markdown]
# Look at the distance in each row. To carry a number through DRAM takes longer than to make it, on all of them.
#
# **Claim 7.16** By count, on each of nine GPUs from T4 to RTX 5090, storing all states takes more than six times as long
# as making their exponentials once more.

# %%
# check 7.16
assert len(cost) == 9 and all(store > 6 * again for store, again in cost.values())
print("7.16 holds")

# %% [markdown]
# So by count the source's 18 % should have the other sign. A count is not a time, though. On an H200 we measured forward and
# backward of the scan with all gradients, in bfloat16, for each way to save. If you have a GPU, run `python -m ssmlab.bench
# recompute --output notebooks/results`, and the next figure is of yours.

# %%
mine = bench.slug(torch.cuda.get_device_name()) if device == "cuda" else "h200"
mine = Path(f"results/recompute_{mine}.json")
measured = json.loads(mine.read_text()) if mine.exists() else h200
swept = [row for row in measured["rows"] if row["shape"][0] == 16]
names = [row["note"].replace("(asked for)", "(chunk given)") for row in swept]
half = {which: [row["facts"][f"{which}_ms"] for row in swept] for which in ("forward", "backward")}

# %%
fig, ax = lab.figure("forward and backward of one layer's scan, batch 16 [ms]", height=3.8)
ax.barh(names, half["forward"], color=lab.COLORS["global"], label="forward")
ax.barh(names, half["backward"], left=half["forward"], color=lab.COLORS["hillis"], label="backward")
ax.axvline(half["forward"][0] + half["backward"][0], color=lab.COLORS["bad"], linestyle=":")
ax.set_title(f"{measured['device']}, {measured['date']}")
ax.invert_yaxis()
ax.set_xlim(0, 1.5 * ax.get_xlim()[1])
ax.legend(loc="upper right")
plt.show()

# %% [markdown]
# Look at the first bar, where every state is stored, and at the first one with borders, which is what you get unasked. The
# forward is less than a third as long, for it writes 3.1 GB less. And in the backward, making the states again takes hardly
# longer than reading them.
#
# The bars named *chunk given* are longer for a reason that has nothing to do with states. With a chunk given, a row of the
# batch gets the bits that it has alone (claim 7.15), so it must be cut as it would be alone, and 16 rows are cut into more
# pieces than would be needed to fill the GPU. From 128 steps on it is the chunk, too: one more forward, to make borders
# where the backward wants them.
#
# **Claim 7.17** (measured on an H200, batch 16) Borders take a third less time than storing everything, and borders in
# bfloat16 take as long as those in float32, within 5 %. *The source's +18 and +21 % were measured otherwise.* Nor is that the
# fault of our way to store: its bytes alone, at the speed of a large copy, take longer than the whole step with borders. But
# a chunk of 256, the source's, takes half as much time again as the default.

# %%
# check 7.17
rows = {(row["shape"][0], row["facts"]["save"], row["facts"]["chunk"]): row for row in h200["rows"]}
stored, default, narrow, far = (rows[16, save, chunk] for save, chunk in (
    ("all", None), ("boundaries", None), ("boundaries-bf16", None), ("boundaries", 256)))
assert 0.6 <= default["ours_ms"] / stored["ours_ms"] <= 0.7
assert 0.95 <= narrow["ours_ms"] / default["ours_ms"] <= 1.05
assert stored["facts"]["forward_ms"] >= 3 * default["facts"]["forward_ms"]
assert stored["facts"]["backward_ms"] >= 0.8 * default["facts"]["backward_ms"]
assert stored["floor_ms"] >= default["ours_ms"]
assert 1.4 <= far["ours_ms"] / default["ours_ms"] <= 1.6
print("7.17 holds")

# %% [markdown]
# ### With the batch
#
# The source ends with a warning, in two sentences that do not quite agree: what recomputing gains thins out as the batch grows;
# and with a small batch the memory that was saved is of no use, and a fifth of the time is spent for nothing. So make it a
# switch. We have the switch. Is either of them right?

# %%
batches = sorted({batch for batch, _, _ in rows})
share = {}                                                          # of the time of storing everything: what borders save
for batch in batches:
    storing, borders = (rows[batch, save, None] for save in ("all", "boundaries"))
    share[batch] = 1 - borders["ours_ms"] / storing["ours_ms"]
    print(f"batch {batch:2}: all states {storing['ours_ms']:5.2f} ms, borders {borders['ours_ms']:5.2f} ms, "
          f"{100 * share[batch]:.0f} % less; from call to call {storing['calls_ms']['ours']:.2f} and "
          f"{borders['calls_ms']['ours']:.2f} ms")

# %%
fig, (time, memory) = lab.figure("batch", columns=2, height=3.3, width=8.6)
shown = {"all": (("all", None), "bad", "o-"), "boundaries": (("boundaries", None), "good", "o-"),
         "boundaries, 256 apart": (("boundaries", 256), "hillis", "s--")}
for label, (way, color, style) in shown.items():
    some = [rows[(batch, *way)] for batch in batches]
    time.loglog(batches, [row["ours_ms"] for row in some], style, color=lab.COLORS[color], label=label)
    memory.loglog(batches, [row["facts"]["peak"] / 1e6 for row in some], style, color=lab.COLORS[color])
some = [rows[batch, "boundaries", None] for batch in batches]
time.loglog(batches, [row["peer_ms"] for row in some], "x-", color=lab.COLORS["soft"], label="mamba_ssm")
memory.loglog(batches, [row["facts"]["peer_peak"] / 1e6 for row in some], "x-", color=lab.COLORS["soft"])
time.set(ylabel="forward and backward [ms]", title=f"{h200['device']}, {h200['date']}")
memory.set(ylabel="peak beside the inputs [MB]", title="memory at the highest point")
for ax in time, memory:
    ax.set_xticks(batches, batches)
    ax.minorticks_off()
time.legend(fontsize=8.5)
plt.show()

# %% [markdown]
# Look right first. The lines are nearly parallel: what is *kept* is a matter of counting, and every byte of it belongs
# to a row of the batch. A small batch asks for some scratch more: it is launched all at once, and the parts of dB and
# dC lie in memory together; a large one is launched a few steps at a time. On the left the lines are nearly parallel,
# too: the green one lies below the red one at every batch, and a little further below where the batch fills the GPU.
# These are times of the GPU's own work. From call to call a step takes longer at batch 1, as the table says: there the
# GPU waits for Python's launches, whichever way we save. (mamba_ssm recomputes as well; the grey line.)
#
# **Claim 7.18** (measured on an H200) What is kept is proportional to the batch, to the byte, in every way to save.
# Borders take less of the GPU's time than storing everything at every batch from 1 to 64, by a fifth at least, and the
# share that they save is no smaller at 64 than at 1. From 16 to 64 it stays the same, so that four times the batch
# saves three to five times the milliseconds. *Measured otherwise, both sentences:* the gain does not thin out as the
# batch grows, and with a small batch the GPU spends no time for nothing. (From call to call Python decides at batch 1;
# there nothing is said about borders.)

# %%
# check 7.18
for (batch, save, chunk), row in rows.items():
    assert row["facts"]["kept"] == row["facts"]["kept_by_allocator"] == row["facts"]["predicted"]
    if (1, save, chunk) in rows:
        assert row["facts"]["kept"] == batch * rows[1, save, chunk]["facts"]["kept"]
gain = {batch: rows[batch, "all", None]["ours_ms"] * share[batch] for batch in batches}      # [ms]
assert batches == [1, 4, 16, 64] and all(part >= 0.2 for part in share.values()) and share[64] >= share[1]
assert 3 <= gain[64] / gain[16] <= 5
print("7.18 holds")

# %% [markdown]
# One detail of the right picture: borders 256 apart have the *higher* peak. Most of that comes with any chunk that is given,
# like the time: more pieces of a row have more parts to sum. The rest is the layer's own: in its backward it makes the nearer
# borders again, and for that moment holds both. That happens in one layer at a time.
#
# **Claim 7.19** A single layer gains nothing from a chunk of 256: its peak is higher than with one of 32, asked for or not.
# 24 layers gain: with what one of them makes again, they hold 2.42 GB of borders every 32 steps, 0.40 GB every 256, and 77.3 GB of all states.

# %%
# check 7.19
def whole_model(save, chunk, layers=24, near=32):
    """[B] of states at the highest point of a model's backward."""
    again = ledger.saved_states(*LAYER, chunk=near) if save != "all" and chunk > near else 0
    return layers * ledger.saved_states(*LAYER, save=save, chunk=chunk) + again


found = [whole_model(*way) for way in (("boundaries", 32), ("boundaries", 256), ("all", 32))]
assert [round(size / 1e7) for size in found] == [242, 40, 7731]
peak = {chunk: rows[16, "boundaries", chunk]["facts"]["peak"] for chunk in (None, 32, 256)}
assert peak[256] > peak[32] > peak[None] and peak[32] - peak[None] > peak[256] - peak[32]
print("7.19 holds")

# %% [markdown]
# ## 11. The switch
#
# | `save=` | `chunk=` | take it | because |
# |---|---|---|---|
# | `"boundaries"` | none | always, to begin with | fastest here, float32 all the way, the same bits every time |
# | `"boundaries-bf16"` | none | if half the borders decide whether it fits | same time, same y; gradients of A and the bias less exact |
# | `"boundaries"` | 256 | for many layers or very long rows | an eighth of the borders, at the price of the time that borders save |
# | `"all"` | none | to measure against | slower than the first *and* larger, on any GPU of claim 7.16 by count |
#
# The source's advice stands: it is an argument and not a constant. Only its default has changed sides.
#
# ## 12. Break it
#
# Two small edits, two tools.
#
# **The last chunk is short.** Let the way back in `selective_v3` begin at the chunk's full length: `CHUNK - 1` instead of
# `steps - 1`. (Issue 368 of mamba describes a relative of this mistake.) With 24 steps in chunks of 8 nothing can happen.
# With 21?

# %%
hasty = text3.replace("int t = steps - 1; t >= 0", "int t = CHUNK - 1; t >= 0")
for length in 24, 21:
    few = problem(1, length, 3, 2)
    met = plain(**few)
    ones, zeros = torch.ones_like(met["v"]), torch.zeros(1, 3, 2)
    report = check(*launch_of(hasty, few | {"delta": met["step"]}, ones, zeros))
    print(length, "steps:", *(sorted({finding.kind for finding in report.findings}) or ["silent"]))

# %% [markdown]
# The report names what a test of values may miss: states that nobody made in this launch (`uninitialised`: on a GPU they are
# what some other block left on the blackboard), and steps behind the end of the arrays.
#
# **The carry stays behind.** Let g begin anew in each chunk. Many a training loop does this, and calls it truncated
# backpropagation: the forward is right, the loss is right, it even learns. `compare` reads gradients from the end, as the
# scan does:

# %%
broken = []
for first in range(0, 64, 8):                               # each chunk for itself
    part = slice(first, first + 8)
    broken += recomputing(exact_a[part], exact_b[part], exact_slope[part], 8)[0][1]
right = recomputing(exact_a, exact_b, exact_slope, 8)[0][1]
shifted = [*exact_a[1:], Fraction(0)]
lists = [np.array(values, float)[None] for values in (broken, right, shifted, exact_slope)]
difference = compare.first_difference(*lists[:2], chunk=8, a=lists[2], b=lists[3], reverse=True)
print(difference.stage, "at offset", difference.offset, "of chunk", difference.chunk)
assert difference.stage == "carry missing" and (difference.chunk, difference.offset) == (1, 0)

# %% [markdown]
# Chunks count from the end here: chunk 0 is right, and the first wrong number is the last step of the chunk before it.
#
# ## 13. Exercises
#
# **7.A There and back.** One channel, one state, plain lists, and everything stored: given a, b, the slope that the loss has
# at each state, the initial state and the gradient that arrives at the final state, return the lists da and db, and the
# gradient of the initial state. *Budget:* two loops. (The check uses fractions, and lists may be empty.)
#
# <details><summary>Hint</summary>
#
# Going back, keep one number: what arrives from the right. Before the first turn of the loop it is `d_final`. Which two
# things happen to it at each step, and in which order?
#
# </details>

# %% tags=["exercise"]
def my_gradients(a, b, slope, initial, d_final):
    raise NotImplementedError   # YOUR CODE, about 10 lines: da, db, d_initial


# %% tags=["nbval-ignore-output"]
lab.exercises.check("7.A", my_gradients)

# %% [markdown]
# **7.B The switch.** `ways` is a list of (save, chunk), the best liked first. `layers` layers of this shape must fit into
# `room` bytes: each keeps its states from its forward to its backward, and one of them at a time, in its backward, also holds
# float32 states every `near` steps, if what it kept lies further apart. Return the first way that fits, or None.
# *Budget:* `ledger.saved_states` knows all the sizes.
#
# <details><summary>Hint</summary>
#
# With save="all" nothing lies apart. With bfloat16 borders `near` steps apart nothing is made again either: the kernel reads
# them as they are.
#
# </details>

# %% tags=["exercise"]
def my_switch(shape, layers, room, ways, near):
    raise NotImplementedError   # YOUR CODE, about 6 lines: (save, chunk) or None


# %% tags=["nbval-ignore-output"]
lab.exercises.check("7.B", my_switch)

# %% [markdown]
# **7.C Another discretisation.** Mamba's paper derives b = (e^(δA) − 1) / A · B u before it settles for b = δ B u. Write the
# lines 2 and 3 of its backward: from da and db, what reaches δ and what reaches A? All arguments are float64 tensors of one
# shape, A is negative, and a = e^(δA) as before. *Budget:* 3 lines.
#
# <details><summary>Hint</summary>
#
# δ and A are each read twice, by a and by b: two terms each. What is the derivative of (e^(δA) − 1) / A by δ? It is short.
# By A you need the quotient rule.
#
# </details>

# %% tags=["exercise"]
def my_discretisation(delta, A, Bu, da, db):
    raise NotImplementedError   # YOUR CODE, 3 lines: ddelta, dA, elementwise


# %% tags=["nbval-ignore-output"]
lab.exercises.check("7.C", my_discretisation)

# %% [markdown]
# ## What we now know
#
# - The backward is a scan from the end (7.1). It was derived line by line, for all nine inputs and through the final state
#   (7.2 to 7.4). Five gradients need the states, four do not (7.5).
# - States must be made from left to right before g comes from the right. *Source: holds*, and rounding is the reason (7.6).
# - Borders: any chunk gives the same gradients; √L is the least for one kind of memory (7.7). The kernel keeps a chunk on the
#   blackboard (7.8).
# - 12.58 MB in the source's layer: *holds with a condition*, one array and not a pair (7.9). 3.221 GB, 77.3 GB, 302 MB, the
#   ratio is the chunk length: *holds* (7.10). But the inputs are then most of what is kept (7.11). All of it to the byte (7.12).
# - Borders in bfloat16 touch five gradients and nothing else (7.13); only float32 weights see it (7.14).
# - No atomics, so the same bits in every run (7.15).
# - +18 % and +21 % of time: *measured otherwise*. Storing everything is slower, by count on nine GPUs (7.16) and by clock on
#   an H200 (7.17), at every batch from 1 to 64: *measured otherwise* (7.18). A large chunk pays only in many layers (7.19).
#
# *Still untrue or slow.* One scan is not a model: beside it a layer has projections, a convolution and a norm, so of a whole
# step of training the share is smaller than what is measured here. With a chunk given the batch is cut as single rows are, and pays for it. And the
# backward is a good deal slower than what its bytes and exponentials allow; notebook 13 asks why.
#
# *Next:* [08 · When do small numbers hurt?](08_numerics.ipynb)
#
# *Sources.* A. Gu, T. Dao: Mamba, arXiv 2312.00752 (recomputation, discretisation). A. Griewank, A. Walther: Algorithm 799,
# Revolve, ACM Transactions on Mathematical Software 26 (1), 2000 (the least recomputing for a given number of stored
# states). T. Chen, B. Xu, C. Zhang, C. Guestrin: Training deep nets with sublinear memory cost, arXiv 1604.06174 (√n). D.
# Maclaurin, D. Duvenaud, R. P. Adams: Gradient-based hyperparameter optimization through reversible learning, ICML 2015
# (walking back, with the lost bits stored). PyTorch documentation: saved tensor hooks, `torch.cuda.memory_stats`. Measured on
# an NVIDIA H200: `results/recompute_h200.json`.
