"""Values of a wrong kind: reported by their parameters' names, before anything is sent, and never as a crash."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor
from pai_sdk._wire.pai.spec import Channel
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused
from tests.unit.client.submit.test_submitting import FakeSession

ODD: list[Any] = [
    None,
    0,
    -1,
    1.5,
    True,
    10**400,
    float("nan"),
    b"bytes",
    "",
    " ",
    "x" * 300,
    "half \ud800",
    "zero \0",
    Path("/no/such/thing"),
    [],
    ["a", 1],
    {},
    {"a": 1},
    {1: 2},
    object(),
]
PARAMETERS = [
    (kind, parameter.name)
    for kind in (Processor, Estimator)
    for parameter in fields(kind)
    if parameter.init and (kind is Estimator or parameter.name == "parameters")
]


def made(kind: Any = Processor, **changes: Any) -> Any:
    return kind(
        **{"image_uri": "img", "command": "true", "instance_type": "ecs.x", "session": FakeSession(), **changes}
    )


def problems(submitter: Any, *args: Any) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        submitter.plan(*args)
    return {problem.where: f"{problem.what} {problem.hint}" for problem in caught.value.problems}


def reported_of(submitter: Any) -> list[str]:
    """What is reported of a description; nothing when it can be sent."""
    try:
        submitter.plan().request.to_json().encode()
    except InvalidInputError as error:
        return [problem.where for problem in error.problems]
    return []


@pytest.mark.parametrize(("kind", "name"), PARAMETERS)
def test_odd_values_are_taken_or_reported(kind: Any, name: str) -> None:
    values = [value for value in ODD if not (value is None and name == "session")]
    reported = [reported_of(made(kind, **{name: value})) for value in values]
    unclear = [
        (value, wheres)
        for value, wheres in zip(values, reported, strict=True)
        if wheres and not any(where.startswith((name, "request")) for where in wheres)
    ]
    assert not unclear
    assert sum(bool(wheres) for wheres in reported) >= 8


@pytest.mark.parametrize("value", [value for value in ODD if value not in (None, {})])
def test_inputs_and_outputs_are_dicts(value: Any) -> None:
    assert any(where.startswith("inputs") for where in problems(made(), value))
    assert any(where.startswith("outputs") for where in problems(made(), None, value))
    assert "inputs['data']" in problems(made(), {"data": value})
    assert "outputs['data']" in problems(made(), {}, {"data": value})


def test_an_empty_path_is_not_the_current_folder() -> None:
    assert "got an empty string" in problems(made(source_dir=""))["source_dir"]
    assert "is empty" in problems(made(), {"data": ""})["inputs['data']"]


def test_a_refused_value_is_not_repeated() -> None:
    assert "hush" not in str(problems(made(Estimator, git_config="https://user:hush@example.com/x.git")))


@pytest.mark.parametrize(
    ("uri", "reported"),
    [
        ("s3://bucket/x", "is not a URI of"),
        ("file:///etc/passwd", "is not a URI of"),
        ("oss://B/x", "not a bucket name"),
        ("odps://project/x", "not a table"),
        ("nas://", "names no file system"),
    ],
)
def test_uris_that_cannot_be_used(uri: str, reported: str) -> None:
    assert reported in problems(made(), {"data": uri})["inputs['data']"]
    assert reported in problems(made(), {}, {"data": uri})["outputs['data']"]
    assert any(reported in text for text in problems(made(output_path=uri)).values())


@pytest.mark.parametrize("name", ["PAI_HPS", "PAI_HPS_LR", "PAI_USER_ARGS", "PAI_OUTPUT_MODEL", "PAI_WORKING_DIR"])
def test_variables_of_the_contract_are_not_for_users(name: str) -> None:
    assert "job contract" in problems(made(environments={name: "mine"}))[f"environments[{name!r}]"]
    assert made(environments={"PAI_OTHER": "x"}).plan().request.environments == {"PAI_OTHER": "x"}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("oss://bkt/dir", "oss://bkt/dir/"),
        ("oss://bkt/dir/", "oss://bkt/dir/"),
        ("oss://bkt/a.zip", "oss://bkt/a.zip"),
    ],
)
def test_code_in_oss_is_a_folder(given: str, sent: str) -> None:
    # The backend in memory keeps the URI as the key.
    assert made(source_dir=given).plan().request.algorithm_spec.code_dir.location_value.key == sent


def test_channels_are_defined_once_each() -> None:
    with refused(InvalidInputError, "output_channels['a']"):
        made().set_output_channels([Channel(name="a"), Channel(name="a")])
    for wrong in (None, 3, "data", ["data"], [{"nme": "data"}]):
        with refused(InvalidInputError):
            made().set_input_channels(wrong)


def test_sizes_may_be_numbers() -> None:
    quota = made(instance_type=None, instance_spec={"cpu": 8, "memory": "32Gi"}, resource_id="quota")
    assert quota.plan().request.to_wire()["ComputeResource"]["InstanceSpec"] == {"CPU": "8", "Memory": "32Gi"}


def test_misspelt_fields_are_reported_in_plain_words() -> None:
    assert problems(made(spot_spec={"strategy": "x"})) == {
        "spot_spec.SpotStrategy": "is required ",
        "spot_spec.strategy": "is unknown; did you mean 'spot_strategy'? ",
    }
