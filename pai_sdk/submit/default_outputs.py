"""Where outputs go that are given no place: `output_path`, the job's experiment, or the session's bucket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pai_sdk.backend.base import Backend
from pai_sdk.errors import InvalidInputError, NotFoundError, PermissionDeniedError
from pai_sdk.experiment import Experiment
from pai_sdk.schemas.compute import ExperimentConfig
from pai_sdk.schemas.names import LOCAL_TYPES
from pai_sdk.submit.channels import ChannelResolver
from pai_sdk.submit.parameters import JobParameters
from pai_sdk.submit.problems import Problems
from pai_sdk.submit.request_fields import folder_of

if TYPE_CHECKING:
    from pai_sdk.session import Session

__all__ = ["default_outputs"]

_TENSORBOARD = "tensorboard"

_log = logging.getLogger(__name__)


def default_outputs(
    parameters: JobParameters,
    job_name: str,
    backend: Backend,
    session: Session,
    resolver: ChannelResolver,
    problems: Problems,
) -> Callable[[str], str]:
    """The URI of each output channel that is given none.

    Outputs of a job in an experiment go to the experiment's folder, unless `output_path` is set. Its TensorBoard
    logs always go to the experiment's folder for these, so that one TensorBoard shows all its jobs. An experiment
    that is given by its id is requested when the first such channel is resolved.

    Args:
        parameters: of the job.
        job_name: the job's name.
        backend: runs the job.
        session: finds the experiment.
        resolver: checks `output_path`.
        problems: collects what is wrong.
    """
    output_path = parameters.output_path
    parent = None if output_path is None else resolver.output_uri(output_path, "output_path")
    folder = folder_of(str(job_name))

    @cache
    def experiment() -> Experiment | None:
        # Jobs in containers on this machine take no part in experiments.
        if parameters.instance_type in LOCAL_TYPES:
            return None
        return _experiment(parameters.experiment_config, session, problems)

    def uri(channel: str) -> str:
        found = experiment() if parent is None or channel == _TENSORBOARD else None
        if found is not None and channel == _TENSORBOARD and (logs := found.tensorboard_data()):
            return f"{logs.rstrip('/')}/{folder}/"
        if parent is not None:
            return f"{parent.rstrip('/')}/{job_name}/{channel}/"
        if found is not None and found.artifact_uri:
            return f"{found.artifact_uri.rstrip('/')}/{folder}/{channel}/"
        return backend.default_output(job_name, channel)

    return uri


def _experiment(
    given: Experiment | ExperimentConfig | Mapping[str, Any] | None, session: Session, problems: Problems
) -> Experiment | None:
    """The experiment of the job; None if it has none, or one that is reported elsewhere."""
    if given is None or isinstance(given, Experiment):
        return given
    try:
        experiment_id = ExperimentConfig.model_validate(given).experiment_id
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
        problems.found += error.problems
    return None
