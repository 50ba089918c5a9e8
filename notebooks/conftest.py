"""How strict nbval reads these notebooks: every cell counted, one kernel a notebook, and a failure says what to do."""

from pathlib import Path

import nbformat
import pytest
from nbval.plugin import IPyNbCell

HELP = """\
A cell no longer prints what the committed notebook shows.
- If you changed the code or the text: run `make notebooks`, look at the difference, and commit the .ipynb files.
- If you edited the .ipynb itself: people edit notebooks/source/NN_topic.py; `make notebooks` rebuilds the rest.
- If a time or a device name differs: print it in a cell tagged nbval-ignore-output."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    # Cells of one notebook share a kernel, so a parallel run must hand out whole files (nbval issues 121 and 205).
    if getattr(config.option, "numprocesses", None) and config.option.dist in ("no", "load", "worksteal"):
        config.option.dist = "loadfile"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not config.option.nbval:
        return
    found = {}
    for item in items:
        if isinstance(item, IPyNbCell):
            found[item.parent.path] = found.get(item.parent.path, 0) + 1
            # Library warnings and progress bars go to stderr and come and go with versions.
            if "stderr" not in item.parent.skip_compare:
                item.parent.skip_compare += ("stderr",)
            item.output_timeout = 60  # [s] for late output on a slow machine; nbval waits 5 (its issue 231)
    if config.option.collectonly or any("::" in argument for argument in config.args) or config.option.keyword:
        return
    for path in _wanted(config):
        expected = sum(cell.cell_type == "code" for cell in nbformat.read(path, as_version=4).cells)
        if found.get(path, 0) != expected:
            raise pytest.UsageError(f"{path.name} has {expected} code cells, nbval collected {found.get(path, 0)}: "
                                    "the versions of pytest and nbval do not work together (see constraints.txt)")


def _wanted(config):
    """The notebooks that the command line asks for."""
    for argument in config.args:
        path = Path(argument)
        path = path if path.is_absolute() else config.invocation_params.dir / path
        if path.suffix == ".ipynb":
            yield path
        elif path.is_dir():
            yield from (file for file in sorted(path.rglob("*.ipynb"))
                        if not any(part.startswith(".") or part == "build" for part in file.relative_to(path).parts))


def pytest_terminal_summary(terminalreporter):
    failed = [report for report in terminalreporter.getreports("failed") if ".ipynb" in report.nodeid]
    if failed:
        terminalreporter.section("notebooks", red=True)
        terminalreporter.write_line(HELP)
    cells = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)
             if ".ipynb" in report.nodeid and report.when == "call"]
    if cells:
        terminalreporter.write_line(f"notebook cells run and compared: {len(cells)}")
