# %% [markdown]
# # 01 · Why can a recurrence run in parallel at all?
#
# A recurrence computes each value from the one before it. Nothing looks more serial, and yet a GPU runs it with
# thousands of threads at once. This notebook is about the one fact that makes this possible.
#
# *You will be able to*
#
# - **explain** why steps that depend on each other can still be worked on at the same time;
# - **prove** it, and check your proof in exact arithmetic instead of trusting it;
# - **decide**, for a recurrence that you have never seen, whether it can be scanned.
#
# *Needs:* no other notebook, no GPU, some Python and school algebra. About 45 minutes.

# %% tags=["nbval-ignore-output"]
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
import sympy
from hypothesis import strategies as st
from matplotlib import cbook

from ssmlab import lab, monoid, reference
from ssmlab.lab.laws import check_laws
from ssmlab.monoid import AFFINE, CONCAT, MAX_PLUS, Monoid, hillis_steele, matrix_affine, segmented, serial

lab.setup()
lab.here()

# %% [markdown]
# ## 1. Eight numbers by hand
#
# Here is the recurrence of this whole workbook. At each step t the state h is scaled by aₜ, then bₜ is added:
#
#     hₜ = aₜ · hₜ₋₁ + bₜ
#
# A Mamba layer runs exactly this, many thousand times side by side. We start with eight steps and h₀ = 0.
#
# | t | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
# |---|---|---|---|---|---|---|---|---|
# | aₜ | ½ | ½ | 0 | 2 | ½ | 1 | 2 | ½ |
# | bₜ | 4 | 2 | 6 | −4 | 2 | −4 | 2 | 4 |
# | **hₜ** | **4** | **4** | **6** | **8** | **6** | **2** | **6** | **7** |
#
# Follow a few with your finger: ½ · 0 + 4 = 4, then ½ · 4 + 2 = 4, then 0 · 4 + 6 = 6. (A factor 0 forgets
# everything before it.) The loop says the same in code. It is slow and obviously right, so it will judge all that
# follows.

# %%
a = np.array([1/2, 1/2, 0, 2, 1/2, 1, 2, 1/2])
b = np.array([4, 2, 6, -4, 2, -4, 2, 4])
by_hand = [4, 4, 6, 8, 6, 2, 6, 7]

h = 0
for a_t, b_t, expected in zip(a, b, by_hand):
    h = a_t * h + b_t
    assert h == expected
assert np.array_equal(reference.scan(a, b, dim=0)[0], by_hand)      # the package's own loop agrees

# %% [markdown]
# Now a friend wants to help. You take steps 1 to 4, she takes steps 5 to 8, and both start *at once*. Her trouble:
# she does not know h₄, and will not know it before you are done. What could she possibly compute?
#
# ## 2. One step is a pair
#
# She can compute *what her steps will do to whatever arrives*. A step is a function of h, and all our steps have
# one shape: scale, then add. So two numbers, the pair (a, b), say everything about it. Do two of them, first (a₁,
# b₁), then (a₂, b₂):
#
#     a₂ · (a₁ · h + b₁) + b₂  =  (a₂ · a₁) · h  +  (a₂ · b₁ + b₂)
#
# The right-hand side again scales, then adds. **Two steps of this kind are one step of this kind.** The function
# `then` is that sentence. The earlier step always comes first.

# %%
def act(step, h):
    """What a step does to a state."""
    a, b = step
    return a * h + b


def then(first, second):
    """The one step that does `first`, then `second`."""
    (a1, b1), (a2, b2) = first, second
    return a2 * a1, a2 * b1 + b2


# %% [markdown]
# **Claim 1.1** `then(first, second)` does what the two steps do one after the other, from *every* state.
#
# "Every" is too many to try, so the check uses symbols instead of numbers and lets sympy expand both sides.
#
# So your friend folds her four pairs into one, without h₄:
#
#     (½, 2) then (1, −4) then (2, 2) then (½, 4)  =  (½, 3)
#
# When you call out "h₄ is 8", she answers at once: ½ · 8 + 3 = 7. Half of the chain was done before its start was
# known.

