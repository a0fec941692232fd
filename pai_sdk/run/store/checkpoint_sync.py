"""Keeps a folder of checkpoints in a store the same as a local one, for readers that may look at any moment.

`DirSync` moves the files. This module adds the order, so that a run that has a complete checkpoint in the store
always has one, and never an older one than before:

1. New checkpoints are sent, each with `_INCOMPLETE` first and its marker last. A marker is only sent while it is
   the same as before the files were read; if the job replaced it meanwhile, the next sync sends it.
2. A checkpoint whose files replace those of a complete one is sent to a folder beside it, `<step>.pai-sdk-new`,
   and copied from there within the store. Readers take it from that folder until the copy has its marker.
3. What was removed here is deleted there, when all complete checkpoints of this side are in the store, and one of
   them is newer. Only files that are known to be this side's own are deleted, and folders that some process began
   to send and gave up.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pai_sdk.errors import ObjectNotFoundError, PaiError, StorageError
from pai_sdk.run.report.checkpoints import INCOMPLETE, MARKER
from pai_sdk.run.report.layout import RunLayout
from pai_sdk.run.store.checkpoint_sides import Deletion, Folder, Sides, is_marker
from pai_sdk.run.store.stored_checkpoints import StoredCheckpoint, copy_checkpoint, stored_checkpoint
from pai_sdk.storage.base import Store
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk.storage.sync.memory import SyncMemory, memory_path

__all__ = ["CheckpointSync"]


class CheckpointSync:
    """Sends a local folder with checkpoints to a store. All of the folder is sent, whatever it holds.

    A checkpoint is not sent while it is being written. Checkpoints that were removed here are removed there, if
    they are known to be the same: sent by an earlier sync with the same memory, or listed in `found`. The newest
    one stays until a newer one is complete there. A folder that another process began to send and did not complete
    is removed when nothing in it has changed for a day.

    Args:
        source: the folder with the checkpoints.
        target: where it goes.
        base: the folder of checkpoints in the source, with a `/` at its end; empty for the source itself.
        memory: the file that has what was sent; by default, one below `~/.cache`.
        found: size in bytes of the files that were in the target already when the job began.
        skip: called with each file of the source; what it accepts counts as unchanged.
        verify: send again what was changed or deleted in the target. Without it, only a target that has lost
            everything is noticed.
        is_over: whether the job that writes into the source has ended.
        delete: also delete other files that the source does not have, but no checkpoints of others.
        keeps: called with the path of a file; what it accepts is deleted only if it was sent from here.
        **options: further ones of `DirSync`.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.report.checkpoints import commit
        >>> from pai_sdk.storage.stores.local import LocalStore
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
        source: Store,
        target: Store,
        *,
        base: str = "",
        memory: Path | None = None,
        found: Mapping[str, int] | None = None,
        skip: Callable[[StoredFile], bool] = lambda file: False,
        verify: bool = True,
        is_over: bool = False,
        delete: bool = False,
        keeps: Callable[[str], bool] = lambda path: False,
        **options: Any,
    ) -> None:
        self._source = source
        self._target = target
        self._base = base
        self._memory = memory or memory_path(source, target)
        self._found = found or {}
        self._skip = skip
        self._verify = verify
        self._is_over = is_over
        self._delete = delete
        self._keeps = keeps
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
        if self._source.root is not None and not self._source.exists():
            return self._sync(self._skip)  # which says so
        unlisted: dict[str, Exception] = {}
        listed = {file.path: file for file in self._list(self._source, unlisted.__setitem__)}
        here = {path: file for path, file in listed.items() if not self._is_replacement(path)}
        sides = self._compared(here)
        with SyncMemory(self._memory) as memory:
            replaced = self._checked(memory, sides.there)
            # `DirSync` forgets what is removed here, also while it runs.
            rows, sent = {row.path: row.target for row in memory.rows()}, memory.sent()
            memory.change_sent(add={path: mark for path, mark in rows.items() if sent.get(path) != mark})
        held = {folder.path for folder in sides.folders.values() if folder.is_held(is_over=self._is_over)}

        def waits(file: StoredFile) -> bool:
            # What was not there when both sides were listed waits for the next sync.
            return file.path not in here or sides.folder_of(file.path) in held or self._skip(file)

        changed: list[str] = []
        report = self._sync(waits, note=lambda action, path: changed.append(path), dry_run=True)
        if changed:
            report = self._send(changed, sides, replaced, waits)
        if len(listed) > len(here) and not report.gave_up:
            self._send_replacements(listed, report)
        if not unlisted and not report.unlisted and not report.gave_up:
            report.deleted += self._delete_gone(here, sides, report)
        return report

    def _sync(self, skip: Callable[[StoredFile], bool], **more: Any) -> SyncReport:
        options = {"is_checked": True, **self._options, **more}
        return DirSync(self._source, self._target, remember=self._memory, skip=skip, **options).attempt()

    def _list(
        self, store: Store, unlisted: Callable[[str, Exception], None] = lambda path, error: None
    ) -> Iterator[StoredFile]:
        return store.list(folders=self._options["folders"], unlisted=unlisted)

    def _is_replacement(self, path: str) -> bool:
        """True for a file that the job has written to replace a complete checkpoint; not sent under this name."""
        at = RunLayout.checkpoint_path(path[len(self._base) :]) if path.startswith(self._base) else None
        return at is not None and at.is_replacement

    def _compared(self, here: Mapping[str, StoredFile]) -> Sides:
        """Both sides as they are now; one request for a thousand files of the target."""
        there = {file.path: file for file in self._list(self._target)}
        return Sides(self._source, self._target, self._base, here, there)

    def _checked(self, memory: SyncMemory, there: Mapping[str, StoredFile]) -> set[str]:
        """Forget what the target does not have any more. Returns the paths of files that were replaced there."""
        rows = list(memory.rows())
        if not self._verify and any(row.path in there for row in rows):
            return set()  # another job may resume from these checkpoints
        memory.check(there)
        return {row.path for row in rows if row.path in there and there[row.path].etag != row.target}

    # ---- sending --------------------------------------------------------------------------------------------

    def _send(
        self, changed: Iterable[str], sides: Sides, replaced: set[str], waits: Callable[[StoredFile], bool]
    ) -> SyncReport:
        todo = _Todo()
        for path in changed:
            todo.changed.setdefault(sides.folder_of(path), []).append(path)
        for name, paths in todo.changed.items():
            todo.now.update(paths if name is None else self._plan(sides.folders[name], paths, replaced, todo))
        if todo.opened:
            self._target.delete(todo.opened)
        failures = self._begin(todo)
        # A file that has changed only since the plan was made may belong to a checkpoint that is complete there.
        report = self._sync(lambda file: file.path not in todo.now or waits(file))
        report.failures.update(failures)
        if report.gave_up:
            return report
        self._send_markers(todo, sides, report)
        for name, checkpoint in todo.replacing.items():
            self._replace(sides.folders[name], checkpoint, report)
        if todo.replacing:
            now = self._compared(sides.here)
            for name, checkpoint in todo.replacing.items():
                self._remember(now.folders[name], checkpoint)
        return report

    def _plan(self, folder: Folder, paths: Iterable[str], replaced: set[str], todo: _Todo) -> Collection[str]:
        """Decide how the changed files of a folder are sent. Returns those that `DirSync` sends."""
        files = [path for path in paths if not is_marker(path)]
        overwritten = [path for path in files if folder.name_of(path) in folder.there]
        if MARKER in folder.there and overwritten:
            mine, present = folder.complete_here, folder.complete_there
            is_changed_there = any(path in replaced for path in overwritten)
            if mine and present and mine.files == present.files and not is_changed_there:
                self._remember(folder, mine)  # another process has sent the same checkpoint
                return [path for path in files if folder.name_of(path) not in mine.files]
            if folder.place and mine and present and mine.marker != present.marker:
                todo.replacing[folder.path] = mine
                return ()
            todo.opened.append(folder.path + MARKER)
        if folder.place and files and MARKER in folder.here and MARKER not in folder.there:
            todo.begun.append(folder.path)
        return files

    def _begin(self, todo: _Todo) -> dict[str, Exception]:
        """Mark folders as incomplete, so that they are known as such if this process does not complete them.

        Returns:
            The marks that could not be written; their folders are not sent.
        """
        written: dict[str, str] = {}
        failures: dict[str, Exception] = {}
        for folder in todo.begun:
            path, content = folder + INCOMPLETE, {"host": socket.gethostname(), "process": os.getpid()}
            try:
                written[path] = self._target.write(path, json.dumps(content).encode()).etag
            except StorageError as error:
                failures[path] = error
                todo.now = {path for path in todo.now if not path.startswith(folder)}
        if written:
            with SyncMemory(self._memory) as memory:
                memory.change_sent(add=written)
        return failures

    def _send_markers(self, todo: _Todo, sides: Sides, report: SyncReport) -> None:
        """Send the markers whose checkpoints were sent as a whole, and have not changed since."""
        finished: list[str] = []
        with SyncMemory(self._memory) as memory:
            for name, paths in todo.changed.items():
                folder = None if name is None or name in todo.replacing else sides.folders[name]
                if folder is None or MARKER not in folder.here:
                    continue
                path = folder.path + MARKER
                is_unfinished = folder.path in todo.begun or INCOMPLETE in folder.there
                if not (path in paths or path in todo.opened or is_unfinished):
                    continue
                is_complete = self._send_marker(folder, memory, report, is_there=path not in todo.opened)
                if is_complete and is_unfinished:
                    finished.append(folder.path + INCOMPLETE)
            # Where files failed, the folder stays marked: this process may be killed before it sends the rest.
            if finished:
                self._target.delete(finished)
                memory.change_sent(remove=finished)

    def _send_marker(self, folder: Folder, memory: SyncMemory, report: SyncReport, *, is_there: bool) -> bool:
        """Returns whether the checkpoint is complete in the target."""
        path, marker = folder.path + MARKER, folder.here[MARKER]
        if any(other.startswith(folder.path) for other in (*report.failures, *report.unlisted, *report.grown)):
            return False
        if is_there and folder.is_committed:
            memory.put(path, marker.mark, folder.there[MARKER].etag)
            return True
        try:
            content = b"".join(self._source.read(path))
            if self._source.head(path).etag != marker.etag:
                return False
        except ObjectNotFoundError:
            return False
        try:
            written = self._target.write(path, content)
        except StorageError as error:
            report.failures[path] = error
            return False
        memory.put(path, marker.mark, written.etag)
        report.moved += 1
        report.moved_bytes += len(content)
        report.unchanged -= 1
        return True

    def _replace(self, folder: Folder, checkpoint: StoredCheckpoint, report: SyncReport) -> None:
        """Replace a complete checkpoint of the target; at each moment one of the two is complete there."""
        assert folder.place is not None  # noqa: S101 - decided by `_plan`
        beside = self._base + folder.place._replace(is_replacement=True).folder
        with SyncMemory(self._memory) as memory:
            memory.change_sent(add={beside: ""})
        try:
            copy_checkpoint(checkpoint, self._target, beside)
            copy_checkpoint(replace(checkpoint, store=self._target, folder=beside), self._target, folder.path)
        except PaiError as error:
            sizes = {MARKER: 0, **{name: file.size_bytes for name, file in checkpoint.files.items()}}
            present = stored_checkpoint(self._source, checkpoint.folder, folder.place, sizes)
            if present is not None and present.marker == checkpoint.marker:
                cause = error.__cause__
                report.failures[folder.path + MARKER] = cause if isinstance(cause, Exception) else error
            return  # otherwise it was changed meanwhile, and the next sync sends it
        self._delete_now([beside + name for name in (MARKER, *checkpoint.files)])
        report.moved += len(checkpoint.files) + 1
        report.moved_bytes += checkpoint.size_bytes + len(checkpoint.marker)
        report.unchanged -= len(checkpoint.files) + 1

    def _send_replacements(self, listed: Mapping[str, StoredFile], report: SyncReport) -> None:
        """Send the checkpoints that a killed job has completed, but not put in their places."""
        here = Sides(self._source, self._target, self._base, listed, {}).folders
        for folder in here.values():
            place, ready = folder.place, folder.complete_here
            if place is None or not place.is_replacement or ready is None:
                continue
            main_place = place._replace(is_replacement=False)
            path = self._base + main_place.folder
            if path in here and here[path].complete_here is not None:
                continue  # it was killed before it removed the old one, or after the new one was in place
            main = self._compared({}).folders.get(path)
            present = None if main is None else main.complete_there
            if present is None or present.marker != ready.marker:
                self._replace(Folder(self._source, self._target, path, main_place), ready, report)

    def _remember(self, folder: Folder, mine: StoredCheckpoint) -> None:
        """Record the files of a checkpoint of this side that the target has, too."""
        present = folder.complete_there
        if present is None or mine.files != present.files:
            return
        names = {*mine.files, *([MARKER] if mine.marker == present.marker else [])}
        with SyncMemory(self._memory) as memory:
            for name in names.intersection(folder.here):
                memory.put(folder.path + name, folder.here[name].mark, folder.there[name].etag)

    # ---- deleting -------------------------------------------------------------------------------------------

    def _delete_gone(self, here: Mapping[str, StoredFile], before: Sides, report: SyncReport) -> int:
        """Delete what was removed from the source and may go now. Returns the number of files."""
        with SyncMemory(self._memory) as memory:
            sent = memory.sent()
        known = {path for path in {*sent, *self._found} if path not in here}
        if not (known.intersection(before.there) or self._delete or before.has_unfinished):
            return 0
        sides = self._compared(here)
        own = {path for path in known if path in sides.there and self._is_same(sides.there[path], sent)}
        newest = sides.newest_of_each_rank() if sides.has_unfinished or any(map(is_marker, own)) else {}
        doomed: list[str] = []
        for folder in sides.folders.values():
            if folder.place is not None:
                is_unfinished = folder.path in sent or folder.path + INCOMPLETE in own
                deletion = Deletion(folder, own, newest, sides, is_unfinished=is_unfinished)
                names = deletion.names(has_failures=bool(report.failures))
                doomed += [folder.path + name for name in names]
        if self._delete and not report.failures:
            doomed += [path for path in sides.there if self._is_surplus(path, own, sides)]
        self._delete_now(doomed)
        with SyncMemory(self._memory) as memory:
            over = {path for path in sent if path not in own and path not in here and path not in sides.folders}
            memory.change_sent(remove=over.union(doomed))
        return len(doomed)

    def _is_same(self, there: StoredFile, sent: Mapping[str, str]) -> bool:
        """True if the target still has what this job sent or found; another job may have replaced it."""
        if there.path in sent:
            return there.is_folder or there.etag == sent[there.path]
        return there.size_bytes == self._found[there.path]

    def _is_surplus(self, path: str, own: set[str], sides: Sides) -> bool:
        """True if a file of the target that is in no checkpoint is deleted with `delete`."""
        if path in sides.here:
            return False
        name = sides.folder_of(path)
        if name is not None:
            return sides.folders[name].place is None and path in own
        return path in own or not self._keeps(path)

    def _delete_now(self, paths: Iterable[str]) -> None:
        """Delete files, the markers first."""
        found = list(paths)
        for are_markers in (True, False):
            part = sorted(path for path in found if is_marker(path) is are_markers)
            if part:
                self._target.delete(part)


@dataclass
class _Todo:
    """The plan of how changed files are sent.

    Attributes:
        changed: paths of changed files, by the folder of their checkpoint.
        opened: markers that are deleted first, because their checkpoints are damaged or are not known by a step.
        now: paths of files that are sent to where they belong; markers come later.
        begun: folders of new checkpoints.
        replacing: folders whose complete checkpoint is replaced, and by which one.
    """

    changed: dict[str | None, list[str]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    now: set[str] = field(default_factory=set)
    begun: list[str] = field(default_factory=list)
    replacing: dict[str, StoredCheckpoint] = field(default_factory=dict)
