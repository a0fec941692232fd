"""Uploads the changes in a folder that a job has mounted for reading and writing, deletions included."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pai_sdk._core.files import replace_file
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.objects import make_executable
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk._host.agent.sandbox import Sandbox

_Version = list[int]  # time of the last change in nanoseconds, and size; a list as in JSON


def make_files_executable(folder: Path) -> None:
    """Makes all staged files of a mount executable, as in a mounted bucket: an object has no mode of its own."""
    for parent, _, files in os.walk(folder):
        for name in files:
            if not (path := Path(parent, name)).is_symlink():
                make_executable(path)


def record_mounted(sandbox: Sandbox, number: int, folder: Store) -> None:
    """Records the files with which a mount begins, before the job starts."""
    _write(sandbox, number, _versions(folder, {}))


def upload_mounted(
    sandbox: Sandbox, number: int, folder: Store, open_target: Callable[[], Store], options: Mapping[str, Any]
) -> SyncReport | None:
    """Uploads what the job has changed since the last upload, and deletes what it has deleted; None: nothing."""
    # Never compared with the store: other jobs may use the same folder, and their files stay as they are.
    before, unlisted = _read(sandbox, number), dict[str, Exception]()
    present = _versions(folder, unlisted)
    changed = {path for path, version in present.items() if before.get(path) != version}
    # An incomplete listing does not show what is gone.
    gone = [] if unlisted else sorted(before.keys() - present.keys())
    if not changed and not gone and not unlisted:
        return None
    target = open_target()

    def is_unchanged(file: StoredFile) -> bool:
        return file.path not in changed and before.get(file.path) == _version(file)

    report = DirSync(folder, target, remember=False, folders=False, skip=is_unchanged, **options).attempt()
    if gone and not report.failures and not report.gave_up:
        target.delete(gone)
        report.deleted = len(gone)
    else:
        gone = []
    sent = {} if report.gave_up else {path: present[path] for path in changed if path not in report.failures}
    _write(sandbox, number, {path: at for path, at in {**before, **sent}.items() if path not in gone})
    return report


def _versions(folder: Store, unlisted: dict[str, Exception]) -> dict[str, _Version]:
    return {file.path: _version(file) for file in folder.list(folders=False, unlisted=unlisted.__setitem__)}


def _version(file: StoredFile) -> _Version:
    return [file.modified_ns or 0, file.size_bytes]


def _file(sandbox: Sandbox, number: int) -> Path:
    return sandbox.sent_dir / f"mount-{number}.json"


def _write(sandbox: Sandbox, number: int, versions: dict[str, _Version]) -> None:
    sandbox.sent_dir.mkdir(parents=True, exist_ok=True)
    replace_file(_file(sandbox, number), json.dumps(versions), mode=0o600)


def _read(sandbox: Sandbox, number: int) -> dict[str, _Version]:
    """Returns the recorded versions by path; without a record all files are sent again, and none is deleted."""
    with suppress(OSError, ValueError):
        versions: dict[str, _Version] = json.loads(_file(sandbox, number).read_bytes())
        return versions
    return {}
