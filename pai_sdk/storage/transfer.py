"""Folders and files between this machine and OSS: `upload_tree` and `download`."""

from __future__ import annotations

from pai_sdk.storage.download import download
from pai_sdk.storage.upload import manifest_uri, upload_tree

__all__ = ["download", "manifest_uri", "upload_tree"]
