"""The request of a job that exists, read tolerantly: from a record, a plan, or the table of a service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import Field

from pai_sdk._wire.base import Received, response_body
from pai_sdk._wire.pai.record import ChannelUri, JobState, KeyValue, NameValue
from pai_sdk._wire.pai.wire import NullableList

# Text is kept as it is: what a service has written must be displayed, even where no request could have it.
_Number: TypeAlias = int | str | None
_Flag: TypeAlias = bool | str | None


class RecordedLocation(Received):
    """The location of code: in OSS, or a folder of this machine."""

    bucket: str | None = None
    key: str | None = None
    endpoint: str | None = None
    path: str | None = None


class RecordedCode(Received):
    """The code folder of a job."""

    location_type: str | None = None
    location_value: RecordedLocation | None = None

    def __str__(self) -> str:
        location = self.location_value or RecordedLocation()
        if location.bucket:
            # The endpoint is left out: that of the embedded service changes, and the code does not.
            return f"oss://{location.bucket}/{location.key or ''}"
        return location.path or json.dumps(location.to_dict(), ensure_ascii=False)


class RecordedMetric(Received):
    """A metric that is read from the log."""

    name: str | None = None
    regex: str | None = None


class RecordedSpec(Received):
    """The program of a job."""

    image: str | None = None
    command: NullableList[str] = Field(default_factory=list)
    job_type: str | None = None
    code_dir: RecordedCode | None = None
    metric_definitions: NullableList[RecordedMetric] = Field(default_factory=list)


class RecordedCompute(Received):
    """The hardware of a job: public instances, or instances of a quota."""

    ecs_spec: str | None = None
    ecs_count: _Number = None
    resource_id: str | None = None
    instance_count: _Number = None
    instance_spec: Any = None
    spot_spec: Any = None
    use_spot_instance: _Flag = None

    @property
    def num_instances(self) -> int:
        """The number of instances; 1 where none is stated."""
        count = self.ecs_count or self.instance_count
        return count if isinstance(count, int) else 1


class RecordedScheduler(Received):
    """The time limit of a job."""

    max_running_time_in_seconds: int | None = None
    max_running_time_in_minutes: int | None = None


class RecordedExperiment(Received):
    """The experiment of a job."""

    experiment_id: str | None = None
    experiment_name: str | None = None


class RecordedRequest(Received):
    """The fields of a request that other parts of this package read; the remaining ones are kept unchanged."""

    training_job_name: str | None = None
    training_job_description: str | None = None
    workspace_id: str | None = None
    algorithm_spec: RecordedSpec | None = None
    algorithm_name: str | None = None
    algorithm_version: str | None = None
    algorithm_provider: str | None = None
    code_dir: RecordedCode | None = None
    compute_resource: RecordedCompute | None = None
    hyperparameters: NullableList[NameValue] = Field(default_factory=list, alias="HyperParameters")
    input_channels: NullableList[ChannelUri] = Field(default_factory=list)
    output_channels: NullableList[ChannelUri] = Field(default_factory=list)
    environments: dict[str, Any] | None = Field(default=None, repr=False)  # values may be secrets
    # An index URL may hold a password.
    python_requirements: NullableList[str] = Field(default_factory=list, repr=False)
    labels: NullableList[KeyValue] = Field(default_factory=list)
    scheduler: RecordedScheduler | None = None
    priority: _Number = None
    experiment_config: RecordedExperiment | None = None
    role_arn: str | None = None

    @property
    def hyperparameter_values(self) -> dict[str, str | None]:
        """Hyperparameter to value, as text. The values of secrets are not masked."""
        return {each.name: each.value for each in self.hyperparameters if each.name}

    def to_wire(self) -> dict[str, Any]:
        """Returns the JSON object: names of the wire, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)

    def with_label(self, key: str, value: str) -> RecordedRequest:
        """Returns a copy with one label more, or replaced."""
        labels = [label for label in self.labels if label.key != key]
        return self.model_copy(update={"labels": [*labels, KeyValue(key=key, value=value)]})

    def without_labels(self, *keys: str) -> RecordedRequest:
        """Returns a copy without the labels with these keys."""
        return self.model_copy(update={"labels": [label for label in self.labels if label.key not in keys]})


def experiment_of(request: Mapping[str, Any]) -> str | None:
    """Returns the id of the experiment that a stored request names."""
    return (request.get("ExperimentConfig") or {}).get("ExperimentId")


def output_uris(request: Mapping[str, Any]) -> dict[str, str]:
    """Returns output channel to URI, of a stored request; channels that go to datasets are left out."""
    channels = request.get("OutputChannels") or []
    return {channel["Name"]: channel["OutputUri"] for channel in channels if channel.get("OutputUri")}


def instance_type_of(request: Mapping[str, Any]) -> str:
    """Returns the instance type of a stored request, or the size of its instances in a quota; by role."""
    compute = request.get("ComputeResource") or {}
    types = [_type_of({**compute, **role}) for role in request.get("Roles") or [{}]]
    return ", ".join(dict.fromkeys(filter(None, types)))


def _type_of(resource: Mapping[str, Any]) -> str:
    if name := resource.get("EcsSpec"):
        return str(name)
    size = resource.get("InstanceSpec") or {}
    amounts = (("CPU", "CPU"), ("Memory", ""), ("GPU", size.get("GPUType") or "GPU"))
    return " ".join(f"{size[key]} {unit}".strip() for key, unit in amounts if size.get(key))


def job_body(request: Mapping[str, Any], state: JobState, experiments: Mapping[str, str]) -> dict[str, Any]:
    """Returns a job as GetTrainingJob and ListTrainingJobs do: its request as it was sent, and its state."""
    # Lists that were not set are empty, as in responses of PAI; fields of the state that were not set are absent.
    fields: dict[str, Any] = {"HyperParameters": [], "InputChannels": [], "OutputChannels": [], **request}
    if name := experiments.get(experiment_of(request) or ""):
        fields["ExperimentConfig"] = {**fields["ExperimentConfig"], "ExperimentName": name}
    return {**fields, **response_body(state)}


def values_by_path(value: Any, path: str = "") -> dict[str, Any]:
    """Returns the values of a JSON object by their paths; those of lists of named objects by the names."""
    if isinstance(value, Mapping) and value:
        items = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        names = [str(item.get("Name") or item.get("Key") or index) for index, item in enumerate(value)]
        items = [(f"{path}.{name}", _plain_value(item)) for name, item in zip(names, value, strict=True)]
    else:
        return {path: value}
    return {where: leaf for inner, item in items for where, leaf in values_by_path(item, inner).items()}


def _plain_value(item: Mapping[str, Any]) -> Any:
    return item["Value"] if "Value" in item and item.keys() <= {"Name", "Key", "Value"} else item
