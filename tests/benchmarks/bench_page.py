"""The page in a real browser: list, curves and log of large folders, beside TensorBoard on the same runs."""

from __future__ import annotations

import gzip
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import requests
import tensorboard

from pai_sdk._data.run.events.writer import EventWriter
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from tests.benchmarks import bench_runs_http
from tests.benchmarks.harness import ROOT, Row
from tests.support.browser import open_browser, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

REPETITIONS = 3

LIST = Row("cold browser until the list of 1,000 runs is there", at_most=0.5)
LIST_WORST = Row("that list, the longest of 5", at_most=1.0)
CHART = Row("until the first chart: 1,000 curves of 1,000 points", at_most=1.0)
CHART_WORST = Row("that chart, the longest of 5", at_most=1.5)
APPEND = Row("a point is appended to one of 1,000 runs, until it is drawn")
APPEND_WORST = Row("the same, the longest of 10", at_most=1.0)
HOVER = Row("script for a move of the mouse over 1,000 curves, text at the cursor included", "ms", at_most=8)
TAIL = Row("log of 1,000,000 lines: until its tail is there", at_most=0.2)
LINE = Row("any line of it, the longest of 20", at_most=0.1)
SEARCH = Row("a search in it that ignores case, all hits counted", at_most=1.5)
FEWER = Row("until the first chart: 200 curves of 1,000 points")
TENSORBOARD = Row("TensorBoard: the same 200 runs, until its first chart")
FIRST_SIZE = Row("script and style that a browser loads until it shows the list, compressed", "KB", at_most=60)
SIZE = Row("all of it, in all views and both languages", "KB", at_most=110)
TENSORBOARD_SIZE = Row("TensorBoard: its script, compressed", "KB")
HEAP = Row("memory of the script with 1,000 curves", "MB", at_most=150)
MEMORY = Row("memory of the server: 2 M points, their curves looked at in the page", "MB", at_most=110)
ROWS = (
    *(LIST, LIST_WORST, CHART, CHART_WORST, APPEND, APPEND_WORST, HOVER, TAIL, LINE, SEARCH, FEWER, TENSORBOARD),
    *(FIRST_SIZE, SIZE, TENSORBOARD_SIZE, HEAP, MEMORY),
)

_MOVES = """async () => {
  const area = document.querySelector(".chart-area"), box = area.getBoundingClientRect(), times = [];
  const frame = window.requestAnimationFrame;
  for (let at = 0; at < 60; at++) {
    window.requestAnimationFrame = (work) => frame((time) => {
      const begun = performance.now();
      work(time);
      times.push(performance.now() - begun);
    });
    const [x, y] = [box.left + box.width * (at % 59) / 59, box.top + box.height * (at % 17) / 17];
    area.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
    window.requestAnimationFrame = frame;
    await new Promise((done) => frame(() => frame(done)));
  }
  return times;
}"""
_PATIENCE_MS = 120_000
_LOADS = 5
_LISTED = "main tbody tr[data-run] >> nth=10"
_DRAWN = ".chart-box[data-curves='{count}']"


def prepare(cache: Path) -> None:
    """Write the runs and the log, once: those of the benchmark of the HTTP interface."""
    bench_runs_http.prepare(cache)


def measure(cache: Path) -> dict[str, float | str]:
    root = cache / "runs-http"
    found: dict[str, float | str] = _sizes()
    with open_browser() as browser:
        with _our_server(root / "thousand", 1000) as (new_link, _):
            found |= _loads(browser, new_link, "", _LISTED, (LIST, LIST_WORST))
            found[FIRST_SIZE.name] = _first_size(browser, new_link())
            found |= _loads(
                browser, new_link, "view=curves&tags=loss", _DRAWN.format(count=1000), (CHART, CHART_WORST)
            )
            found |= _append(browser, new_link, root / "thousand" / "run-0998")
            found |= _log(browser, new_link)
        with _our_server(root / "points", 200) as (new_link, pid):
            found[FEWER.name] = _first(browser, f"{new_link()}&view=curves", _DRAWN.format(count=200))
            found[MEMORY.name] = bench_runs_http.resident_mb(pid)
        found[TENSORBOARD.name] = _tensorboard(browser, root / "points")
    return found


def _loads(
    browser: Browser, new_link: Callable[[], str], state: str, wanted: str, rows: tuple[Row, Row]
) -> dict[str, float | str]:
    """How long browsers that know nothing take from the link to an element: the median and the longest."""
    times = [_first(browser, f"{new_link()}&{state}".rstrip("&"), wanted) for _ in range(_LOADS)]
    return {rows[0].name: statistics.median(times), rows[1].name: max(times)}


def _first(browser: Browser, link: str, wanted: str) -> float:
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        begun = time.perf_counter()
        watched.page.goto(link, wait_until="commit")
        watched.page.locator(wanted).first.wait_for(timeout=_PATIENCE_MS)
        return time.perf_counter() - begun


def _first_size(browser: Browser, link: str) -> float:
    """What a browser has loaded when it shows the list, in KB."""
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        watched.page.goto(link, wait_until="commit")
        watched.page.locator(_LISTED).first.wait_for(timeout=_PATIENCE_MS)
        loaded: list[float] = watched.page.evaluate(
            "performance.getEntriesByType('resource').filter(({name}) => name.includes('/assets/'))"
            ".map(({encodedBodySize}) => encodedBodySize)"
        )
    return sum(loaded) / 1024


