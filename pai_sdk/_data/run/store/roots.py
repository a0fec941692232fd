"""Parses the paths of a run store: full URIs, and the local form that a file system expects."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk.errors import InvalidInputError, Problem

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?", re.DOTALL)
_HOSTS = frozenset({"ftp", "sftp", "ssh", "smb", "webhdfs", "http", "https"})
"""Schemes with a host before the path; in all other schemes, the path follows `://` directly (`s3://bucket/key`)."""
_DBFS_FORMS = ("dbfs:/", "/dbfs/", "file:///dbfs/", "file:/dbfs/")


class Root(ABC):
    """One file system, and the forms of its paths."""

    @abstractmethod
    def full(self, path: str) -> str:
        """Returns the URI of a path; raises InvalidInputError for another file system, or a part `..`."""

    @abstractmethod
    def localized(self, path: str) -> str:
        """Returns the path without scheme and host; raises InvalidInputError for another file system."""

    def written(self, name: str) -> str:
        """Returns a relative path in the form that full paths have."""
        return name


@dataclass(frozen=True)
class LocalRoot(Root):
    """The local disk. Full paths are `file:///…`; relative paths start at the current folder."""

    def full(self, path: str) -> str:
        """Returns the URI of a path."""
        return Path(self.localized(path)).as_uri()

    def written(self, name: str) -> str:
        """Returns a relative path, percent-encoded."""
        return quote(os.fsencode(name))

    def localized(self, path: str) -> str:
        """Returns the absolute path of a path or `file:` URI."""
        local_path = path
        if path.startswith("file:"):
            match = _URI.fullmatch(path)
            if match and match["authority"] not in ("", "localhost"):
                raise _foreign_path(path, "the local disk")
            local_path = unquote((match["path"] or "") if match else path.removeprefix("file:"))
        elif _URI.fullmatch(path):
            raise _foreign_path(path, "the local disk")
        if local_path.startswith("/"):
            _check_no_parent(local_path, path)
        elif local_path.startswith("~") and local_path is path:
            local_path = os.path.expanduser(local_path)  # noqa: PTH111 - it raises nothing
            if local_path == path:
                hint = "write the full path, or './~…' for a name that starts with '~'"
                raise InvalidInputError(
                    [Problem("path", f"{path!r} names a home folder that does not exist", hint)]
                )
        # `abspath` does not resolve links, so a path below the prefix stays below it.
        return os.path.abspath(_check_not_empty(local_path))  # noqa: PTH100


@dataclass(frozen=True)
class DbfsRoot(Root):
    """DBFS as Databricks mounts it at `/dbfs`."""

    mount: str = "/dbfs"

    def full(self, path: str) -> str:
        """Returns the URI of a path: `file:///dbfs/…`."""
        return f"file://{self.normalized(path)}"

    def localized(self, path: str) -> str:
        """Returns the path below the mount point."""
        return self.mount + self.normalized(path).removeprefix("/dbfs")

    @staticmethod
    def normalized(path: str) -> str:
        """Returns the path in the form `/dbfs/…`."""
        if path.startswith("dbfs://") or not path.startswith(_DBFS_FORMS):
            hint = "write dbfs:/…, /dbfs/…, file:///dbfs/… or file:/dbfs/…"
            raise InvalidInputError([Problem("path", f"{path!r} is not a DBFS path", hint)])
        tail = path[5:] if path.startswith("dbfs:/") else path[path.index("/dbfs/") + 5 :]
        return "/dbfs" + _check_no_parent(tail, path)


@dataclass(frozen=True)
class HdfsRoot(Root):
    """HDFS, behind one namenode."""

    authority: str = ""  # between `hdfs://` and the path; empty for the default namenode
    also: str = ""  # a second name of that namenode, `host:port`, which paths can use too

    @classmethod
    def split(cls, path: str) -> tuple[str, str]:
        """Parses authority and path from `hdfs://host:port/x`, `hdfs:///x` or `/x`."""
        match = _URI.fullmatch(path)
        if match and match["scheme"].lower() != "hdfs":
            raise InvalidInputError(
                [Problem("path", f"Mismatched HDFS namespace for URL: {path}", "write hdfs://")]
            )
        authority, tail = (match["authority"], match["path"] or "") if match else ("", path)
        if not tail.startswith("/"):
            raise InvalidInputError(
                [Problem("path", f"Failed to parse path from URL: {path!r}", "write hdfs://host:port/path")]
            )
        return authority, _check_no_parent(tail, path)

    @staticmethod
    def host_of(authority: str) -> tuple[str | None, int | None, str | None]:
        """Parses host, port and user of an authority, each None where it is missing."""
        try:
            parts = urlsplit(f"//{authority}")
            return parts.hostname, parts.port, parts.username
        except ValueError as error:
            raise InvalidInputError([Problem("path", f"{authority!r} is not a host: {error}")]) from error

    def full(self, path: str) -> str:
        """Returns the URI of a path, with the namenode of the prefix."""
        return f"hdfs://{self.authority}{self.localized(path)}"

    def localized(self, path: str) -> str:
        """Returns the path on the namenode."""
        authority, tail = self.split(path)
        if "://" in path and authority not in (self.authority, self.also):
            raise _foreign_path(path, f"hdfs://{self.authority}")
        return tail


@dataclass(frozen=True)
class UriRoot(Root):
    """The file system of a URI: `oss://`, `s3://`, `memory://` and other schemes of fsspec."""

    scheme: str
    authority: str = ""  # host and port, in schemes that have a host; all paths must have the same one

    @classmethod
    def of(cls, uri: str) -> UriRoot:
        """Returns the file system of a URI; raises InvalidInputError for anything else."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise InvalidInputError(
                [Problem("prefix_path", f"{uri!r} is not a URI", "such as s3://bucket/prefix")]
            )
        return cls(match["scheme"], match["authority"] if match["scheme"].lower() in _HOSTS else "")

    def full(self, path: str) -> str:
        """Returns the URI of a path."""
        tail = self.localized(path)
        return f"{self.scheme}://{self.authority}{tail if self.authority else tail.lstrip('/')}"

    def localized(self, path: str) -> str:
        """Returns the path that fsspec expects: `bucket/key`, or the path on the host."""
        match = _URI.fullmatch(path)
        if match is None:
            return self._path(_check_not_empty(path), path)
        same_host = not self.authority or match["authority"] == self.authority
        if match["scheme"].lower() != self.scheme.lower() or not same_host:
            raise _foreign_path(path, f"{self.scheme}://{self.authority}")
        return self._path((match["path"] or "") if self.authority else path.partition("://")[2], path)

    def _path(self, tail: str, path: str) -> str:
        # Before a bucket's name a slash means nothing; on a host, and in memory, a path starts with one.
        tail = _check_no_parent(tail, path).lstrip("/")
        return f"/{tail}" if self.authority or self.scheme == "memory" else tail


