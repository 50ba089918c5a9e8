"""The two teaching versions of the selective scan, run with all checks on the CPU, against the reference."""

import numpy as np
import pytest

from ssmlab import kernels, ledger, reference
from ssmlab.rawkernel import RawModule, check

SHAPES = [(2, 9, 5, 16), (1, 1, 3, 16), (3, 4, 70, 16)]
THREADS = 64


def problem(batch, length, channels, states):
    rng = np.random.default_rng(0)
    u, z = rng.standard_normal((2, batch, length, channels)).astype(np.float32)
    delta = rng.uniform(-3, 1, (batch, length, channels)).astype(np.float32)
    A = -np.exp(rng.standard_normal((channels, states))).astype(np.float32)
    B, C = rng.standard_normal((2, batch, length, states)).astype(np.float32)
    D, bias = rng.standard_normal((2, channels)).astype(np.float32)
    return u, delta, A, B, C, D, z, bias


def blocks(count):
    return (-(-count // THREADS),)


def module(name, **constants):
    options = tuple(f"-D{key}={value}" for key, value in {"THREADS": THREADS, **constants}.items())
    return RawModule(code=kernels.source(name), options=options, filename=name)


def unfused(u, delta, A, B, C, D, z, bias):
    """y, and the reports of the four steps."""
    (batch, length, channels), states = u.shape, A.shape[1]
    v1 = module("selective_v1_unfused.cu")
    step, y = np.full_like(u, np.nan), np.full_like(u, np.nan)
    a, b, h = np.full((3, batch, length, channels, states), np.nan, np.float32)
    steps = [
        ("softplus", u.size, (delta, bias, step, u.size, channels)),
        ("discretise", a.size, (step, u, A, B, a, b, a.size, channels, states)),
        ("recur", batch * channels * states, (a, b, h, batch * channels * states, length, channels * states)),
        ("contract", u.size, (h, C, u, D, z, y, u.size, channels, states)),
    ]
    reports = []
    for name, count, arguments in steps:
        kernel = v1.get_function(f"selective_v1_{name}")
        reports.append(check(kernel, blocks(count), (THREADS,), arguments))
        kernel(blocks(count), (THREADS,), arguments)
    return y, reports


def fused(u, delta, A, B, C, D, z, bias):
    (batch, length, channels), states = u.shape, A.shape[1]
    y = np.full_like(u, np.nan)
    kernel = module("selective_v2_fused.cu", STATES=states).get_function("selective_v2")
    arguments = (u, delta, A, B, C, D, z, bias, y, batch, length, channels)
    report = check(kernel, blocks(batch * channels), (THREADS,), arguments)
    kernel(blocks(batch * channels), (THREADS,), arguments)
    return y, [report]


@pytest.mark.parametrize("version", [unfused, fused])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_reference_and_raises_no_finding(shape, version):
    arguments = problem(*shape)
    y, reports = version(*arguments)
    want, _ = reference.selective_scan(*arguments, delta_softplus=True)
    assert np.max(np.abs(y - want)) <= 1e-5 * np.max(np.abs(want))
    assert all(report.ok for report in reports)


def test_the_unfused_chain_moves_what_the_ledger_says():
    batch, length, channels, states = 2, 16, 32, 16
    softplus, discretise, recur, contract = (
        report.bytes for report in unfused(*problem(batch, length, channels, states))[1]
    )
    steps = batch * length * channels * 4
    ledgers = ledger.unfused(batch, length, channels, states)
    assert softplus["global written"] == steps
    assert discretise["global written"] == 2 * steps * states
    assert recur["global read"] + recur["global written"] == ledgers["scan"]
    assert contract["global written"] == steps
    assert ledgers["softplus"] == 2 * steps and ledgers["contract"] >= steps * (states + 1)
