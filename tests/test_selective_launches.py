"""The backward in several launches, whose parts of dB and dC lie where du and ddelta are written later."""

import pytest
import torch
from selective_problem import problem

from ssmlab import selective_kernels
from ssmlab.selective_kernels import Cut, Inputs

LENGTH = 150
CUTS = [Cut(96, LENGTH, True), Cut(64, 96, True), Cut(32, 64), Cut(0, 32)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def gradients(device, states, cuts, dtype=torch.float32):
    values = problem(batch=3, length=LENGTH, channels=128, states=states, groups=1, dtype=dtype, device=device)
    initial = values.pop("initial_state")
    x = Inputs(*values.values(), True, None, None)
    variant = selective_kernels.backward_variant(states, initial.device)
    borders, final = torch.empty(3, 5, 128, states, device=device), torch.empty_like(initial)
    y = selective_kernels.forward(x, initial, final, borders=borders)
    generator = torch.Generator().manual_seed(1)
    dy, d_final = (torch.randn(like.shape, generator=generator).to(like) for like in (y, final))
    return selective_kernels.backward(
        x, dy, d_final, borders, initial, spacing=selective_kernels.BORDER, variant=variant, cuts=cuts
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("states", [4, 16, 40])
def test_several_launches_give_the_bits_of_one(device, states):
    """A sum over steps goes on where the launch before has left it; those of D and delta_bias begin anew."""
    once = gradients(device, states, [Cut(0, LENGTH)])
    often = gradients(device, states, CUTS)
    for name in ("du", "ddelta", "dz", "dA", "dB", "dC", "d_initial"):
        assert torch.equal(getattr(once, name), getattr(often, name)), name
    for name in ("dD", "d_bias"):
        torch.testing.assert_close(getattr(often, name), getattr(once, name), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_parts_in_a_half_type_fit_where_they_are_put(device):
    once, often = (gradients(device, 4, cuts, torch.bfloat16) for cuts in ([Cut(0, LENGTH)], CUTS))
    assert torch.equal(once.dB, often.dB) and torch.equal(once.dC, often.dC) and torch.equal(once.du, often.du)
