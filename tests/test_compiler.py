"""Compilers, the build cache, compile errors in the learner's own lines, and what a library tells of its kernels."""

import os
import shutil
import stat
import sys

import numpy as np
import pytest

import ssmlab
from ssmlab.simt import cache, compiler, includes, source, toolchain
from ssmlab.simt.messages import CompileError

COMPILERS = {name: name for name in ("g++", "clang++") if shutil.which(name)}
if toolchain.zig_program():
    COMPILERS["zig"] = f"{toolchain.zig_program()} c++"


@pytest.fixture(params=sorted(COMPILERS))
def each_compiler(request, monkeypatch):
    monkeypatch.setenv("CXX", COMPILERS[request.param])
    return request.param


def build(text, options=(), names=(), mode="checked", filename="kernel.cu"):
    return compiler.build(source.translate(text, filename, options, names), mode)


def refused(text, **kwargs):
    with pytest.raises(CompileError) as caught:
        build(text, **kwargs)
    told = str(caught.value)
    assert "simt" not in told and "thunk" not in told and ".cpp" not in told, told
    return caught.value


# ---- compile errors


def test_an_error_names_the_learners_line_and_column_under_a_caret(each_compiler):
    text = '// first\nextern "C" __global__ void k(float* x) {\n\tint i = 1;  /* é */ x[i] = wrong + 1;\n}\n'
    error = refused(text)
    assert (error.filename, error.line, error.column) == ("kernel.cu", 3, text.split("\n")[2].index("wrong") + 1)
    shown = str(error).splitlines()
    assert "wrong" in shown[0] and shown[1] == "    \tint i = 1;  /* é */ x[i] = wrong + 1;"
    assert shown[2].index("^") == shown[1].index("wrong")


def test_an_error_behind_a_shared_declaration_keeps_its_column(each_compiler):
    text = 'extern "C" __global__ void k(float* x) {\n  __shared__ float s[4]; s[0] = wrong;\n}\n'
    error = refused(text)
    assert (error.line, error.column) == (2, text.split("\n")[1].index("wrong") + 1)


@pytest.mark.parametrize("mode", ["checked", "native"])
def test_a_char_has_a_sign_on_every_machine(mode, each_compiler):
    text = 'extern "C" __global__ void k(int* x, const char* given) { x[0] = given[0]; x[1] = (char)200 < 0; }'
    assert build(text, mode=mode).kernel("k").parameters[1].type.kind == "int"
    x = np.zeros(2, np.int32)
    ssmlab.RawKernel(text, "k", mode=mode)((1,), (1,), (x, np.array([-3], np.int8)))
    assert x.tolist() == [-3, 1]


@pytest.mark.parametrize(
    "call, notes",
    [("f(1)", 2), ("max(1.0f, 1)", 0), ("half(2.0f) + 1", 0)],
)
def test_an_ambiguous_call_shows_at_most_two_candidates(call, notes, each_compiler):
    overloads = "".join(
        f"__device__ float f({kind} a) {{ return a; }}\n" for kind in ("float", "double", "long", "short")
    )
    text = f'{overloads}#include <cuda_fp16.h>\nextern "C" __global__ void k(float* x) {{\n  x[0] = {call};\n}}\n'
    error = refused(text)
    assert error.line == 7 and "ambiguous" in error.message
    assert len(error.problems) == 1 and len(error.problems[0].notes) == notes


def test_several_errors_come_in_the_order_of_the_text(each_compiler):
    error = refused(
        'static_assert(TILE == 4, "TILE: four steps");\nextern "C" __global__ void k() { wrong; }\n#error stop here\n',
        options=("-DTILE=5",),
    )
    assert [problem.line for problem in error.problems] == [1, 2, 3]
    assert "TILE: four steps" in error.problems[0].message and "stop here" in error.problems[2].message


def test_an_error_inside_a_template_names_the_line_and_who_asked_for_it(each_compiler):
    template = "template <class T> __device__ T half(T x) {\n  return x.half;\n}\n"
    text = template + 'extern "C" __global__ void k(float* x) {\n  x[0] = half(x[0]);\n}\n'
    error = refused(text)
    assert error.line == 2 and "return x.half;" in str(error)
    assert "kernel.cu:5" in str(error) and "the template is used here" in str(error)


