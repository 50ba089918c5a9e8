"""Run the cells of one notebook in a fresh kernel; a failing cell is told apart from a broken runner."""

import re
import sys
import time
from dataclasses import dataclass

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from ssmlab.lab.kernel_manager import AsyncSocketFileKernelManager

CELL_LIMIT = 600  # [s]; the slowest cell today takes a few seconds
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class ThisPython(KernelSpecManager):
    """Always the Python that runs us, whatever kernels the machine has installed under the same name."""

    def get_kernel_spec(self, kernel_name):
        return KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                          display_name="Python 3 (ipykernel)", language="python")


@dataclass(frozen=True)
class Failure:
    """The cell that failed (counted from 1 among all cells), the error's last words, and its whole traceback."""

    cell: int
    error: str
    traceback: str


def execute(notebook, folder):
    """Run all cells in place; returns (seconds, Failure or None). Relative paths start in `folder`."""
    client = NotebookClient(notebook, timeout=CELL_LIMIT, kernel_name="python3", record_timing=False,
                            kernel_manager_class=AsyncSocketFileKernelManager, coalesce_streams=True,
                            resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    client.km.kernel_spec_manager = ThisPython()
    start = time.perf_counter()
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return time.perf_counter() - start, _failure(notebook, error)
    return time.perf_counter() - start, None


def _failure(notebook, error):
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                traceback = ANSI.sub("", "\n".join(output.traceback))
                return Failure(number, f"{output.ename}: {ANSI.sub('', output.evalue)}", traceback)
    reached = [number for number, cell in enumerate(notebook.cells, start=1) if cell.get("execution_count")]
    return Failure(max(reached, default=0) + 1, f"{type(error).__name__}: {error}".strip(), str(error))
