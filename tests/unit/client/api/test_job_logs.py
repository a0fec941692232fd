"""A log addressed by line, from services that page in their own ways."""

from __future__ import annotations

import threading
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk._client.api.job_logs import JobLogs
from pai_sdk._client.api.later_parts import _end_of
from pai_sdk._client.api.responses import ApiResponse as Answer
from pai_sdk._client.api.responses import api_error
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.pai.record import LogPage
from pai_sdk.errors import InvalidRequestError, InvalidResponseError
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S
from tests.unit.client.api.scripted_server import Reply, ScriptedServer


class PagedLog:
    """Stands in for the transport: a service with a log, a largest page, and one of two ways to insist on it."""

    timeout_s = (5.0, 30.0)

    def __init__(self, count: int, *, largest: int = 10_000, refuses: bool = False, total: Any = str) -> None:
        self.lines = [f"line {n}" for n in range(count)]
        self.asked: list[dict[str, Any]] = []
        self.sent = 0
        self._largest, self._refuses, self._total = largest, refuses, total

    def call(self, action: str, method: str, path: str, params: Any, query: Any, **more: Any) -> Answer:
        self.asked.append({**query, **more})
        size = query["PageSize"]
        if size > self._largest:
            if self._refuses:
                raise api_error("PageSize", code="InvalidParameter", status_code=400, request_id=None)
            size = self._largest
        start = (query["PageNumber"] - 1) * size
        page = self.lines[start : start + size]
        self.sent += len(page)
        return Answer({"Logs": page, "TotalCount": self._total(len(self.lines))})


def logs_of(service: Any) -> JobLogs:
    return JobLogs(service)


def read(logs: JobLogs, start: int, limit: int = 1000, wait_s: float = 0.0) -> LogPage:
    return logs.read("t-1", "t-1-master-0", start=start, limit=limit, wait_s=wait_s)


@given(
    st.integers(0, 2500),
    st.sampled_from([20, 50, 100, 333, 1000, 10_000]),
    st.booleans(),
    st.sampled_from([str, int]),
    st.lists(st.tuples(st.integers(0, 2600), st.integers(1, 1500), st.sampled_from([0.0, 10.0])), max_size=6),
)
@settings(max_examples=300)
def test_lines_are_those_asked_for_whatever_the_pages(
    count: int, largest: int, refuses: bool, total: Any, reads: list[tuple[int, int, float]]
) -> None:
    service = PagedLog(count, largest=largest, refuses=refuses, total=total)
    logs = logs_of(service)
    for start, limit, wait_s in reads:
        start = min(start, count)  # a reader is never beyond the end
        page = read(logs, start, limit, wait_s)
        assert list(page.lines) == service.lines[start : start + len(page.lines)]
        assert len(page.lines) <= limit
        assert page.lines or start == count


@given(st.integers(0, 3000), st.sampled_from([20, 100, 1000]), st.booleans(), st.sampled_from([0.0, 10.0]))
@settings(max_examples=60)
def test_a_whole_log_line_by_line(count: int, largest: int, refuses: bool, wait_s: float) -> None:
    service = PagedLog(count, largest=largest, refuses=refuses)
    logs = logs_of(service)
    got: list[str] = []
    while lines := read(logs, len(got), wait_s=wait_s).lines:
        got += lines
    assert got == service.lines


@given(st.lists(st.integers(0, 700), min_size=1, max_size=12), st.sampled_from([100, 1000]))
@settings(max_examples=60)
def test_a_log_that_grows_while_it_is_followed(growth: list[int], largest: int) -> None:
    service = PagedLog(0, largest=largest)
    logs = logs_of(service)
    got: list[str] = []
    for more in growth:
        service.lines += [f"line {n}" for n in range(len(service.lines), len(service.lines) + more)]
        while lines := read(logs, len(got), wait_s=10.0).lines:
            got += lines
    assert got == service.lines


