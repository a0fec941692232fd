"""Complete checkpoints in a store, wherever it is, and copies of them from one store to another.

The marker of a checkpoint is written last and removed first (`run.checkpoints`), here too. So a reader of an
object storage, which cannot rename a folder, sees a checkpoint as a whole or not at all.
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

from pai_sdk.errors import CheckpointError, ObjectNotFoundError
from pai_sdk.run.report.checkpoints import (
    INCOMPLETE,
    MARKER,
    Checkpoint,
    CheckpointFile,
    link_file,
    parse_marker,
    read_checkpoint,
)
from pai_sdk.run.report.layout import REPLACEMENT, CheckpointPath, RunLayout
from pai_sdk.storage.pool import TransferPool
from pai_sdk.storage.store import Store, open_store
from pai_sdk.storage.stored_file import StoredFile
from pai_sdk.storage.stores.local import LocalStore

__all__ = [
    "CheckpointedRun",
    "StoredCheckpoint",
    "complete_checkpoints",
    "copy_checkpoint",
    "latest_checkpoint",
    "latest_of_each_rank",
    "stored_checkpoint",
    "unfinished_files",
]

_Sizes: TypeAlias = dict[CheckpointPath, dict[str, int]]  # folder to the sizes of its files

_CHECKPOINTS = "checkpoints"
_EARLIER = "_REPLACED"
"""The marker of the checkpoint that a download replaces, in the folder of the new one."""

_MAX_PASSES = 5  # of a reader, each after a rotation that removed what the last pass was about to read


@runtime_checkable
class _SavesCheckpoints(Protocol):
    """A job; `TrainingJob` is one."""

    def open_output(self, channel: str) -> Store: ...


CheckpointedRun: TypeAlias = str | Path | Store | _SavesCheckpoints
"""A place of checkpoints: the URI or local path of a run or of its `checkpoints`, a store, or a job."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A complete checkpoint in a store.

    Attributes:
        store: where it is.
        folder: its folder in the store, with a `/` at its end.
        step: of the training.
        metrics: reported with it.
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
    """The content of its marker, by which it is known again."""
    is_latest: bool = field(default=False, repr=False, compare=False)
    """True if `latest_checkpoint` has found it; then `download` does not replace a later step."""

    @property
    def uri(self) -> str:
        """The URI of its folder, with a `/` at its end."""
        return self.store.uri + self.folder

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(file.size_bytes for file in self.files.values())

    def is_sound(self) -> bool:
        """True if the content of all files has the checksums of the marker. Reads all of it."""
        return all(self._crc32_of(name) == file.crc32 for name, file in self.files.items())

    @property
    def is_replacement(self) -> bool:
        """True if it is in the folder that its upload began in, since its own folder is not complete."""
        parts = self.folder.rstrip("/").split("/")
        at = RunLayout.checkpoint_path(f"{parts[-1]}/")
        return at is not None and at.is_replacement

    def download(self, target: str | Path) -> Checkpoint:
        """Copy it into a local folder, which becomes the same checkpoint.

        The content is compared with its checksums. A checkpoint that the folder already has is replaced when all
        files of this one have arrived.

        Raises:
            CheckpointError: it was changed or removed meanwhile, its content is damaged, or it is the latest
                checkpoint of a run and the folder has one of a later step. The folder stays as it was.
        """
        there = LocalStore(target)
        draft = there.root / REPLACEMENT
        self._settle(draft, there)
        present = _content(there, MARKER)
        if present == self.marker and read_checkpoint(there.root, checksums=True) is not None:
            return Checkpoint.from_directory(target)
        earlier = None if present is None else read_checkpoint(there.root)
        if self.is_latest and earlier is not None and (earlier.step or 0) > self.step:
            raise CheckpointError(
                f"{there.root} has a checkpoint of step {earlier.step}, but the latest one of {self.store.uri} is "
                f"step {self.step}; remove the folder if it is of no use, or give another one"
            )
        try:
            copy_checkpoint(self, LocalStore(draft), "")
            self._move(draft, there, self.files)
        except BaseException:
            self._settle(draft, there, is_failing=True)
            raise
        return Checkpoint.from_directory(target)

    def _settle(self, draft: Path, target: LocalStore, *, is_failing: bool = False) -> None:
        """Removes what a download has left in its draft, unless that is the only complete checkpoint.

        Then a process was killed while it moved the files, and the rest is done now.
        """
        left = read_checkpoint(draft) if draft.exists() else None
        if left is not None and read_checkpoint(target.root) == left:
            if is_failing:
                return
            self._move(draft, target, left.files)
        shutil.rmtree(draft, ignore_errors=True)

    def _move(self, draft: Path, target: LocalStore, files: Mapping[str, CheckpointFile]) -> None:
        """Replaces the checkpoint in a folder by the complete one below it, which is removed at the end."""
        earlier, present = draft / _EARLIER, _content(target, MARKER)
        if present is not None:
            earlier.write_bytes(present)  # for the process that does the rest after a kill
            target.delete([MARKER])
        replaced = parse_marker(earlier.read_bytes()) if earlier.exists() else None
        for name, file in files.items():
            place = target.place(name)
            assert place is not None  # noqa: S101 - only the path of a folder has none
            place.unlink(missing_ok=True)
            link_file(draft / name, place, file)
        target.delete(name for name in (replaced.files if replaced else ()) if name not in files)
        target.write(MARKER, (draft / MARKER).read_bytes())
        (draft / MARKER).unlink()
        shutil.rmtree(draft, ignore_errors=True)

    def _crc32_of(self, name: str) -> str | None:
        crc = 0
        try:
            for piece in self.store.read(self.folder + name):
                crc = zlib.crc32(piece, crc)
        except ObjectNotFoundError:
            return None
        return f"{crc:08x}"


