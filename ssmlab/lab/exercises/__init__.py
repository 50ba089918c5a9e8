"""Exercises: a check that explains a wrong answer and stays quiet about a blank one.

The checks of notebook NN stand in the module nbNN beside this file; each is a function of the attempt that raises
`WrongAnswer` with an explanation, or returns. Answers to all of them are in tests/solutions.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass


class WrongAnswer(AssertionError):
    """An attempt that does not do what the exercise asks; the message shows the input that broke it."""

    def _render_traceback_(self):
        # IPython prints these lines instead of a traceback: the explanation is all that helps here.
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Exercise:
    """One exercise: its key ("1.A"), its judge, and the kernel file whose text a kernel exercise starts from."""

    key: str
    judge: Callable
    starts_from: str | None = None

    def is_blank(self, attempt):
        if self.starts_from is None:
            return False
        from ssmlab import kernels

        if not isinstance(attempt, str):
            raise TypeError(f"exercise {self.key}: the attempt is {attempt!r:.60}; it must be CUDA text, starting from "
                            f"{self.starts_from}")
        return attempt.strip() == kernels.path(self.starts_from).read_text(encoding="utf-8").strip()


_EXERCISES: dict[str, Exercise] = {}


def exercise(key, *, starts_from=None):
    """Register the decorated judge under `key`, "N.L": notebook number and letter."""

    def register(judge):
        if key in _EXERCISES:
            raise ValueError(f"exercise {key} is registered twice: by {_EXERCISES[key].judge.__module__} "
                             f"and by {judge.__module__}")
        _EXERCISES[key] = Exercise(key, judge, starts_from)
        return judge

    return register


def keys(notebook):
    """The keys of all exercises of a notebook number, in order: keys(1) is ["1.A", "1.B", "1.C"]."""
    importlib.import_module(f"{__name__}.nb{notebook:02d}")
    return sorted(key for key in _EXERCISES if key.split(".")[0] == str(notebook))


def check(key, attempt):
    """Judge an attempt; prints "1.A not attempted yet" or "1.A passed".

    Raises  WrongAnswer (an AssertionError) with an explanation and the input that broke it;
            KeyError if there is no such exercise. An error inside the attempt itself comes through as it is.
    A Python exercise is blank while it raises NotImplementedError, a kernel exercise while its text equals its file's.
    """
    known = keys(int(key.split(".")[0]))
    if key not in known:
        raise KeyError(f"there is no exercise {key}; this notebook has {', '.join(known)}")
    task = _EXERCISES[key]
    if task.is_blank(attempt):
        print(f"{key} not attempted yet")
        return
    try:
        task.judge(attempt)
    except NotImplementedError:
        print(f"{key} not attempted yet")
        return
    print(f"{key} passed")
