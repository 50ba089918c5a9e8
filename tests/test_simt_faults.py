"""Kernels that fault: the process lives, the line is named, and what handled such signals before does so again.

Every test runs in this process: that the next test runs is half of the proof.
"""

import ctypes
import faulthandler
import mmap
import os
import platform
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from simt_kernels import zeros

import ssmlab
from ssmlab import arguments
from ssmlab.simt import KernelError, launch, toolchain

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="faults end the process on Windows")
COMPILERS = {name: name for name in ("g++", "clang++") if shutil.which(name)}
if toolchain.zig_program():
    COMPILERS["zig"] = f"{toolchain.zig_program()} c++"
top_byte_counts = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="Arm ignores an address's top byte: the write lands in y[0]"
)
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="Arm gives 0 and goes on")

TEXT = r"""
struct Row { float a, b, c[6]; };
__device__ float sum(Row row) { return row.a + row.c[3]; }
extern "C" __global__ void by_value(const Row* rows, float* y, long long at) {
    y[threadIdx.x] = sum(rows[at]);  //@by value
}
extern "C" __global__ void divided(const int* x, int* y) {
    y[threadIdx.x] = y[threadIdx.x] / x[threadIdx.x];  //@divided
}
extern "C" __global__ void remainders(const int* x, int* y) {
    y[threadIdx.x] = y[threadIdx.x] % x[threadIdx.x];  //@remainders
}
extern "C" __global__ void trapped(int* y) {
    if (threadIdx.x == 3) __trap();  //@trapped
}
__device__ int large(int n) { volatile int room[400000]; room[n] = n; return room[n + 1]; }  //@large
extern "C" __global__ void large_frame(int* y, int n) {
    y[threadIdx.x] = large(n);
}
__device__ int down(int n) { volatile int here = n; return n ? down(n - 1) + here : 0; }  //@recursion
extern "C" __global__ void recursion(int* y, int n) {
    y[threadIdx.x] = down(n);
}
extern "C" __global__ void literal(int* y) {
    char* text = (char*)"abc";
    text[threadIdx.x] = 'x';  //@literal
}
extern "C" __global__ void printed(const long long* where) {
    printf("%s\n", (const char*)where[0]);  //@printed
}
extern "C" __global__ void called(const long long* where, int* y) {
    int (*function)(int) = (int (*)(int))where[0];
    y[0] = function(3);  //@called
}
extern "C" __global__ void far_write(float* y, long long at) {
    y[at] = 1;  //@far_write
}
extern "C" __global__ void fill(int* y) { y[threadIdx.x] = 1; }
extern "C" __global__ void work(int* y, int turns) {
    for (int i = 0; i < turns; i++) { __syncthreads(); }
    if (blockIdx.x == 0) y[threadIdx.x] = 1;
}
extern "C" __global__ void nothing(int n) {}
"""
LINES = {mark[1]: n for n, line in enumerate(TEXT.splitlines(), 1) if (mark := re.search(r"//@(.+)$", line))}
CHECKED, NATIVE = ssmlab.RawModule(code=TEXT), ssmlab.RawModule(code=TEXT, mode="native")


@pytest.fixture(params=sorted(COMPILERS))
def each_compiler(request, monkeypatch):
    monkeypatch.setenv("CXX", COMPILERS[request.param])
    return request.param


def ints(*values):
    return np.array(values, np.int32)


def addresses(*values):
    return np.array(values, np.int64)


FAULTS = {  # kernel: (arguments, kind, mark of the line, words of the detail)
    "a struct by value, far": ("by_value", (zeros(64), zeros(8), 1 << 36), "wild-access", "by value", "far outside"),
    "a struct by value, not far": ("by_value", (zeros(64), zeros(8), 1 << 20), "wild-access", "by value", "far out"),
    "a struct by value, before": ("by_value", (zeros(64), zeros(8), -(1 << 20)), "wild-access", "by value", "far out"),
    "no address at all": ("by_value", (zeros(64), zeros(8), 1 << 40), "wild-access", "by value", "far outside"),
    "a string at 16": ("printed", (addresses(16),), "wild-access", "printed", "null pointer"),
    "a function at 16": ("called", (addresses(16), ints(0)), "wild-access", "called", "calls a function"),
    "a function nowhere": ("called", (addresses(1 << 40), ints(0)), "wild-access", "called", "calls a function"),
    "a literal": ("literal", (ints(0),), "wild-access", "literal", "a literal or a constant"),
    "a large frame": ("large_frame", (ints(*range(8)), 3), "stack-overflow", "large", "96 KiB"),
    "a recursion": ("recursion", (ints(*range(8)), 1 << 30), "stack-overflow", "recursion", "96 KiB"),
    "a trap": ("trapped", (ints(*range(8)),), "assert", "trapped", "__trap()"),
}


