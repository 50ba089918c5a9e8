"""The translation of CUDA text: what it makes of declarations, which lines it keeps, and what it refuses."""

import re

import pytest

from ssmlab.simt import includes, source
from ssmlab.simt.messages import CompileError
from ssmlab.simt.options import host_options
from ssmlab.simt.outline import Outline
from ssmlab.simt.signature import named_type
from ssmlab.simt.tokens import Text

KERNEL = 'extern "C" __global__ void k(float* x, int n) {\n%s\n}\n'


def inside(body, **kwargs):
    return source.translate(KERNEL % body, **kwargs)


def line_of(translation, number):
    """Line `number` of the learner's text, translated."""
    return translation.text.split('#line 1 "kernel.cu"\n')[1].split("\n")[number - 1]


@pytest.mark.parametrize(
    "declaration, translated",
    [
        ("__shared__ float s[256];", "auto& s = simt_shared<float[(256)], 0, simt_here_0>();"),
        ("__shared__ float s[2][TILE + 1];", "auto& s = simt_shared<float[(2)][(TILE + 1)], 0, simt_here_0>();"),
        ("__shared__ int total;", "auto& total = simt_shared<int, 0, simt_here_0>();"),
        (
            "static __shared__ unsigned long long s[4];",
            "auto& s = simt_shared<unsigned long long[(4)], 0, simt_here_0>();",
        ),
        ("volatile __shared__ float s[4];", "auto& s = simt_shared<volatile float[(4)], 0, simt_here_0>();"),
        ("__shared__ volatile float s[4];", "auto& s = simt_shared<volatile float[(4)], 0, simt_here_0>();"),
        ("float __shared__ s[4];", "auto& s = simt_shared<float[(4)], 0, simt_here_0>();"),
        (
            "__shared__ ns::Pair<float, 2> s[A > B ? A : B];",
            "simt_shared<ns::Pair<float, 2>[(A > B ? A : B)], 0, simt_here_0>();",
        ),
        (
            "__shared__ typename Scan<T, 4>::Storage s;",
            "auto& s = simt_shared<typename Scan<T, 4>::Storage, 0, simt_here_0>();",
        ),
        (
            "__shared__ float *p, q[2];",
            "auto& p = simt_shared<float *, 0, simt_here_0>(); auto& q = simt_shared<float[(2)], 1, simt_here_0>();",
        ),
        ("__shared__ alignas(16) float s[4];", "struct alignas ( 16 ) simt_aligned_0 { float simt_value[(4)]; };"),
        ("__shared__ struct { float a, b; } s[4];", "struct simt_struct_0 { float a, b; };"),
        ("extern __shared__ float s[];", "float* const s = (float*)simt_dynamic_shared();"),
        (
            "extern __shared__ __align__(16) unsigned char s[];",
            "unsigned char* const s = (unsigned char*)simt_dynamic_shared();",
        ),
        ("extern volatile __shared__ int s[];", "volatile int* const s = (volatile int*)simt_dynamic_shared();"),
        ("extern __shared__ float s[][33];", "float (* const s)[(33)] = (float (*)[(33)])simt_dynamic_shared();"),
    ],
)
def test_a_shared_declaration_becomes_a_reference_into_the_block(declaration, translated):
    assert translated in line_of(inside(declaration), 2)


def test_each_array_is_listed_with_its_index_name_and_line():
    translation = inside("__shared__ float a[4], b;\n extern __shared__ int d[];\n __shared__ double c[2][3];")
    assert [(s.index, s.name, s.line, s.dynamic) for s in translation.shared] == [
        (0, "a", 2, False),
        (1, "b", 2, False),
        (-1, "d", 3, True),
        (2, "c", 4, False),
    ]


def test_two_declarations_on_one_line_are_both_translated():
    line = line_of(inside("__shared__ float a[4]; __shared__ int b;"), 2)
    assert "auto& a" in line and "auto& b" in line and "__shared__" not in line


