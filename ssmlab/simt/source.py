"""Translates CUDA C++ text into C++ that a host compiler takes, keeping every line number.

Interface (used by compiler.py, launch.py, lines.py, rawkernel.py)

    translate(text, filename="kernel.cu", options=(), name_expressions=()) -> Translation
    Translation.text      C++: '#include "simt.h"', '#line 1 "<filename>"', the text with its lines kept, thunks
               .original  tokens.Text of what was given: .text, .position(offset), .find_line(file, line)
               .kernels   {name or expression: KernelInfo}  (signature.py)
               .shared    (SharedArray(index, name, filename, line, dynamic), ...)   index is INDEX of simt_shared
               .globals   (GlobalVariable(name, symbol, filename, line, constant), ...)
               .host      options.HostOptions

What becomes of the text
    __shared__ T a[N][M], b;             auto& a = simt_shared<T[(N)][(M)], 0, simt_here_0>(); auto& b = simt_shared<T, 1, simt_here_0>();
        simt_here_0 is a local struct, emitted just before: one type for each instance of a template, so that two
        instances own two arrays, as on a GPU. `template <class T, int INDEX, class Here = void> T& simt_shared();`
        gives one place in the block's memory for each pair (INDEX, Here).
    __shared__ at file scope             the same reference (Here = void) at the top of each function that uses the name
    extern __shared__ T s[];             T* const s = (T*)simt_dynamic_shared();      (at file scope: in each function that uses s)
    __shared__ alignas(16) T s[4];       struct alignas(16) simt_aligned_0 { T value[(4)]; }; auto& s = simt_shared<simt_aligned_0, ...>().value;
    __launch_bounds__(N)                 stays (a macro of simt.h that is empty); an enum before the kernel remembers N
    #pragma unroll, #pragma once         removed
    everything else                      stays as it is; simt.h gives it its meaning

Symbols of the compiled library, besides the runtime's own
    void simt_thunk_<n>(void** arguments)                          calls kernel n, arguments[i] points to the i-th value
    const simt_thunks::parameter* const simt_signature_<n>         its parameter list, exact (read by compiler.Library)
    const unsigned simt_bounds_of_<n>                              only where the kernel has __launch_bounds__
    const simt_global simt_globals[]                               {name, address, size in bytes, is it __constant__}, ends with a null name
        struct simt_global { const char* name; void* address; unsigned long long size; int constant; };  emitted by the translation
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import refusals
from .conditions import active_tokens, constant
from .messages import CompileError, Problem
from .options import HostOptions, host_options
from .rewriting import Rewriting
from .signature import HELPER, KernelInfo, Parameter, text_parameter
from .tokens import Text, Token

THUNK_FILE = "simt-thunks"  # the #line name of everything that is emitted after the learner's text
EXPRESSION_FILE = "simt-expression-"  # ... and of the thunk of a kernel, followed by its number


class UnknownKernel(KeyError):
    """A name that no kernel of the text has. str(error) lists the names that there are."""

    def __str__(self) -> str:
        return self.args[0]


@dataclass(frozen=True)
class SharedArray:
    """A __shared__ declaration. index: INDEX of simt_shared (-1 for `extern __shared__`, which has no size of its own)."""

    index: int
    name: str
    filename: str
    line: int
    dynamic: bool


@dataclass(frozen=True)
class GlobalVariable:
    """A `__device__` or `__constant__` variable; symbol is its qualified C++ name."""

    name: str
    symbol: str
    filename: str
    line: int
    constant: bool


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
    _rewriting: Rewriting = field(repr=False, default=None)
    _prefix: int = field(repr=False, default=0)

    @property
    def filename(self) -> str:
        return self.original.filename

    def original_place(self, filename: str, line: int, byte_column: int) -> tuple[int, int] | None:
        """(line, column) in the learner's text for a place that a compiler names; None where it is not the learner's text.

        Columns of compilers count bytes; those given back count characters. Column 0 stays 0.
        """
        start = self.original.find_line(filename, line)
        if start is None:
            return None
        if byte_column < 1:
            return line, 0
        index = self.original.text.count("\n", 0, start) + self._prefix
        translated = self.text.split("\n")[index]
        column = len(translated.encode()[: byte_column - 1].decode(errors="ignore"))
        offset = sum(len(text) + 1 for text in self.text.split("\n")[self._prefix : index]) + column
        _, line, column = self.original.position(self._rewriting.origin(offset))
        return line, column

    def kernel(self, name: str) -> KernelInfo:
        """The kernel of a name or a name expression, spaces ignored. Raises UnknownKernel."""
        for known, info in self.kernels.items():
            if _squeeze(known) == _squeeze(name):
                return info
        raise unknown_kernel(name, self.filename, self.kernels)


def unknown_kernel(name: str, filename: str, kernels) -> UnknownKernel:
    names = ", ".join(sorted(kernels)) or "none"
    return UnknownKernel(f"{filename} has no kernel {name!r}; its kernels: {names}")


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
    return _Translator(text, filename, tuple(options), tuple(name_expressions)).run()


def _squeeze(name: str) -> str:
    """A name expression without the spaces that do not matter: "k< int >" and "k<int>" are one kernel."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(name.split()))


