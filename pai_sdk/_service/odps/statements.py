"""Parses the few SQL statements that clients send to create and drop tables and partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pai_sdk._data.trace.types import column_type, trace_schema
from pai_sdk._service.odps.sql_tokens import Tokens, unclear
from pai_sdk.errors import InvalidInputError

# Limits of MaxCompute SQL: https://www.alibabacloud.com/help/en/maxcompute/user-guide/maxcompute-sql-limits
_MAX_STATEMENT_BYTES = 2 << 20
_MAX_NAME_BYTES = 128
_MAX_COMMENT_BYTES = 1024
_MAX_VALUE_BYTES = 255
_MAX_COLUMNS = 1200
_MAX_PARTITION_COLUMNS = 6
_MAX_PARTITION_LENGTH = 8192  # six pairs of names and values of maximum length, with quotes and some spaces
_MAX_LIFECYCLE_DIGITS = 9
_MAX_MESSAGE_LENGTH = 1000

_AFTER_TYPE = ("NOT", "NULL", "COMMENT")
_OPENING, _CLOSING = ("(", "<"), (")", ">")
_NAME = re.compile(r"\w+")
_SEPARATOR = re.compile(r"[,/]")


@dataclass(frozen=True)
class Statement:
    """A parsed SQL statement."""

    kind: str  # `create`, `drop`, `add` or `remove` (of a partition)
    table: str
    may_exist: bool  # IF NOT EXISTS of `create` and `add`, IF EXISTS of `drop` and `remove`
    project: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # name to type
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)  # name to value, in the order of the statement
    lifecycle: int | None = None  # days; stored, but no rows are deleted
    properties: Mapping[str, str] = field(default_factory=dict)


def read_statement(sql: str) -> Statement:
    """Parses a statement. All of its text must be understood: no clause and no second statement is ignored."""
    size_bytes = len(sql.encode(errors="replace"))
    if size_bytes > _MAX_STATEMENT_BYTES:
        raise unclear(f"The statement has {size_bytes:,} bytes; {_MAX_STATEMENT_BYTES:,} are allowed.")
    tokens = Tokens(sql)
    if tokens.accept_keywords("CREATE", "TABLE"):
        statement = _create(tokens)
    elif tokens.accept_keywords("DROP", "TABLE"):
        may_exist = tokens.accept_keywords("IF", "EXISTS")
        project, table = _table_name(tokens)
        statement = Statement("drop", table, may_exist, project)
    elif tokens.accept_keywords("ALTER", "TABLE"):
        statement = _alter(tokens)
    else:
        excerpt = sql[tokens.next.start :][:60]
        raise unclear(f"This service creates and drops tables and partitions; it does not run {excerpt!r}.")
    if tokens.accept_sign(";"):
        while tokens.accept_sign(";"):
            pass
        if tokens.next.kind != "end":
            raise tokens.unexpected("the end of the only statement of a request")
    if tokens.next.kind != "end":
        raise tokens.unexpected("the end of the statement")
    return statement


def read_partition(text: str) -> dict[str, str]:
    """Parses the pairs of a partition: `dt=1,hour='2'` or `dt=1/hour=2`; none for an empty string."""
    return _checked_partition(_pairs(text))


# ---- statements


def _create(tokens: Tokens) -> Statement:
    may_exist = tokens.accept_keywords("IF", "NOT", "EXISTS")
    project, table = _table_name(tokens)
    columns = _columns(tokens, _MAX_COLUMNS)
    clauses: dict[str, Any] = {}
    while clause := _accept_clause(tokens):
        name, read = clause
        if name in clauses:
            raise unclear(f"The statement has {name} more than once.")
        clauses[name] = read(tokens)
    partitions = clauses.get("PARTITIONED BY", {})
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
        lifecycle=clauses.get("LIFECYCLE"),
        properties=clauses.get("TBLPROPERTIES", {}),
    )


def _accept_clause(tokens: Tokens) -> tuple[str, Callable[[Tokens], Any]] | None:
    for keywords, read in _CLAUSES.items():
        if tokens.accept_keywords(*keywords.split()):
            return keywords, read
    return None


def _alter(tokens: Tokens) -> Statement:
    project, table = _table_name(tokens)
    if tokens.accept_keywords("ADD"):
        kind, may_exist = "add", tokens.accept_keywords("IF", "NOT", "EXISTS")
    elif tokens.accept_keywords("DROP"):
        kind, may_exist = "remove", tokens.accept_keywords("IF", "EXISTS")
    else:
        raise tokens.unexpected("ADD or DROP")
    if not tokens.accept_keywords("PARTITION"):
        raise tokens.unexpected("PARTITION")
    pairs: list[tuple[str, str]] = []

    def parse_pair() -> None:
        name = tokens.expect_name("a partition column")
        tokens.expect("=")
        if tokens.next.kind not in ("word", "text"):
            raise tokens.unexpected("a quoted value")
        pairs.append((name, tokens.pop().text))

    tokens.expect_list(parse_pair)
    return Statement(kind, table, may_exist, project, partition=_checked_partition(pairs))


def _table_name(tokens: Tokens) -> tuple[str | None, str]:
    """Parses a table's name with its optional project."""
    name = tokens.expect_name("a table")
    project = None
    if tokens.accept_sign("."):
        project, name = name, tokens.expect_name("a table")
    for each in (project, name):
        if each and len(each.encode(errors="replace")) > _MAX_NAME_BYTES:
            raise unclear(f"The name {each[:60]!r}… has more than {_MAX_NAME_BYTES} bytes.")
    return project, name


