"""From an address in a compiled library to the learner's file and line, without any tool: reads ELF and DWARF 4.

Libraries of checked mode are compiled with -g -gdwarf-4; translation keeps the learner's lines by #line. Only lines
that belong to the learner's text are kept: what lies in headers is unknown, and the runtime looks for the caller.
"""

from __future__ import annotations

import ctypes
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .source import Translation

# Copy and move constructors and assignments, as compilers name them. For a struct with a float4 or half inside they are
# made by the compiler and bear the line of the struct; the line to blame is the one that made the copy.
_COPY = re.compile(r"(?:C[12]|aS)E(?:RK|O)S\d*_$")
FILE_SHIFT = 20  # a line number is kept as file << 20 | line


@dataclass(frozen=True)
class LineTable:
    """The lines of one loaded library.

    files           names of the learner's files; number i of `lines` is files[i]
    text, lines     address where lines[0] stands for, and one number for each byte of code from there on
    image           (address, bytes) of the whole library in memory
    """

    files: tuple[str, ...]
    text: int
    lines: np.ndarray
    image: tuple[int, int]

    def place(self, number: int) -> tuple[str, int]:
        """(file, line) for a number of `lines`; ("", 0) for 0, which stands for nothing known."""
        if not number:
            return "", 0
        return self.files[number >> FILE_SHIFT], number & ((1 << FILE_SHIFT) - 1)


def read(path: Path, cdll: ctypes.CDLL, translation: Translation) -> LineTable:
    """The line table of a loaded library. Raises RuntimeError for a file that is not 64-bit ELF with DWARF 4 lines."""
    data = memoryview(Path(path).read_bytes())
    if bytes(data[:6]) != b"\x7fELF\x02\x01":
        raise RuntimeError(f"{path} is not a 64-bit little-endian ELF file: source lines cannot be read from it")
    elf = _Elf(data)
    base = ctypes.cast(cdll.simt_run, ctypes.c_void_p).value - elf.symbol("simt_run")
    files: list[str] = []
    ranges = []
    entries = {start for _, start, _ in elf.functions()}
    entry = None  # (end, file, line) of the stretch before, if a function begins with it
    for start, end, name, line in _rows(elf.section(".debug_line")):
        if not line and entry and start == entry[0]:  # Clang names no line where a large frame is made
            _, name, line = entry
        entry = (end, name, line) if start in entries else None
        if not line or translation.original.find_line(name, line) is None:
            continue
        if name not in files:
            files.append(name)
        ranges.append((start, end, files.index(name) << FILE_SHIFT | line))
    first = min((start for start, _, _ in ranges), default=0)
    last = max((end for _, end, _ in ranges), default=0)
    lines = np.zeros(last - first, np.uint32)
    for start, end, number in ranges:
        lines[start - first : end - first] = number
    for name, start, end in elf.functions():
        if _COPY.search(name):
            lines[max(start - first, 0) : max(end - first, 0)] = 0
    low, high = elf.extent()
    return LineTable(tuple(files), base + first, lines, (base + low, high - low))


class _Elf:
    """The few parts of an ELF file that are needed here."""

    def __init__(self, data: memoryview):
        self.data = data
        program, sections = struct.unpack_from("<QQ", data, 32)
        _, program_size, programs, section_size, count, names = struct.unpack_from("<6H", data, 52)
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, program + i * program_size) for i in range(programs)]
        self.headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * section_size) for i in range(count)]
        strings = self._bytes(self.headers[names])
        self.by_name = {_text(strings, header[0]): header for header in self.headers}

    def _bytes(self, header: tuple) -> bytes:
        _, _, flags, _, offset, size, *_ = header
        raw = bytes(self.data[offset : offset + size])
        return zlib.decompress(raw[24:]) if flags & 0x800 else raw  # SHF_COMPRESSED

    def section(self, name: str) -> bytes:
        return self._bytes(self.by_name[name]) if name in self.by_name else b""

    def symbol(self, name: str) -> int:
        strings = self.section(".dynstr")
        for at, _, _, _, value, _ in struct.iter_unpack("<IBBHQQ", self.section(".dynsym")):
            if _text(strings, at) == name:
                return value
        raise RuntimeError(f"the library does not export {name}")

    def functions(self):
        """(name, first address, address behind) of each function, those inside the library included."""
        strings = self.section(".strtab")
        for at, information, _, _, value, size in struct.iter_unpack("<IBBHQQ", self.section(".symtab")):
            if information & 15 == 2 and size:
                yield _text(strings, at), value, value + size

    def extent(self) -> tuple[int, int]:
        """[lowest, highest) address of the loaded segments."""
        loaded = [(address, address + size) for kind, _, _, address, _, _, size, _ in self.segments if kind == 1]
        return min(low for low, _ in loaded), max(high for _, high in loaded)


def _text(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode(errors="replace")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the place behind it."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    start = at
    result, at = _number(data, at)
    bits = 7 * (at - start)
    return (result - (1 << bits) if result >> (bits - 1) & 1 else result), at


def _rows(data: bytes):
    """(first address, address behind, file name, line) for each stretch of code, from all units of .debug_line."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        if length >= 0xFFFFFFF0:
            raise RuntimeError("64-bit DWARF line tables are not read here")
        end = at + 4 + length
        yield from _unit_rows(data, at + 4, end)
        at = end


def _unit_rows(data: bytes, at: int, end: int):
    version, header = struct.unpack_from("<HI", data, at)
    if not 2 <= version <= 4:
        raise RuntimeError(f"the library's line table is DWARF {version}: it must be compiled with -gdwarf-4")
    program = at + 6 + header
    at += 6
    least = data[at]
    at += 2 if version == 4 else 1  # version 4 has the operations of one instruction: 1 on all machines here
    base, line_range, first_special = struct.unpack_from("<bBB", data, at + 1)
    lengths = data[at + 4 : at + 3 + first_special]
    at += 3 + first_special
    while data[at]:  # include folders
        at = data.index(b"\0", at) + 1
    at += 1
    names = [""]
    while data[at]:
        names.append(_text(data, at))
        at = data.index(b"\0", at) + 1
        for _ in range(3):
            _, at = _number(data, at)

    at = program
    address, file, line = 0, 1, 1
    previous = None  # (address, file, line) of the row before
    while at < end:
        code = data[at]
        at += 1
        row = finished = False
        if code >= first_special:
            address += (code - first_special) // line_range * least
            line += base + (code - first_special) % line_range
            row = True
        elif code == 0:
            size, at = _number(data, at)
            extended, body, at = data[at], at + 1, at + size
            if extended == 1:
                row = finished = True
            elif extended == 2:
                (address,) = struct.unpack_from("<Q", data, body)
            elif extended == 3:
                names.append(_text(data, body))
        elif code == 1:
            row = True
        elif code == 2:
            step, at = _number(data, at)
            address += step * least
        elif code == 3:
            step, at = _signed(data, at)
            line += step
        elif code == 4:
            file, at = _number(data, at)
        elif code == 8:
            address += (255 - first_special) // line_range * least
        elif code == 9:
            address += struct.unpack_from("<H", data, at)[0]
            at += 2
        else:
            for _ in range(lengths[code - 1]):
                _, at = _number(data, at)
        if row:
            if previous and address > previous[0]:
                yield previous[0], address, names[previous[1]], previous[2]
            previous = (address, file, line)
        if finished:
            address, file, line, previous = 0, 1, 1, None
