"""The buckets that a job names: an unknown one is refused when the job is created, not when it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pai_sdk.errors import InvalidInputError
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.spec import OssLocation
from pai_sdk.service.wire_errors import invalid_parameter
from pai_sdk.storage.uri import OssUri

__all__ = ["refuse_unknown_buckets"]


def refuse_unknown_buckets(request: TrainingJobRequest, bucket_exists: Callable[[str], bool]) -> None:
    """Check that the buckets of a job's code, inputs and outputs are there.

    Args:
        request: the job.
        bucket_exists: whether the object store has a bucket of that name.

    Raises:
        Fault: one of them is not.
    """
    named = list(_named(request))
    missing = {bucket for bucket in {bucket for _, bucket in named} if not bucket_exists(bucket)}
    problems = [f"{where}: there is no bucket {bucket!r} here" for where, bucket in named if bucket in missing]
    if problems:
        raise invalid_parameter("; ".join(problems))


def _named(request: TrainingJobRequest) -> Iterator[tuple[str, str]]:
    code = request.code_dir or (request.algorithm_spec.code_dir if request.algorithm_spec else None)
    if code is not None and isinstance(code.location_value, OssLocation):
        yield "CodeDir", code.location_value.bucket
    uris = [(f"InputChannels.{channel.name}", channel.input_uri) for channel in request.input_channels]
    uris += [(f"OutputChannels.{channel.name}", channel.output_uri) for channel in request.output_channels]
    for where, uri in uris:
        if uri and uri.startswith("oss://"):
            try:
                yield where, OssUri.parse(uri).bucket
            except InvalidInputError as error:
                raise invalid_parameter(f"{where}: {error}") from error
