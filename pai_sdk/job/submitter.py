"""What Processor and the estimators share: from parameters to a plan, from a plan to a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from pai_sdk.backend.base import Backend, Plan, Upload
from pai_sdk.display.base import Silent
from pai_sdk.display.choice import choose_display
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.job import channels, parts
from pai_sdk.job.channels import InputSource, OutputTarget
from pai_sdk.job.command import check_entry
from pai_sdk.job.compute import ExperimentConfig, InstanceSpec, Settings, SpotSpec, UserVpcConfig
from pai_sdk.job.problems import Problems
from pai_sdk.job.request import TrainingJobRequest
from pai_sdk.job.spec import AlgorithmSpec, Channel, CodeDir, MetricDefinition
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.session import Session, get_default_session
from pai_sdk.storage.uri import is_remote_uri

__all__ = ["JobSubmitter"]

# Parameters that are a model of their own: the user's name, the request's name, the model.
_MODELS = (
    ("settings", "settings", Settings),
    ("experiment_config", "experiment_config", ExperimentConfig),
    ("user_vpc_config", "user_vpc", UserVpcConfig),
)


@dataclass(kw_only=True, repr=False, eq=False)
class JobSubmitter:
    """Describes jobs and submits them. Use `Processor` or `Estimator`; subclass this for a kind of your own.

    Attributes:
        source_dir: folder with the code, or an `oss://` folder; it becomes the working directory.
        job_type: `PyTorchJob`, `TFJob`, `XGBoostJob`, …
        environments: environment variables of the job, names to text.
        requirements: what pip installs before the command runs, as in requirements.txt.
        max_run_time: seconds after which the job is ended; None for no limit.
        base_job_name: what the job's name begins with; the class's name otherwise.
        output_path: URI below which each job's outputs are put, in a folder of the job's name.
        instance_type: type of public instances, such as `ecs.c6.large`.
        instance_count: how many instances work on a job.
        instance_spec: size of an instance in a quota of your own; goes with `resource_id`.
        resource_id: id of that quota.
        resource_type: `General` or `Lingjun`; the quota decides it, so `Lingjun` needs a `resource_id`.
        spot_spec: terms of preemptible instances.
        user_vpc_config: the VPC the instances are attached to.
        experiment_config: the experiment the jobs belong to.
        settings: the finer settings of the service.
        priority: of the job in its quota.
        role_arn: the RAM role the job assumes: `acs:ram::<account>:role/<name>`.
        description: free text for people.
        labels: free labels of the jobs, searchable.
        session: where jobs are submitted; the default session when first needed, if None.
        allow_secrets: take files along that look like keys (`.env`, `*.pem`).
    """

    source_dir: str | os.PathLike[str] | None = None
    job_type: str = "PyTorchJob"
    environments: Mapping[str, str] | None = None
    requirements: Sequence[str] | None = None
    max_run_time: int | None = None
    base_job_name: str | None = None
    output_path: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    instance_spec: InstanceSpec | Mapping[str, Any] | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    spot_spec: SpotSpec | Mapping[str, Any] | None = None
    user_vpc_config: UserVpcConfig | Mapping[str, Any] | None = None
    experiment_config: ExperimentConfig | Mapping[str, Any] | None = None
    settings: Settings | Mapping[str, Any] | None = None
    priority: int | None = None
    role_arn: str | None = None
    description: str | None = None
    labels: Mapping[str, str] | None = None
    session: Session | None = None
    allow_secrets: bool = False
    jobs: list[TrainingJob] = field(default_factory=list, init=False)
    """The jobs submitted by this object, oldest first."""

    # ---- what a subclass says of its jobs

    def _image(self) -> str:
        raise NotImplementedError

    def _command(self) -> str | Sequence[str]:
        raise NotImplementedError

    def _hyperparameters(self) -> tuple[Mapping[str, Any] | None, str]:
        """The values, and what the user calls them."""
        return None, "hyperparameters"

    def _outputs(self, outputs: Mapping[str, OutputTarget] | None, problems: Problems) -> dict[str, OutputTarget]:
        """Where the outputs of one job go."""
        return dict(outputs or {})

    def _metric_definitions(self) -> Sequence[MetricDefinition | Mapping[str, Any]]:
        return ()

    def _input_definitions(self) -> Sequence[Channel]:
        return ()

    def _output_definitions(self) -> Sequence[Channel]:
        return ()

    def _code_root(self) -> tuple[Path | str | None, object]:
        """The code folder (local path or URI), and what must live as long as it is needed."""
        if self.source_dir is None:
            return None, None
        if isinstance(self.source_dir, str) and is_remote_uri(self.source_dir):
            return self.source_dir, None
        return Path(self.source_dir).expanduser(), None

    # ---- plan and submit

    @property
    def latest_job(self) -> TrainingJob | None:
        """The job submitted last, by this object."""
        return self.jobs[-1] if self.jobs else None

    def plan(
        self,
        inputs: Mapping[str, InputSource] | None = None,
        outputs: Mapping[str, OutputTarget] | None = None,
    ) -> Plan:
        """The exact request, without network and without upload. `session.submit(plan)` sends this very thing.

        Args:
            inputs: input channel to what fills it: a URI, a local file or folder, a dataset.
            outputs: output channel to where it goes: a URI or a dataset.

        Raises:
            InvalidInputError: with all that is wrong, not just the first.
            SettingsError: no bucket is set to put code and outputs into.
        """
        session = self._session()
        backend = session.backend_for(self.instance_type)
        problems = Problems()
        given_inputs, given_outputs = dict(inputs or {}), self._outputs(outputs, problems)
        name = parts.job_name(self.base_job_name or type(self).__name__.lower(), problems)
        command = parts.command_parts(self._command(), problems)
        code_dir, code_uploads, keep = self._code(command, backend, problems)
        input_channels, input_uploads = channels.input_channels(
            given_inputs, self._input_definitions(), backend, problems
        )
        fields: dict[str, Any] = {
            "training_job_name": name,
            "workspace_id": session.settings.workspace_id,
            "training_job_description": self.description,
            "compute_resource": parts.compute_resource(
                instance_type=self.instance_type,
                instance_count=self.instance_count,
                instance_spec=self.instance_spec,
                resource_id=self.resource_id,
                resource_type=self.resource_type,
                spot_spec=self.spot_spec,
                problems=problems,
            ),
            "hyperparameters": parts.hyperparameters(*self._hyperparameters(), problems),
            "environments": parts.environment(self.environments, problems),
            "python_requirements": parts.requirement_list(self.requirements, problems),
            "labels": parts.labels(self.labels, problems),
            "scheduler": parts.scheduler(self.max_run_time, problems),
            "priority": self.priority,
            "role_arn": self.role_arn,
            "input_channels": input_channels,
            "output_channels": channels.output_channels(
                given_outputs,
                self._output_definitions(),
                lambda channel: self._default_output(name, channel, backend),
                problems,
            ),
        }
        for where, wire_name, model in _MODELS:
            with problems.under(where):
                value = getattr(self, where)
                fields[wire_name] = None if value is None else model.model_validate(value)
        with problems.under("image_uri"):
            fields["algorithm_spec"] = AlgorithmSpec(
                image=self._image(),
                command=command,
                job_type=self.job_type,
                code_dir=code_dir,
                input_channels=_definitions(self._input_definitions(), given_inputs),
                output_channels=_definitions(self._output_definitions(), given_outputs),
                metric_definitions=parts.metrics(self._metric_definitions(), problems),
            )
        problems.raise_if_any()
        with problems.under("request"):
            return Plan(TrainingJobRequest(**fields), (*code_uploads, *input_uploads), keep)
        raise InvalidInputError(problems.found)

    def _submit(self, plan: Plan, *, wait: bool, show_logs: bool) -> TrainingJob:
        job = self._session().submit(plan, instance_type=self.instance_type)
        self.jobs.append(job)
        display = choose_display() if show_logs else Silent()
        display.submitted(job.record)
        if wait:
            job.wait(show_logs=show_logs, display=display)
        return job

    def get_outputs_data(self) -> dict[str, str]:
        """Output channel to URI, of the job submitted last.

        Raises:
            InvalidInputError: nothing has been submitted yet.
        """
        if not self.jobs:
            raise InvalidInputError([Problem("outputs", "nothing has been submitted by this object yet")])
        return self.jobs[-1].outputs

    def _session(self) -> Session:
        if self.session is None:
            self.session = get_default_session()
        return self.session

    def _code(
        self, command: Sequence[str], backend: Backend, problems: Problems
    ) -> tuple[CodeDir | None, list[Upload], object]:
        """The code folder's place, what has to be uploaded there, and what must live until that is done."""
        with problems.under("source_dir"):
            root, keep = self._code_root()
            if root is None:
                return None, [], None
            if isinstance(root, str):
                return backend.code_dir(root), [], keep
            from pai_sdk.code.package import package_code  # with the ignore rules: not at import

            tree = package_code(root, allow_secrets=self.allow_secrets)
            with problems.under("command"):
                check_entry(command, tree, self.source_dir)
            uri = backend.place(tree, "code")
            return backend.code_dir(uri), [Upload(tree, uri)], keep
        return None, [], None

    def _default_output(self, name: str, channel: str, backend: Backend) -> str:
        if self.output_path is None:
            return backend.default_output(name, channel)
        if not is_remote_uri(self.output_path):
            problem = Problem("output_path", f"{self.output_path!r} is not a URI", "such as oss://bucket/folder/")
            raise InvalidInputError([problem])
        return f"{self.output_path.rstrip('/')}/{name}/{channel}/"

    def __repr__(self) -> str:
        # Values of environments may be secret, and a session is long: names only.
        shown = [
            f"{f.name}={sorted(value) if f.name == 'environments' else value!r}"
            for f in dataclass_fields(self)
            if f.name not in ("session", "jobs")
            and (value := getattr(self, f.name)) not in (None, f.default)
            and value not in ({}, [])
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _definitions(defined: Sequence[Channel], given: Mapping[str, object]) -> list[Channel]:
    """The channels of the algorithm: those defined, and one for every further one this job is given."""
    known = {channel.name for channel in defined}
    return [*defined, *(Channel(name=name, required=False) for name in given if name not in known)]
