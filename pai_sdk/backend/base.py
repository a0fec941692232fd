"""What takes a request and runs it. The rest of the library knows a backend by this protocol only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from pai_sdk.job.record import ErrorInfo, JobRecord, LogPage, MetricPoint
from pai_sdk.job.request import TrainingJobRequest
from pai_sdk.job.spec import CodeDir
from pai_sdk.storage.tree import FileTree

__all__ = ["Backend", "Plan", "Purpose", "Upload"]

Purpose: TypeAlias = Literal["code", "input"]


@dataclass(frozen=True)
class Upload:
    """Files that must be in place before the job is created.

    Attributes:
        tree: the files, with the hash of their content.
        uri: the folder they go to (ends with `/`).
    """

    tree: FileTree
    uri: str


@dataclass(frozen=True)
class Plan:
    """A dry run: the exact request, and the files to be in place before it is sent. Nothing has been sent yet.

    Example:
        >>> plan = Plan(TrainingJobRequest.model_validate(
        ...     {"TrainingJobName": "demo", "ComputeResource": {"EcsSpec": "ecs.c6.large"}}))
        >>> '"TrainingJobName": "demo"' in plan.to_json()
        True
    """

    request: TrainingJobRequest
    uploads: tuple[Upload, ...] = ()
    keep: object = field(default=None, repr=False, compare=False)
    """What must live until the files are uploaded: a temporary clone, for one."""

    def to_json(self) -> str:
        """The request as it will be sent, indented for reading."""
        return self.request.to_json(indent=2)

    def save(self, path: str | Path) -> Path:
        """Write the request to a JSON file, for a review or a later `session.submit`."""
        path = Path(path)
        path.write_text(self.to_json() + "\n", encoding="utf-8")
        return path

    def __str__(self) -> str:
        uploads = [f"{u.tree.root} -> {u.uri} ({u.tree.summary()})" for u in self.uploads]
        return "\n".join([self.to_json(), *(f"upload: {line}" for line in uploads)])


class Backend(Protocol):
    """Runs jobs and keeps what is known of them. Safe to use from several threads."""

    def place(self, tree: FileTree, purpose: Purpose) -> str:
        """The URI (a folder, ends with `/`) where these files will lie. No network, no disk."""
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

    def download(self, uri: str, target: Path, *, progress: bool = True) -> Path:
        """Fetch a file or a folder that a job left.

        Returns:
            The local file or folder.
        """
        ...
