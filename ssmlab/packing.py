"""Several sequences in one row: cu_seqlens, seq_idx and padding are three spellings of one thing.

    lengths      3, 0, 2                 how long each sequence is
    cu_seqlens   0, 3, 3, 5              where each begins, and the end: one row holds them all, one state a sequence
    seq_idx      0, 0, 0, 2, 2           a label a step; a new label begins a new sequence; negative labels are padding

What counts (and is tested): padding is neither history nor decay, its output is 0, whatever lies there is never read;
padding inside a sequence does not end it. With seq_idx a row has one state: it goes into the row's first sequence and
comes out of the last one. With cu_seqlens every sequence has its own, and an empty sequence hands its state through.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from . import strictness

# Bits of a mark, the same as in kernels_cu/scan_step.cuh.
FIRST, FIRST_FROM_SLOT, LAST, LAST_TO_SLOT, PADDING = 1, 2, 4, 8, 16
SLOT_SHIFT = 5
MOST_SLOTS = 2 ** (31 - SLOT_SHIFT)


@dataclass(frozen=True)
class Packing:
    """marks, before: int32 (batch, length), what each step is and where the real step before it lies (-1: none).

    slots   how many states there are; a mark's slot is one of them
    """

    marks: torch.Tensor
    before: torch.Tensor
    slots: int


def cu_seqlens_of(lengths):
    """Lengths (n,) -> cu_seqlens (n + 1,) int32, on the lengths' device.

    >>> cu_seqlens_of([3, 0, 2]).tolist()
    [0, 3, 3, 5]
    """
    lengths = torch.as_tensor(lengths)
    if lengths.dim() != 1 or lengths.dtype.is_floating_point:
        shape = tuple(lengths.shape)
        raise ValueError(f"lengths has shape {shape} and dtype {lengths.dtype}: it must be one row of integers")
    zero = torch.zeros(1, dtype=torch.int64, device=lengths.device)
    return torch.cat([zero, lengths.to(torch.int64).cumsum(0)]).to(torch.int32)


def seq_idx_of(cu_seqlens, length=None):
    """cu_seqlens (n + 1,) -> seq_idx (1, length) int32; steps behind the last sequence get -1.

    >>> seq_idx_of(torch.tensor([0, 3, 3, 5]), 6).tolist()
    [[0, 0, 0, 2, 2, -1]]
    """
    _check_cu_seqlens(cu_seqlens, None)
    length = int(cu_seqlens[-1]) if length is None else length
    steps = torch.arange(length, device=cu_seqlens.device)
    label = torch.searchsorted(cu_seqlens[1:].to(torch.int64).contiguous(), steps, right=True)
    return torch.where(label < cu_seqlens.numel() - 1, label, -1).to(torch.int32)[None]


def split(x, cu_seqlens, dim=1):
    """The sequences of a packed tensor as views, one a sequence, empty ones too."""
    _check_cu_seqlens(cu_seqlens, x.shape[dim])
    borders = cu_seqlens.tolist()
    return [x.narrow(dim, begin, end - begin) for begin, end in zip(borders[:-1], borders[1:], strict=True)]


def _check_cu_seqlens(cu_seqlens, length):
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 1 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"cu_seqlens has shape {tuple(cu_seqlens.shape)} and dtype {cu_seqlens.dtype}: "
            "it must be one row of int32 or int64 with one entry more than there are sequences"
        )
    if length is None:
        return
    borders = cu_seqlens.tolist()
    if borders[0] != 0 or any(end < begin for begin, end in zip(borders[:-1], borders[1:], strict=True)):
        raise ValueError(f"cu_seqlens is {_shown(borders)}: it must begin at 0 and never fall")
    if borders[-1] > length:
        raise ValueError(f"cu_seqlens ends at {borders[-1]}, the row has {length} steps: it must not end behind them")


def _shown(values, most=8):
    return str(values) if len(values) <= most else f"[{', '.join(map(str, values[:most]))}, ...]"


def from_cu_seqlens(cu_seqlens, length, *, reverse=False):
    """Packing of one row of `length` steps that holds the sequences one after another. Raises ValueError.

    The checks that read the values wait for a GPU; inside ssmlab.validation("fast") they are left out.
    """
    _check_cu_seqlens(cu_seqlens, length if strictness.careful() else None)
    slots = cu_seqlens.numel() - 1
    _check_slots(slots)
    borders = cu_seqlens.to(torch.int64)
    steps = torch.arange(length, device=cu_seqlens.device)
    slot = torch.searchsorted(borders[1:].contiguous(), steps, right=True)
    real = slot < slots
    slot = torch.where(real, slot, 0)
    if slots == 0:
        marks = torch.full((1, length), PADDING, dtype=torch.int32, device=cu_seqlens.device)
        return Packing(marks, torch.full_like(marks, -1), 0)
    begins, ends = steps == borders[slot], steps == borders[slot + 1] - 1
    first, last = (ends, begins) if reverse else (begins, ends)
    marks = first * (FIRST | FIRST_FROM_SLOT) + last * (LAST | LAST_TO_SLOT) + (slot << SLOT_SHIFT)
    before = torch.where(first | ~real, -1, steps + (1 if reverse else -1))
    return Packing(torch.where(real, marks, PADDING).to(torch.int32)[None], before.to(torch.int32)[None], slots)


def from_seq_idx(seq_idx, shape, *, reverse=False):
    """Packing of rows (batch, length) whose steps carry labels. Raises ValueError for another shape or dtype."""
    if tuple(seq_idx.shape) != tuple(shape):
        raise ValueError(f"seq_idx has shape {tuple(seq_idx.shape)}: it must be (batch, length) = {tuple(shape)}")
    if seq_idx.dtype.is_floating_point or seq_idx.dtype.is_complex or seq_idx.dtype == torch.bool:
        raise ValueError(f"seq_idx has dtype {seq_idx.dtype}: labels are integers")
    batch, length = shape
    _check_slots(batch)
    if batch == 0 or length == 0:
        marks = torch.zeros(shape, dtype=torch.int32, device=seq_idx.device)
        return Packing(marks, marks, batch)
    label = seq_idx.flip(1) if reverse else seq_idx
    steps = torch.arange(length, device=seq_idx.device).expand(batch, length)
    real = label >= 0
    none_yet = steps.new_full((batch, 1), -1)
    upto = torch.cummax(torch.where(real, steps, -1), 1).values        # the last real step up to here
    before = torch.cat([none_yet, upto[:, :-1]], 1)                    # ... and before here
    same = label.gather(1, before.clamp(min=0)) == label
    first = real & ((before < 0) | ~same)
    # A sequence's last step is the real step before the next sequence's first, or the row's last real one.
    ended = (first & (before >= 0)).to(torch.int32)
    last = torch.zeros_like(ended).scatter_reduce(1, before.clamp(min=0), ended, "amax").bool()
    rows = torch.arange(batch, device=seq_idx.device)[:, None]
    final = upto[:, -1:]
    at_end = real & (steps == final)
    marks = (
        first * FIRST + (first & (before < 0)) * FIRST_FROM_SLOT + (last | at_end) * LAST + at_end * LAST_TO_SLOT
        + (rows << SLOT_SHIFT)
    )  # fmt: skip
    marks = torch.where(real, marks, PADDING)
    before = torch.where(first | ~real, -1, before)
    if reverse:
        marks = marks.flip(1)
        before = torch.where(before >= 0, length - 1 - before, -1).flip(1)
    return Packing(marks.to(torch.int32).contiguous(), before.to(torch.int32).contiguous(), batch)


def _check_slots(slots):
    if slots >= MOST_SLOTS:
        raise ValueError(f"{slots} sequences: at most {MOST_SLOTS - 1} states can be told apart")
