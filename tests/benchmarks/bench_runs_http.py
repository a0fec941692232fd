"""Runs over HTTP: a list of 1,000 runs, a comparison of them, a log of a million lines, memory for 2 M points."""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from pai_sdk._data.run.events.writer import EventWriter
from tests.benchmarks.harness import Row

REPETITIONS = 3

LIST = Row("GET runs: 1,000 runs × 10 last values, 99 of 100", at_most=0.03)
LIST_FRESH = Row("the same, when a run has changed before each, 99 of 100", at_most=0.03)
LIST_SIZE = Row("its size", "KB", at_most=250)
COMPARE = Row("POST compare: 1,000 runs × 1,000 points in 250 buckets, 99 of 100", at_most=0.05)
COMPARE_SIZE = Row("its size in columns", "MB", at_most=2.1)
TAIL = Row("log of 1,000,000 lines: first tail of 1,000", at_most=0.2)
LINE = Row("any 200 lines of it, 99 of 100", at_most=0.1)
FIRST_HIT = Row("search in it: first hits", at_most=0.2)
ALL_HITS = Row("search in it: all of a regular expression, case ignored", at_most=1.5)
MEMORY = Row("memory of the server with 2 M points (200 × 10 × 1,000), all looked at", "MB", at_most=110)
LOADED = Row("start of the server until it has read them")
ROWS = (LIST, LIST_FRESH, LIST_SIZE, COMPARE, COMPARE_SIZE, TAIL, LINE, FIRST_HIT, ALL_HITS, MEMORY, LOADED)

TOKEN = "a-token-of-the-benchmark"
_ASKED = 100
_COLUMNS = {"Accept": "application/vnd.pai.columns"}


def prepare(cache: Path) -> None:
    """Write the runs and the log, once."""
    if (cache / "runs-http" / "done").exists():
        return
    root = cache / "runs-http"
    shutil.rmtree(root, ignore_errors=True)
    others = [f"eval/metric-{n}" for n in range(9)]
    _write_runs(root / "thousand", 1000, ["loss"], others)
    _write_runs(root / "points", 200, ["loss", *others], [])
    folder = root / "thousand" / "run-0000" / "logs"
    folder.mkdir()
    with (folder / "worker-0.log").open("wb") as file:
        for first in range(0, 1_000_000, 10_000):
            lines = (
                b"step %d loss=0.12345 accuracy=0.98765 time=0.123s\n" % n for n in range(first, first + 10_000)
            )
            file.write(
                b"\x1b[32mINFO\x1b[0m 2026-11-22 09:00:00 train.py:123 " + b"INFO train.py:123 ".join(lines)
            )
    (root / "done").touch()


def _write_runs(root: Path, count: int, long: list[str], short: list[str]) -> None:
    """Ten different runs, and copies of them."""
    for number in range(count):
        folder = root / f"run-{number:04d}"
        if number >= 10:
            shutil.copytree(root / f"run-{number % 10:04d}", folder)
            continue
        with EventWriter(folder) as writer:
            for step in range(1000):
                wave = math.sin(step * (number + 1) / 50)
                writer.scalars({tag: 1 / (1 + step) + wave / (at + 7) for at, tag in enumerate(long)}, step)
            writer.scalars({tag: number / (at + 3) for at, tag in enumerate(short)} or {long[0]: 1.0}, 1000)


def measure(cache: Path) -> dict[str, float | str]:
    root = cache / "runs-http"
    with served_runs(root / "points", 200) as (ask, pid, loaded_s):
        for tag in ask("GET", "/runs", limit=1).json()["tags"]:
            ask("POST", "/compare", headers=_COLUMNS, json={"filter": "", "tags": [tag]})
        found: dict[str, float | str] = {LOADED.name: loaded_s, MEMORY.name: resident_mb(pid)}
    with served_runs(root / "thousand", 1000) as (ask, _, _):
        found |= _log(ask)
        found |= _list(ask, root / "thousand" / "run-0999")
        body = {"filter": "", "tags": ["loss"], "buckets": 250}
        size = len(ask("POST", "/compare", json=body, headers=_COLUMNS).content)
        times = _times(lambda: ask("POST", "/compare", json=body, headers=_COLUMNS))
        return {**found, COMPARE.name: _p99(times), COMPARE_SIZE.name: size / 1e6}


