"""What becomes of `__shared__` declarations: references into the memory of the block that the thread belongs to.

Each is one place in the block's memory, known to the runtime by an index and an instance, so that the same text works
for several blocks at once, in templates, and in functions called from several kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .outline import ALIGNMENT, Outline, Statement, spelled
from .rewriting import Rewriting
from .tokens import Token

_CLASS_KEYS = ("struct", "union", "class")
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


@dataclass
class _Specifiers:
    """What stands before the declarators. body: the "{" of a class; mixed: other words stand inside the type."""

    type: list[Token] = field(default_factory=list)
    alignment: list[Token] = field(default_factory=list)
    body: int | None = None
    mixed: bool = False
    next: int = 0


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
        read = self._specifiers(first, end)
        if read is None:
            return []
        words = {token.text for token in self.tokens[first:end]}
        dynamic = "extern" in words
        pieces: list = []
        if not read.type:
            self._problem(mark, _INVOLVED)
            return []
        type_pieces: list = [(read.type[0].start, read.type[-1].end)]
        if read.body is not None:  # `__shared__ struct { float a, b; } pairs[32];`: the struct is defined first
            keyword = next((token for token in read.type if token.text in _CLASS_KEYS), None)
            if keyword is None:
                self._problem(mark, _INVOLVED)
                return []
            names = [token.text for token in read.type if token.text not in (*_CLASS_KEYS, "const", "volatile")]
            name = names[0] if names else f"simt_struct_{len(self.arrays)}"
            body = self.tokens[read.body].start, self.tokens[self.partner[read.body]].end
            pieces += [f"{keyword.text} {name} ", body, "; "]
            type_pieces = [("volatile " if "volatile" in words else "") + name]
        elif read.mixed:  # `float __shared__ const s[4]`
            type_pieces = [spelled(read.type)]
        declarators = self.outline.split(read.next, end)
        if not declarators:
            self._problem(mark, "this __shared__ declaration names no variable")
            return []
        if here != "void" and not dynamic:
            pieces.append(f"struct {here} {{}}; ")
        for declarator in declarators:
            piece = self._declarator(declarator, mark, type_pieces, here, dynamic, spelled(read.alignment))
            if piece is None:
                return []
            pieces += piece
        return pieces

    def _specifiers(self, first: int, end: int) -> _Specifiers | None:
        """Everything before the first declarator; None where something does not belong there (noted as a problem)."""
        read = _Specifiers()
        index = first
        while index < end:
            token = self.tokens[index]
            following = self.tokens[index + 1].text
            if token.text in ("__shared__", "extern", "static"):
                read.mixed = read.mixed or bool(read.type)
                index += 1
            elif token.text in ALIGNMENT and following == "(":
                close = self.partner[index + 1]
                read.alignment += self.tokens[index : close + 1]
                read.mixed = read.mixed or bool(read.type)
                index = close + 1
            elif token.text in ("__device__", "constexpr", "inline"):
                self._problem(token, f"{token.text} does not go with __shared__")
                return None
            elif token.text == "decltype" and following == "(":
                close = self.partner[index + 1]
                read.type += self.tokens[index : close + 1]
                index = close + 1
            elif token.text == "{":
                read.body = index
                index = self.partner[index] + 1
            elif token.text == "<" and read.type:
                close = self.outline.angle_end(index)
                read.type += self.tokens[index : close + 1]
                index = close + 1
            elif token.text == "::" or token.kind == "name" and self._belongs_to_type(token, following, read):
                read.type.append(token)
                index += 1
            else:
                break
        read.next = index
        return read

    @staticmethod
    def _belongs_to_type(token: Token, following: str, read: _Specifiers) -> bool:
        """Is this name part of the type, rather than the variable's name?"""
        if token.text in _CLASS_KEYS or following not in ("[", ",", ";", "=", "{", "("):
            return True
        return following == "{" and any(earlier.text in _CLASS_KEYS for earlier in read.type)

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
            declaration = [f"struct {align} {holder} {{ ", *type_pieces, f"{pointers} simt_value", *dimensions, "; }; "]
            reference = [f"auto& {name} = simt_shared<{holder}, {index}, {here}>().simt_value; "]
        else:
            declaration = [f"auto& {name} = simt_shared<", *type_pieces, pointers, *dimensions]
            reference = [f", {index}, {here}>(); "]
        pieces = [*declaration, *reference]
        if here == "void":
            self._at_file_scope.append(_Shared(name, self._text(pieces)))
        return pieces

    def _dynamic(self, token: Token, type_pieces: list, pointers: str, sizes: list, here: str) -> list | None:
        name = token.text
        filename, line, _ = self.text.position(token.start)
        if not sizes or sizes[0] is not None:
            self._problem(token, f"extern __shared__ {name!r} must be an array without a size: {name}[]")
            return None
        spelled_type = self._text(type_pieces) + pointers
        earlier = self._dynamic_types.setdefault(name, (spelled_type, line))
        kinds = [self.outline.known_type(words) for words in (spelled_type, earlier[0])]
        if None not in kinds and kinds[0] != kinds[1]:
            self._problem(
                token,
                f"extern __shared__ {name!r} is {spelled_type} here and {earlier[0]} in line {earlier[1]}: "
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
        rows = self._text(inner)  # one line: what stands twice must not hold the line ends of the original twice
        whole, cast = (f" (* const {name}){rows}", f" (*){rows}") if rows else (f"* const {name}", "*")
        text = f"{spelled_type}{whole} = ({spelled_type}{cast})simt_dynamic_shared(); "
        if here == "void":
            self._at_file_scope.append(_Shared(name, text))
        return [text]

    def _text(self, pieces: list) -> str:
        """Pieces of a replacement as text on one line."""
        whole = "".join(piece if isinstance(piece, str) else self.text.text[piece[0] : piece[1]] for piece in pieces)
        return " ".join(whole.split())
