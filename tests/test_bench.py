"""The benchmark's harness: arguments, table and JSON, without a GPU and without looking at any time."""

import json

import pytest
import torch

from ssmlab import bench, bench_scan, scan

CPU = torch.device("cpu")


@pytest.fixture
def quick(monkeypatch):
    """Times of 0.5 ms for everything, and one tiny shape."""
    ran = []

    def median(run, device, **_):
        run()
        ran.append(run)
        return 0.5

    monkeypatch.setattr(bench, "median_ms", median)
    monkeypatch.setattr(bench_scan, "_CPU", [(2, 3, 16)])
    return ran


def test_the_results_have_the_agreed_form(quick, tmp_path, capsys):
    bench.main(["scan", "--device", "cpu", "--output", str(tmp_path)])
    result = json.loads((tmp_path / "scan_cpu.json").read_text())
    assert list(result) == ["device", "date", "command", "versions", "copy_gbps", "rows"]
    assert [row["layout"] for row in result["rows"]] == ["columns", "rows"]
    agreed = "op direction shape dtype layout ours_ms peer peer_ms copy_fraction floor_ms floor_kind".split()
    assert list(result["rows"][0])[: len(agreed)] == agreed
    assert torch.__version__.startswith(result["versions"]["torch"].partition("+")[0])
    printed = capsys.readouterr().out
    assert "scan forward" in printed and "large copy" in printed


def test_a_peer_that_fails_is_reported_and_not_hidden(quick):
    def broken():
        raise RuntimeError("no such kernel\nmore")

    peers = {"good": lambda: 1, "bad": broken}
    case = bench.Case("scan", "forward", (1, 2, 3), "float32", "rows", 72, lambda: None, peers)
    row = bench.measure(case, CPU, gbps=100.0)
    assert row.peer == "good" and row.peers_ms == {"good": 0.5, "bad": "RuntimeError: no such kernel"}
    assert row.floor_ms == pytest.approx(72e-6 / 100) and row.copy_fraction == pytest.approx(row.floor_ms / 0.5)


def test_only_picks_cases_by_words(quick):
    result = bench.run("scan", CPU, only=["columns"], show=lambda line: None)
    assert [row["layout"] for row in result["rows"]] == ["columns"]


def test_an_unknown_op_is_refused(capsys):
    with pytest.raises(SystemExit):
        bench.main(["sort"])
    assert "op is 'sort': it must be one of" in capsys.readouterr().err


def test_times_are_taken_on_a_cpu():
    assert len(bench.times_ms(lambda: None, CPU)) >= 5
    assert bench.median_ms(lambda: None, CPU) >= 0
    assert bench.copy_gbps(CPU, size=2**20) > 0


@pytest.mark.parametrize("form", [bench_scan.loop, bench_scan.tree])
def test_the_torch_forms_that_ours_is_compared_with_are_right(form):
    a, b = bench_scan.problem(2, 3, 64, torch.float32, "columns", CPU)
    assert torch.allclose(form(a, b), scan(a, b), rtol=1e-5, atol=1e-5)
    if form is bench_scan.tree:
        with pytest.raises(ValueError, match="length is 3: it must be a power of two"):
            form(a[:, :3], b[:, :3])


def test_a_fact_that_is_a_time_is_shown_beside_the_others(quick):
    facts = {"do_bench": {"ours": 0.25, "good": 0.125}}
    case = bench.Case("scan", "forward", (1, 2, 3), "float32", "rows", 72, lambda: None, {"good": lambda: 1},
                      facts=lambda: facts)  # fmt: skip
    row = bench.measure(case, CPU, gbps=100.0)
    assert row.facts == facts
    head, line = bench.report([row], 100.0).splitlines()[2:]
    assert "do_bench ms" in head and "0.2500" in line and "0.1250" in line


@pytest.mark.gpu
def test_times_are_taken_on_a_gpu():
    device, x = torch.device("cuda", 0), torch.ones(1000, device="cuda")
    assert len(bench.times_ms(x.zero_, device, warmup_ms=1, measure_ms=1)) >= 5
    assert bench.once_ms(x.zero_, bench.sweep_of(device)) > 0
    assert set(bench.do_bench_ms({"ours": x.zero_, "missing": None})) <= {"ours"}


@pytest.mark.gpu
def test_every_case_of_a_gpu_can_be_made():
    assert next(iter(bench_scan.cases(torch.device("cuda", 0)))).peers is not None
