"""The forms in which a run store takes paths: full URIs, and the paths that a file system takes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote, urlsplit

from pai_sdk.errors import InvalidInputError, Problem

__all__ = ["DbfsRoot", "HdfsRoot", "LocalRoot", "Root", "UriRoot", "is_dbfs_path"]

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?", re.DOTALL)
_HOSTS = frozenset({"ftp", "sftp", "ssh", "smb", "webhdfs", "http", "https"})
"""Schemes with a host before the path; in all others, what follows `://` is the path (`s3://bucket/key`)."""
_DBFS_FORMS = ("dbfs:/", "/dbfs/", "file:///dbfs/", "file:/dbfs/")


class Root(Protocol):
    """One file system, as the paths of a run store name it."""

    def full(self, path: str) -> str:
        """The URI of a path; a URI stays as it is.

        Raises:
            InvalidInputError: it belongs to another file system, or has a part `..`.
        """
        ...

    def localized(self, path: str) -> str:
        """The path without scheme and host; errors as for `full`."""
        ...

    def written(self, name: str) -> str:
        """A relative path as full paths have it."""
        ...


@dataclass(frozen=True)
class LocalRoot:
    """The local disk. Full paths are `file:///…`; relative paths start at the current folder.

    Example:
        >>> LocalRoot().full("/data/my runs"), LocalRoot().localized("file:///data/my%20runs")
        ('file:///data/my%20runs', '/data/my runs')
    """

    def full(self, path: str) -> str:
        """The URI of a path."""
        return Path(self.localized(path)).as_uri()

    def written(self, name: str) -> str:
        """A relative path, percent-encoded."""
        return quote(os.fsencode(name))

    def localized(self, path: str) -> str:
        """The absolute path of a path or `file:` URI."""
        place = path
        if path.startswith("file:"):
            found = _URI.fullmatch(path)
            if found and found["authority"] not in ("", "localhost"):
                raise _foreign(path, "the local disk")
            place = unquote((found["path"] or "") if found else path.removeprefix("file:"))
        elif _URI.fullmatch(path):
            raise _foreign(path, "the local disk")
        if place.startswith("/"):
            _without_up(place, path)
        elif place.startswith("~") and place is path:
            place = os.path.expanduser(place)  # noqa: PTH111 - it raises nothing
            if place == path:
                hint = "write the whole path, or './~…' for a name that begins with '~'"
                raise InvalidInputError([Problem("path", f"{path!r} names a home folder that is not known", hint)])
        # Without resolving links: a path below the prefix stays below it.
        return os.path.abspath(_given(place))  # noqa: PTH100


@dataclass(frozen=True)
class DbfsRoot:
    """DBFS as Databricks mounts it at `/dbfs`.

    Attributes:
        mount: where it is mounted on this machine.

    Example:
        >>> DbfsRoot().full("dbfs:/x"), DbfsRoot().localized("file:/dbfs/x")
        ('file:///dbfs/x', '/dbfs/x')
    """

    mount: str = "/dbfs"

    def full(self, path: str) -> str:
        """The URI of a path: `file:///dbfs/…`."""
        return f"file://{self.normalized(path)}"

    def localized(self, path: str) -> str:
        """The path below the mount."""
        return self.mount + self.normalized(path).removeprefix("/dbfs")

    def written(self, name: str) -> str:
        """A relative path, as it is."""
        return name

    @staticmethod
    def normalized(path: str) -> str:
        """The path in the form `/dbfs/…`."""
        if path.startswith("dbfs://") or not path.startswith(_DBFS_FORMS):
            hint = "write dbfs:/…, /dbfs/…, file:///dbfs/… or file:/dbfs/…"
            raise InvalidInputError([Problem("path", f"{path!r} is not a DBFS path", hint)])
        rest = path[5:] if path.startswith("dbfs:/") else path[path.index("/dbfs/") + 5 :]
        return "/dbfs" + _without_up(rest, path)


@dataclass(frozen=True)
class HdfsRoot:
    """HDFS, behind one namenode.

    Attributes:
        authority: what stands between `hdfs://` and the path; empty for the default namenode.
        also: another name of the same namenode, `host:port`, which paths may have too.

    Example:
        >>> HdfsRoot("namenode:8020").full("/user/x"), HdfsRoot().full("/user/x")
        ('hdfs://namenode:8020/user/x', 'hdfs:///user/x')
    """

    authority: str = ""
    also: str = ""

    @classmethod
    def split(cls, path: str) -> tuple[str, str]:
        """Authority and path of `hdfs://host:port/x`, `hdfs:///x` or `/x`.

        Raises:
            InvalidInputError: another scheme, or no path.
        """
        found = _URI.fullmatch(path)
        if found and found["scheme"].lower() != "hdfs":
            raise InvalidInputError(
                [Problem("path", f"Mismatched HDFS namespace for URL: {path}", "write hdfs://")]
            )
        authority, rest = (found["authority"], found["path"] or "") if found else ("", path)
        if not rest.startswith("/"):
            raise InvalidInputError(
                [Problem("path", f"Failed to parse path from URL: {path!r}", "write hdfs://host:port/path")]
            )
        return authority, _without_up(rest, path)

    @staticmethod
    def host_of(authority: str) -> tuple[str | None, int | None, str | None]:
        """Host, port and user of an authority, each None where it is missing.

        Raises:
            InvalidInputError: it cannot be read.
        """
        try:
            parts = urlsplit(f"//{authority}")
            return parts.hostname, parts.port, parts.username
        except ValueError as error:
            raise InvalidInputError([Problem("path", f"{authority!r} is not a host: {error}")]) from error

    def full(self, path: str) -> str:
        """The URI of a path, with the namenode of the prefix."""
        return f"hdfs://{self.authority}{self.localized(path)}"

    def written(self, name: str) -> str:
        """A relative path, as it is."""
        return name

    def localized(self, path: str) -> str:
        """The path on the namenode."""
        authority, rest = self.split(path)
        if "://" in path and authority not in (self.authority, self.also):
            raise _foreign(path, f"hdfs://{self.authority}")
        return rest


@dataclass(frozen=True)
class UriRoot:
    """The file system of a URI: `oss://`, `s3://`, `memory://` and what else fsspec knows.

    Attributes:
        scheme: the URI's.
        authority: host and port, in schemes that have a host; all paths must name the same one.

    Example:
        >>> UriRoot.of("s3://bucket/runs").localized("s3://bucket/runs/a"), UriRoot.of("s3://b/x").full("b/y")
        ('bucket/runs/a', 's3://b/y')
    """

    scheme: str
    authority: str = ""

    @classmethod
    def of(cls, uri: str) -> UriRoot:
        """The file system that a URI names.

        Raises:
            InvalidInputError: it is not a URI.
        """
        found = _URI.fullmatch(uri)
        if found is None:
            raise InvalidInputError(
                [Problem("prefix_path", f"{uri!r} is not a URI", "such as s3://bucket/prefix")]
            )
        return cls(found["scheme"], found["authority"] if found["scheme"].lower() in _HOSTS else "")

    def full(self, path: str) -> str:
        """The URI of a path."""
        rest = self.localized(path)
        return f"{self.scheme}://{self.authority}{rest if self.authority else rest.lstrip('/')}"

    def localized(self, path: str) -> str:
        """The path that fsspec takes: `bucket/key`, or the path on the host."""
        found = _URI.fullmatch(path)
        if found is None:
            return self._path(_given(path), path)
        same_host = not self.authority or found["authority"] == self.authority
        if found["scheme"].lower() != self.scheme.lower() or not same_host:
            raise _foreign(path, f"{self.scheme}://{self.authority}")
        return self._path((found["path"] or "") if self.authority else path.partition("://")[2], path)

    def written(self, name: str) -> str:
        """A relative path, as it is."""
        return name

    def _path(self, rest: str, path: str) -> str:
        # Before a bucket's name a slash means nothing; on a host, and in memory, a path starts with one.
        rest = _without_up(rest, path).lstrip("/")
        return f"/{rest}" if self.authority or self.scheme == "memory" else rest


def is_dbfs_path(path: str) -> bool:
    """True if a path has one of the forms of DBFS.

    Example:
        >>> is_dbfs_path("dbfs:/runs"), is_dbfs_path("dbfs://runs"), is_dbfs_path("/data/dbfs/")
        (True, False, False)
    """
    return path.startswith(_DBFS_FORMS) and not path.startswith("dbfs://")


def _given(path: str) -> str:
    if not path:
        raise InvalidInputError([Problem("path", "is empty", "give a path or a URI")])
    return path


def _without_up(rest: str, path: str) -> str:
    if ".." in rest.split("/"):
        raise InvalidInputError([Problem("path", f"{path!r} has a part '..'", "write the path without it")])
    return rest


def _foreign(path: str, place: str) -> InvalidInputError:
    return InvalidInputError(
        [Problem("path", f"{path!r} is not on {place}", "open another run store for it, with RunStore.create()")]
    )