def test_an_array_of_file_scope_is_declared_where_it_is_used():
    text = (
        "extern __shared__ float d[];\n__shared__ int flag;\n"
        + KERNEL % "d[0] = flag;"
        + "__device__ void f(int* flag) { *flag = 1; }"
    )
    translation = source.translate(text)
    assert line_of(translation, 1) == line_of(translation, 2) == ""
    assert "float* const d =" in line_of(translation, 3) and "auto& flag = simt_shared<int, 0, void>();" in line_of(
        translation, 3
    )
    assert "simt_shared" not in line_of(translation, 6), "a parameter hides the array"


@pytest.mark.parametrize(
    "text",
    [
        '// __shared__ float s[4];\nconst char* t = "__shared__ float s[4];";\n',
        "/* __shared__ float s[4];\n */ int x;\n",
        'const char* t = R"x(__shared__ int a;\n)" )x";\n',
        '#if 0\n__shared__ int a = 5; asm("");\n#endif\n',
        "int x = 1'000; // it's \" odd\n",
    ],
)
def test_comments_strings_and_dead_branches_are_left_alone(text):
    translation = source.translate(text + KERNEL % "")
    assert text in translation.text and not translation.shared


def test_every_line_keeps_its_number():
    text = (
        KERNEL
        % "__shared__\n  float2 a\n [2]\n\n [4];\nextern __shared__\n int d\n[];\nint y;\r\n#pragma unroll\nfor (;;) x;"
    )
    translation = source.translate(text)
    for number, line in enumerate(text.split("\n"), 1):
        if "int y" in line or "for (" in line or line == "}":
            assert line_of(translation, number) == line
    assert "pragma" not in translation.text


def test_places_of_the_translated_text_lead_back_to_the_learners_column():
    text = KERNEL % "  __shared__ float s[wrong + 1]; s[0] = worse;"
    translation = source.translate(text)
    line = line_of(translation, 2)
    assert translation.original_place("kernel.cu", 2, line.index("wrong") + 1) == (
        2,
        text.split("\n")[1].index("wrong") + 1,
    )
    assert translation.original_place("kernel.cu", 2, line.index("worse") + 1) == (
        2,
        text.split("\n")[1].index("worse") + 1,
    )
    assert translation.original_place("simt.h", 2, 1) is None


def test_columns_of_compilers_are_bytes_and_ours_are_characters():
    text = KERNEL % "  /* größer */ int y = wrong;"
    line = text.split("\n")[1]
    column = len(line[: line.index("wrong")].encode()) + 1
    assert source.translate(text).original_place("kernel.cu", 2, column) == (2, line.index("wrong") + 1)


# ---- kernels


def test_kernels_and_their_parameters_are_read_from_the_text():
    text = """
    typedef float real;  using word = unsigned;
    extern "C" __global__ void __launch_bounds__(TILE * 2, 4)
    first(const real* __restrict__ a, double *b, word n = 3) {}
    namespace lab {
    template <typename T, int N = 4> __global__ void second(T* x, const Pair<T> p, float (*f)(int), T) {}
    }
    extern "C" { __global__ void third(void) {} }
    __global__ void declared(float* only);
    """
    translation = source.translate(text, options=("-DTILE=64",), name_expressions=("lab::second< float , 2>",))
    assert list(translation.kernels) == ["first", "third", "lab::second< float , 2>"]
    first, second = translation.kernel("first"), translation.kernel("lab::second<float,2>")
    assert [(p.name, p.ctype, p.pointer, p.const) for p in first.parameters] == [
        ("a", "const real*", True, True),
        ("b", "double*", True, False),
        ("n", "word", False, False),
    ]
    assert [p.type.name for p in first.parameters] == ["float", "double", "unsigned"]
    assert first.launch_bounds == 128 and first.is_extern_c and not second.is_extern_c and second.is_template
    assert [(p.name, p.pointer, p.type and p.type.name) for p in second.parameters] == [
        ("x", True, "float"),
        ("p", None, None),
        ("", None, None),
        ("", False, "float"),
    ]
    assert translation.kernel("third").parameters == () and translation.kernel("third").is_extern_c


