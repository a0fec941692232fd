"""What of a request means something on this machine, what does not, and what cannot be done here at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.execution.docker.container import ContainerLimits
from pai_sdk.execution.docker.options import LocalOptions
from pai_sdk.execution.unused_fields import unused_fields
from pai_sdk.schemas.names import LOCAL_TYPES
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.storage.uri import uri_scheme

_SCHEMES = _CODE_TYPES = ("file", "oss")
_USED = ["ComputeResource.InstanceSpec.SharedMemory"]
_SHORTENED = re.compile(r"^(ComputeResource|InputChannels|OutputChannels)\.")


def file_uri(path: Path, *, folder: bool) -> str:
    """A file or folder of this machine as a URI.

    Example:
        >>> file_uri(Path("/data/my set"), folder=True)
        'file:///data/my%20set/'
    """
    uri = path.absolute().as_uri()
    return f"{uri.rstrip('/')}/" if folder else uri


def file_path(uri: str) -> Path:
    """The file or folder that a `file://` URI names."""
    return Path(unquote(urlsplit(uri).path))


def check_supported(request: TrainingJobRequest) -> None:
    """Refuse what cannot be done on this machine, before anything is done.

    Raises:
        InvalidInputError: with all of it.
    """
    problems = [*_problems(request)]
    options = LocalOptions()
    try:
        options = LocalOptions.of_tags(request.settings.tags if request.settings else None)
    except InvalidInputError as error:
        problems += error.problems
    try:
        ContainerLimits.of(request, options)
    except InvalidInputError as error:
        problems += error.problems
    if problems:
        raise InvalidInputError(problems)


def _problems(request: TrainingJobRequest) -> Iterator[Problem]:
    spec, compute = request.algorithm_spec, request.compute_resource
    if spec is None:
        hint = "run it on a service, or give image_uri and command"
        yield Problem("algorithm", "a registered algorithm is known to its service only", hint)
    elif not spec.image:
        yield Problem("image_uri", "is missing", "a local run needs an image that this machine has or can pull")
    code = request.code_dir or (spec.code_dir if spec else None)
    if code and code.location_type not in _CODE_TYPES:
        hint = "give a local folder or an oss:// URI"
        yield Problem("source_dir", f"code in {code.location_type!r} cannot be read from this machine", hint)
    if compute and compute.resource_id:
        yield Problem("resource_id", "is a quota of the service", "leave it out for a local run")
    for channel in request.input_channels:
        where = f"inputs[{channel.name!r}]"
        if channel.dataset_id:
            hint = "give a local path or an oss:// URI"
            yield Problem(where, f"dataset {channel.dataset_id} is known to its service only", hint)
        elif uri_scheme(channel.input_uri or "") not in _SCHEMES:
            hint = "give a local path (a folder where it is mounted) or an oss:// URI"
            yield Problem(where, f"{channel.input_uri!r} cannot be reached from this machine", hint)
        elif (channel.input_uri or "").startswith("file:") and not file_path(channel.input_uri or "").exists():
            yield Problem(where, f"{file_path(channel.input_uri or '')} does not exist")
    for output in request.output_channels:
        where = f"outputs[{output.name!r}]"
        if output.dataset_id or uri_scheme(output.output_uri or "") not in _SCHEMES:
            what = output.dataset_id or repr(output.output_uri)
            yield Problem(where, f"{what} cannot be written from this machine", "give a local folder or oss://")
        elif (output.output_uri or "").startswith("file:"):
            path = file_path(output.output_uri or "")
            if problem := _why_not_a_folder(path):
                yield Problem(where, f"{path} cannot be written to: {problem}", "name a folder of yours")


def _why_not_a_folder(path: Path) -> str:
    """Why no files can be put into a folder that may be yet to be made; empty when they can."""
    for place in (path, *path.parents):
        if place.is_dir():
            return "" if os.access(place, os.W_OK | os.X_OK) else f"you may not write to {place}"
        if os.path.lexists(place):
            return f"{place} is not a folder"
    return ""


def unused_locally(request: TrainingJobRequest) -> list[str]:
    """The fields that are set and have no effect in a local job, by short names; for one notice."""
    unused = [_SHORTENED.sub("", name) for name in unused_fields(request, used=_USED)]
    compute, spec = request.compute_resource, request.algorithm_spec
    if spec is not None and spec.progress_definitions:
        unused.append("AlgorithmSpec.ProgressDefinitions")
    if compute and compute.ecs_spec and compute.ecs_spec not in LOCAL_TYPES:
        unused.append("EcsSpec")
    return unused
