"""Exercises of notebook 08: a kernel that divides by a product, a state that sticks, a tolerance."""

import re

import numpy as np

from ssmlab import reference
from ssmlab.lab.exercises import WrongAnswer, exercise

# 8.A: a kernel that divides -------------------------------------------------------------------------------------

DIVIDES = r"""
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
"""
UNTOUCHED = np.float32(-987654321)


@exercise("8.A")
def _divides(code):
    """Mild decays, strong ones, brutal ones, and a decay of 0: the right states in float32."""
    from ssmlab import RawKernel, check

    if code.strip() == DIVIDES.strip():
        raise NotImplementedError
    if not re.search(r"\bdecayed_sums\s*\(", code):
        raise WrongAnswer("The text has no kernel decayed_sums any more. Keep its name: the check launches it.")
    if re.search(r"\bdouble\b", code):
        raise WrongAnswer("The budget is float32: double only moves the wall, from exp(-88) to exp(-709).")
    kernel = RawKernel(code, "decayed_sums")
    rng = np.random.default_rng(8)
    for what, exponent in (("mild decays", -0.05), ("exp(-1) at each step", -1.0), ("brutal decays", -30.0),
                           ("a decay of 0 at step 20", -0.5)):
        a = np.full((3, 200), np.exp(np.float32(exponent)))
        if "0 at" in what:
            a[:, 20] = 0
        b = rng.uniform(0, 1, a.shape).astype(np.float32)
        report = check(kernel, (1,), (32,), (a, b, np.full_like(b, UNTOUCHED), 3, 200))
        if report.findings:
            raise WrongAnswer(f"The checked mode has found something.\n{report.findings[0]}")
        _compare_states(what, report.arrays[2], reference.scan(a, b)[0])


def _compare_states(what, h, want):
    wrong = np.argwhere(~(np.abs(h - want) <= 1e-5 * np.max(np.abs(want))))
    if not len(wrong):
        return
    row, step = map(int, wrong[0])
    got = h[row, step]
    told = f"Rows of 200 steps, {what}. The first wrong state is that of step {step}: it must be {want[row, step]:.6g}"
    if got == UNTOUCHED:
        raise WrongAnswer(f"{told}, and nothing was written there.")
    if not np.isfinite(got):
        raise WrongAnswer(f"{told}, yours is {got}. What do you divide by there, and how large is it? Decays multiply "
                          "to less than any float holds, and 0 is a decay, too: nothing that divides by them is safe.")
    raise WrongAnswer(f"{told}, yours is {got:.6g}. It is a number at least, but not h[t] = a[t] * h[t-1] + b[t].")


# 8.B: a state that does not stick -------------------------------------------------------------------------------

COPIES = 20000


