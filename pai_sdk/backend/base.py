"""The protocol of backends, which run requests. The rest of the library uses only this protocol."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from pydantic import ValidationError

from pai_sdk.base.paths import path_given
from pai_sdk.errors import InvalidInputError, Problem
from pai_sdk.schemas.compute import ComputeResource
from pai_sdk.schemas.doubt import Doubt
from pai_sdk.schemas.record import ErrorInfo, JobRecord, LogPage, MetricPoint
from pai_sdk.schemas.request import IDEMPOTENCY_LABEL, SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.schemas.spec import CodeDir
from pai_sdk.schemas.wire import problems_of
from pai_sdk.storage.tree import FileTree

if TYPE_CHECKING:
    from pai_sdk.run.resume import ResumePoint
    from pai_sdk.storage.store import Store

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


@dataclass(frozen=True, repr=False)
class Plan:
    """A dry run: the exact request, and the files to be in place before it is sent. Nothing has been sent yet.

    Attributes:
        request: the body of CreateTrainingJob.
        uploads: the files that it counts on.
        loaded_from: the file it was read from, if any; its uploads are then those of an earlier submission.
        resume: the checkpoint to resume from, if one was asked for; it is copied before the job is created.
        fallbacks: the resources to ask for where there is no capacity, one after the other.
        warnings: what is probably a mistake; shown with the plan, and when it is submitted.
        notes: what may surprise the user when the job runs; shown likewise.

    Example:
        >>> plan = Plan(TrainingJobRequest.model_validate(
        ...     {"TrainingJobName": "demo", "ComputeResource": {"EcsSpec": "ecs.c6.large"}}))
        >>> '"TrainingJobName": "demo"' in plan.to_json()
        True
    """

    request: TrainingJobRequest
    uploads: tuple[Upload, ...] = ()
    keep: object = field(default=None, compare=False)
    """What must live until the files are uploaded: a temporary clone, for one."""
    loaded_from: Path | None = field(default=None, compare=False)
    resume: ResumePoint | None = field(default=None, compare=False)
    fallbacks: tuple[ComputeResource, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    doubt: Doubt = field(default_factory=Doubt, init=False, compare=False)
    """Whether an earlier attempt to submit it may have created the job although no answer came."""
    left_over: list[ComputeResource] = field(default_factory=list, init=False, compare=False)
    """The fallbacks that were not tried when it was submitted."""
    _sent: list[str] = field(default_factory=list, init=False, compare=False)
    _sending: threading.Lock = field(default_factory=threading.Lock, init=False, compare=False)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a request from a JSON file: what `save` wrote, or any body of CreateTrainingJob.

        No files come with it: what it counts on must be in OSS when it is submitted, and that is checked then.

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
        if self.resume is not None and not self.resume.is_in_place:
            what = "copies a checkpoint before the job is created, and the file would have the request only"
            hint = "submit the plan itself, or use resume=True with checkpoints_path, which copies nothing"
            raise InvalidInputError([Problem("plan", what, hint)])
        path = path_given(path, "path")
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(self.to_json() + "\n")
        return path

    def submit_once(self, send: Callable[[Plan], str]) -> str:
        """Send it and return the job's id.

        Args:
            send: creates the job. When it fails, the plan can be submitted again, and the job that an unanswered
                attempt may have created is looked for first.

        Raises:
            InvalidInputError: it has been submitted. A second job would have the same name, and write into the
                same folders.
        """
        with self._sending:
            if self._sent and not self.has_key:
                raise already_submitted(self._sent[0])
            if not self._sent:
                self._sent.append(send(self))
            return self._sent[0]

    @property
    def has_key(self) -> bool:
        """Whether the caller has given an idempotency key."""
        return any(label.key == IDEMPOTENCY_LABEL for label in self.request.labels)

    def with_resources(self, resources: ComputeResource, *, submission: str | None = None) -> Plan:
        """The same plan for other resources.

        Args:
            resources: what to ask for.
            submission: the label of a new submission; None for the same one, whose doubt is then shared.
        """
        request = self.request.model_copy(update={"compute_resource": resources})
        if submission is not None:
            request = request.with_label(SUBMISSION_LABEL, submission)
        left = self.left_over[1:] if submission is not None else ()
        made = replace(self, request=request, fallbacks=tuple(left))
        if submission is None:
            object.__setattr__(made, "doubt", self.doubt)
        return made

    def __str__(self) -> str:
        from pai_sdk.execution.contract import public_request

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
        from pai_sdk.display.plan_card import plan_card_html
        from pai_sdk.execution.contract import public_request

        notes = [f"upload {line}" for line in self._upload_lines()]
        notes += [f"resume {self.resume}"] if self.resume is not None else []
        return plan_card_html(public_request(self.request), notes)

    def _upload_lines(self) -> list[str]:
        return [f"{u.origin or u.tree.root} -> {u.uri} ({u.tree.summary()})" for u in self.uploads]


def already_submitted(job_id: str) -> InvalidInputError:
    """What to raise for a plan that has become a job."""
    hint = "plan again for another job: it gets a name and output folders of its own"
    return InvalidInputError([Problem("plan", f"was submitted already, as job {job_id}", hint)])


@dataclass(frozen=True)
class JobChanges:
    """The answer to one request about many jobs; `Backend.changes` continues from it.

    Attributes:
        records: jobs that may have changed, by id. Those that are not there are as they were.
        missing: jobs that the answer does not show. If it is exact, there are no such jobs.
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


