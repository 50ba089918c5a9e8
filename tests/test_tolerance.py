"""The bound of ssmlab.tolerance: no right scan exceeds it, wrong ones do, and it is not far above the worst."""

import doctest
from functools import partial

import numpy as np
import pytest
import torch

import ssmlab
from ssmlab import reference, tolerance
from ssmlab.lab import compensated
from ssmlab.monoid import AFFINE, blelloch, chunked, hillis_steele

DECAYS = {"sums": (1, 1), "near one": (0.998, 1), "fast": (0.3, 0.9), "any sign": (-1, 1)}
WAYS = {
    "loop": compensated.loop,
    "fused loop": compensated.fused,
    "hillis_steele": lambda a, b: hillis_steele(AFFINE, (a, b)).values[1],
    "blelloch": lambda a, b: blelloch(AFFINE, (a, b)).values[1],
    "chunks of 2": lambda a, b: chunked(AFFINE, (a, b), chunk=2).values[1],
    "chunks of 64": lambda a, b: chunked(AFFINE, (a, b), chunk=64).values[1],
}


def problem(decays, constant, length=1000, dtype=np.float32):
    rng = np.random.default_rng(length)
    low, high = DECAYS[decays]
    a = np.tile(rng.uniform(low, high, 16), (length, 1)) if constant else rng.uniform(low, high, (length, 16))
    return a.astype(dtype), rng.uniform(-1, 1, (length, 16)).astype(dtype)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("decays", DECAYS)
@pytest.mark.parametrize("way", WAYS)
def test_no_order_of_combines_exceeds_the_bound(way, decays, constant):
    a, b = problem(decays, constant)
    want, _ = reference.scan(a, b, dim=0)
    assert np.all(np.abs(WAYS[way](a, b) - want) <= tolerance.scan_bound(a, b, dim=0))


@pytest.mark.parametrize("decays", DECAYS)
@pytest.mark.parametrize("algorithm", ["thread", "block", "chain", "totals", "lookback"])
def test_no_algorithm_of_the_scan_exceeds_the_bound(algorithm, decays):
    a, b = problem(decays, True)
    h = ssmlab.scan(torch.tensor(a)[None], torch.tensor(b)[None], algorithm=algorithm)[0].numpy()
    want, _ = reference.scan(a, b, dim=0)
    assert np.all(np.abs(h - want) <= tolerance.scan_bound(a, b, dim=0))


@pytest.mark.parametrize("decays", DECAYS)
def test_a_tree_stays_within_the_sharper_bound_for_its_depth(decays):
    a, b = problem(decays, False, 1024)
    want, _ = reference.scan(a, b, dim=0)
    sharp = tolerance.scan_bound(a, b, dim=0, depth=10)
    assert np.all(np.abs(WAYS["hillis_steele"](a, b) - want) <= sharp)
    assert np.all(sharp <= tolerance.scan_bound(a, b, dim=0))


def test_an_initial_state_counts_as_the_input_before_the_first():
    a, b = problem("near one", False, 200)
    start = b[0] + 3
    joined_a, joined_b = np.concatenate([np.ones_like(a[:1]), a]), np.concatenate([start[None], b])
    alone = tolerance.scan_bound(a, b, start, dim=0, depth=5)
    joined = tolerance.scan_bound(joined_a, joined_b, dim=0, depth=5)[1:]
    assert np.allclose(alone, joined, rtol=1e-4)


def test_float64_scans_stay_within_the_bound_of_their_unit():
    a, b = problem("near one", True, dtype=np.float64)
    longer = reference.scan(a.astype(np.longdouble), b.astype(np.longdouble), dim=0)[0]
    bound = tolerance.scan_bound(a, b, dim=0, unit=tolerance.UNIT["float64"])
    assert np.all(np.abs(WAYS["hillis_steele"](a, b) - longer) <= bound)


