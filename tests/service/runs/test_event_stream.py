"""The event stream: nothing is lost or there twice, after a break of the line, a rewrite or a restart."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import quote

import pytest
import requests

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.services.runs.cursors import Position, join_cursor, read_cursor
from pai_sdk._service.services.runs.topics import read_topics
from pai_sdk._service.settings import ConnectionLimits, Pace
from pai_sdk._service.wire_errors import WireError
from tests.service.fakes import ScriptedExecutor
from tests.service.runs.event_files import StreamMessage, messages_of, write_points
from tests.service.services import HELD_S, Client, job_body, running_service
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, until

FAST = Pace(batch_s=0.02, refresh_s=0.02)


@pytest.fixture
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture
def client(tmp_path: Path, executor: ScriptedExecutor) -> Iterator[Client]:
    with running_service(tmp_path / "data", executor, pace=FAST) as found:
        yield found


def new_job(client: Client) -> tuple[str, Path]:
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    root = client.info.data_dir / "jobs" / job_id
    folder = root / "ml" / "output" / "tensorboard"
    folder.mkdir(parents=True)
    return job_id, folder


@contextmanager
def stream(client: Client, topics: str, cursor: str = "") -> Iterator[Iterator[StreamMessage]]:
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    with requests.Session() as session:
        answer = session.get(
            f"{client.info.endpoint}/api/v1/events",
            params={"topics": topics},
            headers={"Last-Event-ID": cursor} if cursor else {},
            auth=Acs3Auth(key, "Any", "2022-01-12"),
            stream=True,
            timeout=PATIENCE_S,
        )
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        with answer:
            yield messages_of(answer)


class Page:
    """What a page has of one metric: points are put where the stream says."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float | None]] = []
        self.lines: list[str] = []
        self.cursor = ""
        self.resets = 0

    def take(self, message: StreamMessage) -> None:
        if message.event == "scalars":
            assert message.data["first"] <= len(self.points), "points are missing"
            del self.points[message.data["first"] :]
            self.points += zip(message.data["steps"], message.data["values"], strict=True)
        elif message.event == "log":
            assert message.data["first"] <= len(self.lines), "lines are missing"
            del self.lines[message.data["first"] :]
            self.lines += message.data["lines"]
            assert len(message.data["instances"]) == len(message.data["times"]) == len(message.data["lines"])
        self.resets += message.event == "reset"
        self.cursor = message.id


def loaded(client: Client, run_id: str, tag: str = "loss") -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        answer = client.call("GET", f"/runs/{run_id}/scalars", tag=tag)
        return answer.json() if answer.status_code == 200 else None

    return until(look, "its points")


def test_changed_runs_are_named(client: Client) -> None:
    with stream(client, "runs") as messages:
        assert next(messages).event == "ready"
        job_id, folder = new_job(client)
        assert job_id in next(messages).data["changed"]
        write_points(folder, {"loss": [1.0]})
        while job_id not in next(messages).data["changed"]:
            pass


def test_new_points_come_once_with_their_place(client: Client) -> None:
    job_id, folder = new_job(client)
    with EventWriter(folder) as writer:
        writer.scalars({"loss": 1.0}, 0)
        writer.flush()
        loaded(client, job_id)
        with stream(client, f"scalars:{job_id}:loss") as messages:
            assert next(messages).event == "ready"
            writer.scalars({"loss": 2.0}, 1)
            writer.scalars({"loss": float("nan")}, 2)
            writer.flush()
            page = Page()
            page.points = [(0, 1.0)]
            while len(page.points) < 3:
                page.take(next(messages))
            assert page.points == [(0, 1.0), (1, 2.0), (2, None)]


def test_a_page_that_was_away_gets_the_rest_exactly_once(client: Client) -> None:
    job_id, folder = new_job(client)
    topics = f"runs,scalars:{job_id}:loss,log:{job_id}"
    page, chance = Page(), random.Random(1)
    with EventWriter(folder) as writer, ThreadPoolExecutor(1) as pool:

        def train() -> None:
            for step in range(120):
                writer.scalars({"loss": step / 7}, step)
                writer.flush()
                log = client.info.data_dir / "jobs" / job_id / "logs"
                name = client_instance(client, job_id)
                with (log / f"{name}.log").open("a") as file:
                    file.write(f"line {step}\n")
                time.sleep(0.01)

        with stream(client, topics) as messages:
            page.cursor = next(messages).id
        training = pool.submit(train)
        while len(page.points) < 120 or len(page.lines) < 120:
            with stream(client, topics, page.cursor) as messages:
                for _ in range(chance.randint(1, 4)):
                    page.take(next(messages))
                    if len(page.points) == len(page.lines) == 120:
                        break
        training.result()
    assert page.points == [(step, pytest.approx(step / 7)) for step in range(120)]
    assert page.lines == [f"line {step}" for step in range(120)]
    assert page.resets == 0


def test_lines_come_with_their_instances_and_of_one_alone(client: Client) -> None:
    job_id, _ = new_job(client)
    name = client_instance(client, job_id)
    topics = f"log:{job_id},log:{job_id}:{name}"
    with stream(client, topics) as messages:
        assert next(messages).event == "ready"
        with (client.info.data_dir / "jobs" / job_id / "logs" / f"{name}.log").open("a") as file:
            file.write("one\ntwo\n")
        found: dict[str, list[tuple[str, str]]] = {topic: [] for topic in topics.split(",")}
        while any(len(lines) < 2 for lines in found.values()):
            data = next(messages).data
            assert len(data["times"]) == len(data["lines"])
            found[data["topic"]] += zip(data["instances"], data["lines"], strict=True)
    assert [*found.values()] == [[(name, "one"), (name, "two")]] * 2


