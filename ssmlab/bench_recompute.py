"""What ssmlab.bench measures of recomputation: a training step of the selective scan, forward and backward, for each
way to save (`save`, `chunk`), at several batches; its time, what it keeps, and the highest point of its memory.

The facts of a row, beside the step's time. [B] beside the inputs, which are there in any case:

    save, chunk             what is kept for the backward, and the chunk that was asked for (null: left to the op)
    apart                   [steps] between the states that are kept
    kept, predicted         [B] that stay between forward and backward beside y: measured, and ledger.saved_states
    kept_by_allocator       [B] the same, as torch's allocator counts requests (GPU only)
    peak                    [B] at the highest point of the step: y, what is kept, gradients, scratch (GPU only)
    forward_ms, backward_ms the step's halves, each alone (at one batch)
    peer_kept, peer_peak    the same of mamba_ssm, where it is installed

With a chunk asked for, the op works on a batch as it would on each row alone, so that a row keeps its bits: that alone
costs time where the batch would have filled the GPU. The rows that ask for the default distance show how much.

The peer on a GPU is mamba_ssm, on rows that save as we do by default. It recomputes as well, from states 2048 steps
apart, and has no way to store them all.
"""

from __future__ import annotations

import functools

import torch

from . import bench, ledger, selective_plans
from .bench import Case
from .bench_selective import problem
from .selective import selective_scan

_BATCHES = (1, 4, 16, 64)
_SHAPE = (2048, 1536, 16)  # length, channels, states: the sources' configuration
_SWEPT = 16  # the batch at which every chunk is measured
_FARTHEST = 256  # [steps] the sources' chunk
_CPU = (2, 256, 32, 16)
_ORDER = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")


def ways(every_chunk=True):
    """(save, chunk) of each row: everything, then states as near as the kernels want them, up to 256 steps apart.

    A chunk of None is the default; with the nearest chunk asked for, only the way the op cuts a batch is another.
    """
    if not every_chunk:
        return [("all", None), ("boundaries", None), ("boundaries", _FARTHEST), ("boundaries-bf16", None)]
    chunks = [selective_plans.BORDER]
    while chunks[-1] * 2 <= _FARTHEST:
        chunks.append(chunks[-1] * 2)
    all_states = [("all", None), ("all", chunks[0])]
    return all_states + [(save, chunk) for save in ("boundaries", "boundaries-bf16") for chunk in (None, *chunks)]


def cases(device):
    """Cases, made one after another so that only one lies in memory."""
    if device.type == "cpu":
        for save, chunk in ways(every_chunk=False):
            yield _step(_CPU, save, chunk, torch.float32, device, halves=True)
        return
    for batch in _BATCHES:
        for save, chunk in ways(batch == _SWEPT):
            yield _step((batch, *_SHAPE), save, chunk, torch.bfloat16, device, halves=batch == _SWEPT)


def _step(shape, save, chunk, dtype, device, halves):
    values = {name: value.requires_grad_() for name, value in problem(*shape, dtype, device).items()}
    inputs, dy = list(values.values()), torch.randn_like(values["u"])
    apart = 1 if save == "all" else chunk or selective_plans.BORDER
    size = dict(itemsize=dy.element_size(), save=save, chunk=apart)
    moved = ledger.selective_scan(*shape, **size).bytes + ledger.selective_scan_backward(*shape, **size).bytes

    def forward():
        return selective_scan(**values, delta_softplus=True, save=save, chunk=chunk)

    def backward(y, retain_graph=False):
        return torch.autograd.grad(y, inputs, dy, retain_graph=retain_graph)

    peer = _mamba(values, dy) if device.type == "cuda" and (save, chunk) == ("boundaries", None) else None

    def facts():
        found = {"save": save, "chunk": chunk, "apart": apart, "kept": kept(forward, inputs)}
        found["predicted"] = ledger.saved_states(*shape, save=save, chunk=apart)
        if device.type == "cuda":
            found["kept_by_allocator"], found["peak"] = peak(forward, backward)
        if peer is not None:
            found["peer_kept"], found["peer_peak"] = peak(*peer)
        if halves:
            found["forward_ms"] = bench.median_ms(forward, device, measure_ms=60)
            found["backward_ms"] = bench.median_ms(
                functools.partial(backward, forward(), retain_graph=True), device, measure_ms=60
            )
        return found

    peers = {} if peer is None else {"mamba_ssm": lambda: peer[1](peer[0]())}
    note = f"{save}, every {'step' if save == 'all' else f'{apart} steps'}{' (asked for)' if chunk else ''}"
    names = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
    return Case(
        "recompute", "step", shape, names[dtype], "columns", moved, lambda: backward(forward()), peers, note, facts
    )  # fmt: skip


def kept(forward, inputs):
    """[B] that autograd keeps of a call of forward() beside `inputs`: tensors that it saves, each storage once."""
    given = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()  # alive while its tensors are counted, so that no address comes twice
    del result
    return sum(found.values())


def peak(forward, backward):
    """(kept, highest) [B] of forward() and backward(y), as torch's GPU allocator counts requests; kept is without y.

    Requests, not blocks: an allocator hands out up to 1 MB more than was asked for.
    """

    def requested(when):
        return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]

    torch.cuda.synchronize()
    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    y = forward()
    stays = requested("current") - before - y.untyped_storage().nbytes()
    gradients = backward(y)
    highest = requested("peak") - before
    del gradients
    return stays, highest


def _mamba(values, dy):
    """(forward, backward) of mamba_ssm on the same numbers, laid out (batch, channels, length); None without it."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None

    def turned(value):
        return value.detach().transpose(1, 2).contiguous() if value.dim() == 3 else value.detach()

    arguments = [turned(values[name]).requires_grad_() for name in _ORDER]
    slope = turned(dy)
    return (
        lambda: selective_scan_fn(*arguments, delta_softplus=True),
        lambda y: torch.autograd.grad(y, arguments, slope),
    )
