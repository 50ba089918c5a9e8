"""Strict nbval with this project's rules, tried on small notebooks in a folder of their own."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import nbformat
import pytest
import zmq

from ssmlab.lab import notebooks
from ssmlab.lab.execution import execute


def write(folder, name, *cells, run=True, edit=None):
    """Write an executed notebook of code cells; a cell is its text, or (text, tags). `edit` changes it afterwards."""
    code = []
    for cell in cells:
        text, tags = (cell, ()) if isinstance(cell, str) else cell
        code.append(nbformat.v4.new_code_cell(text, metadata={"tags": list(tags)} if tags else {}))
    notebook = nbformat.v4.new_notebook(cells=code, metadata=notebooks.METADATA)
    if run:
        _, failure = execute(notebook, folder)
        assert failure is None, failure
    if edit:
        edit(notebook)
    (folder / name).write_text(notebooks.text_of(notebook), encoding="utf-8")


@pytest.fixture
def nbval(tmp_path):
    """Run pytest --nbval on the folder; returns (exit code, output)."""
    shutil.copy(notebooks.NOTEBOOKS / "conftest.py", tmp_path)

    def run(*options):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environment.get("PYTHONPATH", "")])
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "--nbval",
             "--nbval-current-env", *options, str(tmp_path)],
            capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
        return process.returncode, process.stdout + process.stderr

    return run


def test_equal_outputs_pass_and_the_cells_are_counted(tmp_path, nbval):
    write(tmp_path, "a.ipynb", "x = 1", "print(x)")
    code, output = nbval()
    assert code == 0 and "notebook cells run and compared: 2" in output


def test_one_changed_character_of_an_output_fails_and_says_what_to_do(tmp_path, nbval):
    def edit(notebook):
        notebook.cells[0].outputs[0].text = "1.1 hold\n"

    write(tmp_path, "a.ipynb", "print('1.1 holds')", edit=edit)
    code, output = nbval()
    assert code == 1 and "make notebooks" in output


def test_cells_of_one_notebook_share_a_kernel_when_four_workers_run(tmp_path, nbval):  # N-O1
    for name in ("a.ipynb", "b.ipynb", "c.ipynb"):
        write(tmp_path, name, "import math", "print(math.floor(2.5))")
    code, output = nbval("-n", "4")
    assert code == 0 and "notebook cells run and compared: 6" in output


@pytest.mark.skipif(not zmq.has("ipc"), reason="this system has no socket files")
def test_kernels_of_ours_and_of_nbval_use_no_tcp_port_and_leave_no_socket_behind(tmp_path, nbval, monkeypatch):
    """The cell is run by execute(), then by nbval, and must print the same."""
    cell = "from ipykernel.connect import get_connection_info\nprint(get_connection_info(unpack=True)['transport'])"
    with tempfile.TemporaryDirectory() as sockets:  # not in tmp_path: a socket's path has 103 bytes at most
        monkeypatch.setattr(tempfile, "tempdir", sockets)
        monkeypatch.setenv("TMPDIR", sockets)
        write(tmp_path, "a.ipynb", cell)
        assert nbformat.read(tmp_path / "a.ipynb", as_version=4).cells[0].outputs[0].text == "ipc\n"
        code, output = nbval()
        assert code == 0, output
        assert not [name for name in os.listdir(sockets) if name.startswith("kernel-")]


def test_a_folder_with_a_long_path_is_no_error(tmp_path, monkeypatch):
    """The path of a socket file has some 107 characters at most, those of macOS 103."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    write(tmp_path, "a.ipynb", "print(1)")
    assert nbformat.read(tmp_path / "a.ipynb", as_version=4).cells[0].outputs[0].text == "1\n"


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "parallel"])
def test_cells_that_are_not_collected_are_a_failure(tmp_path, nbval, workers):  # N-O2
    """Other tests pass beside the notebook, so that only the count of cells can tell."""
    write(tmp_path, "a.ipynb", "print(1)", "print(2)")
    (tmp_path / "test_other.py").write_text("def test_passes():\n    pass\n")
    (tmp_path / "lose_cells.py").write_text(
        "import nbval.plugin\n"
        "collect = nbval.plugin.IPyNbFile.collect\n"
        "nbval.plugin.IPyNbFile.collect = lambda self: list(collect(self))[:0]\n")
    code, output = nbval("-p", "lose_cells", *workers)
    assert code == 1 and "a.ipynb has 2 code cells, 0 of them ran" in output


def test_the_pinned_versions_are_the_ones_that_run():  # N-O2
    from importlib.metadata import version

    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (notebooks.ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for package in ("pytest", "nbval", "ipykernel", "jupytext", "nbclient", "nbformat", "matplotlib"):
        assert package in pinned
    project = (notebooks.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package in ("pytest", "nbval", "ipykernel"):
        assert re.search(rf'"{package}>=[\d.]+,<[\d.]+', project), f"{package} has no upper bound"
        assert version(package)


def test_large_late_output_arrives(tmp_path, nbval):  # N-O3
    cell = "import time\ntime.sleep(1)\nprint('x' * 79 + '\\n' + 'y\\n' * 100_000, end='')"
    write(tmp_path, "a.ipynb", cell)
    code, output = nbval("--nbval-cell-timeout=60", "--nbval-kernel-startup-timeout=180")
    assert code == 0, output


def test_a_new_warning_and_a_progress_bar_do_not_break_a_notebook(tmp_path, nbval):  # N-O4
    bar = "import sys\nfor i in range(3):\n    print(f'\\r{i}/3', end='', file=sys.stderr)\nprint('done')"
    warning = "import warnings\nwarnings.warn('old', DeprecationWarning)\nprint('done')"

    def forget_stderr(notebook):
        for cell in notebook.cells:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]

    write(tmp_path, "a.ipynb", bar, warning, edit=forget_stderr)
    code, output = nbval()
    assert code == 0, output


def test_a_cell_that_should_fail_and_no_longer_does_is_noticed(tmp_path, nbval):  # N-O5
    """Expected failures are asserted in code: the else branch fails when the kernel under test was repaired."""
    expects = ("try:\n    {}\nexcept ZeroDivisionError:\n    print('refused')\n"
               "else:\n    raise AssertionError('no error')")
    write(tmp_path, "a.ipynb", expects.format("1 / 0"))
    assert nbval()[0] == 0

    def repair(notebook):
        notebook.cells[0].source = expects.format("1 / 1")

    write(tmp_path, "a.ipynb", expects.format("1 / 0"), edit=repair)
    assert nbval()[0] == 1


def test_no_notebook_relies_on_the_tag_that_passes_without_an_exception():  # N-O5
    for source in notebooks.sources():
        for cell in notebooks.from_source(source.read_text(encoding="utf-8")).cells:
            assert not {"raises-exception", "nbval-raises-exception"} & set(cell.metadata.get("tags", ())), source.name
