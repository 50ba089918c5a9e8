"""The notebook files: where they lie, how the text becomes cells, and what a committed notebook looks like."""

import hashlib
import re
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"
SOURCES = NOTEBOOKS / "source"
RESULTS = NOTEBOOKS / "results"
IGNORE_OUTPUT = "nbval-ignore-output"  # the tag of cells whose output may differ from machine to machine

# Everything else that editors and runners like to write (time stamps, versions, trust) is left out.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
MIRROR = re.compile(r"""kernel_cell\(\s*r'''(?P<text>.*?)'''\s*,\s*mirrors="(?P<name>[^"]+)"\s*\)""", re.DOTALL)


def sources(selection=()):
    """Paths of notebooks/source/NN_topic.py in order; `selection` keeps those whose name starts with one of its items.

    Raises ValueError if an item selects nothing.
    """
    found = sorted(SOURCES.glob("[0-9][0-9]_*.py"))
    if not selection:
        return found
    for item in selection:
        if not any(path.stem.startswith(item) for path in found):
            raise ValueError(f"no notebook starts with {item!r}; there are {', '.join(p.stem for p in found)}")
    return [path for path in found if path.stem.startswith(tuple(selection))]


def notebook_of(source):
    """The path of the committed notebook that belongs to a source text."""
    return NOTEBOOKS / f"{source.stem}.ipynb"


def mirrored(text, kernels):
    """`text` with every mirrored kernel cell filled from its file; `kernels` is the folder kernels_cu."""

    def fill(match):
        kernel = (kernels / match["name"]).read_text(encoding="utf-8")
        if "'''" in kernel:
            raise ValueError(f"{match['name']} contains ''' and cannot stand in a raw string of a notebook cell")
        start, end = match.span("text")
        whole = match.string[match.start():match.end()]
        return whole[: start - match.start()] + kernel + whole[end - match.start():]

    return MIRROR.sub(fill, text)


def from_source(text):
    """The notebook without outputs that a source text stands for; cell ids depend on the cell texts alone."""
    notebook = jupytext.reads(text, fmt="py:percent")
    seen = {}
    cells = []
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        nth = seen[cell.source] = seen.get(cell.source, -1) + 1
        cell.id = hashlib.sha256(f"{cell.cell_type}{nth}{cell.source}".encode()).hexdigest()[:12]
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def read(path):
    return nbformat.read(path, as_version=4)


def text_of(notebook):
    """The bytes of a committed notebook: one canonical form, so that equal notebooks are equal files."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def is_tagged(cell, tag):
    return tag in cell.metadata.get("tags", ())
