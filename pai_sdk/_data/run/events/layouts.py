"""Reads many records of an event file at once, by the offsets of their numbers.

The records that a training writes are similar: the next value of a metric has the bytes of the last one, except
for time, step and number. A `RecordLayout` stores which bytes those are. A training repeats its layouts in one
order: a `Cycle`. The bytes of many cycles are a matrix with a row for each cycle, in which a number is a few
columns. All other bytes are compared, so the points are those that a reader of single records returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.checksums import BlockChecksum, unmasked
from pai_sdk._data.run.events.message import STRUCTS, EventMessage
from pai_sdk._data.run.events.series import Floats, Integers, Values
from pai_sdk._data.run.events.writer import crc32c

HEADER_BYTES = 12  # of a record: its length, and the checksum of that
FOOTER_BYTES = 4  # the checksum of the message
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

Bytes: TypeAlias = npt.NDArray[np.uint8]
Key = TypeVar("Key")

MIN_REPEATED = 16  # records; reading fewer one by one is faster than a matrix
_LAYOUT_COPIES, _CYCLE_COPIES = 4, 64  # their memory, about, in sizes of their records
_HEADER_MASK = (1 << 8 * HEADER_BYTES) - 1
_NATIVE_DTYPES = ("<f4", "<f8")  # types of the values of a series; all other types become float64


class Block(NamedTuple):
    """Points of several tags, as arrays with a row for each tag or record and a column for each point."""

    tags: tuple[str, ...]  # of the rows of `value`
    # For each tag, which row of `wall` and `step` it has; the values of one record share it.
    records: tuple[int, ...]
    wall: Floats  # when, in seconds since 1970
    step: Integers  # when, in the count of the training
    value: Values


class RecordLayout:
    """The offsets of the numbers in a record, from the beginning of its header."""

    __slots__ = ("_readers", "fixed", "mask", "size", "step_at", "step_size", "tags", "values", "wall_at")

    # Two layouts are equal when they are the same object: `LayoutCache` has one for each.

    def __init__(self, record: bytes, message: EventMessage) -> None:
        self.size = len(record)  # with header and footer
        self.wall_at = HEADER_BYTES + message.wall_at
        self.step_at = HEADER_BYTES + message.step_at if message.step_size else 0
        self.step_size = message.step_size
        self.tags = tuple(scalar.tag for scalar in message.scalars)
        self.values = tuple((HEADER_BYTES + scalar.at, scalar.code) for scalar in message.scalars)
        self._readers = tuple((at, STRUCTS[code]) for at, code in self.values)
        mask = bytearray(b"\xff" * self.size)
        varying = [(self.wall_at, 8), (self.size - FOOTER_BYTES, FOOTER_BYTES)]
        for scalar, (at, reader) in zip(message.scalars, self._readers, strict=True):
            varying += [(at, reader.size), *((HEADER_BYTES + start, size) for start, size in scalar.varies_at)]
        for at, size in varying:
            mask[at : at + size] = bytes(size)
        # The first bit of each byte of a varint is set when another byte follows: it is fixed within one layout.
        mask[self.step_at : self.step_at + self.step_size] = b"\x80" * self.step_size
        self.mask = int.from_bytes(mask, "little")
        self.fixed = int.from_bytes(record, "little") & self.mask

    def read(self, data: bytes, at: int) -> tuple[float, int, list[float]]:
        """Returns time, step and values of a record that has this layout."""
        wall = STRUCTS["<f8"].unpack_from(data, at + self.wall_at)[0]
        step = shift = 0
        for byte in data[at + self.step_at : at + self.step_at + self.step_size]:
            step |= (byte & 127) << shift
            shift += 7
        if shift >= 64:
            step = (step & 0xFFFFFFFFFFFFFFFF ^ 1 << 63) - (1 << 63)
        return wall, step, [float(reader.unpack_from(data, at + start)[0]) for start, reader in self._readers]


class Cycle:
    """Layouts in the order in which a file repeats them."""

    def __init__(self, layouts: Sequence[RecordLayout]) -> None:
        sizes = [layout.size for layout in layouts]
        self.size, self.records = sum(sizes), len(layouts)
        self.starts: list[int] = np.cumsum([0, *sizes[:-1]]).tolist()
        self._mask = np.frombuffer(
            b"".join(layout.mask.to_bytes(layout.size, "little") for layout in layouts), "u1"
        )
        self._fixed = np.frombuffer(
            b"".join(layout.fixed.to_bytes(layout.size, "little") for layout in layouts), "u1"
        )
        self._first = max(2, -(-MIN_REPEATED // self.records))
        self._first_mask, self._first_fixed = (
            int.from_bytes(row.tobytes() * self._first, "little") for row in (self._mask, self._fixed)
        )
        record_of = [at for at, layout in enumerate(layouts) for _ in layout.tags]
        values = [value for layout in layouts for value in layout.values]
        self._walls = _columns(self.starts, [layout.wall_at for layout in layouts], 8)
        self._footers = _columns(self.starts, [size - FOOTER_BYTES for size in sizes], FOOTER_BYTES)
        headers = [(layout.fixed & _HEADER_MASK).to_bytes(HEADER_BYTES, "little") for layout in layouts]
        self._checksum = BlockChecksum(headers, sizes)
        self._payloads = [
            (which, _columns([self.starts[at] for at in which], [HEADER_BYTES] * len(which), size - FRAME_BYTES))
            for size, which in _groups(sizes).items()
        ]
        self._steps = [
            (which, _columns([self.starts[at] for at in which], [layouts[at].step_at for at in which], size))
            for size, which in _groups([layout.step_size for layout in layouts]).items()
        ]
        tags = [tag for layout in layouts for tag in layout.tags]
        at_of = [self.starts[record] + start for record, (start, _) in zip(record_of, values, strict=True)]
        self._has_repeated_tags = len(set(tags)) < len(tags)
        self._values = [
            (
                tuple(tags[at] for at in which),
                tuple(record_of[at] for at in which),
                code,
                _columns([at_of[at] for at in which], [0] * len(which), np.dtype(code).itemsize),
            )
            for code, which in _groups([code for _, code in values]).items()
        ]

    def repeats(self, data: bytes, at: int) -> bool:
        """Returns True when several cycles begin at an offset."""
        size = self._first * self.size
        first = data[at : at + size]
        return len(first) == size and int.from_bytes(first, "little") & self._first_mask == self._first_fixed

    def count_in(self, rows: Bytes) -> int:
        """Counts the rows, from the first one on, that are cycles."""
        differs = (rows & self._mask) != self._fixed
        return int(differs.any(axis=1).argmax()) if differs.any() else len(rows)

    def damaged_in(self, rows: Bytes) -> npt.NDArray[np.bool_] | None:
        """Returns which records have a wrong checksum, as an array of rows × records; None where all are right."""
        footers = rows.take(self._footers, axis=1).view("<u4")[:, :, 0]
        expected = unmasked(footers)
        if self._checksum.holds(rows.tobytes(), footers, expected):
            return None
        damaged = np.zeros(expected.shape, bool)
        for which, columns in self._payloads:
            payloads = rows.take(columns, axis=1).reshape(-1, columns.shape[1])
            checksums = np.array([crc32c(payload.tobytes()) for payload in payloads], np.uint32)
            damaged[:, which] = checksums.reshape(len(rows), -1) != expected[:, which]
        return damaged

    def blocks(self, rows: Bytes, damaged: npt.NDArray[np.bool_] | None) -> Iterator[Block]:
        """Yields the points in the rows, without those of damaged records."""
        wall = _numbers(rows, self._walls, "<f8")
        step = np.empty(wall.shape, np.int64)
        for which, columns in self._steps:
            step[which] = _steps_in(rows, columns)
        for tags, records, code, columns in self._values:
            value = _numbers(rows, columns, code)
            block = Block(tags, records, wall, step, value if code in _NATIVE_DTYPES else value.astype(np.float64))
            if damaged is None and not self._has_repeated_tags:
                yield block
            else:
                yield from _blocks_by_tag(block, None if damaged is None else ~damaged.T)


def _blocks_by_tag(block: Block, is_valid: npt.NDArray[np.bool_] | None) -> Iterator[Block]:
    """Yields a block for each tag: for tags that a cycle has more than once, and where points are left out."""
    for tag, which in _groups(block.tags).items():
        records = [block.records[at] for at in which]
        columns = (block.wall[records], block.step[records], block.value[which])
        wall, step, value = (column.T.reshape(1, -1) for column in columns)
        if is_valid is not None:
            valid = is_valid[records].T.reshape(-1)
            wall, step, value = wall[:, valid], step[:, valid], value[:, valid]
        yield Block((tag,), (0,), wall, step, value)


def _groups(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Returns the indices of each key."""
    groups: dict[Key, list[int]] = {}
    for at, key in enumerate(keys):
        groups.setdefault(key, []).append(at)
    return groups