def split(root: Root, path: str, prefix: str) -> tuple[str, str]:
    """Returns the folder to open for a path, the prefix if it has the path, and the path's name in it."""
    local_path = RunLayout(root.localized(path)).folder
    base = RunLayout(root.localized(prefix)).folder
    if local_path == base or local_path.startswith(f"{base}/"):
        return prefix, local_path[len(base) + 1 :]
    full = RunLayout(root.full(path)).folder
    _, slash, name = local_path.rpartition("/")
    # Without a slash it is the path of a bucket.
    return (full[: -len(root.written(name))], name) if slash else (full, "")


def is_dbfs_path(path: str) -> bool:
    """Returns True if a path has one of the forms of DBFS; `dbfs://` is none."""
    return path.startswith(_DBFS_FORMS) and not path.startswith("dbfs://")


def _check_not_empty(path: str) -> str:
    if not path:
        raise InvalidInputError([Problem("path", "is empty", "give a path or a URI")])
    return path


def _check_no_parent(tail: str, path: str) -> str:
    if ".." in tail.split("/"):
        raise InvalidInputError([Problem("path", f"{path!r} has a part '..'", "write the path without it")])
    return tail


def _foreign_path(path: str, root: str) -> InvalidInputError:
    return InvalidInputError(
        [Problem("path", f"{path!r} is not on {root}", "open another run store for it, with RunStore.create()")]
    )
