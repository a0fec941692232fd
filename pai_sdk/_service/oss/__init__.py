"""The object store of the service: the OSS wire on plain files and SQLite."""

from __future__ import annotations

from pai_sdk._service.oss.index import CommonPrefix
from pai_sdk._service.oss.object_rows import StoredObject
from pai_sdk._service.oss.oss_app import create_app
from pai_sdk._service.oss.store import ObjectStore

__all__ = ["CommonPrefix", "ObjectStore", "StoredObject", "create_app"]
