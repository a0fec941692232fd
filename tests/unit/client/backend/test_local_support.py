"""Every field of a request is supported by a local run, or refused, or named in its one notice."""

from __future__ import annotations

import logging
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.backend.local import LocalBackend
from pai_sdk._client.backend.local.support import check_supported, unused_locally
from pai_sdk._client.submission import submit
from pai_sdk._host.execution.docker.executor import DockerExecutor
from pai_sdk._wire.pai.compute import Settings
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import OssLocation
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

SUPPORTED = {
    "Roles.Name",
    "Roles.Count",
    "Roles.Image",
    "Roles.Command",
    "Roles.EcsSpec",
    "Roles.InstanceSpec.CPU",
    "Roles.InstanceSpec.GPU",
    "Roles.InstanceSpec.Memory",
    "Roles.InstanceSpec.SharedMemory",
    "Roles.RestartPolicy",
    "Roles.CountsForSuccess",
    "Roles.StartAfter.Role",
    "Roles.StartAfter.Phase",
    "Roles.StartAfter.MinCount",
    "Mounts.Path",
    "Mounts.Uri",
    "Mounts.Access",
    "TrainingJobName",
    "AlgorithmSpec.Command",
    "AlgorithmSpec.Image",
    "AlgorithmSpec.JobType",
    "AlgorithmSpec.CodeDir.LocationValue",
    "AlgorithmSpec.MetricDefinitions.Name",
    "AlgorithmSpec.MetricDefinitions.Regex",
    "AlgorithmSpec.OutputChannels.Name",
    "CodeDir.LocationValue",
    "ComputeResource.EcsCount",
    "ComputeResource.InstanceCount",
    "ComputeResource.InstanceSpec.CPU",
    "ComputeResource.InstanceSpec.GPU",
    "ComputeResource.InstanceSpec.Memory",
    "ComputeResource.InstanceSpec.SharedMemory",
    "HyperParameters.Name",
    "HyperParameters.Value",
    "InputChannels.Name",
    "InputChannels.InputUri",
    "OutputChannels.Name",
    "OutputChannels.OutputUri",
    "Environments",
    "PythonRequirements",
    "Labels.Key",
    "Labels.Value",
    "Scheduler.MaxRunningTimeInSeconds",
    "Scheduler.MaxRunningTimeInMinutes",
    "Settings.Tags",
}

# They describe the job or its algorithm to people and planners; the job's record keeps them.
KEPT = {
    "WorkspaceId",
    "TrainingJobDescription",
    "AlgorithmSpec.InputChannels",
    "AlgorithmSpec.OutputChannels.Description",
    "AlgorithmSpec.OutputChannels.Required",
    "AlgorithmSpec.OutputChannels.SupportedChannelTypes",
    "AlgorithmSpec.OutputChannels.Properties",
    "AlgorithmSpec.HyperParameters",
    "AlgorithmSpec.MetricDefinitions.Description",
    "AlgorithmSpec.ResourceRequirements",
    "AlgorithmSpec.SupportedInstanceTypes",
    "AlgorithmSpec.SupportsDistributedTraining",
    "AlgorithmSpec.ComputeResource",
    "AlgorithmSpec.Customization",
}

