"""The selective scan on a GPU: every path of the kernels against float64 on the CPU, streams, graphs, bits, memory."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from selective_problem import error, gradients, in_float64, loop, problem

from ssmlab import ledger, replay
from ssmlab.selective import explain_selective_scan, selective_scan, selective_state_update

pytestmark = pytest.mark.gpu
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def scan(values, **more):
    return selective_scan(**values, delta_softplus=True, return_final_state=True, **more)


def on_gpu(values, layout="channels"):
    moved = {name: None if value is None else value.cuda() for name, value in values.items()}
    if layout == "time":
        for name in ("u", "delta", "z"):
            moved[name] = moved[name].transpose(1, 2).contiguous().transpose(1, 2)
        for name in "BC":
            moved[name] = moved[name].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    if layout == "slices":
        for name in ("u", "delta", "z"):
            wide = torch.zeros(*moved[name].shape[:2], moved[name].shape[2] + 3, dtype=moved[name].dtype, device="cuda")
            wide[..., 1:-2] = moved[name]
            moved[name] = wide[..., 1:-2]
    return moved


def compare(values, layout="channels", **more):
    dtype = values["u"].dtype
    generator = torch.Generator().manual_seed(3)
    slots = values["initial_state"].shape[0]
    weights = (
        torch.randn(values["u"].shape, generator=generator, dtype=torch.float64),
        torch.randn(slots, *values["A"].shape, generator=generator, dtype=torch.float64),
    )
    exact = in_float64(values)
    there = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in more.items()}
    moved = on_gpu(values, layout)
    y, final = scan(moved, **there)
    packing = {name: value for name, value in more.items() if name in ("seq_idx", "cu_seqlens")}
    wanted_y, wanted_final = scan(exact, **packing)
    assert y.stride() == torch.empty_like(moved["u"]).stride()
    assert error(y.cpu(), wanted_y) <= TOLERANCE[dtype]
    assert error(final.cpu(), wanted_final) <= TOLERANCE[torch.float64 if dtype == torch.float64 else torch.float32]
    given = {name: value.detach() for name, value in moved.items()}
    got = gradients(lambda leaf: scan(leaf, **there), given, [weight.cuda() for weight in weights])
    want = gradients(lambda leaf: scan(leaf, **packing), exact, weights)
    for name in want:
        assert error(got[name].cpu(), want[name]) <= 4 * TOLERANCE[dtype], name


@pytest.mark.parametrize("layout", ["channels", "time", "slices"])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_every_dtype_and_layout(dtype, layout):
    compare(problem(length=100, channels=72, groups=2, dtype=dtype), layout)


@pytest.mark.parametrize("states", [1, 3, 4, 8, 16, 17, 33, 64, 128, 256, 257])
def test_every_path_for_states(states):
    compare(problem(batch=1, length=67, channels=20, states=states, groups=1, dtype=torch.float32))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 64, 65, 2048, 5000])
def test_lengths_around_tiles_and_chunks(length):
    compare(problem(batch=1, length=length, channels=12, groups=1, dtype=torch.float32))


@pytest.mark.parametrize("save", ["all", "boundaries"])
@pytest.mark.parametrize("chunk", [None, 64, 256])
def test_what_is_kept(save, chunk):
    compare(problem(batch=1, length=700, channels=64, groups=1, dtype=torch.float32), save=save, chunk=chunk)


@pytest.mark.parametrize("length", [90, 3000])
@pytest.mark.parametrize("layout", ["channels", "time"])
def test_packed_and_padded_rows(length, layout):
    values = problem(length=length, channels=8, groups=2, dtype=torch.float32)
    labels = torch.zeros(2, length, dtype=torch.int32)
    labels[:, :5], labels[0, 20:31], labels[:, 40:], labels[1, -7:] = -1, -1, 4, -1
    compare(values, layout, seq_idx=labels)
    one = problem(batch=1, length=length, channels=8, groups=2, dtype=torch.float32)
    one["initial_state"] = problem(batch=4, channels=8, dtype=torch.float32)["initial_state"]
    compare(one, layout, cu_seqlens=torch.tensor([0, 33, 33, 34, length], dtype=torch.int32))


@pytest.mark.parametrize("fixed", ["B", "C", "BC"])
def test_fixed_b_and_c(fixed):
    values = problem(length=200, channels=12, dtype=torch.float32)
    for name in fixed:
        values[name] = values[name][0, :6].reshape(12, 16).contiguous()
    compare(values)


def test_the_same_bits_in_twenty_runs_and_for_a_row_alone():
    values = on_gpu(problem(batch=8, length=1024, channels=256, groups=1, dtype=torch.bfloat16))
    weights = (torch.randn(8, 1024, 256, device="cuda"), torch.randn(8, 256, 16, device="cuda"))
    first = gradients(lambda leaf: scan(leaf, chunk=32), values, weights)
    for _ in range(20):
        again = gradients(lambda leaf: scan(leaf, chunk=32), values, weights)
        assert all(torch.equal(first[name], again[name]) for name in first)
    rows = ("u", "delta", "B", "C", "z", "initial_state")
    row = {name: value[5:6] if name in rows else value for name, value in values.items()}
    alone = gradients(lambda leaf: scan(leaf, chunk=32), row, [weight[5:6] for weight in weights])
    assert torch.equal(scan(row, chunk=32)[0], scan(values, chunk=32)[0][5:6])
    for name in rows:
        assert torch.equal(alone[name], first[name][5:6]), name


@pytest.mark.parametrize("length", [33, 3000])              # in one piece, and cut into segments
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_calls_are_repeated_and_give_the_same_bits(dtype, length, monkeypatch):
    monkeypatch.setattr(replay, "_plans", {})
    weights = torch.randn(2, length, 64, device="cuda"), torch.randn(2, 64, 16, device="cuda")
    found = []
    for seed in (0, 1, 2, 0, 1, 2):
        values = on_gpu(problem(length=length, channels=64, dtype=dtype, seed=seed))
        pool = values["initial_state"].clone()
        with torch.no_grad():
            y, final = scan(values)
            token = selective_state_update(
                pool, values["u"][:, 0], values["delta"][:, 0], values["A"], values["B"][:, 0], values["C"][:, 0],
                values["D"], values["z"][:, 0], values["delta_bias"], True,
            )  # fmt: skip
        found.append([y, final, token, pool, *gradients(scan, values, weights).values()])
    plans = {key[0].__name__: plan for key, plan in replay._plans.items()}
    assert all(isinstance(plan, replay.Plan) for plan in plans.values()) and len(plans) == 3
    for first, again in zip(found[:3], found[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_two_threads_repeat_one_plan_on_streams_of_their_own():
    inputs = [on_gpu(problem(length=300, channels=64, dtype=torch.float32, seed=seed)) for seed in (0, 1)]
    want = [scan(values)[0] for values in inputs]
    torch.cuda.synchronize()

    def wrong(values, wanted):
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            return sum(not torch.equal(scan(values)[0], wanted) for _ in range(200))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(wrong, inputs, want)) == [0, 0]


def test_with_a_chunk_a_row_is_cut_as_it_would_be_alone():
    told = {}
    for batch in (1, 64):
        values = on_gpu(problem(batch=batch, length=4096, channels=64, groups=1, dtype=torch.bfloat16))
        for chunk in (None, 64):
            sentence = explain_selective_scan(**values, chunk=chunk)
            told[batch, chunk] = re.sub(r"\d+ blocks? of", "blocks of", sentence)
    assert told[1, 64] == told[64, 64] != told[64, None]
    assert "segments" in told[1, None] and "pieces" in told[1, None]


def test_a_side_stream_is_used():
    values = on_gpu(problem(length=300, channels=64, dtype=torch.float32))
    want = scan(values)[0]
    slow = torch.randn(4096, 4096, device="cuda")
    stream = torch.cuda.Stream()
    for _ in range(10):
        with torch.cuda.stream(stream):
            later = values | {"u": torch.zeros_like(values["u"])}
            for _ in range(4):
                slow = (slow @ slow).clamp(-1, 1)
            later["u"].copy_(values["u"])
            y = scan(later)[0].clone()
        stream.synchronize()
        assert torch.equal(y, want)


@pytest.mark.parametrize("calls", [1, 2, 3])                # before the capture: it is written out, watched, repeated
def test_a_cuda_graph_replays_forward_backward_and_token(calls, monkeypatch):
    monkeypatch.setattr(replay, "_plans", {})
    values = on_gpu(problem(length=256, channels=64, dtype=torch.float32))
    inputs = {name: value.clone().requires_grad_() for name, value in values.items()}
    state = values["initial_state"].clone()
    token = [values[name][:, 0].clone() for name in ("u", "delta", "B", "C", "z")]

    def step(states):
        with torch.no_grad():
            return selective_state_update(
                states, token[0], token[1], values["A"], token[2], token[3], values["D"], token[4],
                values["delta_bias"], True,
            )  # fmt: skip

    def work():
        y, _ = scan(inputs)
        return y, torch.autograd.grad(y.sum(), inputs["u"])[0], step(state)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(calls):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, du, out = work()
    with torch.no_grad():
        inputs["u"].copy_(2 * values["u"])
    before = state.clone()
    graph.replay()
    assert torch.equal(out, step(before)) and torch.equal(state, before)
    again = {name: value.clone().requires_grad_() for name, value in values.items()}
    with torch.no_grad():
        again["u"].mul_(2)
    want, _ = scan(again)
    assert torch.equal(y, want)
    assert torch.equal(du, torch.autograd.grad(want.sum(), again["u"])[0])


@pytest.mark.parametrize("save", ledger.SAVE)
def test_memory_kept_is_the_ledgers(save):
    values = on_gpu(problem(length=512, channels=256, groups=1))
    y, _ = scan({name: value.requires_grad_() for name, value in values.items()}, save=save)
    kept = y.grad_fn.saved_tensors[-1]
    assert kept.nbytes == ledger.saved_states(2, 512, 256, 16, save=save, real=8)


@pytest.mark.parametrize("batch, channels", [(3, 40), (600, 64)])
@pytest.mark.parametrize("state_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("states", [16, 20])
def test_one_token(batch, channels, state_type, states):
    values = problem(batch=batch, length=1, channels=channels, states=states, dtype=torch.bfloat16)
    state = values["initial_state"].to(state_type)
    values["initial_state"] = state.float()
    wanted_y, wanted = loop(in_float64(values))
    moved, pool = on_gpu(values), state.cuda()
    y = selective_state_update(
        pool, moved["u"][:, 0], moved["delta"][:, 0], moved["A"], moved["B"][:, 0], moved["C"][:, 0], moved["D"],
        moved["z"][:, 0], moved["delta_bias"], True,
    )  # fmt: skip
    assert error(y.cpu(), wanted_y[:, 0]) <= TOLERANCE[torch.bfloat16]
    assert error(pool.cpu(), wanted) <= (1e-5 if state_type == torch.float32 else 1e-2)


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_slots_padding_and_slots_that_are_used_again(index_type):
    values = problem(batch=4, length=1, channels=36, dtype=torch.bfloat16)
    known = torch.tensor([True, False, True, True])
    indices = torch.tensor([3, 5, -1, 0], dtype=index_type)
    pool = torch.full((6, 36, 16), float("nan"), device="cuda")
    for row in (0, 3):
        pool[int(indices[row])] = values["initial_state"][row].cuda()
    before = pool.clone()
    values["initial_state"] = values["initial_state"] * known[:, None, None]
    wanted_y, wanted = loop(in_float64(values))
    moved = on_gpu(values)
    y = selective_state_update(
        pool, moved["u"][:, 0], moved["delta"][:, 0], moved["A"], moved["B"][:, 0], moved["C"][:, 0], moved["D"],
        moved["z"][:, 0], moved["delta_bias"], True, state_indices=indices.cuda(), has_initial_state=known.cuda(),
    )  # fmt: skip
    rows = [0, 1, 3]
    assert not y[2].any()
    assert error(y[rows].cpu(), wanted_y[rows, 0]) <= TOLERANCE[torch.bfloat16]
    assert error(pool[[3, 5, 0]].cpu(), wanted[rows]) <= 1e-5
    assert torch.equal(pool[[1, 2, 4]].view(torch.int32), before[[1, 2, 4]].view(torch.int32))


def test_a_compiled_function_is_the_same():
    values = on_gpu(problem(length=64, channels=64, dtype=torch.float32))
    compiled = torch.compile(lambda given: scan(given), fullgraph=True)
    y, final = compiled(values)
    want, wanted_final = scan(values)
    assert torch.equal(y, want) and torch.equal(final, wanted_final)
