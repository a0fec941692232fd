"""Reads an event file while it grows: each call gives what was appended since the last one.

The files of TensorBoard, TensorFlow 2, PyTorch, `EventWriter` and MindSpore are read, in any store. Each record is
checked by its checksums; damaged ones are skipped, and their ranges are reported.

Needs numpy, from the extras `watch` and `service`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field

from pai_sdk.errors import FileChangedError, StorageError
from pai_sdk.run.events.decoder import DamagedRange, EventDecoder
from pai_sdk.run.events.other import OtherEvent
from pai_sdk.run.events.series import Series
from pai_sdk.storage.base import Store

__all__ = ["DamagedRange", "EventChunk", "EventFileReader", "OtherEvent", "is_event_file"]

_PIECE_BYTES = 1 << 20
_MOST_REREAD_BYTES = 4 << 20
_COMPARED_BYTES = 64
_EVENT_FILE = re.compile(r".*tfevents.*|.*summary\.[0-9]+.*(?<!_lineage)(?<!_explain)")
_OPEN_DAMAGE = "the bytes up to the end of the file are not a record"


def is_event_file(name: str) -> bool:
    """Returns True for the name of an event file.

    Example:
        >>> is_event_file("rank-0/events.out.tfevents.1790000000.host.17.0")
        True
        >>> is_event_file("x.out.events.summary.1600000000.host_MS"), is_event_file("train.log")
        (True, False)
    """
    return _EVENT_FILE.fullmatch(name.rpartition("/")[2]) is not None


@dataclass(frozen=True, eq=False)
class EventChunk:
    """The content that was appended to an event file between two calls.

    Attributes:
        scalars: the points of each tag, in the order of the file.
        others: what else there is: texts, histograms, tensors, hyperparameters, images.
        damaged: the ranges that were passed over. Bytes at the end that are no record are among them every time,
            until a valid record follows them.
        size: how many bytes of the file are known now.
        error: why the rest could not be read; the next call goes on there.
        is_cut: `is_over` has ended the call before the end of the file; the next call goes on there.
    """

    scalars: dict[str, Series] = field(default_factory=dict)
    others: list[OtherEvent] = field(default_factory=list)
    damaged: list[DamagedRange] = field(default_factory=list)
    size: int = 0
    error: StorageError | None = None
    is_cut: bool = False

    def __len__(self) -> int:
        """Returns the number of points."""
        return sum(map(len, self.scalars.values()))


class EventFileReader:
    """Reads one event file from where it stopped the last time.

    Not safe to use from several threads at once.

    Args:
        store: where the file is.
        path: its path there.

    Attributes:
        offset: where the next call begins. It stays where it was when a call fails.
        size: how many bytes the file had at the last call.

    Example:
        >>> import tempfile
        >>> from pai_sdk.run.events.writer import EventWriter
        >>> from pai_sdk.storage.store import open_store
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with EventWriter(folder) as writer:
        ...         for step in range(3):
        ...             writer.scalars({"loss": 1 / (step + 1)}, step)
        ...     reader = EventFileReader(open_store(folder), writer.path.name)
        ...     reader.read().scalars["loss"].step.tolist(), reader.read().scalars, reader.is_complete
        ([0, 1, 2], {}, True)
    """

    def __init__(self, store: Store, path: str) -> None:
        self.store, self.path = store, path
        self.offset = self.size = 0
        self._decoder = EventDecoder()
        self._open_damage: list[DamagedRange] = []
        self._seen = b""  # the last bytes before the offset

    def __repr__(self) -> str:
        return f"EventFileReader({self.store.uri + self.path!r}, offset={self.offset})"

    @property
    def is_complete(self) -> bool:
        """True when the file, as it was at the last call, ends with a whole and valid record."""
        return self.offset == self.size

    def read(self, size: int | None = None, is_over: Callable[[bool], bool] = lambda _: False) -> EventChunk:
        """Reads what was appended since the last call. Damage is no error; the chunk lists it.

        Args:
            size: of the file, where it is known; only so much is read. Without it, all that is there.
            is_over: asked after each piece whether to end the call, with whether it has come any further. The next
                call reads the bytes of a record that is not whole again.

        Raises:
            ObjectNotFoundError: the file is not there any more.
            FileChangedError: it was replaced by another one, or cut off.
            StorageError: it cannot be read. The next call tries again.
        """
        decoder, offset, known = self._decoder, self.offset, self.offset
        before = len(decoder.damaged)
        seen, skipped, failure, is_cut = self._seen, 0, None, False
        parts: list[bytes] = []  # not decoded yet
        length = 0
        try:
            with closing(self._pieces(size, is_over)) as pieces:
                for piece in pieces:
                    known += len(piece)
                    parts.append(piece[skipped:] if skipped else piece)
                    length += len(parts[-1])
                    skipped = max(skipped - len(piece), 0)
                    if length >= decoder.wanted:  # joining a large record with each piece would take long
                        rest = b"".join(parts)
                        taken = decoder.feed(rest, offset)
                        seen = (seen + rest[max(taken - _COMPARED_BYTES, 0) : taken])[-_COMPARED_BYTES:]
                        offset += taken
                        skipped += max(taken - len(rest), 0)
                        parts = [rest[taken:]]
                        length = len(parts[0])
                    if known != size and is_over(offset > self.offset):
                        is_cut = True
                        break
        except StorageError as error:
            if offset == self.offset:
                raise
            failure = error
        if known == self.offset > self.size:  # nothing was read behind a record that is too large
            known = max(self.size, size or 0)
        self.offset, self.size = offset if is_cut else self._behind_damage(offset, known), known
        self._seen = seen if self.offset == offset <= known else b""
        others, decoder.others = decoder.others, []
        return EventChunk(decoder.take(), others, self.damaged[before:], known, failure, is_cut)

    @property
    def damaged(self) -> list[DamagedRange]:
        """All ranges that were passed over until now."""
        return [*self._decoder.damaged, *self._open_damage]

    def _behind_damage(self, offset: int, known: int) -> int:
        """Returns the next offset. Bytes at the end that are no record are read again: they may come late."""
        begin = self._decoder.open_damage
        self._open_damage = []
        if begin is None:
            return offset
        if known - begin > _MOST_REREAD_BYTES:
            self._decoder.close_damage(offset)
            return offset
        self._decoder.open_damage = None
        self._open_damage = [DamagedRange(begin, known, _OPEN_DAMAGE)]
        return begin

    def _pieces(self, size: int | None, is_over: Callable[[bool], bool]) -> Generator[bytes, None, None]:
        """The bytes from the offset on, in pieces that are worth decoding; smaller ones when the time is over."""
        if size is not None and size < self.size:
            raise self._is_another()
        # The bytes before are read again: where they differ, the file is another one.
        compared = self._seen
        parts: list[bytes] = []
        length = 0
        for piece in self.store.read(self.path, self.offset - len(compared), size):
            parts.append(piece)
            length += len(piece)
            if length < len(compared) or (length < _PIECE_BYTES and not is_over(True)):
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
