"""Names of channels and hyperparameters are folders and variables of a job."""

from __future__ import annotations

from pai_sdk._wire.pai.names import is_contract_variable, name_problems, variable_name


def test_a_variable_has_capitals_and_underscores() -> None:
    assert variable_name("train-data.v2") == "TRAIN_DATA_V2"


def test_two_names_of_one_variable_are_a_problem() -> None:
    problems = name_problems(["data", "a b", "x.y", "x-y"], "inputs")
    assert [problem.where for problem in problems] == ["inputs['a b']", "inputs['x-y']"]


def test_a_request_must_not_set_variables_of_the_contract() -> None:
    assert is_contract_variable("PAI_HPS_LR")
    assert not is_contract_variable("PAI_REGION_ID")
