"""How many registers a kernel takes, without a GPU: NVRTC makes a cubin, which is an ELF file that says so."""

import struct

import nvrtc
import pytest

REGCOUNT, WITH_SIZE = 0x2F, 4  # attribute EIATTR_REGCOUNT, format EIFMT_SVAL of the section .nv.info


def registers(text, filename, options=(), architecture="sm_90"):
    """{kernel: registers of a thread}, the same as nvcc -Xptxas -v prints."""
    compiler = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="CuPy is not installed")
    program = compiler.createProgram(text, filename, [], [])
    folders = [f"-I{folder}" for folder in nvrtc.include_folders()]
    try:
        compiler.compileProgram(program, [f"-arch={architecture}", "-std=c++17", *options, *folders])
        elf = bytes(compiler.getCUBIN(program))
    finally:
        compiler.destroyProgram(program)
    sections = _sections(elf)
    (info,), (symbols,), (texts,) = (
        [section for section in sections if section[0] == name] for name in (".nv.info", ".symtab", ".strtab")
    )
    found, at = {}, 0
    data = elf[info[1] : info[1] + info[2]]
    while at < len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == WITH_SIZE:
            if attribute == REGCOUNT:
                symbol, count = struct.unpack_from("<II", data, at)
                (name,) = struct.unpack_from("<I", elf, symbols[1] + 24 * symbol)
                found[_text(elf, texts[1] + name)] = count
            at += size
    return found


def _sections(elf):
    """[(name, offset, size)] of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    width, count, names = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * width) for i in range(count)]
    return [(_text(elf, headers[names][4] + header[0]), header[4], header[5]) for header in headers]


def _text(elf, begin):
    return elf[begin : elf.index(b"\0", begin)].decode()
