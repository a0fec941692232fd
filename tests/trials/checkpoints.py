"""Everything is killed while a training writes a checkpoint; the next job resumes from a complete one, each time.

Everything is the service, the supervisor of the job and the training itself, all by SIGKILL. The moment is random,
within the time that a checkpoint takes. The next job is submitted with the id of the killed one, or with the same
`checkpoints_path`, and checks every byte of the checkpoint that it is given.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._service.embedded import ensure_running

__all__ = ["Report", "main", "run"]

_PATIENCE_S = 120.0
_LONGEST_SAVE_S = 0.06

_TRAINING = """
import itertools, os
from pai_sdk import CheckpointConfig, checkpoint_dir, get_checkpoint, report, set_checkpoint_config
from pai_sdk._data.run.report.checkpoints import is_complete

notes = open(os.environ["NOTES"], "a", buffering=1)

def content(name, step):
    return f"{name} of {step}\\n".encode() * 20000

start = get_checkpoint()
if start is None:
    print("resumed", None, file=notes)
else:
    right = is_complete(start.path, checksums=True) and all(
        (start.path / name).read_bytes() == content(name, start.step) for name in ("Adam", "weights", "z")
    )
    print("resumed", start.step if right else "damaged", file=notes)
set_checkpoint_config(CheckpointConfig(num_to_keep=3))
os.makedirs("state", exist_ok=True)
for step in itertools.count(1 if start is None else start.step + 1):
    print("begun", step, file=notes)
    if step % 2:
        with checkpoint_dir(step) as folder:
            for name in ("Adam", "weights", "z"):
                (folder / name).write_bytes(content(name, step))
        continue  # complete when the next one is, at the latest
    for name in ("Adam", "weights", "z"):
        with open(f"state/{name}", "wb") as file:
            file.write(content(name, step))
    report({"loss": 1 / step}, step, checkpoint="state", checkpoint_upload_mode="SYNC")
    print("complete", step, file=notes)
"""


@dataclass
class Report:
    """What was seen. `faults` is empty when all is well."""

    seed: int
    kills: int = 0
    steps: int = 0
    in_the_middle: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.kills} kills in {self.took_s:.0f} s, {self.in_the_middle} of them with a "
            f"checkpoint half written, {self.steps} steps",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]
        return "\n".join([*lines, f"{len(self.faults)} faults" if self.faults else "each job has resumed"])


class _Trial:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.data, self.code = folder, folder / "data", folder / "code"
        self.code.mkdir(parents=True)
        (self.code / "train.py").write_text(textwrap.dedent(_TRAINING))
        self.report = Report(seed)
        self.chance = random.Random(seed)

    def submit(self, notes: Path, killed: TrainingJob | None, path: str) -> TrainingJob:
        """Submit the training again: by the id of the killed job, or with the same path."""
        session = Session.embedded(self.data)
        by_id = killed is not None and self.chance.random() < 0.5
        estimator = Estimator(
            "python:3.11",
            "python train.py",
            self.code,
            instance_type="ecs.c6.large",
            environments={"NOTES": str(notes)},
            checkpoints_path=None if by_id else path,
            resume=killed.id if by_id and killed is not None else True,
            session=session,
        )
        return estimator.fit(wait=False, show_logs=False)

    def one_kill(self, number: int, killed: TrainingJob | None, newest: int) -> tuple[TrainingJob, int]:
        """Submit, check what it resumes from, kill everything. Returns the job and the newest complete step."""
        notes = self.folder / f"notes-{number}"
        path = f"oss://{ensure_running(self.data).bucket}/run/checkpoints/"
        if killed is not None:
            self.await_end(killed)
            path = killed.outputs["checkpoints"]
        job = self.submit(notes, killed, path)
        resumed = self.noted(notes, "resumed")[0]
        if newest:
            is_right = resumed.isdecimal() and int(resumed) >= newest
            self.check(is_right, f"kill {number}: resumed from {resumed}, but {newest} was complete")
        self.noted(notes, "complete", count=1 + self.chance.randrange(3))
        time.sleep(self.chance.uniform(0, _LONGEST_SAVE_S))
        self.kill_everything()
        begun, complete = (self.noted(notes, what) for what in ("begun", "complete"))
        self.report.kills += 1
        self.report.steps += len(begun)
        folder = self.data / "jobs" / job.id / "ml" / "output" / "checkpoints"
        self.report.in_the_middle += any(not (step / "_COMPLETE").exists() for step in folder.iterdir())
        return job, int(complete[-1])

    def noted(self, notes: Path, what: str, count: int = 1) -> list[str]:
        """The values that the training has noted; waits until there are `count`."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            lines = notes.read_text().splitlines(keepends=True) if notes.exists() else []
            found = [line.split()[1] for line in lines if line.startswith(what) and line.endswith("\n")]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{notes} has no {count} lines {what!r}")
            time.sleep(0.002)

    def await_end(self, job: TrainingJob) -> None:
        """Wait until the service that came up again has ended the job, which it found dead."""
        job = Session.embedded(self.data).get_job(job.id)
        deadline = time.monotonic() + _PATIENCE_S
        while not job.refresh().status.is_terminal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{job.id} has not ended: {job.status}")
            time.sleep(0.05)

    def kill_everything(self) -> None:
        """SIGKILL for all processes that name the data folder, until there are none."""
        while found := [pid for pid in map(int, _processes()) if self.is_ours(pid)]:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def is_ours(self, pid: int) -> bool:
        """Whether the process belongs to this trial, and has not ended."""
        place = Path("/proc", str(pid))
        try:
            if pid == os.getpid() or place.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
            named = place.joinpath("cmdline").read_bytes() + place.joinpath("environ").read_bytes()
        except OSError:
            return False
        return os.fsencode(self.folder) in named

    def check(self, is_right: bool, fault: str) -> None:
        if not is_right:
            self.report.faults.append(fault)


def _processes() -> list[str]:
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def run(folder: Path, *, kills: int, seed: int) -> Report:
    """Do it; returns what was seen."""
    trial, begun = _Trial(folder, seed), time.monotonic()
    job: TrainingJob | None = None
    newest = 0
    try:
        for number in range(1, kills + 1):
            job, newest = trial.one_kill(number, job, newest)
    finally:
        trial.kill_everything()
    trial.report.took_s = time.monotonic() - begun
    return trial.report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials checkpoints", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        report = run(Path(folder, "trial"), kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{report}\n")
    return 1 if report.faults else 0
