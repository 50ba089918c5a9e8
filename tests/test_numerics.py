"""Notebook 08's helpers: rounding, compensated loops, scan kernels with other pairs, and what was measured on a GPU."""

import json
from pathlib import Path

import numpy as np
import nvrtc
import pytest
import torch

from ssmlab import RawKernel, check, reference
from ssmlab.lab import compensated, numerics, pairs
from ssmlab.lab.environment import device
from ssmlab.lab.rounding import flushed, to_bfloat16, to_bfloat16_at_random, to_float16, ulps

STORED = Path(__file__).resolve().parents[1] / "notebooks" / "results" / "numerics_h200.json"


def stored():
    return json.loads(STORED.read_text(encoding="utf-8"))


def keys(value):
    """All keys, nested ones with their path."""
    if not isinstance(value, dict):
        return set()
    return {(key, *below) for key, item in value.items() for below in [(), *keys(item)]}


# Rounding ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine, dtype", [(to_bfloat16, torch.bfloat16), (to_float16, torch.float16)])
def test_numbers_are_rounded_as_torch_rounds_them(mine, dtype):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 100000, dtype=np.uint32)
    x = bits.view(np.float32)
    x = np.concatenate([x[np.isfinite(x)], np.float32([0, -0.0, 1.00390625, 1.01171875, 65519, 65520, 1e-40])])
    assert np.array_equal(mine(x), torch.tensor(x).to(dtype).float().numpy())


def test_random_rounding_gives_a_neighbour_and_is_right_on_average():
    rng = np.random.default_rng(0)
    for value in (0.3, -7.77, 1e-3):
        rounded = to_bfloat16_at_random(np.full(40000, value, np.float32), rng)
        assert len(np.unique(rounded)) == 2 and np.array_equal(to_bfloat16(rounded), rounded)
        assert abs(rounded.mean(dtype=float) - np.float32(value)) <= 0.03 * np.ptp(rounded)
    exact = np.float32([0, 1, -0.75, 256])
    assert np.array_equal(to_bfloat16_at_random(exact, rng), exact)


def test_flushing_takes_subnormals_only():
    tiny = np.finfo(np.float32).tiny
    assert flushed(np.float32([tiny, tiny / 2, -tiny / 2, 1, 0])).tolist() == [tiny, 0, 0, 1, 0]


# Loops ---------------------------------------------------------------------------------------------------------


def test_fused_and_plain_loops_round_once_and_twice():
    a, b = np.float32([[0], [1 + 2**-12]]), np.float32([[1 + 2**-12], [-1]])
    assert compensated.fused(a, b)[1, 0] == np.float32(2**-11 + 2**-24)
    assert compensated.loop(a, b)[1, 0] == np.float32(2**-11)


@pytest.mark.parametrize("low", [1, 0.998, 0.5])
def test_compensated_loops_are_right_to_an_ulp(low):
    rng = np.random.default_rng(3)
    a = np.tile(rng.uniform(low, 1, 8), (3000, 1)).astype(np.float32)
    b = rng.uniform(0, 1, (3000, 8)).astype(np.float32)
    want, _ = reference.scan(a, b, dim=0)
    worst = {loop.__name__: np.max(np.abs(ulps(loop(a, b), want)))
             for loop in (compensated.kahan, compensated.neumaier, compensated.in_float64, compensated.loop)}
    assert worst["neumaier"] <= 0.51 and worst["in_float64"] <= 0.51 and worst["kahan"] <= 2
    assert worst["loop"] > 1.5 * worst["kahan"]


def test_only_neumaier_survives_an_input_larger_than_the_sum():
    b = np.float32([[1], [2.0**100], [1], [-(2.0**100)]])
    loops = compensated.kahan, compensated.in_float64, compensated.neumaier
    assert [loop(np.ones_like(b), b)[-1, 0] for loop in loops] == [0, 0, 2]


# Kernels with other pairs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "log", "offset"])
@pytest.mark.parametrize("tile, length", [(32, 1), (64, 50), (256, 256)])
def test_each_kind_of_pair_scans_without_a_finding(kind, tile, length):
    rng = np.random.default_rng(length)
    a, b = rng.uniform(0.3, 1, (3, length)).astype(np.float32), rng.normal(size=(3, length)).astype(np.float32)
    gates = np.log(a) if kind == "log" else a
    report = check(pairs.scan_kernel(kind, tile=tile), (3,), (tile,), (gates, b, np.full_like(b, np.nan), length))
    want, _ = reference.scan(a, b)
    assert report.ok, str(report)
    assert np.max(np.abs(report.arrays[2] - want)) <= 4e-6 * np.max(np.abs(want))


