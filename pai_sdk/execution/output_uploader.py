"""Sends the outputs of a job to the stores of their URIs, while it runs and at its end.

Each job on a machine of ours has one `OutputUploader`: in the service a thread drives it, for a local job a
process of its own (`backend.local.uploading`). What was sent is remembered in the sandbox, so another process
continues.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pai_sdk.agent.sandbox import RESUMED_CHANNELS, Sandbox
from pai_sdk.errors import PaiError
from pai_sdk.execution.initial_outputs import Version, read_resumed
from pai_sdk.execution.output_links import mend_links
from pai_sdk.run.checkpoint_sync import CheckpointSync
from pai_sdk.storage.base import Store
from pai_sdk.storage.local_store import LocalStore
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.sync import DirSync, SyncReport

__all__ = ["LIVE_CHANNELS", "UPLOAD_INTERVAL_S", "OutputUploader", "UploadCancelled"]

LIVE_CHANNELS = frozenset({"checkpoints", "tensorboard", "trace"})
"""The channels that are sent while the job runs; the others have their content when it has ended."""

UPLOAD_INTERVAL_S = 30.0
"""How often that happens; a job that is lost with its machine loses at most what it wrote since."""

_SHOWN_PROBLEMS = 5
_PATH_IN_JOB = "/ml/output"


class UploadCancelled(Exception):
    """The process ends; the next one sends the rest."""


class OutputUploader:
    """Sends the outputs of one job. An unchanged file is not sent again. Safe to use from several threads.

    A lock is held for a whole upload: the one at the end of the job waits for a live one under way, and then sends
    only what that one has not.

    Args:
        sandbox: the job's folder.
        targets: output channel to what opens its store; called when there is something to send.
        is_cancelled: asked between files; `targets` may also ask it within large ones.
        options: further ones of `DirSync`.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        targets: Mapping[str, Callable[[], Store]],
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._targets = targets
        self._is_cancelled = is_cancelled
        self._options = options or {}
        self._lock = threading.Lock()
        self._resumed: dict[tuple[str, str], Version] | None = None
        self._is_over = False  # all was sent after the end; what is removed here later stays in the store

    @property
    def has_live_channels(self) -> bool:
        """Whether there is something to send while the job runs."""
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
                self._resumed = read_resumed(self._sandbox)
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
        self, name: str, resumed: Mapping[tuple[str, str], Version], *, live_only: bool
    ) -> list[str]:
        folder = self._sandbox.output_dir(name)
        if not live_only:
            mend_links(folder, f"{_PATH_IN_JOB}/{name}")
        source = LocalStore(folder, links="inside")
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

    def _is_as_found(self, name: str, source: LocalStore, found: Mapping[str, Version]) -> bool:
        """Whether the job has changed nothing since it began, so that no store needs to be opened."""
        if self._memory(name).exists():
            return False
        if not found:
            return source.root.is_dir() and not any(source.root.iterdir())
        unlisted: dict[str, Exception] = {}
        here = {file.path: _version(file) for file in source.list(unlisted=unlisted.__setitem__)}
        return not unlisted and here == found

    def _sync(self, name: str, source: LocalStore, found: Mapping[str, Version], *, live_only: bool) -> SyncReport:
        target, memory = self._targets[name](), self._memory(name)

        def is_as_found(file: StoredFile) -> bool:
            # Another job may have replaced it in the store meanwhile.
            return found.get(file.path) == _version(file)

        def note(action: str, path: str) -> None:
            self.check_cancelled()

        more: dict[str, Any] = {"folders": False, "takes_growing": live_only, "note": note, **self._options}
        if name in RESUMED_CHANNELS:
            sizes = {path: size_bytes for path, (_, size_bytes) in found.items()}
            # Another job may go on with these checkpoints, and replace or delete some of them.
            more.update(verify=False, is_over=not live_only)
            return CheckpointSync(source, target, memory=memory, found=sizes, skip=is_as_found, **more).attempt()
        return DirSync(source, target, remember=memory, skip=is_as_found, **more).attempt()

    def _memory(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return self._sandbox.state_dir / f"sent-{digest}.db"


def _version(file: StoredFile) -> Version:
    return file.modified_ns or 0, file.size_bytes
