"""Every kernel of dialect.cu against NumPy: checked by each compiler that is here, native, and on a GPU."""

import numpy as np
import pytest
from dialect_case import EXPRESSIONS, OPTIONS, TEXT
from dialect_cases import FEATURES
from dialect_compilers import compiler  # noqa: F401 (a fixture)
from dialect_language import SAID

import ssmlab
from ssmlab.simt.report import KernelError

_modules: dict[bool, ssmlab.RawModule] = {}


def kernel(name, cooperative=False):
    """A kernel of dialect.cu; the text is translated once."""
    if cooperative not in _modules:
        _modules[cooperative] = ssmlab.RawModule(
            code=TEXT,
            options=OPTIONS,
            name_expressions=EXPRESSIONS,
            enable_cooperative_groups=cooperative,
            filename="dialect.cu",
        )
    return _modules[cooperative].get_function(name)


def checked(case):
    """The arguments after a checked run that found nothing."""
    report = ssmlab.check(kernel(case.kernel, case.cooperative), case.grid, case.block, case.args, case.shared)
    assert report.ok, str(report)
    return report.arrays


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.usefixtures("compiler")
def test_checked_on_a_cpu_it_is_right_and_nothing_is_found(feature):
    for case in FEATURES[feature]():
        case.compare(checked(case))


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.usefixtures("compiler")
def test_native_on_a_cpu_it_is_right(feature, monkeypatch):
    for case in FEATURES[feature]():
        if case.cooperative:
            pytest.skip("native mode runs blocks one after another: it has no barrier of the grid")
        launched = kernel(case.kernel, case.cooperative)
        monkeypatch.setattr(launched, "mode", "native")
        launched(case.grid, case.block, case.args, shared_mem=case.shared)
        case.compare(case.args)


@pytest.mark.gpu
@pytest.mark.parametrize("feature", FEATURES)
def test_on_a_gpu_it_is_right(feature):
    import cupy

    for case in FEATURES[feature]():
        args = [cupy.asarray(value) if isinstance(value, np.ndarray) else value for value in case.args]
        kernel(case.kernel, case.cooperative)(case.grid, case.block, args, shared_mem=case.shared)
        case.compare([cupy.asnumpy(value) if isinstance(value, cupy.ndarray) else value for value in args])


BIG, REALS = 1234567890123456789, np.array([1.5, -0.25], "float32")


@pytest.mark.usefixtures("compiler")
def test_printf_writes_what_c_would_write():
    report = ssmlab.check(kernel("say"), (1,), (1,), (BIG, REALS))
    assert report.printf == SAID


@pytest.mark.usefixtures("compiler")
def test_printf_of_all_threads_arrives_whole():
    report = ssmlab.check(kernel("say_each"), (2,), (3,), (0,))
    lines = report.printf.splitlines()
    assert sorted(lines) == [f"block {block} thread {thread}" for block in range(2) for thread in range(3)]


@pytest.mark.gpu
def test_printf_on_a_gpu_writes_the_same(capfd):
    import cupy

    kernel("say")((1,), (1,), (BIG, cupy.asarray(REALS)))
    cupy.cuda.runtime.deviceSynchronize()
    assert capfd.readouterr().out == SAID


@pytest.mark.usefixtures("compiler")
def test_an_assert_that_holds_is_silent_and_one_that_fails_names_its_line():
    good = np.arange(32, dtype="int32")
    out = np.zeros(32, "int32")
    kernel("asserts")((1,), (32,), (good, out))
    np.testing.assert_array_equal(out, good)
    line = next(n for n, text in enumerate(TEXT.splitlines(), 1) if '&& "in range"' in text)
    with pytest.raises(KernelError) as error:
        kernel("asserts")((1,), (32,), (good + 990, out))
    assert error.value.finding.kind == "assert"
    assert error.value.finding.line == line
