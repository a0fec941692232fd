"""The lines of a log, by number, while it grows."""

from __future__ import annotations

import json
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.logs.index import LineBlock, LogIndex
from pai_sdk._data.logs.reader import InstanceLog, LogReader, OpenLog
from pai_sdk._data.logs.times import LogTimes
from tests.support.waiting import quickest


def merged_log(order: Path, paths: Sequence[Path]) -> LogReader:
    return LogReader(OpenLog([InstanceLog(path) for path in paths], order), is_open=True)


PIECES = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"\n", b"\n\n", b"\xff", b"\r\n", b"x" * 90]), max_size=25
)


def lines_of(content: bytes, *, is_open: bool) -> list[str]:
    """What the index must say, written the plain way."""
    lines = content.replace(b"\r\n", b"\n").decode("utf-8", errors="replace").split("\n")
    return lines[:-1] if is_open or lines[-1] == "" else lines


@given(PIECES, st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_any_page_at_any_time_is_what_a_plain_split_gives(pieces: list[bytes], start: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, content = Path(folder) / "log", b""
        index = LogIndex(path, block_bytes=16)
        for piece in pieces:
            with path.open("ab") as file:
                file.write(piece)
            content += piece
            for is_open in (True, False):
                expected = lines_of(content, is_open=is_open)
                assert index.count(is_open=is_open) == len(expected)
                assert (
                    index.read(start, start + size, is_open=is_open).decoded_lines
                    == expected[start : start + size]
                )
            assert index.read(0, 10**9, is_open=False).decoded_lines == lines_of(content, is_open=False)
            block = index.read(start, start + size, is_open=False)
            assert block.ends == [index.read(n, n + 1, is_open=False).end for n in block.numbers]
            assert len(block.ends) == len(block.decoded_lines)
        for offset in range(len(content) + 1):
            assert index.line_at(offset) == content[:offset].count(b"\n")


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    index = LogIndex(tmp_path / "none")
    assert index.count(is_open=False) == 0
    assert index.read(0, 10, is_open=False).decoded_lines == []


def test_a_very_long_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    long = "ü" * 300_000
    path.write_text(f"first\n{long}\nlast\n", encoding="utf-8")
    assert LogIndex(path).read(0, 10, is_open=True).decoded_lines == ["first", long, "last"]


def test_the_last_page_of_a_million_lines_is_quick(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"a line of some length, number %d\n" % n for n in range(1_000_000)))
    index = LogIndex(path)
    assert index.count(is_open=True) == 1_000_000

    def took_s() -> float:
        begun = time.perf_counter()
        for start in range(990_000, 1_000_000, 1000):
            page = index.read(start, start + 1000, is_open=True).decoded_lines
            assert page[0] == f"a line of some length, number {start}"
        return time.perf_counter() - begun

    assert quickest(took_s, enough_s=0.5) < 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=20), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_merged_pages_never_change_and_hold_every_line_in_order(writes: list[tuple[int, int]], size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{n}.log" for n in range(3)]
        written: list[list[str]] = [[], [], []]
        seen: list[str] = []

        order = Path(folder) / "order"
        log = merged_log(order, paths)
        for step, (instance, count) in enumerate(writes):
            with paths[instance].open("a") as file:
                for _ in range(count):
                    written[instance].append(f"{instance}:{len(written[instance])}")
                    file.write(written[instance][-1] + "\n")
            if step % 3 == 2:
                log = merged_log(order, paths)  # a restart
            now = [line for at in range(0, log.total, size) for line in log.page(at, size).decoded_lines]
            assert now[: len(seen)] == seen
            seen = now
        for instance, lines in enumerate(written):
            assert [line for line in seen if line.startswith(f"{instance}:")] == lines


def test_an_order_of_an_earlier_release_stays(tmp_path: Path) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    for path in paths:
        path.write_bytes(b"%b 0\n%b 1\n%b 2\n" % ((path.stem.encode(),) * 3))
    stored = "".join(json.dumps(stretch) + "\n" for stretch in ((1, 0, 2), (0, 0, 1), (1, 2, 1)))
    (tmp_path / "merged.order").write_text(stored)
    expected = ["b 0", "b 1", "a 0", "b 2", "a 1", "a 2"]
    for _ in range(2):
        assert merged_log(tmp_path / "merged.order", paths).page(0, 9).decoded_lines == expected
    assert (tmp_path / "merged.order").read_text() == stored + "[0, 1, 2]\n"


def test_an_order_grows_while_its_stretches_are_read(tmp_path: Path) -> None:
    paths = [tmp_path / "a.log", tmp_path / "b.log"]
    paths[0].write_bytes(b"1\n")
    log = merged_log(tmp_path / "merged.order", paths)
    assert log.total == 1
    starts, numbers = log.stretches_of(0)
    # numpy reads both through their buffers, while other requests read the log.
    with memoryview(cast("array[int]", starts)), memoryview(cast("array[int]", numbers)):
        for path in paths:
            with path.open("ab") as file:
                file.write(b"2\n")
        assert log.page(0, 9).decoded_lines == ["1", "2", "2"]


@pytest.mark.parametrize("left", [b"[0, 2", b"[0, 2, 1]", b"\0\0\0", b"[0]\n[0, 2, 1]\n"])
def test_the_order_outlives_a_write_that_was_cut_off(tmp_path: Path, left: bytes) -> None:
    log, order = tmp_path / "a.log", tmp_path / "merged.order"
    paths = [log, tmp_path / "b.log"]
    log.write_bytes(b"1\n2\n")
    assert merged_log(order, paths).total == 2
    with order.open("ab") as file:
        file.write(left)
    with log.open("ab") as file:
        file.write(b"3\n")
    for _ in range(2):
        assert merged_log(order, paths).page(0, 9).decoded_lines == ["1", "2", "3"]


def test_on_a_full_disk_what_is_in_order_is_told_and_the_rest_when_there_is_room(tmp_path: Path) -> None:
    paths, order = [tmp_path / "a.log", tmp_path / "b.log"], tmp_path / "merged.order"
    merged = merged_log(order, paths)
    paths[0].write_text("a1\n")
    assert merged.page(0, 9).decoded_lines == ["a1"]
    paths[1].write_text("b1\n")
    known = order.read_bytes()
    order.unlink()
    order.mkdir()  # cannot be written
    page = merged.page(0, 9)
    assert (page.total, page.decoded_lines) == (1, ["a1"])
    assert isinstance(page.error, IsADirectoryError)
    order.rmdir()
    order.write_bytes(known)
    assert merged.page(0, 9).decoded_lines == ["a1", "b1"]
    assert merged.page(0, 9).error is None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
@given(st.lists(st.tuples(PIECES, st.sampled_from([0.0, 0.3, 1.0, 5.0]), st.booleans()), max_size=12))
@settings(max_examples=150, deadline=None)
def test_lines_once_told_never_change_and_hold_every_byte(steps: list[tuple[list[bytes], float, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, clock, content = Path(folder) / "a.log", Clock(), b""
        index, told = LogIndex(path, clock=clock, block_bytes=16), list[str]()
        for pieces, pause_s, is_restarted in steps:
            with path.open("ab") as file:
                for piece in (b"\r%d" % len(content), *pieces):
                    ascii_piece = piece.replace(b"\xff", b"\r").decode("ascii", "replace").replace("\ufffd", "x")
                    file.write(ascii_piece.encode())
                    content += ascii_piece.encode()
            if is_restarted:
                index = LogIndex(path, clock=clock, block_bytes=16)
            for _ in range(2):
                count = index.count(is_open=True)
                now = index.read(0, count, is_open=True).decoded_lines
                assert now[: len(told)] == told
                ones = [index.read(n, n + 1, is_open=True) for n in range(count)]
                assert [one.decoded_lines for one in ones] == [[line] for line in now]
                assert index.line_at(len(content)) == count
                assert index.read(0, count, is_open=True).ends == [one.end for one in ones]
                told = now
                clock.now += pause_s
        whole = index.read(0, 10**9, is_open=False).decoded_lines
        assert whole[: len(told)] == told
        for mark in (b"\n", b"\r"):  # what is left out, or put at the end of what was cut
            content = content.replace(mark, b"")
        assert "".join(whole).replace("\r", "") == content.decode("utf-8", errors="replace")


def test_a_progress_bar_becomes_a_line_a_second(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    index, told = LogIndex(path, clock=clock), list[int]()
    index.count(is_open=True)
    for percent in range(100):  # ten updates a second
        clock.now += 0.1
        with path.open("ab") as file:
            file.write(b"\r%3d%%" % percent)
        told.append(index.count(is_open=True))
    assert told[9] == 0
    assert 7 <= told[-1] <= 10
    lines = index.read(0, 100, is_open=True).decoded_lines
    assert all(line.startswith("\r") for line in lines)
    clock.now += 1.1
    assert index.count(is_open=True) == told[-1] + 1, "one that stands still is told, too"
    assert index.read(told[-1], told[-1] + 1, is_open=True).decoded_lines[0].endswith(" 99%\r")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"no line end", []),
        (b"windows\r", ["windows\r"]),
        (b"windows\r\n", ["windows"]),
        (b"10%\r20%\r", ["10%\r20%\r"]),
        (b"\r", []),
        (b"\r50%", ["\r50%\r"]),
        (b"done\n\r50%", ["done", "\r50%\r"]),
    ],
)
def test_what_stands_still_is_told_if_it_is_drawn_over(tmp_path: Path, text: bytes, lines: list[str]) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(text)
    index = LogIndex(path, clock=clock)
    index.count(is_open=True)
    clock.now += 2
    count = index.count(is_open=True)
    assert index.read(0, count, is_open=True).decoded_lines == lines


@pytest.mark.parametrize("left", [b"5", b"x\n", b"2\n", b"\0\0"])
def test_cuts_outlive_a_write_that_was_cut_off(tmp_path: Path, left: bytes) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.write_bytes(b"\r10%")
    index = LogIndex(path, clock=clock)
    index.count(is_open=True)
    clock.now += 2
    assert index.count(is_open=True) == 1
    with (tmp_path / "a.cuts").open("ab") as file:
        file.write(left)
    with path.open("ab") as file:
        file.write(b"\r20%")
    for _ in range(2):
        index = LogIndex(path, clock=clock)
        index.count(is_open=True)
        clock.now += 2
        assert index.count(is_open=True) == 2
        assert index.read(0, 9, is_open=True).decoded_lines == ["\r10%\r", "\r20%\r"]


def test_two_readers_of_a_log_agree_where_a_progress_bar_is_cut(tmp_path: Path) -> None:
    path, clock = tmp_path / "a.log", Clock()
    path.touch()
    here, there = LogIndex(path, clock=clock), LogIndex(path, clock=clock)
    for step in range(60):
        with path.open("ab") as file:
            file.write(b"\r%d%%" % step if step % 7 else b"\r%d%%\n" % step)
        clock.now += 0.4
        readers = (here, there) if step % 3 else (there, here)
        for reader in readers[: 1 + step % 2]:
            reader.count(is_open=True)
    count = here.count(is_open=True)
    assert count > 12
    assert here.read(0, count, is_open=True).decoded_lines == there.read(0, count, is_open=True).decoded_lines
    assert (
        LogIndex(path).read(0, count, is_open=True).decoded_lines
        == here.read(0, count, is_open=True).decoded_lines
    )


@given(PIECES, st.integers(0, 12), st.integers(0, 12), st.integers(1, 60))
@settings(max_examples=150, deadline=None)
def test_lines_that_fit_are_whole_and_at_least_one(pieces: list[bytes], start: int, size: int, most: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(b"".join(pieces))
        index = LogIndex(path, block_bytes=16)
        all_of_them = index.read(start, start + size, is_open=False).decoded_lines
        found = index.read(start, start + size, is_open=False, max_bytes=most).decoded_lines
        assert found == all_of_them[: len(found)]
        assert bool(found) == bool(all_of_them)
        ends = b"".join(pieces).split(b"\n")[start : start + len(found)]
        assert len(found) <= 1 or sum(len(line) + 1 for line in ends) <= most + 1
        if len(found) < len(all_of_them):
            one_more = b"".join(pieces).split(b"\n")[start : start + len(found) + 1]
            assert sum(len(line) + 1 for line in one_more) > most


def test_a_block_has_the_text_and_the_ends_of_its_lines() -> None:
    block = LineBlock(range(2), 10, 16, b"1%\r2%\n", cuts=[12])
    assert (block.decoded_lines, block.ends) == (["1%\r", "\r2%"], [12, 16])


def test_a_missing_log_has_no_lines(tmp_path: Path) -> None:
    assert LogIndex(tmp_path / "train1-master-0.log").count(is_open=True) == 0


def test_of_the_times_of_a_long_log_the_last_are_read(tmp_path: Path) -> None:
    """The order of a job that has run for a day grows several times a second."""
    (tmp_path / "a.times").write_text("".join(f"{at}.000 {at * 10}\n" for at in range(1, 90_001)))
    log = InstanceLog(tmp_path / "a.log")
    everything, last = log.read_times(), log.read_times(899_000)
    assert (len(everything.times), len(last.times) < 10_000) == (90_000, True)
    for byte in (899_000, 899_001, 899_999):
        assert last.estimate(byte) == everything.estimate(byte)
    assert last.estimate(900_000) is None
    assert log.read_times(10) == log.read_times(0) == everything


def test_a_byte_has_the_time_of_the_first_size_behind_it() -> None:
    assert LogTimes((10.0, 11.0), (0, 500)).of_byte(499) == 11.0
