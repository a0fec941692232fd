"""YAML files with the line of each value, so that every mistake in a file can be reported where it is.

Scalars are read by the core schema of YAML 1.2: only `true` and `false` are booleans, `1e-3` is a number, and
dates, `yes`, `010` and `12:30` are texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from pai_sdk.errors import InvalidInputError, Problem

KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys and numbers that lead to a value."""

_STEP = re.compile(r"""\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]|\[(?P<number>\d+)\]|(?P<name>[\w-]+)""")
_CORE = {
    "null": (r"~|null|Null|NULL|", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "merge": (r"<<", "<"),
}


@dataclass(frozen=True)
class YamlFile:
    """The content of a YAML file, with the line of each value."""

    path: Path
    value: Any
    lines: Mapping[KeyPath, int]  # of each value, from 1
    scalars: Mapping[KeyPath, str] = field(repr=False)  # as they are written, without quotes
    problems: Sequence[Problem] = ()  # keys that are given twice

    def where(self, parameter: str) -> str:
        """Returns the file and the line of a value, before its path: `job.yaml:2: a['b']`."""
        line = self._line(parameter)
        return f"{self.path}:{line}: {parameter}" if line else f"{self.path}: {parameter}"

    def _line(self, parameter: str) -> int | None:
        """Returns the line of the deepest value on the path that the file has."""
        key_path: KeyPath = ()
        for step in _STEP.finditer(parameter):
            expected = int(step["number"]) if step["number"] else step["key"] if step["quote"] else step["name"]
            keys = {
                each[len(key_path)]
                for each in self.lines
                if len(each) == len(key_path) + 1 and each[:-1] == key_path
            }
            match = next((key for key in keys if key == expected or _matches(key, expected)), None)
            if match is None:
                break
            key_path = (*key_path, match)
        return self.lines.get(key_path)


def read_yaml(path: Path) -> YamlFile:
    """Reads a file; errors name the file and the line."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError([Problem(str(path), "is not UTF-8 text", "save it as UTF-8")]) from None
    except OSError as error:
        raise InvalidInputError([Problem(str(path), f"cannot be read: {error.strerror or error}")]) from None
    try:
        loader = _loader_class()(text)
        node = loader.get_single_node()
        lines: dict[KeyPath, int] = {}
        scalars: dict[KeyPath, str] = {}
        problems: list[Problem] = []
        problems.extend(_walk(node, (), path, lines, scalars, ()))
        value = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        message = " ".join(part for part in (error.context, error.problem) if part)
        raise InvalidInputError([Problem(where, f"not YAML: {message}")]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInputError([Problem(str(path), f"not YAML: {' '.join(str(error).split())}")]) from None
    return YamlFile(path, value, lines, scalars, problems)


def read_scalar(text: str) -> Any:
    """Parses a value as in a file: `3` is a number, `[a, b]` a list; a string that is no YAML stays as it is."""
    import yaml

    try:
        return _loader_class()(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def _walk(
    node: Any,
    key_path: KeyPath,
    path: Path,
    lines: dict[KeyPath, int],
    scalars: dict[KeyPath, str],
    around: tuple[int, ...],
) -> Iterator[Problem]:
    """Records the lines and strings of a node and its children; yields duplicate keys."""
    import yaml

    if id(node) in around:
        raise ValueError(f"line {node.start_mark.line + 1} contains itself")
    if isinstance(node, yaml.ScalarNode):
        scalars[key_path] = node.value
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            child_path = (*key_path, number)
            lines[child_path] = item.start_mark.line + 1
            yield from _walk(item, child_path, path, lines, scalars, (*around, id(node)))
    elif isinstance(node, yaml.MappingNode):
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if name in first_lines and name != "<<":
                where = f"{path}:{line}: {path_text((*key_path, name))}"
                yield Problem(where, f"is a duplicate key, first in line {first_lines[name]}")
            child_path = (*key_path, name)
            first_lines[name] = lines[child_path] = line
            yield from _walk(value, child_path, path, lines, scalars, (*around, id(node)))


def path_text(key_path: KeyPath) -> str:
    """Formats the path of a value: `inputs['train']`."""
    first, *steps = key_path
    return f"{first}{''.join(f'[{step!r}]' for step in steps)}"


def _matches(key: str | int, expected: str | int) -> bool:
    """Returns whether a problem refers to a key: problems of the wire's models have wire names."""
    plain = [str(name).replace("_", "").lower() for name in (key, expected)]
    return plain[0] == plain[1]


@lru_cache(maxsize=1)
def _loader_class() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - of the class, as its base has it

    for name, (pattern, first_characters) in _CORE.items():
        first = ["" if sign == "\0" else sign for sign in first_characters]
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), first)
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node), 0))
    return Loader
