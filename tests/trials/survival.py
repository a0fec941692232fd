"""The service is killed again and again while clients work: nothing acknowledged is lost, nothing runs twice.

Clients submit jobs of several kinds, follow their logs and wait for them; another puts objects. Meanwhile the
service's process is killed at moments that a seed decides, half of them just after a submission, and comes up
again when whoever needs it next starts it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._data.storage.oss.client import OssClient
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.state.folder import is_locked, read_info
from pai_sdk.errors import JobFailed
from tests.support import ml

__all__ = ["Report", "main", "run"]

_CLIENTS = 4
_LONGEST_JOB_S = 300.0
_SLOWEST_LOOK_S = 120.0
_LINES = 3000

# A job notes outside of everything that it was started, once for each instance.
_BEGIN = 'echo "$PAI_INSTANCE_NAME" >> "$STARTS"; '


@dataclass(frozen=True)
class _Kind:
    """A job, and what must be found of it afterwards."""

    command: str
    lines: tuple[str, ...]
    instances: int = 1
    losses: tuple[float, ...] = ()
    output: str | None = None
    exit_code: int = 0


_KINDS = {
    "brief": _Kind("echo done", ("done",)),
    "slow": _Kind(
        "for i in 1 2 3 4 5 6 7 8; do echo part $i; sleep 0.2; done", tuple(f"part {i}" for i in range(1, 9))
    ),
    "three": _Kind(
        "for i in $(seq 1 200); do echo line $i; done; sleep 0.3", tuple(f"line {i}" for i in range(1, 201)), 3
    ),
    "talkative": _Kind(
        f"python -c \"for i in range({_LINES}): print('line', i)\"", tuple(f"line {i}" for i in range(_LINES))
    ),
    "metrics": _Kind(
        "for i in $(seq 1 40); do echo loss=$i; sleep 0.02; done",
        tuple(f"loss={i}" for i in range(1, 41)),
        losses=tuple(float(i) for i in range(1, 41)),
    ),
    "output": _Kind('cat weights > "$PAI_OUTPUT_MODEL/w.bin"; echo saved', ("saved",), output="w.bin"),
    "failing": _Kind("echo oh; exit 3", ("oh",), exit_code=3),
}


@dataclass
class Report:
    """What was seen. `faults` is empty when all is well."""

    seed: int
    kills: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    objects: int = 0
    away_s: list[float] = field(default_factory=list)
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        away = sorted(self.away_s) or [0.0]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.jobs.items()))
        return "\n".join(
            [
                f"seed {self.seed}: {self.kills} kills in {self.took_s:.0f} s",
                f"{sum(self.jobs.values())} jobs ({kinds}), {self.lines} log lines, {self.objects} objects",
                f"the service was away for {away[len(away) // 2]:.2f} s (median), {away[-1]:.2f} s (longest)",
                *(f"FAULT: {fault}" for fault in self.faults),
                "nothing was lost, nothing ran twice" if not self.faults else f"{len(self.faults)} faults",
            ]
        )


class _Trial:
    def __init__(self, folder: Path, seed: int) -> None:
        self.data, self.starts, self.code = folder / "data", folder / "starts", folder / "code"
        for each in (self.starts, self.code):
            each.mkdir(parents=True)
        self.weights = random.Random(seed).randbytes(200_000)
        (self.code / "weights").write_bytes(self.weights)
        self.report = Report(seed)
        self.over = threading.Event()
        self.submitted = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        ensure_running(self.data)

    # ---- the clients ----

    def client(self, chance: random.Random) -> None:
        """Jobs, one after the other, each looked at closely."""
        session = Session.embedded(self.data)
        while not self.over.is_set():
            self.one_job(session, chance.choice(list(_KINDS)))

    def one_job(self, session: Session, name: str) -> None:
        kind = _KINDS[name]
        starts = self.starts / f"{name}-{self._next()}"
        estimator = Estimator(
            "python:3.11",
            _BEGIN + kind.command,
            source_dir=self.code,
            base_job_name=name,
            instance_type="ecs.c6.large",
            instance_count=kind.instances,
            environments={"STARTS": str(starts)},
            metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9]+)"}] if kind.losses else None,
            session=session,
        )
        job = estimator.fit(wait=False, show_logs=False)
        self.submitted.set()
        seen: dict[str, list[str]] = {}
        for line in job.logs(follow=True):
            if not line.text.startswith(ml.NOTICE):
                seen.setdefault(line.instance or "", []).append(line.text)
        self.look_at_end(job, kind, starts, f"{name} {job.id}")
        for instance, lines in seen.items():
            self.check(
                tuple(lines) == kind.lines, f"{name} {job.id}: {instance} has {_difference(lines, kind.lines)}"
            )
        self.check(len(seen) == kind.instances, f"{name} {job.id}: logs of {sorted(seen)} only")
        with self._lock:
            self.report.jobs[name] += 1
            self.report.lines += sum(map(len, seen.values()))

    def look_at_end(self, job: TrainingJob, kind: _Kind, starts: Path, what: str) -> None:
        exit_code = 0
        try:
            job.wait(_LONGEST_JOB_S, show_logs=False)
        except JobFailed as failure:
            exit_code = failure.exit_code if failure.exit_code is not None else -1
            self.check(exit_code == kind.exit_code, f"{what}: {failure}")
        self.check(exit_code == kind.exit_code, f"{what}: {job.status}, exit code {exit_code}")
        begun = Counter(starts.read_text().split()) if starts.exists() else Counter()
        once = len(begun) == kind.instances and set(begun.values()) == {1}
        self.check(once, f"{what}: started {dict(begun)}")
        if kind.losses:
            losses = tuple(point.value for point in job.metrics("loss"))
            self.check(losses == kind.losses, f"{what}: metrics {_difference(losses, kind.losses)}")
        if kind.output:
            with tempfile.TemporaryDirectory() as folder:
                job.download("model", folder, progress=False)
                found = next(Path(folder).rglob(kind.output), None)
                whole = found is not None and found.read_bytes() == self.weights
                self.check(whole, f"{what}: its output is not whole")

    def uploader(self, chance: random.Random) -> None:
        """Objects; each that was acknowledged must be there at the end."""
        info = ensure_running(self.data)
        storage = OssClient(
            Endpoint(info.oss_endpoint, self.restart),
            static_credentials(info.access_key_id, info.access_key_secret),
            region=info.region_id,
        )
        kept: dict[OssUri, str] = {}
        while not self.over.is_set():
            content = chance.randbytes(chance.choice([0, 100, 300_000]))
            uri = OssUri(info.bucket, f"kept/{len(kept)}")
            storage.put_bytes(uri, content)
            kept[uri] = hashlib.sha256(content).hexdigest()
            self.over.wait(0.02)
        for uri, digest in kept.items():
            self.check(hashlib.sha256(storage.get_bytes(uri)).hexdigest() == digest, f"{uri} is not what was put")
        self.report.objects = len(kept)

    def restart(self) -> None:
        """Start the service, if it does not run."""
        ensure_running(self.data)

    # ---- the killer ----

    def kill(self, kills: int, chance: random.Random) -> None:
        while self.report.kills < kills and not self.over.is_set():
            self.submitted.clear()
            if chance.random() < 0.5 and self.submitted.wait(1):
                time.sleep(chance.uniform(0, 0.3))
            else:
                time.sleep(chance.uniform(0.05, 2.0))
            info = read_info(self.data)
            if info is None or not is_locked(self.data):
                continue
            with suppress(ProcessLookupError):
                os.kill(info.pid, signal.SIGKILL)
                self.report.kills += 1
                self.await_another(info.pid)

    def await_another(self, pid: int) -> None:
        """Whoever needs the service starts it; when nobody does, we do."""
        begun = time.monotonic()
        while time.monotonic() - begun < _SLOWEST_LOOK_S:
            info = read_info(self.data)
            if info is not None and info.pid != pid and is_locked(self.data):
                self.report.away_s.append(time.monotonic() - begun)
                return
            if time.monotonic() - begun > 5:
                self.restart()
            time.sleep(0.02)
        self.check(False, "nobody brought the service up again")

    # ---- the end ----

    def end(self) -> None:
        """No job is left open, and with the service its last process goes."""
        session = Session.embedded(self.data)
        open_jobs = [job for job in session.list_jobs() if not job.status.is_terminal]
        self.check(not open_jobs, f"not ended: {open_jobs}")
        listed = Counter(job.name for job in session.list_jobs())
        self.check(set(listed.values()) <= {1}, f"the same submission twice: {listed.most_common(3)}")
        self.check(listed.total() == sum(self.report.jobs.values()), f"{listed.total()} jobs are listed")
        pid = ensure_running(self.data).pid
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _SLOWEST_LOOK_S
        while (left := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.check(not left, f"processes are left: {left}")

    def _processes(self) -> list[str]:
        """All that names our data folder in its arguments or variables, besides ourselves."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                arguments = (process / "cmdline").read_bytes()
                named = arguments + (process / "environ").read_bytes()
                if os.fsencode(self.data) in named and int(process.name) != os.getpid():
                    found.append(f"{process.name} {arguments[:100]!r}")
        return found

    def check(self, is_right: bool, fault: str) -> None:
        if not is_right:
            with self._lock:
                self.report.faults.append(fault)

    def guarded(self, function: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            function(chance)
        except Exception:
            self.check(False, traceback.format_exc())
            self.over.set()

    def _next(self) -> int:
        with self._lock:
            self._number += 1
            return self._number


def run(folder: Path, *, kills: int, seed: int) -> Report:
    """Do it, and tell what was seen."""
    trial, begun = _Trial(folder, seed), time.monotonic()
    functions = [trial.client] * _CLIENTS + [trial.uploader]
    threads = [
        threading.Thread(target=trial.guarded, args=(function, random.Random(seed * 100 + number)))
        for number, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    try:
        trial.kill(kills, random.Random(seed))
    except KeyboardInterrupt:
        pass  # enough; what was seen so far is told
    finally:
        trial.over.set()
        for thread in threads:
            thread.join()
        trial.end()
    trial.report.took_s = time.monotonic() - begun
    return trial.report


def _difference(found: Sequence[object], wanted: Sequence[object]) -> str:
    place = next(
        (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted))
    )
    return f"{len(found)} instead of {len(wanted)}, and differs at {place}: {found[place : place + 3]}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials survival", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the data folder, to look into it")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="survival-"))
    report = run(folder, kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{report}\n")
    if given.keep or report.faults:
        sys.stdout.write(f"the data folder is {folder}\n")
    else:
        import shutil

        shutil.rmtree(folder)
    return 1 if report.faults else 0
