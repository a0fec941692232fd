"""A training saves its checkpoints again and again, is killed, and its disk fails: never fewer complete ones.

The training saves three steps in turn, in every way there is: a copy of a folder, a function that copies, a
folder that is filled in place, a block that ends with an error. At random calls its disk is full or fails. It is
killed by SIGKILL at random moments, and another one goes on in the same folder.

After each kill, and meanwhile by a reader that does not wait, the folder is read: each step that had a complete
checkpoint has one, which is not an older one, and all of its bytes are right. At last a sync sends the folder to
a store, which has the same ones then.

`python -m tests.trials saved_again --kills 100`
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pai_sdk._data.run.report.checkpoints import Checkpoint, complete_checkpoints, latest_checkpoint
from pai_sdk._data.run.store.checkpoint_sync import CheckpointSync
from pai_sdk._data.run.store.stored_checkpoints import complete_checkpoints as stored
from pai_sdk._data.storage.stores.local import LocalStore

__all__ = ["Report", "main", "run"]

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 120.0

_TRAINING = """
import errno, os, random, sys
root, folder, seed, number, fails = sys.argv[1:]
sys.path.append(root)
from pathlib import Path
from pai_sdk._data.run.report import checkpoints
from pai_sdk._data.run.report.checkpoints import FolderState
from pai_sdk._data.run.report.report_session import ReportSession, StopTraining

chance, number = random.Random(int(seed)), int(number)
source = Path(folder, "source")
errors = [errno.ENOSPC, errno.EIO, errno.EDQUOT]
has_links = chance.random() < 0.5

def failing(real, is_link=False):
    def call(*args, **kwargs):
        if is_link and not has_links:
            raise OSError(errno.EPERM, "no links here")
        if chance.random() < float(fails):
            code = chance.choice(errors)
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)
    return call

for module, name in ((checkpoints, "_copy_crc32"), (checkpoints, "sync_folder"), (checkpoints, "replace_file")):
    setattr(module, name, failing(getattr(module, name)))
for name in ("mkdir", "unlink", "rmdir"):
    setattr(os, name, failing(getattr(os, name)))
os.link = failing(os.link, is_link=True)

def write(place):
    place = Path(place)
    for name, size in (("Adam", 40000), ("part/z", 10), ("weights", 4000)):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(b"%012d " % number * size)

def save_once(session, step):
    way = chance.choice(["copy", "function", "block", "broken block"])
    if "block" in way:
        with session.checkpoint_dir(step) as place:
            write(place)
            if way == "broken block":
                raise KeyError("of the training")
        session._saver.wait()
        session._saver.raise_failure()
        return
    write(source)
    copy = write if way == "function" else None
    target = Path(folder, "checkpoints", str(step))
    checkpoints.save(
        FolderState.of(source), target, step=step, copy=None if copy is None else lambda found, to: copy(to)
    )

source.mkdir(exist_ok=True)
session = ReportSession(folder)
print("begins", flush=True)
while True:
    number, step = number + 1, chance.randrange(3)
    print("begun", step, number, flush=True)
    try:
        save_once(session, step)
        print("complete", step, number, flush=True)
    except (OSError, KeyError, checkpoints.CheckpointError) as error:
        print("failed", type(error).__name__, flush=True)
