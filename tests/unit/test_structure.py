"""Rules of the code base that no linter checks: layers, sizes, prints, modules that Python has dropped."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.measuring import measure

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pai_sdk"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MOST_LINES = 60  # of a function, its docstring aside
MOST_MODULES = 20  # side by side in a folder
# Imports of our own inside functions: each keeps weight (numpy, pydantic, oss2) away until it is needed.
MOST_LATE_IMPORTS = 94
MAY_PRINT = ("cli", "notebook")
TELLS = {"add", "notice", "say", "echo", "debug", "info", "warning", "error", "JobFailed", "JobStopped"}
DROPPED = {
    "3.12": ("asynchat", "asyncore", "distutils", "imp", "smtpd"),
    "3.13": (
        "cgi",
        "cgitb",
        "crypt",
        "imghdr",
        "mailcap",
        "nntplib",
        "pipes",
        "sndhdr",
        "telnetlib",
        "uu",
        "xdrlib",
    ),
    "setuptools 81": ("pkg_resources",),
}


def test_imports_go_downwards_only() -> None:
    check = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for importer, imported, _ in measure.first_party_imports(MODULES):
        graph.setdefault(importer, set()).add(imported)
    assert measure.depth_and_circles(graph)[1] == []
    # The session imports the errors.
    assert measure.depth_and_circles({**graph, "pai_sdk.errors": {"pai_sdk._client.session"}})[1] != []


def test_few_imports_are_inside_functions() -> None:
    late = [names for *names, is_late in measure.first_party_imports(MODULES) if is_late]
    assert len(late) <= MOST_LATE_IMPORTS, late


def test_private_members_are_used_by_their_class_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure.private_reads(MODULES) == []
    module = tmp_path / "module.py"
    module.write_text(
        "class Job:\n"
        "    def __eq__(self, other): return self._id == other._id\n"
        "def run(job): return job._id, job._of_a_library, job._replace()\n"
    )
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    assert measure.private_reads([module]) == ["module.py:3 job._id"]


def test_a_folder_has_few_modules_side_by_side() -> None:
    folders = Counter(path.parent.relative_to(ROOT).as_posix() for path in MODULES if path.stem != "__init__")
    assert {folder: count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_tests_replace_the_clock_of_one_module_only() -> None:
    """Event loops of services in other threads use the clock of the process: they would sleep until that time."""
    replaced = re.compile(r'setattr\(\s*(?:"(?:[\w.]+\.)?time\.|(?:\w+\.)*time, ")(?:time|monotonic)"')
    assert [path.name for path in TESTS if replaced.search(path.read_text("utf-8"))] == []


def test_every_function_is_short() -> None:
    long = {
        f"{_name(path)}:{node.lineno} {node.name}": num
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (num := measure.body_lines(node)) > MOST_LINES
    }
    assert long == {}


def test_only_facades_are_long_classes() -> None:
    _, classes = measure.long_definitions(MODULES)
    assert {name.partition(" ")[0] for name in classes} == {"Session", "TrainingJob"}


def test_the_library_does_not_print() -> None:
    prints = [
        f"{_name(path)}:{node.lineno}"
        for path in MODULES
        if path.relative_to(PACKAGE).parts[0] not in MAY_PRINT
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert prints == []


def test_no_message_has_lost_the_f_before_it() -> None:
    """`"no such file {path}"`: its reader would learn what the variable is called."""
    plain = [
        f"{_name(path)}:{text.lineno}: {text.value}"
        for path in MODULES
        for call in ast.walk(_tree(path))
        if isinstance(call, ast.Call) and _is_told(call.func)
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
        for text in _plain_texts(argument)
        if re.search(r"\{[a-z_][\w.]*(\(.*\)|\[.*\])?(![rsa])?(:[^}]*)?\}", text.value)
    ]
    assert plain == []


def test_nothing_is_used_that_was_dropped() -> None:
    dropped = {name: since for since, names in DROPPED.items() for name in names}
    used = [(_name(path), name, dropped[name]) for path in MODULES for name in _imported(path) if name in dropped]
    assert used == []


def test_what_tests_import_from_each_other_is_there() -> None:
    """Slow tests are collected only when they run: until then, nothing would miss a name that was moved."""
    missing = [
        (_name(path), f"{node.module}.{alias.name}")
        for path in TESTS
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tests"
        for alias in node.names
        if not _is_there(ROOT.joinpath(*str(node.module).split(".")), alias.name)
    ]
    assert missing == []


def test_these_rules_see_the_package() -> None:
    assert {"pai_sdk/__init__.py", "pai_sdk/errors.py"} <= {_name(path) for path in MODULES}
    assert "tenacity" in _imported(PACKAGE / "_core" / "retry.py")
    assert _is_there(ROOT / "tests" / "unit", "test_structure")
    assert _is_there(Path(__file__).with_suffix(""), "PACKAGE")
    assert not _is_there(Path(__file__).with_suffix(""), "PACKAGES")


def _is_there(module: Path, name: str) -> bool:
    """Returns True if a module, given as its path without an ending, has a submodule or a name of its own."""
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    if (module / name).is_dir() or (module / f"{name}.py").exists():
        return True
    return file.exists() and (name == "*" or name in _defined(file))


@cache
def _defined(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return found


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _is_told(function: ast.expr) -> bool:
    """Whether what is called takes a text for people: an error, a problem, a notice, a record of a log."""
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name.endswith(("Error", "Problem", "WireError", "Exception")) or name in TELLS


def _plain_texts(value: ast.expr) -> Iterator[ast.Constant]:
    """The texts in an expression that are no f-strings, and not filled in by a call of their own."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value
    elif isinstance(value, ast.List | ast.BinOp | ast.IfExp):
        for inner in ast.iter_child_nodes(value):
            if isinstance(inner, ast.expr):
                yield from _plain_texts(inner)


def _imported(path: Path) -> Iterator[str]:
    """Top-level names of everything the module imports, at its top or inside its functions."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
