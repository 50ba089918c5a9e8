"""What is emitted after the learner's text: how Python calls each kernel, and what it can ask of the library."""

from __future__ import annotations

from dataclasses import dataclass

from .outline import Outline, Statement, spelled
from .rewriting import Rewriting
from .tokens import Token

THUNK_FILE = "simt-thunks"  # the #line name of everything that is emitted after the learner's text
EXPRESSION_FILE = "simt-expression-"  # ... and of the thunk of a kernel, followed by its number


@dataclass(frozen=True)
class GlobalVariable:
    """A `__device__` or `__constant__` variable; symbol is its qualified C++ name."""

    name: str
    symbol: str
    filename: str
    line: int
    constant: bool


def remember_launch_bounds(outline: Outline, rewriting: Rewriting) -> None:
    """Put the number in each __launch_bounds__ into an enum just before its kernel, where its macros still hold."""
    for index, definition in enumerate(outline.definitions):
        if definition.bounds:
            name, value = f"simt_bounds_{index}", spelled(definition.bounds)
            if definition.template is None:
                text = f"enum {{ {name} = ({value}) }}; "
            else:
                text = f"template <{spelled(definition.template)}> struct {name} {{ enum {{ value = ({value}) }}; }}; "
            rewriting.insert(definition.first.start, text)


def global_variables(outline: Outline) -> tuple[GlobalVariable, ...]:
    """The `__device__` and `__constant__` variables; a declaration that names none becomes a problem of the outline."""
    variables = []
    for statement in outline.variables:
        words = {token.text for token in outline.top(statement.first, statement.end)}
        names = _names(outline, statement)
        if not names:
            outline.problem(outline.tokens[statement.first], "this declaration cannot be read: it names no variable")
        for token in names:
            filename, line, _ = outline.text.position(token.start)
            symbol = "::" + statement.path + token.text
            variables.append(GlobalVariable(token.text, symbol, filename, line, "__constant__" in words))
    return tuple(variables)


def _names(outline: Outline, statement: Statement) -> list[Token]:
    """The variables of a declaration: each name that stands before "[", "=", "{", "," or ";" at the top level."""
    names: list[Token] = []
    for part in outline.split(statement.first, statement.end):
        top: list[Token] = []
        depth = 0
        for token in part:
            if token.text in ("[", "=", "{") and depth == 0:
                if (
                    token.text == "{"
                    and {"struct", "union", "class", "enum"} & {word.text for word in top}
                    and len(top) < 4
                ):
                    depth += 1
                    continue
                break
            depth += token.text in ("(", "{", "[")
            depth -= token.text in (")", "}", "]")
            if depth == 0 and token.kind == "name":
                top.append(token)
        if top:
            names.append(top[-1])
    return names


def thunks(outline: Outline, variables: tuple[GlobalVariable, ...]) -> str:
    """C++ for all kernels of an outline; `simt_thunk_<n>` and the others are listed at the top of source.py."""
    out = [f'#line 1 "{THUNK_FILE}"', HELPER]
    for number, (name, info) in enumerate(outline.kernels.items()):
        out.append(f'#line 1 "{EXPRESSION_FILE}{number}"')
        out.append(
            'extern "C" __attribute__((visibility("default"), no_sanitize_thread)) '
            f"void {info.thunk}(void** arguments) {{ simt_thunks::call(&{name}, arguments); }}"
        )
        out.append(_exported("simt_thunks::parameter* const", info.signature, f"simt_thunks::rows_of(&{name})"))
        if info.bounds_symbol:
            definition = outline.definition_of[name]
            index = next(at for at, item in enumerate(outline.definitions) if item is definition)
            arguments = name[name.index("<") :] + "::value" if info.is_template else ""
            value = f"(unsigned)::{definition.path}simt_bounds_{index}{arguments}"
            out.append(_exported("unsigned", info.bounds_symbol, value))
    rows = "".join(
        f'{{"{variable.symbol[2:]}", (void*)&{variable.symbol}, sizeof({variable.symbol}), {int(variable.constant)}}}, '
        for variable in variables
    )
    out.append(f'#line 1 "{THUNK_FILE}"')
    out.append("struct simt_global { const char* name; void* address; unsigned long long size; int constant; };")
    out.append(
        'extern "C" __attribute__((visibility("default"))) const simt_global simt_globals[] = '
        f"{{ {rows}{{nullptr, nullptr, 0, 0}} }};"
    )
    return "\n".join(out) + "\n"


