"""Reading a log: by line, by time, by byte and from its end; searched; and as a file."""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._data.logs.index import LogIndex
from pai_sdk._data.logs.merged import MergedOrder
from pai_sdk._data.logs.reader import InstanceLog, LogReader, LogWindow, OpenLog
from pai_sdk._data.logs.search import LogQuery, SearchStep, search
from tests.support.waiting import PATIENCE_S

PIECES = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"\n", b"\n\n", b"\xff", b"\r\n", b"ab" * 90]), max_size=25
)


def log_of(path: Path) -> LogReader:
    return LogReader(OpenLog([InstanceLog(path)], path), is_open=False)


def hits_of(steps: Iterator[SearchStep]) -> tuple[list[tuple[int, str]], int]:
    found, count = [], 0
    for step in steps:
        found += [(hit.line, hit.text[hit.start : hit.end]) for hit in step.hits]
        count += step.count
        assert step.trouble == ""
    return found, count


# ---- lines ------------------------------------------------------------------------------------------------------


@given(PIECES, st.integers(-12, 12), st.integers(1, 12))
@settings(max_examples=100)
def test_any_lines_are_those_of_the_index(pieces: list[bytes], start: int, count: int) -> None:
    content = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_bytes(content)
        page = log_of(path).page(start, count)
        index = LogIndex(path)
        total = index.count(is_open=False)
        first = max(0, total + start) if start < 0 else start
        assert page.total == total
        assert page.decoded_lines == index.read(first, first + count, is_open=False).decoded_lines
        assert [line.text for line in page.lines()] == page.decoded_lines
        assert [line.number for line in page.lines()] == list(range(first, first + page.count))
        for line in page.lines():
            begin = content[line.offset :].split(b"\n")[0].removesuffix(b"\r")
            assert begin.decode("utf-8", errors="replace") == line.text or content.endswith(b"\r")
            assert content[: line.offset].count(b"\n") == line.number


def test_the_cuts_of_a_progress_bar_are_lines_with_their_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"begin\n10%\r20%\r30%\nend\n")
    path.with_suffix(".cuts").write_text("9\n13\n")
    page = log_of(path).page(0, 10)
    assert [(line.offset, line.text) for line in page.lines()] == [
        (0, "begin"),
        (6, "10%\r"),
        (9, "\r20%\r"),
        (13, "\r30%"),
        (18, "end"),
    ]
    assert [line.text for line in page.lines()] == page.decoded_lines
    found, count = hits_of(search(log_of(path).instances, LogQuery("%")))
    assert (found, count) == ([(1, "%"), (2, "%"), (3, "%")], 3)


def test_a_line_beyond_all_bounds_is_shown_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.write(b"x" * (9 << 20))
        file.write(b"\nlast\n")
    page = log_of(path).page(1, 2)
    assert [len(line.text) for line in page.lines()] == [1 << 20]
    assert log_of(path).page(2, 2).decoded_lines == ["last"]


def test_a_line_is_found_by_its_time_and_by_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(10)))  # 7 bytes each
    path.with_suffix(".times").write_text("100 21\n200 42\n300 70\n")
    log = log_of(path)
    assert [log.line_at_time(at) for at in (0, 100, 150, 200, 201, 300, 301)] == [0, 0, 3, 3, 6, 6, 10]
    assert [line.time for line in log.page(2, 2).lines()] == [100.0, 200.0]
    assert [log.line_at_byte(at) for at in (0, 1, 7, 8, 69, 70, 1000)] == [0, 1, 1, 2, 10, 10, 10]


