"""A loop that holds nothing and never ends is found in checked mode like any other, at its own line."""

import numpy as np
import pytest

import ssmlab
from ssmlab.simt import CompileError, source

LOOPS = ["while (true) {}", "while (true);", "while (1) ;", "for (;;) {}", "for (;;);", "do {} while (true);",
         "do { } while (1);", "while ( /* for ever */ true ) { }"]
TEXT = """extern "C" __global__ void stuck(int* y) {{
    y[threadIdx.x] = 1;
    if (threadIdx.x == 5) {{
        {loop}
    }}
}}
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_an_empty_endless_loop_is_a_finding_at_its_line(loop, compiler):
    report = ssmlab.check(ssmlab.RawKernel(TEXT.format(loop=loop), "stuck"), 1, 32, (np.zeros(32, np.int32),))
    assert [(finding.kind, finding.line) for finding in report.findings] == [("endless-loop", 4)]


def test_a_message_still_names_the_learners_column():
    with pytest.raises(CompileError, match="kernel.cu:4:25"):
        ssmlab.RawKernel(TEXT.format(loop="while (true) {} missing();"), "stuck")(1, 32, (np.zeros(32, np.int32),))


def test_loops_with_a_body_or_another_condition_stay_as_they_are():
    text = TEXT.format(loop="while (true) { break; } for (;;) break; while (y[0]); for (int i = 0; i < 3; i++) {}")
    assert "simt_always" not in source.translate(text).text


@pytest.fixture(params=["g++", "clang++", "zig"])
def compiler(request, monkeypatch):
    import shutil

    from ssmlab.simt import toolchain

    if request.param == "zig":
        if not toolchain.zig_program():
            pytest.skip("ziglang is not installed")
        monkeypatch.setenv("CXX", f"{toolchain.zig_program()} c++")
    elif not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    else:
        monkeypatch.setenv("CXX", request.param)