def complete_checkpoints(
    run: CheckpointedRun, *, session: Any = None, rank: int = 0, checksums: bool = False
) -> Iterator[StoredCheckpoint]:
    """The complete checkpoints of a run, the latest step first. What is only partly there is left out.

    Args:
        run: the URI or local path of a run or of its `checkpoints`, a store, or a job.
        session: whose keys `oss://` takes; the default session without it.
        rank: of the process that saved them, in jobs of several processes.
        checksums: read all files, and leave out checkpoints whose content is damaged.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.report.checkpoints import commit
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     step = Path(folder, "checkpoints", "7")
        ...     step.mkdir(parents=True)
        ...     _ = (step / "weights").write_text("1.0")
        ...     before = list(complete_checkpoints(folder))
        ...     _ = commit(step, step=7)
        ...     before, [found.step for found in complete_checkpoints(folder)]
        ([], [7])
    """
    store = _store_of(run, session)
    for checkpoint in _of_rank(store, rank, *_listed(store)):
        if not checksums or checkpoint.is_sound():
            yield checkpoint


def latest_of_each_rank(store: Store) -> Iterator[StoredCheckpoint]:
    """Yields the latest checkpoint of the lowest rank, and of each other rank its latest one up to that step."""
    return iter(_stable(lambda gone: _latest_of_ranks(store, gone)))


def _latest_of_ranks(store: Store, gone: list[CheckpointPath]) -> Iterator[StoredCheckpoint]:
    base, found = _listed(store)
    first: StoredCheckpoint | None = None
    for rank in sorted({place.rank for place in found}):
        for checkpoint in _of_rank(store, rank, base, found, gone):
            first = first or checkpoint
            if checkpoint.step <= first.step:
                yield checkpoint
                break


def _stable(find: Callable[[list[CheckpointPath]], Iterator[StoredCheckpoint]]) -> list[StoredCheckpoint]:
    """Returns the checkpoints of a pass that no rotation disturbed.

    Between the list and the marker, a job may complete a newer checkpoint and remove the listed one. Then the
    store is listed again: there is always a complete one.
    """
    found: list[StoredCheckpoint] = []
    for number in range(_MAX_PASSES):
        gone: list[CheckpointPath] = []
        before, found = found, list(find(gone))
        if not gone or (number and [each.uri for each in found] == [each.uri for each in before]):
            break
    return found


def latest_checkpoint(
    run: CheckpointedRun, *, session: Any = None, rank: int = 0, checksums: bool = False
) -> StoredCheckpoint | None:
    """The complete checkpoint of the latest step, or None; arguments as for `complete_checkpoints`."""
    store = _store_of(run, session)

    def latest(gone: list[CheckpointPath]) -> Iterator[StoredCheckpoint]:
        found = _of_rank(store, rank, *_listed(store), gone)
        yield from islice((each for each in found if not checksums or each.is_sound()), 1)

    return next((replace(found, is_latest=True) for found in _stable(latest)), None)


def copy_checkpoint(checkpoint: StoredCheckpoint, target: Store, folder: str) -> None:
    """Copy a checkpoint. Within one bucket, and within one local disk, no byte goes over the network.

    Args:
        checkpoint: which one.
        target: the store that it is copied to.
        folder: the checkpoint's folder in that store, with a `/` at its end; empty for the store itself.

    Raises:
        CheckpointError: the checkpoint was changed or removed meanwhile. The target has no marker then.
        StorageError: a file cannot be read or written.
    """
    present = _content(target, folder + MARKER)
    if present == checkpoint.marker and _sizes_fit(target, folder, checkpoint.files):
        return
    target.delete([folder + MARKER])
    with TransferPool() as pool:
        for name, file in checkpoint.files.items():
            copy = partial(_copy, checkpoint.store, checkpoint.folder + name, target, folder + name, file)
            pool.submit_file(name, copy, size_bytes=file.size_bytes)
    for name, error in pool.failures.items():
        raise CheckpointError(f"{checkpoint.uri}{name} was not copied to {target.uri}{folder}: {error}") from error
    # As long as the marker is there, the files are the ones that it lists.
    if _content(checkpoint.store, checkpoint.folder + MARKER) != checkpoint.marker:
        raise CheckpointError(f"{checkpoint.uri} was changed or removed while it was copied; submit a new plan")
    target.write(folder + MARKER, checkpoint.marker)


