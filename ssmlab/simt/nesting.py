"""Finding one's way in a list of tokens: partners of brackets, what stands outside them, commas that separate."""

from __future__ import annotations

from .tokens import Text, Token


class Unreadable(Exception):
    """The rest of the text cannot be followed; the problem has been noted."""


class Nesting:
    """Tokens with the partner of each bracket; problems: (offset, message) of what cannot be followed."""

    _WITH_ARGUMENTS = {
        "alignas",
        "__align__",
        "__attribute__",
        "decltype",
        "__launch_bounds__",
        "__maxnreg__",
        "noexcept",
        "__declspec",
    }

    def __init__(self, text: Text, tokens: list[Token]):
        self.text, self.tokens = text, tokens
        self.problems: list[tuple[int, str]] = []
        self.partner: dict[int, int] = {}
        for offset in text.unterminated:
            self.problems.append((offset, "this comment is never closed"))
        self._brackets()

    def problem(self, token: Token, message: str) -> None:
        self.problems.append((token.start, message))

    def _brackets(self) -> None:
        """Partner of each bracket: index to index. An unbalanced text is refused with the place of the bracket."""
        pairs = {")": "(", "]": "[", "}": "{"}
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            if token.kind != "punctuation":
                continue
            if token.text in "([{":
                opened.append(index)
            elif token.text in pairs:
                if not opened:
                    self.problem(token, f"{token.text!r} closes nothing")
                    return
                if self.tokens[opened[-1]].text != pairs[token.text]:
                    line = self.text.position(token.start)[1]
                    opening = self.tokens[opened[-1]]
                    message = f"{opening.text!r} is never closed: the next bracket is {token.text!r} in line {line}"
                    self.problem(opening, message)
                    return
                self.partner[index] = opened[-1]
                self.partner[opened.pop()] = index
        if opened:
            self.problem(self.tokens[opened[-1]], f"{self.tokens[opened[-1]].text!r} is never closed")

    def top(self, start: int, end: int) -> list[Token]:
        """Tokens of [start, end) outside brackets and outside the <...> of `template <...>`."""
        result, index = [], start
        while index < end:
            token = self.tokens[index]
            result.append(token)
            if token.text == "template" and index + 1 < end and self.tokens[index + 1].text == "<":
                index = self.angle_end(index + 1)
            elif token.kind == "punctuation" and token.text in ("(", "[", "{") and self.partner.get(index, end) < end:
                index = self.partner[index]
            index += 1
        return result

    def angle_end(self, opening: int) -> int:
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
        self.problem(self.tokens[opening], "'<' is never closed")
        raise Unreadable

    def callee(self, start: int, end: int) -> str | None:
        """The name before the parameter list, where [start, end) is the head of a function; None otherwise."""
        index = start
        while index < end:
            token = self.tokens[index]
            if token.text == "template" and self.tokens[index + 1].text == "<":
                index = self.angle_end(index + 1) + 1
                continue
            if token.kind == "punctuation" and token.text == "(":
                before = self.tokens[index - 1] if index > start else token
                if any(word.text == "operator" for word in self.tokens[max(start, index - 4) : index]):
                    return "operator"
                if before.text == ">":  # a specialisation: template <> __global__ void k<float>(…)
                    before = self._before_angle(index - 1, start)
                if before.kind == "name" and before.text not in self._WITH_ARGUMENTS:
                    return before.text
                index = self.partner[index]
            index += 1
        return None

    def _before_angle(self, closing: int, start: int) -> Token:
        """The token before the "<" that the ">" at `closing` ends."""
        depth, index = 0, closing
        while index > start:
            depth += (self.tokens[index].text == ">") - (self.tokens[index].text == "<")
            index -= 1
            if depth == 0:
                break
        return self.tokens[index]

    def split(self, start: int, end: int) -> list[list[Token]]:
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