def judge(name, args, kind, mark, words):
    report = ssmlab.check(CHECKED.get_function(name), (1,), (8,), args)
    found = [(finding.kind, finding.line) for finding in report.findings]
    assert found == [(kind, LINES[mark])] and words in report.findings[0].detail, str(report)
    assert not report.complete
    out = ints(*[0] * 8)
    assert ssmlab.check(CHECKED.get_function("fill"), (1,), (8,), (out,)).arrays[0].tolist() == [1] * 8


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_a_finding_at_its_line_and_the_process_lives(fault, each_compiler):
    judge(*fault)


@on_x86
@pytest.mark.parametrize("name", ["divided", "remainders"])
@pytest.mark.parametrize("y, x", [(7, 0), (-(2**31), -1)])
def test_an_integer_division_that_has_no_result_is_found(name, y, x, each_compiler):
    judge(name, (ints(1, 1, 1, x, 1, 1, 1, 1), ints(*[y] * 8)), "division-by-zero", name, "thread (3, 0, 0)")


def test_an_instruction_that_is_none_is_no_function(each_compiler):
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x0f\x0b" if platform.machine() == "x86_64" else b"\0\0\0\0")
    place = ctypes.addressof(ctypes.c_char.from_buffer(code))
    judge("called", (addresses(place), ints(0)), "wild-access", "called", "calls a function")


@pytest.mark.parametrize(
    "name, args, kind",
    [
        ("far_write", (zeros(8), 1 << 36), "wild-access"),
        pytest.param("far_write", (zeros(8), 1 << 60), "wild-access", marks=top_byte_counts),
        ("recursion", (ints(*range(8)), 1 << 30), "stack-overflow"),
        ("trapped", (ints(*range(8)),), "assert"),
        pytest.param("divided", (ints(*[0] * 8), ints(*[7] * 8)), "division-by-zero", marks=on_x86),
    ],
)
def test_a_fault_in_native_mode_raises(name, args, kind, each_compiler):
    with pytest.raises(KernelError) as caught:
        NATIVE.get_function(name)((1,), (8,), args)
    assert caught.value.finding.kind == kind
    out = ints(*[0] * 8)
    NATIVE.get_function("fill")((1,), (8,), (out,))
    assert out.tolist() == [1] * 8


@on_x86
def test_every_worker_of_a_native_launch_may_fault():
    raw = NATIVE.get_function("divided")
    library = raw._program.library("native")
    info = library.kernel("divided")
    bound = arguments.bind(info, (ints(*[0] * 32), ints(*[7] * 32)))
    for _ in range(5):
        with pytest.raises(KernelError, match="division-by-zero"):
            launch.run(library, info, (1000, 1, 1), (32, 1, 1), bound, workers=4)


# ---- whose fault it is


def handlers():
    libc = ctypes.CDLL(None)
    found = []
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP):
        action = ctypes.create_string_buffer(256)
        assert libc.sigaction(int(number), None, action) == 0
        found.append(action.raw[:8])  # the function; behind it are bytes that nobody sets
    stack = ctypes.create_string_buffer(64)
    assert libc.sigaltstack(None, stack) == 0
    return [*found, stack.raw[:8]]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_handlers_from_before_are_back_after_a_launch(enabled):
    was_enabled = faulthandler.is_enabled()
    try:
        faulthandler.enable() if enabled else faulthandler.disable()
        before = handlers()
        judge(*FAULTS["no address at all"])
        assert handlers() == before
        with pytest.raises(KernelError):
            NATIVE.get_function("far_write")((1,), (8,), (zeros(8), 1 << 36))
        assert handlers() == before
    finally:
        faulthandler.enable() if was_enabled else faulthandler.disable()


