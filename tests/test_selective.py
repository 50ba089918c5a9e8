"""selective_scan against the sequential loop and its autograd in float64, and against facts that need no oracle."""

import doctest
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from selective_problem import error, gradients, in_float64, leaves, loop, problem

import ssmlab
from ssmlab import reference, selective
from ssmlab.selective import selective_scan

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
GRADIENT = {torch.float64: 1e-12, torch.float32: 4e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}


def scan(values, softplus=True, **more):
    return selective_scan(**values, delta_softplus=softplus, return_final_state=True, **more)


def weights_of(values, seed=1):
    generator = torch.Generator().manual_seed(seed)
    u, A = values["u"], values["A"]
    y = torch.randn(u.shape, generator=generator, dtype=torch.float64)
    return y, torch.randn(u.shape[0], *A.shape, generator=generator, dtype=torch.float64)


def check_against_the_loop(values, softplus=True, **more):
    dtype = values["u"].dtype
    exact = in_float64(values)
    y, final = scan(values, softplus, **more)
    wanted_y, wanted_final = loop(exact, softplus)
    assert y.dtype == dtype and y.shape == values["u"].shape
    assert error(y, wanted_y) <= TOLERANCE[dtype]
    assert error(final, wanted_final) <= TOLERANCE[torch.float32 if dtype != torch.float64 else dtype]
    weights = weights_of(values)
    got = gradients(lambda given: scan(given, softplus, **more), values, weights)
    want = gradients(lambda given: loop(given, softplus), exact, weights)
    for name, gradient in want.items():
        assert got[name].dtype == values[name].dtype
        assert error(got[name], gradient) <= GRADIENT[dtype], name


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 70])
def test_equals_the_loop_and_its_gradients(length):
    check_against_the_loop(problem(length=length))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_equals_the_loop(dtype):
    check_against_the_loop(problem(length=45, dtype=dtype))


