"""What is known of a kernel and of its parameters: read from the text, or told exactly by the compiled library.

The text alone knows `const float* x`; only a compiler knows a typedef, a struct or a template's deduced type. So a
translation carries `TypeInfo`s that may be None (not known), and `compiler.Library` replaces them by the exact ones
that the compiled table `simt_signature_<n>` holds.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass

from .tokens import Token


@dataclass(frozen=True)
class TypeInfo:
    """A C++ type. size and alignment in bytes.

    kind: "void", "bool", "int", "uint", "float", "half", "bfloat16", "struct" or "pointer"
    lanes: 4 for float4, whose kind is then "float", size 16 and lane_size 4; 1 for everything that is no vector.
    """

    name: str
    kind: str
    size: int
    alignment: int
    lanes: int = 1

    @property
    def lane_size(self) -> int:
        return self.size // self.lanes


@dataclass(frozen=True)
class Parameter:
    """One parameter. type: of the value, or of what a pointer points to; None where only a compiler could know it.

    pointer is None together with type where even that is not known (a typedef or a struct, read from the text alone).
    """

    name: str
    ctype: str
    pointer: bool | None
    const: bool
    type: TypeInfo | None


@dataclass(frozen=True)
class KernelInfo:
    """name: as asked for ("scan", "ns::scan<float, 4>"); thunk: C symbol to launch.

    parameters None: they cannot be read from the text, only a compiled library knows them.
    launch_bounds: the number in __launch_bounds__ (None: none was written, or only the compiled library knows it).
    """

    name: str
    thunk: str
    filename: str
    line: int
    parameters: tuple[Parameter, ...] | None
    launch_bounds: int | None
    signature: str = ""
    bounds_symbol: str | None = None
    is_template: bool = False
    is_extern_c: bool = False


_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long|u?longlong|float|double)([1-4])(?:_16a|_32a)?$")
_LANES = {
    "char": ("int", 1),
    "short": ("int", 2),
    "int": ("int", 4),
    "long": ("int", ctypes.sizeof(ctypes.c_long)),
    "longlong": ("int", 8),
    "float": ("float", 4),
    "double": ("float", 8),
}
_FIXED = {
    "void": ("void", 0, 1),
    "bool": ("bool", 1, 1),
    "float": ("float", 4, 4),
    "double": ("float", 8, 8),
    "size_t": ("uint", 8, 8),
    "ptrdiff_t": ("int", 8, 8),
    "intptr_t": ("int", 8, 8),
    "uintptr_t": ("uint", 8, 8),
    **{f"int{bits}_t": ("int", bits // 8, bits // 8) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": ("uint", bits // 8, bits // 8) for bits in (8, 16, 32, 64)},
    "uint": ("uint", 4, 4),
    "uchar": ("uint", 1, 1),
    "ushort": ("uint", 2, 2),
}
_HALVES = {
    "half": ("half", 1),
    "__half": ("half", 1),
    "half2": ("half", 2),
    "__half2": ("half", 2),
    "nv_half": ("half", 1),
    "nv_half2": ("half", 2),
    "__nv_bfloat16": ("bfloat16", 1),
    "nv_bfloat16": ("bfloat16", 1),
    "__nv_bfloat162": ("bfloat16", 2),
    "nv_bfloat162": ("bfloat16", 2),
}
_BUILTIN_WORDS = {"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "wchar_t"}
_QUALIFIERS = {"const", "volatile", "__restrict__", "__restrict", "restrict", "struct", "class", "union", "enum"}
_QUALIFIERS |= {"typename", "register", "__grid_constant__"}


def named_type(name: str) -> TypeInfo | None:
    """A type by its usual name ("unsigned long long", "float4", "__half2", "int64_t"); None for any other name."""
    words = [word for word in name.replace("std::", "").split() if word not in ("struct", "const", "volatile")]
    plain = " ".join(words)
    if plain in _FIXED:
        kind, size, alignment = _FIXED[plain]
        return TypeInfo(plain, kind, size, alignment)
    if plain in _HALVES:
        kind, lanes = _HALVES[plain]
        return TypeInfo(plain, kind, 2 * lanes, 2 * lanes, lanes)
    if match := _VECTOR.match(plain):
        base, lanes = match[1], int(match[2])
        unsigned = base.startswith("u")
        kind, size = _LANES[base.removeprefix("u")]
        alignment = size * (1 if lanes == 3 else min(lanes, max(1, 16 // size)))
        return TypeInfo(plain, "uint" if unsigned else kind, size * lanes, alignment, lanes)
    if words and set(words) <= _BUILTIN_WORDS and not set(words) & {"void", "bool", "wchar_t", "float"}:
        if "double" in words:
            return None if "long" in words else TypeInfo("double", "float", 8, 8)
        kind = "uint" if "unsigned" in words else "int"
        if "char" in words:
            size = 1
        elif "short" in words:
            size = 2
        elif words.count("long") == 2:
            size = 8
        elif "long" in words:
            size = ctypes.sizeof(ctypes.c_long)
        else:
            size = 4
        return TypeInfo(plain, kind, size, size)
    return None


def text_parameter(tokens: list[Token], aliases: dict[str, str]) -> Parameter:
    """A parameter as the text spells it. aliases: typedefs and template arguments, name to the text of a type."""
    words = [token.text for token in tokens]
    if "=" in words:
        words = words[: words.index("=")]
    ctype = _join(words)
    depth_free = _top_level(words)
    pointer = "*" in depth_free or "[" in depth_free
    if "(" in depth_free or "&" in depth_free or "..." in words:  # function pointer, reference, pack
        return Parameter("", ctype, None, False, None)
    before_star = depth_free[: depth_free.index("*")] if "*" in depth_free else depth_free
    const = "const" in before_star
    if depth_free.count("*") + depth_free.count("[") > 1:
        name = next((word for word in reversed(depth_free) if re.match(r"[A-Za-z_]", word)), "")
        return Parameter(name, _without(words, name), True, const, TypeInfo(ctype, "pointer", 8, 8))
    names = [word for word in depth_free if re.match(r"[A-Za-z_]", word) and word not in _QUALIFIERS]
    if set(names) & _BUILTIN_WORDS:
        type_words = [word for word in names if word in _BUILTIN_WORDS]
        name = next((word for word in names if word not in _BUILTIN_WORDS), "")
        type_name = " ".join(type_words)
    else:
        type_name, name = _type_and_name(words)
    known = _resolve(type_name, aliases)
    ctype = _without(words, name)
    if known is None:
        return Parameter(name, ctype, True if pointer else None, const, None)
    resolved, alias_pointer, alias_const = known
    if alias_pointer and pointer:
        return Parameter(name, ctype, True, const, TypeInfo(type_name, "pointer", 8, 8))
    return Parameter(
        name, ctype, pointer or alias_pointer, alias_const if alias_pointer else const or alias_const, resolved
    )


def _resolve(name: str, aliases: dict[str, str]) -> tuple[TypeInfo, bool, bool] | None:
    """(type, is it behind a pointer, is it const) of a type's name, through typedefs."""
    pointer = const = False
    for _ in range(16):  # typedefs of typedefs; the bound ends a circle
        if not pointer and name.rstrip().endswith("*"):
            pointer, name = True, name.rstrip()[:-1]
        if re.search(r"\bconst\b", name):
            const = True
            name = re.sub(r"\bconst\b", " ", name)
        name = " ".join(name.split())
        if known := named_type(name):
            return known, pointer, const
        if name not in aliases:
            return None
        name = aliases[name]
    return None