# %%
# check 1.1
a1, b1, a2, b2, a3, b3, h = sympy.symbols("a1 b1 a2 b2 a3 b3 h")
p, q, r = (a1, b1), (a2, b2), (a3, b3)
assert sympy.expand(act(then(p, q), h) - act(q, act(p, h))) == 0

steps = list(zip(a, b))
hers = then(then(then(steps[4], steps[5]), steps[6]), steps[7])
assert hers == (1/2, 3) and act(hers, 8) == 7 == by_hand[-1]
print("1.1 holds")

# %% [markdown]
# ## 3. Moving brackets
#
# With a thousand friends, each folds some stretch, and stretches are folded into longer ones. That takes the
# freedom to put brackets where we like. An operation is called **associative** if both bracketings give the same:
#
#     (p then q) then r   =   p then (q then r)
#
# This is not a matter of course. Our own recurrence lacks it, as long as we see it as "a state, then a number".
# Here is one with a = ½. The *law checker* tries hundreds of inputs and shows the smallest that it finds to break a
# law:

# %%
numbers = st.builds(Fraction, st.integers(-9, 9), st.integers(1, 9))         # exact: 0, 1, -1/2, 7/9, ...
halve_and_add = Monoid("halve and add", lambda h, x: h / 2 + x)
print(check_laws(halve_and_add, numbers))

# %% [markdown]
# On bare numbers brackets matter. On *pairs* they do not:
#
# **Claim 1.2** Combining pairs is associative, exactly.
#
# *Proof by algebra.* Take p = (a₁, b₁), q = (a₂, b₂), r = (a₃, b₃) and write out both sides:
#
#     (p then q) then r  =  (a₂a₁, a₂b₁ + b₂) then r  =  (a₃ · a₂a₁,  a₃ · (a₂b₁ + b₂) + b₃)
#     p then (q then r)  =  p then (a₃a₂, a₃b₂ + b₃)  =  (a₃a₂ · a₁,  a₃a₂ · b₁ + (a₃b₂ + b₃))
#
# Both are (a₃a₂a₁, a₃a₂b₁ + a₃b₂ + b₃). ∎
#
# *Proof without algebra.* Both sides mean "do p, do q, do r". Brackets say who wrote the summary, not what happens.
# ∎
#
# Two witnesses that share nothing: sympy expands the algebra, and the law checker throws exact fractions at the
# package's own combine, called `AFFINE`. Its law "meaning" is our claim 1.1.

# %%
# check 1.2
left, right = then(then(p, q), r), then(p, then(q, r))
assert all(sympy.expand(one - other) == 0 for one, other in zip(left, right))
found = check_laws(AFFINE, st.tuples(numbers, numbers), act=act, states=numbers)
assert found.ok
print(found, "1.2 holds", sep="\n")

# %% [markdown]
# ## 4. What moving brackets buys
#
# Which brackets do two algorithms choose? We ask them, with a spy: an operation that computes nothing and records
# who was combined with whom. `serial` is the loop. `hillis_steele` is a parallel scan; notebook 02 takes it apart,
# until then it is a black box. Both must hold all eight steps, in order, so only the brackets can differ. Brackets
# are waiting times: an outer one waits for what it encloses. We print what the spy brought home, then draw it.

# %%
spy = Monoid.elementwise("spy", lambda first, second: (first, second))
chain = serial(spy, range(1, 9)).total
tree = hillis_steele(spy, range(1, 9)).total
print(chain)
print(tree)

# %%
def hang(ax, node, color):
    """Draw a recorded bracketing as a tree; returns where its root hangs: (position, height)."""
    if isinstance(node, int):
        return node, 0
    (x1, y1), (x2, y2) = (hang(ax, part, color) for part in node)
    top = max(y1, y2) + 1
    ax.plot([x1, x1, x2, x2], [y1, top, top, y2], color=color, solid_joinstyle="round")
    return (x1 + x2) / 2, top


fig, axes = lab.figure("step t", "rounds of waiting", columns=2, sharey=True)
for ax, brackets, color in zip(axes, (chain, tree), (lab.COLORS["loop"], lab.COLORS["hillis"])):
    ax.plot(*hang(ax, brackets, color), "o", color=color, markersize=9)
    ax.set_xticks(range(1, 9))
    ax.grid(False)
