"""Complete checkpoints in a store, and copies of them from one store to another.

In stores, too, the marker of a checkpoint is written last and removed first (`run.report.checkpoints`). So a
reader of an object storage, which cannot rename a folder, reads a complete checkpoint or none.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from pai_sdk._data.run.report.checkpoints import (
    INCOMPLETE,
    MARKER,
    Checkpoint,
    CheckpointFile,
    link_file,
    parse_marker,
    read_checkpoint,
)
from pai_sdk._data.run.report.layout import REPLACEMENT, CheckpointPath, RunLayout
from pai_sdk._data.storage.pool import TransferPool
from pai_sdk._data.storage.store import Store, open_store
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import CheckpointError, ObjectNotFoundError

_Sizes: TypeAlias = dict[CheckpointPath, dict[str, int]]  # folder to the sizes of its files

_CHECKPOINTS = "checkpoints"
_EARLIER = "_REPLACED"
"""The marker of the checkpoint that a download replaces, in the folder of the new one."""

_MAX_PASSES = 5  # of a reader; each follows a rotation that removed the checkpoint about to be read


@runtime_checkable
class _SavesCheckpoints(Protocol):
    """A job with outputs, such as `TrainingJob`."""

    def open_output(self, channel: str) -> Store: ...


CheckpointedRun: TypeAlias = str | Path | Store | _SavesCheckpoints
"""A location of checkpoints: the URI or local path of a run or of its `checkpoints`, a store, or a job."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A complete checkpoint in a store.

    Attributes:
        store: the store that has it.
        folder: the checkpoint's folder in the store, with a `/` at its end.
        step: of the training.
        metrics: reported with the checkpoint.
        time: when it was complete, in seconds since 1970.
        files: path in the folder, with `/`, to size and checksum.
        rank: of the process that saved it.
    """

    store: Store
    folder: str
    step: int
    metrics: Mapping[str, float]
    time: float
    files: Mapping[str, CheckpointFile]
    rank: int = 0
    marker: bytes = field(default=b"", repr=False)
    """The content of the marker, which identifies the checkpoint."""
    is_latest: bool = field(default=False, repr=False, compare=False)
    """True if returned by `latest_checkpoint`; then `download` does not replace a later step."""

    @property
    def uri(self) -> str:
        """The URI of the checkpoint's folder, with a `/` at its end."""
        return self.store.uri + self.folder

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size_bytes for file in self.files.values())

    def is_sound(self) -> bool:
        """Returns True if the content of all files has the checksums of the marker. Reads all content."""
        return all(self._crc32_of(name) == file.crc32 for name, file in self.files.items())

    @property
    def is_replacement(self) -> bool:
        """True if it is in the folder that its upload was started in, because its own folder is not complete."""
        parts = self.folder.rstrip("/").split("/")
        position = RunLayout.checkpoint_path(f"{parts[-1]}/")
        return position is not None and position.is_replacement

    def download(self, target: str | Path) -> Checkpoint:
        """Copy the checkpoint into a local folder, which becomes this checkpoint.

        The content is compared with its checksums. A checkpoint that the folder already has is replaced when all
        files of this one have arrived.

        Raises:
            CheckpointError: it was changed or removed meanwhile, its content is damaged, or it is the latest
                checkpoint of a run and the folder has one of a later step. The folder stays as it was.
        """
        target_store = LocalStore(target)
        draft = target_store.root / REPLACEMENT
        self._settle(draft, target_store)
        marker = _content(target_store, MARKER)
        if marker == self.marker and read_checkpoint(target_store.root, checksums=True) is not None:
            return Checkpoint.from_directory(target)
        earlier = None if marker is None else read_checkpoint(target_store.root)
        if self.is_latest and earlier is not None and (earlier.step or 0) > self.step:
            raise CheckpointError(
                f"{target_store.root} has a checkpoint of step {earlier.step}, but the latest one of "
                f"{self.store.uri} is step {self.step}; remove the folder if it is of no use, or give another one"
            )
        try:
            copy_checkpoint(self, LocalStore(draft), "")
            self._move(draft, target_store, self.files)
        except BaseException:
            self._settle(draft, target_store, is_failing=True)
            raise
        return Checkpoint.from_directory(target)

    def _settle(self, draft: Path, target: LocalStore, *, is_failing: bool = False) -> None:
        """Removes the draft that a download has left, or finishes the download if only the draft is complete."""
        # A complete draft that equals the checkpoint of the folder was left by a process that was killed while it
        # moved the files. The move is finished here.
        leftover = read_checkpoint(draft) if draft.exists() else None
        if leftover is not None and read_checkpoint(target.root) == leftover:
            if is_failing:
                return
            self._move(draft, target, leftover.files)
        shutil.rmtree(draft, ignore_errors=True)

    def _move(self, draft: Path, target: LocalStore, files: Mapping[str, CheckpointFile]) -> None:
        """Replaces the checkpoint in a folder by the complete one in its draft, which is removed at the end."""
        earlier, marker = draft / _EARLIER, _content(target, MARKER)
        if marker is not None:
            earlier.write_bytes(marker)  # after a kill, the next process reads which files to delete
            target.delete([MARKER])
        replaced = parse_marker(earlier.read_bytes()) if earlier.exists() else None
        for name, file in files.items():
            destination = target.place(name)
            assert destination is not None  # noqa: S101 - only the path of a folder has none
            destination.unlink(missing_ok=True)
            link_file(draft / name, destination, file)
        # After the new files are in place: files of the old checkpoint that the new one does not have.
        target.delete(name for name in (replaced.files if replaced else ()) if name not in files)
        target.write(MARKER, (draft / MARKER).read_bytes())
        (draft / MARKER).unlink()
        shutil.rmtree(draft, ignore_errors=True)

    def _crc32_of(self, name: str) -> str | None:
        crc = 0
        try:
            for chunk in self.store.read(self.folder + name):
                crc = zlib.crc32(chunk, crc)
        except ObjectNotFoundError:
            return None
        return f"{crc:08x}"


