"""What ssmlab.bench measures of the selective scan and its one-token update: the issue's shapes.

The peer on a GPU is mamba_ssm, if it is installed. On a CPU it is the loop that people write in plain torch.
All cases have z, D, delta_bias and softplus. Their states forget what lies some thousand steps back.
The facts of a row, on a GPU:

    do_bench          {"ours", "mamba_ssm": [ms]} as triton.testing.do_bench takes them: around a call, so that the CPU
                      counts where it is slower than the GPU. Left out where Triton is missing.
    slow_decay        of a forward over one row, [ms] of ours where delta is 400 times smaller. Such a row is cut into
                      segments, and the first pass over them goes back only as far as something is left of a step:
                      here that is all the way.
    autograd_alone    of a backward, [ms] as do_bench takes it: of a torch.autograd.Function with the same inputs whose
                      backward only asks for memory, which is the least that such a Function does
    peak, peer_peak   of a backward: [B] at the highest point of forward and backward together, beside the inputs
"""

from __future__ import annotations

import functools

import torch

from . import ledger
from .bench import Case, do_bench_ms, median_ms
from .selective import selective_scan, selective_state_update

_GPU = [  # batch, length, channels, states
    (16, 2048, 1536, 16), (64, 512, 1536, 16), (8, 8192, 2048, 16), (2, 4096, 5120, 16), (1, 2048, 1536, 16),
    (1, 65536, 1536, 16), (1, 2**20, 64, 16), (16, 2048, 1536, 64),
]  # fmt: skip
_ROWS = (1, 64, 512, 4096)  # of the update, with 4096 channels
_NAMES = {torch.bfloat16: "bfloat16", torch.float32: "float32"}
_ORDER = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")


def problem(batch, length, channels, states, dtype, device):
    """The arguments of selective_scan by name, (batch, length, channels) contiguous."""
    generator = torch.Generator(device=device).manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator, device=device)

    return {
        "u": random(batch, length, channels).to(dtype),
        "delta": (0.5 * random(batch, length, channels) - 2).to(dtype),
        "A": -torch.exp(0.5 * random(channels, states)),
        "B": random(batch, length, states).to(dtype),
        "C": random(batch, length, states).to(dtype),
        "D": random(channels),
        "z": random(batch, length, channels).to(dtype),
        "delta_bias": 0.2 * random(channels),
    }


def cases(device):
    """Cases, made one after another so that only one lies in memory."""
    if device.type == "cpu":
        yield _forward(2, 256, 64, 16, torch.float32, device)
        yield _update(16, 256, device)
        return
    for dtype in _NAMES:
        for size in _GPU:
            yield _forward(*size, dtype, device)
            yield _backward(*size, dtype, device)
    for rows in _ROWS:
        yield _update(rows, 4096, device)


def _forward(batch, length, channels, states, dtype, device):
    values = problem(batch, length, channels, states, dtype, device)
    on_gpu = device.type == "cuda"
    peers = {"mamba_ssm": _mamba(values)} if on_gpu else {"torch, a loop over steps": lambda: _loop(values)}
    moved = ledger.selective_scan(batch, length, channels, states, itemsize=values["u"].element_size()).bytes

    def ours():
        with torch.no_grad():
            selective_scan(**values, delta_softplus=True)

    def facts():
        found = _facts(ours, peers, device)
        if on_gpu and batch == 1:
            slow = values | {"delta": values["delta"] - 6}
            with torch.no_grad():
                found["slow_decay"] = median_ms(lambda: selective_scan(**slow, delta_softplus=True), device)
        return found

    shape = (batch, length, channels, states)
    return Case("selective_scan", "forward", shape, _NAMES[dtype], "columns", moved, ours, peers, facts=facts)


