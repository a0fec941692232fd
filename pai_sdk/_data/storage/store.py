"""One interface to files, wherever they are: on a local disk, in OSS, in S3, in memory.

A store is a folder with a URI. Paths are relative to it. `write` replaces a file atomically.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._core.default_session import session_or_default
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.fsspec import FsspecStore
from pai_sdk._data.storage.stores.local import LocalStore, path_of_file_uri
from pai_sdk._data.storage.stores.oss import OssStore
from pai_sdk._data.storage.uri import OssUri, uri_scheme
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._data.storage.oss.client import OssClient

__all__ = ["FsspecStore", "LocalStore", "OssStore", "Store", "StoredFile", "open_store"]


def open_store(
    uri: str | Path,
    session: Any = None,
    *,
    client: OssClient | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Store:
    """The store of a URI.

    Args:
        uri: a local path, `file://`, `oss://bucket/prefix`, or any scheme that fsspec knows (`memory://`, `s3://`).
        session: whose keys `oss://` takes; the default session without it.
        client: an OSS client to use instead of the session's.
        storage_options: passed on to the fsspec file system.

    Raises:
        InvalidInputError: the URI cannot be read, or fsspec knows no such scheme.
        MissingExtraError: fsspec, or the library that it needs for the scheme, is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = open_store(folder)
        ...     _ = store.write("a/b.txt", b"hello")
        ...     [file.path for file in store.list()], b"".join(store.read("a/b.txt", 1, 3))
        (['a/b.txt'], b'el')
    """
    text = str(uri)
    if not text:
        raise InvalidInputError([Problem("uri", "is empty", "give a path or a URI; '.' is the current folder")])
    scheme = None if isinstance(uri, Path) else uri_scheme(text)
    if scheme is None:
        return LocalStore(path_of_file_uri(text) if text.startswith("file:") else text)
    if scheme == "file":
        return LocalStore(path_of_file_uri(text))
    if scheme == "oss":
        return OssStore(client or session_or_default(session).files(), OssUri.parse(text))
    return FsspecStore(text, storage_options)
