"""Processes of a job are started, killed and started again; all of one launch resume from the same checkpoint.

Each process asks for its checkpoint at a random time, while rank 0 saves and rotates all the time. A launch is
another job, a restart by torchrun on one node, or a restart on several nodes, when all have asked and rank 0 has
saved a checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import until

__all__ = ["KINDS", "Trial", "main", "run"]

KINDS = ("job", "torchrun", "nodes")
_ROOT = Path(__file__).resolve().parents[2]
_RANKS = 3
_TRAINING = """
import os, random, sys, time
sys.path.append(sys.argv[1])
from pai_sdk import CheckpointConfig, checkpoint_dir, get_checkpoint, get_context, set_checkpoint_config

def state():
    found = get_checkpoint()
    return 0 if found is None else int((found.path / "step").read_text())

rank = get_context().rank
set_checkpoint_config(CheckpointConfig(num_to_keep=1))
time.sleep(random.random() * 0.4)
step = state()
print("began", step, flush=True)
if rank:
    print("again", state(), flush=True)
    time.sleep(60)
while True:
    step += 1
    with checkpoint_dir(step) as folder:
        (folder / "step").write_text(str(step))
    time.sleep(0.02)
    print("saved", get_checkpoint().step, flush=True)
"""


@dataclass
class Trial:
    """What was seen. `faults` is empty when all is well."""

    kind: str
    launches: int
    step: int = 0
    starts: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"{self.kind}: {self.launches} launches in {self.took_s:.0f} s, {self.starts} starts of ranks, "
            f"the last one at step {self.step}"
        ]
        lines += [f"FAULT: {fault}" for fault in self.faults]
        return "\n".join([*lines, "all ranks of each launch began with the same step" if not self.faults else ""])


def run(folder: Path, *, kind: str, launches: int, seed: int) -> Trial:
    """Launch the processes one time after the other in one folder of checkpoints."""
    chance, trial, begun = random.Random(seed), Trial(kind, launches), time.monotonic()
    for number in range(launches):
        starts = _launch(folder, kind, number, chance.random())
        trial.starts += len(starts)
        if len(set(starts)) > 1:
            trial.faults.append(f"launch {number} began with {starts}")
        if starts and max(starts) < trial.step:
            trial.faults.append(f"launch {number} began with {starts}, and an earlier one with step {trial.step}")
        trial.step = max([trial.step, *starts])
    trial.took_s = time.monotonic() - begun
    return trial


def _launch(folder: Path, kind: str, number: int, share: float) -> list[int]:
    """Start all processes, kill them after a while, and return what they began with."""
    variables = {
        "PATH": os.environ["PATH"],
        "PAI_WORKING_DIR": f"{folder}/ml/usercode",
        "PAI_TRAINING_JOB_ID": f"train-{number}" if kind == "job" else "train-1",
        "WORLD_SIZE": str(_RANKS),
    }
    if kind == "torchrun":
        variables |= {"LOCAL_WORLD_SIZE": str(_RANKS), "TORCHELASTIC_RESTART_COUNT": str(number)}
    logs = [folder / f"{number}-{rank}.log" for rank in range(_RANKS)]
    processes = []
    for rank, log in enumerate(logs):
        with log.open("w") as output:
            command = [sys.executable, "-S", "-I", "-c", _TRAINING, str(_ROOT)]
            processes.append(
                subprocess.Popen(command, env={**variables, "RANK": str(rank)}, stdout=output, stderr=output)
            )
    if kind == "nodes":
        until(lambda: all("began" in log.read_text() for log in logs) and "saved" in logs[0].read_text())
    elif number == 0:  # on a busy machine all launches could be killed before their first line
        until(lambda: any("began" in log.read_text() for log in logs))
    time.sleep(0.2 + share)
    for process in processes:
        process.kill()
        process.wait()
    lines = [line for log in logs for line in log.read_text().splitlines()]
    began, again = (
        [int(line.split()[1]) for line in lines if line.startswith(f"{word} ") and line.split()[1:]]
        for word in ("began", "again")
    )
    # Rank 0 may have saved a checkpoint for all ranks since their first request.
    earlier = [step for step in again if step < max(began)]
    return began + earlier + [-1 for line in lines if line.startswith("Traceback")]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials launches", description=__doc__)
    parser.add_argument("--launches", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    trials = []
    for kind in KINDS:
        with tempfile.TemporaryDirectory(prefix="launches-") as folder:
            trials.append(run(Path(folder), kind=kind, launches=given.launches, seed=given.seed))
        sys.stdout.write(f"{trials[-1]}\n")
    return 1 if any(trial.faults for trial in trials) else 0
