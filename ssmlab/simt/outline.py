"""What a text holds, read without a compiler: functions, kernels with their parameters, declarations of device memory.

The GPU path needs no more than this (a machine with a GPU may have no C++ compiler); the translation builds on it.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from .conditions import active_tokens, constant
from .nesting import Nesting, Unreadable
from .options import host_options
from .signature import KernelInfo, TypeInfo, text_parameter
from .tokens import Text, Token

ALIGNMENT = ("alignas", "__align__", "__attribute__")  # words of a declaration that take arguments


class UnknownKernel(KeyError):
    """A name that no kernel of the text has. str(error) lists the names that there are."""

    def __str__(self) -> str:
        return self.args[0]


def unknown_kernel(name: str, text: Text, kernels) -> UnknownKernel:
    names = ", ".join(sorted(kernels)) or "none"
    message = f"{text.filename} has no kernel {name!r}; its kernels: {names}"
    for token, after in zip(text.tokens, text.tokens[1:], strict=False):
        if token.text == name and after.text == "(":
            filename, line, _ = text.position(token.start)
            message += f" ({filename}:{line} has a {name!r} that is not __global__, or not where a kernel can stand)"
            break
    return UnknownKernel(message)


def find_kernel(kernels: dict[str, KernelInfo], name: str, text: Text) -> KernelInfo:
    """The kernel of a name or a name expression, spaces ignored. Raises UnknownKernel."""
    if name in kernels:
        return kernels[name]
    for known, info in kernels.items():
        if squeeze(known) == squeeze(name):
            return info
    raise unknown_kernel(name, text, kernels)


def squeeze(name: str) -> str:
    """A name expression without the spaces that do not matter: "k< int >" and "k<int>" are one kernel."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(name.split()))


@dataclass
class _Scope:
    kind: str  # "namespace", "extern", "class", "function", "block", "value"
    name: str = ""


@dataclass
class Function:
    """A function with a body: header tokens, index of its "{" and of its "}" in the token list."""

    header: list[Token]
    opening: int
    closing: int = -1


@dataclass
class Definition:
    """A __global__ function with a body."""

    name: str
    token: Token
    path: str  # enclosing namespaces, "a::b::"
    template: list[Token] | None  # tokens between < and > of template <...>
    parameters: list[list[Token]]
    bounds: list[Token] | None
    first: Token  # first token of the definition
    extern_c: bool


@dataclass
class Statement:
    """A declaration [first, end) in the token list, its ";" at end. path: the namespaces around it, "a::b::"."""

    first: int
    end: int
    path: str = ""
    inside_function: bool = False


def spelled(tokens: list[Token]) -> str:
    return " ".join(token.text for token in tokens)


