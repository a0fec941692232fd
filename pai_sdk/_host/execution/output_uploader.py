"""Uploads the outputs of a job to the stores of their URIs, while it runs and at its end.

Each job of an executor has one `OutputUploader`: driven by a thread of the service, or for a local job by a
process of its own (`backend.local.uploading`). The sandbox records what was sent, so another process can continue.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from pai_sdk._core.files import replace_file
from pai_sdk._data.run.store.checkpoint_sync import CheckpointSync
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk._host.agent.sandbox import RESUMED_CHANNELS, Sandbox
from pai_sdk._host.execution.base import JobFiles
from pai_sdk._host.execution.mounted_folders import upload_mounted
from pai_sdk.errors import PaiError

LIVE_CHANNELS = frozenset({"checkpoints", "tensorboard", "trace"})
"""Channels that are uploaded while the job runs; the others are uploaded once, after its end."""

UPLOAD_INTERVAL_S = 30.0
"""Seconds between two uploads; a machine that is lost loses at most the files of this interval."""

_MAX_PROBLEMS = 5

_Version: TypeAlias = tuple[int, int]
"""Time of a file's last change in nanoseconds, and its size."""


def record_resumed(files: JobFiles, channels: Iterable[str]) -> None:
    """Records the files in the outputs that a job resumes from, before it starts."""
    # They are uploaded only if the job changes them: another job may resume from the same checkpoints, and copies
    # from this job must not replace what it has saved.
    lines = [
        json.dumps([name, file.path, *_version(file)]) + "\n"
        for name in sorted(RESUMED_CHANNELS.intersection(channels))
        for file in files.output(name).list(unlisted=lambda path, error: None)
    ]
    replace_file(files.sandbox.resumed_file, "".join(lines), mode=0o666)


class UploadCancelled(Exception):
    """Raised when the process exits during an upload; the next process continues."""


