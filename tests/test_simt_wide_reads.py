"""8- and 16-byte reads of shared memory by lanes that share addresses, against a GPU's count (gpu/wide_reads.py)."""
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ssmlab import RawKernel, check

sys.path.insert(0, str(Path(__file__).parent / "gpu"))
import wide_reads  # noqa: E402

COUNTED = json.loads(wide_reads.OUT.read_text(encoding="utf-8"))["rows"]


@pytest.mark.parametrize("size", wide_reads.BYTES)
def test_a_wide_read_costs_what_the_hardware_counts(size):
    kernel = RawKernel(wide_reads.KERNEL, "wide", (f"-DELEMENT=float{size // 4}",))
    for name, table in wide_reads.tables().items():
        report = check(kernel, 1, 32, (np.array(table, np.int32), np.zeros(128, np.float32)))
        (row,) = [row for row in report.line(10) if row.space == "shared"]
        (there,) = [row for row in COUNTED if (row["lanes"], row["bytes"]) == (name, size)]
        assert (row.wavefronts, row.bank_conflicts) == (there["wavefronts"], there["conflicts"]), name


def test_no_trip_was_lost_there_and_every_table_was_counted():
    assert {(row["lanes"], row["bytes"]) for row in COUNTED} == {
        (name, size) for name in wide_reads.tables() for size in wide_reads.BYTES
    }
    assert not any(row["arbitration"] for row in COUNTED)


def test_instrumented_machine_code_counts_too_much_where_pairs_of_lanes_meet_in_a_bank():
    """Why compare_tools.py takes the hardware's count: NVIDIA's other one is a model, as ours is."""
    (row,) = [row for row in COUNTED if (row["lanes"], row["bytes"]) == ("pairs that conflict", 8)]
    assert (row["wavefronts"], row["instrumented"]) == (4, 8)
