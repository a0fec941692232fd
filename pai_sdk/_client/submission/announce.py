"""Displays a job that has just been created, with the warnings and notes of its plan."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pai_sdk._client.backend.base import Plan
from pai_sdk._client.display.base import Display, Silent
from pai_sdk._client.display.choice import choose_display
from pai_sdk._client.display.commands import next_commands
from pai_sdk._client.job.interrupts import detached
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)
_announced_notes: set[str] = set()  # by the text before the colon: the note of two images is displayed once


def announce(job: TrainingJob, plan: Plan, *, is_visible: bool) -> Display:
    """Displays the job, or logs only the warnings; returns the display for its further progress."""
    if not is_visible:
        for warning in plan.warnings:
            logger.warning("job %s: %s", job.id, warning)
        return Silent()
    display = choose_display(job=job)
    job.render_in(display)
    try:
        display.submitted(job.record)
        for note in (*plan.warnings, *_new(plan.notes)):
            display.notice(note)
    # Not raised: the error would hide the id of the job from the user.
    except PaiError as error:
        display.submitted(JobRecord(training_job_id=job.id))
        display.notice(f"its status cannot be read: {error}")
    except KeyboardInterrupt:
        # Ctrl-C: the job continues, and the message has the commands for it.
        raise detached(job.id, next_commands(JobRecord(training_job_id=job.id))) from None
    return display


def _new(notes: Iterable[str]) -> Iterator[str]:
    """Yields the notes that this process has not displayed yet."""
    for note in notes:
        subject = note.partition(":")[0]
        if subject not in _announced_notes:
            _announced_notes.add(subject)
            yield note
