"""Deletes the files of a store that were removed from the local folder that was sent to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pai_sdk._data.run.report.checkpoints import INCOMPLETE
from pai_sdk._data.run.store.checkpoint_sides import Deletion, Sides, is_marker
from pai_sdk._data.storage.base import Store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.sync.dir_sync import SyncReport
from pai_sdk._data.storage.sync.memory import SyncMemory

__all__ = ["CheckpointRemoval"]


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
