"""Rewrites programs and notebooks that were written for alipai: `pai` becomes `pai_sdk`, by syntax tree.

DLC jobs that programs, notebooks and shell scripts submit are shown as estimators; their code is not changed.
Only imports and uses of the imported name are changed; strings, comments and other names are not. Names that
pai_sdk does not have are detected by resolving them in pai_sdk itself, and are listed with their replacements.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pai_sdk._core.extras import install_command
from pai_sdk.alipai.dlc.estimators import Suggestion
from pai_sdk.alipai.dlc.programs import read_program
from pai_sdk.alipai.dlc.scripts import read_script
from pai_sdk.alipai.dlc.shell import ShellError
from pai_sdk.alipai.leftovers import Leftover, differing_calls, lines_with_package, names_in_strings
from pai_sdk.alipai.replacements import CALLED_OTHERWISE, instead_of
from pai_sdk.alipai.session_names import SESSION_REPLACEMENTS
from pai_sdk.errors import NotOfferedError

_OLD, _NEW = "pai", "pai_sdk"
_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_MAGIC = re.compile(r"^(\s*)([%!?]|[\w, ]*=\s*[%!]|[\w.]+\?\??\s*$).*$")
_OF_PYTHON = re.compile(r"[\w, =]*%%?(time|timeit|prun|memit|writefile|file|python3?)\b")
_SUBMITS = re.compile(r"\bdlc\b")
_OF_SHELL = re.compile(r"\s*%%(bash|sh|script\s+(ba|da|z)?sh)\b")
_USE = re.compile(rf"^\s*(from|import)\s+{_OLD}\b|(?<![\w.]){_OLD}\.\w")
_OF_ALIPAI = re.compile(r"\balipai\b|\bpai\.toolkit\b")
_FROM = re.compile(rf"from(?:\s|\\\r?\n)+{_OLD}\b")

_OTHERWISE = "see the page 'Coming from alipai' of the documentation"
_SERVING = ("deploy", "create_model")


@dataclass
class Migrated:
    """A file after the migration."""

    text: str  # the old one if nothing was changed
    # Label (of a cell), old lines, new lines, for a diff.
    changes: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    findings: list[Leftover] = field(default_factory=list)
    suggestions: list[Suggestion] = field(default_factory=list)  # programs for DLC jobs that it submits


def migrate_script(text: str, folder: Path | None = None) -> Migrated:
    """Reads the DLC jobs that a shell script submits; raises ValueError if the text is none."""
    findings = list(lines_with_package(text))
    if not _SUBMITS.search(text):  # what other scripts contain does not matter
        return Migrated(text, findings=findings)
    try:
        return Migrated(text, findings=findings, suggestions=read_script(text, folder))
    except ShellError as error:
        raise ValueError(f"not a shell script: line {error.line}: {error}") from None


def migrate_packages(text: str) -> Migrated:
    """Reads a list of packages, such as a requirements.txt; it is not changed."""
    return Migrated(text, findings=list(lines_with_package(text)))


def migrate_source(text: str) -> Migrated:
    """Rewrites a program; raises SyntaxError if the text is not Python."""
    tree = ast.parse(text)
    new, findings = _rewritten(text, tree, binds_old=_binds_old(tree))
    changes = [("", _lines(text), _lines(new))] if new != text else []
    return Migrated(new, changes, findings, read_program(tree))


def migrate_notebook(text: str) -> Migrated:
    """Rewrites the code cells of a notebook, and nothing else; raises ValueError if the text is none."""
    try:
        notebook = json.loads(text)
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell.get("source") or "") for cell in cells]
    except ValueError as error:
        raise ValueError(f"not a notebook: it is not JSON: {error}") from None
    except (KeyError, TypeError):
        raise ValueError("not a notebook of format 4: it has no list of cells") from None
    numbers = {id(cell): number for number, cell in enumerate(notebook["cells"], 1)}
    migrated, binds_old = Migrated(text), False
    parsed: list[tuple[int, ast.Module]] = []
    for cell, source in zip(cells, sources, strict=True):
        number = numbers[id(cell)]
        migrated.suggestions += _of_shell_cell(source, number)
        python, findings = _without_magics(source)
        try:
            tree = ast.parse(python)
        except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in older Pythons
            line = getattr(error, "lineno", None) or 1
            findings.append(Leftover(line, "this cell is not Python", "change it by hand"))
            migrated.findings += _in_cell(findings, number)
            continue
        parsed.append((number, tree))
        binds_old = binds_old or _binds_old(tree)  # an import in one cell holds for the cells behind it
        new, more = _rewritten(source, tree, binds_old=binds_old)
        migrated.findings += _in_cell([*findings, *more], number)
        if new != source:
            migrated.changes.append((f"cell {number}", _lines(source), _lines(new)))
            cell["source"] = _lines(new) if isinstance(cell["source"], list) else new
    migrated.suggestions += _of_cells(parsed)
    migrated.suggestions.sort(key=lambda each: (each.cell, each.line))
    if migrated.changes:
        migrated.text = _written_like(text, notebook)
    return migrated


def _of_shell_cell(source: str, number: int) -> Iterator[Suggestion]:
    """Yields the jobs that lines with `!`, or a cell with `%%bash`, submit."""
    lines = _lines(source)
    if not _OF_SHELL.match(source):
        lines = [
            line.replace("!", "", 1) if line.lstrip().startswith("!") else "\n" for line in _joined_lines(lines)
        ]
    else:
        lines[0] = "\n"
    try:
        for suggestion in read_script("".join(lines)):
            suggestion.cell = number
            yield suggestion
    except ShellError:
        return


def _joined_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yields lines together with those that continue them."""
    waiting = ""
    for line in lines:
        waiting += line
        if not line.rstrip("\r\n").endswith("\\"):
            # As many lines as before: their numbers are shown.
            yield waiting if waiting.lstrip().startswith("!") else "\n" * len(_lines(waiting))
            waiting = ""
    yield waiting


