"""Exercises of notebook 05: carries between chunks, judged by their numbers and by the report of the checked mode.

A finding is told before a wrong number: it is the cause, the number only its symptom. Wrong numbers are explained by
ssmlab.compare, as in the notebook.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ssmlab import reference
from ssmlab.compare import first_difference
from ssmlab.lab.exercises import WrongAnswer, exercise

TOLERANCE = 1e-5  # relative to the largest state
UNTOUCHED = np.float32(-987654321)  # what outputs are filled with; no right number is near it
TOTAL, STATE = 1, 2  # flags of chunks_v5
EIGHT = np.full((1, 8), 0.5, np.float32), np.array([[3, 1, 7, 0, 4, 1, 6, 3]], np.float32), np.array([8], np.float32)


def _kernel(code: str, name: str, chunk: int) -> Any:
    from ssmlab import RawKernel, kernels

    if not re.search(rf"\b{name}\s*\(", code):
        raise WrongAnswer(f"The text has no kernel {name} any more. Keep its name: the check launches it.")
    return RawKernel(code, name, options=(f"-DCHUNK={chunk}", f"-I{kernels.FOLDER}"))


def _parameter(code: str, name: str, wanted: str) -> None:
    """Raise WrongAnswer unless a parameter of the kernel is called and typed as the exercise asks."""
    head = re.search(rf"\b{name}\s*\(([^)]*)\)", code)
    if head is None or not re.search(rf"{wanted}\s*$", " ".join(head[1].split())):
        raise WrongAnswer(f"The last parameter of {name} must be `{wanted}`: the check passes it an array.")


def _no_findings(report: Any, where: str, remark: str = "") -> None:
    if report.findings:
        told = f"{where}\nThe checked mode has found something.\n{report.findings[0]}"
        raise WrongAnswer(f"{told}\n{remark}" if remark else told)


def _problem(rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b, start. A state is felt for hundreds of steps. The last of several rows is all 0, and so is its state."""
    rng = np.random.default_rng(5)
    a = rng.uniform(0.99, 1, (rows, length)).astype(np.float32)
    b = rng.normal(size=(rows, length)).astype(np.float32)
    start = rng.normal(size=rows).astype(np.float32)
    if rows > 1:
        b[-1] = start[-1] = 0
    return a, b, start


def _compare(h: np.ndarray, a: np.ndarray, b: np.ndarray, start: np.ndarray, chunk: int, where: str) -> None:
    """Raise WrongAnswer with the first wrong step and what it points to, if there is one."""
    want, _ = reference.scan(a, b, start)
    found = first_difference(h, want, chunk=chunk, a=a, b=b, initial_state=start, tolerance=TOLERANCE)
    if found is None:
        return
    if found.got == UNTOUCHED:
        row = found.row[0]
        raise WrongAnswer(f"{where}\nNothing was written at step {found.step} of row {row}, in chunk {found.chunk}.")
    raise WrongAnswer(f"{where}\n{found}")


# 5.A: the state behind the last step ----------------------------------------------------------------------------


