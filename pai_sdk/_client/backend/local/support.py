"""Checks requests and files of local jobs: unsupported fields are errors, fields without effect are reported."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from pai_sdk._client.backend.local.files import file_path
from pai_sdk._client.backend.specs import LOCAL
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._host.agent.protocol import DISK_IS_FULL
from pai_sdk._host.execution.base import Mounts
from pai_sdk._host.execution.docker.container import role_limits
from pai_sdk._host.execution.docker.options import LocalOptions
from pai_sdk._host.execution.roles import mount_path_problems, role_problems
from pai_sdk._host.execution.unused_fields import unused_fields
from pai_sdk._wire.pai.job_retries import JobRetries
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.roles import Mount
from pai_sdk._wire.pai.spec import InputChannel, OutputChannel
from pai_sdk.errors import InvalidInputError, LocalRunError, Problem

_SCHEMES = _CODE_TYPES = ("file", "oss")
_USED = ["ComputeResource.InstanceSpec.SharedMemory"]
_SHORTENED = re.compile(r"^(ComputeResource|InputChannels|OutputChannels)\.")
_MAX_FILES = 50_000  # limit of the check before a job starts; a data set may have millions
_MAX_EXAMPLES = 3
_IN_THE_CONTAINER = "/ml"
_HINTS = (  # after the error of a file, by its number
    (
        DISK_IS_FULL,
        ". Free some space there (`pai-sdk prune` removes finished jobs), or set PAI_LOCAL_DIR to a folder on "
        "another disk",
    ),
    (
        (errno.EACCES, errno.EPERM, errno.EROFS),
        ". Use a folder that you may write to; PAI_LOCAL_DIR sets the folder of all local jobs",
    ),
    (
        (errno.ENOTDIR, errno.EEXIST),
        ". There is a file in place of a folder: use another folder, or move the file",
    ),
)


def mounts_of(request: TrainingJobRequest) -> Mounts:
    """Returns the local files and folders that are mounted into the containers of a job."""
    inputs = {channel.name: channel.input_uri or "" for channel in request.input_channels}
    outputs = {channel.name: channel.output_uri or "" for channel in request.output_channels}
    return Mounts(
        {name: file_path(uri) for name, uri in inputs.items() if not uri.startswith("oss://")},
        {name: file_path(uri) for name, uri in outputs.items() if uri.startswith("file:")},
        {
            number: file_path(mount.uri)
            for number, mount in enumerate(request.mounts or ())
            if mount.uri.startswith("file:")
        },
    )


def check_supported(request: TrainingJobRequest) -> None:
    """Refuses requests that cannot run on this machine, before any change; lists all problems."""
    problems = [*_problems(request)]
    options = LocalOptions()
    try:
        options = LocalOptions.of_tags(request.settings.tags if request.settings else None)
    except InvalidInputError as error:
        problems += error.problems
    for check in (partial(role_limits, request, options), partial(JobRetries.of, request)):
        try:
            check()
        except InvalidInputError as error:
            problems += error.problems
    if problems:
        raise InvalidInputError(problems)


def _problems(request: TrainingJobRequest) -> Iterator[Problem]:
    spec, compute = request.algorithm_spec, request.compute_resource
    if spec is None:
        hint = "run it on a service, or give image_uri and command"
        yield Problem("algorithm", "a registered algorithm exists in its service only", hint)
    elif not spec.image:
        yield Problem("image_uri", "is required", "a local run needs an image that this machine has or can pull")
    code = request.effective_code_dir
    if code and code.location_type not in _CODE_TYPES:
        hint = "give a local folder or an oss:// URI"
        yield Problem("source_dir", f"code in {code.location_type!r} cannot be read from this machine", hint)
    yield from role_problems(request)
    yield from mount_path_problems(request)
    yield from filter(None, map(_mount_problem, request.mounts or ()))
    if compute and compute.resource_id:
        yield Problem("resource_id", "is a quota of the service", "leave it out for a local run")
    for channels in (map(_input_problem, request.input_channels), map(_output_problem, request.output_channels)):
        yield from filter(None, channels)


def _input_problem(channel: InputChannel) -> Problem | None:
    where, uri = f"inputs[{channel.name!r}]", channel.input_uri or ""
    if channel.dataset_id:
        hint = "give a local path or an oss:// URI"
        return Problem(where, f"dataset {channel.dataset_id} exists in its service only", hint)
    if uri_scheme(uri) not in _SCHEMES:
        hint = "give a local path (a folder where it is mounted) or an oss:// URI"
        return Problem(where, f"{channel.input_uri!r} cannot be reached from this machine", hint)
    if uri.startswith("file:") and not file_path(uri).exists():
        return Problem(where, f"{file_path(uri)} does not exist")
    return None


def _output_problem(channel: OutputChannel) -> Problem | None:
    where, uri = f"outputs[{channel.name!r}]", channel.output_uri or ""
    if channel.dataset_id or uri_scheme(uri) not in _SCHEMES:
        target = channel.dataset_id or repr(channel.output_uri)
        return Problem(where, f"{target} cannot be written from this machine", "give a local folder or oss://")
    if uri.startswith("file:") and (problem := _folder_problem(file_path(uri))):
        return Problem(where, f"{file_path(uri)} cannot be written to: {problem}", "name a folder of yours")
    return None


def _mount_problem(mount: Mount) -> Problem | None:
    where = f"mounts[{mount.path!r}]"
    if uri_scheme(mount.uri) not in _SCHEMES:
        return Problem(where, f"{mount.uri!r} cannot be reached from this machine", "give file:// or oss://")
    if not mount.uri.startswith("file:"):
        return None
    folder = file_path(mount.uri)
    if mount.access == "RO":
        return None if folder.is_dir() else Problem(where, f"{folder} is not a folder")
    problem = _folder_problem(folder)
    return (
        Problem(where, f"{folder} cannot be written to: {problem}", "name a folder of yours") if problem else None
    )


def _folder_problem(path: Path) -> str:
    """Returns why files cannot be written to a folder, which may not exist yet; empty if they can."""
    for parent in (path, *path.parents):
        if parent.is_dir():
            return "" if os.access(parent, os.W_OK | os.X_OK) else f"you may not write to {parent}"
        if os.path.lexists(parent):
            return f"{parent} is not a folder"
    return ""


def unused_locally(request: TrainingJobRequest) -> list[str]:
    """Returns the short names of the request's fields that have no effect in a local job."""
    unused = [_SHORTENED.sub("", name) for name in unused_fields(request, used=_USED)]
    compute, spec = request.compute_resource, request.algorithm_spec
    if spec is not None and spec.progress_definitions:
        unused.append("AlgorithmSpec.ProgressDefinitions")
    if compute and compute.ecs_spec and compute.ecs_spec not in LOCAL.instance_types:
        unused.append("EcsSpec")
    return unused


