"""Backend for jobs of DLC."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from pai_sdk._client.api import training_jobs
from pai_sdk._client.api.capacity import Quotas
from pai_sdk._client.api.dlc_jobs import BEGINNING, VERSION, DlcJobs
from pai_sdk._client.api.training_jobs import JobPage
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.backend.base import JobChanges, JobUpdates, Plan
from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.dlc.copies import OriginalJob
from pai_sdk._client.backend.dlc.existing import uploaded_folders
from pai_sdk._client.backend.dlc.logs import DlcLogs
from pai_sdk._client.backend.dlc.measures import log_metrics, usage_of
from pai_sdk._client.backend.dlc.records import record_of, submission_of, word_of
from pai_sdk._client.backend.many_jobs import page_of_list
from pai_sdk._client.backend.oss_files import OssFiles
from pai_sdk._client.backend.queueing import WaitingReason, read_reason
from pai_sdk._client.backend.service_metrics import with_reported
from pai_sdk._client.backend.specs import DLC, Capabilities
from pai_sdk._client.backend.tunnels import not_entered, open_tunnel
from pai_sdk._core.endpoint import Endpoint, host_of
from pai_sdk._core.names.hints import wrong_value
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.storage.uri import OssUri
from pai_sdk._wire.body import received
from pai_sdk._wire.dlc.job_specs import JobSpec
from pai_sdk._wire.dlc.jobs import JobQuery, JobReference, JobUpdate, NewJob
from pai_sdk._wire.dlc.limits import PRIORITIES
from pai_sdk._wire.dlc.records import JobDetail, JobItem
from pai_sdk._wire.dlc.resources.tags import Tag
from pai_sdk._wire.dlc.status import has_command_ended, is_terminal, statuses_for
from pai_sdk._wire.dlc.uris import internal_endpoint, without_endpoint
from pai_sdk._wire.pai.record import ErrorInfo, InstanceUsage, JobRecord, LogPage, MetricPoint
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.secret_values import with_secrets
from pai_sdk.errors import (
    ConflictError,
    InvalidInputError,
    InvalidRequestError,
    Problem,
    StorageError,
)

if TYPE_CHECKING:
    from pai_sdk._client.tunnel.opening import JobTunnel

_log = logging.getLogger(__name__)

_MAX_DETAILS = 256  # jobs that are kept for the readers of their logs
_CHECKPOINTS = "/ml/output/checkpoints"
_NO_EFFECT_S = 60.0  # a change of the priority is visible so long after the request, at most
_UPDATE_PAUSE_S = 5.0


class DlcBackend(OssFiles):
    """Submits jobs to DLC and stores their files in OSS. Thread-safe."""

    def __init__(
        self,
        connection: Connection,
        *,
        jobs: DlcJobs | None = None,
        create_timeout_s: float = 120.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        connection.require_endpoint()
        self._settings = connection.settings
        self._create_timeout_s = create_timeout_s
        self._transport = Transport(
            Endpoint(self._settings.dlc_url, connection.find_again),
            connection.credentials,
            version=VERSION,
            retry=connection.retry,
        )
        self._jobs = jobs or DlcJobs(self._transport)
        self._lock = threading.Lock()  # guards the details
        self._details: OrderedDict[str, tuple[float, JobDetail]] = OrderedDict()  # when they were read
        self._clock = clock
        self._logs = DlcLogs(self._jobs, _weak(self._detail), clock)

    @classmethod
    def open(cls, connection: Connection) -> DlcBackend:
        """Opens the backend of a session."""
        return cls(connection)

    def __repr__(self) -> str:
        return f"<DlcBackend {self.endpoint}>"

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities of DLC."""
        return DLC.capabilities

    @property
    def endpoint(self) -> str:
        """Returns the endpoint of the API."""
        return self._transport.endpoint

    @property
    def mount_endpoint(self) -> str | None:
        """Returns the endpoint in URIs of mounts; None for a service of this package, which has one storage."""
        if not host_of(self.endpoint).endswith(".aliyuncs.com"):
            return None
        return internal_endpoint(host_of(self._settings.oss_url))

    @property
    def dedupes(self) -> bool:
        """Returns False: DLC recognises no repeated request."""
        return False

    @property
    def retry(self) -> RetryPolicy:
        """Returns the policy for every call."""
        return self._connection.retry

    def close(self) -> None:
        """Closes the connections, and removes the lines of logs."""
        self._transport.close()
        self._logs.close()

    # ---- before a job

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        """Uploads code, inputs and the job folder; makes the folders of outputs, which are mounted."""
        if plan.render is None:
            raise InvalidInputError(
                [Problem("plan", "is the plan of a training job", "plan again with api='dlc'")]
            )
        if plan.request.workspace_id is None:
            self._settings.require("workspace_id")
        if plan.loaded_from is not None:
            self._check_uploaded(uploaded_folders(plan.body))
        self._check_checkpoints(plan.request)
        self._upload_trees(plan, progress=progress)
        for channel in plan.request.output_channels:
            if (channel.output_uri or "").startswith("oss://"):
                self._make_folder(OssUri.parse(channel.output_uri or ""))

    def original(self, job_id: str) -> OriginalJob:
        """Returns a job with all that a copy needs."""
        return OriginalJob.read(self._read_detail(job_id), self.read_file)

    def _make_folder(self, uri: OssUri) -> None:
        """Writes the marker object of a folder; an existing one stays."""
        try:
            self.files().put_bytes(uri.as_dir(), b"", overwrite=False)
        except StorageError as error:
            if error.code != "FileAlreadyExists":
                raise

    def _check_checkpoints(self, request: TrainingJobRequest) -> None:
        """Refuses a folder of checkpoints that a running job of this user writes: both would see each other's."""
        uri = next((each.output_uri for each in request.output_channels if each.name == "checkpoints"), None)
        if uri is None or f"/{request.training_job_name}/" in uri:  # the default: a folder of the job itself
            return
        key = request.label(SUBMISSION_LABEL)
        running = JobQuery(workspace_id=self._workspace_of(request), show_own=True, status="Running")
        for job in self._jobs.list(running):
            sources = [source for source in job.data_sources if source.mount_path == _CHECKPOINTS and source.uri]
            is_same = any(without_endpoint(source.uri or "").rstrip("/") == uri.rstrip("/") for source in sources)
            if is_same and submission_of(job) != key:
                hint = "stop it, or give another checkpoints_path; a DLC job sees the folder itself, not a copy"
                raise InvalidInputError([Problem("checkpoints_path", f"job {job.job_id} runs on {uri}", hint)])

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Calls CreateJob once, in the workspace of the settings unless the request names one."""
        return self.send(plan).job_id or ""

    def send(self, plan: Plan) -> JobReference:
        """Calls CreateJob once, and returns the response."""
        request = plan.request.model_copy(update={"workspace_id": self._workspace_of(plan.request)})
        request = request.model_copy(update={"environments": with_secrets(request.environments)})
        body = _with_password(replace(plan, request=request).body)
        return self._jobs.create_once(body, response_timeout_s=self._create_timeout_s)

    def _workspace_of(self, request: TrainingJobRequest) -> str | None:
        return request.workspace_id or self._settings.workspace_id

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        """Returns the jobs with the key of a submission in their variables or tags, the oldest first."""
        key = request.label(SUBMISSION_LABEL)
        # Plans of one idempotency key have names of their own.
        name = None if request.label(IDEMPOTENCY_LABEL) else request.training_job_name
        query = JobQuery(
            workspace_id=self._workspace_of(request),
            display_name=name,
            show_own=True,
            start_time=BEGINNING if of_any_age else None,
            sort_by="GmtCreateTime",
            order="desc",
        )
        ids = [item.job_id or "" for item in self._jobs.list(query) if self._belongs_to(item, key)]
        return [*dict.fromkeys(ids)][::-1]

    def _belongs_to(self, item: JobItem, key: str | None) -> bool:
        entry_key = submission_of(item)
        # A list may show neither variables nor tags.
        return key == (submission_of(self._jobs.get(item.job_id or "")) if entry_key is None else entry_key)

    # ---- a job

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """Calls GetJob; the service has no long polls."""
        record = record_of(self._read_detail(job_id))
        return changed_from if changed_from == record else record

    def _read_detail(self, job_id: str) -> JobDetail:
        detail = self._jobs.get(job_id)
        with self._lock:
            self._details[job_id] = (self._clock(), detail)
            self._details.move_to_end(job_id)
            if len(self._details) > _MAX_DETAILS:
                self._details.popitem(last=False)
        return detail

    def _detail(self, job_id: str, max_age_s: float) -> JobDetail:
        """Returns a job as it was at most `max_age_s` ago."""
        with self._lock:
            read_at, detail = self._details.get(job_id, (0.0, None))
        if detail is not None and self._clock() - read_at <= max_age_s:
            return detail
        return self._read_detail(job_id)

    def changes(
        self, snapshots: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """Returns a page of the list of jobs."""
        return page_of_list(self, snapshots, since, workspace_id=self._settings.workspace_id)

    def list_page(
        self, number: int, *, workspace_id: str | None = None, start_time: str = BEGINNING, page_size: int = 100
    ) -> JobPage:
        """Returns a page of ListJobs, the newest jobs first."""
        query = JobQuery(workspace_id=workspace_id, start_time=start_time, sort_by="GmtCreateTime", order="desc")
        page = self._jobs.list_page(number, query, page_size=page_size)
        return JobPage([record_of(item) for item in page.items], page.total)

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        """Yields all matching jobs of the workspace, of any age."""
        # Several statuses of DLC have one meaning here, so the client selects.
        statuses = statuses_for(status) if status is not None else ()
        query = JobQuery(
            workspace_id=self._settings.workspace_id,
            display_name=name,
            status=statuses[0] if len(statuses) == 1 else None,
            start_time=BEGINNING,
            sort_by="GmtCreateTime",
            order="desc" if newest_first else "asc",
        )
        for item in self._jobs.list(query) if status is None or statuses else ():
            record = record_of(item)
            # The service compares names without case, and perhaps with wildcards; tags are a newer parameter.
            has_labels = (labels or {}).items() <= {each.key: each.value for each in record.labels}.items()
            if (name or "") in (record.training_job_name or "") and has_labels and status in (None, record.status):
                if skip:
                    skip -= 1
                    continue
                yield record

    def stop(self, job_id: str) -> None:
        """Calls StopJob; a job that has ended meanwhile is no error."""
        try:
            self._jobs.stop(job_id)
        except (InvalidRequestError, ConflictError):
            if not has_command_ended(word_of(self._read_detail(job_id))):
                raise

    def delete(self, job_id: str) -> None:
        """Calls DeleteJob for a job that has ended; deleting cannot be undone."""
        status = word_of(self._read_detail(job_id))
        if not is_terminal(status):
            hint = "stop it first, and wait until it has finished"
            raise InvalidInputError([Problem("JOB", f"{job_id} is {status}", hint)])
        self._jobs.delete(job_id)

    def update(self, job_id: str, changes: JobUpdates) -> None:
        """Calls UpdateJob, and reads back whether it had an effect: the service responds with success anyway."""
        job = self._read_detail(job_id)
        _check_unfinished(job_id, job)
        if changes.priority is not None:
            _check_priority(changes.priority, job)
        body = {"priority": changes.priority, "description": changes.description}
        self._jobs.update(job_id, JobUpdate(**{key: value for key, value in body.items() if value is not None}))
        if changes.priority is not None:
            self._confirm_priority(job_id, changes.priority)

    def _confirm_priority(self, job_id: str, priority: int) -> None:
        until_s = self.retry.clock() + _NO_EFFECT_S
        while (job := self._read_detail(job_id)).priority != priority:
            _check_unfinished(job_id, job)
            if self.retry.clock() >= until_s:
                problem = f"{job_id} does not show the change to {priority} after {_NO_EFFECT_S:.0f} seconds"
                raise InvalidInputError([Problem("priority", problem, "the service ignores it in some statuses")])
            self.retry.sleep(_UPDATE_PAUSE_S)

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Reads lines of a pod by number."""
        return self._logs.read(job_id, instance, start=start, limit=limit)

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """Returns None: the service does not say when a line was written."""
        return None

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        """Yields what the metric definitions match in the log, and what the job reports."""
        record = self.get(job_id)
        return with_reported(record, log_metrics(record, self._logs, name), self.files, name, since)

    def events(self, job_id: str) -> Sequence[str]:
        """Returns the events of the job, and those of its pods that are not among them."""
        events = [*self._jobs.events(job_id)]
        for pod in self._detail(job_id, 60.0).pods:
            if pod.pod_id:
                of_pod = self._jobs.pod_events(job_id, pod.pod_id)
                events += [event for event in of_pod if event not in events]
        return events

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        """Returns the resource usage of instances, by GetJobMetrics."""
        return usage_of(self._jobs, job_id, self._clock())

    def waiting_reason(self, record: JobRecord) -> WaitingReason | None:
        """Returns why a job waits; queues of quotas are read by the API of training jobs."""
        with closing(self._pai_transport()) as transport:
            quotas = Quotas(transport) if self.mount_endpoint is not None else None
            return read_reason(transport, quotas, record)

    def connect_tunnel(self, job_id: str, instance: str) -> JobTunnel:
        """Opens a tunnel through a service of this package, which runs jobs of DLC too."""
        if self.mount_endpoint is not None:
            raise not_entered(self.endpoint)
        return open_tunnel(self._pai_transport(), job_id, instance)

    def _pai_transport(self) -> Transport:
        """Returns a transport to the API of training jobs."""
        connection, endpoint = self._connection, Endpoint(self._settings.pai_url, self._connection.find_again)
        return Transport(endpoint, connection.credentials, version=training_jobs.VERSION, retry=connection.retry)

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Returns the reason of a failed job."""
        record = self.get(job_id)
        if not record.status.is_failure:
            return None
        return ErrorInfo(code=record.reason_code, message=record.reason_message)

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Calls TagResources: adds or replaces tags."""
        self._jobs.tag(job_id, [Tag(key=key, value=value) for key, value in labels.items()])


