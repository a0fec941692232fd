"""Uploads in parts that were begun: which id OSS gave them, kept on this machine until they are finished.

Which parts have arrived is not kept: OSS is asked. A note goes by all that the object is to be, with its SHA-256
and the size of its parts, so a file that has changed finds none and begins anew.
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

from pai_sdk.base.files import replace_file
from pai_sdk.errors import PaiError, StorageError, UnreachableStorageError
from pai_sdk.storage.uri import OssUri

__all__ = ["UnfinishedUpload", "may_be_resumed"]

_log = logging.getLogger(__name__)

_LIFE_S = 30 * 24 * 3600.0
# With another key, or a clock that is right, the same parts are as good as before.
_OF_THE_KEY = frozenset(
    {
        "InvalidAccessKeyId",
        "InvalidSecurityToken",
        "RequestTimeTooSkewed",
        "SecurityTokenExpired",
        "SignatureDoesNotMatch",
        "UserDisable",
    }
)


def may_be_resumed(error: BaseException) -> bool:
    """Whether an upload that failed so can go on later from where it is."""
    if isinstance(error, UnreachableStorageError) or (isinstance(error, PaiError) and error.retryable):
        return True
    return isinstance(error, StorageError) and error.code in _OF_THE_KEY


class UnfinishedUpload:
    """The note of one upload. Nothing here may fail it: without a note it only begins anew.

    Args:
        uri: the object. Through which endpoint of its store it is written does not matter.
        meta: its metadata, with the SHA-256 of its content.
        part_bytes: the size of its parts.
    """

    def __init__(self, uri: OssUri, meta: Mapping[str, str], part_bytes: int) -> None:
        what = json.dumps([uri.bucket, uri.key, sorted(meta.items()), part_bytes])
        self._uri = uri
        self._path = _folder() / f"{hashlib.sha256(what.encode()).hexdigest()[:40]}.json"

    def find(self) -> str | None:
        """The id OSS gave the upload, if it was begun here and not ended."""
        try:
            upload_id = json.loads(self._path.read_bytes())["upload_id"]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return upload_id if isinstance(upload_id, str) and upload_id else None

    def keep(self, upload_id: str) -> None:
        """Note the id, so that it outlives this process and a loss of power."""
        try:
            folder = self._path.parent
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _sweep(folder)
            replace_file(self._path, json.dumps({"uri": str(self._uri), "upload_id": upload_id}), durable=True)
        except OSError as error:
            _log.info("the upload of %s cannot be resumed by another process: %s", self._uri, error)

    def forget(self, upload_id: str) -> None:
        """The upload has ended. A note of another one, which somebody else has begun meanwhile, stays."""
        if self.find() == upload_id:
            with suppress(OSError):
                self._path.unlink()


def _folder() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    return cache / "pai_sdk" / "uploads"


def _sweep(folder: Path) -> None:
    """Remove notes of uploads that nobody has come back to."""
    oldest = time.time() - _LIFE_S
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
