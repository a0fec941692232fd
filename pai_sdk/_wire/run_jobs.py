"""The job behind a run, for the page of a service: status, usage, differences, re-runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from pai_sdk._wire.annotations import JobAnnotations
from pai_sdk._wire.requests import instance_type_of
from pai_sdk._wire.runs import ExtensionBody


class NoFields(BaseModel):
    """An empty object."""

    model_config = ConfigDict(extra="forbid")


class JobStatusChange(ExtensionBody):
    """A status that the job had from a time on."""

    status: str
    time: float
    text: str


class JobEvent(ExtensionBody):
    """An event of an instance, or of the whole job (`job`)."""

    time: float
    text: str
    kind: str


class JobFailure(ExtensionBody):
    """The reason for which a job failed."""

    cause: str
    explanation: str
    advice: str
    code: str | None
    exit_code: int | None
    instance: str | None
    last_lines: list[str]
    traceback: str | None


class InstanceOfRun(ExtensionBody):
    """An instance of a job."""

    name: str
    status: str
    exit_code: int | None
    started_at: float | None
    ended_at: float | None
    node: str | None = None


class TaskOfRun(ExtensionBody):
    """Instances of a job that are alike; without a name and an image, those of a job without roles."""

    name: str
    count: int
    instance_type: str
    image: str


def tasks_of(request: Mapping[str, Any]) -> list[TaskOfRun]:
    """Returns the tasks of a stored request: its roles, or all instances."""
    compute = request.get("ComputeResource") or {}
    count = compute.get("EcsCount") or compute.get("InstanceCount")
    return [
        TaskOfRun(
            name=role.get("Name") or "",
            count=role.get("Count") or 1,
            instance_type=instance_type_of({"ComputeResource": {**compute, **role}}),
            image=role.get("Image") or "",
        )
        for role in request.get("Roles") or [{"Count": count}]
    ]


class JobSummary(ExtensionBody):
    """What a job runs. The commit and what belongs to it are those of its labels, or of its code source."""

    command: str
    algorithm: str
    image: str
    tasks: list[TaskOfRun]
    code: str
    repository: str
    commit: str
    branch: str
    has_changes: bool
    inputs: dict[str, str]
    outputs: dict[str, str]
    workspace: str
    priority: int
    max_runtime_s: int | None


class RuleFinding(ExtensionBody):
    """What a rule has observed. `is_open` is true until it clears, or the attempt ends.

    The evidence: the last `lines` of the log, the `stack` (the innermost frame first), the last `points` of the
    metric (step and value; text where that is not finite), and `values` by name, such as `quiet_s`.
    """

    message: str
    instance: str | None
    since: float
    cleared_at: float | None
    is_open: bool
    lines: list[str]
    stack: list[str]
    points: list[list[float | str | None]]
    values: dict[str, float | str]


class WatchingRule(ExtensionBody):
    """A rule that watches the job while it runs, with its findings, the newest first."""

    code: str
    action: str
    settings: dict[str, Any]
    findings: list[RuleFinding]


class JobOfRun(ExtensionBody):
    """A job, with secrets masked. Times are in seconds since 1970.

    `queue_place` counts from 1, and is null after the start. `sub_status` is the code of a reason, and `can` what
    the user may do with the job: `rerun`, `stop`, `delete`, `annotate`.
    """

    status: str
    message: str
    queue_place: int | None
    queued_s: float | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    history: list[JobStatusChange]
    events: list[JobEvent]
    failure: JobFailure | None
    instances: list[InstanceOfRun]
    request: dict[str, Any]
    summary: JobSummary
    labels: dict[str, str]
    owner: str
    sub_status: str
    can: list[str]
    rules: list[WatchingRule]
    annotations: JobAnnotations | None = None


class InstanceUsageSeries(ExtensionBody):
    """Processor (in cores), memory, and GPUs (in percent) of an instance at some times.

    The lists of GPUs are empty if none was measured.
    """

    name: str
    times: list[float]
    cpu: list[float]
    memory_bytes: list[int]
    gpu: list[float | None]
    gpu_memory: list[float | None]


class UsageLimits(ExtensionBody):
    """The cores and the memory of the machine."""

    cpu: int
    memory_bytes: int


class UsageOfRun(ExtensionBody):
    """What the instances of a job have used."""

    instances: list[InstanceUsageSeries]
    limits: UsageLimits


DifferenceGroup: TypeAlias = Literal["hyperparameter", "setting", "unique"]


class JobDifference(ExtensionBody):
    """A field in which the requests of two jobs differ. Fields of the group `unique` differ in nearly all jobs."""

    path: str
    kind: Literal["added", "removed", "changed"]
    group: DifferenceGroup
    before: Any = None
    after: Any = None


class JobDifferences(ExtensionBody):
    """The differences of two jobs, and the number of equal fields."""

    rows: list[JobDifference]
    same: int


class RerunForm(ExtensionBody):
    """The fields of a job that a re-run can change, how names of jobs call hyperparameters, and its request."""

    fields: dict[str, Any]
    short_names: dict[str, str]
    request: dict[str, Any]


class RerunJob(ExtensionBody):
    """The id of the new job."""

    id: str
