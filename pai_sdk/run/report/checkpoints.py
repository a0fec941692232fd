"""Checkpoints: folders that are complete when they have a marker, with size and checksum of each file.

    checkpoints/100/…          the files of step 100
    checkpoints/100/_COMPLETE  JSON, written last: {"format": 1, "step": 100, "time": …, "metrics": {…},
                               "files": {"model.pt": {"size": 123, "crc32": "0f1e2d3c"}}}

In jobs of several processes the marker also has the launch that saved it, see `run.launch`.

Readers use folders with a valid marker only. So no rename of a folder is needed, which object stores do not have.
A step that is saved again is written to `checkpoints/100.pai-sdk-new/`. It replaces the complete checkpoint when
it is complete itself: one of the two is complete at each moment, and readers find it.
This module is shipped with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import mmap
import operator
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from pai_sdk.base.files import replace_file, sync, sync_folder
from pai_sdk.errors import CheckpointError
from pai_sdk.run.report.layout import REPLACEMENT, RunLayout

__all__ = [
    "INCOMPLETE",
    "MARKER",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointFile",
    "FolderState",
    "add_metrics",
    "begin",
    "commit",
    "complete_checkpoints",
    "give_up",
    "is_begun",
    "is_complete",
    "latest_checkpoint",
    "link_file",
    "parsed_marker",
    "read_checkpoint",
    "replacement_of",
    "rotate",
    "save",
]

MARKER = "_COMPLETE"
"""The file that makes a folder a checkpoint. It is written last, and removed first."""

INCOMPLETE = "_INCOMPLETE"
"""The file of a folder in a store that is going to be a checkpoint. It is removed when the folder is one."""

METADATA = ".metadata.json"
_FORMAT = 1
_PIECE_BYTES = 16 << 20
_MAX_PASSES = 5  # of a reader, each after a rotation that removed what the last pass was about to read


@dataclass(frozen=True)
class CheckpointFile:
    """A file of a checkpoint, as its marker has it."""

    size_bytes: int
    crc32: str


@dataclass(frozen=True)
class Checkpoint:
    """A folder with what a training needs to continue.

    Attributes:
        path: the folder.
        step: of the training; None for a folder without a marker.
        metrics: reported with it.
        time: when it was complete, in seconds since 1970.
        files: path in the folder, with `/`, to size and checksum.
        filesystem: of code that was written for Ray: a local one of pyarrow or fsspec, or None.
        launch: of a job of several processes, the one that saved it, see `run.launch`.

    Raises:
        CheckpointError: the path or the filesystem is not local.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "weights").write_text("1.0")
        ...     commit(folder, step=7).step
        7
    """

    path: Path
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    time: float = 0.0
    files: Mapping[str, CheckpointFile] = field(default_factory=dict)
    filesystem: InitVar[Any] = None
    launch: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self, filesystem: Any) -> None:
        if self.step is not None and not hasattr(self.step, "__index__"):
            raise CheckpointError("the second argument of Checkpoint is its step; write filesystem=…")
        text = os.fspath(self.path)
        if "://" in text or not _is_local(filesystem):
            raise CheckpointError(
                f"the checkpoint {text} is not a local folder; copy it to one with `pai-sdk cp -r`, or give the "
                "job its URI as checkpoints_path"
            )
        object.__setattr__(self, "path", Path(text))

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """The checkpoint in a folder, or a folder that becomes one when it is reported."""
        return read_checkpoint(path) or cls(Path(path))

    def __fspath__(self) -> str:
        return str(self.path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Copy the files into a folder; a new temporary folder by default, which is the caller's to remove."""
        target = Path(tempfile.mkdtemp(prefix="checkpoint-") if path is None else path)
        shutil.copytree(self.path, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MARKER))
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[Path]:
        """The folder itself, for reading."""
        yield self.path

    def get_metadata(self) -> dict[str, Any]:
        """The metadata stored by `set_metadata`; empty without it."""
        try:
            found = json.loads((self.path / METADATA).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found if isinstance(found, dict) else {}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Store a JSON object in the folder, before it is reported.

        Raises:
            CheckpointError: the checkpoint is complete, and does not change any more.
        """
        if (self.path / MARKER).exists():
            raise CheckpointError(f"{self.path} is complete; set its metadata before it is reported")
        replace_file(self.path / METADATA, json.dumps(dict(metadata)), mode=0o666)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add to the metadata, or replace values of the same name; errors as for `set_metadata`."""
        self.set_metadata({**self.get_metadata(), **metadata})


def _is_local(filesystem: Any) -> bool:
    """True if a value is the local file system of fsspec or of pyarrow, or None."""
    protocol = getattr(filesystem, "protocol", getattr(filesystem, "type_name", None))
    names = protocol if isinstance(protocol, (tuple, list)) else (protocol,)
    return filesystem is None or not {"file", "local"}.isdisjoint(names)


# ---- reading ------------------------------------------------------------------------------------------------


def read_checkpoint(folder: str | os.PathLike[str], *, checksums: bool = False) -> Checkpoint | None:
    """The checkpoint in a folder; None where it is not complete.

    While a checkpoint replaces the one in the folder, it may be complete in another folder: then it is that one.

    Args:
        folder: of one step.
        checksums: read all files, and compare their checksums too.
    """
    path = Path(folder)
    # The folder is read again at the end: the replacement may have been moved there meanwhile.
    places = (path, replacement_of(path), path / REPLACEMENT, path)
    found = next(filter(None, map(_read, places)), None)
    if found is None:
        return None
    if checksums and any(_crc32_of(found.path / name) != file.crc32 for name, file in found.files.items()):
        return None
    return found


def is_complete(folder: str | os.PathLike[str], *, checksums: bool = False) -> bool:
    """True if a folder has a valid marker, and all files that it names; arguments as for `read_checkpoint`."""
    return read_checkpoint(folder, checksums=checksums) is not None


def complete_checkpoints(folder: str | os.PathLike[str]) -> Iterator[Checkpoint]:
    """The complete checkpoints of a run, the latest step first.

    Args:
        folder: the `checkpoints` folder, whose sub-folders are named by steps.
    """
    for step in _steps_in(folder):
        found = _read_step(folder, step)
        if found is not None:
            yield found


def latest_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """The complete checkpoint of the latest step; None where there is none."""
    found: Checkpoint | None = None
    for number in range(_MAX_PASSES):
        before, found, has_skipped = found, None, False
        for step in _steps_in(folder):
            found = _read_step(folder, step)
            if found is not None:
                break
            has_skipped = True
        # What was skipped is incomplete, or a rotation has just removed it; a later one is complete then.
        if not has_skipped or (number and _path_of(found) == _path_of(before)):
            break
    return found


def _path_of(checkpoint: Checkpoint | None) -> Path | None:
    return None if checkpoint is None else checkpoint.path


def _steps_in(folder: str | os.PathLike[str]) -> list[int]:
    """The steps that have a folder, the latest first."""
    try:
        with os.scandir(folder) as entries:
            places = [RunLayout.checkpoint_path(f"{entry.name}/") for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted({place.step for place in places if place is not None}, reverse=True)


def _read_step(folder: str | os.PathLike[str], step: int) -> Checkpoint | None:
    found = read_checkpoint(Path(folder, str(step)))
    return found if found is None or found.step is not None else replace(found, step=step)


def parsed_marker(content: str | bytes) -> Checkpoint | None:
    """The checkpoint that a marker describes, with an empty path; None for any other content."""
    try:
        marker = json.loads(content)
        if marker["format"] != _FORMAT:
            return None
        files = {name: CheckpointFile(int(f["size"]), str(f["crc32"])) for name, f in marker["files"].items()}
        step = marker["step"]
        metrics = {str(name): float(value) for name, value in marker["metrics"].items()}
        launch = marker.get("launch")
        found = Checkpoint(
            Path(),
            None if step is None else int(step),
            metrics,
            float(marker["time"]),
            files,
            launch=launch if isinstance(launch, dict) else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found if all(map(_is_inside, files)) else None


def _read(folder: Path) -> Checkpoint | None:
    """Reads the checkpoint in this folder alone, without its replacement; None where it is not complete."""
    found = _marked(folder)
    if found is None or not all(_is_as_noted(folder / name, file) for name, file in found.files.items()):
        return None
    return found


def _marked(folder: Path) -> Checkpoint | None:
    """The checkpoint that the folder's marker describes; None where it is missing or not valid."""
    try:
        found = parsed_marker((folder / MARKER).read_bytes())
    except OSError:
        return None
    return None if found is None else replace(found, path=folder)


def _is_inside(name: str) -> bool:
    return "\0" not in name and not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts


def _is_as_noted(path: Path, noted: CheckpointFile) -> bool:
    try:
        return path.stat().st_size == noted.size_bytes
    except OSError:
        return False


def _crc32_of(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return _copied(file)


def _copied(
    source: io.RawIOBase, target: io.RawIOBase | None = None, *, synced: io.RawIOBase | None = None
) -> str:
    """Copy a file to its end; gives the CRC-32 of all of it.

    Reading, summing and writing release the GIL. A thread gets it back only after some milliseconds when another
    one computes, so the pieces are large. The buffer is a mapping: its pages are taken while the GIL is released.

    Args:
        source: the file.
        target: a new file; the source is only read without it.
        synced: the one of them that is forced to the disk.
    """
    buffer = memoryview(mmap.mmap(-1, max(1, min(_PIECE_BYTES, os.fstat(source.fileno()).st_size))))
    crc = end = 0
    while size := source.readinto(buffer):
        piece = buffer[:size]
        crc = zlib.crc32(piece, crc)
        while target is not None and piece:
            piece = piece[target.write(piece) :]
        end += size
        if synced is not None and size == _PIECE_BYTES:
            _begin_sync(synced.fileno(), end)
    if synced is not None:
        sync(synced.fileno())
    return f"{crc:08x}"


def _begin_sync(descriptor: int, end: int) -> None:
    """Let the disk write the first bytes of a file while the next ones are copied.

    What is on the disk leaves the memory: a large checkpoint would displace what the training reads. Both are a
    hint, which some systems do not have and some file systems refuse.
    """
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)  # type: ignore[attr-defined, unused-ignore]


# ---- writing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderState:
    """The files of a folder at one time, to see later that none of them has changed."""

    root: Path
    files: Mapping[str, tuple[int, int, int]]

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> FolderState:
        """Look at a folder, without reading the files.

        Raises:
            CheckpointError: it is missing, or has no file, or something in it is neither file nor folder.
        """
        root = Path(folder)
        if not root.is_dir():
            what = "is a file; a checkpoint is a folder" if root.exists() else "does not exist"
            raise CheckpointError(f"the checkpoint {root} {what}")
        files = {}
        for parent, folders, names in os.walk(root, onerror=_raise):
            for name in folders:
                if Path(parent, name).is_symlink():
                    raise CheckpointError(
                        f"{Path(parent, name)} is a link to a folder; put the folder itself there"
                    )
            for name in names:
                path = Path(parent, name)
                relative = path.relative_to(root).as_posix()
                if relative != MARKER:
                    files[relative] = _version(path)
        if not files:
            raise CheckpointError(f"the checkpoint {root} has no files")
        return cls(root, dict(sorted(files.items())))

    def check(self, name: str) -> None:
        """See that a file is still the same.

        Raises:
            CheckpointError: it has changed, or is gone.
        """
        if _version(self.root / name) != self.files[name]:
            raise CheckpointError(
                f"{self.root / name} changed while the checkpoint was saved; report a folder that is not written "
                "to any more, or wait for it with mode='SYNC'"
            )


def commit(
    folder: str | os.PathLike[str],
    *,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    launch: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Make a folder a checkpoint, where it is: force its files to the disk, then write the marker.

    Args:
        folder: with all its files in place.
        step: of the training.
        metrics: kept with it; those that are not finite are left out, since JSON has no such numbers.
        launch: the one of the job that saves it.

    Raises:
        CheckpointError: the folder is missing or empty, or changes meanwhile.
        OSError: a file cannot be read, or the marker not be written.
    """
    state = FolderState.of(folder)
    if _read(state.root) is None:  # otherwise the marker is replaced in one step: a kill leaves one of the two
        _remove_marker(state.root)
    files = {}
    for name, (size_bytes, _, _) in state.files.items():
        path = state.root / name
        with path.open("rb", buffering=0) as file:
            crc32 = _copied(file, synced=file)
        state.check(name)
        files[name] = CheckpointFile(size_bytes, crc32)
    return _marked_as_complete(state.root, step, metrics or {}, files, launch)


def save(
    source: FolderState,
    target: Path,
    *,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    copy: Callable[[Checkpoint, str], Any] | None = None,
    launch: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Copy a folder, and make the copy a checkpoint; it replaces a complete one of the target when it is complete.

    Args:
        source: a folder as it was when the checkpoint was reported.
        target: the folder of the checkpoint.
        step: of the training.
        metrics: as for `commit`.
        copy: called with the checkpoint and an empty folder, which it fills: the target, or the one that replaces
            it. It may return the checkpoint there.
        launch: the one of the job that saves it.

    Raises:
        CheckpointError: the source has changed since, or `copy` wrote elsewhere. A complete checkpoint that the
            target had is still there then.
        OSError: a file cannot be read or written.
    """
    root = source.root.resolve()
    for place in (target, replacement_of(target)):  # it was written there, as `begin` has said
        if root == place.resolve():
            return _put_in_place(commit(place, step=step, metrics=metrics, launch=launch), target)
    place = begin(target)
    try:
        if copy is None:
            files = _copy_files(source, place)
            saved = _marked_as_complete(place, step, metrics or {}, files, launch)
        else:
            written = getattr(copy(Checkpoint(source.root), str(place)), "path", place)
            if Path(written).resolve() != place.resolve():
                raise CheckpointError(f"the checkpoint was copied to {written} instead of {place}")
            saved = commit(place, step=step, metrics=metrics, launch=launch)
    except BaseException:
        if place != target:
            give_up(place)
        raise
    return _put_in_place(saved, target)


def _copy_files(source: FolderState, target: Path) -> dict[str, CheckpointFile]:
    files = {}
    for name, (size_bytes, _, _) in source.files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (source.root / name).open("rb", buffering=0) as file, path.open("xb", buffering=0) as made:
                crc32 = _copied(file, made, synced=made)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{error.filename} was removed before the checkpoint was saved; keep the folder, or report it "
                "with mode='SYNC'"
            ) from error
        source.check(name)
        shutil.copymode(source.root / name, path)
        files[name] = CheckpointFile(size_bytes, crc32)
    return files


def begin(folder: Path) -> Path:
    """Make the empty folder that a new checkpoint is written to, and return it.

    It is `folder`, which `is_begun` until it has its marker, also after a kill. If `folder` has a complete
    checkpoint, it is the folder beside it: `save` puts it in its place.
    """
    place = folder if _read(folder) is None else replacement_of(folder)
    _remove(place)
    place.mkdir(parents=True)
    if place == folder:
        _draft_of(folder).touch()
    return place


def replacement_of(folder: Path) -> Path:
    """Returns the folder of what is about to replace the complete checkpoint in a folder."""
    return folder.parent / f"{folder.name}{REPLACEMENT}"


def _replaced_by(folder: Path) -> Path:
    """Returns the folder that a checkpoint belongs to, from that folder or the one of its replacement."""
    name = folder.name
    return folder.with_name(name[: -len(REPLACEMENT)]) if name.endswith(REPLACEMENT) else folder


def _put_in_place(saved: Checkpoint, folder: Path) -> Checkpoint:
    """Moves a complete checkpoint to its folder; at each moment one of the two is complete.

    The files are linked, or copied on file systems without links, and removed afterwards: a rename of a folder is
    many steps on a mounted object storage, and a kill between two of them would leave no complete folder.
    """
    beside = replacement_of(folder)
    if saved.path == beside:
        _draft_of(folder).touch()
        _remove(folder)
        folder.mkdir()
        for name, file in saved.files.items():
            link_file(beside / name, folder / name, file)
        saved = replace(saved, path=folder)
        _sync_names(saved)
        _write_marker(saved, _draft_of(folder))
    with contextlib.suppress(OSError):  # the folder is complete, so nobody reads what is left beside it
        _remove(beside)
    return saved


def link_file(source: Path, target: Path, file: CheckpointFile) -> None:
    """Give a file of a checkpoint a second name, or copy it where that is not possible.

    Raises:
        CheckpointError: the copy has another checksum.
        OSError: it cannot be copied.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_symlink():  # a link may lead to a path within the folder that is removed
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    with source.open("rb", buffering=0) as original, target.open("xb", buffering=0) as made:
        if _copied(original, made, synced=made) != file.crc32:
            raise CheckpointError(f"{source} is damaged: its checksum is not the one of its checkpoint")
    shutil.copymode(source, target)


def give_up(folder: Path) -> None:
    """Remove the folder of a checkpoint that was begun; `folder` is what `begin` has returned."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        _draft_of(folder).unlink()


def is_begun(folder: str | os.PathLike[str]) -> bool:
    """True if a checkpoint is being written in a folder, or was when its process was killed."""
    return _draft_of(Path(folder)).exists()


def _draft_of(folder: Path) -> Path:
    """The draft of the marker: not in the folder, whose readers and writers find their own files only.

    Stores do not list this name.
    """
    return folder.with_name(f".pai-sdk-{zlib.crc32(os.fsencode(folder.name)):016x}.part")


def _marked_as_complete(
    folder: Path,
    step: int | None,
    metrics: Mapping[str, float],
    files: Mapping[str, CheckpointFile],
    launch: Mapping[str, Any] | None,
) -> Checkpoint:
    # Numbers of NumPy are steps too, and JSON does not know them.
    number = None if step is None else operator.index(step)
    found = Checkpoint(folder, number, _finite(metrics), time.time(), files, launch=launch)
    _sync_names(found)
    draft = _draft_of(folder)
    # The rename of the draft ends what `begin` has begun. Otherwise the folder may be a file system of its own.
    _write_marker(found, draft if draft.exists() else None)
    return found


def _sync_names(checkpoint: Checkpoint) -> None:
    """Forces the names of the files to the disk, before that of the marker."""
    for place in (*{(checkpoint.path / name).parent for name in checkpoint.files}, checkpoint.path):
        sync_folder(place)


def add_metrics(checkpoint: Checkpoint, metrics: Mapping[str, float]) -> Checkpoint | None:
    """Add metrics to those that are kept with a complete checkpoint.

    Returns:
        The checkpoint with all of them; None if it was removed or replaced meanwhile.
    """
    there = read_checkpoint(checkpoint.path)
    if there is None or there.time != checkpoint.time:
        return None
    found = replace(there, metrics={**there.metrics, **_finite(metrics)})
    _write_marker(found, _draft_of(found.path))
    return found


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _write_marker(checkpoint: Checkpoint, draft: Path | None = None) -> None:
    marker = {
        "format": _FORMAT,
        "step": checkpoint.step,
        "time": checkpoint.time,
        "metrics": checkpoint.metrics,
        "files": {name: {"size": file.size_bytes, "crc32": file.crc32} for name, file in checkpoint.files.items()},
    }
    if checkpoint.launch is not None:
        marker["launch"] = dict(checkpoint.launch)
    replace_file(checkpoint.path / MARKER, json.dumps(marker, indent=1), mode=0o666, durable=True, draft=draft)
    sync_folder(checkpoint.path)


# ---- keeping the best ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckpointConfig:
    """Which checkpoints of a run are kept: the best ones, and always the latest one.

    Attributes:
        num_to_keep: how many of the best are kept; None for all.
        score_attribute: the metric that says which are best. A checkpoint without it counts as worst. Without a
            `score_attribute`, the latest steps are kept.
        score_order: `max` when a higher value is better, `min` when a lower one is.

    Raises:
        CheckpointError: a value is not one of these.

    Example:
        >>> config = CheckpointConfig(num_to_keep=2, score_attribute="loss", score_order="min")
        >>> found = [Checkpoint(Path(str(n)), n, {"loss": x}) for n, x in enumerate([0.3, 0.1, 0.2, 0.9])]
        >>> [checkpoint.step for checkpoint in config.surplus(found)]
        [0]
    """

    num_to_keep: int | None = None
    score_attribute: str | None = None
    score_order: str = "max"

    def __post_init__(self) -> None:
        count = self.num_to_keep
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise CheckpointError(f"num_to_keep={count!r} is not a number of checkpoints; give 1 or more, or None")
        if self.score_attribute is not None and not isinstance(self.score_attribute, str):
            raise CheckpointError(f"score_attribute={self.score_attribute!r} is not the name of a metric")
        if self.score_order not in ("max", "min"):
            raise CheckpointError(f"score_order={self.score_order!r} is not known; it is 'max' or 'min'")

    def surplus(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """The checkpoints that are not kept, the earliest step first."""
        found = sorted(checkpoints, key=lambda checkpoint: checkpoint.step or 0)
        if self.num_to_keep is None:
            return []
        # Of equal scores the later step is better.
        best = sorted(found, key=lambda checkpoint: (self._score(checkpoint), checkpoint.step or 0), reverse=True)
        kept = {checkpoint.path for checkpoint in (*best[: self.num_to_keep], *found[-1:])}
        return [checkpoint for checkpoint in found if checkpoint.path not in kept]

    def _score(self, checkpoint: Checkpoint) -> float:
        if self.score_attribute is None:
            return float(checkpoint.step or 0)
        value = checkpoint.metrics.get(self.score_attribute)
        if value is None:
            return -math.inf
        return value if self.score_order == "max" else -value


def rotate(
    folder: str | os.PathLike[str], config: CheckpointConfig, *, held: Collection[Path] = ()
) -> list[Checkpoint]:
    """Remove the complete checkpoints of a folder that are not to be kept; returns them.

    The marker of each goes first, so a reader never takes a part of a checkpoint for the whole. Folders that are
    not complete stay: another process may be writing to them.

    Args:
        folder: the `checkpoints` folder, whose sub-folders are named by steps.
        config: which are kept.
        held: folders of checkpoints that are kept whatever their metrics are.

    Raises:
        OSError: one cannot be removed.
    """
    kept = set(map(_replaced_by, held))
    surplus = config.surplus(complete_checkpoints(folder))
    removed = [checkpoint for checkpoint in surplus if _replaced_by(checkpoint.path) not in kept]
    for checkpoint in removed:
        main = _replaced_by(checkpoint.path)
        for place in {replacement_of(main), main} - {checkpoint.path}:
            _remove(place)  # a kill left it; it must not be found when the other one is gone
        _remove(checkpoint.path)
    return removed


def _remove(folder: Path) -> None:
    """Removes the folder of a checkpoint, the marker first. A missing one is fine."""
    _remove_marker(folder)
    if folder.is_dir():
        shutil.rmtree(folder)


def _remove_marker(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (folder / MARKER).unlink()
        sync_folder(folder)


def _version(path: Path) -> tuple[int, int, int]:
    """Values that change with a file's content: size, time of the last change, inode.

    Raises:
        CheckpointError: it is no file, or gone.
    """
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} was removed before the checkpoint was saved, or is a broken link"
        ) from error
    if not path.is_file():
        raise CheckpointError(f"{path} is neither a file nor a folder; a checkpoint holds plain files")
    return found.st_size, found.st_mtime_ns, found.st_ino


def _raise(error: OSError) -> None:
    raise error
