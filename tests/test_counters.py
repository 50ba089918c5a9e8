"""The counters of the selective scan: how ncu's table is read, and what the committed numbers must fulfil."""

import json
from pathlib import Path

import pytest

from ssmlab import ledger
from ssmlab.lab import counters
from ssmlab.lab.environment import device

STORED = Path(__file__).resolve().parents[1] / "notebooks" / "results" / "ncu_selective_h200.json"


def table(*rows):
    """ncu's CSV for (kernel, time) rows, with the line of units and what the tool says around it."""
    columns = ["ID", "Kernel Name", *counters.METRICS.values()]
    lines = ["==PROF== Connected", ",".join(f'"{name}"' for name in columns), ",".join('""' for _ in columns)]
    for number, (kernel, time) in enumerate(rows):
        values = [str(number), kernel, time, *("7" for _ in counters.METRICS)]
        lines.append(",".join(f'"{value}"' for value in values[: len(columns)]))
    return "\n".join(lines)


def test_the_table_is_cut_into_cases_at_the_border_kernel():
    text = table(("selective_totals", "1"), ("void selective_forward<4>(int)", "2,500"), (counters.BORDER, "1"),
                 ("selective_v2(const float *, int)", "0.5"), (counters.BORDER, "1"))  # fmt: skip
    found = counters.parse(text, ["forward", "v2"])
    assert [entry["case"] for entry in found] == ["forward", "v2"]
    assert [kernel["kernel"] for kernel in found[0]["kernels"]] == ["selective_totals", "selective_forward"]
    assert found[0]["kernels"][1]["time [ns]"] == 2500 and found[1]["kernels"][0]["time [ns]"] == 0.5
    assert counters.total({"cases": found}, "forward", "time [ns]") == 2501


def test_a_metric_that_is_not_there_is_none():
    (entry,) = counters.parse(table(("selective_v2", "n/a"), (counters.BORDER, "1")), ["v2"])
    assert entry["kernels"][0]["time [ns]"] is None
    short = table(("selective_v2", "3"), (counters.BORDER, "1")).replace(counters.METRICS["blocks"], "other")
    assert counters.parse(short, ["v2"])[0]["kernels"][0]["blocks"] is None


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b", "c"]])
def test_cases_and_table_must_fit_together(names):
    text = table(("selective_v2", "1"), (counters.BORDER, "1"), ("selective_v2", "1"), (counters.BORDER, "1"))
    with pytest.raises(ValueError, match="launched were"):
        counters.parse(text, names)


def test_a_log_without_a_table_is_quoted():
    with pytest.raises(ValueError, match="no table: ==ERROR== no GPU"):
        counters.parse("==ERROR== no GPU", [])


def test_the_json_reads_back():
    document = {"device": "x", "cases": counters.parse(table(("selective_v2", "1"), (counters.BORDER, "1")), ["v2"])}
    assert json.loads(counters.text_of(document)) == document


def test_the_command_leaves_the_clocks_alone():
    command = counters.command("log.csv", ["v2"])
    assert command[command.index("--clock-control") + 1] == "none" and command[-2:] == ["--launch", "v2"]


def test_the_committed_counters_agree_with_the_ledger():
    """Bytes that crossed the pins, and instructions of the special function units, of the finished forward."""
    if not STORED.exists():
        pytest.skip("no GPU run is committed yet")
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    shape = tuple(stored["shape"].values())
    for dtype, itemsize in (("float32", 4), ("bfloat16", 2)):
        cost = ledger.selective_scan(*shape, itemsize=itemsize)
        case = f"forward {dtype}"
        crossed = sum(counters.total(stored, case, f"DRAM {way} [B]") for way in ("read", "written"))
        assert 0.9 * cost.bytes <= crossed <= 1.1 * cost.bytes
        special = 32 * counters.total(stored, case, "special function instructions")
        assert 0.98 * cost.special <= special <= 1.1 * cost.special


@pytest.mark.skipif(device() == "cuda", reason="a GPU is here")
def test_without_the_tool_nothing_is_measured(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="ncu"):
        counters.measure()
