"""The short way past torch's dispatcher: taken where nobody listens, and only there."""

import re

import pytest
import torch
from selective_problem import gradients, leaves, problem
from torch.utils._python_dispatch import TorchDispatchMode

from ssmlab import replay, selective
from ssmlab.selective import selective_scan, selective_state_update

FORWARD, BACKWARD, UPDATE = (
    f"ssmlab::selective_{name}" for name in ("scan_forward", "scan_backward", "state_update")
)


def scan(values, **more):
    return selective_scan(**values, delta_softplus=True, return_final_state=True, **more)


def small(**more):
    return problem(length=9, dtype=torch.float32, **more)


def step(values, state):
    at = {name: values[name][:, 0] for name in ("u", "delta", "B", "C", "z")}
    return selective_state_update(
        state, at["u"], at["delta"], values["A"], at["B"], at["C"], values["D"], at["z"], values["delta_bias"], True
    )


class Listening(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.heard.append(function._schema.name)
        return function(*args, **(kwargs or {}))


def operators(function):
    """Names of our operators that torch's dispatcher was asked for."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return {event.key for event in profile.key_averages() if event.key.startswith("ssmlab::")}


def test_plain_tensors_take_the_short_way_and_give_the_same():
    values = small()
    weights = torch.ones(2, 9, 6), torch.ones(2, 6, 16)

    def everything():
        state = values["initial_state"].clone()
        return gradients(scan, values, weights), scan(values), step(values, state), state

    assert not operators(everything)
    for _ in range(3):
        short = everything()
    with Listening() as listener:
        long = everything()
    assert {FORWARD, BACKWARD, UPDATE} <= set(listener.heard)
    assert all(torch.equal(short[0][name], long[0][name]) for name in long[0])
    assert all(torch.equal(a, b) for a, b in zip((*short[1], *short[2:]), (*long[1], *long[2:]), strict=True))


def test_a_listener_that_comes_for_the_backward_hears_it():
    given = leaves(small())
    y, _ = scan(given)
    with Listening() as listener:
        torch.autograd.grad(y.sum(), list(given.values()))
    assert BACKWARD in listener.heard


def test_fake_tensors_stay_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    values = small()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {name: mode.from_tensor(value) for name, value in values.items()}
        y, final = scan(fake)
    assert type(y) is type(final) is type(fake["u"]) and y.shape == (2, 9, 6) and final.shape == (2, 6, 16)


def test_a_subclass_is_asked():
    class Loud(torch.Tensor):
        pass

    values = small()
    want = scan(values)[0]
    loud = values | {"u": values["u"].as_subclass(Loud)}
    assert torch.equal(scan(loud)[0], want)
    assert operators(lambda: scan(loud)) == {FORWARD}


def test_a_pending_minus_sign_is_not_lost():
    values = small()
    want = scan(values | {"u": -values["u"]})[0]
    negative = torch.complex(torch.zeros_like(values["u"]), values["u"]).conj().imag
    assert negative.is_neg()
    same_kind = torch.empty_strided(negative.shape, negative.stride()).copy_(negative)
    for _ in range(3):
        assert torch.equal(scan(values | {"u": same_kind})[0], want)
        assert torch.equal(scan(values | {"u": negative})[0], want)


def test_a_forward_mode_derivative_is_refused_and_not_dropped():
    values = small()
    scan(values)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(values["u"], torch.ones_like(values["u"]))
        with pytest.raises((RuntimeError, NotImplementedError), match="jvp|forward"):
            scan(values | {"u": dual})


def test_saved_tensors_may_come_back_laid_out_differently():
    values = small()
    turned = values | {"u": values["u"].transpose(1, 2).contiguous().transpose(1, 2)}
    weights = torch.ones(2, 9, 6), torch.ones(2, 6, 16)
    want = gradients(scan, turned, weights)
    for _ in range(3):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous().clone(), lambda t: t):
            got = gradients(scan, turned, weights)
        assert all(torch.equal(got[name], want[name]) for name in want)


def test_gradients_that_nobody_wants_are_none_and_missing_outputs_count_as_zero():
    for _ in range(3):
        values = small()
        values["A"].requires_grad_()
        y, final = scan(values)
        (through_y,) = torch.autograd.grad(y.sum(), values["A"], retain_graph=True)
        (through_final,) = torch.autograd.grad(final.sum(), values["A"], retain_graph=True)
        (both,) = torch.autograd.grad(y.sum() + final.sum(), values["A"])
        assert torch.allclose(through_y + through_final, both, rtol=1e-5, atol=1e-6)
        assert through_final.any()


def test_what_was_refused_once_is_refused_again():
    values = small()
    for _ in range(3):
        scan(values)
        for name, value in (("chunk", 48), ("chunk", [32]), ("chunk", 32.0), ("save", "some"), ("save", [])):
            with pytest.raises(ValueError, match=f"{name} is {re.escape(repr(value))}: it must be"):
                scan(values, **{name: value})
        scan(values, chunk=32)


def test_the_update_counts_as_a_change_of_the_state():
    values = small()
    state = values["initial_state"].clone()
    for _ in range(3):
        before = state._version
        step(values, state)
        assert state._version > before
    with torch.inference_mode():
        step(values, values["initial_state"].clone())
    saved = values["initial_state"].clone()
    values["u"].requires_grad_()
    y, _ = scan(values | {"initial_state": saved})
    with torch.no_grad():
        step(values, saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_changes_of_inputs_are_noticed_by_the_backward():
    values = leaves(small())
    for _ in range(3):
        y, _ = scan(values)
        with torch.no_grad():
            values["A"].mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_kinds_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(replay, "MOST_KINDS", 3)
    monkeypatch.setattr(selective, "_known", {})
    for length in range(1, 9):
        values = problem(length=length, dtype=torch.float32)
        assert torch.equal(scan(values)[0], scan(values)[0])
        assert len(selective._known) <= 3
