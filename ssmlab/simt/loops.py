"""Finds the loop that a range of lines lies in: compilers differ in which of its lines they call the loop's."""

from __future__ import annotations

from .tokens import Text, Token


def loop_line(text: Text, file: str, first: int, last: int) -> int:
    """The line of the keyword of the smallest loop that holds both lines; `first` where there is none."""
    best: tuple[int, int] | None = None  # (number of lines, line of the keyword)
    for begin, end in _loops(text.tokens):
        begin_file, begin_line, _ = text.position(begin.start)
        end_file, end_line, _ = text.position(end.start)
        if begin_file == end_file == file and begin_line <= first and last <= end_line:
            best = min(best or (end_line - begin_line, begin_line), (end_line - begin_line, begin_line))
    return first if best is None else best[1]


def _loops(tokens: list[Token]):
    """(keyword, last token) of each loop."""
    ends_of_do: set[int] = set()
    for index, token in enumerate(tokens):
        if token.text not in ("for", "while", "do") or index in ends_of_do:
            continue
        if token.text == "do":
            end = _statement_end(tokens, index + 1)
            if end + 1 < len(tokens) and tokens[end + 1].text == "while":
                ends_of_do.add(end + 1)
                end = _closing(tokens, end + 2)
        else:
            end = _statement_end(tokens, _closing(tokens, index + 1) + 1)
        if end < len(tokens):
            yield token, tokens[end]


def _closing(tokens: list[Token], index: int) -> int:
    """The index of the bracket that closes the one at `index`; the number of tokens where there is none."""
    depth = 0
    for at in range(index, len(tokens)):
        depth += tokens[at].text in ("(", "[", "{")
        depth -= tokens[at].text in (")", "]", "}")
        if depth <= 0:
            return at
    return len(tokens)


def _statement_end(tokens: list[Token], index: int) -> int:
    """The index of the last token of the statement that begins at `index`."""
    at = index
    while at < len(tokens):
        if tokens[at].text == "{":
            return _closing(tokens, at)
        if tokens[at].text == ";":
            return at
        at = (_closing(tokens, at) if tokens[at].text in ("(", "[") else at) + 1
    return len(tokens)
