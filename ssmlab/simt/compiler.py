"""Builds a translation into a library that is loaded, once: the cache knows text, options, compiler and runtime.

Interface (used by launch.py, lines.py, rawkernel.py)

    build(translation, mode="checked") -> Library    mode: "checked" (-O0, hooks, bounds, debug lines) or "native" (-O2)
    Library.path          of the .so / .dylib / .dll, which keeps its debug lines in checked mode
           .cdll          ctypes.CDLL of it; it holds the runtime too (linked statically: each library has its own)
           .mode          "checked" | "native"
           .compiler      toolchain.Compiler: .kind "gcc" | "clang" | "zig"
           .translation   source.Translation
           .kernels       {name: KernelInfo} with exact parameters and launch bounds
           .kernel(name)  the same by name, spaces ignored; UnknownKernel lists the names
           .thunk(name)   address of `void simt_thunk_<n>(void** arguments)`
           .global_memory(name) -> (address, size in bytes, is it __constant__) of a __device__ or __constant__ variable

What the runtime is compiled with (once per compiler and mode)
    runtime/runtime.cpp, -O2, no hooks, C++17, include folders runtime/ and include/
    -DSIMT_CHECKED=1 or 0: the same macro that the kernel's text is compiled with, so that simt.h knows the mode
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from . import cache, toolchain
from .compiler_output import read_problems, unresolved
from .messages import CompileError, Problem
from .outline import find_kernel
from .signature import KernelInfo, compiled_parameters
from .source import Translation
from .toolchain import Compiler

HERE = Path(__file__).resolve().parent
_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_TIME_LIMIT = 120  # [s] for one run of a compiler: a text can make any compiler run for ever (templates)


class Library:
    """A compiled and loaded translation; see the top of this file."""

    def __init__(self, path: Path, translation: Translation, mode: str, compiler: Compiler):
        self.path, self.translation, self.mode, self.compiler = path, translation, mode, compiler
        try:
            self.cdll = ctypes.CDLL(str(path))
        except OSError as error:
            raise unresolved(error, translation) from error
        self.kernels = {name: self._exact(info) for name, info in translation.kernels.items()}

    def _exact(self, info: KernelInfo) -> KernelInfo:
        parameters = compiled_parameters(ctypes.c_void_p.in_dll(self.cdll, info.signature).value, info.parameters)
        bounds = info.launch_bounds
        if info.bounds_symbol:
            bounds = ctypes.c_uint.in_dll(self.cdll, info.bounds_symbol).value
        return replace(info, parameters=parameters, launch_bounds=bounds)

    def kernel(self, name: str) -> KernelInfo:
        return find_kernel(self.kernels, name, self.translation.original)

    def thunk(self, name: str) -> int:
        return ctypes.cast(getattr(self.cdll, self.kernel(name).thunk), ctypes.c_void_p).value

    def global_memory(self, name: str) -> tuple[int, int, bool]:
        rows = (_Global * (len(self.translation.globals) + 1)).in_dll(self.cdll, "simt_globals")
        for row in rows[:-1]:
            if row.name.decode() == name.removeprefix("::"):
                return row.address, row.size, bool(row.constant)
        names = ", ".join(sorted(row.name.decode() for row in rows[:-1])) or "none"
        raise KeyError(f"{self.translation.filename} has no variable {name!r} in device memory; its variables: {names}")


def global_buffer(library: Library, name: str) -> ctypes.Array:
    """The memory of a `__device__` or `__constant__` variable as a buffer of bytes; it keeps the library alive."""
    address, size, _ = library.global_memory(name)
    buffer = (ctypes.c_uint8 * size).from_address(address)
    buffer.library = library
    return buffer


class _Global(ctypes.Structure):
    """struct simt_global of the translation."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("size", ctypes.c_ulonglong),
        ("constant", ctypes.c_int),
    ]


_loaded: dict[str, Library] = {}


