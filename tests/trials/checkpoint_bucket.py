"""A training that saves, rotates and syncs its checkpoints is killed, and its uploads fail, at random moments.

The bucket is looked at after each single change: once it has a complete checkpoint, it always has one, and never
an older one than before. Only one checkpoint is kept, some are saved again under the same step, and the training
goes on in the same folder or in a new one, as on another machine.

`python -m tests.trials checkpoint_bucket --kills 100`
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints
from pai_sdk._data.storage.stored_file import StoredFile
from pai_sdk.errors import ObjectNotFoundError
from tests.support.fake_oss import FakeOss, Seen, StoredObject, WireError

__all__ = ["Report", "main", "run"]

_BUCKET = "team-bucket"
_PATIENCE_S = 120.0

_TRAINING = """
import random, sys
from pathlib import Path
from pai_sdk import CheckpointConfig, RunStore, Session
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.errors import PaiError
from pai_sdk._data.run.report import checkpoints
from pai_sdk._data.run.store import stored_checkpoints

endpoint, folder, seed, syncs = sys.argv[1:]
chance = random.Random(int(seed))
session = Session(
    "cn-test", "1", oss_bucket_name="team-bucket", oss_endpoint=endpoint,
    access_key_id="id", access_key_secret="secret",
    retry=RetryPolicy(max_attempts=3, first_pause_s=0.01, longest_pause_s=0.02),
)
store = RunStore.create("oss://team-bucket/team", session=session)
run = Path(folder, "run")
saved, state = run / "checkpoints", Path(folder, "state")
state.mkdir(parents=True, exist_ok=True)
there = stored_checkpoints.latest_checkpoint(store.get_run_path("r1"), session=session, checksums=True)
here = checkpoints.latest_checkpoint(saved)
if there is not None and (here is None or here.step < there.step):
    here = there.download(saved / str(there.step))
step = 0 if here is None else here.step
print("begins", step, flush=True)
for _ in range(int(syncs)):
    step += chance.random() < 0.7
    for name in ("Adam", "weights", "part/z"):
        (state / name).parent.mkdir(exist_ok=True)
        (state / name).write_bytes(chance.randbytes(chance.choice([10, 1000, 200000])))
    checkpoints.save(checkpoints.FolderState.of(state), saved / str(step), step=step)
    checkpoints.rotate(saved, CheckpointConfig(num_to_keep=1))
    try:
        store.sync("r1", run, delete=chance.random() < 0.3)
    except PaiError:
        print("failed", flush=True)
    print("synced", step, flush=True)
"""


@dataclass
class Report:
    """What was seen. `faults` is empty when all is well."""

    seed: int
    kills: int = 0
    in_a_sync: int = 0
    changes: int = 0
    failed_syncs: int = 0
    newest: int = -1
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.kills} kills in {self.took_s:.0f} s, {self.in_a_sync} of them with a "
            f"checkpoint half sent; {self.changes} changes of the bucket, {self.failed_syncs} failed syncs, "
            f"step {self.newest}",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]
        return "\n".join([*lines, f"{len(self.faults)} faults" if self.faults else "always a complete checkpoint"])


class _Objects(dict[str, StoredObject]):
    """The objects of the bucket; a reader looks at them after each change."""

    uri = "watched://bucket/"

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report
        self._lock = threading.RLock()

    def __setitem__(self, key: str, value: StoredObject) -> None:
        with self._lock:
            super().__setitem__(key, value)
            self._look(f"put {key}")

    def pop(self, key: str, default: object = None) -> None:  # type: ignore[override]
        with self._lock:
            super().pop(key, None)
            self._look(f"delete {key}")

    def _look(self, change: str) -> None:
        report = self._report
        report.changes += 1
        found = [each for each in complete_checkpoints(self) if each.is_sound()]  # type: ignore[arg-type]
        newest = max((each.step for each in found), default=-1)
        if newest < report.newest:
            report.faults.append(f"{change}: the newest is step {newest}, before it was {report.newest}")
        report.newest = newest

    # ---- as far as readers of checkpoints need a store

    def list(self, prefix: str = "", **more: object) -> Iterator[StoredFile]:
        place = "team/runs/r1/"
        for key in sorted(super().keys()):
            if key.startswith(place + prefix):
                found = self[key]
                yield StoredFile(key.removeprefix(place), len(found.content), 0, found.etag)

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        found = super().get(f"team/runs/r1/{path}")
        if found is None:
            raise ObjectNotFoundError(path)
        yield found.content[start:end]


class _Trial:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.report = Report(seed)
        self.chance = random.Random(seed)
        self.server = FakeOss()
        self.server._server.handle_error = lambda *args: None  # type: ignore[method-assign]  # of killed clients
        self.objects = self.server.buckets[_BUCKET] = _Objects(self.report)
        self.number = 0

    def start(self, *, syncs: int) -> subprocess.Popen[str]:
        if self.chance.random() < 0.2:
            self.number += 1  # it goes on elsewhere, with nothing but the bucket
        folder = self.folder / str(self.number)
        folder.mkdir(parents=True, exist_ok=True)
        seed = str(self.chance.randrange(1 << 30))
        command = [sys.executable, "-c", _TRAINING, self.server.endpoint, str(folder), seed, str(syncs)]
        environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def fails(self, seen: Seen) -> bool:
        return seen.method in ("PUT", "POST") and self.chance.random() < 0.04

    def one_kill(self) -> None:
        before = self.unfinished()
        process = self.start(syncs=10**6)
        try:
            assert process.stdout is not None
            begins = process.stdout.readline()
            if not begins.startswith("begins") or int(begins.split()[1]) < self.report.newest:
                self.report.faults.append(f"it resumed from {begins!r}, but {self.report.newest} was complete")
            for _ in range(self.chance.randrange(3)):
                while process.stdout.readline().startswith("failed"):
                    self.report.failed_syncs += 1
            time.sleep(self.chance.uniform(0, 0.2))
        finally:
            process.kill()
            rest, _ = process.communicate(timeout=_PATIENCE_S)
        self.report.failed_syncs += rest.count("failed")
        self.report.kills += 1
        self.report.in_a_sync += self.unfinished() != before

    def unfinished(self) -> set[str]:
        return {key for key in self.objects if "/_INCOMPLETE" in key or ".pai-sdk-new/" in key}

    def last(self) -> None:
        """Without faults, the bucket has in the end what the folder has, and nothing that this one has left."""
        self.server.faults.clear()
        process = self.start(syncs=2)
        output, _ = process.communicate(timeout=_PATIENCE_S)
        folder = self.folder / str(self.number) / "run" / "checkpoints"
        here = [int(entry.name) for entry in folder.iterdir() if (entry / "_COMPLETE").exists()]
        if process.returncode or "failed" in output or here != [self.report.newest]:
            self.report.faults.append(
                f"at the end the folder has {here}, the bucket {self.report.newest}: {output}"
            )


def run(folder: Path, *, kills: int, seed: int) -> Report:
    """Do it; returns what was seen."""
    trial, begun = _Trial(folder, seed), time.monotonic()
    for kind, code in (("status", 403), ("lost", 0), ("reset", 0)):
        trial.server.faults.append(WireError(kind, 10**9, code, "AccessDenied", "refused", fits=trial.fails))
    try:
        for _ in range(kills):
            trial.one_kill()
        trial.last()
    finally:
        trial.server.close()
    trial.report.took_s = time.monotonic() - begun
    return trial.report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials checkpoint_bucket", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="checkpoints-") as folder:
        report = run(Path(folder, "trial"), kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{report}\n")
    return 1 if report.faults else 0
