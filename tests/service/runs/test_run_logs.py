"""The log of a run over HTTP: by line, by time, by byte and from its end; searched; as a file."""

from __future__ import annotations

import gzip
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from pai_sdk.agent.sandbox import Sandbox
from pai_sdk.api.acs3_auth import Acs3Auth
from pai_sdk.config.credentials import static_credentials
from pai_sdk.execution.log_index import LogIndex
from pai_sdk.execution.log_times import LogTimes
from pai_sdk.service.jobs.merged_log import MergedLog
from pai_sdk.service.runs import log_search
from pai_sdk.service.runs.log_search import LogQuery, SearchStep, search
from pai_sdk.service.runs.run_log import LogPart, RunLog
from pai_sdk.service.wire_errors import Fault
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.waiting import PATIENCE_S, until

PIECES = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"\n", b"\n\n", b"\xff", b"\r\n", b"ab" * 90]), max_size=25
)


def log_of(path: Path, *, is_open: bool = False, times: LogTimes | None = None) -> RunLog:
    return RunLog([LogPart("worker", LogIndex(path), lambda: times or LogTimes())], None, is_open=is_open)


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
        assert [line.text for line in page.lines] == index.lines(first, first + count, is_open=False)
        assert [line.number for line in page.lines] == list(range(first, first + len(page.lines)))
        for line in page.lines:
            begin = content[line.offset :].split(b"\n")[0].removesuffix(b"\r")
            assert begin.decode("utf-8", errors="replace") == line.text or content.endswith(b"\r")
            assert content[: line.offset].count(b"\n") == line.number


def test_the_cuts_of_a_progress_bar_are_lines_with_their_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"begin\n10%\r20%\r30%\nend\n")
    path.with_suffix(".cuts").write_text("9\n13\n")
    page = log_of(path).page(0, 10)
    assert [(line.offset, line.text) for line in page.lines] == [
        (0, "begin"),
        (6, "10%\r"),
        (9, "\r20%\r"),
        (13, "\r30%"),
        (18, "end"),
    ]
    assert [line.text for line in page.lines] == LogIndex(path).lines(0, 10, is_open=False)
    found, count = hits_of(search(log_of(path).parts, LogQuery("%")))
    assert (found, count) == ([(1, "%"), (2, "%"), (3, "%")], 3)


def test_a_line_beyond_all_bounds_is_shown_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.write(b"x" * (9 << 20))
        file.write(b"\nlast\n")
    page = log_of(path).page(1, 2)
    assert [len(line.text) for line in page.lines] == [1 << 20]
    assert log_of(path).page(2, 2).lines[0].text == "last"


def test_a_line_is_found_by_its_time_and_by_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(10)))  # 7 bytes each
    log = log_of(path, times=LogTimes((100.0, 200.0, 300.0), (21, 42, 70)))
    assert [log.line_at_time(at) for at in (0, 100, 150, 200, 201, 300, 301)] == [0, 0, 3, 3, 6, 6, 10]
    assert [line.time for line in log.page(2, 2).lines] == [100.0, 200.0]
    assert [log.line_at_byte(at) for at in (0, 1, 7, 8, 69, 70, 1000)] == [0, 1, 1, 2, 10, 10, 10]


def test_lines_of_several_instances_have_one_order_that_stays(tmp_path: Path) -> None:
    parts = [LogPart(name, LogIndex(tmp_path / f"{name}.log"), LogTimes) for name in ("master", "worker")]
    log = RunLog(parts, MergedLog(tmp_path / "merged.order", [part.index for part in parts]), is_open=True)
    expected = []
    for number in range(3):
        for name in ("master", "worker"):
            with (tmp_path / f"{name}.log").open("a") as file:
                file.write(f"{name} {number}\n")
        expected += [f"master {number}", f"worker {number}"]
        assert [line.text for line in log.page(0, 100).lines] == expected
    assert [(line.number, line.instance, line.offset) for line in log.page(-2, 2).lines] == [
        (4, "master", 18),
        (5, "worker", 18),
    ]
    assert log.line_at_byte(9, "worker") == 3
    lines = gzip.decompress(b"".join(log.gzip())).decode().splitlines()
    assert lines[:2] == ["[master] master 0", "[worker] worker 0"]


# ---- search -----------------------------------------------------------------------------------------------------


def plain_hits(content: str, wanted: str) -> list[int]:
    return [number for number, line in enumerate(content.split("\n")) for _ in range(line.count(wanted))]


LINES = st.lists(st.text("abü\r €", max_size=12), max_size=30)