def _exported(kind: str, name: str, value: str) -> str:
    """A constant that Python can read without running any code of the library."""
    return f'extern "C" __attribute__((visibility("default"))) const {kind} {name}; const {kind} {name} = {value};'


# Calls a kernel with the parameter list of its own type, and describes that list.
HELPER = """\
namespace simt_thunks {
struct parameter { const char* name; unsigned size, alignment; char pointer, constant, kind; };
template <class T> constexpr const char* name_of() { return __PRETTY_FUNCTION__; }
template <class T> struct kind_of { static constexpr char value = __is_enum(T) ? 'i' : 's'; };
template <class T> struct kind_of<T*> { static constexpr char value = 'p'; };
#define SIMT_KIND(T, letter) template <> struct kind_of<T> { static constexpr char value = letter; };
SIMT_KIND(void, 'v') SIMT_KIND(bool, 'b') SIMT_KIND(float, 'f') SIMT_KIND(double, 'f')
SIMT_KIND(char, char(-1) < 0 ? 'i' : 'u') SIMT_KIND(signed char, 'i') SIMT_KIND(short, 'i') SIMT_KIND(int, 'i')
SIMT_KIND(long, 'i') SIMT_KIND(long long, 'i') SIMT_KIND(unsigned char, 'u') SIMT_KIND(unsigned short, 'u')
SIMT_KIND(unsigned, 'u') SIMT_KIND(unsigned long, 'u') SIMT_KIND(unsigned long long, 'u')
#undef SIMT_KIND
template <class T> struct plain { using type = T; static constexpr char constant = 0; };
template <class T> struct plain<const T> { using type = T; static constexpr char constant = 1; };
template <class T> struct plain<volatile T> { using type = T; static constexpr char constant = 0; };
template <class T> struct plain<const volatile T> { using type = T; static constexpr char constant = 1; };
template <class T, unsigned N = sizeof(T)> constexpr unsigned size_of(int) { return N; }
template <class T> constexpr unsigned size_of(long) { return 0; }
template <class T, unsigned N = alignof(T)> constexpr unsigned alignment_of(int) { return N; }
template <class T> constexpr unsigned alignment_of(long) { return 1; }
template <class T> struct measure {
  static constexpr unsigned size = size_of<T>(0), alignment = alignment_of<T>(0);
};
template <> struct measure<void> { static constexpr unsigned size = 0, alignment = 1; };
template <class R, class... P> struct measure<R(P...)> { static constexpr unsigned size = 0, alignment = 1; };
template <class T> struct describe {
  static constexpr parameter value = {name_of<T>(), measure<T>::size, measure<T>::alignment, 0, 0, kind_of<T>::value};
};
template <class T> struct describe<T*> {
  using pointee = typename plain<T>::type;
  static constexpr parameter value = {name_of<pointee>(), measure<pointee>::size, measure<pointee>::alignment,
                                      1, plain<T>::constant, kind_of<pointee>::value};
};
template <class T> struct describe<T&> { static_assert(sizeof(T) == 0, "a kernel's parameter cannot be a reference"); };
template <class... P> struct table {
  static constexpr parameter rows[] = {describe<P>::value..., {nullptr, 0, 0, 0, 0, 0}};
};
template <class... P> constexpr const parameter* rows_of(void (*)(P...)) { return table<P...>::rows; }
template <unsigned N, unsigned... I> struct caller : caller<N - 1, N - 1, I...> {};
template <unsigned... I> struct caller<0, I...> {
  template <class... P> __attribute__((no_sanitize_thread)) static void call(void (*kernel)(P...), void** arguments) {
    kernel(*(P*)arguments[I]...);
  }
};
template <class... P> __attribute__((no_sanitize_thread)) void call(void (*kernel)(P...), void** arguments) {
  caller<sizeof...(P)>::call(kernel, arguments);
}
}
"""
