"""Requests as other parts of the package read them."""

from __future__ import annotations

from pai_sdk._wire.masking import public_fields
from pai_sdk._wire.requests import RecordedRequest, values_by_path


def test_fields_that_are_not_read_stay_in_a_request() -> None:
    fields = {"ComputeResource": {"EcsSpec": "ecs.c6.large"}, "Extra": 1}
    request = RecordedRequest.model_validate(fields)
    assert (request.compute_resource.num_instances, request.to_wire()) == (1, fields)


def test_named_objects_of_lists_have_paths() -> None:
    request = {"Priority": 1, "Labels": [{"Key": "team", "Value": "search"}]}
    assert values_by_path(request) == {"Priority": 1, "Labels.team": "search"}


def test_all_environment_variables_are_masked() -> None:
    assert public_fields({"Environments": {"TOKEN": "a-secret"}}) == {"Environments": {"TOKEN": "******"}}
