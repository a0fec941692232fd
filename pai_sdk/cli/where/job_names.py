"""The argument JOB: an id, the beginning of one, a name, or `-` for the newest job; completed by the shell."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated

import typer

from pai_sdk.backend.places import LOCAL, backend_for_job
from pai_sdk.base.hints import did_you_mean, nearest
from pai_sdk.base.retry import RetryPolicy
from pai_sdk.cli.where.place import EMBEDDED_DATA, ChosenPlace, chosen_place, running_service
from pai_sdk.config.settings import load_settings
from pai_sdk.display.base import visible_text
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.session import Session, get_default_session

__all__ = ["LAST", "JobId", "complete_job", "find_job"]

LAST = "-"
"""Names the newest job."""

_MOST_LOOKED_AT = 1000  # ten pages of a service; a prefix of the id of an older job is not found
_MOST_SHOWN = 5
_MOST_COMPLETED = 50
_COMPLETED_WITHIN_S = 3.0  # a shell waits for it
_QUICK = RetryPolicy(deadline_s=_COMPLETED_WITHIN_S, max_attempts=1)


def find_job(given: str) -> TrainingJob:
    """The job that a user means, in the place that the options of the command name.

    An id comes first, then a name, then the beginning of an id. Without an option, jobs in Docker on this machine
    are looked at too.

    Args:
        given: the argument.

    Raises:
        InvalidInputError: it fits several jobs.
        NotFoundError: it fits none.
    """
    if given == LAST:
        return _newest()
    missing = None
    if _has_service() or backend_for_job(given).is_local:
        try:
            return TrainingJob.get(given)
        except NotFoundError as error:
            missing = error
    named = [job for job in _jobs(given) if job.name == given]
    if not named:
        looked_at = list(_jobs())
        named = [job for job in looked_at if job.id.startswith(given)]
    if len(named) == 1:
        return named[0]
    if named:
        raise _ambiguous(given, named)
    raise _absent(given, looked_at) from missing


def _newest() -> TrainingJob:
    jobs = [job for listed in _lists() for job in islice(listed(None), 1)]
    if not jobs:
        raise _not_found(f"there is no job yet in {_places()}")
    return max(jobs, key=_created)


def _jobs(name: str | None = None) -> Iterator[TrainingJob]:
    """The newest jobs of all places that are meant; with a name, those that have this text in theirs."""
    for listed in _lists():
        yield from islice(listed(name), _MOST_LOOKED_AT)


def _lists() -> list[Callable[[str | None], Iterator[TrainingJob]]]:
    """For each place that is meant, the function that lists its jobs."""
    place = chosen_place()

    def of_service(name: str | None) -> Iterator[TrainingJob]:
        return TrainingJob.list(name=name)

    def in_docker(name: str | None) -> Iterator[TrainingJob]:
        return TrainingJob.list(name=name, local=True)

    if place.local:
        return [in_docker]
    has_docker = not place.is_named and sys.platform not in LOCAL.not_on
    return [*([of_service] if _has_service() else []), *([in_docker] if has_docker else [])]


def _has_service() -> bool:
    """True unless the service would be the embedded one, which has never run, and has no jobs."""
    place = chosen_place()
    if place.local:
        return False
    is_embedded = not place.is_named and get_default_session(local=True).settings.is_empty
    return not is_embedded or EMBEDDED_DATA.expanduser().exists()


def _created(job: TrainingJob) -> str:
    return job.record.gmt_create_time or ""


def _ambiguous(given: str, jobs: list[TrainingJob]) -> InvalidInputError:
    shown = [f"\n  {job.id}  {visible_text(job.name)}  {job.record.status}" for job in jobs[:_MOST_SHOWN]]
    more = f"\n  and {len(jobs) - _MOST_SHOWN} more" if len(jobs) > _MOST_SHOWN else ""
    what = f"{given!r} fits {len(jobs)} jobs:{''.join(shown)}{more}\nGive more of the id, or - for the newest job"
    return InvalidInputError([Problem("JOB", what)])


def _absent(given: str, jobs: list[TrainingJob]) -> NotFoundError:
    near = nearest(given, {text for job in jobs for text in (job.id, job.name)}, max_count=2, cutoff=0.8)
    place = chosen_place()
    command = f"pai-sdk ps {place.option}".rstrip()
    other = "" if place.is_named else "; other places: --embedded, --profile NAME"
    hint = did_you_mean(near) or f"`{command}` lists them{other}"
    if len(jobs) >= _MOST_LOOKED_AT:
        hint += f"; only the newest {_MOST_LOOKED_AT:,} were searched: give the whole id of an older one"
    return _not_found(f"no job in {_places()} has the id or the name {given!r}, or an id that begins so; {hint}")


def _places() -> str:
    place = chosen_place()
    is_docker_too = not place.is_named and sys.platform not in LOCAL.not_on
    return f"{place.describe()}{' or in Docker on this machine' if is_docker_too else ''}"


def _not_found(message: str) -> NotFoundError:
    return NotFoundError(message, code="TrainingJobNotFound", status_code=404)


# ---- completion


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The newest jobs whose id or name begins with a text, each with what it is; none in case of an error.

    No service is started, and a service that does not respond in three seconds has no jobs.
    """
    found: list[tuple[str, str]] = []
    given = context.params
    place = ChosenPlace(bool(given.get("embedded")), bool(given.get("local")), given.get("profile"))

    def look() -> None:
        with suppress(Exception):  # a traceback would destroy the line that the user types
            for job in _completed_from(place):
                name = visible_text(job.name)
                found.append((job.id, f"{name} {job.record.status}"))
                if name != job.id and not set(name) & set(" \t\n:'\"\\"):  # which shells would take apart
                    found.append((name, f"{job.id} {job.record.status}"))

    was_disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        thread = threading.Thread(target=look, name="pai-complete", daemon=True)
        thread.start()
        thread.join(_COMPLETED_WITHIN_S)
    finally:
        logging.disable(was_disabled)
    return [each for each in found if each[0].startswith(incomplete)]


def _completed_from(place: ChosenPlace) -> Iterator[TrainingJob]:
    if not place.local and (session := _session_at(place)) is not None:
        yield from islice(session.list_jobs(), _MOST_COMPLETED)
    if place.local or not place.is_named:
        yield from islice(get_default_session(local=True).list_jobs(local=True), _MOST_COMPLETED)


def _session_at(place: ChosenPlace) -> Session | None:
    """A session on the service of the place; None for an embedded service that does not run."""
    if place.embedded or (place.profile is None and load_settings().is_empty):
        return Session.embedded() if running_service() is not None else None
    return Session(profile=place.profile, retry=_QUICK)


JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's id, the beginning of it, its name, or - for the newest job.",
        autocompletion=complete_job,
    ),
]