@pytest.mark.parametrize("wait_s", [0.0, 10.0])
@pytest.mark.parametrize(("largest", "refuses"), [(1000, False), (100, True), (100, False), (20, False)])
def test_what_has_been_read_is_hardly_fetched_again(largest: int, refuses: bool, wait_s: float) -> None:
    """A page counted by its number holds old lines too; those of a log that grows all day must stay few."""
    service = PagedLog(0, largest=largest, refuses=refuses)
    logs = logs_of(service)
    got = 0
    for moment in range(2000):
        service.lines += ["line"] * (moment * 7 % 30 if moment % 3 == 0 else 0)
        while lines := read(logs, got, limit=10_000, wait_s=wait_s).lines:
            got += len(lines)
    assert got == len(service.lines)
    assert service.sent < 2 * got


def test_large_pages_where_they_are_granted() -> None:
    service = PagedLog(10_000)
    logs = logs_of(service)
    for start in range(0, 10_000, 1000):
        assert len(read(logs, start).lines) == 1000
    assert len(service.asked) == 10


def test_a_refused_size_is_remembered() -> None:
    service = PagedLog(1000, largest=100, refuses=True)
    logs = logs_of(service)
    for start in range(0, 1000, 100):
        assert len(read(logs, start).lines) == 100
    assert [asked["PageSize"] for asked in service.asked].count(1000) == 2


def test_a_size_refused_to_several_readers_at_once_fails_none() -> None:
    both_were_refused = threading.Barrier(2)

    class Refusing(PagedLog):
        def call(self, *args: Any, **more: Any) -> Answer:
            try:
                return super().call(*args, **more)
            except InvalidRequestError:
                if len(self.asked) <= 2:
                    both_were_refused.wait(PATIENCE_S)
                raise

    logs = logs_of(Refusing(300, largest=100, refuses=True))
    with ThreadPoolExecutor(2) as threads:
        for page in [threads.submit(read, logs, 0) for _ in range(2)]:
            assert len(page.result(PATIENCE_S).lines) == 100


def test_a_log_that_was_not_there_yet_does_not_show_the_size_of_pages() -> None:
    class NotReady(PagedLog):
        def call(self, *args: Any, **more: Any) -> Answer:
            if len(self.asked) < 2:
                self.asked.append({})
                raise api_error("not yet", code="InvalidInstance.NotReady", status_code=400, request_id=None)
            return super().call(*args, **more)

    service = NotReady(500, largest=20)
    logs = logs_of(service)
    got: list[str] = []
    while lines := read(logs, len(got)).lines:
        got += lines
    assert got == service.lines


def test_only_the_count_is_wanted() -> None:
    service = PagedLog(5000)
    page = read(logs_of(service), 0, limit=1)
    assert (page.lines, page.total) == (("line 0",), 5000)
    assert service.asked[0]["PageSize"] == 1


def test_another_400_comes_through() -> None:
    service = PagedLog(5, largest=0, refuses=True)
    logs = logs_of(service)
    with pytest.raises(InvalidRequestError):
        read(logs, 0)


