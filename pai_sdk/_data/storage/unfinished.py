"""Multipart uploads that were started: their ids, stored on this machine until they are finished.

OSS knows which parts have arrived, so this is not stored. The name of a record is a hash of the object, its
metadata, the size of its parts, and the local file with size, time and inode. A file that has changed has no
record, and its upload starts again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pai_sdk._core.files import replace_file
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import PaiError, StorageError, UnreachableStorageError

_log = logging.getLogger(__name__)

_RETENTION_S = 30 * 24 * 3600.0
# Errors of the key or the clock: once they are corrected, the same parts can be used.
_RECOVERABLE_CODES = frozenset(
    {
        "InvalidAccessKeyId",
        "InvalidSecurityToken",
        "RequestTimeTooSkewed",
        "SecurityTokenExpired",
        "SignatureDoesNotMatch",
        "UserDisable",
    }
)


def can_be_resumed(error: BaseException) -> bool:
    """Returns True if a transfer that failed with this error can be continued later."""
    if isinstance(error, UnreachableStorageError) or (isinstance(error, PaiError) and error.retryable):
        return True
    return isinstance(error, StorageError) and error.code in _RECOVERABLE_CODES


class UnfinishedUpload:
    """The record of one upload. Its errors are only logged: without a record, the upload starts again."""

    # `version` changes with the local file.
    def __init__(self, uri: OssUri, meta: Mapping[str, str], part_bytes: int, path: Path, version: str) -> None:
        # Without the endpoint: an upload continues at another one.
        identity = json.dumps([uri.bucket, uri.key, sorted(meta.items()), part_bytes, os.fspath(path), version])
        self._uri = uri
        self._path = cache_folder("uploads") / f"{hashlib.sha256(identity.encode()).hexdigest()[:40]}.json"

    def find(self) -> str | None:
        """Returns the id of the upload, if it was started on this machine and is not finished."""
        try:
            upload_id = json.loads(self._path.read_bytes())["upload_id"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return upload_id if isinstance(upload_id, str) and upload_id else None

    def save(self, upload_id: str) -> None:
        """Saves the id on disk, so that it survives this process and a power failure."""
        try:
            folder = self._path.parent
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _sweep(folder)
            # Durable: the parts are useless after a power failure if the id is lost.
            replace_file(self._path, json.dumps({"uri": str(self._uri), "upload_id": upload_id}), durable=True)
        except OSError as error:
            _log.info("the upload of %s cannot be resumed by another process: %s", self._uri, error)

    def forget(self, upload_id: str) -> None:
        """Removes the record, unless another process has started another upload meanwhile."""
        # Another process may have replaced the record by that of a newer upload.
        if self.find() == upload_id:
            with suppress(OSError):
                self._path.unlink()


def cache_folder(name: str) -> Path:
    """Returns a folder for what this machine remembers of transfers; it may not exist yet."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(cache_home) if Path(cache_home).is_absolute() else Path.home() / ".cache"
    return cache / "pai_sdk" / name


def _sweep(folder: Path) -> None:
    """Removes old records."""
    oldest = time.time() - _RETENTION_S
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