class Outline(Nesting):
    """tokens and directives (of the branches that the preprocessor keeps), functions, definitions (of kernels), shared
    and variables (declarations), aliases, kernels, and problems: (offset, message) of what cannot be read.
    """

    def __init__(
        self,
        text: str,
        filename: str,
        options: tuple[str, ...] = (),
        name_expressions: tuple[str, ...] = (),
        predefined: tuple[str, ...] = (),
    ):
        """predefined: macros that hold before the options, as "-DNAME=value"; those of a GPU are not known here."""
        self.host = host_options(options, unknown="ignore")
        self.macros = self.host.definitions(predefined)
        unit = Text(text, filename)
        tokens, self.directives = active_tokens(unit, self.macros)
        super().__init__(unit, tokens)
        self.functions: list[Function] = []
        self.definitions: list[Definition] = []
        self.shared: list[Statement] = []
        self.variables: list[Statement] = []
        self.static_variables: list[Token] = []
        self._kernel_macros = self._macros_for_kernels()
        self.aliases: dict[str, str] = {}
        if not self.problems:
            with contextlib.suppress(Unreadable):  # its place and reason are among the problems
                self._walk()
        self.kernels, self.definition_of = self._kernels(name_expressions)

    def kernel(self, name: str) -> KernelInfo:
        """The kernel of a name or a name expression, spaces ignored. Raises UnknownKernel."""
        return find_kernel(self.kernels, name, self.text)

    # ---- scopes and statements

    def _walk(self) -> None:
        scopes: list[_Scope] = []
        function: Function | None = None
        start = index = 0
        while index < len(self.tokens):
            token = self.tokens[index]
            inside = function is not None
            if token.text == "{" and token.kind == "punctuation":
                if inside:
                    scope = _Scope("block")
                else:
                    scope = self._scope_of(start, index)
                if scope.kind == "function":
                    function = Function(self.tokens[start:index], index, self.partner[index])
                    self.functions.append(function)
                    self._kernel(start, index, scopes)
                scopes.append(scope)
                if scope.kind != "value":
                    start = index + 1
            elif token.text == "}" and token.kind == "punctuation":
                scope = scopes.pop()
                if scope.kind == "function":
                    function = None
                if scope.kind == "class":
                    start = self._statement_before(index)
                elif scope.kind != "value":
                    start = index + 1
            elif token.text == ";" and token.kind == "punctuation":
                if not inside:
                    self._declaration(start, index, scopes)
                start = index + 1
            elif token.text in ("(", "[") and token.kind == "punctuation" and not inside:
                if any(inner.text == "__shared__" for inner in self.tokens[index : self.partner[index]]):
                    where = next(t for t in self.tokens[index : self.partner[index]] if t.text == "__shared__")
                    self.problem(where, "a parameter cannot be __shared__: pass a pointer to the array")
                index = self.partner[index]
            elif token.text == "__shared__" and inside:
                first, end = self._shared_statement(index, start)
                self.shared.append(Statement(first, end, inside_function=True))
                index = end
                start = index + 1
            elif token.text == "static" and inside:
                self.static_variables.append(token)
            elif token.text in ("using", "typedef"):
                self._alias(index)
            index += 1

    def _statement_before(self, closing: int) -> int:
        """Index where the class definition that ends at `closing` began."""
        index = self.partner[closing]
        while index > 0 and not (
            self.tokens[index - 1].text in (";", "{", "}") and self.tokens[index - 1].kind == "punctuation"
        ):
            index -= 1
        return index

    def _scope_of(self, start: int, opening: int) -> _Scope:
        header = self.top(start, opening)
        words = [token.text for token in header]
        if "namespace" in words:
            position = words.index("namespace")
            return _Scope("namespace", "".join(word for word in words[position + 1 :] if word != "inline"))
        if words[:1] == ["extern"] and len(words) == 2:
            return _Scope("extern")
        callee = self.callee(start, opening)
        if callee is not None and "=" not in self._words_before(words, callee):
            return _Scope("function")
        for keyword in ("struct", "class", "union", "enum"):
            if keyword in words:
                position = words.index(keyword)
                names = [word for word in words[position + 1 :] if re.match(r"[A-Za-z_]", word)]
                return _Scope("class", names[0] if names else "")
        return _Scope("value")

    @staticmethod
    def _words_before(words: list[str], callee: str) -> list[str]:
        return words[: words.index(callee)] if callee in words else words

    @staticmethod
    def _path(scopes: list[_Scope]) -> str:
        return "".join(scope.name + "::" for scope in scopes if scope.kind == "namespace" and scope.name)

    def _shared_statement(self, index: int, lower: int) -> tuple[int, int]:
        """(first, end) token indices of the declaration around `__shared__` at index; end is its ";"."""
        first = index
        while first > lower:
            before = self.tokens[first - 1]
            if before.text == ")" and self.tokens[self.partner[first - 1] - 1].text in ALIGNMENT:
                first = self.partner[first - 1] - 1
            elif (
                before.kind == "name" and before.text not in ("else", "do") or before.text in ("*", "::", "<", ">", ",")
            ):
                first -= 1
            else:
                break
        end = index
        while self.tokens[end].text != ";":
            if self.tokens[end].text in ("(", "[", "{"):
                end = self.partner[end]
            if self.tokens[end].text == "}" and self.partner[end] < index:
                end = len(self.tokens)
            end += 1
            if end >= len(self.tokens):
                self.problem(self.tokens[index], "this __shared__ declaration has no ';' at its end")
                raise Unreadable
        return first, end

    # ---- kernels

    def _macros_for_kernels(self) -> dict[str, list[str]]:
        """Macros like `#define KERNEL extern "C" __global__ void`: name to the words that it stands for."""
        macros = {
            name: re.findall(r"\w+", text) for name, text in self._object_macros().items() if "__global__" in text
        }
        return {
            name: words for name, words in macros.items() if words[-1] in ("__global__", "void", "static", "inline")
        }

    def _kernel(self, start: int, opening: int, scopes: list[_Scope]) -> None:
        header = self.top(start, opening)
        mark = next(
            (token for token in header if token.text == "__global__" or token.text in self._kernel_macros), None
        )
        if mark is None:
            return
        if any(scope.kind == "class" for scope in scopes):
            self.problem(mark, "a __global__ function cannot be a member of a class")
            return
        index, template, bounds = start, None, None
        while index < opening:
            token = self.tokens[index]
            following = self.tokens[index + 1].text
            if token.text == "template" and following == "<":
                end = self.angle_end(index + 1)
                template = self.tokens[index + 2 : end]
                index = end
            elif token.text == "__launch_bounds__" and following == "(":
                bounds = self.split(index + 2, self.partner[index + 1])[0]
                index = self.partner[index + 1]
            elif token.text in self._WITH_ARGUMENTS and following == "(":
                index = self.partner[index + 1]
            elif token.kind == "name" and following == "(" and token.start > mark.start:
                parameters = self.split(index + 2, self.partner[index + 1])
                break
            index += 1
        else:
            if template is None:
                self.problem(mark, "a __global__ function needs a name and a parameter list")
            return  # template <> __global__ void k<float>(…): the template itself stands for it
        words = [word for item in header for word in self._kernel_macros.get(item.text, (item.text,))]
        if "void" not in words[: words.index(token.text)]:
            self.problem(mark, f"kernel {token.text!r} must return void")
            return
        for parameter in parameters:
            signs = [word.text for word in parameter if word.kind == "punctuation"]
            if "&" in signs and "(" not in signs and "=" not in signs:
                self.problem(parameter[0], "a kernel's parameter cannot be a reference: pass a pointer or a value")
        if len(parameters) == 1 and [word.text for word in parameters[0]] == ["void"]:
            parameters = []
        extern_c = "extern" in words or any(scope.kind == "extern" for scope in scopes)
        if template is not None and extern_c:
            self.problem(token, f'kernel {token.text!r} is a template: it cannot be extern "C"')
            return
        path = self._path(scopes)
        self.definitions.append(
            Definition(token.text, token, path, template, parameters, bounds, self.tokens[start], extern_c)
        )

    def _declaration(self, start: int, end: int, scopes: list[_Scope]) -> None:
        """Note a declaration outside functions that puts something into device memory."""
        header = self.top(start, end)
        words = [token.text for token in header]
        in_class = any(scope.kind == "class" for scope in scopes)
        if "__shared__" in words:
            if in_class:
                mark = header[words.index("__shared__")]
                self.problem(mark, "a member of a class cannot be __shared__: make the object __shared__")
            else:
                self.shared.append(Statement(start, end))
            return
        memory = next((word for word in ("__constant__", "__device__") if word in words), None)
        if memory is None or in_class or set(words) & {"using", "typedef", "template", "friend"}:
            return
        if self.callee(start, end) is not None:
            return
        if "extern" in words and not any(scope.kind == "extern" for scope in scopes):
            mark = header[words.index(memory)]
            self.problem(mark, f"an extern {memory} variable: there is no other file to find it in")
            return
        self.variables.append(Statement(start, end, self._path(scopes)))

    def known_type(self, words: str) -> tuple[TypeInfo, bool] | None:
        """(type, is it behind a pointer) of these words, through typedefs; None where only a compiler knows it."""
        read = text_parameter(Text(words, "type").tokens, self._object_macros() | self.aliases)
        return None if read.type is None else (read.type, bool(read.pointer))

    def _alias(self, index: int) -> None:
        """Remember `using A = B;` and `typedef B A;`, for the types of parameters."""
        end = index
        while end < len(self.tokens) and self.tokens[end].text != ";":
            end = self.partner[end] + 1 if self.tokens[end].text in ("(", "[", "{") else end + 1
        words = [token.text for token in self.tokens[index + 1 : end]]
        if self.tokens[index].text == "using" and len(words) > 2 and words[1] == "=":
            self.aliases[words[0]] = " ".join(words[2:])
        elif self.tokens[index].text == "typedef" and len(words) > 1 and not set(words) & {"(", "[", "{"}:
            self.aliases[words[-1]] = " ".join(words[:-1])

    # ---- names

    def _kernels(self, expressions: tuple[str, ...]) -> tuple[dict[str, KernelInfo], dict[str, Definition | None]]:
        """The kernels that are no templates, then the expressions; and the definition of each, if it can be seen."""
        infos: dict[str, KernelInfo] = {}
        found: dict[str, Definition | None] = {}
        for definition in self.definitions:
            name = definition.path + definition.name
            if definition.template is None and name not in found:
                found[name] = definition
        for expression in expressions:
            if squeeze(expression) not in map(squeeze, found):
                found[expression] = self._template(expression)
        for number, (name, definition) in enumerate(found.items()):
            infos[name] = self._info(name, number, definition)
        return infos, found

    def _template(self, expression: str) -> Definition | None:
        """The kernel that an expression names. None for one that a macro makes, or in a text that cannot be read."""
        base = squeeze(expression).partition("<")[0].lstrip("&:")
        named = [definition for definition in self.definitions if definition.path + definition.name == base]
        for definition in named:
            if (definition.template is not None) == ("<" in expression):
                return definition
        if self.problems or (not named and any("__global__" in directive.text for directive in self.directives)):
            return None
        known = [item.path + item.name + ("<...>" if item.template is not None else "") for item in self.definitions]
        raise unknown_kernel(expression, self.text, known)

    def _info(self, name: str, number: int, definition: Definition | None) -> KernelInfo:
        thunk, signature = f"simt_thunk_{number}", f"simt_signature_{number}"
        if definition is None:
            return KernelInfo(name, thunk, self.text.filename, 0, None, None, signature)
        filename, line, _ = self.text.position(definition.token.start)
        macros = self._object_macros()
        aliases = macros | self.aliases
        if definition.template is not None:
            aliases |= self._template_arguments(definition, name)
        parameters = tuple(text_parameter(tokens, aliases) for tokens in definition.parameters)
        twins = [item for item in self.definitions if item.path + item.name == definition.path + definition.name]
        if len(twins) > 1 or any("..." in parameter.ctype for parameter in parameters):
            parameters = None  # two branches of a condition, or a pack: only a compiler knows the list
        return KernelInfo(
            name=name,
            thunk=thunk,
            filename=filename,
            line=line,
            parameters=parameters,
            launch_bounds=constant(spelled(definition.bounds), macros) if definition.bounds else None,
            signature=signature,
            bounds_symbol=f"simt_bounds_of_{number}" if definition.bounds else None,
            is_template=definition.template is not None,
            is_extern_c=definition.extern_c,
        )

    def _object_macros(self) -> dict[str, str]:
        macros = dict(self.macros)
        for directive in self.directives:
            if match := re.match(r"#\s*define\s+([A-Za-z_]\w*)\s+(.+)", directive.text):
                macros[match[1]] = re.sub(r"//.*|/\*.*?\*/", "", match[2]).strip()
        return macros

    def _template_arguments(self, kernel: Definition, expression: str) -> dict[str, str]:
        """Template parameter names to the arguments that an expression gives them, as text."""
        inner = Text(expression[expression.index("<") + 1 : expression.rindex(">")], "expression").tokens
        arguments, depth = [[]], 0
        for token in inner:
            depth += (token.text in "<([") - (token.text in ">)]")
            if token.text == "," and depth == 0:
                arguments.append([])
            else:
                arguments[-1].append(token.text)
        names, depth, last = [], 0, ""
        for token in [*kernel.template, Token("punctuation", ",", 0, 0)]:
            depth += (token.text in "<([") - (token.text in ">)]")
            if depth == 0 and token.text in (",", "="):
                if last:
                    names.append(last)
                last = ""
                if token.text == "=":
                    depth += 1000  # skip the default up to the next comma
            elif token.text == "," and depth >= 1000:
                depth -= 1000
            elif depth == 0 and token.kind == "name":
                last = token.text
        return {name: " ".join(words) for name, words in zip(names, arguments, strict=False)}
