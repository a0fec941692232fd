"""What algorithms and recipes define about their jobs."""

from __future__ import annotations

from pai_sdk._wire.pai.definitions import ParameterDefinition, with_defaults
from pai_sdk._wire.pai.recipes import recipes_by_method


def test_hyperparameters_have_the_defaults_of_their_definitions() -> None:
    rate = ParameterDefinition(name="lr", default_value="0.1")
    assert [str(value.value) for value in with_defaults([rate], [])] == ["0.1"]


def test_a_single_recipe_has_no_name() -> None:
    assert recipes_by_method({"AlgorithmName": "digits"}) == {None: {"AlgorithmName": "digits"}}
