"""The selective scan on a GPU: every path of the kernels against float64 on the CPU, streams, graphs, bits, memory."""

import pytest
import torch
from selective_problem import error, gradients, in_float64, loop, problem

from ssmlab import ledger
from ssmlab.selective import selective_scan, selective_state_update

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


def test_a_cuda_graph_replays_forward_backward_and_token():
    values = on_gpu(problem(length=256, channels=64, dtype=torch.float32))
    inputs = {name: value.clone().requires_grad_() for name, value in values.items()}
    state = values["initial_state"].clone()
    token = [values[name][:, 0].clone() for name in ("u", "delta", "B", "C", "z")]

    def work():
        y, _ = scan(inputs)
        with torch.no_grad():
            out = selective_state_update(
                state, token[0], token[1], values["A"], token[2], token[3], values["D"], token[4],
                values["delta_bias"], True,
            )  # fmt: skip
        return y, torch.autograd.grad(y.sum(), inputs["u"])[0], out

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, du, _ = work()
    with torch.no_grad():
        inputs["u"].copy_(2 * values["u"])
    graph.replay()
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


def test_a_compiled_function_is_the_same():
    values = on_gpu(problem(length=64, channels=64, dtype=torch.float32))
    compiled = torch.compile(lambda given: scan(given), fullgraph=True)
    y, final = compiled(values)
    want, wanted_final = scan(values)
    assert torch.equal(y, want) and torch.equal(final, wanted_final)
