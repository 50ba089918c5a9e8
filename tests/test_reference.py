"""The reference loop on numbers worked by hand, and its contract: states, axes, empty sequences, refusals."""
import ast
import inspect
from fractions import Fraction

import numpy as np
import pytest

from ssmlab import reference


def problem(shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.1, 1.1, shape), rng.normal(size=shape)


def test_the_numbers_of_case_s_o1_forward_and_reverse():
    a, b = np.array([1, 1.5, 0.8, 2]), np.array([1, -1, 0.5, 2])
    h, final = reference.scan(a, b, dim=0)
    np.testing.assert_allclose(h, [1, 0.5, 0.9, 3.8], rtol=1e-15)
    assert final == h[-1]
    h, final = reference.scan(a, b, dim=0, reverse=True)
    np.testing.assert_allclose(h, [3.15, 2.15, 2.1, 2], rtol=1e-15)
    assert final == h[0]


def test_the_rows_of_case_s_o2_summed_from_the_right():
    b = np.arange(18).reshape(2, 9)
    h, final = reference.scan(np.ones((2, 9)), b, reverse=True)
    assert h.tolist() == [[36, 36, 35, 33, 30, 26, 21, 15, 8], [117, 108, 98, 87, 75, 62, 48, 33, 17]]
    assert final.tolist() == [36, 117]


def test_case_s_o3_settles_where_a_division_by_the_running_product_is_not_finite():
    t = np.arange(200)
    a = np.full(200, np.exp(-1), np.float32)
    h, _ = reference.scan(a, np.ones(200), dim=0)
    np.testing.assert_allclose(h, (1 - np.exp(-(t + 1.0))) / (1 - np.exp(-1)), rtol=1e-7)
    assert abs(h[-1] - 1.5819767) <= 1e-7
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        products = np.cumprod(a)
        divided = products * np.cumsum(np.float32(1) / products, dtype=np.float32)
    assert np.argmax(~np.isfinite(divided)) == 88


def test_case_s_o4_no_step_passes_the_state_on_and_one_step_is_one_step():
    h, final = reference.scan(np.empty(0), np.empty(0), 7, dim=0)
    assert h.shape == (0,) and final == 7
    assert reference.scan(np.empty(0), np.empty(0), 8, dim=0)[1] - final == 1           # d(final)/dh0
    h, final = reference.scan([0.5], [2], 7, dim=0)
    assert h.tolist() == [5.5] and final == 5.5


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_any_axis_can_be_time(dim, reverse):
    a, b = problem((4, 5, 6))
    h, final = reference.scan(a, b, dim=dim, reverse=reverse)
    rows = np.moveaxis(a, dim, -1).reshape(-1, a.shape[dim]), np.moveaxis(b, dim, -1).reshape(-1, a.shape[dim])
    want = np.array([by_hand(*row, reverse) for row in zip(*rows, strict=True)])
    np.testing.assert_array_equal(np.moveaxis(h, dim, -1).reshape(want.shape), want)
    np.testing.assert_array_equal(final, np.take(h, 0 if reverse else -1, axis=dim))


def by_hand(a, b, reverse):
    h, state = [0.0] * len(a), 0.0
    for t in sorted(range(len(a)), reverse=reverse):
        h[t] = state = a[t] * state + b[t]
    return h


@pytest.mark.parametrize("cut", [0, 1, 4, 9])
def test_two_halves_with_a_state_equal_one_run(cut):
    a, b = problem((3, 9, 2))
    whole, final = reference.scan(a, b, np.ones((3, 2)))
    left, state = reference.scan(a[:, :cut], b[:, :cut], np.ones((3, 2)))
    right, end = reference.scan(a[:, cut:], b[:, cut:], state)
    np.testing.assert_array_equal(np.concatenate([left, right], axis=1), whole)
    np.testing.assert_array_equal(end, final)


def test_float32_is_accumulated_in_float64():
    h, final = reference.scan(np.ones(2, np.float32), np.array([1, 1e-12], np.float32), dim=0)
    assert h.dtype == final.dtype == np.float64 and h[1] > 1


def test_fractions_stay_exact_and_complex_numbers_complex():
    h, final = reference.scan([Fraction(1, 3)] * 3, [Fraction(1)] * 3, dim=0)
    assert h.tolist() == [1, Fraction(4, 3), Fraction(13, 9)] and final.item() == Fraction(13, 9)
    assert reference.scan([1j], [1], 2, dim=0)[0].tolist() == [1 + 2j]


def test_nothing_that_comes_back_is_the_callers_memory():
    a, b = problem((2, 3))
    state = np.ones(2)
    for length in (0, 3):
        h, final = reference.scan(a[:, :length], b[:, :length], state)
        h[...] = 99
        final[...] = 99
    assert state.tolist() == [1, 1]
    np.testing.assert_array_equal((a, b), problem((2, 3)))


def test_what_does_not_fit_is_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"a has shape \(2, 3\), b has \(2, 4\)"):
        reference.scan(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"dim is 1, a has 1 axes: dim must be one of \[0\]"):
        reference.scan([1, 2], [1, 2])
    with pytest.raises(ValueError, match=r"initial_state has shape \(3,\): it must be \(2,\)"):
        reference.scan(np.ones((2, 3)), np.ones((2, 3)), np.zeros(3))


def test_the_reference_imports_only_numpy():
    tree = ast.parse(inspect.getsource(reference))
    imported = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [alias.name for node in imported for alias in node.names] == ["numpy"]
