"""NVRTC's options: which mean something on a CPU, which are accepted because they cannot matter, which are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Accepted and without effect here: they choose a GPU, its code generator, debug information, or float shortcuts.
# A CPU rounds each operation as IEEE 754 says, so results may differ from the GPU's in the last bits either way.
_WITHOUT_EFFECT = re.compile(
    r"""(?:
      (?:-lineinfo|--generate-line-info|-G|--device-debug|-w|--disable-warnings|-dopt(?:=\w+)?|--dopt(?:=\w+)?)
    | (?:-O[0-3]|--optimize=\d|--optimization-level=\d)
    | (?:--?gpu-architecture|-arch|--?gpu-code|-code|--?generate-code|-gencode)=\S+
    | (?:--?use_fast_math|--?extra-device-vectorization|--?restrict|--?extensible-whole-program|-ewp)
    | --?(?:ftz|prec-div|prec-sqrt)=(?:true|false)
    | --?maxrregcount=\d+
    | (?:--?ptxas-options|-Xptxas)=\S+
    | (?:--device-as-default-execution-space|-default-device|--?minimal|--?no-source-include)
    | (?:--pch|--?diag-suppress=\S+|--?diag-warn=\S+|--?diag-error=\S+|--?display-error-number|-no-err-no|-err-no)
    | (?:--?time=\S+|--?fdevice-time-trace=\S+|--?split-compile=\d+|--?builtin-(?:move-forward|initializer-list)=\w+)
    )$""",
    re.VERBOSE,
)
# Options that NVRTC also takes as two words, the second being the value.
_TWO_WORDS = {
    "-D": "-D",
    "--define-macro": "-D",
    "-U": "-U",
    "--undefine-macro": "-U",
    "-I": "-I",
    "--include-path": "-I",
    "-std": "-std=",
    "--std": "-std=",
    "-arch": "-arch=",
    "--gpu-architecture": "-arch=",
    "-gencode": "-gencode=",
    "--generate-code": "-gencode=",
    "-Xptxas": "-Xptxas=",
    "--ptxas-options": "-Xptxas=",
    "-maxrregcount": "-maxrregcount=",
    "--maxrregcount": "-maxrregcount=",
}
_LONG_FORMS = (("--define-macro=", "-D"), ("--undefine-macro=", "-U"), ("--include-path=", "-I"))


@dataclass(frozen=True)
class HostOptions:
    """What is left for a host compiler.

    macros         in order, "-DNAME=value" and "-UNAME"
    contract       may a*b+c be fused?
    architecture   that of -arch times 10: what __CUDA_ARCH__ says
    """

    macros: tuple[str, ...] = ()
    include_folders: tuple[str, ...] = ()
    standard: str = "c++17"
    contract: bool = False
    architecture: int = 900

    def definitions(self, predefined: tuple[str, ...] = ()) -> dict[str, str]:
        """The macros that hold after all -D and -U: name to text ("1" for a bare -DNAME)."""
        macros: dict[str, str] = {}
        for option in (*predefined, *self.macros):
            name, _, value = option[2:].partition("=")
            if option.startswith("-D"):
                macros[name] = value if "=" in option else "1"
            else:
                macros.pop(name, None)
        return macros


def host_options(options: tuple[str, ...] | list[str], *, unknown: str = "refuse") -> HostOptions:
    """Sort compile options. Raises TypeError for a string in place of a tuple, ValueError naming an unknown option.

    unknown="ignore": options that only a GPU's compiler can judge are passed over.
    """
    if isinstance(options, str):
        raise TypeError(f"options is the string {options!r}: it must be a tuple of strings, such as ({options!r},)")
    words = list(options)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"options holds {word!r}: each option must be a string")
    macros, folders, standard, contract, architecture = [], [], "c++17", False, 900
    position = 0
    while position < len(words):
        option = words[position].strip()
        position += 1
        if option in _TWO_WORDS:
            if position == len(words):
                raise ValueError(f"option {option!r} is the last one: it needs a value after it")
            option = _TWO_WORDS[option] + words[position].strip()
            position += 1
        for long, short in _LONG_FORMS:
            if option.startswith(long):
                option = short + option[len(long) :]
        if option.startswith(("-D", "-U")):
            name = option[2:].strip().partition("=")[0]
            if not re.fullmatch(r"[A-Za-z_]\w*(\([\w, .]*\))?", name):
                raise ValueError(f"option {words[position - 1]!r}: {name!r} is not the name of a macro")
            if "\n" in option or option.endswith("\\") or "/*" in option:
                raise ValueError(f"option {words[position - 1]!r}: the value of a macro is one line without comments")
            macros.append(option[:2] + option[2:].strip())
        elif option.startswith("-I"):
            folders.append(option[2:].strip())
        elif match := re.fullmatch(r"--?std=((?:c|gnu)\+\+\d\w)", option):
            if match[1] not in ("c++11", "c++14", "c++17", "c++20", "c++23"):
                raise ValueError(f"option {option!r}: the standard must be c++11, c++14, c++17, c++20 or c++23")
            standard = match[1]
        elif match := re.fullmatch(r"(?:-arch|--?gpu-architecture)=(?:compute|sm|lto)_(\d+)[af]?", option):
            architecture = int(match[1]) * 10
        elif match := re.fullmatch(r"--?fmad=(true|false)", option):
            contract = match[1] == "true"
        elif unknown == "refuse" and not _WITHOUT_EFFECT.match(option):
            raise ValueError(
                f"option {option!r} is not supported on a CPU: known are -D, -U, -I, -std, --fmad and NVRTC's options "
                "for architectures, optimisation, debug information and warnings"
            )
    # The runtime header itself is written in C++17; an older standard asked for is a lower bound that it satisfies.
    if standard in ("c++11", "c++14"):
        standard = "c++17"
    return HostOptions(tuple(macros), tuple(folders), standard, contract, architecture)