def test_a_line_beyond_all_bounds_is_divided_between_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "_PIECE_BYTES", 1)
    path = tmp_path / "log"
    path.write_text("a€ü€", encoding="utf-8")
    assert hits_of(search(log_of(path).parts, LogQuery("€"))) == ([(0, "€"), (0, "€")], 2)


@given(LINES, st.text("abü€", min_size=1, max_size=3), st.integers(18, 60))  # a line has at most 36 bytes
def test_every_hit_is_counted_in_pieces_of_any_size(lines: list[str], wanted: str, piece: int) -> None:
    content = "\n".join(lines)
    piece_bytes, log_search._PIECE_BYTES = log_search._PIECE_BYTES, piece
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log")
            path.write_text(content, encoding="utf-8", newline="")
            expected = plain_hits(content, wanted)
            for query in (LogQuery(wanted), LogQuery(wanted, is_regex=True)):
                found, count = hits_of(search(log_of(path).parts, query))
                assert [line for line, _ in found] == expected
                assert {text for _, text in found} <= {wanted}
                assert count == len(expected)
                assert hits_of(search(log_of(path).parts, query, shown=0)) == ([], len(expected))
    finally:
        log_search._PIECE_BYTES = piece_bytes


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
    assert hits_of(search(log_of(path).parts, LogQuery(pattern, is_regex=True)))[0] == expected


def test_upper_and_lower_case_can_be_alike(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("Error\nerror\nE.ror\n")
    assert hits_of(search(log_of(path).parts, LogQuery("ERROR", ignores_case=True)))[1] == 2
    assert hits_of(search(log_of(path).parts, LogQuery("E.ROR", ignores_case=True)))[1] == 1


def test_a_pathological_pattern_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a" * 5000 + "!\n")
    begun = time.monotonic()
    *_, last = search(log_of(path).parts, LogQuery(r"(a|aa)+$", is_regex=True), time_limit_s=0.2)
    assert "takes too long" in last.trouble
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("pattern", ["(", "((?:(?:a{1000}){1000}){1000})", "a" * 2000, "", "a\nb"])
def test_a_query_that_cannot_be_is_refused(pattern: str) -> None:
    with pytest.raises(Fault) as caught:
        LogQuery(pattern, is_regex=True)
    assert caught.value.status_code == 400


def test_the_search_ends_after_its_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"hit\n" * (3 << 20))
    ticks = iter(range(1000))
    steps = [*search(log_of(path).parts, LogQuery("hit"), time_limit_s=2.5, clock=lambda: float(next(ticks)))]
    assert "more than 2.5 s" in steps[-1].trouble
    assert steps[-1].searched_bytes < 12 << 20


# ---- over HTTP --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, executor: ScriptedExecutor) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("logs") / "data", executor) as found:
        yield found


@pytest.fixture
def begin(client: Client, executor: ScriptedExecutor) -> Callable[..., tuple[str, Path]]:
    """Starts a job whose log says what a test wants."""

    def start(**texts: str) -> tuple[str, Path]:
        count = {"ComputeResource": {"EcsSpec": "local", "EcsCount": len(texts)}}
        job_id = client.create(job_body(**count))
        client.until(job_id, "Running")
        root = client.info.data_dir / "jobs" / job_id
        names = [path["Name"] for path in client.get(f"/trainingjobs/{job_id}")["Instances"]]
        for name, text in zip(names, texts.values(), strict=True):
            executor.print(root, name, text)
        return job_id, root

    return start


def log(client: Client, job_id: str, **query: Any) -> dict[str, Any]:
    return client.get(f"/runs/{job_id}/log", **query)


def test_the_log_of_a_job_while_it_runs_and_afterwards(
    client: Client, executor: ScriptedExecutor, begin: Callable[..., tuple[str, Path]]
) -> None:
    job_id, root = begin(one="".join(f"line {n}\n" for n in range(100)) + "rest")
    page = log(client, job_id)
    assert (page["total"], page["complete"], len(page["instances"])) == (100, False, 1)
    assert page["lines"][7]["text"] == "line 7"
    assert [line["number"] for line in log(client, job_id, tail=3)["lines"]] == [97, 98, 99]
    assert log(client, job_id, line=50, lines=2)["lines"][0]["text"] == "line 50"
    offset = page["lines"][42]["offset"]
    assert log(client, job_id, after=offset)["lines"][0]["text"] == "line 42"
    assert log(client, job_id, line=500)["lines"] == []
    executor.succeed(root)
    client.until(job_id, "Succeed")
    page = log(client, job_id, tail=1)
    assert (page["total"], page["complete"], page["lines"][0]["text"]) == (101, True, "rest")


