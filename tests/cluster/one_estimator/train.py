"""A training that uses each part of the job contract; what it leaves depends on nothing else."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import one_estimator_tiny
from helpers.numbers import total

from pai_sdk import checkpoint_dir, get_context, report

rank = int(os.environ["RANK"])
model = Path(os.environ["PAI_OUTPUT_MODEL"])
checkpoints = Path(os.environ["PAI_OUTPUT_CHECKPOINTS"])
rows = Path(os.environ["PAI_INPUT_ROWS"]).read_text().split()
folder = Path(os.environ["PAI_INPUT_FOLDER"])
parameters = json.loads(Path(os.environ["PAI_CONFIG_DIR"], "hyperparameters.json").read_text())

print("arguments", sys.argv[1:])
print("parameters", parameters, json.loads(os.environ["PAI_HPS"]) == parameters, os.environ["PAI_HPS_LR"])
print("context", get_context().hyperparameters, get_context().rank, get_context().world_size)
print(
    "folders", Path.cwd(), *(os.environ[f"PAI_{name}"] for name in ("WORKING_DIR", "INPUT_ROWS", "OUTPUT_MODEL"))
)
print(
    "inputs",
    total(rows),
    {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.txt"))},
)
print("earlier", [(path.name, path.read_text()) for path in sorted(checkpoints.glob("earlier*"))])
print("requirement", one_estimator_tiny.__name__)
print(
    "variables", json.dumps({name: text for name, text in os.environ.items() if name != "PAI_HPS"}, sort_keys=True)
)
Path("scratch").write_text("the code folder is writable")

(model / str(rank)).mkdir(parents=True)
(model / str(rank) / "weights.bin").write_bytes(bytes(range(256)) * (rank + 1))
(model / str(rank) / "损失 é.txt").write_text(f"{total(rows)} at {parameters['lr']}\n")
(model / str(rank) / "empty").touch()
(checkpoints / f"by-{rank}.txt").write_text(f"rank {rank}\n")
for step in (1, 2, 3):
    print(f"step={step} loss={1 / step:.3f}", flush=True)
    if rank == 0:
        with checkpoint_dir(step) as saved:
            (saved / "weights").write_text(str(step))
    report({"accuracy": step / 4 + rank}, step=step)
    time.sleep(0.05)
print("last line of", rank, "错误", file=sys.stderr)
