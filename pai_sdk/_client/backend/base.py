"""Protocol of backends, which run requests. The other packages use only this protocol."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias

from pydantic import ValidationError

from pai_sdk._client.backend.specs import DLC, Capabilities, read_body
from pai_sdk._client.display.card import plan_card_html
from pai_sdk._core.names.aliases import Aliased
from pai_sdk._core.paths import parse_path
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.notify.targets import Target
from pai_sdk._data.storage.tree import FileTree
from pai_sdk._wire.dlc.masking import public_body
from pai_sdk._wire.dlc.names import is_new_job
from pai_sdk._wire.masking import public_request
from pai_sdk._wire.pai.compute import ComputeResource
from pai_sdk._wire.pai.record import ErrorInfo, InstanceUsage, JobRecord, LogPage, MetricPoint
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk._wire.pai.spec import CodeDir
from pai_sdk._wire.pai.wire import problems_of
from pai_sdk.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from pai_sdk._client.tunnel.opening import JobTunnel
    from pai_sdk._data.run.store.resume import ResumePoint
    from pai_sdk._data.storage.store import Store

Purpose: TypeAlias = Literal["code", "input"]


@dataclass(frozen=True)
class Upload:
    """Files that must be in place before the job is created."""

    tree: FileTree
    uri: str  # the target folder; ends with `/`
    origin: str = ""  # the user's name for files in a temporary folder


class SubmissionId(str):
    """The identity of one submission; also its label, where the request has none. Copies of a plan share it."""

    def __new__(cls) -> SubmissionId:
        """Creates a new identity."""
        return super().__new__(cls, uuid.uuid4().hex)

    def __deepcopy__(self, memo: dict[int, Any]) -> SubmissionId:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Plan cannot be pickled; for another process, use plan.save() and Plan.load()")


@dataclass(frozen=True, repr=False)
class Plan(Aliased):
    """A dry run, as a value: the exact request, and the files that must be in place before it is sent.

    Attributes:
        request: the body of CreateTrainingJob.
        uploads: the files that the request refers to.
        keep: an object that must live until the files are uploaded, such as a temporary clone.
        loaded_from: the file it was read from, if any; its uploads are then those of an earlier submission.
        resume: the checkpoint to resume from, if requested; it is copied before the job is created.
        fallbacks: the resources to request without capacity, in this order.
        notify: the targets of messages about the job; they are no part of the request, since they may be secret.
        warnings: probable mistakes; shown with the plan, and when it is submitted.
        notes: behaviour of the job that may surprise the user; shown with the plan, and when it is submitted.
        api: how the job is described to the service: `trainingjob` or `dlc`.
        render: makes the body of another API than that of training jobs from the request.
        submission: the identity of its one submission.

    Example:
        >>> plan = Plan(TrainingJobRequest.model_validate(
        ...     {"TrainingJobName": "demo", "ComputeResource": {"EcsSpec": "ecs.c6.large"}}))
        >>> '"TrainingJobName": "demo"' in plan.to_json()
        True
    """

    request: TrainingJobRequest
    uploads: tuple[Upload, ...] = ()
    keep: object = field(default=None, compare=False)
    loaded_from: Path | None = field(default=None, compare=False)
    resume: ResumePoint | None = field(default=None, compare=False)
    fallbacks: tuple[ComputeResource, ...] = field(default=(), compare=False)
    notify: tuple[Target, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    api: str = field(default="trainingjob", compare=False)
    render: Callable[[TrainingJobRequest], dict[str, Any]] | None = field(default=None, compare=False)
    submission: SubmissionId = field(default_factory=SubmissionId, compare=False, kw_only=True)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Reads a request from a JSON file: one that `save` wrote, or any body of CreateTrainingJob or CreateJob.

        The file has only the request. Files of the job must be in OSS; this is checked when it is submitted.

        Raises:
            InvalidInputError: it cannot be read, or is not a request; the error lists all problems.
        """
        path = parse_path(path, "path")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if is_new_job(content):
                request, render = read_body(DLC, content, path.name)
                return cls(request, loaded_from=path, api=DLC.capabilities.api, render=render)
            request = TrainingJobRequest.model_validate(content)
        except InvalidInputError:
            raise
        except ValidationError as error:
            # Pydantic's error quotes values, which may be secrets.
            raise InvalidInputError(problems_of(error, path.name)) from None
        except OSError as error:
            raise InvalidInputError([Problem(str(path), f"cannot be read: {error.strerror or error}")]) from error
        except ValueError as error:
            raise InvalidInputError([Problem(str(path), f"is not JSON: {error}", "see Plan.save")]) from error
        return cls(request, loaded_from=path)

    @property
    def body(self) -> dict[str, Any]:
        """The exact body that is sent: of CreateTrainingJob, or of CreateJob with `api="dlc"`."""
        return self.request.to_wire() if self.render is None else self.render(self.request)

    def to_json(self) -> str:
        """Returns the body as it will be sent, indented for reading; that of a DLC job without secrets."""
        if self.render is not None:
            return json.dumps(self.masked_body(), ensure_ascii=False, indent=2)
        return self.request.to_json(indent=2)

    def masked_body(self) -> dict[str, Any]:
        """Returns the body with masked secrets, for display."""
        return public_request(self.request) if self.render is None else public_body(self.body)

    def save(self, path: str | Path) -> Path:
        """Writes the request, with all its values, to a JSON file, for a review or a later `Plan.load`.

        Only you can read a file that this creates: values of environment variables may be secrets.

        Raises:
            InvalidInputError: the plan copies a checkpoint first, which a file cannot express.
        """
        if self.resume is not None and not self.resume.is_at_target:
            problem = "needs a copy of a checkpoint before the job is created, and a file has only the request"
            hint = "submit the plan itself, or use resume=True with checkpoints_path, which copies nothing"
            raise InvalidInputError([Problem("plan", problem, hint)])
        path = parse_path(path, "path")
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(json.dumps(self.body, ensure_ascii=False, indent=2) + "\n")
        return path

    def labelled(self) -> Plan:
        """Returns the plan with a submission label in its request; an existing label stays."""
        if self.request.label(SUBMISSION_LABEL) is not None:
            return self
        return replace(self, request=self.request.with_label(SUBMISSION_LABEL, str(self.submission)))

    def __str__(self) -> str:
        return "\n".join([json.dumps(self.masked_body(), ensure_ascii=False, indent=2), *self.remarks()])

    def remarks(self) -> list[str]:
        """Returns a line for each upload, copy, fallback, target, warning and note: what the body does not say."""
        lines = [f"upload: {line}" for line in self._upload_lines()]
        if self.resume is not None:
            lines.append(f"resume: {self.resume}")
        kinds = [f"{each.ecs_spec}{' spot' if each.spot_spec else ''}" for each in self.fallbacks]
        lines += [f"without capacity: {', then '.join(kinds)}"] if kinds else []
        lines += [f"notify: {target!r}" for target in self.notify]
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"note: {note}" for note in self.notes]
        return lines

    def __repr__(self) -> str:
        uploads = "".join(f", {line}" for line in self._upload_lines())
        return f"<Plan {self.request.training_job_name}{uploads}>"

    def _repr_html_(self) -> str:
        return plan_card_html(self.masked_body(), self.remarks())

    def _upload_lines(self) -> list[str]:
        return [f"{u.origin or u.tree.root} -> {u.uri} ({u.tree.summary()})" for u in self.uploads]


