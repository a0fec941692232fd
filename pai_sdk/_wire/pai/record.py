"""A job as a backend describes it: the response of GetTrainingJob, read tolerantly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

from pydantic import Field, PlainSerializer, PlainValidator, PrivateAttr, model_validator

from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk._wire.pai.secret_values import masked, masked_roles, masked_spec
from pai_sdk._wire.pai.status import STATUSES, JobStatus
from pai_sdk._wire.pai.wire import NullableList, Received, seconds_of


def _status_of(value: object) -> JobStatus:
    return value if isinstance(value, JobStatus) else JobStatus("" if value is None else str(value))


_Status = Annotated[
    JobStatus,
    PlainValidator(_status_of),
    PlainSerializer(str, return_type=str),
]


# Fields whose values can have secrets, for reprs.
_MASKS: dict[str, Callable[[Any], Any]] = {"algorithm_spec": masked_spec, "roles": masked_roles}


class StatusTransition(Received):
    """One status a job went through."""

    status: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    reason_code: str | None = None
    reason_message: str | None = None


class InstanceRecord(Received):
    """One worker of a job."""

    name: str | None = None
    role: str | None = None
    status: str | None = None


class MetricPoint(Received):
    """One value of one metric; `timestamp` is UTC, ISO 8601. Values that are reported have a step.

    `rank` is that of the process that has reported it, for all processes but the first one.
    """

    name: str | None = None
    timestamp: str | None = None
    value: float | None = None
    step: int | None = None
    instance: str | None = None
    rank: int | None = None


def from_time(points: Iterable[MetricPoint], since: str | None) -> Iterator[MetricPoint]:
    """Yields the points from a time on; all of them without a time, and always those of unknown time."""
    since_s = seconds_of(since)
    for point in points:
        if since_s is None or (at := seconds_of(point.timestamp)) is None or at >= since_s:
            yield point


class InstancePoint(Received):
    """One value of a metric of an instance; `time` is UTC, ISO 8601."""

    time: str | None = None
    value: float | None = None


class InstanceMetrics(Received):
    """The values of one metric of one instance."""

    instance_id: str | None = None
    node_name: str | None = None
    metrics: NullableList[InstancePoint] = Field(default_factory=list)


class InstanceUsage(NamedTuple):
    """The current resource usage of an instance; None for values that are not measured.

    Attributes:
        instance: its full name.
        cpu_percent: of all cores of its machine.
        memory_percent: of the memory of its machine, or of its container's limit.
        gpu_percent: of its GPUs' time.
        gpu_memory_percent: of its GPUs' memory.
        memory_bytes: the memory itself, where it is known.
    """

    instance: str
    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu_percent: float | None = None
    gpu_memory_percent: float | None = None
    memory_bytes: int | None = None


class ErrorInfo(Received):
    """The reason for a failure, as the service sees it. `additional_info` is JSON text or None."""

    code: str | None = None
    message: str | None = None
    additional_info: str | None = None


class FailedInstance(Received):
    """The instance that failed first, as JSON in `ErrorInfo.additional_info` of the services of this package."""

    instance: str | None = None
    exit_code: int | None = None

    def to_json(self) -> str:
        """Returns the JSON; empty where nothing is known."""
        fields = self.to_dict()
        return json.dumps(fields) if fields else ""


class ChannelUri(Received):
    """An input or output channel of a job that exists."""

    name: str | None = None
    input_uri: str | None = None
    output_uri: str | None = None
    dataset_id: str | None = None
    version_name: str | None = None
    options: str | None = None
    role_arn: str | None = None

    @property
    def uri(self) -> str | None:
        """The source or target of the channel."""
        return self.input_uri or self.output_uri


class NameValue(Received):
    """A hyperparameter of a job that exists."""

    name: str | None = None
    value: str | None = None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield "name", self.name
        yield "value", masked(self.name or "", self.value) if self.value else self.value


class OutputModel(Received):
    """The output channel that holds the model, and where it is."""

    output_channel_name: str | None = None
    uri: str | None = None


class KeyValue(Received):
    """A label of a job that exists."""

    key: str | None = None
    value: str | None = None


class RecordSource(NamedTuple):
    """What a service announces with a snapshot of a job."""

    etag: str | None = None  # its version tag of this snapshot, by which a caller can wait for the next one
    lists_all: bool = False  # it lists an instance before it has a line
    may_wait: bool = False  # it has long polls (`Prefer: wait`)
    reads_reports: bool = False  # its metrics include reported ones
    log_pause_s: float = 0.0  # it asks for a pause between two reads of a log


class JobState(Received):
    """The fields of a job that a service adds to its request, or that can change after the create."""

    training_job_id: str
    training_job_url: str | None = None
    workspace_id: str | None = None
    status: _Status = JobStatus("")
    reason_code: str | None = None
    reason_message: str | None = None
    gmt_create_time: str | None = None
    gmt_modified_time: str | None = None
    duration: int | None = None
    user_id: str | None = None
    status_transitions: NullableList[StatusTransition] = Field(default_factory=list)
    instances: NullableList[InstanceRecord] = Field(default_factory=list)
    latest_metrics: NullableList[MetricPoint] = Field(default_factory=list)
    latest_progress: dict[str, Any] | None = None
    labels: NullableList[KeyValue] = Field(default_factory=list)
    output_model: OutputModel | None = None
    algorithm_id: str | None = None
    is_temp_algo: bool | None = None


class JobRecord(JobState):
    """A snapshot of one job. Fields the service left out are None or empty; unknown ones are kept."""

    training_job_name: str | None = None
    training_job_description: str | None = None
    input_channels: NullableList[ChannelUri] = Field(default_factory=list)
    output_channels: NullableList[ChannelUri] = Field(default_factory=list)
    hyperparameters: NullableList[NameValue] = Field(default_factory=list, alias="HyperParameters")
    algorithm_spec: dict[str, Any] | None = None
    algorithm_name: str | None = None
    algorithm_version: str | None = None
    algorithm_provider: str | None = None
    compute_resource: dict[str, Any] | None = None
    user_vpc: dict[str, Any] | None = None
    assign_node_spec: dict[str, Any] | None = None
    credential_config: dict[str, Any] | None = Field(default=None, repr=False)  # may hold a temporary key
    priority: int | None = None
    role_arn: str | None = None
    dlc_job_id: str | None = None
    dlc_status: str | None = None  # of a job with `api="dlc"`: the status as DLC calls it
    environments: dict[str, Any] | None = Field(default=None, repr=False)  # values may be secrets
    python_requirements: list[str] | None = Field(default=None, repr=False)  # an index URL may hold a password
    experiment_config: dict[str, Any] | None = None
    scheduler: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    roles: list[dict[str, Any]] | None = None  # of services of this package only, as `mounts`
    mounts: list[dict[str, Any]] | None = None

    _source: RecordSource = PrivateAttr(default=RecordSource())

    @model_validator(mode="after")
    def _detect_unknown_end(self) -> JobRecord:
        last = self.status_transitions[-1] if self.status_transitions else None
        has_ended = last is not None and bool(last.end_time) and last.status == self.status
        if has_ended and self.status and self.status not in STATUSES:
            # The model is frozen for its readers, but still under construction in this validator.
            self.__dict__["status"] = JobStatus(self.status, has_ended=True)
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            if value not in (None, [], {}, ""):
                mask = _MASKS.get(name or "")
                yield name, mask(value) if mask else value

    @property
    def source(self) -> RecordSource:
        """The offers of the service, and its version tag of this snapshot."""
        return self._source

    def from_source(self, source: RecordSource) -> JobRecord:
        """Records the offers and the version tag, after the record was read; returns the record itself."""
        self._source = source
        return self

    @property
    def hyperparameter_values(self) -> dict[str, str | None]:
        """Each hyperparameter's value, as text. The values of secrets are not masked."""
        return {each.name: each.value for each in self.hyperparameters if each.name}

    @property
    def outputs(self) -> dict[str, str]:
        """Output channel to URI."""
        return {c.name: c.uri for c in self.output_channels if c.name and c.uri}

    @property
    def submission(self) -> str | None:
        """The submission label; empty for a job without one, None where the service returns no labels at all."""
        labels = {label.key: label.value for label in self.labels}
        return labels.get(SUBMISSION_LABEL) or "" if labels else None

    @property
    def experiment_id(self) -> str | None:
        """The experiment that the job belongs to."""
        return (self.experiment_config or {}).get("ExperimentId")

    @property
    def instance_names(self) -> list[str]:
        """The instances so far, in the order of the service."""
        return [instance.name for instance in self.instances if instance.name]

    @property
    def num_instances(self) -> int:
        """The number of instances that the job has in all; 1 where none is stated."""
        if self.roles:
            return sum(role["Count"] if isinstance(role.get("Count"), int) else 1 for role in self.roles)
        resource = self.compute_resource or {}
        count = resource.get("InstanceCount") or resource.get("EcsCount")
        return count if isinstance(count, int) else 1

    @property
    def may_list_more(self) -> bool:
        """True if the job has finished, and the list of its instances can still grow."""
        if self._source.lists_all or self.status not in (JobStatus.SUCCEED, JobStatus.FAILED):
            return False
        return len(self.instances) < self.num_instances


