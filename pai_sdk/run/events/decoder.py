"""Decodes the bytes of an event file into columns of points; damaged ranges are skipped and reported."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pai_sdk.run.events.checksums import header_footers
from pai_sdk.run.events.layouts import (
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
from pai_sdk.run.events.message import EventMessage, parse_message
from pai_sdk.run.events.other import OtherEvent
from pai_sdk.run.events.series import Floats, Integers, Series, Values
from pai_sdk.run.events.writer import crc32c, masked

__all__ = ["LARGEST_RECORD_BYTES", "DamagedRange", "EventDecoder"]

LARGEST_RECORD_BYTES = 256 << 20
_SEARCHED_BYTES = 1 << 17  # that are searched at once for the next header
_FIRST_BATCH_BYTES = 1 << 16
_LARGEST_BATCH_BYTES = 1 << 20
_WINDOWS = (32, 128, 512, 2048)  # records after which a cycle is looked for
_MOST_LENGTHS = 4096
_FEW_USES, _FEW_RECORDS = 4, 100  # a cycle that gives fewer records than this is no gain
_LEAST_ALIKE = 8  # records of one layout that are read together

_UINT32 = struct.Struct("<I")
_UINT64 = struct.Struct("<Q")

_layouts = LayoutCache()  # one for the process: the files of a thousand runs have the same few layouts


@dataclass(frozen=True)
class DamagedRange:
    """Bytes of a file that are no valid records, and were passed over.

    Attributes:
        start: the first byte.
        end: the byte behind the last one.
        reason: what is wrong with them.
        path: of the file, where several are read; empty otherwise.
    """

    start: int
    end: int
    reason: str
    path: str = ""


class _Waiting(NamedTuple):
    """A record that was identified and not read yet."""

    at: int
    end: int
    layout: RecordLayout | None
    message: EventMessage | None


class EventDecoder:
    """Decodes one file, piece by piece, in order.

    Args:
        layouts: what is known of the records of other files.

    Attributes:
        others: what was found beside numbers.
        damaged: the ranges that were passed over.
        open_damage: where bytes begin behind which no valid record was found yet; None where there are none.
        wanted: how many bytes, from where the last call ended, the next record has. Fewer are of no use.
    """

    def __init__(self, layouts: LayoutCache = _layouts) -> None:
        self.others: list[OtherEvent] = []
        self.damaged: list[DamagedRange] = []
        self.open_damage: int | None = None
        self.wanted = 0
        self._layouts = layouts
        self._lengths: dict[bytes, int] = {}
        self._least_period = 1
        self._read_by: dict[Cycle, tuple[int, int]] = {}  # how often each was used, and for how many records
        self._plugins: dict[str, str] = {}
        self._is_mindspore = False
        self._blocks: list[Block] = []
        self._loose: dict[str, list[tuple[float, int, float]]] = {}
        self._doubles: set[str] = set()  # tags among the loose ones whose numbers float32 does not hold

    def feed(self, data: bytes, offset: int) -> int:
        """Decode the whole records in some bytes of the file.

        Args:
            data: the bytes; the rest that was not taken last time, and what follows it.
            offset: of the first one in the file.

        Returns:
            How many bytes were taken. They can be more than were given: those of a record that is too large are
            passed over.
        """
        at, end = 0, len(data)
        self.wanted = 0
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
                if length > LARGEST_RECORD_BYTES:
                    self._read_waiting(data, waiting, offset)
                    self._report(offset + at, offset + stop, f"a record of {length:,} bytes is too large")
                    at = stop
                else:
                    self.wanted = stop - at
                break
            record = self._identified(data, at, stop, offset)
            if record.layout is not None:
                cycle = self._layouts.cycle_from(record.layout)
                if cycle is not None and cycle.records >= self._least_period and cycle.repeats(data, at):
                    self._read_waiting(data, waiting, offset)
                    at = self._read_cycles(cycle, data, at, offset)
                    continue
            waiting.append(record)
            at = record.end
            if len(waiting) in _WINDOWS:
                at = self._read_window(data, waiting, at, offset)
        self._read_waiting(data, waiting, offset)
        return at

    def take(self) -> dict[str, Series]:
        """The points that were found since the last call, for each tag in the order of the file."""
        self._settle()
        found = _joined(self._blocks)
        self._blocks = []
        return found

    # ---- records --------------------------------------------------------------------------------------------

    def _length(self, header: bytes) -> int | None:
        """The length in a header; None where its checksum is wrong."""
        if _UINT32.unpack_from(header, 8)[0] != masked(crc32c(header[:8])):
            return None
        if len(self._lengths) >= _MOST_LENGTHS:
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
            # Where bytes are missing, the record seems to go on over those that follow it.
            inner = self._next_header(data, at + HEADER_BYTES, min(end + HEADER_BYTES, len(data)))
            end = end if inner is None else inner
            self._report(offset + at, offset + end, _WRONG_CHECKSUM)
            return _Waiting(at, end, None, None)
        try:
            message = parse_message(payload, self._plugins, is_mindspore=self._is_mindspore)
        except ValueError as error:  # its checksum says that it was written so
            self._report(offset + at, offset + end, f"a record that is not an event: {error}")
            return _Waiting(at, end, None, None)
        if message.version:
            self._is_mindspore = message.version.lower().startswith("mindspore")
        if message.has_layout:
            return _Waiting(at, end, self._layouts.add(record, message), None)
        return _Waiting(at, end, None, message)

    def _read_window(self, data: bytes, waiting: list[_Waiting], at: int, offset: int) -> int:
        """After some records: look for a cycle among them, and read it from its beginning."""
        found = period_of([record.layout for record in waiting], self._least_period)
        if found is None:
            if len(waiting) == _WINDOWS[-1]:
                self._read_waiting(data, waiting, offset)
            return at
        begin, period = found
        layouts = [record.layout for record in waiting[begin : begin + period] if record.layout is not None]
        at = waiting[begin].at
        del waiting[begin:]
        self._read_waiting(data, waiting, offset)
        return self._read_cycles(self._layouts.add_cycle(layouts), data, at, offset)

    def _read_waiting(self, data: bytes, waiting: list[_Waiting], offset: int) -> None:
        """Read records that are in no cycle: many of one layout together, others one by one."""
        together = self._alike(waiting) if len(waiting) >= _WINDOWS[0] else {}
        for many, places in together.items():
            self._read_together(many, data, places, offset)
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
                self.others += message.others
                for scalar in message.scalars:
                    self._add(scalar.tag, scalar.code, (message.wall, message.step, scalar.value))
        waiting.clear()

    def _alike(self, waiting: list[_Waiting]) -> dict[RecordLayout, list[int]]:
        """Finds layouts with many records and tags that no other record has; returns the records' offsets.

        Tags that others have too would come out of order.
        """
        places: dict[RecordLayout, list[int]] = {}
        writers: Counter[str] = Counter()
        for record in waiting:
            if record.layout is not None:
                places.setdefault(record.layout, []).append(record.at)
            elif record.message is not None:
                writers.update({scalar.tag for scalar in record.message.scalars})
        for layout in places:
            writers.update(set(layout.tags))
        return {
            layout: found
            for layout, found in places.items()
            if len(found) >= _LEAST_ALIKE and all(writers[tag] == 1 for tag in layout.tags)
        }

    def _read_together(self, layout: RecordLayout, data: bytes, places: list[int], offset: int) -> None:
        self._settle()
        cycle = self._layouts.single(layout)
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), layout.size)
        self._read_rows(cycle, windows[places], [offset + at for at in places])

    def _add(self, tag: str, code: str, point: tuple[float, int, float]) -> None:
        self._loose.setdefault(tag, []).append(point)
        if code != "<f4":
            self._doubles.add(tag)

    def _read_cycles(self, cycle: Cycle, data: bytes, at: int, offset: int) -> int:
        """Read cycles as long as they repeat; returns where they end."""
        self._settle()
        begin, batch_bytes = at, _FIRST_BATCH_BYTES
        while True:
            count = min(len(data) - at, batch_bytes) // cycle.size or min((len(data) - at) // cycle.size, 1)
            rows = np.frombuffer(data, np.uint8, count * cycle.size, at).reshape(count, cycle.size)
            valid = cycle.count_in(rows)
            rows = rows[:valid]
            if valid:
                self._read_rows(cycle, rows, range(offset + at, offset + at + valid * cycle.size, cycle.size))
            at += valid * cycle.size
            if valid < count or not count:
                self._rate(cycle, (at - begin) // cycle.size * cycle.records)
                return at
            batch_bytes = min(batch_bytes * 4, _LARGEST_BATCH_BYTES)

    def _read_rows(self, cycle: Cycle, rows: Bytes, offsets: Sequence[int]) -> None:
        """Read cycles that begin at some offsets."""
        damaged = cycle.damaged_in(rows)
        if damaged is not None:
            ends = [*cycle.starts[1:], cycle.size]
            for row, record in np.argwhere(damaged).tolist():
                begin = offsets[row]
                self._report(begin + cycle.starts[record], begin + ends[record], _WRONG_CHECKSUM)
        self._blocks += cycle.blocks(rows, damaged)

    def _rate(self, cycle: Cycle, records: int) -> None:
        """Note how far a cycle went. One that ends soon each time may be a part of a longer one."""
        uses, total = self._read_by.get(cycle, (0, 0))
        self._read_by[cycle] = uses, total = uses + 1, total + records
        if uses >= _FEW_USES and total < uses * _FEW_RECORDS:
            self._least_period = max(self._least_period, cycle.records + 1)
            self._read_by = {}

    def _settle(self) -> None:
        """Make blocks of the points that were read one by one: of all tags with equally many points together."""
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
        """Behind a header that is none: where the next valid one begins, or where to search on."""
        begin = self.open_damage if self.open_damage is not None else offset + at
        found = self._next_header(data, at, len(data))
        if found is None:
            self.open_damage = begin
            return max(len(data) - HEADER_BYTES + 1, at + 1)
        self.open_damage = None
        self._report(begin, offset + found, _NO_HEADER)
        return found

    def _next_header(self, data: bytes, at: int, end: int) -> int | None:
        """Finds the first valid header between `at` and `end`; returns its offset.

        Lengths are below 2**32 and above 0. So only those places are looked at where four zeros follow four bytes
        that are not all zeros: in random bytes and in zeros there are hardly any.
        """
        for begin in range(at, end - HEADER_BYTES + 1, _SEARCHED_BYTES):
            size = min(_SEARCHED_BYTES + HEADER_BYTES - 1, end - begin)
            some = np.frombuffer(data, np.uint8, size, begin)
            count = size - HEADER_BYTES + 1
            zero = some == 0
            two = zero[:-1] & zero[1:]
            four = two[:-2] & two[2:]
            places = np.flatnonzero(four[4 : 4 + count] & ~four[:count])
            if not places.size:
                continue
            words = np.ndarray((size - 3,), "<u4", data, begin, (1,))  # at every byte
            found = places[words[places + 8] == header_footers(words[places])]
            if found.size:
                return begin + int(found[0])
        return None

    def close_damage(self, end: int) -> None:
        """Give up bytes behind which no valid record was found."""
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
_NO_HEADER = "bytes that are no record"


def _joined(blocks: Sequence[Block]) -> dict[str, Series]:
    """The points of each tag, in the order of the blocks."""
    alike: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        alike.setdefault((block.tags, block.records, block.value.dtype), []).append(block)
    found: dict[str, Series] = {}
    if sum(len(some[0].tags) for some in alike.values()) == len({tag for one in blocks for tag in one.tags}):
        # Each tag is in blocks of one kind only, so these can be joined as they are.
        for some in alike.values():
            wall, step = _beside([one.wall for one in some]), _beside([one.step for one in some])
            value = _beside([one.value for one in some])
            for row, (tag, record) in enumerate(zip(some[0].tags, some[0].records, strict=True)):
                found[tag] = Series(tag, wall[record], step[record], value[row])
        return found
    places: dict[str, list[tuple[Block, int]]] = {}
    for block in blocks:
        for row, tag in enumerate(block.tags):
            places.setdefault(tag, []).append((block, row))
    # The tags of one record have its time and step in common, which is most of the memory of their points.
    shared: dict[tuple[tuple[int, int], ...], tuple[Floats, Integers]] = {}
    for tag, rows in places.items():
        key = tuple((id(block.wall), block.records[row]) for block, row in rows)
        if key not in shared:
            records = [(block, block.records[row]) for block, row in rows]
            wall = np.concatenate([block.wall[record] for block, record in records])
            shared[key] = wall, np.concatenate([block.step[record] for block, record in records])
        found[tag] = Series(tag, *shared[key], np.concatenate([block.value[row] for block, row in rows]))
    return found


def _beside(columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
