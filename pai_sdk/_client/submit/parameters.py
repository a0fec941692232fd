"""The parameters of a job as the user gives them. `submit.planning` turns them into a request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pai_sdk._client.backend.dlc.options import DlcOptions
    from pai_sdk._client.experiment import Experiment
    from pai_sdk._client.job.training_job import TrainingJob
    from pai_sdk._client.session import Session
    from pai_sdk._client.submit.registered import AlgorithmChoice
    from pai_sdk._data.notify.targets import Notification
    from pai_sdk._data.rules.rules import Rule
    from pai_sdk._wire.pai.compute import ExperimentConfig, InstanceSpec, Settings, SpotSpec, UserVpcConfig
    from pai_sdk._wire.pai.secret_values import Secret
    from pai_sdk._wire.pai.spec import Channel, MetricDefinition

ResumeSource: TypeAlias = "bool | str | os.PathLike[str] | TrainingJob | None"
"""True, a job or its id, or the URI or path of checkpoints; None and False start from scratch."""


@dataclass(frozen=True)
class Description:
    """The part of a job that its kind of submitter defines, beside the parameters that all jobs share."""

    image: str = ""
    command: str | Sequence[str] = ""
    hyperparameters: Mapping[str, Any] | None = None
    # The name of the hyperparameters in error messages.
    hyperparameters_name: str = "hyperparameters"
    metric_definitions: Sequence[MetricDefinition | Mapping[str, Any]] = ()
    input_channels: Sequence[Channel] = ()  # empty: any
    output_channels: Sequence[Channel] = ()  # each gets a URI
    # Whether a call may add outputs to them; where none are defined, it always may.
    takes_more_outputs: bool = False
    # Output URIs that a parameter sets: channel to (parameter, URI).
    placed_outputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    # Local or in OSS; with `git_config`, a folder within the repository.
    source_dir: str | os.PathLike[str] | None = None
    git_config: Mapping[str, str] | None = None
    allow_secrets: bool = False  # upload files that look like keys, too
    job_type: str = "PyTorchJob"
    algorithm: AlgorithmChoice | None = None  # defines image and command, if it is set
    resume: ResumeSource = None
    debugger: Literal["terminal", "debugpy"] | None = None


@dataclass(frozen=True, kw_only=True)
class Role:
    """Instances of a job that are alike, and differ from those of other roles. None means what the job has.

    Not on Alibaba Cloud's API of training jobs.

    Attributes:
        instance_count: number of instances of this role.
        command: command of the instances.
        image_uri: image of the instances.
        instance_type: type of the instances, on public resources.
        instance_spec: size of each instance, in a quota.
        counts_for_success: False if the job can succeed without them, and whatever their exit code is. By default
            a job waits for all roles but parameter servers and evaluators, and fails with any.
        is_chief: whether this role is the chief.
        start_after: roles whose instances run before those of this one are started.
        restart_policy: `Never`; executors of this package know no other.

    Example:
        >>> Role(instance_count=2, command="python train.py").instance_count
        2
    """

    instance_count: int = 1
    command: str | Sequence[str] | None = None
    image_uri: str | None = None
    instance_type: str | None = None
    instance_spec: InstanceSpec | Mapping[str, Any] | None = None
    counts_for_success: bool | None = None
    is_chief: bool | None = None
    start_after: str | Sequence[str] | None = None
    restart_policy: str | None = None

    def __repr__(self) -> str:
        values = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        if isinstance(self.command, list | tuple):
            values["command"] = [_without_secrets(word) for word in self.command]
        return f"Role({', '.join(f'{name}={_without_secrets(value)!r}' for name, value in values.items())})"


@dataclass(kw_only=True, repr=False, eq=False)
class JobParameters:
    """Parameters of every kind of job. None means the default.

    Names and limits are those of CreateTrainingJob of paistudio 2022-01-12.

    Attributes:
        environments: maps environment variables of the job to strings; `Secret("NAME")` is read at submit time.
        requirements: packages that pip installs before the command runs, as in requirements.txt.
        max_run_time: maximum run time in seconds; None for no limit.
        base_job_name: prefix of the job's name; by default the script or module of the command, else the class.
        output_path: base URI of the outputs; each job has a folder of its own below it.
        instance_type: type of public instances, such as `ecs.c6.large`; `local` and `local_gpu` are containers on
            this machine. The embedded service needs none.
        instance_count: number of instances of a job.
        roles: instances that differ, by name: `{"Worker": Role(instance_count=2), "Evaluator": Role(…)}`, or dicts
            of the attributes of `Role`. Not on Alibaba Cloud's API of training jobs.
        instance_spec: size of an instance in a quota of your own; requires `resource_id`.
        resource_id: id of the quota.
        resource_type: `General` or `Lingjun`. The instance type (`ml.…` are Lingjun's) or the quota decides it: it
            is compared with them, and not sent.
        spot_spec: options of spot (preemptible) instances.
        user_vpc_config: the VPC the instances are attached to.
        experiment_config: the experiment the jobs belong to: an `Experiment`, or `{"experiment_id": …}`.
        max_retries: maximum number of restarts after a reason in `retry_on`. Files are kept, so that the job can
            resume from its newest checkpoint; the pause before a restart doubles. Not on Alibaba Cloud.
        retry_on: reason codes to restart after; by default those that are no fault of the job: `Preempted`,
            `NodeLost`, `EngineRestarted`, `SupervisorLost`.
        watch: rules about the running job, such as `[NoProgress(min_s=600, action="stop")]`, or mappings as in
            files; they replace the default ones of their kind. False switches all rules off.
        settings: advanced settings of the service.
        priority: priority of the job in its quota.
        role_arn: the RAM role the job assumes: `acs:ram::<account>:role/<name>`.
        description: free-text description.
        labels: labels of the jobs, for search.
        max_cost: maximum cost of a job, in the currency of the prices; requires `max_run_time` and prices.
        prices: maps an instance type, or `TYPE spot`, to its price per instance and hour; adds to the settings.
        fallback: alternatives without capacity: types, `on-demand`, dicts of `instance_type`, `spot_spec`.
        notify: targets of messages about the end of a job: URLs, `Webhook`, `DingTalk`, `Feishu`, `WeCom`.
        idempotency_key: a second submission with the same key returns the first job.
        git_labels: label jobs with repository, commit and branch of their code, if it is in git.
        api: API for the jobs: `trainingjob`, or `dlc` for DLC jobs; by default that of the session's settings.
        dlc: options that only DLC jobs have, see `DlcOptions`.
        session: session that submits the jobs; None for the default session.
    """

    environments: Mapping[str, str | Secret] | None = None
    requirements: Sequence[str] | None = None
    max_run_time: int | None = None
    base_job_name: str | None = None
    output_path: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    roles: Mapping[str, Role | Mapping[str, Any]] | None = None
    instance_spec: InstanceSpec | Mapping[str, Any] | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    spot_spec: SpotSpec | Mapping[str, Any] | None = None
    user_vpc_config: UserVpcConfig | Mapping[str, Any] | None = None
    experiment_config: Experiment | ExperimentConfig | Mapping[str, Any] | None = None
    max_retries: int | None = None
    retry_on: Sequence[str] | None = None
    watch: Sequence[Rule | Mapping[str, Any]] | bool | None = None
    settings: Settings | Mapping[str, Any] | None = None
    priority: int | None = None
    role_arn: str | None = None
    description: str | None = None
    labels: Mapping[str, str] | None = None
    max_cost: float | None = None
    prices: Mapping[str, float] | None = None
    fallback: Sequence[str | Mapping[str, Any]] | None = None
    notify: Sequence[Notification | str] | None = None
    idempotency_key: str | None = None
    git_labels: bool = True
    api: str | None = None
    dlc: DlcOptions | Mapping[str, Any] | None = None
    session: Session | None = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Makes `help()` of a class whose docstring refers to these parameters list all of them."""
        super().__init_subclass__(**arguments)
        # Without the indentation of the source, which Python 3.13 removes.
        attributes = cleandoc(JobParameters.__doc__ or "").partition(_ATTRIBUTES)[2]
        doc, count = re.subn(_REFERENCE, "", cleandoc(vars(cls).get("__doc__") or ""))
        # The class's own come first; without docstrings (`python -OO`), there are none.
        if count and attributes:
            cls.__doc__ = re.sub(_LAST_ATTRIBUTE, lambda match: f"{match[0]}{attributes}\n", doc, count=1)

    def describe(self) -> Description:
        """Describe this kind of job; implemented by subclasses."""
        raise NotImplementedError

    def __repr__(self) -> str:
        arguments = [
            f"{f.name}={_names_of(value) if f.name in _SECRET else repr(_without_secrets(value))}"
            for f in fields(self)
            if f.name not in ("session", "jobs")  # a session is long
            and not f.name.startswith("_")
            and not _is_default(value := getattr(self, f.name), f.default)
        ]
        return f"{type(self).__name__}({re.sub(_USER_IN_URL, '//…@', ', '.join(arguments))})"


_ATTRIBUTES = "Attributes:\n"
_LAST_ATTRIBUTE = rf"{_ATTRIBUTES}(?: {{4}}.*\n)+"
_REFERENCE = r"All parameters of `JobParameters` (?:.+\n)+\n"  # a paragraph
_SECRET = ("environments", "git_config")  # their values may be; of those, names only
_USER_IN_URL = r"//[^\s/'\"]*@"


def _is_default(value: object, default: object) -> bool:
    if isinstance(value, list | dict | tuple):
        return not value
    # Only values of one type are compared: an array would be compared item by item.
    return value is None or (type(value) is type(default) and value == default)


def _without_secrets(value: object) -> object:
    from pai_sdk._wire.pai.secret_values import mask_value, masked_command

    return masked_command(value) if isinstance(value, str) else mask_value("", value)


def _names_of(value: object) -> str:
    return str(sorted(map(str, value))) if isinstance(value, Mapping) else f"<{type(value).__name__}>"
