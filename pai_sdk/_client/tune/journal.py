"""The journal of a study: the records of Optuna's JournalStorage, in a file or in the objects of a store.

Records are collected until `commit`, which writes them in one step. So a process that is killed leaves a trial
with all hyperparameters or with none, and a decision of a pruner with its consequences or not at all.

    local folder   journal.jsonl            a record in each line; Optuna's JournalFileBackend can read it
    other stores   journal/00000042.jsonl   the records of one commit; an object is written once
"""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from pai_sdk._core.files import append_to
from pai_sdk._data.storage.claims import FolderClaim
from pai_sdk._data.storage.store import Store
from pai_sdk.errors import InUseError, ObjectNotFoundError, StorageError

_FILE, _FOLDER = "journal.jsonl", "journal/"
_MORE = ',"more":1}'  # suffix of a record that is not the last one of its commit; Optuna ignores it
_READERS = 16


class StudyJournal(BaseJournalBackend, ABC):
    """The records of a study, in the order in which they were written; without `claim` to read only."""

    def __init__(self, lines: Iterable[bytes], claim: FolderClaim | None) -> None:
        self._lock = threading.Lock()  # guards records, pending records and claim
        self._records = [_record(line, number) for number, line in enumerate(lines, 1)]
        self._pending: list[str] = []
        self._claim = claim

    def __len__(self) -> int:
        return len(self._records)

    def read_logs(self, log_number_from: int) -> Sequence[dict[str, Any]]:
        """Returns the records from a number on, with those that are not committed yet."""
        with self._lock:
            return self._records[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds records to the next commit."""
        lines = [json.dumps(_stored(record), separators=(",", ":")) for record in logs]
        with self._lock:
            self._pending += lines
            self._records += map(_for_optuna, logs)

    def commit(self) -> None:
        """Writes the pending records in one step; raises InUseError if another tuner has claimed the study."""
        with self._lock:
            if not self._pending:
                return
            if self._claim is None:
                raise StorageError("the study was opened for reading")
            # Checked in each commit, because another process may have taken over the claim.
            self._claim.check()
            *first, last = self._pending
            lines = [*(line[:-1] + _MORE for line in first), last]
            self._write("".join(f"{line}\n" for line in lines).encode())
            self._pending.clear()

    def abandon(self) -> None:
        """Discards pending records; later commits raise."""
        with self._lock:
            self._pending.clear()
            self._claim = None

    @abstractmethod
    def _write(self, content: bytes) -> None:
        """Writes the lines of one commit."""


class _FileJournal(StudyJournal):
    """A journal in a file."""

    def __init__(self, path: Path, claim: FolderClaim | None) -> None:
        content = path.read_bytes() if path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        while lines and lines[-1].rstrip().endswith(_MORE.encode()):
            lines.pop()
        super().__init__(lines, claim)
        self._path = path
        size = sum(map(len, lines))
        if claim is not None and size < len(content):
            os.truncate(path, size)  # removes a partial commit, as after a full disk or a kill
        # If the file is replaced meanwhile, a commit would append to a study without the earlier records.
        self._file = _identity(path) if lines else None

    def _write(self, content: bytes) -> None:
        try:
            if self._file is not None and self._file != _identity(self._path):
                raise OSError("it was removed, or is another file now")
            # On disk before the next step: a job must not exist without its trial in the journal.
            append_to(self._path, content, durable=True)
            self._file = _identity(self._path)
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error.strerror or error}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns device and inode, which distinguish a file from later ones with this name; None without a file."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino


class _StoreJournal(StudyJournal):
    """A journal in the objects of a store."""

    def __init__(self, store: Store, claim: FolderClaim | None) -> None:
        paths = [file.path for file in store.list(_FOLDER)]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="pai-journal") as pool:
            contents = [*pool.map(lambda path: b"".join(store.read(path)), paths)]
        super().__init__((line for content in contents for line in content.splitlines()), claim)
        self._store = store
        self._next = 1 + (int(Path(paths[-1]).stem) if paths else 0)

    def _write(self, content: bytes) -> None:
        path = f"{_FOLDER}{self._next:08d}.jsonl"
        try:
            # The claim excludes other writers. If it was lost meanwhile, the next object exists: it must not be
            # overwritten.
            self._store.head(path)
        except ObjectNotFoundError:
            self._store.write(path, content)
            self._next += 1
            return
        message = f"another tuner has written to the study {self._store.uri} meanwhile; run this again to continue"
        raise InUseError(message, uri=self._store.uri)


def _record(line: bytes, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise StorageError(f"record {number} of the study's journal is damaged: {error}") from error
    if not isinstance(record, dict):
        raise StorageError(f"record {number} of the study's journal is damaged: it is no JSON object")
    try:
        return _for_optuna(record)
    except (ValueError, TypeError, OverflowError) as error:
        raise StorageError(f"record {number} of the study's journal has no valid time: {error}") from error


# Optuna 4 writes local times without a zone, Optuna 5.0.0 UTC with one. Optuna 4 subtracts them without
# conversion, which is a TypeError for a trial that has one of each. Both releases read local times without a zone.


def _stored(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with times in UTC, which every machine and Optuna 5 can read."""
    return record | {name: _time(record[name]).isoformat(timespec="microseconds") for name in _times(record)}


def _for_optuna(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with local times without a zone, which all releases of Optuna can read."""
    local = {name: _time(record[name]).astimezone().replace(tzinfo=None) for name in _times(record)}
    return record | {name: time.isoformat(timespec="microseconds") for name, time in local.items()}


def _times(record: dict[str, Any]) -> list[str]:
    return [name for name in ("datetime_start", "datetime_complete") if record.get(name) is not None]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(timezone.utc)


def open_journal(store: Store, claim: FolderClaim | None = None) -> StudyJournal:
    """Opens the journal of the study in a folder; without a claim, for reading only."""
    return _StoreJournal(store, claim) if store.root is None else _FileJournal(store.root / _FILE, claim)