axes[0].set_title("the loop: a chain")
axes[1].set_title("the same steps: a tree")
plt.show()

# %% [markdown]
# Look at the dot, the last value, and how high it hangs. Seven combines feed it on both sides. In the chain each
# waits for the one before; in the tree those of one level need not wait for each other. Seven against three is
# nice. A thousand steps make it 999 against 10.
#
# Fewer rounds is all that we win: the scan does not do *less* work, and notebook 02 counts how much more it does.
#
# What comes back is a summary (A, B) of each prefix: steps 1 to t in one go. From h₀ = 0 the state is A · 0 + B, so
# B is our answer. From any other start it is A · h₀ + B, and nothing has to be scanned again.

# %%
ones = np.ones(1000), np.ones(1000)
assert serial(AFFINE, ones).rounds == 999 and hillis_steele(AFFINE, ones).rounds == 10
A, B = hillis_steele(AFFINE, (a, b)).values
assert np.array_equal(B, by_hand)
assert np.array_equal(act((A, B), 100), reference.scan(a, b, np.array(100), dim=0)[0])

# %% [markdown]
# ## 5. Brackets may move, operands may not
#
# Associative is not commutative. Halving and then adding 1 is not adding 1 and then halving. Strings show it best,
# because joining them loses nothing: each result still tells its whole story.
#
# **Claim 1.3** A scan moves brackets only. In every prefix the steps stand in their order.

# %%
# check 1.3
prefixes = hillis_steele(CONCAT, "monoid").values
assert list(prefixes) == ["m", "mo", "mon", "mono", "monoi", "monoid"]
assert then((1/2, 0), (1, 1)) != then((1, 1), (1/2, 0))
print("1.3 holds:", *prefixes)

# %% [markdown]
# ## 6. The step that does nothing
#
# **Claim 1.4** The pair (1, 0) changes nothing, before or after any step, and it is the only one.
#
# *Proof.* 1 · h + 0 = h. And if e changes nothing either, then e = (1, 0) then e = (1, 0). ∎

# %%
# check 1.4
assert then((1, 0), p) == p == then(p, (1, 0))
same = [one - other for one, other in zip(then(q, p), p)]
assert sympy.solve(same, [a2, b2], dict=True) == [{a2: 1, b2: 0}]
print("1.4 holds")

# %% [markdown]
# Associative with an identity: that is a **monoid**, which gives this notebook its name. Associative alone is a
# **semigroup**.
#
# One often reads that a parallel scan needs both, that the two together are "necessary and sufficient". That is too
# strict. Here is an operation that can have no identity: join two words *with a comma*. Whatever e you try,
# "e,word" has a comma too many.
#
# **Claim 1.5** A semigroup is enough. The identity buys two conveniences: padding to a handy length, and
# *exclusive* scans, which hand each step the summary of what came **before** it. Before the first step there is
# nothing, and "nothing" is just what a semigroup has no word for.

# %%
# check 1.5
comma = Monoid.elementwise("joining with a comma", lambda first, second: first + "," + second)
assert check_laws(comma, st.text("ab", max_size=3)).ok
assert hillis_steele(comma, "monoid").total == monoid.chunked(comma, "monoid", chunk=4).total == "m,o,n,o,i,d"
try:
    hillis_steele(comma, "monoid", exclusive=True)
except ValueError as refusal:
    print("1.5 holds:", refusal)

# %% [markdown]
# Should you ever need the missing word, add it: one extra value that means "no steps yet" turns any semigroup into
# a monoid. So it is never the identity that stands in the way. Associativity is.
#
# ## 7. Second order is not out
#
# "First order or not at all" is another rule that one reads. Take Fibonacci, where each number needs the *two*
# before it: fₜ = fₜ₋₁ + fₜ₋₂. The cure is an old one: enlarge the state. Keep fₜ and fₜ₋₁ together, and one step is
# a matrix, called a **companion matrix**. The recurrence is of first order again, only on vectors:
#
#     ⎡ fₜ   ⎤   ⎡ 1  1 ⎤   ⎡ fₜ₋₁ ⎤
#     ⎣ fₜ₋₁ ⎦ = ⎣ 1  0 ⎦ · ⎣ fₜ₋₂ ⎦
#
# A step is now a matrix and a vector, (A, b), and the formula stays (A₂A₁, A₂b₁ + b₂). So does the proof of claim
# 1.2: it never used that numbers commute. (Read it again with matrices in mind. It is worth it.)
#
# **Claim 1.6** A linear recurrence of order two scans, as pairs of a 2×2 matrix and a 2-vector.