class Backend(Protocol):
    """Runs jobs and keeps their records. Safe to use from several threads."""

    @property
    def endpoint(self) -> str:
        """The service or the engine that answers. Threads that follow jobs are shared fairly among endpoints."""
        ...

    def place(self, tree: FileTree, purpose: Purpose) -> str:
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

    def default_output(self, job_name: str, channel: str) -> str:
        """The URI of an output channel the user gave no place for. No network."""
        ...

    def submit(self, plan: Plan, *, progress: bool = True) -> str:
        """Put the plan's files in place and create the job; one job, whatever faults happen on the way.

        Returns:
            The job's id.
        """
        ...

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        """The job as it is now.

        Args:
            job_id: which job.
            changed_from: a snapshot; with `wait_s`, a backend that can holds its answer until the job differs
                from it. Others answer at once.
            wait_s: the longest such wait, in seconds.
        """
        ...

    def changes(
        self, known: Mapping[str, JobRecord | None], since: JobChanges | None = None, *, wait_s: float = 0.0
    ) -> JobChanges:
        """What has become of some jobs, by one request however many they are.

        A backend may answer exactly, or show a page of a list only: the attributes of the answer say so.

        Args:
            known: each job that is asked for, with the last snapshot of it that the caller has.
            since: the former answer; if it was not complete, this one continues it.
            wait_s: a backend that can holds its answer back until one of the jobs differs from its snapshot.
        """
        ...

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
    ) -> Iterator[JobRecord]:
        """All jobs that fit, page after page as the caller goes on."""
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
            wait_s: a backend that can holds an empty answer back that long for news.
        """
        ...

    def line_times(self, job_id: str, instance: str, *, start: int, count: int) -> Sequence[str | None] | None:
        """When lines that `read_log` has given were written: UTC, ISO 8601; None for one whose time is not known.

        Returns:
            One for each line; None where the backend does not say it.
        """
        ...

    def metrics(self, job_id: str, *, name: str | None = None) -> Iterator[MetricPoint]:
        """The values found in the log by the job's metric definitions, oldest first."""
        ...

    def events(self, job_id: str) -> Sequence[str]:
        """What happened to the job, as sentences of the service."""
        ...

    def error_info(self, job_id: str) -> ErrorInfo | None:
        """Why the job failed, or None."""
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
