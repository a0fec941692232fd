"""Each route gets its dearest request, many times at once, while another client submits jobs.

The routes come from the OpenAPI description, so a new one is tried too: with the largest value of each number that
it takes, and with what is named here for its texts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._service.http.description import describe
from pai_sdk._service.routes.api_app import create_api
from pai_sdk._service.settings import ServiceInfo
from tests.service.runs.event_files import write_points
from tests.service.services import Client, job_body
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

MOST_BYTES = 512 << 20
MAX_WAIT_S = 1.0
TIMES_ALONE = 20  # on a slow machine: so many times as long as a submit takes alone
TRIES = 8  # a request that holds up others does so each time; a slow moment of the machine does not come back
AT_ONCE = 6  # of each request
RUNS, TAGS, POINTS = 30, 40, 300
PROGRAM = """
import sys
from pathlib import Path
from pai_sdk._service import server
from pai_sdk._service.settings import ServiceSettings
from tests.service.fakes import ScriptedExecutor
settings = ServiceSettings(Path(sys.argv[1]), slots=10_000, max_hold_s=2.0, max_stream_s=2.0)
server.open_executor = lambda *_, **__: ScriptedExecutor()
server.serve(settings, on_ready=lambda info: print(info.to_json(), flush=True))
"""


@dataclass
class Place:
    """A service in a process of its own, with much of everything.

    Attributes:
        client: of the service.
        job_ids: of the jobs, the first one with a long metric, and a long log.
        pid: of the service.
    """

    client: Client
    job_ids: list[str]
    pid: int

    def peak_bytes(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found
        return int(found[1]) << 10


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("dear") / "data"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        client = Client(ServiceInfo(**json.loads(process.stdout.readline()), data_dir=folder))
        try:
            yield Place(client, filled(client), process.pid)
        finally:
            client.session.close()
            process.terminate()
            process.wait(PATIENCE_S)


def filled(client: Client) -> list[str]:
    """Jobs with runs, logs, events, large descriptions."""
    definitions = [{"Name": f"p{n}", "Description": "x" * 4000} for n in range(100)]
    hparams = [{"Name": f"p{n}", "Value": str(n)} for n in range(100)]
    body = job_body(HyperParameters=hparams, AlgorithmSpec={"HyperParameters": definitions})
    ids = [client.create(body) for _ in range(RUNS)]
    for at, job_id in enumerate(ids):
        client.until(job_id, "Running")
        folder = client.info.data_dir / "jobs" / job_id
        values = [at + n / 8 for n in range(POINTS)]
        write_points(folder / "ml" / "output" / "tensorboard", {f"tag{n}": values for n in range(TAGS)})
    first = client.info.data_dir / "jobs" / ids[0]
    write_points(first / "ml" / "output" / "tensorboard", {"long": [n / 3 for n in range(200_000)]}, source="2")
    name = client.get(f"/trainingjobs/{ids[0]}")["Instances"][0]["Name"]
    line = "a" * 200 + " step 1\n"
    Sandbox(first).log_file(name).write_text(line * (32 * (1 << 20) // len(line)))

    def is_read() -> bool:
        return all(client.find(f"/runs/{one}").get("tags") for one in ids)

    until(is_read)
    return ids


# ---- the requests -----------------------------------------------------------------------------------------------

SEARCHES: list[dict[str, Any]] = [
    {"q": "(a+)+b", "regex": True, "time_limit": 60},
    {"q": "a", "shown": 10_000},
    {"q": "[aA]", "regex": True, "ignore_case": True, "shown": 10_000},
]
MORE: dict[str, list[dict[str, Any]]] = {
    "/api/v1/runs": [{"limit": 10_000, "tags": json.dumps([f"tag{n}" for n in range(1000)])}],
    "/api/v1/runs/{run_id}/scalars": [
        {"tag": "long"},
        {"tag": "long", "buckets": 100_000},
        {"tag": "long", "Accept": "text/csv"},
        {"tag": "long", "smooth": 0.9, "Accept": "application/vnd.pai.columns"},
    ],
    "/api/v1/runs/{run_id}/log": [{"tail": 10_000}, {"line": 0, "lines": 10_000}],
    "/api/v1/runs/{run_id}/log/search": SEARCHES,
    "/api/v1/events": [{"topics": ",".join(f"scalars:JOB:tag{n}" for n in range(TAGS)) + ",log:JOB,runs"}],
    "/api/v1/trainingjobs/{job_id}/instancemetrics": [{"MetricType": "CpuCoreUsage", "TimeStep": "1s"}],
    "/api/v1/trainingjobs/{job_id}/logs": [{"PageSize": 10_000}, {"PageSize": 10_000, "PageNumber": 10}],
}
BODIES: dict[str, list[dict[str, Any]]] = {
    "/api/v1/compare": [
        {"filter": "", "tags": [f"tag{n}" for n in range(TAGS)], "buckets": 10_000},
        {"filter": "", "tags": [f"tag{n}" for n in range(TAGS)], "buckets": 140, "last": True, "smooth": 0.5},
        {"filter": "", "tags": ["long"], "buckets": 10_000, "Accept": "text/csv"},
        {"filter": "", "tags": ["tag1"], "group_by": ["p1"], "band": "quantile", "buckets": 10_000},
    ],
    "/api/v1/hparams/diff": [{"filter": "", "metric": "tag1"}],
    "/api/v1/trainingjobs/changes": [{"Known": "JOBS"}],
}
DESCRIPTION = describe(create_api(None))  # type: ignore[arg-type] # no request is answered by this one
READING = sorted(
    (method, path)
    for path, methods in DESCRIPTION["paths"].items()
    for method in methods
    if method == "get" or path in BODIES
)


def requests_of(place: Place, method: str, path: str) -> list[tuple[str, dict[str, Any], dict[str, Any], str]]:
    """The dearest requests of a route: path, query, body, and the media type that is asked for."""
    job_id = place.job_ids[0]
    filled_in = re.sub(r"\{(run_id|job_id)\}", job_id, path).removeprefix("/api/v1")
    filled_in = re.sub(r"\{.*?\}", "nothing", filled_in)
    if method == "post":
        bodies = [dict(body) for body in BODIES[path]]
        accepts = [body.pop("Accept", "") for body in bodies]
        for body in bodies:
            if "Known" in body:
                body["Known"] = dict.fromkeys(place.job_ids, "")
        return [(filled_in, {}, body, accept) for body, accept in zip(bodies, accepts, strict=True)]
    largest = {
        parameter["name"]: limits["maximum"]
        for parameter in DESCRIPTION["paths"][path][method].get("parameters", [])
        for limits in [parameter["schema"]]
        if limits.get("type") == "integer" and "maximum" in limits and parameter["name"] != "PageNumber"
    }
    found = []
    for more in MORE.get(path, [{}]):
        query = {**largest, **more} if path not in MORE else dict(more)
        accept = query.pop("Accept", "")
        if "topics" in query:
            query["topics"] = query["topics"].replace("JOB", job_id)
        found.append((filled_in, query, {}, accept))
    return found


def ask(place: Place, method: str, path: str, query: dict[str, Any], body: dict[str, Any], accept: str) -> int:
    """One request, read to its end."""
    with requests.Session() as session:
        client = Client(place.client.info, session, timeout_s=4 * PATIENCE_S)  # a search may take a minute
        headers = {"Accept": accept} if accept else None
        answer = client.call(method.upper(), path, body=body or None, headers=headers, **query)
        return answer.status_code


def submit_beside(place: Place, method: str, path: str) -> tuple[set[int], float]:
    """The statuses of a route's dearest requests, and the longest seconds that a submit beside them took."""
    asked = requests_of(place, method, path) * AT_ONCE
    longest = 0.0
    with ThreadPoolExecutor(len(asked)) as pool:
        futures = [pool.submit(ask, place, method, *request) for request in asked]
        while not all(future.done() for future in futures):
            longest = max(longest, seconds_to_submit(place))
            threading.Event().wait(0.02)
        return {future.result() for future in futures}, longest


def seconds_to_submit(place: Place) -> float:
    begun = time.monotonic()
    place.client.create(job_body())
    return time.monotonic() - begun


@pytest.mark.parametrize(("method", "path"), READING)
def test_no_dear_request_holds_up_who_submits(place: Place, method: str, path: str) -> None:
    longest, max_wait_s = list[float](), MAX_WAIT_S
    while not longest or (longest[-1] >= max_wait_s and len(longest) < TRIES):
        statuses, waited = submit_beside(place, method, path)
        assert statuses <= {200, 400, 404, 426, 503}, statuses  # 426: a tunnel by plain HTTP
        longest.append(waited)
        max_wait_s = max(MAX_WAIT_S, TIMES_ALONE * min(seconds_to_submit(place) for _ in range(3)))
    assert longest[-1] < max_wait_s, longest
    assert place.peak_bytes() < MOST_BYTES
