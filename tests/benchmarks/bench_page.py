"""The page in a real browser: list, curves and log of large folders, beside TensorBoard on the same runs."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.run.events.writer import EventWriter
from tests.benchmarks import bench_runs_http
from tests.benchmarks.harness import ROOT, Row
from tests.browser import open_browser, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REPETITIONS = 3

LIST = Row("cold browser until the list of 1,000 runs is there", at_most=0.5)
LIST_WORST = Row("the same, the longest of 5", at_most=1.0)
CHART = Row("until the first chart: 1,000 curves of 1,000 points", at_most=1.0)
CHART_WORST = Row("the same, the longest of 5", at_most=1.5)
APPEND = Row("a point is appended to one of 1,000 runs, until it is drawn")
APPEND_WORST = Row("the same, the longest of 10", at_most=1.0)
TAIL = Row("log of 1,000,000 lines: until its tail is there", at_most=0.2)
LINE = Row("any line of it, the longest of 20", at_most=0.1)
SEARCH = Row("a search in it, all hits counted", at_most=1.5)
FEWER = Row("until the first chart: 200 curves of 1,000 points")
TENSORBOARD = Row("TensorBoard: the same 200 runs, until its first chart")
SIZE = Row("script and style, compressed", "KB", at_most=60)
TENSORBOARD_SIZE = Row("TensorBoard: its script, compressed", "KB")
HEAP = Row("memory of the script with 1,000 curves", "MB", at_most=150)
MEMORY = Row("memory of the server: 2 M points, their curves looked at in the page", "MB", at_most=120)
ROWS = (
    *(LIST, LIST_WORST, CHART, CHART_WORST, APPEND, APPEND_WORST, TAIL, LINE, SEARCH, FEWER, TENSORBOARD),
    *(SIZE, TENSORBOARD_SIZE, HEAP, MEMORY),
)

_PATIENCE_MS = 120_000
_NOTHING_LOADS = "() => !document.querySelector('mat-spinner, mat-progress-spinner')"


def prepare(cache: Path) -> None:
    """Write the runs and the log, once: those of the benchmark of the HTTP interface."""
    bench_runs_http.prepare(cache)


def measure(cache: Path) -> dict[str, float | str]:
    root = cache / "runs-http"
    found: dict[str, float | str] = {SIZE.name: _assets_kb()}
    with open_browser() as browser:
        with _our_server(root / "thousand") as new_link:
            found |= _list(browser, new_link) | _chart(browser, new_link)
            found |= _append(browser, new_link, root / "thousand" / "run-0998")
            found |= _log(browser, new_link)
        with _our_server(root / "points") as new_link:
            found |= _fewer(browser, new_link)
        found |= _tensorboard(browser, root / "points")
    return found


def _list(browser: Browser, new_link: Callable[[], str]) -> dict[str, float]:
    times = [_first(browser, new_link(), "main tbody tr[data-run] >> nth=20") for _ in range(5)]
    return {LIST.name: statistics.median(times), LIST_WORST.name: max(times)}


def _chart(browser: Browser, new_link: Callable[[], str]) -> dict[str, float]:
    times = [_first(browser, f"{new_link()}&view=curves&tags=loss", DRAWN) for _ in range(5)]
    return {CHART.name: statistics.median(times), CHART_WORST.name: max(times)}


def _fewer(browser: Browser, new_link: Callable[[], str], pid: int) -> dict[str, float]:
    took = _first(browser, f"{new_link()}&view=curves", DRAWN)
    return {FEWER.name: took, MEMORY.name: bench_runs_http.resident_mb(pid)}


def _first(browser: Browser, link: str, wanted: str) -> float:
    """How long a browser that knows nothing takes from the link to an element."""
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        begun = time.perf_counter()
        watched.page.goto(link)
        watched.page.locator(wanted).first.wait_for(timeout=_PATIENCE_MS)
        return time.perf_counter() - begun
