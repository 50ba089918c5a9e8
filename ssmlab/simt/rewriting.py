"""Replaces spans of a text and remembers, for each character of the result, where in the original it came from."""

from __future__ import annotations

import bisect


class Rewriting:
    """Collects replacements of disjoint spans; `finish()` gives the new text, `origin` maps back.

    A replacement is a list of pieces: a string is new text, a pair (start, end) copies that span of the original.
    The line count must not change: `replace` adds the newlines of the span that its pieces do not hold.
    """

    def __init__(self, text: str):
        self.text = text
        self._edits: list[tuple[int, int, list]] = []
        self._starts: list[int] = []  # offsets in the result, ascending, where a piece begins
        self._origins: list[tuple[int, bool]] = []  # of each piece: (offset in the original, is it copied?)

    def replace(self, start: int, end: int, *pieces: str | tuple[int, int]) -> None:
        held = sum(piece.count("\n") if isinstance(piece, str) else self.text.count("\n", *piece) for piece in pieces)
        missing = self.text.count("\n", start, end) - held
        if missing < 0:
            raise AssertionError(f"a replacement of characters {start} to {end} adds {-missing} lines")
        self._edits.append((start, end, [*pieces, "\n" * missing]))

    def insert(self, offset: int, text: str) -> None:
        self._edits.append((offset, offset, [text]))

    def finish(self) -> str:
        result: list[str] = []
        length = 0

        def add(text: str, origin: int, copied: bool) -> None:
            nonlocal length
            if text:
                self._starts.append(length)
                self._origins.append((origin, copied))
                result.append(text)
                length += len(text)

        done = 0
        for start, end, pieces in sorted(self._edits, key=lambda edit: edit[:2]):
            if start < done:
                raise AssertionError(f"two replacements overlap at character {start}")
            add(self.text[done:start], done, True)
            for piece in pieces:
                if isinstance(piece, str):
                    add(piece, start, False)
                else:
                    add(self.text[piece[0] : piece[1]], piece[0], True)
            done = end
        add(self.text[done:], done, True)
        return "".join(result)

    def origin(self, offset: int) -> int:
        """The character of the original that a character of the result stands for (new text: where it was put)."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0:
            return 0
        origin, copied = self._origins[index]
        return min(origin + (offset - self._starts[index] if copied else 0), len(self.text))