# %%
# check 1.6
A, b_vectors = monoid.companion([1, 1], [1] + [0] * 59)         # 60 steps; the first adds 1, the others nothing
assert A[0].tolist() == [[1, 1], [1, 0]] and b_vectors[0].tolist() == [1, 0]
_, f = hillis_steele(matrix_affine(2), (A, b_vectors)).values
assert f[:, 0].tolist() == [sympy.fibonacci(t) for t in range(1, 61)]
print("1.6 holds: it ends with", f[-1, 0])

# %% [markdown]
# Order k goes the same way with k×k matrices. Nothing linear is out. It is only dearer, and the price can be
# counted, with a number that does nothing but count.
#
# **Claim 1.7** A combine of order k costs k³ multiplications for A₂A₁ and k² for A₂b₁.

# %%
# check 1.7
class Counted:
    """Stands for any number and counts how often it is multiplied."""
    products = 0

    def __mul__(self, other):
        Counted.products += 1
        return self

    def __add__(self, other):
        return self


for k in (1, 2, 4, 8):
    step = np.full((k, k), Counted(), dtype=object), np.full(k, Counted(), dtype=object)
    Counted.products = 0
    matrix_affine(k).combine(step, step)
    assert Counted.products == k**3 + k**2
    print(f"1.7 holds for order {k}: {Counted.products} multiplications")

# %% [markdown]
# The loop never multiplies two matrices: k² a step is all it needs. So order k is not out, but a combine is k + 1
# times as dear as a step of the loop. That is why Mamba keeps its matrix *diagonal*: then the k numbers of the
# state do not mix, and a combine costs 2k.
#
# ## 8. More that scans
#
# A monoid need not have anything to do with multiplying. Put + for · and max for +:
#
#     hₜ = max(aₜ + hₜ₋₁, bₜ)
#
# With aₜ = −1 this is a peak meter: it jumps up to a new peak bₜ and sinks by one a step. In the usual sense it is
# not linear, and yet two such steps are one such step, (a₂ + a₁, max(a₂ + b₁, b₂)).
#
# **Claim 1.8** Max-plus pairs are a monoid, and its scan is the peak meter.

# %%
# check 1.8
pairs = st.tuples(st.integers(-9, 9), st.integers(-9, 9))
assert check_laws(MAX_PLUS, pairs, act=lambda step, h: max(step[0] + h, step[1]), states=[0, 1, -1, 5]).ok
_, meter = hillis_steele(MAX_PLUS, ([-1] * 8, [3, 0, 0, 5, 1, 0, 0, 2])).values
assert meter.tolist() == [3, 2, 1, 5, 4, 3, 2, 2]
print("1.8 holds")

# %% [markdown]
# The next one is not one monoid but a way to make a new one out of *any* monoid. Training packs many short texts
# into one long row, and each text must start afresh. So each element carries a flag, "I restart here", and a
# summary remembers whether a restart happened inside it. This is the **segmented lift**. (Its formula is yours to
# find, in exercise 1.C.)
#
# **Claim 1.9** The segmented lift of a monoid is a monoid, and one scan of it equals separate scans of the
# segments.
#
# We check it on strings. They forget nothing, so an equation between scans that holds for strings holds for every
# monoid.

# %%
# check 1.9
starts = np.isin(np.arange(11), [0, 3, 6])
assert check_laws(segmented(CONCAT), st.tuples(st.booleans(), st.text("ab", max_size=3))).ok
_, words = hillis_steele(segmented(CONCAT), (starts, list("onetwothree"))).values
assert list(words) == [word[:n] for word in ("one", "two", "three") for n in range(1, len(word) + 1)]
print("1.9 holds:", *words)

