"""Gives an endless loop without a body a condition to ask, so that the watchdog sees it turn.

The watchdog counts basic blocks, and g++ counts only those that hold something: `while (true) {}` holds nothing.
"""

from __future__ import annotations

from .outline import Outline
from .rewriting import Rewriting

_HEADS = (("while", "(", "true", ")"), ("while", "(", "1", ")"), ("for", "(", ";", ";", ")"))
_BODIES = ((";",), ("{", "}"))


def ask_conditions(outline: Outline, rewriting: Rewriting) -> None:
    """Write simt_always() (include/simt.h) into the head of each such loop; `do … while (true);` gets it, too."""
    tokens = outline.tokens
    texts = tuple(token.text for token in tokens)
    for index, text in enumerate(texts):
        if text not in ("while", "for"):
            continue
        for head in _HEADS:
            behind = index + len(head)
            if texts[index:behind] == head and any(texts[behind : behind + len(body)] == body for body in _BODIES):
                if text == "while":
                    rewriting.replace(tokens[index + 2].start, tokens[index + 2].end, "simt_always()")
                else:
                    rewriting.insert(tokens[index + 3].start, "simt_always()")
