"""Rights of a user on tables: users access the tables they have created, administrators all tables."""

from __future__ import annotations

from collections.abc import Callable

from pai_sdk._service.identity.principal import Principal, Right
from pai_sdk._service.odps.table_errors import TableError, no_such_table


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
