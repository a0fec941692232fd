"""The body of CreateTrainingJob: the one description of a job."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from pai_sdk._wire.pai.compute import (
    AssignNodeSpec,
    ComputeResource,
    CredentialConfig,
    ExperimentConfig,
    SchedulerConfig,
    Settings,
    UserVpcConfig,
)
from pai_sdk._wire.pai.numbers import Integer
from pai_sdk._wire.pai.roles import Mount, Role, mount_problems, role_problems
from pai_sdk._wire.pai.spec import AlgorithmSpec, CodeDir, HyperParameter, InputChannel, Label, OutputChannel
from pai_sdk._wire.pai.wire import Sent

MAX_LABEL_LENGTH = 256
"""Maximum number of characters of a label's key and value on a service of ours: they fit into any index."""

SUBMISSION_LABEL = "pai-sdk-submission"
"""Label whose value is unique to one submission: a job whose create got no response is found by it."""

ACCESSIBILITY_LABEL = "pai-sdk-accessibility"
"""Label with `PUBLIC` where all members of the workspace may see a job; a service of ours reads it."""

IDEMPOTENCY_LABEL = "pai-sdk-idempotency-key"
"""Label with the idempotency key of the caller; the submission label is then computed from it."""

SCHEDULE_LABEL = "pai-sdk-schedule"
"""Label with the id of the schedule that a service has created a job for."""


class TrainingJobRequest(Sent):
    """A training job, described. What runs is either an `algorithm_spec` or a registered algorithm's name."""

    training_job_name: str
    workspace_id: str | None = None
    training_job_description: str | None = None

    algorithm_spec: AlgorithmSpec | None = None
    algorithm_name: str | None = None
    algorithm_version: str | None = None
    algorithm_provider: str | None = None
    code_dir: CodeDir | None = None

    compute_resource: ComputeResource
    hyperparameters: list[HyperParameter] = Field(default_factory=list, alias="HyperParameters")
    input_channels: list[InputChannel] = Field(default_factory=list)
    output_channels: list[OutputChannel] = Field(default_factory=list)
    environments: dict[str, str] | None = Field(default=None, repr=False)  # values may be secrets
    python_requirements: list[str] | None = Field(default=None, repr=False)  # an index URL may hold a password
    labels: list[Label] = Field(default_factory=list)

    scheduler: SchedulerConfig | None = None
    settings: Settings | None = None
    priority: Integer | None = None
    experiment_config: ExperimentConfig | None = None
    user_vpc: UserVpcConfig | None = None
    role_arn: str | None = None
    assign_node_spec: AssignNodeSpec | None = None
    credential_config: CredentialConfig | None = None

    # PAI's TrainingJob API has neither; executors of this package and local Docker take both.
    roles: list[Role] | None = None
    mounts: list[Mount] | None = None

    @model_validator(mode="after")
    def _check_roles_and_mounts(self) -> TrainingJobRequest:
        problems = [] if self.roles is None else list(role_problems(self.roles))
        problems += mount_problems(self.mounts or ())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def instance_count(self) -> int:
        """The number of instances; with roles, of all roles together."""
        if self.roles:
            return sum(role.count for role in self.roles)
        return self.compute_resource.ecs_count or self.compute_resource.instance_count or 1

    @property
    def role_requests(self) -> list[TrainingJobRequest]:
        """The job of each role alone, with its image, command and resources; the request itself without roles."""
        if not self.roles:
            return [self]
        return [self._of_role(role) for role in self.roles]

    def _of_role(self, role: Role) -> TrainingJobRequest:
        role_spec = {"image": role.image, "command": role.command}
        role_resource = {"ecs_spec": role.ecs_spec, "instance_spec": role.instance_spec}
        spec, resource = self.algorithm_spec, self.compute_resource
        update: dict[str, Any] = {
            "roles": None,
            "algorithm_spec": spec and spec.model_copy(update=_set(role_spec)),
            "compute_resource": resource.model_copy(
                update={**_set(role_resource), "ecs_count": None, "instance_count": role.count}
            ),
        }
        return self.model_copy(update=update)

    @property
    def effective_code_dir(self) -> CodeDir | None:
        """The folder of the code: that of the job, or else that of its algorithm."""
        return self.code_dir or (self.algorithm_spec.code_dir if self.algorithm_spec else None)

    def label(self, key: str) -> str | None:
        """Returns the value of a label; None if the request has no such label."""
        return next((label.value for label in self.labels if label.key == key), None)

    def with_label(self, key: str, value: str) -> TrainingJobRequest:
        """Returns a copy with one label more, or replaced."""
        labels = [label for label in self.labels if label.key != key]
        return self.model_copy(update={"labels": [*labels, Label(key=key, value=value)]})


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