class OutputUploader:
    """Uploads the outputs of one job. Unchanged files are not sent again. Safe to use from several threads.

    `_lock` is held for a complete upload: the final one waits for a live one in progress, and then sends only what
    is new. Between processes, the caller holds a lock (that of the local job). `targets` opens the store of a
    channel when there is something to send, `mounts` that of a mount which the job may change; `is_cancelled` is
    called between files.
    """

    def __init__(
        self,
        files: JobFiles,
        targets: Mapping[str, Callable[[], Store]],
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        options: Mapping[str, Any] | None = None,
        mounts: Mapping[int, Callable[[], Store]] | None = None,
    ) -> None:
        self._files = files
        self._mounts = mounts or {}
        self._targets = targets
        self._is_cancelled = is_cancelled
        self._options = options or {}
        self._lock = threading.Lock()
        self._resumed: dict[tuple[str, str], _Version] | None = None
        # Set after the final upload: files that are removed locally later must stay in the store.
        self._is_finished = False

    @property
    def has_live_channels(self) -> bool:
        """Returns whether a channel or a mount is uploaded while the job runs."""
        return bool(self._mounts) or not LIVE_CHANNELS.isdisjoint(self._targets)

    def upload(self, *, live_only: bool) -> str:
        """Uploads what is new; returns a description of what could not be sent, or ""."""
        problems: list[str] = []
        with self._lock:
            if self._is_finished and live_only:
                # A live upload that was scheduled before the final one and lost the race for the lock.
                return ""
            if self._resumed is None:
                self._resumed = _read_resumed(self._files.sandbox)
            for name in self._targets:
                if not live_only or name in LIVE_CHANNELS:
                    problems += self._upload_channel(name, self._resumed, live_only=live_only)
            for number, open_target in self._mounts.items():
                problems += self._upload_mount(number, open_target, live_only=live_only)
            # Still under the lock, so that a waiting live upload sees it.
            self._is_finished = not (live_only or problems)
        more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
        return "; ".join(problems[:_MAX_PROBLEMS]) + more

    def check_cancelled(self) -> None:
        """Raises `UploadCancelled` when `is_cancelled` returns True."""
        if self._is_cancelled():
            raise UploadCancelled

    def _upload_channel(
        self, name: str, resumed: Mapping[tuple[str, str], _Version], *, live_only: bool
    ) -> list[str]:
        if not live_only:
            self._files.mend_links(name)
        source = self._files.output(name)
        resumed_files = {path: version for (channel, path), version in resumed.items() if channel == name}
        try:
            if self._is_unchanged(name, source, resumed_files):
                return []
            report = self._sync(name, source, resumed_files, live_only=live_only)
        except (OSError, PaiError) as error:
            return [f"{name}: {error}"]
        return _problems_of(name, report)

    def _upload_mount(self, number: int, open_target: Callable[[], Store], *, live_only: bool) -> list[str]:
        name, sandbox = f"mount {number}", self._files.sandbox
        options = {"note": lambda *_: self.check_cancelled(), "takes_growing": live_only, **self._options}
        try:
            report = upload_mounted(sandbox, number, self._files.mount(number), open_target, options)
        except (OSError, PaiError) as error:
            return [f"{name}: {error}"]
        return [] if report is None else _problems_of(name, report)

    def _is_unchanged(self, name: str, source: Store, resumed_files: Mapping[str, _Version]) -> bool:
        """Returns whether the job has changed nothing since its start, so that no store needs to be opened."""
        if self._memory(name).exists():
            return False
        if not source.exists():
            return False
        unlisted: dict[str, Exception] = {}
        listing = source.list(folders=not resumed_files, unlisted=unlisted.__setitem__)
        if not resumed_files:
            return next(iter(listing), None) is None and not unlisted
        return {file.path: _version(file) for file in listing} == resumed_files and not unlisted

    def _sync(
        self, name: str, source: Store, resumed_files: Mapping[str, _Version], *, live_only: bool
    ) -> SyncReport:
        target, memory = self._targets[name](), self._memory(name)

        def is_unchanged(file: StoredFile) -> bool:
            # Never compared with the store: another job may have replaced the stored file since.
            return resumed_files.get(file.path) == _version(file)

        def note(action: str, path: str) -> None:
            self.check_cancelled()

        more: dict[str, Any] = {"folders": False, "takes_growing": live_only, "note": note, **self._options}
        if name in RESUMED_CHANNELS:
            sizes = {path: size_bytes for path, (_, size_bytes) in resumed_files.items()}
            # Not verified: another job may resume from these checkpoints, and replace or delete some of them.
            more.update(verify=False, is_finished=not live_only)
            return CheckpointSync(
                source, target, memory=memory, existing=sizes, skip=is_unchanged, **more
            ).attempt()
        return DirSync(source, target, remember=memory, skip=is_unchanged, **more).attempt()

    def _memory(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return self._files.sandbox.sent_dir / f"{digest}.db"


def _problems_of(name: str, report: SyncReport) -> list[str]:
    """Returns what an upload has not sent; raises UploadCancelled if it was cancelled."""
    # A cancellation during a transfer is recorded as the failure of its file.
    if any(isinstance(error, UploadCancelled) for error in report.failures.values()):
        raise UploadCancelled
    problems = [f"{name}: {path} {error}" for path, error in report.unlisted.items()]
    problems += [f"{name}: {path}: {error}" for path, error in report.failures.items()]
    return problems or ([f"{name}: not all files were sent{report.why_not_all}"] if report.gave_up else [])


def _read_resumed(sandbox: Sandbox) -> dict[tuple[str, str], _Version]:
    """Returns the recorded versions by channel and path; files with unreadable records are sent again."""
    resumed: dict[tuple[str, str], _Version] = {}
    with suppress(OSError, ValueError), sandbox.resumed_file.open(encoding="ascii") as lines:
        for line in lines:
            name, path, changed_ns, size_bytes = json.loads(line)
            resumed[name, path] = changed_ns, size_bytes
    return resumed


def _version(file: StoredFile) -> _Version:
    return file.modified_ns or 0, file.size_bytes
