"""Event files as columns: the points that a reader of single records finds, however the file was written."""

from __future__ import annotations

import io
import itertools
import math
import random
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.run.events.decoder import EventDecoder, ReadLimits
from pai_sdk._data.run.events.files import EventChunk, EventFileReader, is_event_file
from pai_sdk._data.run.events.layouts import LayoutCache, period_of
from pai_sdk._data.run.events.other import OtherEvent
from pai_sdk._data.run.events.protobuf import fields
from pai_sdk._data.run.events.records import _next_record, read_scalars
from pai_sdk._data.run.events.series import Series
from pai_sdk._data.run.events.writer import EventWriter, crc32c
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk.errors import FileChangedError, ObjectNotFoundError, StorageError
from tests.support.event_files import (
    event,
    frame,
    mindspore_event,
    record_ends,
    simple,
    tensor,
    version,
    write_events,
)
from tests.support.messages import refused
from tests.support.waiting import quickest

Points = dict[str, list[tuple[float, int, float]]]


def points(scalars: dict[str, Series]) -> Points:
    return {
        tag: list(zip(one.wall.tolist(), one.step.tolist(), map(same, one.value.tolist()), strict=True))
        for tag, one in scalars.items()
        if len(one)
    }


def same(value: float) -> Any:
    """A number that equals itself, also NaN, and 0.0 is not -0.0."""
    return repr(value)


def one_by_one(path: Path) -> Points:
    """What the reader of single records finds."""
    found: Points = {}
    for one in read_scalars(path):
        found.setdefault(one.tag, []).append((one.wall_time, one.step, same(one.value)))
    return found


def read(path: Path) -> EventChunk:
    return EventFileReader(LocalStore(path.parent), path.name).read()


def decoded(content: bytes, *cuts: int, layouts: LayoutCache | None = None) -> tuple[Points, EventDecoder]:
    """Decode bytes that arrive in pieces."""
    decoder = EventDecoder(layouts or LayoutCache())
    at = 0
    for cut in [*sorted(cuts), len(content)]:
        at += decoder.feed(content[at:cut], at)
    return points(decoder.pop_scalars()), decoder


# ---- equal points -------------------------------------------------------------------------------------------

some_tags = st.sampled_from(["loss", "acc", "lr", "a/b", "ß", "x" * 200])
steps = st.integers(0, 300) | st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(width=64)


@st.composite
def writings(draw: st.DrawFn) -> list[tuple[dict[str, float], int]]:
    """What a training writes: loops with the same tags, with something else in between."""
    found: list[tuple[dict[str, float], int]] = []
    for _ in range(draw(st.integers(1, 3))):
        groups = draw(st.lists(st.lists(some_tags, min_size=1, max_size=3, unique=True), min_size=1, max_size=4))
        step = draw(steps)
        for number in range(draw(st.integers(0, 60))):
            for tags in groups:
                value = draw(numbers) if number < 3 else number * 0.1
                found.append((dict.fromkeys(tags, value), min(step + number, 2**63 - 1)))
    return found


@settings(max_examples=60, deadline=None)
@given(writings(), st.data())
def test_our_own_files_are_read_as_a_reader_of_single_records_does(
    writing: list[tuple[dict[str, float], int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with EventWriter(folder) as writer:
            for values, step in writing:
                writer.scalars(values, step, wall_time=step * 0.5)
        if not writing:
            return
        content = writer.path.read_bytes()
        cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=3))
        found, decoder = decoded(content, *cuts)
        assert found == one_by_one(writer.path)
        assert decoder.damaged == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 3)), max_size=6), st.data())
def test_any_order_of_any_kinds_of_records_is_read(
    blocks: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """In cycles and without order, with kinds that change the size of a record."""
    makers = [
        lambda step, tag: event(step, simple(tag, step / 7)),
        lambda step, tag: event(step, tensor(tag, step / 7)),
        lambda step, tag: event(step, tensor(tag, step / 7, dtype=np.float64)),
        lambda step, tag: event(step, simple(tag, 1.0), simple(tag + "/x", step)),
        lambda step, tag: event(step, simple(tag, step)) + event(step, tensor(tag + "t", [1, 2], plugin=False)),
    ]
    records = [version()]
    step = 0
    for kind, count, tags in blocks:
        for number in range(count):
            step += 1
            records.append(makers[kind](step, "tag" + "s" * (number % (tags + 1))))
    content = b"".join(records)
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=2))
    found, _ = decoded(content, *cuts)
    with tempfile.TemporaryDirectory() as folder:
        assert found == one_by_one(write_events(Path(folder) / "f", content))


