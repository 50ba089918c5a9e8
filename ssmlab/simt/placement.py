"""Where an array would begin on a GPU: memory is given out there in pieces that start at a multiple of 256 bytes.

So what counts is how far a view begins inside its piece: x[1:] of float32 begins 4 bytes behind a multiple of 256, on
every machine, wherever NumPy has put x. Sectors and misaligned vectors follow from it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

GRANULE = 256  # [B]: arrays start at a multiple of it, as from cudaMalloc
_FINEST = 16  # [B]: what the CPU's own allocation keeps to, and the largest vector needs


def placement(source: Any, address: int, device: str = "cpu") -> int:
    """`address`, which lies in the array `source` or in one that overlaps it, modulo 256 as it would be on a GPU."""
    if device != "cpu":
        return address % GRANULE
    base = _start_of_piece(source, address)
    return (base % _FINEST + address - base) % GRANULE


def _start_of_piece(source: Any, address: int) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        return source.untyped_storage().data_ptr()
    if not isinstance(source, np.ndarray):
        return address
    while isinstance(source.base, np.ndarray):
        source = source.base
    return source.__array_interface__["data"][0]