def _list(ask: Callable[..., requests.Response], changing: Path) -> dict[str, float | str]:
    query = {"limit": 1000, "fields": "status,last"}
    size = len(ask("GET", "/runs", **query).content)
    times = _times(lambda: ask("GET", "/runs", **query))
    fresh = []
    with EventWriter(changing) as writer:
        for step in range(30):
            etag = ask("GET", "/runs", **query).headers["etag"]
            writer.scalars({"loss": step / 7}, 1001 + step)
            writer.flush()
            while True:
                begun = time.perf_counter()
                answer = ask("GET", "/runs", **query, headers={"If-None-Match": etag})
                took = time.perf_counter() - begun
                if answer.status_code == 200:
                    fresh.append(took)
                    break
                time.sleep(0.02)
    for file in changing.glob("*tfevents*"):
        if file.stat().st_mtime > time.time() - 3600 and file.stat().st_size < 10_000:
            file.unlink()
    return {LIST.name: _p99(times), LIST_FRESH.name: _p99(fresh), LIST_SIZE.name: size / 1e3}


def _log(ask: Callable[..., requests.Response]) -> dict[str, float | str]:
    path = "/runs/run-0000/log"
    begun = time.perf_counter()
    page = ask("GET", path, tail=1000).json()
    tail_s = time.perf_counter() - begun
    assert (page["total"], len(page["lines"])) == (1_000_000, 1000)
    starts = iter([n * 9973 % 999_000 for n in range(_ASKED)])
    times = _times(lambda: ask("GET", path, line=next(starts)))
    begun = time.perf_counter()
    answer = ask("GET", f"{path}/search", q="step 1234", stream=True)
    assert json.loads(next(answer.iter_lines()))["kind"] == "hit"
    first_s = time.perf_counter() - begun
    answer.close()
    begun = time.perf_counter()
    *_, last = ask(
        "GET", f"{path}/search", q="error|nan", regex=True, ignore_case=True, shown=100
    ).text.splitlines()
    assert json.loads(last) == {"kind": "done", "hits": 0, "complete": True, "trouble": ""}
    all_s = time.perf_counter() - begun
    return {TAIL.name: tail_s, LINE.name: _p99(times), FIRST_HIT.name: first_s, ALL_HITS.name: all_s}


@contextmanager
def served_runs(folder: Path, count: int) -> Iterator[tuple[Callable[..., requests.Response], int, float]]:
    """A server in a process of its own: what asks it, its process, and how long it took to read all runs."""
    token = Path("token")
    token.write_text(TOKEN)
    command = [sys.executable, "-m", "pai_sdk", "ui", "--logdir", str(folder), "--port", "0"]
    begun = time.perf_counter()
    with (
        subprocess.Popen([*command, "--token-file", str(token)], stdout=subprocess.PIPE, text=True) as server,
        requests.Session() as session,
    ):
        assert server.stdout is not None
        found = re.search(r"http://[0-9.:]+", server.stdout.readline())
        assert found
        session.headers["Authorization"] = f"Bearer {TOKEN}"

        def ask(method: str, path: str, *, stream: bool = False, **rest: Any) -> requests.Response:
            options = {name: rest.pop(name) for name in ("json", "headers") if name in rest}
            url = f"{found[0]}/api/v1{path}"
            answer = session.request(method, url, params=rest, stream=stream, timeout=60, **options)
            answer.raise_for_status()
            return answer

        try:
            wait_until_read(found[0], count)
            yield ask, server.pid, time.perf_counter() - begun
        finally:
            server.terminate()


def wait_until_read(address: str, count: int) -> None:
    """Wait until a server knows so many runs, and has read them."""
    while True:
        answer = requests.get(
            f"{address}/api/v1/runs",
            {"limit": 1000, "fields": "is_loading"},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )
        page = answer.json()
        if page.get("total") == count and not any(run.get("is_loading") for run in page["runs"]):
            return
        time.sleep(0.05)


def _times(call: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(_ASKED):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return found


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024