@exercise("8.B")
def _store(my_store):
    """bfloat16 numbers, neighbours of what was given, right on average; exact ones unchanged."""
    for value in (0.25075, 0.3, -0.3, 1.0, -0.75, 3.1415927, 1e-3, 0.0):
        h = np.full(COPIES, value, np.float32)
        stored = np.asarray(my_store(h.copy(), np.random.default_rng(8)))
        if stored.shape != h.shape or stored.dtype != np.float32:
            raise WrongAnswer(f"my_store was given float32{list(h.shape)} and gave back {stored.dtype}"
                              f"{list(stored.shape)}: it must be float32 of the same shape.")
        below, above = _neighbours(np.float32(value))
        if np.any(stored.view(np.uint32) & np.uint32(0xFFFF)):
            raise WrongAnswer(f"{value} came back as {stored[0]:.8g}, which is no bfloat16 number: the lower 16 bits "
                              "of a float32 must be 0 (`view(np.uint32)` shows them).")
        strays = stored[(stored != below) & (stored != above)]
        if len(strays):
            exact = "is a bfloat16 number and must stay as it is"
            where = exact if below == above else f"lies between the bfloat16 numbers {below} and {above}"
            raise WrongAnswer(f"{value} {where}, and it came back as {strays[0]}.")
        _right_on_average(value, below, above, stored)
    state = np.zeros(COPIES // 10, np.float32)
    rng = np.random.default_rng(9)
    for _ in range(1000):
        state = my_store(np.float32(0.999) * state + np.float32(0.001), rng)
    if not abs(state.mean() - (1 - 0.999**1000)) < 0.005:
        raise WrongAnswer(f"After 1000 steps of h = 0.999 h + 0.001 the states are {state.mean():.3f} on average; it "
                          "should be 0.632.")


def _neighbours(value):
    """The bfloat16 numbers below and above (in size), equal if `value` is one."""
    bits = value.view(np.uint32)
    down = bits & np.uint32(0xFFFF0000)
    up = down if down == bits else down + np.uint32(0x10000)
    return down.view(np.float32), up.view(np.float32)


def _right_on_average(value, below, above, stored):
    if below == above:
        return
    share = float(np.mean(stored == above))
    wanted = (abs(value) - abs(float(below))) / (abs(float(above)) - abs(float(below)))
    if abs(share - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / COPIES) + 1 / COPIES:
        return
    told = (f"{value} lies {wanted:.0%} of the way from {below} to {above}, so that often the upper one must come out. "
            f"Yours did in {share:.0%} of {COPIES} tries. ")
    if share in (0.0, 1.0):
        told += "Always the same choice: then small steps are lost always, or doubled always. Where is the dice?"
    elif abs(share - 0.5) < 0.02:
        told += "A fair coin does not know how near the neighbours are."
    else:
        told += "How large must a random number be, to carry into the 17th bit just that often?"
    raise WrongAnswer(told)


# 8.C: a tolerance -----------------------------------------------------------------------------------------------


@exercise("8.C")
def _tolerance(my_tolerance):
    """Right results pass: loops and trees, with one decay. Wrong ones fail: a float16 decay, float32 for float64."""
    for memory, length in ((2, 16384), (50, 4096), (1000, 4096), (8000, 16384)):
        a, b = _rows(memory, length)
        want, _ = reference.scan(a, b, dim=0)
        largest = np.max(want)
        single = _loop(a.astype(np.float32), b)
        for what, unit, error in (
            ("a loop in float32", 2.0**-24, np.abs(single - _exact(a, b))),
            ("a tree in float32", 2.0**-24, np.abs(_tree(a.astype(np.float32), b) - _exact(a, b))),
            ("a tree in float64", 2.0**-53, np.abs(_tree(a, b.astype(np.float64)) - want)),
        ):
            _judge(my_tolerance, memory, length, unit, float(np.max(error) / largest), what, right=True)
        halves = np.abs(_loop(a.astype(np.float16).astype(np.float32), b) - _exact(a, b))
        stale = np.abs(single - want)
        for what, unit, error in (
            ("a loop in float32 whose decays went through float16", 2.0**-24, halves),
            ("a loop in float32, tested as float64", 2.0**-53, stale),
        ):
            _judge(my_tolerance, memory, length, unit, float(np.max(error) / largest), what, right=False)


def _rows(memory, length):
    """One decay for all steps, a / (1 - a) about `memory`, in float64 digits; inputs between 0 and 1."""
    rng = np.random.default_rng(memory)
    a = np.tile(1 - rng.uniform(0.9, 1.1, 8) / (memory + 1), (length, 1))
    return a, rng.uniform(0, 1, (length, 8)).astype(np.float32)


def _exact(a, b):
    """The right states for the decays that float32 has."""
    return reference.scan(a.astype(np.float32), b, dim=0)[0]


def _loop(a, b):
    h, state = np.empty_like(b), np.zeros_like(b[0])
    for t in range(len(b)):
        state = a[t] * state + b[t]
        h[t] = state
    return h


def _tree(a, b):
    from ssmlab.monoid import AFFINE, hillis_steele

    return hillis_steele(AFFINE, (a, b)).values[1]


def _judge(my_tolerance, memory, length, unit, error, what, *, right):
    allowed = my_tolerance(memory, length, unit)
    try:
        allowed = float(allowed)
    except (TypeError, ValueError):
        raise WrongAnswer(f"my_tolerance({memory}, {length}, {unit:.3g}) gave {allowed!r:.40}: no number.") from None
    case = f"Memory {memory}, {length} steps, {what}: off by {error:.1e}, and you allow {allowed:.1e}."
    if right and not error <= allowed:
        hint = ("A constant decay in a tree squares one and the same rounding: it grows like the memory, not like its "
                "square root." if "tree" in what else "Each step that a state remembers may round twice.")
        raise WrongAnswer(f"{case} That is a right result, and your test would be red. {hint}")
    if not right and not error > allowed:
        hint = ("The unit roundoff of float64 is 2**-53: does yours depend on u?" if "float64" in what else
                "What is older than the memory has faded, and so have its roundings: the length alone says too much.")
        raise WrongAnswer(f"{case} That is a wrong result, and your test would be green. {hint}")
