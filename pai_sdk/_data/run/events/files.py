"""Reads an event file while it grows: each call returns the content appended since the last call.

The files of TensorBoard, TensorFlow 2, PyTorch, `EventWriter` and MindSpore are read, in any store. Each record is
checked by its checksums; damaged records are skipped, and their ranges are reported.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field

from pai_sdk._data.run.events.decoder import DEFAULT_LIMITS, DamagedRange, EventDecoder, ReadLimits
from pai_sdk._data.run.events.other import OtherEvent
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.storage.base import Store
from pai_sdk.errors import FileChangedError, StorageError

_COMPARED_BYTES = 64
_EVENT_FILE = re.compile(r".*tfevents.*|.*summary\.[0-9]+.*(?<!_lineage)(?<!_explain)")
_OPEN_DAMAGE = "the bytes up to the end of the file are not a record"


def is_event_file(name: str) -> bool:
    """Returns True for the name of an event file."""
    return _EVENT_FILE.fullmatch(name.rpartition("/")[2]) is not None


@dataclass(frozen=True, eq=False)
class EventChunk:
    """The content that was appended to an event file between two calls."""

    scalars: dict[str, Series] = field(default_factory=dict)
    # Values that are not numbers: texts, histograms, tensors, hyperparameters, images.
    other_events: list[OtherEvent] = field(default_factory=list)
    # The ranges that were skipped. Bytes at the end that are not a record are listed each time, until a valid
    # record follows them.
    damaged: list[DamagedRange] = field(default_factory=list)
    size: int = 0  # the bytes of the file that were read until now
    error: StorageError | None = None  # why reading stopped; the next call continues there
    # `should_stop` has stopped the call before the end of the file; the next call continues there.
    is_partial: bool = False

    def __len__(self) -> int:
        """Returns the number of points."""
        return sum(map(len, self.scalars.values()))


class EventFileReader:
    """Reads one event file, each call from the end of the last one. Not thread-safe."""

    def __init__(self, store: Store, path: str, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self.store, self.path = store, path
        self._limits = limits
        self.offset = 0  # the start of the next call; a call that fails does not move it
        self.size = 0  # of the file at the last call
        self._decoder = EventDecoder(limits=limits)
        self._open_damage: list[DamagedRange] = []
        self._tail = b""  # the last bytes before the offset

    def __repr__(self) -> str:
        return f"EventFileReader({self.store.uri + self.path!r}, offset={self.offset})"

    @property
    def is_complete(self) -> bool:
        """Returns True when the file, as of the last call, ends with a complete and valid record."""
        return self.offset == self.size

    def read(self, size: int | None = None, should_stop: Callable[[bool], bool] = lambda _: False) -> EventChunk:
        """Reads what was appended since the last call, up to `size` bytes of the file (None for all).

        `should_stop` is called after each chunk, with True if a record was read; after it returns True, the next
        call reads the bytes of an incomplete record again. Damage is no error: the chunk lists it. A file that was
        replaced or truncated raises FileChangedError.
        """
        decoder, offset, read_end = self._decoder, self.offset, self.offset
        before = len(decoder.damaged)
        tail, skipped, failure, is_partial = self._tail, 0, None, False
        parts: list[bytes] = []  # not decoded yet
        length = 0
        try:
            with closing(self._chunks(size, should_stop)) as chunks:
                for chunk in chunks:
                    read_end += len(chunk)
                    parts.append(chunk[skipped:] if skipped else chunk)
                    length += len(parts[-1])
                    skipped = max(skipped - len(chunk), 0)
                    if (
                        length >= decoder.next_record_bytes
                    ):  # joining a large record with each chunk would be quadratic
                        data = b"".join(parts)
                        consumed = decoder.feed(data, offset)
                        tail = (tail + data[max(consumed - _COMPARED_BYTES, 0) : consumed])[-_COMPARED_BYTES:]
                        offset += consumed
                        skipped += max(consumed - len(data), 0)
                        parts = [data[consumed:]]
                        length = len(parts[0])
                    if read_end != size and should_stop(offset > self.offset):
                        is_partial = True
                        break
        except StorageError as error:
            if offset == self.offset:
                raise
            failure = error
        if read_end == self.offset > self.size:  # a skipped record that is too large ends after the file
            read_end = max(self.size, size or 0)
        self.offset, self.size = offset if is_partial else self._behind_damage(offset, read_end), read_end
        self._tail = tail if self.offset == offset <= read_end else b""
        other_events, decoder.other_events = decoder.other_events, []
        return EventChunk(
            decoder.pop_scalars(), other_events, self.damaged[before:], read_end, failure, is_partial
        )

    @property
    def damaged(self) -> list[DamagedRange]:
        """Returns all ranges that were skipped until now."""
        return [*self._decoder.damaged, *self._open_damage]

    def _behind_damage(self, offset: int, read_end: int) -> int:
        """Returns the next offset. Bytes at the end that are not a record are read again."""
        # A file system can report a size before the bytes: they read as zeros at first. Up to
        # `max_reread_bytes` are read again with each call.
        damage_start = self._decoder.open_damage
        self._open_damage = []
        if damage_start is None:
            return offset
        if read_end - damage_start > self._limits.max_reread_bytes:
            self._decoder.close_damage(offset)
            return offset
        self._decoder.open_damage = None
        self._open_damage = [DamagedRange(damage_start, read_end, _OPEN_DAMAGE)]
        return damage_start

    def _chunks(self, size: int | None, should_stop: Callable[[bool], bool]) -> Generator[bytes, None, None]:
        """Yields the bytes from the offset on, in chunks, which are smaller when the call should stop."""
        if size is not None and size < self.size:
            raise self._is_another()
        # The last bytes before the offset are read again: where they differ, the file was replaced.
        compared = self._tail
        parts: list[bytes] = []
        length = 0
        for chunk in self.store.read(self.path, self.offset - len(compared), size):
            parts.append(chunk)
            length += len(chunk)
            if length < len(compared) or (length < self._limits.chunk_bytes and not should_stop(True)):
                continue
            yield self._behind(compared, b"".join(parts))
            parts, length, compared = [], 0, b""
        if parts or compared:
            yield self._behind(compared, b"".join(parts))

    def _behind(self, compared: bytes, content: bytes) -> bytes:
        if not content.startswith(compared):
            raise self._is_another()
        return content[len(compared) :]

    def _is_another(self) -> FileChangedError:
        uri = self.store.uri + self.path
        return FileChangedError(f"{uri} was replaced after it was read up to byte {self.offset}", uri=uri)