def client_instance(client: Client, job_id: str) -> str:
    name: str = client.get(f"/trainingjobs/{job_id}")["Instances"][0]["Name"]
    return name


def test_a_stream_goes_on_after_a_restart_of_the_service(tmp_path: Path, executor: ScriptedExecutor) -> None:
    page = Page()
    with running_service(tmp_path / "data", executor, pace=FAST) as client:
        job_id, folder = new_job(client)
        write_points(folder, {"loss": [0.0, 1.0, 2.0]})
        page.points = list(enumerate(loaded(client, job_id)["values"]))
        topics = f"runs,scalars:{job_id}:loss,log:{job_id}"
        log = client.info.data_dir / "jobs" / job_id / "logs" / f"{client_instance(client, job_id)}.log"
        with stream(client, topics) as messages:
            page.take(next(messages))
            with log.open("a") as file:
                file.write("one\n")
            while not page.lines:
                page.take(next(messages))
    with log.open("a") as file:
        file.write("two\nthree\n")
    write_points(folder, {"loss": [3.0, 4.0]}, first_step=3, wall=2e9)
    with (
        running_service(tmp_path / "data", executor, pace=FAST) as client,
        stream(client, topics, page.cursor) as messages,
    ):
        events = []
        while len(page.points) < 5 or len(page.lines) < 3:
            message = next(messages)
            events.append(message.event)
            page.take(message)
    assert page.points == [(step, float(step)) for step in range(5)]
    assert page.lines == ["one", "two", "three"]
    assert page.resets == 0
    assert "resync" in events  # versions of the list begin anew


def test_a_training_that_goes_back_says_from_which_step(client: Client) -> None:
    job_id, folder = new_job(client)
    write_points(folder, {"loss": [0.0, 1.0, 2.0, 3.0]})
    page = Page()
    page.points = list(enumerate(loaded(client, job_id)["values"]))
    with stream(client, f"scalars:{job_id}:loss") as messages:
        assert next(messages).event == "ready"
        (before,) = folder.iterdir()
        write_points(folder, {"loss": [0.0, 1.0, 20.0, 30.0]})
        before.unlink()
        rewrites = []
        while [value for _, value in page.points] != [0.0, 1.0, 20.0, 30.0]:
            message = next(messages)
            page.take(message)
            rewrites += [message.data["step"]] if message.event == "rewrite" else []
        assert rewrites
        assert min(rewrites) >= 0
    assert page.points == [(0, 0.0), (1, 1.0), (2, 20.0), (3, 30.0)]


def test_a_source_that_is_another_one_is_reset_and_no_error(client: Client) -> None:
    job_id, folder = new_job(client)
    write_points(folder, {"loss": [0.0, 1.0]})
    loaded(client, job_id)
    topic = f"scalars:{job_id}:loss"
    strange = join_cursor({topic: Position("deadbeef", 3, 2)})
    with stream(client, topic, strange) as messages:
        assert [next(messages).event, next(messages).event] == ["ready", "reset"]
    with stream(client, topic, "no cursor of ours") as messages:
        assert next(messages).event == "ready"


def test_a_quiet_stream_has_comments(start: Callable[..., Any]) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(start(ScriptedExecutor(), pace=replace(FAST, comment_s=0.01)))
        key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
        url = f"{client.info.endpoint}/api/v1/events"
        answer = requests.get(url, auth=Acs3Auth(key, "Any", "1"), stream=True, timeout=PATIENCE_S)
        stack.enter_context(answer)
        lines = answer.iter_lines(chunk_size=1)
        assert next(lines) == b"retry: 1000"
        while next(lines) != b":":
            pass


def test_a_stream_ends_after_its_time(start: Callable[..., Any]) -> None:
    with start(ScriptedExecutor(), max_stream_s=0.05) as client, stream(client, "runs") as messages:
        assert [message.event for message in messages] == ["ready"]


def test_a_service_that_ends_waits_for_no_stream(start: Callable[..., Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        # A grace period and a stream that take longer than the test waits.
        patient = ConnectionLimits(grace_s=2 * PATIENCE_S)
        with start(ScriptedExecutor(), max_stream_s=HELD_S, connections=patient) as client:
            seen = Event()

            def read() -> int:
                with stream(client, "runs") as messages:
                    next(messages)
                    seen.set()
                    return sum(1 for _ in messages)

            rest = pool.submit(read)
            assert seen.wait(PATIENCE_S)
            begun = time.monotonic()
        assert rest.result() == 0
        assert time.monotonic() - begun < PATIENCE_S


@pytest.mark.parametrize(
    "topics", ["nothing", "scalars:a", "log", "log:a:b:c", ",".join(f"log:{n}" for n in range(101))]
)
def test_topics_that_there_are_not_are_refused(client: Client, topics: str) -> None:
    with refused(WireError):
        read_topics(topics)
    assert client.call("GET", "/events", topics=topics).status_code == 400


def test_a_log_of_no_run_is_404(client: Client) -> None:
    assert client.call("GET", "/events", topics="log:nothing").status_code == 404


def test_names_with_separators_are_written_as_in_urls() -> None:
    name = "scalars:" + quote("a:b,c/d", safe="") + ":" + quote("eval/loss", safe="")
    assert read_topics(f"{name},runs") == [(name, ["scalars", "a:b,c/d", "eval/loss"]), ("runs", ["runs"])]


def test_a_cursor_is_read_for_the_topics_that_it_has() -> None:
    cursor = join_cursor({"runs": Position("a1", 7, 0), "log:x": Position("0", 0, 12)})
    assert read_cursor(cursor, ["log:x", "log:y"]) == {"log:x": Position("0", 0, 12)}
    for text in ("", "~", "x" * 100_000, "00000000:a.1.2", cursor.replace(".", ":")):
        assert read_cursor(text, ["runs"]) == {}
