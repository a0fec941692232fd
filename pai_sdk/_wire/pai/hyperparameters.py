"""Hyperparameters of several jobs or runs: which of them differ, and their values without secrets."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pai_sdk._wire.pai.secret_values import mask_value


@dataclass(frozen=True)
class ComparedHyperparameters:
    """Hyperparameters side by side, one mapping per job or run. Secrets are masked, by their names."""

    rows: tuple[Mapping[str, Any], ...]
    differing: tuple[str, ...]  # in the order of the first row
    constant: Mapping[str, Any]  # equal in all rows


def compare_hyperparameters(rows: Sequence[Mapping[str, Any]]) -> ComparedHyperparameters:
    """Compares the hyperparameters of jobs or runs."""
    # Differences are those of the values, not of the masks. A name that only some rows have differs, too. None is
    # a value.
    masked = tuple(mask_hyperparameters(row) for row in rows)
    differing: list[str] = []
    constant: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        identities = {hyperparameter_identity(row[name]) for row in rows if name in row}
        if len(identities) == 1 and all(name in row for row in rows):
            constant[name] = masked[0][name]
        else:
            differing.append(name)
    return ComparedHyperparameters(masked, tuple(differing), constant)


def mask_hyperparameters(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Masks hyperparameters with the names of secrets, nested ones too; returns `values` if there is none."""
    masked = {name: mask_value(str(name), value) for name, value in values.items()}
    return masked if any(masked[name] is not value for name, value in values.items()) else values


def hyperparameter_identity(value: Any) -> Hashable:
    """Returns a key that is equal for equal values: 1 and 1.0 are, 1 and True are not, nor are 1 and "1"."""
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, (int, float)):
        return ("number", "nan" if value != value else float(value) if abs(value) < 2**53 else value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return (type(value).__name__, text)
