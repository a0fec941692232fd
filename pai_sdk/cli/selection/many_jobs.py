"""The jobs of a command: named ones, or all that match `--status`, `--name` and `--label`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.status import STATUSES, canonical_status
from pai_sdk.cli.options import pairs
from pai_sdk.cli.selection.backend import selected_backend
from pai_sdk.cli.selection.job_names import JOB_HELP, complete_job, find_job
from pai_sdk.cli.tables import print_error
from pai_sdk.errors import InvalidInputError, NotFoundError, PaiError


def _canonical(values: list[str] | None) -> list[str] | None:
    """Returns the statuses in the spelling of the service; a value may have several between commas."""
    if not values:
        return None
    names = [name for value in values for name in value.split(",")]
    unknown = next((name for name in names if canonical_status(name) is None), None)
    if unknown is not None:  # a service would return no jobs and no error
        raise typer.BadParameter(f"{unknown!r} is not a status; available: {', '.join(STATUSES)}")
    return [*dict.fromkeys(filter(None, map(canonical_status, names)))]


JobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help=f"{JOB_HELP} May be repeated.", autocompletion=complete_job),
]
Status = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only jobs in this status: Running, Succeed, Failed, Terminated, …; several between commas.",
        callback=_canonical,
        autocompletion=lambda: list(STATUSES),
    ),
]
Name = Annotated[str | None, typer.Option(help="Only jobs with this text in their name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True)
class JobFilter:
    """The options of a command that select jobs."""

    statuses: Sequence[str]
    name: str | None
    labels: dict[str, str] | None

    @classmethod
    def of(cls, status: list[str] | None, name: str | None, label: list[str] | None) -> JobFilter:
        """Returns the filter of the values of `--status`, `--name` and `--label`."""
        return cls(status or (), name, pairs(label, "--label") or None)

    @property
    def is_empty(self) -> bool:
        """Returns whether no option is given."""
        return not self.statuses and self.name is None and self.labels is None

    def jobs(self, api: str | None = None) -> Iterator[TrainingJob]:
        """Yields the matching jobs of the selected backend, the newest first; of one API, if it is given."""
        is_local = selected_backend().local
        if is_local and api is not None:
            raise typer.BadParameter("jobs in Docker on this machine have no API", param_hint="--api")
        status = self.statuses[0] if len(self.statuses) == 1 else None  # a service filters by one status
        jobs = TrainingJob.list(status=status, name=self.name, labels=self.labels, local=is_local, api=api)
        return (job for job in jobs if len(self.statuses) < 2 or job.record.status in self.statuses)


def selected_jobs(job_ids: Sequence[str] | None, job_filter: JobFilter) -> list[TrainingJob]:
    """Returns the named or the matching jobs; raises BadParameter if both or neither are given."""
    if bool(job_ids) != job_filter.is_empty:
        problem = "give either jobs or filters" if job_ids else "give a JOB, or --status, --name or --label"
        raise typer.BadParameter(problem, param_hint="JOB")
    return _find_jobs(job_ids) if job_ids else [*job_filter.jobs()]


def _find_jobs(names: Sequence[str]) -> list[TrainingJob]:
    """Returns each named job once; an unknown name is an error before anything happens to the others."""
    try:
        return [*{job.id: job for job in map(find_job, names)}.values()]
    except (NotFoundError, InvalidInputError):
        if len(names) > 1:
            print_error(f"nothing was done to any of these {len(names)} jobs:")
        raise


def confirm(action: str, jobs: Sequence[TrainingJob], *, yes: bool) -> None:
    """Lists the jobs and asks; aborts without consent. stdout stays free for results."""
    if yes:
        return
    for job in jobs:
        typer.echo(f"{job.id}  {visible_text(job.name)}  {job.record.status}", err=True)
    ask(f"{action} {'this job' if len(jobs) == 1 else f'these {len(jobs)} jobs'}?")


def ask(question: str) -> None:
    """Asks a question; aborts without consent, and names the option for scripts if there is no terminal."""
    try:
        is_agreed = typer.confirm(question, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            typer.echo("\nthere is no terminal to ask: give --yes", err=True)
        raise
    if not is_agreed:
        raise typer.Abort


def each(jobs: Sequence[TrainingJob], act: Callable[[TrainingJob], None]) -> list[TrainingJob]:
    """Calls a function for each job, and prints its errors; returns the jobs without an error."""
    done = []
    for job in jobs:
        try:
            act(job)
        except PaiError as error:
            print_error(f"error: {error}")
        else:
            done.append(job)
    return done
