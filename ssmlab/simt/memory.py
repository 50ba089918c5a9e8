"""The memory that launches borrow: address space from the operating system, used again and again.

Each region is reserved generously and becomes real memory only where it is touched. Regions hold records that are
marked with numbers which never repeat (intervals, launches), so nothing has to be cleared between launches.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

MARGIN = 1 << 30  # [B] of address space on both sides of a guarded region
_NO_RESERVE = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)


class Region:
    """One stretch of zeroed memory; grows by being replaced."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self.bytes = 0
        self.address = 0

    def reserve(self, size: int) -> None:
        """Have at least `size` bytes. What was there before is lost if it has to grow. Raises MemoryError."""
        if size <= self.bytes:
            return
        size = -(-max(size, 65536) // 65536) * 65536
        try:
            if sys.platform == "win32":
                fresh = mmap.mmap(-1, size)
            else:
                fresh = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        except OSError as error:
            raise MemoryError(f"{size} bytes of address space for a kernel launch cannot be had: {error}") from error
        self._map = fresh  # the old map is released when nothing refers to it any more
        self.bytes = size
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(fresh))

    def give_back(self) -> None:
        """Return the memory behind the addresses to the system; it reads as zeros again."""
        if self._map is not None and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


class GuardedRegion(Region):
    """A region between two stretches of address space that nobody may touch: an access there is a fault.

    Compilers give some accesses no hook (GCC: a struct that is read to be passed by value); far outside the arrays they
    end here instead of in whatever lies there.
    """

    def reserve(self, size: int) -> None:
        """As Region.reserve; what lies behind `size`, rounded up to whole pages, is out of bounds from now on."""
        if sys.platform == "win32":
            super().reserve(size)
            return
        if self._map is None or size > self.bytes:
            self.bytes = 0
            super().reserve(size + 2 * MARGIN)
            self.address, self.bytes = self.address + MARGIN, self.bytes - 2 * MARGIN
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        _protect(self.address - MARGIN, MARGIN, 0)
        _protect(self.address, pages, mmap.PROT_READ | mmap.PROT_WRITE)
        _protect(self.address + pages, self.bytes - pages + MARGIN, 0)


def _protect(address: int, size: int, allowed: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), allowed):
        raise MemoryError(f"the memory around a launch's arrays cannot be closed: {os.strerror(ctypes.get_errno())}")