def _backward(batch, length, channels, states, dtype, device):
    values = {
        name: value.requires_grad_() for name, value in problem(batch, length, channels, states, dtype, device).items()
    }
    y = selective_scan(**values, delta_softplus=True)
    dy, inputs = torch.randn_like(y), list(values.values())
    cost = ledger.selective_scan_backward(batch, length, channels, states, itemsize=y.element_size())

    def ours():
        torch.autograd.grad(y, inputs, dy, retain_graph=True)

    def facts():
        from .bench_recompute import peak  # which takes problem() from here

        found = _facts(ours, peers, device)
        idle = _OnlyMemory.apply(*inputs)
        alone = do_bench_ms({"alone": lambda: torch.autograd.grad(idle, inputs, dy, retain_graph=True)})
        found |= {"autograd_alone": alone["alone"]} if alone else {}
        found["peak"] = peak(lambda: selective_scan(**values, delta_softplus=True),
                             lambda y: torch.autograd.grad(y, inputs, dy))[1]  # fmt: skip
        return found if step is None else found | {"peer_peak": peak(*step)[1]}

    shape = (batch, length, channels, states)
    step = _mamba_step(values, dy)
    peers = {"mamba_ssm": None if step is None else functools.partial(step[1], step[0](), retain_graph=True)}
    return Case("selective_scan", "backward", shape, _NAMES[dtype], "columns", cost.bytes, ours, peers, facts=facts)


class _OnlyMemory(torch.autograd.Function):
    """Keeps its inputs, and does nothing but ask for the memory of its results."""

    @staticmethod
    def forward(ctx, *inputs):
        ctx.save_for_backward(*inputs)
        return torch.empty_like(inputs[0])

    @staticmethod
    def backward(ctx, dy):
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


def _facts(ours, peers, device):
    """The facts that every row has."""
    found = do_bench_ms({"ours": ours, **peers}) if device.type == "cuda" else {}
    return {"do_bench": found} if found else {}


def _mamba(values):
    """mamba_ssm's forward on the same numbers; None where it is not installed."""
    step = _mamba_step({name: value.detach() for name, value in values.items()}, None)
    return None if step is None else step[0]


def _mamba_step(values, dy):
    """(forward, backward) of mamba_ssm on the same numbers, laid out (batch, channels, length); None without it."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None

    def turned(value):
        return value.detach().transpose(1, 2).contiguous() if value.dim() == 3 else value.detach()

    arguments = [turned(values[name]).requires_grad_(values[name].requires_grad) for name in _ORDER]
    slope = None if dy is None else turned(dy)
    return (
        lambda: selective_scan_fn(*arguments, delta_softplus=True),
        lambda y, retain_graph=False: torch.autograd.grad(y, arguments, slope, retain_graph=retain_graph),
    )


def _update(rows, channels, device):
    values = problem(rows, 1, channels, 16, torch.bfloat16, device)
    state = torch.randn(rows, channels, 16, device=device)
    x, dt, B, C, z = (values[name][:, 0] for name in ("u", "delta", "B", "C", "z"))
    A, D, bias = values["A"], values["D"], values["delta_bias"]

    def ours():
        with torch.no_grad():
            selective_state_update(state, x, dt, A, B, C, D, z, bias, True)

    peers = {}
    try:
        from mamba_ssm.ops.triton.selective_state_update import selective_state_update as theirs

        peers["mamba_ssm"] = lambda: theirs(state, x, dt, A, B, C, D, z, bias, True)
    except ImportError:
        pass
    moved = ledger.state_update(rows, channels, 16).bytes
    facts = functools.partial(_facts, ours, peers, device)
    return Case(
        "selective_state_update", "forward", (rows, channels, 16), "bfloat16", "columns", moved, ours, peers,
        facts=facts,
    )  # fmt: skip


def _loop(values):
    """The recurrence as a Python loop over tensors."""
    delta = torch.nn.functional.softplus(values["delta"] + values["delta_bias"])
    h = torch.zeros(*delta.shape[::2], values["A"].shape[1], device=delta.device)
    rows = []
    for t in range(delta.shape[1]):
        step = delta[:, t, :, None]
        h = torch.exp(step * values["A"]) * h + step * values["u"][:, t, :, None] * values["B"][:, t, None]
        rows.append((h * values["C"][:, t, None]).sum(-1))
    y = torch.stack(rows, 1) + values["D"] * values["u"]
    return y * torch.nn.functional.silu(values["z"])
