"""Reads the few SQL statements that clients send to create and drop tables and partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pai_sdk.errors import InvalidInputError
from pai_sdk.service.tables.table_errors import TableFault
from pai_sdk.trace.types import trace_schema, type_text

__all__ = ["Statement", "read_partition", "read_statement"]

_NAME = r"(?:[\w`]+\.)*`?(?P<table>\w+)`?"
_CREATE = re.compile(rf"CREATE\s+TABLE\s+(?P<exists>IF\s+NOT\s+EXISTS\s+)?{_NAME}\s*\(", re.I)
_DROP = re.compile(rf"DROP\s+TABLE\s+(?P<exists>IF\s+EXISTS\s+)?{_NAME}", re.I)
_ALTER = re.compile(
    rf"ALTER\s+TABLE\s+{_NAME}\s+(?P<verb>ADD|DROP)\s+(?P<exists>IF\s+(?:NOT\s+)?EXISTS\s+)?"
    r"PARTITION\s*\((?P<partition>.*?)\)\s*$",
    re.I | re.S,
)
_COLUMN = re.compile(
    r"`?(?P<name>\w+)`?\s+(?P<type>[^`'\"]+?)(?:\s+NOT\s+NULL|\s+NULL)?(?:\s+COMMENT\s+.*)?$", re.I | re.S
)
_PROPERTIES = re.compile(r"\bTBLPROPERTIES\s*\(", re.I)
_PROPERTY = re.compile(r"[\"']([^\"']+)[\"']\s*=\s*[\"']([^\"']*)[\"']")
_LIFECYCLE = re.compile(r"\bLIFECYCLE\s+(\d{1,9})", re.I)
_PAIR = re.compile(r"\s*`?(\w+)`?\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^,/]+?))\s*(?:[,/]|$)")


@dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        kind: `create`, `drop`, `add` or `remove` (of a partition).
        table: its name.
        may_exist: for `create` and `add`: what is there stays. For `drop` and `remove`: it may be missing.
        columns: name to type, of a new table.
        partition_columns: likewise.
        partition: name to value, in the order of the statement.
        lifecycle: days that rows are kept, as it was given; nothing is removed here.
        properties: of a new table.
    """

    kind: str
    table: str
    may_exist: bool
    columns: Mapping[str, str] = field(default_factory=dict)
    partition_columns: Mapping[str, str] = field(default_factory=dict)
    partition: Mapping[str, str] = field(default_factory=dict)
    lifecycle: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def read_statement(sql: str) -> Statement:
    """Read a statement.

    Raises:
        TableFault: it is none of those that are offered here.

    Example:
        >>> read_statement("CREATE TABLE t (`a` BIGINT) PARTITIONED BY (`dt` STRING)").partition_columns
        {'dt': 'string'}
    """
    sql = sql.strip().rstrip(";").strip()
    if found := _CREATE.match(sql):
        columns, rest = _in_brackets(sql, found.end())
        partitions = {}
        if partitioned := re.match(r"\s*(?:COMMENT\s+'(?:[^'\\]|\\.)*'\s*)?PARTITIONED\s+BY\s*\(", rest, re.I):
            inner, rest = _in_brackets(rest, partitioned.end())
            partitions = _columns(inner)
        properties = {}
        if given := _PROPERTIES.search(rest):
            inner, rest = _in_brackets(rest, given.end())
            properties = dict(_PROPERTY.findall(inner))
        days = _LIFECYCLE.search(rest)
        return Statement(
            "create",
            found["table"],
            bool(found["exists"]),
            _columns(columns),
            partitions,
            lifecycle=int(days[1]) if days else None,
            properties=properties,
        )
    if found := _DROP.fullmatch(sql):
        return Statement("drop", found["table"], bool(found["exists"]))
    if found := _ALTER.fullmatch(sql):
        kind = {"ADD": "add", "DROP": "remove"}[found["verb"].upper()]
        return Statement(kind, found["table"], bool(found["exists"]), partition=read_partition(found["partition"]))
    raise _unclear(f"This service creates and drops tables and partitions; it does not run {sql[:60]!r}.")


def read_partition(text: str) -> dict[str, str]:
    """The pairs of a partition: `dt=1,hour='2'` or `dt=1/hour=2`.

    Raises:
        TableFault: it cannot be read, or a value cannot be the name of a folder.
    """
    pairs, position = {}, 0
    while position < len(text):
        found = _PAIR.match(text, position)
        value = next((value for value in found.groups()[1:] if value is not None), "") if found else ""
        if not found or not value or value in (".", "..") or any(sign in value for sign in "/\\\0="):
            raise _unclear(f"The partition {text!r} cannot be read.")
        pairs[found[1]] = value
        position = found.end()
    return pairs


def _in_brackets(text: str, start: int) -> tuple[str, str]:
    """The text up to the bracket that closes one opened just before `start`, and what follows."""
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position], text[position + 1 :]
    raise _unclear("A bracket is not closed.")


def _columns(text: str) -> dict[str, str]:
    parts, depth, begin = [], 0, 0
    for position, sign in enumerate(f"{text},"):
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    found = [_COLUMN.match(part) for part in parts]
    if not all(found):
        raise _unclear("The columns cannot be read.")
    columns = {match["name"]: match["type"].strip() for match in found if match}
    try:
        return {field.name: type_text(field.type) for field in trace_schema(columns)}
    except (InvalidInputError, ValueError) as error:
        raise _unclear(str(error)) from error


def _unclear(message: str) -> TableFault:
    return TableFault(400, "ODPS-0130161", message)