def _columns(starts: Sequence[int], within: Sequence[int], size: int) -> npt.NDArray[np.intp]:
    """Returns the columns of some bytes of each record in the cycle, as an array of records × size."""
    return np.asarray((np.array(starts) + np.array(within))[:, None] + np.arange(size), np.intp)


def _numbers(rows: Bytes, columns: npt.NDArray[np.intp], code: str) -> npt.NDArray[Any]:
    """Returns numbers of the rows, as an array of numbers × rows."""
    return np.ascontiguousarray(rows.take(columns, axis=1).view(code)[:, :, 0].T)


def _steps_in(rows: Bytes, columns: npt.NDArray[np.intp]) -> Integers:
    """Returns the steps in varints of one size, as an array of steps × rows."""
    steps = np.zeros((len(columns), len(rows)), np.uint64)
    for at in range(columns.shape[1]):
        part = rows.take(columns[:, at], axis=1).T & np.uint8(127)
        steps |= part.astype(np.uint64) << np.uint64(7 * at)
    return steps.view(np.int64)


class LayoutCache:
    """Caches layouts and cycles, since most files repeat those of other files. Thread-safe."""

    def __init__(self, *, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        # There is no lock. Each entry is complete when it is added, and none is changed; when the cache is full,
        # all entries are dropped. A lost entry changes only how fast a file is read.
        # Size of a record → (mask → fixed bytes → layout). The inner maps are tuples that are replaced, so that
        # no thread iterates over one that changes. Of two threads that add at once, one entry can be lost.
        self._layouts: dict[int, tuple[tuple[int, dict[int, RecordLayout]], ...]] = {}
        self._cycles: dict[RecordLayout, Cycle] = {}
        self._singles: dict[RecordLayout, Cycle] = {}
        self._bytes = 0

    def find(self, record: bytes) -> RecordLayout | None:
        """Returns the cached layout of a record."""
        number = int.from_bytes(record, "little")
        for mask, layouts in self._layouts.get(len(record), ()):
            layout = layouts.get(number & mask)
            if layout is not None:
                return layout
        return None

    def add(self, record: bytes, message: EventMessage) -> RecordLayout:
        """Adds the layout of a record whose message has one."""
        self._make_room(_LAYOUT_COPIES * len(record))
        layout = RecordLayout(record, message)
        existing = self._layouts.get(layout.size, ())
        for mask, layouts in existing:
            if mask == layout.mask:
                return layouts.setdefault(layout.fixed, layout)
        self._layouts[layout.size] = (*existing, (layout.mask, {layout.fixed: layout}))
        return layout

    def cycle_from(self, layout: RecordLayout) -> Cycle | None:
        """Returns the cached cycle that starts with a layout."""
        return self._cycles.get(layout)

    def add_cycle(self, layouts: Sequence[RecordLayout]) -> Cycle:
        """Adds a cycle."""
        cycle = Cycle(layouts)
        self._make_room(_CYCLE_COPIES * cycle.size)
        self._cycles[layouts[0]] = cycle
        return cycle

    def single(self, layout: RecordLayout) -> Cycle:
        """Returns the cycle of a single layout."""
        cycle = self._singles.get(layout)
        if cycle is None:
            cycle = Cycle([layout])
            self._make_room(_CYCLE_COPIES * cycle.size)
            self._singles[layout] = cycle
        return cycle

    def _make_room(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._max_bytes:
            self._layouts, self._cycles, self._singles, self._bytes = {}, {}, {}, size


def period_of(layouts: Sequence[object], min_period: int = 1) -> tuple[int, int] | None:
    """Returns start and number of records of the cycle at the end; None when the records do not repeat."""
    count = len(layouts)
    for period in range(min_period, count // 2 + 1):
        if layouts[-1 - period] is layouts[-1] and layouts[-period:] == layouts[-2 * period : -period]:
            start = count - 2 * period
            while start and layouts[start - 1] is layouts[start - 1 + period]:
                start -= 1
            if count - start >= MIN_REPEATED:
                return None if None in layouts[start:] else (start, period)  # None: a record without a layout
    return None
