"""Fields of a request that have no effect on an executor."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pai_sdk._wire.base import wire_name, wire_names
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.request import TrainingJobRequest

_TOP_LEVEL = (
    "experiment_config",
    "user_vpc",
    "role_arn",
    "priority",
    "algorithm_name",
    "algorithm_version",
    "algorithm_provider",
    "assign_node_spec",
    "credential_config",
)


def unused_fields(request: TrainingJobRequest, *, used: Collection[str]) -> list[str]:
    """Returns the wire names of set fields that have no effect; `used` are those that this executor honours."""
    return [name for name in _set_fields(request) if name not in used]


def _set_fields(request: TrainingJobRequest) -> Iterator[str]:
    yield from (wire_name(field) for field in _TOP_LEVEL if getattr(request, field) is not None)
    if request.compute_resource:
        yield from _resource_fields(request.compute_resource)
    for where, channels in (
        ("InputChannels", request.input_channels),
        ("OutputChannels", request.output_channels),
    ):
        for channel in channels:
            fields = wire_names(role_arn=channel.role_arn, version_name=channel.version_name)
            yield from (f"{where}.{channel.name}.{name}" for name, value in fields.items() if value is not None)
    for channel in request.input_channels:
        if channel.options is not None:
            yield f"InputChannels.{channel.name}.Options"
    for role in request.roles or ():
        if role.is_chief is not None:
            yield f"Roles.{role.name}.IsChief"
        if role.instance_spec and role.instance_spec.gpu_type is not None:
            yield f"Roles.{role.name}.InstanceSpec.GPUType"
    yield from (f"Mounts.{mount.path}.Options" for mount in request.mounts or () if mount.options is not None)
    if request.settings is not None:
        yield from (f"Settings.{name}" for name in request.settings.to_wire() if name != "Tags")


def _resource_fields(resource: ComputeResource) -> Iterator[str]:
    if resource.spot_spec is not None or resource.use_spot_instance:
        yield "ComputeResource.SpotSpec"
    if resource.resource_id is not None:
        yield "ComputeResource.ResourceId"
    if resource.instance_spec and resource.instance_spec.gpu_type is not None:
        yield "ComputeResource.InstanceSpec.GPUType"
    if resource.instance_spec and resource.instance_spec.shared_memory is not None:
        yield "ComputeResource.InstanceSpec.SharedMemory"
