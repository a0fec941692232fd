"""What a request asks for and this service does not do: named in the job's events and in the answer to it."""

from __future__ import annotations

from collections.abc import Iterator

from pai_sdk.schemas.request import TrainingJobRequest

__all__ = ["unused_notice"]

_NO_EFFECT = {
    "user_vpc": "UserVpc",
    "role_arn": "RoleArn",
    "assign_node_spec": "AssignNodeSpec",
    "credential_config": "CredentialConfig",
}


def unused_notice(request: TrainingJobRequest, *, executor: str = "process") -> str:
    """A sentence that names the fields without effect; empty where there are none.

    Args:
        request: the job.
        executor: what runs it, `process` or `docker`; a process has no `/dev/shm` of its own.
    """
    names = list(_unused(request, executor))
    return f"These have no effect on this service: {', '.join(names)}." if names else ""


def _unused(request: TrainingJobRequest, executor: str) -> Iterator[str]:
    for field, name in _NO_EFFECT.items():
        if getattr(request, field) is not None:
            yield name
    resource = request.compute_resource
    if resource.spot_spec is not None or resource.use_spot_instance:
        yield "ComputeResource.SpotSpec"
    if resource.resource_id is not None:
        yield "ComputeResource.ResourceId"
    if resource.instance_spec is not None:
        if resource.instance_spec.gpu_type is not None:
            yield "ComputeResource.InstanceSpec.GPUType"
        if resource.instance_spec.shared_memory is not None and executor == "process":
            yield "ComputeResource.InstanceSpec.SharedMemory"
    for where, channels in (
        ("InputChannels", request.input_channels),
        ("OutputChannels", request.output_channels),
    ):
        for channel in channels:
            given = {"RoleArn": channel.role_arn, "VersionName": channel.version_name}
            yield from (f"{where}.{channel.name}.{name}" for name, value in given.items() if value is not None)
    yield from (
        f"InputChannels.{channel.name}.Options"
        for channel in request.input_channels
        if channel.options is not None
    )
    if request.settings is not None:
        yield from (f"Settings.{name}" for name in request.settings.to_wire() if name != "Tags")
