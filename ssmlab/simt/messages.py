"""A refused text: CompileError and the problems in it, each with the learner's line, column and a caret."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Problem:
    """One error of a text. line, column: from 1, column in characters; 0 means that the compiler gave none."""

    filename: str
    line: int
    column: int
    message: str
    text: str = ""  # the learner's line
    notes: list[Problem] = field(default_factory=list)
    word: str = "error"

    def __str__(self) -> str:
        place = self.filename + (f":{self.line}" if self.line else "") + (f":{self.column}" if self.column else "")
        shown = f"{place}: {self.word}: {self.message}"
        if self.text.strip():
            shown += f"\n    {self.text.rstrip()}"
            if self.column:
                before = self.text[: self.column - 1]
                shown += "\n    " + "".join("\t" if letter == "\t" else " " for letter in before) + "^"
        return "\n".join([shown, *(str(note) for note in self.notes)])


class CompileError(RuntimeError):
    """A kernel's text was refused. str(error): each problem with file, line, column, the learner's line and a caret.

    .problems  list of Problem, in the order of the text's compiler
    .filename, .line, .column, .message   of the first one
    """

    SHOWN = 5  # one mistake often makes many errors; the first ones are the useful ones

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        first = problems[0]
        self.filename, self.line, self.column, self.message = first.filename, first.line, first.column, first.message
        shown = [str(problem) for problem in problems[: self.SHOWN]]
        if len(problems) > self.SHOWN:
            shown.append(f"... and {len(problems) - self.SHOWN} more")
        super().__init__("\n".join(shown))

    def __reduce__(self):
        return type(self), (self.problems,)
