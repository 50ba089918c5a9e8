"""The sweep over strategies of notebook 05 as far as a CPU can run it: what is tried, compared, drawn and stored."""

import json

import matplotlib
import numpy as np
import pytest
import torch

from ssmlab import bench_carries, bench_strategies, lab, reference, scan_kernels
from ssmlab.lab import notebooks, strategies

matplotlib.use("Agg")
CPU = torch.device("cpu")


def ladder(rows, length, chunk, device=CPU):
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(rows, length, generator=generator) * 0.03 + 0.97
    b, start = torch.randn(rows, length, generator=generator), torch.randn(rows, generator=generator)
    want, _ = reference.scan(a.numpy(), b.numpy(), start.numpy())
    return bench_carries.Ladder(a.to(device), b.to(device), start.to(device), chunk), want


def assert_right(steps, way, want):
    for _ in range(2):                                                  # twice: the board is cleared each time
        steps.h.fill_(torch.nan)
        getattr(steps, way)()
        assert np.max(np.abs(steps.h.cpu().numpy() - want)) <= 4e-6 * np.max(np.abs(want))


@pytest.mark.parametrize("way", bench_carries.WAYS)
@pytest.mark.parametrize("rows, length, chunk", [(3, 1000, 64), (1, 8, 4), (40, 257, 256)])
def test_the_ladder_that_is_timed_is_right_without_checks(rows, length, chunk, way):
    steps, want = ladder(rows, length, chunk)
    assert_right(steps, way, want)


@pytest.mark.gpu
@pytest.mark.parametrize("way", bench_carries.WAYS)
@pytest.mark.parametrize("rows, length, chunk", [(3, 1000, 64), (1, 8, 4), (1, 2**20, 256), (3000, 5000, 256)])
def test_the_ladder_is_right_on_a_gpu(rows, length, chunk, way):
    steps, want = ladder(rows, length, chunk, torch.device("cuda", 0))
    assert_right(steps, way, want)


def shape(rows, length, layout):
    """The Shape of fp32 tensors on a GPU, made without one."""
    strides = (length * rows, *((1, length) if layout == "rows" else (rows, 1)))
    gpu = torch.device("cuda", 0)
    return scan_kernels.Shape(1, length, rows, (strides,) * 3, True, torch.float32, gpu, False, False, False)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("rows, length", [(1, 512), (4, 2**24), (1536, 2**16), (24576, 512)])
def test_every_strategy_has_plans_for_every_shape(rows, length, layout):
    for strategy in bench_strategies.STRATEGIES:
        found = bench_strategies.plans(shape(rows, length, layout), strategy)
        assert found and {plan.algorithm for plan in found} == {strategy}
        if strategy in ("chain", "totals"):
            assert len({plan.chunk for plan in found}) == len(found) <= 3
            assert all(plan.chunk % plan.tile == 0 for plan in found)


@pytest.fixture
def quick(monkeypatch):
    """No clock: everything takes 1 ms, a walk by one thread 30 ms."""

    def took(run, *_):
        run()
        return 30.0 if "thread" in str(run.__defaults__) else 1.0

    monkeypatch.setattr(bench_strategies, "once_ms", took)
    monkeypatch.setattr(bench_strategies, "median_ms", lambda run, device, warmup_ms, measure_ms: took(run))
    monkeypatch.setattr(bench_strategies, "recorded", lambda run: run)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_point_compares_all_strategies_and_keeps_the_best_time_of_each(quick, layout):
    found = bench_strategies.point(1, 300, 5, layout, CPU)
    assert found["shape"] == [1, 300, 5] and found["layout"] == layout
    assert found["ms"] == {**dict.fromkeys(bench_strategies.STRATEGIES, 1.0), "thread": 30.0}
    longer = bench_strategies.point(1, 1200, 5, layout, CPU, shorter=found)
    assert longer["ms"]["thread"] is None and "left out" in longer["how"]["thread"]
    assert "lookback 1.0000" in bench_strategies.line(longer) and "thread" not in bench_strategies.line(longer)


