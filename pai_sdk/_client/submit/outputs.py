"""The targets of a job's outputs without an explicit one, and the checkpoint from which a job resumes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pai_sdk._client.backend.base import Backend
from pai_sdk._client.experiment import Experiment
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.submit.channels import ChannelResolver
from pai_sdk._client.submit.parameters import Description, JobParameters, ResumeSource
from pai_sdk._client.submit.problems import Problems
from pai_sdk._client.submit.request_fields import folder_of
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk._wire.pai.compute import ExperimentConfig
from pai_sdk._wire.pai.spec import OutputChannel
from pai_sdk.errors import (
    CheckpointError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    PermissionDeniedError,
    Problem,
)

if TYPE_CHECKING:
    from pai_sdk._client.session import Session
    from pai_sdk._data.run.store.resume import ResumePoint

_TENSORBOARD, _CHECKPOINTS = "tensorboard", "checkpoints"

_log = logging.getLogger(__name__)


def default_outputs(
    parameters: JobParameters,
    job_folder: str,
    backend: Backend,
    session: Session,
    resolver: ChannelResolver,
    problems: Problems,
) -> Callable[[str], str]:
    """Returns a function that returns the URI of an output channel without an explicit one."""
    output_path = parameters.output_path
    parent = None if output_path is None else resolver.output_uri(output_path, "output_path")
    folder = folder_of(job_folder)

    @cache
    def experiment() -> Experiment | None:
        if backend.capabilities.hosts == "here":  # experiments are known to services only
            return None
        return _experiment(parameters.experiment_config, session, problems)

    def uri(channel: str) -> str:
        # TensorBoard logs go to the experiment even with `output_path`: one TensorBoard then shows all its jobs.
        of_job = experiment() if parent is None or channel == _TENSORBOARD else None
        if of_job is not None and channel == _TENSORBOARD and (logs := of_job.tensorboard_data()):
            return f"{logs.rstrip('/')}/{folder}/"
        if parent is not None:
            return f"{parent.rstrip('/')}/{job_folder}/{channel}/"
        if of_job is not None and of_job.artifact_uri:
            return f"{of_job.artifact_uri.rstrip('/')}/{folder}/{channel}/"
        return backend.default_output(job_folder, channel)

    return uri


def _experiment(
    config: Experiment | ExperimentConfig | Mapping[str, Any] | None, session: Session, problems: Problems
) -> Experiment | None:
    """Returns the experiment of the job; None if it has none, or an invalid one, which is reported elsewhere."""
    if config is None or isinstance(config, Experiment):
        return config
    try:
        experiment_id = ExperimentConfig.model_validate(config).experiment_id
    except ValueError:  # of pydantic or ours; the field of the request reports it
        return None
    try:
        return Experiment.get(experiment_id, session=session)
    except NotFoundError:
        problems.add("experiment_config", f"there is no experiment {experiment_id!r}", "see Experiment.list()")
    except PermissionDeniedError as error:
        _log.warning(
            "outputs do not go to the folder of experiment %s, which cannot be read: %s", experiment_id, error
        )
    except InvalidInputError as error:
        problems.entries += error.problems
    return None


# ---- resuming


def resume_point(
    description: Description,
    outputs: Mapping[str, Any] | None,
    channels: Sequence[OutputChannel],
    session: Session,
    problems: Problems,
) -> ResumePoint | None:
    """Finds the checkpoint from which to resume; None without `resume`, or after a recorded problem."""
    resume = description.resume
    if resume is None or resume is False:
        return None
    target = next((channel for channel in channels if channel.name == _CHECKPOINTS), None)
    has_target = _CHECKPOINTS in description.placed_outputs or _CHECKPOINTS in (outputs or {})
    if resume is True and not has_target:
        problems.add(
            "resume",
            "True needs the URI of the earlier checkpoints",
            "give checkpoints_path='oss://…', or resume='<id of the earlier job>' or '<URI of checkpoints>'",
        )
    if target is not None and not target.output_uri:
        problems.add("resume", "cannot look into a dataset", "give checkpoints_path='oss://…'")
    if problems.entries or target is None:
        return None
    with problems.under("resume"):
        return _find_resume_point(resume, target.output_uri or "", session)
    return None


def _find_resume_point(resume: ResumeSource, target: str, session: Session) -> ResumePoint:
    from pai_sdk._data.run.store.resume import find_resume_point  # for weight: most jobs do not resume

    source = target if resume is True else _source(resume, session)
    try:
        return find_resume_point(source, target, session, required=resume is not True)
    except CheckpointError as error:
        hint = (
            "look at the earlier job's outputs; resume=True with checkpoints_path starts from scratch without one"
        )
        raise InvalidInputError([Problem("", str(error), hint)]) from error
    except (InvalidInputError, MissingExtraError) as error:
        hint = "checkpoints can be resumed from and copied to oss://, file:// and file systems that fsspec knows"
        raise InvalidInputError([Problem("", f"{source} or {target} cannot be read: {error}", hint)]) from error


def _source(resume: ResumeSource, session: Session) -> str:
    """Returns the URI or path of the checkpoints from which to resume."""
    if isinstance(resume, TrainingJob):
        return _checkpoints_of(resume)
    if isinstance(resume, os.PathLike):
        return str(Path(resume).expanduser())
    text = str(resume)
    if uri_scheme(text) is not None or text.startswith("file:"):
        return text
    if "/" in text or text.startswith((".", "~")):
        return str(Path(text).expanduser())
    try:
        job = session.get_job(text)
    except NotFoundError as error:
        hint = "give the id of a job, or the URI of checkpoints; a folder is written as './name'"
        raise InvalidInputError([Problem("", str(error), hint)]) from error
    return _checkpoints_of(job)


def _checkpoints_of(job: TrainingJob) -> str:
    if _CHECKPOINTS not in job.outputs:
        hint = f"it has: {', '.join(job.outputs) or 'none'}"
        raise InvalidInputError([Problem("", f"job {job.id} has no output {_CHECKPOINTS!r}", hint)])
    return job.outputs[_CHECKPOINTS]