@exercise("5.A", starts_from="chunks_v2_chain.cu")
def _last(code):
    """carry also writes the state behind the last chunk of each row."""
    _parameter(code, "chunks_v2_carry", r"float\s*\*\s*last")
    rng = np.random.default_rng(5)
    several = rng.uniform(0.1, 0.9, (40, 5, 2)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    eight = np.array([[[1 / 16, 4.125], [1 / 16, 6.75]]], np.float32), np.array([8], np.float32)
    for total, start in (eight, several, (several[0][:, :0], several[1])):
        _judge_last(code, total, start)


def _judge_last(code, total, start):
    rows, chunks = total.shape[:2]
    before, last = np.full((rows, chunks), UNTOUCHED), np.full(rows, UNTOUCHED)
    where = f"{rows} row{'s' * (rows > 1)} of {chunks} chunks."
    blocks = -(-rows // 32)
    report = _run(_kernel(code, "chunks_v2_carry", 4), blocks, 32, (total, start, before, rows, chunks, last))
    _no_findings(report, where)
    states = reference.scan(total[..., 0], total[..., 1], start)[0]
    want = np.concatenate([start[:, None], states], axis=1)             # before each chunk, and behind the last
    before, last = report.arrays[2], report.arrays[5]
    if not np.allclose(before, want[:, :-1], rtol=TOLERANCE, atol=TOLERANCE):
        raise WrongAnswer(f"{where}\nThe states before the chunks were right and are no longer: they must stay.")
    wrong = np.flatnonzero(~np.isclose(last, want[:, -1], rtol=TOLERANCE, atol=TOLERANCE))
    if len(wrong):
        row = int(wrong[0])
        got = "nothing was written" if last[row] == UNTOUCHED else f"yours is {last[row]:.6g}"
        raise WrongAnswer(f"{where}\nBehind the last chunk of row {row} the state is {want[row, -1]:.6g}, {got}.\n"
                          + _slip_in_last(last, want, total, row))


def _slip_in_last(last, want, total, row):
    chunks = total.shape[1]
    if last[row] == UNTOUCHED and chunks == 0:
        return "A row of no chunks ends as it began: with its start. Is your line inside the loop?"
    if last[row] == UNTOUCHED:
        return "Every thread has a row, and writes one place of `last`."
    if chunks > 0 and np.isclose(last[row], want[row, -2], rtol=TOLERANCE):
        return "That is the state before the last chunk: its own total has not been applied yet."
    if chunks > 0 and np.isclose(last[row], total[row, -1, 1], rtol=TOLERANCE):
        return "That is the last local element, the B of the last total alone. What came before it is missing."
    return "`state` goes from chunk to chunk. What does it hold when the loop is over?"


def _run(kernel, grid, block, arguments, **schedule):
    from ssmlab import check

    return check(kernel, (grid,), (block,), arguments, **schedule)


# 5.B: flag and state in one word --------------------------------------------------------------------------------

ORDERS = (
    {"block_order": "forward", "resident": 1},
    {"block_order": "reverse", "resident": 1},
    {"block_order": "random", "resident": 6, "seed": 1},
)


def _where(rows, length, chunk, order):
    several = "one block" if order["resident"] == 1 else f"{order['resident']} blocks"
    return (f"{rows} row{'s' * (rows > 1)} of {length} steps, chunks of {chunk}; blocks start in "
            f"{order['block_order']} order, {several} at a time.")


@exercise("5.B", starts_from="chunks_v4_handover.cu")
def _word(code):
    """The hand-over with one 64-bit word a chunk, and without a fence."""
    _parameter(code, "chunks_v4", r"unsigned long long\s*\*\s*word")
    if "__threadfence" in re.sub(r"//.*", "", code):
        raise WrongAnswer("There is still a fence. Flag and state travel in one word: who sees the one has the other.")
    for chunk, (a, b, start) in ((4, EIGHT), (32, _problem(2, 250))):
        for order in ORDERS:
            rows, length = a.shape
            count = -(-length // chunk)
            word, ticket = np.zeros((rows, count), np.uint64), np.zeros(1, np.int32)
            where = _where(rows, length, chunk, order)
            report = _run(_kernel(code, "chunks_v4", chunk), rows * count, chunk,
                          (a, b, np.full_like(a, UNTOUCHED), start, rows, length, count, ticket, word), **order)
            _no_findings(report, where, _remark_on_word(report, rows))
            _compare(report.arrays[2], a, b, start, chunk, where)


def _remark_on_word(report, rows):
    kinds = {finding.kind for finding in report.findings}
    if "deadlock" in kinds and rows > 1:
        return ("Somebody waits for a word that stays 0. The states of the last row are all 0: does your word differ "
                "from 0 then?")
    if "deadlock" in kinds:
        return "Does a block post its word, and does the next one look at it?"
    if "global-race" in kinds:
        return "Every access to `word` that others may make at the same time must take it as a whole, by an atomic."
    return ""


# 5.C: a warp looks back -----------------------------------------------------------------------------------------


@exercise("5.C", starts_from="chunks_v5_lookback.cu")
def _warp(code):
    """32 lanes look at 32 flags at once."""
    for chunk, length in ((32, 250), (64, 500)):
        for order in ORDERS:
            _judge_order(code, chunk, *_problem(2, length), order)
    for state_at in (0, 9, -1):                                         # steps over 40, 31 and all 41 totals
        _judge_far(code, state_at)


def _remark_on_warp(report):
    if any(finding.kind == "global-race" for finding in report.findings):
        return ("Is it the value that the flag stands for? And did the lane that reads it see the flag itself? "
                "A ballot orders no memory: every lane needs its fence behind its flag, and then a __syncwarp().")
    return ""


def _judge_order(code, chunk, a, b, start, order):
    rows, length = a.shape
    count = -(-length // chunk)
    where = _where(rows, length, chunk, order)
    ticket, flag = np.zeros(1, np.int32), np.zeros((rows, count), np.int32)
    total, after = (np.full((rows, count, *more), np.nan, np.float32) for more in ((2,), ()))
    report = _run(_kernel(code, "chunks_v5", chunk), rows * count, chunk,
                  (a, b, np.full_like(a, UNTOUCHED), start, rows, length, count, ticket, total, after, flag), **order)
    _no_findings(report, where, _remark_on_warp(report))
    _compare(report.arrays[2], a, b, start, chunk, where)


def _judge_far(code, state_at, chunks=42, chunk=32):
    """One block, the last of row 1, on a board that is prepared: totals everywhere, one state at most."""
    a, b, start = _problem(3, chunks * chunk)
    want, _ = reference.scan(a, b, start)
    ends = want[:, chunk - 1 :: chunk]
    decays = reference.scan(a.reshape(-1, chunk), 0 * b.reshape(-1, chunk), np.ones(3 * chunks))[1]
    locals_ = reference.scan(a.reshape(-1, chunk), b.reshape(-1, chunk))[1]
    total = np.stack([decays, locals_], axis=-1).reshape(3, chunks, 2).astype(np.float32)
    flag = np.full((3, chunks), TOTAL, np.int32)
    flag[0], flag[1, -1] = STATE, 0                                     # row 0 tempts whoever looks into the wrong row
    after = np.full((3, chunks), 1e6, np.float32)
    if state_at >= 0:
        flag[1, state_at], after[1, state_at] = STATE, ends[1, state_at]
    ticket = np.array([(chunks - 1) * 3 + 1], np.int32)
    report = _run(_kernel(code, "chunks_v5", chunk), 1, chunk,
                  (a, b, np.full_like(a, UNTOUCHED), start, 3, a.shape[1], chunks, ticket, total, after, flag))
    behind = f"a state behind chunk {state_at}" if state_at >= 0 else "no state at all"
    where = f"Chunk {chunks - 1} looks back over a board with {behind}, and totals elsewhere."
    _no_findings(report, where, _remark_on_warp(report))
    got, right = report.arrays[2][1, -chunk:], want[1, -chunk:]
    if not np.all(np.abs(got - right) <= TOLERANCE * np.max(np.abs(want[1]))):
        told = f"{where}\nIts first step must be {right[0]:.6g}, yours is {got[0]:.6g}."
        raise WrongAnswer(f"{told} The nearest state is with the lowest lane that found one; from there on all totals "
                          "are applied, the oldest first.")
    asked = sum(line.requests for line in report.lines if (line.name, line.access) == ("flag", "read"))
    needed = -(-(chunks - 1 - max(state_at, 0)) // 32)
    if asked > needed:
        raise WrongAnswer(f"{where}\nThe numbers are right, and the flags were asked for in {asked} requests. "
                          f"With 32 lanes that look at 32 neighbours, {needed} would do.")
