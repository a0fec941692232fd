"""Checkpoints: folders that are complete when they have a marker, with size and checksum of each file.

    checkpoints/100/…          the files of step 100
    checkpoints/100/_COMPLETE  JSON, written last: {"format": 1, "step": 100, "time": …, "metrics": {…},
                               "files": {"model.pt": {"size": 123, "crc32": "0f1e2d3c"}}}

In jobs of several processes the marker also has the launch that saved it, see `run.report.launch`.

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

from pai_sdk._core.files import replace_file, sync, sync_folder
from pai_sdk._data.run.report.layout import REPLACEMENT, RunLayout
from pai_sdk.errors import CheckpointError

MARKER = "_COMPLETE"
"""The file that makes a folder a checkpoint. Written last, removed first."""

INCOMPLETE = "_INCOMPLETE"
"""Marks a folder of a store whose upload is not finished. Removed when the checkpoint is complete."""

METADATA = ".metadata.json"
_FORMAT = 1
_CHUNK_BYTES = 32 << 20
# Not shared with child processes: Linux uses its large pages, which are faster, for private memory only.
_BUFFER_FLAGS = (
    {"flags": getattr(mmap, "MAP_PRIVATE", 0) | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)
_MAX_PASSES = 5  # of a reader; each follows a rotation that removed the checkpoint about to be read


@dataclass(frozen=True)
class CheckpointFile:
    """Size and checksum of a file, as recorded in the marker."""

    size_bytes: int
    crc32: str


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the state that a training needs to continue.

    Attributes:
        path: the folder.
        step: of the training; None for a folder without a marker.
        metrics: reported with the checkpoint.
        time: when it was complete, in seconds since 1970.
        files: path in the folder, with `/`, to size and checksum.
        filesystem: for code written for Ray: a local file system of pyarrow or fsspec, or None.
        launch: in jobs of several processes, the launch that saved the checkpoint; see `run.report.launch`.

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
        path = os.fspath(self.path)
        if "://" in path or not _is_local(filesystem):
            raise CheckpointError(
                f"the checkpoint {path} is not a local folder; copy it to one with `pai-sdk cp -r`, or give the "
                "job its URI as checkpoints_path"
            )
        object.__setattr__(self, "path", Path(path))

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
            metadata = json.loads((self.path / METADATA).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return metadata if isinstance(metadata, dict) else {}

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
    """Returns True for the local file systems of fsspec and pyarrow, and for None."""
    protocol = getattr(filesystem, "protocol", getattr(filesystem, "type_name", None))
    names = protocol if isinstance(protocol, (tuple, list)) else (protocol,)
    return filesystem is None or not {"file", "local"}.isdisjoint(names)


# ---- reading ------------------------------------------------------------------------------------------------


def read_checkpoint(folder: str | os.PathLike[str], *, checksums: bool = False) -> Checkpoint | None:
    """Returns the complete checkpoint of a step's folder, or its replacement; None where neither is complete."""
    path = Path(folder)
    # The folder is read a second time, last: the replacement may have been moved there meanwhile.
    # `folder/REPLACEMENT` is where `StoredCheckpoint.download` collects files.
    candidates = (path, replacement_of(path), path / REPLACEMENT, path)
    checkpoint = next(filter(None, map(_read, candidates)), None)
    if checkpoint is None:
        return None
    if checksums and any(
        _crc32_of(checkpoint.path / name) != file.crc32 for name, file in checkpoint.files.items()
    ):
        return None
    return checkpoint


def is_complete(folder: str | os.PathLike[str], *, checksums: bool = False) -> bool:
    """Returns True if a folder has a valid marker and all files that the marker lists."""
    return read_checkpoint(folder, checksums=checksums) is not None


def complete_checkpoints(folder: str | os.PathLike[str]) -> Iterator[Checkpoint]:
    """Yields the complete checkpoints of a run, the latest step first.

    Args:
        folder: the `checkpoints` folder, whose sub-folders are named by steps.
    """
    for step in _steps_in(folder):
        checkpoint = _read_step(folder, step)
        if checkpoint is not None:
            yield checkpoint


