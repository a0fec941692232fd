"""A search in a YAML file: the ranges, and the other parameters of a `Tuner`.

search:
  lr: {log_uniform: [1e-5, 1e-1]}
  optimizer: [adam, sgd]
objective: loss
pruner: asha

A file without the key `search` has the ranges only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pai_sdk._client.submit.yaml_file import YamlFile, read_yaml
from pai_sdk._client.tune.objectives import Objective
from pai_sdk._core.names.hints import name_hint
from pai_sdk._core.paths import expanded
from pai_sdk.errors import InvalidInputError, Problem

KEYS = (
    "search",
    "objective",
    "direction",
    "trials",
    "parallel",
    "sampler",
    "pruner",
    "seed",
    "study",
    "max_failures",
    "timeout",
    "warm_start",
)
_OBJECTIVE_KEYS = ("metric", "direction", "at")


@dataclass(frozen=True)
class SearchFile:
    """The arguments of a `Tuner`, from a file and the options of a command."""

    values: Mapping[str, Any]
    file: YamlFile | None = field(default=None, repr=False)

    @classmethod
    def load(cls, path: str | Path) -> SearchFile:
        """Reads a YAML file. The ranges are checked when the tuner is created."""
        file = read_yaml(expanded(path))
        if not isinstance(file.value, dict) or not file.value:
            hint = "such as `lr: {log_uniform: [1e-5, 1e-1]}`"
            raise InvalidInputError([Problem(f"{file.path}:1", "is not a mapping of names to ranges", hint)])
        values = {str(key): value for key, value in file.value.items()}
        if "search" not in values:
            values = {"search": values}
        problems = [*file.problems]
        problems += [
            Problem(file.where(name), "is unknown", name_hint(name, KEYS)) for name in values if name not in KEYS
        ]
        if problems:
            raise InvalidInputError(problems)
        return cls(values, file)

    def with_values(self, values: Mapping[str, Any]) -> SearchFile:
        """Returns a copy with changed values; those that are None change nothing."""
        return replace(self, values={**self.values, **{k: v for k, v in values.items() if v is not None}})

    def arguments(self) -> dict[str, Any]:
        """Returns the keyword arguments of a `Tuner`."""
        values = dict(self.values)
        objective = values.get("objective")
        if isinstance(objective, list):
            values["objective"] = [_objective(item) for item in objective]
        elif objective is not None:
            values["objective"] = _objective(objective)
        return values


def _objective(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    unknown = [
        Problem(f"objective.{name}", "is unknown", name_hint(str(name), _OBJECTIVE_KEYS))
        for name in value
        if name not in _OBJECTIVE_KEYS
    ]
    if "metric" not in value:
        unknown.append(Problem("objective.metric", "is required"))
    if unknown:
        raise InvalidInputError(unknown)
    return Objective(**value)
