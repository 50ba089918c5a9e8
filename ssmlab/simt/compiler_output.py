"""What compilers say, told in the learner's own lines and columns: no wrapper, no header, no thunk is ever shown."""

from __future__ import annotations

import re

from .messages import CompileError, Problem
from .source import Translation
from .thunks import EXPRESSION_FILE

_SAYING = re.compile(
    r"^(?P<file>(?:[A-Za-z]:)?[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s+"
    r"(?P<word>fatal error|error|note|warning): (?P<text>.*)$"
)
_REQUIRED = re.compile(
    r"^(?P<file>(?:[A-Za-z]:)?[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s+(?:recursively )?required (?:from|by)"
)
_BUILT_IN = re.compile(r"built-in candidate|\(built-in\)$")  # candidates of an operator that stand in no text
_MOST_NOTES = 2  # of one error: an ambiguous call can have thirty candidates
_FROM_HERE = re.compile(r"in instantiation of|requested here|while substituting|required from")


def read_problems(told: str, translation: Translation) -> list[Problem]:
    """The errors in a compiler's output, each at the learner's line and column.

    An error inside a header of the dialect is shown at the learner's line that led there. The first notes that point
    into the learner's text stay.
    """
    problems: list[Problem] = []
    current: Problem | None = None
    pending: tuple[int, int] | None = None  # learner's place of a "required from here" that came before its error
    for line in told.splitlines():
        if (required := _REQUIRED.match(line)) and not _SAYING.match(line):
            place = _place(required, translation)
            if place is not None:
                pending = (required["file"], *place)
            continue
        match = _SAYING.match(line)
        if not match or match["word"] == "warning":
            current = None if match else current
            continue
        place = _place(match, translation)
        text = re.sub(r" \[-W[\w=+-]*\]$", "", match["text"])
        if match["word"] == "note":
            if current is None or place is None or _BUILT_IN.search(text):
                continue
            if current.line == 0:  # the error itself stands in a header: this is the learner's line that led there
                current.filename, (current.line, current.column) = match["file"], place
                current.text = _line(translation, match["file"], place[0])
            elif len(current.notes) < _MOST_NOTES and (not _FROM_HERE.search(text) or place[0] != current.line):
                if _FROM_HERE.search(text):
                    text = "the template is used here"
                note = Problem(match["file"], *place, text, _line(translation, match["file"], place[0]), word="note")
                current.notes.append(note)
            continue
        current = Problem(match["file"], 0, 0, text)
        problems.append(current)
        if place is not None:
            (current.line, current.column), current.text = place, _line(translation, match["file"], place[0])
            if pending is not None and pending[1] != current.line:  # GCC names the use of a template before the error
                used = _line(translation, pending[0], pending[1])
                current.notes.append(Problem(*pending, "the template is used here", used, word="note"))
        elif match["file"].rpartition("/")[2].startswith(EXPRESSION_FILE):
            number = int(match["file"].rpartition(EXPRESSION_FILE)[2])
            expression = list(translation.kernels)[number]
            current.filename, current.message = f"name expression {expression!r}", text
        elif pending is not None:
            current.filename, current.line, current.column = pending
            current.text = _line(translation, pending[0], pending[1])
        pending = None
    for problem in problems:
        if problem.line == 0 and not problem.filename.startswith("name expression"):
            problem.filename = translation.filename
        problem.message = _plain(problem, translation)
    if any(problem.line for problem in problems):  # what has no place in the text follows from what has
        problems = [problem for problem in problems if problem.line or problem.filename.startswith("name expression")]
    unique: dict[tuple, Problem] = {}
    for problem in problems:
        unique.setdefault((problem.filename, problem.line, problem.message), problem)
    return sorted(unique.values(), key=lambda problem: (problem.filename != translation.filename, problem.line))


def _place(match: re.Match, translation: Translation) -> tuple[int, int] | None:
    return translation.original_place(match["file"], int(match["line"]), int(match["column"] or 0))


def _line(translation: Translation, filename: str, line: int) -> str:
    start = translation.original.find_line(filename, line)
    return "" if start is None else translation.original.line_text(start)


_NOT_CONSTANT = re.compile(
    r"not (?:usable in|a|an integral) constant|non-type template argument|variable length|array bound"
    r"|variably modified|expression must have|template argument \d+ is invalid|size of array"
    r"|no matching function for call to 'simt_shared'"
)


def _plain(problem: Problem, translation: Translation) -> str:
    """A message about the emitted form of a declaration, in terms of what the learner wrote."""
    arrays = [
        array for array in translation.shared if array.filename == problem.filename and array.line == problem.line
    ]
    if arrays and _NOT_CONSTANT.search(problem.message):
        names = ", ".join(array.name for array in arrays)
        return (
            f"the size of __shared__ {names} must be known when the kernel is compiled: "
            "a number, a macro or a template argument"
        )
    message = problem.message.replace("simt_shared", "__shared__")
    return re.sub(r"\bsimt_(?:here|aligned|struct)_\d+", "__shared__", message)


def unresolved(error: OSError, translation: Translation) -> Exception:
    """A name that was declared and never defined is found only when the library is loaded."""
    match = re.search(r"undefined symbol: (\w+)", str(error)) or re.search(
        r"[Ss]ymbol not found:? '?_?(\w+)", str(error)
    )
    if not match:
        return RuntimeError(f"the compiled kernel cannot be loaded: {error}")
    symbol = match[1]
    name, rest = "", symbol.removeprefix("_Z").lstrip("NL")
    while part := re.match(r"(\d+)", rest):
        length = int(part[1])
        name = rest[part.end() : part.end() + length]
        rest = rest[part.end() + length :]
    name = name or symbol
    for token in translation.original.tokens:
        if token.text == name:
            filename, line, column = translation.original.position(token.start)
            text = translation.original.line_text(token.start)
            return CompileError([Problem(filename, line, column, f"{name!r} is declared but never defined", text)])
    return CompileError([Problem(translation.filename, 0, 0, f"{name!r} is used but never defined")])
