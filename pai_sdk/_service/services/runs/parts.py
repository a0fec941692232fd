"""Tells which parts a run has, so that a page offers no empty ones."""

from __future__ import annotations

from collections.abc import Iterator

from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._service.services.runs.source import RunSource
from pai_sdk._service.services.runs.traces import TRACE
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.runs import RunPart
from pai_sdk.errors import StorageError

_MAX_EMPTY_FILES = 1000
_TIMES = ".times"


def run_parts(runs: RunSource, run_id: str) -> Iterator[RunPart]:
    """Yields the parts of a run that have content: its log, its files, its trace."""
    try:
        if runs.log(run_id, None).size_bytes:
            yield "log"
    except WireError:
        pass  # it has none
    stores = runs.files(run_id)
    if any(map(_has_files, stores.values())):
        yield "files"
    if TRACE in stores and _has_files(stores[TRACE]):
        yield "trace"


def _has_files(store: Store) -> bool:
    """Returns True for a store with a file that is not empty, as logs of silent jobs are, or with very many."""
    try:
        files = enumerate(store.list(unlisted=lambda path, error: None))
        return any(number >= _MAX_EMPTY_FILES or _has_content(file) for number, file in files)
    except StorageError:
        return False


def _has_content(file: StoredFile) -> bool:
    # The times of a log begin before its first line.
    return file.size_bytes > 0 and not file.path.endswith(_TIMES)
