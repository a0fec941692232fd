"""Reports of 10 metrics beside tensorboardX, Optuna and Ray Tune; the stall by a checkpoint of 1 GiB."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from pai_sdk import ReportSession, report
from pai_sdk._data.run.events import writer as events
from pai_sdk._data.run.report.checkpoints import latest_checkpoint
from tests.benchmarks.harness import Row
from tests.support.peer_environment import python_with

REPETITIONS = 3
METRICS = {f"metric_{number}": number / 10 for number in range(10)}
REPORTS = 60_000
LARGE_BYTES = 1 << 30

OURS = Row("reports of 10 metrics", unit="/s", at_least=200_000)
PURE = Row("reports of 10 metrics, without google-crc32c", unit="/s")
TENSORBOARDX = Row("reports of 10 metrics (tensorboardX)", unit="/s")
OPTUNA = Row("reports of 10 metrics (Optuna in memory)", unit="/s")
RAY = Row("reports of 10 metrics (Ray Tune)", unit="/s")
STALL = Row("worst stall of a step, 1 GiB going up", unit="ms", at_most=5)
ALONE = Row("worst stall of a step, nothing going up", unit="ms")
SAVED = Row("1 GiB checkpoint, from report to complete", at_most=1.5)
RESTORED = Row("1 GiB checkpoint, found and copied out")
COPIED = Row("1 GiB, plain copy")
HASHED = Row("1 GiB, plain copy and its CRC-32")
ROWS = (OURS, PURE, TENSORBOARDX, OPTUNA, RAY, STALL, ALONE, SAVED, RESTORED, COPIED, HASHED)

PEERS = {
    TENSORBOARDX.name: ("tensorboardX", 2_000),
    OPTUNA.name: ("optuna", 2_000),
    RAY.name: ("ray[tune]", 500),
}
PROGRAMS = {
    "tensorboardX": """
from tensorboardX import SummaryWriter
writer = SummaryWriter(folder)
def run():
    for step in range(count):
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
begun = time.perf_counter()
run()
seconds = time.perf_counter() - begun
writer.close()
""",
    # A report of Optuna is one number of one step; ten of them are compared with one of ours.
    "optuna": """
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
trial = optuna.create_study().ask()
begun = time.perf_counter()
for step in range(count * len(metrics)):
    trial.report(0.5, step)
seconds = time.perf_counter() - begun
""",
    "ray[tune]": """
import os
os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"  # otherwise Ray writes a token into HOME
import ray
from ray import tune
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
def train(config):
    import time
    begun = time.perf_counter()
    for step in range(count):
        tune.report(metrics)
    with open(folder + "/seconds", "w") as file:
        file.write(str(time.perf_counter() - begun))
tune.Tuner(train, run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
seconds = float(open(folder + "/seconds").read())
ray.shutdown()
""",
}


def prepare(cache: Path) -> None:
    """The environments of the peers, each of its own."""
    for requirement, _ in PEERS.values():
        try:
            python_with(requirement, cache=cache / "peers")
        except RuntimeError as error:
            (cache / f"no-{requirement}").write_text(str(error)[:200])


def measure(cache: Path) -> dict[str, float | str]:
    """One repetition."""
    found: dict[str, float | str] = {OURS.name: _reports(REPORTS)}
    events._checksum = events._pure_crc32c()
    found[PURE.name] = _reports(REPORTS // 10)
    events._checksum = None
    for name, (requirement, count) in PEERS.items():
        found[name] = _peer(cache, requirement, count)
    return {**found, **_large_checkpoint()}


def _reports(count: int) -> float:
    """How many a second; all of them are in the file when the time is taken."""
    with tempfile.TemporaryDirectory() as folder, ReportSession(folder) as session, session.bound():
        report(METRICS, 0)
        session.flush()
        begun = time.perf_counter()
        for step in range(count):
            report(METRICS, step)
        session.flush()
        return count / (time.perf_counter() - begun)


def _peer(cache: Path, requirement: str, count: int) -> float | str:
    missing = cache / f"no-{requirement}"
    if missing.exists():
        return missing.read_text()
    python = python_with(requirement, cache=cache / "peers")
    with tempfile.TemporaryDirectory() as folder:
        given = f"folder, count, metrics = {folder!r}, {count}, {METRICS!r}"
        program = f"import json, time\n{given}\n{PROGRAMS[requirement]}\nprint(json.dumps(count / seconds))"
        done = subprocess.run(
            [str(python), "-c", program], capture_output=True, text=True, timeout=200, check=False, cwd=folder
        )
    return float(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else done.stderr[-200:]


def _large_checkpoint() -> dict[str, float | str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        model.mkdir()
        piece = bytes(range(256)) * 4096
        with (model / "weights").open("wb") as file:
            for _ in range(LARGE_BYTES // len(piece)):
                file.write(piece)
        begun = time.perf_counter()
        shutil.copytree(model, folder / "copy")
        copied = time.perf_counter() - begun
        _crc32(folder / "copy" / "weights")
        hashed = time.perf_counter() - begun
        shutil.rmtree(folder / "copy")
        alone = _worst_step(lambda: False, 2.0)
        with ReportSession(folder / "run") as session, session.bound():
            begun = time.perf_counter()
            report({"loss": 0.5}, 1, checkpoint=model)
            stall = _worst_step(lambda: latest_checkpoint(folder / "run" / "checkpoints") is not None, 60.0)
            saved = time.perf_counter() - begun
        shutil.rmtree(model)
        begun = time.perf_counter()
        found = latest_checkpoint(folder / "run" / "checkpoints")
        if found is None:
            return dict.fromkeys((row.name for row in (STALL, SAVED, RESTORED)), "the checkpoint was not saved")
        found.to_directory(folder / "restored")
        restored = time.perf_counter() - begun
    return {
        STALL.name: stall * 1000,
        ALONE.name: alone * 1000,
        SAVED.name: saved,
        RESTORED.name: restored,
        COPIED.name: copied,
        HASHED.name: hashed,
    }


def _crc32(path: Path) -> int:
    crc, buffer = 0, memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            crc = zlib.crc32(buffer[:size], crc)
    return crc


def _worst_step(is_done: Callable[[], bool], longest_s: float) -> float:
    """Steps of about 2 ms of Python; the longest time that one was neither running nor waiting for a processor.

    So what other programs on the machine take is not counted, where the kernel tells it.
    """
    worst, deadline, next_look = 0.0, time.perf_counter() + longest_s, 0.0
    while (begun := time.perf_counter()) < deadline:
        used = _scheduled_s()
        sum(number * number for number in range(20_000))
        worst = max(worst, time.perf_counter() - begun - (_scheduled_s() - used))
        if begun >= next_look:
            next_look = begun + 0.1
            if is_done():
                break
    return worst


def _scheduled_s() -> float:
    """How long this thread has been running, or ready to run while all processors were taken."""
    try:
        running, waiting, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return time.thread_time()
    return (int(running) + int(waiting)) / 1e9
