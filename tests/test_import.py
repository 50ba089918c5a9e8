"""`import ssmlab` is light, and works with no CuPy, with CuPy and no driver, and with a hidden GPU (P-O1)."""

import subprocess
import sys
import types

import numpy as np
import pytest

import ssmlab
from ssmlab import gpu


def python(code, **environment):
    import os

    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_importing_loads_neither_numpy_nor_torch_nor_cupy():
    loaded = python("import sys, ssmlab; print(sorted({'numpy', 'torch', 'cupy', 'matplotlib'} & set(sys.modules)))")
    assert loaded.strip() == "[]"


def test_a_kernel_on_the_cpu_loads_neither_torch_nor_cupy():
    code = (
        "import sys, numpy as np, ssmlab\n"
        "k = ssmlab.RawKernel('extern \"C\" __global__ void k(int* x) { x[threadIdx.x] = threadIdx.x; }', 'k')\n"
        "x = np.zeros(4, np.int32); k((1,), (4,), (x,)); assert x.tolist() == [0, 1, 2, 3]\n"
        "print(sorted({'torch', 'cupy', 'matplotlib'} & set(sys.modules)))"
    )
    assert python(code).strip() == "[]"


def test_the_public_names_are_listed_and_unknown_ones_refused():
    assert {"RawKernel", "RawModule", "check", "kernels", "monoid", "reference", "simt", "lab"} <= set(dir(ssmlab))
    assert ssmlab.RawKernel.__name__ == "RawKernel" and ssmlab.simt.CompileError.__name__ == "CompileError"
    with pytest.raises(AttributeError, match="module 'ssmlab' has no attribute 'RawKernal'"):
        _ = ssmlab.RawKernal
    with pytest.raises(AttributeError):
        _ = ssmlab.simt.Nothing


def fake_cupy(count=None, error=None):
    """CuPy as far as gpu.require looks at it."""
    cupy = types.ModuleType("cupy")
    runtime = types.SimpleNamespace(CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}))

    def device_count():
        if error:
            raise runtime.CUDARuntimeError(error)
        return count

    runtime.getDeviceCount = device_count
    cupy.cuda = types.SimpleNamespace(runtime=runtime)
    cupy.__version__ = "14.0.0"
    cupy.ndarray = type("ndarray", (), {})
    return cupy


KERNEL = ssmlab.RawKernel('extern "C" __global__ void k(int* x) { x[0] = 1; }', "k")
ENVIRONMENTS = {
    "no CuPy": (None, r"needs CuPy, and it cannot be imported .*pip install 'ssmlab\[cuda12\]'"),
    "CuPy, no driver": (
        fake_cupy(error="cudaErrorInsufficientDriver"),
        "CUDA says: cudaErrorInsufficientDriver.*nvidia-smi",
    ),
    "CuPy, GPU hidden": (fake_cupy(count=0), "needs a GPU, and CUDA shows none .*CUDA_VISIBLE_DEVICES is ''"),
}


ASKING = {
    "require": gpu.require,
    "attributes": lambda: KERNEL.attributes,
    "num_regs": lambda: KERNEL.num_regs,
    "kernel": lambda: KERNEL.kernel,
    "compile": KERNEL.compile,
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("ask", ASKING)
def test_asking_for_the_gpu_raises_one_message_with_the_cause(name, ask, monkeypatch):
    module, words = ENVIRONMENTS[name]
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RuntimeError, match="a kernel on a GPU .*" + words):
        ASKING[ask]()


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_cpu_works_in_each_of_the_three_environments(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", ENVIRONMENTS[name][0])
    array = np.zeros(1, np.int32)
    KERNEL((1,), (1,), (array,))
    assert array[0] == 1
    assert ssmlab.check(KERNEL, 1, 1, (array,)).ok


def test_a_process_that_sees_no_gpu_imports_and_names_the_cause():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    told = python(
        "import ssmlab\ntry:\n    ssmlab.RawKernel('extern \"C\" __global__ void k() {}', 'k').compile()\n"
        "except RuntimeError as error:\n    print(error)",
        CUDA_VISIBLE_DEVICES="",
    )
    assert told.startswith("a kernel on a GPU needs a GPU")
