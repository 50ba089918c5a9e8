"""Checks that must read data: on by default, off for serving and for CUDA graphs.

    with ssmlab.validation("fast"):
        ...                         # no op reads values back to check them; what it would have refused is undefined

Shapes, dtypes and devices are always checked. Reading values makes the CPU wait for the GPU, and a CUDA graph cannot.
"""

from __future__ import annotations

import contextlib
import contextvars

_LEVELS = ("careful", "fast")
_level = contextvars.ContextVar("ssmlab_validation", default="careful")


@contextlib.contextmanager
def validation(level):
    """Inside, ops check values ("careful", the default everywhere) or do not ("fast"). Raises ValueError otherwise."""
    if level not in _LEVELS:
        raise ValueError(f"level is {level!r}: it must be one of {', '.join(map(repr, _LEVELS))}")
    token = _level.set(level)
    try:
        yield
    finally:
        _level.reset(token)


def careful():
    """Should an op read values to check them?"""
    return _level.get() == "careful"
