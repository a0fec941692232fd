"""The models of a request: all fields of the wire, no other ones, and reported plainly when they are misspelt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from pydantic import BaseModel

from pai_sdk._wire.pai import compute, spec
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import InvalidInputError
from tests.support.wire_samples import requests

pytestmark = pytest.mark.interpreter

# CreateTrainingJob of paistudio 2022-01-12, as its public client 2.6.2 writes it. `+` stands before what only the
# build of that client within alipai knows, and before what only executors of this package take.
FIELDS = """
TrainingJobRequest: AlgorithmName AlgorithmProvider AlgorithmSpec AlgorithmVersion AssignNodeSpec CodeDir
  ComputeResource CredentialConfig Environments ExperimentConfig HyperParameters InputChannels Labels
  OutputChannels Priority PythonRequirements RoleArn Scheduler Settings TrainingJobDescription TrainingJobName
  UserVpc WorkspaceId +Mounts +Roles
AlgorithmSpec: CodeDir Command ComputeResource Customization HyperParameters Image InputChannels JobType
  MetricDefinitions OutputChannels ProgressDefinitions ResourceRequirements SupportedInstanceTypes
  SupportsDistributedTraining
CodeDir: LocationType LocationValue
OssLocation: Bucket Key Endpoint
SpecComputeResource: Policy
ComputePolicy: Value Version
Customization: CodeDir
HyperParameterDefinition: DefaultValue Description DisplayName Name Range Required Type
HyperParameterRange: Enum ExclusiveMaximum ExclusiveMinimum MaxLength Maximum MinLength Minimum Pattern
Channel: Description Name Properties Required SupportedChannelTypes
MetricDefinition: Description Name Regex
ProgressDefinitions: OverallProgress RemainingTime
ProgressDefinition: Description Regex
ConditionExpression: Key Operator Values
AssignNodeSpec: AntiAffinityNodeNames EnableAssignNode NodeNames
ComputeResource: EcsCount EcsSpec InstanceCount InstanceSpec ResourceId SpotSpec UseSpotInstance
InstanceSpec: CPU GPU GPUType Memory SharedMemory
SpotSpec: SpotDiscountLimit SpotStrategy
CredentialConfig: AliyunEnvRoleKey CredentialConfigItems EnableCredentialInject
CredentialConfigItem: Key Roles Type
CredentialRole: AssumeRoleFor AssumeUserInfo Policy RoleArn RoleType
AssumeUserInfo: AccessKeyId Id SecurityToken Type
ExperimentConfig: ExperimentId
HyperParameter: Name Value
InputChannel: DatasetId InputUri Name Options RoleArn VersionName
OutputChannel: DatasetId Name OutputUri RoleArn VersionName
Label: Key Value
SchedulerConfig: MaxRunningTimeInMinutes MaxRunningTimeInSeconds
Settings: AdvancedSettings BusinessUserId Caller Driver EnableErrorMonitoringInAIMaster EnableOssAppend EnableRDMA
  EnableSanityCheck EnableTideResource ErrorMonitoringArgs JobReservedMinutes JobReservedPolicy OversoldType
  PipelineId SanityCheckArgs Tags +AIMasterType +Priority
UserVpcConfig: DefaultRoute ExtendedCIDRs SecurityGroupId SwitchId VpcId
Role: +Command +Count +CountsForSuccess +EcsSpec +Image +InstanceSpec +IsChief +Name +RestartPolicy +StartAfter
StartAfter: +MinCount +Phase +Role
Mount: +Access +Options +Path +Uri
"""


def models_within(model: type[BaseModel]) -> set[type[BaseModel]]:
    found = {model}
    for field in model.model_fields.values():
        for kind in kinds_within(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= models_within(kind)
    return found


def kinds_within(annotation: Any) -> list[Any]:
    return [annotation, *(kind for inner in get_args(annotation) for kind in kinds_within(inner))]


def test_every_field_of_the_wire_is_there_and_no_other() -> None:
    listed = dict(line.split(":") for line in FIELDS.replace("\n  ", " ").strip().splitlines())
    wanted = {name: {field.lstrip("+") for field in fields.split()} for name, fields in listed.items()}
    ours = {
        model.__name__: {field.alias for field in model.model_fields.values()}
        for model in models_within(TrainingJobRequest)
    }
    assert ours == wanted


@settings(max_examples=50, deadline=None)
@given(request=requests())
def test_what_is_written_reads_back_as_the_same(request: TrainingJobRequest) -> None:
    assert TrainingJobRequest.model_validate(json.loads(request.to_json())) == request


WRONG: list[tuple[Callable[[], Any], list[str]]] = [
    (
        lambda: compute.Settings(enable_rdm=True, EnableSanityChek=True),
        [
            "Settings.enable_rdm: is unknown; did you mean 'enable_rdma'?",
            "Settings.EnableSanityChek: is unknown; did you mean 'EnableSanityCheck'?",
        ],
    ),
    (
        lambda: compute.UserVpcConfig(vpc_id="v", extended_cidr=["10/8"]),
        [
            "UserVpcConfig.SecurityGroupId: is required",
            "UserVpcConfig.extended_cidr: is unknown; did you mean 'extended_cidrs'?",
        ],
    ),
    (lambda: compute.ExperimentConfig(experiment_id="e", zzz=1), ["is unknown; available: experiment_id"]),
    (lambda: spec.UriInput(name="a"), ["needs either an InputUri or a DatasetId"]),
    (lambda: compute.SpotSpec(spot_strategy="Cheap"), ["'SpotWithPriceLimit' or 'SpotAsPriceGo'"]),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_all_that_is_wrong_with_a_model_is_reported(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert len(caught.value.problems) == len(words)
    for problem, expected in zip(sorted(map(str, caught.value.problems)), sorted(words), strict=True):
        assert expected in problem


def test_no_secret_is_in_a_repr() -> None:
    request = TrainingJobRequest.model_validate(
        {
            "TrainingJobName": "n",
            "ComputeResource": {"EcsSpec": "x"},
            "Environments": {"TOKEN": "hush"},
            "CredentialConfig": {
                "CredentialConfigItems": [
                    {"Roles": [{"AssumeUserInfo": {"Id": "me", "AccessKeyId": "hush", "SecurityToken": "hush"}}]}
                ]
            },
        }
    )
    assert "hush" not in repr(request)
    assert "'me'" in repr(request)
