"""Which lines of a text the preprocessor keeps, as far as that can be known from the text and the -D options."""

from __future__ import annotations

import re

from .tokens import Text, Token

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*(.*)", re.DOTALL)
_CONDITION_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlL]*|([A-Za-z_]\w*)|(&&|\|\||==|!=|<=|>=|<<|>>|[-+*/%<>!~&|^()?:]))"
)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


class _Unknown(Exception):
    """The condition depends on something outside the text."""


def active_tokens(text: Text, macros: dict[str, str]) -> tuple[list[Token], list[Token]]:
    """(code tokens, directives) of the branches that are kept, or may be kept because the condition is not known here.

    macros are the -D options. A branch of an unknown condition stays in, except that the tokens "{" and "}" of a second
    branch are left out when it opens and closes differently from the first, so that nesting can still be followed.
    """
    macros = dict(macros)
    # Of each open #if: is the code around kept, is this branch, was an earlier branch surely taken, is it unknown.
    stack: list[list] = []
    kept: list[Token] = []
    directives: list[Token] = []
    code = iter(text.tokens)
    upcoming = next(code, None)
    for directive in [*text.directives, None]:
        limit = directive.start if directive else len(text.text) + 1
        visible = all(level["kept"] for level in stack)
        while upcoming is not None and upcoming.start < limit:
            if visible:
                kept.append(upcoming)
            upcoming = next(code, None)
        if directive is None:
            break
        word, rest = _words(directive.text)
        if word in ("if", "ifdef", "ifndef"):
            truth = _truth(word, rest, macros) if visible else False
            stack.append({"kept": truth is not False, "taken": truth is True, "first": None, "begin": len(kept)})
        elif word in ("elif", "else", "elifdef", "elifndef", "endif") and stack:
            level = stack[-1]
            outer = all(other["kept"] for other in stack[:-1])
            if level["kept"] and outer:
                _balance(level, kept)
            if word == "endif":
                stack.pop()
            elif level["taken"] or not outer:
                level["kept"] = False
            else:
                truth = True if word == "else" else _truth(word.replace("elif", "if"), rest, macros)
                level["kept"], level["taken"] = truth is not False, truth is True
            level["begin"] = len(kept)
        elif visible:
            directives.append(directive)
            if word == "define" and (match := re.match(r"([A-Za-z_]\w*)(\()?(.*)", rest, re.DOTALL)):
                macros[match[1]] = "(" if match[2] else match[3].strip()
            elif word == "undef":
                macros.pop(rest.strip(), None)
    return kept, directives


def constant(text: str, macros: dict[str, str]) -> int | None:
    """The value of an integer expression of numbers and macros; None where it needs anything else."""
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\b\d\w*", "", text))
    if not all(name in macros for name in names):
        return None
    try:
        return _Condition(text, macros).value()
    except (_Unknown, ZeroDivisionError):
        return None


def _words(directive: str) -> tuple[str, str]:
    plain = _COMMENT.sub(" ", directive.replace("\\\r\n", " ").replace("\\\n", " "))
    match = _DIRECTIVE.match(plain)
    return (match[1], match[2].strip()) if match else ("", "")


def _balance(level: dict, kept: list[Token]) -> None:
    """Two branches of an unknown condition are both kept: the braces of the later one must not count twice."""
    branch = kept[level["begin"] :]
    depth = sum((token.text == "{") - (token.text == "}") for token in branch if token.kind == "punctuation")
    if level["first"] is None:
        level["first"] = depth
    elif depth != 0 and depth == level["first"]:
        kept[level["begin"] :] = [token for token in branch if token.text not in ("{", "}")]


def _truth(word: str, rest: str, macros: dict[str, str]) -> bool | None:
    """True or False; None where it depends on a name that only the compiler or a header can know."""
    try:
        if word in ("ifdef", "ifndef"):
            return _defined(rest.split()[0] if rest.split() else "", macros) == (word == "ifdef")
        return bool(_Condition(rest, macros).value())
    except (_Unknown, ZeroDivisionError):
        return None


def _defined(name: str, macros: dict[str, str]) -> bool:
    if name in macros:
        return True
    if name.startswith("_"):  # set by a compiler or by a header: __x86_64__, include guards
        raise _Unknown
    return False


class _Condition:
    """A recursive-descent evaluator of the integer expressions of #if."""

    _LEVELS = (
        ("||",),
        ("&&",),
        ("|",),
        ("^",),
        ("&",),
        ("==", "!="),
        ("<", ">", "<=", ">="),
        ("<<", ">>"),
        ("+", "-"),
        ("*", "/", "%"),
    )

    def __init__(self, text: str, macros: dict[str, str], expanding: tuple[str, ...] = ()):
        self.macros, self.expanding, self.position = macros, expanding, 0
        self.tokens: list[tuple[str, str]] = []
        end = 0
        text = text.strip()
        while end < len(text):
            match = _CONDITION_TOKEN.match(text, end)
            if not match:
                raise _Unknown
            self.tokens.append(("number" if match[1] else "name" if match[2] else "sign", match[match.lastindex]))
            end = match.end()

    def value(self) -> int:
        result = self._choice()
        if self.position != len(self.tokens):
            raise _Unknown
        return result

    def _peek(self) -> str:
        return self.tokens[self.position][1] if self.position < len(self.tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self.position == len(self.tokens):
            raise _Unknown
        self.position += 1
        return self.tokens[self.position - 1]

    def _expect(self, sign: str) -> None:
        if self._take()[1] != sign:
            raise _Unknown

    def _choice(self) -> int:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take()
        first = self._choice()
        self._expect(":")
        second = self._choice()
        return first if condition else second

    def _binary(self, level: int) -> int:
        if level == len(self._LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in self._LEVELS[level]:
            sign = self._take()[1]
            right = self._binary(level + 1)
            left = _apply(sign, left, right)
        return left

    def _unary(self) -> int:
        kind, text = self._take()
        if text == "(":
            inner = self._choice()
            self._expect(")")
            return inner
        if text in ("!", "-", "+", "~"):
            operand = self._unary()
            return {"!": int(not operand), "-": -operand, "+": operand, "~": ~operand}[text]
        if kind == "number":
            digits = text.lower()
            octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
            return int(digits, 8 if octal else 0)
        if kind == "name":
            return self._name(text)
        raise _Unknown

    def _name(self, name: str) -> int:
        if name == "defined":
            bracket = self._peek() == "("
            if bracket:
                self._take()
            result = int(_defined(self._take()[1], self.macros))
            if bracket:
                self._expect(")")
            return result
        if name in ("true", "false"):
            return int(name == "true")
        if self._peek() == "(" or name in self.expanding:
            raise _Unknown
        if not _defined(name, self.macros):
            return 0
        return _Condition(self.macros[name], self.macros, (*self.expanding, name)).value()


def _apply(sign: str, left: int, right: int) -> int:
    if sign in ("/", "%"):
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - right * quotient
    if sign in ("<<", ">>"):
        if not 0 <= right < 64:
            raise _Unknown
        return left << right if sign == "<<" else left >> right
    return int(
        {
            "||": lambda: bool(left or right),
            "&&": lambda: bool(left and right),
            "|": lambda: left | right,
            "^": lambda: left ^ right,
            "&": lambda: left & right,
            "==": lambda: left == right,
            "!=": lambda: left != right,
            "<": lambda: left < right,
            ">": lambda: left > right,
            "<=": lambda: left <= right,
            ">=": lambda: left >= right,
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
        }[sign]()
    )
