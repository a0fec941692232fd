"""Syncs of a changing folder that are killed by SIGKILL at random moments; at the end both sides are equal.

`python -m tests.trials sync --kills 100 --seed 1 --examples 300`
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.data.storage.sync.sync_machine import SyncMachine, tree_of

PROGRAM = """
import sys
from pathlib import Path
from pai_sdk._data.storage.store import LocalStore
from pai_sdk._data.storage.sync.dir_sync import DirSync
source, target, memory = map(Path, sys.argv[1:])
print("begins", flush=True)
DirSync(LocalStore(source), LocalStore(target), delete=True, remember=memory, workers=4).run()
"""


def change(root: Path, chance: random.Random) -> None:
    """Write, replace and delete some files."""
    for _ in range(50):
        path = root / f"{chance.randrange(8)}" / f"{chance.randrange(40)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if chance.random() < 0.2:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(chance.randbytes(chance.choice([0, 10, 100_000])))


def killed_syncs(kills: int, seed: int) -> int:
    """Returns how many syncs were killed before they had ended."""
    chance = random.Random(seed)
    count = 0
    folder = Path(tempfile.mkdtemp())
    source, target, memory = (folder / name for name in ("source", "target", "memory.db"))
    call = [sys.executable, "-c", PROGRAM, str(source), str(target), str(memory)]
    for number in range(kills):
        change(source, chance)
        with subprocess.Popen(call, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(chance.random() * 0.1)
            process.send_signal(signal.SIGKILL)
        count += process.returncode == -signal.SIGKILL
        whole = tree_of(source)
        for path, there in tree_of(target).items():
            if path in whole and there is not None:
                assert ".pai-sdk" in path or len(there[0]) in (0, 10, 100_000), f"{path} is half a file"
        if number % 5 == 4:
            subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
            # A temporary file stays until a sync writes to its folder again.
            found = {path: what for path, what in tree_of(target).items() if ".pai-sdk" not in path}
            assert found == tree_of(source), f"after kill {number} the trees differ, in {folder}"
    shutil.rmtree(folder)
    return count


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="sync")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--examples", type=int, default=300)
    given = parser.parse_args(arguments)
    killed = killed_syncs(given.kills, given.seed)
    print(f"{killed} of {given.kills} syncs were killed; the trees were equal after each fifth")
    longer = settings(max_examples=given.examples, stateful_step_count=40, deadline=None, derandomize=False)
    run_state_machine_as_test(SyncMachine, settings=longer)
    print(f"{given.examples} random histories ended with equal trees")
    return 0
