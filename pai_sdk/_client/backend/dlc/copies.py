"""Jobs of DLC that are submitted again, with changes, or as training jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pai_sdk._client.backend.base import Plan, Upload
from pai_sdk._client.backend.dlc.existing import (
    JOB_FOLDER,
    ChangedBody,
    body_of_job,
    is_prepared,
    masked_paths,
    request_for,
)
from pai_sdk._client.backend.dlc.job_folder import ML, REQUIREMENTS, JobFolder, read_job_folder, write_job_folder
from pai_sdk._client.backend.dlc.mapping import RECORD_VARIABLES, Layout, body_of, body_problems
from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._client.backend.dlc.planning import API, MountTargets, file_names_of
from pai_sdk._client.backend.dlc.prefix import command_of, user_text
from pai_sdk._wire.base import wire_names
from pai_sdk._wire.dlc.checks import job_problems
from pai_sdk._wire.dlc.jobs import NewJob
from pai_sdk._wire.dlc.records import JobDetail
from pai_sdk._wire.dlc.uris import without_endpoint
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk._wire.pai.spec import HyperParameter, InputChannel
from pai_sdk.errors import InvalidInputError, Problem

# Without these fields a job does something else; others change how it is run.
_ESSENTIAL = ("DataSources", "CodeSource", "CredentialConfig", "JobSpecs[1]", "TemplateId", "UserCommand")


@dataclass(frozen=True)
class OriginalJob:
    """A job of DLC of which there is to be a copy: its body, and the request that describes it."""

    job: NewJob
    request: TrainingJobRequest
    folder: JobFolder
    is_prepared: bool  # pai_sdk has submitted it, so that it has channels and hyperparameters

    @classmethod
    def read(cls, detail: JobDetail, read_file: Callable[[str], bytes | None]) -> OriginalJob:
        """Reads a job and its folder; `read_file` returns the object at a URI, None where there is none."""
        job = body_of_job(detail)
        request, uri = request_for(job), _folder_uri(job)
        if uri is None or not is_prepared(job):
            return cls(job, request, JobFolder(), is_prepared=False)
        if read_file(f"{uri}env.sh") is None:
            hint = "plan it again with the Estimator or Processor"
            raise InvalidInputError([Problem("JOB", f"its folder {uri} does not exist any more", hint)])
        folder = read_job_folder(lambda name: read_file(f"{uri}{name}"))
        return cls(job, _completed(request, folder), folder, is_prepared=True)

    def copy_plan(self, request: TrainingJobRequest, targets: MountTargets) -> Plan:
        """Returns the plan of a copy: the body of the job, with what differs in `request`.

        Raises:
            InvalidInputError: the job cannot have a change, or the service masks values of it.
        """
        problems = [*self._channel_problems(request), *self._masked_problems(request)]
        if problems:
            raise InvalidInputError(problems)
        layout = Layout(targets.mount_endpoint, file_names=self._file_names(request))
        plan = Plan(request, api=API)
        if self.is_prepared:
            moved = frozenset(self.folder.variables)
            variables = {name: value for name, value in (request.environments or {}).items() if name in moved}
            tree, folder = write_job_folder(
                request, variables=variables, file_names=layout.file_names, more_files=self.folder.code_files
            )
            upload = Upload(tree, targets.tree_uri(tree, "input"), "the job folder")
            layout = replace(layout, job_folder=upload.uri, moved=moved)
            plan = replace(plan, uploads=(upload,), keep=folder)
        render = ChangedBody(self.job, self.request, layout)
        body = render(request)
        wrong = body_problems(body) if self.is_prepared else job_problems(body)
        if wrong := [each for each in wrong if each.where != "WorkspaceId"]:
            raise InvalidInputError([Problem(each.where, each.what, each.hint) for each in wrong])
        return replace(plan, render=render)

    def _file_names(self, request: TrainingJobRequest) -> dict[str, str]:
        before = {each.name: each for each in self.request.input_channels}
        changed = [each for each in request.input_channels if each != before.get(each.name)]
        unchanged = {each.name for each in request.input_channels} - {each.name for each in changed}
        names = {name: file for name, file in self.folder.file_names.items() if name in unchanged}
        return {**names, **file_names_of(changed, ())}

    def _channel_problems(self, request: TrainingJobRequest) -> Iterator[Problem]:
        """Yields the changes that need the folders and variables of the job contract."""
        if self.is_prepared:
            return
        hint = "change its command or its environments, or plan it with the Estimator or Processor"
        names = {"hyperparameters": "hyperparameters", "inputs": "input_channels", "outputs": "output_channels"}
        for where, field in names.items():
            if getattr(request, field) != getattr(self.request, field):
                yield Problem(where, "cannot be changed: the job was not submitted by pai_sdk", hint)

    def _masked_problems(self, request: TrainingJobRequest) -> Iterator[Problem]:
        body = ChangedBody(self.job, self.request)(request)
        for path in masked_paths(body):
            yield Problem(path, "is masked by the service, so it cannot be copied", "submit the job as at first")

    # ---- as a training job

    def lost_fields(self) -> tuple[list[str], list[str]]:
        """Returns the fields that training jobs do not have: those that the job needs, and others."""
        layout = Layout(
            job_folder=self.folder_uri,
            file_names=self.folder.file_names,
            moved=frozenset(self.folder.variables),
            code_has_requirements=self.job.thirdparty_lib_dir == f"{ML}/code",
            prefix_installs=REQUIREMENTS in self.folder.code_files,
        )
        carried = dict(_leaves(_comparable(body_of(self.request, DlcOptions(), layout))))
        lost = [path for path, value in _leaves(_comparable(self.job)) if carried.get(path) != value]
        essential = [path for path in lost if path.startswith(_ESSENTIAL)]
        return essential, [path for path in lost if path not in essential]

    @property
    def folder_uri(self) -> str:
        """Returns the URI of the job folder; empty without one."""
        return _folder_uri(self.job) or ""


def _folder_uri(job: NewJob) -> str | None:
    for source in job.data_sources:
        if (source.mount_path or "").rstrip("/") == JOB_FOLDER and source.uri:
            return without_endpoint(source.uri).rstrip("/") + "/"
    return None


def _completed(request: TrainingJobRequest, folder: JobFolder) -> TrainingJobRequest:
    """Returns the request with what only the folder of the job has."""
    channels = [_with_file(each, folder.file_names.get(each.name)) for each in request.input_channels]
    hyperparameters = folder.hyperparameters.items()
    update: dict[str, Any] = {
        "hyperparameters": [HyperParameter(name=name, value=value) for name, value in hyperparameters],
        "input_channels": channels,
        "environments": {**(request.environments or {}), **folder.variables} or None,
    }
    if lines := folder.code_files.get(REQUIREMENTS, "").splitlines():
        update["python_requirements"] = lines
    return request.model_copy(update=update)


def _with_file(channel: InputChannel, name: str | None) -> InputChannel:
    if name is None or channel.input_uri is None:
        return channel
    return channel.model_copy(update={"input_uri": f"{channel.input_uri.rstrip('/')}/{name}"})


def _comparable(job: NewJob) -> dict[str, Any]:
    """Returns a body in a form in which equal jobs are equal: mounts by path, without endpoints."""
    command = user_text(command_of(job.user_command or "", None))
    envs = {name: value for name, value in job.envs.items() if name not in RECORD_VARIABLES}
    envs |= {each.key: each.value or "" for each in job.custom_envs if each.key}
    sources = {}
    for source in job.data_sources:
        fields = {"uri": without_endpoint(source.uri or "").rstrip("/")} if source.uri else {}
        path = (source.mount_path or "").rstrip("/")
        if path not in (JOB_FOLDER,):
            sources[path] = source.model_copy(update={**fields, "mount_path": path}).to_wire()
    update: dict[str, Any] = {"user_command": command, "envs": envs, "custom_envs": [], "data_sources": []}
    if job.accessibility == "PRIVATE":  # the default
        update["accessibility"] = None
    return {**job.model_copy(update=update).to_wire(), **wire_names(data_sources=sources)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of a body that are set, with their paths."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}[{number}]")
    elif value not in (None, "", False, 0):
        yield path, value
