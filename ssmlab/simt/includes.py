"""Pastes local includes into a text, with #line, so that one string is the whole kernel.

CuPy's disk cache knows a text and its options, not the headers it includes: after an edit of a header the old binary
would be used. With the header pasted, text and cache key agree, and the translation for the CPU sees the header's
`__shared__` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .messages import CompileError, Problem
from .tokens import Text

_INCLUDE = re.compile(r'#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]')
_ONCE = re.compile(r"#[ \t]*pragma[ \t]+once\b")
_DEPTH = 64  # includes inside includes; more is a circle without a guard


def paste(text: str, filename: str, folders: Iterable[Path | str]) -> str:
    """The text with each `#include` of a file in `folders` replaced by that file; other includes stay as they are.

    `#include "x"` is looked up beside the including file first. A file with `#pragma once` is pasted once.
    Raises CompileError (line and name) for `#include "x"` that is nowhere, and for files that include each other in a
    circle.
    """
    return _paste(text, filename, None, [Path(folder) for folder in folders], set(), 0)


def _paste(text: str, filename: str, beside: Path | None, folders: list[Path], once: set[Path], depth: int) -> str:
    if "#" not in text or "include" not in text:
        return text
    unit = Text(text, filename)
    result, done = [], 0
    for directive in unit.directives:
        match = _INCLUDE.match(directive.text)
        if not match:
            continue
        quoted, name = match[1] == '"', match[2].strip()
        places = ([beside] if quoted and beside else []) + folders
        path = next((folder / name for folder in places if (folder / name).is_file()), None)
        where, line, column = unit.position(directive.start)
        if path is None:
            if quoted and not name.startswith(("cuda", "cooperative_groups", "sm_")):
                looked = ", ".join(str(place) for place in places) or "no folder (give one with -I)"
                message = f'#include "{name}": no such file; looked in {looked}'
                raise CompileError([Problem(where, line, column, message, unit.line_text(directive.start))])
            continue
        if depth == _DEPTH:
            message = f'#include "{name}": {_DEPTH} includes inside each other; add #pragma once to break the circle'
            raise CompileError([Problem(where, line, column, message, unit.line_text(directive.start))])
        result.append(text[done : directive.start])
        done = directive.end
        path = path.resolve()
        if path in once:
            continue
        content = path.read_text(encoding="utf-8")
        if any(_ONCE.match(other.text) for other in Text(content, name).directives):
            once.add(path)
            content = re.sub(_ONCE.pattern, "", content, count=1)
        pasted = _paste(content, name, path.parent, folders, once, depth + 1).rstrip("\n")
        result.append(f'#line 1 "{name}"\n{pasted}\n#line {line + directive.text.count(chr(10)) + 1} "{where}"')
    result.append(text[done:])
    return "".join(result)
