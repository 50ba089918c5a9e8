"""RawKernel, RawModule and check on a CPU; the tests marked gpu say the same of a GPU."""

import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import ssmlab
from ssmlab import RawKernel, RawModule
from ssmlab.simt import CompileError, KernelError

SCALE = r"""
extern "C" __global__ void scale(float* x, const float by, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
scale = RawKernel(SCALE, "scale")
PLUS = r"""
template <typename T, int N> __global__ void plus(T* x) { x[threadIdx.x] += N; }
namespace lab {
template <typename T> struct Box { T v; };
template <typename T> __global__ void unbox(T* x, Box<T> b) { x[0] = b.v; }
}
extern "C" __global__ void one(int* x) { x[0] = 1; }
__global__ void two(int* x) { x[0] = 2; }
"""
PRINT = r"""
extern "C" __global__ void tell(int n) { printf("thread %d of %d\n", (int)threadIdx.x, n); }
"""
WILD = r"""
extern "C" __global__ void wild(int* x, long long at) {
    x[threadIdx.x] = 1;
    x[at] = 2;
}
"""
HALF = r"""
#include <cuda_bf16.h>
extern "C" __global__ void k(__nv_bfloat16* x) { x[threadIdx.x] = __float2bfloat16(0.5f); }
"""
SHARED = r"""
extern "C" __global__ void fill(int* out, int n) {
    extern __shared__ int room[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = room[n - 1];
}
"""


# ---- running on a CPU


@pytest.mark.parametrize("mode", ["checked", "native"])
@pytest.mark.parametrize("value", [5.0, 2.0, 1.5, 0.1, 1 / 3])
def test_a_python_float_multiplies_by_its_value(value, mode):
    x = np.arange(100, dtype=np.float32)
    RawKernel(SCALE, "scale", mode=mode)((4,), (32,), (x, value, 100))
    assert np.array_equal(x, np.arange(100, dtype=np.float32) * np.float32(value))


def test_torch_tensors_are_changed_in_place():
    x = torch.ones(40)
    scale((2,), (32,), (x, 3, x.numel()))
    assert torch.equal(x, torch.full((40,), 3.0))
    leaf = torch.ones(4, requires_grad=True)
    scale((1,), (4,), (leaf, 3, 4))
    assert leaf.tolist() == [3.0] * 4


def test_bfloat16_tensors_pass_without_dlpack():
    x = torch.zeros(4, dtype=torch.bfloat16)
    RawKernel(HALF, "k")((1,), (4,), (x,))
    assert x.tolist() == [0.5] * 4


def test_cupys_attributes_are_there():
    kernel = RawKernel(SCALE, "scale", ("-DX=1",), enable_cooperative_groups=True)
    assert (kernel.code, kernel.name, kernel.options, kernel.backend) == (SCALE, "scale", ("-DX=1",), "nvrtc")
    assert kernel.file_path is None and kernel.enable_cooperative_groups and kernel.__name__ == "scale"
    again = pickle.loads(pickle.dumps(kernel))
    assert (again.code, again.name, again.options, again.mode) == (SCALE, "scale", ("-DX=1",), "checked")


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        ({"code": 3, "name": "k"}, TypeError, "code is int"),
        ({"code": SCALE, "name": ""}, TypeError, "name is ''"),
        ({"code": SCALE, "name": "scale", "options": "-DX"}, TypeError, "must be a tuple"),
        ({"code": SCALE, "name": "scale", "options": (3,)}, TypeError, "must be a string"),
        ({"code": SCALE, "name": "scale", "backend": "hip"}, ValueError, "backend is 'hip'"),
        ({"code": SCALE, "name": "scale", "mode": "fast"}, ValueError, "mode is 'fast'"),
    ],
)
def test_arguments_of_the_constructor_are_checked(arguments, error, words):
    with pytest.raises(error, match=words):
        RawKernel(**arguments)


def test_an_option_that_only_a_gpu_knows_is_refused_when_a_cpu_is_asked():
    kernel = RawKernel(SCALE, "scale", ("-rdc=true",))
    with pytest.raises(ValueError, match="option '-rdc=true' is not supported on a CPU"):
        kernel((1,), (1,), (np.ones(1, np.float32), 1.0, 1))


def test_an_unknown_kernel_lists_the_names():
    with pytest.raises(KeyError, match="kernel.cu has no kernel 'scales'; its kernels: scale"):
        RawKernel(SCALE, "scales")((1,), (1,), ())


@pytest.mark.parametrize(
    "grid, block, args, error, words",
    [
        ((1,), (1,), (np.ones(4, np.float32), 1.0), TypeError, "takes 3 arguments"),
        ((1,), (1,), (np.ones(4), 1.0, 4), TypeError, "an array of float64 was given, float needs float32"),
        ((1,), (1,), (np.ones(4, np.float32), 1.0, 2**31), ValueError, "from -2147483648 to 2147483647"),
        ((1,), (1,), (np.ones(4, np.float32), 1.0, 4.0), TypeError, "needs an integer"),
        ((1,), (1025,), (np.ones(4, np.float32), 1.0, 4), ValueError, "1025 threads along x: at most 1024"),
        ((1, 65536), (1,), (np.ones(4, np.float32), 1.0, 4), ValueError, "65536 blocks along y: at most 65535"),
        ((-1,), (1,), (np.ones(4, np.float32), 1.0, 4), ValueError, "grid is "),
        ("1", (1,), (np.ones(4, np.float32), 1.0, 4), TypeError, "grid is '1'"),
        ((1,), (1,), 3, TypeError, "must be a tuple"),
    ],
)
def test_calls_and_checks_refuse_the_same_things_before_any_launch(grid, block, args, error, words):
    with pytest.raises(error, match=words):
        scale(grid, block, args)
    with pytest.raises(error, match=words):
        ssmlab.check(scale, grid, block, args)


def test_too_much_shared_memory_is_refused_with_both_numbers():
    out = np.zeros(1, np.int32)
    for bytes_ in (49152, 65536, 98304, 227 * 1024):
        RawKernel(SHARED, "fill")((1,), (64,), (out, bytes_ // 4), shared_mem=bytes_)
        assert out[0] == bytes_ // 4 - 1
    with pytest.raises(ValueError, match="shared_mem asks for 232464 bytes: a block has at most 232448"):
        RawKernel(SHARED, "fill")((1,), (64,), (out, 4), shared_mem=227 * 1024 + 16)


@pytest.mark.parametrize("grid, block", [((0,), (32,)), ((3, 0), (32,)), ((2,), (0,)), ((1, 1, 0), (1, 1, 1))])
def test_a_launch_without_threads_does_nothing(grid, block):
    x = np.ones(4, np.float32)
    scale(grid, block, (x, 2.0, 4))
    assert x.tolist() == [1, 1, 1, 1]
    report = ssmlab.check(scale, grid, block, (x, 2.0, 4))
    assert report.ok and report.arrays[0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("empty", [np.zeros((3, 0), np.float32), torch.zeros(0, 5)])
def test_empty_arrays_are_no_error(empty):
    scale((1,), (32,), (empty, 2.0, 0))
    assert ssmlab.check(scale, (1,), (32,), (empty, 2.0, 0)).ok


def test_an_empty_array_beside_a_full_one_is_a_null_pointer():
    text = 'extern "C" __global__ void k(const int* a, int* b, int n) { b[0] = a == nullptr ? 7 : n ? a[0] : 5; }'
    for first in (None, np.zeros(0, np.int32)):
        b = np.zeros(1, np.int32)
        RawKernel(text, "k")((1,), (1,), (first, b, 0))
        assert b[0] == 7


def test_a_stream_with_arrays_on_the_cpu_is_a_type_error():
    with pytest.raises(TypeError, match="a stream was given, and the arrays are on the CPU"):
        scale((1,), (1,), (np.ones(1, np.float32), 1.0, 1), stream=3)


def test_views_need_a_kernel_that_takes_strides():
    text = 'extern "C" __global__ void k(float* x, int step) { x[(int)threadIdx.x * step] = threadIdx.x; }'
    array = np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match="not C-contiguous"):
        RawKernel(text, "k")((1,), (3,), (array[:, 1], 4))
    RawKernel(text, "k", strided=True)((1,), (3,), (array[:, 1], 4))
    assert array[:, 1].tolist() == [0, 1, 2] and array[:, [0, 2, 3]].sum() == 0
    report = ssmlab.check(RawKernel(text, "k", strided=True), (1,), (3,), (array[:, 2], 4))
    assert report.ok and report.arrays[0].tolist() == [0, 1, 2] and array[:, 2].sum() == 0


# ---- checks


def test_a_wild_access_is_an_error_with_line_and_thread_and_life_goes_on():
    x = np.zeros(4, np.int32)
    with pytest.raises(KernelError) as caught:
        RawKernel(WILD, "wild")((1,), (4,), (x, 2**40))
    told = str(caught.value)
    assert "x[at] = 2;" in told and "4" in told and caught.value.report.findings
    assert {finding.line for finding in caught.value.report.findings} == {4}
    x = np.ones(4, np.float32)
    scale((1,), (4,), (x, 2.0, 4))
    assert x.tolist() == [2, 2, 2, 2]


def test_check_works_on_copies_and_gives_them_back():
    x, t = np.ones(4, np.float32), torch.ones(4)
    for array in (x, t):
        report = ssmlab.check(scale, (1,), (4,), (array, 2.0, 4))
        assert report.ok and array.tolist() == [1] * 4 and report.arrays[0].tolist() == [2] * 4
        assert type(report.arrays[0]) is type(array) and report.arrays[1:] == (2.0, 4)


def test_arrays_that_overlap_overlap_in_the_copies_too():
    text = 'extern "C" __global__ void k(int* a, int* b, const int* c) { a[0] = 5; b[0] = 6; a[3] = c[0]; }'
    x = np.zeros(6, np.int32)
    report = ssmlab.check(RawKernel(text, "k"), 1, 1, (x, x[1:], x[:4]))
    assert (
        report.arrays[0].tolist() == [5, 6, 0, 5, 0, 0] and report.arrays[1].tolist() == [6, 0, 5, 0, 0] and not x.any()
    )
    report = ssmlab.check(
        RawKernel(text, "k"), 1, 1, (torch.from_numpy(x), torch.from_numpy(x)[1:], torch.from_numpy(x)[:4])
    )
    assert report.arrays[1].tolist() == [6, 0, 5, 0, 0]


def test_check_takes_kernels_only():
    with pytest.raises(TypeError, match="must be an ssmlab.RawKernel"):
        ssmlab.check(SCALE, 1, 1, ())


def test_compile_errors_come_when_the_kernel_is_first_used():
    kernel = RawKernel(SCALE.replace("*= by", "*= bye"), "scale", filename="mine.cu")
    with pytest.raises(CompileError, match=r"mine.cu:4:24: error: .*'bye'"):
        kernel((1,), (1,), (np.ones(1, np.float32), 1.0, 1))
    with pytest.raises(CompileError):
        ssmlab.check(kernel, 1, 1, (np.ones(1, np.float32), 1.0, 1))


def test_a_failed_assertion_names_its_line():
    text = 'extern "C" __global__ void k(int n) {\n  assert(n < (int)threadIdx.x + 3);\n}'
    RawKernel(text, "k")((1,), (4,), (2,))
    with pytest.raises(KernelError, match=r"assert"):
        RawKernel(text, "k")((1,), (4,), (4,))


def test_what_a_kernel_prints_reaches_sys_stdout(capsys):
    RawKernel(PRINT, "tell")((1,), (3,), (7,))
    assert capsys.readouterr().out == "thread 0 of 7\nthread 1 of 7\nthread 2 of 7\n"
    report = ssmlab.check(RawKernel(PRINT, "tell"), (1,), (2,), (9,))
    assert capsys.readouterr().out == "" and report.printf == "thread 0 of 9\nthread 1 of 9\n"


def test_a_newline_that_python_ate_is_a_compile_error_at_its_line():
    with pytest.raises(CompileError) as caught:
        RawKernel('extern "C" __global__ void k() {\n  printf("one\n");\n}', "k")((1,), (1,), ())
    assert 2 in {problem.line for problem in caught.value.problems}  # clang also names the brace it then misses


# ---- modules


def test_a_module_finds_kernels_whatever_the_spaces():
    module = RawModule(code=PLUS, name_expressions=["plus<int, 3>", "plus< double,4 >", "lab::unbox<float>"])
    x, d, f = np.zeros(2, np.int32), np.zeros(2), np.zeros(1, np.float32)
    module.get_function("plus<int,3>")((1,), (2,), (x,))
    module.get_function("plus<double, 4>")((1,), (2,), (d,))
    module.get_function("lab::unbox< float >")((1,), (1,), (f, np.array(2.5, [("v", "f4")])))
    assert x.tolist() == [3, 3] and d.tolist() == [4, 4] and f[0] == 2.5
    for name, want in (("one", 1), ("two", 2)):
        module.get_function(name)((1,), (1,), (x,))
        assert x[0] == want
    assert module.get_function("one") is module.get_function("one")
    with pytest.raises(KeyError, match=r"has no kernel 'plus<int, 4>'; its kernels: lab::unbox<float>, one, plus"):
        module.get_function("plus<int, 4>")


def test_a_template_kernel_can_be_named_directly():
    x = np.zeros(2, np.int32)
    RawKernel(PLUS, "plus<int, 5>")((1,), (2,), (x,))
    assert x.tolist() == [5, 5]


def test_structs_are_checked_for_their_size():
    module = RawModule(code=PLUS, name_expressions=["lab::unbox<double>"])
    kernel = module.get_function("lab::unbox<double>")
    with pytest.raises(ValueError, match="4 bytes were given, it has 8"):
        kernel((1,), (1,), (np.zeros(1), b"1234"))
    with pytest.raises(TypeError, match="by value"):
        kernel((1,), (1,), (np.zeros(1), 2.5))


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({}, TypeError),
        ({"code": PLUS, "path": "k.cubin"}, TypeError),
        ({"path": "k.cubin"}, ValueError),
        ({"code": PLUS, "name_expressions": "plus<int, 1>"}, TypeError),
        ({"code": PLUS, "name_expressions": ["one"], "backend": "nvcc"}, ValueError),
    ],
)
def test_modules_are_checked_too(arguments, error):
    with pytest.raises(error):
        RawModule(**arguments)


def test_device_variables_are_read_and_written_between_launches():
    kernel = 'extern "C" __global__ void k(float* x) { calls++; x[0] = w[0] + w[1]; }'
    text = "__constant__ float w[2];\n__device__ int calls;\n" + kernel
    module = RawModule(code=text)
    np.ndarray((2,), np.float32, module.get_global("w", device="cpu"))[:] = (3, 4)
    x = np.zeros(1, np.float32)
    for _ in range(2):
        module.get_function("k")((1,), (1,), (x,))
    assert x[0] == 7 and np.ndarray((), np.int32, module.get_global("calls", device="cpu")) == 2
    with pytest.raises(KeyError, match="its variables: calls, w"):
        module.get_global("v", device="cpu")


def test_included_files_are_pasted_from_beside_the_text(tmp_path):
    (tmp_path / "twice.cuh").write_text("__device__ int twice(int x) { return 2 * x; }\n")
    text = '#include "twice.cuh"\nextern "C" __global__ void k(int* x) { x[0] = twice(x[0]); }'
    for options, filename in (((f"-I{tmp_path}",), "kernel.cu"), ((), str(tmp_path / "kernel.cu"))):
        x = np.full(1, 21, np.int32)
        RawKernel(text, "k", options, filename=filename)((1,), (1,), (x,))
        assert x[0] == 42


# ---- nothing kills the process

FUZZ = r"""
import random, sys, warnings
import numpy as np, torch
import ssmlab
from ssmlab import RawKernel
from ssmlab.simt import KernelError

TEXT = '''
struct Pair { float a, b; };
extern "C" __global__ void touch(float* x, int n, float by, const int* at, long long far) {
    __shared__ float s[64];
    extern __shared__ int d[];
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) + far;
    if (n == 1) s[i] = by;
    if (n == 2) d[i] = 1;
    if (n == 3) __syncthreads();
    if (n == 4 && threadIdx.x % 2) __syncthreads();
    if (n == 5) x[at[i]] = by;
    if (n == 6) x[i] = s[i];
    if (n == 7) *(volatile int*)far = 1;
    if (n == 8) __shfl_sync((unsigned)far, by, 3);
    if (n == 9) assert(by < 0);
    if (n == 10) *(int*)((char*)x + 1) = 2;
    if (n > 10) x[i] = by * n;
}
extern "C" __global__ void pairs(Pair* p, Pair q, double z) { p[threadIdx.x] = q; p[0].a += z; }
'''
kernels = [RawKernel(TEXT, name) for name in ("touch", "pairs")]
rng = random.Random(20)
numbers = [*range(12), -1, 31, 33, 255, 2**15, 2**31 - 1, -2**31, 2**31, 2**40, 2**63, 2**64, 10**400, 0.0, 0.5, -1e39,
           1e300, float("nan"), float("inf"), True, None, "1", b"12345678", 3 + 1j, np.int8(3), np.float64(2.5)]
def array():
    shape = rng.choice([(0,), (1,), (7,), (64,), (3, 5), (2, 0, 3)])
    kind = rng.choice(["f4", "f4", "f4", "i4", "i4", "f8", "u1", "c8", "bool", "i8"])
    made = np.ones(shape, kind)
    choice = rng.random()
    if choice < 0.2 and kind in ("f4", "i4"):
        return torch.from_numpy(made)
    if choice < 0.3:
        return made[..., ::2]
    if choice < 0.35:
        made.flags.writeable = False
    return made
def argument():
    return array() if rng.random() < 0.45 else rng.choice(numbers)
def likely(kernel):
    if kernel.name == "touch":
        at = np.arange(rng.choice([1, 64]), dtype="i4") * rng.choice([1, 1, 10**6])
        far = rng.choice([0, 0, 0, 1, -1, 64, 2**40, -2**40, 2**62])
        return (np.ones(rng.choice([0, 1, 64]), "f4"), rng.randrange(0, 13), 0.5, at, far)
    return (np.ones(8, "f4"), b"12345678", 1.0)
def size(most):
    if rng.random() < 0.03:
        return argument()
    return tuple(rng.choice([0, 1, 1, 2, 3, most, rng.randrange(0, 12)]) for _ in range(rng.choice([1, 1, 2, 3])))
outcomes = {}
for turn in range(int(sys.argv[1])):
    kernel = rng.choice(kernels)
    grid = size(4) if rng.random() < 0.95 else size(70000)
    block = size(32) if rng.random() < 0.9 else size(1100)
    some = tuple(argument() for _ in range(rng.choice([0, 3, 3, 5, 5, 5, 6])))
    args = likely(kernel) if rng.random() < 0.6 else some
    if isinstance(grid, tuple) and isinstance(block, tuple) and max(grid + (0,)) < 100:
        blocks = int(np.prod(grid))
        if blocks * int(np.prod(block)) > 4096:
            grid = (1,)
    elif isinstance(grid, tuple):
        block = (1,) if len(grid) == 1 else (0,)
        grid = (min(grid[0], 300), *grid[1:]) if rng.random() < 0.5 else (*grid, 70000)
    if isinstance(grid, int) and not isinstance(grid, bool) and 300 < grid < 2**31:
        grid = 3  # the CPU would run that many blocks, for hours
    shared = rng.choice([0, 0, 0, 16, 256, 49152, 232448, 232449, -1, 1.5, None])
    try:
        if rng.random() < 0.5:
            kernel(grid, block, args, shared_mem=shared)
            outcome = "ran"
        else:
            order = rng.choice(["forward", "reverse", "random"])
            report = ssmlab.check(kernel, grid, block, args, shared, lane_order=order, seed=turn)
            outcome = "ok" if report.ok else "reported"
    except (TypeError, ValueError, KernelError) as error:
        outcome = type(error).__name__
        assert str(error)
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
x = np.ones(4, np.float32)
kernels[0]((1,), (4,), (x, 20, 0.5, np.zeros(1, "i4"), 0))
assert x.tolist() == [10] * 4, x
print(sorted(outcomes.items()))
"""


def test_thousands_of_random_launches_never_kill_the_process(tmp_path):
    script = tmp_path / "fuzz.py"
    script.write_text(FUZZ)
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(script), "3000"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    outcomes = dict(eval(run.stdout.strip().splitlines()[-1]))
    for kind in ("ran", "ok", "reported", "KernelError", "TypeError", "ValueError"):
        assert outcomes[kind] > 30, outcomes


# ---- the same on a GPU


@pytest.fixture
def cuda():
    return pytest.importorskip("cupy")


@pytest.mark.gpu
def test_on_a_gpu_it_runs_on_torchs_current_stream(cuda):
    side = torch.cuda.Stream()
    a = torch.randn(2048, 2048, device="cuda")
    for _ in range(50):
        with torch.cuda.stream(side):
            b = a
            for _ in range(4):
                b = b @ a * 0.01
            x = torch.zeros(1 << 20, device="cuda")
            x.fill_(2.0)
            RawKernel(SCALE, "scale", mode="native")((4096,), (256,), (x, 3.0, x.numel()))
            y = x + 1
        side.synchronize()
        assert bool((y == 7).all())


@pytest.mark.gpu
def test_on_a_gpu_floats_bfloat16_and_gradients_pass(cuda):
    for value in (5.0, 2.0, 1.5, 0.1, 1 / 3):
        x = torch.arange(100, device="cuda", dtype=torch.float32)
        scale((4,), (32,), (x, value, 100))
        assert torch.equal(x.cpu(), torch.arange(100.0) * torch.tensor(value, dtype=torch.float32))
    x = torch.zeros(4, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    RawKernel(HALF, "k")((1,), (4,), (x,))
    assert x.tolist() == [0.5] * 4


@pytest.mark.gpu
def test_on_a_gpu_cupy_arrays_and_structs_pass(cuda):
    x = cuda.zeros(2, cuda.int32)
    module = RawModule(code=PLUS, name_expressions=["plus<int, 3>", "lab::unbox<float>"])
    module.get_function("plus<int,3>")((1,), (2,), (x,))
    assert x.tolist() == [3, 3]
    f = cuda.zeros(1, cuda.float32)
    module.get_function("lab::unbox<float>")((1,), (1,), (f, np.array(2.5, [("v", "f4")])))
    assert float(f[0]) == 2.5
    module.get_function("two")((1,), (1,), (x,))
    assert int(x[0]) == 2
    with pytest.raises(KeyError, match="its kernels"):
        module.get_function("plus<int, 4>")


@pytest.mark.gpu
@pytest.mark.parametrize("static", [0, 16])
def test_on_a_gpu_more_than_48_kib_of_shared_memory_is_opted_in(cuda, static):
    text = (
        SHARED
        if not static
        else SHARED.replace("extern __shared__", "__shared__ volatile int s[4]; s[0] = n; extern __shared__")
    )
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    most = cuda.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"] - static
    for size in {49152, 65536, 98304, most}:
        if size <= most:
            RawKernel(text, "fill")((1,), (64,), (out, size // 4), shared_mem=size)
            assert out.item() == size // 4 - 1
    with pytest.raises(ValueError, match=f"shared_mem asks for {most + 16} bytes.* has at most {most + static}"):
        RawKernel(text, "fill")((1,), (64,), (out, 4), shared_mem=most + 16)


@pytest.mark.gpu
def test_on_a_gpu_the_same_calls_are_refused(cuda):
    x = torch.ones(4, device="cuda")
    for grid, block, args, error in (
        ((1,), (1,), (x, 1.0), TypeError),
        ((1,), (1,), (x.double(), 1.0, 4), TypeError),
        ((1,), (1,), (x, 1.0, 2**31), ValueError),
        ((1,), (1025,), (x, 1.0, 4), ValueError),
        ((1, 65536), (1,), (x, 1.0, 4), ValueError),
        ((1,), (1,), (x, 1.0, np.zeros(3, np.int32)), TypeError),
    ):
        with pytest.raises(error):
            scale(grid, block, args)
    scale((0,), (32,), (x, 2.0, 4))
    scale((1,), (32,), (x[:0], 2.0, 0))
    assert x.tolist() == [1] * 4


@pytest.mark.gpu
def test_on_a_gpu_compile_errors_have_the_learners_column(cuda):
    with pytest.raises(CompileError, match=r'mine.cu:4:24: error: identifier "bye"'):
        RawKernel(SCALE.replace("*= by", "*= bye"), "scale", filename="mine.cu")(
            (1,), (1,), (torch.ones(1, device="cuda"), 1.0, 1)
        )


@pytest.mark.gpu
def test_on_a_gpu_prints_reach_sys_stdout(cuda, capsys):
    text = PRINT.replace("int n)", "int n, int* x)")
    RawKernel(text, "tell")((1,), (3,), (7, torch.zeros(1, dtype=torch.int32, device="cuda")))
    assert capsys.readouterr().out == "thread 0 of 7\nthread 1 of 7\nthread 2 of 7\n"


@pytest.mark.gpu
def test_on_a_gpu_check_runs_on_the_cpu_on_copies(cuda):
    for array in (torch.ones(4, device="cuda"), cuda.ones(4, cuda.float32)):
        report = ssmlab.check(scale, (1,), (4,), (array, 2.0, 4))
        assert report.ok and report.arrays[0].tolist() == [2] * 4 and array.tolist() == [1] * 4


@pytest.mark.gpu
def test_on_a_gpu_a_wild_write_is_blamed_on_its_kernel(cuda):
    code = textwrap.dedent(f"""
        import torch
        from ssmlab import RawKernel
        from ssmlab.simt import KernelError
        x = torch.zeros(4, dtype=torch.int32, device="cuda")
        try:
            RawKernel({WILD!r}, "wild")((1,), (4,), (x, 2**40))
        except KernelError as error:
            print(error)
    """)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300).stdout
    assert "kernel 'wild' (kernel.cu, line 2)" in told and "restart it" in told


@pytest.mark.gpu
def test_on_a_gpu_a_kernel_can_be_captured_in_a_graph(cuda):
    x = torch.ones(4, device="cuda")
    scale((1,), (4,), (x, 1.0, 4))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale((1,), (4,), (x, 2.0, 4))
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert x.tolist() == [8] * 4
