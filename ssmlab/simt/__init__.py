"""CUDA C on a CPU: translation, compiler, runtime, launch and report. rawkernel.py is the door to it.

CompileError and KernelError are what a caller may want to catch.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC = {"CompileError": "messages", "KernelError": "report", "UnknownKernel": "source"}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ssmlab.simt' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value
