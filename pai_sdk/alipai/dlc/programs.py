"""Programs that submit DLC jobs, by the official client or the `dlc` command, shown with an `Estimator`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._wire.dlc.field_names import BODY_MODELS, PYTHON_NAMES
from pai_sdk.alipai.dlc.estimators import Suggestion, suggest
from pai_sdk.alipai.dlc.scripts import read_command, read_script
from pai_sdk.alipai.dlc.shell import ShellError
from pai_sdk.alipai.dlc.values import Computed, Name, Value, marked

__all__ = ["read_program"]

_CLIENT = "pai_dlc20201203"
_REQUEST = "CreateJobRequest"
# The clients spell some names in another way, such as `gputype`.
_ALIASES = {key.lower(): key for key in PYTHON_NAMES}
# What decides the form of a program is read through a name; other constants stay names.
_STRUCTURE = ("pod_count", "type", "job_type", "job_max_running_time_minutes")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_DEPTH = 20
_COMMAND = re.compile(r"(?:^|[\s/;&|(])dlc\s+(?:submit|create\s+job)\s")


@dataclass
class _Scope:
    """The statements of a function or of the module, in their order."""

    outer: _Scope | None = None
    statements: list[ast.stmt] = field(default_factory=list)
    conditional: set[ast.stmt] = field(default_factory=set)  # those of them that may not run

    def assignment(self, name: str, line: int) -> tuple[_Scope, ast.expr, int] | None:
        """Returns the last value that a name gets up to a line, the place of it and its scope."""
        latest: tuple[_Scope, ast.expr, int] | None = None
        for statement in self.statements:
            if statement.lineno > line:
                continue
            if isinstance(statement, ast.Assign):
                targets, value = statement.targets, statement.value
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                targets, value = [statement.target], statement.value
            else:
                continue
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                latest = (self, value, statement.lineno)
        if latest is None and self.outer is not None:
            # A function may be called behind any line of the module.
            return self.outer.assignment(name, 1 << 62)
        return latest


def read_program(tree: ast.Module) -> list[Suggestion]:
    """Returns a program for each job that a program submits."""
    uses_client = any(
        isinstance(node, ast.Import | ast.ImportFrom) and _CLIENT in ast.dump(node) for node in ast.walk(tree)
    )
    formats = any(isinstance(node, ast.Attribute) and node.attr == "format" for node in ast.walk(tree))
    reader = _Reader(_region(tree) if uses_client else None)
    suggestions = []
    for scope, statement in _statements(tree):
        for node in _expressions(statement):
            if uses_client and (body := reader.request(node, statement, scope)) is not None:
                code, notes = suggest(body, region=reader.region)
                suggestions.append(Suggestion(node.lineno, _REQUEST, code, [*reader.notes, *notes]))
            suggestions += _commands(node, is_template=formats)
    return sorted(suggestions, key=lambda each: each.line)


def _statements(tree: ast.Module) -> Iterator[tuple[_Scope, ast.stmt]]:
    module = _Scope()
    waiting: list[tuple[_Scope, ast.AST]] = [(module, tree)]
    pairs: list[tuple[_Scope, ast.stmt]] = []
    while waiting:
        scope, owner = waiting.pop()
        for child in ast.iter_child_nodes(owner):
            if isinstance(child, ast.stmt):
                scope.statements.append(child)
                if (
                    isinstance(owner, ast.If | ast.For | ast.While | ast.ExceptHandler)
                    or owner in scope.conditional
                ):
                    scope.conditional.add(child)
                pairs.append((scope, child))
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                waiting.append((_Scope(scope) if isinstance(child, _FUNCTIONS) else scope, child))
    for scope, _ in pairs:
        scope.statements.sort(key=lambda statement: statement.lineno)
    yield from pairs


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yields the expressions of a statement, outer ones first, without those of the statements in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.expr):
            yield node
        if not isinstance(node, ast.JoinedStr):  # its parts are no texts of their own
            waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def _region(tree: ast.Module) -> Any:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in ("Config", "Client"):
            for keyword in node.keywords:
                if keyword.arg == "region_id":
                    return _as_value(keyword.value)
    return None


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# ---- the official client ------------------------------------------------------------------------------------


class _Reader:
    """Evaluates what a program builds from dicts, lists and models; all else stays an expression."""

    def __init__(self, region: Any) -> None:
        self.region = region
        self._depth = 0
        self.notes: list[str] = []  # about the request that is being read
        self._inner: set[int] = set()  # requests that are read as a part of an outer expression

    def request(self, node: ast.expr, statement: ast.stmt, scope: _Scope) -> dict[str, Any] | None:
        """Returns the body of a request that an expression creates; None for other expressions."""
        if not isinstance(node, ast.Call) or id(node) in self._inner or not self._is_request(node):
            return None
        self.notes = []
        body = self._value(node, scope, node.lineno)
        if not isinstance(body, dict):
            body = {}
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name):
                self._mutate(body, target.id, scope, statement.lineno, 1 << 62)
        return body or None

    def _is_request(self, node: ast.Call) -> bool:
        if _last_name(node.func) == _REQUEST:
            return True
        if _last_name(node.func) != "from_map" or not isinstance(node.func, ast.Attribute):
            return False
        owner = node.func.value
        if isinstance(owner, ast.Call):
            self._inner.add(id(owner))
            owner = owner.func
        return _last_name(owner) == _REQUEST

    def _value(self, node: ast.expr, scope: _Scope, line: int, key: str = "") -> Any:
        """Evaluates an expression; `key` is the field of the body that it is for."""
        if isinstance(node, ast.Constant):
            return node.value
        if self._depth > _MAX_DEPTH:
            return _as_value(node)
        self._depth += 1
        try:
            if isinstance(node, ast.List | ast.Tuple):
                return [self._value(each, scope, line) for each in node.elts]
            if isinstance(node, ast.Dict):
                return self._dict(node, scope, line, key)
            if isinstance(node, ast.Call):
                return self._call(node, scope, line, key)
            if isinstance(node, ast.Name):
                return self._name(node, scope, line, key)
            return _as_value(node)
        finally:
            self._depth -= 1

    def _dict(self, node: ast.Dict, scope: _Scope, line: int, key: str) -> Any:
        values: dict[Any, Any] = {}
        for name, value in zip(node.keys, node.values, strict=True):
            if name is None:
                inner = self._value(value, scope, line, key)
                if not isinstance(inner, dict):
                    return _as_value(node)
                values |= inner
                continue
            text = self._value(name, scope, line)
            values[text] = self._value(value, scope, line, text if isinstance(text, str) else "")
        return values

    def _call(self, node: ast.Call, scope: _Scope, line: int, key: str) -> Any:
        name = _last_name(node.func)
        if name == "from_map" and len(node.args) == 1:
            return self._value(node.args[0], scope, line, key)
        if name == "dict" and not node.args:
            return self._keywords(node, scope, line, is_model=False)
        if name == "to_map" and isinstance(node.func, ast.Attribute) and not node.args:
            return self._value(node.func.value, scope, line, key)
        if name in BODY_MODELS or name.startswith(_REQUEST):
            return self._keywords(node, scope, line, is_model=True)
        return _as_value(node)

    def _keywords(self, node: ast.Call, scope: _Scope, line: int, *, is_model: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                inner = self._value(keyword.value, scope, line)
                values |= inner if isinstance(inner, dict) else {}
                continue
            name = _alias(keyword.arg) if is_model else keyword.arg
            values[name] = self._value(keyword.value, scope, line, name)
        return values

    def _name(self, node: ast.Name, scope: _Scope, line: int, key: str) -> Any:
        assignment = scope.assignment(node.id, line)
        if assignment is None:
            return _as_value(node)
        owner, value_node, start = assignment
        value = self._value(value_node, owner, start, key)
        if isinstance(value, dict | list):
            end = line if owner is scope else 1 << 62
            self._mutate(value, node.id, owner, start, end)
            return value
        if PYTHON_NAMES.get(key) in _STRUCTURE and not isinstance(value, Computed):
            return value
        return _as_value(node)

    def _mutate(self, value: Any, name: str, scope: _Scope, start: int, end: int) -> None:
        """Applies the statements that change a dict, a list or a model behind its creation."""
        for statement in scope.statements:
            if not start < statement.lineno <= end:
                continue
            if isinstance(statement, ast.Assign) and isinstance(value, dict):
                for target in statement.targets:
                    if (key := _changed_key(target, name)) is not None:
                        if statement in scope.conditional:
                            self.notes.append(f"line {statement.lineno} sets {key} under a condition")
                        value[key] = self._value(statement.value, scope, statement.lineno, key)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._mutate_by_call(value, name, statement.value, scope)

    def _mutate_by_call(self, value: Any, name: str, call: ast.Call, scope: _Scope) -> None:
        function = call.func
        if not isinstance(function, ast.Attribute) or not call.args:
            return
        if not isinstance(function.value, ast.Name) or function.value.id != name:
            return
        argument = self._value(call.args[0], scope, call.lineno)
        if function.attr == "append" and isinstance(value, list):
            value.append(argument)
        elif function.attr == "extend" and isinstance(value, list) and isinstance(argument, list):
            value += argument
        elif function.attr in ("update", "from_map") and isinstance(value, dict) and isinstance(argument, dict):
            value.update(argument)


def _changed_key(target: ast.expr, name: str) -> str | None:
    """Returns the key of `name["Key"] = …` or `name.key = …`."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == name:
        return _alias(target.attr)
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name) or target.value.id != name:
        return None
    index = target.slice
    return index.value if isinstance(index, ast.Constant) and isinstance(index.value, str) else None


