"""Does an operation obey the laws of a monoid? Hypothesis looks for the smallest inputs that say no."""
from copy import deepcopy
from dataclasses import dataclass
from random import Random

import hypothesis
import numpy as np
from hypothesis import strategies as st

KEEP = "leaving its arguments alone"


@dataclass(frozen=True, eq=False)
class Violation:
    """One broken law with the smallest inputs found, and the two sides that should be equal."""

    law: str
    inputs: dict
    sides: dict

    def __str__(self):
        width = max(map(len, self.sides))
        at = ", ".join(f"{name} = {_show(value)}" for name, value in self.inputs.items())
        return "\n".join([f"  {self.law} fails at {at}",
                          *(f"    {name:{width}} = {_show(value)}" for name, value in self.sides.items())])


@dataclass(frozen=True, eq=False)
class Laws:
    """What `check_laws` found. ok is True if no law was seen to fail; text and repr are for learners."""

    name: str
    obeyed: tuple
    violations: tuple
    examples: int

    @property
    def ok(self):
        return not self.violations

    def __str__(self):
        if self.ok:
            return f"{self.name}: no counterexample to {', '.join(self.obeyed)} ({self.examples} tries each)"
        obeyed = f"  no counterexample to {', '.join(self.obeyed)}" if self.obeyed else "  no law is obeyed"
        return "\n".join([f"{self.name}: not what it should be", *map(str, self.violations), obeyed])

    __repr__ = __str__


def check_laws(monoid, elements, *, equal=None, act=None, states=None, examples=300):
    """Search for the smallest counterexample to the laws that a scan relies on.

    monoid     a `ssmlab.monoid.Monoid`; with identity None only the semigroup laws are searched
    elements   a Hypothesis strategy that makes single elements, or a list of elements; both start with the simplest
    equal      equal(left, right) -> bool; None means exact equality (use a tolerance for floats)
    act        act(element, state) -> state, and `states` like `elements`: is combine(x, y) really "x, then y"?
    examples   [count] tries for each law, the same ones in every run

    Returns `Laws`, which shows itself in a notebook: .ok, .violations (each with .law, .inputs, .sides).
            No counterexample is evidence, not proof. An error in combine is reported as a violation
            (NotImplementedError alone comes through).

    >>> from fractions import Fraction
    >>> from ssmlab.monoid import Monoid
    >>> mean = Monoid("mean of two", lambda first, second: Fraction(first + second, 2))
    >>> check_laws(mean, st.integers(0, 9))
    mean of two: not what it should be
      associativity fails at x = 0, y = 0, z = 1
        (x then y) then z = 1/2
        x then (y then z) = 1/4
      no counterexample to leaving its arguments alone
    """
    if (act is None) != (states is None):
        raise ValueError("act and states belong together: give both or none")
    equal = _same if equal is None else equal
    elements, states = _strategy(elements), _strategy(states)
    obeyed, violations = [], []
    for law, names, sides in _laws(monoid, act):
        if law == KEEP and any(isinstance(side, _Error) for found in violations for side in found.sides.values()):
            continue                                # the same error once more would tell nothing new
        source = st.tuples(*(states if name == "state" else elements for name in names))
        broken = _smallest(source, sides, _same if law == KEEP else equal, examples)
        if broken is None:
            obeyed.append(law)
        else:
            violations.append(Violation(law, dict(zip(names, broken, strict=True)), _evaluate(sides, broken)))
    return Laws(monoid.name, tuple(obeyed), tuple(violations), examples)


def _laws(monoid, act):
    """(law, names of its inputs, the sides that must be equal), the most telling law first."""
    then, e = monoid.combine, monoid.identity
    yield "associativity", "xyz", {
        "(x then y) then z": lambda x, y, z: then(then(x, y), z),
        "x then (y then z)": lambda x, y, z: then(x, then(y, z)),
    }
    if e is not None:
        yield "identity on the left", "x", {"identity then x": lambda x: then(deepcopy(e), x), "x": lambda x: x}
        yield "identity on the right", "x", {"x then identity": lambda x: then(x, deepcopy(e)), "x": lambda x: x}
    if act is not None:
        yield "meaning", ("x", "y", "state"), {
            "(x then y) on the state": lambda x, y, state: act(then(x, y), state),
            "y on (x on the state)": lambda x, y, state: act(y, act(x, state)),
        }
    yield KEEP, "xy", {
        "x, y afterwards": lambda x, y: _arguments_after(then, x, y), "x, y before": lambda x, y: (x, y),
    }


def _arguments_after(then, x, y):
    then(x, y)
    return x, y


def _smallest(source, sides, equal, examples):
    """The smallest inputs at which the sides differ, or None."""
    def differ(inputs):
        left, right = _evaluate(sides, inputs).values()
        return isinstance(left, _Error) or isinstance(right, _Error) or not equal(left, right)

    settings = hypothesis.settings(max_examples=examples, database=None, deadline=None,
                                   suppress_health_check=list(hypothesis.HealthCheck))
    try:
        return hypothesis.find(source, differ, settings=settings, random=Random(0))
    except hypothesis.errors.NoSuchExample:
        return None


@dataclass(frozen=True)
class _Error:
    text: str


def _evaluate(sides, inputs):
    """Each side on its own copy of the inputs; an error is a value too, and equal to nothing."""
    values = {}
    for name, side in sides.items():
        try:
            values[name] = side(*deepcopy(inputs))
        except NotImplementedError:
            raise
        except Exception as error:
            values[name] = _Error(f"{type(error).__name__}: {error}")
    return values


def _strategy(source):
    return source if source is None or isinstance(source, st.SearchStrategy) else st.sampled_from(list(source))


def _same(left, right):
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return np.array_equal(left, right) if isinstance(left, np.ndarray) else bool(left == right)


def _show(value):
    if isinstance(value, _Error):
        return value.text
    if isinstance(value, tuple):
        return f"({', '.join(map(_show, value))}{',' * (len(value) == 1)})"
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.tolist())
    return repr(value) if isinstance(value, str) else str(value)
