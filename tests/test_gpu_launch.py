"""What a launch on a GPU passes to CuPy, and how it refuses and blames, with a stand-in for CuPy: no GPU is needed."""

import contextlib
import ctypes
import re
import struct
import sys
import types

import numpy as np
import pytest
import torch

import ssmlab
from ssmlab import gpu
from ssmlab.simt import CompileError, KernelError

SCALE = 'extern "C" __global__ void scale(float* x, const float by, int n) { if (n) x[0] *= by; }'
PAIR = """
struct Pair { float a, b; };
__global__ void pair(float4* v, Pair p, double z) {}
template <class T> __global__ void t(T* x) {}
"""


class Array:
    """A CuPy array as far as ssmlab looks at it."""

    def __init__(self, host, device=0, address=None):
        self.host, self.shape, self.strides, self.dtype = host, host.shape, host.strides, host.dtype
        self.device = types.SimpleNamespace(id=device)
        self.data = types.SimpleNamespace(ptr=host.ctypes.data if address is None else address)


class Function:
    """cupy.RawKernel as far as ssmlab uses it; keeps the bytes of each argument that it is launched with."""

    max_threads_per_block, shared_size_bytes, num_regs = 1024, 16, 40

    def __init__(self, name):
        self.name, self.launches, self.compiled, self.error = name, [], 0, None
        self.__dict__["max_dynamic_shared_size_bytes"] = 48 * 1024 - 16

    def compile(self):
        self.compiled += 1

    def __call__(self, grid, block, args, *, shared_mem, stream):
        if self.error is not None:
            raise self.error
        self.launches.append((grid, block, [pointer.address for pointer in args], shared_mem, stream))
        self.values = [ctypes.string_at(pointer.address, 8) for pointer in args]


def stand_in(capability="90", most_shared=232448):
    cupy = types.ModuleType("cupy")
    cupy.__version__, cupy.ndarray, cupy.modules = "14.0.0", Array, []

    class RawModule:
        def __init__(self, **given):
            self.given, self.functions, self.failure = given, {}, None
            cupy.modules.append(self)

        def get_function(self, name):
            if self.failure is not None:
                raise self.failure
            return self.functions.setdefault(name, Function(name))

    class Device(contextlib.nullcontext):
        def __init__(self, number):
            super().__init__()
            self.compute_capability = capability
            self.attributes = {"MaxSharedMemoryPerBlockOptin": most_shared}

    class Stream:
        def __init__(self, ptr=0):
            self.ptr, self.synchronized = ptr, 0

        def synchronize(self):
            self.synchronized += 1

        @classmethod
        def from_external(cls, other):
            return cls(other.__cuda_stream__()[1])

    Stream.null = Stream(0)
    current = Stream(77)
    runtime = types.SimpleNamespace(
        CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}),
        getDeviceCount=lambda: 2,
        getDevice=lambda: 0,
        getDeviceProperties=lambda number: {"name": b"Tesla X"},
        streamIsCapturing=lambda ptr: False,
    )
    cupy.RawModule = RawModule
    cupy.cuda = types.SimpleNamespace(
        Device=Device,
        Stream=Stream,
        ExternalStream=type("ExternalStream", (Stream,), {}),
        runtime=runtime,
        driver=types.SimpleNamespace(CUDADriverError=type("CUDADriverError", (RuntimeError,), {})),
        compiler=types.SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
        function=types.SimpleNamespace(CPointer=lambda address: types.SimpleNamespace(address=address)),
        get_current_stream=lambda: current,
    )
    return cupy


