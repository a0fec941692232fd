"""Values of a submission that only the script or program itself knows, beside those that are written in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Computed",
    "Name",
    "Value",
    "as_number",
    "is_set",
    "joined",
    "marked",
    "source_of",
    "split_at",
    "unmarked",
]

_WIDTH = 100  # of a line of generated code


@dataclass(frozen=True)
class Name:
    """A Python expression; `is_text` where it is a string for sure, as all values of a shell are."""

    source: str
    is_text: bool = True


@dataclass(frozen=True)
class Computed:
    """A text with expressions in it, or one expression of any type."""

    parts: tuple[str | Name, ...]

    @property
    def only(self) -> Name | None:
        """The expression, if there is no text around it."""
        match self.parts:
            case (Name() as name,):
                return name
        return None


Value = str | Computed


def joined(*values: Value) -> Value:
    """Joins texts and computed texts."""
    parts: list[str | Name] = []
    for value in values:
        for part in (value,) if isinstance(value, str) else value.parts:
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part != "":
                parts.append(part)
    if any(isinstance(part, Name) for part in parts):
        return Computed(tuple(parts))
    return "".join(part for part in parts if isinstance(part, str))


def marked(index: int) -> str:
    """Returns what stands for an expression in text that is parsed: its number between private characters."""
    return f"\ue000{index}\ue001"


def unmarked(text: str, expressions: Sequence[Name]) -> Value:
    """Returns text with its marks replaced by their expressions."""
    parts: list[str | Name] = list(re.split("\ue000(\\d+)\ue001", text))
    parts[1::2] = [expressions[int(str(part))] for part in parts[1::2]]
    return joined(Computed(tuple(parts)))


def split_at(value: Value, separator: str, limit: int = 0) -> list[Value]:
    """Splits at a separator that is written in the value, at most `limit` times unless that is 0."""
    segments: list[Value] = [""]
    for part in (value,) if isinstance(value, str) else value.parts:
        if isinstance(part, Name):
            segments[-1] = joined(segments[-1], Computed((part,)))
            continue
        remaining = limit - len(segments) + 1 if limit else -1
        first, *more = part.split(separator, remaining) if remaining else [part]
        segments[-1] = joined(segments[-1], first)
        segments += more
    return segments


def is_set(value: object) -> bool:
    """Returns whether a value of a body is there: DLC reads null, "", [] and {} as absent."""
    return value is not None and value != "" and value != [] and value != {}


def as_number(value: Any) -> Any:
    """Returns a whole number for a text of one; other texts unchanged, expressions as one of type int."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"\s*[+-]?\d+\s*", value) else value
    if isinstance(value, Computed):
        if value.only and not value.only.is_text:
            return value
        return Computed((Name(f"int({source_of(value)})", is_text=False),))
    return value


def source_of(value: object, indent: int = 0) -> str:
    """Returns the Python source of a value; lists and dicts that are long have a line for each item."""
    if isinstance(value, Computed):
        return value.only.source if value.only else _computed_text(value, indent)
    if isinstance(value, Mapping):
        return _bracketed("{}", [f"{source_of(k)}: {source_of(v, indent + 4)}" for k, v in value.items()], indent)
    if isinstance(value, str):
        return _text(value, indent)
    if isinstance(value, Sequence):
        return _bracketed("[]", [source_of(each, indent + 4) for each in value], indent)
    return repr(value)


def _bracketed(brackets: str, items: Sequence[str], indent: int) -> str:
    line = f"{brackets[0]}{', '.join(items)}{brackets[1]}"
    if len(line) + indent <= _WIDTH and "\n" not in line:
        return line
    before = "\n" + " " * (indent + 4)
    return brackets[0] + "".join(f"{before}{item}," for item in items) + f"\n{' ' * indent}{brackets[1]}"


def _text(value: str, indent: int) -> str:
    """Returns a literal in double quotes; one of several lines is joined from a literal for each line."""
    lines = value.splitlines(keepends=True)
    if len(lines) > 1:
        before = "\n" + " " * (indent + 4)
        return "(" + "".join(f"{before}{_quoted(line)}" for line in lines) + f"\n{' ' * indent})"
    return _quoted(value)


def _quoted(text: str) -> str:
    literal = repr(text)
    if literal[0] == "'" and '"' not in text:
        return f'"{literal[1:-1]}"'
    return literal


def _needs_join(value: Computed) -> bool:
    return any(re.search(r'["\\]', part.source) for part in value.parts if isinstance(part, Name))


def _computed_text(value: Computed, indent: int) -> str:
    lines = split_at(value, "\n")
    if len(lines) == 1 or _needs_join(value):  # join() is no literal, which the next line continues
        return _formatted_text(value)
    literals = [joined(line, "\n") for line in lines[:-1]] + [line for line in lines[-1:] if line != ""]
    before = "\n" + " " * (indent + 4)
    texts = (_quoted(each) if isinstance(each, str) else _formatted_text(each) for each in literals)
    return "(" + "".join(f"{before}{text}" for text in texts) + f"\n{' ' * indent})"


def _formatted_text(value: Computed) -> str:
    if _needs_join(value):
        # Before Python 3.12, neither may be within the braces.
        items = [f"str({part.source})" if isinstance(part, Name) else _quoted(part) for part in value.parts]
        return f'"".join([{", ".join(items)}])'
    segments = []
    for part in value.parts:
        if isinstance(part, Name):
            segments.append(f"{{{part.source}}}")
            continue
        escaped = part.replace("{", "{{").replace("}", "}}")
        # With a double quote in it, repr() uses single quotes.
        segments.append(repr(f'{escaped}"')[1:-2].replace("\\'", "'").replace('"', '\\"'))
    return f'f"{"".join(segments)}"'
