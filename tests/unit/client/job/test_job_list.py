"""Jobs by id, by name and by status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from pai_sdk._client.job import job_list
from pai_sdk._client.job.job_list import JobList, attach_to_job
from pai_sdk._wire.pai.arguments import check_filters
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import InvalidInputError, NotFoundError, PermissionDeniedError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused

NAMES = {"train1": "digits", "train2": "digits-large", "train3": "letters", "train4": "letters"}


class Named(FakeBackend):
    """Jobs with names, which a list finds by a part of the name."""

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        if job_id not in NAMES:
            raise NotFoundError("there is no such job", code="NotFound", status_code=404)
        return JobRecord.model_validate({"TrainingJobId": job_id, "TrainingJobName": NAMES[job_id]})

    def list(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        newest_first: bool = True,
        skip: int = 0,
    ) -> Iterator[JobRecord]:
        self.calls.append("list")
        yield from [self.get(job_id) for job_id, each in NAMES.items() if (name or "") in each]


def test_a_job_is_found_by_its_id_without_a_list() -> None:
    backend = Named()
    assert attach_to_job("train2", backend).name == "digits-large"
    assert backend.calls == []


def test_a_job_is_found_by_a_name_that_it_alone_has() -> None:
    assert attach_to_job("digits", Named()).id == "train1"
    with pytest.raises(NotFoundError):
        attach_to_job("digit", Named())
    with refused(InvalidInputError, "job_id") as caught:
        attach_to_job("letters", Named())
    assert "train3, train4" in str(caught.value)


def test_a_name_is_not_unique_before_all_jobs_with_it_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_list, "_MAX_NAMESAKES", 1)
    with refused(InvalidInputError, "job_id") as caught:
        attach_to_job("digits", Named())
    assert "train1" in str(caught.value)


def test_a_key_that_may_not_list_jobs_gets_the_first_error() -> None:
    class Secretive(Named):
        def list(self, **_: object) -> Iterator[JobRecord]:  # type: ignore[override]
            raise PermissionDeniedError("no", code="Forbidden", status_code=403)

    with pytest.raises(NotFoundError):
        attach_to_job("digits", Secretive())


def test_a_status_is_known_in_any_case() -> None:
    assert check_filters("running", None, None) == "Running"
    assert check_filters("Succeeded", None, None) == "Succeed"
    assert check_filters("stopped", None, None) == "Terminated"
    assert check_filters(None, None, None) is None


def test_a_missing_item_says_how_many_there_are() -> None:
    jobs = JobList(attach_to_job(job_id, Named()) for job_id in NAMES)
    assert (jobs[3].id, jobs[-4].id) == ("train4", "train1")
    for index in (4, -5):
        with pytest.raises(IndexError, match="the list has 4 jobs"):
            jobs[index]
