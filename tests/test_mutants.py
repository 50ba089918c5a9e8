"""The checked mode against kernels that are wrong on purpose, and against right ones near them.

Each mutant must be caught with the kind and the lines that its markers name and nothing else; each right kernel must
stay silent and give the right numbers. kernel_files.py says how the files are read.
"""
import difflib
import re
import shutil

import kernel_files as files
import nvrtc
import pytest

from ssmlab.simt import toolchain

ORDERS = {
    "forward": dict(lane_order="forward"),
    "reverse": dict(lane_order="reverse"),
    "random": dict(lane_order="random", seed=1),
}
BLOCK_ORDERS = {  # right kernels must not depend on these either; a mutant's header may ask for its own
    "blocks reversed": dict(block_order="reverse"),
    "blocks random, three alive": dict(block_order="random", resident=3, seed=2),
}
RIGHT = files.all_cases(files.RIGHT)
MUTANTS = files.all_cases(files.MUTANTS)
CAUGHT = [case for case in MUTANTS if case.marks and "wrong-result" not in case.marks]
WRONG = [case for case in MUTANTS if "wrong-result" in case.marks]
REFUSED = [case for case in MUTANTS if "refused" in case.header]


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


def named_lines(report):
    """{kind: lines named by its findings}."""
    kinds = {}
    for finding in report.findings:
        kinds.setdefault(finding.kind, set()).update(line for line in (finding.line, finding.other_line) if line)
    return kinds


def assert_caught(case, report):
    assert named_lines(report) == case.marks, f"{case.id}: expected {case.marks}\n{report}"
    severities = {finding.severity for finding in report.findings}
    assert severities == {"warning"} if case.header.get("severity") == "warning" else "error" in severities, str(report)


def test_there_are_enough_of_both():
    assert len(files.MUTANTS) >= 30 and len(files.RIGHT) >= 15
    assert len(CAUGHT) + len(WRONG) + len(REFUSED) == len(MUTANTS)


@each(MUTANTS)
def test_a_mutant_is_one_edit_away_from_its_right_kernel(case):
    right = (files.TESTS.parent / case.header["base"]).read_text(encoding="utf-8")
    name = files.KERNEL.search(right)[1]
    before = files.code_lines(re.sub(rf"\b{name}\(", case.kernel + "(", right))
    after = files.code_lines(case.path.read_text(encoding="utf-8"))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    launch_differs = [line for line in right.splitlines() if line.startswith(("// launch:", "// args:"))] != [
        line for line in case.path.read_text().splitlines() if line.startswith(("// launch:", "// args:"))
    ]
    assert 0 < len(changed) <= 9 or (not changed and launch_differs), "\n".join(changed)
    assert files.KERNEL.search(case.path.read_text())[1] == case.path.stem


@each(CAUGHT)
def test_each_mutant_is_caught_with_its_kind_and_lines(case):
    assert_caught(case, files.check(case))


@pytest.mark.parametrize("order", ["reverse", "random"])
@each(CAUGHT)
def test_a_verdict_does_not_depend_on_the_order_of_lanes(case, order):
    assert_caught(case, files.check(case, **ORDERS[order]))


@each(WRONG)
def test_wrong_numbers_without_a_hazard_give_no_finding_but_wrong_numbers(case):
    report = files.check(case)
    assert report.ok and not report.findings, str(report)
    assert case.first_bad(files.results(case, report)) == case.header["first-bad"]


@each(REFUSED)
def test_a_launch_that_no_gpu_accepts_is_refused_with_the_number(case):
    with pytest.raises(ValueError, match=case.header["refused"]):
        files.check(case)


@pytest.mark.parametrize("order", [*ORDERS, *BLOCK_ORDERS])
@each(RIGHT)
def test_a_right_kernel_is_silent_and_right_in_every_order(case, order):
    report = files.check(case, **{**ORDERS, **BLOCK_ORDERS}[order])
    assert report.ok and not report.findings, str(report)
    assert case.first_bad(files.results(case, report)) is None


@each(RIGHT)
def test_a_right_kernel_is_right_without_checks_too(case):
    assert case.first_bad(files.run(case, mode="native")) is None


@pytest.mark.gpu
@each(RIGHT)
def test_a_right_kernel_is_right_on_a_gpu(case):
    import cupy

    assert case.first_bad(files.run(case, to_device=cupy.asarray)) is None


@each([case for case in RIGHT if case.counts])
def test_the_price_of_an_access_pattern_is_counted(case):
    report = files.check(case)
    counted = {
        "conflicts": sum(row.bank_conflicts for row in report.lines if row.space == "shared"),
        "read-sectors": sum(row.sectors for row in report.lines if row.space == "global" and row.access == "read"),
    }
    assert {name: counted[name] for name in case.counts} == case.counts


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_text_is_cuda(architecture):
    seen = {(case.path, case.options): case for case in RIGHT + MUTANTS}
    for case in seen.values():
        nvrtc.ptx(case.source(), case.path.name, case.options, architecture)


def compiler_command(name):
    """What $CXX must be for this compiler, or a skip that says which one is missing."""
    zig = toolchain.zig_program()
    command = (zig and f"{zig} c++") if name == "zig" else shutil.which(name)
    if not command:
        pytest.skip(f"{name} is not installed")
    return command


@pytest.mark.parametrize("name", ["clang++", "zig"])
@each([case for case in RIGHT + CAUGHT + WRONG if case.number == 0])
def test_a_report_is_the_same_from_every_compiler(case, name, monkeypatch):
    reports = []
    for compiler in ("g++", name):
        monkeypatch.setenv("CXX", compiler_command(compiler))
        reports.append(files.check(case))
    assert str(reports[0]) == str(reports[1])
    assert reports[0].findings == reports[1].findings
    assert reports[0].lines == reports[1].lines