@dataclass(frozen=True)
class JobChanges:
    """The response to one request about many jobs; `Backend.changes` continues from it."""

    records: Mapping[str, JobRecord]  # jobs that may have changed, by id; other jobs are unchanged
    missing: frozenset[str] = frozenset()  # not in the response; if it is exact, they do not exist
    # True: the records equal those of `get`. False: they are entries of a list, with fewer fields and possibly
    # stale; a missing job may exist.
    is_exact: bool = True
    is_complete: bool = True  # all jobs were checked; otherwise the next call continues
    page: object = None  # position to continue from; private to the backend that created it


@dataclass(frozen=True)
class JobUpdates:
    """Changes of an existing job; None leaves a value as it is."""

    priority: int | None = None
    description: str | None = None


class UpdatesJobs(Protocol):
    """A backend with the capability `updates_jobs`."""

    def update(self, job_id: str, changes: JobUpdates) -> None:
        """Changes an existing job; raises InvalidInputError where a change has no effect."""
        ...


class Backend(Protocol):
    """Runs jobs and stores their records. Thread-safe.

    A class that is named by a `BackendSpec` also has a class method `open(connection)`, and `close()`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities of this backend. No network."""
        ...

    @property
    def endpoint(self) -> str:
        """Returns the service or engine of the jobs. Endpoints share the threads that follow jobs fairly."""
        ...

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        """Returns the URI of the folder (ends with `/`) for these files. No network, no disk."""
        ...

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        """Returns the URI of a local file or folder, existing or not, if jobs can access it; None: upload it."""
        ...

    def code_dir(self, uri: str) -> CodeDir:
        """Returns the code folder of a job for the URI of its code. No network."""
        ...

    def default_output(self, job_folder: str, channel: str) -> str:
        """Returns the default URI of an output channel, in the job's folder. No network."""
        ...

    @property
    def dedupes(self) -> bool:
        """Returns True if a repeated create of one submission returns the first job, instead of a second one."""
        ...

    @property
    def retry(self) -> RetryPolicy:
        """Returns the policy by which failed calls are repeated."""
        ...

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        """Uploads the files of a plan; `InvalidInputError` lists all reasons why this backend cannot run it."""
        ...

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Creates the job of a plan by one request, repeated only if it cannot have arrived; returns its id."""
        ...

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        """Returns the ids of the jobs with the submission label of a request, the oldest first.

        A service may search the jobs of the last days only, unless `of_any_age` is True.
        """
        ...

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """Returns the job as it is now.

        With a snapshot in `changed_from`, a backend with long polls waits up to `wait_s` for a job that differs
        from it. Other backends respond at once.
        """
        ...

    def changes(
        self, snapshots: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """Returns the changes of some jobs, by one request for any number of jobs.

        A backend may respond exactly, or with a page of a list: see the fields of the response.

        Args:
            snapshots: the requested jobs, each with the caller's last snapshot.
            since: the previous response; if it was not complete, this one continues it.
            wait_s: a backend with long polls waits so long for a job that differs from its snapshot.
        """
        ...

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        """Yields all matching jobs except for the first `skip`; pages are requested as the caller iterates."""
        ...

    def stop(self, job_id: str) -> None:
        """Requests that a job stops; returns before it has stopped."""
        ...

    def delete(self, job_id: str) -> None:
        """Deletes a finished job."""
        ...

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Reads lines `start`, `start + 1`, … of one instance's log, at most `limit`; none if there are none yet.

        The first line of the log is 0. A backend with long polls waits up to `wait_s` for the first requested
        line.
        """
        ...

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """Returns when lines of `read_log` were written: UTC, ISO 8601; None for a line without a time.

        None in place of the list means that the backend does not record times.
        """
        ...

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        """Yields the values that the job reports, or that its metric definitions match in its log; oldest first.

        With `since` (UTC, ISO 8601), only values from this time on.
        """
        ...

    def events(self, job_id: str) -> Sequence[str]:
        """Returns the events of the job, as sentences of the service."""
        ...

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        """Returns the current resource usage of a job's instances; instances without data are left out."""
        ...

    def connect_tunnel(self, job_id: str, instance: str) -> JobTunnel:
        """Opens a tunnel into a running instance, by its full name.

        Raises:
            InvalidInputError: instances of this backend cannot be entered; the error has the reason.
            TunnelRefusedError: the instance refuses, or does not run.
            ApiError: the service refuses.
        """
        ...

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Returns why the job failed, or None."""
        ...

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Adds or replace labels."""
        ...

    def store(self, uri: str) -> Store:
        """Opens the folder of an output as a store."""
        ...

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Downloads a file or a folder of a job's outputs; returns the local file or folder."""
        ...
