"""first_difference names the step, the chunk and the stage, for each wrong carry that people write."""

import numpy as np
import pytest

from ssmlab import reference
from ssmlab.compare import first_difference

CHUNK = 4


def problem(length=12, rows=2, seed=3):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 0.9, (1, length, rows)), rng.normal(size=(1, length, rows)), rng.normal(size=(1, rows))


def chunked(a, b, start, carry_of):
    """A scan in chunks whose carry into chunk k is carry_of(k, totals, carries): right and wrong ones."""
    length = a.shape[1]
    totals = []
    for begin in range(0, length, CHUNK):
        decay = np.prod(a[:, begin : begin + CHUNK], axis=1)
        totals.append((decay, reference.scan(a[:, begin : begin + CHUNK], b[:, begin : begin + CHUNK])[1]))
    carries = [start]
    for k in range(1, len(totals)):
        carries.append(carry_of(k, totals, carries))
    pieces = [
        reference.scan(a[:, k * CHUNK : (k + 1) * CHUNK], b[:, k * CHUNK : (k + 1) * CHUNK], carries[k])[0]
        for k in range(len(totals))
    ]
    return np.concatenate(pieces, axis=1)


def right(k, totals, carries):
    return totals[k - 1][0] * carries[k - 1] + totals[k - 1][1]


WRONG = {
    "carry missing": lambda k, totals, carries: 0 * carries[0],
    "carry: last local element": lambda k, totals, carries: totals[k - 1][1],
    "carry: own total": lambda k, totals, carries: totals[k][0] * carries[k - 1] + totals[k][1],
    "carry: off by one": lambda k, totals, carries: carries[k - 1],
    "carry: wrong total": lambda k, totals, carries: right(k, totals, carries) * 1.5,
}


def test_the_right_carry_shows_no_difference():
    a, b, start = problem()
    assert first_difference(chunked(a, b, start, right), reference.scan(a, b, start)[0], chunk=CHUNK) is None


@pytest.mark.parametrize("stage", WRONG)
def test_each_wrong_carry_is_named_at_the_step_where_it_enters(stage):
    a, b, start = problem()
    got, want = chunked(a, b, start, WRONG[stage]), reference.scan(a, b, start)[0]
    found = first_difference(got, want, chunk=CHUNK, a=a, b=b, initial_state=start)
    assert (found.stage, found.step, found.chunk, found.offset) == (stage, CHUNK, 1, 0)
    assert "chunk 1 began from" in found.words


def test_eight_steps_in_chunks_of_four_tell_the_carries_apart():  # claims.md A16
    a, b, start = problem(length=8)
    want = reference.scan(a, b, start)[0]
    stages = set()
    for wrong in WRONG.values():
        found = first_difference(chunked(a, b, start, wrong), want, chunk=CHUNK, a=a, b=b, initial_state=start)
        assert found.step == 4
        stages.add(found.stage)
    assert stages == set(WRONG)


def test_in_reverse_steps_are_counted_from_the_end():
    a, b, start = problem()
    flip = (slice(None), slice(None, None, -1))
    got = chunked(a[flip], b[flip], start, WRONG["carry missing"])[flip]
    want = reference.scan(a, b, start, reverse=True)[0]
    found = first_difference(got, want, chunk=CHUNK, a=a, b=b, initial_state=start, reverse=True)
    assert (found.stage, found.step, found.chunk) == ("carry missing", 7, 1)


def test_a_fault_inside_a_chunk_is_the_block_scan():
    a, b, start = problem()
    want = reference.scan(a, b, start)[0]
    for step in (2, 6):
        got = want.copy()
        got[0, step, 1] += 1
        found = first_difference(got, want, chunk=CHUNK, a=a, b=b, initial_state=start)
        assert (found.stage, found.step, found.row) == ("block scan", step, (0, 1))


def test_a_wrong_very_first_step_points_to_the_initial_state():
    a, b, start = problem()
    found = first_difference(reference.scan(a, b)[0], reference.scan(a, b, start)[0], chunk=CHUNK, initial_state=start)
    assert found.stage == "initial state" and found.step == 0


def test_two_runs_that_differ_are_a_race():
    a, b, _ = problem()
    want = reference.scan(a, b)[0]
    got, again = want.copy(), want.copy()
    got[0, 5, 0], again[0, 9, 0] = 0, 0
    found = first_difference(got, want, chunk=CHUNK, again=again)
    assert found.stage == "race" and "from position 5 on" in found.words


def test_a_nan_always_differs():
    a, b, _ = problem()
    want = reference.scan(a, b)[0]
    got = want.copy()
    got[0, 7, 1] = np.nan
    assert first_difference(got, want, chunk=CHUNK).step == 7
    assert first_difference(want, want, chunk=CHUNK) is None


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="chunk is 0: it must be at least 1 step"):
        first_difference([[1.0]], [[1.0]], chunk=0)
    with pytest.raises(ValueError, match=r"got and want have different shapes \(time first\): \(2, 1\) and \(3, 1\)"):
        first_difference([[1.0, 2.0]], [[1.0, 2.0, 3.0]], chunk=1)


def test_it_prints_where_and_why():
    a, b = np.full((1, 8), 0.5), np.ones((1, 8))
    want = reference.scan(a, b)[0]
    got = np.concatenate([want[:, :4], want[:, :4]], 1)
    assert str(first_difference(got, want, chunk=4, a=a, b=b)) == (
        "step 4 of row (0,): chunk 1, offset 0; got 1, want 1.9375\n"
        "carry missing: chunk 1 began from 0, as if nothing came before it; it should begin from 1.875"
    )
