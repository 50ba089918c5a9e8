"""What becomes of `__shared__` declarations: references into the memory of the block that the thread belongs to.

Each is one place in the block's memory, known to the runtime by an index and an instance, so that the same text works
for several blocks at once, in templates, and in functions called from several kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from .outline import Outline, Statement
from .rewriting import Rewriting
from .tokens import Token

_INVOLVED = "this __shared__ declaration is too involved to translate: give the type a name first, with `using`"


@dataclass(frozen=True)
class SharedArray:
    """A __shared__ declaration. index: INDEX of simt_shared (-1 for `extern __shared__`, which has no size)."""

    index: int
    name: str
    filename: str
    line: int
    dynamic: bool


@dataclass
class _Shared:
    """One declarator of a __shared__ declaration at file scope, to be declared in each function that uses it."""

    name: str
    declaration: str


class SharedDeclarations:
    """Rewrites the declarations of an outline. arrays: what was declared; problems go to the outline."""

    def __init__(self, outline: Outline, rewriting: Rewriting):
        self.outline, self.rewriting = outline, rewriting
        self.tokens, self.text, self.partner = outline.tokens, outline.text, outline.partner
        self.arrays: list[SharedArray] = []
        self._at_file_scope: list[_Shared] = []
        self._dynamic_types: dict[str, tuple[str, int]] = {}
        for statement in outline.shared:
            self._declare(statement)
        self._declare_in_functions()

    def _problem(self, token: Token, message: str) -> None:
        self.outline.problem(token, message)

    def _declare(self, statement: Statement) -> None:
        here = f"simt_here_{len(self.arrays)}" if statement.inside_function else "void"
        pieces = self._pieces(statement.first, statement.end, here)
        if pieces:
            start, end = self.tokens[statement.first].start, self.tokens[statement.end].end
            self.rewriting.replace(start, end, *(pieces if statement.inside_function else ()))

    def _declare_in_functions(self) -> None:
        """An array of file scope is declared in each function that uses its name and has no parameter of that name."""
        for function in self.outline.functions:
            names = {token.text for token in self.tokens[function.opening : function.closing] if token.kind == "name"}
            hidden = {token.text for token in function.header if token.kind == "name"}
            lines = [shared.declaration for shared in self._at_file_scope if shared.name in names - hidden]
            if lines:
                self.rewriting.insert(self.tokens[function.opening].end, " " + " ".join(lines))

    def _pieces(self, first: int, end: int, here: str) -> list:
        """The replacement of the declaration [first, end]; at file scope (here "void") it goes to _at_file_scope."""
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
                close = self.outline.angle_end(index)
                specifiers += self.tokens[index : close + 1]
                index = close + 1
            elif token.text in ("struct", "union", "class"):
                specifiers.append(token)
                index += 1
            elif token.kind == "name" and following not in ("[", ",", ";", "=", "{", "(") or token.text == "::":
                specifiers.append(token)
                index += 1
            elif (
                token.kind == "name"
                and following == "{"
                and {"struct", "union", "class"} & {t.text for t in specifiers}
            ):
                specifiers.append(token)
                index += 1
            else:
                break
        if not specifiers:
            self._problem(mark, _INVOLVED)
            return []
        prefix, type_span = "", (specifiers[0].start, specifiers[-1].end)
        type_pieces: list = [type_span]
        if inline_type:
            keyword = next((token for token in specifiers if token.text in ("struct", "union", "class")), None)
            if keyword is None:
                self._problem(mark, "this __shared__ declaration cannot be read: write the type before it")
                return []
            own = [
                token.text
                for token in specifiers
                if token.kind == "name" and token.text != keyword.text and token.text not in ("const", "volatile")
            ]
            name = own[0] if own else f"simt_struct_{len(self.arrays)}"
            body = (self.tokens[inline_type[0]].start, self.tokens[inline_type[1]].end)
            prefix = [f"{keyword.text} {name} ", body, "; "]
            type_pieces = [("volatile " if "volatile" in words else "") + name]
        else:
            gap = [
                token.text
                for token in self.tokens[first:end]
                if specifiers[0].start <= token.start < specifiers[-1].end
            ]
            if {"__shared__", "extern", "static", "alignas", "__align__", "__attribute__"} & set(
                gap
            ):  # `float __shared__ const s`
                type_pieces = [" ".join(token.text for token in specifiers)]
        pieces: list = list(prefix) if prefix else []
        declarators = self.outline.split(index, end)
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
            self._problem(mark, _INVOLVED)
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
        index = len([array for array in self.arrays if not array.dynamic])
        if dynamic:
            return self._dynamic(name_token, type_pieces, pointers, sizes, here)
        if None in sizes:
            self._problem(name_token, f"__shared__ {name!r} has no size: give one, or declare it `extern __shared__`")
            return None
        self.arrays.append(SharedArray(index, name, filename, line, False))
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
            self._at_file_scope.append(_Shared(name, " ".join(text.split())))
        return pieces

    def _dynamic(self, token: Token, type_pieces: list, pointers: str, sizes: list, here: str) -> list | None:
        name = token.text
        filename, line, _ = self.text.position(token.start)
        if not sizes or sizes[0] is not None:
            self._problem(token, f"extern __shared__ {name!r} must be an array without a size: {name}[]")
            return None
        spelled = "".join(
            piece if isinstance(piece, str) else self.text.text[piece[0] : piece[1]] for piece in type_pieces
        )
        spelled = " ".join(spelled.split()) + pointers
        earlier = self._dynamic_types.setdefault(name, (spelled, line))
        kinds = [self.outline.known_type(words) for words in (spelled, earlier[0])]
        if None not in kinds and kinds[0] != kinds[1]:
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
        self.arrays.append(SharedArray(-1, name, filename, line, True))
        if inner:
            pieces = [
                *type_pieces,
                f"{pointers} (* const {name})",
                *inner,
                " = (",
                *type_pieces,
                f"{pointers} (*)",
                *inner,
            ]
        else:
            pieces = [*type_pieces, f"{pointers}* const {name} = (", *type_pieces, f"{pointers}*"]
        pieces.append(")simt_dynamic_shared(); ")
        if here == "void":
            text = "".join(piece if isinstance(piece, str) else self.text.text[piece[0] : piece[1]] for piece in pieces)
            self._at_file_scope.append(_Shared(name, " ".join(text.split())))
        else:  # spans must not be copied twice where they hold line ends
            pieces = [
                piece if isinstance(piece, str) else " ".join(self.text.text[piece[0] : piece[1]].split())
                for piece in pieces
            ]
        return pieces
