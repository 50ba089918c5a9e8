# %% [markdown]
# # 02 · How few rounds, and how little work?
#
# Notebook 01 found that brackets may move. Now we move them on purpose. Two famous ways to do it promise opposite
# things: one needs the *fewest rounds*, the other does the *least work*. Every GPU scan is built from the two.
#
# *You will be able to*
#
# - **draw** both networks on paper, and say which operand comes first in every node;
# - **count** the rounds and the combines of a scan exactly, and tell which of them your machine makes you pay for;
# - **catch** swapped operands, wrong padding and a lost total with inputs of eight elements.
#
# *Needs:* notebook 01 (pairs, associativity, identity), no GPU. About 45 minutes.

# %%
import functools
import math
import string
import time

import matplotlib.pyplot as plt
import numpy as np
from hypothesis import strategies as st

from ssmlab import lab, reference
from ssmlab.lab.laws import check_laws
from ssmlab.monoid import AFFINE, CONCAT, SUM, Combine, Monoid, blelloch, chunked, hillis_steele, replay, serial

lab.setup()
rng = np.random.default_rng(2)

# %% tags=["nbval-ignore-output"]
lab.here()

# %% [markdown]
# ## 1. Eight numbers, eight helpers
#
# To keep the numbers small we *add*. Everything works for the pairs of notebook 01 just as well, and section 5 goes
# back to them. Wanted are all running sums:
#
# | t | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
# |---|---|---|---|---|---|---|---|---|
# | xₜ | 3 | 1 | 7 | 0 | 4 | 1 | 6 | 3 |
# | **sum of x₀ to xₜ** | **3** | **4** | **11** | **11** | **15** | **16** | **22** | **25** |
#
# The loop needs seven additions, and each one waits for the one before it.

# %%
x = [3, 1, 7, 0, 4, 1, 6, 3]
sums = [x[0]]
for number in x[1:]:
    sums.append(sums[-1] + number)

assert sums == [3, 4, 11, 11, 15, 16, 22, 25]
assert np.array_equal(reference.scan(np.ones(8), x, dim=0)[0], sums)        # sums are the recurrence with all a = 1
print(len(sums) - 1, "additions, one after the other")

# %% [markdown]
# Now put eight helpers in a row, one number each. Whenever you clap, they all act in the same instant.
#
# - *Clap 1.* Each looks at the neighbour **one** place to the left and adds what that one had *before the clap*.
# - *Clap 2.* The same, **two** places to the left. *Clap 3.* **Four** places. (Nobody there? Then keep what you
#   have.)
#
# Follow the last helper: 3, then 6 + 3 = 9, then 5 + 9 = 14, then 11 + 14 = 25. She first knew one step, then two,
# four, eight. Every clap doubles the stretch that a number stands for.

# %%
def clap(row, reach):
    """Everyone adds what the helper `reach` places to the left had before the clap."""
    return [row[t] if t < reach else row[t - reach] + row[t] for t in range(len(row))]


row = x
for reach in 1, 2, 4:
    row = clap(row, reach)
    print(row)

assert row == sums

# %% [markdown]
# Three claps instead of seven turns. But count the additions: 7 + 6 + 4 = **17**, where the loop needed **7**. We
# bought time with work. These two numbers are what this notebook is about:
#
# - **rounds** (the *depth*): how many combines must wait for each other;
# - **combines** (the *work*): how many are performed at all.
#
# ## 2. The fewest rounds: Hillis and Steele
#
# The claps are the scan of Hillis and Steele (1986). `ssmlab.monoid` does it for any monoid, counts what it does, and
# with `record=True` writes down who combined with whom. The next picture is drawn from that record: it shows what
# ran.

# %%
result = hillis_steele(SUM, x, record=True)
lab.network(result, snapshots=replay(SUM, x, result))
plt.show()

# %% [markdown]
# Look at one framed box. Two lines enter it: blue from the helper on the left, orange from the helper itself. Blue is
# the *earlier* part and must be the first operand. Bare numbers wait. The right margin counts: 7, 6, 4.
#
# Where did the work go? Take 16 steps, and keep only the lines that lead to the last one.

