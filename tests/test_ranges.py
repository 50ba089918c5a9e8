"""Affine steps with logarithms, or with exponents of their own: laws, the same bits as AFFINE, ranges beyond it."""

import doctest
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from ssmlab import reference
from ssmlab.lab.laws import check_laws
from ssmlab.monoid import AFFINE, LOG_AFFINE, SCALED_AFFINE, blelloch, chunked, hillis_steele, ranges, segmented, serial
from ssmlab.monoid.ranges import log2_of, scaled, unscaled

SCANS = {"serial": serial, "hillis_steele": hillis_steele, "blelloch": blelloch,
         "chunked": lambda *items, **how: chunked(*items, chunk=7, **how)}
each_scan = pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS)


def problem(length, low=0.4, high=1.0, dtype=np.float32):
    rng = np.random.default_rng(length)
    return rng.uniform(low, high, (length, 3)).astype(dtype), rng.normal(size=(length, 3)).astype(dtype)


def same(left, right):
    return repr(left) == repr(right)


# Whole numbers times powers of two: products and sums of three are exact, so brackets cannot matter.
EXACT = st.builds(lambda m, e: np.ldexp(float(m), e), st.integers(-7, 7), st.sampled_from([0, 3, -2]))
FAR = st.builds(lambda m, e: np.ldexp(float(m), e), st.sampled_from([0, 1, -1, 3]), st.sampled_from([-900, 0, 900]))


def scaled_steps(decays, inputs):
    return st.tuples(decays, inputs).map(lambda step: tuple(scaled(number) for number in step))


def fraction(pair):
    m, e = pair
    return Fraction(float(m)) * Fraction(2) ** int(e)


def act(step, state):
    return fraction(step[0]) * state + fraction(step[1])


def test_scaled_steps_obey_the_laws_and_mean_what_they_say():
    found = check_laws(SCALED_AFFINE, scaled_steps(EXACT, EXACT), equal=lambda p, q: same(p, q) or p == q, act=act,
                       states=st.integers(-9, 9).map(Fraction))
    assert found.ok, str(found)


def test_scaled_products_obey_the_laws_far_outside_the_range_of_a_float():
    found = check_laws(SCALED_AFFINE, scaled_steps(FAR, st.just(0.0)), equal=same)
    assert found.ok, str(found)
    tiny = scaled(np.ldexp(1.0, -900)), scaled(0.0)
    product, _ = SCALED_AFFINE.combine(SCALED_AFFINE.combine(tiny, tiny), tiny)
    assert unscaled(product) == 0 and log2_of(product) == -2700


def test_log_steps_obey_the_laws_up_to_rounding():
    steps = st.tuples(st.floats(-4, 0), st.floats(-9, 9))
    found = check_laws(LOG_AFFINE, steps, equal=lambda p, q: np.allclose(p, q, rtol=1e-12, atol=1e-12),
                       act=lambda step, h: np.exp(step[0]) * h + step[1], states=st.floats(-9, 9))
    assert found.ok, str(found)


@each_scan
@pytest.mark.parametrize("length", [0, 1, 2, 31, 90])
def test_scaled_pairs_have_the_same_bits_as_plain_ones_where_those_stay_in_range(scan, length):
    a, b = problem(length)
    products, states = scan(AFFINE, (a, b)).values
    scaled_products, scaled_states = scan(SCALED_AFFINE, (scaled(a), scaled(b))).values
    assert np.all(products >= np.finfo(np.float32).tiny)
    assert np.array_equal(unscaled(scaled_products), products) and np.array_equal(unscaled(scaled_states), states)
    assert unscaled(scaled_states).dtype == np.float32


@each_scan
def test_a_scaled_product_is_known_however_small(scan):
    a, b = np.full((5000, 1), 0.25, np.float32), np.zeros((5000, 1), np.float32)
    product, _ = scan(SCALED_AFFINE, (scaled(a), scaled(b))).values
    assert np.array_equal(log2_of(product)[:, 0], -2.0 * np.arange(1, 5001))


@each_scan
def test_log_pairs_agree_with_the_loop_in_float64(scan):
    a, b = problem(400, dtype=np.float64)
    log_products, h = scan(LOG_AFFINE, (np.log(a), b)).values
    want, _ = reference.scan(a, b, dim=0)
    assert np.max(np.abs(h - want)) <= 1e-12 * np.max(np.abs(want))
    assert np.max(np.abs(log_products - np.cumsum(np.log(a), axis=0))) <= 1e-12 * 400


def test_a_decay_of_zero_forgets_in_all_three():
    a, b = problem(20)
    a[10] = 0
    with np.errstate(divide="ignore"):
        log_a = np.log(a)
    plain = hillis_steele(AFFINE, (a, b)).values[1]
    assert np.array_equal(unscaled(hillis_steele(SCALED_AFFINE, (scaled(a), scaled(b))).values[1]), plain)
    assert np.allclose(hillis_steele(LOG_AFFINE, (log_a, b)).values[1], plain, rtol=1e-5, atol=1e-6)
    assert np.array_equal(plain[10], b[10])


def test_scaled_pairs_scan_exclusively_backwards_and_in_segments():
    a, b = problem(40)
    pairs = scaled(a), scaled(b)
    for how in ({"exclusive": True}, {"reverse": True}):
        assert np.array_equal(unscaled(hillis_steele(SCALED_AFFINE, pairs, **how).values[1]),
                              hillis_steele(AFFINE, (a, b), **how).values[1])
    starts = np.arange(40) % 9 == 0
    assert np.array_equal(unscaled(hillis_steele(segmented(SCALED_AFFINE), (starts, pairs)).values[1][1]),
                          hillis_steele(segmented(AFFINE), (starts, (a, b))).values[1][1])


def test_opposite_numbers_cancel_to_the_one_zero():
    _, (m, e) = SCALED_AFFINE.combine((scaled(0.5), scaled(3.0)), (scaled(0.25), scaled(-0.75)))
    assert (m, e) == (0, 0)


def test_log2_of_zero_is_minus_infinity_and_overflow_is_infinite():
    assert log2_of(scaled(np.zeros(1)))[0] == -np.inf
    assert unscaled((np.float32(0.5), np.int32(1000))) == np.inf


def test_the_doctests_hold():
    results = doctest.testmod(ranges)
    assert results.attempted and not results.failed