def build(translation: Translation, mode: str = "checked") -> Library:
    """Compile (or find in the cache), link and load. Raises CompileError; RuntimeError where there is no compiler."""
    if mode not in ("checked", "native"):
        raise ValueError(f"mode is {mode!r}: it must be 'checked' or 'native'")
    compiler = toolchain.find()
    host = translation.host
    flags = [
        *compiler.flags(mode),
        *([compiler.coverage_flag()] if mode == "native" and _may_wait(translation) else []),
        f"-std={host.standard}",
        f"-ffp-contract={'fast' if host.contract else 'off'}",
        f"-DSIMT_CHECKED={int(mode == 'checked')}",
        "-isystem",
        str(HERE / "include"),
        *(f"-I{folder}" for folder in host.include_folders),
    ]
    key = _digest(
        translation.text, *flags, *compiler.link_flags(), *compiler.command, compiler.version, _runtime_digest()
    )
    library = _loaded.get(key)
    if library is None:
        path = cache.folder() / f"kernel-{key}{_SUFFIX}"
        if not path.exists():
            path = _compile(translation, compiler, flags, _runtime_object(compiler, mode), path.name)
        library = _loaded[key] = Library(path, translation, mode, compiler)
    return library


def _may_wait(translation: Translation) -> bool:
    """May a thread poll for what another writes? Native mode must then be able to interrupt it (a third slower)."""
    return any(name == "volatile" or name.startswith(("atomic", "__nanosleep", "__ldcv")) for name in translation.uses)


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def _runtime_files() -> list[Path]:
    return sorted(path for folder in ("runtime", "include") for path in (HERE / folder).rglob("*") if path.is_file())


def _runtime_digest() -> str:
    """Changes with any file of the runtime and of the dialect's headers."""
    return _digest_of_files(
        tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in _runtime_files())
    )


@functools.lru_cache(maxsize=8)
def _digest_of_files(states: tuple[tuple[str, int, int], ...]) -> str:
    return _digest(*(f"{Path(path).name}\0{Path(path).read_text(encoding='utf-8')}" for path, _, _ in states))


def _runtime_object(compiler: Compiler, mode: str) -> Path:
    """The runtime's object file for a mode; compiled the first time."""
    flags = [*compiler.runtime_flags(mode), f"-DSIMT_CHECKED={int(mode == 'checked')}"]
    flags += ["-I", str(HERE / "runtime"), "-I", str(HERE / "include")]
    key = _digest(*flags, *compiler.command, compiler.version, _runtime_digest())
    target = cache.folder() / f"runtime-{mode}-{key}.o"
    if not target.exists():
        with cache.workplace() as place:
            made = Path(place) / target.name
            command = [*compiler.command, *flags, "-c", str(HERE / "runtime" / "runtime.cpp"), "-o", str(made)]
            run = _run(command, place, compiler)
            if run.returncode:
                told = f"{' '.join(command)}\n{run.stderr}{run.stdout}"
                raise RuntimeError(f"ssmlab's runtime for kernels on a CPU does not compile here:\n{told}")
            cache.publish(made, target.name)
    return target


def _run(command: list[str], place: str, compiler: Compiler) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=place,
        env=compiler.environment(),
        timeout=_TIME_LIMIT,
    )


def _compile(translation: Translation, compiler: Compiler, flags: list[str], runtime: Path, name: str) -> Path:
    with cache.workplace() as place:
        text = Path(place) / "kernel.cpp"
        text.write_text(translation.text, encoding="utf-8", newline="\n")
        made = Path(place) / f"kernel{_SUFFIX}"
        command = [*compiler.command, *flags, str(text), str(runtime), *compiler.link_flags(), "-o", str(made)]
        try:
            run = _run(command, place, compiler)
        except subprocess.TimeoutExpired:
            message = f"the compiler did not end within {_TIME_LIMIT} s: does a template call itself without end?"
            raise CompileError([Problem(translation.filename, 0, 0, message)]) from None
        if run.returncode or not made.exists():
            problems = read_problems(run.stderr + run.stdout, translation)
            if problems:
                raise CompileError(problems)
            raise RuntimeError(
                f"the compiler failed without naming a line:\n{' '.join(command)}\n{run.stderr}{run.stdout}"
            )
        cache.prune()
        return cache.publish(made, name)
