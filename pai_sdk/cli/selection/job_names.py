"""The argument JOB: an id, a name, a unique prefix of one, or `-` for the newest job; with completion."""

from __future__ import annotations

import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._client.backend.specs import APIS, LOCAL, SERVICE, backend_for_job
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.session import Session, get_default_session
from pai_sdk._core.config.settings import load_settings
from pai_sdk._core.names.hints import did_you_mean, nearest
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._core.terminal_text import visible_text
from pai_sdk._wire.pai.job_names import without_suffix
from pai_sdk.cli.selection.backend import EMBEDDED_DATA, SelectedBackend, running_service, selected_backend
from pai_sdk.errors import InvalidInputError, NotFoundError, PaiError, Problem

LAST = "-"
"""Names the newest job."""

_MAX_SEARCHED = 1000  # ten pages of a service; prefixes of older jobs do not match
_MAX_CANDIDATES = 5
_MAX_COMPLETIONS = 50
_COMPLETION = RetryPolicy(deadline_s=3.0, max_attempts=1)  # the shell blocks until the deadline


def find_job(name: str) -> TrainingJob:
    """Returns the job with an id, otherwise with a name, otherwise with a prefix of an id or of a name."""
    jobs = find_jobs(name)
    if len(jobs) > 1:
        raise _ambiguous(name, jobs)
    if jobs[0].id != name:
        jobs[0].refresh()  # a list has neither the instances nor the metrics of its jobs
    return jobs[0]


def find_jobs(name: str) -> list[TrainingJob]:
    """Returns the jobs with an id, otherwise with a name, otherwise with a prefix of an id or of a name."""
    if name == LAST:
        return [_newest()]
    missing = None
    if _has_service() or backend_for_job(name).is_local:
        try:
            return [TrainingJob.get(name)]
        except NotFoundError as error:
            missing = error
        except InvalidInputError:  # several jobs have the name
            if not name.strip():
                raise
    similar = list(_jobs(name.partition(" (")[0]))
    matches = [job for job in similar if job.name == name] or [job for job in similar if _run_name_is(name, job)]
    if not matches:
        searched = list(_jobs())
        matches = (
            [job for job in searched if job.id.startswith(name)]
            or [job for job in similar if job.name.startswith(name)]
            or _of_other_api(name)
        )
    if not matches:
        raise _absent(name, searched) from missing
    return matches


def _run_name_is(name: str, job: TrainingJob) -> bool:
    """Returns whether tables of runs show a job under a name: without its suffix, or with the end of its id."""
    run_name, _, id_end = name.removesuffix(")").partition(" (")
    return without_suffix(job.name) == run_name and job.id.endswith(id_end)


def _newest() -> TrainingJob:
    jobs = [job for list_jobs in _lists() for job in islice(list_jobs(None), 1)]
    if not jobs:
        raise _no_job_error(f"there is no job yet in {_searched_backends()}")
    return max(jobs, key=_created)


def _jobs(name: str | None = None) -> Iterator[TrainingJob]:
    """Yields the newest jobs of the searched backends; with `name`, those whose name contains it."""
    for list_jobs in _lists():
        yield from islice(list_jobs(name), _MAX_SEARCHED)


def _of_other_api(name: str) -> list[TrainingJob]:
    """Returns the jobs of a name that lists of the API of the settings do not have; none after an error."""
    if not _has_service():
        return []
    with suppress(PaiError):  # a service, or the rights of a key, may lack one of the APIs
        current = get_default_session().settings.api or SERVICE.capabilities.api
        api = next(each for each in APIS if each != current)
        return [job for job in islice(TrainingJob.list(name=name, api=api), _MAX_SEARCHED) if job.name == name]
    return []


def _lists() -> list[Callable[[str | None], Iterator[TrainingJob]]]:
    """Returns a function for each searched backend that lists its jobs."""
    selection = selected_backend()

    def of_service(name: str | None) -> Iterator[TrainingJob]:
        return TrainingJob.list(name=name)

    def in_docker(name: str | None) -> Iterator[TrainingJob]:
        return TrainingJob.list(name=name, local=True)

    if selection.local:
        return [in_docker]
    has_docker = not selection.is_explicit and sys.platform not in LOCAL.not_on
    return [*([of_service] if _has_service() else []), *([in_docker] if has_docker else [])]


def _has_service() -> bool:
    """Returns whether a service is searched: the embedded one has no jobs if it has never run."""
    selection = selected_backend()
    if selection.local:
        return False
    is_embedded = not selection.is_explicit and get_default_session(local=True).settings.is_empty
    return not is_embedded or EMBEDDED_DATA.expanduser().exists()


def _created(job: TrainingJob) -> str:
    return job.record.gmt_create_time or ""


