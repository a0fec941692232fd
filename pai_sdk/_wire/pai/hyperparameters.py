"""Hyperparameters of several jobs or runs: which of them differ, and their values without secrets."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pai_sdk._wire.pai.secret_values import mask_value

__all__ = ["ComparedHyperparameters", "compare_hyperparameters", "hyperparameter_identity", "mask_hyperparameters"]


@dataclass(frozen=True)
class ComparedHyperparameters:
    """Hyperparameters side by side. Secrets are masked, by their names.

    Attributes:
        rows: the hyperparameters of each job or run, in the order in which they were given.
        differing: the names of those that are not the same in all rows, in the order of their first row.
        constant: those that are the same in all rows.
    """

    rows: tuple[Mapping[str, Any], ...]
    differing: tuple[str, ...]
    constant: Mapping[str, Any]


def compare_hyperparameters(rows: Sequence[Mapping[str, Any]]) -> ComparedHyperparameters:
    """Compares the hyperparameters of jobs or runs.

    The values themselves are compared, and then masked. A name that only some rows have differs, too. None is a
    value.

    Args:
        rows: name to value, for each job or run.

    Example:
        >>> found = compare_hyperparameters([{"lr": 0.1, "api_key": "a1"}, {"lr": 0.1, "api_key": "b2"}])
        >>> found.differing, found.constant, found.rows[0]["api_key"]
        (('api_key',), {'lr': 0.1}, '******')
    """
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
    """Masks the hyperparameters whose names are those of secrets, nested ones too.

    Returns:
        `values` itself when none is masked.

    Example:
        >>> mask_hyperparameters({"lr": 0.1, "db": {"password": "hunter2", "port": 80}})
        {'lr': 0.1, 'db': {'password': '******', 'port': 80}}
    """
    masked = {name: mask_value(str(name), value) for name, value in values.items()}
    return masked if any(masked[name] is not value for name, value in values.items()) else values


def hyperparameter_identity(value: Any) -> Hashable:
    """Returns a key that is equal for equal values: 1 and 1.0 are, 1 and True are not, nor are 1 and "1".

    Example:
        >>> hyperparameter_identity(1) == hyperparameter_identity(1.0) != hyperparameter_identity("1")
        True
    """
    if isinstance(value, bool) or value is None:
        return (type(value).__name__, value)
    if isinstance(value, (int, float)):
        return ("number", "nan" if value != value else float(value) if abs(value) < 2**53 else value)
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return (type(value).__name__, text)
