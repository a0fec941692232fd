"""Checks a new request: its buckets, and fields without effect on this service."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic.alias_generators import to_snake

from pai_sdk._core.reasons import image_unused_message
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._host.execution.base import ExecutorCapabilities
from pai_sdk._host.execution.roles import has_unlike_instances, mount_path_problems, role_problems
from pai_sdk._host.execution.unused_fields import unused_fields
from pai_sdk._service.identity.principal import Right
from pai_sdk._service.wire_errors import invalid_parameter
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import OssLocation
from pai_sdk.errors import InvalidInputError

_USED = {"ExperimentConfig", "Priority", "AlgorithmName", "AlgorithmVersion", "AlgorithmProvider"}
_SHARED_MEMORY = "ComputeResource.InstanceSpec.SharedMemory"


def refuse_unknown_buckets(request: TrainingJobRequest, may_use: Callable[[str, Right], bool]) -> None:
    """Checks that the user may use the buckets of a job's code, inputs and outputs."""
    # The service itself copies the files, and could access any bucket.
    uses = list(_bucket_uses(request))
    missing = {used for used in {(bucket, right) for _, bucket, right in uses} if not may_use(*used)}
    problems = [
        f"{where}: there is no bucket {bucket!r} here"
        if right == "read" or (bucket, "read") in missing or not may_use(bucket, "read")
        else f"{where}: the access key may not write to the bucket {bucket!r}"
        for where, bucket, right in uses
        if (bucket, right) in missing
    ]
    if problems:
        raise invalid_parameter("; ".join(problems))


def _bucket_uses(request: TrainingJobRequest) -> Iterator[tuple[str, str, Right]]:
    code = request.effective_code_dir
    if code is not None and isinstance(code.location_value, OssLocation):
        yield "CodeDir", code.location_value.bucket, "read"
    uris: list[tuple[str, str | None, Right]] = [
        *((f"InputChannels.{channel.name}", channel.input_uri, "read") for channel in request.input_channels),
        *((f"OutputChannels.{channel.name}", channel.output_uri, "submit") for channel in request.output_channels),
    ]
    for mount in request.mounts or ():
        uris.append((f"Mounts {mount.path}", mount.uri, "read"))
        if mount.access == "RW":
            uris.append((f"Mounts {mount.path}", mount.uri, "submit"))
    for where, uri, right in uris:
        if uri and uri.startswith("oss://"):
            try:
                yield where, OssUri.parse(uri).bucket, right
            except InvalidInputError as error:
                raise invalid_parameter(f"{where}: {error}") from error


def refuse_unsupported(
    request: TrainingJobRequest, executor: ExecutorCapabilities, *, is_of_dlc: bool = False
) -> None:
    """Raises WireError for roles and mounts that the executor of this service cannot run."""
    problems = [str(problem) for problem in (*role_problems(request), *mount_path_problems(request))]
    if has_unlike_instances(request) and not executor.roles:
        problems.append("Roles: the executor of this service runs like instances only")
    if request.mounts and not executor.mounts:
        problems.append("Mounts: the executor of this service has no mounts; use InputChannels, OutputChannels")
    problems += [
        f"Mounts {mount.path}: {mount.uri!r} is not an oss:// URI, and this service reads and writes no other"
        for mount in request.mounts or ()
        # Whether the user may see a code source is checked where a job of DLC is created.
        if not mount.uri.startswith("oss://") and not (is_of_dlc and mount.is_clone)
    ]
    if problems:
        raise invalid_parameter("; ".join(problems))


def unused_notice(request: TrainingJobRequest, executor: ExecutorCapabilities) -> str:
    """Returns a sentence with the parameters that have no effect; empty if there are none."""
    names = unused_fields(request, used=_USED | ({_SHARED_MEMORY} if executor.sets_shared_memory else set()))
    return f"These have no effect on this service: {', '.join(map(_parameter, names))}." if names else ""


def _parameter(field: str) -> str:
    """Returns the parameter name for a field of a request."""
    first, *parts = field.removeprefix("ComputeResource.").split(".")
    if first == "UserVpc":
        return "user_vpc_config"
    *channel, last = parts or [""]
    return ".".join(filter(None, (to_snake(first), *channel, to_snake(last))))


def image_notice(request: TrainingJobRequest, executor: ExecutorCapabilities) -> str:
    """Returns a sentence that the image is not used; empty if jobs run in images."""
    image = request.algorithm_spec.image if request.algorithm_spec else None
    return image_unused_message(image) if image and not executor.uses_images else ""
