"""The table of algorithms and tiles: complete, compilable, and what tune_scan writes is what scan_kernels reads."""

import json

import nvrtc
import pytest
import torch

from ssmlab import kernels, scan_kernels, tune_scan

ENTRIES = scan_kernels.table()
DTYPES = {16: torch.bfloat16, 32: torch.float32, 64: torch.float64}
GPU = torch.device("cuda", 0)  # only named, never used


def shape(layout, bits, direction, *, rows=64, length=512, packed=False, aligned=True):
    """A Shape as a dense tensor has it; rows are channels of one batch row."""
    strides = (rows * length, 1, length) if layout == "rows" else (rows * length, rows, 1)
    backward = direction == "backward"
    return scan_kernels.Shape(
        1, length, rows, (strides,) * (4 if backward else 3), aligned, DTYPES[bits], GPU, False, backward, packed
    )


def test_every_layout_size_and_direction_has_every_algorithm_at_every_length():
    for layout in ("rows", "columns"):
        for bits in DTYPES:
            for direction in ("forward", "backward"):
                for length in (1, 31, 64, 100, 300, 1000, 5000, 10**6):
                    for rows in (1, 40, 100, 5000, 10**5):
                        for algorithm in scan_kernels.ALGORITHMS:
                            task = shape(layout, bits, direction, rows=rows, length=length)
                            plan = scan_kernels.plan_of(task, algorithm)
                            assert algorithm == "auto" or plan.algorithm == algorithm
                            assert plan.chunk * plan.chunks >= length > plan.chunk * (plan.chunks - 1)


def test_a_named_algorithm_takes_the_same_tile_for_any_number_of_rows():
    for algorithm in ("block", "chain", "totals", "lookback", "relay"):
        for layout in ("rows", "columns"):
            plans = [
                scan_kernels.plan_of(shape(layout, 32, "forward", rows=rows, length=40_000), algorithm)
                for rows in (2, 64, 200, 10_000)
            ]
            assert len({(plan.tile, plan.chunk) for plan in plans}) == 1


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_every_tile_compiles(number):
    entry = ENTRIES[number]
    most_shared = entry["algorithm"] != "block" or entry["bits"] == 64
    for aligned, packed in ((True, False), (False, True)) if most_shared else ((True, False),):
        task = shape(entry["layout"], entry["bits"], entry["direction"], packed=packed, aligned=aligned)
        plan = scan_kernels.plan_with(task, entry["algorithm"], entry["tile"], "")
        assert plan.wide == aligned
        name = f"scan_{entry['algorithm']}.cu"
        options = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in (*plan.constants, *plan.mode)]
        nvrtc.ptx(kernels.source(name), name, options, "compute_90")


def test_a_tile_that_asks_for_too_much_shared_memory_is_refused_by_name():
    task = shape("columns", 64, "backward", aligned=False)
    plan = scan_kernels.plan_with(task, "lookback", [8, 32, 4, 2, 1, 2, 1], "")
    options = [f"-D{key}" if value is None else f"-D{key}={value}" for key, value in (*plan.constants, *plan.mode)]
    with pytest.raises(Exception, match="48 KB of static shared memory"):
        nvrtc.ptx(kernels.source("scan_lookback.cu"), "scan_lookback.cu", options, "compute_90")


def test_too_many_blocks_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"needs 8589934592 blocks: a GPU takes 2147483647"):
        scan_kernels.plan_of(shape("rows", 32, "forward", rows=2**33, length=512), "block")


def test_tuning_merges_neighbours_and_writes_what_is_read(monkeypatch):
    answers = {128: ("block", [32, 1, 4, 0, 1]), 256: ("block", [32, 1, 4, 0, 1])}
    asked = []

    def best(layout, bits, direction, rows, length, algorithms, device, before):
        asked.append(before)
        several = "lookback" if rows < 100 else "block"
        return answers.get(length, (several if len(algorithms) > 1 else algorithms[0], [9]))

    monkeypatch.setattr(tune_scan, "best", best)
    rows = tune_scan.entries("rows", 32, "forward", GPU)
    assert [(row["algorithm"], row["longest"], row["most_rows"]) for row in rows] == [
        ("block", 256, None), ("block", 4096, None), ("lookback", None, 47), ("block", None, 6144),
        ("block", None, None), ("relay", None, None),
    ]  # fmt: skip
    assert asked[:3] == [None, answers[128], answers[256]]  # each is asked whether the answer before it serves as well
    written = json.loads(tune_scan.text("a GPU", "words", rows))
    assert written["entries"] == rows and list(written) == list(json.loads(scan_kernels.TABLE.read_text()))


def test_columns_are_tuned_for_several_rows_only(monkeypatch):  # a single column is a row, and has its tiles
    asked = []

    def best(layout, bits, direction, rows, length, algorithms, device, before):
        asked.append(rows)
        return algorithms[0], [9]

    monkeypatch.setattr(tune_scan, "best", best)
    tune_scan.entries("columns", 16, "forward", GPU)
    assert min(asked) == 8
    asked.clear()
    tune_scan.entries("rows", 16, "forward", GPU)
    assert min(asked) == 1


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_tuning_runs_through_with_a_clock_that_likes_the_last_tile(layout, direction, monkeypatch):
    def nothing(batch, channels, length, dtype, layout, device):  # memory without content
        sizes = (batch, channels, length) if layout == "rows" else (batch, length, channels)
        a, b = (torch.empty(sizes, dtype=dtype, device="meta") for _ in range(2))
        return (a.transpose(1, 2), b.transpose(1, 2)) if layout == "rows" else (a, b)

    clock = iter(range(10**6, 0, -1))
    for name, stand_in in {
        "problem": nothing, "compiled": lambda found, device: found, "sweep_of": lambda device: None,
        "once_ms": lambda run, sweep: next(clock), "median_ms": lambda run, device, **times: next(clock),
    }.items():  # fmt: skip
        monkeypatch.setattr(tune_scan, name, stand_in)
    monkeypatch.setattr(scan_kernels, "run", lambda *given, **more: None)
    for bits in DTYPES:
        rows = tune_scan.entries(layout, bits, direction, GPU)
        assert {row["algorithm"] for row in rows} == {"block", "lookback", "relay"}
        assert rows[0]["longest"] and any(row["longest"] is row["most_rows"] is None for row in rows)


def test_candidates_fit_the_kernels():
    for algorithm in ("block", "lookback", "relay"):
        for layout in ("rows", "columns"):
            for bits in DTYPES:
                for tile in tune_scan.candidates(algorithm, layout, bits):
                    scan_kernels.plan_with(shape(layout, bits, "forward"), algorithm, tile, "")
