"""NVIDIA's own front end, which needs no GPU: kernels_cu compiles for every architecture, and its words are understood.

tests/right, tests/mutants and the ladder are compiled by test_mutants.py and test_ladder.py in the same way. Any other
file of kernels_cu says in its header how it is compiled, one line for each set of options:

    // compile: -DELEMENT_FLOAT -DTHREADS=128
"""

import re

import kernel_files as files
import nvrtc
import pytest

from ssmlab import gpu, kernels
from ssmlab.simt.messages import CompileError

OTHERS = [name for name in kernels.names() if kernels.path(name) not in files.LADDER]
COMPILE = re.compile(r"^// compile: *(.+)$", re.MULTILINE)


def options_of(name):
    found = [line.split() for line in COMPILE.findall(kernels.path(name).read_text(encoding="utf-8"))]
    assert found, f"{name}: say in its header how it is compiled, `// compile: -D…`"
    return found


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("name", OTHERS)
def test_every_kernel_compiles_for_every_architecture(name, architecture):
    for options in options_of(name):
        nvrtc.ptx(kernels.source(name), name, options, architecture)


def refused(text, names=(), options=()):
    """What ssmlab makes of NVRTC's log, given the text as RawKernel gives it to CuPy."""
    api = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="CuPy is not installed")
    program = api.createProgram(f'#line 1 "kernel.cu"\n{text}', "/somewhere/0a1b.cu", [], [])
    for name in names:
        api.addNameExpression(program, name)
    with pytest.raises(api.NVRTCError):
        api.compileProgram(program, ["-arch=compute_90", *options])
    return gpu.compile_error(api.getProgramLog(program), text, "kernel.cu", names)


def test_errors_of_the_gpu_compiler_have_the_learners_line_and_column():
    text = '// first\nextern "C" __global__ void k(float* x) {\n\t  float y = wrong;\n    later(1, "a");\n}\n'
    text += 'static_assert(sizeof(int) == 5, "five");\n'
    error = refused(text)
    assert isinstance(error, CompileError)
    assert [(p.filename, p.line, p.column) for p in error.problems] == [
        ("kernel.cu", 3, 14),
        ("kernel.cu", 4, 5),
        ("kernel.cu", 6, 1),
    ]
    assert str(error).splitlines()[:3] == [
        'kernel.cu:3:14: error: identifier "wrong" is undefined',
        "    \t  float y = wrong;",
        "    \t            ^",
    ]


def test_an_error_in_a_pasted_file_names_that_file():
    error = refused('#line 1 "pair.cuh"\n\nint f() { return wrong; }\n#line 2 "kernel.cu"\nint x;\n')
    assert (error.filename, error.line) == ("pair.cuh", 2) and "return wrong" in str(error)


def test_a_wrong_name_expression_is_named_on_a_gpu_too():
    error = refused("template <class T> __global__ void k(T* x) {}\n", names=("k<int>", "k<flaot>"))
    assert "name expression 'k<flaot>'" in str(error) and "flaot" in error.message


def test_a_missing_cuda_header_says_what_to_install():
    error = refused("#include <cuda_fp16.h>\n")
    assert isinstance(error, RuntimeError) and not isinstance(error, CompileError)
    assert "does not find the CUDA header 'cuda_fp16.h' that line 1 of kernel.cu asks for" in str(
        error
    ) and "[ctk]" in str(error)


def test_a_missing_header_of_ones_own_is_a_compile_error():
    error = refused('#include "mine.h"\n')
    assert isinstance(error, CompileError) and error.line == 1


def test_other_failures_keep_the_compilers_words():
    assert "the GPU compiler failed: nvrtc: error: invalid value" in str(
        gpu.compile_error("nvrtc: error: invalid value\n", "", "kernel.cu")
    )
