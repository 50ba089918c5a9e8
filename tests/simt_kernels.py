"""The kernels of simt_runtime.cu: run with checks, and asked for by the marks at their lines."""

import re
from pathlib import Path

import numpy as np

import ssmlab

FILE = "simt_runtime.cu"
TEXT = (Path(__file__).resolve().parent / FILE).read_text(encoding="utf-8")
MARK = re.compile(r"//@(.+)$")
LINES = {mark[1]: number for number, line in enumerate(TEXT.splitlines(), 1) if (mark := MARK.search(line))}
_modules = {}


def kernel(name, cooperative=False, mode="checked"):
    """A kernel of the text; translated once, compiled once for each compiler."""
    key = cooperative, mode
    if key not in _modules:
        _modules[key] = ssmlab.RawModule(code=TEXT, filename=FILE, enable_cooperative_groups=cooperative, mode=mode)
    return _modules[key].get_function(name)


def check(name, grid, block, args, shared=0, cooperative=False, **schedule):
    return ssmlab.check(kernel(name, cooperative), (grid,), (block,), args, shared, **schedule)


def zeros(count, dtype="float32"):
    return np.zeros(count, dtype)


def places(report, kind):
    """The marks of the lines that findings of a kind name, each finding a set."""
    names = {number: name for name, number in LINES.items()}
    found = [finding for finding in report.findings if finding.kind == kind]
    return [{names[line] for line in (finding.line, finding.other_line) if line} for finding in found]


def only(report):
    """The one finding of a report."""
    assert len(report.findings) == 1, str(report)
    return report.findings[0]
