"""The folders of checkpoints in a local folder and in a store, and the files that can be deleted in the store.

`CheckpointSync` compares both sides with these classes, and acts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from pai_sdk._data.run.report.checkpoints import INCOMPLETE, MARKER, is_unfinished
from pai_sdk._data.run.report.layout import CheckpointPath, RunLayout
from pai_sdk._data.run.store.stored_checkpoints import StoredCheckpoint, stored_checkpoint
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile

_ABANDONED_NS = 24 * 3600 * 10**9  # a live process uploads at least one more file within this time
_QUIET_NS = 600 * 10**9  # of files without a marker: then a program without markers has written them


def is_marker(path: str) -> bool:
    """Returns True if a path is that of a marker."""
    return PurePosixPath(path).name == MARKER


@dataclass
class Folder:
    """The folder of one checkpoint on both sides; files are listed by their names in it."""

    source: Store
    target: Store
    path: str  # with a `/` at its end
    position: CheckpointPath | None  # None for a folder with a marker that has another name than a step
    source_files: dict[str, StoredFile] = field(default_factory=dict)
    target_files: dict[str, StoredFile] = field(default_factory=dict)

    def name_of(self, path: str) -> str:
        """Returns the name of a file in the folder."""
        return path.removeprefix(self.path)

    @cached_property
    def source_checkpoint(self) -> StoredCheckpoint | None:
        """The local checkpoint, if it is complete."""
        return self._complete(self.source, self.source_files)

    @cached_property
    def target_checkpoint(self) -> StoredCheckpoint | None:
        """The checkpoint of the target, if it is complete."""
        return self._complete(self.target, self.target_files)

    def _complete(self, store: Store, files: Mapping[str, StoredFile]) -> StoredCheckpoint | None:
        sizes = {name: file.size_bytes for name, file in files.items()}
        return stored_checkpoint(store, self.path, self.position or CheckpointPath(0, 0), sizes)

    def is_being_written(self, *, is_finished: bool) -> bool:
        """Returns True if the folder is not sent yet, because a checkpoint is being written or removed there."""
        if self.position is None or not self.source_files or self.source_checkpoint is not None:
            return False
        # A writer of this package leaves a draft of the marker.
        if self.source.root is not None and is_unfinished(self.source.root / self.path):
            return True
        if MARKER not in self.target_files:
            return False
        # A job removes the marker before it changes a file, so a complete checkpoint in the target means that the
        # local one is being changed. Files that stay unchanged for a while belong to a program without markers.
        changed_ns = max(file.modified_ns or 0 for file in self.source_files.values())
        return not (is_finished or changed_ns < time.time_ns() - _QUIET_NS)

    @property
    def is_committed(self) -> bool:
        """True if the local checkpoint is complete in the target."""
        local, remote = self.source_checkpoint, self.target_checkpoint
        return local is not None and remote is not None and local.marker == remote.marker

    @property
    def changed_ns(self) -> int:
        """The time of the last write in the target, by the target's clock."""
        return max((file.modified_ns or 0 for file in self.target_files.values()), default=0)


