# %% [markdown]
# # 03 · What does moving a number cost?
#
# In notebook 02 a look at a neighbour was free. On a GPU it is what you pay for: the arithmetic of a scan is over
# long before its numbers have arrived. This notebook asks the machine, one access at a time, what it moves, and
# what it makes you wait for.
#
# *You will be able to*
#
# - **predict** from an index expression how many bytes a kernel really moves, and check it on a laptop;
# - **repair** the two commonest leaks, scattered reads and bank conflicts, and choose a size that fits the chip;
# - **decide** which of three roofs a kernel will hit on a given GPU.
#
# *Needs:* notebook 02. No GPU: everything is counted on the CPU, times come from a measured H200. About 60 minutes.

# %% tags=["nbval-ignore-output"]
import json
from math import gcd
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ssmlab import RawKernel, check, lab
from ssmlab.devices import DEVICES, KB, REGISTERS, occupancy
from ssmlab.lab import machine

lab.setup()
lab.here()
h200 = json.loads(Path("results/machine_h200.json").read_text())            # measured by ssmlab.lab.machine
measured = machine.measure() if lab.device() == "cuda" else h200
print(f"times in the figures: {measured['device']}, {measured['date']}")

# %% [markdown]
# ## 1. Eight threads by hand
#
# Ask a GPU's memory for one number, a float of 4 bytes, and it hands you **32 bytes**: the number and its seven
# neighbours. It cannot do less. Such a piece is called a **sector**; the first is bytes 0 to 31, the next 32 to 63.
#
# Eight threads want eight floats, thread t the float x[t · s]. With a *stride* s of 1 they want neighbours. With
# pencil and paper:
#
# | stride s | thread 0, 1, 2, …, 7 want the bytes from | in the sectors | moved | used |
# |---|---|---|---|---|
# | 1 | 0, 4, 8, …, 28 | 0 | 32 B | all |
# | 2 | 0, 8, 16, …, 56 | 0, 1 | 64 B | ½ |
# | 8 | 0, 32, 64, …, 224 | 0, 1, 2, 3, 4, 5, 6, 7 | 256 B | ⅛ |
#
# Same program, same eight numbers, up to eight times the traffic. And if x[1] is where thread 0 starts? Then thread 7
# wants bytes 32 to 35, and a second sector is moved for its sake.