def test_lines_of_several_instances_have_one_order_that_stays(tmp_path: Path) -> None:
    instances = [InstanceLog(tmp_path / f"{name}.log") for name in ("master", "worker")]
    log = LogReader(OpenLog(instances, tmp_path / "merged.order"), is_open=True)
    expected = []
    for number in range(3):
        for name in ("master", "worker"):
            with (tmp_path / f"{name}.log").open("a") as file:
                file.write(f"{name} {number}\n")
        expected += [f"master {number}", f"worker {number}"]
        assert log.page(0, 100).decoded_lines == expected
    assert [(line.number, line.instance, line.offset) for line in log.page(-2, 2).lines()] == [
        (4, "master", 18),
        (5, "worker", 18),
    ]
    assert log.line_at_byte(9, "worker") == 3
    lines = gzip.decompress(b"".join(log.gzip())).decode().splitlines()
    assert lines[:2] == ["[master] master 0", "[worker] worker 0"]


def test_lines_that_nobody_has_read_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    """As in the first look at a job that has run for a while: not all of one instance, then all of the next."""
    names, steps = ("a", "b", "c"), 5
    for first, name in enumerate(names):
        text, noted = "", ""
        for step in range(steps):
            text += f"{name} {step}\n" * 2
            noted += f"{100 * step + first} {len(text)}\n"
        (tmp_path / f"{name}.log").write_text(text)
        (tmp_path / f"{name}.times").write_text(noted)

    def reader() -> LogReader:
        return LogReader(
            OpenLog([InstanceLog(tmp_path / f"{name}.log") for name in names], tmp_path / "order"), is_open=True
        )

    expected = [f"{name} {step}" for step in range(steps) for name in names for _ in range(2)]
    assert reader().page(0, 100).decoded_lines == expected
    with (tmp_path / "a.log").open("a") as log:
        log.write("a 5\n")
    assert reader().page(0, 100).decoded_lines == [*expected, "a 5"]


def test_an_order_by_many_times_is_made_of_some_of_them(tmp_path: Path) -> None:
    for first, name in enumerate(("a", "b")):
        (tmp_path / f"{name}.log").write_text("".join(f"{step}\n" for step in range(1000, 2000)))
        noted = "".join(f"{2 * number + first} {5 * number + 5}\n" for number in range(1000))
        (tmp_path / f"{name}.times").write_text(noted)
    logs = [InstanceLog(tmp_path / f"{name}.log") for name in ("a", "b")]
    log = OpenLog(logs, tmp_path / "order")
    log.order = MergedOrder(
        tmp_path / "order", [one.index for one in logs], [one.read_times for one in logs], max_times=7
    )
    lines = [*LogReader(log, is_open=False).page(0, 5000).lines()]
    assert len(lines) == 2000
    for name in ("a", "b"):
        assert [line.text for line in lines if line.instance == name] == [str(step) for step in range(1000, 2000)]
    late = max(abs(lines[n].time - lines[n + 1].time) for n in range(1999))
    assert late < 2000 / 7 * 1.5


def test_a_time_is_found_in_all_instances_also_after_a_restart(tmp_path: Path) -> None:
    paths = [tmp_path / "master.log", tmp_path / "worker.log"]
    paths[0].write_text("begin\nno line end")
    paths[0].with_suffix(".times").write_text("100 17\n")
    paths[1].write_text("one\ntwo\n")
    paths[1].with_suffix(".times").write_text("100 4\n300 8\n")

    def reader() -> LogReader:
        return LogReader(OpenLog([InstanceLog(path) for path in paths], tmp_path / "order"), is_open=False)

    assert reader().page(0, 9).decoded_lines == ["begin", "no line end", "one", "two"]
    assert [reader().line_at_time(at) for at in (50, 200, 400)] == [0, 3, 4]


# ---- search -----------------------------------------------------------------------------------------------------


def plain_hits(content: str, wanted: str) -> list[int]:
    return [number for number, line in enumerate(content.split("\n")) for _ in range(line.count(wanted))]


LINES = st.lists(st.text("abü\r €", max_size=12), max_size=30)


