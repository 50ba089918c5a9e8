"""Rebuild the committed notebooks from their texts: python -m ssmlab.lab.build [NN ...].

text (with kernels mirrored from kernels_cu) -> cells -> executed -> without time stamps -> notebooks/NN_topic.ipynb.
A file is written only if something in it changed; where only a cell tagged nbval-ignore-output printed something else
(a time, a device name), the old output stays, so that a rebuild on another machine changes nothing.
"""

import base64
import io
import sys

from PIL import Image

from ssmlab import kernels
from ssmlab.lab import notebooks
from ssmlab.lab.execution import execute


def build(source):
    """Build one notebook; returns (what happened, Failure or None)."""
    text = source.read_text(encoding="utf-8")
    fresh_text = notebooks.mirrored(text, kernels.FOLDER)
    if fresh_text != text:
        source.write_text(fresh_text, encoding="utf-8")
    notebook = notebooks.from_source(fresh_text)
    seconds, failure = execute(notebook, notebooks.NOTEBOOKS)
    if failure:
        return f"failed after {seconds:.1f} s", failure
    path = notebooks.notebook_of(source)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    _strip(notebook)
    if before:
        _keep_old_outputs(notebook, notebooks.read(path))
    after = notebooks.text_of(notebook)
    if after != before:
        path.write_text(after, encoding="utf-8")
    return f"{'unchanged' if after == before else 'written'}, {seconds:.1f} s", None


def _strip(notebook):
    """Remove what execution adds and no reader needs: time stamps, versions, output metadata, millions of colours."""
    notebook.metadata = notebooks.METADATA
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = {}
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _palette(output.data["image/png"])


def _palette(png):
    """The same picture in 256 colours: a drawing of lines and letters loses nothing one can see, and half its size."""
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    packed = io.BytesIO()
    picture.quantize(256, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return base64.b64encode(packed.getvalue()).decode()


def _keep_old_outputs(notebook, old):
    known = {cell.id: cell for cell in old.cells if cell.cell_type == "code"}
    for cell in notebook.cells:
        before = known.get(cell.id)
        if before is not None and notebooks.is_tagged(cell, notebooks.IGNORE_OUTPUT) and before.outputs:
            cell.outputs = before.outputs


def main(selection):
    failed = False
    for source in notebooks.sources(selection):
        print(f"{source.stem:24}", end="", flush=True)
        what, failure = build(source)
        print(what, flush=True)
        if failure:
            failed = True
            print(f"  cell {failure.cell}: {failure.error}\n{failure.traceback}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
