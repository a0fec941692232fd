"""The folders of checkpoints as a local folder and a store have them, and what may be deleted in the store.

`CheckpointSync` compares both sides with these classes, and acts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from pai_sdk.run.report.checkpoints import INCOMPLETE, MARKER, is_unfinished
from pai_sdk.run.report.layout import CheckpointPath, RunLayout
from pai_sdk.run.store.stored_checkpoints import StoredCheckpoint, stored_checkpoint
from pai_sdk.storage.base import Store
from pai_sdk.storage.stored_file import StoredFile

__all__ = ["Deletion", "Folder", "Sides", "is_marker"]

_ABANDONED_NS = 24 * 3600 * 10**9
_QUIET_NS = 600 * 10**9


def is_marker(path: str) -> bool:
    """True if a path is that of a marker."""
    return PurePosixPath(path).name == MARKER


@dataclass
class Folder:
    """The folder of one checkpoint, as both sides have it; the files are by their names in it.

    Attributes:
        path: with a `/` at its end.
        place: its rank and step; None for a folder with a marker that has another name.
    """

    source: Store
    target: Store
    path: str
    place: CheckpointPath | None
    here: dict[str, StoredFile] = field(default_factory=dict)
    there: dict[str, StoredFile] = field(default_factory=dict)

    def name_of(self, path: str) -> str:
        """The name of a file in the folder."""
        return path.removeprefix(self.path)

    @property
    def sizes_here(self) -> dict[str, int]:
        """The sizes of the local files in bytes."""
        return {name: file.size_bytes for name, file in self.here.items()}

    @cached_property
    def complete_here(self) -> StoredCheckpoint | None:
        """The local checkpoint, if it is complete."""
        return self._complete(self.source, self.here)

    @cached_property
    def complete_there(self) -> StoredCheckpoint | None:
        """The checkpoint of the target, if it is complete."""
        return self._complete(self.target, self.there)

    def _complete(self, store: Store, files: Mapping[str, StoredFile]) -> StoredCheckpoint | None:
        sizes = {name: file.size_bytes for name, file in files.items()}
        return stored_checkpoint(store, self.path, self.place or CheckpointPath(0, 0), sizes)

    def is_held(self, *, is_over: bool) -> bool:
        """True if the folder is not sent, because a checkpoint is being written there, or removed.

        The writer says so. Without that, it is so while the target has a complete one; but not for ever, since
        files that have not changed for a while are a user's own.
        """
        if self.place is None or not self.here or self.complete_here is not None:
            return False
        if self.source.root is not None and is_unfinished(self.source.root / self.path):
            return True
        if MARKER not in self.there:
            return False
        changed_ns = max(file.modified_ns or 0 for file in self.here.values())
        return not (is_over or changed_ns < time.time_ns() - _QUIET_NS)

    @property
    def is_committed(self) -> bool:
        """True if the checkpoint of this side is complete in the target."""
        mine, present = self.complete_here, self.complete_there
        return mine is not None and present is not None and mine.marker == present.marker

    @property
    def changed_ns(self) -> int:
        """The time of the last write to it in the target, by the target's clock."""
        return max((file.modified_ns or 0 for file in self.there.values()), default=0)


class Sides:
    """The files of both sides at one time, and the folders of checkpoints among them."""

    def __init__(
        self,
        source: Store,
        target: Store,
        base: str,
        here: Mapping[str, StoredFile],
        there: Mapping[str, StoredFile],
    ) -> None:
        self.here, self.there = here, there
        self._base = base
        self._marked = {path.removesuffix(MARKER) for path in (*here, *there) if is_marker(path)}
        self.folders: dict[str, Folder] = {}
        for path in {**here, **there}:
            name = self.folder_of(path)
            if name is None:
                continue
            folder = self.folders.get(name)
            if folder is None:
                folder = self.folders[name] = Folder(source, target, name, self._place_of(path))
            if path in here:
                folder.here[folder.name_of(path)] = here[path]
            if path in there:
                folder.there[folder.name_of(path)] = there[path]

    def _place_of(self, path: str) -> CheckpointPath | None:
        at = RunLayout.checkpoint_path(path[len(self._base) :]) if path.startswith(self._base) else None
        return None if at is None else at._replace(name="")

    def folder_of(self, path: str) -> str | None:
        """The folder of the checkpoint that a file belongs to; None for other files."""
        at = self._place_of(path)
        if at is not None:
            return self._base + at.folder
        parents = ("" if str(parent) == "." else f"{parent}/" for parent in reversed(PurePosixPath(path).parents))
        return next((folder for folder in parents if folder in self._marked), None)

    @property
    def has_unfinished(self) -> bool:
        """True if the target has folders of checkpoints that are not complete, or replace others."""
        return any(
            INCOMPLETE in folder.there or (folder.place is not None and folder.place.is_replacement)
            for folder in self.folders.values()
        )

    def newest_of_each_rank(self) -> dict[int, int]:
        """The newest step that each rank could resume from; empty until all of this side is in the target.

        No rank resumes from a step that rank 0 has not reached, so a newer one is no replacement for an older one.
        """
        steps: dict[int, list[int]] = {}
        for folder in self.folders.values():
            place = folder.place
            if place is None or place.is_replacement or folder.complete_here is None:
                continue
            if not folder.is_committed:
                return {}
            steps.setdefault(place.rank, []).append(place.step)
        last = max(steps.get(0, []), default=None)
        usable = {rank: [step for step in found if last is None or step <= last] for rank, found in steps.items()}
        return {rank: max(found) for rank, found in usable.items() if found}

    def is_abandoned(self, folder: Folder) -> bool:
        """True if nothing in it has changed for a day. The time is that of the newest file in the target."""
        now = max((file.modified_ns or 0 for file in self.there.values()), default=0)
        return 0 < folder.changed_ns < now - _ABANDONED_NS

    def is_complete_without(self, replacement: CheckpointPath) -> bool:
        """True if the target has the checkpoint where it belongs, so that its replacement is not read."""
        main = self.folders.get(self._base + replacement._replace(is_replacement=False).folder)
        return main is not None and main.complete_there is not None


@dataclass(frozen=True)
class Deletion:
    """Which files of the folder of a step may be deleted in the target now.

    Attributes:
        own: paths of files that were sent or found by this side, and were removed here since.
        newest: the newest step of each rank that has all of its checkpoints in the target.
        is_begun: whether this side has begun to send the folder and has not completed it.
    """

    folder: Folder
    own: set[str]
    newest: Mapping[int, int]
    sides: Sides
    is_unfinished: bool

    def names(self, *, has_failures: bool) -> set[str]:
        """Their names in the folder."""
        folder, place, names = self.folder, self.folder.place, set(self.folder.there)
        assert place is not None  # noqa: S101 - decided by the caller
        mine = {name for name in names if folder.path + name in self.own}
        has_newer = self.newest.get(place.rank, -1) > place.step
        is_given_up = self.is_unfinished or self.sides.is_abandoned(folder)
        if place.is_replacement:
            is_read = MARKER in names and not self.sides.is_complete_without(place)
            is_over = has_newer and self.is_unfinished if is_read else is_given_up
            return names if is_over and not folder.here else set()
        if MARKER not in names:
            if INCOMPLETE in names and is_given_up and not folder.here:
                return names
            return set() if has_failures else mine - {INCOMPLETE}
        of_upload = names.intersection([INCOMPLETE]) if is_given_up else set()
        if folder.here:
            return mine | of_upload if folder.is_committed else set()
        # A checkpoint that another job has completed since is the other job's, whichever of its files are known.
        return mine | of_upload if MARKER in mine and has_newer else of_upload
