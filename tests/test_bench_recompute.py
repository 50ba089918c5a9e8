"""The benchmark of recomputation: its rows, and that what it counts as kept is what the ledger predicts."""

import json

import pytest
import torch

from ssmlab import bench, bench_recompute, ledger, selective_plans
from ssmlab.bench_selective import problem
from ssmlab.selective import selective_scan

CPU = torch.device("cpu")


@pytest.fixture
def tiny(monkeypatch):
    """Times of 0.5 ms for everything, and one tiny shape."""

    def median(run, device, **_):
        run()
        return 0.5

    monkeypatch.setattr(bench, "median_ms", median)
    monkeypatch.setattr(bench_recompute, "_CPU", (2, 40, 4, 16))


def test_every_row_keeps_what_the_ledger_predicts(tiny, tmp_path, capsys):
    bench.main(["recompute", "--device", "cpu", "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "recompute_cpu.json").read_text())["rows"]
    facts = [row["facts"] for row in rows]
    assert [(fact["save"], fact["chunk"]) for fact in facts] == bench_recompute.ways(every_chunk=False)
    assert all(fact["kept"] == fact["predicted"] > 0 for fact in facts)
    assert facts[0]["kept"] == 2 * 40 * 4 * 16 * 4          # every state, in float32
    assert all(fact["forward_ms"] == fact["backward_ms"] == 0.5 for fact in facts)
    assert "all, every step" in capsys.readouterr().out


def test_the_chunks_reach_from_what_the_kernels_want_to_the_sources_256():
    chunks = [chunk for save, chunk in bench_recompute.ways() if save == "boundaries"]
    assert chunks[:2] == [None, selective_plans.BORDER] and chunks[-1] == 256
    assert all(later == 2 * earlier for earlier, later in zip(chunks[1:], chunks[2:], strict=False))


def test_inputs_are_not_counted_and_a_saved_view_counts_with_its_storage():
    x = torch.ones(5, dtype=torch.float64, requires_grad=True)
    assert bench_recompute.kept(lambda: x * x, [x]) == 0
    assert bench_recompute.kept(lambda: x.exp(), [x]) == 40
    assert bench_recompute.kept(lambda: x.exp()[:2] * x[:2], [x]) == 40     # exp's result, once, and x


@pytest.mark.gpu
@pytest.mark.parametrize("save", ledger.SAVE)
def test_torchs_allocator_counts_what_the_ledger_predicts(save):
    shape, device = (2, 130, 64, 16), torch.device("cuda")
    values = {name: value.requires_grad_() for name, value in problem(*shape, torch.bfloat16, device).items()}
    inputs = list(values.values())

    def forward():
        return selective_scan(**values, delta_softplus=True, save=save, chunk=64)

    def backward(y):
        return torch.autograd.grad(y, inputs, torch.ones_like(y))

    backward(forward())                                     # kernels are compiled
    stays, highest = bench_recompute.peak(forward, backward)
    want = ledger.saved_states(*shape, save=save, chunk=64)
    assert stays == bench_recompute.kept(forward, inputs) == want
    assert highest >= want + 4 * values["u"].nbytes         # y, and the gradients of u, delta and z