def unfinished_files(store: Store) -> Callable[[StoredFile], bool]:
    """Find the files of a folder of checkpoints that a job does not need to resume.

    They belong to checkpoints that some process has begun to write and has not completed. A complete checkpoint
    that was about to be copied to where it belongs is copied now.

    Args:
        store: the folder of checkpoints.
    """
    found: _Sizes = {}
    for file in store.list(unlisted=lambda path, error: None):
        at = RunLayout.checkpoint_path(file.path)
        if at is not None:
            found.setdefault(at._replace(name=""), {})[at.name] = file.size_bytes
    unfinished = {place for place, sizes in found.items() if INCOMPLETE in sizes and MARKER not in sizes}
    for place in [place for place in found if place.is_replacement]:
        main = place._replace(is_replacement=False)
        unfinished.add(place)
        if stored_checkpoint(store, main.folder, main, found.get(main, {})) is None:
            ready = stored_checkpoint(store, place.folder, place, found[place])
            if ready is not None:
                with suppress(CheckpointError):  # another process completes or replaces it
                    copy_checkpoint(ready, store, main.folder)
                    unfinished.discard(main)

    def is_unfinished(file: StoredFile) -> bool:
        at = RunLayout.checkpoint_path(file.path)
        return at is not None and (at.name == INCOMPLETE or at._replace(name="") in unfinished)

    return is_unfinished


def _store_of(run: CheckpointedRun, session: Any) -> Store:
    if isinstance(run, str | Path):
        return open_store(run, session)
    if isinstance(run, _SavesCheckpoints):
        return run.open_output(_CHECKPOINTS)
    return run


def _listed(store: Store) -> tuple[str, _Sizes]:
    """The folder of all checkpoints in the store, and for each folder of a checkpoint the sizes of its files."""
    for base in (f"{_CHECKPOINTS}/", ""):
        found: _Sizes = {}
        # A file that no path can name belongs to no complete checkpoint.
        for file in store.list(base, unlisted=lambda path, error: None):
            at = RunLayout.checkpoint_path(file.path[len(base) :])
            if at is not None and at.name:
                found.setdefault(at._replace(name=""), {})[at.name] = file.size_bytes
        if any(MARKER in sizes for sizes in found.values()):
            return base, found
    return "", {}


def _of_rank(
    store: Store, rank: int, base: str, found: _Sizes, gone: list[CheckpointPath] | None = None
) -> Iterator[StoredCheckpoint]:
    """Yields the complete checkpoints of a rank; adds to `gone` those with a marker that are not complete now."""
    step: int | None = None
    places = (place for place in found if place.rank == rank)
    for place in sorted(places, key=lambda place: (-place.step, place.is_replacement)):
        # While the files of a checkpoint are replaced, the folder that they come from is the checkpoint.
        checkpoint = (
            stored_checkpoint(store, base + place.folder, place, found[place]) if place.step != step else None
        )
        if checkpoint is not None:
            step = place.step
            yield checkpoint
        elif place.step != step and MARKER in found[place] and gone is not None:
            gone.append(place)


def stored_checkpoint(
    store: Store, folder: str, place: CheckpointPath, sizes: Mapping[str, int]
) -> StoredCheckpoint | None:
    """The checkpoint in a folder of a store; None where it is not complete.

    Args:
        store: where.
        folder: its folder, with a `/` at its end.
        place: its rank and step.
        sizes: in bytes, of the files in it.
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


def _sizes_fit(store: Store, folder: str, files: Mapping[str, CheckpointFile]) -> bool:
    sizes = {file.path.removeprefix(folder): file.size_bytes for file in store.list(folder)}
    return all(sizes.get(name) == file.size_bytes for name, file in files.items())


def _copy(source: Store, path: str, target: Store, target_path: str, file: CheckpointFile) -> None:
    if target.copy_from(source, path, target_path):
        return
    executable = source.head(path).executable
    # A file that a job may have replaced by a link is opened with care, by `read`.
    if isinstance(source, LocalStore) and source.links != "inside" and target.root is None:
        target.write(target_path, source.root / path, executable=executable)
        return
    target.write(target_path, _checked(source, path, file), executable=executable)


def _checked(store: Store, path: str, file: CheckpointFile) -> Iterator[bytes]:
    """The content of a file; an error at its end, unless it has the checksum of the marker."""
    crc = 0
    for piece in store.read(path):
        crc = zlib.crc32(piece, crc)
        yield piece
    if f"{crc:08x}" != file.crc32:
        raise CheckpointError(f"{store.uri}{path} is damaged: its checksum is not the one of its checkpoint")