# %%
def sectors_of(addresses):
    """The sectors that hold the floats at these byte addresses (multiples of 4, so no float lies in two)."""
    return {address // 32 for address in addresses}


for stride, start, by_hand in (1, 0, [0]), (2, 0, [0, 1]), (8, 0, [0, 1, 2, 3, 4, 5, 6, 7]), (1, 1, [0, 1]):
    wanted = [4 * (start + t * stride) for t in range(8)]
    assert sorted(sectors_of(wanted)) == by_hand

# %% [markdown]
# These four lines of paper are most of what there is to know. The rest of this notebook lets real kernels do it,
# and looks at what it costs.
#
# ## 2. Where a number lives
#
# A GPU is a hundred or so **multiprocessors** (SMs) round a common memory. Each SM has its own *registers*, which
# belong to single threads, and its own *shared memory*, in which the threads of a block meet. All SMs share the *L2
# cache*, and behind it lies the *DRAM*, where your tensors are. (L1, the cache of an SM, is the part of shared memory
# that nobody asked for.)
#
# `ssmlab.devices` knows ten real GPUs. Here is one of them.

# %%
chip = DEVICES["H200"]
clock = chip.boost * 1e6                                    # [1/s]
size = {                                                    # [B], all SMs together
    "registers": chip.sms * REGISTERS * 4,
    "shared memory": chip.sms * chip.generation.shared_per_sm,
    "L2 cache": chip.l2,
}
rate = {                                                    # [B/s]
    "registers": chip.sms * clock * chip.generation.fp32_lanes * 3 * 4,     # a · h + b takes three numbers
    "shared memory": chip.sms * clock * 32 * 4,             # 32 banks of 4 bytes: section 5
    "L2 cache": h200["L2 read [GB/s]"] * 1e9,
    "DRAM": chip.bandwidth,
}
wait = {level: h200["latency [cycles, ns]"][key][1]         # [ns] for one load
        for level, key in (("shared memory", "shared"), ("L2 cache", "L2"), ("DRAM", "DRAM"))}

# %%
colors = [lab.COLORS[key] for key in ("chunk", "shared", "hillis", "global")]
fig, axes = lab.figure(columns=2, height=2.5, sharey=True, gridspec_kw={"width_ratios": [4, 3]})
for ax, numbers, unit in (axes[0], {k: v / 1e12 for k, v in rate.items()}, "TB/s"), (axes[1], wait, "ns"):
    ax.barh([*numbers], [*numbers.values()], color=colors[-len(numbers):])
    ax.set(xscale="log", xlabel=f"{'rate' if unit == 'TB/s' else 'wait for one load'} [{unit}]", xlim=(1, 1800))
    for level, value in numbers.items():
        room = f", holds {size[level] / 1e6:.0f} MB" if ax is axes[0] and level in size else ""
        ax.text(value * 1.1, level, f"{value:.3g} {unit}{room}", va="center", fontsize=9)
axes[0].invert_yaxis()
plt.show()

# %% [markdown]
# Look at how far apart the bars are; the scales are logarithmic. Left: what an H200 can move in a second, between
# each level and the arithmetic. (Registers and shared memory from clock and width, DRAM from the datasheet, L2
# measured.) Right: how long a thread waits for one number, measured. A register does not make it wait.
#
# **Claim 3.1** In the time in which an H200 takes one byte from DRAM, it can take 7 from shared memory and 84 from
# registers. And the fast levels are not the small ones: its registers hold 35 MB, more than its shared memory.
#
# The source speaks of "two or three orders of magnitude" from top to bottom, and of "more than ten times" between
# shared memory and DRAM. By rate it is not quite two, and seven times; by waiting 23 times. Which of the two counts,
# section 6 will tell.

# %%
# check 3.1
assert round(rate["shared memory"] / rate["DRAM"]) == 7
assert round(rate["registers"] / rate["DRAM"]) == 84
assert round(size["registers"] / 1e6) == 35 and size["registers"] > size["shared memory"]
assert 20 <= wait["DRAM"] / wait["shared memory"] <= 26                     # measured
print("3.1 holds")

# %% [markdown]
# So keep a number in a register as long as you can; that is what notebook 06 will do with the state h. But each
# number must come from DRAM once, and each result must go there. That way deserves a close look.
#
# ## 3. A warp asks
#
# A **kernel** is a program for one thread, and very many threads run it. They are launched in **blocks**, and
# `blockIdx.x * blockDim.x + threadIdx.x` numbers them through. Here is a copy. Thread i owns y[i]:

# %%
strided_text = lab.kernel_cell(r'''// strided_copy -- a copy whose threads read `stride` elements apart.
// compile: -DELEMENT=float
// compile: -DELEMENT=float4
extern "C" __global__ void strided_copy(const ELEMENT* x, ELEMENT* y, int n, int stride, int offset) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;            // thread i owns y[i], 0 <= i < n
    if (i < n) {
        y[i] = x[(long long)i * stride + offset];
    }
}
''', mirrors="access_stride.cu")

strided = RawKernel(strided_text, "strided_copy", ("-DELEMENT=float",))

# %% [markdown]
# The hardware runs 32 threads of a block in step, as one **warp**; a thread's place in it, 0 to 31, is its **lane**.
# When the warp comes to the read in line 7, all its lanes ask at once, and this is *one* **request**. Memory looks at
# its 32 addresses and fetches each sector that is among them, once.
#
# `check` runs a kernel on the CPU, on copies of the arrays, and writes all of this down. 64 threads, stride 2:

# %%
x, y = np.arange(4096, dtype=np.float32), np.zeros(64, np.float32)
report = check(strided, 2, 32, (x, y, 64, 2, 0))            # 2 blocks of 32 threads; then the kernel's arguments
assert np.array_equal(report.arrays[1], x[0:128:2])
print(report)

# %% [markdown]
# One row for each access in the text; two warps, so two requests in each. The read moved 16 sectors, 8 a request, and
# the *ideal* column says that the bytes it was for would have fit into 8. The write is as good as can be. (On a GPU the
# profiler Nsight Compute counts the same under the same names. On an H200 it gave our numbers for all kernels here.)
#
# The report also kept the first request, lane by lane. Here are four of them:

# %%
def first_request(*, stride=1, offset=0):
    return check(strided, 1, 32, (x, x.copy(), 32, stride, offset))


fig, axes = lab.figure(rows=4, height=5.1, height_ratios=[1, 2, 2, 8])
for ax, (stride, offset, title) in zip(axes, ((1, 0, "stride 1"), (1, 1, "off by one"), (2, 0, "stride 2"), (8, 0, "stride 8"))):
    lab.access_figure(first_request(stride=stride, offset=offset), 7, access="read", ax=ax, title=title)
plt.show()

# %% [markdown]
# Look at the pale cells: they were moved, and nobody asked for them. Numbers are lanes, and dark bars separate
# sectors. First picture: a warp that reads 32 neighbours fills four sectors to the last byte. Such an access is called
# **coalesced**. Second: the read starts one float late, and a fifth sector is moved for lane 31 alone. Then strides 2
# and 8.
#
# **Claim 3.2** What a request moves is the sectors that its addresses lie in, and nothing else matters. A stride of 1,
# 2, 3, 8, 32 moves 4, 8, 12, 32, 32 of them, a start that is off by one 5. Lanes in reverse order move 4, and if all
# ask for the same float, 1.

# %%
# check 3.2
shapes = {"1": (1, 0), "2": (2, 0), "3": (3, 0), "8": (8, 0), "32": (32, 0), "off by one": (1, 1), "reverse": (-1, 31),
          "same": (0, 5)}
counted = {}
for name, (stride, offset) in shapes.items():
    read = first_request(stride=stride, offset=offset).line(7)[0]
    assert read.requests == 1 and read.access == "read"
    assert read.sectors == len(sectors_of([4 * (offset + lane * stride) for lane in range(32)]))
    counted[name] = read.sectors
assert [*counted.values()] == [4, 8, 12, 32, 32, 5, 4, 1]
print("3.2 holds:", counted)

# %% [markdown]
# ### Sixteen bytes a thread
#
# A thread may also take four floats at once, as a `float4`. The type of an element is an option of the file.
#
# **Claim 3.3** To read 128 floats, 16 bytes a thread move the same 16 sectors as 4 bytes a thread, in one request
# instead of four. 16 sectors are the ideal for its 512 bytes.

# %%
# check 3.3
vector = RawKernel(strided_text, "strided_copy", ("-DELEMENT=float4",))
one, four = (check(kernel, 4, 32, (x, x.copy(), n, 1, 0)).line(7)[0] for kernel, n in ((strided, 128), (vector, 32)))
assert (one.size, one.requests, four.size, four.requests) == (4, 4, 16, 1)
assert one.sectors == four.sectors == four.ideal_sectors == one.ideal_sectors == 16
print("3.3 holds")

# %% [markdown]
# ## 4. Which index is the thread?
#
# Nobody writes a stride of 8 on purpose. It comes from the shape of a tensor. A scan works on many channels, each
# with its own time line, and the simplest kernel gives each channel to a thread, which walks through time:

# %%
walk_text = lab.kernel_cell(r'''// walk -- a thread owns a channel and adds up its steps; strides say how x and y lie.
// compile: -std=c++17
extern "C" __global__ void walk(const float* x, float* y, int channels, int steps,
                                int channel_stride, int step_stride) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;            // channel, 0 <= c < channels
    if (c >= channels) {
        return;
    }
    float sum = 0;
    for (int t = 0; t < steps; t++) {
        const long long at = (long long)c * channel_stride + (long long)t * step_stride;
        sum += x[at];
        y[at] = sum;
    }
}
''', mirrors="access_walk.cu")

walk = RawKernel(walk_text, "walk")

# %% [markdown]
# The two strides say how the tensor lies in memory, so one kernel serves both layouts:
#
# - **(length, channels)**, as a projection layer writes it: channels are neighbours, and a step is a row.
# - **(channels, length)**: time steps are neighbours, and each channel has a row of its own.
#
# 64 channels, 32 steps. In every turn of its loop the warp asks for one step of 32 channels.

# %%
steps, channels = 32, 64
numbers = np.arange(steps * channels, dtype=np.float32)
walks = [check(walk, 2, 32, (numbers, numbers.copy(), channels, steps, *strides)) for strides in ((1, 64), (32, 1))]

fig, axes = lab.figure(rows=2, height=3.1, height_ratios=[1, 6])
for ax, report, layout in zip(axes, walks, ("(length, channels)", "(channels, length)")):
    lab.access_figure(report, 12, access="read", ax=ax, rows=6, title=layout)
plt.show()

# %% [markdown]
# Look at lanes 0 and 1. Above they sit side by side. Below, in the second layout, they are a whole time line apart.
#
# The same trap waits inside a channel. The state h of a Mamba layer has 16 numbers for each channel, **(channels, 16
# states)**, and one thread a channel that loops over them asks for every sixteenth float. The source met this one:
# "access to h was scattered, and only 20 to 30 percent of the bandwidth came out".
#
# **Claim 3.4** One thread a channel: (length, channels) moves 4 sectors a request, (channels, length) 32, eight times
# the ideal. (channels, 16 states) with one thread a channel moves 32; with one thread a *number* 4; with the states
# outermost 4.

# %%
# check 3.4
assert [report.line(12)[0].sectors // report.line(12)[0].requests for report in walks] == [4, 32]
h = np.zeros(64 * 16, np.float32)
ways = {"a thread a channel": check(walk, 2, 32, (h, h.copy(), 64, 16, 16, 1)).line(12)[0],
        "a thread a number": check(strided, 32, 32, (h, h.copy(), 1024, 1, 0)).line(7)[0],
        "states outermost": check(walk, 2, 32, (h, h.copy(), 64, 16, 1, 64)).line(12)[0]}
assert [row.sectors // row.requests for row in ways.values()] == [32, 4, 4]
print("3.4 holds:", {way: row.sectors // row.requests for way, row in ways.items()})

# %% [markdown]
# ### Does the clock agree?
#
# These were counts. On an H200 we let the copy run over 2²⁸ floats with several strides, and the walk over 2²⁶
# numbers in both layouts. If sectors are what costs, then the *moved* bytes should go on at the pace of the memory,
# while the bytes *of use* become few.
#
# One detail the report does not know: at stride 16 and above, the times fit only if this DRAM hands out two sectors,
# 64 bytes, at a time. So each number is charged min(4 s, 64) bytes to read, and 4 to write.

# %%
def moved_of(useful, strides):
    """GB/s that were moved, if 8 bytes are of use for each number: 4 read, 4 written."""
    return useful * (np.minimum(4 * np.array(strides), 64) + 4) / 8


strides = [1, 2, 3, 4, 8, 16, 32]
useful = np.array([measured["copies [useful GB/s]"][f"stride {s}"] for s in strides])
paths = measured["walks [useful GB/s]"]

# %%
fig, (left, right) = lab.figure("", "GB/s", columns=2, height=3.3, width=8.6, gridspec_kw={"width_ratios": [3, 2]})
places = range(len(strides))
left.bar(places, moved_of(useful, strides), color=lab.COLORS["global"], alpha=0.35, label="moved")
left.bar(places, useful, color=lab.COLORS["global"], label="of use")
left.axhline(measured["copy [GB/s]"], color=lab.COLORS["loop"], linestyle=":")
left.set_xticks(places, strides)
left.set(xlabel="stride [floats]", ylim=(0, 5200), title=f"a copy; {measured['device']}, {measured['date']}")
left.legend(loc="upper right", ncols=2)
right.bar([0, 1, 2.5, 3.5], paths.values(), color=[lab.COLORS[c] for c in ("good", "bad", "good", "bad")])
right.set_xticks([0, 1, 2.5, 3.5], ["channels\ninnermost", "time", "channels\ninnermost", "states"], fontsize=8.5)
right.set(title="a thread a channel, of use", xlabel="2048 steps                   16 states", ylim=left.get_ylim())
plt.show()

# %% [markdown]
# Look left at the pale bars: the memory is busy all the way, about as fast as a plain copy of PyTorch (dotted). Only
# the dark part, what you wanted, shrinks. (Stride 1 moves no byte too many, and yet it is not as fast as it could be.
# Keep that in mind until section 6.)
#
# Look right at each pair. With the 16 states innermost 22 % come out of what channels innermost give: the source's "20
# to 30" holds. Sectors alone would have left 1/8, but the next seven numbers of a lane lie in the *same* sector, and
# if the cache still has it, it is not moved again. On the long walk the cache saves most of it, and both bars are low
# for another reason: 32,768 threads that wait for one load at a time are too few for this GPU. Notebook 05 is about
# that.
#
# **Claim 3.5** (measured on an H200) From stride 2 to 32 the bytes that move stay between 3 and 4.5 TB/s, while those
# of use fall more than fivefold. One thread a channel with 16 states innermost gets 20 to 30 % of what it gets with
# channels innermost.

# %%
# check 3.5
stored = np.array([h200["copies [useful GB/s]"][f"stride {s}"] for s in strides[1:]])
moving = moved_of(stored, strides[1:])
assert np.all((3000 <= moving) & (moving <= 4500)) and stored[0] >= 5 * stored[-1]
paths = h200["walks [useful GB/s]"]
assert 0.2 <= paths["16 steps, states innermost"] / paths["16 steps, channels innermost"] <= 0.3
print("3.5 holds")

# %% [markdown]
# ## 5. Banks
#
# Shared memory is fast because it is 32 memories side by side, the **banks**. Word 0 is in bank 0, word 1 in bank 1,
# …, word 31 in bank 31, and word 32 in bank 0 again. In one turn, a **wavefront**, each bank serves one word. So 32
# lanes are served at once if they want words of 32 different banks. If two lanes want *different* words of one bank,
# one of them waits for the next wavefront. (The same word for several lanes is no trouble: it is handed to all.)
#
# By hand: lanes that read 16 words apart want words 0, 16, 32, 48, …, which are the banks 0, 16, 0, 16, … Two banks
# work, sixteen turns long, and thirty banks watch.

# %%
banks_text = lab.kernel_cell(r'''// banks -- the lanes of a warp write and read shared memory `stride` elements apart.
// compile: -DELEMENT=float
// compile: -DELEMENT=float2
// compile: -DELEMENT=float4
extern "C" __global__ void banks(const ELEMENT* x, ELEMENT* y, int stride) {
    __shared__ ELEMENT tile[1056];                                  // 31 * stride must stay below it
    const int lane = threadIdx.x;
    tile[lane * stride] = x[lane];
    __syncwarp();                                                   // all lanes have written before any reads
    y[lane] = tile[lane * stride];
}
''', mirrors="access_banks.cu")

banks = RawKernel(banks_text, "banks", ("-DELEMENT=float",))

# %%
fig, axes = lab.figure(rows=2, height=8.1, height_ratios=[16, 17])
for ax, stride in zip(axes, (16, 17)):
    lab.access_figure(check(banks, 1, 32, (x, y, stride)), 10, access="read", name="tile", ax=ax, title=f"stride {stride}")
plt.show()

# %% [markdown]
# Look at the columns. Above, stride 16: everything in red had to wait. Below there is one empty word after every 16,
# so that lanes read 17 apart: each column holds one word. The padding costs one word in 17 and saves fifteen of
# sixteen wavefronts. (`__syncwarp()` in line 9 is a barrier for one warp: all lanes have written before any of them reads.)
#
# The source meets this with a state array of 16 columns and says: pad to 17, "make the stride a prime". The cure is
# right and the reason is not. Two lanes l and m meet in a bank if (l − m) · s is a multiple of 32, so what counts is
# the common divisor of s and 32:
#
# **Claim 3.6** A stride of s words takes gcd(s, 32) wavefronts. *Every* odd stride is free of conflicts, 9 and 15 too;
# the prime 2 is not.

# %%
# check 3.6
def wavefronts(kernel, stride):
    (row,) = [row for row in check(kernel, 1, 32, (x, x.copy(), stride)).lines
              if (row.space, row.access) == ("shared", "read")]
    return row.wavefronts


turns = {stride: wavefronts(banks, stride) for stride in range(1, 35)}
assert all(count == gcd(stride, 32) for stride, count in turns.items())
assert (turns[16], turns[17], turns[9], turns[15], turns[2]) == (16, 1, 1, 1, 2)
print("3.6 holds")

# %%
fig, ax = lab.figure("stride [words]", "wavefronts a read", height=2.6)
ax.bar([*turns], [*turns.values()], color=[lab.COLORS["good" if count == 1 else "bad"] for count in turns.values()])
for stride, ns in measured["shared read of a warp [ns]"].items():
    ax.plot(int(stride), ns / measured["shared read of a warp [ns]"]["1"], "o", color=lab.COLORS["ink"])
ax.set(xticks=[1, 2, 4, 8, 12, 16, 17, 20, 24, 28, 32, 33], xlim=(0.3, 34.7))
plt.show()

# %% [markdown]
# Look at the green floor: every second stride is free. The dots are times on the GPU, as multiples of stride 1: a
# little below the bars, because at stride 1 other work is the bottleneck.
#
# ### Wider reads
#
# 32 lanes that take 8 bytes each want 64 words, and two wavefronts are the least that can do it. The lanes come in two
# halves. With 16 bytes they come in four quarters, 8 lanes each. Inside its half or quarter, the same rule holds.
#
# **Claim 3.7** Neighbouring `float2` take 2 wavefronts, neighbouring `float4` take 4, without conflict. Every second
# one doubles that, every third does not: again any odd stride is free, counted in *elements*.

# %%
# check 3.7
wide = {element: [wavefronts(RawKernel(banks_text, "banks", (f"-DELEMENT={element}",)), s) for s in (1, 2, 3)]
        for element in ("float", "float2", "float4")}
assert wide == {"float": [1, 2, 1], "float2": [2, 4, 2], "float4": [4, 8, 4]}
print("3.7 holds:", wide)

# %% [markdown]
# ## 6. How many blocks fit?
#
# A warp that waits for DRAM waits some 660 clock ticks. The SM hides that by working on another warp meanwhile, so it
# wants many of them **resident**. Each one takes its share of registers, each block its share of shared memory, and
# what an SM can hold is fixed. The warps that fit, over the most that an SM could hold, are called **occupancy**.
#
# The source reckons for a block of 256 threads that scans a chunk: four arrays of CHUNK floats, so 8 KB at CHUNK = 512,
# and 12 KB with a state array. On a GPU with 48 KB of shared memory 4 blocks fit; they have 1024 threads, and if an SM
# can have 2048, that is an occupancy of 50 %. At CHUNK = 2048 only one block fits.
#
# 48 KB an SM was true of GPUs of 2010 to 2013. How is it today?

# %%
def resident(device, kilobytes):
    """How much of a kernel with blocks of 256 threads and so much shared memory is resident on one SM."""
    return occupancy(device, 256, kilobytes * KB, registers=24)


budgets = [4, 8, 12, 16, 32, 64, 128]                       # [KB] a block; 16 B a step: CHUNK = 64 · KB
fits = [[resident(device, kilobytes) for kilobytes in budgets] for device in DEVICES.values()]

fig, ax = lab.figure("shared memory of a block [KB]", height=3.6, width=6.4)
ax.imshow([[fit.share for fit in row] for row in fits], cmap="YlGn", vmin=0, vmax=1.4, aspect="auto")
for (row, column), fit in np.ndenumerate(np.array(fits)):
    ax.text(column, row, fit.blocks, ha="center", va="center", color=lab.COLORS["ink" if fit.blocks else "bad"])
ax.set_xticks(range(len(budgets)), budgets)
ax.set_yticks(range(len(DEVICES)), [f"{name}  {device.sm}" for name, device in DEVICES.items()])
ax.set(title="blocks of 256 threads that are resident on one SM")
ax.grid(False)
plt.show()

# %% [markdown]
# Look along a row: the numbers are blocks, the green is occupancy. Take the column of 12 KB. The arithmetic of the
# source is sound, and the answer has moved: 4 blocks are right only for a T4, and there they are not half but *all* of
# what it can hold. Everywhere threads run out before shared memory does. With 32 KB, a chunk of 2048, "only one block"
# has become 2 to 6.
#
# **Claim 3.8** 16 bytes a step are 8 KB at 512 and 32 KB at 2048, and 12 KB go 4 times into 48: the source's
# arithmetic holds. On real devices 12 KB a block allows 4 (T4) to 8 (A100, H100, H200, B200) blocks, each time as many
# as there can be threads; 32 KB allows 2 (T4), 3 (RTX), 4 (A100), 6 (H200).

# %%
# check 3.8
assert (16 * 512, 16 * 2048, 48 // 12, 4 * 256 / 2048) == (8 * KB, 32 * KB, 4, 0.5)
for device in DEVICES.values():
    fit = resident(device, 12)
    assert fit.share == 1 and fit.limited_by == ("threads",) and 4 <= fit.blocks <= 8
picked = {name: resident(name, 32).blocks for name in ("T4", "RTX 3090", "A100", "H200")}
assert picked == {"T4": 2, "RTX 3090": 3, "A100": 4, "H200": 6}
print("3.8 holds:", picked)

# %% [markdown]
# ### Is more better?
#
# "50 % is enough, below 25 % is not, and more is not always better", says the source. We measured it: the copy of
# section 3, with 1 to 8 blocks resident on each SM. (Shared memory that nobody uses kept the others out.)

# %%
fig, (left, right) = lab.figure("", "GB/s", columns=2, height=3.1, sharey=True)
for element, width, color in ("float", 4, "hillis"), ("float4", 16, "blelloch"):
    held = measured["resident blocks [GB/s]"][element]
    count = np.array([int(k) for k in held])
    left.plot(100 * count / len(count), [*held.values()], "o-", color=lab.COLORS[color], label=f"{width} B a thread")
    right.plot(count * 256 * width / KB, [*held.values()], "o-", color=lab.COLORS[color])
left.set(xlabel="occupancy [%]", ylim=(0, None), title=f"{measured['device']}, {measured['date']}")
right.set(xlabel="bytes on the way to each SM [KB]", xscale="log")
right.set_xticks([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 16, 32])
left.legend()
plt.show()

# %% [markdown]
# Look left: two curves that disagree about occupancy. With 4 bytes a thread, half of it gives little more than half
# the speed, and even all of it is not enough. With 16 bytes a thread, half is nearly all. Look right: plotted over
# the **bytes on the way**, threads times bytes each, they are one curve.
#
# That is why stride 1 was found wanting in section 4, and why nobody can name the right occupancy in per cent. What
# must be on the way is rate times wait: an H200 that takes 4.8 TB/s from a DRAM 335 ns away needs 1.6 MB in the pipe,
# 12 KB for each SM (and more under load, when the wait grows). Warps are one way to get there; wide loads, and several
# loads before the first use, are others.
#
# **Claim 3.9** (measured on an H200) Half of the occupancy with 16 bytes a thread beats all of it with 4. At the same
# bytes on the way, 4 or 8 KB an SM, the two differ by less than 15 %.

# %%
# check 3.9
narrow, broad = (h200["resident blocks [GB/s]"][element] for element in ("float", "float4"))
assert broad["4"] > 1.2 * narrow["8"]
assert abs(narrow["4"] / broad["1"] - 1) < 0.15 and abs(narrow["8"] / broad["2"] - 1) < 0.15     # 4 KB, 8 KB
assert round(chip.bandwidth * wait["DRAM"] * 1e-9 / chip.sms / 1000) == 12           # [KB] rate times wait
print("3.9 holds")

# %% [markdown]
# ## 7. Three roofs
#
# Bytes cost time, and so does arithmetic. The **intensity** of a kernel is its operations for each byte moved. Of its
# two floors, bytes over bandwidth and operations over arithmetic rate, the higher one binds, and they are equal at the
# GPU's **ridge**. (An operation is an addition or a multiplication of float32; a multiply-add is two.)
#
# A scan of pairs: read a and b, write h, 12 bytes. One multiply-add, 2 operations. That is ⅙. The source adds the
# output y = c · h: 4 operations for 16 bytes, ¼, and says: the ridge lies at 10 to 20, so the scan is bound by
# bandwidth, one hundred per cent.
#
# **Claim 3.10** The (a, b) scan is bound by bandwidth on every GPU of the table, by a factor of 38 or more. The ridges
# reach from 10 to 101, not to 20: graphics cards have much arithmetic for their DRAM. And it can be had: two scans
# that you can install reach 95 % or more of a copy's bandwidth on an H200.

# %%
# check 3.10
ridges = {name: round(device.ridge) for name, device in DEVICES.items() if device.ridge}     # B200: no clock published
assert min(ridges.values()) == 10 and max(ridges.values()) == 101
assert all(device.ridge > 38 * 0.25 for device in DEVICES.values() if device.ridge)
peers = json.loads(Path("results/peers_h200.json").read_text())              # NVIDIA H200, 2026-11-29
long_rows = [row for row in peers["rows"] if row["shape"] in [f"B8 D1536 L{n} float32" for n in (8192, 32768, 65536)]]
assert len(long_rows) == 6 and all(row["gbps"] >= 0.95 * peers["copy [GB/s]"] for row in long_rows)
print("3.10 holds; operations a byte at the ridge:")
print(*(f"{name:>9}" for name in ridges), "\n", *(f"{ridge:9}" for ridge in ridges.values()), sep="")

# %% [markdown]
# But that was the scan alone. The kernel of Mamba is **fused**: it reads the inputs u, Δ and z, makes a and b itself,
# keeps h in registers, and writes only y. For each step of a channel these are four numbers, 16 bytes (8 in
# bfloat16). What does it compute? For each of the 16 states:
#
# | | operations | exponentials |
# |---|---|---|
# | a = exp(Δ · A) | 1 | 1 |
# | b = (Δ · u) · B | 1 | |
# | h = a · h + b | 2 | |
# | y = y + C · h | 2 | |
#
# 16 · 6 operations for 16 bytes: an intensity of 6, twenty-four times that of the source's scan, and still below the
# ridge. So bandwidth binds?
#
# The table has a third column. Exponentials are not made by the multiply-add units. An SM has 16 *special function
# units*, which make **16 exponentials a clock**, against 64 or 128 multiply-adds. And every instruction must be
# started: an SM starts 4 warps' worth a clock. Four floors, then, for one step of one channel:

# %%
def floors(device, states, bytes_a_number):
    """[ps] that a step of one channel takes at least, if nothing but this costs; B and C are shared by all channels."""
    starts = device.sms * device.boost * 1e6 * 4 * 32                        # [1/s] instructions of single threads
    return {"bytes": 4 * bytes_a_number / device.bandwidth * 1e12,
            "multiply-adds": 6 * states / device.flops * 1e12,
            "exponentials": states / device.exponentials * 1e12,
            "instructions": 5 * states / starts * 1e12}                      # exp, two products, two multiply-adds


print("16 states: picoseconds     bytes  multiply-adds  exponentials  instructions")
for name, size_a_number, kind in ("H200", 4, "float32"), ("H200", 2, "bfloat16"), ("T4", 4, "float32"):
    print(f"{name:5} {kind:9}", *(f"{ps:14.1f}" for ps in floors(DEVICES[name], 16, size_a_number).values()))

# %% [markdown]
# **Claim 3.11** With 16 states the highest floor on an H200 is the exponentials, in float32 (from 14 states on) and in
# bfloat16 (from 7). On an A100 and an H100 it is bytes in float32 and exponentials in bfloat16. On a T4 and on the
# graphics cards it is bytes in both.
#
# So "one hundred per cent bound by bandwidth" is corrected: true of the (a, b) scan, true of the fused one on some
# GPUs, and false, in bfloat16, on those that models are usually trained on.

# %%
# check 3.11
def binds(name, bytes_a_number, states=16):
    found = floors(DEVICES[name], states, bytes_a_number)
    return max(found, key=found.get)


timed = [name for name, device in DEVICES.items() if device.boost]
assert {name for name in timed if binds(name, 4) == "exponentials"} == {"H200"}
assert {name for name in timed if binds(name, 2) == "exponentials"} == {"A100", "H100", "H200"}
assert all(binds(name, size) in ("bytes", "exponentials") for name in timed for size in (2, 4))
for size, first in (4, 14), (2, 7):
    assert (binds("H200", size, first - 1), binds("H200", size, first)) == ("bytes", "exponentials")
print("3.11 holds")

# %% [markdown]
# What was measured? The best known fused kernel is that of mamba_ssm.
#
# **Claim 3.12** (measured on an H200) Its forward pass, with 16 states and at least 1536 channels, moves 8 to 12 % of a
# copy's bandwidth and makes less than a quarter of the exponentials that the units could.

# %%
# check 3.12
def exponentials(row):
    """[1/s] of a measured row: one for each state of each step of each channel."""
    batch, width, length, states = (int(part[1:]) for part in row["shape"].split()[:4])
    return batch * width * length * states / row["ms"] * 1e3


fused = [row for row in peers["rows"] if row["what"] == "mamba selective_scan fwd" and " N16 " in row["shape"]
         and " D64 " not in row["shape"]]
assert len(fused) == 13 and all(0.08 <= row["gbps"] / peers["copy [GB/s]"] <= 0.12 for row in fused)
assert all(exponentials(row) < chip.exponentials / 4 for row in fused)
print("3.12 holds")

# %%
speed = {row["shape"]: exponentials(row) / 1e12 for row in [*fused, peers["experiment"]]}
single, half, trial = (speed[f"{shape} z1"] for shape in ("B16 D1536 L2048 N16 float32", "B16 D1536 L2048 N16 bfloat16",
                                                          "B64 D1536 L512 N16 float32"))
pairs = max(row["gbps"] for row in long_rows) / 1e3 / 6             # a step: 12 bytes, 2 operations
points = {"arithmetic": [(1 / 6, pairs, "o"), (6, 6 * single, "s"), (12, 6 * half, "s"), (6, 6 * trial, "*")],
          "exponentials": [(1, single, "s"), (2, half, "s"), (1, trial, "*")]}

# %%
fig, axes = lab.figure(columns=2, height=3.6)
for name, color, style in ("H200", "hillis", "-"), ("T4", "soft", "--"):
    reach = np.logspace(-1, 2.2, 200)
    for ax, top in zip(axes, (DEVICES[name].flops, DEVICES[name].exponentials)):
        roof = np.minimum(reach * DEVICES[name].bandwidth, top) / 1e12
        ax.loglog(reach, roof, style, color=lab.COLORS[color], label=name)
for ax, (title, marks) in zip(axes, points.items()):
    for at, height, mark in marks:
        ax.plot(at, height, mark, color=lab.COLORS["bad" if mark == "s" else "good"], markersize=8 + 4 * (mark == "*"))
    ax.set(title=title, xlabel=f"{'operations' if ax is axes[0] else title} for each byte", ylabel="10¹² a second")
axes[0].text(0.21, 0.5, "(a, b) scan")
axes[0].text(16, 1.6, "mamba_ssm,\nfused")
axes[1].text(2.6, 0.5, "mamba_ssm,\nfused")
axes[1].text(1.35, 2.15, "a trial of ours")
axes[1].set(xlim=(0.1, 20))
axes[0].legend()
plt.show()

# %% [markdown]
# Look left first: lines are roofs, and no kernel can be above its GPU's. The (a, b) scan (green dot) touches the slope:
# it is done. The fused kernel (red squares: float32, and bfloat16 to the right of it) hangs far below both parts of
# the roof, and the left picture cannot say why. Look right: here the flat part is within reach, and from 1
# exponential a byte on it is *the* roof. The star is a quick trial that keeps its states in registers: ncu found its
# exponential units 68 % busy, and 53 % of the slots for instructions taken.
#
# The squares are far below this roof too. A floor says what is impossible, not what will happen; notebooks 06 and 13
# close the gap.

# %% [markdown]
# ## 8. Break it
#
# One edit. Number the threads across the blocks instead of along them:
#
#     threadIdx.x * gridDim.x + blockIdx.x
#
# Still each number is copied by exactly one thread. What do you expect: wrong values, a finding, or nothing?

# %%
across = strided_text.replace("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x * gridDim.x + blockIdx.x")
across = RawKernel(across, "strided_copy", ("-DELEMENT=float",))
broken = check(across, 32, 32, (x, np.zeros(1024, np.float32), 1024, 1, 0))
assert broken.ok and np.array_equal(broken.arrays[1], x[:1024])
print(broken)

# %% [markdown]
# The values are right, nothing is found, and every test that looks at values will pass for years. Only the sectors
# tell: 1024 where 128 would do, for the read *and* the write. If a kernel is slow, look there first.
#
# Break one yourself: in the walk of section 4, let rows be one float longer (`step_stride` 65 for 64 channels, and a
# larger array). Which steps move five sectors now? It is a good habit to make the innermost size a multiple of 8.
#
# ## Exercises
#
# The first two start as the unchanged file: edit the text. The cell below each says "passed" or explains what went
# wrong.
#
# ### Exercise 3.A: a run for each thread
#
# "Let every thread do RUN numbers in a row": right on a CPU, and the commonest mistake on a GPU. Make reads and writes
# coalesced. Launch, block size and RUN stay as they are (128 threads a block, RUN = 4), and n may be anything.
#
# *Budget:* for 4096 numbers 512 sectors read, 512 written.
#
# <details><summary>Hint</summary>In one turn of the loop, which numbers should the 128 threads of a block take, so that
# neighbours take neighbours? Where does the block start, if it owns 128 · RUN numbers?</details>

# %% tags=["exercise", "nbval-ignore-output"]
my_copy = lab.kernel_cell(r'''// doubled -- y = 2 x; each thread takes a run of RUN numbers. Exercise 3.A starts here.
// compile: -DRUN=4
extern "C" __global__ void doubled(const float* x, float* y, int n) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < RUN; k++) {
        const int i = thread * RUN + k;
        if (i < n) {
            y[i] = 2 * x[i];
        }
    }
}
''', mirrors="access_runs.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("3.A", my_copy)

# %% [markdown]
# ### Exercise 3.B: rows in, columns out
#
# A transpose goes through shared memory so that both its reads and its writes are coalesced. The price is a read of
# the tile down a column: 32 wavefronts. Make it 1.
#
# *Budget:* 4224 bytes of shared memory, not a sector more than before.
#
# <details><summary>Hint</summary>How many words lie between tile[0][0] and tile[1][0]? Claim 3.6 says what that number
# must be.</details>

# %% tags=["exercise", "nbval-ignore-output"]
my_transpose = lab.kernel_cell(r'''// transpose -- y = x transposed, one tile of 32 x 32 a block. Start of exercise 3.B.
// compile: -std=c++17
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][32];                                  // tile[row][column] of x
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;      // the tile's corner in x
    const int lane = threadIdx.x;                                   // 32 lanes, 8 warps: each warp takes every 8th line
    for (int line = threadIdx.y; line < 32; line += 8) {
        if (row + line < rows && column + lane < columns) {
            tile[line][lane] = x[(row + line) * columns + column + lane];
        }
    }
    __syncthreads();                                                // the tile is complete before it is read crosswise
    for (int line = threadIdx.y; line < 32; line += 8) {
        if (column + line < columns && row + lane < rows) {
            y[(column + line) * rows + row + lane] = tile[lane][line];
        }
    }
}
''', mirrors="access_transpose.cu")

# %% tags=["nbval-ignore-output"]
lab.exercises.check("3.B", my_transpose)

# %% [markdown]
# ### Exercise 3.C: the largest chunk
#
# A block needs 16 bytes of shared memory a step (and 24 registers a thread). Give back the largest power of two that
# keeps `blocks` blocks resident on an SM of `device`, or 0 if even one step is too much.
#
# <details><summary>Hint</summary>Let <code>occupancy(device, threads, shared_bytes, registers)</code> judge, and try
# 1, 2, 4, … A division of 100 KB by 6 forgets what the driver takes.</details>

# %% tags=["exercise"]
def my_chunk(device, blocks, threads):
    raise NotImplementedError   # YOUR CODE, about 4 lines

# %% tags=["nbval-ignore-output"]
lab.exercises.check("3.C", my_chunk)

# %% [markdown]
# ## What we now know
#
# - 3.1 An H200's DRAM gives 1 byte while shared memory gives 7 and registers take 84; registers are the larger of the
#   two. *Source: roughly.*
# - 3.2 Memory moves sectors of 32 bytes. Strides and misaligned starts move more of them.
# - 3.3 16 bytes a thread: the same sectors, a quarter of the requests.
# - 3.4 One thread a channel wants channels innermost; otherwise it moves 8 times the sectors.
# - 3.5 The clock agrees. *Source: 20 to 30 % of the bandwidth holds*: 22 %, unless a cache comes to the rescue.
# - 3.6, 3.7 gcd(stride, 32) wavefronts; any odd stride is free. *Source, corrected*: not "a prime".
# - 3.8 *Source: the arithmetic holds; the devices have changed*: 12 KB a block is no limit any more.
# - 3.9 Bytes on the way hide the wait; occupancy is one means to have them.
# - 3.10 to 3.12 The (a, b) scan is bound by bandwidth everywhere. *Source, corrected* for the fused scan: on an H200
#   exponentials bind first, and the best known kernel is far from either roof.
#
# *Still untrue or slow.* Sectors and wavefronts are counts, not times: the report does not know caches, 64-byte DRAM,
# or how long anything waits. One thread a channel had too little to do. And no kernel here has scanned anything yet.
#
# *Next:* [04 · How does one block scan?](04_block_scan.ipynb)
#
# *Sources.* NVIDIA: CUDA C++ Programming Guide (compute capabilities, arithmetic throughput), Nsight Compute
# documentation (requests, sectors, wavefronts), cuda_occupancy.h, datasheets (listed in `ssmlab/devices.py`). S.
# Williams, A. Waterman, D. Patterson: Roofline, 2009. V. Volkov: Better performance at lower occupancy, GTC 2010 (bytes
# on the way). J. D. C. Little: A proof for the queuing formula L = λW, 1961. Measured on an NVIDIA H200 on 2026-11-29:
# `results/machine_h200.json`, `peers_h200.json`, `ncu_access_h200.json`.