# %% [markdown]
# Three newcomers on longer runs, and one and the same `hillis_steele`: a recurrence of order two that is kicked
# three times, the peak meter on noise, and a moving average that restarts.

# %%
rng = np.random.default_rng(1)
t, kicks, noise = np.arange(120), np.zeros(120), rng.exponential(size=120)
kicks[[0, 50, 85]] = 1
starts = np.isin(t, [0, 40, 75])
_, swing = hillis_steele(matrix_affine(2), monoid.companion([1.84, -0.94], kicks)).values
_, level = hillis_steele(MAX_PLUS, (np.full(120, -0.15), noise)).values
_, (_, average) = hillis_steele(segmented(AFFINE), (starts, (np.full(120, 0.9), 0.1 * noise))).values
assert np.all(level >= noise) and np.array_equal(average[starts], 0.1 * noise[starts])

fig, axes = lab.figure("step t", columns=3, width=9.6, height=2.9)
axes[0].plot(t, swing[:, 0], color=lab.COLORS["hillis"])
axes[0].plot(t[kicks == 1], swing[kicks == 1, 0], "o", color=lab.COLORS["bad"])
axes[1].bar(t, noise, width=1, color=lab.COLORS["faint"])
axes[1].plot(t, level, color=lab.COLORS["blelloch"])
for segment in np.split(t, t[starts][1:]):
    axes[2].plot(segment, average[segment], color=lab.COLORS["chunk"])
for ax, title in zip(axes, ("order two, kicked", "max-plus: a peak meter", "segmented: it restarts")):
    ax.set_title(title)
plt.show()

# %% [markdown]
# Look at what each state remembers. Left: dots mark the kicks, and the swing goes on by itself, which first order
# with a positive factor cannot do. Middle: the line never dips below a bar, and sinks evenly. Right: after each
# restart the average climbs from near zero again, as if nothing had been before.
#
# ## 9. What stays out
#
# Now let a gate look at the state: g = a · h decides how much of h is kept.
#
#     hₜ = gₜ · hₜ₋₁ + bₜ   with   gₜ = aₜ · hₜ₋₁
#
# Can two such steps be summarised by one pair again? We give the combine its best chance: for any two steps it
# returns the pair that is right at h = 0 and at h = 1. No other pair is right at both, so where this one fails,
# every pair fails.

# %%
def gated(step, h):
    a, b = step
    return (a * h) * h + b


def best_pair(first, second):
    at_0, at_1 = (gated(second, gated(first, h)) for h in (0, 1))
    return at_1 - at_0, at_0


print(check_laws(Monoid("gated, best pair", best_pair), pairs, act=gated, states=st.integers(-9, 9)))

# %% [markdown]
# Read the lines about the *meaning*. They are a proof: a step with (1, 0) squares, two of them take the fourth
# power, and no a · h² + b does that.
#
# Then perhaps three numbers, or ten? Let us ask how many are needed. Run n steps, nudge each of their 2n
# parameters, and count in how many independent directions the resulting *function* moves. (That is the rank of a
# matrix: how fast the outcome, from several starts h, moves with each parameter.) Any smooth summary of n steps
# needs at least so many numbers.
#
# **Claim 1.10** Affine steps need two numbers, however many there are. With a gate on the state, each further step
# needs one more; with tanh(a · h + b), the step of a classic recurrent network, two more. (Checked up to three
# steps.)
#
# A fourth row keeps us honest: a + b / h, the step of a continued fraction.

# %%
# check 1.10
def numbers_needed(step, n):
    parameters = sympy.symbols(f"p:{2 * n}")
    outcome = h
    for t in range(n):
        outcome = step(parameters[2 * t:2 * t + 2], outcome)
    slopes = sympy.lambdify((*parameters, h), [outcome.diff(p) for p in parameters])
    starts = np.linspace(0.2, 2, 2 * n + 1)
    return int(np.linalg.matrix_rank([slopes(*np.linspace(0.2, 0.9, 2 * n), start) for start in starts]))


