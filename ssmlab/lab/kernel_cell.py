"""Kernel text in a cell: the reader sees and edits the same text that stands in kernels_cu."""

import difflib

from ssmlab import kernels


def kernel_cell(text, mirrors):
    """Return `text` unchanged, and print whether it is still the text of the file kernels_cu/`mirrors`.

    The committed cell mirrors the file (`make notebooks` writes it there); after a live edit the line says
    "EDITED, differs in N lines", where N counts the lines of the cell that the file does not have, and those it lost.
    """
    original = kernels.path(mirrors).read_text(encoding="utf-8")
    if text == original:
        print(f"{mirrors}: same text as the file")
    else:
        changes = list(difflib.ndiff(original.splitlines(), text.splitlines()))
        added = sum(line.startswith("+ ") for line in changes)
        removed = sum(line.startswith("- ") for line in changes)
        lines = max(added, removed)
        print(f"{mirrors}: EDITED, differs in {lines} line{'' if lines == 1 else 's'}")
    return text