@pytest.mark.parametrize("count", [5, 40, 300, 3000])
@pytest.mark.parametrize("tags", [1, 3, 40])
def test_cycles_of_any_length(count: int, tags: int) -> None:
    content = version() + b"".join(event(n // tags, simple(f"t{n % tags}", n)) for n in range(count))
    found, decoder = decoded(content)
    assert sum(map(len, found.values())) == count
    assert found["t0"] == [(1000.0 + n // tags, n // tags, same(float(n))) for n in range(0, count, tags)]
    assert decoder.damaged == []


def test_a_tag_twice_in_a_cycle_stays_in_order() -> None:
    content = b"".join(
        event(n, simple("a", 2 * n), simple("b", n)) + event(n, simple("a", 2 * n + 1)) for n in range(1, 90)
    )
    found, _ = decoded(content)
    assert [value for _, _, value in found["a"]] == [same(float(n)) for n in range(2, 180)]


def test_a_loop_with_something_else_now_and_then() -> None:
    """Every hundred steps an evaluation; the loop is found again behind it."""
    records = []
    for step in range(1, 1000):
        records += [event(step, simple(f"train/{n}", step + n)) for n in range(7)]
        if step % 100 == 0:
            records += [
                event(step, simple("eval/loss", step)),
                event(step, tensor("text", [b"hello"], dtype=object, plugin=False)),
            ]
    decoder = EventDecoder(LayoutCache())
    content = b"".join(records)
    assert decoder.feed(content, 0) == len(content)
    found = decoder.pop_scalars()
    assert [len(found[f"train/{n}"]) for n in range(7)] == [999] * 7
    assert found["train/3"].value.tolist() == [step + 3.0 for step in range(1, 1000)]
    assert found["eval/loss"].step.tolist() == list(range(100, 1000, 100))
    assert len(decoder.other_events) == 9


def test_many_small_cycles_that_are_parts_of_a_larger_one() -> None:
    content = b"".join(event(n, simple(tag, n)) for n in range(1, 120) for tag in "ababc")
    found, _ = decoded(content)
    assert [len(found[tag]) for tag in "abc"] == [238, 238, 119]


def test_tags_of_the_same_records_share_their_times_and_steps(tmp_path: Path) -> None:
    """Also when another tag of these records is in others too: the columns are most of the memory of points."""
    with EventWriter(tmp_path) as writer:
        for step in range(300):
            writer.scalars({"a": step / 3, "b": step / 7, "c": float(step)}, step)
        writer.scalars({"a": 1.0}, 300)
    found = read(writer.path).scalars
    assert points(found) == one_by_one(writer.path)
    for column in ("wall", "step"):
        assert np.shares_memory(getattr(found["b"], column), getattr(found["c"], column))
        assert not np.shares_memory(getattr(found["a"], column), getattr(found["b"], column))


def test_numbers_keep_their_type(tmp_path: Path) -> None:
    with EventWriter(tmp_path) as writer:
        for step in range(40):
            writer.scalars({"exact": 0.1}, step)
    content = b"".join(
        event(n, simple("rounded", 0.1), tensor("double", 0.1, dtype=np.float64)) for n in range(1, 40)
    )
    decoder = EventDecoder()
    decoder.feed(content, 0)
    found = {**decoder.pop_scalars(), **read(writer.path).scalars}
    assert {tag: (str(one.value.dtype), float(one.value[-1])) for tag, one in found.items()} == {
        "exact": ("float64", 0.1),
        "double": ("float64", 0.1),
        "rounded": ("float32", float(np.float32(0.1))),
    }


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, bool]
)
def test_tensors_of_every_type_are_numbers(dtype: Any) -> None:
    content = b"".join(
        event(n, tensor("x", n % 2, dtype=dtype), tensor("bare", n % 2, dtype=dtype, plugin=False))
        for n in range(1, 50)
    )
    found, _ = decoded(content)
    assert [value for _, _, value in found["x"]] == [same(float(n % 2)) for n in range(1, 50)]
    assert found["bare"] == found["x"]


def test_the_plugin_of_a_tag_is_known_from_its_first_value() -> None:
    """TensorFlow 2 may name it only once; a vector of one number is a number then."""
    content = (
        event(1, tensor("x", [0.5]))
        + event(2, tensor("x", [0.25], plugin=False))
        + event(3, tensor("y", [1.0], plugin=False))
    )
    found, decoder = decoded(content)
    assert [value for _, _, value in found["x"]] == ["0.5", "0.25"]
    assert "y" not in found
    assert [one.kind for one in decoder.other_events] == ["tensor"]


def test_files_of_mindspore(tmp_path: Path) -> None:
    records = [mindspore_event(n, "loss/auto", n / 2) for n in range(1, 60)]
    path = write_events(
        tmp_path / "x.out.events.summary.1600000000.host_MS",
        version("Mindspore.Event:1"),
        *records,
        mindspore_event(60, "weights", [(0.0, 0.5, 3), (0.5, 0.5, 4)]),
    )
    chunk = read(path)
    assert chunk.scalars["loss/auto"].value.tolist() == [n / 2 for n in range(1, 60)]
    (histogram,) = chunk.other_events
    assert (histogram.kind, histogram.step) == ("histogram", 60)
    assert histogram.histogram().tolist() == [[0, 0.5, 3], [0.5, 1, 4]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events.out.tfevents.1600000000.host", True),
        ("a/b/events.out.tfevents.1600000000.host.1.0.v2", True),
        ("run.out.events.summary.1600000000.host_MS", True),
        ("run.out.events.summary.1600000000.host_lineage", False),
        ("tfevents/other.txt", False),
        ("summary.txt", False),
    ],
)
def test_event_files_are_known_by_their_names(name: str, expected: bool) -> None:
    assert is_event_file(name) is expected


def test_more_layouts_than_are_kept() -> None:
    """Each tag is written once: layouts are of no use, and are forgotten."""
    content = b"".join(event(n, simple(f"tag {n}", n)) for n in range(1, 500))
    content += b"".join(event(n, simple(tag, n)) for n in range(1, 200) for tag in "ab")
    found, _ = decoded(content, layouts=LayoutCache(max_bytes=10_000))
    assert len(found) == 501
    assert len(found["b"]) == 199


# ---- files that grow ----------------------------------------------------------------------------------------


def test_a_file_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    """Also when its end is half a record: that is no damage."""
    content = version() + b"".join(event(n, simple("loss", n)) for n in range(1, 100))
    path = tmp_path / "events.out.tfevents.1.host"
    reader = EventFileReader(LocalStore(tmp_path), path.name)
    found: list[int] = []
    for end in [0, 5, 11, 12, 13, 60, *range(61, len(content), 331), len(content)]:
        path.write_bytes(content[:end])
        chunk = reader.read()
        assert chunk.damaged == []
        assert chunk.size == end
        assert reader.is_complete == (reader.offset == end)
        found += chunk.scalars["loss"].step.tolist() if chunk.scalars else []
    assert found == list(range(1, 100))
    assert reader.is_complete
    assert reader.read().scalars == {}


def test_only_so_much_is_read_as_the_listing_says(tmp_path: Path) -> None:
    records = [event(n, simple("loss", n)) for n in range(1, 4)]
    path = write_events(tmp_path / "events.out.tfevents.1.host", *records)
    reader = EventFileReader(LocalStore(tmp_path), path.name)
    assert len(reader.read(len(records[0]) + 5)) == 1
    assert reader.offset == len(records[0])
    assert len(reader.read()) == 2


class Counting(LocalStore):
    """Notes what is read."""

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        self.ranges = [*getattr(self, "ranges", []), (start, end)]
        return super().read(path, start, end)


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "events.out.tfevents.1.host", *(event(n, simple("loss", n)) for n in range(1, 99))
    )
    store = Counting(tmp_path)
    reader = EventFileReader(store, path.name)
    reader.read()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(event(99, simple("loss", 1)))
    assert len(reader.read()) == 1
    # A few bytes before are compared: they tell another file by them.
    assert store.ranges == [(0, None), (size - 64, None)]