kinds = {"affine": act, "gated": gated, "tanh": lambda step, h: sympy.tanh(act(step, h)),
         "continued fraction": lambda step, h: step[0] + step[1] / h}
needed = {kind: [numbers_needed(step, n) for n in (1, 2, 3)] for kind, step in kinds.items()}
assert list(needed.values()) == [[2, 2, 2], [2, 3, 4], [2, 4, 6], [2, 3, 3]]
print("1.10 holds:", needed)

# %% [markdown]
# The continued fraction is not linear at all, and three numbers are enough for it. (Its steps are 2×2 matrices in
# disguise, and they do scan.) So "linear or not" is not the question either. This one decides:
#
# > **Is there one fixed count of numbers that is enough to write down any number of steps?**
#
# Functions can always be composed, and composing is always associative. What a scan needs is that the *description*
# stays small. Mamba's gates pass: they look at the input xₜ, so aₜ is just a number when the scan starts. A gate
# that looks at hₜ₋₁ does not pass.
#
# ## 10. In floating point
#
# Claim 1.2 was exact. Floats round after every operation, and then brackets do matter a little: (0.1 + 0.2) + 0.3
# and 0.1 + (0.2 + 0.3) are neighbours, one unit in the last place (ulp) apart.
#
# How far apart are loop and tree after thousands of steps? We run both in float32, with four kinds of factors and
# 64 rows of each, and measure against the loop in float64, in ulp of the float32 result.

# %%
assert (0.1 + 0.2) + 0.3 == np.nextafter(0.1 + (0.2 + 0.3), 1)
T, rows, lengths = 2**14, 64, 2**np.arange(1, 15)
kinds = {
    "a = 1: plain sums": np.ones((T, rows)),
    "0.5 < a < 0.9: forgets fast": rng.uniform(0.5, 0.9, (T, rows)),
    "0.998 < a < 1, new at each step": rng.uniform(0.998, 1, (T, rows)),
    "0.998 < a < 1, the same at each step": np.tile(rng.uniform(0.998, 1, rows), (T, 1)),
}


def loop32(a, b):
    h = np.zeros_like(b)
    for t in range(len(b)):
        h[t] = a[t] * h[t - 1] + b[t]                           # h[-1] is still zero when t = 0
    return h


errors = {}
for kind, a32 in kinds.items():
    a32, b32 = a32.astype(np.float32), rng.uniform(0, 1, (T, rows)).astype(np.float32)
    exact, _ = reference.scan(a32, b32, dim=0)                  # in float64
    results = loop32(a32, b32), hillis_steele(AFFINE, (a32, b32)).values[1]
    ulps = [(h32 - exact) / np.spacing(exact.astype(np.float32)) for h32 in results]
    errors[kind] = [np.sqrt(np.mean(u[lengths - 1]**2, axis=1)) for u in ulps]      # root mean square over the rows

# %%
fig, axes = lab.figure("length [steps]", "error [ulp]", columns=2, rows=2, height=5.4, sharex=True, sharey=True)
for ax, (kind, both) in zip(axes.flat, errors.items()):
    for error, name, color in zip(both, ("loop", "tree"), (lab.COLORS["loop"], lab.COLORS["hillis"])):
        ax.loglog(lengths, error, "o-", color=color, label=name, base=2)
    ax.set_title(kind)
    ax.set_yticks([1, 4, 16, 64, 256], labels=[1, 4, 16, 64, 256])
axes[0, 0].legend()
plt.show()

# %% [markdown]
# Look at the four corners. The last one may surprise you; it surprised us.
#
# - *Plain sums.* The loop rounds its whole total at every step, and the error grows. In the tree a number takes
#   part in 14 additions at most, and it stays below one ulp.
# - *Forgets fast.* Old errors fade as fast as old values do. Nobody needs to care.
# - *Remembers long, a changes.* The loop errs a little more than the tree.
# - *Remembers long, a stays.* The tree is **worse**, by far. Only the tree multiplies factors with each other, and
#   with one constant a it squares the same rounding error again and again: a², a⁴, a⁸. Nothing cancels.
#
# **Claim 1.11** Where the state forgets fast, moving brackets costs nothing that grows. Elsewhere it depends: for
# sums the tree is far better than the loop, for a constant factor near one far worse.

