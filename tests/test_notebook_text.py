"""The committed notebooks are what `make notebooks` makes of their texts, and they keep the workbook's rules."""

import re

import nbformat
import pytest

from ssmlab import kernels
from ssmlab.lab import notebooks

SOURCES = notebooks.sources()
LARGEST = 500_000  # [B] of a committed notebook: GitHub still renders it, a diff still opens
REBUILD = "run `make notebooks` and commit the .ipynb"
SMALL = """# %% [markdown]
# # Does it run?
# %%
import math
# %% tags=["nbval-ignore-output"]
print(math.pi)
# %%
assert math.e < math.pi
"""


def problems(source, notebook_path=None):
    """Everything that is wrong with one notebook, in words that say what to do."""
    path = notebook_path or notebooks.notebook_of(source)
    if not path.exists():
        return [f"{path.name} is missing: {REBUILD}"]
    text = source.read_text(encoding="utf-8")
    found = []
    if notebooks.mirrored(text, kernels.FOLDER) != text:
        found.append(f"{source.name} shows a kernel that differs from its file in kernels_cu: {REBUILD}")
    notebook = notebooks.read(path)
    found += differences(notebooks.from_source(text).cells, notebook.cells, source.name, path.name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append(f"{path.name} was not executed once from top to bottom (counts {counts}): {REBUILD}")
    for number, cell in enumerate(notebook.cells, start=1):
        if "execution" in cell.metadata:
            found.append(f"{path.name} cell {number} stores time stamps: {REBUILD}")
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                found.append(f"{path.name} cell {number} stores an error ({output.ename}): repair it, then {REBUILD}")
            if output.get("name") == "stderr":
                found.append(f"{path.name} cell {number} stores a warning ({output.text[:60]!r}): silence its cause, "
                             f"then {REBUILD}")
    if notebook.metadata != notebooks.METADATA:
        found.append(f"{path.name} has metadata of an editor: {REBUILD}")
    size = path.stat().st_size
    if size > LARGEST:
        found.append(f"{path.name} has {size} B, more than {LARGEST}: draw fewer or smaller figures")
    if not any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs):
        found.append(f"{path.name} shows no figure: {REBUILD}")
    return found


def differences(wanted, present, source_name, notebook_name):
    """The first cell in which a text and its notebook part."""
    for number, (want, have) in enumerate(zip(wanted, present, strict=False), start=1):
        for what, left, right in (("type", want.cell_type, have.cell_type), ("text", want.source, have.source),
                                  ("tags", want.metadata.get("tags", []), have.metadata.get("tags", [])),
                                  ("id", want.id, have.id)):
            if left != right:
                return [f"{notebook_name} cell {number} and {source_name} differ in their {what} "
                        f"({apart(right, left)}). To keep the text: {REBUILD}. "
                        f"To keep an edit of the .ipynb: copy it into notebooks/source/{source_name} first"]
    if len(wanted) != len(present):
        return [f"{notebook_name} has {len(present)} cells, {source_name} has {len(wanted)}: {REBUILD}"]
    return []


def apart(have, want):
    """The first place where two values differ, with a little of what stands around it."""
    if not isinstance(have, str):
        return f"{have} against {want}"
    at = next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))
    here = slice(max(at - 15, 0), at + 25)
    return f"{have[here]!r} against {want[here]!r}"


def claims_without_check(source):
    """The claims of a text that no check cell answers, and the checks that no claim announces."""
    notebook = notebooks.from_source(source.read_text(encoding="utf-8"))
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    claimed = re.findall(r"\*\*Claim (\d+\.\d+)", prose)
    checked = [match[1] for cell in notebook.cells if cell.cell_type == "code"
               and (match := re.match(r"# check (\d+\.\d+)", cell.source))
               and "assert" in cell.source and f"{match[1]} holds" in cell.source]
    return claimed, checked


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_what_its_text_builds(source):
    assert not (found := problems(source)), "\n".join(found)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_each_claim_is_followed_by_a_check_that_asserts_it(source):
    claimed, checked = claims_without_check(source)
    assert claimed == checked, f"{source.name}: claims {claimed}, checks {checked}: pair them, in order"
    assert claimed, f"{source.name} claims nothing"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_has_the_parts_a_reader_expects(source):
    notebook = notebooks.from_source(source.read_text(encoding="utf-8"))
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert notebook.cells[0].source.splitlines()[0].endswith("?"), "the title is a question"
    for part in ("You will be able to", "Break it", "Exercise", "What we now know", "Sources"):
        assert part.lower() in prose.lower(), f"{source.name} has no part {part!r}"


