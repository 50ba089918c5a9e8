"""Finds a C++ compiler and knows the flags that each kind needs."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import cache

INSTALL_HINT = (
    "no C++ compiler was found, and kernels on a CPU need one: install the package ziglang "
    "(pip install 'ssmlab[compiler]'), or a system compiler (Debian and Ubuntu: apt install g++; "
    "macOS: xcode-select --install), or name one in the environment variable CXX"
)


@dataclass(frozen=True)
class Compiler:
    """command: the words that start it; kind: "gcc", "clang" or "zig"; version: its own words and its file's state."""

    command: tuple[str, ...]
    kind: str
    version: str

    @property
    def major(self) -> int:
        match = re.search(r"(\d+)\.\d+", self.version)
        return int(match[1]) if match else 0

    def environment(self) -> dict[str, str]:
        """English messages with plain quotes; zig's own cache inside ours."""
        environment = {**os.environ, "LC_ALL": "C"}
        if self.kind == "zig":
            zig = str(cache.folder() / "zig")
            environment |= {"ZIG_GLOBAL_CACHE_DIR": zig, "ZIG_LOCAL_CACHE_DIR": zig}
        return environment

    def flags(self, mode: str) -> list[str]:
        """Flags for a kernel's text; mode "checked" (-O0, memory hooks, bounds) or "native" (-O2)."""
        flags = [
            "-fPIC",
            "-fno-exceptions",
            "-fno-rtti",
            "-fno-stack-protector",
            "-fno-strict-aliasing",
            "-fno-threadsafe-statics",
            "-fsigned-char",  # as on x86: the same text means the same on every machine
            "-fvisibility=hidden",
        ]
        if sys.platform == "win32":
            flags.remove("-fPIC")
        if sys.platform == "linux" and (platform.machine() == "x86_64" or self.kind == "gcc"):
            # A large frame touches every page on its way down, so that it meets the guard below the stacks. Else it
            # would step over it, into whatever lies there. (Clang has this on x86 only.)
            flags.append("-fstack-clash-protection")
        if sys.platform == "linux" and platform.machine() == "aarch64":
            flags.append("-mno-outline-atomics")  # else atomics call functions of libgcc, which is not linked
        if self.kind == "gcc":
            flags += [
                "-fno-gnu-unique",
                "-ftrack-macro-expansion=0",
                "-fno-diagnostics-show-caret",
                "-Wno-unknown-pragmas",
            ]
            flags += ["-fdiagnostics-column-unit=byte"] if self.major >= 11 else []
        else:
            flags += ["-fno-caret-diagnostics", "-Wno-unknown-pragmas"]
        if self.kind == "zig":
            # Not the builder's CPU: caches may be shared. Zig defines NDEBUG with -O2: assert is the kernel's to drop.
            flags += ["-fno-sanitize=undefined", "-mcpu=baseline", "-UNDEBUG"]
        flags += ["-Werror=vla", "-Werror=return-type"]  # CUDA refuses the first and warns about the second
        if mode == "native":
            return [*flags, "-O2"]
        # What Clang calls "bounds" includes checks that end the process.
        bounds = "bounds" if self.kind == "gcc" else "array-bounds"
        flags += ["-O0", "-g", "-gdwarf-4", f"-fsanitize={bounds}", self.coverage_flag()]
        if self.kind == "gcc":
            return [*flags, "-fsanitize=thread", "-Wno-tsan", "--param", "tsan-distinguish-volatile=1"]
        hooks = ("-tsan-instrument-read-before-write=1", "-tsan-distinguish-volatile=1")
        return [*flags, "-Xclang", "-fsanitize=thread", *(word for hook in hooks for word in ("-mllvm", hook))]

    def coverage_flag(self) -> str:
        """Calls the watchdog in every basic block. Clang would leave out a loop of one block: `for (;;) x++;`."""
        return "-fsanitize-coverage=trace-pc" + ("" if self.kind == "gcc" else ",bb,no-prune")

    def runtime_flags(self, mode: str) -> list[str]:
        """Flags for the runtime itself: never instrumented, always optimised."""
        flags = [flag for flag in self.flags("native") if not flag.startswith("-Werror")]
        flags += ["-fomit-frame-pointer"] if self.kind == "zig" else []  # as the others do by themselves
        return [*flags, "-std=c++17", "-g0"]

    def link_flags(self) -> list[str]:
        """A shared library that brings nothing of C++: libc and libm come from the Python process."""
        if sys.platform == "darwin":
            return ["-shared", "-nostdlib", "-Wl,-undefined,dynamic_lookup"]
        if sys.platform == "win32":
            return ["-shared", "-nostdlib", "-lucrtbase", "-lkernel32"]
        helpers = ["-lgcc"] if self.kind == "gcc" else []  # GCC calls functions of its own for popcount and the like
        return ["-shared", "-nostdlib", "-Wl,-Bsymbolic", *helpers]


def find() -> Compiler:
    """$CXX, else c++, g++, clang++, else the ziglang package. Raises RuntimeError(INSTALL_HINT) when there is none."""
    return _find(os.environ.get("CXX", "").strip(), os.environ.get("PATH", ""))


@functools.cache
def _find(named: str, search_path: str) -> Compiler:
    if named:
        command = [named] if Path(named).is_file() else shlex.split(named, posix=sys.platform != "win32")
        program = shutil.which(command[0])
        if program is None:
            raise RuntimeError(f"the environment variable CXX is {named!r}: there is no such program")
        return _identify((program, *command[1:]))
    for name in ("c++", "g++", "clang++"):
        if program := shutil.which(name, path=search_path):
            return _identify((program,))
    if program := zig_program():
        return _identify((program, "c++"))
    raise RuntimeError(INSTALL_HINT)


def zig_program() -> str | None:
    """The compiler's binary inside the ziglang package: starting it directly saves a Python start."""
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        return None
    program = Path(found.submodule_search_locations[0]) / ("zig.exe" if sys.platform == "win32" else "zig")
    return str(program) if program.is_file() else None


def _identify(command: tuple[str, ...]) -> Compiler:
    """Ask a compiler who it is; the answer is kept in the cache for as long as its file does not change."""
    real = Path(command[0]).resolve()
    state = real.stat()
    key = json.dumps([*command, str(real), state.st_size, state.st_mtime_ns])
    known_file = cache.folder() / "compilers.json"
    try:
        known = json.loads(known_file.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        known = {}
    if key not in known:
        try:
            told = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"the compiler {' '.join(command)!r} does not answer --version: {error}") from error
        if Path(command[0]).stem.startswith("zig"):
            kind = "zig"
        elif "clang" in told:
            kind = "clang"
        elif "Free Software Foundation" in told:
            kind = "gcc"
        else:
            raise RuntimeError(
                f"the compiler {' '.join(command)!r} is neither GCC nor Clang: it says {told.strip()[:200]!r}"
            )
        known[key] = [kind, told.strip().splitlines()[0]]
        with cache.workplace() as place:
            fresh = Path(place) / "compilers.json"
            fresh.write_text(json.dumps(known), encoding="utf-8")
            cache.publish(fresh, "compilers.json")
    kind, first_line = known[key]
    return Compiler(command, kind, f"{first_line} | {real} {state.st_size} {state.st_mtime_ns}")
