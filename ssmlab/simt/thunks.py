"""What is emitted after the learner's text: how Python calls each kernel, and what it can ask of the library.

The learner's macros hold there: every name that is emitted begins with simt_ or SIMT_ (include/simt_thunks.h).
"""

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
                parameters = spelled(definition.template)
                text = f"template <{parameters}> struct {name} {{ enum {{ simt_value = ({value}) }}; }}; "
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
    out = []
    for number, (name, info) in enumerate(outline.kernels.items()):
        out.append(f'#line 1 "{EXPRESSION_FILE}{number}"')
        out.append(
            f"SIMT_THUNK void {info.thunk}(void** simt_arguments) "
            f"{{ simt_thunks::simt_call(&{name}, simt_arguments); }}"
        )
        out.append(
            _exported("simt_thunks::simt_parameter* const", info.signature, f"simt_thunks::simt_rows_of(&{name})")
        )
        if info.bounds_symbol:
            definition = outline.definition_of[name]
            index = next(at for at, item in enumerate(outline.definitions) if item is definition)
            arguments = name[name.index("<") :] + "::simt_value" if info.is_template else ""
            value = f"(unsigned)::{definition.path}simt_bounds_{index}{arguments}"
            out.append(_exported("unsigned", info.bounds_symbol, value))
    rows = "".join(
        f'{{"{variable.symbol[2:]}", (void*)&{variable.symbol}, sizeof({variable.symbol}), {int(variable.constant)}}}, '
        for variable in variables
    )
    out.append(f'#line 1 "{THUNK_FILE}"')
    out.append(f"SIMT_EXPORT const simt_global simt_globals[] = {{ {rows}{{nullptr, nullptr, 0, 0}} }};")
    return "\n".join(out) + "\n"


def _exported(kind: str, name: str, value: str) -> str:
    """A constant that Python can read without running any code of the library."""
    return f"SIMT_EXPORT const {kind} {name}; const {kind} {name} = {value};"
