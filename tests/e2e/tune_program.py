"""A search that a test kills: `python -m tests.e2e.tune_program {functions|jobs|population} STUDY [SERVICE]`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from pai_sdk import Estimator, Session
from pai_sdk._client.tune import LogUniform, PopulationBased, Tuner, Uniform

STEPS = 8
TRIALS = int(os.environ.get("TEST_TRIALS", "40"))
SCRIPT = """
import os, time
from pai_sdk import report
lr = float(os.environ["PAI_HPS_LR"])
for step in range(1, 9):
    report({"loss": (lr - 0.1) ** 2 + 1 / step}, step=step)
    time.sleep(0.15)
"""
POPULATION = PopulationBased(size=4, generations=3)
POPULATION_STEPS = 2
MEMBER = """
import json, os, time
from pathlib import Path
from pai_sdk import get_checkpoint, report
lr, weight, first = float(os.environ["PAI_HPS_LR"]), 8.0, 0
start = get_checkpoint()
if start is not None:
    weight, first = json.loads((start.path / "state.json").read_text()), start.step
state = Path("state")
state.mkdir(exist_ok=True)
for step in range(first + 1, first + 3):
    time.sleep(0.15)
    weight = weight * (1 - lr) ** 2 + 0.5 * lr**2
    (state / "state.json").write_text(json.dumps(weight))
    report({"loss": weight}, step=step, checkpoint=state, checkpoint_upload_mode="SYNC")
"""


def train(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    for step in range(1, STEPS + 1):
        time.sleep(0.01)  # so that ten trials take much longer than a test needs to kill the search
        yield {"loss": (config["x"] - 0.3) ** 2 + config["y"] / step}


def main() -> None:
    kind, study = sys.argv[1:3]
    if kind == "functions":
        search = {"x": Uniform(0, 1), "y": [0.0, 0.1, 0.2]}
        Tuner(train, search, trials=TRIALS, parallel=1, pruner="asha", seed=7, study=study).run()
        return
    estimator = Estimator(
        "python:3.11",
        ["python", "-c", MEMBER if kind == "population" else SCRIPT],
        instance_type="ecs.c6.large",
        session=Session.embedded(sys.argv[3]),
    )
    space = {"lr": LogUniform(1e-3, 1)}
    if kind == "population":
        Tuner(estimator, space, parallel=3, sampler=POPULATION, seed=7, study=study).run()
        return
    tuner = Tuner(
        estimator, space, trials=TRIALS, parallel=6, sampler="random", pruner="median", seed=7, study=study
    )
    tuner.run()


if __name__ == "__main__":
    main()