def test_a_replaced_file_is_an_error(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1)))
    reader = EventFileReader(LocalStore(tmp_path), path.name)
    reader.read()
    write_events(path, event(1, simple("other", 1)), event(2, simple("other", 1)))
    with refused(FileChangedError):
        reader.read()
    path.write_bytes(b"")
    with pytest.raises(FileChangedError):
        reader.read()
    path.unlink()
    with pytest.raises(ObjectNotFoundError):
        reader.read()


class Chunked(LocalStore):
    """Yields small chunks, as a store does over a slow network."""

    def __init__(self, root: Path, chunk_bytes: int) -> None:
        super().__init__(root)
        self._chunk_bytes = chunk_bytes

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        for chunk in super().read(path, start, end):
            for at in range(0, len(chunk), self._chunk_bytes):
                yield chunk[at : at + self._chunk_bytes]


class Failing(LocalStore):
    """Fails after some bytes."""

    after = 0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        content = b"".join(super().read(path, start, end))
        if self.after < len(content):
            yield content[: self.after]
            raise StorageError("the connection broke")
        yield content


def test_what_fails_is_read_again(tmp_path: Path) -> None:
    """MGR-B10: the offset moves only over what was read."""
    path = write_events(
        tmp_path / "events.out.tfevents.1.host", *(event(n, simple("loss", n)) for n in range(1, 99))
    )
    store = Failing(tmp_path)
    reader = EventFileReader(store, path.name, ReadLimits(chunk_bytes=100))
    with refused(StorageError):
        reader.read()
    assert reader.offset == 0
    store.after = 1000
    chunk = reader.read()
    assert str(chunk.error) == "the connection broke"
    assert 0 < reader.offset <= 1000
    store.after = 10**9
    rest = reader.read()
    assert [*chunk.scalars["loss"].step, *rest.scalars["loss"].step] == list(range(1, 99))


