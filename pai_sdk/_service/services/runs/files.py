"""Finds and lists the files of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pai_sdk._data.storage.base import Store, checked_path
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.runs.source import ROOT_FOLDER
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk.errors import InvalidInputError, StorageError

_MAX_ENTRIES = 2000
_MAX_FILES = 50_000  # files that one request lists, including subfolders


def store_of(stores: Mapping[str, Store], path: str) -> tuple[Store, str]:
    """Returns the store of the first part of a path and the remaining path; or the root store and the path."""
    name, subpath = (ROOT_FOLDER, path) if ROOT_FOLDER in stores else path.partition("/")[::2]
    if name not in stores:
        raise no_file(path)
    try:
        return stores[name], checked_path(subpath) if subpath else ""
    except InvalidInputError as error:
        raise invalid_parameter(f"path: {str(error)[:500]}") from error


def list_entries(store: Store, folder: str, work: Work) -> tuple[list[dict[str, Any]], bool]:
    """Returns the entries of a folder, by name, and whether the list is truncated."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    num_files = 0
    try:
        for file in store.list(prefix, folders=True, unlisted=lambda path, error: None):
            num_files += 1
            if num_files % 1000 == 0:
                work.check()
            name, separator, _ = file.path[len(prefix) :].partition("/")
            if not name:
                continue
            if num_files > _MAX_FILES or (name not in entries and len(entries) == _MAX_ENTRIES):
                return [*entries.values()], True
            modified_at = None if file.modified_ns is None else file.modified_ns / 1e9
            if separator:
                entry = entries.setdefault(
                    name, {"name": name, "is_folder": True, "size_bytes": 0, "modified_at": modified_at}
                )
                entry["size_bytes"] += file.size_bytes
                entry["modified_at"] = max(entry["modified_at"] or 0.0, modified_at or 0.0) or None
            else:
                entries[name] = {
                    "name": name,
                    "is_folder": False,
                    "size_bytes": file.size_bytes,
                    "modified_at": modified_at,
                }
    except StorageError as error:
        raise no_file(folder) from error
    return [*entries.values()], False


def no_file(path: str) -> WireError:
    """Returns the error for a file that a run does not have."""
    return WireError(404, "RUN_FILE_NOT_FOUND", f"The run has no file {path[:200]!r}.")
