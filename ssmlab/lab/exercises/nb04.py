"""Exercises of notebook 04: kernels, judged by the numbers they compute and by the report of the checked mode.

Each judge first scans eight numbers, whose right results a reader can follow, then longer rows in several warps.
A finding is told before a wrong number: it is the cause, the number only its symptom.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssmlab import reference
from ssmlab.lab.exercises import WrongAnswer, exercise

EIGHT = np.array([[3, 1, 7, 0, 4, 1, 6, 3]], np.float32)
TOLERANCE = 1e-5  # relative to the largest state of a row
UNTOUCHED = np.float32(-987654321)  # what h is filled with; no right number is near it


@dataclass(frozen=True)
class _Run:
    """One checked launch of an attempt: inputs and result, all (rows, length), and the report."""

    a: np.ndarray
    b: np.ndarray
    h: np.ndarray
    report: Any
    where: str

    def equals(self, other: np.ndarray) -> bool:
        return np.allclose(self.h, other, rtol=TOLERANCE, atol=TOLERANCE)

    def compare(self, want: np.ndarray, explain: Callable[[int, int], str]) -> None:
        """Raise with the first wrong number and what `explain(row, step)` says of it, if there is one."""
        scale = np.max(np.abs(want), axis=1, keepdims=True)
        places = np.argwhere(~(np.abs(self.h - want) <= TOLERANCE * scale))
        if not len(places):
            return
        row, step = map(int, places[0])
        got = "nothing was written there" if self.untouched(row, step) else f"yours is {self.h[row, step]:.6g}"
        told = (f"{self.where}\nThe first wrong number is step {step} of row {row}: it must be {want[row, step]:.6g}, "
                f"{got}.")
        if want.shape == (1, 8):
            lists = ("a", self.a), ("b", self.b), ("right", want), ("yours", self.h)
            told += "".join(f"\n  {name:5} {_listed(numbers[0])}" for name, numbers in lists)
        raise WrongAnswer(f"{told}\n{explain(row, step)}")

    def untouched(self, row: int, step: int) -> bool:
        """Does h still hold what it was filled with?"""
        return bool(self.h[row, step] == UNTOUCHED)


def _listed(numbers: np.ndarray) -> str:
    return " ".join(f"{'-' if number == UNTOUCHED else f'{number:.6g}':>8}" for number in numbers)


def _launch(code: str, name: str, *settings: tuple[int, int, list[tuple[np.ndarray, np.ndarray]]]) -> list[_Run]:
    """One run for each (a, b) of each (tile, threads, problems). Raises WrongAnswer for a text without the kernel."""
    from ssmlab import RawKernel, check, kernels

    if not re.search(rf"\b{name}\s*\(", code):
        raise WrongAnswer(f"The text has no kernel {name} any more. Keep its name: the check launches it.")
    runs = []
    for tile, threads, problems in settings:
        kernel = RawKernel(code, name, options=(f"-DTILE={tile}", f"-I{kernels.FOLDER}"))
        for a, b in problems:
            rows, length = a.shape
            report = check(kernel, (rows,), (threads,), (a, b, np.full_like(a, UNTOUCHED), length))
            many = f"{rows} row{'s' * (rows > 1)} of {length} step{'s' * (length > 1)}"
            where = f"TILE={tile}, blocks of {threads} threads, {many}."
            runs.append(_Run(a, b, report.arrays[2], report, where))
    return runs


def _no_findings(runs: list[_Run], remark: str = "") -> None:
    """Raise with the finding that says most: an error before a warning, a wrong index before what it did to others."""
    found = [(run, finding) for run in runs for finding in run.report.findings]
    if found:
        run, worst = min(found, key=lambda item: (item[1].severity != "error", item[1].kind != "out-of-bounds"))
        told = f"{run.where}\nThe checked mode has found something.\n{worst}"
        raise WrongAnswer(f"{told}\n{remark}" if remark else told)


def _eights() -> list[tuple[np.ndarray, np.ndarray]]:
    """Plain sums first, then the same numbers fading by half."""
    return [(np.ones_like(EIGHT), EIGHT), (np.full_like(EIGHT, 0.5), EIGHT)]


def _rows(*lengths: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two rows of each length; every seventh step forgets all before it (a = 0)."""
    rng = np.random.default_rng(4)
    problems = []
    for length in lengths:
        a = rng.uniform(0.5, 0.95, (2, length)).astype(np.float32)
        a[:, 6::7] = 0
        problems.append((a, rng.normal(size=(2, length)).astype(np.float32)))
    return problems