CHANNEL = {"Name": "c", "InputUri": "oss://b/k/"}
OUTPUT = {"Name": "o", "OutputUri": "oss://b/k/"}
# Field: the part of a request that sets it, and its name in the notice.
NOTICED: dict[str, tuple[dict[str, Any], str]] = {
    "AlgorithmName": ({"AlgorithmName": "a"}, "AlgorithmName"),
    "AlgorithmVersion": ({"AlgorithmVersion": "1"}, "AlgorithmVersion"),
    "AlgorithmProvider": ({"AlgorithmProvider": "pai"}, "AlgorithmProvider"),
    "AlgorithmSpec.ProgressDefinitions": (
        {
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["c"],
                "ProgressDefinitions": {"OverallProgress": {"Regex": "x"}},
            }
        },
        "AlgorithmSpec.ProgressDefinitions",
    ),
    "Priority": ({"Priority": 3}, "Priority"),
    "Roles.IsChief": ({"Roles": [{"Name": "Worker", "IsChief": True}]}, "Roles.Worker.IsChief"),
    "Roles.InstanceSpec.GPUType": (
        {"Roles": [{"Name": "Worker", "InstanceSpec": {"GPUType": "V100"}}]},
        "Roles.Worker.InstanceSpec.GPUType",
    ),
    "Mounts.Options": (
        {"Mounts": [{"Path": "/data", "Uri": "oss://b/d/", "Options": "{}"}]},
        "Mounts./data.Options",
    ),
    "ExperimentConfig": ({"ExperimentConfig": {"ExperimentId": "e"}}, "ExperimentConfig"),
    "UserVpc": ({"UserVpc": {"VpcId": "v", "SecurityGroupId": "s"}}, "UserVpc"),
    "RoleArn": ({"RoleArn": "r"}, "RoleArn"),
    "AssignNodeSpec": ({"AssignNodeSpec": {"NodeNames": "n"}}, "AssignNodeSpec"),
    "CredentialConfig": ({"CredentialConfig": {"EnableCredentialInject": True}}, "CredentialConfig"),
    "ComputeResource.EcsSpec": ({"ComputeResource": {"EcsSpec": "ecs.c6.large"}}, "EcsSpec"),
    "ComputeResource.SpotSpec": (
        {"ComputeResource": {"SpotSpec": {"SpotStrategy": "SpotAsPriceGo"}}},
        "SpotSpec",
    ),
    "ComputeResource.UseSpotInstance": ({"ComputeResource": {"UseSpotInstance": True}}, "SpotSpec"),
    "ComputeResource.InstanceSpec.GPUType": (
        {"ComputeResource": {"InstanceSpec": {"GPUType": "V100"}}},
        "InstanceSpec.GPUType",
    ),
    "InputChannels.Options": ({"InputChannels": [{**CHANNEL, "Options": "{}"}]}, "c.Options"),
    "InputChannels.RoleArn": ({"InputChannels": [{**CHANNEL, "RoleArn": "r"}]}, "c.RoleArn"),
    "InputChannels.VersionName": ({"InputChannels": [{**CHANNEL, "VersionName": "v1"}]}, "c.VersionName"),
    "OutputChannels.RoleArn": ({"OutputChannels": [{**OUTPUT, "RoleArn": "r"}]}, "o.RoleArn"),
    "OutputChannels.VersionName": ({"OutputChannels": [{**OUTPUT, "VersionName": "v1"}]}, "o.VersionName"),
}

# Field: the part of a request that sets it to what cannot be done here, and the place of the problem.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "ComputeResource.ResourceId": ({"ComputeResource": {"ResourceId": "q"}}, "resource_id"),
    "InputChannels.DatasetId": ({"InputChannels": [{"Name": "c", "DatasetId": "d-1"}]}, "inputs['c']"),
    "OutputChannels.DatasetId": ({"OutputChannels": [{"Name": "o", "DatasetId": "d-1"}]}, "outputs['o']"),
    "CodeDir.LocationType": ({"CodeDir": {"LocationType": "git", "LocationValue": {"Url": "u"}}}, "source_dir"),
    "AlgorithmSpec.CodeDir.LocationType": (
        {
            "AlgorithmSpec": {
                "Image": "i",
                "Command": ["c"],
                "CodeDir": {"LocationType": "nas", "LocationValue": {"Path": "p"}},
            }
        },
        "source_dir",
    ),
}

# Parts of a request that cannot be run here, and the parameter that is named.
REFUSED_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "restarts of one instance": ({"Roles": [{"Name": "Worker", "RestartPolicy": "Always"}]}, "restart_policy"),
    "no role that counts": ({"Roles": [{"Name": "Evaluator"}]}, "roles"),
    "GPUs among roles": (
        {"Roles": [{"Name": "Worker"}], "Settings": {"Tags": {"pai-sdk.local.gpu_ids": "0,1"}}},
        "gpu_ids",
    ),
    "a mount over the system": ({"Mounts": [{"Path": "/usr", "Uri": "oss://b/d/"}]}, "mounts['/usr']"),
    "a mount of NAS": ({"Mounts": [{"Path": "/data", "Uri": "nas://fs/d/"}]}, "mounts['/data']"),
    "a mount of nothing": ({"Mounts": [{"Path": "/data", "Uri": "file:///none/there"}]}, "mounts['/data']"),
}


