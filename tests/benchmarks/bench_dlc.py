"""DLC beside the API of training jobs: submissions, lists of many jobs, the logs of many pods.

Both are measured in turns, and each value is the median of the ratios of the turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import select
from urllib3.connectionpool import HTTPConnectionPool

from pai_sdk import Session
from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.dlc_models import DlcJobRow
from pai_sdk._service.state.models import Job, JobLabel, Transition
from pai_sdk._wire.dlc.actions import ACTIONS, API_VERSION
from pai_sdk._wire.dlc.names import new_job_id
from pai_sdk._wire.pai.record import LogLine
from tests.benchmarks.bench_service import until_up
from tests.benchmarks.harness import Row
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import until

REPETITIONS = 1

_AIM = 0.9
SUBMISSIONS = Row("submissions a second, DLC to training jobs", "x", at_least=_AIM)
LISTS = Row("all of 10,000 jobs listed, jobs a second, DLC to training jobs", "x", at_least=_AIM)
LOGS = Row("logs of 500 pods, logs for a second of processor time, DLC to training jobs", "x", at_least=_AIM)
REQUESTS = Row("logs of 500 instances, requests of training jobs for one of DLC", "x", at_least=_AIM)
RATES = {
    (row, api): Row(f"{what}, {api}", unit)
    for row, what, unit in (
        (SUBMISSIONS, "submissions", "/s"),
        (LISTS, "jobs listed", "/s"),
        (LOGS, "logs read, for processor time of both sides", "/s"),
    )
    for api in ("DLC", "training jobs")
}
ROWS = (SUBMISSIONS, LISTS, LOGS, REQUESTS, *RATES.values())

_JOBS = 10_000
_INSTANCES = 500
_TURNS = 7
_SUBMISSIONS = 40
_FOLLOWED_S = 20.0
_EVERY_S = 2.0  # a line of each instance
_SPECS = [{"Type": "Worker", "PodCount": _INSTANCES, "Image": "none", "EcsSpec": "x"}]


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    del cache
    found: dict[str, float | str] = {}
    data = Path("data").absolute()
    command = [sys.executable, "-m", "pai_sdk._service", "--data", str(data), "--slots", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            client = Client(until_up(data))
            client.create(job_body("sleep 1000"))  # the others wait for it
            found |= _compared(SUBMISSIONS, _submissions(client))
            _insert(client)
            with _session(client, "dlc") as dlc, _session(client, "trainingjob") as training:
                found |= _compared(LISTS, {"DLC": _listed(dlc), "training jobs": _listed(training)}, turns=3)
        finally:
            process.terminate()
    return found | _followed()


def _compared(row: Row, rate_of: Mapping[str, Callable[[], float]], turns: int = _TURNS) -> dict[str, float | str]:
    """Measures both in turns; returns the median of their ratios, and the medians of both."""
    rates: dict[str, list[float]] = {api: [] for api in rate_of}
    for turn in range(turns + 1):
        # Each of them is first in every second turn.
        for api, rate in [*rate_of.items()][:: 1 if turn % 2 else -1]:
            value = rate()
            if turn:  # the first turn warms the caches
                rates[api].append(value)
    pairs = zip(rates["DLC"], rates["training jobs"], strict=True)
    found: dict[str, float | str] = {RATES[row, api].name: statistics.median(rates[api]) for api in rates}
    return found | {row.name: statistics.median(dlc / training for dlc, training in pairs)}


def _submissions(client: Client) -> dict[str, Callable[[], float]]:
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)

    def rate(path: str, version: str, body: dict[str, Any]) -> float:
        begun = time.perf_counter()
        for _ in range(_SUBMISSIONS):
            auth = Acs3Auth(key, "Any", version)
            answer = client.session.post(client.info.endpoint + path, json=body, auth=auth, timeout=60)
            assert answer.status_code == 200, answer.text
        return _SUBMISSIONS / (time.perf_counter() - begun)

    return {
        "DLC": partial(rate, ACTIONS["CreateJob"].path, API_VERSION, dlc_body()),
        "training jobs": partial(rate, "/api/v1/trainingjobs", "2022-01-12", job_body()),
    }


def _session(client: Client, api: str) -> Session:
    info = client.info
    return Session(
        info.region_id,
        info.workspace_id,
        oss_bucket_name=info.bucket,
        oss_endpoint=info.oss_endpoint,
        endpoint=info.endpoint,
        credentials=static_credentials(info.access_key_id, info.access_key_secret),
        api=api,
    )


def _listed(session: Session) -> Callable[[], float]:
    """Returns what lists all jobs as the library does."""

    def rate() -> float:
        begun = time.perf_counter()
        count = sum(1 for _ in session.list_jobs())
        assert count >= _JOBS
        return count / (time.perf_counter() - begun)

    return rate


def _insert(client: Client) -> None:
    """Adds 10,000 ended jobs of each API, as if they had been created by it."""
    database = Database.in_file(client.info.data_dir / "service.db")
    with database.read() as session:
        of_dlc = session.scalars(select(DlcJobRow).limit(1)).one()
        dlc_request = session.scalars(select(Job).where(Job.number == of_dlc.number)).one().request
    for is_of_dlc in (False, True):
        for start in range(0, _JOBS, 1000):
            with database.write() as session:
                jobs = [
                    _ended_job(number, dlc_request if is_of_dlc else job_body())
                    for number in range(start, start + 1000)
                ]
                session.add_all(jobs)
                session.flush()
                if is_of_dlc:
                    fields = {"job_type": of_dlc.job_type, "images": of_dlc.images, "body": of_dlc.body}
                    session.add_all(DlcJobRow(number=job.number, **fields) for job in jobs)
    database.close()


def _ended_job(number: int, request: dict[str, Any]) -> Job:
    now = time.time()
    return Job(
        id=new_job_id(),
        name=f"job-{number}",
        workspace_id="1",
        request=request,
        instance_count=1,
        status="Succeed",
        created_at=now,
        modified_at=now,
        instances=[],
        transitions=[Transition(status=word, started_at=now, ended_at=now) for word in ("Running", "Succeed")],
        labels=[JobLabel(key="n", value=str(number % 100))],
    )


# ---- logs


def _followed() -> dict[str, float | str]:
    """Follows a running job of 500 instances of each API, in turns; the service is in this process."""
    executor = ScriptedExecutor()
    with running_service(Path("logs").absolute(), executor, slots=3 * _INSTANCES) as client, _counted() as count:
        sizes = {"EcsSpec": "x", "EcsCount": _INSTANCES}
        ids = {"dlc": DlcClient(client.info).create(dlc_body(JobSpecs=_SPECS))}
        ids["trainingjob"] = client.create(job_body(ComputeResource=sizes))
        until(lambda: len(executor.running) == len(ids), "both run")
        requests: dict[str, list[int]] = {api: [] for api in ids}

        def rate(api: str) -> float:
            before = count[0]
            followed, cpu_s = _follow(client, api, ids[api], executor)
            requests[api].append(count[0] - before)
            return followed / cpu_s

        rates = {"DLC": partial(rate, "dlc"), "training jobs": partial(rate, "trainingjob")}
        found = _compared(LOGS, rates, turns=2)
        medians = {api: statistics.median(counts[1:]) for api, counts in requests.items()}
        for job_id in ids.values():
            executor.succeed(client.info.data_dir / "jobs" / job_id)
    return found | {REQUESTS.name: medians["trainingjob"] / medians["dlc"]}


def _follow(client: Client, api: str, job_id: str, executor: ScriptedExecutor) -> tuple[int, float]:
    """Follows a job for some seconds while it writes; returns the instances with lines, and the processor time."""
    root = client.info.data_dir / "jobs" / job_id
    lines: Counter[str] = Counter()

    def read() -> None:
        with _session(client, api) as session:
            stream = session.get_job(job_id).logs(follow=True)
            for update in stream.updates(deadline=time.monotonic() + _FOLLOWED_S):
                if isinstance(update, LogLine):
                    lines[update.instance] += 1

    reader = threading.Thread(target=read)
    begun, cpu_s = time.monotonic(), time.process_time()
    reader.start()
    while time.monotonic() - begun < _FOLLOWED_S:
        for rank in range(_INSTANCES):
            executor.print(root, f"{job_id}-{'master' if not rank else 'worker'}-{max(0, rank - 1)}", "a line\n")
        time.sleep(_EVERY_S)
    reader.join()
    return len(lines), time.process_time() - cpu_s


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Counts the requests of clients in this process."""
    count, urlopen = [0], HTTPConnectionPool.urlopen

    def counting(*arguments: Any, **options: Any) -> Any:
        count[0] += 1
        return urlopen(*arguments, **options)

    HTTPConnectionPool.urlopen = counting  # type: ignore[method-assign]
    try:
        yield count
    finally:
        HTTPConnectionPool.urlopen = urlopen  # type: ignore[method-assign]
