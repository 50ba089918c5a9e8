"""The GPU half of RawKernel: everything that touches CuPy. Imported only when a kernel meets arrays on a GPU.

Compile errors become the same CompileError as on a CPU, a launch that the device cannot do is refused with both
numbers, and an illegal access is blamed on the kernel that made it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import arguments
from .arguments import Argument
from .simt.messages import CompileError, Problem
from .simt.report import KernelError
from .simt.signature import KernelInfo
from .simt.tokens import Text

_INSTALL = "pip install 'ssmlab[cuda12]' or 'ssmlab[cuda13]', the number that nvidia-smi prints"


def require() -> Any:
    """CuPy, after a look that it can reach a GPU. Raises RuntimeError with the one cause otherwise."""
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(f"a kernel on a GPU needs CuPy, and it cannot be imported ({error}): {_INSTALL}") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(
            f"a kernel on a GPU needs a GPU that CuPy {cupy.__version__} can use, and CUDA says: {error}. "
            "Is there a GPU, a driver, and does the driver support this CuPy's CUDA version (see nvidia-smi)?"
        ) from error
    if count == 0:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        reason = "" if hidden is None else f" (the environment variable CUDA_VISIBLE_DEVICES is {hidden!r})"
        raise RuntimeError(f"a kernel on a GPU needs a GPU, and CUDA shows none{reason}")
    return cupy


@dataclass
class _Compiled:
    """A kernel on one device, and what a launch must know of it. opted: [B] of dynamic shared memory allowed so far."""

    function: Any  # cupy.RawKernel
    max_threads: int
    static_shared: int
    opted: int
    settings: dict[str, int]


class Code:
    """One text with its options and names, compiled by CuPy on each device where a kernel of it is launched."""

    def __init__(
        self, text: str, filename: str, options: tuple[str, ...], names: tuple[str, ...], settings: dict[str, Any]
    ):
        self.text, self.filename, self.options, self.names = text, filename, options, names
        self.cupy = require()
        # Line numbers and messages carry the learner's file name, wherever CuPy puts its copy of the text.
        self.module = self.cupy.RawModule(
            code=f'#line 1 "{filename}"\n{text}', options=options, name_expressions=names or None, **settings
        )
        self._compiled: dict[tuple[str, int], _Compiled] = {}
        self._devices: dict[int, tuple[str, int]] = {}

    def compiled(self, info: KernelInfo, device: int, settings: dict[str, int]) -> _Compiled:
        """A kernel, compiled for the current device. settings: attributes of the function that the caller has set."""
        key = (info.name, device)
        found = self._compiled.get(key)
        if found is None:
            self._check_architecture(device)
            with self._translated_errors():
                function = self.module.get_function(info.name)
                function.compile()
            found = self._compiled[key] = _Compiled(
                function,
                function.max_threads_per_block,
                function.shared_size_bytes,
                function.max_dynamic_shared_size_bytes,
                {},
            )
        if found.settings != settings:
            for attribute, value in settings.items():
                setattr(found.function, attribute, value)
            found.settings = dict(settings)
            found.opted = found.function.max_dynamic_shared_size_bytes
        return found

    def compile(self, log_stream: Any = None) -> None:
        """Compile for the current device; the compiler's words go to log_stream."""
        self._check_architecture(self.cupy.cuda.runtime.getDevice())
        with self._translated_errors():
            self.module.compile(log_stream=log_stream)

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self.cupy.cuda.compiler.CompileException as error:
            raise compile_error(str(error), self.text, self.filename, self.names) from error

    def device(self, number: int) -> tuple[str, int]:
        """(name, most bytes of shared memory that a block can have) of a device."""
        if number not in self._devices:
            properties = self.cupy.cuda.runtime.getDeviceProperties(number)
            most = self.cupy.cuda.Device(number).attributes["MaxSharedMemoryPerBlockOptin"]
            self._devices[number] = properties["name"].decode(), most
        return self._devices[number]

    def _check_architecture(self, device: int) -> None:
        """Refuse a GPU that is older than everything this CUDA compiles for. (For a newer one CuPy takes PTX.)"""
        from cupy_backends.cuda.libs import nvrtc

        capability = int(self.cupy.cuda.Device(device).compute_capability)
        supported = sorted(int(architecture) for architecture in nvrtc.getSupportedArchs())
        if capability < supported[0]:
            version = ".".join(map(str, nvrtc.getVersion()))
            raise RuntimeError(
                f"{self.device(device)[0]} is sm_{capability}, and the compiler of CUDA {version} supports "
                f"sm_{supported[0]} to sm_{supported[-1]}: install a CuPy for an older CUDA "
                "(pip install 'ssmlab[cuda12]')"
            )


def launch(
    code: Code,
    info: KernelInfo,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    bound: list[Argument],
    shared_mem: int,
    stream: Any,
    device: int,
    *,
    watch: bool,
    prints: bool,
    settings: dict[str, int],
) -> None:
    """Check the launch against the device, launch, and (watch) wait and blame this kernel if it went wrong."""
    cupy = code.cupy
    with cupy.cuda.Device(device):
        kernel = code.compiled(info, device, settings)
        name, most_shared = code.device(device)
        arguments.check_shape(
            info,
            grid,
            block,
            shared_mem,
            max_threads=kernel.max_threads,
            max_shared=most_shared,
            static_shared=kernel.static_shared,
            machine=f"a block on {name}",
        )
        if shared_mem > kernel.opted:
            kernel.function.max_dynamic_shared_size_bytes = kernel.opted = shared_mem
        queue = _stream(cupy, stream, bound, device)
        watch = watch and not cupy.cuda.runtime.streamIsCapturing(queue.ptr)
        held = [_value(cupy, argument) for argument in bound]
        with _printed(prints and watch):
            try:
                kernel.function(grid, block, tuple(value for value, _ in held), shared_mem=shared_mem, stream=queue)
                if watch:
                    queue.synchronize()
            except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
                raise _blame(error, info, grid, block) from error


