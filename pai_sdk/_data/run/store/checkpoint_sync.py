"""Mirrors a local folder of checkpoints to a store, for readers that may read at any moment.

`DirSync` moves the files. This module adds the order, so that a run that has a complete checkpoint in the store
always has one, and never an older one than before:

1. New checkpoints are sent, each with `_INCOMPLETE` first and the marker last. A marker is only sent while it is
   unchanged since before the files were read; if the job replaced it meanwhile, the next sync sends it.
2. A checkpoint whose files replace those of a complete one is sent to a folder beside it, `<step>.pai-sdk-new`,
   and copied from there within the store. Readers use that folder until the copy has its marker.
3. A checkpoint removed locally is deleted in the store when all complete local checkpoints are in the store, and
   one of them is newer. Only files that are recorded as sent from the source are deleted, and folders whose upload
   was abandoned.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pai_sdk._data.run.report.checkpoints import INCOMPLETE, MARKER
from pai_sdk._data.run.report.layout import RunLayout
from pai_sdk._data.run.store.checkpoint_sides import Deletion, Folder, Sides, is_marker
from pai_sdk._data.run.store.stored_checkpoints import StoredCheckpoint, copy_checkpoint, stored_checkpoint
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.dir_sync import DirSync, SyncReport
from pai_sdk._data.storage.sync.memory import SyncMemory, memory_path
from pai_sdk.errors import ObjectNotFoundError, PaiError, StorageError


class CheckpointSync:
    """Sends a local folder with checkpoints to a store, with all other files of the folder.

    A checkpoint is not sent while it is being written. Checkpoints that were removed locally are removed in the
    store if they are recorded as the same: sent by an earlier sync with this memory, or listed in `existing`. The
    newest one stays until a newer one is complete in the store. A folder whose upload by another process was not
    completed is removed when nothing in it has changed for a day.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        base: str = "",  # folder of checkpoints in the source, with "/" at its end; empty for the source itself
        memory: Path | None = None,  # the file that records sent files; by default, one below ~/.cache
        existing: Mapping[str, int] | None = None,  # bytes of the files that the target had when the job started
        skip: Callable[[StoredFile], bool] = lambda file: False,  # accepted files count as unchanged
        # Send files again that were changed or deleted in the target. Without it, only a target that has lost all
        # files is detected.
        verify: bool = True,
        is_finished: bool = False,  # whether the job that writes into the source has finished
        # Also delete other files that the source does not have, but no checkpoints of other jobs.
        delete: bool = False,
        # Called with a path; accepted files are deleted only if they were sent from the source.
        keeps: Callable[[str], bool] = lambda path: False,
        **options: Any,  # of `DirSync`
    ) -> None:
        self._source = source
        self._target = target
        self._base = base
        self._memory = memory or memory_path(source, target)
        self._skip = skip
        self._verify = verify
        self._is_finished = is_finished
        self._options = {"folders": False, **options}
        self._removal = CheckpointRemoval(
            target, self._memory, self._compare, existing=existing or {}, delete=delete, keeps=keeps
        )

    def run(self) -> SyncReport:
        """Sends new and changed files; raises SyncError for failed ones, after all others were sent."""
        report = self.attempt()
        report.raise_failures(self._source, self._target)
        return report

    def attempt(self) -> SyncReport:
        """Sends new and changed files; failures are in the report, unless source or target cannot be used."""
        if self._source.root is not None and not self._source.exists():
            return self._sync(self._skip)  # raises the error
        unlisted: dict[str, Exception] = {}
        all_files = {file.path: file for file in self._list(self._source, unlisted.__setitem__)}
        source_files = {path: file for path, file in all_files.items() if not self._is_replacement(path)}
        sides = self._compare(source_files)
        with SyncMemory(self._memory) as memory:
            replaced = self._forget_changed(memory, sides.target_files)
            # `DirSync` forgets files that are removed locally, also while it runs. Recording them first means that
            # a kill loses no row, and the files are still recognized as sent from here.
            rows, sent = {row.path: row.target for row in memory.rows()}, memory.sent()
            memory.change_sent(add={path: mark for path, mark in rows.items() if sent.get(path) != mark})
        in_progress = {
            folder.path
            for folder in sides.folders.values()
            if folder.is_being_written(is_finished=self._is_finished)
        }

        def waits(file: StoredFile) -> bool:
            # A file that is newer than the lists waits for the next sync: its folder was not compared.
            return file.path not in source_files or sides.folder_of(file.path) in in_progress or self._skip(file)

        changed: list[str] = []
        report = self._sync(waits, note=lambda action, path: changed.append(path), dry_run=True)
        if changed:
            report = self._send(changed, sides, replaced, waits)
        if len(all_files) > len(source_files) and not report.gave_up:
            self._send_replacements(all_files, report)
        if not unlisted and not report.unlisted and not report.gave_up:
            report.deleted += self._removal.delete(source_files, sides, report)
        return report

    def _sync(self, skip: Callable[[StoredFile], bool], **more: Any) -> SyncReport:
        options = {"is_checked": True, **self._options, **more}
        return DirSync(self._source, self._target, remember=self._memory, skip=skip, **options).attempt()

    def _list(
        self, store: Store, unlisted: Callable[[str, Exception], None] = lambda path, error: None
    ) -> Iterator[StoredFile]:
        return store.list(folders=self._options["folders"], unlisted=unlisted)

    def _is_replacement(self, path: str) -> bool:
        """Returns True for a file of a job's replacement folder, which is not sent under that name."""
        position = RunLayout.checkpoint_path(path[len(self._base) :]) if path.startswith(self._base) else None
        return position is not None and position.is_replacement

    def _compare(self, source_files: Mapping[str, StoredFile]) -> Sides:
        """Lists the target, and compares it with the files of the source. One request for a thousand files."""
        target_files = {file.path: file for file in self._list(self._target)}
        return Sides(self._source, self._target, self._base, source_files, target_files)

    def _forget_changed(self, memory: SyncMemory, target_files: Mapping[str, StoredFile]) -> set[str]:
        """Forgets files that are gone from the target; returns the paths of files that were replaced there."""
        rows = list(memory.rows())
        if not self._verify and any(row.path in target_files for row in rows):
            return set()  # another job may have resumed from these checkpoints, and replaced some of them
        memory.check(target_files)
        return {row.path for row in rows if row.path in target_files and target_files[row.path].etag != row.target}

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
        failures = self._mark_incomplete(todo)
        # Files that changed after the plan was made wait: their checkpoint may be complete in the target.
        report = self._sync(lambda file: file.path not in todo.now or waits(file))
        report.failures.update(failures)
        if report.gave_up:
            return report
        self._send_markers(todo, sides, report)
        for name, checkpoint in todo.replacing.items():
            self._replace(sides.folders[name], checkpoint, report)
        if todo.replacing:
            now = self._compare(sides.source_files)
            for name, checkpoint in todo.replacing.items():
                self._remember(now.folders[name], checkpoint)
        return report

    def _plan(self, folder: Folder, paths: Iterable[str], replaced: set[str], todo: _Todo) -> Collection[str]:
        """Plans how the changed files of a folder are sent; returns those that `DirSync` sends."""
        files = [path for path in paths if not is_marker(path)]
        overwritten = [path for path in files if folder.name_of(path) in folder.target_files]
        if MARKER in folder.target_files and overwritten:
            local, remote = folder.source_checkpoint, folder.target_checkpoint
            is_target_changed = any(path in replaced for path in overwritten)
            if local and remote and local.files == remote.files and not is_target_changed:
                self._remember(folder, local)  # another process has sent this checkpoint
                return [path for path in files if folder.name_of(path) not in local.files]
            if folder.position and local and remote and local.marker != remote.marker:
                # Checkpoints of one step mostly have equal sizes, so a reader could not detect a mixture of two.
                # The only complete copy is therefore never overwritten in place.
                todo.replacing[folder.path] = local
                return ()
            todo.opened.append(folder.path + MARKER)
        if folder.position and files and MARKER in folder.source_files and MARKER not in folder.target_files:
            todo.new_folders.append(folder.path)
        return files

    def _mark_incomplete(self, todo: _Todo) -> dict[str, Exception]:
        """Writes `_INCOMPLETE` into new folders; returns its failures, whose folders are not sent."""
        written: dict[str, str] = {}
        failures: dict[str, Exception] = {}
        # Later syncs recognize by the marker that the upload was not completed.
        for folder in todo.new_folders:
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
        """Sends the markers of checkpoints whose files were all sent and have not changed since."""
        finished: list[str] = []
        with SyncMemory(self._memory) as memory:
            for name, paths in todo.changed.items():
                folder = None if name is None or name in todo.replacing else sides.folders[name]
                if folder is None or MARKER not in folder.source_files:
                    continue
                path = folder.path + MARKER
                is_unfinished = folder.path in todo.new_folders or INCOMPLETE in folder.target_files
                if not (path in paths or path in todo.opened or is_unfinished):
                    continue
                is_complete = self._send_marker(folder, memory, report, is_marker_present=path not in todo.opened)
                if is_complete and is_unfinished:
                    finished.append(folder.path + INCOMPLETE)
            # A folder with failed files keeps `_INCOMPLETE`: this process may be killed before it sends the
            # remaining ones.
            if finished:
                self._target.delete(finished)
                memory.change_sent(remove=finished)

    def _send_marker(
        self, folder: Folder, memory: SyncMemory, report: SyncReport, *, is_marker_present: bool
    ) -> bool:
        """Sends the marker of a checkpoint; returns whether the checkpoint is complete in the target."""
        path, marker = folder.path + MARKER, folder.source_files[MARKER]
        if any(other.startswith(folder.path) for other in (*report.failures, *report.unlisted, *report.grown)):
            return False
        if is_marker_present and folder.is_committed:
            memory.put(path, marker.mark, folder.target_files[MARKER].etag)
            return True
        try:
            content = b"".join(self._source.read(path))
            # A job removes its marker before it changes a file. An unchanged marker proves that the files sent
            # since the list are those that it names.
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
        """Replaces a complete checkpoint of the target; at each moment one of the two is complete there."""
        assert folder.position is not None  # noqa: S101 - decided by `_plan`
        replacement = self._base + folder.position._replace(is_replacement=True).folder
        # Recorded before the copy, so that after a kill the folder is recognized as an unfinished one of this
        # source.
        with SyncMemory(self._memory) as memory:
            memory.change_sent(add={replacement: ""})
        try:
            copy_checkpoint(checkpoint, self._target, replacement)
            copy_checkpoint(replace(checkpoint, store=self._target, folder=replacement), self._target, folder.path)
        except PaiError as error:
            sizes = {MARKER: 0, **{name: file.size_bytes for name, file in checkpoint.files.items()}}
            current = stored_checkpoint(self._source, checkpoint.folder, folder.position, sizes)
            if current is not None and current.marker == checkpoint.marker:
                cause = error.__cause__
                report.failures[folder.path + MARKER] = cause if isinstance(cause, Exception) else error
            return  # otherwise the checkpoint was changed meanwhile, and the next sync sends it
        self._removal.delete_now([replacement + name for name in (MARKER, *checkpoint.files)])
        report.moved += len(checkpoint.files) + 1
        report.moved_bytes += checkpoint.size_bytes + len(checkpoint.marker)
        report.unchanged -= len(checkpoint.files) + 1

    def _send_replacements(self, files: Mapping[str, StoredFile], report: SyncReport) -> None:
        """Sends the checkpoints that a killed job has completed, but not moved to the folders of their steps."""
        folders = Sides(self._source, self._target, self._base, files, {}).folders
        for folder in folders.values():
            position, checkpoint = folder.position, folder.source_checkpoint
            if position is None or not position.is_replacement or checkpoint is None:
                continue
            main_position = position._replace(is_replacement=False)
            path = self._base + main_position.folder
            if path in folders and folders[path].source_checkpoint is not None:
                continue  # killed before the old one was removed, or after the new one was moved
            main = self._compare({}).folders.get(path)
            remote = None if main is None else main.target_checkpoint
            if remote is None or remote.marker != checkpoint.marker:
                self._replace(Folder(self._source, self._target, path, main_position), checkpoint, report)

    def _remember(self, folder: Folder, local: StoredCheckpoint) -> None:
        """Records the files of a local checkpoint that the target also has."""
        remote = folder.target_checkpoint
        if remote is None or local.files != remote.files:
            return
        names = {*local.files, *([MARKER] if local.marker == remote.marker else [])}
        with SyncMemory(self._memory) as memory:
            for name in names.intersection(folder.source_files):
                memory.put(folder.path + name, folder.source_files[name].mark, folder.target_files[name].etag)


