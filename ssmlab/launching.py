"""Launches the finished kernels of the ops: checked the first time, as cheaply as possible afterwards.

A RawKernel looks at every argument of every call, which is right for a kernel that is being written and costs more
time than a small scan takes. An op passes the same kinds of arguments each time. So the first launch on a device goes
through RawKernel with all its checks; later ones hand the driver the same list of 8-byte values at once. On a CPU every
launch goes through RawKernel.
"""

from __future__ import annotations

import ctypes
import functools
import struct

import torch

from . import kernels, replay
from .rawkernel import RawKernel

# A GPU divides floats by an approximate reciprocal, good to 2 units in the last place: one instruction, not eight.
# (CuPy asks for -ftz=true by itself: subnormal floats count as 0. float64 is touched by neither.)
_OPTIONS = ("-std=c++17", "-DSIMT_TRUSTED", "-prec-div=false")


class Launcher:
    """One kernel of kernels_cu with its compile-time constants.

    file, name   the text and the kernel in it
    constants    {"TILE": 256, "ELEMENT_FLOAT": None}: -DTILE=256 -DELEMENT_FLOAT. LOOP=1: blocks wait for each other
                 both ways, so all of them must be alive at once: a cooperative launch, on a CPU.
    """

    def __init__(self, file, name, constants):
        options = tuple(f"-D{key}" if value is None else f"-D{key}={value}" for key, value in sorted(constants.items()))
        self.kernel = RawKernel(
            kernels.source(file), name, (*_OPTIONS, *options), mode="native", filename=file, strided=True,
            enable_cooperative_groups=constants.get("LOOP") == 1,
        )  # fmt: skip
        self._ready = {}  # device index: (driver's launch function, handle of the kernel)
        self._frames = []  # not in use at the moment

    def __call__(self, grid, block, args, device, shared_mem=0):
        """Run on `device`, on torch's current stream. args: tensors, None for a null pointer, integers.

        shared_mem   [B] of dynamic shared memory, the same in every launch
        """
        replay.launched(self, grid, block, args, shared_mem)
        if device.type == "cpu":
            self.kernel(grid, block, args, shared_mem=shared_mem)
            return
        if torch.cuda.current_device() != device.index:
            with torch.cuda.device(device):
                self._on_gpu(grid, block, args, device.index, shared_mem)
        else:
            self._on_gpu(grid, block, args, device.index, shared_mem)

    def _on_gpu(self, grid, block, args, index, shared_mem):
        ready = self._ready.get(index)
        if ready is None:
            self.kernel(grid, block, args, shared_mem=shared_mem)  # with all checks; compiles
            self._ready[index] = self._driver_function(index)
            return
        launch, handle = ready
        values = [value if type(value) is int else _address(value) for value in args]
        frame = self._frames.pop() if self._frames else _Frame(len(values))  # list.pop and append are atomic
        struct.pack_into(frame.format, frame.values, 0, *values)
        stream = torch._C._cuda_getCurrentRawStream(index)
        launch(handle, *(*grid, 1, 1)[:3], *(*block, 1, 1)[:3], shared_mem, stream, frame.start, 0)
        self._frames.append(frame)

    def ready(self, index):
        """(the driver's launch function, handle of the kernel) on a device where it has been launched before."""
        return self._ready[index]

    def _driver_function(self, index):
        """cuLaunchKernel as CuPy wraps it, and the compiled kernel's handle on this device."""
        from . import gpu  # imports CuPy, which a machine without a GPU need not have

        return gpu.require().cuda.driver.launchKernel, self.kernel.kernel.ptr


class _Frame:
    """What the driver is shown: `count` places of 8 bytes, as every parameter is a pointer, a long long or an int."""

    def __init__(self, count):
        self.format = f"<{count}q"  # little end first, so that an int is the front half of its place
        self.values = (ctypes.c_int64 * count)()
        first = ctypes.addressof(self.values)
        self.places = (ctypes.c_void_p * count)(*range(first, first + 8 * count, 8))
        self.start = ctypes.addressof(self.places)


def _address(value):
    return 0 if value is None else int(value) if isinstance(value, int) else value.data_ptr()


@functools.cache
def launcher(file, name, constants):
    """The Launcher for a text, a kernel and constants given as a sorted tuple of pairs; one for all callers."""
    return Launcher(file, name, dict(constants))