def test_an_error_that_a_header_notices_is_shown_at_the_learners_line(each_compiler):
    error = refused('extern "C" __global__ void k(float* x) {\n  int y = 1;\n  atomicAdd(x, "one");\n}\n')
    assert error.line == 3 and "atomicAdd" in str(error)


def test_a_shared_array_needs_a_constant_size(each_compiler):
    error = refused('extern "C" __global__ void k(int n) {\n  __shared__ float s[n];\n}\n')
    assert error.line == 2
    assert "the size of __shared__ s must be known when the kernel is compiled" in error.message


def test_an_array_of_variable_length_is_refused_as_by_cuda(each_compiler):
    assert refused('extern "C" __global__ void k(int n) {\n  float s[n];\n  s[0] = n;\n}\n').line == 2


def test_a_function_that_is_never_defined_is_named(each_compiler):
    error = refused('__device__ float far(float x);\nextern "C" __global__ void k(float* x) { x[0] = far(x[0]); }\n')
    assert error.line == 1 and "'far' is declared but never defined" in error.message


def test_a_wrong_name_expression_is_named(each_compiler):
    error = refused("template <class T> __global__ void k(T* x) { x[0] = 1; }\n", names=("k<flaot>",))
    assert "name expression 'k<flaot>'" in str(error)


def test_an_error_in_a_pasted_file_names_that_file(each_compiler, tmp_path):
    (tmp_path / "pair.cuh").write_text("#pragma once\n__device__ int pair() { return wrong; }\n")
    error = refused(includes.paste('#include "pair.cuh"\nextern "C" __global__ void k() {}\n', "kernel.cu", [tmp_path]))
    assert (error.filename, error.line) == ("pair.cuh", 2) and "return wrong" in str(error)


# ---- what a library tells

PARAMETERS = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
typedef float real;
struct Pair { float a, b; };
enum Mode { UP, DOWN };
template <class T, int N> __global__ void __launch_bounds__(N * 2) generic(T* x, const T y) { x[0] = y; }
extern "C" __global__ __launch_bounds__(TILE) void k(
    const real* a, Pair p, const float4* v, unsigned long long z, const __half* h, __nv_bfloat16* b, const void* any,
    Mode m, bool flag, float** rows, volatile int* spin, Pair* pairs, signed char c, float2 two) {}
