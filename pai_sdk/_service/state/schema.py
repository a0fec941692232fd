"""Versions of database tables: an older database is migrated, a newer one is refused."""

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

Migration = Callable[[Connection], None]

_RETIRED = 1000  # every build refuses it as newer than its own

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

    A new table needs no migration. A new column does, and so does an index on an existing table: append a
    migration. A released migration is never changed.
    """

    name: str  # key of the version in the table `schema_versions`
    metadata: MetaData  # the tables of the current version
    migrations: Sequence[Migration] = ()  # the first one migrates version 1 to version 2

    @property
    def version(self) -> int:
        """Returns the version that `metadata` describes."""
        return 1 + len(self.migrations)

    def prepare(self, connection: Connection) -> None:
        """Creates the tables or migrates them, within the transaction; refuses tables of a newer build."""
        _metadata.create_all(connection)
        current = self._version_of(connection)
        if current > self.version:
            raise ServiceStartError(
                f"the {self.name} in the database were written by a newer pai-sdk (version {current} of the "
                f"tables, this one knows {self.version}); upgrade pai-sdk, or use another data folder"
            )
        for migrate in self.migrations[current - 1 :]:
            migrate(connection)
        self.metadata.create_all(connection)
        self._check(connection)
        connection.execute(delete(_versions).where(_versions.c.name == self.name))
        connection.execute(insert(_versions).values(name=self.name, version=self.version))

    def retire(self, connection: Connection) -> None:
        """Migrates the tables, then sets a version that every build refuses: their content was moved elsewhere."""
        if self._version_of(connection) != _RETIRED:
            self.prepare(connection)
            connection.execute(update(_versions).where(_versions.c.name == self.name).values(version=_RETIRED))

    def _version_of(self, connection: Connection) -> int:
        recorded = connection.scalar(select(_versions.c.version).where(_versions.c.name == self.name))
        if recorded is not None:
            return int(recorded)
        # The first builds stored no version: tables without one are theirs.
        has_tables = set(inspect(connection).get_table_names()) & set(self.metadata.tables)
        return 1 if has_tables else self.version

    def _check(self, connection: Connection) -> None:
        inspector = inspect(connection)
        missing = [
            f"{table.name}.{column}"
            for table in self.metadata.sorted_tables
            for column in sorted({*table.columns.keys()} - {c["name"] for c in inspector.get_columns(table.name)})
        ]
        if missing:
            raise ServiceStartError(
                f"this pai-sdk cannot read the {self.name} in the database (missing columns: "
                f"{', '.join(missing)}); use another data folder, or the pai-sdk that wrote it"
            )
