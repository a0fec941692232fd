"""Backend for a service with PAI's API: Alibaba Cloud's, or one of your own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pai_sdk._client.api import training_jobs
from pai_sdk._client.api.job_logs import JobLogs
from pai_sdk._client.api.page_links import new_page_link
from pai_sdk._client.api.training_jobs import BEGINNING, TrainingJobs
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.backend.base import JobChanges, Plan
from pai_sdk._client.backend.connection import Connection
from pai_sdk._client.backend.many_jobs import changes_of_many, page_of_list
from pai_sdk._client.backend.oss_files import OssFiles
from pai_sdk._client.backend.queueing import WaitingReason, read_reason
from pai_sdk._client.backend.service_metrics import ServiceMetrics, usage_of
from pai_sdk._client.backend.specs import Capabilities, backend_for_type
from pai_sdk._client.backend.tunnels import not_entered, open_tunnel
from pai_sdk._core.config.credentials import CredentialsProvider
from pai_sdk._core.config.rules import api_region_of
from pai_sdk._core.config.settings import Settings
from pai_sdk._core.endpoint import Endpoint
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.notifications import NOTIFICATIONS
from pai_sdk._wire.pai.record import InstanceUsage, JobRecord, MetricPoint
from pai_sdk._wire.pai.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.secret_values import with_secrets
from pai_sdk._wire.pai.spec import OssLocation
from pai_sdk.errors import (
    InvalidInputError,
    InvalidRequestError,
    NotFoundError,
    Problem,
)

if TYPE_CHECKING:
    from pai_sdk._client.api.algorithms import Algorithms
    from pai_sdk._client.api.capacity import InstanceTypes, Quotas
    from pai_sdk._client.api.experiments import Experiments
    from pai_sdk._client.api.images import Images
    from pai_sdk._client.api.models import Models
    from pai_sdk._client.api.schedules import Schedules
    from pai_sdk._client.api.service_runs import ServiceRuns
    from pai_sdk._client.api.users import ServiceUsers
    from pai_sdk._client.api.workspaces import Workspaces
    from pai_sdk._client.tunnel.opening import JobTunnel
    from pai_sdk._wire.resources.queue import QueueState

_log = logging.getLogger(__name__)


class ServiceBackend(OssFiles):
    """Submits jobs to the PAI API and stores their files in OSS. Thread-safe.

    `find_again` returns the endpoint if it has changed. It is called before the next attempt if nothing listens at
    an endpoint, and before files are transferred, since the embedded service stores them too. A `connection` that
    is passed is shared with other backends, and closed by its owner.
    """

    def __init__(
        self,
        settings: Settings,
        credentials: CredentialsProvider,
        *,
        retry: RetryPolicy | None = None,
        find_again: Callable[[], str | None] | None = None,
        timeout_s: tuple[float, float] = (5.0, 30.0),
        create_timeout_s: float = 120.0,
        connection: Connection | None = None,
    ) -> None:
        self._owns_connection = connection is None
        self._connection = connection or Connection(settings, credentials, retry, find_again)
        self._connection.require_endpoint()
        self._settings = settings
        self._timeout_s = timeout_s
        # Between two reads of the response to a create, which is slower than other calls.
        self._create_timeout_s = create_timeout_s
        self._transport = self._new_transport(settings.pai_url, training_jobs.VERSION)
        self._jobs = TrainingJobs(self._transport)
        self._logs = JobLogs(self._transport)
        self._metrics = ServiceMetrics(self._jobs)
        # Methods of the protocol that are actions of the API as they are.
        self.get, self.stop, self.delete = self._jobs.get, self._jobs.stop, self._jobs.delete
        self.events, self.error_info = self._jobs.events, self._jobs.error_info
        self.update_labels = self._jobs.update_labels
        self.read_log, self.line_times = self._logs.read, self._logs.times
        self._lock = threading.Lock()
        self._to_workspaces: Transport | None = None
        self._to_dlc: Transport | None = None

    @classmethod
    def open(cls, connection: Connection) -> ServiceBackend:
        """Opens the backend of a session."""
        return cls(connection.settings, connection.credentials, connection=connection)

    def __repr__(self) -> str:
        return f"<ServiceBackend {self._transport.endpoint}>"

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities of the service."""
        # Only the services of this package restart interrupted jobs, and run roles.
        is_cloud = api_region_of(self.endpoint) is not None
        return Capabilities(
            uses_images=self._connection.uses_images,
            retries=not is_cloud,
            roles=not is_cloud,
            notifies=not is_cloud and self._jobs.offers_notifications,
        )

    @property
    def endpoint(self) -> str:
        """Returns the endpoint of the PAI API."""
        return self._transport.endpoint

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()
        if self._owns_connection:
            self._connection.close()
        with self._lock:
            # A concurrent call then creates another transport, instead of using a closed one.
            transports = (self._to_workspaces, self._to_dlc)
            self._to_workspaces = self._to_dlc = None
        for transport in transports:
            if transport is not None:
                transport.close()

    # ---- before a job

    @property
    def dedupes(self) -> bool:
        """Returns True if the service has announced that it detects a repeated create of one submission."""
        return "submission-dedupe" in self._transport.offers

    @property
    def retry(self) -> RetryPolicy:
        """Returns the policy for every call."""
        return self._connection.retry

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        """Uploads code and inputs to OSS; the files of a plan loaded from a file must be in OSS already."""
        # Before any upload: it would be in vain.
        workspace_id = plan.request.workspace_id or self._settings.workspace_id
        _refuse_roles(plan.request, self._transport, lambda: self._jobs.list_page(1, workspace_id=workspace_id))
        if plan.notify and not self._jobs.offers_notifications and api_region_of(self.endpoint) is None:
            self._jobs.list_page(1, workspace_id=workspace_id, page_size=1)  # lists of jobs have the offers
        if plan.request.workspace_id is None:
            self._settings.require("workspace_id")
        if plan.loaded_from is not None:
            self._check_uploaded(_folders_of(plan.request))
        self._upload_trees(plan, progress=progress)

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Calls CreateTrainingJob, in the workspace of the settings unless the request names one."""
        body = {**self._body(plan.request), **self._notifications(plan)}
        return self._jobs.create_once(body, response_timeout_s=self._create_timeout_s)

    def _notifications(self, plan: Plan) -> dict[str, Any]:
        """Returns the field with the targets of messages, for a service that sends them; never part of a plan."""
        if not plan.notify or not self.capabilities.notifies:
            return {}
        return {NOTIFICATIONS: [target.to_wire().to_wire() for target in plan.notify]}

    def _body(self, request: TrainingJobRequest) -> dict[str, Any]:
        """Returns the body of a request, with its workspace and the values of secrets."""
        if request.workspace_id is None:
            request = request.model_copy(update={"workspace_id": self._settings.workspace_id})
        return request.model_copy(update={"environments": with_secrets(request.environments)}).to_wire()

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        """Returns the jobs of a submission: those with its label, or with its name and no labels in the list."""
        label = request.label(SUBMISSION_LABEL)
        candidates = self._jobs.list(
            labels={SUBMISSION_LABEL: label or ""},
            workspace_id=request.workspace_id or self._settings.workspace_id,
            # By default a service lists the last 7 days, which include all new jobs.
            start_time=BEGINNING if of_any_age else None,
        )
        # The list is the newest first.
        return [*_jobs_of_submission(request, candidates, self._jobs.get)][::-1]

    @property
    def algorithms(self) -> Algorithms:
        """Returns the registered algorithms of the workspace."""
        resource: type[Algorithms] = _of_api("algorithms:Algorithms")
        return resource(self._transport, self._settings.workspace_id)

    @property
    def experiments(self) -> Experiments:
        """Returns the experiments of the workspace."""
        resource: type[Experiments] = _of_api("experiments:Experiments")
        return resource(self._workspace_transport(), self._settings.workspace_id)

    @property
    def models(self) -> Models:
        """Returns the registered models of the workspace."""
        resource: type[Models] = _of_api("models:Models")
        return resource(self._workspace_transport(), self._settings.workspace_id)

    @property
    def images(self) -> Images:
        """Returns the images that the service offers."""
        resource: type[Images] = _of_api("images:Images")
        return resource(self._workspace_transport())

    @property
    def runs(self) -> ServiceRuns:
        """Returns the runs of the service, where it offers them."""
        resource: type[ServiceRuns] = _of_api("service_runs:ServiceRuns")
        return resource(self._transport)

    def new_page_link(self, job_id: str | None = None) -> str:
        """Returns a link to the page of the service, which signs one browser in."""
        return new_page_link(self._transport, job_id)

    @property
    def users(self) -> ServiceUsers:
        """Returns the users of a service of this package."""
        resource: type[ServiceUsers] = _of_api("users:ServiceUsers")
        return resource(self._transport)

    @property
    def schedules(self) -> Schedules[Plan]:
        """Returns the schedules of a service of this package."""
        resource: type[Schedules[Plan]] = _of_api("schedules:Schedules")
        return resource(self._transport, self._prepare_schedule)

    def _prepare_schedule(self, plan: Plan) -> dict[str, Any]:
        """Uploads the files of a plan; returns the body with which a schedule creates its jobs."""
        if problems := list(_not_in_schedules(plan)):
            raise InvalidInputError(problems)
        body = self._body(plan.request)  # a missing secret is reported before anything is uploaded
        self.upload(plan)
        return {**body, **self._notifications(plan)}

    @property
    def instance_types(self) -> InstanceTypes:
        """Returns the instance types of the region, with their spot prices."""
        with self._lock:
            if self._to_dlc is None:
                self._to_dlc = self._new_transport(self._settings.dlc_url, _of_api("dlc_jobs:VERSION"))
            resource: type[InstanceTypes] = _of_api("capacity:InstanceTypes")
            return resource(self._transport, self._to_dlc)

    @property
    def quotas(self) -> Quotas:
        """Returns what runs and waits in quotas."""
        resource: type[Quotas] = _of_api("capacity:Quotas")
        return resource(self._transport)

    @property
    def workspaces(self) -> Workspaces:
        """Returns the workspaces that the key may see."""
        resource: type[Workspaces] = _of_api("workspaces:Workspaces")
        return resource(self._workspace_transport())

    # ---- a job

    def changes(
        self, snapshots: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """Returns changed jobs if the service supports this request; otherwise a page of its list of jobs."""
        if self._jobs.offers_changes:
            try:
                return changes_of_many(self._jobs, snapshots, since, wait_s=wait_s)
            # An older release of the service runs at this endpoint now.
            except (NotFoundError, InvalidRequestError) as error:
                _log.info("the service no longer offers ListTrainingJobChanges: %s", error)
                self._jobs.offers_changes = False
        return page_of_list(self._jobs, snapshots, since, workspace_id=self._settings.workspace_id)

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        """Yields all matching jobs of the workspace, of any age; of all workspaces if none is set."""
        return self._jobs.list(
            status=status,
            name=name,
            labels=labels,
            workspace_id=self._settings.workspace_id,
            newest_first=newest_first,
            skip=skip,
        )

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        """Yields the job's metric values, oldest first."""
        return self._metrics.read(job_id, self.files, name=name, since=since)

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        """Returns the resource usage of instances, from the last 10 minutes of the service's metrics."""
        return usage_of(self._jobs, job_id)

    def queue(self) -> QueueState | None:
        """Returns the state of the queue; None from Alibaba Cloud and from earlier releases of the service."""
        if api_region_of(self.endpoint) is not None:
            return None
        with suppress(NotFoundError):
            return self.runs.queue()
        return None

    def waiting_reason(self, record: JobRecord) -> WaitingReason | None:
        """Returns why a job waits: from the queue of its quota, or from a service of this package."""
        quotas = Quotas(self._transport) if api_region_of(self.endpoint) is not None else None
        return read_reason(self._transport, quotas, record)

    def connect_tunnel(self, job_id: str, instance: str) -> JobTunnel:
        """Opens a tunnel through the service."""
        if api_region_of(self.endpoint) is not None:
            raise not_entered(self.endpoint)
        return open_tunnel(self._transport, job_id, instance)

    # ---- shared helpers

    def _workspace_transport(self) -> Transport:
        with self._lock:
            if self._to_workspaces is None:
                self._to_workspaces = self._new_transport(
                    self._settings.aiworkspace_url, _of_api("workspaces:VERSION")
                )
            return self._to_workspaces

    def _new_transport(self, url: str, version: str) -> Transport:
        return Transport(
            Endpoint(url, self._connection.find_again),
            self._connection.credentials,
            version=version,
            retry=self._connection.retry,
            timeout_s=self._timeout_s,
        )


