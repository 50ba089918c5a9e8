"""Cuts C++ text into tokens and knows the file and line of each; comments and strings are never taken for code."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

# One alternative for each kind, tried in this order. A directive is a whole preprocessor line with its continuations.
_TOKEN = re.compile(
    r"""
      (?P<space>(?:[ \t\r\f\v\n]|\\\r?\n)+)
    | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<directive>\#(?:\\\r?\n|/\*.*?\*/|//(?:\\\r?\n|[^\n])*|[^\n])*)
    | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
    | (?P<string>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*")
    | (?P<char>(?:u8|[uUL])?'(?:\\.|[^'\\\n])*')
    | (?P<number>\.?[0-9](?:[eEpP][+-]|'(?=[0-9A-Za-z_])|[0-9A-Za-z_.])*)
    | (?P<name>[A-Za-z_$][A-Za-z_0-9$]*|[^\x00-\x7f]+)
    | (?P<punctuation><<<|::|->|\#\#|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE_DIRECTIVE = re.compile(r'#\s*(?:line\s+)?(\d+)(?:\s+"((?:\\.|[^"\\])*)")?\s*$')


@dataclass(frozen=True)
class Token:
    """kind: "name", "number", "string", "char" or "punctuation"; [start, end) in the text."""

    kind: str
    text: str
    start: int
    end: int


class Text:
    """A translation unit: `tokens` (code only), `directives` (preprocessor lines), and positions that obey #line."""

    def __init__(self, text: str, filename: str):
        self.text = text
        self.filename = filename
        self.tokens: list[Token] = []
        self.directives: list[Token] = []
        self.unterminated: list[int] = []  # offsets of comments without an end
        self._line_starts = [0] + [match.end() for match in re.finditer("\n", text)]
        marks = [(0, 1, filename)]  # (index of a physical line, the number and file that it is called by)
        line_begins = True
        end = 0
        while end < len(text):
            match = _TOKEN.match(text, end)
            kind, start, end = match.lastgroup, match.start(), match.end()
            if kind == "mark":
                kind = "raw"
            if kind == "directive" and not line_begins:  # a lone # inside a line of code
                kind, end = "punctuation", start + 1
            body = text[start:end]
            if kind == "directive":
                token = Token(kind, body, start, end)
                self.directives.append(token)
                if named := _LINE_DIRECTIVE.match(body.rstrip()):
                    index = bisect.bisect_right(self._line_starts, start)  # index of the physical line after this one
                    marks.append((index, int(named[1]), named[2] if named[2] is not None else marks[-1][2]))
            elif kind == "comment" and body.startswith("/*") and not (body.endswith("*/") and len(body) > 3):
                self.unterminated.append(start)
            elif kind not in ("space", "comment"):
                self.tokens.append(Token("string" if kind == "raw" else kind, body, start, end))
            if kind == "space":
                line_begins = line_begins or "\n" in body.replace("\\\n", "").replace("\\\r\n", "")
            elif kind != "comment":
                line_begins = False
        self._marks = marks
        self._mark_indices = [mark[0] for mark in marks]

    def position(self, offset: int) -> tuple[str, int, int]:
        """(file, line, column in characters, both from 1) of a character of the text."""
        index = bisect.bisect_right(self._line_starts, offset) - 1
        first, number, filename = self._marks[bisect.bisect_right(self._mark_indices, index) - 1]
        return filename, number + index - first, offset - self._line_starts[index] + 1

    def line_text(self, offset: int) -> str:
        """The physical line that holds a character, without its line end."""
        index = bisect.bisect_right(self._line_starts, offset) - 1
        end = self.text.find("\n", offset)
        return self.text[self._line_starts[index] : len(self.text) if end < 0 else end].rstrip("\r")

    def find_line(self, filename: str, line: int) -> int | None:
        """Offset of the first character of a line of a file; None where the text has no such line."""
        for position, (first, number, name) in enumerate(self._marks):
            last = self._marks[position + 1][0] if position + 1 < len(self._marks) else len(self._line_starts)
            index = first + line - number
            if name == filename and first <= index < last:
                return self._line_starts[index]
        return None
