"""Budgets of routes: they are stated, what exceeds them is refused, and a client that leaves ends its work."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from pai_sdk._data.logs import search
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._service.http.description import describe
from pai_sdk._service.routes.api_app import create_api
from pai_sdk._service.services.budgets import COMPARE, SEARCH, Abandoned, Budget, Share, Shares, Work
from pai_sdk._service.settings import Pace
from pai_sdk._service.wire_errors import WireError
from tests.service.fakes import ScriptedExecutor
from tests.service.runs.event_files import write_points
from tests.service.services import HELD_S, Client, job_body, running_service
from tests.support.messages import refused
from tests.support.waiting import PATIENCE_S, quickest, until


@pytest.fixture(scope="module")
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, executor: ScriptedExecutor) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("budgets") / "data"
    with running_service(folder, executor, slots=200, max_hold_s=HELD_S) as found:
        yield found


@pytest.fixture(scope="module")
def job_id(client: Client, executor: ScriptedExecutor) -> str:
    return job_with_a_log(client, executor)


def job_with_a_log(client: Client, executor: ScriptedExecutor) -> str:
    job_id = client.create(job_body())
    client.until(job_id, "Running")
    root = client.info.data_dir / "jobs" / job_id
    Sandbox(root).log_file(f"{job_id}-master-0").parent.mkdir(parents=True, exist_ok=True)
    name = client.get(f"/trainingjobs/{job_id}")["Instances"][0]["Name"]
    executor.print(root, name, ("a" * 60 + "\n") * 100_000)
    return job_id


def ask_and_go_on(client: Client, path: str, **query: Any) -> socket.socket:
    """Send a request, and do not wait for its response."""
    sent: list[requests.PreparedRequest] = []
    session = requests.Session()
    session.send = lambda request, **_: sent.append(request)  # type: ignore[method-assign, assignment]
    headers = query.pop("headers", None)
    Client(client.info, session).call("GET", path, headers=headers, **query)
    lines = [f"GET {sent[0].path_url} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in sent[0].headers.items()]
    address = urlsplit(client.info.endpoint)
    connection = socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)
    connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    return connection


# ---- what is stated ---------------------------------------------------------------------------------------------


def test_the_description_states_the_budget_of_each_route() -> None:
    paths = describe(create_api(None))["paths"]  # type: ignore[arg-type] # no request is answered by this one
    stated = {
        f"{method} {path}": operation["x-budget"] for path, of in paths.items() for method, operation in of.items()
    }
    assert len(stated) > 40
    for name, budget in stated.items():
        assert budget["seconds"] > 0, name
        assert budget["share"], name
        assert budget["instead"], name
        assert budget.get("responseBytes", 0) <= 64 << 20, name
    assert stated["post /api/v1/compare"] == COMPARE.to_openapi()
    assert stated["get /api/v1/runs/{run_id}/log/search"]["threads"] == SEARCH.share.threads
    own = {"jobs", "lists", "changes", "logs"}
    of_jobs = {budget["share"] for name, budget in stated.items() if "/trainingjobs" in name}
    of_runs = {budget["share"] for name, budget in stated.items() if "/runs" in name or "compare" in name}
    assert of_jobs == own
    assert not of_runs & own


# ---- what is refused --------------------------------------------------------------------------------------------


def test_a_comparison_that_would_be_too_large_is_refused_before_it_is_computed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [f"tag{number}" for number in range(50)]
    ids = [client.create(job_body()) for _ in range(60)]
    for at, job_id in enumerate(ids):
        client.until(job_id, "Running")
        values = [0.5] * (6001 if at == 0 else 1)
        folder = client.info.data_dir / "jobs" / job_id / "ml" / "output" / "tensorboard"
        write_points(folder, dict.fromkeys(tags, values))

    def is_read() -> bool:
        return all(client.find(f"/runs/{one}").get("tags") for one in (ids[0], ids[-1]))

    until(is_read)
    body = {"runs": ids, "tags": tags, "buckets": 3000}

    def seconds_to_refuse() -> float:
        begun = time.monotonic()
        client.call("POST", "/compare", body=body)
        return time.monotonic() - begun

    assert quickest(seconds_to_refuse, enough_s=1) < 1
    refused = client.call("POST", "/compare", body=body)
    assert (refused.status_code, refused.json()["Code"]) == (400, "BudgetExceeded")
    said = refused.json()["Message"]
    assert "60 runs, 50 tags, 3000 buckets" in said
    assert "fewer buckets" in said
    for smaller in ({"buckets": 20}, {"tags": tags[:1]}):
        assert client.call("POST", "/compare", body={**body, **smaller}).status_code == 200


def test_a_list_of_large_jobs_asks_for_a_smaller_page(client: Client) -> None:
    name = "of-much-text"
    definitions = [{"Name": f"p{n}", "Description": "x" * 4000} for n in range(200)]
    large = {"AlgorithmSpec": {"HyperParameters": definitions}}
    for _ in range(22):
        client.create(job_body(TrainingJobName=name, **large))
    refused = client.call("GET", "/trainingjobs", PageSize=100, TrainingJobName=name)
    assert (refused.status_code, refused.json()["Code"]) == (400, "BudgetExceeded")
    assert "a smaller PageSize" in refused.json()["Message"]
    page = client.get("/trainingjobs", PageSize=10, TrainingJobName=name)
    assert (len(page["TrainingJobs"]), page["TotalCount"]) == (10, 22)

    # The changes of many jobs come in parts: what is not in one of them still differs from what is known.
    jobs = [*page["TrainingJobs"], *client.get("/trainingjobs", PageSize=10, PageNumber=2)["TrainingJobs"]]
    known = {job["TrainingJobId"]: "" for job in jobs}
    for _ in range(10):
        answer = client.call("POST", "/trainingjobs/changes", body={"Known": known}).json()
        known |= answer["ETags"]
        if all(known.values()):
            break
    assert all(known.values())


# ---- who leaves -------------------------------------------------------------------------------------------------


def test_searches_whose_clients_have_left_end_and_jobs_go_on_meanwhile(client: Client, job_id: str) -> None:
    pattern = "(a+)+b"  # takes for ever, on each line
    path = f"/runs/{job_id}/log/search"
    connections = [ask_and_go_on(client, path, q=pattern, regex=True, time_limit=60) for _ in range(45)]
    try:
        # Searches that hold up a submit do so each time; a slow moment of the machine does not come back.
        assert quickest(lambda: max(seconds_to_create(client) for _ in range(10)), enough_s=1) < 1
    finally:
        for connection in connections:
            connection.close()
    begun = time.monotonic()
    found = client.call("GET", path, q="nowhere", time_limit=60)
    assert '"kind": "done"' in found.text
    assert time.monotonic() - begun < PATIENCE_S  # not the 45 minutes that they asked for


def seconds_to_create(client: Client) -> float:
    begun = time.monotonic()
    client.create(job_body())
    return time.monotonic() - begun


def test_a_long_poll_whose_client_leaves_waits_no_longer(client: Client, job_id: str, held: set[Any]) -> None:
    etag = client.call("GET", f"/trainingjobs/{job_id}").headers["ETag"]
    headers = {"If-None-Match": etag, "Prefer": f"wait={HELD_S:g}"}
    connection = ask_and_go_on(client, f"/trainingjobs/{job_id}", headers=headers)
    (news,) = until(lambda: held)
    until(lambda: news._event._waiters)
    connection.close()
    until(lambda: not news._event._waiters, "the end of the request")


def test_a_share_that_is_full_says_when_to_come_again(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def chunks(*_: Any) -> Iterator[tuple[int, bytes]]:
        go_on.wait(PATIENCE_S)
        yield 0, b"a\n"

    monkeypatch.setattr(search, "_chunks", chunks)
    executor = ScriptedExecutor()
    with start(executor, pace=Pace(slot_timeout_s=0.1)) as client, ExitStack() as stack:
        stack.callback(go_on.set)
        job_id = job_with_a_log(client, executor)
        asked = [
            stack.enter_context(closing(ask_and_go_on(client, f"/runs/{job_id}/log/search", q="a")))
            for _ in range((SEARCH.share.requests or 0) + 1)
        ]
        full: list[str] = []
        while not full:  # those with a place respond later, when a thread is free for them
            ready, _, _ = select.select(asked, [], [], PATIENCE_S)
            assert ready
            answers = [connection.recv(4096) for connection in ready]
            asked = [connection for connection in asked if connection not in ready]
            full = [answer.decode() for answer in answers if not answer.startswith(b"HTTP/1.1 200 ")]
        for answer in full:
            assert answer.startswith("HTTP/1.1 503 ")
            assert "retry-after: 2" in answer
        assert quickest(lambda: seconds_to_create(client), enough_s=1) < 1
        assert client.call("GET", f"/trainingjobs/{job_id}/logs").status_code == 200
        stack.close()
        again = client.call("GET", f"/runs/{job_id}/log/search", q="a")
        assert again.status_code == 200


# ---- the mechanism ----------------------------------------------------------------------------------------------


def test_work_ends_with_its_time_and_its_client() -> None:
    now = [0.0]
    work = Work(Budget(Share("x"), 5.0, 100, "less"), clock=lambda: now[0])
    work.check()
    now[0] = 5.1
    with refused(WireError) as caught:
        work.check()
    assert caught.value.status_code == 400
    work.is_disconnected = True
    with pytest.raises(Abandoned):
        work.check()


def test_what_would_fill_the_memory_is_refused_with_what_to_ask_for() -> None:
    work = Work(COMPARE)
    work.hold(COMPARE.values or 0, "points")
    with refused(WireError):
        work.hold(7_000_000, "points")
    for _ in range(32):
        work.spend(1 << 20)
    with refused(WireError):
        work.spend(1)


def test_the_threads_of_a_share_are_as_many_as_it_says() -> None:
    running, most, lock, three = [0], [0], threading.Lock(), threading.Barrier(3)

    def step() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        three.wait(PATIENCE_S)
        with lock:
            running[0] -= 1

    async def many() -> None:
        threads = Shares().of(Share("x", threads=3))
        await asyncio.gather(*(threads.run(step, PATIENCE_S) for _ in range(12)))

    asyncio.run(many())
    assert most == [3]