# %%
# check 1.11
sums, fast, changing, constant = errors.values()                # each is (loop, tree), at each of the lengths
assert np.max(fast) < 2 and np.max(sums[1]) < 1
assert sums[0][-1] > 10 * sums[1][-1] and changing[0][-1] > changing[1][-1]
assert constant[1][-1] > 5 * constant[0][-1]
print("1.11 holds")

# %% [markdown]
# The worst of it is a few hundred ulp, five correct digits instead of seven. So scan and loop will never agree bit
# for bit, and no test should ask for it. What to ask for instead is notebook 08.
#
# ## 11. A real series
#
# matplotlib ships a file of daily share prices of one company, 2004 to 2008. The usual way to see through the noise
# is an exponential moving average, and it is our recurrence: keep 1 − w of the old average, add w of the new price.
#
#     hₜ = (1 − w) · hₜ₋₁ + w · xₜ
#
# The first step is (0, x₁): forget everything, take the price. Its factor is a constant near one, so by the last
# corner of the figure we should expect some ulp of difference and not just one or two.
#
# **Claim 1.12** On this series the scan equals the loop to within 32 ulp, now of float64.

# %%
# check 1.12
prices = cbook.get_sample_data("goog.npz")["price_data"]
x, averages = prices["adj_close"], {}
for span in (10, 100):                                          # [days]
    w = 2 / (span + 1)
    keep, add = np.full(len(x), 1 - w), w * x
    keep[0], add[0] = 0, x[0]
    averages[span] = hillis_steele(AFFINE, (keep, add)).values[1]
    loop, _ = reference.scan(keep, add, dim=0)
    assert np.max(np.abs(averages[span] - loop) / np.spacing(loop)) <= 32
print("1.12 holds on", len(x), "days")

# %%
fig, ax = lab.figure("", "price [US dollars]")
ax.plot(prices["date"], x, color=lab.COLORS["soft"], lw=0.7, label="each day")
ax.plot(prices["date"], averages[10], color=lab.COLORS["hillis"], lw=1.4, label="average over 10 days")
ax.plot(prices["date"], averages[100], color=lab.COLORS["blelloch"], label="average over 100 days")
ax.legend()
plt.show()

# %% [markdown]
# Look at 2008: the short average follows the fall within days, the long one needs months. That is what the factor
# decides, how long a state remembers. In Mamba each channel learns it and may change it at every step.
#
# ## 12. Break it
#
# The most common mistake in scan code: the two operands of the combine change places. *What do you expect?* The
# later step would be done first. Step 1 has nothing to combine with, so it should survive, and step 2 should
# already be wrong. And which law of the law checker should fail?

# %%
swapped = Monoid("affine, operands swapped", lambda first, second: then(second, first))
_, wrong = hillis_steele(swapped, (a, b)).values
print("wrong:", wrong.astype(int).tolist(), "from step", 1 + np.argmax(wrong != by_hand))

print(check_laws(swapped, pairs, act=act, states=[0, 1]))

# %% [markdown]
# Associative, and (1, 0) is its identity: a flawless monoid, just not the one we want. Only its *meaning* gives it
# away.
#
# And here is how this mistake slips through a test. Many tests use one constant a and one constant b, because it is
# convenient.
#
# **Claim 1.13** If all steps are alike, swapped operands give exactly the right answer.
#
# *Why:* every prefix is then a power of one step, and powers of one thing commute.

# %%
# check 1.13
alike = np.full(64, 0.5), np.full(64, 3.0)
assert np.array_equal(hillis_steele(swapped, alike).values, hillis_steele(AFFINE, alike).values)
print("1.13 holds")

# %% [markdown]
# So test with steps that differ.
#
# ## 13. Exercises
#
# Each check explains what is wrong with an answer and shows the input that broke it. Try wrong ones, too.
#
# **1.A The affine combine, from memory.** Do not scroll up. *Budget:* 1 line.
#
# <details><summary>Hint</summary>
#
# What does `second` do to the state that `first` leaves behind? Expand, then read off factor and rest.
#
# </details>

