"""The tables that a key opens, and for what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pai_sdk.service.identity.principal import OPERATOR
from pai_sdk.service.tables.statements import read_partition
from pai_sdk.service.tables.table_errors import TableError
from pai_sdk.service.tables.user_tables import UserTables

__all__ = ["ALL_TABLES", "NamedTable", "TableRights", "is_table", "named_table"]

_URI = re.compile(r"odps://(?P<project>\w{1,128})/tables/(?P<table>\w{1,128})(?:/(?P<partition>.*))?", re.ASCII)


@dataclass(frozen=True)
class NamedTable:
    """A table, or a part of it, as a URI names it.

    Attributes:
        partition: name to value; empty for the whole table. It may name some of the table's partition columns.
    """

    project: str
    name: str
    partition: Mapping[str, str] = field(default_factory=dict)

    def has(self, partition: Mapping[str, str]) -> bool:
        """True if a partition belongs to what is named."""
        return self.partition.items() <= partition.items()


def is_table(uri: str | None) -> bool:
    """True if the URI of a channel is that of a table."""
    return uri is not None and uri.startswith("odps://")


def named_table(uri: str) -> NamedTable:
    """The table of `odps://project/tables/table/dt=1`; a slash at the end means nothing.

    Raises:
        TableError: the text is no such URI.

    Example:
        >>> named_table("odps://shop/tables/clicks/dt=1").partition
        {'dt': '1'}
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise TableError(400, "ODPS-0130161", f"{uri[:200]!r} is not odps://project/tables/table/partition=value")
    partition = read_partition((found["partition"] or "").removesuffix("/"))
    return NamedTable(found["project"], found["table"].lower(), partition)


class TableRights:
    """The rights of a key: everything, or to read and write the tables that it was given for.

    Args:
        readable: what the key may read; None for all tables.
        writable: what it may read, create, write and drop; None for all tables.
        user: the tables of the key's user, for whom others are not there; None where there are no users.

    Example:
        >>> rights = TableRights([NamedTable("shop", "clicks")], [])
        >>> rights.check("shop", "clicks")
        >>> rights.check("shop", "clicks", writes=True)
        Traceback (most recent call last):
        ...
        pai_sdk.service.tables.table_errors.TableError: The key gives no access to table shop.clicks ...
    """

    def __init__(
        self,
        readable: Sequence[NamedTable] | None,
        writable: Sequence[NamedTable] | None,
        *,
        user: UserTables | None = None,
    ) -> None:
        self._readable = None if readable is None or writable is None else (*readable, *writable)
        self._writable = writable
        self._user = user

    @property
    def owner(self) -> str:
        """The user whose tables those are that the key creates."""
        return OPERATOR if self._user is None else self._user.name

    def may_read(self, project: str, name: str) -> bool:
        """True if the key opens the table, or a part of it."""
        is_theirs = self._user is None or self._user.may_read(project, name)
        return is_theirs and bool(self._found(project, name, writes=False))

    def check(
        self, project: str, name: str, partition: Mapping[str, str] | None = None, *, writes: bool = False
    ) -> None:
        """Let a request through, or refuse it.

        Args:
            project: of MaxCompute.
            name: the table.
            partition: the one that is read or written; None for facts of the table.
            writes: whether something is changed.

        Raises:
            TableError: the key does not open this table, or not this partition.
        """
        self._check_named(project, name, partition, writes=writes)
        if self._user is not None:
            self._user.check(project, name, writes=writes)

    def check_create(self, project: str, name: str) -> None:
        """Let the creation of a table through, or refuse it.

        Raises:
            TableError: as for `check`, or someone else has a table of that name.
        """
        self._check_named(project, name, None, writes=True)
        if self._user is not None:
            self._user.check_create(project, name)

    def check_drop(self, project: str, name: str) -> bool:
        """Let the removal of a table through, or refuse it: the key must open all of it.

        Returns:
            False if the table is someone else's: to this key, there is none.

        Raises:
            TableError: as for `check`.
        """
        self._check_named(project, name, {}, writes=True)
        return self._user is None or self._user.check_drop(project, name)

    def _check_named(self, project: str, name: str, partition: Mapping[str, str] | None, *, writes: bool) -> None:
        found = self._found(project, name, writes=writes)
        if not any(partition is None or table.has(partition) for table in found):
            self._refuse(project, name, partition, writes=writes)

    def _found(self, project: str, name: str, *, writes: bool) -> Sequence[NamedTable]:
        tables = self._writable if writes else self._readable
        if tables is None:
            return [NamedTable(project, name.lower())]
        return [table for table in tables if (table.project, table.name) == (project, name.lower())]

    def _refuse(self, project: str, name: str, partition: Mapping[str, str] | None, *, writes: bool) -> None:
        part = "".join(f"/{column}={value}" for column, value in (partition or {}).items())
        what = "writing" if writes else "reading"
        raise TableError(
            403,
            "ODPS-0420095",
            f"The key gives no access to table {project}.{name}{part} for {what}: "
            "a job reads the tables of its inputs, and reads and writes those of its outputs.",
        )


ALL_TABLES = TableRights(None, None)