# %%
sixteen = hillis_steele(SUM, np.ones(16), record=True)
lab.network(sixteen, follow=15)
plt.show()

# %% [markdown]
# Look at what is left in colour: a plain binary tree, 15 combines for 16 numbers, as few as the loop has. All the
# pale lines are there because every *other* step wants a tree of its own, all at once.
#
# **Claim 2.1** Hillis-Steele gives all prefixes in ⌈log₂ n⌉ rounds, for every length n, power of two or not.
#
# No scan can do with fewer. A combine joins two things, so after r rounds nothing can know more than 2ʳ steps, and
# the last prefix must know n. The check scans *letters*, because a string remembers which letters went in, and in
# which order.

# %%
# check 2.1
letters = string.ascii_letters * 3
for n in range(1, 150):
    result = hillis_steele(CONCAT, letters[:n])
    assert result.values.tolist() == [letters[:t + 1] for t in range(n)]
    assert result.rounds == math.ceil(math.log2(n))
print("2.1 holds")

# %% [markdown]
# And the price? In the round with reach d, all but the first d steps combine: n − d of them. The reaches are 1, 2, 4,
# …, which is R = ⌈log₂ n⌉ rounds, and their sum is 2ᴿ − 1:
#
# **Claim 2.2** Hillis-Steele performs n · R − (2ᴿ − 1) combines. For n = 512 these are 4097; the loop has 511.
#
# The check does not trust the counter of the package. It counts the calls of its own addition.

# %%
# check 2.2
calls = []
counted = Monoid.elementwise("counted addition", lambda first, second: calls.append(1) or first + second, identity=0)
for n in 2, 3, 8, 100, 512:
    calls.clear()
    result = hillis_steele(counted, range(n))
    assert len(calls) == result.combines == n * result.rounds - (2**result.rounds - 1)
assert len(calls) == 4097
print("2.2 holds")

# %% [markdown]
# ## 3. The least work: Blelloch
#
# Eight trees side by side, and most of their branches are the same. Could all steps share **one** tree? Then the tree
# has to be walked twice.
#
# *Up*, from the leaves to the root: add pairs, then fours, then all. Each node now knows the sum of its own stretch.
#
# *Down*, from the root to the leaves. On the way down each node is told one thing: **what comes before my stretch?**
# Before the whole there is nothing, so the root gets the identity, here 0. A node that knows what comes before it
# tells its children:
#
# - left child: "the same comes before you", nothing to compute;
# - right child: "the same comes before you, *then* everything in your left sibling", one combine.
#
# The next function is these two lines. (It adds up `left` anew; the walk up has that number already.)

