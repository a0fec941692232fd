"""The protocol of backends, which run requests. The rest of the library uses only this protocol."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias

from pydantic import ValidationError

from pai_sdk._wire.masking import public_request
from pai_sdk.backend.places import Capabilities
from pai_sdk.base.paths import path_given
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.display.plan_card import plan_card_html
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.compute import ComputeResource
from pai_sdk.schemas.record import ErrorInfo, InstanceUsage, JobRecord, LogPage, MetricPoint
from pai_sdk.schemas.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.schemas.spec import CodeDir
from pai_sdk.schemas.wire import problems_of
from pai_sdk.storage.tree import FileTree

if TYPE_CHECKING:
    from pai_sdk.run.store.resume import ResumePoint
    from pai_sdk.storage.store import Store

__all__ = [
    "Backend",
    "Capabilities",
    "InstanceEntry",
    "JobChanges",
    "Plan",
    "Purpose",
    "SubmissionId",
    "Upload",
]

Purpose: TypeAlias = Literal["code", "input"]


@dataclass(frozen=True)
class Upload:
    """Files that must be in place before the job is created.

    Attributes:
        tree: the files, with the hash of their content.
        uri: the folder they go to (ends with `/`).
        origin: what the user calls them, where they are in a temporary folder.
    """

    tree: FileTree
    uri: str
    origin: str = ""


class SubmissionId(str):
    """The identity of one submission; also its label, where the request has none. Copies of a plan share it."""

    def __new__(cls) -> SubmissionId:
        """A new one."""
        return super().__new__(cls, uuid.uuid4().hex)

    def __deepcopy__(self, memo: dict[int, Any]) -> SubmissionId:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Plan cannot be pickled; for another process, use plan.save() and Plan.load()")


@dataclass(frozen=True, repr=False)
class Plan:
    """A dry run, as a value: the exact request, and the files that must be in place before it is sent.

    Attributes:
        request: the body of CreateTrainingJob.
        uploads: the files that the request refers to.
        keep: an object that must live until the files are uploaded, such as a temporary clone.
        loaded_from: the file it was read from, if any; its uploads are then those of an earlier submission.
        resume: the checkpoint to resume from, if one was asked for; it is copied before the job is created.
        fallbacks: the resources to ask for where there is no capacity, one after the other.
        warnings: probable mistakes; shown with the plan, and when it is submitted.
        notes: facts that may surprise the user when the job runs; shown likewise.
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
    warnings: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    submission: SubmissionId = field(default_factory=SubmissionId, compare=False, kw_only=True)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a request from a JSON file: what `save` wrote, or any body of CreateTrainingJob.

        No files come with it. Files that the request needs must be in OSS; this is checked when it is submitted.

        Raises:
            InvalidInputError: it cannot be read, or is not a request; the error lists all problems.
        """
        path = path_given(path, "path")
        try:
            request = TrainingJobRequest.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise InvalidInputError(problems_of(error, path.name)) from None  # it would quote values
        except OSError as error:
            raise InvalidInputError([Problem(str(path), f"cannot be read: {error.strerror or error}")]) from error
        except ValueError as error:
            raise InvalidInputError([Problem(str(path), f"is not JSON: {error}", "see Plan.save")]) from error
        return cls(request, loaded_from=path)

    def to_json(self) -> str:
        """The request as it will be sent, indented for reading."""
        return self.request.to_json(indent=2)

    def save(self, path: str | Path) -> Path:
        """Write the request, with all its values, to a JSON file, for a review or a later `Plan.load`.

        Only you can read a file that is made here: values of environment variables may be secrets.

        Raises:
            InvalidInputError: a checkpoint is to be copied first, which the file does not have.
        """
        if self.resume is not None and not self.resume.is_at_target:
            what = "needs a copy of a checkpoint before the job is created, and a file has only the request"
            hint = "submit the plan itself, or use resume=True with checkpoints_path, which copies nothing"
            raise InvalidInputError([Problem("plan", what, hint)])
        path = path_given(path, "path")
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(self.to_json() + "\n")
        return path

    def labelled(self) -> Plan:
        """The same plan, whose request has a submission label; one that is there already is kept."""
        if self.request.label(SUBMISSION_LABEL) is not None:
            return self
        return replace(self, request=self.request.with_label(SUBMISSION_LABEL, str(self.submission)))

    def __str__(self) -> str:
        shown = json.dumps(public_request(self.request), ensure_ascii=False, indent=2)
        lines = [f"upload: {line}" for line in self._upload_lines()]
        if self.resume is not None:
            lines.append(f"resume: {self.resume}")
        kinds = [f"{each.ecs_spec}{' spot' if each.spot_spec else ''}" for each in self.fallbacks]
        lines += [f"without capacity: {', then '.join(kinds)}"] if kinds else []
        lines += [f"warning: {warning}" for warning in self.warnings]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([shown, *lines])

    def __repr__(self) -> str:
        uploads = "".join(f", {line}" for line in self._upload_lines())
        return f"<Plan {self.request.training_job_name}{uploads}>"

    def _repr_html_(self) -> str:
        notes = [f"upload {line}" for line in self._upload_lines()]
        notes += [f"resume {self.resume}"] if self.resume is not None else []
        return plan_card_html(public_request(self.request), notes)

    def _upload_lines(self) -> list[str]:
        return [f"{u.origin or u.tree.root} -> {u.uri} ({u.tree.summary()})" for u in self.uploads]


@dataclass(frozen=True)
class JobChanges:
    """The response to one request about many jobs; `Backend.changes` continues from it.

    Attributes:
        records: jobs that may have changed, by id. Those that are not there are as they were.
        missing: jobs that the response does not show. If it is exact, there are no such jobs.
        is_exact: the records are what `get` gives. Otherwise they are entries of a list: with fewer fields, and as
            old as the list is; a job that is missing from it may be there.
        is_complete: all jobs were looked at; otherwise the next call continues.
        page: where to continue; of the backend that gave it.
    """

    records: Mapping[str, JobRecord]
    missing: frozenset[str] = frozenset()
    is_exact: bool = True
    is_complete: bool = True
    page: object = None


class InstanceEntry(Protocol):
    """A way into an instance of a job."""

    def run(self, command: Sequence[str]) -> int:
        """Run a command beside the job, with the terminal of this process; gives its exit code."""
        ...


class Backend(Protocol):
    """Runs jobs and keeps their records. Safe to use from several threads.

    A class that is named by a `BackendSpec` also has a class method `open(connection)`, and `close()`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this backend. No network."""
        ...

    @property
    def endpoint(self) -> str:
        """The service or engine that has the jobs. Threads that follow jobs are shared fairly among endpoints."""
        ...

    def tree_uri(self, tree: FileTree, purpose: Purpose) -> str:
        """The URI (a folder, ends with `/`) where these files will lie. No network, no disk."""
        ...

    def local_uri(self, path: Path, *, folder: bool) -> str | None:
        """The URI of a file or folder of this machine, where jobs see it; None where files must be uploaded.

        Args:
            path: the file or folder; it need not exist.
            folder: whether it is, or will be, a folder.
        """
        ...

    def code_dir(self, uri: str) -> CodeDir:
        """The code folder of a job whose code lies at that URI. No network."""
        ...

    def default_output(self, job_folder: str, channel: str) -> str:
        """The URI of an output channel the user gave no place for, in the job's folder. No network."""
        ...

    @property
    def dedupes(self) -> bool:
        """True if a repeated create of one submission gives the first job, instead of a second one."""
        ...

    @property
    def retry(self) -> RetryPolicy:
        """The policy by which failed calls are repeated."""
        ...

    def upload(self, plan: Plan, *, progress: bool = True) -> None:
        """Put the files of a plan in place; no job is created.

        Raises:
            InvalidInputError: the plan cannot be carried out here; all reasons are listed.
        """
        ...

    def create(self, plan: Plan, *, progress: bool = True) -> str:
        """Create the job of a plan by one request, which is repeated only when it cannot have arrived.

        Returns:
            The job's id.
        """
        ...

    def find(self, request: TrainingJobRequest, *, of_any_age: bool = False) -> Sequence[str]:
        """The ids of the jobs with the submission label of a request, the oldest first.

        Args:
            request: its label and its name identify the jobs.
            of_any_age: search all jobs; otherwise, a service may search those of the last days only.
        """
        ...

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """The job as it is now.

        Args:
            job_id: which job.
            changed_from: a snapshot; with `wait_s`, a backend that can holds its response until the job differs
                from it. Others respond at once.
            wait_s: the longest such wait, in seconds.
        """
        ...

    def changes(
        self, known: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """Return the changes of some jobs, by one request however many they are.

        A backend may respond exactly, or show a page of a list only: the attributes of the response say which.

        Args:
            known: each job that is asked for, with the last snapshot of it that the caller has.
            since: the former response; if it was not complete, this one continues it.
            wait_s: a backend that can holds its response back until one of the jobs differs from its snapshot.
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
        """All jobs that fit but the first `skip`, page after page as the caller reads on."""
        ...

    def stop(self, job_id: str) -> None:
        """Ask for an end; returns before it has come."""
        ...

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended."""
        ...

    def read_log(self, job_id: str, instance: str, *, start: int, limit: int, wait_s: float = 0.0) -> LogPage:
        """Lines `start`, `start + 1`, … of one instance's log, `limit` at most; none when there are none yet.

        Args:
            job_id: which job.
            instance: the instance's name.
            start: number of the first line wanted; the log's first line is 0.
            limit: the most lines to return.
            wait_s: a backend that can holds an empty response back that long.
        """
        ...

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """Return when lines of `read_log` were written: UTC, ISO 8601; None for one whose time is not known.

        Returns:
            One for each line; None where the backend does not say it.
        """
        ...

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        """The values that the job reports, or its metric definitions find in its log; oldest first.

        Args:
            job_id: the job.
            name: only those of this metric.
            since: only those from this time on: UTC, ISO 8601.
        """
        ...

    def events(self, job_id: str) -> Sequence[str]:
        """The events of the job, as sentences of the service."""
        ...

    def usage(self, job_id: str) -> Sequence[InstanceUsage]:
        """What the instances of a job use now; instances of which nothing is known are left out."""
        ...

    def enter(self, job_id: str, instance: str) -> InstanceEntry:
        """The way into a running instance, to run commands beside the job.

        Args:
            job_id: the job.
            instance: the full name of the instance.

        Raises:
            InvalidInputError: the instance cannot be entered from here; the error says why.
        """
        ...

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Return why the job failed, or None."""
        ...

    def update_labels(self, job_id: str, labels: Mapping[str, str]) -> None:
        """Add or replace labels."""
        ...

    def store(self, uri: str) -> Store:
        """The folder of an output as a store."""
        ...

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Fetch a file or a folder that a job left.

        Returns:
            The local file or folder.
        """
        ...
