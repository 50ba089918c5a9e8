"""`make run`, `make notebooks` and the exercises, tried on small notebooks in a folder of their own."""

import nbformat
import pytest

from ssmlab.lab import build, exercises, notebooks, run

GOOD = """# %% [markdown]
# # Does it run?
# %%
print("yes")
"""
TIME = """# %% tags=["nbval-ignore-output"]
import time
print(time.time_ns())
"""
BAD = """# %%
x = 1
# %%
print(x / 0)
"""


@pytest.fixture
def workbook(tmp_path, monkeypatch):
    """An empty workbook; returns a function that adds a text and builds nothing."""
    for name, folder in (("NOTEBOOKS", "notebooks"), ("SOURCES", "notebooks/source"), ("RESULTS", "notebooks/results")):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        monkeypatch.setattr(notebooks, name, tmp_path / folder)
    monkeypatch.setattr(run, "BUILD", tmp_path / "build")

    def add(name, text):
        (tmp_path / "notebooks/source" / f"{name}.py").write_text(text, encoding="utf-8")

    add.folder = tmp_path
    return add


def store_unexecuted(name):
    source = notebooks.SOURCES / f"{name}.py"
    notebook = notebooks.from_source(source.read_text(encoding="utf-8"))
    notebooks.notebook_of(source).write_text(notebooks.text_of(notebook), encoding="utf-8")


def test_build_executes_counts_and_strips(workbook, capsys):
    workbook("01_good", GOOD + TIME)
    assert build.main([]) == 0
    notebook = notebooks.read(workbook.folder / "notebooks/01_good.ipynb")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2]
    assert code[0].outputs[0].text == "yes\n"
    assert notebook.metadata == notebooks.METADATA and all("execution" not in cell.metadata for cell in code)
    assert "written" in capsys.readouterr().out


def test_building_again_changes_nothing_even_where_a_time_is_printed(workbook, capsys):
    workbook("01_good", GOOD + TIME)
    build.main([])
    before = (workbook.folder / "notebooks/01_good.ipynb").read_bytes()
    capsys.readouterr()
    assert build.main(["01"]) == 0
    assert (workbook.folder / "notebooks/01_good.ipynb").read_bytes() == before
    assert "unchanged" in capsys.readouterr().out


def test_a_failing_cell_stops_the_build_of_its_notebook_and_is_named(workbook, capsys):
    workbook("01_bad", BAD)
    workbook("02_good", GOOD)
    assert build.main([]) == 1
    assert not (workbook.folder / "notebooks/01_bad.ipynb").exists()
    assert (workbook.folder / "notebooks/02_good.ipynb").exists()
    assert "cell 2: ZeroDivisionError" in capsys.readouterr().err


def test_run_writes_pages_goes_on_after_a_failure_and_says_so(workbook, capsys):
    for name, text in (("01_bad", BAD), ("02_good", GOOD)):
        workbook(name, text)
        store_unexecuted(name)
    assert run.main([]) == 1
    printed = capsys.readouterr().out
    assert "cell 2: ZeroDivisionError: division by zero" in printed and "1 of 2 notebooks ran" in printed
    build_folder = workbook.folder / "build"
    assert "yes" in (build_folder / "html/02_good.html").read_text(encoding="utf-8")
    assert "Does it run?" in (build_folder / "html/index.html").read_text(encoding="utf-8")
    executed = nbformat.read(build_folder / "notebooks/02_good.ipynb", as_version=4)
    assert executed.cells[1].outputs[0].text == "yes\n"


def test_running_again_executes_only_what_changed_or_failed(workbook, capsys):
    for name, text in (("01_bad", BAD), ("02_good", GOOD)):
        workbook(name, text)
        store_unexecuted(name)
    run.main([])
    capsys.readouterr()
    assert run.main([]) == 1
    printed = capsys.readouterr().out
    assert "unchanged" in printed and "failed" in printed
    workbook("02_good", GOOD.replace("yes", "no"))
    store_unexecuted("02_good")
    assert run.main(["02"]) == 0
    assert "ok" in capsys.readouterr().out
    assert run.main(["02", "--fresh"]) == 0
    assert "unchanged" not in capsys.readouterr().out


def test_an_unknown_notebook_is_refused_with_the_ones_there_are(workbook):
    workbook("01_good", GOOD)
    with pytest.raises(ValueError, match="no notebook starts with '99'; there are 01_good"):
        notebooks.sources(["99"])


class TestExercises:
    @pytest.fixture(autouse=True)
    def one_exercise(self, monkeypatch):
        monkeypatch.setattr(exercises, "_EXERCISES", {})
        monkeypatch.setattr(exercises, "keys", lambda notebook: sorted(exercises._EXERCISES))

        @exercises.exercise("9.A")
        def twice(attempt):
            if attempt(3) != 6:
                raise exercises.WrongAnswer(f"twice 3 is 6, your answer is {attempt(3)}")

    def test_a_blank_one_is_not_attempted(self, capsys):
        def blank(x):
            raise NotImplementedError

        exercises.check("9.A", blank)
        assert capsys.readouterr().out == "9.A not attempted yet\n"

    def test_a_right_one_passes(self, capsys):
        exercises.check("9.A", lambda x: 2 * x)
        assert capsys.readouterr().out == "9.A passed\n"

    def test_a_wrong_one_is_explained_without_a_traceback(self):
        with pytest.raises(exercises.WrongAnswer, match="twice 3 is 6, your answer is 9") as error:
            exercises.check("9.A", lambda x: x * x)
        assert error.value._render_traceback_() == ["WrongAnswer: twice 3 is 6, your answer is 9"]

    def test_an_error_inside_an_attempt_comes_through(self):
        with pytest.raises(ZeroDivisionError):
            exercises.check("9.A", lambda x: x / 0)

    def test_a_kernel_exercise_wants_the_text_not_a_kernel(self):
        exercises.exercise("9.B", starts_from="block_scan_v2_double_buffer.cu")(lambda text: None)
        with pytest.raises(TypeError, match="exercise 9.B: the attempt is None; it must be CUDA text"):
            exercises.check("9.B", None)

    def test_an_unknown_key_lists_the_known_ones(self):
        with pytest.raises(KeyError, match="9.A"):
            exercises.check("9.Z", None)

    def test_a_key_is_registered_once(self):
        with pytest.raises(ValueError, match="twice"):
            exercises.exercise("9.A")(lambda attempt: None)
