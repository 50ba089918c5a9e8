"""Exercises of notebook 06: the exact hold, a kernel that goes on from a state, B and C read once a block."""

import re

import numpy as np

from ssmlab import reference
from ssmlab.lab.exercises import WrongAnswer, exercise

TOLERANCE = 1e-5  # of float32 kernels, relative to the largest |y|
LN2 = float(np.log(2))


# 6.A: the exact hold ----------------------------------------------------------------------------------------------


def _held(u, delta, A, B, C, *, gain=None, before=False):
    """y of one channel; gain(x) is b / (delta B), the exact one unless another is given."""
    gain = gain or _exact_gain
    h, y = np.zeros(len(A)), []
    for t in range(len(u)):
        if before:
            y.append(C[t] @ h)
        x = delta[t] * A
        h = np.exp(x) * h + gain(x) * delta[t] * B[t] * u[t]
        if not before:
            y.append(C[t] @ h)
    return np.array(y)


def _exact_gain(x):
    """(exp(x) - 1) / x, which is 1 at 0."""
    return np.where(x == 0, 1.0, np.expm1(x) / np.where(x == 0, 1.0, x))


def _hold_problems():
    """(what it is, u, delta, A, B, C, tolerance)"""
    rng = np.random.default_rng(6)
    one = np.ones((4, 1))
    u, delta = np.array([4.0, 4, 0, 8]), np.array([1.0, 2, 1, 0])
    yield "The bucket of section 1", u, delta, np.array([-LN2]), LN2 * one, one, 1e-12
    length, states = 12, 5
    u, delta = rng.normal(size=length), rng.uniform(0, 2, length)
    B, C = rng.normal(size=(2, length, states))
    yield "12 steps of 5 states", u, delta, -np.exp(rng.normal(size=states)), B, C, 1e-12
    B, C = B[:, :2], C[:, :2]
    yield "A state that does not leak, A = 0, beside one that does", u, delta, np.array([0.0, -1.0]), B, C, 1e-12
    yield "Two states that leak very slowly, A = -1e-9 and -3e-10", u, delta, np.array([-1e-9, -3e-10]), B, C, 1e-10


@exercise("6.A")
def _exact_hold(my_scan):
    """The by-hand numbers, random ones, a state without a leak, and leaks so slow that a subtraction loses digits."""
    for story, u, delta, A, B, C, tolerance in _hold_problems():
        want = _held(u, delta, A, B, C)
        with np.errstate(all="ignore"):
            got = my_scan(*(np.array(value) for value in (u, delta, A, B, C)))
        if got is None:
            raise WrongAnswer("my_scan gave back None: is a `return` missing?")
        got = np.asarray(got, float)
        if got.shape != want.shape:
            raise WrongAnswer(f"{story}: y must have shape {want.shape}, one number a step; yours has {got.shape}.")
        wrong = np.flatnonzero(~(np.abs(got - want) <= tolerance * np.max(np.abs(want))))
        if len(wrong):
            t = int(wrong[0])
            raise WrongAnswer(f"{story}: y[{t}] must be {want[t]:.10g}, yours is {got[t]:.10g}. "
                              + _slip_in_hold(got, u, delta, A, B, C))


def _slip_in_hold(got, u, delta, A, B, C):
    def equals(**options):
        with np.errstate(all="ignore"):
            other = _held(u, delta, A, B, C, **options)
        return np.allclose(got, other, rtol=1e-9, atol=1e-12)

    if not np.all(np.isfinite(got)):
        return "Is there a division by A, where A is 0? Without a leak the bucket just fills: b = delta B."
    if equals(gain=lambda x: np.ones_like(x)):
        return "That is b = delta B, Mamba's shorter form. Here the input is held over the step while the state leaks."
    if equals(before=True):
        return "Each y is the state before its step; the step's own input belongs to it."
    if equals(gain=lambda x: A * _exact_gain(x)):
        return "Is the division by A missing? A held input alone must bring the state to -B u / A in the end."
    if equals(gain=lambda x: -_exact_gain(x)):
        return "The input comes in with the wrong sign: exp(delta A) - 1 and A are both negative here."
    if np.max(np.abs(A)) < 1e-6:
        return "exp(x) - 1 loses nearly all its digits where x is tiny. NumPy has a function for just this."
    return "For each state: a = exp(delta A), b = (a - 1) / A * B, then h = a h + b u, then y = C . h."


# ---- what the kernel exercises share