def _append(browser: Browser, new_link: Callable[[], str], folder: Path) -> dict[str, float | str]:
    """From a point that is flushed to the chart that has it: the chart says how many points it has."""
    link = new_link()
    times = []
    with open_page(browser, link.partition("/ui/")[0]) as watched, EventWriter(folder) as writer:
        page = watched.page
        page.goto(f"{link}&view=curves&tags=loss")
        page.locator(_DRAWN.format(count=1000)).first.wait_for(timeout=_PATIENCE_MS)
        heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        for step in range(10):
            before = _points(page)
            writer.scalars({"loss": 0.5}, 2000 + step)
            writer.flush()
            begun = time.perf_counter()
            while _points(page) == before and time.perf_counter() - begun < _PATIENCE_MS / 1000:
                time.sleep(0.01)
            times.append(time.perf_counter() - begun)
            time.sleep(1)
        moves = page.evaluate(_MOVES)
    for file in folder.glob("*tfevents*"):
        if file.stat().st_size < 10_000 and time.time() - file.stat().st_mtime < 3600:
            file.unlink()
    found = {APPEND.name: statistics.median(times), APPEND_WORST.name: max(times), HEAP.name: heap}
    return {**found, HOVER.name: statistics.median(moves)}


def _points(page: Page) -> str:
    """What the first chart says of its points, which counts all of them."""
    return page.get_by_text(re.compile(r"[0-9] points")).first.inner_text()


def _log(browser: Browser, new_link: Callable[[], str]) -> dict[str, float | str]:
    """In one page: the tab of the log, lines far from each other, a search."""
    link = new_link()
    with open_page(browser, link.partition("/ui/")[0]) as watched:
        page = watched.page
        page.goto(f"{link}&run=run-0000&tab=curves")
        page.get_by_role("tab", name="Log").wait_for()
        begun = time.perf_counter()
        page.get_by_role("tab", name="Log").click()
        _line(page, 1_000_000).wait_for()
        tail_s = time.perf_counter() - begun
        box, lines = page.get_by_placeholder("Line"), []
        for number in range(20):
            wanted = 1 + number * 49_999
            box.fill(str(wanted))
            begun = time.perf_counter()
            box.press("Enter")
            _line(page, wanted).wait_for()
            lines.append(time.perf_counter() - begun)
        search = page.get_by_role("searchbox", name="Search the log")
        search.fill("step 1234")
        begun = time.perf_counter()
        search.press("Enter")
        page.locator(".log-count").get_by_text(re.compile(r"hits$")).wait_for(timeout=_PATIENCE_MS)
        return {TAIL.name: tail_s, LINE.name: max(lines), SEARCH.name: time.perf_counter() - begun}


def _line(page: Page, number: int) -> Locator:
    """The row of a line, with its text."""
    row = page.locator(".log-row").filter(has=page.get_by_text(str(number), exact=True))
    return row.get_by_text("step").first


def _sizes() -> dict[str, float | str]:
    """All that there is, in KB; and TensorBoard's."""
    assets = ROOT / "pai_sdk/_service/web/static/assets"
    sizes = {file.name: file.stat().st_size / 1024 for file in assets.glob("*.br")}
    web = Path(tensorboard.__file__).parent / "webfiles.zip"
    with zipfile.ZipFile(web) as files:
        script = gzip.compress(files.read("index.js"), 9)
    return {SIZE.name: sum(sizes.values()), TENSORBOARD_SIZE.name: len(script) / 1024}


@contextmanager
def _our_server(folder: Path, count: int) -> Iterator[tuple[Callable[[], str], int]]:
    """A server in a process of its own, which has read all runs; what makes links, and its process."""
    code = "import sys; from tests.benchmarks.bench_page import serve; serve(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(folder), bench_runs_http.TOKEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def new_link() -> str:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write("\n")
            server.stdin.flush()
            return server.stdout.readline().strip()

        try:
            bench_runs_http.wait_until_read(new_link().partition("/ui/")[0], count)
            yield new_link, server.pid
        finally:
            server.terminate()


def serve(folder: str, token: str) -> None:
    """In the process of the server: prints a link for each line that it gets."""
    server = UiServer(UiSettings(folder, token=token))

    def give_links() -> None:
        for _ in sys.stdin:
            print(server.new_link(), flush=True)

    server.run(threading.Thread(target=give_links, daemon=True).start)


def _tensorboard(browser: Browser, folder: Path) -> float:
    """From the address to the first card whose curves are there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", str(port)]
    with subprocess.Popen(
        [*command, "--load_fast", "auto"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            origin = f"http://127.0.0.1:{port}"
            _until_read(f"{origin}/data/plugin/timeseries/tags", 200)
            with open_page(browser, origin) as watched:
                begun = time.perf_counter()
                watched.page.goto(f"{origin}/#timeseries", wait_until="commit")
                card = watched.page.locator("scalar-card").first
                card.wait_for(timeout=_PATIENCE_MS)
                card.locator("path, canvas").first.wait_for(state="attached", timeout=_PATIENCE_MS)
                card.locator("mat-spinner").wait_for(state="detached", timeout=_PATIENCE_MS)
                return time.perf_counter() - begun
        finally:
            server.terminate()


def _until_read(address: str, runs: int) -> None:
    """Wait until TensorBoard knows all runs."""
    deadline = time.monotonic() + _PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        with suppress(requests.RequestException, ValueError):
            found = requests.get(address, timeout=60).json()
            if len(found["scalars"]["runTagInfo"]) >= runs:
                return
        time.sleep(0.5)