# ---- notices and errors of files ---------------------------------------------------------------------------


def links_notice(channel: str, folder: Path, *, max_files: int = _MAX_FILES) -> str | None:
    """Returns a notice about links in a channel's folder to targets outside of it; None if there are none."""
    links = list(islice(_links_out_of(folder, max_files), _MAX_EXAMPLES + 1))
    if not links:
        return None
    names = [f"{path.relative_to(folder)} -> {target}" for path, target in links[:_MAX_EXAMPLES]]
    more = ["…"] if len(links) > _MAX_EXAMPLES else []
    return (
        f"inputs[{channel!r}]: links that lead out of {folder} cannot be followed in the container: "
        f"{', '.join(names + more)}; put the files themselves there, or give the folder they are in"
    )


def _links_out_of(folder: Path, max_files: int) -> Iterator[tuple[Path, Path]]:
    entries = ((where, name) for where, folders, files in os.walk(folder) for name in (*folders, *files))
    for where, name in islice(entries, max_files):
        path = Path(where, name)
        if path.is_symlink():
            target = path.readlink()
            if not _exists_in_container(folder, where, target):
                yield path, target


def _exists_in_container(folder: Path, where: str, target: Path) -> bool:
    """Returns True if the target of a link exists in the container."""
    if target.is_absolute():  # the folder has another path in the container, so links into itself break too
        return target.is_relative_to(_IN_THE_CONTAINER)
    return Path(os.path.normpath(Path(where, target))).is_relative_to(os.path.normpath(folder))


@contextmanager
def file_errors_explained(data_dir: Path) -> Iterator[None]:
    """Converts errors of the file system in the block to `LocalRunError`, with reason, path and hint."""
    try:
        yield
    except OSError as error:
        # Errors of `requests` are OSErrors too.
        if type(error).__module__ != OSError.__module__ or error.errno is None:
            raise
        # Some errors have no path, such as a full disk: then the folder of all local jobs is named.
        where = error.filename2 or error.filename or data_dir
        hint = next((hint for codes, hint in _HINTS if error.errno in codes), "")
        raise LocalRunError(f"the job was not started: {where}: {error.strerror or error}{hint}") from error
