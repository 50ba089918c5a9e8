"""How strict nbval reads these notebooks: every cell counted, one kernel a notebook, and a failure says what to do."""

import nbformat
import nbval.kernel
import pytest
from nbval.plugin import IPyNbCell

from ssmlab.lab.kernel_manager import SocketFileKernelManager

nbval.kernel.KernelManager = SocketFileKernelManager  # nbval has no option for it

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


def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, IPyNbCell):
            # Library warnings and progress bars go to stderr and come and go with versions.
            if "stderr" not in item.parent.skip_compare:
                item.parent.skip_compare += ("stderr",)
            item.output_timeout = 60  # [s] for late output on a slow machine; nbval waits 5 (its issue 231)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """A cell that nobody ran is a failure: versions of pytest and nbval that do not fit collect none and stay green."""
    config = session.config
    if not config.option.nbval or config.option.collectonly or hasattr(config, "workerinput"):
        return
    if config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args):
        return
    ran = _cells_that_ran(config)
    config.lost_cells = [(path.name, len(cells), len(ran.get(path, ()))) for path, cells in _wanted(config)
                         if len(cells) != len(ran.get(path, ()))]
    if config.lost_cells and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    reports = _reports(terminalreporter)
    if any(report.failed for report in reports):
        terminalreporter.section("notebooks", red=True)
        terminalreporter.write_line(HELP)
    for name, there, ran in getattr(config, "lost_cells", ()):
        terminalreporter.write_line(f"{name} has {there} code cells, {ran} of them ran: do the versions of pytest and "
                                    "nbval work together? constraints.txt has a pair that does", red=True)
    if reports:
        terminalreporter.write_line(f"notebook cells run and compared: {len({report.nodeid for report in reports})}")


def _reports(terminalreporter):
    return [report for outcome in ("passed", "failed", "skipped", "xfailed", "xpassed")
            for report in terminalreporter.getreports(outcome) if ".ipynb::" in report.nodeid]


def _cells_that_ran(config):
    """{path of a notebook: ids of its cells that have a report}."""
    ran = {}
    for report in _reports(config.pluginmanager.get_plugin("terminalreporter")):
        path = (config.rootpath / report.nodeid.split("::")[0]).resolve()
        ran.setdefault(path, set()).add(report.nodeid)
    return ran


def _wanted(config):
    """(path, code cells) of each notebook that the command line asks for."""
    for argument in config.args:
        path = (config.invocation_params.dir / argument).resolve()
        inside = sorted(path.rglob("*.ipynb")) if path.is_dir() else [path] if path.suffix == ".ipynb" else []
        for file in inside:
            if not any(part.startswith(".") or part == "build" for part in file.relative_to(path).parts):
                cells = nbformat.read(file, as_version=4).cells
                yield file, [cell for cell in cells if cell.cell_type == "code"]
