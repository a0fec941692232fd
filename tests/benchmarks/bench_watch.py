"""RunManager: a thousand runs that grow, lists and comparisons of a thousand runs, memory of two million points.

Each part runs in a process of its own: `python -m tests.benchmarks.bench_watch PART FOLDER` measures one of them.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pai_sdk._data.run.events import writer as events
from tests.benchmarks.harness import ROOT, Row

REPETITIONS = 2
RUNS = 1_000
LIVE_S = 20.0
CALLS = 200

SEEN_HALF = Row("append to visible, 1,000 runs × 1 point/s: p50", unit="ms", at_most=500)
SEEN_99 = Row("append to visible, 1,000 runs × 1 point/s: p99", unit="ms", at_most=1_000)
POLLER = Row("CPU of the poller meanwhile", unit="% of a core", at_most=20)
LIST = Row("list of 1,000 runs × 10 last values: p99", unit="ms", at_most=30)
FILTERED = Row("the same, filtered and sorted by metrics: p99", unit="ms")
LAST = Row("last value of one tag of 1,000 runs: p99", unit="ms", at_most=10)
COMPARE = Row("compare of 1,000 runs × 1,000 points in 250 buckets: p99", unit="ms", at_most=40)
SMOOTHED = Row("the same, smoothed and in 10 groups with a band: p99", unit="ms", at_most=50)
COLD = Row("1 M points as 1,000 × 10 × 100: until loaded")
MEMORY = Row("memory of the process with 2 M points (200 × 10 × 1,000)", unit="MB", at_most=120)
DAY = Row("memory above the start, 50 runs × 86,400 points, budget of 32 MiB", unit="MB", at_most=64)
ROWS = (SEEN_HALF, SEEN_99, POLLER, LIST, FILTERED, LAST, COMPARE, SMOOTHED, COLD, MEMORY, DAY)


def prepare(cache: Path) -> None:
    """The runs that do not grow: runs × tags × steps."""
    for runs, tags, steps in ((1_000, 10, 100), (1_000, 1, 1_000), (200, 10, 1_000)):
        folder = cache / f"watch-{runs}-{tags}-{steps}"
        if not folder.exists():
            draft = Path(tempfile.mkdtemp(dir=cache))
            for run in range(runs):
                values = random.Random(run)
                with events.EventWriter(draft / f"run-{run:04}", source="host") as writer:
                    writer.hparams({"lr": 10.0 ** -(run % 10), "seed": run})
                    for step in range(steps):
                        writer.scalars({f"tag/{tag}": values.random() for tag in range(tags)}, step)
            draft.rename(folder)


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    found: dict[str, float | str] = {}
    for part, corpus in (
        ("live", ""),
        ("lists", "watch-1000-10-100"),
        ("curves", "watch-1000-1-1000"),
        ("memory", "watch-200-10-1000"),
        ("day", ""),
    ):
        with tempfile.TemporaryDirectory() as folder:
            place = str(cache / corpus) if corpus else folder
            command = [sys.executable, "-m", "tests.benchmarks.bench_watch", part, place]
            done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True, cwd=ROOT)
        found.update(json.loads(done.stdout.splitlines()[-1]))
    return found


# ---- a thousand runs that grow ------------------------------------------------------------------------------


def live(folder: Path) -> dict[str, float]:
    """From the moment at which a point is in the file until a subscriber is given the run with it."""
    from pai_sdk import RunManager

    command = [sys.executable, "-m", "tests.benchmarks.bench_watch", "write", str(folder)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "ready"
        with RunManager(folder) as manager:
            manager.wait_until_loaded()
            thread = next(one for one in threading.enumerate() if one.name == "run-manager")
            clock = time.pthread_getcpuclockid(thread.ident or 0)
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
            time.sleep(3)
            begun, used = time.monotonic(), time.clock_gettime(clock)
            waits = _waits(manager, begun + LIVE_S)
            used = time.clock_gettime(clock) - used
            elapsed = time.monotonic() - begun
    finally:
        writer.kill()
        writer.wait()
    cuts = statistics.quantiles(waits, n=100)
    return {SEEN_HALF.name: cuts[49] * 1000, SEEN_99.name: cuts[98] * 1000, POLLER.name: 100 * used / elapsed}


def _waits(manager: object, until: float) -> list[float]:
    waits: list[float] = []
    seen: dict[str, int] = {}
    with manager.subscribe() as changes:  # type: ignore[attr-defined]
        while time.monotonic() < until:
            change = changes.get(1.0)
            now = time.time()
            if change is None:
                continue
            for run_id in change.run_ids:
                last = manager.run(run_id).brief.tags["loss"].last  # type: ignore[attr-defined]
                if seen.get(run_id) != last.step:
                    if run_id in seen:
                        waits.append(now - last.wall)
                    seen[run_id] = last.step
    return waits


def write(folder: Path) -> None:
    """The writer: a run after the other, each once a second."""
    files = []
    for run in range(RUNS):
        path = folder / f"run-{run:04}"
        path.mkdir()
        header = events.double_field(1, time.time()) + events._bytes_field(3, "brain.Event:2")
        file = (path / "events.out.tfevents.1790000000.host.1.0").open("ab", buffering=0)
        file.write(events.framed(header) + _record(0))
        files.append(file)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    for number in range(RUNS * 3600):
        ahead = begun + number / RUNS - time.monotonic()
        if ahead > 0.002:
            time.sleep(ahead)
        files[number % RUNS].write(_record(1 + number // RUNS))


def _record(step: int) -> bytes:
    value = events._bytes_field(1, "loss") + b"\x15" + events._FLOAT32.pack(1 / (1 + step))
    return events.framed(events._event(time.time(), step, events._summary(value)))


# ---- questions ----------------------------------------------------------------------------------------------


def lists(folder: Path) -> dict[str, float]:
    """Lists of runs with their last values."""
    from pai_sdk import RunManager

    begun = time.perf_counter()
    with RunManager(folder, refresh_s=0) as manager:
        manager.refresh()
        loaded = time.perf_counter() - begun
        tags = [f"tag/{tag}" for tag in range(10)]

        def listed() -> int:
            page = manager.runs(limit=RUNS, tags=tags)
            return len([[run.tags[tag].last for tag in tags] for run in page.runs])

        def filtered() -> int:
            return len(manager.runs("tag/0<0.9 hparams.lr<0.5", sort="-metrics.tag/3.max", limit=RUNS))

        def last() -> int:
            return len(
                [run.tags["tag/5"].last for run in manager.runs(sort="id", limit=RUNS, tags=["tag/5"]).runs]
            )

        return {
            COLD.name: loaded,
            LIST.name: _p99_ms(listed, RUNS),
            FILTERED.name: _p99_ms(filtered),
            LAST.name: _p99_ms(last, RUNS),
        }


def curves(folder: Path) -> dict[str, float]:
    """Comparisons of points in memory."""
    from pai_sdk import RunManager

    with RunManager(folder, refresh_s=0) as manager:
        manager.refresh()

        def compared() -> int:
            return len(manager.compare("", "tag/0", buckets=250).curves)

        def grouped() -> int:
            found = manager.compare("", "tag/0", smooth=0.9, group_by="lr", band="std")
            return len(found.curves)

        return {COMPARE.name: _p99_ms(compared, RUNS), SMOOTHED.name: _p99_ms(grouped, 10)}


def _p99_ms(call: Callable[[], int], expected: int | None = None) -> float:
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - begun)
        assert expected in (None, found)
    return statistics.quantiles(times, n=100)[98] * 1000


# ---- memory -------------------------------------------------------------------------------------------------


def memory(folder: Path) -> dict[str, float]:
    """All points in memory."""
    from pai_sdk import RunManager

    with RunManager(folder, refresh_s=0) as manager:
        manager.refresh()
        points = sum(tag.count for run in manager.runs(limit=RUNS).runs for tag in run.tags.values())
        assert points >= 2_000_000
        assert manager.compare("", "tag/3").points == 200_000
        gc.collect()
        return {MEMORY.name: _resident_mb()}


def day(folder: Path) -> dict[str, float]:
    """A day of a point a second, in an accelerated clock: 100 points a pass."""
    from pai_sdk import RunManager

    runs, rounds, points = 50, 864, 100
    paths = [folder / f"run-{run:02}" / "events.out.tfevents.1790000000.host.1.0" for run in range(runs)]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    most = 0.0
    with RunManager(folder, refresh_s=0, memory_bytes=32 << 20) as manager:
        manager.refresh()
        start = _resident_mb()
        for number in range(rounds):
            content = b"".join(_record(number * points + point) for point in range(points))
            for path in paths:
                with path.open("ab") as file:
                    file.write(content)
            manager.refresh()
            if number % 50 == 0:
                run = manager.run(f"run-{number % runs:02}")
                assert len(run.scalars("loss")) == (number + 1) * points
            most = max(most, _resident_mb())
        assert {run.tags["loss"].count for run in manager.runs().runs} == {rounds * points}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return {DAY.name: most - start}


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    parts: dict[str, Callable[[Path], object]] = {
        "live": live,
        "write": write,
        "lists": lists,
        "curves": curves,
        "memory": memory,
        "day": day,
    }
    print(json.dumps(parts[sys.argv[1]](Path(sys.argv[2]))))
