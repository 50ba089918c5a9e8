"""GPU tests are skipped, and counted, where no GPU can be used."""

import pytest


def pytest_collection_modifyitems(items):
    gpu_tests = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_tests:
        return
    from ssmlab.lab.environment import device

    if device() == "cuda":
        return
    for item in gpu_tests:
        item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_terminal_summary(terminalreporter):
    skipped = [report for report in terminalreporter.getreports("skipped") if "needs a GPU" in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"GPU tests skipped because there is no GPU here: {len(skipped)}")
