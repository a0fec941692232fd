"""Parses the few SQL statements that clients send to create and drop tables and partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pai_sdk.errors import InvalidInputError
from pai_sdk.service.tables.sql_tokens import Tokens, unclear
from pai_sdk.trace.types import column_type, trace_schema

__all__ = ["Statement", "read_partition", "read_statement"]

# Limits of MaxCompute SQL: https://www.alibabacloud.com/help/en/maxcompute/user-guide/maxcompute-sql-limits
_LONGEST_STATEMENT_BYTES = 2 << 20
_LONGEST_NAME_BYTES = 128
_LONGEST_COMMENT_BYTES = 1024
_LONGEST_VALUE_BYTES = 255
_MOST_COLUMNS = 1200
_MOST_PARTITION_COLUMNS = 6
_LONGEST_PARTITION = 8192  # six pairs of the longest names and values, with quotes and some spaces
_MOST_LIFECYCLE_DIGITS = 9
_LONGEST_MESSAGE = 1000

_AFTER_TYPE = ("NOT", "NULL", "COMMENT")
_OPENING, _CLOSING = ("(", "<"), (")", ">")
_NAME = re.compile(r"\w+")
_SEPARATOR = re.compile(r"[,/]")


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        kind: `create`, `drop`, `add` or `remove` (of a partition).
        table: its name.
        may_exist: for `create` and `add`: what is there stays. For `drop` and `remove`: it may be missing.
        project: the one that the statement names, if any.
        columns: name to type, of a new table.
        partition_columns: likewise.
        partition: name to value, in the order of the statement.
        lifecycle: days that rows are kept, as it was given; nothing is removed here.
        properties: of a new table.
    """

    kind: str
    table: str
    may_exist: bool
    project: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)
    lifecycle: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def read_statement(sql: str) -> Statement:
    """Parse a statement. All of its text must be understood: no clause and no second statement is left out.

    Raises:
        TableError: it is none of those that are offered here, or longer than MaxCompute allows.

    Example:
        >>> read_statement("CREATE TABLE t (`a` BIGINT) PARTITIONED BY (`dt` STRING)").partition_columns
        {'dt': 'string'}
    """
    size_bytes = len(sql.encode(errors="replace"))
    if size_bytes > _LONGEST_STATEMENT_BYTES:
        raise unclear(f"The statement has {size_bytes:,} bytes; {_LONGEST_STATEMENT_BYTES:,} are allowed.")
    tokens = Tokens(sql)
    if tokens.take_words("CREATE", "TABLE"):
        statement = _create(tokens)
    elif tokens.take_words("DROP", "TABLE"):
        may_exist = tokens.take_words("IF", "EXISTS")
        project, table = _table_name(tokens)
        statement = Statement("drop", table, may_exist, project)
    elif tokens.take_words("ALTER", "TABLE"):
        statement = _alter(tokens)
    else:
        shown = sql[tokens.next.start :][:60]
        raise unclear(f"This service creates and drops tables and partitions; it does not run {shown!r}.")
    if tokens.take_sign(";"):
        while tokens.take_sign(";"):
            pass
        if tokens.next.kind != "end":
            raise tokens.unexpected("the end of the only statement of a request")
    if tokens.next.kind != "end":
        raise tokens.unexpected("the end of the statement")
    return statement


def read_partition(text: str) -> dict[str, str]:
    """The pairs of a partition: `dt=1,hour='2'` or `dt=1/hour=2`; none for an empty text.

    Raises:
        TableError: it cannot be read, or a value cannot be the name of a folder.
    """
    return _checked_partition(_pairs(text))


# ---- statements


def _create(tokens: Tokens) -> Statement:
    may_exist = tokens.take_words("IF", "NOT", "EXISTS")
    project, table = _table_name(tokens)
    columns = _columns(tokens, _MOST_COLUMNS)
    found: dict[str, Any] = {}
    while clause := _take_clause(tokens):
        name, read = clause
        if name in found:
            raise unclear(f"The statement has {name} more than once.")
        found[name] = read(tokens)
    partitions = found.get("PARTITIONED BY", {})
    names = [*columns, *partitions]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise unclear(f"The column {doubled[0]!r} is defined more than once.")
    return Statement(
        "create",
        table,
        may_exist,
        project,
        columns,
        partitions,
        lifecycle=found.get("LIFECYCLE"),
        properties=found.get("TBLPROPERTIES", {}),
    )


def _take_clause(tokens: Tokens) -> tuple[str, Callable[[Tokens], Any]] | None:
    for words, read in _CLAUSES.items():
        if tokens.take_words(*words.split()):
            return words, read
    return None


def _alter(tokens: Tokens) -> Statement:
    project, table = _table_name(tokens)
    if tokens.take_words("ADD"):
        kind, may_exist = "add", tokens.take_words("IF", "NOT", "EXISTS")
    elif tokens.take_words("DROP"):
        kind, may_exist = "remove", tokens.take_words("IF", "EXISTS")
    else:
        raise tokens.unexpected("ADD or DROP")
    if not tokens.take_words("PARTITION"):
        raise tokens.unexpected("PARTITION")
    pairs: list[tuple[str, str]] = []

    def take_pair() -> None:
        name = tokens.take_name("a partition column")
        tokens.expect("=")
        if tokens.next.kind not in ("word", "text"):
            raise tokens.unexpected("a quoted value")
        pairs.append((name, tokens.take().text))

    tokens.take_list(take_pair)
    return Statement(kind, table, may_exist, project, partition=_checked_partition(pairs))