def _ambiguous(name: str, jobs: list[TrainingJob]) -> InvalidInputError:
    candidates = [f"\n  {job.id}  {visible_text(job.name)}  {job.record.status}" for job in jobs[:_MAX_CANDIDATES]]
    more = f"\n  and {len(jobs) - _MAX_CANDIDATES} more" if len(jobs) > _MAX_CANDIDATES else ""
    hint = "Give more of the id or name, or - for the newest job"
    message = f"{name!r} fits {len(jobs)} jobs:{''.join(candidates)}{more}\n{hint}"
    return InvalidInputError([Problem("JOB", message)])


def _absent(name: str, jobs: list[TrainingJob]) -> NotFoundError:
    near = nearest(
        name,
        {text for job in jobs for text in (job.id, job.name, without_suffix(job.name))},
        max_count=2,
        cutoff=0.8,
    )
    selection = selected_backend()
    command = f"pai-sdk ps {selection.option}".rstrip()
    other = "" if selection.is_explicit else "; other places: --embedded, --profile NAME"
    hint = did_you_mean(near) or f"`{command}` lists them{other}"
    if len(jobs) >= _MAX_SEARCHED:
        hint += f"; only the newest {_MAX_SEARCHED:,} were searched: give the whole id of an older one"
    return _no_job_error(
        f"no job in {_searched_backends()} has the id or the name {name!r}, or one that starts with it; {hint}"
    )


def _searched_backends() -> str:
    selection = selected_backend()
    is_docker_too = not selection.is_explicit and sys.platform not in LOCAL.not_on
    return f"{selection.describe()}{' or in Docker on this machine' if is_docker_too else ''}"


def _no_job_error(message: str) -> NotFoundError:
    return NotFoundError(message, code="TrainingJobNotFound", status_code=404)


# ---- completion


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Returns ids and names of the newest jobs that match, each with a description; none after an error."""
    jobs: list[TrainingJob] = []
    options = context.params
    selection = SelectedBackend(bool(options.get("embedded")), bool(options.get("local")), options.get("profile"))

    def collect() -> None:
        with suppress(Exception):  # a traceback would destroy the command line in the shell
            jobs.extend(_candidates(selection))

    was_disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        # A daemon: the shell waits for this process, and must not wait for a service that does not respond.
        thread = threading.Thread(target=collect, name="pai-complete", daemon=True)
        thread.start()
        # No service is started, and the jobs of a service that does not respond in this time are missing.
        thread.join(_COMPLETION.deadline_s)
    finally:
        logging.disable(was_disabled)
    return _completions(list(jobs), incomplete)


def complete_run(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Returns the jobs that match, as `complete_job`, and the folders that do."""
    head, slash, start = incomplete.rpartition("/")
    folders: list[tuple[str, str]] = []
    with suppress(OSError, ValueError):
        paths = sorted(path for path in Path(head or slash or ".").iterdir() if path.name.startswith(start))
        names = [path.name for path in paths if path.is_dir() and (start or not path.name.startswith("."))]
        folders = [(f"{head}{slash}{name}", "folder") for name in names[:_MAX_COMPLETIONS]]
    return folders if slash else [*complete_job(context, incomplete), *folders]


def _completions(jobs: Sequence[TrainingJob], incomplete: str) -> list[tuple[str, str]]:
    """Returns ids and names that match; the name that tables of runs show, if no other job has it."""
    run_names = Counter(without_suffix(job.name) for job in jobs)
    completions: list[tuple[str, str]] = []
    for job in jobs:
        name, run_name = visible_text(job.name), visible_text(without_suffix(job.name))
        if run_names[without_suffix(job.name)] == 1 and run_name.startswith(incomplete):
            name = run_name
        completions.append((job.id, f"{name} {job.record.status}"))
        if name != job.id and not set(name) & set(" \t\n:'\"\\"):  # at which shells split words
            completions.append((name, f"{job.id} {job.record.status}"))
    return [each for each in completions if each[0].startswith(incomplete)]


def _candidates(selection: SelectedBackend) -> Iterator[TrainingJob]:
    if not selection.local and (session := _session_for(selection)) is not None:
        yield from islice(session.list_jobs(), _MAX_COMPLETIONS)
    if selection.local or not selection.is_explicit:
        yield from islice(get_default_session(local=True).list_jobs(local=True), _MAX_COMPLETIONS)


def _session_for(selection: SelectedBackend) -> Session | None:
    """Returns a session on the selected service; None for an embedded service that is not running."""
    if selection.embedded or (selection.profile is None and load_settings().is_empty):
        return Session.embedded() if running_service() is not None else None
    return Session(profile=selection.profile, retry=_COMPLETION)


JOB_HELP = "The job's id or name, a unique prefix of one, or - for the newest job."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=complete_job)]