def test_the_numpy_reference_is_the_same_loop():
    values = problem(length=9)
    y, final = loop(values)
    arrays = [values[name].numpy() for name in ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")]
    got, state = reference.selective_scan(*arrays, True, initial_state=values["initial_state"].numpy())
    assert np.max(np.abs(got - y.numpy())) <= 1e-13
    assert np.max(np.abs(state - final.numpy())) <= 1e-13


@pytest.mark.parametrize(
    "without", [("D",), ("delta_bias",), ("initial_state",), ("z", "D", "delta_bias", "initial_state")]
)
@pytest.mark.parametrize("softplus", [True, False])
def test_optional_arguments_on_and_off(without, softplus):
    values = problem(length=34, without=without)
    if not softplus:
        values["delta"] = values["delta"].exp()
    check_against_the_loop(values, softplus)


@pytest.mark.parametrize("states", [1, 3, 8, 15, 16, 17, 18, 19, 20, 31, 33, 64, 96, 128, 256, 257])
def test_any_number_of_states(states):
    values = problem(batch=1, length=5, channels=3, states=states, groups=1)
    y, final = scan(values)
    wanted_y, wanted_final = loop(values)
    assert error(y, wanted_y) <= 1e-12 and error(final, wanted_final) <= 1e-12


@pytest.mark.parametrize("states", [3, 20, 257])
def test_gradients_with_odd_numbers_of_states(states):
    check_against_the_loop(problem(batch=2, length=35, channels=3, states=states, groups=1))


@pytest.mark.parametrize("fixed", ["B", "C"])
def test_one_row_of_b_or_c_for_all_steps(fixed):
    values = problem(length=35)
    for name in fixed:
        values[name] = values[name][0, :3, :, :].reshape(6, 16).contiguous()
    check_against_the_loop(values)


def test_three_axes_of_b_and_c_are_one_group():
    values = problem(groups=1)
    y, _ = scan(values)
    flat = values | {name: values[name].squeeze(2) for name in "BC"}
    assert torch.equal(y, scan(flat)[0])


def test_many_blocks_of_channels_and_groups():
    values = problem(batch=1, length=33, channels=132, groups=3)
    check_against_the_loop(values)


@pytest.mark.parametrize("save", ["boundaries", "all", "boundaries-bf16"])
def test_what_is_saved_decides_how_exact_gradients_are(save):
    values = problem(length=70)
    weights = weights_of(values)
    got = gradients(lambda given: scan(given, save=save), values, weights)
    want = gradients(loop, values, weights)
    limit = 1e-2 if save == "boundaries-bf16" else 1e-12
    for name in want:
        assert error(got[name], want[name]) <= limit, name


@pytest.mark.parametrize("chunk", [32, 64, 96])
def test_a_larger_chunk_changes_what_is_kept_and_nothing_else(chunk):
    values = problem(length=150)
    weights = weights_of(values)
    got = gradients(lambda given: scan(given, chunk=chunk), values, weights)
    want = gradients(scan, values, weights)
    for name in want:
        assert torch.equal(got[name], want[name]), name


# ---- facts that need no oracle


@pytest.mark.parametrize("lengths", [[1, 69], [16, 16, 16, 16, 6], [33, 1, 36], [35, 0, 35], [69, 1]])
def test_any_cut_gives_the_same_outputs_and_gradients(lengths):
    values = problem(length=70)
    weights = weights_of(values)

    def in_pieces(given):
        state, at, pieces = given["initial_state"], 0, []
        for length in lengths:
            piece = {
                name: value[:, at : at + length] if name in ("u", "delta", "B", "C", "z") else value
                for name, value in given.items()
            }
            y, state = scan(piece | {"initial_state": state})
            pieces.append(y)
            at += length
        return torch.cat(pieces, 1), state

    y, final = scan(values)
    parts, last = in_pieces(values)
    assert error(parts, y) <= 1e-13 and error(last, final) <= 1e-13
    got, want = gradients(in_pieces, values, weights), gradients(scan, values, weights)
    for name in want:
        assert error(got[name], want[name]) <= 1e-12, name


@pytest.mark.parametrize("lengths", [[1, 4999], [16] * 312 + [8], [2047, 1, 2952], [2048, 2952], [4999, 1]], ids=str)
def test_a_long_row_in_pieces_as_a_server_prefills_it(lengths):
    values = problem(batch=1, length=5000, channels=2, states=3, groups=1, dtype=torch.float32)
    weights = weights_of(values)

    def in_pieces(given):
        state, pieces = given["initial_state"], []
        moving = {name: given[name].split(lengths, 1) for name in ("u", "delta", "B", "C", "z")}
        for i in range(len(lengths)):
            piece = {name: rows[i] for name, rows in moving.items()}
            y, state = scan(given | piece | {"initial_state": state})
            pieces.append(y)
        return torch.cat(pieces, 1), state

    (y, final), (parts, last) = scan(values), in_pieces(values)
    assert error(parts, y) <= 1e-5 and error(last, final) <= 1e-5
    got, want = gradients(in_pieces, values, weights), gradients(scan, values, weights)
    for name in want:
        assert error(got[name], want[name]) <= 4e-5, name


def alone(values, begin, end, state):
    piece = {
        name: value[:1, begin:end] if name in ("u", "delta", "B", "C", "z") and value is not None else value
        for name, value in values.items()
    }
    return scan(piece | {"initial_state": state})


def test_packed_sequences_equal_their_runs_alone():
    borders = [0, 3, 3, 36, 37, 70]
    values = problem(batch=1, length=70) | {"initial_state": problem(batch=5)["initial_state"]}
    cu_seqlens = torch.tensor(borders)
    y_weights = weights_of(problem(batch=1, length=70))[0]
    state_weights = weights_of(problem(batch=5))[1]

    def packed(given):
        return scan(given, cu_seqlens=cu_seqlens)

    def one_by_one(given):
        runs = [
            alone(given, begin, end, given["initial_state"][i : i + 1])
            for i, (begin, end) in enumerate(zip(borders[:-1], borders[1:], strict=True))
        ]
        return torch.cat([y for y, _ in runs], 1), torch.cat([state for _, state in runs])

    (y, final), (wanted_y, wanted_final) = packed(values), one_by_one(values)
    assert error(y, wanted_y) <= 1e-13 and error(final, wanted_final) <= 1e-13
    got = gradients(packed, values, (y_weights, state_weights))
    want = gradients(one_by_one, values, (y_weights, state_weights))
    for name in want:
        assert error(got[name], want[name]) <= 1e-12, name


def test_labels_and_padding_equal_the_reference():
    values = problem(batch=3, length=40, channels=4)
    labels = torch.full((3, 40), -1)
    labels[0, 2:20], labels[0, 25:33], labels[0, 33:38] = 7, 7, 4      # padding on both sides and inside a sequence
    labels[1, :] = 3
    y, final = scan(values, seq_idx=labels)
    arrays = {name: value.numpy() for name, value in values.items() if name != "initial_state"}
    wanted_y, wanted_final = reference.selective_scan(
        **arrays, delta_softplus=True, initial_state=values["initial_state"].numpy(), seq_idx=labels.numpy()
    )
    assert error(y, torch.from_numpy(wanted_y)) <= 1e-12
    assert error(final, torch.from_numpy(wanted_final)) <= 1e-12
    assert torch.equal(final[2], values["initial_state"][2])           # a row of nothing but padding
    assert not y[labels < 0].any()


def test_junk_in_padding_leaks_nowhere():
    values = problem(length=40, channels=4)
    labels = torch.zeros(2, 40, dtype=torch.int32)
    labels[:, :3], labels[:, 17:22], labels[1, 35:] = -1, -1, -1
    clean = dict(values)
    for name in ("u", "delta", "B", "C", "z"):
        values[name] = values[name].masked_fill((labels < 0).view(2, 40, *[1] * (values[name].dim() - 2)), math.nan)
    weights = weights_of(values)
    got = gradients(lambda given: scan(given, seq_idx=labels), values, weights)
    want = gradients(lambda given: scan(given, seq_idx=labels), clean, weights)
    for name in want:
        assert torch.equal(got[name], want[name]), name


@pytest.mark.parametrize("packed", [False, True])
def test_an_old_state_in_a_slot_that_is_used_again_leaks_nowhere(packed):
    values = problem(batch=1 if packed else 3, length=30)
    values["initial_state"] = problem(batch=3)["initial_state"]
    more = {"cu_seqlens": torch.tensor([0, 9, 20, 30])} if packed else {}
    known = torch.tensor([True, False, True])
    cleared = values | {"initial_state": values["initial_state"] * known[:, None, None]}
    reused = values | {"initial_state": values["initial_state"].masked_fill(~known[:, None, None], math.nan)}
    weights = torch.randn_like(values["u"]), torch.randn(3, 6, 16, dtype=torch.float64)
    (y, final), (want_y, want_final) = scan(reused, has_initial_state=known, **more), scan(cleared, **more)
    assert torch.equal(y, want_y) and torch.equal(final, want_final)
    got = gradients(lambda given: scan(given, has_initial_state=known, **more), reused, weights)
    want = gradients(lambda given: scan(given, **more), cleared, weights)
    assert not got["initial_state"][1].any()
    want["initial_state"][1] = 0                            # the cleared zeros have a gradient, the old state has none
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_a_sequence_that_is_not_finite_does_not_touch_the_next():
    values = problem(batch=1, length=40, without=("initial_state",))
    dirty = dict(values, u=values["u"].clone())
    dirty["u"][:, :20] = math.inf
    borders = torch.tensor([0, 20, 40])
    y, final = scan(dirty, cu_seqlens=borders)
    clean_y, clean_final = scan(values, cu_seqlens=borders)
    assert torch.equal(y[:, 20:], clean_y[:, 20:]) and torch.equal(final[1], clean_final[1])
    assert not torch.isfinite(final[0]).all()


def test_every_run_gives_the_same_bits_and_a_row_does_so_alone():
    values = problem(batch=3, length=70, dtype=torch.float32)
    weights = weights_of(values)
    first = gradients(lambda given: scan(given, chunk=32), values, weights)
    for _ in range(3):
        again = gradients(lambda given: scan(given, chunk=32), values, weights)
        assert all(torch.equal(first[name], again[name]) for name in first)
    row = {
        name: value[1:2] if name in ("u", "delta", "B", "C", "z", "initial_state") else value
        for name, value in values.items()
    }
    y, final = scan(values, chunk=32)
    one_y, one_final = scan(row, chunk=32)
    assert torch.equal(y[1:2], one_y) and torch.equal(final[1:2], one_final)
    single = gradients(lambda given: scan(given, chunk=32), row, [weight[1:2] for weight in weights])
    for name in ("u", "delta", "B", "C", "z", "initial_state"):
        assert torch.equal(single[name], first[name][1:2]), name


def test_any_layout_is_a_view_and_gives_the_same():
    values = problem(length=24, channels=8)
    weights = weights_of(values)
    wide = torch.randn(2, 24, 29, dtype=torch.float64)
    wide[..., 5:13], wide[..., 15:23] = values["u"], values["z"]
    moved = dict(values)
    moved["u"], moved["z"] = wide[..., 5:13], wide[..., 15:23]                       # slices of a fused projection
    moved["delta"] = values["delta"].transpose(1, 2).contiguous().transpose(1, 2)    # (batch, channels, length) inside
    moved["B"] = values["B"].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)    # length innermost
    y, final = scan(values)
    other_y, other_final = scan(moved)
    assert torch.equal(y, other_y) and torch.equal(final, other_final)
    first = scan(values | {"u": values["u"].transpose(1, 2).contiguous().transpose(1, 2)})[0]
    assert first.stride() == (192, 1, 24)                                            # y is laid out like u
    leaf = leaves(values)
    by_view = gradients(lambda given: scan(given), moved, weights)
    by_copy = gradients(lambda given: scan(given), leaf, weights)
    for name in by_copy:
        assert torch.equal(by_view[name], by_copy[name]), name


