"""The sweep of mamba's own tests (batch 2, 4 channels, 8 states), and what it leaves out: flags, types, odd lengths."""

import itertools

import pytest
import torch
from selective_problem import error, gradients, in_float64, loop, problem

from ssmlab.selective import selective_scan

OPTIONAL = ("D", "z", "delta_bias", "initial_state")
HALVES = (torch.float16, torch.bfloat16)
OUTPUT = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
GRADIENT = {torch.float32: 4e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}


def compare(values, softplus=True, backward=True, **more):
    """y, final state and all gradients against the loop in float64."""
    dtype, exact = values["u"].dtype, in_float64(values)

    def scan(given):
        return selective_scan(**given, delta_softplus=softplus, return_final_state=True, **more)

    (y, final), (want_y, want_final) = scan(values), loop(exact, softplus)
    assert y.dtype == dtype and final.dtype == torch.float32
    assert error(y, want_y) <= OUTPUT[dtype] and error(final, want_final) <= 1e-5
    if not backward:
        return
    generator = torch.Generator().manual_seed(2)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in (want_y, want_final)]
    got, want = gradients(scan, values, weights), gradients(lambda given: loop(given, softplus), exact, weights)
    for name in want:
        assert error(got[name], want[name]) <= GRADIENT[dtype], name


def of_mamba(length, groups, dtype=torch.float32, **more):
    return problem(batch=2, length=length, channels=4, states=8, groups=groups, dtype=dtype, **more)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("length", [8, 151, 372, 1134])
def test_lengths_and_groups(length, groups):
    compare(of_mamba(length, groups))


@pytest.mark.parametrize("length", [784, 4096, 4097])
def test_long_rows(length):
    compare(of_mamba(length, 2), backward=length < 1000)


@pytest.mark.parametrize("on", list(itertools.product((0, 1), repeat=5)), ids=str)
def test_every_combination_of_flags(on):
    *given, softplus = on
    values = of_mamba(35, 2, without=[name for name, wanted in zip(OPTIONAL, given, strict=True) if not wanted])
    if not softplus:
        values["delta"] = values["delta"].exp() + 1         # steps that are positive by themselves, whatever the bias
    compare(values, bool(softplus))


@pytest.mark.parametrize("without", [(), OPTIONAL], ids=["all", "none"])
@pytest.mark.parametrize("length", [1, 37, 151])
@pytest.mark.parametrize("dtype", HALVES)
def test_half_types(dtype, length, without):
    compare(of_mamba(length, 2, dtype, without=without))


@pytest.mark.parametrize("fixed", ["B", "C", "BC"])
def test_fixed_tables_keep_the_precision_of_weights(fixed):
    values = of_mamba(37, 2, torch.bfloat16)
    for name in fixed:
        values[name] = values["A"].roll(ord(name), 0).clone()
    compare(values)


@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_of_any_type_beside_half_inputs(weights):
    values = of_mamba(20, 2, torch.bfloat16)
    for name in ("A", "D", "delta_bias"):
        values[name] = values[name].to(weights)
    compare(values)


@pytest.mark.parametrize("states", [1, 16, 19, 257])
def test_numbers_of_states_with_groups_and_half_types(states):
    compare(problem(batch=1, length=33, channels=4, states=states, groups=2, dtype=torch.bfloat16))
