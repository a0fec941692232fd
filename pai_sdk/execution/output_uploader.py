"""Sends the outputs of a job to the stores of their URIs, while it runs and at its end.

Each job of an executor has one `OutputUploader`: in the service a thread drives it, for a local job a
process of its own (`backend.local.uploading`). What was sent is remembered in the sandbox, so another process
continues.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from pai_sdk.agent.sandbox import RESUMED_CHANNELS, Sandbox
from pai_sdk.base.files import replace_file
from pai_sdk.errors import PaiError
from pai_sdk.execution.base import JobFiles
from pai_sdk.run.store.checkpoint_sync import CheckpointSync
from pai_sdk.storage.base import Store
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.sync.dir_sync import DirSync, SyncReport

__all__ = ["LIVE_CHANNELS", "UPLOAD_INTERVAL_S", "OutputUploader", "UploadCancelled", "note_resumed"]

LIVE_CHANNELS = frozenset({"checkpoints", "tensorboard", "trace"})
"""The channels that are sent while the job runs; the others have their content when it has ended."""

UPLOAD_INTERVAL_S = 30.0
"""Seconds between two uploads; a job that is lost with its machine loses at most the files of this time."""

_SHOWN_PROBLEMS = 5

_Version: TypeAlias = tuple[int, int]
"""Time of a file's last change in nanoseconds, and its size."""


def note_resumed(files: JobFiles, channels: Iterable[str]) -> None:
    """Write down what lies in the outputs that a job continues from, before it begins.

    Such files are sent only where the job changes them. That is not just for speed: another job may continue from
    the same checkpoints meanwhile, and what it has saved must not be replaced by the copies of this one.

    Args:
        files: of the job.
        channels: its output channels.
    """
    lines = [
        json.dumps([name, file.path, *_version(file)]) + "\n"
        for name in sorted(RESUMED_CHANNELS.intersection(channels))
        for file in files.output(name).list(unlisted=lambda path, error: None)
    ]
    replace_file(files.sandbox.resumed_file, "".join(lines), mode=0o666)


class UploadCancelled(Exception):
    """The process ends; the next one sends the rest."""


class OutputUploader:
    """Sends the outputs of one job. An unchanged file is not sent again. Safe to use from several threads.

    `_lock` is held for a whole upload: the one at the end of the job waits for a live one under way, and then
    sends only what that one has not. Between processes, the caller holds a lock (`sync.lock` of a local job).

    Args:
        files: of the job.
        targets: output channel to what opens its store; called when there is something to send.
        is_cancelled: asked between files; `targets` may also ask it within large ones.
        options: further ones of `DirSync`.
    """

    def __init__(
        self,
        files: JobFiles,
        targets: Mapping[str, Callable[[], Store]],
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._files = files
        self._targets = targets
        self._is_cancelled = is_cancelled
        self._options = options or {}
        self._lock = threading.Lock()
        self._resumed: dict[tuple[str, str], _Version] | None = None
        self._is_over = False  # all was sent after the end; what is removed here later stays in the store

    @property
    def has_live_channels(self) -> bool:
        """Return whether there is something to send while the job runs."""
        return not LIVE_CHANNELS.isdisjoint(self._targets)

    def upload(self, *, live_only: bool) -> str:
        """Send what is new.

        Args:
            live_only: only the live channels.

        Returns:
            What could not be sent, and why; empty when all is there.

        Raises:
            UploadCancelled: `is_cancelled` said so.
        """
        problems: list[str] = []
        with self._lock:
            if self._is_over and live_only:
                return ""  # it was due before the end, and begins after it
            if self._resumed is None:
                self._resumed = _read_resumed(self._files.sandbox)
            for name in self._targets:
                if not live_only or name in LIVE_CHANNELS:
                    problems += self._upload_channel(name, self._resumed, live_only=live_only)
            self._is_over = not (live_only or problems)
        more = f"; and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
        return "; ".join(problems[:_SHOWN_PROBLEMS]) + more

    def check_cancelled(self) -> None:
        """Raise when `is_cancelled` says so.

        Raises:
            UploadCancelled: it does.
        """
        if self._is_cancelled():
            raise UploadCancelled

    def _upload_channel(
        self, name: str, resumed: Mapping[tuple[str, str], _Version], *, live_only: bool
    ) -> list[str]:
        if not live_only:
            self._files.mend_links(name)
        source = self._files.output(name)
        found = {path: version for (channel, path), version in resumed.items() if channel == name}
        try:
            if self._is_as_found(name, source, found):
                return []
            report = self._sync(name, source, found, live_only=live_only)
        except (OSError, PaiError) as error:
            return [f"{name}: {error}"]
        if any(isinstance(error, UploadCancelled) for error in report.failures.values()):
            raise UploadCancelled
        problems = [f"{name}: {path} {error}" for path, error in report.unlisted.items()]
        problems += [f"{name}: {path}: {error}" for path, error in report.failures.items()]
        return problems or ([f"{name}: not all files were sent{report.why_not_all}"] if report.gave_up else [])

    def _is_as_found(self, name: str, source: Store, found: Mapping[str, _Version]) -> bool:
        """Return whether the job has changed nothing since it began, so that no store needs to be opened."""
        if self._memory(name).exists():
            return False
        if not source.exists():
            return False
        unlisted: dict[str, Exception] = {}
        listing = source.list(folders=not found, unlisted=unlisted.__setitem__)
        if not found:
            return next(iter(listing), None) is None and not unlisted
        return {file.path: _version(file) for file in listing} == found and not unlisted

    def _sync(self, name: str, source: Store, found: Mapping[str, _Version], *, live_only: bool) -> SyncReport:
        target, memory = self._targets[name](), self._memory(name)

        def is_as_found(file: StoredFile) -> bool:
            # Another job may have replaced it in the store meanwhile.
            return found.get(file.path) == _version(file)

        def note(action: str, path: str) -> None:
            self.check_cancelled()

        more: dict[str, Any] = {"folders": False, "takes_growing": live_only, "note": note, **self._options}
        if name in RESUMED_CHANNELS:
            sizes = {path: size_bytes for path, (_, size_bytes) in found.items()}
            # Another job may continue from these checkpoints, and replace or delete some of them.
            more.update(verify=False, is_over=not live_only)
            return CheckpointSync(source, target, memory=memory, found=sizes, skip=is_as_found, **more).attempt()
        return DirSync(source, target, remember=memory, skip=is_as_found, **more).attempt()

    def _memory(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return self._files.sandbox.sent_dir / f"{digest}.db"


def _read_resumed(sandbox: Sandbox) -> dict[tuple[str, str], _Version]:
    """The files that were there, by channel and path. What cannot be read was not there: it is sent once more."""
    known: dict[tuple[str, str], _Version] = {}
    with suppress(OSError, ValueError), sandbox.resumed_file.open(encoding="ascii") as lines:
        for line in lines:
            name, path, changed_ns, size_bytes = json.loads(line)
            known[name, path] = changed_ns, size_bytes
    return known


def _version(file: StoredFile) -> _Version:
    return file.modified_ns or 0, file.size_bytes