def _launch(text, values, extra=(), threads=64, story=""):
    """The report of selective_v2 in checked mode with `extra` arguments behind its own; explains what cannot run."""
    from ssmlab import RawKernel, check
    from ssmlab.lab.selective_ladder import ORDER

    if not re.search(r"\bselective_v2\s*\(", text):
        raise WrongAnswer("The text has no kernel selective_v2 any more. Keep its name: the check launches it.")
    u, states = values["u"], values["A"].shape[1]
    batch, length, channels = u.shape
    kernel = RawKernel(text, "selective_v2", (f"-DTHREADS={threads}", f"-DSTATES={states}"))
    arguments = (*(values[name] for name in ORDER), np.full_like(u, np.nan), batch, length, channels, *extra)
    report = check(kernel, -(-batch * channels // threads), threads, arguments)
    if report.findings:
        raise WrongAnswer(f"{story}The checked mode has found something.\n{report.findings[0]}")
    return report


def _wanted(values, state=None):
    from ssmlab.lab.selective_ladder import ORDER

    return reference.selective_scan(*(values[name] for name in ORDER), delta_softplus=True, initial_state=state)


def _compare(got, want, story, name, explain):
    """Raise with the first wrong number, in the order of the array's axes, and what `explain(place)` says of it."""
    wrong = np.argwhere(~(np.abs(got - want) <= TOLERANCE * np.max(np.abs(want), initial=0)))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        place = f"{name}[{', '.join(map(str, at))}]"
        have = "nobody wrote it" if np.isnan(got[at]) else f"yours is {got[at]:.6g}"
        raise WrongAnswer(f"{story}{place} must be {want[at]:.6g}, {have}. {explain(at)}")


def _cut(values, begin, end):
    return {name: value[:, begin:end].copy() if value.ndim == 3 else value for name, value in values.items()}


def _asked(report, *names, access):
    """[B] that single threads read or wrote of these arrays."""
    return sum(row.threads * row.size for row in report.lines
               if row.space == "global" and row.access == access and set(row.name.split(", ")) <= set(names))


# 6.B: go on from a state ------------------------------------------------------------------------------------------


@exercise("6.B", starts_from="selective_v2_fused.cu")
def _with_state(my_kernel):
    """From a given state, then in two pieces cut at every place, then the bytes of the state."""
    from ssmlab.lab.selective_ladder import problem

    if not re.search(r"\bfloat\s*\*\s*(__restrict__\s+)?state\b", my_kernel):
        raise WrongAnswer("The check launches the kernel with one argument more, behind channels: `float* state`.")
    batch, length, channels, states = 2, 7, 40, 4
    values = problem(batch, length, channels, states)
    given = np.random.default_rng(6).standard_normal((batch, channels, states)).astype(np.float32)
    story = f"{batch} rows of {channels} channels, {length} steps, {states} states, from a given state: "
    report = _launch(my_kernel, values, (given,), story=story)
    want, final = _wanted(values, given)
    _compare(report.arrays[8], want, story, "y", lambda at: _slip_in_state(report.arrays[8], values, at))
    same = np.array_equal(report.arrays[12], given)
    told = f"The state after the last step belongs there: {'it holds what was given.' if same else 'who writes it?'}"
    _compare(report.arrays[12], final, story, "state", lambda at: told)
    for cut in range(length + 1):
        state, pieces = np.zeros_like(given), []
        for begin, end in ((0, cut), (cut, length)):
            piece = _launch(my_kernel, _cut(values, begin, end), (state,), story=f"Steps {begin} to {end}: ")
            pieces.append(piece.arrays[8])
            state = np.array(piece.arrays[12])
        whole, last = _wanted(values)
        story = f"{length} steps from zero, cut before step {cut}: "
        _compare(np.concatenate(pieces, axis=1), whole, story, "y", lambda at: "Uncut it was right.")
        _compare(state, last, story, "state", lambda at: "A piece of no steps must hand the state through.")
    for access, done in (("read", "read"), ("write", "written")):
        asked = _asked(report, "state", access=access)
        if asked != 4 * given.size:
            raise WrongAnswer(f"Right numbers, but {asked} B of the state are {done} in {length} steps, and it has "
                              f"only {4 * given.size}. Between its two ends the state should stay in registers.")


def _slip_in_state(got, values, at):
    from_zero, _ = _wanted(values)
    if np.allclose(got, from_zero, rtol=TOLERANCE, atol=TOLERANCE):
        return "That is the result from a state of zeros: it was given, and nobody looked at it."
    row = at[0] * values["u"].shape[2] + at[2]
    return f"This is thread {row}; its states begin at state[{row} * STATES], its steps with what it finds there."


# 6.C: B and C once a block ----------------------------------------------------------------------------------------


@exercise("6.C", starts_from="selective_v2_fused.cu")
def _staged(my_kernel):
    """Values, findings, then what is read of B and C, which a block of 64 channels shares."""
    from ssmlab.lab.selective_ladder import problem

    threads = 64
    for batch, length, channels, states in ((1, 32, 64, 16), (2, 37, 128, 4), (1, 1, 64, 16)):
        values = problem(batch, length, channels, states)
        blocks = batch * channels // threads
        story = (f"{blocks} block{'s' * (blocks > 1)} of {threads} threads, {length} step{'s' * (length > 1)}, "
                 f"{states} states: ")
        report = _launch(my_kernel, values, threads=threads, story=story)
        want, _ = _wanted(values)
        _compare(report.arrays[8], want, story, "y", lambda at: "Whose B and C did this step use?")
        asked = _asked(report, "B", "C", access="read")
        budget = blocks * 2 * length * states * 4
        if asked > budget:
            raise WrongAnswer(f"{story}right numbers. The threads read {asked} B of B and C; the budget is {budget}, "
                              f"each number once a block. {_who_reads(asked, budget, threads)}")
        if length == 32:
            rows = [row for row in report.lines if row.space == "global" and set(row.name.split(", ")) <= {"B", "C"}]
            sectors, fewest = (sum(getattr(row, what) for row in rows) for what in ("sectors", "ideal_sectors"))
            if sectors > fewest:
                raise WrongAnswer(f"{story}right numbers, each read once, but in {sectors} sectors where {fewest} hold "
                                  "all of it: neighbours in the block should read neighbours in memory.")


def _who_reads(asked, budget, threads):
    if asked == threads * budget:
        return "Every thread still reads all of it."
    if asked * 32 == threads * budget:
        return "Every warp still reads all of it."
    return "Who reads which numbers?"
