"""Rows cut into segments: what enters each, as selective_totals finds it by walking back from where a segment ends."""

import math

import pytest
import torch
from selective_problem import error, in_float64, loop, problem

from ssmlab import selective_kernels
from ssmlab.selective_kernels import Inputs
from ssmlab.selective_plans import Variant

STEPS, SEGMENTS = 64, 3
VARIANT = Variant(lanes=4, own=2, threads=64, tile=8, resident=1, many=2)
ALONE = Variant(lanes=1, own=8, threads=32, tile=16, resident=1)


def inputs(softplus=True, **changes):
    values = problem(batch=2, length=STEPS * SEGMENTS - 5, channels=12, states=6, groups=1, dtype=torch.float32)
    values |= changes
    given = {name: value for name, value in values.items() if name != "initial_state"}
    return values, Inputs(**given, softplus=softplus, start=None, finish=None)


def enters(values, softplus=True):
    """The states before each segment, from the loop in float64."""
    wide, h, found = in_float64(values), values["initial_state"].double(), []
    for first in range(0, STEPS * SEGMENTS, STEPS):
        found.append(h)
        piece = {
            name: value[:, first : first + STEPS] if name in ("u", "delta", "B", "C", "z") else value
            for name, value in wide.items()
        }
        h = loop(piece | {"initial_state": h}, softplus)[1]
    return torch.stack(found, 1)


@pytest.mark.parametrize("variant", [VARIANT, ALONE], ids=["4 lanes", "1 lane"])
@pytest.mark.parametrize("rate", [1.0, 30.0], ids=["the walk goes through", "the walk ends early"])
def test_the_states_that_enter_the_segments_are_those_of_the_loop(variant, rate):
    values, _ = inputs()
    values, x = inputs(A=rate * values["A"])
    found = selective_kernels.totals(x, (STEPS, SEGMENTS), values["initial_state"], variant=variant)
    assert error(found, enters(values)) <= 1e-5


@pytest.mark.parametrize("variant", [VARIANT, ALONE], ids=["4 lanes", "1 lane"])
def test_what_is_multiplied_by_0_is_not_even_looked_at(variant):
    """exp(-150 log 2) is 0 in float32: behind the last 30 steps nothing of a segment is left if delta A <= -5."""
    values, _ = inputs()
    values["A"] = -1 - values["A"].abs()
    values["delta"] = torch.full_like(values["delta"], 6.0)
    clean = enters(values)
    for segment in range(SEGMENTS - 1):
        values["u"][:, segment * STEPS : segment * STEPS + 8] = math.nan
    _, x = inputs(**values)
    found = selective_kernels.totals(x, (STEPS, SEGMENTS), values["initial_state"], variant=variant)
    assert error(found, clean) <= 1e-5


def test_a_state_that_does_not_decay_is_walked_to_the_end():
    values, _ = inputs()
    values["A"][:, 1:] *= 100
    values["A"][3, 0] = 0.0                                 # one place of all that keeps what it got
    _, x = inputs(**values)
    found = selective_kernels.totals(x, (STEPS, SEGMENTS), values["initial_state"], variant=VARIANT)
    assert error(found[:, :, 3, 0], enters(values)[:, :, 3, 0]) <= 1e-5


@pytest.mark.parametrize("softplus", [True, False], ids=["A > 0", "delta < 0"])
def test_what_is_0_stays_0_where_factors_are_infinite(softplus):
    values, _ = inputs()
    sign = 1 if softplus else -1
    values["A"] = sign * (4 * values["A"].abs() + 1)
    values["delta"] = torch.full_like(values["delta"], 3.0 * sign)
    values["initial_state"].zero_()
    for segment in range(SEGMENTS):                         # only the last two steps of a segment bring anything
        values["u"][:, segment * STEPS : segment * STEPS + STEPS - 2] = 0
    values["u"][:, STEPS:] = 0
    _, x = inputs(softplus, **values)
    found = selective_kernels.totals(x, (STEPS, 2), values["initial_state"], variant=VARIANT)
    assert found.isfinite().all() and error(found, enters(values, softplus)[:, :2]) <= 1e-5


@pytest.mark.parametrize("variant", [VARIANT, ALONE], ids=["4 lanes", "1 lane"])
def test_a_forward_that_links_the_segments_itself_gives_the_bits_of_the_separate_pass(monkeypatch, variant):
    values, x = inputs()
    finals = torch.empty_like(values["initial_state"]), torch.empty_like(values["initial_state"])
    segment = (STEPS // 2, 2 * SEGMENTS)
    itself = selective_kernels.forward(x, values["initial_state"], finals[0], segment=segment, variant=variant)
    monkeypatch.setattr(selective_kernels, "FEW_SEGMENTS", 1)
    apart = selective_kernels.forward(x, values["initial_state"], finals[1], segment=segment, variant=variant)
    assert torch.equal(itself, apart) and torch.equal(*finals)
    wanted_y, wanted_final = loop(in_float64(values))
    assert error(itself, wanted_y) <= 1e-5 and error(finals[0], wanted_final) <= 1e-5
