"""The service's own reading of request bodies: tolerant of unset forms, strict about unknown fields."""

from __future__ import annotations

from typing import Any

import pytest

from pai_sdk._service.routes.parameters import read_pairs
from pai_sdk._service.services.jobs.reading import read_model
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.spec import AlgorithmSpec
from tests.service.services import Client

SPEC = {"Image": "i", "Command": ["true"]}
UNSET = [None, {}, [], ""]


@pytest.mark.parametrize("unset", UNSET, ids=repr)
def test_every_form_of_an_unset_object_is_read_as_unset(unset: Any) -> None:
    written = {**SPEC, "CodeDir": unset, "InputChannels": unset, "Customization": {"CodeDir": None}}
    read = read_model(AlgorithmSpec, written)
    assert read == AlgorithmSpec.model_validate(SPEC)


def test_all_unknown_missing_and_wrong_fields_are_named_with_their_place() -> None:
    with pytest.raises(WireError) as refused:
        read_model(
            AlgorithmSpec, {"Image": 1, "Comand": ["x"], "MetricDefinitions": [{"Name": "a"}]}, where="Spec"
        )
    for place in (
        "Spec.Image: ",
        "Spec.Comand: is unknown; did you mean 'Command'?",
        "Spec.MetricDefinitions.0.Regex",
    ):
        assert place in refused.value.message


def test_only_wire_names_are_read() -> None:
    with pytest.raises(WireError, match="image: is unknown; did you mean 'Image'"):
        read_model(AlgorithmSpec, {"image": "i", "Command": ["true"]})


def test_null_is_removed_from_free_mappings() -> None:
    value = {"EcsCount": 2, "SpotSpec": {}, "InstanceSpec": {"GPU": None}}
    assert read_model(ComputeResource, value).to_wire() == {"EcsCount": 2}


def test_a_filter_by_labels_has_pairs_with_commas() -> None:
    assert read_pairs("a=1,b=2") == {"a": "1", "b": "2"}
    assert read_pairs(None) == {}
    with pytest.raises(WireError, match="is not of the form key=value"):
        read_pairs("a=1,b")


@pytest.mark.parametrize("unset", UNSET, ids=repr)
def test_experiments_and_algorithms_are_read_in_the_same_way(service: Client, unset: Any) -> None:
    number = UNSET.index(unset)
    experiment = {"Name": f"reading_{number}", "Labels": unset, "ArtifactUri": None}
    assert service.call("POST", "/experiments", body=experiment).status_code == 200
    algorithm = {"AlgorithmName": f"reading_{number}", "DisplayName": unset}
    assert service.call("POST", "/algorithms", body=algorithm).status_code == 200
