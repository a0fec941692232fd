"""The tables that a session reaches: those of a service of your own, or those of MaxCompute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.trace.odps import OdpsSink, pyodps_client

if TYPE_CHECKING:
    from odps import ODPS

    from pai_sdk.config.credentials import CredentialsProvider

__all__ = ["OWN_PROJECT", "SessionTables"]

OWN_PROJECT = "pai"
"""The project of tables in a service of your own, unless another is given."""

_CLOUD = ".aliyuncs.com"


class SessionTables:
    """Tables with the endpoint and the keys of a session; `session.tables` gives it.

    Args:
        endpoint: the session's endpoint of PAI.
        region_id: its region.
        credentials: its keys.

    Example:
        >>> session.tables.sink("clicks", partition="dt=20261122")  # doctest: +SKIP
        OdpsSink('pai.clicks/dt=20261122')
    """

    def __init__(self, endpoint: str, region_id: str | None, credentials: CredentialsProvider) -> None:
        self._is_own = not (urlsplit(endpoint).hostname or "").endswith(_CLOUD)
        self.endpoint = endpoint if self._is_own else f"https://service.{region_id}.maxcompute.aliyun.com/api"
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"<SessionTables {self.endpoint}>"

    def sink(self, table: str, *, project: str | None = None, **options: Any) -> OdpsSink:
        """Where a `TraceWriter` writes to a table.

        Args:
            table: its name.
            project: of MaxCompute; `pai` in a service of your own.
            options: as for `OdpsSink`.

        Raises:
            InvalidInputError: the project is missing, or an option is wrong.
        """
        options = {"credentials": self._credentials, **self._tunnel(), **options}
        return OdpsSink(table, project=self._project(project), endpoint=self.endpoint, **options)

    def client(self, *, project: str | None = None) -> ODPS:
        """A client of pyodps: to read tables, and to make, list and drop them.

        Args:
            project: of MaxCompute; `pai` in a service of your own.

        Raises:
            InvalidInputError: the project is missing.
            MissingExtraError: pyodps is not installed.
        """
        key = self._credentials()
        return pyodps_client(key, self._project(project), self.endpoint, **self._tunnel())

    def _project(self, given: str | None) -> str:
        if given or self._is_own:
            return given or OWN_PROJECT
        raise InvalidInputError([Problem("project", "is missing", "name the project of MaxCompute")])

    def _tunnel(self) -> dict[str, str]:
        # pyodps keeps the tunnel that it found for an endpoint, in the whole process.
        return {"tunnel_endpoint": self.endpoint} if self._is_own else {}
