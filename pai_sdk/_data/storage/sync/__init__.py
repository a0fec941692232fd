"""Moving folders between stores: one-way syncs, uploads and downloads."""

from pai_sdk._data.storage.sync.dir_sync import (
    DirSync,
    SyncReport,
)

__all__ = [
    "DirSync",
    "SyncReport",
]
