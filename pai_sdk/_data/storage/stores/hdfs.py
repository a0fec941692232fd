"""HDFS for `FsspecStore`: fsspec's two clients, adapted to the needs of a store. Its import needs fsspec.

Both clients are fsspec's own. What differs here: errors are OSErrors, requests have timeouts and retries, a rename
replaces a file, and a folder that is not empty is not removed.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import requests
from fsspec.implementations.arrow import HadoopFileSystem
from fsspec.implementations.webhdfs import WebHDFS

from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.stores.passing_errors import is_transient_error

# To connect, and the maximum silence within a response.
_TIMEOUTS_S = (10.0, 60.0)
# Not idempotent: repeated after a lost response, they would do or report something else.
_NOT_IDEMPOTENT = frozenset({"APPEND", "RENAME"})


def hdfs_files(uri: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Returns the file system of an `hdfs://` or `webhdfs://` URI, and the path on it."""
    kind = HadoopFiles if uri.partition("://")[0].lower() == "hdfs" else WebHdfsFiles
    settings = {**kind._get_kwargs_from_urls(uri), **options}
    settings.pop("url_query", None)
    try:
        return kind(**settings), kind._strip_protocol(uri)
    except OSError as error:
        if kind is WebHdfsFiles:
            raise
        raise OSError(
            f"{error}; pyarrow reads hdfs:// with Java and Hadoop's libhdfs (CLASSPATH, ARROW_LIBHDFS_DIR). "
            "WebHDFS needs neither: webhdfs://namenode:9870/path, or driver='webhdfs' of a run store"
        ) from error


class _Session(requests.Session):
    """Requests with timeouts, and with Python's own errors for a broken connection."""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", _TIMEOUTS_S)
        try:
            return super().request(*args, **kwargs)
        except requests.Timeout as error:
            raise TimeoutError(str(error)) from error
        except requests.ConnectionError as error:
            raise ConnectionError(str(error)) from error

    def get(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Reads from a datanode."""
        # fsspec would return the text of an error as the content of the file.
        response = super().get(*args, **kwargs)
        response.raise_for_status()
        return response


class WebHdfsFiles(WebHDFS):  # type: ignore[misc]  # fsspec has no types
    """HDFS over WebHDFS, with retries of the requests to the namenode."""

    protocol = ("webhdfs",)

    def __init__(self, *args: Any, retry: RetryPolicy | None = None, **kwargs: Any) -> None:
        self._retry = retry or RetryPolicy()
        super().__init__(*args, **kwargs)

    def _connect(self) -> None:
        super()._connect()
        session = _Session()
        vars(session).update(vars(self.session))
        self.session: requests.Session = session

    def _call(self, op: str, *args: Any, **kwargs: Any) -> Any:
        def attempt() -> Any:
            try:
                return super(WebHdfsFiles, self)._call(op, *args, **kwargs)
            except (RuntimeError, ValueError) as error:
                # fsspec reports a refusal by the namenode in this way.
                raise OSError(str(error)) from error

        return self._retry.call(
            attempt, is_transient=lambda error: op.upper() not in _NOT_IDEMPOTENT and is_transient_error(error)
        )

    @staticmethod
    def _process_info(info: dict[str, Any]) -> dict[str, Any]:
        processed: dict[str, Any] = WebHDFS._process_info(info)
        # A file that is replaced has another id, also within a millisecond.
        processed["mtime"], processed["ino"] = processed["modificationTime"] / 1000, processed.get("fileId", 0)
        return processed

    def mv(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Renames a file, and atomically replaces an existing file."""
        response = self._call("RENAME", "put", path1, destination=path2, renameoptions="OVERWRITE")
        # A gateway may ignore the option, and refuse to replace the file.
        if response.content and not response.json().get("boolean", True):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path2)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder."""
        self._call("DELETE", "delete", path, recursive="false")

    def rm_file(self, path: str, **kwargs: Any) -> None:
        """Deletes a file."""
        if not self._call("DELETE", "delete", path, recursive="false").json()["boolean"]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class HadoopFiles(HadoopFileSystem):  # type: ignore[misc]  # fsspec has no types
    """HDFS through pyarrow and libhdfs, whose times are in seconds.

    libhdfs has no rename that replaces a file, so for a moment no file has the name.
    """

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Returns the bytes of a file, or of a part of it."""
        content: bytes = super().cat_file(path, start, end, seekable=True, **kwargs)
        return content

    def rm_file(self, path: str) -> None:
        """Deletes a file; libhdfs reports a missing one as an input/output error."""
        self.info(path)
        super().rm_file(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty folder; fsspec's method would remove all that is in it."""
        if self.ls(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        super().rmdir(path)
