"""The saved state of a `FunctionRun`: a folder with the state of the run, and a copy of the checkpoint.

    saved/<number>/state.json    counters and ids of the run
    saved/<number>/checkpoint/   a complete checkpoint; missing when the function had none yet

The folder is created under another name and renamed when it is complete, and does not change afterwards. As an
object it is a tar archive. It contains JSON and plain files; nothing is unpickled.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pai_sdk._data.run.report.checkpoints import FolderState, is_complete, read_checkpoint, save
from pai_sdk.errors import CheckpointError

_STATE, _CHECKPOINT = "state.json", "checkpoint"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class SavedState:
    """A saved state."""

    checkpoint: Path | None  # the folder; None without a checkpoint
    # Counters and ids of the run; empty for a checkpoint that no `FunctionRun` has saved.
    values: Mapping[str, Any] = field(default_factory=dict)


def write_saved(folder: Path, checkpoint: Path | None, values: Mapping[str, Any]) -> Path:
    """Saves a state into a new sub-folder, whose name is the next number."""
    folder.mkdir(parents=True, exist_ok=True)
    # In the target folder, because a rename must not cross file systems. The name is no number, so no reader uses
    # it.
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder))
    try:
        if checkpoint is not None:
            source = read_checkpoint(checkpoint)
            if source is None:
                raise CheckpointError(f"the checkpoint {checkpoint} is not complete, or was removed")
            save(FolderState.of(checkpoint), unfinished / _CHECKPOINT, step=source.step, metrics=source.metrics)
        (unfinished / _STATE).write_text(json.dumps(dict(values)), encoding="utf-8")
        # `mkdtemp` creates folders with mode 0700, which other users of a shared folder could not read.
        unfinished.chmod(0o755)
        while True:
            numbers = [int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal()]
            target = folder / str(max(numbers, default=0) + 1)
            try:
                # On POSIX, a rename onto an existing folder with files fails, so two runs cannot create the same
                # number.
                unfinished.rename(target)
            except OSError:  # a concurrent run in this folder has created this number: try the next one
                if not target.exists():
                    raise
                continue
            return target
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def read_saved(path: str | os.PathLike[str]) -> SavedState:
    """Reads a folder of `write_saved`, or one of a checkpoint; raises CheckpointError for others."""
    folder = Path(path)
    try:
        values = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if is_complete(folder):
            return SavedState(folder)
        raise CheckpointError(f"{folder} is neither a complete checkpoint nor what save() has returned") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / _STATE} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{folder / _STATE} is not a JSON object")
    checkpoint = folder / _CHECKPOINT
    if not checkpoint.exists():
        return SavedState(None, values)
    if not is_complete(checkpoint):
        raise CheckpointError(f"{checkpoint} is not complete: files are missing or have another size")
    return SavedState(checkpoint, values)


def pack(folder: Path) -> bytes:
    """Returns the folder as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return buffer.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Writes the files of an archive into an empty folder; raises CheckpointError for damaged or unsafe ones."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r|") as archive:
            for member in archive:
                _extract(archive, member, folder)
    except (tarfile.TarError, EOFError, UnicodeError) as error:
        raise CheckpointError(f"the saved object is damaged: {error}") from error
    except FileExistsError as error:
        raise CheckpointError(f"the saved object has {error.filename} twice") from error
    saved = read_saved(folder)
    if saved.checkpoint is not None and not is_complete(saved.checkpoint, checksums=True):
        raise CheckpointError("the saved object is damaged: the checksum of a file is wrong")


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    parts = PurePosixPath(member.name).parts
    # Only files and folders are accepted: a link could lead out of the folder.
    if not parts or PurePosixPath(member.name).is_absolute() or ".." in parts or "\\" in member.name:
        raise CheckpointError(f"the saved object has {member.name!r}, which is outside of its folder")
    path = folder.joinpath(*parts)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    source = archive.extractfile(member) if member.isreg() else None
    if source is None:
        raise CheckpointError(f"the saved object has {member.name!r}, which is neither a file nor a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with source, path.open("xb") as target:
        shutil.copyfileobj(source, target, _CHUNK_BYTES)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