@pytest.mark.parametrize("reduce", [torch.sum, torch.mean, lambda y: y[:, :1].sum()])
def test_an_expanded_gradient_equals_a_real_one(reduce):
    values = leaves(problem(length=20))
    y, _ = scan(values)
    given = [value for value in values.values()]
    got = torch.autograd.grad(reduce(y), given, retain_graph=True)
    (dy,) = torch.autograd.grad(reduce(y), [y], retain_graph=True)
    want = torch.autograd.grad(y, given, dy.contiguous().clone())
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("batch, length, channels", [(2, 0, 6), (0, 5, 6), (2, 5, 0)])
def test_empty_inputs(batch, length, channels):
    values = leaves(problem(batch=batch, length=length, channels=channels, groups=1))
    y, final = scan(values)
    assert y.shape == (batch, length, channels)
    assert torch.equal(final, values["initial_state"])
    found = torch.autograd.grad(y.sum() + 3 * final.sum(), list(values.values()))
    for (name, value), gradient in zip(values.items(), found, strict=True):
        assert torch.equal(gradient, torch.full_like(value, 3.0 if name == "initial_state" else 0.0)), name


def test_no_sequences_at_all():
    values = leaves(problem(batch=1, length=0, groups=1) | {"initial_state": problem(batch=0)["initial_state"]})
    y, final = scan(values, cu_seqlens=torch.tensor([0]))
    assert y.shape == (1, 0, 6) and final.shape == (0, 6, 16)
    for gradient in torch.autograd.grad(y.sum() + final.sum(), list(values.values())):
        assert not gradient.any()