def complete_checkpoints(
    run: CheckpointedRun, *, session: Any = None, rank: int = 0, checksums: bool = False
) -> Iterator[StoredCheckpoint]:
    """Yields the complete checkpoints of a run, the latest step first; incomplete ones are left out.

    Args:
        run: the URI or local path of a run or of its `checkpoints`, a store, or a job.
        session: the session whose keys are used for `oss://`; the default session if None.
        rank: of the process that saved them, in jobs of several processes.
        checksums: read all files, and leave out checkpoints whose content is damaged.

    Example:
        >>> import tempfile
        >>> from pai_sdk import ReportSession
        >>> with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as model:
        ...     _ = Path(model, "weights").write_text("1.0")
        ...     with ReportSession(folder) as run:
        ...         run.report({"loss": 0.5}, step=7, checkpoint=model)
        ...     [checkpoint.step for checkpoint in complete_checkpoints(folder)]
        [7]
    """
    store = _store_of(run, session)
    for checkpoint in _of_rank(store, rank, *_list_folders(store)):
        if not checksums or checkpoint.is_sound():
            yield checkpoint


def latest_of_each_rank(store: Store) -> Iterator[StoredCheckpoint]:
    """Yields the latest checkpoint of the lowest rank, and of each other rank its latest one up to that step."""
    return iter(_stable(lambda gone: _latest_of_ranks(store, gone)))


def _latest_of_ranks(store: Store, gone: list[CheckpointPath]) -> Iterator[StoredCheckpoint]:
    base, folders = _list_folders(store)
    first: StoredCheckpoint | None = None
    for rank in sorted({position.rank for position in folders}):
        for checkpoint in _of_rank(store, rank, base, folders, gone):
            first = first or checkpoint
            if checkpoint.step <= first.step:
                yield checkpoint
                break


