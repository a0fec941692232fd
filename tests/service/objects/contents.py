"""What a store holds on the disk: contents in files and in rows."""

from __future__ import annotations

from pathlib import Path

from pai_sdk._service.oss.object_rows import MAX_ROW_BYTES
from pai_sdk._service.oss.store import ObjectStore

LARGE = MAX_ROW_BYTES + 1
"""A content of this size is a file in every store."""


def large(content: bytes) -> bytes:
    """The content, made so large that it is a file."""
    return content.ljust(LARGE, b".")


def blob_files(store: ObjectStore) -> list[Path]:
    """The files of contents, whole ones and those being written."""
    root = store.path_of_blob("00").parents[2]
    return [path for folder in ("blobs", "incoming") for path in (root / folder).rglob("*") if path.is_file()]


def count_rows(store: ObjectStore) -> int:
    """The rows of contents."""
    return store._database.query("SELECT count(*) FROM oss_contents", ())[0][0]


def count_contents(store: ObjectStore) -> int:
    """Files and rows together."""
    return len(blob_files(store)) + count_rows(store)