def test_there_is_a_notebook_for_every_text_and_a_text_for_every_notebook():
    assert SOURCES
    assert {path.stem for path in SOURCES} == {path.stem for path in notebooks.NOTEBOOKS.glob("*.ipynb")}, REBUILD


class TestTheRulesCanFail:
    """Each edit that must be noticed, made on a copy."""

    @pytest.fixture
    def pair(self, tmp_path):
        """A small text and the notebook that was built from it, both right."""
        source, path = tmp_path / "01_small.py", tmp_path / "01_small.ipynb"
        source.write_text(SMALL, encoding="utf-8")
        notebook = notebooks.from_source(SMALL)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for count, cell in enumerate(code, start=1):
            cell.execution_count = count
        code[0].outputs = [nbformat.v4.new_output("display_data", {"image/png": "iVBORw0KGgo="})]
        path.write_text(notebooks.text_of(notebook), encoding="utf-8")
        assert problems(source, path) == []
        return source, path

    def change(self, path, edit):
        notebook = notebooks.read(path)
        edit(notebook)
        path.write_text(notebooks.text_of(notebook), encoding="utf-8")

    def test_an_edited_text(self, pair):
        source, notebook = pair
        text = source.read_text(encoding="utf-8")
        source.write_text(text.replace("import", "import  ", 1), encoding="utf-8")
        assert any("differ in their text" in line and "make notebooks" in line for line in problems(source, notebook))

    def test_an_edited_notebook_cell(self, pair):
        source, notebook = pair
        self.change(notebook, lambda nb: nb.cells[0].update(source=nb.cells[0].source + "."))
        assert any("differ in their text" in line for line in problems(source, notebook))

    def test_a_lost_cell_and_a_lost_tag(self, pair):
        source, notebook = pair
        self.change(notebook, lambda nb: nb.cells.pop())
        assert any("cells" in line for line in problems(source, notebook))
        tagged = next(i for i, cell in enumerate(notebooks.read(notebook).cells) if cell.metadata.get("tags"))
        self.change(notebook, lambda nb: nb.cells[tagged].metadata.pop("tags"))
        assert any("differ in their tags" in line for line in problems(source, notebook))

    def test_a_cell_that_was_not_run(self, pair):
        source, notebook = pair
        code = next(i for i, cell in enumerate(notebooks.read(notebook).cells) if cell.cell_type == "code")
        self.change(notebook, lambda nb: nb.cells[code].update(execution_count=None))
        assert any("not executed" in line for line in problems(source, notebook))

    def test_a_time_stamp(self, pair):
        source, notebook = pair
        self.change(notebook, lambda nb: nb.cells[0].metadata.update(execution={"iopub.execute_input": "2026"}))
        assert any("time stamps" in line for line in problems(source, notebook))

    @pytest.mark.parametrize("output, words", [
        ({"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": []}, "stores an error"),
        ({"output_type": "stream", "name": "stderr", "text": "Warning: old"}, "stores a warning"),
    ])
    def test_an_error_and_a_warning(self, pair, output, words):
        source, notebook = pair
        code = next(i for i, cell in enumerate(notebooks.read(notebook).cells) if cell.cell_type == "code")
        self.change(notebook, lambda nb: nb.cells[code].outputs.append(nbformat.from_dict(output)))
        assert any(words in line for line in problems(source, notebook))

    def test_a_mirrored_kernel_that_differs_from_its_file(self, tmp_path):
        name = kernels.names()[0]
        text = f"# %%\nsource = lab.kernel_cell(r'''__global__ void other() {{}}''', mirrors=\"{name}\")\n"
        filled = notebooks.mirrored(text, kernels.FOLDER)
        assert kernels.path(name).read_text(encoding="utf-8") in filled
        assert notebooks.mirrored(filled, kernels.FOLDER) == filled
        assert notebooks.mirrored(filled.replace("float", "double", 1), kernels.FOLDER) == filled