def _type_and_name(words: list[str]) -> tuple[str, str]:
    """Split `ns::Pair<int> x` into ("ns::Pair<int>", "x"); the name is "" for an unnamed parameter."""
    kept = [word for word in words if word not in _QUALIFIERS and word not in ("*",)]
    if "[" in kept:
        kept = kept[: kept.index("[")]
    depth, position = 0, 0
    while position < len(kept):
        word = kept[position]
        depth += (word == "<") - (word == ">")
        position += 1
        following = kept[position] if position < len(kept) else ""
        if depth == 0 and word != "::" and following not in ("::", "<"):
            break
    name = kept[position] if position < len(kept) else ""
    return "".join(kept[:position]), name


def _top_level(words: list[str]) -> list[str]:
    """Words outside <...>, with the inside of [...] left out."""
    result, angle, square = [], 0, 0
    for word in words:
        if word == "]":
            square -= 1
        if square == 0:
            if word == ">":
                angle -= 1
            elif angle == 0 and word not in ("<", "]"):
                result.append(word)
            if word == "<":
                angle += 1
        if word == "[":
            square += 1
    return result


def _join(words: list[str]) -> str:
    text = " ".join(words)
    text = re.sub(r"\s*::\s*", "::", text)
    text = re.sub(r"\s+([*&,>\]\[)])", r"\1", re.sub(r"([<\[(])\s+", r"\1", text))
    return re.sub(r"\s+<", "<", text)


def _without(words: list[str], name: str) -> str:
    """The type as written, without the parameter's name."""
    words = list(words)
    if name:
        words.reverse()
        words.remove(name)
        words.reverse()
    return _join(
        [word for word in words if word not in ("__restrict__", "__restrict", "restrict", "__grid_constant__")]
    )


class _CompiledParameter(ctypes.Structure):
    """One row of a compiled signature table; the layout of simt_thunks::simt_parameter."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("size", ctypes.c_uint),
        ("alignment", ctypes.c_uint),
        ("pointer", ctypes.c_char),
        ("constant", ctypes.c_char),
        ("kind", ctypes.c_char),
    ]


_KINDS = {b"v": "void", b"b": "bool", b"i": "int", b"u": "uint", b"f": "float", b"s": "struct", b"p": "pointer"}
_TYPE_NAME = re.compile(r"\bT = (.*?)(?:; [^;]*)?\]$", re.DOTALL)


def compiled_parameters(table: int, written: tuple[Parameter, ...] | None) -> tuple[Parameter, ...]:
    """The parameters in a compiled table (its address), with the names that the text gives them."""
    rows = ctypes.cast(table, ctypes.POINTER(_CompiledParameter))
    parameters: list[Parameter] = []
    while rows[len(parameters)].name is not None:
        row = rows[len(parameters)]
        name = " ".join(_TYPE_NAME.search(row.name.decode()).group(1).replace(" *", "*").split())
        pointer, constant = row.pointer == b"\1", row.constant == b"\1"
        name = _canonical(name)
        info = named_type(name) if row.kind == b"s" else None
        if info is None or info.size != row.size:
            info = TypeInfo(name, _KINDS[row.kind], row.size, row.alignment)
        full = f"{'const ' if constant and pointer else ''}{name}{'*' if pointer else ''}"
        label = written[len(parameters)].name if written and len(parameters) < len(written) else ""
        parameters.append(Parameter(label, full, pointer, constant and pointer, info))
    return tuple(parameters)


def _canonical(name: str) -> str:
    """One spelling for all compilers: GCC's "long long unsigned int" is "unsigned long long"."""
    words = name.split()
    if not set(words) <= _BUILTIN_WORDS or not set(words) & {"short", "long", "unsigned"} or "double" in words:
        return name
    rest = [word for word in words if word in ("char", "short", "long")]
    return " ".join((["unsigned"] if "unsigned" in words else []) + (rest or ["int"]))
