"""What stands before the learner's text: the dialect's headers, then the macros of CUDA's compiler and of the options.

The headers come first, also those that the text includes further down, so that no macro can change what they say:
NVIDIA's headers keep to reserved names, ours stay readable.
"""

from __future__ import annotations

import re

from .options import HostOptions
from .refusals import dialect_header
from .tokens import Token

# What NVRTC 13.0 defines. It compiles device code only, so __CUDA_ARCH__ holds everywhere.
_CUDA = ("-D__CUDACC__", "-D__CUDACC_RTC__", "-D__CUDACC_VER_MAJOR__=13", "-D__CUDACC_VER_MINOR__=0")
_OF_THE_HEADERS = re.compile(r"-[DU](?:NDEBUG|SIMT_\w+)\b")  # macros that simt.h itself asks for


def predefined(host: HostOptions) -> tuple[str, ...]:
    """The macros that hold before those of the options, as "-DNAME=value".

    __CUDA_ARCH__ is 900, that of an H100, unless -arch=compute_80 or the like asks for another architecture.
    """
    return (*_CUDA, f"-D__CUDA_ARCH__={host.architecture}")


def preamble(host: HostOptions, directives: list[Token]) -> str:
    """C++ that ends with a line end. directives: of the learner's text."""
    first = [option for option in host.macros if _OF_THE_HEADERS.match(option)]
    headers = dict.fromkeys(name for name in map(dialect_header, directives) if name)
    macros = [*predefined(host), *(option for option in host.macros if option not in first)]
    return "".join(
        [
            '#line 1 "simt-options"\n',
            *map(_directive, first),
            '#include "simt.h"\n#include "simt_thunks.h"\n',
            *(f"#include <{name}>\n" for name in headers),
            '#line 1 "simt-options"\n',
            *map(_directive, macros),
        ]
    )


def _directive(option: str) -> str:
    name, equals, value = option[2:].partition("=")
    if option.startswith("-U"):
        return f"#undef {name}\n"
    return f"#define {name} {value if equals else 1}\n"