# %%
def what_comes_before(x, before, then):
    """For each element of x: all that precedes it, if `before` precedes the whole."""
    if len(x) == 1:
        return [before]
    left, right = x[:len(x) // 2], x[len(x) // 2:]
    all_left = functools.reduce(then, left)
    return what_comes_before(left, before, then) + what_comes_before(right, then(before, all_left), then)


assert what_comes_before(x, 0, SUM.combine) == [0, *sums[:-1]]
print(what_comes_before(x, 0, SUM.combine))

# %% [markdown]
# Every step learned what comes *before* it: the running sums, moved by one place. Now the real thing, drawn from its
# record.

# %%
result = blelloch(SUM, x, exclusive=True, record=True)
lab.network(result, snapshots=replay(SUM, x, result))
plt.show()

# %% [markdown]
# Look at rounds 1 to 3: the walk up, 4 + 2 + 1 additions, 25 arrives at the root. In the row "move" the total is put
# aside and the identity 0 takes its place. Rounds 4 to 6 walk down. A dashed line is the message to a left child: a
# number moves, nothing is added. In every framed box on the way down blue, what comes from above, is **first**, and
# orange, the left sibling's sum, is second. Hold on to that: section 5 swaps them.
#
# ### Before me, or up to me?
#
# | | step t holds | first | last |
# |---|---|---|---|
# | **inclusive** | everything up to *and with* t | x₀ | the total |
# | **exclusive** | everything *before* t | the identity | all but xₙ₋₁ |
#
# Hillis-Steele grows inclusive sums, Blelloch's tree grows exclusive ones. One is the other moved by a place, but not
# quite: something falls off at the end.
#
# **Claim 2.3** The exclusive scan is the inclusive one moved right by one, the identity in front. What falls off is
# the total, and only the total can start the next piece of a longer sequence.

# %%
# check 2.3
word, rest = "paral", "lel"
for scan in hillis_steele, blelloch:
    inclusive, exclusive = scan(CONCAT, word), scan(CONCAT, word, exclusive=True)
    assert exclusive.values.tolist() == ["", *inclusive.values[:-1]] == ["", "p", "pa", "par", "para"]
    assert exclusive.total == inclusive.total == "paral" != exclusive.values[-1]
    carried_on = [exclusive.total + prefix for prefix in scan(CONCAT, rest, exclusive=True).values]
    assert carried_on == ["paral", "parall", "paralle"]
print("2.3 holds")

# %% [markdown]
# "Take the last value as the carry" is right for an inclusive scan and wrong for an exclusive one. That slip has its
# own line in many bug trackers.
#
# ## 4. Work against depth
#
# Let all three run on 2, 4, 8, …, 8192 numbers, and count: rounds from the record, combines from the calls of our own
# addition. Next to them stand the formulas.

# %%
lengths = 2 ** np.arange(1, 14)
n, k = lengths, np.arange(1, 14)
formulas = {
    "loop": ("loop", serial, n - 1, n - 1),
    "hillis": ("Hillis-Steele", hillis_steele, n * k - (n - 1), k),
    "blelloch": ("Blelloch", blelloch, 2 * (n - 1), 2 * k),
}
counts = {}
for key, (_, scan, *_) in formulas.items():
    counts[key] = np.zeros((2, len(lengths)), int)
    for i, length in enumerate(lengths):
        calls.clear()
        rounds = scan(counted, range(length)).rounds
        counts[key][:, i] = len(calls), rounds

# %%
fig, (work, depth) = lab.figure("length [steps]", columns=2, height=3.4)
for key, (name, _, combines, rounds) in formulas.items():
    for ax, formula, dots in (work, combines, counts[key][0]), (depth, rounds, counts[key][1]):
        ax.loglog(lengths, formula, color=lab.COLORS[key], label=name)
        ax.loglog(lengths, dots, "o", color=lab.COLORS[key], markersize=4)
for ax, title, unit in (work, "work", "combines [count]"), (depth, "depth", "rounds [count]"):
    ax.set(title=title, ylabel=unit)
    ax.set_xscale("log", base=2)
work.legend()
plt.show()

# %% [markdown]
# Look at both panels together; dots are counted, lines are formulas. On the left blue climbs away from grey, ever
# further, while orange keeps to grey's side, twice as high. On the right grey takes off, while blue and orange hardly
# rise at all. Nobody is lowest in both.
#
# **Claim 2.4** For powers of two the counts *are* the formulas:
#
# | | combines | rounds |
# |---|---|---|
# | loop | n − 1 | n − 1 |
# | Hillis-Steele | n log₂ n − (n − 1) | log₂ n |
# | Blelloch | 2 (n − 1) | 2 log₂ n |
#
# The article behind this workbook says O(L log L) and O(L) for the work, O(log L) for the depth. That holds.

# %%
# check 2.4
for key, (_, _, *formula) in formulas.items():
    assert np.array_equal(counts[key], formula)
print("2.4 holds")

# %% [markdown]
# ## 5. First and second
#
# 3 + 1 is 1 + 3, so additions cannot tell whether you mixed up the operands. Most of what we want to scan can.
# Letters show it at once. And a state space model, hₜ = aₜ hₜ₋₁ + bₜ? Send in a single impulse and watch it fade.

# %%
def swapped(monoid):
    """The same monoid with the operands mixed up."""
    return Monoid("swapped " + monoid.name, lambda first, second: monoid.combine(second, first), monoid.identity,
                  monoid.objects)


print("right  ", *hillis_steele(CONCAT, "scan").values)
print("swapped", *hillis_steele(swapped(CONCAT), "scan").values)

decay, impulse = np.full(24, 0.8), np.zeros(24)
impulse[6] = 1
_, right = hillis_steele(AFFINE, (decay, impulse)).values
_, wrong = hillis_steele(swapped(AFFINE), (decay, impulse)).values

# %%
fig, axes = lab.figure("step t [index]", "state h", columns=2, height=2.9, sharey=True)
panels = (right, "first, then second", "good"), (wrong, "operands swapped", "bad")
for ax, (h, title, color) in zip(axes, panels, strict=True):
    ax.axvline(6, color=lab.COLORS["soft"], linestyle=":", linewidth=1.2)
    ax.stem(h, linefmt=lab.COLORS[color], basefmt=" ")
    ax.set_title(title)
axes[0].annotate("the impulse", (6.3, 0.95), (9.5, 0.93), arrowprops={"arrowstyle": "->", "color": lab.COLORS["soft"]})
plt.show()

# %% [markdown]
# Look at the right panel: the impulse arrives already faded, by the six decays *before* it, and then never fades
# again. The swapped combine scales each input by its past instead of its future.
#
# **Claim 2.5** One impulse exposes a swap at once. Addition does not, nor do pairs with all a = 1; and the law
# checker finds swapped pairs to be a flawless monoid, associative, with the identity (1, 0). Only their *meaning* is
# wrong.
#
# So do not compare one scan with another: they agree on the wrong answer. Compare with the loop.

# %%
# check 2.5
steps, numbers = np.arange(24), rng.integers(-9, 10, 24)
assert np.allclose(right, np.where(steps < 6, 0, 0.8 ** (steps - 6.0)), rtol=1e-12, atol=0)
assert np.allclose(wrong, np.where(steps < 6, 0, 0.8 ** 6), rtol=1e-12, atol=0)
for blind, items in (SUM, numbers), (AFFINE, (np.ones(24), numbers)):
    assert np.array_equal(hillis_steele(blind, items).values, hillis_steele(swapped(blind), items).values)

small = st.integers(-9, 9)
laws = check_laws(swapped(AFFINE), st.tuples(small, small), act=lambda pair, h: pair[0] * h + pair[1], states=small)
assert [broken.law for broken in laws.violations] == ["meaning"]
print("2.5 holds")

# %% [markdown]
# A swap in *one* place is harder to see. Here is the function of section 3 for letters, with a single slip on the way
# down:

# %%
def one_slip(text, before=""):
    """What precedes each letter; the slip: `before` should stand in front of `left`."""
    if len(text) == 1:
        return [before]
    left, right = text[:len(text) // 2], text[len(text) // 2:]
    return one_slip(left, before) + one_slip(right, left + before)


slipped = one_slip("abcdefgh")
wrong_at = [t for t in range(8) if slipped[t] != "abcdefgh"[:t]]
assert wrong_at == [3, 5, 6, 7]
print(*slipped, sep=" | ")

# %% [markdown]
# Read them from the left: nothing, a, ab, and then c*ab*. Steps 0, 1, 2 and 4 are right, because at each of their
# nodes one of the two operands is empty. A test that looks at the first few values, or sums numbers, is content. Test
# scans with letters.
#
# ## 6. Padding
#
# Blelloch's tree wants a power of two. Five numbers become eight by filling up with the identity, which changes
# nothing:
#
#     3 1 7 0 4   →   3 1 7 0 4 0 0 0
#
# **Claim 2.6** Padded at the end with the identity, values and total stay what they were, for every length. The price
# is work: up to twice as much, worst just above a power of two (513 steps: 2046 combines; 512 steps: 1022).

# %%
# check 2.6
for n in range(1, 66):
    items = rng.integers(-1, 2, n), rng.integers(-9, 10, n)          # whole numbers: no rounding hides anything
    padded, loop = blelloch(AFFINE, items), serial(AFFINE, items)
    assert np.array_equal(padded.values, loop.values) and padded.total == loop.total
work = {n: blelloch(SUM, np.zeros(n)).combines for n in range(2, 1101)}
assert all(combines < 4 * (n - 1) for n, combines in work.items())
assert (work[512], work[513]) == (1022, 2046)
print("2.6 holds")

# %%
fig, ax = lab.figure("length [steps]", "combines per step [count]", height=3)
n = np.array([*work])
ax.plot(n, [hillis_steele(SUM, np.zeros(k)).combines / k for k in n], color=lab.COLORS["hillis"])
ax.plot(n, [combines / k for k, combines in work.items()], color=lab.COLORS["blelloch"])
ax.text(560, 7.5, "Hillis-Steele, never padded", color=lab.COLORS["hillis"])
ax.text(560, 4.2, "Blelloch, padded to a power of two", color=lab.COLORS["blelloch"])
ax.set(ylim=(0, 10.5), xlim=(0, 1100), xticks=[1, 128, 256, 512, 768, 1024])
plt.show()

# %% [markdown]
# Look at the orange saw: at a power of two the tree costs 2 combines a step, one step later almost 4. Our source
# calls padding almost free. For the values that is so; for the work it is so if you choose the lengths, as GPU
# kernels do with their tiles.
#
# ### The wrong padding
#
# Every array library pads with zeros. For pairs, (0, 0) is not "do nothing" but "forget everything". Where does it
# hurt? (Our source pads in front.)
#
# **Claim 2.7** Padding at the end cannot reach a value, whatever it holds, not even NaN: prefixes only look left. It
# does reach the *total*. In front of the sequence it reaches everything. Only the identity (1, 0) is harmless in both
# places.

# %%
# check 2.7
a, b = np.full(5, 0.5), np.arange(5.0)
loop = serial(AFFINE, (a, b))
for pad in (1, 0), (0, 0), (np.nan, np.nan):
    behind = hillis_steele(AFFINE, (np.append(a, [pad[0]] * 3), np.append(b, [pad[1]] * 3)))
    front = hillis_steele(AFFINE, (np.append([pad[0]] * 3, a), np.append([pad[1]] * 3, b)))
    harmless = pad == (1, 0)
    assert np.array_equal(np.array(behind.values)[:, :5], loop.values)
    assert (behind.total == loop.total) == harmless
    assert np.array_equal(np.array(front.values)[:, 3:], loop.values) == harmless
print("2.7 holds")

# %% [markdown]
# So a kernel with zero padding passes every test of its outputs, and hands a state of 0 to the next chunk.
#
# ## 7. Chunks: the bridge to the GPU
#
# A GPU has many helpers, but not one for every step, and they sit in rooms (*blocks*) between which talking is slow.
# So cut the sequence into chunks. Each room scans its own chunk; **one** number goes from room to room; everybody
# adds it.

# %%
rooms = chunked(CONCAT, "abcdefghi", chunk=3, record=True)
lab.network(rooms, snapshots=replay(CONCAT, "abcdefghi", rooms))
plt.show()

# %% [markdown]
# Look at the three phases. Rounds 1 and 2: each chunk scans itself, all chunks at once. Rounds 3 and 4: the ends of
# the chunks pass the carry along, one line over each border and no other. Round 5: everybody who lacks it takes the
# carry, at once.
#
# **Claim 2.8** For n steps in K chunks of C, this takes 2 n − C − K combines, and C + K − 1 rounds: fewest when C =
# √n. It needs no identity and no padding.

# %%
# check 2.8
chunks = [2**k for k in range(13)]
by_chunk = {C: chunked(SUM, np.zeros(4096), chunk=C) for C in chunks}
for C, result in by_chunk.items():
    K = 4096 // C
    assert result.combines == 2 * 4096 - C - K
    assert result.rounds == C + K - 1 - (K == 1 or C == 1)     # one chunk, or chunks of one: nobody lacks a carry
assert min(chunks, key=lambda C: by_chunk[C].rounds) == 64
smallest = Monoid("smallest", np.minimum)                      # no identity: a semigroup
assert chunked(smallest, [3, 1, 4, 1, 5, 9, 2], chunk=3).values.tolist() == [3, 1, 1, 1, 1, 1, 1]
print("2.8 holds")

# %% [markdown]
# For 4096 steps the loop has 4095 rounds; 64 chunks of 64 have 127, with less than twice the work. Inside a chunk and
# between chunks one may use any scan, the two networks too. Notebook 04 fills in the inside, notebook 05 the way
# between.
#
# ## 8. Who wins?
#
# That depends on how many combines your machine does at the same instant; call it its **lanes**. A round with c
# combines then takes ⌈c / lanes⌉ beats. The record knows c for every round.

# %%
def beats(result, lanes):
    """How long a recorded scan takes if `lanes` combines happen at once."""
    sizes = [sum(isinstance(event, Combine) for event in events) for events in result.trace]
    return sum(math.ceil(size / lanes) for size in sizes)


n, lanes = 1024, 2 ** np.arange(11)
tree, doubling = (scan(SUM, np.zeros(n), record=True) for scan in (blelloch, hillis_steele))
time_of = {
    "hillis": [beats(doubling, p) for p in lanes],
    "blelloch": [beats(tree, p) for p in lanes],
    "chunk": [beats(chunked(SUM, np.zeros(n), chunk=n // p, record=True), p) for p in lanes],
}

# %%
fig, ax = lab.figure("lanes [combines at once]", "beats for 1024 steps [count]", height=3.4)
ax.axhline(n - 1, color=lab.COLORS["loop"], linestyle=":", label="loop")
for key, label in ("hillis", "Hillis-Steele"), ("blelloch", "Blelloch"), ("chunk", "one chunk a lane"):
    ax.loglog(lanes, time_of[key], "o-", color=lab.COLORS[key], label=label)
ax.set_xscale("log", base=2)
ax.set_yscale("log", base=2)
ax.legend()
plt.show()

# %% [markdown]
# Look where the lines cross. With few lanes the work decides, and blue starts nine times above the loop. Only at the
# far right, with a lane for nearly every step, do rounds decide and blue comes out lowest.
#
# **Claim 2.9** For 1024 steps, Hillis-Steele beats Blelloch only with 512 lanes or more. With up to 8 lanes chunks,
# one a lane, are the fastest of all.

# %%
# check 2.9
blue, orange, green = (np.array(time_of[key]) for key in ("hillis", "blelloch", "chunk"))
assert lanes[blue < orange].tolist() == [512, 1024]
assert lanes[green < np.minimum(blue, orange)].tolist() == [1, 2, 4, 8]
assert (blue[0], orange[0], green[0]) == (9217, 2046, 1023) and (blue[-1], orange[-1]) == (10, 20)
print("2.9 holds")

# %% [markdown]
# This is why real kernels mix. A *warp* of a GPU has 32 lanes for 32 steps: Hillis-Steele. A thread that owns several
# steps has one lane for them: a loop. Between blocks lanes are plenty and combines few: a tree, or a chain.
#
# Which machine is NumPy? It performs a round in one call, but inside that call a CPU works through the combines a few
# at a time: nearly one lane. So less work should win over fewer rounds. A million steps:

# %% tags=["nbval-ignore-output"]
million = rng.uniform(0.5, 1, 10**6), rng.normal(size=10**6)
for name, scan in ("Hillis-Steele", hillis_steele), ("Blelloch", blelloch):
    start = time.perf_counter()
    result = scan(AFFINE, million)
    print(f"{name:14} {1000 * (time.perf_counter() - start):6.0f} ms   "
          f"{result.rounds} rounds, {result.combines / 10**6:.1f} million combines")

# %% [markdown]
# ## 9. Break it
#
# "What that one had *before the clap*" was a promise. Let it go: the helpers share one row, and some are quicker than
# others.

# %%
def hasty_clap(row, reach, order):
    """The same clap in one shared row: whoever is early has changed it already when the others look."""
    for t in order:
        if t >= reach:
            row[t] = row[t - reach] + row[t]


for who, order in ("left ones first", range(8)), ("right ones first", range(7, -1, -1)):
    row = list(x)
    for reach in 1, 2, 4:
        hasty_clap(row, reach, order)
    print(f"{who:17}", row, "right" if row == sums else "WRONG")

# %% [markdown]
# What did you expect? With the right ones first nobody ever looks at a changed number, and all is well. With the left
# ones first it goes wrong, from step 2 on. On a GPU nobody chooses the order: the program would be right on one day
# and wrong on another. That is a **race**, and notebook 04 catches it with a tool. The cure is a second row: read the
# old one, write the new one.
#
# Break one yourself: in section 3, write `then(all_left, before)`. The assert below the function stays silent,
# because additions do not care. Which input would have told you?
#
# ## Exercises
#
# Write your answer in place of `raise NotImplementedError`; the cell below each says "passed" or explains what went
# wrong.
#
# ### Exercise 2.A: the carries
#
# Given the totals of all chunks, in order, return a list with what must be put in front of each: for ab, cd, ef these
# are nothing, ab, abcd. `then(first, second)` combines two. Budget: one combine a chunk.
#
# <details><summary>Hint</summary>Inclusive or exclusive? The table in section 3 decides, and also what the first
# chunk gets.</details>

# %% tags=["exercise"]
def my_carries(totals, then, nothing):
    raise NotImplementedError   # YOUR CODE, about 4 lines; `nothing` is the identity of `then`

# %% tags=["nbval-ignore-output"]
lab.exercises.check("2.A", my_carries)

# %% [markdown]
# ### Exercise 2.B: what follows
#
# You have a fast scan from the left, `scan(items, then)`, which returns the list of its prefixes. Use it, once, to
# get the *suffixes*: for a, b, c these are abc, bc, c. (The backward pass of every scan needs this.)
#
# <details><summary>Hint</summary>Flip, scan, flip. Then look closely at one entry: who is now `first`?</details>

# %% tags=["exercise"]
def my_suffixes(items, scan, then):
    raise NotImplementedError   # YOUR CODE, 1 line

# %% tags=["nbval-ignore-output"]
lab.exercises.check("2.B", my_suffixes)

# %% [markdown]
# ### Exercise 2.C: a tree without an identity
#
# Blelloch's walk down starts with the identity. Write an *inclusive* scan for a power of two that needs none. Budget:
# 2 n − 2 − log₂ n combines, and no result may wait for more than 2 log₂ n − 1 of them in a row.
#
# <details><summary>Hint</summary>Combine neighbours in pairs, and let your own function scan the n / 2 results. Half
# of the prefixes are finished then. The others lack one combine each.</details>

# %% tags=["exercise"]
def my_tree(items, then):
    raise NotImplementedError   # YOUR CODE, about 4 lines; items is a list, its length a power of two

# %% tags=["nbval-ignore-output"]
lab.exercises.check("2.C", my_tree)

# %% [markdown]
# ## What we now know
#
# - 2.1, 2.2 Hillis-Steele: ⌈log₂ n⌉ rounds, the fewest possible, any length, for about log₂ n combines a step.
# - 2.3 Exclusive is inclusive moved by one; the total must be kept, because the next piece starts from it.
# - 2.4 Blelloch: one shared tree, up and down, 2 (n − 1) combines in 2 log₂ n rounds. All counts are the formulas.
#   *Source: holds.*
# - 2.5 Swapped operands leave a flawless monoid with the wrong meaning; letters or one impulse show it.
# - 2.6, 2.7 Padding with the identity changes no value and no total. *Source: holds, with a condition*: it can double
#   the work, and zeros in its place destroy the total.
# - 2.8 Chunks: 2 n − C − K combines in C + K − 1 rounds, one number over each border.
# - 2.9 Few lanes: work decides. A lane for nearly every step: rounds decide.
#
# *Still untrue or slow.* A round was free of charge here, and so was every look at a neighbour. On a real machine
# moving a number costs more than adding it.
#
# *Next:* [03 · What does moving a number cost?](03_the_machine.ipynb)
#
# *Sources.* W. D. Hillis, G. L. Steele: Data parallel algorithms, 1986. G. E. Blelloch: Prefix sums and their
# applications, 1990. R. P. Brent: The parallel evaluation of general arithmetic expressions, 1974 (why beats are
# rounds plus work over lanes). R. P. Brent, H. T. Kung: A regular layout for parallel adders, 1982 (exercise 2.C).
