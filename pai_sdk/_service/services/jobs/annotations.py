"""Annotations of jobs: a star for each user; tags, a note and whether it is archived for all who see the job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from pai_sdk._service.identity.principal import Principal
from pai_sdk._service.services.jobs.job_table import Jobs, existing_job
from pai_sdk._service.state.models import JobAnnotation, JobStar
from pai_sdk._service.wire_errors import WireError, invalid_parameter
from pai_sdk._wire.annotations import MAX_TAGS, AnnotationChanges, JobAnnotations

NOTE_CHANGED = "NOTE_CHANGED"
"""Error code: the note has been changed since the client read it."""


def annotations_of(jobs: Jobs, principal: Principal, job_id: str) -> JobAnnotations:
    """Returns the annotations of a job, with the star of the user."""
    with jobs.database.read() as session:
        existing_job(session, job_id)
        row = session.get(JobAnnotation, job_id)
        return JobAnnotations(
            star=session.get(JobStar, (principal.user, job_id)) is not None,
            tags=list(row.tags) if row else [],
            note=row.note if row else "",
            archived=row.archived if row else False,
            v=row.note_version if row else 0,
        )


def change_annotations(
    jobs: Jobs, principal: Principal, job_id: str, changes: AnnotationChanges
) -> JobAnnotations:
    """Changes annotations of a job, and returns them. Users who may only see the job can change their star."""
    saved: dict[str, object] = {}
    if changes.model_fields_set - {"star", "v"}:
        principal.require("submit")
        jobs.require_visible(job_id, principal, changes=True)
        # Increments the version of the job, by which the managers of runs detect the change.
        with jobs.changing(job_id) as (session, _):
            row = _change_row(session, job_id, changes)
            # Not read again below: with the version of a later note, the client would overwrite that note unseen.
            saved = {"tags": [*row.tags], "note": row.note, "archived": row.archived, "v": row.note_version}
    if changes.star is not None:
        # Not a change of the job: the star is of one user, and must not wake the clients of the others.
        with jobs.database.write() as session:
            existing_job(session, job_id)
            session.execute(delete(JobStar).where(JobStar.user == principal.user, JobStar.job_id == job_id))
            if changes.star:
                session.add(JobStar(user=principal.user, job_id=job_id))
    return annotations_of(jobs, principal, job_id).model_copy(update=saved)


def annotation_rows(session: Session, job_ids: Collection[str]) -> dict[str, JobAnnotation]:
    """Returns the annotations of some jobs by job; jobs without any are missing."""
    rows = session.scalars(select(JobAnnotation).where(JobAnnotation.job_id.in_(job_ids)))
    return {row.job_id: row for row in rows}


def stars(session: Session, user: str | None) -> dict[str, tuple[str, ...]]:
    """Returns the users who have put a star on each job; with `user` only their own stars."""
    query = select(JobStar.job_id, JobStar.user).order_by(JobStar.user)
    users = defaultdict[str, list[str]](list)
    for row in session.execute(query if user is None else query.where(JobStar.user == user)):
        users[row.job_id].append(row.user)
    return {job_id: tuple(names) for job_id, names in users.items()}


def _change_row(session: Session, job_id: str, changes: AnnotationChanges) -> JobAnnotation:
    row = session.get(JobAnnotation, job_id)
    if row is None:
        row = JobAnnotation(job_id=job_id, tags=[], note="", note_version=0, archived=False)
        session.add(row)
    if changes.note is not None and changes.note != row.note:
        if changes.v is not None and changes.v != row.note_version:
            message = "The note was changed meanwhile; read it, then save again."
            raise WireError(409, NOTE_CHANGED, message)
        row.note, row.note_version = changes.note, row.note_version + 1
    # Each added and removed by itself: two users who tag a job at the same time keep both tags.
    tags = [*dict.fromkeys([*(row.tags if changes.tags is None else changes.tags), *changes.add_tags])]
    row.tags = [tag for tag in tags if tag not in changes.remove_tags]
    if len(row.tags) > MAX_TAGS:
        raise invalid_parameter(f"tags: a job can have {MAX_TAGS} tags, and would have {len(row.tags)}.")
    if changes.archived is not None:
        row.archived = changes.archived
    return row
