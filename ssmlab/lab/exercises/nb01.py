"""Exercises of notebook 01: write three combines. Every explanation shows the input that broke the attempt."""

from fractions import Fraction
from itertools import product
from math import isclose

from ssmlab.lab.exercises import WrongAnswer, exercise


def _as_pair(value, what):
    """`value` as a tuple of two, or an explanation of what came back instead."""
    try:
        pair = tuple(value)
    except TypeError:
        pair = ()
    if isinstance(value, str) or len(pair) != 2:
        raise WrongAnswer(f"{what} must give back a pair, two things in a tuple; yours gave {value!r}")
    return pair


# 1.A: the combine of affine steps -------------------------------------------------------------------------------


@exercise("1.A")
def _affine_combine(my_combine):
    """The pair must do `first`, then `second`. The numbers 2, 3, 5, 7 tell every likely slip apart."""
    for first, second in [((2, 3), (5, 7)), ((1, 0), (5, 7)), ((2, 3), (0, 7)),
                          ((Fraction(1, 2), -1), (Fraction(-1, 3), 4))]:
        (a1, b1), (a2, b2) = first, second
        got = _as_pair(my_combine(first, second), "my_combine")
        if got == (a2 * a1, a2 * b1 + b2):
            continue
        raise WrongAnswer(
            f"first = ({a1}, {b1}), second = ({a2}, {b2}): from h = 1 the first step reaches {a1 + b1}, the second "
            f"then reaches {a2 * (a1 + b1) + b2}. Your pair ({got[0]}, {got[1]}) reaches {got[0] + got[1]}. "
            + _slip_in_affine(got, first, second)
        )


def _slip_in_affine(got, first, second):
    (a1, b1), (a2, b2) = first, second
    if got == (a1 * a2, a1 * b2 + b1):
        return "That is second, then first: the two steps changed places."
    if got == (a1 * a2, b1 + b2):
        return "b of the first step must be scaled by a of the second: the second step multiplies all that it receives."
    if got == (a1 * a2, a2 * b1):
        return "b of the second step is missing: it is added after the scaling."
    if got[0] != a1 * a2:
        return f"Start with a: h is scaled by {a1}, then by {a2}, so a is their product."
    return "a is right. For b, follow h = 0 through both steps: where it lands is b."


# 1.B: the running mean ------------------------------------------------------------------------------------------


@exercise("1.B")
def _running_mean(attempt):
    """(lift, combine, read, empty) must give the mean of any run, in any bracketing, with empty elements anywhere."""
    lift, combine, read, empty = attempt
    for x in (7, -2):
        if not _same(read(lift(Fraction(x))), x):
            raise WrongAnswer(f"One number alone is its own mean, but my_read(my_lift({x})) gives "
                              f"{read(lift(Fraction(x)))}, not {x}.")
    two, four, nine = (lift(Fraction(x)) for x in (2, 4, 9))
    left, right = read(combine(combine(two, four), nine)), read(combine(two, combine(four, nine)))
    if not (_same(left, 5) and _same(right, 5)):
        raise WrongAnswer(_slip_in_mean(read(combine(two, four)), left, right))
    pairs = combine(combine(two, four), combine(nine, nine))
    if not _same(read(pairs), 6):
        raise WrongAnswer(f"The mean of 2, 4, 9, 9 is 6, but (2, 4) combined with (9, 9) reads {read(pairs)}: "
                          "the second part may stand for several numbers too.")
    _check_empty(lift, combine, read, empty)


def _slip_in_mean(two_numbers, left, right):
    story = f"The mean of 2, 4, 9 is 5, but yours reads {left} as ((2, 4), 9) and {right} as (2, (4, 9)). "
    if not _same(two_numbers, 3):
        return story + f"Already for 2, 4 it reads {two_numbers}, not 3: does everything that you carry add up?"
    if not _same(left, right):
        return story + ("The brackets matter, so it is no monoid: averaging two averages forgets how many numbers "
                        "each of them stands for. Carry that number along.")
    return story + "The brackets agree with each other, but not with the mean."


def _check_empty(lift, combine, read, empty):
    """The identity on the left, on the right, and combined with itself (padding does all three)."""
    seven = lift(Fraction(7))
    for where, build in {
        "my_empty(), then 7": lambda: combine(empty(), seven),
        "7, then my_empty()": lambda: combine(seven, empty()),
        "my_empty(), my_empty(), then 7": lambda: combine(combine(empty(), empty()), seven),
    }.items():
        try:
            got = read(build())
        except ZeroDivisionError:
            raise WrongAnswer(f"{where}: a division by zero. Nothing combined with nothing must work, padding does it; "
                              "divide only in my_read.") from None
        if not _same(got, 7):
            raise WrongAnswer(f"{where} reads {got}, not 7: an identity leaves everything as it is, so it must "
                              "stand for no numbers at all.")


def _same(got, want):
    return isclose(got, want, rel_tol=1e-9, abs_tol=1e-9)


# 1.C: the segmented lift ----------------------------------------------------------------------------------------


@exercise("1.C")
def _segmented_lift(my_segmented):
    """All four pairs of restart flags, on letters, where a wrong glue can be seen."""
    for second, first in product([(False, "b"), (True, "b")], [(False, "a"), (True, "a")]):
        got = _as_pair(my_segmented(first, second, lambda x, y: x + y), "my_segmented")
        value = "b" if second[0] else "ab"
        if got[1] != value:
            raise WrongAnswer(f"{_show(first)} then {_show(second)} must carry {value!r}; yours carries {got[1]!r}. "
                              + _slip_in_value(got[1], second[0]))
        if bool(got[0]) != (first[0] or second[0]):
            raise WrongAnswer(_slip_in_flag(first, second, bool(got[0])))


def _slip_in_value(value, restarts):
    if value == "ba":
        return "The letters changed places: combine takes the earlier one first."
    if restarts:
        return "The second part restarts, so it must forget what came before it."
    return ("The second part does not restart, so it goes on from the first. "
            "Whether the first had restarted changes what came before it, not what follows.")


def _slip_in_flag(first, second, flag):
    story = f"{_show(first)} then {_show(second)}: the letters are right, the flag says {flag}. "
    if flag:
        return story + "Nothing restarts here, so whatever comes earlier must still get through."
    return story + ("There is a restart inside these two, and the flag must remember it: otherwise an earlier 'z', "
                    f"combined with this summary, is glued on, although the | in {_show(first)} {_show(second)} "
                    "cuts it off.")


def _show(element):
    return ("|" if element[0] else "") + element[1]