@pytest.mark.parametrize("start", [0, 1, 541, 1000, 1237, 4999])
def test_a_service_that_has_not_offered_to_wait_is_asked_for_plain_pages(start: int) -> None:
    service = PagedLog(start)
    logs = logs_of(service)
    for _ in range(3):
        assert read(logs, start, wait_s=10.0).lines == ()
    for asked in service.asked:
        assert asked["headers"] == {}
        assert asked["timeout_s"] == (5.0, 30.0)
    for asked in service.asked if start % 100 else []:  # there, it looks once whether the log goes on
        assert asked["PageSize"] >= min(500, max(start, 20) // 2), "no pages of one line, wherever a log stands"


@pytest.mark.parametrize("status", [400, 404])
def test_an_instance_that_has_not_begun(server: ScriptedServer, transport: Transport, status: int) -> None:
    server.script = [Reply({"Code": "TRAINING_JOB_INSTANCE_NOT_FOUND", "Message": "not yet"}, status)]
    assert read(JobLogs(transport), 0) == LogPage(())


def ours(first: int, lines: list[Any], instance: str = "t-1-master-0", **more: str) -> Reply:
    headers = {
        "x-pai-offers": "wait, first-line",
        "x-pai-log-instance": instance,
        "x-pai-log-first-line": str(first),
    }
    return Reply({"Logs": lines, "TotalCount": "99999"}, headers={**headers, **more})


def test_headers_of_our_own_service(server: ScriptedServer, transport: Transport) -> None:
    server.script = [ours(0, ["a", "b\r", None, " d "], **{"x-pai-log-complete": "true"})]
    logs = JobLogs(transport)
    whole = LogPage(("a", "b\r", "", " d "), complete=True, waited=True, total=99999)
    assert read(logs, 0, wait_s=5) == whole
    assert read(logs, 0, wait_s=5) == whole
    assert not read(logs, 0, limit=2).complete
    assert server.asked[0].query == {"InstanceId": "t-1-master-0", "PageNumber": "1", "PageSize": "1000"}
    prefers = [asked.headers.get("prefer") for asked in server.asked]
    assert prefers == [None, "wait=5, first-line=0", "first-line=0"]


def test_line_ends_are_taken_off_for_others(server: ScriptedServer, transport: Transport) -> None:
    server.script = [Reply({"Logs": ["a", "b\n", None, "c\r\n", " d "], "TotalCount": "5"})]
    assert read(JobLogs(transport), 0).lines == ("a", "b", "", "c", " d ")


def test_a_service_that_knows_lines_is_asked_for_them(server: ScriptedServer, transport: Transport) -> None:
    server.script = [ours(0, ["first"]), ours(1237, ["a", "b"]), ours(1239, ["c"])]
    logs = JobLogs(transport)
    assert read(logs, 1237, limit=10_000, wait_s=5).lines == ("a", "b")
    assert read(logs, 1239, limit=10_000, wait_s=5).lines == ("c",)
    assert server.asked[2].query["PageSize"] == "10000"


def test_a_service_that_no_longer_offers_lines_is_read_by_pages(
    server: ScriptedServer, transport: Transport
) -> None:
    plain = Reply({"Logs": ["a", "b", "c"], "TotalCount": "3"})
    server.script = [ours(0, ["a"]), plain, plain]
    logs = JobLogs(transport)
    assert read(logs, 0).lines == ("a",)
    assert read(logs, 1).lines == ("b", "c")
    assert "prefer" not in server.asked[2].headers


@pytest.mark.parametrize("stray", [ours(7, ["x"]), ours(5, ["x"], instance="t-1-worker-0")])
def test_an_answer_to_another_question_is_asked_for_again(
    server: ScriptedServer, transport: Transport, stray: Reply
) -> None:
    server.script = [stray, ours(0, ["a"]), stray, ours(5, ["right"]), stray, stray, stray]
    logs = JobLogs(transport)
    assert read(logs, 0).lines == ("a",), "from the very first answer on"
    assert read(logs, 5).lines == ("right",)
    with refused(InvalidResponseError):
        read(logs, 5)


def test_an_answer_without_lines(server: ScriptedServer, transport: Transport) -> None:
    server.script = [Reply({"Logs": None, "TotalCount": None})]
    assert read(JobLogs(transport), 0) == LogPage(())


def test_a_count_that_is_ahead_of_the_lines_makes_no_small_pages_of_all_that_follow() -> None:
    service = PagedLog(1, total=lambda count: str(count + 1))
    logs = logs_of(service)
    got = len(read(logs, 0).lines)
    service.lines += ["more"] * 49_999
    while lines := read(logs, got, limit=10_000).lines:
        got += len(lines)
    assert got == 50_000
    assert len(service.asked) < 100


class CappedLog:
    """A service that gives no lines beyond some line or page; StartTime counts by minutes."""

    timeout_s = (5.0, 30.0)

    def __init__(
        self, *, cap: int = 10**9, pages: int = 10**9, largest: int = 1000, refuses: bool = False
    ) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.lines: list[tuple[datetime, str]] = []
        self.asked = 0
        self.counts_all = True
        self.is_strict = False  # refuses times in the future, and seconds
        self._cap, self._pages, self._largest, self._refuses = cap, pages, largest, refuses

    def print(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.now += timedelta(seconds=seconds / count)
            self.lines.append((self.now, f"line {len(self.lines)}" if len(self.lines) % 3 else "again"))

    def call(self, action: str, method: str, path: str, params: Any, query: Any, **more: Any) -> Answer:
        self.asked += 1
        size, number = min(query["PageSize"], self._largest), query["PageNumber"]
        first, last = self._at(query.get("StartTime"), 0), self._at(query.get("EndTime"), len(self.lines))
        count = last - first
        total = count if self.counts_all else min(count, self._cap)
        if number > self._pages and self._refuses:
            raise api_error("PageNumber", code="InvalidParameter", status_code=400, request_id=None)
        begun, ended = (min(at, self._cap, count) for at in ((number - 1) * size, number * size))
        page = [] if number > self._pages else [text for _, text in self.lines[first + begun : first + ended]]
        date = format_datetime(self.now, usegmt=True)
        return Answer({"Logs": page, "TotalCount": str(total)}, headers={"Date": date})

    def _at(self, time: str | None, otherwise: int) -> int:
        if time is None:
            return otherwise
        begin = datetime.fromisoformat(time.replace("Z", "+00:00"))
        if self.is_strict and (begin.second or begin > self.now):
            raise api_error("StartTime", code="InvalidParameter", status_code=400, request_id=None)
        return bisect_left(self.lines, begin, key=itemgetter(0))


def all_lines(service: CappedLog, logs: JobLogs, start: int = 0) -> list[str]:
    got: list[str] = []
    empty = 0
    while empty < 4:  # as it is asked again by those who follow it
        lines = read(logs, start + len(got)).lines
        got += lines
        empty = 0 if lines else empty + 1
    return got


@pytest.mark.parametrize(
    "service",
    [
        CappedLog(cap=10_900),
        CappedLog(cap=10_000, largest=100),
        CappedLog(pages=20),
        CappedLog(pages=100, largest=100, refuses=True),
    ],
    ids=["lines", "short pages", "pages", "refused pages"],
)
@pytest.mark.parametrize("is_strict", [False, True], ids=["", "whole minutes"])
def test_a_log_whose_deep_pages_are_not_given_is_read_on_by_time(service: CappedLog, is_strict: bool) -> None:
    logs = logs_of(service)
    service.lines.clear()
    service.is_strict = is_strict
    for _ in range(50):
        service.print(1000, seconds=600)
    assert all_lines(service, logs) == [text for _, text in service.lines], "one that was there before"
    for _ in range(30):
        service.print(700, seconds=20)
        start = len(service.lines) - 700
        assert all_lines(service, logs, start) == [text for _, text in service.lines[start:]], "one that grows"


def test_a_log_whose_count_is_cut_too_is_read_on_while_it_grows() -> None:
    service = CappedLog(cap=10_000)
    service.counts_all = False
    logs, got = logs_of(service), 0
    for _ in range(60):
        service.print(500, seconds=30)
        lines = all_lines(service, logs, got)
        assert lines == [text for _, text in service.lines[got : got + len(lines)]]
        got += len(lines)
    assert got == len(service.lines)


def test_a_log_of_a_round_number_of_lines_is_hardly_asked_for_more() -> None:
    service = CappedLog()
    logs = logs_of(service)
    service.print(5000, seconds=3600)
    assert len(all_lines(service, logs)) == 5000
    before = service.asked
    for _ in range(80):
        assert read(logs, 5000).lines == ()
    assert service.asked - before < 80 + 10 * 10


@pytest.mark.parametrize(
    ("previous", "lines", "near", "is_part_start", "end"),
    [
        (["a", "b"], ["x", "a", "b", "c"], 0, False, 3),
        (["a", "b"], ["a", "b", "a", "b"], 4, False, 4),
        (["a", "b"], ["b", "c"], 0, True, 1),
        (["a", "b"], ["b", "c"], 0, False, None),
    ],
)
def test_previous_lines_locate_the_ones_after_them(
    previous: list[str], lines: list[str], near: int, is_part_start: bool, end: int | None
) -> None:
    assert _end_of(previous, lines, near=near, is_part_start=is_part_start) == end