def _alias(name: str) -> str:
    return _ALIASES.get(name.replace("_", "").lower(), name)


def _as_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    return Computed((Name(ast.unparse(node), is_text=isinstance(node, ast.JoinedStr)),))


# ---- the command, in texts and lists ------------------------------------------------------------------------


def _commands(node: ast.expr, *, is_template: bool) -> Iterator[Suggestion]:
    """Yields the submissions of a text or list that a program gives to the shell, or to `format` before."""
    if isinstance(node, ast.List | ast.Tuple):
        tokens = [_word(each) for each in node.elts]
        if len(tokens) > 2 and (suggestion := read_command(tokens, node.lineno)) is not None:
            yield suggestion
        return
    expressions: list[Name] = []
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = _marked_template(node.value, expressions) if is_template else node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(_marked_part(each, expressions) for each in node.values)
    else:
        return
    if not _COMMAND.search(text):
        return
    try:
        for suggestion in read_script(text, expressions=expressions):
            suggestion.line += node.lineno - 1
            yield suggestion
    except ShellError:
        return  # a text that only mentions the command


def _marked_template(text: str, expressions: list[Name]) -> str:
    """Returns the text with marks for `{name}`, as `str.format` replaces them."""

    def mark(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        expressions.append(Name(match[1]))
        return marked(len(expressions) - 1)

    return re.sub(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_]\w*)\}", mark, text)


def _marked_part(part: ast.expr, expressions: list[Name]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    expressions.append(_name_of(part))
    return marked(len(expressions) - 1)


def _name_of(part: ast.expr) -> Name:
    """Returns the expression of a `{…}`; one with a format or a conversion stays a formatted text."""
    if isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None:
        return Name(ast.unparse(part.value), is_text=False)
    return Name(ast.unparse(ast.JoinedStr([part])))


def _word(node: ast.expr) -> Value:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.JoinedStr):
        if isinstance(node, ast.Call) and _last_name(node.func) == "str" and len(node.args) == 1:
            node = node.args[0]  # a number, for a list of tokens
        return Computed((Name(ast.unparse(node), is_text=False),))
    parts = [str(each.value) if isinstance(each, ast.Constant) else _name_of(each) for each in node.values]
    return Computed(tuple(parts)) if any(isinstance(part, Name) for part in parts) else "".join(map(str, parts))
