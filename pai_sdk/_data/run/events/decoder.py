"""Decodes the bytes of an event file into columns of points; damaged ranges are skipped and reported."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.checksums import header_footers
from pai_sdk._data.run.events.layouts import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    Block,
    Bytes,
    Cycle,
    LayoutCache,
    RecordLayout,
    period_of,
)
from pai_sdk._data.run.events.message import EventMessage, parse_message
from pai_sdk._data.run.events.other import OtherEvent
from pai_sdk._data.run.events.series import Floats, Integers, Series, Values
from pai_sdk._data.run.events.writer import crc32c, masked

_FIRST_BATCH_BYTES = 1 << 16
_LARGEST_BATCH_BYTES = 1 << 20
_WINDOWS = (32, 128, 512, 2048)  # numbers of waiting records at which a cycle is searched for
_MAX_LENGTHS = 4096
_FEW_USES, _FEW_RECORDS = 4, 100  # uses before a cycle is rated; records a use below which it costs time
_MIN_ALIKE = 8  # records of one layout that are read together

_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")

_layouts = LayoutCache()  # shared by the process: the files of a thousand runs have the same few layouts


@dataclass(frozen=True)
class DamagedRange:
    """Bytes of a file that are not valid records, and were skipped."""

    start: int  # the offset of the first byte
    end: int  # the offset after the last byte
    reason: str
    path: str = ""  # of the file, where several are read; empty otherwise


class _Waiting(NamedTuple):
    """A record that is identified, but not read yet."""

    at: int
    end: int
    layout: RecordLayout | None
    message: EventMessage | None


@dataclass(frozen=True)
class ReadLimits:
    """How much of an event file is in memory at once."""

    chunk_bytes: int = 1 << 20
    max_reread_bytes: int = 4 << 20  # of a damaged end, in each call
    max_record_bytes: int = 256 << 20  # larger records are skipped
    searched_bytes: int = 1 << 17  # searched at once for the next header


DEFAULT_LIMITS = ReadLimits()


class EventDecoder:
    """Decodes one file, chunk by chunk, in order."""

    def __init__(self, layouts: LayoutCache = _layouts, limits: ReadLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.other_events: list[OtherEvent] = []
        self.damaged: list[DamagedRange] = []
        self.open_damage: int | None = None  # the start of damaged bytes that no valid record follows yet
        # The size of the incomplete record at the end of the last call: the next call needs so many bytes.
        self.next_record_bytes = 0
        self._layouts = layouts
        self._lengths: dict[bytes, int] = {}  # by header; a cached one needs no checksum
        self._min_period = 1
        self._read_by: dict[Cycle, tuple[int, int]] = {}  # uses of each cycle, and the records it has read
        self._plugins: dict[str, str] = {}
        self._is_mindspore = False
        self._blocks: list[Block] = []
        self._loose: dict[str, list[tuple[float, int, float]]] = {}
        self._doubles: set[str] = set()  # loose tags that need float64

    def feed(self, data: bytes, offset: int) -> int:
        """Decodes the complete records of a chunk that starts at `offset`; returns the number of bytes consumed.

        The chunk starts with the bytes that the last call did not consume. A record that is too large is skipped,
        so the result can exceed `len(data)`.
        """
        at, end = 0, len(data)
        self.next_record_bytes = 0
        waiting: list[_Waiting] = []
        while at + HEADER_BYTES <= end:
            header = data[at : at + HEADER_BYTES]
            length = self._lengths.get(header)
            if length is None:
                length = self._length(header)
            if length is None or self.open_damage is not None:
                self._read_waiting(data, waiting, offset)
                at = self._resync(data, at, offset)
                continue
            stop = at + FRAME_BYTES + length
            if stop > end:
                if length > self._limits.max_record_bytes:
                    self._read_waiting(data, waiting, offset)
                    self._report(offset + at, offset + stop, f"a record of {length:,} bytes is too large")
                    at = stop  # the caller skips the bytes beyond the chunk
                else:
                    self.next_record_bytes = stop - at
                break
            record = self._identified(data, at, stop, offset)
            if record.layout is not None:
                cycle = self._layouts.cycle_from(record.layout)
                if cycle is not None and cycle.records >= self._min_period and cycle.repeats(data, at):
                    self._read_waiting(data, waiting, offset)
                    at = self._read_cycles(cycle, data, at, offset)
                    continue
            waiting.append(record)
            at = record.end
            if len(waiting) in _WINDOWS:
                at = self._read_window(data, waiting, at, offset)
        self._read_waiting(data, waiting, offset)
        return at

    def pop_scalars(self) -> dict[str, Series]:
        """Returns the points decoded since the last call, for each tag in the order of the file."""
        self._settle()
        series = _joined(self._blocks)
        self._blocks = []
        return series

    # ---- records --------------------------------------------------------------------------------------------

    def _length(self, header: bytes) -> int | None:
        """Returns the length in a header; None where its checksum is wrong."""
        if _UINT32.unpack_from(header, 8)[0] != masked(crc32c(header[:8])):
            return None
        if len(self._lengths) >= _MAX_LENGTHS:
            self._lengths.clear()
        length: int = _UINT64.unpack_from(header)[0]
        self._lengths[header] = length
        return length

    def _identified(self, data: bytes, at: int, end: int, offset: int) -> _Waiting:
        record = data[at:end]
        layout = self._layouts.find(record)
        if layout is not None:
            return _Waiting(at, end, layout, None)
        message = None
        payload = record[HEADER_BYTES:-FOOTER_BYTES]
        if _UINT32.unpack_from(record, len(record) - FOOTER_BYTES)[0] != masked(crc32c(payload)):
            # Where bytes are missing, the length of the record spans those that follow it, which can be valid.
            inner = self._next_header(data, at + HEADER_BYTES, min(end + HEADER_BYTES, len(data)))
            end = end if inner is None else inner
            self._report(offset + at, offset + end, _WRONG_CHECKSUM)
            return _Waiting(at, end, None, None)
        try:
            message = parse_message(payload, self._plugins, is_mindspore=self._is_mindspore)
        except ValueError as error:  # written so, since the checksum is right
            self._report(offset + at, offset + end, f"a record that is not an event: {error}")
            return _Waiting(at, end, None, None)
        if message.version:
            self._is_mindspore = message.version.lower().startswith("mindspore")
        if message.has_layout:
            return _Waiting(at, end, self._layouts.add(record, message), None)
        return _Waiting(at, end, None, message)

    def _read_window(self, data: bytes, waiting: list[_Waiting], at: int, offset: int) -> int:
        """Searches the waiting records for a cycle, and reads it from its start."""
        match = period_of([record.layout for record in waiting], self._min_period)
        if match is None:
            if len(waiting) == _WINDOWS[-1]:
                self._read_waiting(data, waiting, offset)
            return at
        first, period = match
        layouts = [record.layout for record in waiting[first : first + period] if record.layout is not None]
        at = waiting[first].at
        del waiting[first:]
        self._read_waiting(data, waiting, offset)
        return self._read_cycles(self._layouts.add_cycle(layouts), data, at, offset)

    def _read_waiting(self, data: bytes, waiting: list[_Waiting], offset: int) -> None:
        """Reads records that are in no cycle: many of one layout together, all others one by one."""
        together = self._alike(waiting) if len(waiting) >= _WINDOWS[0] else {}
        for many, starts in together.items():
            self._read_together(many, data, starts, offset)
        for at, end, layout, message in waiting:
            if layout is not None:
                if layout in together:
                    continue
                payload = data[at + HEADER_BYTES : end - FOOTER_BYTES]
                if _UINT32.unpack_from(data, end - FOOTER_BYTES)[0] != masked(crc32c(payload)):
                    self._report(offset + at, offset + end, _WRONG_CHECKSUM)
                    continue
                wall, step, values = layout.read(data, at)
                for tag, (_, code), value in zip(layout.tags, layout.values, values, strict=True):
                    self._add(tag, code, (wall, step, value))
            elif message is not None:
                self.other_events += message.other_events
                for scalar in message.scalars:
                    self._add(scalar.tag, scalar.code, (message.wall, message.step, scalar.value))
        waiting.clear()

    def _alike(self, waiting: list[_Waiting]) -> dict[RecordLayout, list[int]]:
        """Returns layouts with many records and tags that no other record has, with the records' offsets."""
        # A tag that several layouts have would get its points out of order.
        starts_by_layout: dict[RecordLayout, list[int]] = {}
        writers: Counter[str] = Counter()
        for record in waiting:
            if record.layout is not None:
                starts_by_layout.setdefault(record.layout, []).append(record.at)
            elif record.message is not None:
                writers.update({scalar.tag for scalar in record.message.scalars})
        for layout in starts_by_layout:
            writers.update(set(layout.tags))
        return {
            layout: starts
            for layout, starts in starts_by_layout.items()
            if len(starts) >= _MIN_ALIKE and all(writers[tag] == 1 for tag in layout.tags)
        }

    def _read_together(self, layout: RecordLayout, data: bytes, starts: list[int], offset: int) -> None:
        self._settle()
        cycle = self._layouts.single(layout)
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), layout.size)
        self._read_rows(cycle, windows[starts], [offset + at for at in starts])

    def _add(self, tag: str, code: str, point: tuple[float, int, float]) -> None:
        self._loose.setdefault(tag, []).append(point)
        if code != "<f4":
            self._doubles.add(tag)

    def _read_cycles(self, cycle: Cycle, data: bytes, at: int, offset: int) -> int:
        """Reads cycles as long as they repeat; returns the offset after them."""
        self._settle()
        start, batch_bytes = at, _FIRST_BATCH_BYTES
        while True:
            count = min(len(data) - at, batch_bytes) // cycle.size or min((len(data) - at) // cycle.size, 1)
            rows = np.frombuffer(data, np.uint8, count * cycle.size, at).reshape(count, cycle.size)
            valid = cycle.count_in(rows)
            rows = rows[:valid]
            if valid:
                self._read_rows(cycle, rows, range(offset + at, offset + at + valid * cycle.size, cycle.size))
            at += valid * cycle.size
            if valid < count or not count:
                self._rate(cycle, (at - start) // cycle.size * cycle.records)
                return at
            batch_bytes = min(batch_bytes * 4, _LARGEST_BATCH_BYTES)

    def _read_rows(self, cycle: Cycle, rows: Bytes, offsets: Sequence[int]) -> None:
        """Reads cycles at the given offsets of the file."""
        damaged = cycle.damaged_in(rows)
        if damaged is not None:
            ends = [*cycle.starts[1:], cycle.size]
            for row, record in np.argwhere(damaged).tolist():
                start = offsets[row]
                self._report(start + cycle.starts[record], start + ends[record], _WRONG_CHECKSUM)
        self._blocks += cycle.blocks(rows, damaged)

    def _rate(self, cycle: Cycle, records: int) -> None:
        """Counts the records that a cycle has read; after short reads only, searches for longer cycles."""
        uses, total = self._read_by.get(cycle, (0, 0))
        self._read_by[cycle] = uses, total = uses + 1, total + records
        if uses >= _FEW_USES and total < uses * _FEW_RECORDS:
            self._min_period = max(self._min_period, cycle.records + 1)
            self._read_by = {}

    def _settle(self) -> None:
        """Turns the points that were read one by one into blocks, one for all tags with equally many points."""
        alike: dict[tuple[int, bool], list[str]] = {}
        for tag, points in self._loose.items():
            alike.setdefault((len(points), tag in self._doubles), []).append(tag)
        for (count, is_double), tags in alike.items():
            points = [point for tag in tags for point in self._loose[tag]]
            shape = len(tags), count
            walls, steps, numbers = zip(*points, strict=True)
            wall = np.array(walls, np.float64).reshape(shape)
            step = np.array(steps, np.int64).reshape(shape)
            value: Values = np.array(numbers, np.float64 if is_double else np.float32).reshape(shape)
            self._blocks.append(Block(tuple(tags), tuple(range(len(tags))), wall, step, value))
        self._loose, self._doubles = {}, set()

    # ---- damage ---------------------------------------------------------------------------------------------

    def _resync(self, data: bytes, at: int, offset: int) -> int:
        """Returns the offset of the next valid header after damage, or of the position to continue the search."""
        damage_start = self.open_damage if self.open_damage is not None else offset + at
        header_at = self._next_header(data, at, len(data))
        if header_at is None:
            self.open_damage = damage_start
            return max(len(data) - HEADER_BYTES + 1, at + 1)
        self.open_damage = None
        self._report(damage_start, offset + header_at, _NO_HEADER)
        return header_at

    def _next_header(self, data: bytes, at: int, end: int) -> int | None:
        """Returns the offset of the first valid header between `at` and `end`."""
        # Lengths are above 0 and below 2**32, so a header has four zeros after four bytes that are not all zeros.
        # Only such offsets are checked: random bytes and runs of zeros have hardly any.
        searched_bytes = self._limits.searched_bytes
        for start in range(at, end - HEADER_BYTES + 1, searched_bytes):
            size = min(searched_bytes + HEADER_BYTES - 1, end - start)
            some = np.frombuffer(data, np.uint8, size, start)
            count = size - HEADER_BYTES + 1
            zero = some == 0
            two = zero[:-1] & zero[1:]
            four = two[:-2] & two[2:]
            candidates = np.flatnonzero(four[4 : 4 + count] & ~four[:count])
            if not candidates.size:
                continue
            uint32s = np.ndarray((size - 3,), "<u4", data, start, (1,))  # at every byte
            headers = candidates[uint32s[candidates + 8] == header_footers(uint32s[candidates])]
            if headers.size:
                return start + int(headers[0])
        return None

    def close_damage(self, end: int) -> None:
        """Reports bytes that no valid record follows as damaged."""
        if self.open_damage is not None:
            self._report(self.open_damage, end, _NO_HEADER)
            self.open_damage = None

    def _report(self, start: int, end: int, reason: str) -> None:
        last = self.damaged[-1] if self.damaged else None
        if last is not None and last.end == start and last.reason == reason:
            self.damaged[-1] = DamagedRange(last.start, end, reason)
        else:
            self.damaged.append(DamagedRange(start, end, reason))


_WRONG_CHECKSUM = "a record with a wrong checksum"
_NO_HEADER = "bytes that are not a record"


def _joined(blocks: Sequence[Block]) -> dict[str, Series]:
    """Returns the points of each tag, in the order of the blocks."""
    alike: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        alike.setdefault((block.tags, block.records, block.value.dtype), []).append(block)
    series_by_tag: dict[str, Series] = {}
    if sum(len(group[0].tags) for group in alike.values()) == len({tag for block in blocks for tag in block.tags}):
        # Each tag is in blocks of one group only, so complete blocks are joined, without a loop over tags.
        for group in alike.values():
            wall, step = _beside([block.wall for block in group]), _beside([block.step for block in group])
            value = _beside([block.value for block in group])
            for row, (tag, record) in enumerate(zip(group[0].tags, group[0].records, strict=True)):
                series_by_tag[tag] = Series(tag, wall[record], step[record], value[row])
        return series_by_tag
    rows_by_tag: dict[str, list[tuple[Block, int]]] = {}
    for block in blocks:
        for row, tag in enumerate(block.tags):
            rows_by_tag.setdefault(tag, []).append((block, row))
    # The tags of one record share its time and step, which are most of the memory of their points.
    shared: dict[tuple[tuple[int, int], ...], tuple[Floats, Integers]] = {}
    for tag, rows in rows_by_tag.items():
        key = tuple((id(block.wall), block.records[row]) for block, row in rows)
        if key not in shared:
            records = [(block, block.records[row]) for block, row in rows]
            wall = np.concatenate([block.wall[record] for block, record in records])
            shared[key] = wall, np.concatenate([block.step[record] for block, record in records])
        series_by_tag[tag] = Series(tag, *shared[key], np.concatenate([block.value[row] for block, row in rows]))
    return series_by_tag


def _beside(columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
