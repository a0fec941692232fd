"""Jobs as a table, and a plan as a card: what they show, and what hostile text cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pai_sdk._client.display.card import plan_card_html
from pai_sdk._client.display.job_listing import job_table_html
from pai_sdk._client.job.job_list import JobList
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord
from tests.support.fake_backend import FakeBackend

pytestmark = pytest.mark.interpreter


def record(number: int, status: str = "Running", **more: object) -> JobRecord:
    facts = {"TrainingJobId": f"train{number}", "TrainingJobName": f"digits-{number}", "Status": status}
    return JobRecord.model_validate({**facts, **more})


def with_lr(number: int) -> JobRecord:
    values = [{"Name": "lr", "Value": str(number)}, {"Name": "epochs", "Value": "3"}]
    return record(number, HyperParameters=values, LatestMetrics=[{"Name": "loss", "Value": 0.25}])


def test_a_table_has_the_hyperparameters_that_differ_and_the_last_metrics() -> None:
    html = job_table_html([with_lr(1), with_lr(2)])
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", html)
    assert heads == ["status", "name", "lr", "loss", "time", "job", "created (UTC)"]
    assert html.count("train2") == 1
    assert ">0.25</td>" in html
    assert "#1a7f37" not in html
    assert "background:#1a7f37" in job_table_html([record(1, "Succeed")])


def test_names_of_jobs_stay_text() -> None:
    html = job_table_html([record(1, TrainingJobName="<script>alert(1)</script>")])
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def listed(count: int, taken: list[int]) -> Iterator[TrainingJob]:
    for number in range(count):
        taken.append(number)
        yield TrainingJob(f"train{number}", FakeBackend(), record=record(number))


def test_a_list_of_jobs_is_a_table_and_can_be_iterated_over_afterwards() -> None:
    taken: list[int] = []
    jobs = JobList(listed(60, taken))
    assert taken == [], "nothing is fetched before it is asked for"
    assert next(jobs).id == "train0"
    html = jobs._repr_html_()
    assert html == jobs._repr_html_()
    assert html.count("<tr>") == 51
    assert "and more" in html
    assert len(taken) == 51
    assert next(jobs).id == "train1"
    for _ in range(2):
        assert [job.id for job in jobs] == [f"train{number}" for number in range(60)]


def test_a_list_of_jobs_has_a_length_indexes_and_slices() -> None:
    taken: list[int] = []
    jobs = JobList(listed(60, taken))
    assert jobs
    assert [job.id for job in jobs[2:4]] == ["train2", "train3"]
    assert jobs[5].id == "train5"
    assert len(taken) == 6, "no more than was requested"
    assert (jobs[-1].id, jobs[::-30][1].id, len(jobs)) == ("train59", "train29", 60)
    assert [job.id for job in jobs[-2:]] == ["train58", "train59"]
    with pytest.raises(IndexError):
        jobs[60]
    assert not JobList(listed(0, []))


def test_a_list_of_jobs_prints_as_a_table() -> None:
    lines = str(JobList(listed(60, []))).splitlines()
    assert lines[0].split()[:3] == ["job", "name", "status"]
    assert lines[1].split() == ["train0", "digits-0", "Running"]
    assert lines[-1] == "and more; iterate over the list for all"


def test_no_jobs() -> None:
    assert repr(JobList(listed(0, []))) == "[]"
    assert JobList(listed(0, []))._repr_html_() == "<i>no jobs</i>"


REQUEST = {
    "TrainingJobName": "digits-1",
    "AlgorithmSpec": {"Image": "python:3.11", "Command": ["sh", "-c", "python train.py <x>"]},
    "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 2},
    "HyperParameters": [{"Name": "lr", "Value": "0.1"}],
    "InputChannels": [{"Name": "train", "InputUri": "oss://b/data/"}],
    "OutputChannels": [{"Name": "model", "OutputUri": "oss://b/model/"}],
    "Environments": {"TOKEN": "******"},
    "Scheduler": {"MaxRunningTimeInSeconds": 3600},
}


def test_a_plan_is_a_card_that_folds() -> None:
    html = plan_card_html(REQUEST, ["upload ./src -> oss://b/code/ (3 files, 2 KB)"])
    for fact in ("digits-1", "not submitted yet", "python train.py &lt;x&gt;", "2 × ecs.c6.large", "1h00m"):
        assert fact in html
    folded = re.findall(r"<details[^>]*?( open)?><summary[^>]*>(\w[\w ]*\w)", html)
    assert folded == [
        (" open", "hyperparameters"),
        (" open", "inputs"),
        (" open", "outputs"),
        ("", "environment"),
        (" open", "before it is sent"),
        ("", "request"),
    ]
    assert "<x>" not in html


@pytest.mark.parametrize(
    "request_of_a_registered_algorithm",
    [{"AlgorithmName": "xgboost", "AlgorithmVersion": "v1", "ComputeResource": {"ResourceId": "quota1"}}],
)
def test_a_plan_of_a_registered_algorithm(request_of_a_registered_algorithm: dict[str, object]) -> None:
    html = plan_card_html(request_of_a_registered_algorithm)
    assert "xgboost v1" in html
    assert "1 × quota1" in html