def _stable(find: Callable[[list[CheckpointPath]], Iterator[StoredCheckpoint]]) -> list[StoredCheckpoint]:
    """Returns the checkpoints of a pass that no rotation disturbed."""
    checkpoints: list[StoredCheckpoint] = []
    # Between the list and the marker, a job may complete a newer checkpoint and remove the listed one. Then the
    # store is listed again: there is always a complete one.
    for number in range(_MAX_PASSES):
        gone: list[CheckpointPath] = []
        previous, checkpoints = checkpoints, list(find(gone))
        if not gone or (
            number
            and [checkpoint.uri for checkpoint in checkpoints] == [checkpoint.uri for checkpoint in previous]
        ):
            break
    return checkpoints


def latest_checkpoint(
    run: CheckpointedRun, *, session: Any = None, rank: int = 0, checksums: bool = False
) -> StoredCheckpoint | None:
    """Returns the complete checkpoint of the latest step, or None; arguments as for `complete_checkpoints`."""
    store = _store_of(run, session)

    def latest(gone: list[CheckpointPath]) -> Iterator[StoredCheckpoint]:
        checkpoints = _of_rank(store, rank, *_list_folders(store), gone)
        yield from islice((checkpoint for checkpoint in checkpoints if not checksums or checkpoint.is_sound()), 1)

    return next((replace(checkpoint, is_latest=True) for checkpoint in _stable(latest)), None)


def copy_checkpoint(checkpoint: StoredCheckpoint, target: Store, folder: str) -> None:
    """Copy a checkpoint. Within one bucket, and within one local disk, no byte is sent over the network.

    Args:
        checkpoint: the checkpoint to copy.
        target: the store that it is copied to.
        folder: the checkpoint's folder in that store, with a `/` at its end; empty for the store itself.

    Raises:
        CheckpointError: the checkpoint was changed or removed meanwhile. The target has no marker then.
        StorageError: a file cannot be read or written.
    """
    marker = _content(target, folder + MARKER)
    # Repeated submissions find the copy by its marker, and copy nothing.
    if marker == checkpoint.marker:
        sizes = {file.path.removeprefix(folder): file.size_bytes for file in target.list(folder)}
        if all(sizes.get(name) == file.size_bytes for name, file in checkpoint.files.items()):
            return
    # Before the first file: a reader must not see the old marker beside new files.
    target.delete([folder + MARKER])
    with TransferPool() as pool:
        for name, file in checkpoint.files.items():
            copy = partial(_copy, checkpoint.store, checkpoint.folder + name, target, folder + name, file)
            pool.submit_file(name, copy, size_bytes=file.size_bytes)
    for name, error in pool.failures.items():
        raise CheckpointError(f"{checkpoint.uri}{name} was not copied to {target.uri}{folder}: {error}") from error
    # The source removes the marker before it changes a file: an unchanged marker proves that the copied files are
    # those that it lists.
    if _content(checkpoint.store, checkpoint.folder + MARKER) != checkpoint.marker:
        raise CheckpointError(f"{checkpoint.uri} was changed or removed while it was copied; submit a new plan")
    target.write(folder + MARKER, checkpoint.marker)


def unfinished_files(store: Store) -> Callable[[StoredFile], bool]:
    """Returns a filter for files in a folder of checkpoints that a job does not need to resume.

    They belong to checkpoints whose writing was started and not completed. A complete checkpoint that was about to
    be copied to the folder of its step is copied now.

    Args:
        store: the folder of checkpoints.
    """
    folders: _Sizes = {}
    for file in store.list(unlisted=lambda path, error: None):
        position = RunLayout.checkpoint_path(file.path)
        if position is not None:
            folders.setdefault(position._replace(name=""), {})[position.name] = file.size_bytes
    unfinished = {
        replacement for replacement, sizes in folders.items() if INCOMPLETE in sizes and MARKER not in sizes
    }
    for replacement in [replacement for replacement in folders if replacement.is_replacement]:
        main = replacement._replace(is_replacement=False)
        unfinished.add(replacement)
        if stored_checkpoint(store, main.folder, main, folders.get(main, {})) is None:
            complete = stored_checkpoint(store, replacement.folder, replacement, folders[replacement])
            if complete is not None:
                with suppress(CheckpointError):  # another process completes or replaces the checkpoint
                    copy_checkpoint(complete, store, main.folder)
                    unfinished.discard(main)

    def is_unfinished(file: StoredFile) -> bool:
        position = RunLayout.checkpoint_path(file.path)
        return position is not None and (position.name == INCOMPLETE or position._replace(name="") in unfinished)

    return is_unfinished


