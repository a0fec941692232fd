"""The progress and the time limit of a job, as its record has them."""

from __future__ import annotations

from collections.abc import Mapping

from pai_sdk._wire.pai.record import JobRecord


def overall_progress(record: JobRecord) -> float | None:
    """Returns the completed fraction that the service has read in the log."""
    return _latest(record, "OverallProgress")


def remaining_s(record: JobRecord) -> float | None:
    """Returns the remaining seconds that the service has read in the log."""
    return _latest(record, "RemainingTime")


def max_running_s(record: JobRecord) -> float | None:
    """Returns the time limit of the job in seconds; None if it has none."""
    return _number((record.scheduler or {}).get("MaxRunningTimeInSeconds")) or None


def _latest(record: JobRecord, name: str) -> float | None:
    value = (record.latest_progress or {}).get(name)
    return _number(value.get("Value") if isinstance(value, Mapping) else value)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