# ---- damage -------------------------------------------------------------------------------------------------


def undamaged(records: list[bytes], begin: int, end: int) -> Points:
    """The points of the records that do not touch a range."""
    kept, at = [], 0
    for one in records:
        if at + len(one) <= begin or at >= end:
            kept.append(one)
        at += len(one)
    return decoded(b"".join(kept))[0]


@pytest.mark.parametrize("count", [10, 300])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damage_is_told_and_passed_over(count: int, data: st.DataObject) -> None:
    """MGR-B9: all records that are whole are read, and the range names those that are not."""
    records = [version(), *(event(n, simple(f"t{n % 3}", n)) for n in range(1, count))]
    content = bytearray(b"".join(records))
    begin = data.draw(st.integers(0, len(content) - 1))
    end = min(begin + data.draw(st.integers(1, 200)), len(content))
    changed = bytes(byte ^ data.draw(st.integers(1, 255)) for byte in content[begin:end])
    content[begin:end] = changed
    found, decoder = decoded(bytes(content), *data.draw(st.lists(st.integers(0, len(content)), max_size=2)))
    expected = undamaged(records, begin, end)
    assert {tag: sorted(some) for tag, some in found.items()} == {
        tag: sorted(some) for tag, some in expected.items()
    }
    ranges = [(one.start, one.end) for one in decoder.damaged]
    if decoder.open_damage is not None:
        ranges.append((decoder.open_damage, len(content)))
    assert ranges
    assert min(start for start, _ in ranges) <= begin
    assert end <= max(stop for _, stop in ranges)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_missing_bytes_cost_only_the_records_they_were_in(data: st.DataObject) -> None:
    records = [event(n, simple(f"t{n % 3}", n)) for n in range(1, 200)]
    content = b"".join(records)
    begin = data.draw(st.integers(0, len(content) - 1))
    end = min(begin + data.draw(st.integers(1, 500)), len(content))
    found, _ = decoded(content[:begin] + content[end:])
    expected = undamaged(records, begin, end)
    for tag, some in expected.items():
        missing = [point for point in some if point not in found.get(tag, [])]
        assert missing == []


def test_one_damaged_number_in_a_large_file_is_found() -> None:
    """Not only its header: each record is checked, also those that are read a thousand at once."""
    records = [event(n, simple(f"t{n % 10}", n)) for n in range(1, 20_000)]
    content = bytearray(b"".join(records))
    ends = record_ends(content)
    for number in (5_000, 12_345):
        content[ends[number] - 6] ^= 1  # in the number
    found, decoder = decoded(bytes(content))
    assert [(one.start, one.end) for one in decoder.damaged] == [(ends[n - 1], ends[n]) for n in (5_000, 12_345)]
    assert {one.reason for one in decoder.damaged} == {"a record with a wrong checksum"}
    assert sum(map(len, found.values())) == len(records) - 2


