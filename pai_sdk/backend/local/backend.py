"""The backend that runs jobs in Docker on this machine. All it knows is in the jobs' folders and in the engine."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pai_sdk.agent.sandbox import RESUMED_CHANNELS
from pai_sdk.backend.base import InstanceEntry, JobChanges, Plan, Purpose, Upload
from pai_sdk.backend.connection import Connection
from pai_sdk.backend.local.job_files import InputCache, copy_output, copy_tree
from pai_sdk.backend.local.jobs import LocalJobs
from pai_sdk.backend.local.readers import Readers
from pai_sdk.backend.local.retries import LocalRetries
from pai_sdk.backend.local.support import (
    check_supported,
    file_errors_explained,
    file_path,
    file_uri,
    links_notice,
    unused_locally,
)
from pai_sdk.backend.local.uploading import LocalOutputs
from pai_sdk.backend.local.watching import LatestMetrics, LocalLogs, metric_values
from pai_sdk.backend.places import LOCAL, Capabilities
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.code.package import package_code
from pai_sdk.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ObjectNotFoundError,
    Problem,
    StorageError,
)
from pai_sdk.execution.base import Mounts
from pai_sdk.execution.contract import launch_spec
from pai_sdk.execution.docker.containers import tolerate_missing_engine
from pai_sdk.execution.docker.entry import find_container_entry, usage_of_job
from pai_sdk.execution.docker.executor import DockerExecutor
from pai_sdk.execution.output_uploader import UPLOAD_INTERVAL_S, record_resumed
from pai_sdk.run.store.stored_checkpoints import unfinished_files
from pai_sdk.schemas.record import (
    ErrorInfo,
    FailedInstance,
    InstanceUsage,
    JobRecord,
    LogPage,
    MetricPoint,
    from_time,
)
from pai_sdk.schemas.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.schemas.secret_values import with_secrets
from pai_sdk.schemas.spec import CodeDir, OssLocation
from pai_sdk.schemas.wire import wire_time
from pai_sdk.storage.store import Store, open_store
from pai_sdk.storage.stores.oss import OssStore
from pai_sdk.storage.transfer import download
from pai_sdk.storage.tree import FileTree
from pai_sdk.storage.uri import OssUri

if TYPE_CHECKING:
    from pai_sdk.storage.oss.client import OssClient

logger = logging.getLogger(__name__)

_LOOK_S = 0.05
_LOOK_AT_ONE_S = 0.01  # for each of many jobs, so that looking at them costs a small part of a core
_STATE = "state"
_WAITS_AGAIN_WITHIN_S = 30.0  # who waits for a job asks for its state every few seconds
_READS_ON_WITHIN_S = 600.0  # a pager may show a page of a log for minutes


class LocalBackend:
    """Runs jobs in containers on this machine. Safe to use from several threads, and from several processes.

    It keeps no state: `LocalJobs` has the jobs' folders, the executor their containers. What is kept in memory are
    caches, each with a lock of its own; none of these is held while the engine or OSS is asked.

    Args:
        data_dir: the folder with jobs, default outputs and caches; `PAI_LOCAL_DIR` or `~/.pai/local` otherwise.
        files: gives the client that reads and writes `oss://`, when a job needs it; for a job that was submitted
            with an embedded service, it is given the folder of that service.
        embedded_dir: the folder of the embedded service of the session.
        executor: runs the containers.
        upload_interval_s: how often the live outputs of a running job are sent to `oss://`.

    Example:
        >>> backend = LocalBackend(Path("/srv/pai"))
        >>> backend.default_output("digits-x7k2", "model")
        'file:///srv/pai/outputs/digits-x7k2/model/'
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        files: Callable[[Path | None], OssClient] | None = None,
        embedded_dir: Path | None = None,
        executor: DockerExecutor | None = None,
        upload_interval_s: float = UPLOAD_INTERVAL_S,
    ) -> None:
        self.upload_interval_s = upload_interval_s
        named = data_dir or Path(os.environ.get("PAI_LOCAL_DIR") or "~/.pai/local")
        self.data_dir = named.expanduser().absolute()
        self._files = files
        self._embedded_dir = embedded_dir
        cache = self.data_dir / "cache"
        self._executor = executor or DockerExecutor(
            pip_cache=cache / "pip", requirements_dir=cache / "requirements"
        )
        self._jobs = LocalJobs(self.data_dir / "jobs")
        self._cache = InputCache(self.data_dir / "cache" / "oss")
        self._logs = LocalLogs()
        self._latest = LatestMetrics()
        self._outputs = LocalOutputs(self._jobs, self._executor, self._oss, self._latest)
        self._retries = LocalRetries(self._jobs, self._executor, self._launch)
        self._waiting = Readers("waiting.lock", forgotten_after_s=_WAITS_AGAIN_WITHIN_S)
        self._readers = Readers("readers.lock", forgotten_after_s=_READS_ON_WITHIN_S)

    @classmethod
    def open(cls, connection: Connection) -> LocalBackend:
        """The backend of a session."""
        return cls(files=connection.files_of_local_jobs, embedded_dir=connection.embedded_dir)

    def __repr__(self) -> str:
        return f"<LocalBackend {self.data_dir}>"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of Docker on this machine."""
        return LOCAL.capabilities

    @property
    def endpoint(self) -> str:
        """The Docker engine of this machine."""
        return "docker"

    def close(self) -> None:
        """Close the connections to the engine; jobs continue."""
        self._waiting.close()
        self._readers.close()
        self._executor.close()

    # ---- before a job

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        """The folder of the files: they are copied (code) or mounted (inputs) from there."""
        return file_uri(tree.root, folder=True)

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        """A file or folder of this machine is used where it is."""
        return file_uri(path, folder=folder)

    def code_dir(self, uri: str) -> CodeDir:
        """The code folder of a job, on this machine or in OSS."""
        if uri.startswith("oss://"):
            where = OssUri.parse(uri)
            return CodeDir.oss(where.bucket, where.key, endpoint=where.endpoint)
        return CodeDir.local(str(file_path(uri)))

    def default_output(self, job_folder: str, channel: str) -> str:
        """A folder of the job's own below the data folder."""
        return file_uri(self.data_dir / "outputs" / job_folder / channel, folder=True)

    @property
    def dedupes(self) -> bool:
        """True: a lock and the submission label make one job of a submission, whichever processes create it."""
        return True

    @property
    def retry(self) -> RetryPolicy:
        """The default; the engine is asked once."""
        return RetryPolicy()

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        """See that the job can run here. Its files stay where they are, and are copied when it is created.

        Raises:
            InvalidInputError: the request asks for what cannot be done here; all of it is listed.
            EngineNotFoundError: no Docker engine responds.
        """
        check_supported(plan.request)
        _ = self._executor.engine  # without one, nothing needs to be copied
        unused = unused_locally(plan.request)
        if unused:
            logger.warning("local jobs do not use: %s", ", ".join(unused))

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Copy code and inputs, and start the containers; where that fails, nothing is left behind.

        Raises:
            ImageError: the image cannot be had.
            LocalRunError: a file or folder of the job cannot be written.
        """
        request = plan.request
        with file_errors_explained(self.data_dir), self._jobs.submitting(request) as (job_id, is_new):
            if not is_new:
                logger.info("this plan was submitted by another process: it is job %s", job_id)
                return job_id
            try:
                self._start(job_id, plan, progress=progress)
            except BaseException as error:
                # Its folder last: containers whose folder is gone could not be found by the job's id any more.
                with tolerate_missing_engine():
                    self._executor.remove(self._jobs.sandbox(job_id).root)
                if isinstance(error, KeyboardInterrupt):  # its traceback is not about the job
                    raise KeyboardInterrupt(f"{job_id} was cancelled before it started") from None
                raise
            return job_id

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        """The job with the submission label of a request, if there is one."""
        return [*filter(None, [self._jobs.job_of(request.label(SUBMISSION_LABEL) or "")])]

    def _start(self, job_id: str, plan: Plan, *, progress: bool) -> None:
        request, sandbox = plan.request, self._jobs.sandbox(job_id)
        sandbox.create(request)
        if self._embedded_dir is not None:
            with self._jobs.changing(job_id) as facts:
                facts["embedded"] = str(self._embedded_dir)
        self._fill(request, plan.uploads, sandbox.usercode, progress=progress)
        mounts = _mounts(request)
        for channel in request.input_channels:
            if channel.name in mounts.inputs:
                notice = links_notice(channel.name, mounts.inputs[channel.name])
                if notice:
                    logger.warning("%s", notice)
            else:
                folder = sandbox.input_dir(channel.name)
                self._cache.fill(self._oss(), OssUri.parse(channel.input_uri or ""), folder, progress=progress)
        for output in request.output_channels:
            if output.name in mounts.outputs:
                mounts.outputs[output.name].mkdir(parents=True, exist_ok=True)
            elif output.name in RESUMED_CHANNELS:
                self._bring_back(output.output_uri or "", sandbox.output_dir(output.name), progress=progress)
        record_resumed(self._executor.files(sandbox.root), [output.name for output in request.output_channels])
        self._launch(job_id, progress=progress)

    def _launch(self, job_id: str, *, progress: bool = False) -> None:
        """Start the containers of a job whose folder is filled.

        Raises:
            InvalidInputError: a variable that a `Secret` names is not set in this process.
        """
        request = self._jobs.request(job_id)
        request = request.model_copy(update={"environments": with_secrets(request.environments)})
        spec = launch_spec(self._jobs.sandbox(job_id).root, job_id, request, mounts=_mounts(request))
        self._executor.start(spec, progress=progress)
        self._outputs.ensure_uploading(job_id, self.upload_interval_s)

    def _bring_back(self, uri: str, folder: Path, *, progress: bool) -> None:
        """Fetch the files of an earlier job from a folder that this job continues with, if there are any."""
        source = OssUri.parse(uri).as_dir()
        skip = unfinished_files(OssStore(self._oss(), source))
        with suppress(ObjectNotFoundError):
            download(self._oss(), source, folder, progress=progress, skip=skip)

    def _fill(
        self, request: TrainingJobRequest, uploads: Sequence[Upload], usercode: Path, *, progress: bool
    ) -> None:
        """Put the code into the sandbox: a copy, so that neither the job nor its author disturbs the other."""
        code = request.code_dir or (request.algorithm_spec.code_dir if request.algorithm_spec else None)
        if code is None:
            return
        location = code.location_value
        if isinstance(location, OssLocation):
            uri = OssUri(location.bucket, location.key, location.endpoint)
            download(self._oss(), uri, usercode, progress=progress)
            return
        root = Path(code.local_path)
        planned = [upload.tree for upload in uploads if upload.tree.root == root or file_path(upload.uri) == root]
        if not planned:  # a plan that was saved and loaded again
            planned = [package_code(root)]
        copy_tree(planned[0], usercode)

    # ---- a job

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """The job as it is now. The first call that sees its end also saves outputs that go to OSS."""
        deadline = time.monotonic() + wait_s
        while True:
            record = self._look_for_waiter(job_id)
            is_news = changed_from is None or _differs(record, changed_from)
            if is_news or time.monotonic() >= deadline:
                return record
            time.sleep(_LOOK_S)

    def changes(
        self, known: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """The jobs that differ from their snapshots: from the folders of the jobs, and one list of the engine."""
        deadline = time.monotonic() + wait_s
        while True:
            self._executor.refresh_many(self._jobs.folder / job_id for job_id in known)
            records, missing = dict[str, JobRecord](), set[str]()
            for job_id, before in known.items():
                try:
                    record = self._look_for_waiter(job_id)
                except NotFoundError:
                    missing.add(job_id)
                    continue
                if before is None or _differs(record, before):
                    records[job_id] = record
            if records or missing or time.monotonic() >= deadline:
                return JobChanges(records, frozenset(missing))
            time.sleep(max(_LOOK_S, _LOOK_AT_ONE_S * len(known)))

    def _look_for_waiter(self, job_id: str) -> JobRecord:
        """The job as it is now. Until it has ended, `prune` leaves it alone, because the caller will ask again."""
        root = self._jobs.sandbox(job_id).root
        self._waiting.begin(root, _STATE)
        record = self._look(job_id, with_metrics=True)
        if record.status.is_terminal:
            self._waiting.end(root, _STATE)
        return record

    def _look(self, job_id: str, *, save: bool = True, with_metrics: bool = False) -> JobRecord:
        with self._jobs.may_be_deleted(job_id):
            state = self._jobs.state(job_id, self._executor)
            if state.phase == "ended":
                if save:
                    self._outputs.save(job_id)
            elif state.phase == "absent" and state.reason_code:
                if save:
                    self._retries.begin_if_due(job_id, state)
            else:
                self._outputs.ensure_uploading(job_id, self.upload_interval_s)
            record = self._jobs.record(job_id, state)
            files = partial(self._outputs.metric_files, job_id)
            if not with_metrics:
                self._latest.write(job_id, files, is_final=record.status.is_terminal)
                return record
            latest = self._latest.of(job_id, files, is_final=record.status.is_terminal)
            return record.model_copy(update={"latest_metrics": latest})

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        """All local jobs that fit, but the first `skip`."""
        return islice(self._all_jobs(status, name, labels or {}, newest_first=newest_first), skip, None)

    def _all_jobs(
        self, status: str | None, name: str | None, labels: Mapping[str, str], *, newest_first: bool
    ) -> Iterator[JobRecord]:
        ids = self._jobs.ids()
        for job_id in ids if newest_first else reversed(ids):
            try:
                record = self._look(job_id, save=False)
            except NotFoundError:  # another process has just deleted it
                continue
            carried = {label.key: label.value for label in record.labels}
            if (
                (status is None or record.status == status)
                and (name is None or name in (record.training_job_name or ""))
                and all(carried.get(key) == value for key, value in labels.items())
            ):
                yield record

    def stop(self, job_id: str) -> None:
        """Ask for an end."""
        self._jobs.stop(job_id, self._executor)

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended. Its outputs stay where they are.

        Raises:
            ConflictError: it has not ended, or its folder has outputs that could not be saved.
        """
        record = self._look(job_id)
        facts = self._jobs.facts(job_id)
        if facts.get("unsaved") and not facts.get("synced"):
            raise ConflictError(
                f"job {job_id}: {record.reason_message}; it is not deleted, since they would be lost",
                code="OutputsNotSaved",
                status_code=409,
            )
        if not record.status.is_terminal:
            raise ConflictError(
                f"job {job_id} is {record.status}; stop it first", code="TrainingJobNotEnded", status_code=409
            )
        self._executor.remove(self._jobs.sandbox(job_id).root)

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Lines of one instance's log."""
        with self._jobs.may_be_deleted(job_id) as sandbox:
            may_begin_again = self._jobs.retries(job_id).most > 0

            def is_open() -> bool:
                state = self._jobs.state(job_id, self._executor)
                if state.phase == "ended":  # also where nothing is known of this instance
                    return False
                if may_begin_again:
                    return True
                return not any(one.name == instance and one.exit_code is not None for one in state.instances)

            self._readers.begin(sandbox.root, instance)
            files = self._executor.files(sandbox.root)
            page = self._logs.read(files, instance, start, limit, wait_s=wait_s, is_open=is_open)
            if page.complete:
                self._readers.end(sandbox.root, instance)
            return page

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """Return when lines of a log were written."""
        with self._jobs.may_be_deleted(job_id) as sandbox:
            is_open = self._jobs.state(job_id, self._executor).phase != "ended"
            times = self._logs.times(self._executor.files(sandbox.root), instance, start, count, is_open=is_open)
            return [wire_time(time) for time in times]

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        """The values that the job has reported, and that its metric definitions find in its logs; oldest first."""
        with self._jobs.may_be_deleted(job_id):
            is_final = self._jobs.state(job_id, self._executor).phase == "ended"  # before the log is read
            found = metric_values(self._outputs.metric_files(job_id), name=name, is_final=is_final)
            return from_time(found, since)

    def events(self, job_id: str) -> Sequence[str]:
        """The events of the job."""
        record = self._look(job_id)
        events = [f"{one.start_time} {one.status}" for one in record.status_transitions]
        if record.reason_message and events:
            events[-1] += f": {record.reason_message}"
        return events

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        """What the containers use, by the engine."""
        self._jobs.sandbox(job_id)
        return usage_of_job(self._executor.engine, job_id)

    def enter(self, job_id: str, instance: str) -> InstanceEntry:
        """The way into the container of an instance."""
        self._jobs.sandbox(job_id)
        entry = find_container_entry(job_id, instance, self._executor.engine)
        if entry is None:
            raise InvalidInputError([Problem("JOB", f"the container of {instance} does not run")])
        return entry

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Return why the job failed, or None."""
        record = self._look(job_id)
        if not record.status.is_failure:
            return None
        state = self._executor.state(self._jobs.sandbox(job_id).root)
        code = next((one.exit_code for one in state.instances if one.name == state.failed_instance), None)
        failed = FailedInstance(instance=state.failed_instance, exit_code=code)
        return ErrorInfo(
            code=record.reason_code,
            message=record.reason_message,
            additional_info=failed.to_json() or None,
        )

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Add or replace labels."""
        with self._jobs.changing(job_id) as facts:
            facts["labels"] = {**facts.get("labels", {}), **labels}

    def store(self, uri: str) -> Store:
        """The folder of an output as a store."""
        return open_store(uri, client=self._oss() if uri.startswith("oss://") else None)

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Fetch a file or a folder that a job left."""
        if uri.startswith("oss://"):
            return download(self._oss(), OssUri.parse(uri), target, progress=progress)
        source = file_path(uri)
        if not source.exists():
            raise ObjectNotFoundError(f"{source}: there is no such file or folder", uri=uri)
        if source.is_dir():
            if not any(
                files for _, _, files in os.walk(source)
            ):  # OSS, where jobs run later, has no empty folders
                raise ObjectNotFoundError(f"{source}: there is no file in it", uri=uri)
            if not (target.exists() and target.samefile(source)):  # it may be where it is wanted already
                copy_output(source, target)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(source, target))

    def prune(self) -> Sequence[str]:
        """Remove every local job that has ended, and the containers of jobs whose folder is gone.

        Outputs stay where they are. So does a job that is being read or waited for, here or in another process.

        Returns:
            The jobs that were removed.
        """
        removed = [job_id for job_id in self._jobs.ids() if self._prune(job_id)]
        for folder in self._jobs.remnants():
            shutil.rmtree(folder, ignore_errors=True)
        return [*removed, *self._executor.sweep()]

    def _prune(self, job_id: str) -> bool:
        """Remove a job if it has ended and is not being read; whether it was removed."""
        try:
            if not self._look(job_id).status.is_terminal:
                return False
            root = self._jobs.sandbox(job_id).root
            with self._waiting.kept_out(root) as is_known, self._readers.kept_out(root) as is_unread:
                if not (is_known and is_unread):
                    logger.warning("%s is being read or waited for, and is not removed; prune later", job_id)
                    return False
                self.delete(job_id)
        except (ConflictError, NotFoundError, FileNotFoundError):  # another process has removed it
            return False
        return True

    def _oss(self, job_id: str | None = None) -> OssClient:
        """The client for `oss://`; for a job, that of the service with which it was submitted."""
        if self._files is None:
            raise StorageError("oss:// needs a session with a region and a bucket, or an endpoint")
        embedded = self._jobs.facts(job_id).get("embedded") if job_id is not None else None
        return self._files(None if embedded is None else Path(embedded))


def _mounts(request: TrainingJobRequest) -> Mounts:
    """The files and folders of this machine that a job uses where they are."""
    inputs = {channel.name: channel.input_uri or "" for channel in request.input_channels}
    outputs = {channel.name: channel.output_uri or "" for channel in request.output_channels}
    return Mounts(
        {name: file_path(uri) for name, uri in inputs.items() if not uri.startswith("oss://")},
        {name: file_path(uri) for name, uri in outputs.items() if uri.startswith("file:")},
    )


def _differs(record: JobRecord, before: JobRecord) -> bool:
    def shown(one: JobRecord) -> tuple[object, ...]:
        return one.status, one.reason_message, one.instances, one.labels, one.latest_metrics

    return shown(record) != shown(before)