def test_gradcheck():
    values = leaves(problem(batch=1, length=4, channels=2, states=3, groups=1))
    names = list(values)
    assert torch.autograd.gradcheck(lambda *given: scan(dict(zip(names, given, strict=True))), list(values.values()))


def test_a_second_derivative_is_refused_aloud():
    values = leaves(problem(length=5))
    y, _ = scan(values)
    (du,) = torch.autograd.grad(y.sum(), [values["u"]], create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(du.sum(), [values["A"]])


def test_a_compiled_function_is_the_same():
    values = leaves(problem(length=20, dtype=torch.float32))
    y, final = torch.compile(scan, backend="aot_eager", fullgraph=True)(values)
    wanted_y, wanted_final = scan(values)
    assert torch.equal(y, wanted_y) and torch.equal(final, wanted_final)
    given = list(values.values())
    got = torch.autograd.grad(y.sum() + final.sum(), given)
    want = torch.autograd.grad(wanted_y.sum() + wanted_final.sum(), given)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


# ---- numbers worked out by hand: public bug reports in small


def one_channel(*, u, delta, A=-1.0, B=1.0, C=1.0, dtype=torch.float64, **more):
    length = len(u)
    values = {
        "u": torch.tensor(u, dtype=dtype).view(1, length, 1),
        "delta": torch.tensor(delta, dtype=dtype).view(1, length, 1),
        "A": torch.tensor([[A]], dtype=torch.float64 if dtype == torch.float64 else torch.float32),
        "B": torch.full((1, length, 1), B, dtype=dtype),
        "C": torch.full((1, length, 1), C, dtype=dtype),
    }
    return values | more


@pytest.mark.parametrize("length", [3, 31, 32, 33])
def test_steps_behind_the_end_do_not_decay_in_the_backward(length):
    values = one_channel(u=[1.0] * length, delta=[0.0] * length, delta_bias=torch.ones(1, dtype=torch.float64))
    values = leaves(values)
    y = selective_scan(**values, delta_softplus=True)
    names = ("u", "delta", "delta_bias", "A")
    du, ddelta, dbias, dA = torch.autograd.grad(y.sum(), [values[name] for name in names])
    if length == 3:
        assert error(y, torch.tensor([1.3132617, 1.6664522, 1.7614397]).view(1, 3, 1)) <= 1e-7
        assert error(du, torch.tensor([1.7614397, 1.6664522, 1.3132617]).view(1, 3, 1)) <= 1e-7
        assert error(ddelta, torch.tensor([0.9805476, 0.6000261, 0.4034142]).view(1, 3, 1)) <= 1e-7
        assert abs(float(dbias) - 1.9839879) <= 1e-6 and abs(float(dA) - 1.1771500) <= 1e-6
    decay = math.exp(-math.log1p(math.e))
    powers = (1 - decay ** torch.arange(length, 0, -1, dtype=torch.float64)) / (1 - decay)
    assert error(du.flatten(), math.log1p(math.e) * powers) <= 1e-12


def test_rows_behind_two_to_the_31_elements_are_found():
    try:
        far = torch.empty(2**31 + 16 + 12, dtype=torch.bfloat16)
    except RuntimeError:
        pytest.skip("no 4 GiB of address space")
    values = problem(length=3, channels=4, groups=1, dtype=torch.bfloat16)
    u = far.as_strided((2, 3, 4), (2**31 + 16, 4, 1))
    u.copy_(values["u"])
    y, final = scan(values | {"u": u})
    wanted_y, wanted_final = scan(values)
    assert torch.equal(y, wanted_y) and torch.equal(final, wanted_final)
    (du,) = torch.autograd.grad(scan(values | {"u": u.requires_grad_()})[0].sum(), [u])
    near = values["u"].requires_grad_()
    (wanted_du,) = torch.autograd.grad(scan(values | {"u": near})[0].sum(), [near])
    assert torch.equal(du, wanted_du)


def test_strides_of_axes_of_length_one_do_not_matter():
    values = problem(length=1)
    moved = dict(values)
    for name in "BC":
        moved[name] = values[name].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).as_strided(
            values[name].shape, (32, 77, 16, 1)
        )
    assert torch.equal(scan(values)[0], scan(moved)[0])


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-6), (torch.float64, 1e-15)])
def test_softplus_of_raw_steps(dtype, limit):
    raw = [-100.0, -20.0, -5.0, 0.0, 3.0, 19.999, 20.0, 20.001, 100.0]
    step = selective_scan(**one_channel(u=[1.0] * 9, delta=raw, A=-1e9, dtype=dtype), delta_softplus=True).flatten()
    want = torch.tensor([math.log1p(math.exp(x)) if x <= 20 else x for x in raw], dtype=torch.float64)
    assert (step >= 0).all()
    assert ((step.double() - want).abs() <= limit * want + 1e-37).all()
    biased = one_channel(u=[1.0], delta=[0.0], dtype=dtype, delta_bias=torch.ones(1, dtype=dtype))
    assert abs(float(selective_scan(**biased, delta_softplus=True)) - 1.3132617) <= 1e-6


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-6), (torch.float64, 1e-15)])
def test_the_slope_of_softplus_is_sigmoid_also_around_20(dtype, limit):
    raw = [-100.0, -20.0, -5.0, 0.0, 3.0, 19.999, 20.0, 20.001, 100.0]
    values = leaves(one_channel(u=[1.0] * 9, delta=raw, A=-1e9, dtype=dtype))          # y = softplus(delta)
    (slope,) = torch.autograd.grad(selective_scan(**values, delta_softplus=True).sum(), values["delta"])
    raw = torch.tensor(raw, dtype=torch.float64)
    want = torch.where(raw > 20, 1.0, torch.sigmoid(raw))   # above 20 softplus is the identity: 2e-9 of a step
    steady = raw > -20                                      # below, exp(delta A) is not 0
    assert ((slope.flatten().double() - want).abs()[steady] <= 10 * limit).all()
    assert (slope >= 0).all() and (slope <= 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_state_in_bfloat16_would_stick_and_ours_does_not(dtype):
    values = one_channel(u=[1.0] * 1000, delta=[1.0] * 1000, A=math.log(0.999), B=0.001, dtype=dtype)
    _, final = selective_scan(**values, return_final_state=True)
    increment = float(torch.tensor(0.001, dtype=dtype))
    assert final.dtype == torch.float32
    assert abs(float(final) - increment / 0.001 * (1 - 0.999**1000)) <= 1e-5


def test_the_gradient_of_a_final_state_arrives():
    values = one_channel(u=[1.0] * 4, delta=[1.0] * 4, A=math.log(0.5))
    values = leaves(values | {"initial_state": torch.zeros(1, 1, 1, dtype=torch.float64)})
    _, final = selective_scan(**values, return_final_state=True)
    du, dh = torch.autograd.grad(final.sum(), [values["u"], values["initial_state"]])
    assert error(du.flatten(), torch.tensor([0.125, 0.25, 0.5, 1.0])) <= 1e-15
    assert abs(float(dh) - 0.0625) <= 1e-16


def test_a_packed_row_counts_each_sequence_from_one():
    values = one_channel(u=[1.0] * 5, delta=[1.0] * 5, A=0.0)
    want = torch.tensor([1.0, 2, 3, 1, 2], dtype=torch.float64)
    assert torch.equal(selective_scan(**values, cu_seqlens=torch.tensor([0, 3, 5])).flatten(), want)
    assert torch.equal(selective_scan(**values, seq_idx=torch.tensor([[0, 0, 0, 1, 1]])).flatten(), want)


def test_a_shorter_prompt_keeps_the_state_of_its_last_real_token():
    values = one_channel(u=[1.0] * 5, delta=[1.0] * 5, A=math.log(0.5))
    _, final = selective_scan(**values, seq_idx=torch.tensor([[0, 0, 0, -1, -1]]), return_final_state=True)
    assert abs(float(final) - 1.75) <= 1e-12


# ---- what is refused, and torch


@pytest.mark.parametrize(
    "change, kind, words",
    [
        ({"u": 3}, TypeError, "u is int: it must be a torch tensor"),
        ({"u": torch.zeros(2, 3, dtype=torch.int32)}, TypeError, "u has dtype torch.int32"),
        ({"delta": torch.zeros(2, 3, 5)}, ValueError, r"delta has shape \(2, 3, 5\), u has \(2, 37, 6\)"),
        ({"A": torch.zeros(6, 16, dtype=torch.complex64)}, TypeError, "A has dtype torch.complex64: complex weights"),
        ({"D": torch.zeros(6, dtype=torch.complex64)}, TypeError, "D has dtype torch.complex64: complex weights"),
        ({"B": torch.zeros(2, 37, 2, 16, dtype=torch.complex64)}, TypeError, "B has dtype torch.complex64"),
        ({"C": torch.zeros(2, 37, 2, 16, dtype=torch.int64)}, TypeError, "C has dtype torch.int64"),
        ({"z": torch.zeros(2, 37, 6, dtype=torch.complex64)}, TypeError, "z has dtype torch.complex64"),
        ({"delta_bias": torch.zeros(6, 1)}, ValueError, r"delta_bias has shape \(6, 1\)"),
        ({"has_initial_state": torch.ones(3, dtype=torch.bool)}, ValueError, r"has_initial_state has shape \(3,\)"),
        ({"has_initial_state": torch.ones(2)}, TypeError, "has_initial_state must be a torch tensor of bool"),
        ({"has_initial_state": torch.ones(2) > 0, "initial_state": None}, ValueError, "and initial_state is not"),
        ({"chunk": True}, ValueError, "chunk is True"),
        ({"A": torch.zeros(6, 513)}, ValueError, "A has 513 states: 1 to 512 are supported"),
        ({"A": torch.zeros(5, 16)}, ValueError, r"A has shape \(5, 16\)"),
        ({"B": torch.zeros(2, 37, 4, 16)}, ValueError, "B has 4 groups: they must divide the 6 channels"),
        ({"B": torch.zeros(2, 37, 3, 16)}, ValueError, "B has 3 groups, C has 2: they must be equal"),
        ({"C": torch.zeros(2, 36, 2, 16)}, ValueError, r"C has shape \(2, 36, 2, 16\)"),
        ({"D": torch.zeros(7)}, ValueError, r"D has shape \(7,\): it must be \(channels,\) = \(6,\)"),
        ({"initial_state": torch.zeros(2, 6, 15)}, ValueError, r"it must be \(2, 6, 16\)"),
        ({"chunk": 48}, ValueError, "chunk is 48: it must be a positive multiple of 32"),
        ({"save": "some"}, ValueError, "save is 'some'"),
        ({"cu_seqlens": torch.tensor([0, 37])}, ValueError, "u has batch 2: with cu_seqlens"),
    ],
)
def test_errors_name_the_argument_and_the_rule(change, kind, words):
    with pytest.raises(kind, match=words):
        selective_scan(**problem(dtype=torch.float32) | change)


@pytest.mark.parametrize("batch, length, layout", [(2, 33, "channels"), (1, 1, "channels"), (2, 33, "time")])
def test_the_operator_keeps_its_promises_to_torch(batch, length, layout):
    values = problem(batch=batch, length=length, channels=4, dtype=torch.float32)
    if layout == "time":
        values |= {name: values[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("u", "delta", "z")}
    values = leaves(values)
    arguments = (*values.values(), None, None, batch, True, 0, "boundaries")
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.ssmlab.selective_scan_forward.default, arguments, test_utils=checks)


def test_running_the_defining_cell_twice_works():
    text = (
        "import importlib, torch, ssmlab.selective as module\n"
        "importlib.reload(module)\n"
        "one = torch.ones(1, 3, 1)\n"
        "assert module.selective_scan(one, one, torch.zeros(1, 1), one, one).flatten().tolist() == [1, 2, 3]\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_examples_in_docstrings_hold():
    assert doctest.testmod(selective).failed == 0


def test_explanations_name_what_is_kept_and_refuse_what_the_op_refuses():
    values = problem(dtype=torch.bfloat16)
    told = ssmlab.explain_selective_scan(**values, delta_softplus=True, save="boundaries-bf16")
    assert told.startswith("forward: rows whole, ") and told.endswith("kept: a state every 32 steps in bfloat16")
    assert ssmlab.explain_selective_scan(**values, save="all").endswith("kept: a state every step")
    assert "empty" in ssmlab.explain_selective_scan(**problem(length=0))
    with pytest.raises(ValueError, match="chunk is 48"):
        ssmlab.explain_selective_scan(**values, chunk=48)


def test_mixed_dtypes_are_brought_to_the_widest():
    values = problem(length=20, dtype=torch.float32)
    values["u"], values["B"] = values["u"].bfloat16(), values["B"].half()
    y, final = scan(values)
    wanted_y, wanted_final = loop(in_float64(values))
    assert y.dtype == torch.bfloat16 and final.dtype == torch.float32
    assert error(y, wanted_y) <= TOLERANCE[torch.bfloat16] and error(final, wanted_final) <= 1e-5


@pytest.mark.parametrize("save", ["boundaries", "all"])
@pytest.mark.parametrize("name", ["A", "initial_state", "d_final"])
def test_a_dense_tensor_that_is_not_aligned_gives_the_same_bits(name, save):
    def shifted(tensor):
        flat = torch.empty(tensor.numel() + 1)
        return flat[1:].view(tensor.shape).copy_(tensor)

    values = problem(length=70, channels=12, states=16, groups=1, dtype=torch.float32)
    weights = torch.randn_like(values["u"]), torch.randn_like(values["initial_state"])
    found = []
    for change in (lambda tensor: tensor, shifted):
        given = values | ({name: change(values[name])} if name in values else {})
        given = {key: value.detach().requires_grad_() for key, value in given.items()}
        y, final = selective_scan(**given, delta_softplus=True, return_final_state=True, save=save)
        d_final = change(weights[1]) if name == "d_final" else weights[1]
        found.append(torch.autograd.grad((y, final), list(given.values()), (weights[0], d_final)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