def test_a_wrong_result_has_no_time(quick, monkeypatch):
    right = scan_kernels.run

    def wrong(a, b, h, *more, plan):
        right(a, b, h, *more, plan=plan)
        if plan.algorithm == "chain":
            h[0, 7, 0] = torch.nan

    monkeypatch.setattr(scan_kernels, "run", wrong)
    with pytest.raises(RuntimeError, match="chain with tiles of .* differs by nan"):
        bench_strategies.point(1, 300, 1, "rows", CPU)


def test_the_sweep_stays_below_its_memory_and_draws_one_row_once(quick, monkeypatch):
    monkeypatch.setattr(bench_strategies, "MOST_STEPS", 1000)
    found = bench_strategies.shapes(CPU, rows=(1, 3), lengths=(100, 300, 500), show=str)
    kept = [(point["layout"], point["shape"][2], point["shape"][1]) for point in found]
    assert kept == [("rows", 1, 100), ("rows", 1, 300), ("rows", 1, 500), ("rows", 3, 100), ("rows", 3, 300),
                    ("columns", 3, 100), ("columns", 3, 300)]


def point(length, rows, layout="rows", **ms):
    return {"shape": [1, length, rows], "layout": layout, "ms": ms}


def test_who_is_within_five_percent_wins_too():
    assert strategies.winners(point(8, 1, chain=1.04, totals=1.0, thread=None, block=2.0)) == (["totals", "chain"], 2.0)
    assert strategies.winners(point(8, 1, chain=3.0)) == (["chain"], float("inf"))


def test_the_map_has_a_box_for_every_shape_and_a_stripe_for_every_winner():
    points = [point(8, 1, chain=1.0, totals=1.0, block=3.0), point(16, 1, block=1.0, chain=12.0),
              point(8, 4, "columns", block=1.0, chain=2.0)]
    fig, axes = lab.figure(columns=2)
    for ax, layout in zip(axes, ("rows", "columns"), strict=True):
        strategies.strategy_map(points, layout, ax)
    strategies.strategy_legend(fig, points)
    assert [len(ax.patches) for ax in axes] == [3, 1]
    assert [text.get_text() for text in axes[0].texts] == ["3.0", "12"]
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["2$^{3}$", "2$^{4}$"]
    assert {text.get_text() for text in fig.legends[0].get_texts()} == {
        "a block a row", "two passes, chain", "two passes, totals scanned"}
    matplotlib.pyplot.close(fig)


def test_a_point_is_found_by_its_shape():
    points = [point(8, 1), point(8, 2), point(8, 2, "columns")]
    assert strategies.at(points, 8, 2) is points[2] and strategies.at(points, 8, 2, "rows") is points[1]
    with pytest.raises(ValueError):
        strategies.at(points, 9, 2)


def test_the_text_is_json_with_one_measurement_a_line():
    found = {"device": "none", "versions": {"a": "1"}, "copy_gbps": 1.23456, "carries": [{"rows": 1}],
             "shapes": [point(8, 1, chain=0.123456), point(8, 2, chain=None)]}
    text = bench_strategies.text(found)
    found["shapes"][0]["ms"]["chain"] = 0.1235
    assert json.loads(text) == found and sum('"shape"' in line for line in text.splitlines()) == 2


def test_the_stored_measurements_are_complete():
    stored = json.loads((notebooks.RESULTS / "strategies_h200.json").read_text(encoding="utf-8"))
    assert list(stored) == ["device", "date", "command", "versions", "copy_gbps", "carries", "channels", "shapes"]
    shapes = {(found["layout"], found["shape"][2], found["shape"][1]) for found in stored["shapes"]}
    assert shapes == {(layout, rows, length) for layout in ("rows", "columns") for rows in bench_strategies.ROWS
                      for length in bench_strategies.LENGTHS
                      if rows * length <= bench_strategies.MOST_STEPS and not (layout == "columns" and rows == 1)}
    for found in stored["shapes"] + stored["channels"]:
        assert set(found["ms"]) == set(found["how"]) == set(bench_strategies.STRATEGIES)
        assert all(ms is None or ms > 0 for ms in found["ms"].values())
    assert [case["rows"] for case in stored["carries"]] == [1, 64, 1536, 24576]


def test_without_a_gpu_the_command_says_why_there_is_nothing_to_measure(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench_strategies.main([])
    assert "torch sees no GPU" in capsys.readouterr().err
