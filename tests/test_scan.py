"""ssmlab.scan against the loop in float64, and against facts that need no oracle. On a CPU: native kernels."""

import dataclasses
import itertools

import numpy as np
import pytest
import scan_shapes
import torch

from ssmlab import check, explain, launching, packing, reference, scan, scan_kernels

NAMED = [name for name in scan_kernels.ALGORITHMS if name != "auto"]
LAYOUTS = ["rows", "columns"]
# Relative to the largest |h|. float32: cases.md. Halves: two units in the last place of the rounded output.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2**-7, torch.float16: 2**-10}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def problem(batch, length, channels, *, dtype=torch.float32, layout="columns", device="cpu", seed=0):
    """a, b (batch, length, channels) and a state; `rows`: a transposed view, time contiguous."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, channels, length) if layout == "rows" else (batch, length, channels)
    a = (torch.rand(shape, generator=generator) * 1.4 - 0.4).to(dtype).to(device)
    b = torch.randn(shape, generator=generator).to(dtype).to(device)
    state = torch.randn((batch, channels), generator=generator).to(device)
    return (a.transpose(1, 2), b.transpose(1, 2), state) if layout == "rows" else (a, b, state)


def loop(a, b, state=None, **options):
    """The reference on the same (rounded) numbers."""
    wanted = [None if tensor is None else tensor.detach().double().cpu().numpy() for tensor in (a, b, state)]
    return reference.scan(*wanted, **options)


def error(got, want):
    got = got.detach().double().cpu().numpy()
    return np.max(np.abs(got - want), initial=0) / max(np.max(np.abs(want), initial=0), 1e-300)


# ---- the loop


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", NAMED)
def test_each_algorithm_equals_the_loop_at_lengths_around_its_tiles(algorithm, layout, reverse, device):
    lengths = {1, 2, 31, 33, 127, 128, 129, 1000}
    probe = scan_kernels.shape_of(*problem(1, 8, 1)[:2], problem(1, 8, 1)[1])
    for length in sorted(lengths | {2 * scan_kernels.plan_of(probe, algorithm).tile + 1} - {0}):
        a, b, state = problem(2, length, 5, layout=layout, device=device, seed=length)
        h, final = scan(a, b, state, reverse=reverse, return_final_state=True, algorithm=algorithm)
        want, last = loop(a, b, state, reverse=reverse)
        assert error(h, want) <= 1e-5 and error(final, last) <= 1e-5, length


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["thread", "block", "lookback", "relay"])
def test_each_dtype_is_computed_in_float32_or_better(dtype, layout, algorithm, device):
    a, b, state = problem(2, 264, 16, dtype=dtype, layout=layout, device=device)
    h, final = scan(a, b, state, return_final_state=True, algorithm=algorithm)
    want, last = loop(a, b, state)
    assert h.dtype == dtype and final.dtype == scan_kernels.real_of(dtype)
    assert error(h, want) <= TOLERANCE[dtype]
    assert error(final, last) <= min(TOLERANCE[dtype], 1e-5)  # a state is never rounded to a half


def test_every_length_up_to_33_and_around_powers_of_two_both_ways(device):
    for length in [*range(1, 34), 63, 64, 65, 127, 128, 129, 1023, 1024, 1025]:
        for reverse in (False, True):
            a, b, _ = problem(1, length, 2, layout="rows", device=device, seed=length)
            h = scan(a, b, reverse=reverse, algorithm="block" if length % 2 else "auto")
            assert error(h, loop(a, b, reverse=reverse)[0]) <= 1e-5, (length, reverse)


# ---- cases.md


def test_a_pair_operator_keeps_its_order_forward_and_reverse(device):  # S-O1
    a = torch.tensor([[1, 1.5, 0.8, 2]], device=device)
    b = torch.tensor([[1, -1, 0.5, 2]], device=device)
    assert error(scan(a, b), np.array([[1, 0.5, 0.9, 3.8]])) <= 1e-7
    assert error(scan(a, b, reverse=True), np.array([[3.15, 2.15, 2.1, 2]])) <= 1e-7
    assert torch.equal(scan(a, b, reverse=True), scan(a.flip(1), b.flip(1)).flip(1))


def test_reverse_sums_of_a_length_that_is_no_power_of_two_are_exact(device):  # S-O2
    values = torch.arange(18, dtype=torch.float32, device=device).reshape(2, 9)
    want = [[36, 36, 35, 33, 30, 26, 21, 15, 8], [117, 108, 98, 87, 75, 62, 48, 33, 17]]
    for algorithm in scan_kernels.ALGORITHMS:
        assert scan(torch.ones_like(values), values, reverse=True, algorithm=algorithm).tolist() == want


@pytest.mark.parametrize("algorithm", scan_kernels.ALGORITHMS)
def test_a_product_that_underflows_does_no_harm(algorithm, device):  # S-O3
    decay = torch.full((1, 200, 1), float(np.exp(np.float32(-1))), device=device)
    h = scan(decay, torch.ones_like(decay), algorithm=algorithm)
    steps = np.arange(1, 201)
    assert error(h[0, :, 0], (1 - np.exp(-1.0 * steps)) / (1 - np.exp(-1.0))) <= 1e-6


def test_no_steps_hand_the_state_through_and_one_step_is_a_step(device):  # S-O4
    start = torch.tensor([[7.0]], device=device, requires_grad=True)
    empty = torch.zeros(1, 0, 1, device=device, requires_grad=True)
    h, final = scan(empty, empty, start, return_final_state=True)
    assert h.shape == (1, 0, 1) and final.tolist() == [[7.0]]
    final.sum().backward()
    assert start.grad.tolist() == [[1.0]] and empty.grad.shape == (1, 0, 1)
    h = scan(torch.tensor([[[0.5]]], device=device), torch.tensor([[[2.0]]], device=device), start.detach())
    assert h.tolist() == [[[5.5]]]


@pytest.mark.parametrize("shape", [(0, 5, 3), (2, 5, 0), (2, 0, 3), (0, 0, 0)])
def test_empty_tensors_give_empty_results_and_zero_gradients(shape, device):  # K-O6
    a = torch.zeros(shape, device=device, requires_grad=True)
    state = torch.ones(shape[0], shape[2], device=device)
    h, final = scan(a, a, state, return_final_state=True)
    assert h.shape == shape and torch.equal(final, state)
    h.sum().backward()
    assert a.grad.shape == shape


def test_row_offsets_are_64_bit_numbers():  # M-O2: row 4018 with stride 534,528 starts behind 2^31
    kernels = ("scan_step.cuh", "scan_rows.cuh", "scan_columns.cuh")
    from ssmlab import kernels as files

    text = "".join(files.path(name).read_text() for name in kernels)
    assert "long long batch, time, channel" in text and "(int)row" not in text


@pytest.mark.gpu
def test_a_row_behind_two_to_the_31_equals_the_row_alone():  # M-O2, K-O2
    stride, rows = 2 * 267264, 4019
    store = torch.empty(rows * stride, dtype=torch.bfloat16, device="cuda")
    a = store.as_strided((rows, 64, 1), (stride, 1, 1))
    a.copy_(torch.rand(rows, 64, 1, device="cuda") * 0.5 + 0.5)
    b = torch.randn(rows, 64, 1, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(scan(a, b, algorithm="block")[-1], scan(a[-1:], b[-1:], algorithm="block")[0])


# ---- facts that need no oracle


@pytest.mark.parametrize("algorithm", ["thread", "block", "lookback", "relay"])
def test_any_cut_of_a_row_gives_the_uncut_row(algorithm, device):
    a, b, state = problem(1, 97, 3, dtype=torch.float64, device=device)
    h, final = scan(a, b, state, return_final_state=True)
    for cut in range(98):
        left, middle = scan(a[:, :cut], b[:, :cut], state, return_final_state=True, algorithm=algorithm)
        right, last = scan(a[:, cut:], b[:, cut:], middle, return_final_state=True, algorithm=algorithm)
        assert error(torch.cat([left, right], 1), h.cpu().numpy()) <= 1e-12, cut
        assert error(last, final.cpu().numpy()) <= 1e-12, cut


def test_any_cut_gives_the_gradients_of_the_uncut_row(device):
    a, b, state = problem(1, 23, 2, dtype=torch.float64, device=device)
    weight = torch.randn(1, 23, 2, dtype=torch.float64, device=device)

    def gradients(cut):
        leaves = [tensor.detach().double().requires_grad_() for tensor in (a, b, state)]
        x, y, start = leaves
        left, middle = scan(x[:, :cut], y[:, :cut], start, return_final_state=True)
        right, last = scan(x[:, cut:], y[:, cut:], middle, return_final_state=True)
        ((torch.cat([left, right], 1) * weight).sum() + last.square().sum()).backward()
        return [leaf.grad for leaf in leaves]

    whole = gradients(23)
    for cut in range(23):
        for got, want in zip(gradients(cut), whole, strict=True):
            assert error(got, want.cpu().numpy()) <= 1e-12, cut


SPLITS = {
    "one, then all": [1, 4999], "sixteens": [16] * 312 + [8], "around a step": [2047, 1, 2952],
    "at a power of two": [2048, 2952], "one at the end": [4999, 1],
}  # fmt: skip


@pytest.mark.parametrize("pieces", SPLITS.values(), ids=SPLITS)
def test_a_row_in_pieces_gives_outputs_states_and_gradients_of_the_whole(pieces, device):  # M-O9
    a, b, state = problem(1, 5000, 2, device=device)
    weight = torch.randn(1, 5000, 2, device=device)

    def run(pieces):
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (a, b, state)]
        carried, outputs = leaves[2], []
        for x, y in zip(leaves[0].split(pieces, 1), leaves[1].split(pieces, 1), strict=True):
            h, carried = scan(x, y, carried, return_final_state=True)
            outputs.append(h)
        h = torch.cat(outputs, 1)
        ((h * weight).sum() + carried.sum()).backward()
        return h, carried, *(leaf.grad for leaf in leaves)

    for got, want in zip(run(pieces), run([5000]), strict=True):
        assert error(got, want.detach().double().cpu().numpy()) <= 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", NAMED)
def test_reverse_is_flip_scan_flip(algorithm, layout, device):
    a, b, state = problem(2, 160, 4, layout=layout, device=device)
    flipped, final = scan(a.flip(1), b.flip(1), state, return_final_state=True, algorithm=algorithm)
    h, last = scan(a, b, state, reverse=True, return_final_state=True, algorithm=algorithm)
    assert error(h, flipped.flip(1).double().cpu().numpy()) <= 1e-6
    assert error(last, final.double().cpu().numpy()) <= 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", NAMED)
def test_a_row_alone_equals_the_row_in_a_batch_bit_for_bit(algorithm, layout, device):
    a, b, state = problem(5, 333, 8, layout=layout, device=device)
    h, final = scan(a, b, state, return_final_state=True, algorithm=algorithm)
    alone, last = scan(a[3:4], b[3:4], state[3:4], return_final_state=True, algorithm=algorithm)
    assert torch.equal(h[3:4], alone) and torch.equal(final[3:4], last)


@pytest.mark.parametrize("algorithm", NAMED)
def test_repeated_runs_give_the_same_bits(algorithm, device):
    length, repeats = (20_000, 3) if device == "cpu" else (1 << 20, 30)
    a, b, _ = problem(1, length, 3, layout="rows", device=device)
    first = scan(a, b, algorithm=algorithm)
    assert all(torch.equal(first, scan(a, b, algorithm=algorithm)) for _ in range(repeats))


def strided_views(x):
    """The same numbers in memory of other shapes."""
    wide = torch.full((*x.shape[:-1], x.shape[-1] * 3), float("nan"), dtype=x.dtype, device=x.device)
    wide[..., ::3] = x
    yield "every third channel", wide[..., ::3]
    slow = torch.full((x.shape[0], x.shape[1] * 2, x.shape[2]), float("nan"), dtype=x.dtype, device=x.device)
    slow[:, 1::2] = x
    yield "every second step", slow[:, 1::2]
    shifted = torch.full((x.numel() + 1,), float("nan"), dtype=x.dtype, device=x.device)
    shifted[1:] = x.flatten()
    yield "starts 4 bytes off", shifted[1:].view(x.shape)
    yield "time contiguous", x.transpose(1, 2).contiguous().transpose(1, 2)
    yield "batch innermost", x.permute(1, 2, 0).contiguous().permute(2, 0, 1)


@pytest.mark.parametrize("algorithm", ["thread", "block"])
def test_strided_inputs_are_read_where_they_lie(algorithm, device):
    a, b, state = problem(3, 72, 8, device=device)
    want, last = loop(a, b, state)
    views = [[("as made", tensor), *strided_views(tensor)] for tensor in (a, b)]
    for (_, x), (name, y) in itertools.product(*views):
        h, final = scan(x, y, state, return_final_state=True, algorithm=algorithm)
        assert error(h, want) <= 1e-5 and error(final, last) <= 1e-5, name


def test_time_may_stand_on_any_axis_with_any_axes_around_it(device):
    a, b, _ = problem(2, 30, 12, dtype=torch.float64, device=device)
    want = loop(a, b)[0]
    assert error(scan(a.transpose(0, 1), b.transpose(0, 1), dim=0), np.swapaxes(want, 0, 1)) <= 1e-12
    assert error(scan(a.transpose(1, 2), b.transpose(1, 2), dim=-1), np.swapaxes(want, 1, 2)) <= 1e-12
    assert error(scan(a.view(2, 30, 3, 4), b.view(2, 30, 3, 4)), want.reshape(2, 30, 3, 4)) <= 1e-12
    assert error(scan(a[..., 0], b[..., 0]), want[..., 0]) <= 1e-12
    assert error(scan(a[0], b[0], dim=0), want[0]) <= 1e-12


def test_more_rows_than_65535(device):
    a, b, _ = problem(1, 2, 70_001, device=device)
    assert error(scan(a, b), loop(a, b)[0]) <= 1e-5
    a, b = a.transpose(0, 2).contiguous(), b.transpose(0, 2).contiguous()
    assert error(scan(a, b), loop(a, b)[0]) <= 1e-5


# ---- gradients


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("algorithm", scan_kernels.ALGORITHMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_agree_with_differences(algorithm, layout, reverse, device):
    a, b, state = problem(2, 5, 2, dtype=torch.float64, layout=layout, device=device)
    leaves = [tensor.detach().double().requires_grad_() for tensor in (a, b, state)]

    def both(*tensors):
        return scan(*tensors, reverse=reverse, return_final_state=True, algorithm=algorithm)

    assert torch.autograd.gradcheck(both, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["thread", "block", "totals", "lookback", "relay"])
def test_gradients_of_long_rows_agree_with_float64(dtype, layout, algorithm, device):
    a, b, state = problem(1, 2200, 8, dtype=dtype, layout=layout, device=device)
    weight, ending = torch.randn_like(b), torch.randn_like(state)

    def gradients(tensors, how):
        leaves = [tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_() for tensor in tensors]
        h, final = how(*leaves)
        ((h * weight.to(h.dtype)).sum() + (final * ending.to(final.dtype)).sum()).backward()
        return [leaf.grad for leaf in leaves]

    def ours(*tensors):
        return scan(*tensors, return_final_state=True, algorithm=algorithm)

    got = gradients((a, b, state), ours)
    want = gradients([tensor.double() for tensor in (a, b, state)], lambda *t: scan(*t, return_final_state=True))
    for mine, theirs in zip(got, want, strict=True):
        assert error(mine, theirs.cpu().numpy()) <= (4e-5 if dtype == torch.float32 else 2**-6)


def test_a_gradient_with_stride_zero_is_read_as_it_is(device):  # T-O1
    a, b, _ = problem(2, 40, 4, device=device)
    for reduce in (torch.sum, torch.mean, lambda h: h[:, :1].sum()):
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (a, b)]
        reduce(scan(*leaves)).backward()
        copied = [tensor.detach().clone().requires_grad_() for tensor in (a, b)]
        h = scan(*copied)
        h.backward(torch.autograd.grad(reduce(h), h, retain_graph=True)[0].clone().contiguous())
        for x, y in zip(leaves, copied, strict=True):
            assert error(x.grad, y.grad.double().cpu().numpy()) <= 1e-6


# ---- packed rows


def alone(a, b, pieces, state=None, reverse=False):
    """Outputs and final states of each (begin, end) piece of row 0, one after another."""
    outputs, finals = [], []
    for number, (begin, end) in enumerate(pieces):
        start = None if state is None else state[number : number + 1]
        h, final = scan(a[:, begin:end], b[:, begin:end], start, reverse=reverse, return_final_state=True)
        outputs.append(h)
        finals.append(final)
    return torch.cat(outputs, 1), torch.cat(finals)


@pytest.mark.parametrize("algorithm", scan_kernels.ALGORITHMS)
def test_a_state_does_not_run_on_into_the_next_sequence(algorithm, device):  # M-O10
    a, b = (torch.ones(1, 5, 1, device=device, requires_grad=True) for _ in range(2))
    borders = torch.tensor([0, 3, 5], device=device)
    h = scan(a, b, cu_seqlens=borders, algorithm=algorithm)
    assert h.flatten().tolist() == [1, 2, 3, 1, 2]
    h[:, 3:].sum().backward()
    assert b.grad.flatten().tolist() == [0, 0, 0, 2, 1] and a.grad.flatten().tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", NAMED)
def test_packed_sequences_equal_each_alone(algorithm, layout, reverse, device):
    lengths = [5, 0, 1, 130, 2, 62, 0]
    borders = packing.cu_seqlens_of(lengths).to(device)
    a, b, _ = problem(1, 200, 3, dtype=torch.float64, layout=layout, device=device)
    state = torch.randn(len(lengths), 3, dtype=torch.float64, device=device)
    pieces = list(itertools.pairwise(borders.tolist()))
    want, last = alone(a, b, pieces, state, reverse)
    h, final = scan(
        a, b, state, cu_seqlens=borders, reverse=reverse, return_final_state=True, algorithm=algorithm
    )
    assert error(h, want.cpu().numpy()) <= 1e-12 and error(final, last.cpu().numpy()) <= 1e-12


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("algorithm", ["thread", "block", "lookback", "relay"])
def test_gradients_of_packed_sequences_agree_with_differences(algorithm, reverse, device):
    borders = torch.tensor([0, 3, 3, 4, 9], device=device)
    a, b, _ = problem(1, 10, 2, dtype=torch.float64, device=device)  # one step behind the last sequence: padding
    state = torch.randn(4, 2, dtype=torch.float64, device=device)
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (a, b, state)]

    def packed(*tensors):
        return scan(*tensors, cu_seqlens=borders, reverse=reverse, return_final_state=True, algorithm=algorithm)

    assert torch.autograd.gradcheck(packed, leaves)


@pytest.mark.parametrize("algorithm", NAMED)
def test_labels_and_padding_follow_the_rules(algorithm, device):
    label = torch.tensor([[-1, 4, 4, -2, 4, 7, 7, 4, -1, -1], [-1] * 10], device=device)
    a, b, state = problem(2, 10, 3, dtype=torch.float64, device=device)
    state = state.double()
    a[label < 0], b[label < 0] = float("nan"), float("inf")  # what lies in padding is never read
    h, final = scan(a, b, state, seq_idx=label, return_final_state=True, algorithm=algorithm)
    assert torch.all(h[label < 0] == 0)
    keep = [1, 2, 4]
    first, _ = scan(a[:1, keep], b[:1, keep], state[:1], return_final_state=True)
    second = scan(a[:1, 5:7], b[:1, 5:7])
    third, last = scan(a[:1, 7:8], b[:1, 7:8], return_final_state=True)
    assert error(h[:1, keep], first.cpu().numpy()) <= 1e-12  # padding inside does not end a sequence
    assert error(h[:1, 5:7], second.cpu().numpy()) <= 1e-12
    assert error(h[:1, 7:8], third.cpu().numpy()) <= 1e-12  # the label 4 again, and a new sequence
    assert error(final[:1], last.cpu().numpy()) <= 1e-12
    assert torch.equal(final[1], state[1])  # nothing but padding: the state passes through


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("algorithm", ["thread", "block"])
def test_gradients_with_labels_agree_with_differences_and_padding_gets_none(algorithm, reverse, device):
    label = torch.tensor([[0, 0, -1, 0, 3, -1, 3, 5], [-1, -1, 2, -1, -1, 2, 2, -1], [-1] * 8], device=device)
    a, b, state = problem(3, 8, 2, dtype=torch.float64, device=device)
    leaves = [tensor.detach().double().requires_grad_() for tensor in (a, b, state)]

    def packed(*tensors):
        return scan(*tensors, seq_idx=label, reverse=reverse, return_final_state=True, algorithm=algorithm)

    assert torch.autograd.gradcheck(packed, leaves)
    sum(result.sum() for result in packed(*leaves)).backward()
    assert torch.all(leaves[0].grad[label < 0] == 0) and torch.all(leaves[1].grad[label < 0] == 0)


def test_an_overflow_in_one_sequence_does_not_reach_the_next(device):
    a = torch.full((1, 600, 1), 4.0, device=device)
    b = torch.ones_like(a)
    borders = torch.tensor([0, 500, 600], device=device)
    for algorithm in NAMED:
        h = scan(a * 1.0, b, cu_seqlens=borders, algorithm=algorithm)
        assert torch.isinf(h[0, 499, 0]) and h[0, 500:503, 0].tolist() == [1.0, 5.0, 21.0], algorithm


def test_a_thousand_random_small_shapes_equal_the_loop():
    for number in range(1000):  # python tests/scan_shapes.py 0 1000000 runs a million
        assert scan_shapes.worst(number) <= scan_shapes.ALLOWED, scan_shapes.describe(number)


# ---- the kernels under the checks of the CPU: races, bounds, uninitialised shared memory, barriers


@pytest.fixture
def reports(monkeypatch):
    """What the checks say of every launch of a kernel, under two schedules; blocks run side by side."""
    found = []

    def checked(self, grid, block, args, device, shared_mem=0):
        for order in ("forward", "reverse"):
            schedule = {"lane_order": order, "block_order": order, "resident": 3}
            found.append(check(self.kernel, grid, block, args, shared_mem, **schedule))
        self.kernel(grid, block, args, shared_mem=shared_mem)

    monkeypatch.setattr(launching.Launcher, "__call__", checked)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", NAMED)
def test_checked_kernels_raise_no_finding(algorithm, layout, reports):
    length = {"lookback": 61, "relay": 61, "chain": 261, "totals": 261}.get(algorithm, 130)
    a, b, state = problem(1, length, 3, layout=layout)
    leaves = [tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_() for tensor in (a, b, state)]
    h, final = scan(*leaves, return_final_state=True, algorithm=algorithm)
    (h.sum() + final.sum()).backward()
    assert len(reports) >= 4 and all(report.ok for report in reports), [str(r) for r in reports if not r.ok][:1]


SMALL_TILES = {  # algorithm, layout: a tile, so that even short rows have many
    ("lookback", "rows"): [32, 1, 1, 2, 1, 1], ("lookback", "columns"): [8, 8, 2, 2, 1, 4, 2],
    ("relay", "rows"): [32, 1, 1, 2, 1], ("relay", "columns"): [8, 8, 2, 2, 1, 4],
    ("block", "rows"): [64, 1, 1, 1, 1], ("block", "columns"): [8, 8, 2, 1, 1, 4],
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("algorithm, layout", SMALL_TILES)
def test_many_tiles_raise_no_finding_and_equal_the_loop(algorithm, layout, packed, reports, monkeypatch):
    entry = {"algorithm": algorithm, "tile": SMALL_TILES[algorithm, layout]}
    monkeypatch.setattr(scan_kernels, "_entry", lambda shape, name: entry)
    scan_kernels.plan_of.cache_clear()
    by_word = layout == "rows" and algorithm in ("lookback", "relay")
    length = 34 * 128 if by_word else 300  # more than one group of 32 tiles
    a, b, _ = problem(1, length, 1 if layout == "rows" else 32, layout=layout)
    borders = [0, 5, length // 2, length] if packed else [0, length]
    more = {"cu_seqlens": torch.tensor(borders)} if packed else {}
    h = scan(a, b, algorithm=algorithm, **more)
    scan_kernels.plan_of.cache_clear()
    want = [loop(a[:, begin:end], b[:, begin:end])[0] for begin, end in itertools.pairwise(borders)]
    assert error(h, np.concatenate(want, 1)) <= 1e-6
    assert reports and all(report.ok for report in reports), [str(r) for r in reports if not r.ok][:1]



def test_a_relay_ends_if_two_blocks_run_side_by_side_in_any_order_and_not_if_one_does(monkeypatch):
    schedules = [
        {"resident": 2}, {"resident": 3, "block_order": "reverse", "lane_order": "reverse"},
        {"resident": 2, "block_order": "random", "seed": 3}, {"resident": 1},
    ]  # fmt: skip
    a, b, _ = problem(1, 6 * 128, 3, layout="rows")  # two bands: two rows, and one
    h = torch.empty_like(b)
    plan = scan_kernels.plan_with(scan_kernels.shape_of(a, b, h), "relay", [64, 1, 1, 2, 1], "as a GPU runs it")
    constants = tuple((name, 0 if name == "LOOP" else value) for name, value in plan.constants)
    plan = dataclasses.replace(plan, constants=constants, grid=3 * plan.chunks + 2)
    kinds = []

    def checked(self, grid, block, args, device, shared_mem=0):
        for schedule in schedules:
            kinds.append([finding.kind for finding in check(self.kernel, grid, block, args, **schedule).findings])

    monkeypatch.setattr(launching.Launcher, "__call__", checked)
    scan_kernels.run(a, b, h, None, None, plan=plan)
    assert kinds == [[], [], [], ["endless-loop"]]


# ---- torch


def test_the_module_can_be_loaded_twice():  # T-O4
    import importlib

    from ssmlab import scan_op

    again = importlib.reload(scan_op)
    a, b, state = problem(1, 9, 2)
    a.requires_grad_()
    again.scan(a, b, state).sum().backward()
    assert error(again.scan(a, b, state), loop(a, b, state)[0]) <= 1e-6 and a.grad is not None


def test_opcheck_finds_the_operators_in_order(device):  # T-O3
    for shape, layout in [((2, 9, 4), "columns"), ((2, 9, 4), "rows"), ((1, 1, 3), "columns")]:
        a, b, state = problem(*shape, layout=layout, device=device)
        a.requires_grad_()
        arguments = (a, b, state, None, None, shape[0], False, "auto")
        torch.library.opcheck(torch.ops.ssmlab.scan_forward.default, arguments)


def test_compiled_code_has_no_graph_break(device):  # T-O3
    def model(a, b, state):
        h, final = scan(a, b, state, return_final_state=True)
        return h.sum() + final.sum()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (7, 8, 1):
        a, b, state = problem(2, length, 3, device=device)
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (a, b, state)]
        compiled(*leaves).backward()
        twins = [tensor.detach().clone().requires_grad_() for tensor in (a, b, state)]
        model(*twins).backward()
        assert all(torch.equal(x.grad, y.grad) for x, y in zip(leaves, twins, strict=True)), length


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_inputs_of_every_dtype_may_require_gradients_and_labels_are_integers(dtype, device):  # T-O5
    a, b, state = problem(2, 19, 3, dtype=dtype, device=device)
    leaves = [tensor.detach().requires_grad_() for tensor in (a, b, state)]
    h, final = scan(*leaves, return_final_state=True)
    (h.double().sum() + final.double().sum()).backward()
    assert all(leaf.grad.dtype == leaf.dtype and bool(leaf.grad.isfinite().all()) for leaf in leaves)
    mask = torch.ones(2, 19, dtype=torch.bool, device=device)
    with pytest.raises(ValueError, match=r"seq_idx has dtype torch.bool: labels are integers"):
        scan(a, b, seq_idx=mask)


@pytest.mark.gpu
def test_on_a_side_stream_the_kernels_see_what_came_before():  # T-O2
    stream = torch.cuda.Stream()
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(50):
        a = torch.zeros(4, 512, 64, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(4):
                busy = torch.tanh(busy @ busy)
            a.fill_(1.0)
            total = scan(a, torch.ones_like(a))[:, -1].sum()
        stream.synchronize()
        assert total.item() == 4 * 64 * 512


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", scan_kernels.ALGORITHMS)
def test_a_captured_graph_replays(algorithm):
    a, b, _ = problem(1, 20_000, 4, layout="rows", device="cuda")
    want = scan(a, b, algorithm=algorithm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        h = scan(a, b, algorithm=algorithm)
    for factor in (1.0, 2.0, 4.0):
        b.mul_(2.0 if factor > 1 else 1.0)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(h, want * factor)


@pytest.mark.gpu
def test_cpu_and_gpu_agree_to_rounding():
    for algorithm in NAMED:
        a, b, state = problem(2, 777, 5)
        here = scan(a, b, state, algorithm=algorithm)
        there = scan(a.cuda(), b.cuda(), state.cuda(), algorithm=algorithm).cpu()
        assert error(there, here.double().numpy()) <= 1e-6, algorithm


ACCELERATED = {  # dtype: (relative, absolute), as accelerated-scan's own tests have them
    torch.float32: (1.3e-6, 1e-7), torch.bfloat16: (1.6e-2, 1e-1), torch.float16: (1e-3, 1.2e-2),
}  # fmt: skip


@pytest.mark.parametrize("length", [2**p for p in range(5, 17)] + [16323, 8000, 33753, 127323])
def test_the_sweep_of_accelerated_scan(length, device):
    torch.manual_seed(length)
    rows = (3, 512) if device == "cuda" else (1, 3)
    loop = 2 if device == "cpu" else 1  # a CPU walks step by step: its roundings add up where a tree's do not
    for (dtype, (relative, absolute)), reverse in itertools.product(ACCELERATED.items(), (False, True)):
        a = torch.rand(*rows, length, device=device).mul_(0.01).add_(0.99).to(dtype)
        b = torch.rand(*rows, length, device=device).to(dtype)

        def results(a, b, algorithm="auto", reverse=reverse):
            leaves = [tensor.detach().requires_grad_() for tensor in (a, b)]
            h = scan(*leaves, dim=2, reverse=reverse, algorithm=algorithm)
            h.backward(torch.ones_like(h))
            return h.detach(), leaves[0].grad, leaves[1].grad

        wide = (tensor.double() for tensor in (a, b))
        for number, (got, want) in enumerate(zip(results(a, b), results(*wide, algorithm="thread"), strict=True)):
            allowed = absolute * want.abs().amax() + relative * want.abs()
            allowed *= 4 if number else loop  # a gradient is a product of two scans: cases.md
            assert torch.all((got.double() - want).abs() <= allowed), (dtype, reverse, number)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["lookback", "relay", "totals"])
def test_one_row_of_two_to_the_28_steps(algorithm):
    a = torch.rand(1, 2**28, device="cuda") * 0.5 + 0.4
    b = torch.randn(1, 2**28, device="cuda")
    h = scan(a, b, algorithm=algorithm)
    for begin in (0, 2**27, 2**28 - 4096):
        before = h[:, begin - 1] if begin else None
        piece = scan(a[:, begin : begin + 4096].double(), b[:, begin : begin + 4096].double(), before)
        assert error(h[:, begin : begin + 4096], piece.cpu().numpy()) <= 1e-5


# ---- what is refused, with which words


def test_wrong_arguments_are_refused_by_name_value_and_rule(device):
    a = torch.zeros(2, 8, 3, device=device)
    with pytest.raises(ValueError, match=r"a has shape \(2, 8, 3\), b has \(2, 7, 3\): they must be equal"):
        scan(a, a[:, 1:])
    with pytest.raises(TypeError, match=r"a has dtype torch.float32, b has torch.float64: they must be equal"):
        scan(a, a.double())
    with pytest.raises(TypeError, match=r"a has dtype torch.int64: it must be one of float32, float64, float16"):
        scan(a.long(), a.long())
    with pytest.raises(ValueError, match=r"algorithm is 'fast': it must be one of 'auto', 'thread'"):
        scan(a, a, algorithm="fast")
    with pytest.raises(ValueError, match=r"dim is 3, a has 3 axes: dim must be one of \[0, 1, 2\]"):
        scan(a, a, dim=3)
    with pytest.raises(ValueError, match=r"initial_state has shape \(3,\): it must be \(2, 3\)"):
        scan(a, a, torch.zeros(3, device=device))
    with pytest.raises(ValueError, match=r"a has batch 2: with cu_seqlens .* batch must be 1"):
        scan(a, a, cu_seqlens=torch.tensor([0, 8], device=device))
    with pytest.raises(ValueError, match=r"seq_idx has shape \(2, 7\): it must be \(batch, length\) = \(2, 8\)"):
        scan(a, a, seq_idx=torch.zeros(2, 7, dtype=torch.int32, device=device))
    with pytest.raises(ValueError, match=r"cu_seqlens is \[0, 5, 4\]: it must begin at 0 and never fall"):
        scan(a[:1], a[:1], cu_seqlens=torch.tensor([0, 5, 4], device=device))
    with pytest.raises(ValueError, match=r"cu_seqlens ends at 9, the row has 8 steps: it must not end behind them"):
        scan(a[:1], a[:1], cu_seqlens=torch.tensor([0, 9], device=device))
    with pytest.raises(TypeError, match=r"a is ndarray: it must be a torch tensor"):
        scan(np.zeros((1, 2)), np.zeros((1, 2)))


def test_explain_says_what_is_chosen():
    a = torch.zeros(4, 64, 32)
    assert explain(a, a) == "thread: 128 rows of 64 steps, columns, 4 blocks of 1 thread (a CPU walks whole rows)"
    assert explain(a, a, algorithm="block").startswith("block: 128 rows of 64 steps, columns, tiles of ")
    assert explain(a[:, :0], a[:, :0]) == "nothing to do: the tensors are empty"


def test_a_forward_mode_derivative_is_refused_and_not_dropped(device):
    a = torch.rand(1, 4, 2, device=device)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        with pytest.raises(RuntimeError, match="scan has no forward-mode derivative"):
            scan(dual, a)
