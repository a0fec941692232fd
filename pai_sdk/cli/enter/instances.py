"""The argument JOB[:RANK]: a job and one of its instances."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk.cli.selection.job_names import complete_job, find_job
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem

_NAME = r":(?P<instance>\d+|[A-Za-z][\w.-]*-\d+)"  # a rank, or a name such as `worker-1`
_INSTANCE = re.compile(rf"(?P<job>.+){_NAME}")
# One letter before a colon is a drive of Windows, two slashes behind it are a URI.
_REMOTE = re.compile(rf"(?!file:)(?P<job>-|[^/\\:][^/:]+?)(?:{_NAME})?:(?P<path>/(?!/).*)", re.DOTALL)
# In a target, only an id or `-` is certainly a job: other files may have a colon in their names.
_RELATIVE = re.compile(rf"(?P<job>-|[^/\\:][^/:]+?)(?:{_NAME})?:(?!/)", re.DOTALL)
_ID = re.compile(r"-|(?:train|dlc|local)[a-z0-9-]{6,}")

JobInstance = Annotated[
    str,
    typer.Argument(
        metavar="JOB[:RANK]",
        help="The job's id or name, a unique prefix of one, or - for the newest job; and the rank of an instance,"
        " or its name: `:1`, `:worker-0`. The first one otherwise.",
        autocompletion=complete_job,
    ),
]
Instance = Annotated[
    str | None, typer.Option("--instance", "-i", help="The instance: `master-0` (the first), `worker-1`, …")
]


def find_instance(text: str, option: str | None = None) -> tuple[TrainingJob, str | None]:
    """Returns the job of JOB[:RANK] and its instance; `option` is the value of --instance."""
    match = _INSTANCE.fullmatch(text)
    if match is None:
        return find_job(text), option
    try:
        job = find_job(match["job"])
    except NotFoundError:
        try:
            return find_job(text), option  # a name with a colon
        except NotFoundError:
            pass
        raise
    if option is not None:
        problem = f"{text} names an instance, and so does --instance {option}"
        raise InvalidInputError([Problem("JOB", problem, "leave out one of them")])
    return job, match["instance"]


def split_remote(text: str) -> tuple[str, str] | None:
    """Returns JOB[:RANK] and the path of JOB[:RANK]:/path; None for anything else."""
    match = _REMOTE.fullmatch(text)
    if match is None:
        return None
    return f"{match['job']}:{match['instance']}" if match["instance"] else match["job"], match["path"]


def names_relative_path(text: str, *, is_source: bool) -> bool:
    """Returns whether a side of a copy is JOB[:RANK]: without the slash of an absolute path."""
    match = _RELATIVE.match(text)
    return match is not None and (is_source or _ID.fullmatch(match["job"]) is not None) and not Path(text).exists()
