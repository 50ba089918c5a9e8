"""CUDA that the CPU does not run, by name: each use is refused with its line, nothing is done otherwise in silence."""

from __future__ import annotations

import re
from pathlib import Path

from .tokens import Token

# Refused wherever the name stands.
_NAMES = {
    "asm": "inline PTX assembly",
    "__asm__": "inline PTX assembly",
    "__asm": "inline PTX assembly",
    "cudaTextureObject_t": "texture objects",
    "cudaSurfaceObject_t": "surface objects",
    "nvcuda": "warp matrix operations (wmma)",
    "wmma": "warp matrix operations (wmma)",
    "__cluster_dims__": "thread block clusters",
    "__block_size__": "thread block clusters",
    "this_cluster": "thread block clusters",
    "cluster_group": "thread block clusters",
    "__managed__": "managed memory variables",
    "thread_local": "thread_local variables (CUDA has none)",
    "throw": "C++ exceptions (CUDA has none)",
    "try": "C++ exceptions (CUDA has none)",
    "catch": "C++ exceptions (CUDA has none)",
    "typeid": "run-time type information (CUDA has none)",
    "dynamic_cast": "run-time type information (CUDA has none)",
    "memcpy_async": "asynchronous copies",
}
# Refused when followed by this token.
_FOLLOWED = {
    ("texture", "<"): "texture references",
    ("surface", "<"): "surface references",
    ("cuda", "::"): "the CUDA C++ library (cuda::)",
    ("cub", "::"): "the CUB library",
    ("thrust", "::"): "the Thrust library",
    ("cute", "::"): "the CuTe library",
    ("cutlass", "::"): "the CUTLASS library",
    ("malloc", "("): "the device heap (malloc)",
    ("free", "("): "the device heap (free)",
}
_PATTERNS = (
    (re.compile(r"tex(?:1D|2D|3D|Cubemap)\w*|tex1Dfetch|surf(?:1D|2D|3D|Cubemap)\w*"), "texture and surface functions"),
    (re.compile(r"cuda[A-Z]\w*"), "the CUDA runtime API"),
    (re.compile(r"cu(?:Tensor|Launch|Memcpy|Mem)[A-Z]\w*|CUtensorMap"), "the CUDA driver API and tensor maps (TMA)"),
    (re.compile(r"curand\w*"), "the cuRAND library"),
    (re.compile(r"__pipeline_\w+"), "asynchronous copies"),
)
_HEADERS = (
    (re.compile(r"cub/"), "the CUB library"),
    (re.compile(r"thrust/"), "the Thrust library"),
    (re.compile(r"cuda/"), "the CUDA C++ library (cuda::)"),
    (re.compile(r"cutlass/|cute/"), "the CUTLASS library"),
    (re.compile(r"mma\.h|crt/mma\.h"), "warp matrix operations (wmma)"),
    (re.compile(r"curand"), "the cuRAND library"),
    (re.compile(r"cuda_pipeline"), "asynchronous copies"),
    (re.compile(r"torch/|ATen/|c10/"), "PyTorch's C++ interface"),
)
# What a host header is usually wanted for, and where a kernel has it from: NVRTC has no host headers.
_INSTEAD = {
    "stdint": "int32_t and its kin come from <cuda/std/cstdint>",
    "stddef": "size_t needs no header",
    "limits": "INT_MAX comes from <cuda/std/climits>, numeric_limits from <cuda/std/limits>",
    "float": "FLT_MAX is cuda::std::numeric_limits<float>::max() of <cuda/std/limits>",
    "math": "math functions need no header; infinity and pi are CUDART_INF_F and CUDART_PI_F of <math_constants.h>",
    "stdio": "printf needs no header",
    "assert": "assert needs no header",
    "string": "memcpy and memset need no header",
    "type_traits": "is_same and the like come from <cuda/std/type_traits>",
}
# Functions of host compilers (__builtin_popcount, __sync_fetch_and_add, __atomic_load_n), and those that NVRTC has too.
_HOST_BUILTIN = re.compile(r"__builtin_(\w+)|__(?:sync|atomic)_(\w+)")
_CUDA_BUILTINS = frozenset(
    """addressof assume assume_aligned bit_cast expect is_constant_evaluated isfinite isinf isnan unreachable
    COLUMN FILE FUNCTION LINE""".split()
)
_INSTEAD_OF_BUILTIN = {
    "popcount": "__popc(x)",
    "popcountl": "__popcll(x)",
    "popcountll": "__popcll(x)",
    "clz": "__clz(x)",
    "clzl": "__clzll(x)",
    "clzll": "__clzll(x)",
    "ctz": "__ffs(x) - 1",
    "ctzl": "__ffsll(x) - 1",
    "ctzll": "__ffsll(x) - 1",
    "ffs": "__ffs(x)",
    "ffsll": "__ffsll(x)",
    "bswap32": "__byte_perm(x, 0, 0x0123)",
    "trap": "__trap()",
    "inff": "CUDART_INF_F of <math_constants.h>",
    "huge_valf": "CUDART_INF_F of <math_constants.h>",
    "nanf": "CUDART_NAN_F of <math_constants.h>",
    "fetch_and_add": "atomicAdd(p, x)",
    "fetch_add": "atomicAdd(p, x)",
    "load_n": "atomicAdd(p, 0), or a volatile read",
    "store_n": "atomicExch(p, x)",
    "synchronize": "__threadfence_system()",
}
_DIALECT = Path(__file__).resolve().parent / "include"  # a header that stands here is supported
_INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]+)[>"]')
_WORD = re.compile(r"[A-Za-z_]\w*")
# Words whose meaning the translation must see in the code itself.
_NOT_IN_MACROS = {
    "__shared__": "__shared__ inside a macro: write the declaration out, so that its name, size and line are known",
    "__constant__": "__constant__ inside a macro: write the declaration out, so that its name is known",
    "<<<": "a kernel launch from a kernel (dynamic parallelism)",
}


_FIXED_WIDTH = re.compile(r"u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?int(?:max|ptr)_t")
_FIXED_WIDTH_HEADERS = re.compile(r"cuda/std/cstdint|cooperative_groups(?:/\w+)?\.h")


def find(tokens: list[Token], directives: list[Token]) -> list[tuple[int, str]]:
    """(offset, message) of each thing that is not supported, in the order of the text."""
    found = _fixed_width(tokens, directives)
    for index, token in enumerate(tokens):
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        previous = tokens[index - 1].text if index else ""
        reason = None
        if token.text == "<<<":
            reason = "a kernel launch from a kernel (dynamic parallelism)"
        elif token.kind == "name" and previous not in (".", "->"):
            reason = _NAMES.get(token.text) or _FOLLOWED.get((token.text, following))
            if token.text == "cuda" and index + 2 < len(tokens) and tokens[index + 2].text == "std":
                reason = None  # cuda::std: the compiler knows which names the dialect's headers have
            if token.text in ("new", "delete") and (token.text, previous) != ("delete", "=") and previous != "operator":
                reason = f"the device heap ({token.text})"
            if advice := _host_builtin(token.text):
                found.append((token.start, advice))
            for pattern, thing in _PATTERNS:
                if reason is None and pattern.fullmatch(token.text):
                    reason = thing
        if reason:
            found.append((token.start, f"{token.text!r}: {reason} {_verb(reason)} on a CPU"))
    for directive in directives:
        found.extend(_in_directive(directive))
    return sorted(found)


def _fixed_width(tokens: list[Token], directives: list[Token]) -> list[tuple[int, str]]:
    """The first uint32_t or the like in a text that neither includes nor declares it: NVRTC does not know it itself."""
    for directive in directives:
        include = _INCLUDE.match(directive.text)
        if include and _FIXED_WIDTH_HEADERS.fullmatch(include[1]):
            return []
    declared, in_typedef = set(), False
    for index, token in enumerate(tokens):
        if token.text in ("typedef", ";"):
            in_typedef = token.text == "typedef"
        if not _FIXED_WIDTH.fullmatch(token.text):
            continue
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        if (in_typedef and following == ";") or (index and tokens[index - 1].text == "using"):
            declared.add(token.text)
        elif token.text not in declared:
            advice = f"NVRTC knows {token.text} only after #include <cuda/std/cstdint>"
            return [(token.start, f"{token.text!r}: {advice}")]
    return []


def _host_builtin(name: str) -> str | None:
    """What to say of a function that host compilers have and NVRTC has not; None for every other name."""
    match = _HOST_BUILTIN.fullmatch(name)
    if not match or match[1] in _CUDA_BUILTINS:
        return None
    instead = _INSTEAD_OF_BUILTIN.get(match[1] or match[2], "")
    return f"{name!r} is a function of host compilers, NVRTC has none of that name{instead and ': write '}{instead}"


def dialect_header(directive: Token) -> str | None:
    """The header of the dialect that a directive includes; None for every other directive."""
    include = _INCLUDE.match(directive.text)
    return include[1] if include and (_DIALECT / include[1]).is_file() else None


def _verb(reason: str) -> str:
    return "are not supported" if reason.partition(" (")[0].endswith("s") else "is not supported"


def _in_directive(directive: Token) -> list[tuple[int, str]]:
    if include := _INCLUDE.match(directive.text):
        for pattern, thing in _HEADERS:
            if pattern.match(include[1]) and not (_DIALECT / include[1]).is_file():
                return [(directive.start, f"#include <{include[1]}>: {thing} {_verb(thing)} on a CPU")]
        if not (_DIALECT / include[1]).is_file():
            name = include[1].removesuffix(".h")
            advice = _INSTEAD.get(name) or _INSTEAD.get(name.removeprefix("c"), "")
            cuda = name.startswith(("cu", "sm_", "cooperative_groups", "mma", "vector_", "device_", "driver_"))
            reason = "not supported on a CPU" if cuda else "a kernel cannot have host headers, NVRTC has none"
            return [(directive.start, f"#include <{include[1]}>: {reason}{advice and ': '}{advice}")]
    if not re.match(r"#\s*define\b", directive.text):
        return []
    found = []
    for word, reason in _NOT_IN_MACROS.items():
        position = directive.text.find(word)
        if position >= 0:
            found.append(
                (directive.start + position, f"{reason} is not supported on a CPU" if word == "<<<" else reason)
            )
    for match in _WORD.finditer(directive.text):
        if reason := _NAMES.get(match[0]):
            found.append((directive.start + match.start(), f"{match[0]!r}: {reason} {_verb(reason)} on a CPU"))
        if advice := _host_builtin(match[0]):
            found.append((directive.start + match.start(), advice))
    return found
