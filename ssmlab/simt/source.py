"""Translates CUDA C++ text into C++ that a host compiler takes, keeping every line number.

Interface (used by compiler.py, launch.py, lines.py, rawkernel.py)

    translate(text, filename="kernel.cu", options=(), name_expressions=()) -> Translation
    Translation.text      C++: headers, macros (preamble.py), the text with its lines kept, thunks
               .original  tokens.Text of what was given: .text, .position(offset), .find_line(file, line)
               .kernels   {name or expression: KernelInfo}  (signature.py)
               .shared    (SharedArray(index, name, filename, line, dynamic), ...)   index is INDEX of simt_shared
               .globals   (GlobalVariable(name, symbol, filename, line, constant), ...)
               .host      options.HostOptions

What becomes of the text
    __shared__ T a[N][M], b;             auto& a = simt_shared<T[(N)][(M)], 0, simt_here_0>(); auto& b = simt_shared<…
        simt_here_0 is a local struct, emitted just before: one type for each instance of a template, so that two
        instances own two arrays, as on a GPU. `template <class T, int INDEX, class Here = void> T& simt_shared();`
        gives one place in the block's memory for each pair (INDEX, Here).
    __shared__ at file scope             the same reference (Here = void) at the top of each function that uses the name
    extern __shared__ T s[];             T* const s = (T*)simt_dynamic_shared();
    extern __shared__ at file scope      the same at the top of each function that uses the name
    __shared__ alignas(16) T s[4];       struct alignas(16) simt_aligned_0 { T simt_value[(4)]; };
                                         auto& s = simt_shared<simt_aligned_0, …>().simt_value;
    __launch_bounds__(N)                 stays (a macro of simt.h that is empty); an enum before the kernel remembers N
    #pragma unroll, #pragma once         removed
    everything else                      stays as it is; simt.h gives it its meaning

Symbols of the compiled library, besides the runtime's own
    void simt_thunk_<n>(void** arguments)                          calls kernel n, arguments[i] points to the i-th value
    const simt_thunks::simt_parameter* const simt_signature_<n>    its exact parameter list (read by compiler.Library)
    const unsigned simt_bounds_of_<n>                              only where the kernel has __launch_bounds__
    const simt_global simt_globals[]                               the variables in device memory, ends with a null name
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import refusals
from .empty_loops import ask_conditions
from .messages import CompileError, Problem
from .options import HostOptions, host_options
from .outline import Outline, UnknownKernel, find_kernel
from .preamble import preamble, predefined
from .rewriting import Rewriting
from .shared_memory import SharedArray, SharedDeclarations
from .signature import KernelInfo
from .thunks import GlobalVariable, global_variables, remember_launch_bounds, thunks
from .tokens import Text


@dataclass
class Translation:
    """See the top of this file."""

    text: str
    original: Text
    host: HostOptions
    kernels: dict[str, KernelInfo]
    shared: tuple[SharedArray, ...]
    globals: tuple[GlobalVariable, ...]
    uses: frozenset[str]  # every name in the code: "printf", "assert", "grid_group" …
    _rewriting: Rewriting = field(repr=False)
    _prefix: int = field(repr=False)  # lines before the learner's first one

    @property
    def filename(self) -> str:
        return self.original.filename

    def kernel(self, name: str) -> KernelInfo:
        """The kernel of a name or a name expression, spaces ignored. Raises UnknownKernel."""
        return find_kernel(self.kernels, name, self.original)

    def original_place(self, filename: str, line: int, byte_column: int) -> tuple[int, int] | None:
        """(line, column) in the learner's text for a place that a compiler names; None for a place outside that text.

        Columns of compilers count bytes; those given back count characters. Column 0 stays 0.
        """
        start = self.original.find_line(filename, line)
        if start is None:
            return None
        if byte_column < 1:
            return line, 0
        lines = self.text.split("\n")
        index = self.original.text.count("\n", 0, start) + self._prefix
        column = len(lines[index].encode()[: byte_column - 1].decode(errors="ignore"))
        offset = sum(len(text) + 1 for text in lines[self._prefix : index]) + column
        _, line, column = self.original.position(self._rewriting.origin(offset))
        return line, column


def translate(
    text: str, filename: str = "kernel.cu", options: tuple[str, ...] = (), name_expressions: tuple[str, ...] = ()
) -> Translation:
    """Translate one text (local includes already pasted, see includes.py).

    text               CUDA C++, line ends \\n or \\r\\n
    options            NVRTC's (options.py)
    name_expressions   kernels wanted by expression, such as "scan<float, 256>"; kernels that are no templates need none

    Raises  CompileError for what the CPU cannot run, with line, column and the name of the thing;
            UnknownKernel for an expression that names no kernel of the text; ValueError for an unknown option.
    """
    host = host_options(options)
    outline = Outline(text, filename, tuple(options), tuple(name_expressions), predefined(host))
    rewriting = Rewriting(text)
    for option in host.macros:
        if "__shared__" in option:
            outline.problems.append((0, f"option {option!r}: __shared__ must stand in the text, not in a macro"))
    for token in outline.static_variables:
        _check_static_variable(outline, token)
    outline.problems += refusals.find(outline.tokens, outline.directives)
    _stop_at_problems(outline)
    shared = SharedDeclarations(outline, rewriting)
    variables = global_variables(outline)
    _stop_at_problems(outline)
    remember_launch_bounds(outline, rewriting)
    _remove_pragmas(outline, rewriting)
    ask_conditions(outline, rewriting)
    prefix = preamble(host, outline.directives) + f'#line 1 "{_quoted(filename)}"\n'
    return Translation(
        text=prefix + rewriting.finish() + "\n" + thunks(outline, variables),
        original=outline.text,
        host=host,
        kernels=outline.kernels,
        shared=tuple(shared.arrays),
        globals=variables,
        uses=frozenset(token.text for token in outline.tokens if token.kind == "name"),
        _rewriting=rewriting,
        _prefix=prefix.count("\n"),
    )


def _check_static_variable(outline: Outline, token) -> None:
    index = outline.tokens.index(token)
    around = {near.text for near in outline.tokens[max(0, index - 2) : index + 4]}
    if not {"const", "constexpr", "__shared__"} & around:
        outline.problem(
            token,
            "a static variable inside a function is not supported on a CPU: "
            "declare it outside, as a __device__ variable",
        )


def _stop_at_problems(outline: Outline) -> None:
    if outline.problems:
        problems = []
        for offset, message in sorted(outline.problems):
            filename, line, column = outline.text.position(offset)
            problems.append(Problem(filename, line, column, message, outline.text.line_text(offset)))
        raise CompileError(problems)


def _remove_pragmas(outline: Outline, rewriting: Rewriting) -> None:
    for directive in outline.directives:
        if re.match(r"#\s*pragma\s+(?:unroll|once|nv_|hd_warning|nounroll)", directive.text):
            rewriting.replace(directive.start, directive.end)
    for index, token in enumerate(outline.tokens):
        # __maxnreg__(n) limits registers, which a CPU does not have.
        if token.text in ("_Pragma", "__maxnreg__") and outline.tokens[index + 1].text == "(":
            rewriting.replace(token.start, outline.tokens[outline.partner[index + 1]].end)


def _quoted(filename: str) -> str:
    return filename.replace("\\", "\\\\").replace('"', '\\"')


__all__ = ["GlobalVariable", "KernelInfo", "SharedArray", "Translation", "UnknownKernel", "translate"]