def test_a_name_that_no_kernel_has_lists_the_names():
    text = "template <class T> __global__ void scan(T* x) {}\n" + KERNEL % ""
    with pytest.raises(
        KeyError, match=r"kernel.cu has no kernel 'scam<float>'; its kernels: k, scan<\.\.\.>"
    ) as caught:
        source.translate(text, name_expressions=("scam<float>",))
    assert not str(caught.value).startswith('"'), "a KeyError that reads like a sentence"
    with pytest.raises(source.UnknownKernel, match=r"scan<\.\.\.>"):
        source.translate(text, name_expressions=("scan",))


def test_a_kernel_that_a_macro_makes_is_left_to_the_compiler():
    text = "#define MAKE(name, T) __global__ void name(T* x) { x[0] = 1; }\nMAKE(k, float)\n"
    info = source.translate(text, name_expressions=("k",)).kernel("k")
    assert info.parameters is None


def test_kernels_in_branches_follow_the_options():
    text = "#if TILE > 128 && !defined(SMALL)\n__global__ void big() {}\n#else\n__global__ void small() {}\n#endif\n"
    assert list(source.translate(text, options=("-DTILE=256",)).kernels) == ["big"]
    assert list(source.translate(text, options=("-DTILE=256", "-D", "SMALL")).kernels) == ["small"]
    assert list(source.translate(text).kernels) == ["small"]


def test_branches_of_an_unknown_condition_do_not_upset_the_nesting():
    text = "__device__ void f(int x) {\n#if __LP64__ >= 800\nif (x) {\n#else\nwhile (x) {\n#endif\n} }\n" + KERNEL % ""
    assert list(source.translate(text).kernels) == ["k"]


@pytest.mark.parametrize(
    "condition, truth",
    [
        ("1 + 2 * 3 == 7", True),
        ("(1 << 4) > 15 && 0x10 == 16u", True),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("010 == 8", True),
        ("A ? 1 : 0", False),
        ("defined(B) || defined C", True),
        ("~0 == -1 && !0", True),
        ("B == 3", True),
        ("(B | 4) == 7", True),
    ],
)
def test_conditions_are_evaluated_like_the_preprocessor_does(condition, truth):
    branches = "__global__ void yes() {}\n#else\n__global__ void no() {}\n#endif\n"
    text = f"#define B C\n#define C 3 // three\n#if {condition}\n{branches}"
    assert list(source.translate(text).kernels) == [("yes" if truth else "no")]


def test_variables_in_device_memory_are_registered():
    text = """__constant__ float weights[4] = {1, 2, 3, 4};
    namespace lab { static __device__ int counter, other[3]; }
    __device__ float f(float x);  __device__ Pair<int, 2> pair;
    struct S { __device__ float g() { return 1; } };  extern "C" { __constant__ double scale; }
    """
    symbols = [(v.symbol, v.constant) for v in source.translate(text + KERNEL % "").globals]
    assert symbols == [
        ("::weights", True),
        ("::lab::counter", False),
        ("::lab::other", False),
        ("::pair", False),
        ("::scale", True),
    ]


# ---- refusals