"""


def test_exact_types_of_all_parameters_are_known(each_compiler):
    library = build(PARAMETERS, options=("-DTILE=128",), names=("generic<double, 32>",))
    kernel = library.kernel("k")
    assert [p.name for p in kernel.parameters] == "a p v z h b any m flag rows spin pairs c two".split()
    assert [(p.pointer, p.const, p.type.kind, p.type.size, p.type.lanes) for p in kernel.parameters] == [
        (True, True, "float", 4, 1),
        (False, False, "struct", 8, 1),
        (True, True, "float", 16, 4),
        (False, False, "uint", 8, 1),
        (True, True, "half", 2, 1),
        (True, False, "bfloat16", 2, 1),
        (True, True, "void", 0, 1),
        (False, False, "int", 4, 1),
        (False, False, "bool", 1, 1),
        (True, False, "pointer", 8, 1),
        (True, False, "int", 4, 1),
        (True, False, "struct", 8, 1),
        (False, False, "int", 1, 1),
        (False, False, "float", 8, 2),
    ]
    assert kernel.parameters[3].type.name == "unsigned long long" and kernel.launch_bounds == 128
    generic = library.kernel("generic<double,32>")
    assert [p.ctype for p in generic.parameters] == ["double*", "double"] and generic.launch_bounds == 64
    assert library.thunk("k") != library.thunk("generic<double, 32>") != 0
    with pytest.raises(KeyError, match="its kernels: generic<double, 32>, k"):
        library.kernel("generic<float, 32>")


@pytest.mark.parametrize("mode", ["checked", "native"])
def test_variables_in_device_memory_can_be_reached(each_compiler, mode):
    variables = "__constant__ float w[3] = {1, 2, 3};\nnamespace lab { __device__ int n = 7; }\n"
    text = variables + 'extern "C" __global__ void k() {}\n'
    library = build(text, mode=mode)
    assert np.ndarray((3,), np.float32, compiler.global_buffer(library, "w")).tolist() == [1, 2, 3]
    assert np.ndarray((), np.int32, compiler.global_buffer(library, "lab::n")) == 7
    assert library.global_memory("w")[1:] == (12, True) and library.global_memory("lab::n")[1:] == (4, False)
    with pytest.raises(KeyError, match="its variables: lab::n, w"):
        library.global_memory("m")


# ---- cache and compilers

PLAIN = 'extern "C" __global__ void k(float* x) { x[0] = VALUE; }\n'


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SSMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler, "_loaded", {})
    return tmp_path / "cache"


def libraries(folder):
    return sorted(path.name for path in folder.glob("kernel-*"))


def test_a_text_is_compiled_once_for_each_text_options_and_mode(empty_cache):
    first = build(PLAIN, ("-DVALUE=1",))
    assert build(PLAIN, ("-DVALUE=1",)) is first and len(libraries(empty_cache)) == 1
    compiler._loaded.clear()
    assert build(PLAIN, ("-DVALUE=1",)).path == first.path and len(libraries(empty_cache)) == 1
    build(PLAIN, ("-DVALUE=2",))
    build(PLAIN, ("-DVALUE=1",), mode="native")
    build(PLAIN + " ", ("-DVALUE=1",))
    assert len(libraries(empty_cache)) == 4
    assert not list(empty_cache.glob("build-*")), "no temporary folder stays"


def test_a_failed_build_leaves_nothing_behind(empty_cache):
    refused(PLAIN)
    assert not libraries(empty_cache) and not list(empty_cache.glob("build-*"))


def test_another_header_of_the_dialect_means_another_library(empty_cache, monkeypatch, tmp_path):
    copy = tmp_path / "simt"
    for folder in ("include", "runtime"):
        shutil.copytree(compiler.HERE / folder, copy / folder)
    monkeypatch.setattr(compiler, "HERE", copy)
    build(PLAIN, ("-DVALUE=1",), mode="native")
    header = copy / "include" / "simt.h"
    header.write_text(header.read_text() + "// edited\n")
    compiler._loaded.clear()
    build(PLAIN, ("-DVALUE=1",), mode="native")
    assert len(libraries(empty_cache)) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SSMLAB_CACHE", str(tmp_path / "cache"))
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(RuntimeError, match="cache folder .* cannot be written .* SSMLAB_CACHE"):
        cache.folder()


def test_a_cache_where_a_file_stands_is_named(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("SSMLAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(RuntimeError, match="SSMLAB_CACHE"):
        cache.folder()


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG folders are Linux's")
def test_the_cache_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("SSMLAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "ssmlab"


def test_old_libraries_are_removed_when_there_are_too_many(monkeypatch, tmp_path):
    monkeypatch.setenv("SSMLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_MOST_FILES", 8)
    for age in range(12):
        (tmp_path / f"kernel-{age}.so").write_text("")
        os.utime(tmp_path / f"kernel-{age}.so", (age, age))
    cache.prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"kernel-{age}.so" for age in range(6, 12))


def test_without_a_compiler_one_message_says_what_to_install(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(toolchain, "zig_program", lambda: None)
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler was found.*ziglang.*apt install g\+\+.*CXX"):
        build(PLAIN, ("-DVALUE=1",))


def test_zig_serves_where_no_other_compiler_is(monkeypatch):
    if toolchain.zig_program() is None:
        pytest.skip("the package ziglang is not installed")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    toolchain._find.cache_clear()
    assert toolchain.find().kind == "zig"


def test_a_compiler_named_in_cxx_must_exist(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    with pytest.raises(RuntimeError, match="CXX is 'no-such-compiler -O3': there is no such program"):
        toolchain.find()


def test_a_program_that_is_no_compiler_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("SSMLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", sys.executable)
    with pytest.raises(RuntimeError, match="neither GCC nor Clang"):
        toolchain.find()


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode is 'fast'"):
        build(PLAIN, ("-DVALUE=1",), mode="fast")