def _of_cells(cells: Sequence[tuple[int, ast.Module]]) -> Iterator[Suggestion]:
    """Yields the jobs of cells, which are read as one program: names of one cell are used in those behind it."""
    body: list[ast.stmt] = []
    starts: list[tuple[int, int]] = []
    end = 0
    for number, tree in cells:
        starts.append((end, number))
        last = max((getattr(node, "end_lineno", 0) or 0 for node in ast.walk(tree)), default=0)
        body += [ast.increment_lineno(statement, end) for statement in tree.body]
        end += last
    for suggestion in read_program(ast.Module(body, [])):
        start, number = [each for each in starts if each[0] < suggestion.line][-1]
        suggestion.line, suggestion.cell = suggestion.line - start, number
        yield suggestion


def _in_cell(findings: Sequence[Leftover], number: int) -> list[Leftover]:
    return [Leftover(finding.line, finding.what, finding.instead, number) for finding in sorted(findings)]


def _written_like(text: str, notebook: Any) -> str:
    """Formats the notebook in the JSON style of the old text, so that a diff has only the changed lines."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    unix_text = text.replace("\r\n", "\n")
    before, end = json.loads(text), "\n" if unix_text.endswith("\n") else ""
    first = re.match(r"\{\n([ \t]+)", unix_text)
    indent = first[1] if first else None if "\n" not in unix_text.strip() else 1
    for ascii_only in (False, True):
        if json.dumps(before, indent=indent, ensure_ascii=ascii_only) + end == unix_text:
            break
    else:
        ascii_only = False
    return (json.dumps(notebook, indent=indent, ensure_ascii=ascii_only) + end).replace("\n", line_end)


def _without_magics(source: str) -> tuple[str, list[Leftover]]:
    """Returns the cell as Python with the same line numbers, and the magics that mention or use alipai."""
    lines = _lines(source)
    is_other = bool(lines) and lines[0].startswith("%%") and not re.match(r"%%(time|timeit|capture)\b", lines[0])
    has_python = is_other and _OF_PYTHON.match(lines[0]) is not None
    findings, python, is_continued = [], [], False
    for number, line in enumerate(lines, 1):
        match = None if is_continued else _MAGIC.match(line)
        if not is_other and not is_continued and match is None:
            python.append(line)
            continue
        python.append(f"{match[1]}pass\n" if match and not is_other else "\n")
        is_continued = not is_other and line.rstrip().endswith("\\")
        if _OF_ALIPAI.search(line):
            instead = f"python -m {_NEW}.toolkit.config" if f"{_OLD}.toolkit" in line else install_command()
            findings.append(Leftover(number, line.strip(), instead))
        elif (has_python or _OF_PYTHON.match(line.lstrip())) and _USE.search(line):
            findings.append(Leftover(number, line.strip(), f"write {_NEW} there"))
    return "".join(python), findings


# ---- names --------------------------------------------------------------------------------------------------


def _binds_old(tree: ast.AST) -> bool:
    """Returns whether the program binds the name `pai`: by `import pai` or `import pai.session`."""
    return any(
        alias.asname is None and alias.name.partition(".")[0] == _OLD
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    )


def _rewritten(text: str, tree: ast.AST, *, binds_old: bool) -> tuple[str, list[Leftover]]:
    lines = [line.encode() for line in _lines(text)]  # columns of a syntax tree count bytes of UTF-8
    positions: set[tuple[int, int]] = set()
    findings: set[Leftover] = set()
    uses = _Uses(binds_old=binds_old)
    uses.visit(tree)
    for node, name in uses.names:
        if name:
            findings.update(_missing(node.lineno, name))
    for unclear in uses.unclear:
        line = getattr(unclear, "lineno", 1)
        findings.add(
            Leftover(line, "pai in a class with an attribute pai", "write pai_sdk there if it is the package")
        )
    for node in uses.nodes:
        line, column = _position_of_name(node, lines)
        if lines[line - 1][column : column + len(_OLD)] == _OLD.encode():
            positions.add((line, column))
        else:  # in an f-string, for which Python before 3.12 reports no position
            findings.add(Leftover(line, "pai in a formatted text, or behind a line break", "write pai_sdk there"))
    for line, column in sorted(positions, reverse=True):
        content = lines[line - 1]
        lines[line - 1] = content[:column] + _NEW.encode() + content[column + len(_OLD) :]
    findings.update(_missing_members(uses))
    findings.update(names_in_strings(tree))
    if uses.imports:
        findings.update(differing_calls(tree))
    return b"".join(lines).decode(), sorted(findings)


def _position_of_name(node: Any, lines: Sequence[bytes]) -> tuple[int, int]:
    """Returns the line, from 1, and the column of `pai` in a node that has it."""
    line, column = node.lineno, node.col_offset
    if isinstance(node, ast.ImportFrom):
        tail = b"".join(lines[line - 1 :])[column:].decode(errors="replace")
        match = _FROM.match(tail)
        before = (match[0] if match else "")[: -len(_OLD)]
        *above, last = _LINE_END.split(before) if match else [""]
        line, column = line + len(above), len(last.encode()) + (0 if above else column)
    elif isinstance(node, ast.Global | ast.Nonlocal):  # which have no places of their names
        column += _column_of_name(lines[line - 1][column:])
    return line, column


def _missing_members(uses: _Uses) -> Iterator[Leftover]:
    """Yields the attributes of sessions and models that pai_sdk lacks."""
    for attribute in uses.attributes:
        if attribute.attr in SESSION_REPLACEMENTS:
            yield Leftover(attribute.lineno, f".{attribute.attr}", SESSION_REPLACEMENTS[attribute.attr])
        elif attribute.attr in _SERVING and uses.imports:
            yield Leftover(attribute.lineno, f".{attribute.attr}()", "serving is left out; use PAI-EAS")


class _Uses(ast.NodeVisitor):
    """Collects the positions of `pai`, and the full names that are imported from it or accessed through it."""

    def __init__(self, *, binds_old: bool) -> None:
        self.nodes: list[Any] = []
        self.names: list[tuple[Any, str]] = []
        self.attributes: list[ast.Attribute] = []
        self.imports = binds_old
        self.unclear: list[ast.AST] = []
        self._outer = [binds_old]  # by scope: whether `pai` is the package in its functions and classes
        self._is_package = [binds_old]  # by scope: whether `pai` is the package in the scope itself

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] == _OLD:
                self.imports = True
                self.nodes.append(alias)
                self.names.append((alias, alias.name if "." in alias.name else ""))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and (node.module or "").partition(".")[0] == _OLD:
            self.imports = True
            self.nodes.append(node)
            self.names += [(alias, f"{node.module}.{alias.name}") for alias in node.names if alias.name != "*"]

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.append(node)
        parts: list[str] = [node.attr]
        inner: ast.expr = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id == _OLD and self._is_package[-1]:
            self.names.append((node, ".".join([_OLD, *reversed(parts)])))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id == _OLD and self._is_package[-1]:
            self.nodes.append(node)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        if _OLD in node.names and self._is_package[-1]:
            self.nodes.append(node)

    visit_Nonlocal = visit_Global

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self._visit_scope(node, is_package=self._outer[-1] and not _rebinds(node))

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        has_attribute = _rebinds(node)
        if has_attribute and self._outer[-1]:
            self.unclear += [name for name in _scope_nodes(node) if _is_name(name, ast.Load)]
        self._visit_scope(node, is_package=self._outer[-1] and not has_attribute)

    def _visit_scope(self, node: ast.AST, *, is_package: bool) -> None:
        # Functions in a class do not see the attributes of that class.
        self._outer.append(self._outer[-1] if isinstance(node, ast.ClassDef) else is_package)
        self._is_package.append(is_package)
        self.generic_visit(node)
        self._is_package.pop()
        self._outer.pop()


def _rebinds(scope: ast.AST) -> bool:
    """Returns whether a function or class binds `pai` to something else, such as a parameter or variable."""
    nodes = list(_scope_nodes(scope))
    if any(isinstance(node, ast.Global | ast.Nonlocal) and _OLD in node.names for node in nodes):
        return False
    return any(
        _is_name(node, ast.Store)
        or (isinstance(node, ast.arg) and node.arg == _OLD)
        or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == _OLD)
        or (isinstance(node, ast.ExceptHandler) and node.name == _OLD)
        or (isinstance(node, ast.alias) and node.asname == _OLD)
        for node in nodes
    )


def _scope_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a function or class, without those of its inner functions and classes."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _is_name(node: ast.AST, context: type[ast.expr_context]) -> bool:
    return isinstance(node, ast.Name) and node.id == _OLD and isinstance(node.ctx, context)


def _column_of_name(statement: bytes) -> int:
    """Returns the column of `pai` in a `global` or `nonlocal` statement; -1 if it is on a later line."""
    match = re.search(rb"(?<![\w])" + _OLD.encode() + rb"(?!\w)", statement)
    return match.start() if match else -1


def _missing(line: int, name: str) -> Iterator[Leftover]:
    """Yields a finding if pai_sdk does not have a name of alipai, or has it with another meaning."""
    try:
        _resolve(name.split("."))
        if name in CALLED_OTHERWISE:
            yield Leftover(line, name, instead_of(name))
    except NotOfferedError as error:
        yield Leftover(line, name, error.instead)
    except (AttributeError, ModuleNotFoundError):
        yield Leftover(line, name, instead_of(name) or _elsewhere(name) or _OTHERWISE)


def _elsewhere(name: str) -> str:
    """Returns the import of a name of alipai that another module has; empty without one."""
    last = name.rpartition(".")[2]
    modules = [f"{_NEW}.{each}" for each in ("estimator", "job", "session", "model", "common.utils")]
    return next((f"from {each} import {last}" for each in modules if last in import_module(each).__all__), "")


def _resolve(parts: Sequence[str]) -> None:
    """Resolves a name of alipai in pai_sdk, modules first; raises AttributeError or NotOfferedError."""
    module, remaining = _NEW, list(parts[1:])
    while remaining and find_spec(f"{module}.{remaining[0]}") is not None:
        module = f"{module}.{remaining.pop(0)}"
        if not getattr(import_module(module), "__path__", ()):  # no package, or one without modules
            break
    owner, name = import_module(module), ".".join(parts)
    if remaining:
        target = getattr(owner, remaining[0])
        if isinstance(target, type) and "instead" in vars(target):
            raise NotOfferedError(name, vars(target)["instead"])
    elif not hasattr(owner, "__all__") and (
        instead := instead_of(name)
    ):  # a module that only reports its replacement
        raise NotOfferedError(name, instead)


def _lines(text: str) -> list[str]:
    """Splits a program into lines as Python does; line ends are kept."""
    return [line for line in _LINE_END.split(text) if line]


def read_source(path: Path) -> tuple[str, str]:
    """Reads a program as Python does; returns the text with its line ends, and its encoding."""
    content = path.read_bytes()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    try:
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise SyntaxError(f"not a text in {encoding}") from error
