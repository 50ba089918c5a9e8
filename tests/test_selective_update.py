"""selective_state_update: one token at a time equals the whole pass; slots, padding, and what is refused."""

import math

import pytest
import torch
from selective_problem import error, in_float64, loop, problem

import ssmlab.strictness
from ssmlab.selective import selective_scan, selective_state_update


def step(values, t, state, **more):
    at = {name: None if values[name] is None else values[name][:, t] for name in ("u", "delta", "B", "C", "z")}
    return selective_state_update(
        state, at["u"], at["delta"], values["A"], at["B"], at["C"], values["D"], at["z"], values["delta_bias"], True,
        **more,
    )  # fmt: skip


@pytest.mark.parametrize("length", [1, 29, 30, 31, 64, 2048])
@pytest.mark.parametrize("dtype, limit", [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_steps_equal_the_parallel_pass(length, dtype, limit):
    values = problem(length=length, dtype=dtype, channels=2)
    y, final = selective_scan(**values, delta_softplus=True, return_final_state=True)
    exact_y, exact = loop(in_float64(values))
    assert error(y, exact_y) <= limit and error(final, exact) <= limit
    state = values["initial_state"].clone()
    rows = torch.stack([step(values, t, state) for t in range(length)], 1)
    assert error(rows, y) <= limit and error(state, final) <= limit
    assert error(rows, exact_y) <= limit and error(state, exact) <= limit


@pytest.mark.parametrize("without", [("D",), ("z",), ("delta_bias",)])
def test_optional_arguments_may_be_missing(without):
    values = problem(length=3, without=without)
    y, _ = selective_scan(**values, delta_softplus=True, return_final_state=True)
    state = values["initial_state"].clone()
    assert error(torch.stack([step(values, t, state) for t in range(3)], 1), y) <= 1e-13


@pytest.mark.parametrize("states", [3, 20, 257])
def test_odd_numbers_of_states_and_strided_states(states):
    values = problem(length=2, states=states, groups=1)
    y, final = selective_scan(**values, delta_softplus=True, return_final_state=True)
    pool = torch.full((2, 6, states + 3), 7.0, dtype=torch.float64)
    state = pool[..., 1 : states + 1]
    state.copy_(values["initial_state"])
    rows = torch.stack([step(values, t, state) for t in range(2)], 1)
    assert error(rows, y) <= 1e-13 and error(state, final) <= 1e-13
    assert (pool[..., 0] == 7).all() and (pool[..., states + 1 :] == 7).all()


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_slots_are_touched_if_they_are_named_and_not_otherwise(index_type):
    values = problem(batch=3, length=1, dtype=torch.float32)
    pool = torch.full((5, 6, 16), float("nan"))
    pool[3], pool[0] = values["initial_state"][0], values["initial_state"][2]
    before = pool.clone()
    indices = torch.tensor([3, -1, 0], dtype=index_type)
    y = step(values, 0, pool, state_indices=indices)
    wanted_y, wanted = selective_scan(**values, delta_softplus=True, return_final_state=True)
    assert not y[1].any()
    for row, slot in ((0, 3), (2, 0)):
        assert torch.equal(y[row], wanted_y[row, 0]) and torch.equal(pool[slot], wanted[row])
    untouched = [1, 2, 4]
    assert torch.equal(pool[untouched].view(torch.int32), before[untouched].view(torch.int32))


@pytest.mark.parametrize("index_type", [None, torch.int32, torch.int64])
def test_a_slot_that_is_used_again_is_not_read(index_type):
    values = problem(batch=3, length=1, dtype=torch.float32)
    known = torch.tensor([True, False, True])
    indices = None if index_type is None else torch.tensor([3, 1, 0], dtype=index_type)
    pool = torch.full((3 if indices is None else 5, 6, 16), float("nan"))
    slots = [0, 1, 2] if indices is None else [3, 1, 0]
    for row in (0, 2):
        pool[slots[row]] = values["initial_state"][row]
    y = step(values, 0, pool, state_indices=indices, has_initial_state=known)
    values["initial_state"] = values["initial_state"] * known[:, None, None]
    wanted_y, wanted = selective_scan(**values, delta_softplus=True, return_final_state=True)
    assert torch.equal(y, wanted_y[:, 0]) and torch.equal(pool[slots], wanted)


@pytest.mark.parametrize(
    "known, kind, words",
    [
        (torch.tensor([True, False, True]), ValueError, r"has_initial_state has shape \(3,\)"),
        (torch.tensor([1, 0]), TypeError, "has_initial_state must be a torch tensor of bool"),
        ([True, False], TypeError, "has_initial_state must be a torch tensor of bool"),
    ],
)
def test_which_rows_have_a_state_is_one_bool_a_row(known, kind, words):
    values = problem(length=1, dtype=torch.float32)
    with pytest.raises(kind, match=words):
        step(values, 0, values["initial_state"].clone(), has_initial_state=known)


@pytest.mark.parametrize("state_type", [torch.bfloat16, torch.float16])
def test_a_narrow_state_is_computed_in_float32_and_rounded_once(state_type):
    values = problem(length=1, dtype=torch.float32)
    state = values["initial_state"].to(state_type)
    values["initial_state"] = state.float()
    wanted_y, wanted = selective_scan(**values, delta_softplus=True, return_final_state=True)
    y = step(values, 0, state)
    assert error(y, wanted_y[:, 0]) <= 1e-6
    assert torch.equal(state, wanted.to(state_type))


@pytest.mark.parametrize(
    "indices, words",
    [
        ([0, 0], "state_indices has slot 0 twice"),
        ([0, 5], "state_indices has 5: state has 2 slots, 0 to 1"),
    ],
)
def test_slots_that_would_go_wrong_are_refused(indices, words):
    values = problem(length=1, dtype=torch.float32)
    state = values["initial_state"].clone()
    with pytest.raises(ValueError, match=words):
        step(values, 0, state, state_indices=torch.tensor(indices))
    assert torch.equal(state, values["initial_state"])


def test_a_state_in_float32_moves_where_one_in_bfloat16_sticks():
    one = torch.ones(1, 1)
    states = {kind: torch.zeros(1, 1, 1, dtype=kind) for kind in (torch.float32, torch.bfloat16)}
    for state in states.values():
        for _ in range(1000):                               # h <- 0.999 h + 0.001
            selective_state_update(state, one, one, one * math.log(0.999), one * 0.001, one)
    assert abs(float(states[torch.float32]) - 0.6323046) <= 1e-5
    assert float(states[torch.bfloat16]) == 0.25            # what a caller gets who keeps the state in bfloat16


def test_inputs_in_bfloat16_do_not_round_the_state():
    half = torch.ones(1, 1, dtype=torch.bfloat16)
    state, rate = torch.zeros(1, 1, 1), torch.full((1, 1), math.log(0.999))
    for _ in range(1000):
        selective_state_update(state, half, half, rate, half * 0.001, half)
    increment = float(half * 0.001)
    assert abs(float(state) - increment / 0.001 * 0.6323046) <= 1e-5


def test_complex_weights_are_refused_by_name():
    values = problem(length=1, dtype=torch.float32)
    values["A"] = values["A"].to(torch.complex64)
    with pytest.raises(TypeError, match="A has dtype torch.complex64: complex weights are not supported"):
        step(values, 0, values["initial_state"].clone())


def test_checks_that_read_values_can_be_turned_off():
    assert ssmlab.strictness.careful()
    with ssmlab.strictness.validation("fast"):
        assert not ssmlab.strictness.careful()
    assert ssmlab.strictness.careful()
    with pytest.raises(ValueError, match="level is 'lax'"):
        with ssmlab.strictness.validation("lax"):
            pass


def test_a_wanted_gradient_is_refused_aloud():
    values = problem(length=1, dtype=torch.float32)
    values["u"].requires_grad_()
    with pytest.raises(RuntimeError, match="has no gradient"):
        step(values, 0, values["initial_state"].clone())


@pytest.mark.parametrize(
    "change, words",
    [
        ({"state": torch.zeros(2, 6, 15)}, r"state has shape \(2, 6, 15\)"),
        ({"state": torch.zeros(3, 6, 16)}, "state has 3 slots, x has batch 2"),
        ({"x": torch.zeros(2, 6, 1)}, r"x has shape \(2, 6, 1\)"),
        ({"B": torch.zeros(2, 4, 16)}, "B has 4 groups"),
        ({"state_indices": torch.zeros(3, dtype=torch.int64)}, r"state_indices has shape \(3,\)"),
    ],
)
def test_errors_name_the_argument_and_the_rule(change, words):
    values = problem(length=1, dtype=torch.float32)
    given = {
        "state": values["initial_state"], "x": values["u"][:, 0], "dt": values["delta"][:, 0], "A": values["A"],
        "B": values["B"][:, 0], "C": values["C"][:, 0],
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        selective_state_update(**given | change)


def test_the_operator_keeps_its_promises_to_torch():
    values = problem(length=1, dtype=torch.float32)
    arguments = (
        values["initial_state"], values["u"][:, 0], values["delta"][:, 0], values["A"], values["B"], values["C"],
        values["D"], values["z"][:, 0], values["delta_bias"], True, None,
    )  # fmt: skip
    torch.library.opcheck(torch.ops.ssmlab.selective_state_update.default, arguments)


def test_a_projection_that_is_sliced_into_x_dt_b_and_c_is_no_copy():
    values = problem(batch=3, length=1, groups=1, dtype=torch.float32)
    want = step(values, 0, values["initial_state"].clone())
    wide = torch.zeros(3, 1 + 6 + 6 + 16 + 16)
    at, sliced = 1, dict(values)
    for name, width in (("u", 6), ("delta", 6), ("B", 16), ("C", 16)):
        wide[:, at : at + width] = values[name].reshape(3, width)
        sliced[name] = wide[:, None, at : at + width]
        at += width
    for _ in range(3):
        assert torch.equal(step(sliced, 0, values["initial_state"].clone()), want)


def test_no_rows_and_no_channels():
    for batch, channels in ((0, 6), (2, 0)):
        values = problem(batch=batch, length=1, channels=channels, groups=1, dtype=torch.float32)
        assert step(values, 0, values["initial_state"]).shape == (batch, channels)
