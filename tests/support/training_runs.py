"""Real training runs for tests and pictures of the page: small networks with different hyperparameters."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pai_sdk._data.run.events.writer import EventWriter

__all__ = ["write_trials"]

_Array = npt.NDArray[np.float64]
_CLASSES, _PIXELS, _IMAGES = 10, 64, 600
_DAY_S = 86_400


@dataclass(frozen=True)
class _Settings:
    """The hyperparameters of one training."""

    lr: float
    batch_size: int
    width: int
    optimizer: str
    noise: float
    seed: int


def write_trials(root: Path, count: int, *, epochs: int = 60, log_lines: int = 0) -> None:
    """Train networks that classify drawn digits, each into a folder of its own.

    Args:
        root: the folder of the folders.
        count: how many.
        epochs: of each training.
        log_lines: further lines in the log of the first one.
    """
    random = np.random.default_rng(7)
    digits = random.normal(size=(_CLASSES, _PIXELS))
    for number in range(count):
        settings = _Settings(
            lr=float(np.round(10 ** random.uniform(-3, 1.2), 5)),
            batch_size=int(random.choice([16, 32, 64, 128])),
            width=int(random.choice([16, 32, 64])),
            optimizer=str(random.choice(["sgd", "momentum"])),
            noise=float(np.round(random.uniform(0.5, 2), 2)),
            seed=number % 3,
        )
        began = time.time() - _DAY_S + number * 300
        _train(root / f"trial-{number:03d}", settings, digits, epochs, began, log_lines if number == 0 else 0)


def _train(folder: Path, settings: _Settings, digits: _Array, epochs: int, began: float, log_lines: int) -> None:
    random = np.random.default_rng(settings.seed)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    images, labels = _images(random, digits, settings.noise)
    unseen, unseen_labels = _images(random, digits, settings.noise)
    weights = [
        random.normal(size=(_PIXELS, settings.width)) / 8,
        random.normal(size=(settings.width, _CLASSES)) / 4,
    ]
    speeds = [np.zeros_like(one) for one in weights]
    momentum = 0.9 if settings.optimizer == "momentum" else 0.0
    with (folder / "logs" / "worker-0.log").open("w") as log, EventWriter(folder / "tensorboard") as writer:
        writer.hparams(asdict(settings), ["eval/accuracy"])
        log.write(f"\x1b[1mtraining\x1b[0m {settings}\n")
        log.writelines(f"\x1b[32mINFO\x1b[0m batch {n} of a long log\n" for n in range(log_lines))
        for epoch in range(epochs):
            rate = settings.lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
            with np.errstate(all="ignore"):
                order = random.permutation(_IMAGES)
                for begin in range(0, _IMAGES, settings.batch_size):
                    batch = order[begin : begin + settings.batch_size]
                    for at, slope in enumerate(_slopes(weights, images[batch], labels[batch])):
                        speeds[at] = momentum * speeds[at] - rate * slope
                        weights[at] = weights[at] + speeds[at]
                loss, accuracy = _quality(weights, images, labels)
                eval_loss, eval_accuracy = _quality(weights, unseen, unseen_labels)
            values = {
                "loss": loss,
                "accuracy": accuracy,
                "eval/loss": eval_loss,
                "eval/accuracy": eval_accuracy,
                "learning_rate": rate,
            }
            writer.scalars(values, epoch, wall_time=began + epoch)
            bars = "\r".join(f"epoch {epoch}: {part}%" for part in (0, 50, 100))
            level = "\x1b[33mWARNING\x1b[0m" if not math.isfinite(loss) else "\x1b[32mINFO\x1b[0m"
            log.write(f"{bars}\n{level} epoch {epoch} loss={loss:.4f} accuracy={accuracy:.4f}\n")
        writer.histogram("weights", [float(w) for w in np.nan_to_num(weights[0]).ravel()], epochs)
        writer.text("note", f"trained with {settings.optimizer}", epochs)
        writer.end("Succeed" if math.isfinite(loss) else "Failed")


def _images(random: np.random.Generator, digits: _Array, noise: float) -> tuple[_Array, npt.NDArray[np.int64]]:
    labels = random.integers(0, _CLASSES, _IMAGES)
    return digits[labels] + noise * random.normal(size=(_IMAGES, _PIXELS)), labels


def _probabilities(weights: list[_Array], images: _Array) -> tuple[_Array, _Array]:
    hidden = np.maximum(images @ weights[0], 0)
    scores = hidden @ weights[1]
    powers = np.exp(scores)  # overflows where a training diverges, which pictures need too
    return hidden, powers / powers.sum(axis=1, keepdims=True)


def _slopes(weights: list[_Array], images: _Array, labels: npt.NDArray[np.int64]) -> tuple[_Array, _Array]:
    hidden, probabilities = _probabilities(weights, images)
    wrong = probabilities.copy()
    wrong[np.arange(len(labels)), labels] -= 1
    wrong /= len(labels)
    behind = (wrong @ weights[1].T) * (hidden > 0)
    return images.T @ behind, hidden.T @ wrong


def _quality(weights: list[_Array], images: _Array, labels: npt.NDArray[np.int64]) -> tuple[float, float]:
    _, probabilities = _probabilities(weights, images)
    right = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(right + 1e-12).mean()), float((probabilities.argmax(axis=1) == labels).mean())
