"""Hyperparameters of several jobs side by side."""

from __future__ import annotations

from pai_sdk._wire.pai.hyperparameters import (
    compare_hyperparameters,
    hyperparameter_identity,
    mask_hyperparameters,
)


def test_values_are_compared_before_they_are_masked() -> None:
    compared = compare_hyperparameters([{"lr": 0.1, "api_key": "a1"}, {"lr": 0.1, "api_key": "b2"}])
    assert (compared.differing, compared.constant) == (("api_key",), {"lr": 0.1})
    assert compared.rows[0]["api_key"] == "******"


def test_nested_secrets_are_masked() -> None:
    values = {"lr": 0.1, "db": {"password": "hunter2", "port": 80}}
    assert mask_hyperparameters(values) == {"lr": 0.1, "db": {"password": "******", "port": 80}}


def test_equal_numbers_are_one_value_and_strings_are_others() -> None:
    assert hyperparameter_identity(1) == hyperparameter_identity(1.0)
    others = [hyperparameter_identity(value) for value in (1, True, "1")]
    assert len(set(others)) == 3