def a_request(part: dict[str, Any]) -> TrainingJobRequest:
    return TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "n",
            "AlgorithmSpec": {"Image": "i", "Command": ["c"]},
            "ComputeResource": {"EcsSpec": "local"},
            **part,
        }
    )


def fields(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """The path of every field, those of nested models included, as the wire names them."""
    for name, field in model.model_fields.items():
        path = above + (field.alias or _wire_name(model, name))
        nested = next(_models_in(field.annotation), None)
        if nested is None or path in KEPT or path in NOTICED or path in REFUSED:
            yield path
        else:
            yield from fields(nested, f"{path}.")


def _wire_name(model: type[BaseModel], name: str) -> str:
    generator = model.model_config["alias_generator"]
    return generator(name) if callable(generator) else generator.generate_aliases(name)[0]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation is not OssLocation:
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models_in(part)


def settings_but_tags() -> list[str]:
    return [path for path in fields(Settings, "Settings.") if path != "Settings.Tags"]


def test_every_field_has_its_place() -> None:
    placed = [*SUPPORTED, *KEPT, *NOTICED, *REFUSED, *settings_but_tags()]
    assert sorted(placed) == sorted(set(placed))
    assert sorted(fields(TrainingJobRequest)) == sorted(placed)


@pytest.mark.parametrize("path", NOTICED)
def test_what_means_nothing_here_is_named(path: str) -> None:
    part, name = NOTICED[path]
    request = a_request(part)
    check_supported(request)
    assert unused_locally(request) == [name]


@pytest.mark.parametrize("path", settings_but_tags())
def test_so_are_the_finer_settings(path: str) -> None:
    kinds = {"bool": True, "int": 1, "dict": {"a": 1}}
    name = path.removeprefix("Settings.")
    field = next(f for n, f in Settings.model_fields.items() if (f.alias or _wire_name(Settings, n)) == name)
    value = next((value for kind, value in kinds.items() if kind in str(field.annotation)), "text")
    assert unused_locally(a_request({"Settings": {name: value}})) == [path]


@pytest.mark.parametrize("case", REFUSED_VALUES)
def test_roles_and_mounts_that_no_container_can_have_are_refused(case: str) -> None:
    part, where = REFUSED_VALUES[case]
    with pytest.raises(InvalidInputError) as caught:
        check_supported(a_request(part))
    assert [where in problem.where for problem in caught.value.problems] == [True]


@pytest.mark.parametrize("path", REFUSED)
def test_what_cannot_be_done_here_is_refused(path: str) -> None:
    part, where = REFUSED[path]
    with refused(InvalidInputError, where):
        check_supported(a_request(part))


def test_a_registered_algorithm_without_its_spec_is_refused() -> None:
    request = TrainingJobRequest.model_validate(
        {"TrainingJobName": "n", "AlgorithmName": "a", "ComputeResource": {"EcsSpec": "local"}}
    )
    with refused(InvalidInputError, "algorithm"):
        check_supported(request)


def test_tags_that_say_nothing_of_retries_are_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_supported(a_request({"Settings": {"Tags": {"pai-sdk.max_retries": "often"}}}))
    assert [problem.where for problem in caught.value.problems] == ["settings.tags['pai-sdk.max_retries']"]


def test_the_notice_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parts = {"Priority": 3, "RoleArn": "r", "Settings": {"Driver": "535", "Tags": {"team": "vision"}}}

    class Nothing(DockerExecutor):
        engine = None  # type: ignore[assignment]

        def start(self, *args: object, **named: object) -> None:
            pass

    backend = LocalBackend(tmp_path, executor=Nothing())
    with caplog.at_level(logging.INFO):
        submit(Plan(a_request(parts)), backend, progress=False)
    notices = [
        each.getMessage() for each in caplog.records if each.name.startswith("pai_sdk._client.backend.local")
    ]
    assert notices == ["ignored by local jobs: RoleArn, Priority, Settings.Driver"]
