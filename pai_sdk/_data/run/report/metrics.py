"""The metrics of a training: as numbers by name, and in the event file of a run.

This module is shipped with jobs: standard library only, syntax of Python 3.8.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pai_sdk._data.run.events.writer import EventWriter, as_float64

logger = logging.getLogger(__name__)


class MetricsRecorder:
    """Writes the metrics, hyperparameters and status of a run into its event file. Thread-safe."""

    def __init__(self, folder: Path, instance: str) -> None:
        self._folder = folder
        self._events = EventWriter(folder, source=instance)
        self._has_warned = False
        self._not_finite: set[str] = set()  # the metrics with a warning

    def record(self, metrics: Mapping[str, Any], step: int, *, is_flat: bool = False) -> None:
        """Records the metrics of a step; the file is written in the background."""
        try:
            numbers = self._events.write_numbers(metrics, step)
            if not all(map(math.isfinite, numbers)):
                self._warn_not_finite(dict(zip(metrics, numbers)), step)  # noqa: B905 - Python 3.8
            return
        except (AttributeError, TypeError):  # the first for what is no mapping
            if is_flat:
                raise
        except OSError as error:
            # A full disk does not end the training: pending events are written when there is space again.
            if self._events.is_full:
                raise
            self._warn(error)
            return
        # Outside the `except` block, or the TypeError would be shown as the context of the next error.
        if flat := flat_metrics(metrics):
            self.record(flat, step, is_flat=True)

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Writes hyperparameters; lists and mappings as JSON."""
        plain = (bool, int, float, str, type(None))
        self._events.hparams(
            {k: v if isinstance(v, plain) else json.dumps(v, default=str) for k, v in values.items()}
        )

    def flush(self) -> None:
        """Appends all metrics recorded so far to the file."""
        self._events.flush()

    def end(self, status: str) -> None:
        """Records the final status of the run, which counts until the next metrics."""
        self._events.end(status)

    def close(self) -> None:
        """Writes the remaining metrics; a disk that cannot take them is reported by a warning."""
        try:
            self._events.close()
        except OSError as error:
            self._warn(error)

    def _warn_not_finite(self, numbers: Mapping[str, float], step: int) -> None:
        for name, number in numbers.items():
            if not math.isfinite(number) and name not in self._not_finite:
                self._not_finite.add(name)
                message = "%r is %s at step %d; job.metrics() has finite values only, TensorBoard has all"
                logger.warning(message, name, number, step)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("the metrics cannot be written to %s now: %s", self._folder, error)


def numbers_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics as numbers, by their names in the event file."""
    return {name: as_float64(name, value) for name, value in flat_metrics(metrics).items()}


def flat_metrics(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the metrics with nested mappings as names with `/`, and arrays with one element as numbers."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics: expected a mapping of names to numbers, got {type(metrics).__name__}")
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of the metric {prefix}{name!r} is not a string")
        if isinstance(value, Mapping):
            inner = flat_metrics(value, f"{prefix}{name}/")
        else:
            item = getattr(value, "item", None)
            inner = {prefix + name: item() if callable(item) and getattr(value, "size", 0) == 1 else value}
        clashing = flat.keys() & inner.keys()
        if clashing:
            raise TypeError(f"two metrics have the name {', '.join(sorted(clashing))}")
        flat.update(inner)
    return flat
