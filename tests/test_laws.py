"""The law checker: right monoids pass, each kind of wrong one is caught with the smallest inputs, repeatably."""

import doctest
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from ssmlab.lab.laws import check_laws
from ssmlab.monoid import AFFINE, CONCAT, MATRIX_2X2, MAX_PLUS, SUM, Monoid, companion, matrix_affine, segmented

SMALL = st.integers(-9, 9)
PAIRS = st.tuples(SMALL, SMALL)
MATRICES = st.lists(SMALL, min_size=4, max_size=4).map(lambda entries: np.reshape(entries, (2, 2)))


def affine(pair, h):
    return pair[0] * h + pair[1]


RIGHT = {
    "sum": (SUM, SMALL, {}),
    "affine": (AFFINE, PAIRS, dict(act=affine, states=SMALL)),
    "max-plus": (MAX_PLUS, PAIRS, dict(act=lambda pair, h: max(pair[0] + h, pair[1]), states=SMALL)),
    "matrices": (MATRIX_2X2, MATRICES, dict(act=lambda m, h: m @ np.array(h), states=PAIRS)),
    "companion": (matrix_affine(2), st.tuples(MATRICES, PAIRS.map(np.array)),
                  dict(act=lambda step, h: step[0] @ np.array(h) + step[1], states=PAIRS)),
    "strings": (CONCAT, st.text("ab", max_size=3), {}),
    "segmented strings": (segmented(CONCAT), st.tuples(st.booleans(), st.text("ab", max_size=3)), {}),
    "segmented affine": (segmented(AFFINE), st.tuples(st.booleans(), PAIRS), {}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_every_supplied_monoid_obeys_its_laws_exactly(name):
    monoid, elements, meaning = RIGHT[name]
    laws = check_laws(monoid, elements, examples=100, **meaning)
    assert laws.ok, str(laws)
    assert laws.obeyed[0] == "associativity" and "identity on the right" in laws.obeyed
    assert str(laws).startswith(f"{monoid.name}: no counterexample to associativity")


def test_a_companion_step_is_the_recurrence_of_order_two():
    A, b = companion([2, 3], [5, 7])
    state = np.array([10, 1])                               # h[t-1], h[t-2]
    assert (A[0] @ state + b[0]).tolist() == [2 * 10 + 3 * 1 + 5, 10]


def broken(laws):
    return {violation.law: violation.inputs for violation in laws.violations}


def test_the_smallest_counterexample_to_associativity_is_found():
    mean = Monoid("mean", lambda first, second: Fraction(first + second, 2))
    laws = check_laws(mean, st.integers(0, 9))
    assert broken(laws) == {"associativity": {"x": 0, "y": 0, "z": 1}} and not laws.ok
    assert laws.violations[0].sides == {"(x then y) then z": Fraction(1, 2), "x then (y then z)": Fraction(1, 4)}
    assert str(laws) == repr(laws) == """\
mean: not what it should be
  associativity fails at x = 0, y = 0, z = 1
    (x then y) then z = 1/2
    x then (y then z) = 1/4
  no counterexample to leaving its arguments alone"""


def test_an_identity_that_works_on_one_side_only():
    laws = check_laws(Monoid("the second", lambda first, second: second, identity=0), SMALL)
    assert broken(laws) == {"identity on the right": {"x": 1}}


def test_a_wrong_identity():
    assert set(broken(check_laws(Monoid("affine", AFFINE.combine, identity=(0, 0)), PAIRS))) == {
        "identity on the left", "identity on the right"}


def test_a_swapped_operation_is_a_monoid_with_another_meaning():
    swapped = Monoid("swapped", lambda p, q: AFFINE.combine(q, p), identity=(1, 0))
    assert check_laws(swapped, PAIRS).ok
    assert set(broken(check_laws(swapped, PAIRS, act=affine, states=SMALL))) == {"meaning"}


def test_a_gated_recurrence_has_no_such_pairs():
    laws = check_laws(AFFINE, PAIRS, act=lambda pair, h: max(0, affine(pair, h)), states=SMALL)
    assert set(broken(laws)) == {"meaning"}


def test_an_operation_that_changes_its_arguments():
    def extend(first, second):
        first.extend(second)
        return first
    laws = check_laws(Monoid("extend", extend, identity=[]), st.lists(SMALL, max_size=2))
    assert broken(laws) == {"leaving its arguments alone": {"x": [], "y": [0]}}


def test_an_error_is_a_violation_and_is_shown():
    laws = check_laws(Monoid("quotient", lambda first, second: Fraction(first, second)), SMALL)
    assert broken(laws) == {"associativity": {"x": 0, "y": 0, "z": 0}}
    assert "= ZeroDivisionError: Fraction(0, 0)" in str(laws)


def test_an_unwritten_operation_stays_unwritten():
    def blank(first, second):
        raise NotImplementedError
    with pytest.raises(NotImplementedError):
        check_laws(Monoid("blank", blank), SMALL)


def test_floats_need_a_tolerance_and_nan_always_fails():
    product = Monoid("product", lambda first, second: first * second, identity=1.0)
    floats = st.floats(0.5, 1.5)
    assert "associativity" in broken(check_laws(product, floats))
    assert check_laws(product, floats, equal=lambda left, right: abs(left - right) <= 1e-12 * abs(left)).ok
    assert not check_laws(Monoid("lost", lambda first, second: float("nan")), floats).ok


def test_a_list_of_elements_will_do():
    assert check_laws(CONCAT, ["a", "b"]).ok
    assert broken(check_laws(Monoid("minus", lambda first, second: first - second), [0, 1])) == {
        "associativity": {"x": 0, "y": 0, "z": 1}}


def test_two_runs_say_the_same():
    product = Monoid("product", lambda first, second: first * second, identity=1.0)
    assert str(check_laws(product, st.floats(-2, 2))) == str(check_laws(product, st.floats(-2, 2)))


def test_the_example_in_the_docstring_is_true():
    assert doctest.testmod(sys.modules[check_laws.__module__]).failed == 0


def test_act_without_states_is_refused():
    with pytest.raises(ValueError, match="act and states belong together"):
        check_laws(AFFINE, PAIRS, act=affine)