def test_zeros_at_the_end_are_read_again_when_they_are_filled(tmp_path: Path) -> None:
    """A file system may show the length of a file before its content."""
    whole = b"".join(event(n, simple("loss", n)) for n in range(1, 20))
    cut = record_ends(whole)[9]
    path = write_events(tmp_path / "events.out.tfevents.1.host", whole[:cut], bytes(len(whole) - cut))
    reader = EventFileReader(LocalStore(tmp_path), path.name)
    chunk = reader.read()
    assert len(chunk) == 10
    assert [(one.start, one.end) for one in chunk.damaged] == [(cut, len(whole))]
    assert not reader.is_complete
    assert reader.damaged == chunk.damaged
    write_events(path, whole)
    assert reader.read().scalars["loss"].step.tolist() == list(range(11, 20))
    assert reader.damaged == []
    assert reader.is_complete


def test_a_large_damaged_end_is_not_read_each_time(tmp_path: Path) -> None:
    path = write_events(tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1)), bytes(500))
    reader = EventFileReader(LocalStore(tmp_path), path.name, ReadLimits(max_reread_bytes=100))
    reader.read()
    assert reader.offset > 500
    with path.open("ab") as file:
        file.write(event(2, simple("loss", 2)))
    assert reader.read().scalars["loss"].step.tolist() == [2]
    assert [one.end - one.start for one in reader.damaged] == [500]


def first_header(content: bytes) -> int | None:
    """The first place with a valid header of a record that is not empty, by the definition."""
    for place in range(len(content) - 11):
        length, footer = struct.unpack_from("<QI", content, place)
        crc = crc32c(content[place : place + 8])
        if 0 < length < 2**32 and footer == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF:
            return place
    return None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.integers(1, 80).map(bytes),
            st.integers(0, 2**33).map(lambda number: number.to_bytes(8, "little")),
            st.integers(1, 2**32 - 1).map(lambda length: frame_header(length)),
            st.integers(1, 2**32 - 1).map(lambda length: frame_header(length)[:-1]),
        ),
        max_size=12,
    ),
    st.sampled_from([16, 1 << 17]),
)
def test_the_next_header_is_found_wherever_it_is(parts: list[bytes], searched: int) -> None:
    content = b"".join(parts)
    decoder = EventDecoder(LayoutCache(), ReadLimits(searched_bytes=searched))
    assert decoder._next_header(content, 0, len(content)) == first_header(content)
    found = _next_record(io.BytesIO(content), 0)
    wanted = first_header(content)
    assert found == (max(len(content) - 11, 1) if wanted is None else wanted), "the reader of single records"


def frame_header(length: int) -> bytes:
    head = length.to_bytes(8, "little")
    crc = crc32c(head)
    return head + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@pytest.mark.parametrize("kind", ["zeros", "random", "numbers"])
def test_damaged_bytes_are_searched_as_fast_as_they_are_read(kind: str) -> None:
    """They took 66 s for a GiB. A hundred checksums for all of it: most places are no header at a glance."""
    content = {
        "zeros": bytes(64 << 20),
        "random": random.Random(1).randbytes(16 << 20),
        "numbers": np.arange(1 << 20).tobytes(),
    }[kind]
    decoder = EventDecoder(LayoutCache())

    def measure() -> float:
        begun = time.thread_time()
        assert decoder._next_header(content, 0, len(content)) is None
        return time.thread_time() - begun

    assert quickest(measure, enough_s=2.0, tries=3) < 2.0


# ---- a part at a time ---------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_file_read_in_slices_gives_what_it_gives_at_once(data: st.DataObject) -> None:
    records = [version(), *(event(n, simple(f"t{n % 3}", n)) for n in range(1, 60))]
    junk = st.one_of(st.binary(max_size=60), st.integers(1, 3000).map(bytes))
    for _ in range(data.draw(st.integers(0, 3))):
        records.insert(data.draw(st.integers(0, len(records))), data.draw(junk))
    with tempfile.TemporaryDirectory() as folder:
        path = write_events(Path(folder) / "events.out.tfevents.1.host", *records)
        whole = EventFileReader(LocalStore(path.parent), path.name)
        wanted = points(whole.read().scalars)
        limits = ReadLimits(chunk_bytes=data.draw(st.sampled_from([20, 100, 700])))
        store = Chunked(path.parent, data.draw(st.sampled_from([20, 300])))
        reader = EventFileReader(store, path.name, limits)
        found: Points = {}
        for _ in range(2000):
            offset = reader.offset
            chunk = reader.read(path.stat().st_size, lambda has_read: has_read)
            for tag, some in points(chunk.scalars).items():
                found.setdefault(tag, []).extend(some)
            if not chunk.is_partial:
                break
            assert reader.offset > offset, "each slice comes further"
        assert found == wanted
        assert reader.damaged == whole.damaged
        assert reader.offset == whole.offset