def _weak(method: Callable[[str, float], JobDetail]) -> Callable[[str, float], JobDetail]:
    """Returns a function that calls a method of an object, without a reference to the object."""
    reference = WeakMethod(method)

    def call(job_id: str, max_age_s: float) -> JobDetail:
        existing = reference()
        if existing is None:
            raise RuntimeError("the logs are read after their backend was dropped")
        return existing(job_id, max_age_s)

    return call


def _check_unfinished(job_id: str, job: JobDetail) -> None:
    """Raises InvalidInputError for a job that has ended."""
    if is_terminal(word_of(job)):
        raise InvalidInputError([Problem("JOB", f"{job_id} is {job.status}", "only unfinished jobs change")])


def _check_priority(priority: int, job: JobDetail) -> None:
    """Raises InvalidInputError for what is no priority, and for a job whose service would ignore it."""
    if type(priority) is not int or priority not in PRIORITIES:
        expected = f"an integer from {PRIORITIES[0]} to {PRIORITIES[-1]}"
        raise InvalidInputError([wrong_value("priority", priority, expected)])
    if job.resource_id is None:
        problem = "applies only to jobs in a quota; the service would ignore it"
        raise InvalidInputError([Problem("priority", problem)])


def _with_password(body: dict[str, Any]) -> dict[str, Any]:
    """Returns a body with the password of a private image, which plans have as a placeholder."""
    job = received(NewJob, body)
    if not any(spec.image_config and spec.image_config.password for spec in job.job_specs):
        return body
    return job.model_copy(update={"job_specs": [_spec_with_password(spec) for spec in job.job_specs]}).to_wire()


def _spec_with_password(spec: JobSpec) -> JobSpec:
    config = spec.image_config
    if config is None or config.password is None:
        return spec
    value = with_secrets({"image_password": config.password}) or {}
    return spec.model_copy(
        update={"image_config": config.model_copy(update={"password": value["image_password"]})}
    )
