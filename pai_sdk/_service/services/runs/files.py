"""Finds, lists and packs the files of runs."""

from __future__ import annotations

import os
import re
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pai_sdk._data.storage.base import Store, checked_path
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.runs.source import ROOT_FOLDER
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk.errors import FileChangedError, InvalidInputError, ObjectNotFoundError, StorageError

_MAX_ENTRIES = 2000
_MAX_FILES = 50_000  # files that one request lists, including subfolders
_MAX_LIST_S = 2.0
MAX_ZIP_FILES = 20_000
MAX_ZIP_BYTES = 100 << 30
_MAX_PREVIEW_BYTES = 1 << 20
_MAX_PICTURE_BYTES = 8 << 20
_PICTURES = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8|RIFF....WEBP", re.DOTALL)
# Others are stored as they are: weights and pictures hardly become smaller.
_DEFLATED = re.compile(r"\.(?:cfg|csv|html?|ini|jsonl?|log|md|py|sh|svg|toml|tsv|txt|xml|ya?ml)$", re.IGNORECASE)
# A program that unpacks on another system may take `\` and `:` for parts of a path.
_NOT_IN_ZIP_NAME = re.compile(r"[\x00-\x1f\x7f\\:]")
_CHUNK_BYTES = 1 << 20
_UNREADABLE = (StorageError, InvalidInputError, OSError)
_SKIPPED_NAME = "NOT-IN-THIS-ARCHIVE.txt"


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
    """Returns the entries of a folder, by name, and whether entries are missing.

    The size of a folder is that of its files; `is_partial` if not all of them were counted.
    """
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    ends_at, num_files = time.monotonic() + _MAX_LIST_S, 0
    try:
        for file in store.list(prefix, folders=True, unlisted=lambda path, error: None):
            num_files += 1
            name, separator, _ = file.path[len(prefix) :].partition("/")
            if not name:
                continue
            if name not in entries and len(entries) == _MAX_ENTRIES:
                return [*entries.values()], True
            is_late = num_files % 100 == 0 and time.monotonic() > ends_at
            if num_files > _MAX_FILES or is_late:
                work.check()
                _add_uncounted(entries, store, folder, name if separator else "")
                return [entries[name] for name in sorted(entries)], True
            _count(entries, name, file, is_folder=bool(separator))
    except StorageError as error:
        raise no_file(folder) from error
    return [*entries.values()], False


def _count(entries: dict[str, dict[str, Any]], name: str, file: StoredFile, *, is_folder: bool) -> None:
    modified_at = None if file.modified_ns is None else file.modified_ns / 1e9
    entry = entries.setdefault(name, _entry(name, is_folder=is_folder, modified_at=modified_at))
    entry["size_bytes"] += file.size_bytes
    entry["modified_at"] = max(entry["modified_at"] or 0.0, modified_at or 0.0) or None


def _add_uncounted(entries: dict[str, dict[str, Any]], store: Store, folder: str, current: str) -> None:
    """Adds the folders whose files were not counted, or not all of them: `current` and those not in `entries`."""
    for name in [*([current] if current else ()), *sorted(store.folders_in(folder) or ())]:
        if name == current or (name not in entries and len(entries) < _MAX_ENTRIES):
            entry = entries.setdefault(name, _entry(name, is_folder=True, modified_at=None))
            entry["is_partial"] = True


def _entry(name: str, *, is_folder: bool, modified_at: float | None) -> dict[str, Any]:
    return {"name": name, "is_folder": is_folder, "size_bytes": 0, "modified_at": modified_at}


def list_stores(stores: Mapping[str, Store], work: Work) -> list[dict[str, Any]]:
    """Returns the folders at the top of a run's files, with their sizes as far as these can be counted in time."""
    entries = []
    ends_at = time.monotonic() + _MAX_LIST_S
    for name, store in stores.items():
        entry = _entry(name, is_folder=True, modified_at=None)
        try:
            for number, file in enumerate(store.list(unlisted=lambda path, error: None)):
                if number >= _MAX_FILES or (number % 100 == 0 and time.monotonic() > ends_at):
                    entry["is_partial"] = True
                    break
                entry["size_bytes"] += file.size_bytes
                entry["modified_at"] = max(entry["modified_at"] or 0.0, (file.modified_ns or 0) / 1e9) or None
        except StorageError:  # it is reported when the folder is opened
            entry["size_bytes"] = None
        work.check()
        entries.append(entry)
    return entries


def read_preview(store: Store, path: str) -> bytes:
    """Returns the beginning of a file; of a picture, all of it."""
    try:
        size_bytes = store.head(path).size_bytes
        content = b"".join(store.read(path, 0, min(size_bytes, _MAX_PREVIEW_BYTES)))
        is_picture = _PICTURES.match(content) or path.lower().endswith(".svg")
        if is_picture and len(content) < size_bytes <= _MAX_PICTURE_BYTES:
            content = b"".join(store.read(path, 0, size_bytes))
    except (StorageError, InvalidInputError) as error:
        raise no_file(path) from error
    return content