# %% tags=["exercise"]
def my_combine(first, second):
    (a1, b1), (a2, b2) = first, second
    raise NotImplementedError       # YOUR CODE, 1 line: the pair that does `first`, then `second`


# %% tags=["nbval-ignore-output"]
lab.exercises.check("1.A", my_combine)

# %% [markdown]
# **1.B A monoid for the mean.** The mean of two means is not the mean, so means alone do not scan. Choose what to
# carry instead: how a number is lifted into it, how two of them are combined, how the mean is read from it, and
# what stands for no numbers at all. *Budget:* 1 line each.
#
# <details><summary>Hint</summary>
#
# The mean of 2 and 4 is 3. What else must be known about that 3 before a 9 can join? Nothing combined with nothing
# must work, so divide as late as you can.
#
# </details>

# %% tags=["exercise"]
def my_lift(x):
    raise NotImplementedError       # YOUR CODE: what a single number becomes


def my_combine_means(first, second):
    raise NotImplementedError       # YOUR CODE: what stands for the numbers of `first` and `second` together


def my_read(element):
    raise NotImplementedError       # YOUR CODE: the mean of the numbers that `element` stands for


def my_empty():
    raise NotImplementedError       # YOUR CODE: the identity


# %% tags=["nbval-ignore-output"]
lab.exercises.check("1.B", (my_lift, my_combine_means, my_read, my_empty))

# %% [markdown]
# **1.C The segmented lift.** An element is (restart, value). Given the combine of any monoid, write the combine of
# such elements, so that no value reaches across a restart. *Budget:* 1 to 3 lines.
#
# <details><summary>Hint</summary>
#
# Whose restart decides whether the first value still counts? And when must the summary of two elements keep away
# what comes from further left? Take a, |b, c, where | restarts, and bracket them both ways: both must forget a.
#
# </details>

# %% tags=["exercise"]
def my_segmented(first, second, combine):
    (restart1, value1), (restart2, value2) = first, second
    raise NotImplementedError       # YOUR CODE, 1 to 3 lines: (restart, value) of both together


# %% tags=["nbval-ignore-output"]
lab.exercises.check("1.C", my_segmented)

# %% [markdown]
# ## 14. What we now know
#
# - A step h → a · h + b is a pair, and two steps are again one pair (1.1). So a stretch can be summarised before
#   its start is known. That is the answer to the title.
# - Combining pairs is associative (1.2). Brackets may move, operands may not (1.3).
# - (1, 0) is the identity (1.4), but a semigroup is enough to scan (1.5). *Corrected:* "associativity and identity
#   are necessary and sufficient".
# - Linear recurrences of order k scan with k×k matrices (1.6), at k³ + k² multiplications a combine (1.7).
#   *Corrected:* "second order is out".
# - So do max-plus (1.8) and sequences that restart (1.9). What stays out is what needs more numbers with each
#   further step, such as a gate that looks at the state (1.10).
# - In floats brackets matter: harmless where the state forgets fast, otherwise better or worse (1.11). A real
#   series agrees (1.12).
# - Swapped operands obey all laws but one, and a test with equal steps does not see them (1.13).
#
# **Still untrue or slow.** "In parallel" was a figure of speech: NumPy ran these rounds one after the other, and
# our tree does more work than the loop. How much more, and whether that can be helped, is next.
#
# **Next:** notebook 02, *How few rounds, and how little work?*
#
# **Sources**
# - G. E. Blelloch, *Prefix sums and their applications*, technical report CMU-CS-90-190, 1990. Defines the scan for
#   an associative operator and solves recurrences with it; second order and the continued fraction are on its list.
# - W. D. Hillis, G. L. Steele, *Data parallel algorithms*, Communications of the ACM 29 (12), 1986. The scan used
#   here.
# - E. Martin, C. Cundy, *Parallelizing linear recurrent neural nets over sequence length*, ICLR 2018, arXiv
#   1709.04057. Our pairs, in neural networks.
# - A. Gu, T. Dao, *Mamba: linear-time sequence modeling with selective state spaces*, 2023, arXiv 2312.00752.
# - Prices: `goog.npz` in matplotlib's sample data.
