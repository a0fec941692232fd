"""Jobs side by side: hyperparameters that differ, last and best metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._client.job.compare_jobs import _ranges, compare
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import JobRecord, MetricPoint
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.messages import refused


class Trained(FakeBackend):
    """Jobs train0, train1, … with the learning rate 0, 0.1, … and a loss that falls and rises again."""

    def get(self, job_id: str, *, changed_from: JobRecord | None = None, wait_s: float = 0.0) -> JobRecord:
        number = int(job_id.removeprefix("train"))
        return JobRecord.model_validate(
            {
                "TrainingJobId": job_id,
                "TrainingJobName": f"<b>{number}",
                "Status": "Succeed" if number else "Running",
                "Duration": 60 * number,
                "HyperParameters": [
                    {"Name": "lr", "Value": str(number / 10)},
                    {"Name": "optimizer", "Value": "adam"},
                    *([{"Name": "warmup", "Value": "5"}] if number == 2 else []),
                ],
                "LatestMetrics": [{"Name": "loss", "Value": 1.0 + number}],
            }
        )

    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        number = int(job_id.removeprefix("train"))
        for step, loss in enumerate([2.0, 0.5 + number, math.nan, 1.0 + number]):
            if name in (None, "loss"):
                yield MetricPoint(name="loss", value=loss, step=step, instance="master-0")
                yield MetricPoint(name="loss", value=-1000.0, step=step, instance="worker-0")
        if number == 1 and name in (None, "accuracy"):
            yield MetricPoint(name="accuracy", value=0.9)


def jobs(count: int) -> list[TrainingJob]:
    backend = Trained()
    return [TrainingJob(f"train{number}", backend) for number in range(count)]


def test_one_table_has_what_differs_and_the_best_values() -> None:
    found = compare(jobs(3))
    assert [line.split() for line in str(found).splitlines()] == [
        [
            "job",
            "name",
            "status",
            "time",
            "lr",
            "warmup",
            "loss",
            "loss",
            "min",
            "loss",
            "max",
            "accuracy",
            "accuracy",
            "min",
            "accuracy",
            "max",
        ],
        ["train0", "<b>0", "Running", "0", "-", "1", "0.5", "2", "-", "-", "-"],
        ["train1", "<b>1", "Succeed", "1m00s", "0.1", "-", "2", "1.5", "2", "0.9", "0.9", "0.9"],
        ["train2", "<b>2", "Succeed", "2m00s", "0.2", "5", "3", "2", "3", "-", "-", "-"],
        ["the", "same", "in", "all:", "optimizer=adam"],
    ]
    html = found._repr_html_()
    assert "&lt;b&gt;0" in html
    assert "<b>0" not in html
    assert found.best("loss", mode="min").record.training_job_id == "train0"
    assert found.best("loss", mode="max").hyperparameters["lr"] == 0.2
    with refused(InvalidInputError, "metric"):
        found.best("lss", mode="min")


def test_a_row_has_its_job_and_downloads_its_outputs(tmp_path: Path) -> None:
    first, second = jobs(2)
    best = compare([second, first]).best("loss", mode="min")
    assert best.job is first
    with pytest.raises(InvalidInputError, match="no output"):
        best.download("models", tmp_path)


def test_the_direction_of_a_metric_is_not_guessed() -> None:
    """`best("accuracy")` was the job with the least one."""
    found = compare(jobs(3))
    for mode in (None, "smallest"):
        with pytest.raises(InvalidInputError) as caught:
            found.best("loss", mode)
        assert [problem.where for problem in caught.value.problems] == ["mode"]
    assert found.best("loss", "max").record.training_job_id == "train2"


def test_a_data_frame_has_the_columns_of_runs() -> None:
    pytest.importorskip("pandas")
    frame = compare(jobs(3)).to_pandas()
    assert [*frame.columns][:5] == ["status", "name", "duration_s", "hparams.lr", "hparams.optimizer"]
    assert frame.loc["train2", "hparams.warmup"] == 5
    assert frame["metrics.loss.min"].tolist() == [0.5, 1.5, 2.0]
    assert frame["metrics.accuracy"].isna().tolist() == [True, False, True]
    assert frame.index.name == "id"


def test_only_named_metrics_are_asked_for_and_a_wrong_name_is_an_error() -> None:
    assert compare(jobs(2), ["accuracy", "loss"]).metrics == ["accuracy", "loss"]
    with refused(InvalidInputError, "metrics[1]"):
        compare(jobs(2), ["loss", "los"])
    with refused(InvalidInputError, "metrics"):
        compare(jobs(1), "loss")  # type: ignore[arg-type]
    with refused(InvalidInputError, "jobs[0]"):
        compare(["train1"])  # type: ignore[list-item]


def test_no_jobs_are_an_empty_table() -> None:
    assert str(compare([])) == "job  name  status  time"


@given(st.lists(st.floats() | st.none()))
def test_the_extremes_are_exact_whatever_is_among_the_values(values: list[float | None]) -> None:
    found = _ranges(MetricPoint(name="loss", value=value) for value in values)
    numbers = [value for value in values if value is not None and not math.isnan(value)]
    assert ("loss" in found) == bool(values)
    if values:
        one = found["loss"]
        assert one.count == len(values)
        assert (one.min, one.max) == (min(numbers), max(numbers)) if numbers else math.isnan(one.min)
        assert one.last == values[-1] or math.isnan(one.last)


def test_the_curves_of_all_jobs_are_one_picture() -> None:
    pytest.importorskip("numpy")
    found = compare(jobs(3))
    picture = found.plot("loss")
    assert picture.title == "loss"
    assert [(curve.name, len(curve.value)) for curve in picture.comparison.curves] == [
        ("train0", 4),
        ("train1", 4),
        ("train2", 4),
    ]
    assert [curve.name for curve in found.plot("accuracy").comparison.curves] == ["train1"]
    assert compare(jobs(3), ["loss"]).plot().title == "loss"
    with refused(InvalidInputError, "metric") as caught:
        found.plot("los")
    assert "did you mean 'loss'" in str(caught.value)
    with refused(InvalidInputError, "metric"):
        found.plot()


def test_the_best_job_is_displayed_as_a_job() -> None:
    best = compare(jobs(3)).best("loss", mode="min")
    assert repr(best) == "<ComparedJob train0 Running loss=1>"
    assert "train0" in (best._repr_html_() or "")