@dataclass
class _Scope:
    kind: str  # "namespace", "extern", "class", "function", "block", "value"
    name: str = ""


@dataclass
class _Function:
    """A function with a body: header tokens, index of its "{" and of its "}" in the token list."""

    header: list[Token]
    opening: int
    closing: int = -1


@dataclass
class _Kernel:
    name: str
    token: Token
    path: str  # enclosing namespaces, "a::b::"
    template: list[Token] | None  # tokens between < and > of template <...>
    parameters: list[list[Token]]
    bounds: list[Token] | None
    first: Token  # first token of the definition
    extern_c: bool


@dataclass
class _Shared:
    """One declarator of a __shared__ declaration at file scope, to be declared in each function that uses it."""

    name: str
    declaration: str


class _Translator:
    _NO_DECLARATOR = {"const", "volatile", "static", "extern", "constexpr", "inline", "mutable", "register"}
    _WITH_ARGUMENTS = {"alignas", "__align__", "__attribute__", "decltype", "__launch_bounds__", "noexcept", "__declspec"}

    def __init__(self, text: str, filename: str, options: tuple[str, ...], name_expressions: tuple[str, ...]):
        self.host = host_options(options)
        self.macros = self.host.definitions()
        self.text = Text(text, filename)
        self.name_expressions = name_expressions
        self.rewriting = Rewriting(text)
        self.tokens, self.directives = active_tokens(self.text, self.macros)
        self.problems: list[tuple[int, str]] = []
        self.functions: list[_Function] = []
        self.kernels: list[_Kernel] = []
        self.shared: list[SharedArray] = []
        self.file_shared: list[_Shared] = []
        self.globals: list[GlobalVariable] = []
        self.aliases: dict[str, str] = {}
        self.dynamic_types: dict[str, tuple[str, int]] = {}

    # ---- the whole text

    def run(self) -> Translation:
        for option in self.host.macros:
            if "__shared__" in option:
                self.problems.append((0, f"option {option!r}: __shared__ must stand in the text, not in a macro"))
        self.problems += refusals.find(self.tokens, self.directives)
        self._brackets()
        self._stop_at_problems()
        self._walk()
        self._stop_at_problems()
        self._declare_file_shared()
        self._pragmas()
        bounds = self._launch_bounds()
        kernels, thunks = self._thunks(bounds)
        prefix = f'#include "simt.h"\n#line 1 "{_quoted(self.text.filename)}"\n'
        body = self.rewriting.finish()
        return Translation(
            text=prefix + body + "\n" + thunks,
            original=self.text,
            host=self.host,
            kernels=kernels,
            shared=tuple(self.shared),
            globals=tuple(self.globals),
            uses=frozenset(token.text for token in self.tokens if token.kind == "name"),
            _rewriting=self.rewriting,
            _prefix=prefix.count("\n"),
        )

    def _problem(self, token: Token, message: str) -> None:
        self.problems.append((token.start, message))

    def _stop_at_problems(self) -> None:
        if self.problems:
            problems = []
            for offset, message in sorted(self.problems):
                filename, line, column = self.text.position(offset)
                problems.append(Problem(filename, line, column, message, self.text.line_text(offset)))
            raise CompileError(problems)

    def _brackets(self) -> None:
        """Partner of each bracket: index to index. An unbalanced text is refused here, with the place of the bracket."""
        self.partner: dict[int, int] = {}
        pairs = {")": "(", "]": "[", "}": "{"}
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind != "punctuation":
                continue
            if token.text in "([{":
                opened.append(index)
            elif token.text in pairs:
                if not opened or self.tokens[opened[-1]].text != pairs[token.text]:
                    self._problem(token, f"{token.text!r} closes nothing" if not opened else
                                  f"{token.text!r} closes the {self.tokens[opened[-1]].text!r} of line "
                                  f"{self.text.position(self.tokens[opened[-1]].start)[1]}")
                    return
                self.partner[index] = opened[-1]
                self.partner[opened.pop()] = index
        if opened:
            self._problem(self.tokens[opened[-1]], f"{self.tokens[opened[-1]].text!r} is never closed")

    # ---- scopes and statements

    def _walk(self) -> None:
        scopes: list[_Scope] = []
        function: _Function | None = None
        start = index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            inside = function is not None
            if token.text == "{" and token.kind == "punctuation":
                if inside:
                    scope = _Scope("block")
                else:
                    scope = self._scope_of(start, index)
                if scope.kind == "function":
                    function = _Function(self.tokens[start:index], index, self.partner[index])
                    self.functions.append(function)
                    self._kernel(start, index, scopes)
                scopes.append(scope)
                if scope.kind not in ("value", "class"):
                    start = index + 1
                elif scope.kind == "class":
                    start = index + 1
            elif token.text == "}" and token.kind == "punctuation":
                scope = scopes.pop()
                if scope.kind == "function":
                    function = None
                if scope.kind == "class":
                    start = self._statement_before(index)
                elif scope.kind != "value":
                    start = index + 1
            elif token.text == ";" and token.kind == "punctuation":
                if not inside:
                    self._declaration(start, index, scopes)
                start = index + 1
            elif token.text in ("(", "[") and token.kind == "punctuation" and not inside:
                if any(inner.text == "__shared__" for inner in self.tokens[index : self.partner[index]]):
                    where = next(t for t in self.tokens[index : self.partner[index]] if t.text == "__shared__")
                    self._problem(where, "a parameter cannot be __shared__: pass a pointer to the array")
                index = self.partner[index]
            elif token.text == "__shared__" and inside:
                index = self._local_shared(index, start)
                start = index + 1
            elif token.text == "static" and inside:
                self._static_variable(index)
            elif token.text in ("using", "typedef"):
                self._alias(index)
            index += 1

    def _statement_before(self, closing: int) -> int:
        """Index where the class definition that ends at `closing` began."""
        index = self.partner[closing]
        while index > 0 and not (self.tokens[index - 1].text in (";", "{", "}") and self.tokens[index - 1].kind == "punctuation"):
            index -= 1
        return index

    def _scope_of(self, start: int, opening: int) -> _Scope:
        header = self._top(start, opening)
        words = [token.text for token in header]
        if "namespace" in words:
            position = words.index("namespace")
            return _Scope("namespace", "".join(word for word in words[position + 1 :] if word != "inline"))
        if words[:1] == ["extern"] and len(words) == 2:
            return _Scope("extern")
        callee = self._callee(start, opening)
        if callee is not None and "=" not in self._words_before(words, callee):
            return _Scope("function")
        for keyword in ("struct", "class", "union", "enum"):
            if keyword in words:
                position = words.index(keyword)
                names = [word for word in words[position + 1 :] if re.match(r"[A-Za-z_]", word)]
                return _Scope("class", names[0] if names else "")
        return _Scope("value")

    @staticmethod
    def _words_before(words: list[str], callee: str) -> list[str]:
        return words[: words.index(callee)] if callee in words else words

    def _top(self, start: int, end: int) -> list[Token]:
        """Tokens of [start, end) outside brackets and outside the <...> of `template <...>`."""
        result, index = [], start
        while index < end:
            token = self.tokens[index]
            result.append(token)
            if token.text == "template" and index + 1 < end and self.tokens[index + 1].text == "<":
                index = self._angle_end(index + 1)
            elif token.kind == "punctuation" and token.text in ("(", "[", "{") and self.partner.get(index, end) < end:
                index = self.partner[index]
            index += 1
        return result

    def _angle_end(self, opening: int) -> int:
        """Index of the ">" that closes the "<" at `opening`."""
        depth, index = 0, opening
        while index < len(self.tokens):
            token = self.tokens[index]
            if token.kind == "punctuation":
                if token.text in ("(", "[", "{"):
                    index = self.partner[index]
                elif token.text == "<":
                    depth += 1
                elif token.text == ">":
                    depth -= 1
                    if depth == 0:
                        return index
                elif token.text == ";":
                    break
            index += 1
        self._problem(self.tokens[opening], "'<' is never closed")
        self._stop_at_problems()
        raise AssertionError("unreachable")

    def _callee(self, start: int, end: int) -> str | None:
        """The name before the parameter list, where [start, end) is the head of a function; None otherwise."""
        index = start
        while index < end:
            token = self.tokens[index]
            if token.text == "template" and self.tokens[index + 1].text == "<":
                index = self._angle_end(index + 1) + 1
                continue
            if token.kind == "punctuation" and token.text == "(":
                before = self.tokens[index - 1] if index > start else token
                if before.kind == "name" and before.text not in self._WITH_ARGUMENTS:
                    return before.text
                if any(word.text == "operator" for word in self.tokens[max(start, index - 4) : index]):
                    return "operator"
                index = self.partner[index]
            index += 1
        return None

    @staticmethod
    def _path(scopes: list[_Scope]) -> str:
        return "".join(scope.name + "::" for scope in scopes if scope.kind == "namespace" and scope.name)

    # ---- kernels

    def _kernel(self, start: int, opening: int, scopes: list[_Scope]) -> None:
        header = self._top(start, opening)
        words = [token.text for token in header]
        if "__global__" not in words:
            return
        mark = header[words.index("__global__")]
        if any(scope.kind == "class" for scope in scopes):
            self._problem(mark, "a __global__ function cannot be a member of a class")
            return
        index, template, bounds = start, None, None
        while index < opening:
            token = self.tokens[index]
            following = self.tokens[index + 1].text
            if token.text == "template" and following == "<":
                end = self._angle_end(index + 1)
                template = self.tokens[index + 2 : end]
                index = end
            elif token.text == "__launch_bounds__" and following == "(":
                bounds = self._split(index + 2, self.partner[index + 1])[0]
                index = self.partner[index + 1]
            elif token.text in self._WITH_ARGUMENTS and following == "(":
                index = self.partner[index + 1]
            elif token.kind == "name" and following == "(":
                parameters = self._split(index + 2, self.partner[index + 1])
                break
            index += 1
        else:
            self._problem(mark, "a __global__ function needs a name and a parameter list")
            return
        if "void" not in words[: words.index(token.text)]:
            self._problem(mark, f"kernel {token.text!r} must return void")
            return
        if len(parameters) == 1 and [word.text for word in parameters[0]] == ["void"]:
            parameters = []
        extern_c = "extern" in words or any(scope.kind == "extern" for scope in scopes)
        if template is not None and extern_c:
            self._problem(token, f"kernel {token.text!r} is a template: it cannot be extern \"C\"")
            return
        path = self._path(scopes)
        self.kernels.append(_Kernel(token.text, token, path, template, parameters, bounds, self.tokens[start], extern_c))

    def _split(self, start: int, end: int) -> list[list[Token]]:
        """Tokens of [start, end) cut at top-level commas; [] for an empty range."""
        parts: list[list[Token]] = [[]]
        index = start
        angle = 0
        while index < end:
            token = self.tokens[index]
            if token.kind == "punctuation" and token.text in ("(", "[", "{"):
                parts[-1] += self.tokens[index : self.partner[index] + 1]
                index = self.partner[index] + 1
                continue
            if token.text == "<" and index > start and self.tokens[index - 1].kind == "name":
                angle += 1
            elif token.text == ">" and angle:
                angle -= 1
            if token.text == "," and angle == 0:
                parts.append([])
            else:
                parts[-1].append(token)
            index += 1
        return parts if parts != [[]] else []

    def _alias(self, index: int) -> None:
        """Remember `using A = B;` and `typedef B A;`, for the types of parameters."""
        end = index
        while end < len(self.tokens) and self.tokens[end].text != ";":
            end = self.partner[end] + 1 if self.tokens[end].text in ("(", "[", "{") else end + 1
        words = [token.text for token in self.tokens[index + 1 : end]]
        if self.tokens[index].text == "using" and len(words) > 2 and words[1] == "=":
            self.aliases[words[0]] = " ".join(words[2:])
        elif self.tokens[index].text == "typedef" and len(words) > 1 and not set(words) & {"(", "[", "{"}:
            self.aliases[words[-1]] = " ".join(words[:-1])

    # ---- __shared__

    def _static_variable(self, index: int) -> None:
        around = [token.text for token in self.tokens[max(0, index - 2) : index + 4]]
        if not {"const", "constexpr", "__shared__"} & set(around):
            self._problem(
                self.tokens[index],
                "a static variable inside a function is not supported on a CPU: "
                "declare it outside, as a __device__ variable",
            )

    def _shared_statement(self, index: int, lower: int) -> tuple[int, int]:
        """(first, end) token indices of the declaration around `__shared__` at index; end is its ";"."""
        first = index
        while first > lower:
            before = self.tokens[first - 1]
            if before.text == ")" and self.tokens[self.partner[first - 1] - 1].text in ("alignas", "__align__", "__attribute__"):
                first = self.partner[first - 1] - 1
            elif before.kind == "name" and before.text not in ("else", "do") or before.text in ("*", "::", "<", ">", ","):
                first -= 1
            else:
                break
        end = index
        while self.tokens[end].text != ";":
            if self.tokens[end].text in ("(", "[", "{"):
                end = self.partner[end]
            if self.tokens[end].text == "}" and self.partner[end] < index:
                end = len(self.tokens)
            end += 1
            if end >= len(self.tokens):
                self._problem(self.tokens[index], "this __shared__ declaration has no ';' at its end")
                self._stop_at_problems()
        return first, end

    def _local_shared(self, index: int, lower: int) -> int:
        """Translate a declaration inside a function; gives the index of its ";"."""
        first, end = self._shared_statement(index, lower)
        pieces = self._shared_pieces(first, end, here=f"simt_here_{len(self.shared)}")
        if pieces:
            self.rewriting.replace(self.tokens[first].start, self.tokens[end].end, *pieces)
        return end

    def _file_shared(self, start: int, end: int) -> None:
        pieces = self._shared_pieces(start, end, here="void")
        if pieces:
            self.rewriting.replace(self.tokens[start].start, self.tokens[end].end)

    def _shared_pieces(self, first: int, end: int, here: str) -> list:
        """The replacement of the declaration [first, end]; at file scope (here "void") it goes to self.file_shared instead."""
        mark = next(token for token in self.tokens[first:end] if token.text == "__shared__")
        specifiers: list[Token] = []
        alignment: list[Token] = []
        words = {token.text for token in self.tokens[first:end]}
        dynamic = "extern" in words
        index = first
        inline_type = None
        while index < end:
            token = self.tokens[index]
            following = self.tokens[index + 1].text
            if token.text in ("__shared__", "extern", "static"):
                index += 1
            elif token.text in ("alignas", "__align__", "__attribute__") and following == "(":
                alignment += self.tokens[index : self.partner[index + 1] + 1]
                index = self.partner[index + 1] + 1
            elif token.text in ("__device__", "constexpr", "inline", "thread_local"):
                self._problem(token, f"{token.text} does not go with __shared__")
                return []
            elif token.text == "decltype" and following == "(":
                specifiers += self.tokens[index : self.partner[index + 1] + 1]
                index = self.partner[index + 1] + 1
            elif token.text == "{":
                inline_type = (index, self.partner[index])
                index = self.partner[index] + 1
            elif token.text == "<" and specifiers:
                close = self._angle_end(index)
                specifiers += self.tokens[index : close + 1]
                index = close + 1
            elif token.text in ("struct", "union", "class"):
                specifiers.append(token)
                index += 1
            elif token.kind == "name" and following not in ("[", ",", ";", "=", "{", "(") or token.text == "::":
                specifiers.append(token)
                index += 1
            elif token.kind == "name" and following == "{" and {"struct", "union", "class"} & {t.text for t in specifiers}:
                specifiers.append(token)
                index += 1
            else:
                break
        if not specifiers:
            self._problem(mark, "this __shared__ declaration names no type")
            return []
        prefix, type_span = "", (specifiers[0].start, specifiers[-1].end)
        type_pieces: list = [type_span]
        if inline_type:
            keyword = next((token for token in specifiers if token.text in ("struct", "union", "class")), None)
            if keyword is None:
                self._problem(mark, "this __shared__ declaration cannot be read: write the type before it")
                return []
            own = [token.text for token in specifiers if token.kind == "name" and token.text != keyword.text and token.text not in ("const", "volatile")]
            name = own[0] if own else f"simt_struct_{len(self.shared)}"
            body = (self.tokens[inline_type[0]].start, self.tokens[inline_type[1]].end)
            prefix = [f"{keyword.text} {name} ", body, "; "]
            type_pieces = [("volatile " if "volatile" in words else "") + name]
        else:
            gap = [token.text for token in self.tokens[first:end] if specifiers[0].start <= token.start < specifiers[-1].end]
            if {"__shared__", "extern", "static", "alignas", "__align__", "__attribute__"} & set(gap):  # `float __shared__ const s`
                type_pieces = [" ".join(token.text for token in specifiers)]
        pieces: list = list(prefix) if prefix else []
        declarators = self._split(index, end)
        if not declarators:
            self._problem(mark, "this __shared__ declaration names no variable")
            return []
        align = " ".join(token.text for token in alignment)
        if here != "void" and not dynamic:
            pieces.append(f"struct {here} {{}}; ")
        for declarator in declarators:
            piece = self._declarator(declarator, mark, type_pieces, here, dynamic, align)
            if piece is None:
                return []
            pieces += piece
        return pieces

    def _declarator(
        self, tokens: list[Token], mark: Token, type_pieces: list, here: str, dynamic: bool, align: str
    ) -> list | None:
        stars = 0
        while stars < len(tokens) and tokens[stars].text in ("*", "const", "volatile", "__restrict__"):
            stars += 1
        if stars == len(tokens) or tokens[stars].kind != "name":
            self._problem(mark, "this __shared__ declaration is too involved to translate: give the type a name first, with `using`")
            return None
        name_token = tokens[stars]
        name = name_token.text
        pointers = "".join(f" {token.text}" for token in tokens[:stars])
        rest = tokens[stars + 1 :]
        sizes: list[tuple[int, int] | None] = []
        position = 0
        while position < len(rest) and rest[position].text == "[":
            depth, close = 0, position
            while True:
                depth += (rest[close].text == "[") - (rest[close].text == "]")
                if depth == 0:
                    break
                close += 1
            sizes.append((rest[position].end, rest[close].start) if close > position + 1 else None)
            position = close + 1
        if position < len(rest):
            sign = rest[position]
            message = (
                f"__shared__ {name!r} cannot have an initial value: let one thread store it, then __syncthreads()"
                if sign.text in ("=", "{", "(")
                else f"{sign.text!r} is not expected in a __shared__ declaration"
            )
            self._problem(sign, message)
            return None
        filename, line, _ = self.text.position(name_token.start)
        index = len([array for array in self.shared if not array.dynamic])
        if dynamic:
            return self._dynamic(name_token, type_pieces, pointers, sizes, here)
        if None in sizes:
            self._problem(name_token, f"__shared__ {name!r} has no size: give one, or declare it `extern __shared__`")
            return None
        self.shared.append(SharedArray(index, name, filename, line, False))
        dimensions: list = []
        for span in sizes:
            dimensions += ["[(", span, ")]"]
        if align:
            holder = f"simt_aligned_{index}"
            declaration = [f"struct {align} {holder} {{ ", *type_pieces, f"{pointers} value", *dimensions, "; }; "]
            reference = [f"auto& {name} = simt_shared<{holder}, {index}, {here}>().value; "]
        else:
            declaration = [f"auto& {name} = simt_shared<", *type_pieces, pointers, *dimensions]
            reference = [f", {index}, {here}>(); "]
        pieces = [*declaration, *reference]
        if here == "void":
            text = "".join(piece if isinstance(piece, str) else self.text.text[piece[0] : piece[1]] for piece in pieces)
            self.file_shared.append(_Shared(name, " ".join(text.split())))
        return pieces

    def _dynamic(self, token: Token, type_pieces: list, pointers: str, sizes: list, here: str) -> list | None:
        name = token.text
        filename, line, _ = self.text.position(token.start)
        if not sizes or sizes[0] is not None:
            self._problem(token, f"extern __shared__ {name!r} must be an array without a size: {name}[]")
            return None
        spelled = "".join(piece if isinstance(piece, str) else self.text.text[piece[0] : piece[1]] for piece in type_pieces)
        spelled = " ".join(spelled.split()) + pointers
        earlier = self.dynamic_types.setdefault(name, (spelled, line))
        if earlier[0] != spelled:
            self._problem(
                token,
                f"extern __shared__ {name!r} is {spelled} here and {earlier[0]} in line {earlier[1]}: "
                "CUDA wants one type for one name (use two names)",
            )
            return None
        inner: list = []
        for span in sizes[1:]:
            if span is None:
                self._problem(token, f"extern __shared__ {name!r}: only the first dimension can be left open")
                return None
            inner += ["[(", span, ")]"]
        self.shared.append(SharedArray(-1, name, filename, line, True))
        if inner:
            pieces = [*type_pieces, f"{pointers} (* const {name})", *inner, " = (", *type_pieces, f"{pointers} (*)", *inner]
        else:
            pieces = [*type_pieces, f"{pointers}* const {name} = (", *type_pieces, f"{pointers}*"]
        pieces.append(")simt_dynamic_shared(); ")
        if here == "void":
            text = "".join(piece if isinstance(piece, str) else self.text.text[piece[0] : piece[1]] for piece in pieces)
            self.file_shared.append(_Shared(name, " ".join(text.split())))
        else:  # spans must not be copied twice where they hold line ends
            pieces = [piece if isinstance(piece, str) else " ".join(self.text.text[piece[0] : piece[1]].split()) for piece in pieces]
        return pieces

    def _declare_file_shared(self) -> None:
        for function in self.functions:
            names = {token.text for token in self.tokens[function.opening : function.closing] if token.kind == "name"}
            hidden = {token.text for token in function.header if token.kind == "name"}
            lines = [shared.declaration for shared in self.file_shared if shared.name in names - hidden]
            if lines:
                self.rewriting.insert(self.tokens[function.opening].end, " " + " ".join(lines))

    # ---- declarations at file and class scope

    def _declaration(self, start: int, end: int, scopes: list[_Scope]) -> None:
        header = self._top(start, end)
        words = [token.text for token in header]
        in_class = any(scope.kind == "class" for scope in scopes)
        if "__shared__" in words:
            mark = header[words.index("__shared__")]
            if in_class:
                self._problem(mark, "a member of a class cannot be __shared__: make the object __shared__")
            else:
                self._file_shared(start, end)
            return
        memory = next((word for word in ("__constant__", "__device__") if word in words), None)
        if memory is None or in_class or self._callee(start, end) is not None or "using" in words or "typedef" in words:
            return
        if "template" in words or "friend" in words:
            return
        mark = header[words.index(memory)]
        if "extern" in words and not any(scope.kind == "extern" for scope in scopes):
            self._problem(mark, f"an extern {memory} variable: there is no other file to find it in")
            return
        declarators = self._declarator_names(start, end)
        if not declarators:
            self._problem(mark, f"this {memory} declaration cannot be read: it names no variable")
            return
        for token in declarators:
            filename, line, _ = self.text.position(token.start)
            self.globals.append(
                GlobalVariable(token.text, "::" + self._path(scopes) + token.text, filename, line, "__constant__" in words)
            )

    def _declarator_names(self, start: int, end: int) -> list[Token]:
        """The variables of a declaration: each name that stands before "[", "=", "{", "," or ";" at the top level."""
        names: list[Token] = []
        for part in self._split(start, end):
            top: list[Token] = []
            depth = 0
            for token in part:
                if token.text in ("[", "=", "{") and depth == 0:
                    if token.text == "{" and {"struct", "union", "class", "enum"} & {word.text for word in top} and len(top) < 4:
                        depth += 1
                        continue
                    break
                depth += token.text in ("(", "{", "[")
                depth -= token.text in (")", "}", "]")
                if depth == 0 and token.kind == "name":
                    top.append(token)
            if top:
                names.append(top[-1])
        return names

    # ---- pragmas

    def _pragmas(self) -> None:
        for directive in self.directives:
            if re.match(r"#\s*pragma\s+(?:unroll|once|nv_|hd_warning|nounroll)", directive.text):
                self.rewriting.replace(directive.start, directive.end)
        for index, token in enumerate(self.tokens):
            if token.text == "_Pragma" and self.tokens[index + 1].text == "(":
                self.rewriting.replace(token.start, self.tokens[self.partner[index + 1]].end)

    # ---- thunks

    def _launch_bounds(self) -> dict[int, str]:
        """Remember each __launch_bounds__ in an enum just before its kernel; gives the enum's name, by the kernel's index."""
        names = {}
        for index, kernel in enumerate(self.kernels):
            if kernel.bounds:
                name = f"simt_bounds_{index}"
                value = self._spelled(kernel.bounds)
                if kernel.template is None:
                    text = f"enum {{ {name} = ({value}) }}; "
                else:
                    text = f"template <{self._spelled(kernel.template)}> struct {name} {{ enum {{ value = ({value}) }}; }}; "
                self.rewriting.insert(kernel.first.start, text)
                names[index] = name
        return names

    @staticmethod
    def _spelled(tokens: list[Token]) -> str:
        return " ".join(token.text for token in tokens)

    def _thunks(self, bounds: dict[int, str]) -> tuple[dict[str, KernelInfo], str]:
        infos: dict[str, KernelInfo] = {}
        out = [f'#line 1 "{THUNK_FILE}"', HELPER]
        wanted: list[tuple[str, int | None]] = []
        for index, kernel in enumerate(self.kernels):
            if kernel.template is None and kernel.path + kernel.name not in [name for name, _ in wanted]:
                wanted.append((kernel.path + kernel.name, index))
        for expression in self.name_expressions:
            if _squeeze(expression) not in [_squeeze(name) for name, _ in wanted]:
                wanted.append((expression, self._template(expression)))
        for number, (name, index) in enumerate(wanted):
            infos[name] = self._info(name, number, index, bounds)
            out.append(f'#line 1 "{EXPRESSION_FILE}{number}"')
            out.append(
                f'extern "C" __attribute__((visibility("default"), no_sanitize_thread)) void simt_thunk_{number}(void** arguments) '
                f"{{ simt_thunks::call(&{name}, arguments); }}"
            )
            out.append(_exported("simt_thunks::parameter* const", f"simt_signature_{number}", f"simt_thunks::rows_of(&{name})"))
            if infos[name].bounds_symbol:
                kernel = self.kernels[index]
                arguments = name[name.index("<") :] + "::value" if kernel.template is not None else ""
                value = f"(unsigned)::{kernel.path}{bounds[index]}{arguments}"
                out.append(_exported("unsigned", infos[name].bounds_symbol, value))
        out.append(f'#line 1 "{THUNK_FILE}"')
        rows = [
            f'{{"{variable.symbol[2:]}", (void*)&{variable.symbol}, sizeof({variable.symbol}), {int(variable.constant)}}}, '
            for variable in self.globals
        ]
        out.append("struct simt_global { const char* name; void* address; unsigned long long size; int constant; };")
        out.append(
            'extern "C" __attribute__((visibility("default"))) const simt_global simt_globals[] = { '
            + "".join(rows)
            + "{nullptr, nullptr, 0, 0} };"
        )
        return infos, "\n".join(out) + "\n"

    def _template(self, expression: str) -> int | None:
        """Index of the kernel that an expression names. A kernel made by a macro cannot be seen here (None)."""
        base = _squeeze(expression).partition("<")[0].lstrip("&:")
        for index, kernel in enumerate(self.kernels):
            if kernel.path + kernel.name == base:
                if (kernel.template is not None) != ("<" in expression):
                    break
                return index
        if any("__global__" in directive.text for directive in self.directives) and base not in [
            kernel.path + kernel.name for kernel in self.kernels
        ]:
            return None
        known = {
            kernel.path + kernel.name + ("<...>" if kernel.template is not None else ""): kernel for kernel in self.kernels
        }
        raise unknown_kernel(expression, self.text.filename, known)

    def _info(self, name: str, number: int, index: int | None, bounds: dict[int, str]) -> KernelInfo:
        thunk, signature = f"simt_thunk_{number}", f"simt_signature_{number}"
        if index is None:
            return KernelInfo(name, thunk, self.text.filename, 0, None, None, signature)
        kernel = self.kernels[index]
        filename, line, _ = self.text.position(kernel.token.start)
        aliases = self._object_macros() | self.aliases
        if kernel.template is not None:
            aliases |= self._template_arguments(kernel, name)
        parameters = tuple(text_parameter(tokens, aliases) for tokens in kernel.parameters)
        twins = [other for other in self.kernels if other.path + other.name == kernel.path + kernel.name]
        if len(twins) > 1 or any("..." in parameter.ctype for parameter in parameters):
            parameters = None  # two branches of a condition, or a pack: only a compiler knows the list
        limit = constant(self._spelled(kernel.bounds), self._object_macros()) if kernel.bounds else None
        return KernelInfo(
            name,
            thunk,
            filename,
            line,
            parameters,
            limit,
            signature,
            f"simt_bounds_of_{number}" if kernel.bounds else None,
            kernel.template is not None,
            kernel.extern_c,
        )

    def _object_macros(self) -> dict[str, str]:
        macros = dict(self.macros)
        for directive in self.directives:
            if match := re.match(r"#\s*define\s+([A-Za-z_]\w*)\s+(.+)", directive.text):
                macros[match[1]] = re.sub(r"//.*|/\*.*?\*/", "", match[2]).strip()
        return macros

    def _template_arguments(self, kernel: _Kernel, expression: str) -> dict[str, str]:
        """Template parameter names to the arguments that an expression gives them, as text."""
        inner = Text(expression[expression.index("<") + 1 : expression.rindex(">")], "expression").tokens
        arguments, depth = [[]], 0
        for token in inner:
            depth += (token.text in "<([") - (token.text in ">)]")
            if token.text == "," and depth == 0:
                arguments.append([])
            else:
                arguments[-1].append(token.text)
        names, depth, last = [], 0, ""
        for token in [*kernel.template, Token("punctuation", ",", 0, 0)]:
            depth += (token.text in "<([") - (token.text in ">)]")
            if depth == 0 and token.text in (",", "="):
                if last:
                    names.append(last)
                last = ""
                if token.text == "=":
                    depth += 1000  # skip the default up to the next comma
            elif token.text == "," and depth >= 1000:
                depth -= 1000
            elif depth == 0 and token.kind == "name":
                last = token.text
        return {name: " ".join(words) for name, words in zip(names, arguments, strict=False)}


def _exported(kind: str, name: str, value: str) -> str:
    """A constant that Python can read without running any code of the library."""
    return f'extern "C" __attribute__((visibility("default"))) const {kind} {name}; const {kind} {name} = {value};'


def _quoted(filename: str) -> str:
    return filename.replace("\\", "\\\\").replace('"', '\\"')


__all__ = ["GlobalVariable", "KernelInfo", "Parameter", "SharedArray", "Translation", "UnknownKernel", "translate"]