def test_a_large_record_is_joined_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_events(tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1)), frame(bytes(40_000)))
    fed: list[int] = []
    feed = EventDecoder.feed

    def counted(decoder: EventDecoder, data: bytes, offset: int) -> int:
        fed.append(len(data))
        return feed(decoder, data, offset)

    monkeypatch.setattr(EventDecoder, "feed", counted)
    reader = EventFileReader(Chunked(tmp_path, 100), path.name, ReadLimits(chunk_bytes=100))
    assert len(reader.read()) == 1
    assert sum(fed) < 2 * path.stat().st_size


def test_a_record_that_is_too_large_and_not_there_yet_makes_no_other_file(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "events.out.tfevents.1.host", event(1, simple("loss", 1)), frame_header(300 << 20)
    )
    reader = EventFileReader(LocalStore(tmp_path), path.name)
    for _ in range(4):
        reader.read(path.stat().st_size)
        with path.open("ab") as file:
            file.write(bytes(10))
    assert [one.reason for one in reader.damaged] == ["a record of 314,572,800 bytes is too large"]


def test_a_record_that_is_too_large_is_passed_over(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "events.out.tfevents.1.host",
        event(1, simple("loss", 1)),
        frame(bytes(5000)),
        event(2, simple("loss", 2)),
    )
    limits = ReadLimits(chunk_bytes=300, max_record_bytes=1000)
    chunk = EventFileReader(Chunked(tmp_path, 300), path.name, limits).read()
    assert chunk.scalars["loss"].step.tolist() == [1, 2]
    assert [one.reason for one in chunk.damaged] == ["a record of 5,000 bytes is too large"]


def test_a_record_that_is_no_message_is_told() -> None:
    content = event(1, simple("a", 1)) + frame(b"\xff\xff") + event(2, simple("a", 2))
    found, decoder = decoded(content)
    assert len(found["a"]) == 2
    assert [one.reason for one in decoder.damaged] == ["a record that is not an event: a varint is truncated"]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=600), st.binary(max_size=300))
def test_nothing_but_noise_is_no_error(noise: bytes, message: bytes) -> None:
    decoded(noise)
    decoded(frame(message) + noise + event(1, simple("a", 1)))


def test_random_files_damaged_at_random_places() -> None:
    """Every whole record of a file with cycles, texts and odd records, for many kinds of damage."""
    rng = random.Random(7)
    for _ in range(30):
        records = [version()]
        for step in range(1, rng.randrange(2, 120)):
            records += [event(step, simple(tag, step)) for tag in ("a", "bb", "ccc")]
            if rng.random() < 0.1:
                records.append(
                    event(step, tensor("text", [b"x" * rng.randrange(300)], dtype=object, plugin=False))
                )
        content = bytearray(b"".join(records))
        begin = rng.randrange(len(content))
        end = min(begin + rng.randrange(1, 400), len(content))
        content[begin:end] = rng.randbytes(end - begin)
        found, _ = decoded(bytes(content))
        for tag, some in undamaged(records, begin, end).items():
            assert set(some) <= set(found[tag])


# ---- beside numbers -----------------------------------------------------------------------------------------


