"""Counts the results of a run of a function, with those before a restored state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["RunCounters"]

_COUNTERS = ("iteration", "time_total", "timesteps_total", "episodes_total")


class RunCounters:
    """The numbers of results, seconds, time steps and episodes; those of a saved state to begin with."""

    def __init__(self, saved: object = None) -> None:
        saved = saved if isinstance(saved, dict) else {}
        valid = {name: value for name in _COUNTERS if isinstance(value := saved.get(name), int | float)}
        self._counts: dict[str, Any] = {**dict.fromkeys(_COUNTERS, 0), **valid}
        self._at_restore = dict(self._counts)

    @property
    def iterations(self) -> int:
        """Returns the number of results."""
        return int(self._counts["iteration"])

    def count(self, result: Mapping[str, Any]) -> None:
        """Counts one result."""
        self._counts["iteration"] += 1
        self._counts["time_total"] += result["time_this_iter_s"]
        for kind in ("timesteps", "episodes"):
            self._counts[f"{kind}_total"] += result.get(f"{kind}_this_iter", 0)

    def values(self) -> dict[str, Any]:
        """Returns a copy, to be saved."""
        return dict(self._counts)

    def results(self) -> dict[str, Any]:
        """Returns the counters as entries of a result, in total and since the restored state."""
        counts, before = self._counts, self._at_restore
        return {
            "training_iteration": counts["iteration"],
            "time_total_s": counts["time_total"],
            "timesteps_total": counts["timesteps_total"],
            "episodes_total": counts["episodes_total"],
            "iterations_since_restore": counts["iteration"] - before["iteration"],
            "time_since_restore": counts["time_total"] - before["time_total"],
            "timesteps_since_restore": counts["timesteps_total"] - before["timesteps_total"],
            "episodes_since_restore": counts["episodes_total"] - before["episodes_total"],
        }
