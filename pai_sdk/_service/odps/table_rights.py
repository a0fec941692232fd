"""Rights on tables: of a job by its access key, and of a user.

Users access the tables they have created, administrators all tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pai_sdk._service.identity.principal import OPERATOR, Principal, Right
from pai_sdk._service.odps.statements import read_partition
from pai_sdk._service.odps.table_errors import TableError, no_such_table

_URI = re.compile(r"odps://(?P<project>\w{1,128})/tables/(?P<table>\w{1,128})(?:/(?P<partition>.*))?", re.ASCII)


@dataclass(frozen=True)
class TableRef:
    """A table or some of its partitions, parsed from a URI."""

    project: str
    name: str
    # Name to value, of some or all partition columns; empty for the complete table.
    partition: Mapping[str, str] = field(default_factory=dict)

    def has(self, partition: Mapping[str, str]) -> bool:
        """Returns True if a partition is included."""
        return self.partition.items() <= partition.items()


def is_table(uri: str | None) -> bool:
    """Returns True if the URI of a channel is that of a table."""
    return uri is not None and uri.startswith("odps://")


def parse_table_uri(uri: str) -> TableRef:
    """Parses `odps://project/tables/table/dt=1`; a slash at the end is ignored."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise TableError(400, "ODPS-0130161", f"{uri[:200]!r} is not odps://project/tables/table/partition=value")
    partition = read_partition((match["partition"] or "").removesuffix("/"))
    return TableRef(match["project"], match["table"].lower(), partition)


class TableRights:
    """The rights of a key: everything, or to read and write certain tables.

    Args:
        readable: tables that the key may read; None for all tables.
        writable: tables that it may read, create, write and drop; None for all tables.
        user: rights of the key's user; None where there are no users.
    """

    def __init__(
        self,
        readable: Sequence[TableRef] | None,
        writable: Sequence[TableRef] | None,
        *,
        user: UserTables | None = None,
    ) -> None:
        self._readable = None if readable is None or writable is None else (*readable, *writable)
        self._writable = writable
        self._user = user

    @property
    def owner(self) -> str:
        """Returns the user who owns the tables that the key creates."""
        return OPERATOR if self._user is None else self._user.name

    def can_read(self, project: str, name: str) -> bool:
        """Returns True if the key gives access to the table, or to a part of it."""
        is_visible = self._user is None or self._user.can_read(project, name)
        return is_visible and bool(self._matching(project, name, writes=False))

    def check(
        self, project: str, name: str, partition: Mapping[str, str] | None = None, *, writes: bool = False
    ) -> None:
        """Checks access to a table or a partition of it; `partition` is None for metadata of the table."""
        self._check_key(project, name, partition, writes=writes)
        if self._user is not None:
            self._user.check(project, name, writes=writes)

    def check_create(self, project: str, name: str) -> None:
        """Checks that a table may be created; raises too if another user has a table of that name."""
        self._check_key(project, name, None, writes=True)
        if self._user is not None:
            self._user.check_create(project, name)

    def check_drop(self, project: str, name: str) -> bool:
        """Checks that the key gives access to all of a table; returns False if it belongs to another user."""
        self._check_key(project, name, {}, writes=True)
        # A table of another user is reported as missing, so that its name is all that others see of it.
        return self._user is None or self._user.check_drop(project, name)

    def _check_key(self, project: str, name: str, partition: Mapping[str, str] | None, *, writes: bool) -> None:
        tables = self._matching(project, name, writes=writes)
        if not any(partition is None or table.has(partition) for table in tables):
            self._refuse(project, name, partition, writes=writes)

    def _matching(self, project: str, name: str, *, writes: bool) -> Sequence[TableRef]:
        tables = self._writable if writes else self._readable
        if tables is None:
            return [TableRef(project, name.lower())]
        return [table for table in tables if (table.project, table.name) == (project, name.lower())]

    def _refuse(self, project: str, name: str, partition: Mapping[str, str] | None, *, writes: bool) -> None:
        part = "".join(f"/{column}={value}" for column, value in (partition or {}).items())
        action = "writing" if writes else "reading"
        raise TableError(
            403,
            "ODPS-0420095",
            f"The key gives no access to table {project}.{name}{part} for {action}: "
            "a job reads the tables of its inputs, and reads and writes those of its outputs.",
        )


ALL_TABLES = TableRights(None, None)


class UserTables:
    """Checks the rights of a user on tables: those of other users seem absent, but their names are taken."""

    def __init__(self, principal: Principal, owner_of: Callable[[str, str], str | None]) -> None:
        self._principal = principal
        self._owner_of = owner_of

    @property
    def name(self) -> str:
        """Returns the user's name."""
        return self._principal.user

    def can_read(self, project: str, name: str) -> bool:
        """Returns True if the table exists, and the user may read it."""
        owner = self._owner_of(project, name)
        return owner is not None and (self._principal.has_right("admin") or owner == self.name)

    def check(self, project: str, name: str, *, writes: bool) -> None:
        """Checks that the user may read a table, or also change it."""
        self._require("submit" if writes else "read", project, name)
        # A table of another user: 404, as if it did not exist.
        if not self.can_read(project, name):
            raise no_such_table(project, name)

    def check_create(self, project: str, name: str) -> None:
        """Checks that the user may create a table; one of their own may exist already."""
        self._require("submit", project, name)
        if self._owner_of(project, name) is not None and not self.can_read(project, name):
            raise _refusal(f"The name of table {project}.{name} is taken; choose another.")

    def check_drop(self, project: str, name: str) -> bool:
        """Returns True if the table exists and belongs to the user."""
        self._require("submit", project, name)
        return self.can_read(project, name)

    def _require(self, right: Right, project: str, name: str) -> None:
        if not self._principal.has_right(right):
            raise _refusal(f"The access key may only read; table {project}.{name} was not changed.")


def _refusal(message: str) -> TableError:
    return TableError(403, "ODPS-0420095", message)
