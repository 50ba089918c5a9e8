"""The teaching kernel of the recomputing backward, run with all checks on the CPU, against autograd in float64."""

import re

import numpy as np
import nvrtc
import pytest
import torch
from selective_problem import NAMES, error, loop, problem

from ssmlab import kernels
from ssmlab.rawkernel import RawKernel, check

NAME = "selective_v3_recompute.cu"
TEXT = kernels.source(NAME)
GIVEN = ("u", "delta", "A", "B", "C", "D", "initial_state")
SHAPES = [(2, 11, 5, 4), (1, 1, 3, 1), (2, 16, 35, 2), (1, 9, 32, 16)]  # batch, length, channels, states; CHUNK is 8
CHUNK = 8


def exact(batch, length, channels, states):
    """Inputs, incoming gradients, and the gradients that autograd finds, all float64."""
    values = problem(batch, length, channels, states, groups=1, without=("z", "delta_bias"))
    values["delta"] = values["delta"].exp()
    values = {name: value if value is None else value.requires_grad_() for name, value in values.items()}
    y, final = loop(values, softplus=False)
    dy, d_final = torch.randn_like(y), torch.randn_like(final)
    found = torch.autograd.grad((y * dy).sum() + (final * d_final).sum(), [values[name] for name in GIVEN])
    return values, dy, d_final, dict(zip(GIVEN, found, strict=True))


def borders_of(values):
    """(batch, chunks, channels, states): the state before each chunk."""
    length, states = values["u"].shape[1], []
    for first in range(0, length, CHUNK):
        head = {name: values[name] for name in NAMES}
        head.update({name: head[name][:, :first] for name in ("u", "delta", "B", "C")})
        states.append(loop(head, softplus=False)[1])
    return torch.stack(states, 1)


def launch(shape, text=TEXT, more=()):
    """The kernel's report, its gradients by name, and those of autograd."""
    batch, length, channels, states = shape
    values, dy, d_final, want = exact(*shape)
    warps = -(-channels // 32)

    def array(tensor):
        return tensor.detach().float().contiguous().numpy()

    inputs = [array(values[name]) for name in ("u", "delta", "A", "B", "C", "D")]
    inputs += [array(borders_of(values)), array(dy), array(d_final)]
    sizes = [(batch, length, channels)] * 2 + [(batch, channels, states)] + [(warps, batch, length, states)] * 2
    outputs = [np.full(size, np.nan, np.float32) for size in (*sizes, (batch, channels), (batch, channels, states))]
    kernel = RawKernel(text, "selective_v3", options=(f"-DCHUNK={CHUNK}", f"-DSTATES={states}"), filename=NAME)
    report = check(kernel, (batch * warps,), (32,), (*inputs, *outputs, batch, length, channels, *more))
    du, ddelta, dA, dB, dC, dD, d_initial = map(torch.from_numpy, report.arrays[9:16])
    tables = [part.sum(0)[:, :, None] for part in (dB, dC)]
    return report, dict(zip(GIVEN, (du, ddelta, dA.sum(0), *tables, dD.sum(0), d_initial), strict=True)), want


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_autograd_and_raises_no_finding(shape):
    report, got, want = launch(shape)
    assert report.ok, report
    for name in GIVEN:
        assert error(got[name], want[name]) <= 1e-5, name
    assert report.barriers == 0 and report.shared_bytes == CHUNK * shape[3] * 128


def test_its_columns_of_shared_memory_have_no_bank_conflicts():
    report, _, _ = launch((1, 9, 32, 16))
    assert sum(line.bank_conflicts for line in report.lines if line.space == "shared") == 0


def test_a_last_chunk_that_is_read_to_its_full_length_is_found():
    wrong = TEXT.replace("int t = steps - 1; t >= 0", "int t = CHUNK - 1; t >= 0")
    assert wrong != TEXT
    report, _, _ = launch((1, 12, 3, 2), wrong)
    assert {"uninitialised", "out-of-bounds"} & {finding.kind for finding in report.findings}


def test_the_head_says_how_much_shared_memory_the_compiler_lays_out():
    (said,) = re.findall(r"\(CHUNK=8, STATES=16: (\d+) B\)", TEXT)
    text = nvrtc.ptx(TEXT, NAME, ("-DCHUNK=8", "-DSTATES=16"))
    assert [int(size) for size in re.findall(r"\.shared .*?\[(\d+)\];", text)] == [int(said)]


def test_it_makes_two_exponentials_for_each_state_and_step():
    counted = "__device__ float counted(int* made, float x) { atomicAdd(made, 1); return expf(x); }\n"
    text = TEXT.replace("expf(", "counted(made, ").replace("int channels) {", "int channels, int* made) {")
    text = text.replace("__device__", counted + "__device__", 1)
    batch, length, channels, states = shape = 2, 11, 35, 4
    made = np.zeros(1, np.int32)
    report, _, _ = launch(shape, text, more=(made,))
    lanes = 2 * 32                                          # 35 channels are two warps
    assert report.arrays[-1][0] == 2 * batch * length * lanes * states
