"""Lists of results: what a user sees of them when they are printed, or are the value of a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pai_sdk._client.job.gather import gather
from pai_sdk._client.job.result_lists import MetricList, ResultList
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import MetricPoint
from pai_sdk.errors import ConflictError, ConnectionFailedError
from tests.support.fake_backend import FAST, FakeBackend


def points(count: int, instance: str = "master-0") -> list[MetricPoint]:
    return [
        MetricPoint(
            name="loss", step=step, value=step / 2, timestamp=f"2026-01-01T00:00:{step:02d}Z", instance=instance
        )
        for step in range(count)
    ]


def test_gathered_jobs_are_a_table() -> None:
    backend = FakeBackend()
    backend.status = "Succeed"
    backend.extra = {"TrainingJobName": "digits", "LatestMetrics": [{"Name": "loss", "Value": 0.25}]}
    records = gather([TrainingJob("train1", backend), TrainingJob("train2", backend)], show=False, policy=FAST)
    assert [record.training_job_id for record in records] == ["train1", "train2"]
    head, first, second = repr(records).splitlines()
    assert head.split() == ["job", "name", "status", "time", "loss"]
    assert first.split() == ["train1", "digits", "Succeed", "0.25"]
    assert second.startswith("train2")
    assert records._repr_html_().count("<tr>") == 3


def test_stop_requests_the_stop_of_all_unfinished_jobs() -> None:
    backends = [FakeBackend() for _ in range(3)]
    backends[0].status = "Succeed"
    jobs = ResultList([TrainingJob(f"train{n}", backend) for n, backend in enumerate(backends)])
    jobs.stop()
    assert [backend.status for backend in backends] == ["Succeed", "Terminated", "Terminated"]
    assert "stop" not in backends[0].calls
    records = gather(jobs[:1], show=False, policy=FAST)
    records.stop()
    assert records[0].status == "Succeed"


def test_stop_raises_after_all_requests() -> None:
    class Refusing(FakeBackend):
        def stop(self, job_id: str) -> None:
            raise ConnectionFailedError("reset", endpoint="fake")

    other = FakeBackend()
    with pytest.raises(ConnectionFailedError):
        ResultList([TrainingJob("train1", Refusing()), TrainingJob("train2", other)]).stop()
    assert other.status == "Terminated"


def test_a_job_that_finishes_meanwhile_needs_no_stop() -> None:
    class Finished(FakeBackend):
        def stop(self, job_id: str) -> None:
            self.status = "Succeed"
            raise ConflictError("it has finished", code="Conflict", status_code=409)

    ResultList([TrainingJob("train1", Finished())]).stop()


class Reporting(FakeBackend):
    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        return iter([point for point in points(3) if name in (None, point.name)])


def test_a_metric_that_does_not_exist_suggests_one() -> None:
    job = TrainingJob("train1", Reporting())
    assert len(job.metrics("loss")) == 3
    missing = job.metrics("los")
    assert missing == []
    assert repr(missing) == "[]  # no values of 'los': did you mean 'loss'?"
    assert "did you mean" in missing._repr_html_()
    with pytest.raises(IndexError, match="did you mean 'loss'"):
        missing[-1]
    assert missing[:1] == []


class Silent(FakeBackend):
    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> Iterator[MetricPoint]:
        return iter([])


def test_a_job_without_metrics_says_why() -> None:
    backend = Silent()
    assert "no metrics yet" in repr(TrainingJob("train1", backend).metrics("loss"))
    backend.status = "Succeed"
    assert repr(TrainingJob("train1", backend).metrics()) == "[]  # no values: the job has reported no metrics"
    backend.extra = {"AlgorithmSpec": {"MetricDefinitions": [{"Name": "acc", "Regex": "accuracy=([0-9.]+)"}]}}
    reason = TrainingJob("train1", backend).metrics("acc")._repr_html_()
    assert "no metrics yet" not in reason
    assert "no line of its log matches its metric_definitions: &#x27;accuracy=([0-9.]+)&#x27;" in reason


def test_a_stream_of_a_log_says_how_to_read_it() -> None:
    assert repr(TrainingJob("train1", FakeBackend()).logs()).startswith("<LogStream of train1; for line in")


def test_many_jobs_are_a_table_of_its_ends() -> None:
    backend = FakeBackend()
    backend.status = "Succeed"
    records = gather([TrainingJob(f"train{n}", backend) for n in range(250)], show=False, policy=FAST)
    lines = repr(records).splitlines()
    assert (lines[1][:6], lines[11], lines[-1][:8]) == ("train0", "… 230 more …", "train249")
    html = records._repr_html_()
    assert html.count("<tr>") == 201
    assert "and 50 more" in html


def test_metrics_print_as_a_table() -> None:
    assert str(MetricList(points(2))).splitlines() == [
        "metric  step  value  time",
        "loss       0      0  2026-01-01 00:00:00",
        "loss       1    0.5  2026-01-01 00:00:01",
    ]
    assert "… 30 more …" in str(MetricList(points(50)))
    assert str(MetricList([*points(1), *points(1, "worker-0")])).splitlines()[0].endswith("instance")
    assert (str(MetricList()), MetricList()._repr_html_()) == ("[]", "<i>no values</i>")


def test_metrics_in_a_notebook_are_a_row_and_a_curve_a_metric() -> None:
    html = MetricList([*points(5), *points(3, "<worker>")])._repr_html_()
    assert html.count("<tr>") == 3
    assert html.count("<polyline") == 2
    assert "&lt;worker&gt;" in html
    assert "8 values" in html


def test_metrics_as_a_data_frame() -> None:
    pytest.importorskip("pandas")
    frame = MetricList([*points(2), MetricPoint(name="accuracy", value=0.5)]).to_pandas()
    assert [*frame.columns] == ["name", "step", "value", "time", "instance"]
    assert frame["value"].tolist() == [0.0, 0.5, 0.5]
    assert frame["step"].isna().tolist() == [False, False, True]
    assert frame["time"].iloc[1].isoformat() == "2026-01-01T00:00:01+00:00"
    assert MetricList().to_pandas().empty


class Since(FakeBackend):
    def metrics(self, job_id: str, *, name: str | None = None, since: str | None = None) -> object:  # type: ignore[override]
        return iter([MetricPoint(name=f"{name} {since}")])


def test_metrics_from_a_time_on() -> None:
    job = TrainingJob("train1", Since())
    assert job.metrics("loss", since="2026-01-01T00:00:00Z")[0].name == "loss 2026-01-01T00:00:00Z"
    assert len(job.metrics()) == 1


def test_jobs_that_a_cell_shows_already_are_not_shown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FakeBackend()
    backend.status = "Succeed"
    monkeypatch.setattr("pai_sdk._client.job.gather.notebook_cell", lambda: 3)
    shown, silent = (gather([TrainingJob("train1", backend)], show=show, policy=FAST) for show in (True, False))
    monkeypatch.setattr("pai_sdk._client.job.result_lists.notebook_cell", lambda: 3)
    shown._ipython_display_()  # nothing more
    with pytest.raises(NotImplementedError):
        silent._ipython_display_()  # IPython takes the table
    monkeypatch.setattr("pai_sdk._client.job.result_lists.notebook_cell", lambda: 4)
    with pytest.raises(NotImplementedError):
        shown._ipython_display_()


@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, 1e308, None])
@pytest.mark.parametrize("step", [1, -1, 2**63, -(10**30), None])
@pytest.mark.parametrize(
    "timestamp", ["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "x"]
)
def test_points_of_any_service_are_shown(value: float | None, step: int | None, timestamp: str) -> None:
    pandas = pytest.importorskip("pandas")
    point = MetricPoint(name="loss", value=value, step=step, timestamp=timestamp)
    found = MetricList([point, point])
    frame = found.to_pandas()
    assert [None if pandas.isna(one) else int(one) for one in frame["step"]] == [step, step]
    assert frame["time"].isna().tolist() == [timestamp == "x" or pandas.isna(frame["time"][0])] * 2
    assert repr(found)
    assert found._repr_html_()