def _store_of(run: CheckpointedRun, session: Any) -> Store:
    if isinstance(run, str | Path):
        return open_store(run, session)
    if isinstance(run, _SavesCheckpoints):
        return run.open_output(_CHECKPOINTS)
    return run


def _list_folders(store: Store) -> tuple[str, _Sizes]:
    """Returns the folder of all checkpoints, and the sizes of the files for each checkpoint's folder."""
    for base in (f"{_CHECKPOINTS}/", ""):
        folders: _Sizes = {}
        # A file with a name that is no valid path belongs to no complete checkpoint, so it is ignored.
        for file in store.list(base, unlisted=lambda path, error: None):
            position = RunLayout.checkpoint_path(file.path[len(base) :])
            if position is not None and position.name:
                folders.setdefault(position._replace(name=""), {})[position.name] = file.size_bytes
        if any(MARKER in sizes for sizes in folders.values()):
            return base, folders
    return "", {}


def _of_rank(
    store: Store, rank: int, base: str, folders: _Sizes, gone: list[CheckpointPath] | None = None
) -> Iterator[StoredCheckpoint]:
    """Yields the complete checkpoints of a rank; adds to `gone` those with a marker that are not complete now."""
    step: int | None = None
    positions = (position for position in folders if position.rank == rank)
    for position in sorted(positions, key=lambda position: (-position.step, position.is_replacement)):
        # While the files of a checkpoint are replaced, its source folder is the complete checkpoint.
        checkpoint = (
            stored_checkpoint(store, base + position.folder, position, folders[position])
            if position.step != step
            else None
        )
        if checkpoint is not None:
            step = position.step
            yield checkpoint
        elif position.step != step and MARKER in folders[position] and gone is not None:
            gone.append(position)


def stored_checkpoint(
    store: Store, folder: str, place: CheckpointPath, sizes: Mapping[str, int]
) -> StoredCheckpoint | None:
    """Returns the checkpoint in a folder of a store; None where it is not complete.

    Args:
        store: the store to read.
        folder: the checkpoint's folder, with a `/` at its end.
        place: rank and step of the checkpoint.
        sizes: in bytes, of the files in the folder.
    """
    content = _content(store, folder + MARKER) if MARKER in sizes else None
    marked = None if content is None else parse_marker(content)
    if content is None or marked is None:
        return None
    if any(sizes.get(name) != file.size_bytes for name, file in marked.files.items()):
        return None
    return StoredCheckpoint(
        store, folder, place.step, marked.metrics, marked.time, marked.files, place.rank, content
    )


def _content(store: Store, path: str) -> bytes | None:
    try:
        return b"".join(store.read(path))
    except ObjectNotFoundError:
        return None


def _copy(source: Store, path: str, target: Store, target_path: str, file: CheckpointFile) -> None:
    if target.copy_from(source, path, target_path):
        return
    executable = source.head(path).executable
    # A local file is sent by its path where that is safe. A file that a job may have replaced by a link is opened
    # by `read`, which does not follow links out of the folder.
    if isinstance(source, LocalStore) and source.links != "inside" and target.root is None:
        target.write(target_path, source.root / path, executable=executable)
        return
    target.write(target_path, _read_checked(source, path, file), executable=executable)


def _read_checked(store: Store, path: str, file: CheckpointFile) -> Iterator[bytes]:
    """Yields the content of a file; raises at its end unless the checksum is that of the marker."""
    crc = 0
    for chunk in store.read(path):
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if f"{crc:08x}" != file.crc32:
        raise CheckpointError(f"{store.uri}{path} is damaged: its checksum is not the one of its checkpoint")
