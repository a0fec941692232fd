"""The log of a run over HTTP: by line, by time, by byte and from its end; searched; as a file."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._data.logs import search as log_search
from pai_sdk._host.agent.sandbox import Sandbox
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S, until


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


def test_a_hit_of_one_instance_is_found_in_the_merged_log(
    client: Client, begin: Callable[..., tuple[str, Path]]
) -> None:
    job_id, _ = begin(one="a1\na2\n", two="b1\nb2\n")
    answer = client.call("GET", f"/runs/{job_id}/log/search", q="b2")
    hit = next(each for each in map(json.loads, answer.text.splitlines()) if each["kind"] == "hit")
    page = log(client, job_id, after=hit["offset"], after_instance=hit["instance"])
    assert (page["lines"][0]["number"], page["lines"][0]["text"]) == (3, "b2")


@pytest.mark.parametrize("pattern", ["(", "((?:(?:a{1000}){1000}){1000})", "a" * 2000, "", "a\nb"])
def test_a_query_that_cannot_be_is_refused(
    client: Client, begin: Callable[..., tuple[str, Path]], pattern: str
) -> None:
    job_id, _ = begin(one="a\n")
    answer = client.call("GET", f"/runs/{job_id}/log/search", q=pattern, regex=True)
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert answer.json()["Message"].startswith("q: ")


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

    def pieces(path: Path, start: int, chunk_bytes: int) -> Iterator[tuple[int, bytes]]:
        for number in range(10_000):
            looked.append(number)
            yield 0, b"hit\n" * 20_000

    monkeypatch.setattr(log_search, "_chunks", pieces)
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
