"""A search that a test kills: `python -m tests.e2e.tune_program {functions|jobs} STUDY [SERVICE]`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from pai_sdk import Estimator, Session
from pai_sdk.tune import LogUniform, Tuner, Uniform

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


def train(config: dict[str, Any]) -> Iterator[dict[str, float]]:
    for step in range(1, STEPS + 1):
        time.sleep(0.004)
        yield {"loss": (config["x"] - 0.3) ** 2 + config["y"] / step}


def main() -> None:
    kind, study = sys.argv[1:3]
    if kind == "functions":
        search = {"x": Uniform(0, 1), "y": [0.0, 0.1, 0.2]}
        Tuner(train, search, trials=TRIALS, parallel=1, pruner="asha", seed=7, study=study).run()
        return
    estimator = Estimator(
        "python:3.11",
        ["python", "-c", SCRIPT],
        instance_type="ecs.c6.large",
        session=Session.embedded(sys.argv[3]),
    )
    space = {"lr": LogUniform(1e-3, 1)}
    tuner = Tuner(
        estimator, space, trials=TRIALS, parallel=6, sampler="random", pruner="median", seed=7, study=study
    )
    tuner.run()


if __name__ == "__main__":
    main()
