"""The measuring of notebook 03: its kernels compile everywhere, and the stored numbers fit the table of devices."""

import json
from pathlib import Path

import numpy as np
import nvrtc
import pytest

from ssmlab import RawKernel
from ssmlab.devices import DEVICES
from ssmlab.lab import machine
from ssmlab.lab.environment import device

STORED = Path(__file__).resolve().parents[1] / "notebooks" / "results" / "machine_h200.json"


def stored():
    return json.loads(STORED.read_text(encoding="utf-8"))


def keys(value):
    """All keys, nested ones with their path."""
    if not isinstance(value, dict):
        return set()
    return {(key, *below) for key, item in value.items() for below in [(), *keys(item)]}


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("text", [machine.CHASE, machine.TURNS, machine.REREAD], ids=["chase", "turns", "reread"])
def test_the_kernels_compile_for_every_architecture(text, architecture):
    nvrtc.ptx(text, "machine.cu", (), architecture)


def test_the_kernels_run_without_a_finding():
    took, out = np.zeros(2, np.int64), np.zeros(64, np.int32)
    for space in (0, 1, 2):
        RawKernel(machine.CHASE, f"chase<{space}>")(1, 1, ((np.arange(4096, dtype=np.int32) + 33) % 4096, 5, 10, took))
        assert took[1] == 5 + 20 * 33
    RawKernel(machine.TURNS, "turns")(2, 32, (17, 4, out))
    assert np.array_equal(out, np.tile(np.arange(32) * 17 % 1024, 2))
    sums = np.zeros(64, np.float32)
    RawKernel(machine.REREAD, "reread")(2, 32, (np.ones(1024, np.float32), sums, 256, 3))
    assert sums.sum() == 3 * 1024


def test_the_committed_numbers_come_from_the_device_of_the_table():
    said, h200 = stored()["driver says"], DEVICES["H200"]
    assert said == {"SMs": h200.sms, "L2 [B]": h200.l2, "shared memory of an SM [B]": h200.generation.shared_per_sm,
                    "threads of an SM": h200.generation.threads_per_sm, "most clock [MHz]": h200.boost}
    assert stored()["copy [GB/s]"] * 1e9 < h200.bandwidth


@pytest.mark.skipif(device() == "cuda", reason="a GPU is here")
def test_without_a_gpu_nothing_is_measured():
    with pytest.raises(RuntimeError, match="no GPU here"):
        machine.measure()


@pytest.mark.gpu
def test_a_gpu_gives_every_number_that_the_figures_need():
    got = machine.measure()
    assert {key for key in keys(stored()) if key[0] != "resident blocks [GB/s]"} <= keys(got)
    assert got["latency [cycles, ns]"]["shared"] < got["latency [cycles, ns]"]["DRAM"]