@pytest.mark.parametrize("module", [CHECKED, NATIVE], ids=["checked", "native"])
def test_a_signal_that_somebody_sends_goes_to_the_handler_from_before(module):
    seen = []
    before = signal.signal(signal.SIGFPE, lambda number, frame: seen.append(number))
    sender = threading.Thread(target=lambda: (time.sleep(0.1), os.kill(os.getpid(), signal.SIGFPE)))
    module.get_function("nothing").compile(device="cpu")
    try:
        sender.start()
        out = ints(*[0] * 32)
        module.get_function("work")((4000,), (32,), (out, 40))
        sender.join()
    finally:
        signal.signal(signal.SIGFPE, before)
    assert seen == [signal.SIGFPE] and out.tolist() == [1] * 32


# ---- Ctrl-C

HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "run",
    [
        lambda: ssmlab.check(CHECKED.get_function("nothing"), (HUGE,), (256,), (1,)),
        lambda: ssmlab.check(CHECKED.get_function("work"), (1,), (1024,), (ints(*[0] * 1024), HUGE), watchdog=0),
        lambda: NATIVE.get_function("nothing")((HUGE,), (256,), (1,)),
        lambda: NATIVE.get_function("work")((64,), (1024,), (ints(*[0] * 1024), HUGE)),
    ],
    ids=["checked, many blocks", "checked, one long block", "native, many blocks", "native, long blocks"],
)
def test_ctrl_c_ends_a_launch_within_a_second(run):
    for module in (CHECKED, NATIVE):
        module.get_function("fill")((1,), (8,), (ints(*[0] * 8),))
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    start = time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - start < 1.5
    judge(*FAULTS["a trap"])
    out = ints(*[0] * 8)
    NATIVE.get_function("fill")((1,), (8,), (out,))
    assert out.tolist() == [1] * 8


def test_a_launch_that_takes_longer_than_a_pause_is_counted_as_one():
    out = ints(*[0] * 64)
    report = ssmlab.check(CHECKED.get_function("work"), (3,), (64,), (out, 60_000), watchdog=0)
    assert report.ok and report.barriers == 60_000 and report.arrays[0].tolist() == [1] * 64
    out = ints(*[0] * 64)
    NATIVE.get_function("work")((40,), (64,), (out, 100_000))
    assert out.tolist() == [1] * 64


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="Clang touches a frame's pages on x86 only")
def test_a_large_frame_does_not_step_over_the_guard_below_the_stacks(each_compiler):
    """A frame of 4 MB reaches behind the guard, into memory of whoever lies there: nothing may be written to it."""
    few = (1,), (8,)
    ssmlab.check(CHECKED.get_function("recursion"), *few, (ints(*range(8)), 0))  # the stacks stay where they are now
    guards = [span for span in mappings() if span[2].startswith("---") and span[1] - span[0] == 1 << 20]
    assert guards
    for guard, _, _ in guards:  # somebody shall live below each: we, where nobody does
        mmap_at(guard - (4 << 20), 4 << 20)
    below = [
        (max(start, guard - (4 << 20)), min(end, guard)) for guard, _, _ in guards for start, end, rights in mappings()
        if rights.startswith("rw") and start < guard and end > guard - (4 << 20)
    ]  # fmt: skip
    assert below

    def seen():
        return [bytes((ctypes.c_char * (end - start)).from_address(start)) for start, end in below]

    before = seen()
    kernel = ssmlab.RawKernel('extern "C" __global__ void k(int* y) { int x[1000000]; x[3] = *y; *y = x[3]; }', "k")
    report = ssmlab.check(kernel, *few, (ints(*range(8)),))
    assert [finding.kind for finding in report.findings] == ["stack-overflow"]
    assert seen() == before


def mappings():
    """(start, end, rights) of what this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return [(*(int(end, 16) for end in line.split()[0].split("-")), line.split()[1]) for line in lines]


def mmap_at(address, size):
    """Map memory there, unless something is there."""
    function = ctypes.CDLL(None).mmap
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    private_anonymous, not_over_anything = 0x22, 0x100000
    function(address, size, mmap.PROT_READ | mmap.PROT_WRITE, private_anonymous | not_over_anything, -1, 0)