@pytest.mark.parametrize("roundings, ulp", [(1, 1), (2, 2)])
def test_rounded_decays_are_covered_by_the_error_of_the_exponential(roundings, ulp):
    rng = np.random.default_rng(5)
    delta, A = rng.uniform(1e-4, 2e-3, (2000, 16)).astype(np.float32), -rng.uniform(0.1, 1, 16).astype(np.float32)
    delta[:] = delta[0]                                     # one decay for all steps: the worst case
    b = rng.uniform(0, 1, (2000, 16)).astype(np.float32)
    exponent = delta.astype(float) * A
    a = np.exp(delta * A) if roundings == 1 else np.exp2(delta * (A * np.float32(np.log2(np.e))))
    want, _ = reference.scan(np.exp(exponent), b, dim=0)
    h = compensated.loop(a, b)
    decay = tolerance.exponential(exponent, roundings=roundings, ulp=ulp)
    bound = partial(tolerance.scan_bound, np.exp(exponent), b, dim=0)
    assert np.all(np.abs(h - want) <= bound(decay=decay))
    assert np.any(np.abs(compensated.in_float64(a, b) - want) > 0.03 * bound(decay=decay))


@pytest.mark.parametrize("decays", ["fast", "near one"])
def test_wrong_scans_exceed_the_bound(decays):
    a, b = problem(decays, False)
    want, _ = reference.scan(a, b, dim=0)
    bound = tolerance.scan_bound(a, b, dim=0)
    late = compensated.loop(np.roll(a, 1, axis=0), b)                                   # index off by one
    halves = compensated.loop(a.astype(np.float16).astype(np.float32), b)               # decays in half precision
    for wrong in late, halves:
        assert not np.all(np.abs(wrong - want) <= bound)


def test_without_the_data_the_bound_is_about_the_same():
    for decay, length in ((0.5, 3000), (0.99, 3000), (0.9999, 3000)):
        a, b = np.full((length, 1), decay), np.ones((length, 1))
        want, _ = reference.scan(a, b, dim=0)
        exactly = np.max(tolerance.scan_bound(a, b, dim=0)) / np.max(want)
        rule = tolerance.relative_tolerance(1 / (1 - decay), length)
        assert exactly <= rule * 1.01 and rule <= 4 * exactly


def test_memory_is_the_mean_age():
    assert np.allclose(tolerance.remembered(np.ones((1, 5)), np.ones((1, 5))), [[0, 0.5, 1, 1.5, 2]])
    assert tolerance.remembered(np.ones((1, 3)), np.zeros((1, 3))).tolist() == [[0, 0, 0]]
    kept = tolerance.remembered(np.full((1, 4), 0.5), np.zeros((1, 4)), np.ones(1))
    assert np.allclose(kept, [[1, 2, 3, 4]])                # only the initial state is there, and it grows older


def test_empty_rows_have_empty_bounds():
    assert tolerance.scan_bound(np.ones((2, 0)), np.ones((2, 0))).shape == (2, 0)
    assert tolerance.remembered(np.ones((2, 0)), np.ones((2, 0))).shape == (2, 0)


def test_where_too_many_roundings_pile_up_there_is_no_bound():
    with pytest.raises(ValueError, match="no bound any more"):
        tolerance.scan_bound(np.ones((1, 4096)), np.ones((1, 4096)), unit=tolerance.UNIT["bfloat16"])
    with pytest.raises(ValueError, match="length is 4096"):
        tolerance.relative_tolerance(10, 4096, unit=tolerance.UNIT["bfloat16"])
    with pytest.raises(ValueError, match="no bound any more"):
        tolerance.scan_bound(np.ones((1, 4)), np.ones((1, 4)), decay=np.nan)


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"a has shape \(1, 3\), b has \(1, 4\)"):
        tolerance.scan_bound(np.ones((1, 3)), np.ones((1, 4)))


def test_the_doctests_hold():
    results = doctest.testmod(tolerance)
    assert results.attempted and not results.failed
