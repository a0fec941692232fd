"""The versions of tables: a database of an older build is carried over, one of a newer build is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    update,
)

from pai_sdk.errors import ServiceStartError

__all__ = ["Migration", "Schema"]

Migration = Callable[[Connection], None]

_RETIRED = 1000  # a version that every build takes for a newer one

_metadata = MetaData()
_versions = Table(
    "schema_versions",
    _metadata,
    Column("name", String(40), primary_key=True),
    Column("version", Integer, nullable=False),
)


@dataclass(frozen=True)
class Schema:
    """A set of tables with a version of its own.

    A new table needs no migration. A new column, or an index on a table that is there already, does: append one.
    What was appended once is never changed again.

    Attributes:
        name: under which the version is kept.
        metadata: the tables as they are now.
        migrations: the first brings tables of version 1 to version 2, and so on.
    """

    name: str
    metadata: MetaData
    migrations: Sequence[Migration] = ()

    @property
    def version(self) -> int:
        """The version that `metadata` describes."""
        return 1 + len(self.migrations)

    def prepare(self, connection: Connection) -> None:
        """Create the tables, or bring them up to date; within one transaction, so wholly or not at all.

        Raises:
            ServiceStartError: they are of a newer build, or not what their version says.
        """
        _metadata.create_all(connection)
        found = self._version_of(connection)
        if found > self.version:
            raise ServiceStartError(
                f"the {self.name} in the database were written by a newer pai-sdk (version {found} of the tables, "
                f"this one knows {self.version}); upgrade pai-sdk, or use another data folder"
            )
        for migrate in self.migrations[found - 1 :]:
            migrate(connection)
        self.metadata.create_all(connection)
        self._check(connection)
        connection.execute(delete(_versions).where(_versions.c.name == self.name))
        connection.execute(insert(_versions).values(name=self.name, version=self.version))

    def retire(self, connection: Connection) -> None:
        """Bring the tables up to date, and let no build open them again: their content is moved elsewhere."""
        if self._version_of(connection) != _RETIRED:
            self.prepare(connection)
            connection.execute(update(_versions).where(_versions.c.name == self.name).values(version=_RETIRED))

    def _version_of(self, connection: Connection) -> int:
        noted = connection.scalar(select(_versions.c.version).where(_versions.c.name == self.name))
        if noted is not None:
            return int(noted)
        # The first builds noted no version: what is there without one is of theirs.
        is_there = set(inspect(connection).get_table_names()) & set(self.metadata.tables)
        return 1 if is_there else self.version

    def _check(self, connection: Connection) -> None:
        known = inspect(connection)
        missing = [
            f"{table.name}.{column}"
            for table in self.metadata.sorted_tables
            for column in sorted({*table.columns.keys()} - {c["name"] for c in known.get_columns(table.name)})
        ]
        if missing:
            raise ServiceStartError(
                f"this pai-sdk cannot read the {self.name} in the database (missing columns: "
                f"{', '.join(missing)}); use another data folder, or the pai-sdk that wrote it"
            )