def _inclusive(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return reference.scan(a, b)[0]


def _moved(numbers: np.ndarray) -> np.ndarray:
    """Moved right by one step, 0 in front."""
    return np.concatenate([np.zeros_like(numbers[:, :1]), numbers[:, :-1]], axis=1)


# 4.A: exclusive -------------------------------------------------------------------------------------------------


@exercise("4.A", starts_from="block_scan_v2_double_buffer.cu")
def _exclusive(code):
    """The inclusive scan moved right by one step, 0 in front; one more barrier at most."""
    runs = _launch(code, "block_scan_v2", (32, 32, _eights()), (64, 64, _rows(64, 37, 1)))
    _no_findings(runs)
    for run in runs:
        run.compare(_moved(_inclusive(run.a, run.b)), lambda row, step, run=run: _slip_in_exclusive(run, row, step))
    barriers = runs[-1].report.barriers
    if barriers > 7:
        raise WrongAnswer(f"The numbers are right, with {barriers} barriers for TILE=64. v2 has 6 there, "
                          "and the budget is one more.")


def _slip_in_exclusive(run, row, step):
    if run.equals(_inclusive(run.a, run.b)):
        return "This is still the inclusive scan: each step counts itself."
    if run.untouched(row, step) and step > 0:
        return "Which thread should write it?"
    if run.untouched(row, step):
        return "Nothing comes before the first step, so its state is 0, and a thread has to write that."
    if run.equals(_inclusive(run.a, _moved(run.b))):
        return "You moved b by one step and left a where it was. A step is the pair (a, b): both move, or neither."
    if not np.isfinite(run.h[row, step]):
        return "A step with a = 0 forgets what was before it, and no division brings that back."
    if step == 0:
        return "Nothing comes before the first step, so its state is 0."
    return f"The right number is the inclusive result of step {step - 1}. Who has it, and where do you take yours from?"


# 4.B: two steps a thread ----------------------------------------------------------------------------------------


@exercise("4.B", starts_from="block_scan_v2_double_buffer.cu")
def _two_steps(code):
    """TILE / 2 threads scan TILE steps, with log2(TILE) barriers and half of v2's shared memory."""
    runs = _launch(code, "block_scan_v2", (32, 16, _eights()), (128, 64, _rows(128, 101, 1)))
    _no_findings(runs)
    for run in runs:
        run.compare(_inclusive(run.a, run.b), lambda row, step, run=run: _slip_in_two_steps(run, row, step))
    report = runs[-1].report
    if report.barriers > 7:
        raise WrongAnswer(f"The numbers are right, with {report.barriers} barriers for TILE=128. The budget is "
                          "log2(TILE) = 7: 64 pairs need 6 rounds, and there is one more look at the left neighbour.")
    if report.shared_bytes > 8 * 128:
        raise WrongAnswer(f"The numbers are right, with {report.shared_bytes} bytes of shared memory for TILE=128. The "
                          "budget is 1024: one pair for each of 64 threads, in two buffers.")


def _slip_in_two_steps(run, row, step):
    want, owner = _inclusive(run.a, run.b), step // 2
    if run.untouched(row, step) and step == 64:
        return "There are only TILE / 2 threads now: thread t owns two steps, 2t and 2t + 1, and writes both."
    if run.untouched(row, step):
        return f"It belongs to thread {owner}."
    if step + 1 < want.shape[1] and np.isclose(run.h[row, step], want[row, step + 1], rtol=TOLERANCE):
        return f"That is the state one step later. Thread {owner} has the pair of both its steps; this is the first."
    if step % 2 == 0 and step > 0:
        return (f"It is the first step of thread {owner}, and the step before it belongs to the left neighbour: what "
                "everything up to there does must reach this thread.")
    if np.all(run.a == 0.5) and step == 1:
        return "Sums came out right, this did not: the earlier step is the first argument of `then`."
    return f"The steps before it are right. Thread {owner} owns the steps {2 * owner} and {2 * owner + 1}."


# 4.C: no conflicts, no padding ----------------------------------------------------------------------------------


@exercise("4.C", starts_from="block_scan_v4_tree.cu")
def _banks(code):
    """The tree without a bank conflict, in the 8 * TILE bytes that it has."""
    runs = _launch(code, "block_scan_v4", (32, 16, _eights()), (1024, 512, _rows(1024, 700)))
    remark = "Does every index of the two arrays go through your function? Has every node a place of its own?"
    _no_findings(runs, remark)
    for run in runs:
        run.compare(_inclusive(run.a, run.b), lambda row, step: remark)
    report = runs[-1].report
    if report.barriers != 21:
        raise WrongAnswer("The numbers are right, but this is no longer the tree: for TILE=1024 that passes 21 "
                          f"barriers, yours {report.barriers}. Change only where its nodes are stored.")
    shared = [line for line in report.lines if line.space == "shared"]
    conflicts = sum(line.bank_conflicts for line in shared) // len(runs[-1].a)
    if conflicts > 0:
        worst = max(shared, key=lambda line: line.bank_conflicts)
        told = f"{worst.wavefronts} wavefronts, where {worst.ideal_wavefronts} would do"
        raise WrongAnswer(f"The numbers are right. For TILE=1024 a row has {conflicts} bank conflicts (v4: 2170), most "
                          f"of them in line {worst.line}: {told}. Which nodes do the lanes of a warp touch there, and "
                          "what is `place % 32` for each?")
    if report.shared_bytes > 8 * 1024:
        raise WrongAnswer(f"No bank conflict is left, but for TILE=1024 it takes {report.shared_bytes} bytes, and v4 "
                          "has 8192. Nothing needs to be empty: mix the order of the words inside each row of 32.")