def read_version(store: Store, path: str) -> Iterator[bytes]:
    """Yields the content of a file; of a growing one, what it has now.

    Raises:
        FileChangedError: it was changed meanwhile, so that what was read may be of several versions.
    """
    if not isinstance(store, LocalStore):
        yield from store.read(path)  # of one version
        return
    with store.open(path) as file:
        before = os.fstat(file.fileno())
        remaining = before.st_size
        while remaining and (chunk := file.read(min(remaining, _CHUNK_BYTES))):
            remaining -= len(chunk)
            yield chunk
        after = os.fstat(file.fileno())
    if remaining or (after.st_mtime_ns != before.st_mtime_ns and after.st_size <= before.st_size):
        raise FileChangedError(f"{path} was changed while it was read")


def files_of_zip(store: Store, folder: str, work: Work) -> tuple[list[StoredFile], list[str]]:
    """Returns the files of a folder that is to be packed, and the paths of what cannot be packed.

    Refuses a folder that is too large.
    """
    files: list[StoredFile] = []
    unlisted: list[str] = []
    size_bytes = 0
    prefix = f"{folder}/" if folder else ""

    def add_unlisted(path: str, error: Exception) -> None:
        if path.startswith(prefix) and len(unlisted) < MAX_ZIP_FILES:
            unlisted.append(path)

    try:
        for file in store.list(prefix, unlisted=add_unlisted):
            if not file.path.startswith(prefix):
                break  # it is a file, not a folder
            files.append(file)
            size_bytes += file.size_bytes
            if len(files) % 1000 == 0:
                work.check()
            if len(files) > MAX_ZIP_FILES or size_bytes > MAX_ZIP_BYTES:
                message = (
                    f"Folder {folder[:200]!r} has more than {MAX_ZIP_FILES:,} files or {MAX_ZIP_BYTES >> 30} GiB. "
                    "Download its subfolders one by one."
                )
                raise WireError(400, "FolderTooLarge", message)
    except StorageError as error:
        raise no_file(folder) from error
    if not files:
        raise no_file(folder)
    return files, unlisted


class _Chunks:
    """A stream that cannot be rewound, for `zipfile`: what was written waits to be sent."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def write(self, content: bytes, /) -> int:
        """Appends bytes."""
        self._parts.append(bytes(content))
        self._position += len(content)
        return len(content)

    def tell(self) -> int:
        """Returns the number of bytes written."""
        return self._position

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        content = b"".join(self._parts)
        self._parts.clear()
        return content


def zip_chunks(
    store: Store, files: list[StoredFile], folder: str, name: str, *, unlisted: Sequence[str] = ()
) -> Iterator[bytes]:
    """Yields the files of a folder as a ZIP archive, without a temporary file; they are in the folder `name`.

    Another entry of the archive names the missing and incomplete files, and what else is missing (`unlisted`).
    """
    sink = _Chunks()
    names: dict[str, int] = {}
    skipped = [
        f"{name}/{path[len(folder) :].lstrip('/')}: no file of this folder, or not readable" for path in unlisted
    ]
    with zipfile.ZipFile(sink, "w") as archive:
        for file in files:
            info = _zip_info(file, f"{name}/{file.path[len(folder) :].lstrip('/')}", names)
            chunks = read_version(store, file.path)
            try:
                # It may have grown since it was listed, which can be an hour ago.
                size_bytes = store.head(file.path).size_bytes if isinstance(store, LocalStore) else file.size_bytes
                first = next(chunks, b"")
            except _UNREADABLE as error:  # removed or replaced since it was listed, or an object such as `a//b`
                skipped.append(f"{info.filename}: {_reason(error)}")
                continue
            with archive.open(info, "w", force_zip64=size_bytes >= 1 << 30) as entry:
                entry.write(first)
                yield sink.take()
                try:
                    for chunk in chunks:
                        entry.write(chunk)
                        yield sink.take()
                except _UNREADABLE as error:
                    skipped.append(f"{info.filename}: incomplete or damaged: {_reason(error)}")
        if skipped:
            archive.writestr(_SKIPPED_NAME, "\n".join(skipped).encode(errors="replace"))
    yield sink.take()


def _reason(error: Exception) -> str:
    """Returns why a file could not be read; without its path on this machine, which errors have."""
    if isinstance(error, FileChangedError):
        return "changed while it was read"
    is_gone = isinstance(error, (ObjectNotFoundError, FileNotFoundError))
    return "no longer there" if is_gone else "not readable"


def _zip_info(file: StoredFile, name: str, names: dict[str, int]) -> zipfile.ZipInfo:
    """Returns the entry of a file; `names` are those of the entries before, with the last number behind each."""
    plain = _NOT_IN_ZIP_NAME.sub("_", name).encode(errors="replace").decode()
    unique = plain
    while unique in names:
        names[plain] += 1
        unique = f"{plain}-{names[plain]}"
    names[unique] = 0
    # The format has years from 1980 to 2107.
    modified = time.gmtime(min(max((file.modified_ns or 0) / 1e9, 315532800), 4354819198))
    info = zipfile.ZipInfo(unique, modified[:6])
    info.compress_type = zipfile.ZIP_DEFLATED if _DEFLATED.search(unique) else zipfile.ZIP_STORED
    info.external_attr = (0o755 if file.executable else 0o644) << 16
    return info


def no_file(path: str) -> WireError:
    """Returns the error for a file that a run does not have."""
    return WireError(404, "RUN_FILE_NOT_FOUND", f"The run has no file {path[:200]!r}.")
