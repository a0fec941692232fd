"""Event files as trainings write them, made in a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pai_sdk._data.run.events.writer import EventWriter

__all__ = ["append", "write_run"]


def write_run(
    folder: Path,
    metrics: Mapping[str, Sequence[float]],
    *,
    first: int = 0,
    hparams: Mapping[str, bool | float | str] | None = None,
) -> Path:
    """A new event file in a folder: the values of each metric at the steps from `first` on; returns the file."""
    with EventWriter(folder, source="host") as writer:
        if hparams:
            writer.hparams(hparams)
        _write(writer, metrics, first)
    return writer.path


def append(file: Path, metrics: Mapping[str, Sequence[float]], *, first: int) -> None:
    """Further values at the end of an event file."""
    with EventWriter(file.parent / "more", source="host") as writer:
        _write(writer, metrics, first)
    more = writer.path.read_bytes()
    header = 12 + int.from_bytes(more[:8], "little") + 4  # the record with the version of the format
    with file.open("ab") as out:
        out.write(more[header:])
    writer.path.unlink()
    writer.path.parent.rmdir()


def _write(writer: EventWriter, metrics: Mapping[str, Sequence[float]], first: int) -> None:
    for at in range(max((len(values) for values in metrics.values()), default=0)):
        writer.scalars({tag: values[at] for tag, values in metrics.items() if at < len(values)}, first + at)
