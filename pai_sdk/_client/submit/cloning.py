"""Plans a job like an earlier one, with changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from pai_sdk._client.backend.base import Backend, Plan
from pai_sdk._client.backend.dlc.copies import OriginalJob
from pai_sdk._client.backend.dlc.options import DlcOptions
from pai_sdk._client.backend.dlc.planning import MountTargets, dlc_plan, remote_code
from pai_sdk._client.backend.specs import backend_for_job, backend_for_type, checked_api
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import Session, session_or_default
from pai_sdk._client.submit import guards, request_fields
from pai_sdk._client.submit.job_names import new_folder
from pai_sdk._client.submit.parameter_types import check_strings
from pai_sdk._client.submit.problems import Problems
from pai_sdk._core.short_traceback import short_traceback
from pai_sdk._data.notify.targets import Target
from pai_sdk._data.storage.uri import remote_uri_problems
from pai_sdk._wire.pai.job_names import folder_pattern, name_of_copy
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.recorded import request_of
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.spec import HyperParameter, InputChannel, Label, OutputChannel
from pai_sdk.errors import InvalidInputError, Problem

_NOT_COPIED = (SUBMISSION_LABEL, IDEMPOTENCY_LABEL)
_MASKED = re.compile(r"\*+")


class CopiesDlcJobs(MountTargets, Protocol):
    """The backend of DLC, as far as copies need it."""

    def original(self, job_id: str) -> OriginalJob:
        """Returns a job with all that a copy of it needs."""
        ...


@short_traceback
def clone(
    job: TrainingJob,
    *,
    hyperparameters: Mapping[str, Any] | None = None,
    environments: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    image_uri: str | None = None,
    command: str | Sequence[str] | None = None,
    instance_type: str | None = None,
    instance_count: int | None = None,
    max_run_time: int | None = None,
    job_name: str | None = None,
    api: str | None = None,
    notify: Sequence[Target | str] | None = None,
    session: Session | None = None,
) -> Plan:
    """Plans a job like an earlier one, with changes; `session.submit(plan)` submits it.

    The new job has the code, inputs and settings of the earlier one, but a new name and new output folders. A job
    of DLC may also be one of the console or of another client: all of its fields are kept.

    Args:
        job: the earlier job.
        hyperparameters: changed and new ones.
        environments: changed and new variables, and those whose values the service masks.
        labels: changed and new ones.
        inputs: changed and new channels, by their URIs.
        outputs: channels with folders of their own. Others go to the folders of the earlier job, with the new
            job's folder in place of the old one.
        image_uri: another image.
        command: another command.
        instance_type: replaces all resources by public instances.
        instance_count: another number of instances; of workers, if there are roles.
        max_run_time: another limit, in seconds.
        job_name: the name; made from that of the earlier job otherwise.
        api: `dlc` for a job of DLC, `trainingjob` for a training job; as the earlier job otherwise.
        notify: targets of messages about the job. Those of the earlier job may be secret, and are not copied.
        session: the session that submits the job, with another `api`; the default session otherwise.

    Raises:
        InvalidInputError: `problems` lists all problems, such as an output that would overwrite that of the
            earlier job, or fields that the other API does not have.

    Example:
        >>> plan = clone(job, hyperparameters={"lr": 0.1})  # doctest: +SKIP
        >>> again = session.submit(plan)  # doctest: +SKIP
    """
    checked_api(api)
    problems = Problems()
    targets = guards.targets(notify, problems)
    problems.raise_if_any()
    target = None
    if api is not None and api != backend_for_job(job.id).capabilities.api:
        resolved: Session = session_or_default(session, local=False)
        target = resolved.backend_for(instance_type, api)
    plan = clone_plan(
        job.refresh(),
        backend=job.backend,
        target=target,
        hyperparameters=hyperparameters,
        environments=environments,
        labels=labels,
        inputs=inputs,
        outputs=outputs,
        image_uri=image_uri,
        command=command,
        instance_type=instance_type,
        instance_count=instance_count,
        max_run_time=max_run_time,
        job_name=job_name,
    )
    return replace(plan, notify=targets)


def clone_plan(
    record: JobRecord,
    *,
    backend: Backend | None = None,
    target: Backend | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    environments: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    image_uri: str | None = None,
    command: str | Sequence[str] | None = None,
    instance_type: str | None = None,
    instance_count: int | None = None,
    max_run_time: int | None = None,
    job_name: str | None = None,
) -> Plan:
    """Plans a copy of an earlier job: with its code, inputs and settings, but a new name and new output folders.

    The mappings have changed or new values; `environments` also those whose values the service masks. Other
    outputs go to the folders of the earlier job, with the new job's folder in place of the old one.
    `instance_type` replaces all resources by public instances. One error lists all problems, such as an output
    that would overwrite that of the earlier job. `backend` is that of the job, needed for one of DLC; `target` is
    that of the new job, if it has another API.
    """
    original = None
    if backend_for_job(record.training_job_id).capabilities.api == "dlc":
        original = cast("CopiesDlcJobs", backend).original(record.training_job_id)
    request = request_of(record) if original is None else original.request
    sees_files = backend_for_job(record.training_job_id).capabilities.shares_files
    problems = Problems()
    previous = {each.name: each.value for each in request.hyperparameters}
    new = name_of_copy(request.training_job_name, previous, {**previous, **(hyperparameters or {})})
    name = request_fields.job_name(job_name if job_name is not None else new, new, problems)
    folder = new_folder(name, is_explicit=job_name is not None)
    changed: dict[str, Any] = {
        "training_job_name": name,
        "labels": _labels(request, labels, problems),
        "hyperparameters": _hyperparameters(request, hyperparameters, problems),
        "input_channels": _inputs(request, inputs, problems, sees_files=sees_files),
        "output_channels": _outputs(request, folder, outputs or {}, problems, sees_files=sees_files),
        "environments": _environments(request, environments, problems),
    }
    if image_uri is not None or command is not None:
        changed["algorithm_spec"] = _spec(request, image_uri, command, problems)
    if instance_type is not None or instance_count is not None:
        changed["compute_resource"] = _resource(record, request, instance_type, instance_count, problems)
    if max_run_time is not None:
        changed["scheduler"] = request_fields.scheduler(max_run_time, problems)
    problems.raise_if_any()
    cloned = request.model_copy(update=changed)
    check_strings(cloned.to_wire(), "")
    if target is not None:
        return _of_other_api(cloned, original, target)
    if original is not None:
        return original.copy_plan(Plan(cloned).labelled().request, cast("CopiesDlcJobs", backend))
    return Plan(cloned).labelled()


def _of_other_api(request: TrainingJobRequest, original: OriginalJob | None, target: Backend) -> Plan:
    """Returns the plan of a training job as one of DLC, or of a job of DLC as a training job."""
    # Workspaces of two services differ.
    plan = Plan(request.model_copy(update={"workspace_id": None})).labelled()
    if original is None:
        if target.capabilities.api != "dlc":
            raise InvalidInputError(
                [Problem("api", "is not for jobs on this machine", "give another instance_type")]
            )
        targets = cast("CopiesDlcJobs", target)
        return dlc_plan(plan, DlcOptions(), targets, code=remote_code(request, targets))
    essential, minor = original.lost_fields()
    if essential:
        hint = "clone it as a job of DLC, or plan it with the Estimator or Processor"
        raise InvalidInputError([Problem(each, "training jobs have nothing like it", hint) for each in essential])
    warnings = (f"not carried over, since training jobs do not have it: {', '.join(minor)}",) if minor else ()
    return replace(plan, warnings=warnings)


def _labels(request: TrainingJobRequest, changes: Mapping[str, str] | None, problems: Problems) -> list[Label]:
    copied = {label.key: label.value for label in request.labels if label.key not in _NOT_COPIED}
    return request_fields.labels({**copied, **(changes or {})}, problems)


def _hyperparameters(
    request: TrainingJobRequest, changes: Mapping[str, Any] | None, problems: Problems
) -> list[HyperParameter]:
    before = {each.name: each.value for each in request.hyperparameters}
    return request_fields.hyperparameters({**before, **(changes or {})}, "hyperparameters", problems)


def _environments(
    request: TrainingJobRequest, changes: Mapping[str, str] | None, problems: Problems
) -> dict[str, str] | None:
    values = {**(request.environments or {}), **(changes or {})}
    for name, value in values.items():
        if isinstance(value, str) and _MASKED.fullmatch(value):
            hint = f"give it again: {name}=…"
            problems.add(f"environments[{name!r}]", "is masked by the service, so it cannot be copied", hint)
    return request_fields.environment(values, problems)


def _inputs(
    request: TrainingJobRequest, changes: Mapping[str, str] | None, problems: Problems, *, sees_files: bool
) -> list[InputChannel]:
    channels = {channel.name: channel for channel in request.input_channels}
    for name, uri in (changes or {}).items():
        with problems.under(f"inputs[{name!r}]"):
            channels[name] = InputChannel(name=name, input_uri=_remote(uri, sees_files=sees_files))
    return list(channels.values())


def _outputs(
    request: TrainingJobRequest, folder: str, changes: Mapping[str, str], problems: Problems, *, sees_files: bool
) -> list[OutputChannel]:
    channels: dict[str, OutputChannel] = {}
    for channel in request.output_channels:
        if channel.name in changes:
            continue
        parts = (channel.output_uri or "").split("/")
        uri = "/".join(_renamed(part, request.training_job_name, folder) for part in parts)
        if uri == (channel.output_uri or ""):
            message = f"would be written to {uri or channel.dataset_id}, like that of the earlier job"
            problems.add(
                f"outputs[{channel.name!r}]",
                message,
                "give it a folder by its URI; the same one, to continue in it",
            )
        channels[channel.name] = channel.model_copy(update={"output_uri": uri}) if uri else channel
    for key, uri in changes.items():
        with problems.under(f"outputs[{key!r}]"):
            channels[key] = OutputChannel(name=key, output_uri=_remote(uri, sees_files=sees_files))
    return list(channels.values())


def _renamed(part: str, name: str, folder: str) -> str:
    """Returns a segment of an output path, with the folder of the new job in place of that of the job `name`."""
    if folder_pattern(name).fullmatch(part):
        return folder
    folder_of = request_fields.folder_of  # within an experiment
    short = folder_of(name)
    return folder_of(folder) if short and folder_pattern(short, hyphen="").fullmatch(part) else part


def _remote(uri: str, *, sees_files: bool) -> str:
    if sees_files and uri.startswith("file:"):
        return uri
    if wrong := remote_uri_problems(uri, ""):
        raise InvalidInputError(wrong)
    return uri


def _spec(request: TrainingJobRequest, image: str | None, command: object, problems: Problems) -> Any:
    spec = request.algorithm_spec
    if spec is None:
        hint = "submit it with an image and a command of your own instead"
        problems.add(
            "image_uri", f"the job runs the algorithm {request.algorithm_name!r}, which has its own", hint
        )
        return None
    update: dict[str, Any] = {} if image is None else {"image": image}
    if isinstance(command, str | list | tuple):
        update["command"] = request_fields.command_list(command, problems)
    return spec.model_copy(update=update)


def _resource(
    record: JobRecord,
    request: TrainingJobRequest,
    instance_type: str | None,
    instance_count: int | None,
    problems: Problems,
) -> Any:
    before = request.compute_resource
    is_local = backend_for_job(record.training_job_id).is_local
    if instance_type is not None and is_local != backend_for_type(instance_type).is_local:
        hint = "make a new plan with the Estimator or Processor, so that its files are put in place"
        problems.add(
            "instance_type", f"{instance_type!r}: a job cannot be cloned from a service to Docker, or back", hint
        )
        return None
    if instance_type is None and before.ecs_spec is None:
        return before.model_copy(update={"instance_count": instance_count})
    spot = None if instance_type is not None else before.spot_spec
    return request_fields.compute_resource(
        instance_type=instance_type or before.ecs_spec,
        instance_count=request.instance_count if instance_count is None else instance_count,
        instance_spec=before.instance_spec if backend_for_type(before.ecs_spec).is_local else None,
        resource_id=None,
        resource_type=None,
        spot_spec=spot,
        problems=problems,
    )