def test_a_hyperparameter_that_was_written_as_null_is_not_missing(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import plugin_data_pb2

    start = plugin_data_pb2.SessionStartInfo()
    start.hparams["dropout"].null_value = 0
    start.hparams["lr"].number_value = 0.1
    start.hparams["empty"].SetInParent()  # a value without a kind
    content = plugin_data_pb2.HParamsPluginData(version=0, session_start_info=start).SerializeToString()

    event = OtherEvent("hparams", "_hparams_/session_start_info", 0, 0.0, content)

    assert event.hparams() == {"dropout": None, "lr": 0.1}


@pytest.mark.parametrize("has_tensor", [True, False])
def test_hyperparameters_are_metadata_with_an_empty_tensor_or_without_one(
    tmp_path: Path, has_tensor: bool
) -> None:
    """TensorFlow writes an empty tensor; torch 2.13.0 and tensorboardX 2.6.5 write none."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util.tensor_util import make_tensor_proto

    content = plugin_data_pb2.HParamsPluginData()
    content.session_start_info.hparams["lr"].number_value = 0.1
    values = [Summary.Value(tag="_hparams_/session_start_info"), Summary.Value(tag="layout")]
    for value, plugin in zip(values, ("hparams", "custom"), strict=True):
        value.metadata.plugin_data.plugin_name = plugin
        value.metadata.plugin_data.content = content.SerializeToString()
        if has_tensor:
            value.tensor.CopyFrom(make_tensor_proto([], dtype="float32"))
    path = write_events(tmp_path / "events.out.tfevents.1.host", *(event(0, value) for value in values))
    hparams, other = read(path).other_events
    assert hparams.hparams() == {"lr": 0.1}
    assert other.kind == ("custom" if has_tensor else "metadata")


def test_texts_histograms_tensors_and_hparams(tmp_path: Path) -> None:
    with EventWriter(tmp_path) as writer:
        writer.text("note", "# Größe", step=1)
        writer.histogram("weights", [0.0, 1.0, 1.0, 2.0, math.nan], step=2, buckets=2)
        writer.tensor("matrix", range(6), (2, 3), step=3)
        writer.hparams({"lr": 0.1, "layers": 3, "adam": True, "name": "x", "decay": None}, metrics=["loss"])
    text, histogram, matrix, experiment, session = read(writer.path).other_events
    assert (text.kind, text.tag, text.step, text.text()) == ("text", "note", 1, "# Größe")
    assert histogram.histogram().tolist() == [[0, 1, 1], [1, 2, 3]]
    assert matrix.tensor().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (experiment.kind, experiment.hparams()) == ("hparams", {})
    assert session.hparams() == {"lr": 0.1, "layers": 3.0, "adam": True, "name": "x", "decay": None}
    for wrong in (text.histogram, matrix.text):
        with pytest.raises(ValueError):
            wrong()


@given(
    st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.int64, np.uint8, bool, np.complex64]),
    st.lists(st.integers(0, 4), max_size=3),
)
def test_tensors_are_those_of_tensorboard(dtype: Any, shape: list[int]) -> None:
    from tensorboard.util.tensor_util import make_ndarray, make_tensor_proto

    from pai_sdk._data.run.events.other import tensor_of

    array = (np.arange(math.prod(shape)).reshape(shape) % 2).astype(dtype)
    proto = make_tensor_proto(array)
    found = tensor_of(proto.SerializeToString())
    assert found.dtype == array.dtype
    assert np.array_equal(found, make_ndarray(proto))


@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=30), st.integers(1, 8))
def test_histograms_with_limits_are_those_of_tensorboard(values: list[float], buckets: int) -> None:
    from tensorboard import data_compat
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
    from tensorboard.util.tensor_util import make_ndarray

    limits = np.unique(np.array(values, np.float64))[:buckets]
    counts = np.arange(len(limits)) % 3
    proto = HistogramProto(min=float(limits[0]) - 1, max=float(limits[-1]), bucket_limit=limits, bucket=counts)
    value = Summary.Value(tag="h", histo=proto)
    _, decoder = decoded(event(1, value))
    expected = make_ndarray(data_compat.migrate_value(value).tensor)
    assert np.array_equal(decoder.other_events[0].histogram().astype(np.float32).reshape(expected.shape), expected)


def test_values_in_a_row_without_their_time() -> None:
    """Fields that are zero are left out of a message; nothing is taken from the record before."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    bare = frame(Event(summary=Summary(value=[simple("a", 1)])).SerializeToString())
    found, _ = decoded(b"".join(itertools.repeat(bare, 40)))
    assert found == {"a": [(0.0, 0, "1.0")] * 40}


def test_the_fields_of_a_message() -> None:
    assert list(fields(bytes([0x08, 0x05, 0x12, 0x01, 0x61]), 0, 5)) == [(1, 0, 5, 1, 2), (2, 2, 0, 4, 5)]


@pytest.mark.parametrize(("layouts", "expected"), [("cab" + "ab" * 8, (1, 2)), ("cabab", None)])
def test_the_cycle_at_the_end(layouts: str, expected: tuple[int, int] | None) -> None:
    assert period_of(list(layouts)) == expected