@pytest.mark.parametrize(
    "body, line, words",
    [
        ('\n  asm volatile("bar.sync 0;");', 3, "'asm': inline PTX assembly is not supported"),
        ("  k<<<1, 32>>>(x, n);", 2, "'<<<': a kernel launch from a kernel (dynamic parallelism)"),
        ("  cudaTextureObject_t t;", 2, "texture objects are not supported"),
        ("  float y = tex2D<float>(t, 1, 2);", 2, "'tex2D'"),
        ("  wmma::fragment<int> f;", 2, "warp matrix operations"),
        ("  cuda::barrier<int> b;", 2, "cuda::"),
        ("  float* p = new float[4];", 2, "the device heap (new)"),
        ("  float* p = (float*)malloc(4);", 2, "the device heap (malloc)"),
        ("  cudaDeviceSynchronize();", 2, "the CUDA runtime API"),
        ("  CUtensorMap map;", 2, "TMA"),
        ("  static int calls = 0;", 2, "static variable inside a function"),
        ("  __shared__ float s[4] = {0};", 2, "'s' cannot have an initial value"),
        ("  __shared__ float s[];", 2, "'s' has no size"),
        ("  extern __shared__ float s[4];", 2, "must be an array without a size"),
        ("  extern __shared__ float s[]; { extern __shared__ int s[]; }", 2, "is int here and float in line 2"),
        ("  __shared__ float (*p)[3];", 2, "too involved"),
        ("  int y[3;", 2, "'[' is never closed"),
        ("  y = 1);", 1, "'{' is never closed: the next bracket is ')' in line 2"),
    ],
)
def test_what_the_cpu_cannot_run_is_refused_with_its_line_and_name(body, line, words):
    with pytest.raises(CompileError) as caught:
        inside(body)
    assert caught.value.line == line and any(word in str(caught.value) for word in words.split("|")), str(caught.value)
    assert caught.value.column > 0 and "^" in str(caught.value)


@pytest.mark.parametrize(
    "text, words",
    [
        ("#define SHARED __shared__\n", "inside a macro"),
        ("#include <cub/cub.cuh>\n", "the CUB library is not supported on a CPU"),
        ("#include <mma.h>\n", "wmma"),
        ("struct S { __shared__ float x; };\n", "a member of a class cannot be __shared__"),
        ("__device__ void f(__shared__ float* x) {}\n", "a parameter cannot be __shared__"),
        ("extern __constant__ float far[4];\n", "no other file"),
        ("__global__ int bad() { return 1; }\n", "kernel 'bad' must return void"),
        ("struct S { __global__ void bad() {} };\n", "cannot be a member"),
        ('extern "C" { template <class T> __global__ void bad(T* x) {} }\n', 'cannot be extern "C"'),
        ("__global__ void bad(int& x) {}\n", "cannot be a reference"),
        ("__managed__ int x;\n", "managed memory"),
    ],
)
def test_declarations_that_cannot_be_followed_are_refused(text, words):
    with pytest.raises(CompileError, match=re.escape(words)):
        source.translate(text + KERNEL % "")


def test_names_that_only_look_like_refused_ones_are_fine():
    inside(
        "s.free(); a->malloc(3); int texture = 1, news = 2; goto end; end: ; "
        "struct T { T() = default; T(const T&) = delete; };"
    )


def test_a_refusal_shows_the_line_with_a_caret_and_counts_tabs():
    with pytest.raises(CompileError) as caught:
        inside('\tint y; asm("");')
    assert str(caught.value).splitlines()[1:] == ['    \tint y; asm("");', "    \t       ^"]


@pytest.mark.parametrize(
    "code, words",
    [
        (
            "x[0] = __builtin_popcount(n);",
            "'__builtin_popcount' is a function of host compilers, NVRTC has none of that",
        ),
        ("x[0] = __builtin_popcount(n);", "of that name: write __popc(x)"),
        ("__sync_fetch_and_add((int*)x, 1);", "write atomicAdd(p, x)"),
        ("__atomic_store_n((int*)x, 1, 0);", "write atomicExch(p, x)"),
        ("x[0] = __builtin_sqrtf(2);", "'__builtin_sqrtf' is a function of host compilers"),
        ("\n#define BITS(x) __builtin_popcount(x)\n", "write __popc(x)"),
    ],
)
def test_functions_that_only_host_compilers_have_are_refused(code, words):
    with pytest.raises(CompileError, match=re.escape(words)):
        inside(code)


def test_compiler_functions_that_nvrtc_has_are_not_refused():
    inside(
        "if (__builtin_expect(n > 0, 1)) x[0] = __builtin_isnan(x[0]); else __builtin_unreachable(); "
        "__builtin_assume(n < 3); __syncwarp(); __syncthreads();\n#if 0\n__builtin_popcount(n);\n#endif\n"
    )