@pytest.fixture
def cupy(monkeypatch):
    module = stand_in()
    monkeypatch.setitem(sys.modules, "cupy", module)
    nvrtc = types.SimpleNamespace(getSupportedArchs=lambda: (75, 80, 90, 120), getVersion=lambda: (13, 0))
    libs = types.ModuleType("cupy_backends.cuda.libs")
    libs.nvrtc = nvrtc
    for name in ("cupy_backends", "cupy_backends.cuda"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs", libs)
    return module


def array(size=4, **kwargs):
    return Array(np.ones(size, np.float32), **kwargs)


def test_each_argument_is_passed_in_the_bytes_of_its_parameter(cupy):
    x = array()
    ssmlab.RawKernel(SCALE, "scale")((2,), (32,), (x, 5.0, 4))
    function = cupy.modules[0].functions["scale"]
    assert function.launches[0][:2] == ((2, 1, 1), (32, 1, 1))
    assert function.values[0] == struct.pack("Q", x.data.ptr)
    assert function.values[1][:4] == struct.pack("f", 5.0) and function.values[2][:4] == struct.pack("i", 4)


def test_the_text_carries_the_learners_file_name_and_is_compiled_once_for_a_device(cupy):
    kernel = ssmlab.RawKernel(SCALE, "scale", ("-DX=1",), filename="mine.cu", enable_cooperative_groups=True)
    for device in (0, 0, 1):
        kernel((1,), (1,), (array(device=device), 1.0, 4))
    (module,) = cupy.modules
    assert module.given["code"] == f'#line 1 "mine.cu"\n{SCALE}' and module.given["options"] == ("-DX=1",)
    assert module.given["enable_cooperative_groups"] and module.given["name_expressions"] is None
    assert "jitify" not in module.given, "CuPy 14 warns about it"
    assert module.functions["scale"].compiled == 2


def test_kernels_with_c_plus_plus_names_are_asked_for_by_expression(cupy):
    module = ssmlab.RawModule(code=PAIR + SCALE, name_expressions=["t< float >"])
    module.get_function("t<float>")((1,), (1,), (array(),))
    assert cupy.modules[0].given["name_expressions"] == ("pair", "t< float >")
    assert list(cupy.modules[0].functions) == ["t< float >"]
    v = Array(np.zeros(8, np.float32)[:8])
    if v.data.ptr % 16 == 0:
        module.get_function("pair")((1,), (1,), (v, b"12345678", 2.5))
        assert cupy.modules[0].functions["pair"].values[1:] == [b"12345678", struct.pack("d", 2.5)]


def test_dynamic_shared_memory_is_opted_in_when_it_is_needed(cupy):
    kernel = ssmlab.RawKernel(SCALE, "scale")
    x = array()
    kernel((1,), (1,), (x, 1.0, 4), shared_mem=1024)
    function = cupy.modules[0].functions["scale"]
    assert function.max_dynamic_shared_size_bytes == 49152 - 16
    kernel((1,), (1,), (x, 1.0, 4), shared_mem=49152)
    assert function.max_dynamic_shared_size_bytes == 49152
    kernel((1,), (1,), (x, 1.0, 4), shared_mem=232432)
    assert function.max_dynamic_shared_size_bytes == 232432
    words = "shared_mem asks for 232448 bytes beside 16 static ones: a block on Tesla X has at most 232448"
    with pytest.raises(ValueError, match=re.escape(words)):
        kernel((1,), (1,), (x, 1.0, 4), shared_mem=232448)
    assert len(function.launches) == 3


def test_attributes_that_can_be_set_are_set_before_the_launch(cupy):
    kernel = ssmlab.RawKernel(SCALE, "scale")
    kernel.max_dynamic_shared_size_bytes = 65536
    kernel.preferred_shared_memory_carveout = 50
    kernel((1,), (1,), (array(), 1.0, 4), shared_mem=60000)
    function = cupy.modules[0].functions["scale"]
    assert function.max_dynamic_shared_size_bytes == 65536 and function.preferred_shared_memory_carveout == 50
    assert kernel.num_regs == 40 and kernel.max_dynamic_shared_size_bytes == 65536
    with pytest.raises(AttributeError):
        kernel.num_regs = 3


@pytest.mark.parametrize(
    "grid, block, args, error",
    [
        ((1,), (1025,), (1.0, 4), ValueError),
        ((1, 70000), (1,), (1.0, 4), ValueError),
        ((1,), (1,), (1.0, 2**31), ValueError),
        ((1,), (1,), (1.0, 4.0), TypeError),
        ((1,), (1,), (1.0,), TypeError),
    ],
)
def test_wrong_launches_never_reach_the_gpu(cupy, grid, block, args, error):
    with pytest.raises(error):
        ssmlab.RawKernel(SCALE, "scale")(grid, block, (array(), *args))
    assert not cupy.modules or not any(function.launches for function in cupy.modules[0].functions.values())


@pytest.mark.parametrize("grid, block, size", [((0,), (32,), 4), ((1,), (0,), 4), ((1,), (32,), 0)])
def test_a_launch_without_threads_or_elements_is_no_launch(cupy, grid, block, size):
    ssmlab.RawKernel(SCALE, "scale")(grid, block, (array(size), 1.0, size))
    assert not cupy.modules


def test_a_mixture_of_machines_is_refused(cupy):
    kernel = ssmlab.RawKernel('extern "C" __global__ void k(float* a, float* b) {}', "k")
    with pytest.raises(TypeError, match="is on cuda:0 and argument 1 .* is on cpu"):
        kernel((1,), (1,), (array(), np.ones(4, np.float32)))
    with pytest.raises(TypeError, match="is on cuda:0 and argument 1 .* is on cuda:1"):
        kernel((1,), (1,), (array(), array(device=1)))


class OnGpu(torch.Tensor):
    @property
    def device(self):
        return torch.device("cuda:0")


def test_torch_tensors_go_to_torchs_current_stream(cupy, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=4242))
    tensor = torch.ones(4, requires_grad=True).as_subclass(OnGpu)
    ssmlab.RawKernel(SCALE, "scale")((1,), (4,), (tensor, 1.0, 4))
    (launch,) = cupy.modules[0].functions["scale"].launches
    assert launch[4].ptr == 4242 and launch[4].synchronized == 1


