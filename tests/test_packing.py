"""cu_seqlens, seq_idx and padding: three spellings of one thing."""

import pytest
import torch

import ssmlab.packing as packing
from ssmlab import strictness

FIRST, FROM, LAST, TO, PAD = 1, 2, 4, 8, 16


def kinds(packed):
    return [[mark & 31 for mark in row] for row in packed.marks.tolist()]


def slots(packed):
    return [[mark >> packing.SLOT_SHIFT for mark in row] for row in packed.marks.tolist()]


def test_lengths_borders_and_labels_say_the_same():
    lengths = [3, 0, 2]
    borders = packing.cu_seqlens_of(lengths)
    assert borders.tolist() == [0, 3, 3, 5] and borders.dtype == torch.int32
    assert packing.seq_idx_of(borders).tolist() == [[0, 0, 0, 2, 2]]
    assert packing.seq_idx_of(borders, 6).tolist() == [[0, 0, 0, 2, 2, -1]]
    x = torch.arange(5.0)[None, :, None]
    assert [piece.flatten().tolist() for piece in packing.split(x, borders)] == [[0, 1, 2], [], [3, 4]]


def test_borders_mark_first_and_last_steps_with_their_slot():
    packed = packing.from_cu_seqlens(torch.tensor([0, 3, 3, 4]), 5)
    assert kinds(packed) == [[FIRST | FROM, 0, LAST | TO, FIRST | FROM | LAST | TO, PAD]]
    assert slots(packed)[0][:4] == [0, 0, 0, 2]
    assert packed.before.tolist() == [[-1, 0, 1, -1, -1]]
    assert packed.slots == 3


def test_in_reverse_the_last_step_comes_first():
    packed = packing.from_cu_seqlens(torch.tensor([0, 3]), 3, reverse=True)
    assert kinds(packed) == [[LAST | TO, 0, FIRST | FROM]]
    assert packed.before.tolist() == [[1, 2, -1]]


def test_a_row_of_labels_has_one_state_and_padding_ends_nothing():
    packed = packing.from_seq_idx(torch.tensor([[-1, 4, -7, 4, 7, 4, -1]]), (1, 7))
    assert kinds(packed) == [[PAD, FIRST | FROM, PAD, LAST, FIRST | LAST, FIRST | LAST | TO, PAD]]
    assert packed.before.tolist() == [[-1, -1, -1, 1, -1, -1, -1]]


def test_labels_in_reverse_mirror_labels_of_the_mirrored_row():
    label = torch.tensor([[0, 0, -1, 3, 3], [-1, -1, -1, -1, -1], [5, 6, 6, -2, 6]])
    backward = packing.from_seq_idx(label, (3, 5), reverse=True)
    forward = packing.from_seq_idx(label.flip(1), (3, 5))
    assert torch.equal(backward.marks.flip(1), forward.marks)
    mirrored = torch.where(forward.before >= 0, 4 - forward.before, -1)
    assert torch.equal(backward.before.flip(1), mirrored.to(torch.int32))


@pytest.mark.parametrize("borders", [[0], [0, 0], [0, 0, 0]])
def test_no_sequences_and_empty_sequences_are_fine(borders):
    packed = packing.from_cu_seqlens(torch.tensor(borders), 2)
    assert kinds(packed) == [[PAD, PAD]] and packed.slots == len(borders) - 1
    assert packing.from_cu_seqlens(torch.tensor(borders), 0).marks.shape == (1, 0)


@pytest.mark.parametrize(
    "borders, message",
    [
        (torch.tensor([1, 3]), r"cu_seqlens is \[1, 3\]: it must begin at 0 and never fall"),
        (torch.tensor([0, 3, 2]), r"cu_seqlens is \[0, 3, 2\]: it must begin at 0 and never fall"),
        (torch.tensor([0, 9]), r"cu_seqlens ends at 9, the row has 4 steps: it must not end behind them"),
        (torch.tensor([0.0, 3.0]), r"cu_seqlens has shape \(2,\) and dtype torch.float32: it must be one row of int32"),
        (torch.tensor([[0, 3]]), r"cu_seqlens has shape \(1, 2\)"),
    ],
)
def test_borders_that_are_none_are_refused(borders, message):
    with pytest.raises(ValueError, match=message):
        packing.from_cu_seqlens(borders, 4)


def test_fast_validation_reads_no_values():
    with strictness.validation("fast"):
        packing.from_cu_seqlens(torch.tensor([0, 9]), 4)


def test_labels_of_the_wrong_shape_or_kind_are_refused():
    with pytest.raises(ValueError, match=r"seq_idx has shape \(2, 3\): it must be \(batch, length\) = \(2, 4\)"):
        packing.from_seq_idx(torch.zeros(2, 3, dtype=torch.int64), (2, 4))
    with pytest.raises(ValueError, match="seq_idx has dtype torch.float32: labels are integers"):
        packing.from_seq_idx(torch.zeros(2, 4), (2, 4))