def test_many_problems_are_counted_and_the_first_are_shown():
    with pytest.raises(CompileError) as caught:
        inside("\n".join(['asm("");'] * 9))
    assert len(caught.value.problems) == 9 and "... and 4 more" in str(caught.value)


def test_the_outline_reads_kernels_of_texts_that_only_a_gpu_can_run():
    outline = Outline(KERNEL % 'asm volatile("nop;");', "kernel.cu")
    assert [p.name for p in outline.kernel("k").parameters] == ["x", "n"]


# ---- options


def test_options_are_sorted_by_what_they_mean_here():
    host = host_options(
        (
            "-DTILE=4",
            "-D",
            "FAST",
            "--define-macro=X=1",
            "-UX",
            "-I/tmp",
            "--std=c++20",
            "-lineinfo",
            "--fmad=true",
            "--use_fast_math",
            "-arch=sm_90",
            "--maxrregcount=64",
        )
    )
    assert host.definitions() == {"TILE": "4", "FAST": "1"} and host.include_folders == ("/tmp",)
    assert host.standard == "c++20" and host.contract


@pytest.mark.parametrize(
    "options, error, words",
    [
        ("-DX=1", TypeError, "must be a tuple"),
        (("-rdc=true",), ValueError, "'-rdc=true' is not supported"),
        (("-D",), ValueError, "needs a value"),
        ((3,), TypeError, "must be a string"),
        (("-std=c++98",), ValueError, "standard"),
        (("-D3=1",), ValueError, "not the name of a macro"),
    ],
)
def test_unknown_options_are_refused_by_name(options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        host_options(options)


# ---- includes


def test_local_includes_are_pasted_and_lines_keep_their_file(tmp_path):
    (tmp_path / "pair.cuh").write_text('#pragma once\n#include "deep.cuh"\nstruct Pair { float a, b; };\n')
    (tmp_path / "deep.cuh").write_text("#pragma once\n__device__ int deep() { return wrong; }")
    text = '#include "pair.cuh"\n#include <deep.cuh>\n#include <cuda_fp16.h>\n' + KERNEL % "int here;"
    pasted = includes.paste(text, "kernel.cu", [tmp_path])
    assert pasted.count("struct Pair") == pasted.count("int deep()") == 1 and "#include <cuda_fp16.h>" in pasted
    unit = Text(pasted, "kernel.cu")
    assert unit.position(pasted.index("int here"))[:2] == ("kernel.cu", 5)
    assert unit.position(pasted.index("wrong"))[:2] == ("deep.cuh", 2)
    assert unit.position(pasted.index("struct Pair"))[:2] == ("pair.cuh", 3)
    assert unit.line_text(unit.find_line("deep.cuh", 2)).startswith("__device__ int deep")


def test_an_include_that_is_nowhere_names_the_folders(tmp_path):
    with pytest.raises(CompileError, match=r'kernel.cu:2:1: error: #include "gone.cuh": no such file; looked in .*'):
        includes.paste('\n#include "gone.cuh"\n', "kernel.cu", [tmp_path])


def test_includes_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a.cuh").write_text('#include "a.cuh"\n')
    with pytest.raises(CompileError, match="break the circle"):
        includes.paste('#include "a.cuh"\n', "kernel.cu", [tmp_path])


@pytest.mark.parametrize(
    "name, kind, size, lanes",
    [
        ("unsigned long long", "uint", 8, 1),
        ("char", "int", 1, 1),
        ("float4", "float", 16, 4),
        ("uchar4", "uint", 4, 4),
        ("__half2", "half", 4, 2),
        ("double3", "float", 24, 3),
        ("std::int64_t", "int", 8, 1),
        ("longlong2", "int", 16, 2),
        ("short int", "int", 2, 1),
    ],
)
def test_usual_type_names_are_known(name, kind, size, lanes):
    known = named_type(name)
    assert (known.kind, known.size, known.lanes) == (kind, size, lanes)
    assert named_type("Pair") is None and named_type("long double") is None