class GpuKernelError(KernelError):
    """A kernel made an illegal access or the like on a GPU, which tells no more: .report and .finding are None."""

    def __init__(self, text: str):
        RuntimeError.__init__(self, text)
        self.report = self.finding = None


class _Stream:
    """A stream handle of torch in the form of the CUDA stream protocol."""

    def __init__(self, handle: int):
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _stream(cupy: Any, stream: Any, bound: list[Argument], device: int) -> Any:
    """The stream asked for; else torch's current one where a torch tensor is among the arguments; else CuPy's."""
    torch = sys.modules.get("torch")
    if stream is None:
        tensors = torch is not None and any(
            argument.array is not None and isinstance(argument.array.source, torch.Tensor) for argument in bound
        )
        if not tensors:
            return cupy.cuda.get_current_stream()
        stream = torch.cuda.current_stream(device)
    if isinstance(stream, (cupy.cuda.Stream, cupy.cuda.ExternalStream)):
        return stream
    if isinstance(stream, int):
        handle = stream
    elif hasattr(stream, "cuda_stream"):  # torch.cuda.Stream
        handle = stream.cuda_stream
    elif hasattr(stream, "__cuda_stream__"):
        return cupy.cuda.Stream.from_external(stream)
    else:
        raise TypeError(f"stream is {stream!r}: it must be a CuPy stream, a torch.cuda.Stream or a stream handle")
    return cupy.cuda.Stream.from_external(_Stream(handle)) if handle else cupy.cuda.Stream.null


def _value(cupy: Any, argument: Argument) -> tuple[Any, Any]:
    """(what CuPy launches with, the memory that must live as long): the exact bytes, whatever the type."""
    buffer = ctypes.create_string_buffer(argument.data, len(argument.data))
    return cupy.cuda.function.CPointer(ctypes.addressof(buffer)), buffer


def _blame(error: Exception, info: KernelInfo, grid: tuple, block: tuple) -> Exception:
    told = str(error)
    if not re.search(
        r"illegal|misaligned|assert|launch failure|launch_failed|LAUNCH_FAILED|hardware|invalid ?pc|stack", told, re.I
    ):
        return RuntimeError(f"kernel {info.name!r} with grid {grid} and block {block} was not launched: {told}")
    return GpuKernelError(
        f"kernel {info.name!r} ({info.filename}, line {info.line}), grid {grid}, block {block}, ended with {told}.\n"
        "The GPU stays unusable for this process: restart it (in a notebook: Kernel, Restart).\n"
        "Run the kernel with ssmlab.check on the same arguments first: on the CPU the faulty line and thread are named."
    )


@contextlib.contextmanager
def _printed(wanted: bool) -> Iterator[None]:
    """What kernels print goes past sys.stdout to the process's output; bring it back, so that a notebook shows it."""
    if not wanted:
        yield
        return
    libc = ctypes.CDLL(None if sys.platform != "win32" else "ucrtbase")
    sys.stdout.flush()
    libc.fflush(None)
    saved = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(saved, 1)
            os.close(saved)
            file.seek(0)
            sys.stdout.write(file.read().decode(errors="replace"))
            sys.stdout.flush()


# ---- what NVRTC says

_SAYING = re.compile(
    r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): "
    r"(?:catastrophic )?(?P<word>error|warning|note|remark)(?: #[\w-]+)?: (?P<text>.*)$"
)


def compile_error(told: str, text: str, filename: str, names: tuple[str, ...] = ()) -> Exception:
    """NVRTC's log as a CompileError with the learner's lines and columns; other failures as RuntimeError."""
    unit = Text(text, filename)
    problems: list[Problem] = []
    lines = told.splitlines()
    for number, line in enumerate(lines):
        match = _SAYING.match(line)
        if not match or match["word"] != "error":
            continue
        if header := re.search(
            r'could not open source file "([^"]+)"|cannot open source file "([^"]+)"', match["text"]
        ):
            missing = header[1] or header[2]
            if re.match(r"cuda|cooperative_groups|device_|sm_|vector|crt/|nv/|mma", missing):
                return RuntimeError(
                    f"the compiler does not find the CUDA header {missing!r} that line {match['line']} of "
                    f"{match['file']} asks for: install CuPy with its headers "
                    "(pip install 'cupy-cuda12x[ctk]' or 'cupy-cuda13x[ctk]')"
                )
        if match["file"] == "__nv_name_map":
            number = int(match["line"]) - 1
            place = f"name expression {names[number]!r}" if number < len(names) else "name expression"
            problems.append(Problem(place, 0, 0, match["text"]))
            continue
        start = unit.find_line(match["file"], int(match["line"]))
        problem = Problem(match["file"], int(match["line"]), 0, match["text"])
        if start is not None:
            problem.text = unit.line_text(start)
            problem.column = _column(lines[number + 1 : number + 8], problem.text)
        problems.append(problem)
    if problems:
        return CompileError(problems)
    return RuntimeError(f"the GPU compiler failed: {told.strip()}")


def _column(following: list[str], text: str) -> int:
    """The column under NVRTC's caret: it repeats the line, indented differently, and a caret under it."""
    for shown, caret in zip(following, following[1:], strict=False):
        if shown.strip() == text.strip() and caret.strip() == "^":
            indent = len(text) - len(text.lstrip())
            return caret.index("^") - (len(shown) - len(shown.lstrip())) + indent + 1
    return 0