def latest_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint | None:
    """Returns the complete checkpoint of the latest step; None without one."""
    newest: Checkpoint | None = None
    for number in range(_MAX_PASSES):
        previous, newest, has_skipped = newest, None, False
        for step in _steps_in(folder):
            newest = _read_step(folder, step)
            if newest is not None:
                break
            has_skipped = True
        # A skipped step is incomplete, or a rotation has removed it since the folders were listed. In the second
        # case a later step is complete, so list again until two passes agree.
        if not has_skipped or (number and _path_of(newest) == _path_of(previous)):
            break
    return newest


def _path_of(checkpoint: Checkpoint | None) -> Path | None:
    return None if checkpoint is None else checkpoint.path


def _steps_in(folder: str | os.PathLike[str]) -> list[int]:
    """Returns the steps that have a folder, the latest first."""
    try:
        with os.scandir(folder) as entries:
            paths = [RunLayout.checkpoint_path(f"{entry.name}/") for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted({path.step for path in paths if path is not None}, reverse=True)


def _read_step(folder: str | os.PathLike[str], step: int) -> Checkpoint | None:
    checkpoint = read_checkpoint(Path(folder, str(step)))
    # Markers without a step are valid: `commit` of a folder without an explicit step. The name of the folder has
    # it.
    return checkpoint if checkpoint is None or checkpoint.step is not None else replace(checkpoint, step=step)


def parse_marker(content: str | bytes) -> Checkpoint | None:
    """Parses the content of a marker; returns a checkpoint with an empty path, or None for invalid content."""
    try:
        marker = json.loads(content)
        if marker["format"] != _FORMAT:
            return None
        files = {name: CheckpointFile(int(f["size"]), str(f["crc32"])) for name, f in marker["files"].items()}
        step = marker["step"]
        metrics = {str(name): float(value) for name, value in marker["metrics"].items()}
        launch = marker.get("launch")
        checkpoint = Checkpoint(
            Path(),
            None if step is None else int(step),
            metrics,
            float(marker["time"]),
            files,
            # Markers of other releases may have other values here; the checkpoint is usable without a launch.
            launch=launch if isinstance(launch, dict) else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return checkpoint if all(map(_is_relative_path, files)) else None


def _read(folder: Path) -> Checkpoint | None:
    """Reads the checkpoint of exactly this folder, without its replacement; None where it is not complete."""
    checkpoint = _read_marker(folder)
    if checkpoint is None or not all(
        _has_recorded_size(folder / name, file) for name, file in checkpoint.files.items()
    ):
        return None
    return checkpoint


def _read_marker(folder: Path) -> Checkpoint | None:
    """Reads the marker of a folder; None where it is missing or not valid."""
    try:
        checkpoint = parse_marker((folder / MARKER).read_bytes())
    except OSError:
        return None
    return None if checkpoint is None else replace(checkpoint, path=folder)


def _is_relative_path(name: str) -> bool:
    return "\0" not in name and not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts


def _has_recorded_size(path: Path, recorded: CheckpointFile) -> bool:
    try:
        return path.stat().st_size == recorded.size_bytes
    except OSError:
        return False


def _crc32_of(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return _copy_crc32(file, _new_buffer(os.fstat(file.fileno()).st_size))


def _new_buffer(max_file_bytes: int) -> memoryview:
    """Returns a buffer for copies of files up to this size."""
    # An anonymous mapping: its pages are allocated by the first read, while the GIL is released.
    buffer = mmap.mmap(-1, max(1, min(_CHUNK_BYTES, max_file_bytes)), **_BUFFER_FLAGS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without large pages
            buffer.madvise(mmap.MADV_HUGEPAGE)  # type: ignore[attr-defined, unused-ignore]
    return memoryview(buffer)


def _copy_crc32(
    source: io.RawIOBase,
    buffer: memoryview,
    target: io.RawIOBase | None = None,
    *,
    synced: io.RawIOBase | None = None,
) -> str:
    """Copies a file, or only reads it, and returns the CRC-32; `synced` is the file to force to the disk."""
    # Reading, summing and writing release the GIL. A thread gets it back only after some milliseconds (the switch
    # interval is 5 ms) while another thread computes, so the chunks are large.
    crc = end = 0
    while size := source.readinto(buffer):
        chunk = buffer[:size]
        crc = zlib.crc32(chunk, crc)
        # An unbuffered file may write only a part of the chunk.
        while target is not None and chunk:
            chunk = chunk[target.write(chunk) :]
        end += size
        if synced is not None and size == _CHUNK_BYTES:
            _start_sync(synced.fileno(), end)
    if synced is not None:
        sync(synced.fileno())
    return f"{crc:08x}"


def _start_sync(descriptor: int, end: int) -> None:
    """Lets the disk write the first bytes of a file while the next ones are copied."""
    # DONTNEED starts the write, and drops written pages from the page cache, where a large checkpoint would
    # displace the data that the training reads. It is a hint: macOS has none, and some file systems refuse it.
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, end, os.POSIX_FADV_DONTNEED)  # type: ignore[attr-defined, unused-ignore]


# ---- writing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderState:
    """Sizes, times and inodes of a folder's files at one time, to detect later changes."""

    root: Path
    files: Mapping[str, tuple[int, int, int]]

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> FolderState:
        """Records the state of a folder, without reading the files; raises CheckpointError if it has none."""
        root = Path(folder)
        if not root.is_dir():
            reason = "is a file; a checkpoint is a folder" if root.exists() else "does not exist"
            raise CheckpointError(f"the checkpoint {root} {reason}")
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
                # A source that is a complete checkpoint, such as a downloaded one, has a marker of its own: not a
                # file of the copy.
                if relative != MARKER:
                    files[relative] = _version(path)
        if not files:
            raise CheckpointError(f"the checkpoint {root} has no files")
        return cls(root, dict(sorted(files.items())))

    @property
    def max_file_bytes(self) -> int:
        """The size of the largest file."""
        return max(size_bytes for size_bytes, _, _ in self.files.values())

    def check(self, name: str) -> None:
        """Raises CheckpointError if a file has changed, or is gone."""
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
    """Makes a folder a checkpoint, where it is: forces its files to the disk, then writes the marker."""
    state = FolderState.of(folder)
    # The marker of a complete folder stays until it is replaced in one rename, so a kill leaves a complete one.
    if _read(state.root) is None:
        _remove_marker(state.root)
    files, buffer = {}, _new_buffer(state.max_file_bytes)
    for name, (size_bytes, _, _) in state.files.items():
        path = state.root / name
        with path.open("rb", buffering=0) as file:
            crc32 = _copy_crc32(file, buffer, synced=file)
        # Checked after the read: a change during the read would leave a checksum of mixed content.
        state.check(name)
        files[name] = CheckpointFile(size_bytes, crc32)
    return _complete(state.root, step, metrics or {}, files, launch)


def save(
    source: FolderState,
    target: Path,
    *,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    copy: Callable[[Checkpoint, str], Any] | None = None,
    launch: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Copies a folder and makes the copy a checkpoint, which replaces a complete one of the target.

    `copy` replaces the copy: it fills the empty folder that it is called with, and may return the checkpoint
    there. After an error, a complete checkpoint of the target is still there.
    """
    root = source.root.resolve()
    # `checkpoint_dir` let the training write into the folder that `start_checkpoint` returned: nothing to copy.
    for destination in (target, replacement_of(target)):
        if root == destination.resolve():
            return _move_to_target(commit(destination, step=step, metrics=metrics, launch=launch), target)
    destination = start_checkpoint(target)
    try:
        if copy is None:
            files = _copy_files(source, destination)
            saved = _complete(destination, step, metrics or {}, files, launch)
        else:
            written = getattr(copy(Checkpoint(source.root), str(destination)), "path", destination)
            if Path(written).resolve() != destination.resolve():
                raise CheckpointError(f"the checkpoint was copied to {written} instead of {destination}")
            saved = commit(destination, step=step, metrics=metrics, launch=launch)
    except BaseException:
        if destination != target:
            discard_checkpoint(destination)
        raise
    return _move_to_target(saved, target)


def _copy_files(source: FolderState, target: Path) -> dict[str, CheckpointFile]:
    files, buffer = {}, _new_buffer(source.max_file_bytes)
    for name, (size_bytes, _, _) in source.files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (source.root / name).open("rb", buffering=0) as file, path.open("xb", buffering=0) as copy:
                crc32 = _copy_crc32(file, buffer, copy, synced=copy)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{error.filename} was removed before the checkpoint was saved; keep the folder, or report it "
                "with mode='SYNC'"
            ) from error
        source.check(name)
        # Scripts in a checkpoint stay executable. Other attributes are not copied: object storage has none.
        shutil.copymode(source.root / name, path)
        files[name] = CheckpointFile(size_bytes, crc32)
    return files


def start_checkpoint(folder: Path) -> Path:
    """Creates and returns the empty folder for a new checkpoint."""
    # A complete checkpoint stays until the replacement beside it is complete.
    destination = folder if _read(folder) is None else replacement_of(folder)
    _remove(destination)
    destination.mkdir(parents=True)
    if destination == folder:
        _draft_of(folder).touch()
    return destination


def replacement_of(folder: Path) -> Path:
    """Returns the folder that is about to replace the complete checkpoint in a folder."""
    return folder.parent / f"{folder.name}{REPLACEMENT}"


def _replaced_by(folder: Path) -> Path:
    """Returns the folder of the step, from that folder or the one of its replacement."""
    name = folder.name
    return folder.with_name(name[: -len(REPLACEMENT)]) if name.endswith(REPLACEMENT) else folder


def _move_to_target(saved: Checkpoint, folder: Path) -> Checkpoint:
    """Moves a complete checkpoint to its folder; at each moment one of the two folders is complete."""
    # The files are linked, or copied on file systems without links, and removed afterwards. On a mounted object
    # storage a rename of a folder is many steps, and a kill between two of them would leave no complete folder.
    replacement = replacement_of(folder)
    if saved.path == replacement:
        _draft_of(folder).touch()
        _remove(folder)
        folder.mkdir()
        for name, file in saved.files.items():
            link_file(replacement / name, folder / name, file)
        saved = replace(saved, path=folder)
        _sync_names(saved)
        _write_marker(saved, _draft_of(folder))
    with contextlib.suppress(OSError):  # readers prefer the complete folder, so a leftover beside it is harmless
        _remove(replacement)
    return saved


def link_file(source: Path, target: Path, file: CheckpointFile) -> None:
    """Hard-links a file of a checkpoint, or copies it where that is not possible, and checks the checksum."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not source.is_symlink():  # its target may be in the folder that is removed afterwards
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    with source.open("rb", buffering=0) as original, target.open("xb", buffering=0) as copy:
        if _copy_crc32(original, _new_buffer(file.size_bytes), copy, synced=copy) != file.crc32:
            raise CheckpointError(f"{source} is damaged: its checksum is not the one of its checkpoint")
    shutil.copymode(source, target)


def discard_checkpoint(folder: Path) -> None:
    """Removes a folder that `start_checkpoint` has returned, and its draft marker."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        _draft_of(folder).unlink()


def is_unfinished(folder: str | os.PathLike[str]) -> bool:
    """Returns True if a checkpoint is being written in a folder, or was when its process was killed."""
    return _draft_of(Path(folder)).exists()


def _draft_of(folder: Path) -> Path:
    """Returns the path of the marker's draft."""
    # Beside the folder: readers and writers of the folder must find their own files only. Stores do not list this
    # name.
    return folder.with_name(f".pai-sdk-{zlib.crc32(os.fsencode(folder.name)):016x}.part")


def _complete(
    folder: Path,
    step: int | None,
    metrics: Mapping[str, float],
    files: Mapping[str, CheckpointFile],
    launch: Mapping[str, Any] | None,
) -> Checkpoint:
    # Steps may be integers of NumPy, which `json` cannot write.
    number = None if step is None else operator.index(step)
    checkpoint = Checkpoint(folder, number, _finite(metrics), time.time(), files, launch=launch)
    _sync_names(checkpoint)
    draft = _draft_of(folder)
    # The rename of the draft ends what `start_checkpoint` started. Without a draft, a rename from beside the
    # folder is not possible everywhere: the folder may be a file system of its own.
    _write_marker(checkpoint, draft if draft.exists() else None)
    return checkpoint


def _sync_names(checkpoint: Checkpoint) -> None:
    """Forces the names of the files to the disk, before that of the marker."""
    for directory in (*{(checkpoint.path / name).parent for name in checkpoint.files}, checkpoint.path):
        sync_folder(directory)


def add_metrics(checkpoint: Checkpoint, metrics: Mapping[str, float]) -> Checkpoint | None:
    """Adds metrics to those of a complete checkpoint; returns None if it was removed or replaced meanwhile."""
    current = read_checkpoint(checkpoint.path)
    if current is None or current.time != checkpoint.time:
        return None
    # A checkpoint saved again has another time. Its metrics must not be mixed with those of this one.
    updated = replace(current, metrics={**current.metrics, **_finite(metrics)})
    _write_marker(updated, _draft_of(updated.path))
    return updated


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    # JSON has no NaN and infinity.
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


# ---- rotation -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckpointConfig:
    """Selects the checkpoints of a run that are kept: the best ones, and always the latest one.

    Attributes:
        num_to_keep: how many of the best are kept; None for all.
        score_attribute: the metric that ranks them. A checkpoint without it ranks last. Without a
            `score_attribute`, the latest steps are kept.
        score_order: `max` when a higher value is better, `min` when a lower one is.

    Raises:
        CheckpointError: a value is not one of these.

    Example:
        >>> config = CheckpointConfig(num_to_keep=2, score_attribute="loss", score_order="min")
        >>> checkpoints = [Checkpoint(Path(str(n)), n, {"loss": x}) for n, x in enumerate([0.3, 0.1, 0.2, 0.9])]
        >>> [checkpoint.step for checkpoint in config.surplus(checkpoints)]
        [0]
    """

    num_to_keep: int | None = None
    score_attribute: str | None = None
    score_order: str = "max"

    def __post_init__(self) -> None:
        count = self.num_to_keep
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise CheckpointError(f"num_to_keep: expected an integer (minimum 1) or None, got {count!r}")
        if self.score_attribute is not None and not isinstance(self.score_attribute, str):
            raise CheckpointError(f"score_attribute: expected the name of a metric, got {self.score_attribute!r}")
        if self.score_order not in ("max", "min"):
            raise CheckpointError(f"score_order: expected 'max' or 'min', got {self.score_order!r}")

    def surplus(self, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
        """Returns the checkpoints that are not kept, the earliest step first."""
        by_step = sorted(checkpoints, key=lambda checkpoint: checkpoint.step or 0)
        if self.num_to_keep is None:
            return []
        # Of equal scores the later step is better.
        best = sorted(
            by_step, key=lambda checkpoint: (self._score(checkpoint), checkpoint.step or 0), reverse=True
        )
        retained = {checkpoint.path for checkpoint in (*best[: self.num_to_keep], *by_step[-1:])}
        return [checkpoint for checkpoint in by_step if checkpoint.path not in retained]

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
    """Removes the complete checkpoints of a folder that are not to be kept; returns them.

    The marker of each is removed first, so that no reader uses a partial checkpoint. Folders that are not complete
    stay: another process may be writing to them.

    Args:
        folder: the `checkpoints` folder, whose sub-folders are named by steps.
        config: which are kept.
        held: folders of checkpoints that are kept whatever their metrics are.

    Raises:
        OSError: one cannot be removed.
    """
    # A held checkpoint may be in the folder of the step or beside it, and may be moved meanwhile: compare steps.
    retained = set(map(_replaced_by, held))
    surplus = config.surplus(complete_checkpoints(folder))
    removed = [checkpoint for checkpoint in surplus if _replaced_by(checkpoint.path) not in retained]
    for checkpoint in removed:
        main = _replaced_by(checkpoint.path)
        for leftover in {replacement_of(main), main} - {checkpoint.path}:
            # A kill left both folders. The one that readers do not use goes first: otherwise it would become the
            # checkpoint of this step when the other one is gone.
            _remove(leftover)
        _remove(checkpoint.path)
    return removed


def _remove(folder: Path) -> None:
    """Removes the folder of a checkpoint, the marker first; a missing folder is ignored."""
    _remove_marker(folder)
    if folder.is_dir():
        shutil.rmtree(folder)


def _remove_marker(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        (folder / MARKER).unlink()
        sync_folder(folder)


def _version(path: Path) -> tuple[int, int, int]:
    """Returns size, modification time and inode of a file, which change with its content."""
    try:
        stat = path.stat()
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} was removed before the checkpoint was saved, or is a broken link"
        ) from error
    if not path.is_file():
        raise CheckpointError(f"{path} is neither a file nor a folder; a checkpoint holds plain files")
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _raise(error: OSError) -> None:
    raise error
