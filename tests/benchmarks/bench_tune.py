"""Searches: trials a second of functions and of jobs, beside Optuna alone; compute with and without pruning."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna

from pai_sdk import Estimator, LogUniform, Session, Tuner, Uniform
from tests.benchmarks.harness import Row

REPETITIONS = 3

TUNER_TPE = Row("Tuner, a trivial function, sampler tpe", unit="trials/s")
OPTUNA_TPE = Row("Optuna alone, its journal in a file, sampler tpe", unit="trials/s")
SHARE_TPE = Row("Tuner to Optuna alone, tpe", unit="", at_least=0.9)
TUNER_RANDOM = Row("Tuner, a trivial function, sampler random", unit="trials/s")
OPTUNA_RANDOM = Row("Optuna alone, its journal in a file, sampler random", unit="trials/s")
SHARE_RANDOM = Row("Tuner to Optuna alone, random", unit="", at_least=0.9)
RAY = Row("Ray Tune, a trivial function, sampler random", unit="trials/s")
JOBS = Row("Tuner, jobs of the embedded service, 8 at once", unit="trials/s", at_least=8)
OVERHEAD = Row("processor time of the tuner a job", unit="ms")
EPOCHS = Row("digits: epochs of 40 trials without pruning", unit="epochs")
EPOCHS_ASHA = Row("digits: epochs of 40 trials with asha", unit="epochs")
SAVED = Row("digits: compute that asha saves", unit="%")
WORSE = Row("digits: accuracy that asha costs", unit="%", at_most=1.0)
ROWS = (
    TUNER_TPE,
    OPTUNA_TPE,
    SHARE_TPE,
    TUNER_RANDOM,
    OPTUNA_RANDOM,
    SHARE_RANDOM,
    RAY,
    JOBS,
    OVERHEAD,
    EPOCHS,
    EPOCHS_ASHA,
    SAVED,
    WORSE,
)

FUNCTIONS, JOB_TRIALS, RAY_TRIALS, MOST_EPOCHS = 300, 64, 10, 40
SAMPLERS = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
EPOCHS_RUN = [0]


def measure(cache: Path) -> dict[str, float | str]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    found: dict[str, float | str] = {}
    rows = {"tpe": (TUNER_TPE, OPTUNA_TPE, SHARE_TPE), "random": (TUNER_RANDOM, OPTUNA_RANDOM, SHARE_RANDOM)}
    for sampler, (ours, theirs, share) in rows.items():
        found[theirs.name] = of_optuna(sampler)
        found[ours.name] = of_tuner(sampler)
        found[share.name] = float(found[ours.name]) / float(found[theirs.name])
    found[RAY.name] = of_ray()
    found[JOBS.name], found[OVERHEAD.name] = of_jobs()
    return {**found, **on_digits()}


def trivial(config: dict[str, Any]) -> float:
    return float(config["x"] ** 2 + config["y"])


def of_tuner(sampler: str) -> float:
    search = {"x": Uniform(-1, 1), "y": Uniform(0, 1)}
    tuner = Tuner(trivial, search, trials=FUNCTIONS, parallel=1, sampler=sampler, seed=1, study=Path(sampler))
    began = time.perf_counter()
    tuner.run(show=False)
    return FUNCTIONS / (time.perf_counter() - began)


def of_optuna(sampler: str) -> float:
    backend = optuna.storages.journal.JournalFileBackend(f"optuna-{sampler}")
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(storage=storage, sampler=SAMPLERS[sampler](seed=1))
    began = time.perf_counter()
    study.optimize(
        lambda trial: trial.suggest_float("x", -1, 1) ** 2 + trial.suggest_float("y", 0, 1), n_trials=FUNCTIONS
    )
    return FUNCTIONS / (time.perf_counter() - began)


def of_ray() -> float | str:
    os.environ["RAY_AUTH_MODE"] = "disabled"  # otherwise Ray writes a token into HOME
    try:
        import ray
        from ray import tune
    except ImportError as error:
        return f"{error.name} is not installed"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    space = {"x": tune.uniform(-1, 1), "y": tune.uniform(0, 1)}
    options = tune.TuneConfig(num_samples=RAY_TRIALS, metric="loss", mode="min")
    began = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        tune.Tuner(lambda config: {"loss": trivial(config)}, param_space=space, tune_config=options).fit()
    took = time.perf_counter() - began
    ray.shutdown()
    return RAY_TRIALS / took


def of_jobs() -> tuple[float, float]:
    estimator = Estimator(
        "python:3.11",
        "echo loss=$PAI_HPS_LR",
        instance_type="ecs.c6.large",
        metric_definitions=[{"name": "loss", "regex": "loss=(.*)"}],
        session=Session.embedded(),
    )
    search = {"lr": LogUniform(1e-3, 1)}
    Tuner(estimator, search, trials=8, parallel=8, study=Path("warm"), sampler="random").run(show=False)
    tuner = Tuner(estimator, search, trials=JOB_TRIALS, parallel=8, study=Path("jobs"), sampler="random")
    began, used = time.perf_counter(), time.process_time()
    tuner.run(show=False)
    took, used = time.perf_counter() - began, time.process_time() - used
    return JOB_TRIALS / took, used / JOB_TRIALS * 1000


def on_digits() -> dict[str, float | str]:
    try:
        import sklearn.datasets
    except ImportError:
        return dict.fromkeys(
            (EPOCHS.name, EPOCHS_ASHA.name, SAVED.name, WORSE.name), "scikit-learn is not installed"
        )
    data = sklearn.datasets.load_digits()

    def train(config: dict[str, Any]) -> Iterator[dict[str, float]]:
        return softmax_on(data.data / 16, data.target, config)

    best, epochs = {}, {}
    for pruner in (None, "asha"):
        EPOCHS_RUN[0] = 0
        search = {"lr": LogUniform(1e-3, 10), "decay": LogUniform(1e-6, 1e-1), "hidden": [8, 16, 32, 64]}
        tuner = Tuner(
            train, search, "accuracy", trials=40, parallel=1, sampler="random", pruner=pruner, seed=3,
            study=Path(f"digits-{pruner}"),
        )  # fmt: skip
        best[pruner] = tuner.run(show=False).best.value  # type: ignore[union-attr]
        epochs[pruner] = EPOCHS_RUN[0]
    return {
        EPOCHS.name: epochs[None],
        EPOCHS_ASHA.name: epochs["asha"],
        SAVED.name: 100 * (1 - epochs["asha"] / epochs[None]),
        WORSE.name: 100 * (float(best[None] or 0) - float(best["asha"] or 0)),
    }


def softmax_on(features: Any, labels: Any, config: dict[str, Any]) -> Iterator[dict[str, float]]:
    """A network with one hidden layer, trained by gradient descent; the accuracy on held-out digits."""
    import numpy as np

    random = np.random.default_rng(0)
    order = random.permutation(len(labels))
    train, test = order[:1300], order[1300:]
    first = random.normal(0, 0.3, (features.shape[1], config["hidden"]))
    second = random.normal(0, 0.3, (config["hidden"], 10))
    wanted = np.eye(10)[labels]
    for _ in range(MOST_EPOCHS):
        EPOCHS_RUN[0] += 1
        for batch in np.array_split(train, 20):
            hidden = np.tanh(features[batch] @ first)
            scores = np.exp(hidden @ second - (hidden @ second).max(1, keepdims=True))
            error = (scores / scores.sum(1, keepdims=True) - wanted[batch]) / len(batch)
            back = features[batch].T @ ((error @ second.T) * (1 - hidden**2))
            second -= config["lr"] * (hidden.T @ error + config["decay"] * second)
            first -= config["lr"] * (back + config["decay"] * first)
        found = np.argmax(np.tanh(features[test] @ first) @ second, 1)
        yield {"accuracy": float((found == labels[test]).mean())}
