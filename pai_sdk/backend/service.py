"""Jobs on a service that speaks PAI's API: Alibaba Cloud's, or one of your own."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.api import submission, training_jobs, workspaces
from pai_sdk.api.algorithms import Algorithms
from pai_sdk.api.experiments import Experiments
from pai_sdk.api.images import Images
from pai_sdk.api.job_logs import JobLogs
from pai_sdk.api.service_runs import ServiceRuns
from pai_sdk.api.submission import SubmissionPolicy
from pai_sdk.api.training_jobs import TrainingJobs
from pai_sdk.api.transport import Transport
from pai_sdk.api.workspaces import Workspaces
from pai_sdk.backend.base import JobChanges, Plan, Purpose
from pai_sdk.backend.many_jobs import changes_of_many, changes_of_one, page_of_list
from pai_sdk.base.endpoint import Endpoint, host_of
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.config.credentials import CredentialsProvider
from pai_sdk.config.settings import Settings
from pai_sdk.errors import InvalidInputError, InvalidRequestError, NotFoundError, Problem, StorageError
from pai_sdk.schemas.record import ErrorInfo, JobRecord, LogPage, MetricPoint
from pai_sdk.schemas.request import TrainingJobRequest
from pai_sdk.schemas.secret_values import with_secrets
from pai_sdk.schemas.spec import CodeDir, OssLocation
from pai_sdk.schemas.wire import seconds_of
from pai_sdk.storage.placed import is_whole
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss import OssClient
    from pai_sdk.storage.store import Store

_log = logging.getLogger(__name__)

_FOLDERS: Mapping[Purpose, str] = {"code": "pai/code", "input": "pai/input_data"}
_CLOCKS_DIFFER_S = 300.0  # those of the service and of an instance
_FOR_A_JOB = ("region_id", "workspace_id", "oss_bucket_name")


class ServiceBackend:
    """Submits jobs to the PAI API and keeps their files in OSS. Safe to use from several threads.

    Args:
        settings: where.
        credentials: gives the key that is valid now.
        retry: the policy for every call.
        find_again: called when nothing listens at an endpoint, before the next attempt, and before files are
            moved: the embedded service keeps them too. Returns its endpoint when it has moved.
        timeout_s: for a connection to come up, and for the longest silence within an answer, in seconds.
        submission_policy: how long a create, and the search for its job, may take.

    Raises:
        SettingsError: neither an endpoint nor a region is set; what else a job needs is named with it.

    Example:
        >>> from pai_sdk.config.credentials import static_credentials
        >>> settings = Settings(region_id="cn-hangzhou", workspace_id="1", oss_bucket_name="models")
        >>> backend = ServiceBackend(settings, static_credentials("LTAI-example", "secret"))
        >>> backend.default_output("digits-x7k2", "model")
        'oss://models/pai/training_job/digits-x7k2/model/'
    """

    def __init__(
        self,
        settings: Settings,
        credentials: CredentialsProvider,
        *,
        retry: RetryPolicy | None = None,
        find_again: Callable[[], str | None] | None = None,
        timeout_s: tuple[float, float] = (5.0, 30.0),
        submission_policy: SubmissionPolicy | None = None,
    ) -> None:
        if not settings.endpoint:
            settings.require(*([] if settings.region_id else _FOR_A_JOB))
        self._settings = settings
        self._credentials = credentials
        self._retry = retry or RetryPolicy()
        self._find_again = find_again
        self._timeout_s = timeout_s
        self._submission = submission_policy or SubmissionPolicy()
        self._transport = self._new_transport(settings.pai_url, training_jobs.VERSION)
        self._jobs = TrainingJobs(self._transport)
        self._logs = JobLogs(self._transport)
        self._lock = threading.Lock()
        self._to_workspaces: Transport | None = None
        self._oss_endpoint: Endpoint | None = None
        self._oss: OssClient | None = None
        self._reads_reports = False  # until the service announces it

    def __repr__(self) -> str:
        return f"<ServiceBackend {self._transport.endpoint}>"

    @property
    def endpoint(self) -> str:
        """The endpoint of the PAI API."""
        return self._transport.endpoint

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()
        with self._lock:
            opened, self._oss, self._to_workspaces = (self._oss, self._to_workspaces), None, None
        for client in opened:
            if client is not None:
                client.close()

    # ---- before a job

    def place(self, tree: FileTree, purpose: Purpose) -> str:
        """A folder named by the content: the same files are never uploaded twice."""
        return f"{self._bucket()}/{_FOLDERS[purpose]}/{tree.digest[:32]}/"

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        """None: jobs of a service do not see this machine."""
        return None

    def code_dir(self, uri: str) -> CodeDir:
        """The code folder of a job whose code lies at that URI."""
        where = OssUri.parse(uri)
        return CodeDir.oss(where.bucket, where.key, endpoint=where.endpoint or host_of(self._settings.oss_url))

    def default_output(self, job_name: str, channel: str) -> str:
        """A folder of the job's own, in the bucket of the settings."""
        return f"{self._bucket()}/pai/training_job/{job_name}/{channel}/"

    def submit(self, plan: Plan, *, progress: bool = True) -> str:
        """Upload the plan's files, then create the job; one job, whatever faults happen on the way."""
        if plan.request.workspace_id is None:
            self._settings.require("workspace_id")
        if plan.loaded_from is not None:
            self._require_in_place(plan.request)
        with_secrets(plan.request.environments)  # what is missing is reported before anything is uploaded
        if plan.uploads:
            from pai_sdk.storage.transfer import upload_tree

            client = self.files()
            for upload in plan.uploads:
                upload_tree(client, upload.tree, OssUri.parse(upload.uri), progress=progress)
        request = plan.request
        if request.workspace_id is None:
            request = request.model_copy(update={"workspace_id": self._settings.workspace_id})
        request = request.model_copy(update={"environments": with_secrets(request.environments)})
        return submission.create(self._jobs, request, doubt=plan.doubt, policy=self._submission)

    @property
    def algorithms(self) -> Algorithms:
        """The registered algorithms of the workspace."""
        return Algorithms(self._transport, self._settings.workspace_id)

    @property
    def experiments(self) -> Experiments:
        """The experiments of the workspace."""
        return Experiments(self._workspace_transport(), self._settings.workspace_id)

    @property
    def images(self) -> Images:
        """The images that the service offers."""
        return Images(self._workspace_transport())

    @property
    def runs(self) -> ServiceRuns:
        """The runs of the service, where it offers them."""
        return ServiceRuns(self._transport)

    @property
    def workspaces(self) -> Workspaces:
        """The workspaces that the key may see."""
        return Workspaces(self._workspace_transport())

    # ---- a job

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """The job's current record; a service with long polls answers when it changes."""
        return self._jobs.get(job_id, changed_from=changed_from, wait_s=wait_s)

    def changes(
        self, known: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """The jobs that have changed, where the service offers that; otherwise a page of its list of jobs."""
        if len(known) == 1:
            return changes_of_one(self._jobs, *next(iter(known.items())), wait_s=wait_s)
        if self._jobs.offers_changes:
            try:
                return changes_of_many(self._jobs, known, since, wait_s=wait_s)
            except (NotFoundError, InvalidRequestError) as error:  # its place was taken by an older service
                _log.info("the service has no changes any more: %s", error)
                self._jobs.offers_changes = False
        return page_of_list(self._jobs, known, since, workspace_id=self._settings.workspace_id)

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
    ) -> Iterator[JobRecord]:
        """All jobs of the workspace that fit, however old; of all workspaces when none is set."""
        return self._jobs.list(
            status=status,
            name=name,
            labels=labels,
            workspace_id=self._settings.workspace_id,
            newest_first=newest_first,
        )

    def stop(self, job_id: str) -> None:
        """Ask for an end."""
        self._jobs.stop(job_id)

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended."""
        self._jobs.delete(job_id)

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Lines of one instance's log."""
        return self._logs.read(job_id, instance, start=start, limit=limit, wait_s=wait_s)

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """When lines of a log were written, where the service offers it."""
        return self._logs.times(job_id, instance, start=start, count=count)

    def metrics(self, job_id: str, *, name: str | None = None) -> Iterator[MetricPoint]:
        """The job's metric values, oldest first.

        A service that does not announce that it reads reports is Alibaba Cloud's: there they are read from the
        event files in the job's output `tensorboard`, as far as they are saved.
        """
        from pai_sdk.run.reported import reported_metrics
        from pai_sdk.storage.oss_store import OssStore

        found = self._jobs.metrics(job_id, name=name)
        if self._reads_reports:
            return found
        record = self._jobs.get(job_id)
        self._reads_reports = record._reads_reports
        uri = record.outputs.get("tensorboard", "")
        if self._reads_reports or not uri.startswith("oss://"):
            return found
        try:
            store = OssStore(self.files(), OssUri.parse(uri))
            reported = reported_metrics(
                store, name=name, since=(seconds_of(record.gmt_create_time) or 0.0) - _CLOCKS_DIFFER_S
            )
        except StorageError as error:
            _log.warning("the metrics that job %s has reported cannot be read: %s", job_id, error)
            return found
        return heapq.merge(found, reported, key=lambda point: point.timestamp or "")

    def events(self, job_id: str) -> Sequence[str]:
        """What happened to the job."""
        return self._jobs.events(job_id)

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Why the job failed, or None."""
        return self._jobs.error_info(job_id)

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Add or replace labels."""
        self._jobs.update_labels(job_id, labels)

    def store(self, uri: str) -> Store:
        """The folder of an output as a store."""
        from pai_sdk.storage.store import open_store

        return open_store(uri, client=self.files() if uri.startswith("oss://") else None)

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Fetch a file or a folder that a job left."""
        from pai_sdk.storage.transfer import download

        return download(self.files(), OssUri.parse(uri), target, progress=progress)

    # ---- what they share

    def _workspace_transport(self) -> Transport:
        with self._lock:
            if self._to_workspaces is None:
                self._to_workspaces = self._new_transport(self._settings.aiworkspace_url, workspaces.VERSION)
            return self._to_workspaces

    def _new_transport(self, url: str, version: str) -> Transport:
        return Transport(
            Endpoint(url, self._find_again),
            self._credentials,
            version=version,
            retry=self._retry,
            timeout_s=self._timeout_s,
        )

    def _require_in_place(self, request: TrainingJobRequest) -> None:
        """See that an earlier submission has uploaded what this request counts on; for one that comes from a file.

        Raises:
            InvalidInputError: something is not in OSS. What was never placed by `place` is not looked at.
        """
        ours = tuple(f"{self._bucket()}/{folder}/" for folder in _FOLDERS.values())
        code = request.code_dir or (request.algorithm_spec.code_dir if request.algorithm_spec else None)
        counted_on = {f"inputs[{c.name!r}]": c.input_uri or "" for c in request.input_channels}
        if code is not None and isinstance(code.location_value, OssLocation):
            counted_on["source_dir"] = f"oss://{code.location_value.bucket}/{code.location_value.key}"
        hint = "submit the plan where it was made, or plan again"
        problems = [
            Problem(where, f"its files are not in {uri}", hint)
            for where, uri in counted_on.items()
            if uri.startswith(ours) and not is_whole(self.files(), _placed_folder(uri))
        ]
        if problems:
            raise InvalidInputError(problems)

    def _bucket(self) -> str:
        self._settings.require(*_FOR_A_JOB)
        return f"oss://{self._settings.oss_bucket_name}"

    def files(self) -> OssClient:
        """The client of the object storage; made when first needed."""
        with self._lock:
            self._oss_endpoint = self._oss_endpoint or Endpoint(self._settings.oss_url, self._find_again)
        self._oss_endpoint.revive()
        with self._lock:
            if self._oss is None:
                from pai_sdk.storage.oss import OssClient

                self._oss = OssClient(
                    self._oss_endpoint,
                    self._credentials,
                    region=self._settings.region_id,
                    retry=self._retry,
                    trusted_endpoints=self._settings.trusted_endpoints,
                )
            return self._oss


def _placed_folder(uri: str) -> OssUri:
    """The folder that `place` gave, of a URI that is in it: `oss://bucket/pai/code/<hash>/…`."""
    return OssUri.parse("/".join(uri.split("/")[:6]) + "/")