@dataclass(frozen=True)
class LogLine:
    """One line of one instance's log.

    Attributes:
        instance: which instance wrote it.
        number: in the log of the instance, from 0; a reader continues with `next_number`.
        text: the line, without its line end.
        written_at: when it was written: UTC, ISO 8601; None if that was not requested, or is unknown.
        missing: 0 for a line that was written. Otherwise this is a notice of pai_sdk in place of that
            many lines, which the service counts and does not return.
    """

    instance: str
    number: int
    text: str
    written_at: str | None = None
    missing: int = 0

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of_missing(cls, instance: str, number: int, count: int) -> LogLine:
        """Returns the notice for lines that the service does not return."""
        lines = "1 line is" if count == 1 else f"{count:,} lines are"
        text = f"[pai_sdk: {lines} missing here; the service counts more lines than it returns]"
        return cls(instance, number, text, missing=count)

    @property
    def next_number(self) -> int:
        """The number of the line behind this one.

        Example:
            >>> LogLine("train1-master-0", 7, "epoch 1").next_number
            8
        """
        return self.number + max(1, self.missing)


@dataclass(frozen=True)
class LogPage:
    """Consecutive lines of one instance's log."""

    lines: tuple[str, ...]  # without line ends; the first one is the requested one, after the missing ones
    complete: bool = False  # the service says that no line will follow these
    waited: bool = False  # the service delays a response until there are new lines
    total: int | None = None  # how many lines the service has in all, where it says so
    missing: int = 0  # lines before these that the service counts but never returns
    unsure: bool = False  # there is no line, but the service may hold some back; the next read searches for them
    first: int = 0  # the number of the first line, on a page of a service that counts in pages

    def part(self, start: int, limit: int) -> LogPage:
        """Returns the lines from number `start` on, at most `limit`."""
        end = start - self.first + limit
        complete = self.complete and end >= len(self.lines)
        return replace(self, lines=self.lines[start - self.first : end], complete=complete, first=0)

    def numbered(self, instance: str, start: int) -> list[LogLine]:
        """Returns the lines as records from number `start` on, after a notice if lines are missing."""
        notice = [LogLine.of_missing(instance, start, self.missing)] if self.missing else []
        first = start + self.missing
        return notice + [LogLine(instance, number, text) for number, text in enumerate(self.lines, first)]

    def missing_at_end(self, instance: str, start: int) -> list[LogLine]:
        """Returns the notice for the end of a log of which the service counts more lines; empty if it does not."""
        more = 0 if self.total is None or self.complete else self.total - start
        return [LogLine.of_missing(instance, start, more)] if more > 0 else []
