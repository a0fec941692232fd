"""The service as a server: submissions, lists of many jobs, what it costs while nothing happens."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from pai_sdk._service.state.database import Database
from pai_sdk._service.state.folder import read_info
from pai_sdk._service.state.models import Job, JobLabel, Transition
from tests.benchmarks.harness import Row
from tests.service.services import Client, job_body

REPETITIONS = 3

ONE = Row("submissions, one client", "/s", at_least=300)
MANY = Row("submissions, 8 clients", "/s", at_least=500)
REFUSALS = Row("unsigned requests refused, 8 clients", "/s")
SIZES = (100, 1_000, 10_000)
LISTS = {size: Row(f"list of 100 of {size:,} jobs, p99", "ms") for size in SIZES}
BY_LABEL = Row(f"list by label among {SIZES[-1]:,} jobs, p99", "ms")
GROWTH = Row(f"growth of the list from {SIZES[0]:,} to {SIZES[-1]:,} jobs, medians", "x", at_most=3)
IDLE = Row("CPU while nothing happens", "%", at_most=1)
WITH_JOB = Row("CPU while one job runs", "%")
MEMORY = Row("memory after all this", "MiB")
ROWS = (ONE, MANY, REFUSALS, *LISTS.values(), BY_LABEL, GROWTH, IDLE, WITH_JOB, MEMORY)

_SUBMISSIONS = 200
_LISTS = 200
_IDLE_S = 5.0


def measure(cache: Path) -> dict[str, float | str]:
    data = Path("data").absolute()
    command = [sys.executable, "-m", "pai_sdk._service", "--data", str(data), "--slots", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            return _measure(Client(until_up(data)), psutil.Process(process.pid))
        finally:
            process.terminate()


def _measure(client: Client, process: psutil.Process) -> dict[str, float | str]:
    found: dict[str, float | str] = {IDLE.name: _cpu_percent(process)}
    running = client.create(job_body("sleep 1000"))
    client.until(running, "Running")
    found[WITH_JOB.name] = _cpu_percent(process)
    found[ONE.name] = _per_second(_SUBMISSIONS, lambda: client.create(job_body()), clients=1)
    found[MANY.name] = _per_second(_SUBMISSIONS, lambda: client.create(job_body()), clients=8)
    found[REFUSALS.name] = _per_second(
        1000, lambda: client.session.get(client.info.endpoint + "/api/v1/x"), clients=8
    )
    found.update(_lists(client))
    client.call("PUT", f"/trainingjobs/{running}/stop")
    found[MEMORY.name] = process.memory_info().rss / 2**20
    return found


def _lists(client: Client) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    medians = []
    there = client.get("/trainingjobs")["TotalCount"]
    database = Database.in_file(client.info.data_dir / "service.db")
    # The first size is smaller than what the submissions have left: those are of another name.
    for size, more in zip(SIZES, (SIZES[0], SIZES[1] - SIZES[0], SIZES[2] - SIZES[1] - there), strict=True):
        _insert(database, more)
        times = sorted(_timed(lambda: client.get("/trainingjobs", PageSize=100)) for _ in range(_LISTS))
        medians.append(times[len(times) // 2])
        found[LISTS[size].name] = 1000 * times[int(0.99 * len(times))]
    times = sorted(_timed(lambda: client.get("/trainingjobs", Labels='{"n": "7"}')) for _ in range(_LISTS))
    found[BY_LABEL.name] = 1000 * times[int(0.99 * len(times))]
    found[GROWTH.name] = medians[-1] / medians[0]
    database.close()
    return found


def _insert(database: Database, count: int) -> None:
    now = time.time()
    with database.write() as session:
        for number in range(count):
            session.add(
                Job(
                    id=f"train{time.monotonic_ns():x}{number:x}",
                    name=f"job-{number}",
                    workspace_id="1",
                    request=job_body(),
                    instance_count=1,
                    status="Succeed",
                    created_at=now,
                    modified_at=now,
                    instances=[],
                    transitions=[
                        Transition(status=s, started_at=now, ended_at=now) for s in ("Running", "Succeed")
                    ],
                    labels=[JobLabel(key="n", value=str(number % 100))],
                )
            )


def _per_second(count: int, act: Callable[[], object], *, clients: int) -> float:
    with ThreadPoolExecutor(clients) as pool:
        begun = time.perf_counter()
        for future in [pool.submit(act) for _ in range(count)]:
            future.result()
        return count / (time.perf_counter() - begun)


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _cpu_percent(process: psutil.Process) -> float:
    time.sleep(1)
    before = process.cpu_times()
    time.sleep(_IDLE_S)
    after = process.cpu_times()
    return 100 * (after.user + after.system - before.user - before.system) / _IDLE_S


def until_up(data: Path):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        info = read_info(data)
        try:
            if info is not None and Client(info).call("GET", "/workspaces").status_code == 200:
                return info
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit("the service did not come up")