def _table_name(tokens: Tokens) -> tuple[str | None, str]:
    """The project, if one is named, and the table."""
    name = tokens.take_name("a table")
    project = None
    if tokens.take_sign("."):
        project, name = name, tokens.take_name("a table")
    for each in (project, name):
        if each and len(each.encode(errors="replace")) > _LONGEST_NAME_BYTES:
            raise unclear(f"The name {each[:60]!r}… has more than {_LONGEST_NAME_BYTES} bytes.")
    return project, name


def _columns(tokens: Tokens, most: int) -> Mapping[str, str]:
    columns: dict[str, str] = {}

    def take_column() -> None:
        name = tokens.take_name("a column").lower()  # as MaxCompute has them
        if name in columns:
            raise unclear(f"The column {name[:_LONGEST_NAME_BYTES]!r} is defined more than once.")
        if len(columns) == most:
            raise unclear(f"There are more than {most:,} columns.")
        columns[name] = _type(tokens)
        if not tokens.take_words("NOT", "NULL"):
            tokens.take_words("NULL")
        if tokens.take_words("COMMENT"):
            _comment(tokens)

    tokens.take_list(take_column)
    try:
        return {field.name: column_type(field).lower() for field in trace_schema(columns)}
    except (InvalidInputError, ValueError) as error:
        raise unclear(str(error)[:_LONGEST_MESSAGE]) from error


def _type(tokens: Tokens) -> str:
    """The text of a type: up to what can follow a type, outside of its brackets."""
    first = last = tokens.next
    depth = 0
    while tokens.next.kind in ("word", "name", "sign"):
        token = tokens.next
        if depth == 0 and (token.text in (",", ")") or token.text.upper() in _AFTER_TYPE):
            break
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        last = tokens.take()
    if last is first and first.kind != "word":
        raise tokens.unexpected("a type")
    return tokens.between(first, last)


def _comment(tokens: Tokens) -> str:
    text = tokens.take_text()
    if len(text.encode(errors="replace")) > _LONGEST_COMMENT_BYTES:
        raise unclear(f"A comment has more than {_LONGEST_COMMENT_BYTES:,} bytes.")
    return text


def _properties(tokens: Tokens) -> Mapping[str, str]:
    properties: dict[str, str] = {}

    def take_property() -> None:
        name = tokens.take_text()
        tokens.expect("=")
        properties[name] = tokens.take_text()

    tokens.take_list(take_property)
    return properties


def _lifecycle(tokens: Tokens) -> int:
    text = tokens.next.text
    if tokens.next.kind != "word" or not text.isdecimal() or len(text) > _MOST_LIFECYCLE_DIGITS:
        raise tokens.unexpected("a number of days")
    return int(tokens.take().text)


_CLAUSES: Mapping[str, Callable[[Tokens], Any]] = {
    "COMMENT": _comment,
    "PARTITIONED BY": lambda tokens: _columns(tokens, _MOST_PARTITION_COLUMNS),
    "TBLPROPERTIES": _properties,
    "LIFECYCLE": _lifecycle,
}


# ---- partitions


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    if len(text) > _LONGEST_PARTITION:
        raise unclear(f"The partition has more than {_LONGEST_PARTITION:,} characters.")
    rest = text.strip()
    while rest:
        name, sign, rest = (part.strip() for part in rest.partition("="))
        quote = name[:1] if name[:1] == name[-1:] == "`" else ""
        name = name[len(quote) : len(name) - len(quote)]
        if not sign or not _NAME.fullmatch(name):
            raise _no_partition(text)
        if rest[:1] in ("'", '"'):
            value, closing, rest = rest[1:].partition(rest[0])
            rest = rest.lstrip()
        else:
            found = _SEPARATOR.search(rest)
            end = found.start() if found else len(rest)
            value, closing, rest = rest[:end].strip(), "none needed", rest[end:]
        if not closing or (rest and rest[0] not in ",/"):
            raise _no_partition(text)
        yield name, value
        if rest and not rest[1:].strip():
            raise _no_partition(text)
        rest = rest[1:].strip()


def _checked_partition(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for given_name, value in pairs:
        name = given_name.lower()
        if name in found:
            raise unclear(f"The partition column {name[:_LONGEST_NAME_BYTES]!r} has more than one value.")
        if not value or value in (".", "..") or not value.isprintable() or any(sign in value for sign in "/\\="):
            raise unclear(f"{value[:60]!r} cannot be the value of the partition column {name[:60]!r}.")
        # A partition is a folder `name=value`, whose name has the same limit on the usual file systems.
        if len(f"{name}={value}".encode()) > _LONGEST_VALUE_BYTES:
            raise unclear(f"The partition {name[:60]}={value[:60]!r}… has more than {_LONGEST_VALUE_BYTES} bytes.")
        found[name] = value
    if len(found) > _MOST_PARTITION_COLUMNS:
        raise unclear(f"There are more than {_MOST_PARTITION_COLUMNS} partition columns.")
    return found


def _no_partition(text: str) -> Exception:
    return unclear(f"The partition {text[:100]!r} cannot be read; write dt=20261122,hour=10.")
