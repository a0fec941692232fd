"""Places of programs and lists of packages that need a manual change: they name alipai, or call it in its way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_MODULES = (
    "api|common|dataset|dsw|estimator|exception|experiment|huggingface|image|job|libs|model|modelscope|pipeline"
    "|predictor|processor|serializers|session|tensorboard|toolkit|tracking|version"
)
_NAME = re.compile(rf"(?<!\w)pai\.({_MODULES})(?!\w)")
_NAMES_ONLY = re.compile(r"[\w.]+(\[[\w.\[\]|, ]+\])?")
_TOOL = re.compile(r"(?<![\w.])pai\.toolkit\b")
_PACKAGE = re.compile(
    r"(?<![\w./-])alipai(?![\w./-])|\bpip3?\b.*\binstall\b.*\s[\"']?pai(?![\w./-])|^\s*pai\s*([=<>~!;\[]|$)"
)

_MAKERS = ("Estimator", "Processor", "Recipe", "TrainingJob")
_RETURNS_JOB = ("fit", "train", "run", "latest_job")
_JOB = re.compile(r"(\w*_)?(job|est|estimator|processor|recipe)\d*")


@dataclass(frozen=True, order=True)
class Leftover:
    """A place that needs a manual change."""

    line: int  # from 1, in the file; in a notebook, in the cell
    what: str  # the name or text at this position
    instead: str  # the replacement, or what to do
    cell: int = 0  # from 1, in a notebook; 0 elsewhere


def names_in_strings(tree: ast.AST) -> Iterator[Leftover]:
    """Yields the strings that are a name of alipai, such as the target of `mock.patch`."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value
            if _NAME.search(text) and _NAMES_ONLY.fullmatch(text):
                yield Leftover(node.lineno, repr(text), "write pai_sdk there")


def differing_calls(tree: ast.AST) -> Iterator[Leftover]:
    """Yields the calls of a program for alipai whose values by position mean something else here."""
    jobs = set(_names_of_jobs(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = _last_name(node.func)
        if name == "setup_default_session":
            instead = "name each value: access_key_id=…, access_key_secret=…, region_id=…"
            yield Leftover(node.lineno, f"{name}(…)", instead)
        elif isinstance(node.func, ast.Attribute) and name == "wait" and _is_job(node.func.value, jobs):
            interval = ast.unparse(node.args[0])
            more = ", …" if len(node.args) > 1 else ""
            instead = f"wait(interval={interval}): the first parameter is the timeout in seconds here"
            yield Leftover(node.lineno, f"{ast.unparse(node.func)}({interval}{more})", instead)


def lines_with_package(text: str) -> Iterator[Leftover]:
    """Yields the lines of a list of packages, or of a script, that install alipai or run its tool."""
    for number, line in enumerate(text.splitlines(), 1):
        if _TOOL.search(line):
            yield Leftover(number, line.strip(), "python -m pai_sdk.toolkit.config")
        elif _PACKAGE.search(line):
            yield Leftover(number, line.strip(), "name a wheel of pai_sdk, which `pai-sdk wheel` writes")


def _names_of_jobs(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a program gives to jobs, estimators and processors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _makes_job(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _makes_job(value: ast.expr) -> bool:
    name = _last_name(value.func if isinstance(value, ast.Call) else value)
    return name in _RETURNS_JOB or name.endswith(_MAKERS)


def _is_job(receiver: ast.expr, jobs: set[str]) -> bool:
    if isinstance(receiver, ast.Name):
        return receiver.id in jobs or _JOB.fullmatch(receiver.id) is not None
    return _makes_job(receiver) or _JOB.fullmatch(_last_name(receiver)) is not None


def _last_name(node: ast.expr) -> str:
    """Returns the last part of a dotted name; empty for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
