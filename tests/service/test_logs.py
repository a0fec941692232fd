"""ListTrainingJobLogs and ListTrainingJobEvents."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._data.logs import merged
from pai_sdk._data.logs.merged import MergedOrder
from pai_sdk._data.logs.reader import InstanceLog, LogReader, OpenLog, OpenLogs, StoredPage
from pai_sdk._service.services.jobs.changes import Subscription
from pai_sdk._service.settings import ConnectionLimits
from tests.service.fakes import ScriptedExecutor
from tests.service.services import HELD_S, Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def client(executor: ScriptedExecutor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("scripted") / "data"
    with running_service(folder, executor, slots=1000, max_hold_s=HELD_S) as client:
        yield client


def running(client: Client, count: int = 1, **fields: Any) -> tuple[str, Path]:
    job_id = client.create(job_body(ComputeResource={"EcsSpec": "x", "EcsCount": count}, **fields))
    client.until(job_id, "Running")
    return job_id, client.info.data_dir / "jobs" / job_id


def page(client: Client, job_id: str, wait_s: float = 0, **query: Any) -> requests.Response:
    headers = {"Prefer": f"wait={wait_s:g}"} if wait_s else {}
    answer = client.call("GET", f"/trainingjobs/{job_id}/logs", headers=headers, **query)
    assert answer.status_code == 200, answer.text
    return answer


def test_pages_hold_only_whole_lines_until_the_job_has_ended(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    master = f"{job_id}-master-0"
    executor.print(root, master, "one\ntwo\nthree\nwith\rcarriage\nun")
    answer = page(client, job_id, InstanceId=master, PageSize=3, PageNumber=2)
    assert answer.json()["Logs"] == ["with\rcarriage"]
    assert answer.json()["TotalCount"] == "4"
    assert "x-pai-log-complete" not in answer.headers
    executor.print(root, master, "finished")
    executor.succeed(root)
    client.until(job_id)
    first, last = (page(client, job_id, WorkerId=master, PageSize=3, PageNumber=n) for n in (1, 2))
    assert "x-pai-log-complete" not in first.headers
    assert last.json()["Logs"] == ["with\rcarriage", "unfinished"]
    assert last.headers["x-pai-log-complete"] == "true"
    beyond = page(client, job_id, PageSize=3, PageNumber=3)
    assert (beyond.json()["Logs"], beyond.headers["x-pai-log-complete"]) == ([], "true")


def test_the_logs_of_all_instances_come_in_one_order_that_stays(
    client: Client, executor: ScriptedExecutor
) -> None:
    job_id, root = running(client, 3)
    names = [f"{job_id}-master-0", f"{job_id}-worker-0", f"{job_id}-worker-1"]
    seen: list[str] = []
    for step in range(3):
        for name in names[: step + 1]:
            executor.print(root, name, f"{name} {step}\n")
        now = client.log(job_id)
        assert now[: len(seen)] == seen
        seen = now
    executor.print(root, names[0], "the end")
    executor.succeed(root)
    client.until(job_id)
    whole = client.log(job_id)
    assert whole == [*seen, "the end"]
    assert [line for line in whole if line.startswith(names[1])] == [f"{names[1]} 1", f"{names[1]} 2"]


def test_a_merged_log_that_cannot_be_put_in_order_is_told_as_far_as_it_is_and_never_called_complete(
    client: Client, executor: ScriptedExecutor
) -> None:
    job_id, root = running(client, 2)
    executor.print(root, f"{job_id}-master-0", "first\n")
    assert client.log(job_id) == ["first"]
    executor.print(root, f"{job_id}-worker-0", "second\n")

    def full(order: MergedOrder, runs: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(MergedOrder, "_write", full)
        executor.succeed(root)
        client.until(job_id)
        told = page(client, job_id)
        assert told.json()["Logs"] == ["first"]
        assert "x-pai-log-complete" not in told.headers
        nothing = client.call("GET", f"/trainingjobs/{job_id}/logs", headers={"Prefer": "first-line=1"})
        assert (nothing.status_code, nothing.json()["Code"]) == (507, "InsufficientStorage")
        assert client.log(job_id, InstanceId=f"{job_id}-worker-0") == ["second"]
    assert client.log(job_id) == ["first", "second"]


def test_a_merged_log_has_one_order_however_many_others_are_read_meanwhile(
    tmp_path: Path,
) -> None:
    logs = OpenLogs[str](1)

    def opened() -> OpenLog:
        return OpenLog([InstanceLog(tmp_path / "one.log"), InstanceLog(tmp_path / "two.log")], tmp_path / "order")

    being_read = LogReader(logs.get("traina", opened), is_open=True)
    logs.get("trainb", opened)
    assert logs.get("traina", opened).instances is being_read.instances


def test_a_log_that_takes_long_to_open_holds_up_no_other(
    client: Client, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slow, slow_root), (quick, quick_root) = running(client, 2), running(client, 2)
    executor.print(quick_root, f"{quick}-master-0", "quick\n")
    opening, go_on, read = threading.Event(), threading.Event(), merged._read

    def slowly(order_file: Path) -> Any:
        if order_file.is_relative_to(slow_root):
            opening.set()
            assert go_on.wait(PATIENCE_S)
        return read(order_file)

    monkeypatch.setattr(merged, "_read", slowly)
    reader = Client(client.info)
    reading = threading.Thread(target=reader.log, args=(slow,))
    reading.start()
    try:
        assert opening.wait(PATIENCE_S)
        assert client.log(quick) == ["quick"]
    finally:
        go_on.set()
        reading.join(PATIENCE_S)
        reader.session.close()
    for root in (slow_root, quick_root):
        executor.succeed(root)


def test_an_empty_page_is_held_back_until_a_line_comes(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    begun = time.monotonic()
    timer = threading.Timer(0.3, executor.print, (root, f"{job_id}-master-0", "hello\n"))
    timer.start()
    answer = page(client, job_id, wait_s=HELD_S)
    assert time.monotonic() - begun > 0.25
    assert answer.json()["Logs"] == ["hello"]
    assert answer.headers["Preference-Applied"] == f"wait={HELD_S:g}"
    timer.join()


def test_a_held_page_comes_back_when_the_job_has_ended(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    timer = threading.Timer(0.2, executor.succeed, (root,))
    timer.start()
    answer = page(client, job_id, wait_s=HELD_S)
    timer.join()
    assert (answer.json()["Logs"], answer.headers["x-pai-log-complete"]) == ([], "true")


def test_a_held_page_is_given_up_in_time(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    executor.print(root, f"{job_id}-master-0", "no line end")
    begun = time.monotonic()
    answer = page(client, job_id, wait_s=1)
    assert time.monotonic() - begun > 0.9
    assert answer.json()["Logs"] == []


def test_a_snapshot_is_held_back_until_it_changes(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    known = {"If-None-Match": client.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]}
    begun = time.monotonic()
    answer = client.call("GET", f"/trainingjobs/{job_id}", headers={**known, "Prefer": "wait=1"})
    assert (answer.status_code, answer.content) == (304, b"")
    assert time.monotonic() - begun > 0.9
    assert answer.headers["Preference-Applied"] == "wait=1"
    assert client.call("GET", f"/trainingjobs/{job_id}", headers=known).status_code == 304
    timer = threading.Timer(0.2, executor.succeed, (root,))
    timer.start()
    answer = client.call("GET", f"/trainingjobs/{job_id}", headers={**known, "Prefer": "wait=1000000"})
    assert answer.json()["Status"] == "Succeed"
    assert answer.headers["Preference-Applied"] == f"wait={HELD_S:g}"
    timer.join()


def test_who_is_held_is_sent_home_when_the_service_ends(
    start: Callable[..., Any], held: set[Subscription]
) -> None:
    patient = ConnectionLimits(grace_s=PATIENCE_S)
    with start(ScriptedExecutor(), max_hold_s=HELD_S, connections=patient) as client:
        job_id, _ = running(client)
        codes: list[int] = []

        def wait(path: str, **headers: str) -> None:
            with closing(requests.Session()) as session:
                asked = {"Prefer": f"wait={HELD_S:g}", **headers}
                codes.append(Client(client.info, session).call("GET", path, headers=asked).status_code)

        etag = client.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
        waiting = [
            threading.Thread(target=wait, args=(f"/trainingjobs/{job_id}/logs",)),
            threading.Thread(target=wait, args=(f"/trainingjobs/{job_id}",), kwargs={"If-None-Match": etag}),
        ]
        held.clear()
        for thread in waiting:
            thread.start()
        until(lambda: len(held) == 2)
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert sorted(codes) == [200, 304]


def test_an_unknown_instance_is_refused(client: Client) -> None:
    job_id, _ = running(client)
    for query in ({"InstanceId": "other"}, {"InstanceId": "../../service"}, {"WorkerId": f"{job_id}-worker-7"}):
        answer = client.call("GET", f"/trainingjobs/{job_id}/logs", **query)
        assert (answer.status_code, answer.json()["Code"]) == (404, "TRAINING_JOB_INSTANCE_NOT_FOUND")
    assert client.call("GET", f"/trainingjobs/{job_id}/instances/other/events").status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        {"PageNumber": 0},
        {"PageSize": 10_001},
        {"PageSize": "many"},
        {"PageNumber": 10**30},
        {"StartTime": "today"},
    ],
)
def test_a_bad_page_is_refused(client: Client, query: dict[str, Any]) -> None:
    job_id, _ = running(client)
    answer = client.call("GET", f"/trainingjobs/{job_id}/logs", **query)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert next(iter(query)) in answer.json()["Message"]


def test_a_log_can_be_cut_by_time(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    master = f"{job_id}-master-0"
    executor.print(root, master, "old\n")
    executor.print(root, master, "new\nnewer\n")
    times = root / "logs" / f"{master}.times"
    times.write_text("1000.0 4\n2000.0 8\n3000.0 14\n")
    assert client.log(job_id, StartTime="1970-01-01T00:20:00Z") == ["new", "newer"]
    assert client.log(job_id, EndTime="1970-01-01T00:20Z") == ["old"]
    assert client.log(job_id, StartTime="1970-01-01T00:00Z") == ["old", "new", "newer"]


def test_the_logs_of_all_instances_can_be_cut_by_time(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client, 2)
    names = [f"{job_id}-master-0", f"{job_id}-worker-0"]
    for number in range(3):
        for name in names:
            executor.print(root, name, f"{name[-8:]} {number}\n")
        client.log(job_id)  # it is merged up to here
    for name in names:
        size = len(f"{name[-8:]} 0\n")
        notes = "".join(f"{1000.0 * number} {size * number}\n" for number in (1, 2, 3))
        (root / "logs" / f"{name}.times").write_text(notes)
    all_lines = [f"{name[-8:]} {number}" for number in range(3) for name in names]
    late, early = {"StartTime": "1970-01-01T00:20:00Z"}, {"EndTime": "1970-01-01T00:20:00Z"}
    assert client.log(job_id) == all_lines
    assert client.log(job_id, **late) == all_lines[2:]
    assert client.log(job_id, **early) == all_lines[:2]
    assert client.log(job_id, **late, EndTime="1970-01-01T00:34:00Z") == all_lines[2:4]
    pages = [
        client.get(f"/trainingjobs/{job_id}/logs", PageSize=3, PageNumber=number, **late) for number in (1, 2)
    ]
    assert [page["Logs"] for page in pages] == [all_lines[2:5], all_lines[5:]]
    assert {page["TotalCount"] for page in pages} == {"4"}
    executor.succeed(root)
    client.until(job_id)
    answer = client.call("GET", f"/trainingjobs/{job_id}/logs", **early)
    assert (answer.json()["Logs"], answer.headers["x-pai-log-complete"]) == (all_lines[:2], "true")


@pytest.mark.parametrize("count", [1, 2])
def test_a_window_before_or_after_the_job_is_empty(client: Client, executor: ScriptedExecutor, count: int) -> None:
    job_id, root = running(client, count)
    executor.print(root, f"{job_id}-master-0", "first\nsecond\n")
    executor.succeed(root)
    client.until(job_id)
    for query in ({"EndTime": "2001-01-01T00:00Z"}, {"StartTime": "2999-01-01T00:00Z"}):
        answer = client.get(f"/trainingjobs/{job_id}/logs", **query)
        assert (answer["Logs"], answer["TotalCount"]) == ([], "0")
    assert client.log(job_id, StartTime="2001-01-01T00:00Z", EndTime="2999-01-01T00:00Z") == ["first", "second"]


def test_events_tell_the_story_and_total_count_is_text(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    executor.succeed(root)
    client.until(job_id)
    answer = client.get(f"/trainingjobs/{job_id}/events")
    assert answer["TotalCount"] == str(len(answer["Events"]))
    assert answer["Events"][0].endswith("Z The job was created and waits in the queue.")
    assert answer["Events"][-1].endswith("The job succeeded.")
    assert (
        client.get(f"/trainingjobs/{job_id}/events", PageNumber=2, PageSize=1)["Events"] == answer["Events"][1:2]
    )
    own = client.get(f"/trainingjobs/{job_id}/instances/{job_id}-master-0/events")
    assert [event.partition(" ")[2] for event in own["Events"]] == [
        f"Instance {job_id}-master-0 is Running.",
        f"Instance {job_id}-master-0 is Succeed (exit code 0).",
    ]


def test_a_page_begins_with_the_line_that_is_preferred(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    master = f"{job_id}-master-0"
    executor.print(root, master, "".join(f"{number}\n" for number in range(10)))
    path = f"/trainingjobs/{job_id}/logs"
    query = {"InstanceId": master, "PageSize": 2, "PageNumber": 2}
    answer = client.call("GET", path, headers={"Prefer": "wait=1, first-line=7"}, **query)
    assert answer.json()["Logs"] == ["7", "8"]
    assert answer.headers["Preference-Applied"] == "wait=1, first-line=7"
    assert answer.headers["x-pai-log-instance"] == master


def test_each_line_has_the_time_at_which_it_was_written(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    master = f"{job_id}-master-0"
    executor.print(root, master, "one\ntwo\nthree\nfour\n")
    (root / "logs" / f"{master}.times").write_text("10 4\n20 9\n30.5 14\n")
    query = {"InstanceId": master, "PageSize": 10}
    path = f"/trainingjobs/{job_id}/logs"
    answer = client.call("GET", path, headers={"Prefer": "first-line=1, line-times"}, **query)
    assert answer.json()["Logs"] == ["two", "three", "four"]
    assert answer.json()["LineTimes"] == ["1970-01-01T00:00:20.000Z", "1970-01-01T00:00:30.500Z", None]
    assert "line-times" in answer.headers["x-pai-offers"]
    assert "LineTimes" not in client.call("GET", path, headers={"Prefer": "first-line=1"}, **query).json()


def test_a_progress_bar_is_seen_before_its_first_line_end(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client, 2)
    master = f"{job_id}-master-0"
    executor.print(root, master, "\r10%\r20%")
    assert page(client, job_id, wait_s=HELD_S, InstanceId=master).json()["Logs"] == ["\r10%\r20%\r"]
    executor.print(root, master, "\r30%\n")
    assert client.log(job_id) == ["\r10%\r20%\r", "\r30%"], "all instances' log cuts at the same places"


def test_long_lines_and_bytes_that_are_no_text(client: Client, executor: ScriptedExecutor) -> None:
    job_id, root = running(client)
    log = Path(root, "logs", f"{job_id}-master-0.log")
    log.write_bytes(b"x" * 3_000_000 + b"\n\xff\xfe\n\x00\x1b[31m\n")
    long, odd, control = client.log(job_id)
    assert (len(long), odd, control) == (3_000_000, "��", "\x00\x1b[31m")


@pytest.fixture
def client_of_small_pages(executor: ScriptedExecutor, tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path / "data", executor, log_page_bytes=1000) as client:
        yield client


def test_a_page_of_long_lines_is_short_where_the_reader_counts_lines(
    client_of_small_pages: Client, executor: ScriptedExecutor
) -> None:
    """Ten thousand of them at once would fill the service's memory, and the reader's."""
    client = client_of_small_pages
    job_id, root = running(client)
    name = f"{job_id}-master-0"
    lines = [letter * 400 for letter in "abcde"] + ["f" * 5000, "g"]
    executor.print(root, name, "".join(f"{line}\n" for line in lines))
    executor.succeed(root)
    client.until(job_id)
    read: list[str] = []
    pages: list[int] = []
    while len(read) < len(lines):
        asked = {"Prefer": f"first-line={len(read)}"}
        answer = client.call("GET", f"/trainingjobs/{job_id}/logs", headers=asked, InstanceId=name, PageSize=100)
        read += answer.json()["Logs"]
        pages.append(len(answer.json()["Logs"]))
        assert ("x-pai-log-complete" in answer.headers) == (len(read) == len(lines))
    assert read == lines
    assert pages == [2, 2, 1, 1, 1]
    assert page(client, job_id, InstanceId=name, PageSize=100).json()["Logs"] == lines  # a page is a page there


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("window", [{}, {"StartTime": "2020-01-01T00:00Z"}], ids=["all", "window"])
def test_a_page_by_number_has_all_its_long_lines_and_is_read_in_pieces(
    client_of_small_pages: Client,
    executor: ScriptedExecutor,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    window: dict[str, str],
) -> None:
    """It must not be short, since the next page by number begins behind it. It may be too large for the memory."""
    client = client_of_small_pages
    read_at_once, read = list[int](), LogReader.page

    def reading(*args: Any, **options: Any) -> StoredPage:
        found = read(*args, **options)
        read_at_once.append(sum(map(len, found.decoded_lines)))
        return found

    monkeypatch.setattr(LogReader, "page", reading)
    job_id, root = running(client, count)
    names = [f"{job_id}-master-0", f"{job_id}-worker-0", f"{job_id}-worker-1"][:count]
    lines = [f'"{name}" é{letter * 400}' for name in names for letter in "abcdefg"]
    for name in names:
        executor.print(root, name, "".join(f"{line}\n" for line in lines if name in line))
    executor.succeed(root)
    client.until(job_id)
    first, last = (page(client, job_id, PageSize=5, PageNumber=number, **window) for number in (1, 2))
    assert first.json().keys() == {"RequestId", "Logs", "TotalCount"}
    assert first.json()["RequestId"] == first.headers["x-acs-request-id"]
    assert first.json()["Logs"] + last.json()["Logs"] == lines[:10]
    assert first.json()["TotalCount"] == str(len(lines))
    assert "x-pai-log-complete" not in first.headers
    whole = page(client, job_id, PageSize=len(lines), **window)
    assert (whole.json()["Logs"], whole.headers["x-pai-log-complete"]) == (lines, "true")
    assert max(read_at_once) <= 1000 + len(lines[0])  # one line always counts


def remove(log: Path) -> None:
    log.unlink()


def truncate(log: Path) -> None:
    os.truncate(log, 10)


def make_a_folder(log: Path) -> None:
    log.unlink()
    log.mkdir()


def make_a_pipe(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def make_a_link_to_itself(log: Path) -> None:
    log.unlink()
    log.symlink_to(log)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("change", [remove, truncate, make_a_folder, make_a_pipe, make_a_link_to_itself])
def test_a_log_that_was_removed_or_replaced_has_fewer_lines(
    client: Client, executor: ScriptedExecutor, change: Callable[[Path], None], count: int
) -> None:
    job_id, root = running(client, count)
    name = f"{job_id}-master-0"
    executor.print(root, name, "line error\n" * 5000)
    requests_of_page = [
        *("log?tail=5", "log?line=4000", "log?time=1", "log?after=100", "log/lines?level=error"),
        *("log/lines?q=line", "log/search?q=line", "log/file", "files", "job"),
    ]
    for path in requests_of_page:
        assert client.call("GET", f"/runs/{job_id}/{path}").status_code == 200
    assert client.get(f"/runs/{job_id}/log?tail=1")["total"] == 5000
    if count == 2:
        executor.print(root, f"{job_id}-worker-0", "other\n" * 10)
        until(lambda: client.get(f"/runs/{job_id}/log?tail=1")["total"] == 5010)
    change(root / "logs" / f"{name}.log")
    for path in requests_of_page:
        assert client.call("GET", f"/runs/{job_id}/{path}").status_code == 200, path
    others = ["other"] * 10 * (count - 1)

    def texts() -> list[str]:
        lines = [line["text"] for line in client.get(f"/runs/{job_id}/log?tail=100")["lines"]]
        assert len(lines) < len(others) + 2
        return lines

    until(
        lambda: [text for text in texts() if text == "other"] == others
    )  # their order is new, and waits a moment
    executor.succeed(root)
    client.until(job_id)
    assert len(client.log(job_id)) < len(others) + 5
