"""The lines of a log that have a level or a text, over HTTP; the log as a download; instances in their order."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._data.logs.filtered import FilteredLogs, LineFilter
from pai_sdk._data.logs.levels import LEVELS
from pai_sdk._data.logs.reader import InstanceLog, LogReader, OpenLog
from pai_sdk._host.agent.sandbox import Sandbox
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, quickest, until

LOG = """2026-01-01 12:00:00,100 - train - INFO - step 1
2026-01-01 12:00:00,200 - train - DEBUG - batch 1
2026-01-01 12:00:00,300 - train - WARNING - slow
2026-01-01 12:00:00,400 - train - ERROR - failed
Traceback (most recent call last):
  File "train.py", line 1
ValueError: x
print without a level
2026-01-01 12:00:00,500 - train - INFO - step 2
"""


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, executor: ScriptedExecutor) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("filtered") / "data", executor) as service:
        yield service


Start = Callable[..., tuple[str, list[str], Path]]


@pytest.fixture
def start(client: Client, executor: ScriptedExecutor) -> Iterator[Start]:
    """Starts a job whose instances print texts; returns its id, the names of its instances and its folder."""
    roots: list[Path] = []

    def started(*texts: str) -> tuple[str, list[str], Path]:
        job_id = client.create(job_body(ComputeResource={"EcsSpec": "local", "EcsCount": len(texts)}))
        client.until(job_id, "Running")
        root = client.info.data_dir / "jobs" / job_id
        names = [each["Name"] for each in client.get(f"/trainingjobs/{job_id}")["Instances"]]
        for name, text in zip(names, texts, strict=True):
            executor.print(root, name, text)
        roots.append(root)
        return job_id, names, root

    yield started
    for root in roots:
        executor.succeed(root)


def filtered(client: Client, job_id: str, **query: Any) -> dict[str, Any]:
    return client.get(f"/runs/{job_id}/log/lines", **query)


def numbers(page: dict[str, Any]) -> list[int]:
    return [line["number"] for line in page["lines"]]


def test_lines_of_a_level_have_their_traceback(client: Client, start: Start) -> None:
    job_id, _, _ = start(LOG)
    errors = filtered(client, job_id, level="error")
    assert (numbers(errors), errors["total"], errors["complete"]) == ([3, 4, 5, 6], 4, False)
    assert numbers(filtered(client, job_id, level="warning")) == [2, 3, 4, 5, 6]
    assert numbers(filtered(client, job_id, level="info")) == [0, 2, 3, 4, 5, 6, 8]
    assert numbers(filtered(client, job_id, level="debug")) == [0, 1, 2, 3, 4, 5, 6, 8]
    assert numbers(filtered(client, job_id, level="error", q="x", ignore_case=True)) == [6]


def test_hits_have_lines_around_them(client: Client, start: Start) -> None:
    job_id, _, _ = start("".join(f"line {n}\n" for n in range(100)))
    page = filtered(client, job_id, q="line [37]5$", regex=True, context=2)
    assert numbers(page) == [33, 34, 35, 36, 37, 73, 74, 75, 76, 77]
    assert [line["number"] for line in page["lines"] if line["is_match"]] == [35, 75]
    second = filtered(client, job_id, q="line [37]5$", regex=True, context=2, line=5, lines=2)
    assert (second["first"], numbers(second)) == (5, [73, 74])
    assert numbers(filtered(client, job_id, q="line [37]5$", regex=True, context=2, tail=3)) == [75, 76, 77]


def test_a_filter_follows_the_log(client: Client, executor: ScriptedExecutor, start: Start) -> None:
    job_id, (name,), root = start("ERROR one\nfine\nERROR tw")
    assert numbers(filtered(client, job_id, level="error")) == [0]
    executor.print(root, name, "o\n  more\nfine\n")
    assert numbers(filtered(client, job_id, level="error")) == [0, 2, 3]
    executor.print(root, name, "ERROR end")
    executor.succeed(root)
    client.until(job_id, "Succeed")
    page = filtered(client, job_id, level="error")
    assert (numbers(page), page["complete"]) == ([0, 2, 3, 5], True)


def test_lines_of_instances_have_their_numbers_in_the_merged_log(client: Client, start: Start) -> None:
    job_id, names, _ = start("a\nERROR a\na\n", "b\nERROR b\nb\n")
    merged = client.get(f"/runs/{job_id}/log")["lines"]
    page = filtered(client, job_id, level="error")
    assert [line["text"] for line in page["lines"]] == ["ERROR a", "ERROR b"]
    assert [merged[number]["text"] for number in numbers(page)] == ["ERROR a", "ERROR b"]
    assert numbers(filtered(client, job_id, level="error", instance=names[1])) == [1]


def test_a_long_log_is_filtered(client: Client, start: Start) -> None:
    job_id, _, _ = start("".join(f"{'ERROR' if n % 1000 == 0 else 'INFO'} step {n}\n" for n in range(200_000)))
    begun = time.monotonic()
    page = filtered(client, job_id, level="error", tail=1)
    assert (page["total"], numbers(page), page["trouble"]) == (200, [199_000], "")
    first_s = time.monotonic() - begun

    def again_s() -> float:
        begun = time.monotonic()
        assert filtered(client, job_id, level="error", line=50, lines=1)["lines"][0]["number"] == 50_000
        return time.monotonic() - begun

    enough_s = max(0.5, first_s / 2)
    assert quickest(again_s, enough_s=enough_s) < enough_s


def test_a_page_of_long_lines_has_fewer_of_them(client: Client, start: Start) -> None:
    job_id, _, _ = start(f"ERROR {'x' * (1 << 20)}\n" * 8)
    page = filtered(client, job_id, level="error", lines=1000)
    assert (page["total"], numbers(page)) == (8, [0, 1, 2, 3])
    assert numbers(filtered(client, job_id, level="error", line=4)) == [4, 5, 6, 7]


def test_filters_of_large_logs_are_not_all_cached(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ERROR\n" * 10_000)
    log = LogReader(OpenLog([InstanceLog(tmp_path / "a.log")], tmp_path / "order"), is_open=False)
    filters = [LineFilter(None, LEVELS["error"], context) for context in range(5)]
    cache = FilteredLogs(max_bytes=300_000)  # 130 kB each
    before = [cache.get(log, each) for each in filters]
    for each in before:
        assert each.page(log, 0, 1, time_limit_s=PATIENCE_S, check=lambda: None).total == 10_000
    assert cache.get(log, filters[-1]) is before[-1]
    assert cache.get(log, filters[0]) is not before[0]


@pytest.mark.parametrize("query", [{"level": "loud"}, {"context": -1}, {"q": "(", "regex": True}, {"q": "a\nb"}])
def test_a_filter_that_cannot_be_is_refused(client: Client, start: Start, query: dict[str, Any]) -> None:
    job_id, _, _ = start("a\n")
    answer = client.call("GET", f"/runs/{job_id}/log/lines", **query)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert client.call("GET", "/runs/nothing/log/lines", level="error").status_code == 404


def test_the_log_is_downloaded_by_a_one_time_address(client: Client, start: Start) -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    job_id, names, _ = start(text, "other\n")
    wanted = {"kind": "log", "instance": names[0]}

    def saved(**more: Any) -> tuple[bytes, str]:
        url = client.call("POST", f"/runs/{job_id}/downloads", body={**wanted, **more}).json()["url"]
        answer = requests.get(client.info.endpoint + url, timeout=PATIENCE_S)  # a link of the page sends no key
        assert requests.get(client.info.endpoint + url, timeout=PATIENCE_S).status_code == 403
        return answer.content, answer.headers["content-disposition"]

    content, disposition = saved()
    assert content.decode() == text
    assert f'filename="{job_id}-{names[0]}.log"' in disposition
    content, disposition = saved(gzip=True)
    assert gzip.decompress(content).decode() == text
    assert ".log.gz" in disposition
    content, _ = saved(instance=None)
    assert content.decode().splitlines()[-1].startswith("[")
    assert client.call("POST", f"/runs/{job_id}/downloads", body={**wanted, "instance": "x"}).status_code == 404


def test_lines_of_instances_are_in_the_order_in_which_they_were_written(client: Client, start: Start) -> None:
    """Sizes are recorded a few times a second; the times in the lines order those of one record."""
    stamp = "2026-01-01 20:{:02}:{:02},{:03} INFO {} {:03}\n"
    job_id, names, root = start("", "")
    written = {
        name: "".join(stamp.format(n // 60, n % 60, 500 * rank, rank, n) for n in range(120))
        for rank, name in enumerate(names)
    }
    base = 1767268800.0 + 2  # 12:00:02 UTC: the instances are in another zone; each record is late
    for name, text in written.items():
        size = len(text) // 120
        Sandbox(root).times_file(name).write_text(
            "".join(f"{base + n} {size * (n + 1)}\n" for n in range(2, 120, 3))
        )
        Sandbox(root).log_file(name).write_text(text)
    lines = client.get(f"/runs/{job_id}/log", lines=1000)["lines"]
    assert [line["text"].split()[-1] for line in lines] == [f"{n:03}" for n in range(120) for _ in names]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_a_traceback_stays_with_its_line(client: Client, start: Start) -> None:
    job_id, names, root = start("", "")
    for rank, name in enumerate(names):
        text = f"12:00:00,{5 + rank}00 ERROR {rank}\n" + "".join(f"  {rank} {n}\n" for n in range(8))
        Sandbox(root).log_file(name).write_text(text)
        Sandbox(root).times_file(name).write_text(f"1767268801.0 {len(text)}\n")
    lines = client.get(f"/runs/{job_id}/log")["lines"]
    assert [names.index(line["instance"]) for line in lines] == [0] * 9 + [1] * 9


def test_a_traceback_without_times_is_not_divided(client: Client, start: Start) -> None:
    job_id, names, root = start("", "")
    for rank, name in enumerate(names):
        text = f"start {rank}\nTraceback (most recent call last):\n  a\n  b\nValueError: {rank}\nend {rank}\n"
        Sandbox(root).log_file(name).write_text(text)
        Sandbox(root).times_file(name).write_text(f"{1767268801.0 + rank / 20} {len(text)}\n")
    owners = [names.index(line["instance"]) for line in client.get(f"/runs/{job_id}/log")["lines"]]
    texts = [line["text"] for line in client.get(f"/runs/{job_id}/log")["lines"]]
    for rank in (0, 1):
        at = texts.index(f"ValueError: {rank}")
        assert owners[at - 3 : at + 1] == [rank] * 4


def test_lines_of_running_instances_are_in_the_order_in_which_they_were_written(
    client: Client, start: Start
) -> None:
    job_id, names, root = start("", "")
    sandbox = Sandbox(root)

    def write() -> None:
        for n in range(40):
            for rank, name in enumerate(names):
                with sandbox.log_file(name).open("a") as log:
                    log.write(f"{rank} {n}\n")
                size = sandbox.log_file(name).stat().st_size
                with sandbox.times_file(name).open("a") as times:
                    times.write(f"{time.time():.3f} {size}\n")
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        client.get(f"/runs/{job_id}/log")
    page = until(lambda: page if (page := client.get(f"/runs/{job_id}/log", lines=1000))["total"] == 80 else None)
    assert [line["text"] for line in page["lines"]] == [f"{rank} {n}" for n in range(40) for rank in (0, 1)]