def _columns(tokens: Tokens, max_columns: int) -> Mapping[str, str]:
    columns: dict[str, str] = {}

    def parse_column() -> None:
        name = tokens.expect_name("a column").lower()  # column names of MaxCompute are case-insensitive
        if name in columns:
            raise unclear(f"The column {name[:_MAX_NAME_BYTES]!r} is defined more than once.")
        if len(columns) == max_columns:
            raise unclear(f"There are more than {max_columns:,} columns.")
        columns[name] = _type(tokens)
        if not tokens.accept_keywords("NOT", "NULL"):
            tokens.accept_keywords("NULL")
        if tokens.accept_keywords("COMMENT"):
            _comment(tokens)

    tokens.expect_list(parse_column)
    try:
        return {field.name: column_type(field).lower() for field in trace_schema(columns)}
    except (InvalidInputError, ValueError) as error:
        raise unclear(str(error)[:_MAX_MESSAGE_LENGTH]) from error


def _type(tokens: Tokens) -> str:
    """Parses a type: all tokens up to one that can follow a type, outside of brackets."""
    first = last = tokens.next
    depth = 0
    while tokens.next.kind in ("word", "name", "sign"):
        token = tokens.next
        if depth == 0 and (token.text in (",", ")") or token.text.upper() in _AFTER_TYPE):
            break
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        last = tokens.pop()
    if last is first and first.kind != "word":
        raise tokens.unexpected("a type")
    return tokens.between(first, last)


def _comment(tokens: Tokens) -> str:
    text = tokens.expect_string()
    if len(text.encode(errors="replace")) > _MAX_COMMENT_BYTES:
        raise unclear(f"A comment has more than {_MAX_COMMENT_BYTES:,} bytes.")
    return text


def _properties(tokens: Tokens) -> Mapping[str, str]:
    properties: dict[str, str] = {}

    def parse_property() -> None:
        name = tokens.expect_string()
        tokens.expect("=")
        properties[name] = tokens.expect_string()

    tokens.expect_list(parse_property)
    return properties


def _lifecycle(tokens: Tokens) -> int:
    text = tokens.next.text
    if tokens.next.kind != "word" or not text.isdecimal() or len(text) > _MAX_LIFECYCLE_DIGITS:
        raise tokens.unexpected("a number of days")
    return int(tokens.pop().text)


_CLAUSES: Mapping[str, Callable[[Tokens], Any]] = {
    "COMMENT": _comment,
    "PARTITIONED BY": lambda tokens: _columns(tokens, _MAX_PARTITION_COLUMNS),
    "TBLPROPERTIES": _properties,
    "LIFECYCLE": _lifecycle,
}


# ---- partitions


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    if len(text) > _MAX_PARTITION_LENGTH:
        raise unclear(f"The partition has more than {_MAX_PARTITION_LENGTH:,} characters.")
    remaining = text.strip()
    while remaining:
        name, sign, remaining = (part.strip() for part in remaining.partition("="))
        quote = name[:1] if name[:1] == name[-1:] == "`" else ""
        name = name[len(quote) : len(name) - len(quote)]
        if not sign or not _NAME.fullmatch(name):
            raise _no_partition(text)
        if remaining[:1] in ("'", '"'):
            value, closing, remaining = remaining[1:].partition(remaining[0])
            remaining = remaining.lstrip()
        else:
            separator = _SEPARATOR.search(remaining)
            end = separator.start() if separator else len(remaining)
            value, closing, remaining = remaining[:end].strip(), "none needed", remaining[end:]
        if not closing or (remaining and remaining[0] not in ",/"):
            raise _no_partition(text)
        yield name, value
        if remaining and not remaining[1:].strip():
            raise _no_partition(text)
        remaining = remaining[1:].strip()


def _checked_partition(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    partition: dict[str, str] = {}
    for column, value in pairs:
        name = column.lower()
        if name in partition:
            raise unclear(f"The partition column {name[:_MAX_NAME_BYTES]!r} has more than one value.")
        if not value or value in (".", "..") or not value.isprintable() or any(sign in value for sign in "/\\="):
            raise unclear(f"{value[:60]!r} cannot be the value of the partition column {name[:60]!r}.")
        # A partition is a folder `name=value`; most file systems limit a name to 255 bytes too.
        if len(f"{name}={value}".encode()) > _MAX_VALUE_BYTES:
            raise unclear(f"The partition {name[:60]}={value[:60]!r}… has more than {_MAX_VALUE_BYTES} bytes.")
        partition[name] = value
    if len(partition) > _MAX_PARTITION_COLUMNS:
        raise unclear(f"There are more than {_MAX_PARTITION_COLUMNS} partition columns.")
    return partition


def _no_partition(text: str) -> Exception:
    return unclear(f"The partition {text[:100]!r} cannot be read; write dt=20261122,hour=10.")