def _jobs_of_submission(
    request: TrainingJobRequest, candidates: Iterator[JobRecord], get: Callable[[str], JobRecord]
) -> Iterator[str]:
    """Yields the ids of the candidates that belong to the submission of a request, or may do so."""
    for record in candidates:
        if record.submission is None:  # the list may lack labels, and names are not unique
            is_candidate = record.training_job_name == request.training_job_name
            if not (is_candidate or request.label(IDEMPOTENCY_LABEL)):
                continue
            record = get(record.training_job_id)
        if record.submission in (request.label(SUBMISSION_LABEL), None):
            yield record.training_job_id


def _folders_of(request: TrainingJobRequest) -> dict[str, str]:
    """Returns the URIs of code and inputs by the parameters of submitters."""
    code = request.effective_code_dir
    uris = {f"inputs[{c.name!r}]": c.input_uri or "" for c in request.input_channels}
    if code is not None and isinstance(code.location_value, OssLocation):
        uris["source_dir"] = f"oss://{code.location_value.bucket}/{code.location_value.key}"
    return uris


def _not_in_schedules(plan: Plan) -> Iterator[Problem]:
    """Yields the parts of a plan that a schedule cannot repeat, since the client performs them."""
    if plan.resume is not None:
        yield Problem("plan", "resumes from a checkpoint, which is copied for one job", "leave out resume")
    if plan.render is not None:
        yield Problem("plan", "is the plan of a DLC job", "leave out api='dlc'")
    if plan.fallbacks:
        yield Problem("plan", "has fallback resources", "leave out fallback")
    if backend_for_type(plan.request.compute_resource.ecs_spec).is_local:
        yield Problem("plan", "is a job in Docker on this machine", "give an instance_type of the service")


def _of_api(name: str) -> Any:
    """Loads a class or a version of `api` with its models, of which submissions need few."""
    return resolve_name(f"pai_sdk._client.api.{name}")


def _refuse_roles(request: TrainingJobRequest, transport: Transport, ask: Callable[[], object]) -> None:
    """Raises InvalidInputError for roles and mounts, unless the service announces that it runs them."""
    used = [name for name in ("roles", "mounts") if getattr(request, name)]
    if used and "roles" not in transport.offers:
        ask()  # lists of jobs have the offers
    if used and "roles" not in transport.offers:
        message = "the API of training jobs of this service takes none"
        hint = "use a service of pai_sdk or instance_type='local'; on Alibaba Cloud, DLC runs them"
        raise InvalidInputError([Problem(name, message, hint) for name in used])