def test_a_log_is_addressed_by_time(client: Client, begin: Callable[..., tuple[str, Path]]) -> None:
    job_id, root = begin(one="early\n" * 10)
    name = log(client, job_id)["instances"][0]
    Sandbox(root).times_file(name).write_text("1000.0 60\n2000.0 1000\n")
    with Sandbox(root).log_file(name).open("a") as file:
        file.write("late\n" * 10)
    page = log(client, job_id, time=1500, lines=1)
    assert (page["lines"][0]["text"], page["lines"][0]["time"]) == ("late", 2000.0)


def test_a_search_gives_hits_progress_and_an_end(client: Client, begin: Callable[..., tuple[str, Path]]) -> None:
    job_id, _ = begin(one="".join(f"step {n} <script>\n" for n in range(5000)))
    answer = client.call("GET", f"/runs/{job_id}/log/search", q="step 4", shown=10)
    assert answer.headers["content-type"] == "application/x-ndjson"
    said = [json.loads(line) for line in answer.text.splitlines()]
    hits = [each for each in said if each["kind"] == "hit"]
    assert len(hits) == 10
    assert hits[1] == {
        "kind": "hit",
        "instance": hits[0]["instance"],
        "line": 40,
        "offset": 10 * 16 + 30 * 17,
        "start": 0,
        "end": 6,
        "text": "step 40 <script>",
    }
    assert [each["hits"] for each in said if each["kind"] == "progress"] == [1111]
    assert said[-1] == {"kind": "done", "hits": 1111, "complete": True, "trouble": ""}


def test_the_file_of_a_log_is_all_of_it(client: Client, begin: Callable[..., tuple[str, Path]]) -> None:
    text = "".join(f"line {n}\n" for n in range(1000))
    job_id, _ = begin(one=text)
    answer = client.call("GET", f"/runs/{job_id}/log/file")
    assert gzip.decompress(answer.content).decode() == text
    assert answer.headers["content-disposition"] == f'attachment; filename="{job_id}.log.gz"'


def test_instances_are_one_log_or_each_its_own(client: Client, begin: Callable[..., tuple[str, Path]]) -> None:
    job_id, _ = begin(one="a1\na2\n", two="b1\n")
    page = log(client, job_id)
    assert [line["text"] for line in page["lines"]] == ["a1", "a2", "b1"]
    second = page["instances"][1]
    assert [line["text"] for line in log(client, job_id, instance=second)["lines"]] == ["b1"]
    refused = client.call("GET", f"/runs/{job_id}/log/search", q="a", after=1)
    assert refused.status_code == 400


@pytest.mark.parametrize("path", ["/runs/nothing/log", "/runs/nothing/log/search?q=a", "/runs/nothing/log/file"])
def test_a_run_that_is_not_there_is_404(client: Client, path: str) -> None:
    name, _, query = path.partition("?")
    answer = client.call("GET", name, **dict(pair.split("=") for pair in query.split("&") if pair))
    assert answer.status_code == 404
    assert "RequestId" in answer.json()


def test_two_places_at_once_are_refused(client: Client, begin: Callable[..., tuple[str, Path]]) -> None:
    job_id, _ = begin(one="a\n")
    answer = client.call("GET", f"/runs/{job_id}/log", line=1, tail=2)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")


def test_a_search_whose_client_leaves_is_stopped(
    client: Client, begin: Callable[..., tuple[str, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, _ = begin(one="hit\n" * 50_000)
    looked = []

    def pieces(path: Path, start: int) -> Iterator[tuple[int, bytes]]:
        for number in range(10_000):
            looked.append(number)
            yield 0, b"hit\n" * 20_000

    monkeypatch.setattr(log_search, "_pieces", pieces)
    url = f"{client.info.endpoint}/api/v1/runs/{job_id}/log/search"
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    auth = Acs3Auth(key, "Any", "2022-01-12")
    with requests.Session() as session:
        answer = session.get(url, params={"q": "hit", "shown": 9000}, auth=auth, stream=True, timeout=PATIENCE_S)
        next(answer.iter_content(100))
        answer.close()
    until(lambda: looked, "the search")

    def is_quiet() -> bool:
        before = len(looked)
        time.sleep(0.1)
        return len(looked) == before

    until(is_quiet, "the end of the search")
    assert len(looked) < 10_000