"""


@dataclass
class Report:
    """What was seen. `faults` is empty when all is well."""

    seed: int
    kills: int = 0
    saves: int = 0
    failed_saves: int = 0
    half_replaced: int = 0
    reads: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.kills} kills in {self.took_s:.0f} s, {self.half_replaced} of them with a "
            f"checkpoint half replaced; {self.saves} saves, {self.failed_saves} failed ones, "
            f"{self.reads} reads meanwhile",
            *(f"FAULT: {fault}" for fault in self.faults),
        ]
        return "\n".join(
            [*lines, f"{len(self.faults)} faults" if self.faults else "never fewer complete checkpoints"]
        )


class _Trial:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.checkpoints = folder, folder / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.report = Report(seed)
        self.chance = random.Random(seed)
        self.complete: dict[int, int] = {}  # step to the number of the newest save that has returned
        self.begun = 0

    def one_kill(self, number: int) -> None:
        fails = 0 if number < 3 else self.chance.choice([0, 0.02, 0.1])
        program = [sys.executable, "-S", "-I", "-c", _TRAINING, str(_ROOT), str(self.folder)]
        program += [str(self.chance.randrange(10**9)), str(self.begun), str(fails)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as training:
            assert training.stdout is not None
            assert training.stdout.readline() == "begins\n"
            over = threading.Event()
            reader = threading.Thread(target=self.read_meanwhile, args=(over, bool(self.complete)))
            reader.start()
            time.sleep(self.chance.uniform(0.02, 0.4))
            training.kill()
            for line in training.stdout:
                self.note(line)
            training.wait(_PATIENCE_S)
            over.set()
            reader.join()
        self.report.kills += 1
        self.check(number)

    def note(self, line: str) -> None:
        what, *values = line.split()
        if what == "begun":
            self.begun = int(values[1])
        elif what == "complete":
            self.report.saves += 1
            self.complete[int(values[0])] = int(values[1])
        else:
            self.report.failed_saves += 1

    def read_meanwhile(self, over: threading.Event, has_some: bool) -> None:
        """A reader that looks all the time always finds a checkpoint, once there is one."""
        while has_some and not over.is_set():
            self.report.reads += 1
            if latest_checkpoint(self.checkpoints) is None:
                self.report.faults.append("meanwhile: there is no complete checkpoint")
            time.sleep(0.001)

    def check(self, number: int) -> None:
        """Look at what a killed training has left."""
        folders = list(self.checkpoints.iterdir())
        self.report.half_replaced += any(each.name.endswith(".pai-sdk-new") for each in folders)
        here = {found.step: found for found in complete_checkpoints(self.checkpoints)}
        for step, saved in self.complete.items():
            found = here.get(step)
            if found is None:
                self.report.faults.append(f"kill {number}: step {step} has no complete checkpoint, but had one")
                continue
            content = self.number_of(found)
            if content is None or not saved <= content <= self.begun:
                self.report.faults.append(
                    f"kill {number}: step {step} is that of save {content}, {saved} was complete"
                )
            else:
                self.complete[step] = content
        in_store = list(stored(self.checkpoints, checksums=True))
        if [found.step for found in in_store] != list(here):
            self.report.faults.append(f"kill {number}: a store finds {in_store}, not {list(here)}")

    def number_of(self, found: Checkpoint) -> int | None:
        """The number of the save that all files of a checkpoint are of."""
        numbers = {(found.path / name).read_bytes()[:12] for name in found.files}
        whole = all(len(set((found.path / name).read_bytes().split())) == 1 for name in found.files)
        return int(numbers.pop()) if len(numbers) == 1 and whole and len(found.files) == 3 else None

    def sync(self) -> None:
        """Send what is left to a store, as at the end of a killed job."""
        there = LocalStore(self.folder / "there")
        memory = self.folder / "memory.db"
        report = CheckpointSync(LocalStore(self.checkpoints), there, memory=memory, is_finished=True).attempt()
        here = [(found.step, dict(found.files)) for found in complete_checkpoints(self.checkpoints)]
        if report.failures or [(found.step, dict(found.files)) for found in stored(there, checksums=True)] != here:
            self.report.faults.append(f"the store does not have {[step for step, _ in here]}: {report.failures}")


def run(folder: Path, *, kills: int, seed: int) -> Report:
    """Do it; returns what was seen."""
    trial, began = _Trial(folder, seed), time.monotonic()
    for number in range(1, kills + 1):
        trial.one_kill(number)
        if number % 10 == 0 or number == kills:
            trial.sync()
    trial.report.took_s = time.monotonic() - began
    return trial.report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials saved_again", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="saved-again-") as folder:
        report = run(Path(folder, "trial"), kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{report}\n")
    return 1 if report.faults else 0
