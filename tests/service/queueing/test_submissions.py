"""Submissions that share a transaction: each has its own job or its own refusal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from pai_sdk._service.services.jobs.queueing.submission import NewJob, Submissions
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import Job
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from tests.service.services import job_body
from tests.support.waiting import until


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database.in_file(tmp_path / "service.db")
    yield database
    database.close()


def submission(name: str, **fields: Any) -> NewJob:
    labels = fields.pop("labels", [])
    request = TrainingJobRequest.model_validate(job_body(TrainingJobName=name, Labels=labels))
    return NewJob(request, "1", **fields)


def names(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.scalars(select(Job.name).order_by(Job.number)))


def together(database: Database, submissions: list[NewJob]) -> list[str | BaseException]:
    """Carry out submissions that all wait while the first one is under way."""
    queue = Submissions(database, dedupes=True)
    has_begun, may_go_on = threading.Event(), threading.Event()

    def hold(session: Session, job_id: str) -> None:
        has_begun.set()
        may_go_on.wait()

    with ThreadPoolExecutor(1 + len(submissions)) as pool:
        first = pool.submit(queue.submit, submission("first", in_transaction=hold))
        has_begun.wait()
        others = []
        for one in submissions:
            others.append(pool.submit(queue.submit, one))
            until(lambda: len(queue._waiting) == len(others))
        may_go_on.set()
        first.result()
        return [other.exception() or other.result() for other in others]


def commits(database: Database) -> list[object]:
    found: list[object] = []
    event.listen(database.engine, "commit", found.append)
    return found


def test_those_that_wait_share_a_transaction(database: Database) -> None:
    begun = commits(database)
    ids = together(database, [submission(f"job-{n}") for n in range(5)])
    assert len(set(ids)) == 5
    assert names(database) == ["first", *(f"job-{n}" for n in range(5))]
    assert len(begun) == 2


def test_one_that_fails_fails_alone(database: Database) -> None:
    def refuse(session: Session, job_id: str) -> None:
        raise WireError(409, "NoGood", "It is not allowed.")

    good, bad, other = together(
        database, [submission("good"), submission("bad", in_transaction=refuse), submission("other")]
    )
    assert isinstance(bad, WireError)
    assert bad.code == "NoGood"
    with database.read() as session:
        found = {row.id: row.name for row in session.execute(select(Job.id, Job.name))}
    assert (found.pop(good), found.pop(other)) == ("good", "other")
    assert list(found.values()) == ["first"]


def test_a_submission_that_is_sent_twice_at_once_makes_one_job(database: Database) -> None:
    label = [{"Key": SUBMISSION_LABEL, "Value": "the-same"}]
    one, again, other = together(
        database, [submission("a", labels=label), submission("a", labels=label), submission("b")]
    )
    assert one == again != other
    assert names(database) == ["first", "a", "b"]


def test_a_commit_that_failed_is_not_tried_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []
    submissions = Submissions(database, dedupes=True)

    def fail(connection: object) -> None:
        raise ConnectionError("lost")

    def note(session: Session, job_id: str) -> None:
        attempts.append(job_id)

    event.listen(database.engine, "commit", fail)
    both = [submission("a", in_transaction=note), submission("b", in_transaction=note)]
    submissions._submit_all(both)
    event.remove(database.engine, "commit", fail)
    assert [str(one.error) for one in both] == ["lost", "lost"]
    assert len(attempts) == 2
    assert names(database) == []
