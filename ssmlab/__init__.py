"""ssmlab: a workbook and a package for the parallel associative scan behind Mamba-style state space models.

The names below are loaded when they are first used, so that `import ssmlab` touches neither CuPy nor torch nor a GPU.
"""

from __future__ import annotations

import importlib
from typing import Any

# Public name: the module that holds it; None where the name is itself a submodule.
_PUBLIC = {
    "RawKernel": "rawkernel",
    "RawModule": "rawkernel",
    "check": "rawkernel",
    "explain": "scan_op",
    "explain_selective_scan": "selective",
    "kernels": None,
    "lab": None,
    "ledger": None,
    "monoid": None,
    "reference": None,
    "scan": "scan_op",
    "selective_scan": "selective",
    "selective_state_update": "selective",
    "simt": None,
    "validation": "strictness",
}

__all__ = sorted(_PUBLIC)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ssmlab' has no attribute {name!r}; it has {', '.join(__all__)}")
    module = importlib.import_module(f".{_PUBLIC[name] or name}", __name__)
    value = module if _PUBLIC[name] is None else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
