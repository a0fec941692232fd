"""Shows a job that has just been created, with the warnings and notes of its plan."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pai_sdk.backend.base import Plan
from pai_sdk.display.base import Display, Silent
from pai_sdk.display.choice import choose_display
from pai_sdk.display.commands import next_commands
from pai_sdk.errors import PaiError
from pai_sdk.job.interrupts import detached
from pai_sdk.job.training_job import TrainingJob
from pai_sdk.schemas.record import JobRecord

__all__ = ["announce"]

logger = logging.getLogger(__name__)
_shown_notes: set[str] = set()  # what they begin with: the same note of two images is shown once


def announce(job: TrainingJob, plan: Plan, *, shown: bool) -> Display:
    """Show the job; an error raised here would hide its id from the user, so there is none.

    Args:
        job: the job.
        plan: it was submitted from.
        shown: whether the user wants to see it; otherwise only the warnings are logged.

    Returns:
        The display on which the job is shown further.

    Raises:
        KeyboardInterrupt: Ctrl-C; its message has the commands for the job, which continues.
    """
    if not shown:
        for warning in plan.warnings:
            logger.warning("job %s: %s", job.id, warning)
        return Silent()
    display = choose_display(job=job)
    job.shown_by(display)
    try:
        display.submitted(job.record)
        for note in (*plan.warnings, *_new(plan.notes)):
            display.notice(note)
    except PaiError as error:
        display.submitted(JobRecord(training_job_id=job.id))
        display.notice(f"its state cannot be read: {error}")
    except KeyboardInterrupt:
        raise detached(job.id, next_commands(JobRecord(training_job_id=job.id))) from None
    return display


def _new(notes: Iterable[str]) -> Iterator[str]:
    """Returns the notes that this process has not shown yet."""
    for note in notes:
        subject = note.partition(":")[0]
        if subject not in _shown_notes:
            _shown_notes.add(subject)
            yield note