def test_cupy_arrays_go_to_cupys_current_stream_and_given_ones_are_used(cupy):
    kernel = ssmlab.RawKernel(SCALE, "scale", mode="native")
    own = cupy.cuda.Stream(5)
    for stream, want in ((None, 77), (own, 5), (9, 9), (0, 0)):
        kernel((1,), (1,), (array(), 1.0, 4), stream=stream)
        used = cupy.modules[0].functions["scale"].launches[-1][4]
        assert used.ptr == want and used.synchronized == 0, "native does not wait"
    with pytest.raises(TypeError, match="stream is 'x'"):
        kernel((1,), (1,), (array(), 1.0, 4), stream="x")


def test_nothing_waits_while_a_graph_is_captured(cupy):
    cupy.cuda.runtime.streamIsCapturing = lambda ptr: True
    ssmlab.RawKernel(SCALE, "scale")((1,), (1,), (array(), 1.0, 4))
    assert cupy.modules[0].functions["scale"].launches[0][4].synchronized == 0


def test_an_illegal_access_is_blamed_on_the_kernel_that_made_it(cupy):
    kernel = ssmlab.RawKernel("\n\n" + SCALE, "scale", filename="mine.cu")
    kernel((1,), (1,), (array(), 1.0, 4))
    function = cupy.modules[0].functions["scale"]
    function.error = cupy.cuda.runtime.CUDARuntimeError(
        "cudaErrorIllegalAddress: an illegal memory access was encountered"
    )
    with pytest.raises(KernelError) as caught:
        kernel((1,), (1,), (array(), 1.0, 4))
    told = str(caught.value)
    assert told.startswith(
        "kernel 'scale' (mine.cu, line 3), grid (1, 1, 1), block (1, 1, 1), ended with cudaErrorIllegal"
    )
    assert "restart it" in told and "ssmlab.check" in told
    function.error = cupy.cuda.driver.CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    with pytest.raises(RuntimeError, match="was not launched: CUDA_ERROR_INVALID_VALUE") as caught:
        kernel((1,), (1,), (array(), 1.0, 4))
    assert not isinstance(caught.value, KernelError)


def test_what_the_gpu_compiler_says_becomes_a_compile_error(cupy):
    kernel = ssmlab.RawKernel(SCALE, "scale")
    kernel._program.gpu_code().module.failure = cupy.cuda.compiler.CompileException(
        'kernel.cu(1): error: identifier "x" is undefined\n  ' + SCALE + "\n" + " " * 60 + "^\n"
    )
    with pytest.raises(CompileError, match=r'kernel.cu:1:59: error: identifier "x"'):
        kernel((1,), (1,), (array(), 1.0, 4))


def test_a_gpu_that_the_compiler_no_longer_knows_is_named_with_the_range(monkeypatch, cupy):
    old = stand_in(capability="61")
    monkeypatch.setitem(sys.modules, "cupy", old)
    words = r"Tesla X is sm_61, and the compiler of CUDA 13.0 supports sm_75 to sm_120: install .*cuda12"
    with pytest.raises(RuntimeError, match=words):
        ssmlab.RawKernel(SCALE, "scale")((1,), (1,), (Array(np.ones(1, np.float32)), 1.0, 1))


def test_what_a_kernel_prints_is_brought_to_sys_stdout(cupy, capsys, monkeypatch):
    libc = ctypes.CDLL(None)

    def printing(self, *args, **kwargs):
        libc.puts(b"from the device")

    monkeypatch.setattr(Function, "__call__", printing)
    text = 'extern "C" __global__ void k(float* x) { printf("from the device\\n"); }'
    ssmlab.RawKernel(text, "k")((1,), (1,), (array(),))
    assert capsys.readouterr().out == "from the device\n"


def test_cupy_has_the_names_that_are_used():
    real = pytest.importorskip("cupy", reason="CuPy is not installed")
    from cupy_backends.cuda.libs import nvrtc

    for owner, names in (
        (real, "RawModule ndarray"),
        (real.cuda, "Device Stream ExternalStream get_current_stream runtime driver compiler function"),
        (real.cuda.Stream, "from_external null synchronize"),
        (
            real.cuda.runtime,
            "getDeviceCount getDevice getDeviceProperties streamIsCapturing memcpy memcpyDeviceToHost CUDARuntimeError",
        ),
        (real.cuda.function, "CPointer"),
        (real.cuda.compiler, "CompileException"),
        (real.cuda.driver, "CUDADriverError"),
        (
            real.RawKernel,
            "compile attributes max_threads_per_block shared_size_bytes max_dynamic_shared_size_bytes kernel",
        ),
        (real.RawModule, "get_function get_global compile module"),
        (nvrtc, "getSupportedArchs getVersion"),
    ):
        missing = [name for name in names.split() if not hasattr(owner, name)]
        assert not missing, f"{owner}: {missing}"
    assert real.cuda.Stream.from_external(gpu._Stream(1234)).ptr == 1234