@dataclass
class _Todo:
    """The plan of how changed files are sent."""

    changed: dict[str | None, list[str]] = field(default_factory=dict)  # by the folder of their checkpoint
    # Markers that are deleted first, because their checkpoints are damaged or have no step.
    opened: list[str] = field(default_factory=list)
    now: set[str] = field(default_factory=set)  # files that are sent to their own folders; markers follow later
    new_folders: list[str] = field(default_factory=list)  # of new checkpoints
    # Folders whose complete checkpoint is replaced, with the new checkpoint.
    replacing: dict[str, StoredCheckpoint] = field(default_factory=dict)


class CheckpointRemoval:
    """Deletes checkpoints that were removed locally, once they are no longer needed; never those of other jobs."""

    def __init__(
        self,
        target: Store,
        memory: Path,  # the file that records sent files
        compare: Callable[[Mapping[str, StoredFile]], Sides],  # lists the target, and compares it with the source
        *,
        existing: Mapping[str, int],  # bytes of the files that the target had when the job started
        delete: bool,  # also delete other files that the source does not have
        keeps: Callable[[str], bool],  # accepted files are deleted only if they were sent from the source
    ) -> None:
        self._target = target
        self._memory = memory
        self._compare = compare
        self._existing = existing
        self._delete = delete
        self._keeps = keeps

    def delete(self, source_files: Mapping[str, StoredFile], before: Sides, report: SyncReport) -> int:
        """Deletes files that were removed from the source and are no longer needed; returns their number."""
        with SyncMemory(self._memory) as memory:
            sent = memory.sent()
        recorded = {path for path in {*sent, *self._existing} if path not in source_files}
        if not (recorded.intersection(before.target_files) or self._delete or before.has_unfinished):
            return 0
        sides = self._compare(source_files)
        owned = {
            path
            for path in recorded
            if path in sides.target_files and self._is_same(sides.target_files[path], sent)
        }
        newest = sides.newest_of_each_rank() if sides.has_unfinished or any(map(is_marker, owned)) else {}
        to_delete: list[str] = []
        for folder in sides.folders.values():
            if folder.position is not None:
                is_unfinished = folder.path in sent or folder.path + INCOMPLETE in owned
                deletion = Deletion(folder, owned, newest, sides, is_incomplete=is_unfinished)
                names = deletion.names(has_failures=bool(report.failures))
                to_delete += [folder.path + name for name in names]
        if self._delete and not report.failures:
            to_delete += [path for path in sides.target_files if self._is_surplus(path, owned, sides)]
        self.delete_now(to_delete)
        with SyncMemory(self._memory) as memory:
            obsolete = {
                path
                for path in sent
                if path not in owned and path not in source_files and path not in sides.folders
            }
            memory.change_sent(remove=obsolete.union(to_delete))
        return len(to_delete)

    def _is_same(self, file: StoredFile, sent: Mapping[str, str]) -> bool:
        """Returns True if the target still has the recorded version of a file; other jobs may replace it."""
        if file.path in sent:
            return file.is_folder or file.etag == sent[file.path]
        return file.size_bytes == self._existing[file.path]

    def _is_surplus(self, path: str, owned: set[str], sides: Sides) -> bool:
        """Returns True if a file of the target that is in no checkpoint is deleted with `delete`."""
        if path in sides.source_files:
            return False
        name = sides.folder_of(path)
        if name is not None:
            return sides.folders[name].position is None and path in owned
        return path in owned or not self._keeps(path)

    def delete_now(self, paths: Iterable[str]) -> None:
        """Deletes files, the markers first."""
        all_paths = list(paths)
        for are_markers in (True, False):
            part = sorted(path for path in all_paths if is_marker(path) is are_markers)
            if part:
                self._target.delete(part)