def test_pairs_with_exponents_have_the_same_bits_as_plain_ones_and_a_wider_range():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 1, (2, 100)).astype(np.float32), rng.normal(size=(2, 100)).astype(np.float32)
    b[0, :5] = 0
    far_a, far_b = np.full((1, 100), 0.125, np.float32), np.zeros((1, 100), np.float32)
    far_b[0, 0] = 2.0**100
    found = {}
    for kind in ("plain", "offset"):
        kernel = pairs.scan_kernel(kind, tile=128)
        near = check(kernel, (2,), (128,), (a, b, np.zeros_like(b), 100)).arrays[2]
        found[kind] = near, check(kernel, (1,), (128,), (far_a, far_b, np.zeros_like(far_b), 100)).arrays[2][0]
    assert np.array_equal(found["plain"][0], found["offset"][0])
    want = np.ldexp(1.0, 100 - 3 * np.arange(100)).astype(np.float32)
    assert np.array_equal(found["offset"][1], want) and not np.array_equal(found["plain"][1], want)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind is 'fixed': it must be 'plain', 'log' or 'offset'"):
        pairs.scan_text("fixed")


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("text, options", [
    *((pairs.scan_text(kind), ["-DTILE=256"]) for kind in ("plain", "log", "offset")),
    *((numerics.DIVIDE, [f"-DKEEP={keep}"]) for keep in (0, 1)),
], ids=["plain", "log", "offset", "divide", "divide, subnormals kept"])
def test_the_kernels_compile_for_every_architecture(text, options, architecture):
    nvrtc.ptx(text, "numerics.cu", [*options, "-ftz=true"], architecture)


@pytest.mark.parametrize("architecture", ["compute_80", "compute_90", "compute_120"])
def test_the_exponentials_compile_where_bfloat16_has_them(architecture):
    code = nvrtc.ptx(numerics.EXPONENTIALS, "numerics.cu", ["-ftz=true"], architecture)
    assert "ex2.approx.ftz.f32" in code


# What was measured ---------------------------------------------------------------------------------------------


def test_the_measuring_kernels_run_on_a_cpu():
    x, y = -np.linspace(0.001, 80, 256).astype(np.float32), np.zeros((4, 256), np.float32)
    RawKernel(numerics.EXPONENTIALS, "exponentials")(1, 256, (x, y, 256, numerics.LOG2E_32))
    exact = np.exp(x.astype(float))
    assert np.float32(np.log2(np.e)) == numerics.LOG2E_32
    assert np.all(np.abs(ulps(y[0], exact)) <= 1) and np.all(np.abs(ulps(y[2], exact)) <= 2 + 1.173 * np.abs(x))
    assert np.all(np.abs(y[3] / exact - 1) <= 2.0**-7 * (1 + np.abs(x)))

    product, h = np.zeros((2, 120), np.float32)
    RawKernel(numerics.DIVIDE, "divide", ("-DKEEP=0",))(1, 1, (np.exp(np.full(120, -1, np.float32)), product, h, 120))
    assert [int(np.argmax(mask)) for mask in (product == 0, ~np.isfinite(h))] == [103, 88]


def test_the_committed_numbers_say_what_the_notebook_says():
    found = stored()
    assert found["device"].startswith("NVIDIA") and len(found["date"]) == 10
    assert found["tiny"]["as CuPy compiles it"]["product zero"] == 87
    assert found["tiny"]["subnormals kept"]["product zero"] == 103
    for kind in ("worst [ulp]", "mean [ulp]"):
        assert all(len(found["exponentials"][kind][function]) == 31 for function in numerics.NAMES)
    trees = found["growth"]["one gate near one"]
    assert trees["block"][-1] > 5 * trees["thread"][-1]


@pytest.mark.skipif(device() == "cuda", reason="a GPU is here")
def test_without_a_gpu_nothing_is_measured():
    with pytest.raises(RuntimeError, match="no GPU here"):
        numerics.measure()


@pytest.mark.gpu
def test_measuring_gives_the_fields_that_are_stored():
    fresh = numerics.measure()
    assert keys(fresh) == keys(stored())
    assert fresh["tiny"] == stored()["tiny"]
