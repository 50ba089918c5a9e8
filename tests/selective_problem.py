"""Inputs for the tests of the selective scan, and the recurrence as a torch loop that autograd can differentiate."""

import torch

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias", "initial_state")


def problem(batch=2, length=37, channels=6, states=16, groups=2, dtype=torch.float64, seed=0, without=(), device="cpu"):
    """A dict of the arguments of selective_scan; `without` names the optional ones that are None."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    real = torch.float64 if dtype == torch.float64 else torch.float32
    values = {
        "u": random(batch, length, channels).to(dtype),
        "delta": (0.5 * random(batch, length, channels) - 1).to(dtype),
        "A": -torch.exp(0.5 * random(channels, states)).to(real),
        "B": random(batch, length, groups, states).to(dtype),
        "C": random(batch, length, groups, states).to(dtype),
        "D": random(channels).to(real),
        "z": random(batch, length, channels).to(dtype),
        "delta_bias": (0.2 * random(channels)).to(real),
        "initial_state": random(batch, channels, states).to(real),
    }
    return {name: None if name in without else value.to(device) for name, value in values.items()}


def leaves(values):
    """The same arguments as leaves that collect gradients."""
    return {name: None if value is None else value.detach().clone().requires_grad_() for name, value in values.items()}


def loop(values, softplus=True):
    """(y, final state): one step after the other, in the dtype of the arguments."""
    u, delta, A, B, C, D, z, bias, h = (values[name] for name in NAMES)
    channels = u.shape[2]
    delta = delta if bias is None else delta + bias
    delta = torch.nn.functional.softplus(delta) if softplus else delta
    h = u.new_zeros(u.shape[0], *A.shape) if h is None else h

    def row(table, t):
        if table.dim() == 2:
            return table
        table = table[:, t]
        return table.repeat_interleave(channels // table.shape[1], 1)

    ys = []
    for t in range(u.shape[1]):
        h = torch.exp(delta[:, t, :, None] * A) * h + (delta[:, t] * u[:, t])[..., None] * row(B, t)
        ys.append((h * row(C, t)).sum(-1) + (0 if D is None else D * u[:, t]))
    y = torch.stack(ys, 1) if ys else torch.zeros_like(u)
    return y if z is None else y * torch.nn.functional.silu(z), h


def in_float64(values):
    return {name: None if value is None else value.detach().double() for name, value in values.items()}


def gradients(function, values, weights):
    """Gradients of sum(y * weights[0]) + sum(final * weights[1]) by name."""
    values = leaves(values)
    y, final = function(values)
    loss = (y * weights[0].to(y.dtype)).sum() + (final * weights[1].to(final.dtype)).sum()
    given = {name: value for name, value in values.items() if value is not None}
    return dict(zip(given, torch.autograd.grad(loss, list(given.values())), strict=True))


def error(got, want):
    """Largest difference over the largest wanted value; NaN stays NaN, so that `<=` fails."""
    got, want = got.detach().double(), want.detach().double()
    if want.numel() == 0:
        return 0.0 if got.shape == want.shape else float("nan")
    return float((got - want).abs().max() / want.abs().max().clamp_min(1e-300))
