"""Event files: the writer that jobs use, and the reader of files written for TensorBoard or MindSpore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pai_sdk._data.run.events.writer import EventWriter, as_float64, crc32c, event_file_source

if TYPE_CHECKING:
    from pai_sdk._data.run.events.records import EventRecord, ScalarEvent, read_records, read_scalars

__all__ = [
    "EventRecord",
    "EventWriter",
    "ScalarEvent",
    "as_float64",
    "crc32c",
    "event_file_source",
    "read_records",
    "read_scalars",
]


def __getattr__(name: str) -> object:
    """Imports the reader at its first use: the package that is shipped with jobs has only the writer."""
    if name not in ("EventRecord", "ScalarEvent", "read_records", "read_scalars"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pai_sdk._data.run.events import records

    return getattr(records, name)