class Sides:
    """The files of both sides at one time, and the folders of checkpoints among them."""

    def __init__(
        self,
        source: Store,
        target: Store,
        base: str,
        source_files: Mapping[str, StoredFile],
        target_files: Mapping[str, StoredFile],
    ) -> None:
        self.source_files, self.target_files = source_files, target_files
        self._base = base
        self._marked = {path.removesuffix(MARKER) for path in (*source_files, *target_files) if is_marker(path)}
        self.folders: dict[str, Folder] = {}
        for path in {**source_files, **target_files}:
            name = self.folder_of(path)
            if name is None:
                continue
            folder = self.folders.get(name)
            if folder is None:
                folder = self.folders[name] = Folder(source, target, name, self._position_of(path))
            if path in source_files:
                folder.source_files[folder.name_of(path)] = source_files[path]
            if path in target_files:
                folder.target_files[folder.name_of(path)] = target_files[path]

    def _position_of(self, path: str) -> CheckpointPath | None:
        position = RunLayout.checkpoint_path(path[len(self._base) :]) if path.startswith(self._base) else None
        return None if position is None else position._replace(name="")

    def folder_of(self, path: str) -> str | None:
        """Returns the folder of the checkpoint that a file belongs to; None for other files."""
        position = self._position_of(path)
        if position is not None:
            return self._base + position.folder
        parents = ("" if str(parent) == "." else f"{parent}/" for parent in reversed(PurePosixPath(path).parents))
        return next((folder for folder in parents if folder in self._marked), None)

    @property
    def has_unfinished(self) -> bool:
        """True if the target has folders of checkpoints that are incomplete or replace other checkpoints."""
        return any(
            INCOMPLETE in folder.target_files or (folder.position is not None and folder.position.is_replacement)
            for folder in self.folders.values()
        )

    def newest_of_each_rank(self) -> dict[int, int]:
        """Returns the newest step each rank can resume from; empty until the target has all local checkpoints."""
        steps: dict[int, list[int]] = {}
        for folder in self.folders.values():
            position = folder.position
            if position is None or position.is_replacement or folder.source_checkpoint is None:
                continue
            if not folder.is_committed:
                return {}
            steps.setdefault(position.rank, []).append(position.step)
        # No rank resumes from a step that rank 0 has not reached, so a newer one cannot stand in for an older one.
        last = max(steps.get(0, []), default=None)
        usable = {
            rank: [step for step in rank_steps if last is None or step <= last]
            for rank, rank_steps in steps.items()
        }
        return {rank: max(rank_steps) for rank, rank_steps in usable.items() if rank_steps}

    def is_abandoned(self, folder: Folder) -> bool:
        """Returns True if nothing in the folder has changed for a day."""
        # No clock of this machine is compared with the target's: "now" is the time of the newest file there.
        now = max((file.modified_ns or 0 for file in self.target_files.values()), default=0)
        return 0 < folder.changed_ns < now - _ABANDONED_NS

    def is_complete_without(self, replacement: CheckpointPath) -> bool:
        """Returns True if the target has the checkpoint in its own folder, so that the replacement is not read."""
        main = self.folders.get(self._base + replacement._replace(is_replacement=False).folder)
        return main is not None and main.target_checkpoint is not None


@dataclass(frozen=True)
class Deletion:
    """The files of a step's folder that can be deleted in the target now."""

    folder: Folder
    owned: set[str]  # sent from the source, or there when the job started, and gone locally
    newest: Mapping[int, int]  # by rank: its newest step; only ranks with all checkpoints in the target
    sides: Sides
    is_incomplete: bool  # an upload of the folder from the source was started and not completed

    def names(self, *, has_failures: bool) -> set[str]:
        """Returns the names in the folder of the files to delete."""
        folder, position, names = self.folder, self.folder.position, set(self.folder.target_files)
        assert position is not None  # noqa: S101 - decided by the caller
        owned = {name for name in names if folder.path + name in self.owned}
        has_newer = self.newest.get(position.rank, -1) > position.step
        is_abandoned = self.is_incomplete or self.sides.is_abandoned(folder)
        if position.is_replacement:
            is_read = MARKER in names and not self.sides.is_complete_without(position)
            is_removable = has_newer and self.is_incomplete if is_read else is_abandoned
            return names if is_removable and not folder.source_files else set()
        if MARKER not in names:
            if INCOMPLETE in names and is_abandoned and not folder.source_files:
                return names
            return set() if has_failures else owned - {INCOMPLETE}
        of_upload = names.intersection([INCOMPLETE]) if is_abandoned else set()
        if folder.source_files:
            return owned | of_upload if folder.is_committed else set()
        # A checkpoint that another job has completed since belongs to that job, even if some files are recorded as
        # owned.
        return owned | of_upload if MARKER in owned and has_newer else of_upload
