"""RawKernel and RawModule: CuPy's call, on whatever machine holds the arrays.

    kernel = RawKernel(text, "scan", options=("-DTILE=256",))
    kernel((rows,), (256,), (a, b, h, length))

With arrays on a GPU (torch CUDA tensors, CuPy arrays) the kernel is compiled and launched by CuPy, on torch's current
stream and the arrays' own device. With torch CPU tensors or NumPy arrays it runs in ssmlab.simt, on the CPU. Both check
the arguments against the kernel's own parameter list first (arguments.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import arguments
from .arguments import Argument
from .simt import compiler, launch, source, toolchain
from .simt.includes import paste
from .simt.options import host_options
from .simt.outline import Outline
from .simt.placement import GRANULE, placement
from .simt.report import KernelError, Report
from .simt.signature import KernelInfo

_MODES = ("checked", "native")
_SETTABLE = ("max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout")


class _Program:
    """One text with its options: translated, built for the CPU and compiled for the GPU, each when first needed."""

    def __init__(
        self,
        code: str,
        options: tuple[str, ...],
        backend: str,
        translate_cucomplex: bool,
        enable_cooperative_groups: bool,
        jitify: bool | None,
        filename: str,
        name_expressions: tuple[str, ...],
    ):
        if not isinstance(code, str):
            raise TypeError(f"code is {type(code).__name__}: it must be a string of CUDA C++")
        if backend not in ("nvrtc", "nvcc"):
            raise ValueError(f"backend is {backend!r}: it must be 'nvrtc' or 'nvcc'")
        host = host_options(options, unknown="ignore")  # what a CPU cannot do is refused when a CPU is asked
        self.options = tuple(options)
        self.filename = filename
        self.backend = backend
        self.cooperative = bool(enable_cooperative_groups)
        self.gpu_settings: dict[str, Any] = {
            "backend": backend,
            "translate_cucomplex": bool(translate_cucomplex),
            "enable_cooperative_groups": self.cooperative,
        }
        if jitify:
            self.gpu_settings["jitify"] = True
        folders = [Path(folder) for folder in host.include_folders]
        parent = Path(filename).parent
        if parent != Path() and parent.is_dir():
            folders.insert(0, parent)
        self.text = paste(code, filename, folders)
        self.name_expressions = name_expressions
        self._outline: Outline | None = None
        self._translation: source.Translation | None = None
        self._libraries: dict[tuple[str, toolchain.Compiler], compiler.Library] = {}
        self._gpu_code: Any = None

    @property
    def translation(self) -> source.Translation:
        if self._translation is None:
            self._translation = source.translate(self.text, self.filename, self.options, self.name_expressions)
        return self._translation

    def library(self, mode: str) -> compiler.Library:
        """Built once for each mode and compiler ($CXX may change in between)."""
        key = mode, toolchain.find()
        if key not in self._libraries:
            self._libraries[key] = compiler.build(self.translation, mode)
        return self._libraries[key]

    def outline(self, name: str) -> KernelInfo:
        """What the text alone says of a kernel; for a GPU, where no C++ compiler may be there."""
        return self._outlined().kernel(name)

    def _outlined(self) -> Outline:
        if self._outline is None:
            self._outline = Outline(self.text, self.filename, self.options, self.name_expressions)
        return self._outline

    def gpu_code(self) -> Any:
        from . import gpu

        if self._gpu_code is None:
            kernels = self._outlined().kernels.values()
            names = tuple(info.name for info in kernels if not info.is_extern_c) if self.backend == "nvrtc" else ()
            self._gpu_code = gpu.Code(self.text, self.filename, self.options, names, self.gpu_settings)
        return self._gpu_code


class RawKernel:
    """A CUDA kernel from its text, with CuPy's signature, for GPU and CPU.

    code       CUDA C++. `#include "x.cuh"` is looked up beside `filename` and in -I folders, and pasted.
    name       of an extern "C" kernel, or an expression: "scan<float, 256>", "lab::scan"
    options    NVRTC's: -DNAME=value, -I, -std=c++17, --fmad=false, -lineinfo …
               On a CPU __CUDA_ARCH__ is 900 (800 with -arch=sm_80), and __CUDACC__ and __CUDACC_RTC__ are defined.
    backend, translate_cucomplex, enable_cooperative_groups, jitify   as in CuPy; on a CPU only the third matters
    mode       on a CPU: "checked" (races, bounds, barriers …: the default) or "native" (-O2, no checks, for kernels
               that are known to be right). On a GPU "checked" waits for the kernel, so that an illegal access names it;
               "native" does not.
    filename   what messages and reports call the text
    strided    the kernel takes strides as arguments: arrays may then be any views; otherwise they must be C-contiguous

    Raises CompileError (a RuntimeError) with the learner's line and column when the kernel is first used.
    """

    file_path = None  # CuPy's attribute for modules loaded from a binary

    def __init__(
        self,
        code: str,
        name: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: bool | None = None,
        mode: str = "checked",
        filename: str = "kernel.cu",
        strided: bool = False,
    ):
        if not isinstance(name, str) or not name.strip():
            raise TypeError(f"name is {name!r}: it must be the name of a kernel")
        if mode not in _MODES:
            raise ValueError(f"mode is {mode!r}: it must be 'checked' or 'native'")
        expressions = (name,)
        program = _Program(
            code, options, backend, translate_cucomplex, enable_cooperative_groups, jitify, filename, expressions
        )
        self._set(program, code, name, mode, strided)

    def _set(self, program: _Program, code: str, name: str, mode: str, strided: bool) -> None:
        self._program = program
        self.code, self.name, self.mode, self.strided = code, name, mode, strided
        self.__name__ = name
        self._settings: dict[str, int] = {}

    @classmethod
    def _of_module(cls, program: _Program, code: str, name: str, mode: str, strided: bool) -> RawKernel:
        kernel = cls.__new__(cls)
        kernel._set(program, code, name, mode, strided)
        return kernel

    @property
    def options(self) -> tuple[str, ...]:
        return self._program.options

    @property
    def backend(self) -> str:
        return self._program.backend

    @property
    def filename(self) -> str:
        return self._program.filename

    @property
    def enable_cooperative_groups(self) -> bool:
        return self._program.cooperative

    def __repr__(self) -> str:
        return f"<ssmlab.RawKernel {self.name!r} of {self.filename}>"

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        """Run the kernel.

        grid, block   one to three sizes; with a zero among them nothing is launched, as there are no threads
        args          one for each parameter (arguments.py says what each takes)
        shared_mem    [B] of dynamic shared memory a block; above 48 KiB the GPU's opt-in is made
        stream        on a GPU: CuPy or torch stream, or a handle; None: torch's current one if a torch tensor is given,
                      else CuPy's. A stream with arrays on the CPU is a TypeError.

        Where it runs is decided by the arrays; without any array, by `stream`: the GPU if one is given, else the CPU.
        Raises KernelError if the checked mode found an error (what was computed stays in the arrays), TypeError and
        ValueError for arguments and sizes, before any launch.
        """
        sizes = arguments.three(grid, "grid"), arguments.three(block, "block")
        outline = self._program.outline(self.name)
        infos = arguments.array_infos(outline, args)
        device = arguments.device_of(outline, infos)
        if device is None and stream is not None:
            device = f"cuda:{_current_device()}"
        if device is None or device == "cpu":
            if stream is not None:
                raise TypeError(f"kernel {self.name!r}: a stream was given, and the arrays are on the CPU")
            self._on_cpu(*sizes, args, infos, shared_mem)
        else:
            bound = arguments.bind(outline, args, infos, strided=self.strided)
            self._on_gpu(*sizes, outline, bound, shared_mem, stream, int(device.partition(":")[2]))

    def _on_gpu(
        self,
        grid: tuple,
        block: tuple,
        info: KernelInfo,
        bound: list[Argument],
        shared_mem: int,
        stream: Any,
        device: int,
    ) -> None:
        from . import gpu

        if _nothing_to_do(grid, block, bound):
            return
        gpu.launch(
            self._program.gpu_code(), info, grid, block, bound, shared_mem, stream, device,
            watch=self.mode == "checked", prints="printf" in self.code, settings=self._settings,
        )  # fmt: skip

    def _on_cpu(self, grid: tuple, block: tuple, args: Sequence, infos: Sequence, shared_mem: int) -> None:
        library = self._program.library(self.mode)
        info = library.kernel(self.name)
        bound = arguments.bind(info, args, infos, strided=self.strided)
        arguments.check_shape(info, grid, block, shared_mem)
        if _nothing_to_do(grid, block, bound):
            return
        report = launch.run(library, info, grid, block, bound, shared_mem, cooperative=self.enable_cooperative_groups)
        if report is None:
            return
        if report.printf:
            sys.stdout.write(report.printf)
        if any(finding.severity == "error" for finding in report.findings):
            raise KernelError(report)

    # ---- CuPy's attributes, which describe the kernel that the GPU runs

    @property
    def kernel(self) -> Any:
        """cupy.cuda.Function on the current device; compiles. RuntimeError without a GPU, as for all attributes."""
        return self._gpu_function().kernel

    def _gpu_function(self) -> Any:
        """cupy.RawKernel on the current device."""
        device = _current_device()
        return self._program.gpu_code().compiled(self._program.outline(self.name), device, self._settings).function

    def compile(self, log_stream: Any = None, *, device: str = "cuda") -> None:
        """Compile now: device "cuda" (as CuPy; log_stream gets the compiler's words) or "cpu"."""
        if device == "cpu":
            self._program.library(self.mode)
        elif device == "cuda":
            self._program.gpu_code().compile(log_stream)
        else:
            raise ValueError(f"device is {device!r}: it must be 'cpu' or 'cuda'")

    @property
    def attributes(self) -> dict[str, int]:
        """All the attributes below, by name, of the kernel on the current GPU."""
        return self._gpu_function().attributes

    def __reduce__(self):
        program = self._program
        state = (
            self.code, self.name, program.options, program.backend, program.gpu_settings["translate_cucomplex"],
            program.cooperative, program.gpu_settings.get("jitify"), self.mode, program.filename, self.strided,
            program.name_expressions,
        )  # fmt: skip
        return _unpickle, state


def _unpickle(
    code, name, options, backend, cucomplex, cooperative, jitify, mode, filename, strided, expressions
) -> RawKernel:
    program = _Program(code, options, backend, cucomplex, cooperative, jitify, filename, expressions)
    return RawKernel._of_module(program, code, name, mode, strided)


def _attribute(name: str, text: str) -> property:
    def read(kernel: RawKernel) -> int:
        return getattr(kernel._gpu_function(), name)

    def write(kernel: RawKernel, value: int) -> None:
        kernel._settings[name] = value

    return property(read, write if name in _SETTABLE else None, doc=text)


for _name, _text in (
    ("max_threads_per_block", "How many threads a block may have, given the kernel's registers."),
    ("shared_size_bytes", "[B] of static shared memory."),
    ("const_size_bytes", "[B] of constant memory."),
    ("local_size_bytes", "[B] of local memory a thread."),
    ("num_regs", "Registers a thread."),
    ("ptx_version", "10 * major + minor of the PTX it was compiled to."),
    ("binary_version", "10 * major + minor of the architecture it was compiled for."),
    ("cache_mode_ca", "Was it compiled with -Xptxas --dlcm=ca?"),
    (
        "max_dynamic_shared_size_bytes",
        "[B] of dynamic shared memory that a launch may ask for. Can be set; a launch raises it by itself.",
    ),
    ("preferred_shared_memory_carveout", "[%] of the L1 cache wanted as shared memory. Can be set."),
):
    setattr(RawKernel, _name, _attribute(_name, _text))


class RawModule:
    """A text with several kernels, with CuPy's signature, for GPU and CPU.

    code               CUDA C++; exclusive with `path`
    path               a .cubin or .ptx file, which only a GPU can load
    name_expressions   instances of templates: ("scan<float>", "scan<double>"); kernels that are no templates need none
    The other arguments are those of RawKernel.
    """

    def __init__(
        self,
        code: str | None = None,
        *,
        path: str | os.PathLike | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool | None = None,
        mode: str = "checked",
        filename: str = "kernel.cu",
        strided: bool = False,
    ):
        if (code is None) == (path is None):
            raise TypeError("RawModule needs exactly one of `code` and `path`")
        if path is not None:
            raise ValueError(
                f"path is {str(path)!r}: a compiled binary has no text to check or to run on a CPU: pass `code`"
            )
        if isinstance(name_expressions, str):
            raise TypeError(f"name_expressions is the string {name_expressions!r}: it must be a sequence of strings")
        if name_expressions is not None and backend != "nvrtc":
            raise ValueError(f"backend is {backend!r}: name_expressions need 'nvrtc'")
        if mode not in _MODES:
            raise ValueError(f"mode is {mode!r}: it must be 'checked' or 'native'")
        self.code, self.mode, self.strided = code, mode, strided
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._program = _Program(
            code,
            options,
            backend,
            translate_cucomplex,
            enable_cooperative_groups,
            jitify,
            filename,
            self.name_expressions or (),
        )
        self._kernels: dict[str, RawKernel] = {}

    file_path = None

    @property
    def options(self) -> tuple[str, ...]:
        return self._program.options

    @property
    def backend(self) -> str:
        return self._program.backend

    @property
    def enable_cooperative_groups(self) -> bool:
        return self._program.cooperative

    def get_function(self, name: str) -> RawKernel:
        """A kernel by its name or expression, spaces ignored. Raises KeyError that lists the names."""
        info = self._program.outline(name)
        if info.name not in self._kernels:
            self._kernels[info.name] = RawKernel._of_module(
                self._program, self.code, info.name, self.mode, self.strided
            )
        return self._kernels[info.name]

    def get_global(self, name: str, *, device: str | None = None) -> Any:
        """The memory of a `__device__` or `__constant__` variable, to be read and written between launches.

        device "cuda": cupy.cuda.MemoryPointer, as CuPy gives; "cpu": a writable buffer of bytes. Both serve as the
        third argument of ndarray: np.ndarray((4,), np.float32, module.get_global("weights", device="cpu")).
        None means "cuda" where a GPU can be used, else "cpu".
        """
        if device is None:
            device = "cuda" if _gpu_is_there() else "cpu"
        if device == "cuda":
            return self._program.gpu_code().module.get_global(name)
        if device != "cpu":
            raise ValueError(f"device is {device!r}: it must be 'cpu' or 'cuda'")
        return compiler.global_buffer(self._program.library(self.mode), name)

    def compile(self, log_stream: Any = None, *, device: str = "cuda") -> None:
        """Compile now: device "cuda" (as CuPy) or "cpu"."""
        if device == "cpu":
            self._program.library(self.mode)
        elif device == "cuda":
            self._program.gpu_code().compile(log_stream)
        else:
            raise ValueError(f"device is {device!r}: it must be 'cpu' or 'cuda'")

    @property
    def module(self) -> Any:
        """cupy.cuda.Module on the current device; compiles."""
        return self._program.gpu_code().module.module


def check(
    kernel: RawKernel, grid: Any, block: Any, args: Sequence[Any], shared_mem: int = 0, **schedule: Any
) -> Report:
    """Run a kernel on the CPU, on copies of the arrays, with all checks, wherever the arrays are; never on a GPU.

    kernel              RawKernel
    grid … shared_mem   as in a call
    schedule            lane_order and block_order: "forward" | "reverse" | "random"; resident: blocks alive at once;
                        seed; watchdog: how long until a loop is called endless (basic blocks of a thread, turns that
                        the threads of a block take at barriers and in warp-wide operations)

    Returns Report: .ok, .findings, .lines …; .arrays holds the arguments in their order, arrays as they were after the
    run (a NumPy array, or a torch CPU tensor for a tensor; the arrays passed in are not touched).
    Never raises for what it finds; TypeError, ValueError and CompileError for what cannot be run at all.
    """
    if not isinstance(kernel, RawKernel):
        raise TypeError(f"kernel is {kernel!r}: it must be an ssmlab.RawKernel")
    sizes = arguments.three(grid, "grid"), arguments.three(block, "block")
    library = kernel._program.library("checked")
    info = library.kernel(kernel.name)
    # A mixture of devices is refused: a launch could not use it either.
    arguments.device_of(info, arguments.array_infos(info, args))
    copies = _copies(args)
    bound = arguments.bind(info, copies, strided=kernel.strided)
    arguments.check_shape(info, *sizes, shared_mem)
    if _nothing_to_do(*sizes, bound):
        report = Report(info.name, *sizes, shared_mem, kernel.filename)
    else:
        cooperative = kernel.enable_cooperative_groups
        report = launch.run(library, info, *sizes, bound, shared_mem, cooperative=cooperative, **schedule)
    report.arrays = tuple(copies)
    return report


def _nothing_to_do(grid: tuple, block: tuple, bound: list[Argument]) -> bool:
    """No threads; or arrays were given and all are empty, so that there is nothing to read or to write."""
    arrays = [argument.array for argument in bound if argument.array is not None]
    return 0 in (*grid, *block) or (bool(arrays) and all(array.nbytes == 0 for array in arrays))


def _copies(args: Sequence[Any]) -> list[Any]:
    """The arguments with arrays copied to the host. Arrays that overlap are copied together and overlap again."""
    copies = list(args)
    infos = {index: info for index, value in enumerate(args) if (info := arguments.array_info(value)) is not None}
    spans = sorted((*info.span, index) for index, info in infos.items())
    groups: list[list[int]] = []
    end = -1
    for low, high, index in spans:
        if low >= end:
            groups.append([])
        groups[-1].append(index)
        end = max(end, high) if len(groups[-1]) > 1 else high
    for group in groups:
        low = min(infos[index].span[0] for index in group)
        high = max(infos[index].span[1] for index in group)
        memory = _bytes_of(infos[group[0]], low, high)
        for index in group:
            copies[index] = _view(infos[index], memory, infos[index].address - low)
    return copies


def _bytes_of(info: arguments.ArrayInfo, low: int, high: int) -> np.ndarray:
    """A copy of the bytes [low, high) of the device that holds the array.

    Its base is a piece of memory that starts at a multiple of 256 bytes, and it begins there where it would on a GPU.
    """
    start = placement(info.source, low, info.device)
    room = np.empty(GRANULE + start + high - low, np.uint8)
    first = -room.ctypes.data % GRANULE
    piece = np.asarray(memoryview(room[first : first + start + high - low]))
    memory = piece[start:]
    if high == low:
        return memory
    if info.device == "cpu":
        memory[:] = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(low))
        return memory
    from . import gpu

    cupy = gpu.require()
    device = int(info.device.partition(":")[2])
    with cupy.cuda.Device(device):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(info.source, torch.Tensor):
            torch.cuda.current_stream(device).synchronize()
        else:
            cupy.cuda.get_current_stream().synchronize()
        cupy.cuda.runtime.memcpy(memory.ctypes.data, low, high - low, cupy.cuda.runtime.memcpyDeviceToHost)
    return memory


def _view(info: arguments.ArrayInfo, memory: np.ndarray, offset: int) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(info.source, torch.Tensor):
        if not info.nbytes:
            return torch.empty(info.shape, dtype=info.source.dtype)
        start = memory.ctypes.data - memory.base.ctypes.data + offset  # of the whole piece: torch forgets other bases
        end = start + (len(memory) - offset) // info.itemsize * info.itemsize
        flat = torch.from_numpy(memory.base)[start:end].view(info.source.dtype)
        return flat.as_strided(info.shape, [step // info.itemsize for step in info.strides])
    dtype = info.source.dtype
    view = np.ndarray(info.shape, dtype, memory, offset, info.strides) if info.nbytes else np.empty(info.shape, dtype)
    view.flags.writeable = info.writable
    return view


def _current_device() -> int:
    from . import gpu

    return gpu.require().cuda.runtime.getDevice()


def _gpu_is_there() -> bool:
    """Can CuPy use a GPU? Any of the causes that gpu.require names counts as no."""
    from . import gpu

    try:
        gpu.require()
    except RuntimeError:
        return False
    return True