def test_a_line_beyond_all_bounds_is_divided_between_characters(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a€ü€", encoding="utf-8")
    assert hits_of(search(log_of(path).instances, LogQuery("€"), chunk_bytes=1)) == ([(0, "€"), (0, "€")], 2)


@given(LINES, st.text("abü€", min_size=1, max_size=3), st.integers(18, 60))  # a line has at most 36 bytes
def test_every_hit_is_counted_in_pieces_of_any_size(lines: list[str], wanted: str, piece: int) -> None:
    content = "\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_text(content, encoding="utf-8", newline="")
        expected = plain_hits(content, wanted)
        for query in (LogQuery(wanted), LogQuery(wanted, is_regex=True)):
            found, count = hits_of(search(log_of(path).instances, query, chunk_bytes=piece))
            assert [line for line, _ in found] == expected
            assert {text for _, text in found} <= {wanted}
            assert count == len(expected)
            steps = search(log_of(path).instances, query, max_hits=0, chunk_bytes=piece)
            assert hits_of(steps) == ([], len(expected))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"step \d+", [(0, "step 1"), (1, "step 2"), (3, "step 3")]),
        (r"^step", [(0, "step"), (1, "step"), (3, "step")]),
        (r"\d$", [(0, "1"), (1, "2")]),
        (r"1\s+step", []),  # across lines
        (r"[^z]+3", [(3, "step 3")]),
        (r"x*", [(2, "x")]),
        (r"(?i)X", [(2, "x")]),
    ],
)
def test_a_regular_expression_matches_within_lines(
    tmp_path: Path, pattern: str, expected: list[tuple[int, str]]
) -> None:
    path = tmp_path / "log"
    path.write_text("step 1\nstep 2\nx\nstep 3!\n")
    assert hits_of(search(log_of(path).instances, LogQuery(pattern, is_regex=True)))[0] == expected


def test_upper_and_lower_case_can_be_alike(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("Error\nerror\nE.ror\n")
    assert hits_of(search(log_of(path).instances, LogQuery("ERROR", ignores_case=True)))[1] == 2
    assert hits_of(search(log_of(path).instances, LogQuery("E.ROR", ignores_case=True)))[1] == 1


def test_a_pathological_pattern_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a" * 5000 + "!\n")
    begun = time.monotonic()
    *_, last = search(log_of(path).instances, LogQuery(r"(a|aa)+$", is_regex=True), time_limit_s=0.2)
    assert "takes too long" in last.trouble
    assert time.monotonic() - begun < PATIENCE_S / 2


def test_the_search_ends_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"hit\n" * (3 << 20))
    ticks = iter(range(1000))
    steps = [*search(log_of(path).instances, LogQuery("hit"), time_limit_s=2.5, clock=lambda: float(next(ticks)))]
    assert "more than 2.5 s" in steps[-1].trouble
    assert steps[-1].searched_bytes < 12 << 20


def test_a_window_ends_before_a_line_that_is_found_after_it(tmp_path: Path) -> None:
    """The job was silent for an hour: nothing that it wrote then is in a window that ends before."""
    path = tmp_path / "log"
    path.write_bytes(b"first\nlast\n")
    path.with_suffix(".times").write_text("100 6\n3700 11\n")
    log = InstanceLog(path)
    LogReader(OpenLog([log], tmp_path / "order"), is_open=False).page(0, 0)
    lifetime = LogWindow(90, 3800)
    windows = [LogWindow(None, end) for end in (50, 95, 100, 200, 3700, None)]
    found = [log.lines_in(window, lifetime, is_open=False) for window in windows]
    assert [len(numbers) for numbers in found] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("count", [1, 2])
def test_the_download_of_a_log_that_grows_faster_than_it_is_read_ends(tmp_path: Path, count: int) -> None:
    paths = [tmp_path / f"{number}.log" for number in range(count)]
    for path in paths:
        path.write_bytes(b"line\n" * 300_000)
    log = LogReader(OpenLog([InstanceLog(path) for path in paths], tmp_path / "order"), is_open=False)
    lines = 0
    for number, chunk in enumerate(log.chunks()):
        assert number < 100
        lines += chunk.count(b"\n")
        with paths[0].open("ab") as file:
            file.write(b"line\n" * 300_000)
    assert lines == count * 300_000
