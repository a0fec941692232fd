"""Keeps a folder of checkpoints in a store the same as a local one, for readers that may look at any moment.

`DirSync` moves the files. This module adds the order: the marker of a checkpoint is deleted before one of its
files is replaced, and written when all of them are in place. A marker is only sent while it is the same as before
the files were read; if the job replaced it meanwhile, the next sync sends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pai_sdk.errors import ObjectNotFoundError
from pai_sdk.run.checkpoints import MARKER
from pai_sdk.storage.base import Store
from pai_sdk.storage.local_store import LocalStore
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.sync import DirSync, SyncReport
from pai_sdk.storage.sync_memory import SyncMemory, memory_path

__all__ = ["CheckpointSync"]

_OF_A_STEP = re.compile(r"(?:rank-[1-9][0-9]*/)?(?:0|[1-9][0-9]*)/.")


class CheckpointSync:
    """Sends a local folder with checkpoints to a store. All of the folder is sent, whatever it holds.

    Checkpoints that were removed here are removed there, if they are known to be the same: sent by an earlier sync
    with the same memory, or listed in `found`. Nothing else is deleted.

    Args:
        source: the local folder.
        target: where it goes.
        memory: the file that has what was sent; by default, one below `~/.cache`.
        found: size in bytes of the files that were in the target already when the job began.
        skip: called with each file of the source; what it accepts counts as unchanged.
        **options: further ones of `DirSync`.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.checkpoints import commit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     here, there = LocalStore(f"{folder}/here"), LocalStore(f"{folder}/there")
        ...     _ = here.write("7/weights", b"1.0")
        ...     _ = commit(f"{folder}/here/7", step=7)
        ...     report = CheckpointSync(here, there, memory=Path(folder, "memory.db")).attempt()
        ...     report.moved, sorted(file.path for file in there.list())
        (2, ['7/_COMPLETE', '7/weights'])
    """

    def __init__(
        self,
        source: LocalStore,
        target: Store,
        *,
        memory: Path | None = None,
        found: Mapping[str, int] | None = None,
        skip: Callable[[StoredFile], bool] = lambda file: False,
        **options: Any,
    ) -> None:
        self._source = source
        self._target = target
        self._memory = memory or memory_path(source.uri, target.uri)
        self._found = found or {}
        self._skip = skip
        self._options = {"folders": False, **options}

    def run(self) -> SyncReport:
        """The same as `attempt`; failures are an error.

        Raises:
            SyncError: some files could not be sent; the others are in place.
        """
        report = self.attempt()
        report.raise_failures(self._source, self._target)
        return report

    def attempt(self) -> SyncReport:
        """Send what is new or changed; failures are in the report.

        Raises:
            StorageError: the source is not there, or the target cannot be used at all.
        """
        deleted = self._delete_removed()
        changed: list[str] = []
        report = self._sync(self._skip, note=lambda action, path: changed.append(path), dry_run=True)
        if changed:
            # The markers are looked at before any file is read: as long as one is there, its files are unchanged.
            markers = dict(self._present(_markers_of(changed)))
            self._target.delete(_markers_of(path for path in changed if not _is_marker(path)))
            report = self._sync(lambda file: _is_marker(file.path) or self._skip(file))
            if not report.gave_up:
                self._send_markers(markers, report)
        report.deleted += deleted
        return report

    def _sync(self, skip: Callable[[StoredFile], bool], **more: Any) -> SyncReport:
        options = {**self._options, **more}
        return DirSync(self._source, self._target, remember=self._memory, skip=skip, **options).attempt()

    def _present(self, paths: Collection[str]) -> Iterator[tuple[str, StoredFile]]:
        for path in paths:
            try:
                yield path, self._source.head(path)
            except ObjectNotFoundError:
                continue

    def _send_markers(self, markers: Mapping[str, StoredFile], report: SyncReport) -> None:
        """Send the markers whose checkpoints were sent as a whole, and have not changed since."""
        failed = (*report.failures, *report.unlisted, *report.grown)
        with SyncMemory(self._memory) as memory:
            for path, marker in markers.items():
                if any(other.startswith(path.removesuffix(MARKER)) for other in failed):
                    continue
                try:
                    content = b"".join(self._source.read(path))
                    if self._source.head(path).etag != marker.etag:
                        continue
                except ObjectNotFoundError:
                    continue
                written = self._target.write(path, content)
                memory.put(path, marker.etag, written.etag)
                report.moved += 1
                report.moved_bytes += len(content)
                report.unchanged -= 1

    def _delete_removed(self) -> int:
        """Delete the checkpoints that were removed from the source. Returns the number of files."""
        if not self._source.root.is_dir():
            return 0
        unlisted: dict[str, Exception] = {}
        here = {file.path for file in self._source.list(unlisted=unlisted.__setitem__)}
        if unlisted:
            return 0
        with SyncMemory(self._memory) as memory:
            sent = {row.path: row.target for row in memory.rows()}
        gone = [path for path in {*sent, *self._found} if path not in here and _OF_A_STEP.match(path)]
        same = [path for path in gone if self._is_same(path, sent)]
        for markers_first in (True, False):
            paths = sorted(path for path in same if _is_marker(path) is markers_first)
            if paths:
                self._target.delete(paths)
        return len(same)

    def _is_same(self, path: str, sent: Mapping[str, str]) -> bool:
        """Whether the target still has what this job sent or found; another job may have replaced it."""
        try:
            there = self._target.head(path)
        except ObjectNotFoundError:
            return False
        return there.etag == sent[path] if path in sent else there.size_bytes == self._found[path]


def _is_marker(path: str) -> bool:
    return PurePosixPath(path).name == MARKER


def _markers_of(paths: Any) -> Sequence[str]:
    """The markers of all folders that the paths are in."""
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    return sorted((folder / MARKER).as_posix() for folder in folders)
