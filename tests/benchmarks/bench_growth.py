"""Growth: what one request costs among a thousand and a hundred thousand jobs, ten thousand and a million objects.

Rows are written into the databases directly, so that the sizes are reached in seconds. Each value is a median.
"""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import oss2
from sqlalchemy import insert

from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._data.storage.stores.local import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job, JobLabel, Transition
from tests.benchmarks.bench_runs_http import served_runs
from tests.benchmarks.bench_service import until_up
from tests.benchmarks.harness import Row
from tests.service.objects.serving import BUCKET, KEY_ID, REGION, SECRET
from tests.service.services import Client, job_body

REPETITIONS = 1

JOBS = (1_000, 10_000, 100_000)
OBJECTS = (10_000, 100_000, 1_000_000)
FILES = (1_000, 10_000)
RUN_FOLDERS = (100, 1_000, 10_000)
A_DECADE = 1.3
TIMES = 100
BLOB = "row-{:012d}"


def _rows_of(what: str, sizes: Sequence[int], things: str) -> dict[int, Row]:
    return {size: Row(f"{what}, among {size:,} {things}", "ms") for size in sizes}


SUBMIT = _rows_of("submission of a job", JOBS, "jobs")
LIST = _rows_of("list of 100 jobs", JOBS, "jobs")
RUNS = _rows_of("list of 100 runs over HTTP", RUN_FOLDERS, "runs")
PUT = _rows_of("put of a small object", OBJECTS, "objects")
PAGE = _rows_of("list of 1,000 objects", OBJECTS, "objects")
SYNC = _rows_of("sync of a folder without changes, a file of it", FILES, "files")
GROUPS = (SUBMIT, LIST, RUNS, PUT, PAGE, SYNC)


def _growth(group: dict[int, Row]) -> Row:
    """The growth for each factor of ten between the smallest and the largest size."""
    name = next(iter(group.values())).name.partition(", among")[0]
    return Row(f"{name}: growth for ten times as many", "x", at_most=A_DECADE)


ROWS = tuple(row for group in GROUPS for row in (*group.values(), _growth(group)))


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    del cache
    found: dict[str, float | str] = {**_jobs(Path("service").absolute()), **_objects(Path("objects").absolute())}
    found |= {RUNS[size].name: _runs_ms(Path(f"runs-{size}").absolute(), size) for size in RUN_FOLDERS}
    found |= {SYNC[size].name: _sync_ms(Path(f"sync-{size}"), size) for size in FILES}
    for group in GROUPS:
        values = [float(found[row.name]) for row in group.values()]
        found[_growth(group).name] = (values[-1] / values[0]) ** (1 / (len(values) - 1))
    return found


def _median_ms(act: Callable[[], object], times: int = TIMES) -> float:
    def timed() -> float:
        begun = time.perf_counter()
        act()
        return time.perf_counter() - begun

    return 1e3 * statistics.median(timed() for _ in range(times))


# ---- jobs


def _jobs(data: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "pai_sdk._service", "--data", str(data), "--slots", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            client, found, there = Client(until_up(data)), {}, 0
            client.until(client.create(job_body("sleep 1000")), "Running")  # the others wait
            with closing(Database.in_file(data / "service.db")) as database:
                for size in JOBS:
                    _add_jobs(database, there, size)
                    there = size
                    found[SUBMIT[size].name] = _median_ms(lambda: client.create(job_body()))
                    found[LIST[size].name] = _median_ms(lambda: client.get("/trainingjobs", PageSize=100))
            return found
        finally:
            process.terminate()


def _add_jobs(database: Database, first: int, end: int) -> None:
    """Jobs that have ended, in the tables that a job is in."""
    now, numbers = time.time() - 3600, range(first, end)
    common = {
        "workspace_id": "1",
        "request": job_body(),
        "instance_count": 1,
        "status": "Succeed",
        "instances": [],
    }
    jobs = [
        {**common, "id": f"train{n:012d}", "name": f"job-{n}", "created_at": now, "modified_at": now}
        for n in numbers
    ]
    transitions = [
        {"job_id": job["id"], "status": status, "started_at": now, "ended_at": now}
        for job in jobs
        for status in ("Running", "Succeed")
    ]
    labels = [
        {"job_id": job["id"], "key": "n", "value": str(n % 100)} for n, job in zip(numbers, jobs, strict=True)
    ]
    with database.write() as session:
        for table, rows in ((Job, jobs), (Transition, transitions), (JobLabel, labels)):
            session.execute(insert(table), rows)


# ---- objects


def _objects(root: Path) -> dict[str, float]:
    found, there = {}, 0
    with _served(root):  # makes the tables
        pass
    for size in OBJECTS:
        _add_objects(root / "objects.db", there, size)
        there = size
        with _served(root) as bucket:
            names = iter(range(TIMES))
            found[PUT[size].name] = _median_ms(partial(_put, bucket, f"data/{size:09d}-", names))
            middle = f"data/{size // 2:09d}"
            page = partial(bucket.list_objects_v2, "data/", start_after=middle, max_keys=1000)
            found[PAGE[size].name] = _median_ms(page, TIMES // 4)
    return found


def _put(bucket: oss2.Bucket, prefix: str, names: Iterator[int]) -> None:
    bucket.put_object(f"{prefix}{next(names)}", b"x" * 100)


@contextmanager
def _served(root: Path) -> Iterator[oss2.Bucket]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.service.objects.serving", str(root), "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield oss2.Bucket(
                oss2.AuthV4(KEY_ID, SECRET), process.stdout.readline().strip(), BUCKET, region=REGION
            )
        finally:
            process.kill()


def _add_objects(path: Path, first: int, end: int) -> None:
    """Small objects with a content each."""
    with closing(sqlite3.connect(path)) as connection, connection:
        known = connection.execute("SELECT COALESCE(MAX(id), 0) FROM oss_contents").fetchone()[0]
        connection.executemany(
            "INSERT INTO oss_contents (id, content) VALUES (?, ?)",
            ((known + 1 + n, b"x" * 100) for n in range(end - first)),
        )
        connection.executemany(
            "INSERT INTO oss_objects "
            "(bucket, key, size_bytes, etag, content_type, modified_at, kind, headers, blob) "
            "VALUES (?, ?, 100, '0', 'text/plain', 0, 'Normal', '{}', ?)",
            ((BUCKET, f"data/{first + n:09d}".encode(), BLOB.format(known + 1 + n)) for n in range(end - first)),
        )


# ---- runs


def _runs_ms(root: Path, runs: int) -> float:
    for number in range(runs):
        with EventWriter(root / f"run-{number:05d}") as writer:
            writer.scalars({"loss": 1 / (1 + number), "accuracy": number / runs}, 1)
    with served_runs(root, runs) as (ask, _, _):
        return _median_ms(lambda: ask("GET", "/runs", limit=100, fields="status,last"))


# ---- syncs


def _sync_ms(folder: Path, files: int) -> float:
    """Milliseconds for a file, of a sync that finds nothing to do."""
    for number in range(files):
        path = folder / "source" / str(number // 100) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 100)
    sync = DirSync(LocalStore(folder / "source"), LocalStore(folder / "target"))
    sync.run()
    return _median_ms(sync.run, 3) / files
