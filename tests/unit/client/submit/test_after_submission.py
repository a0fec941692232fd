"""From the moment a job exists: nothing that goes wrong then hides the job, or why it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pai_sdk import Estimator, Processor, Session
from pai_sdk._client.api.responses import api_error
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._wire.pai.record import JobRecord
from pai_sdk.errors import JobFailed, ObjectNotFoundError, PaiError
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.messages import refused
from tests.support.simulated_time import SimulatedTime
from tests.unit.client.api.scripted_server import Reply, Reset, ScriptedServer
from tests.unit.client.job.test_training_job import Recorder


@pytest.fixture
def service() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def session(service: ScriptedServer) -> Iterator[Session]:
    retry = RetryPolicy(max_attempts=2, sleep=lambda _: None)
    key = {"access_key_id": "LTAI-example", "access_key_secret": "a-secret"}
    with Session("local", "1", oss_bucket_name="models", endpoint=service.endpoint, retry=retry, **key) as made:
        yield made


@pytest.mark.parametrize(
    "answer",
    [
        Reply({"Code": "TRAINING_JOB_NOT_FOUND", "Message": "not yet"}, 404),
        Reply({"Code": "InternalError", "Message": "oops"}, 500),
        Reply({"Duration": "a week"}),
        Reset,
    ],
)
@pytest.mark.parametrize("show_logs", [True, False])
def test_a_job_that_was_created_is_given_back_even_when_it_cannot_be_looked_at(
    service: ScriptedServer,
    session: Session,
    answer: Reply | type[Reset],
    show_logs: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A user who sees an error here submits again, and pays for two jobs."""
    service.answer = lambda asked: Reply({"TrainingJobId": "train9"}) if asked.method == "POST" else answer
    processor = Processor("img", "true", instance_type="ecs.x", session=session)
    job = processor.run(wait=False, show_logs=show_logs)
    assert (job.id, processor.jobs) == ("train9", [job])
    shown = capsys.readouterr().out
    assert ("train9 submitted" in shown, "status cannot be read: " in shown) == (show_logs, show_logs)


@pytest.mark.parametrize("show_logs", [True, False])
def test_the_reason_is_the_one_at_the_end(show_logs: bool) -> None:
    """Not that of the first snapshot, when there was none."""
    backend = FakeBackend()
    backend.lines = {"train1-master-0": ["fine"]}
    backend.extra = {"ReasonCode": None, "ReasonMessage": "all is well"}
    job = TrainingJob("train1", backend)
    assert job.refresh().status == "Running"
    get, answers = backend.get, iter(range(100))

    def ends_at_the_third(job_id: str, **more: object) -> JobRecord:
        if next(answers) == 2:
            # In this order: the log's reader asks as well, as soon as the job has ended.
            backend.extra = {"ReasonCode": "QuotaExceeded", "ReasonMessage": "the quota is used up"}
            backend.status = "Failed"
        return get(job_id)

    backend.get = ends_at_the_third  # type: ignore[method-assign]
    with refused(JobFailed) as caught:
        job.wait(display=Recorder(), show_logs=show_logs, policy=FAST)
    assert (caught.value.job_id, caught.value.reason_code) == ("train1", "QuotaExceeded")
    assert job.record.reason_message == "the quota is used up"


@pytest.mark.parametrize("show_logs", [True, False])
@pytest.mark.parametrize("status", ["CreateFailed", "InitializeFailed", "Failed"])
def test_a_job_that_never_had_an_instance_is_not_waited_for(status: str, show_logs: bool) -> None:
    backend, display = FakeBackend(says_complete=False), Recorder()
    backend.status, backend.extra = status, {"ReasonCode": "ImagePullFailed", "ReasonMessage": "no such image"}
    with refused(JobFailed):
        TrainingJob("train1", backend).wait(
            30, display=display, show_logs=show_logs, policy=FollowPolicy(schedule=SimulatedTime())
        )
    assert display.shown == [f"ended {status}"]


def _refuse() -> None:
    raise api_error("not for you", code="Forbidden", status_code=403, request_id="r")


def _log_refused(backend: FakeBackend) -> None:
    backend.on_read = _refuse


def _info_refused(backend: FakeBackend) -> None:
    backend.error_info = lambda job_id: _refuse()  # type: ignore[method-assign, assignment, func-returns-value]


@pytest.mark.parametrize("spoil", [_log_refused, _info_refused])
@pytest.mark.parametrize("show_logs", [True, False])
def test_what_cannot_be_read_does_not_take_the_place_of_the_failure(
    spoil: Callable[[FakeBackend], None], show_logs: bool
) -> None:
    backend = FakeBackend()
    backend.lines = {"train1-master-0": ["loading"]}
    backend.status, backend.extra = "Failed", {"ReasonCode": "NonZeroExit", "ReasonMessage": "exit code 3"}
    spoil(backend)
    with refused(JobFailed) as caught:
        TrainingJob("train1", backend).wait(display=Recorder(), show_logs=show_logs, policy=FAST)
    assert caught.value.reason_code == "NonZeroExit"


def test_a_submission_that_fails_is_no_job(service: ScriptedServer, session: Session) -> None:
    service.answer = lambda asked: Reply({"Code": "InvalidParameter", "Message": "no such image"}, 400)
    estimator = Estimator("img", "true", instance_type="ecs.x", session=session)
    with refused(PaiError, code="InvalidParameter"):
        estimator.fit(wait=False)
    assert (estimator.jobs, estimator.latest_job) == ([], None)


@pytest.mark.parametrize(("says_complete", "longest_s"), [(True, 0.0), (False, 6.0)])
@pytest.mark.parametrize("instances", [0, 1, 20])
def test_a_job_that_has_ended_already_is_hardly_waited_for(
    says_complete: bool, longest_s: float, instances: int
) -> None:
    """A service that does not say when a log is complete is given a moment for the last lines, once for all."""
    clock, backend, display = SimulatedTime(), FakeBackend(says_complete=says_complete), Recorder()
    backend.lines = {f"train1-worker-{number}": ["done"] for number in range(instances)}
    backend.status = "Succeed"
    TrainingJob("train1", backend).wait(display=display, policy=FollowPolicy(schedule=clock))
    assert display.shown == ["done"] * instances + ["ended Succeed"]
    assert clock.time <= longest_s


def test_ctrl_c_right_after_the_submission_names_the_job(
    service: ScriptedServer, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is slow to describe the job gives time for it."""
    service.answer = lambda asked: Reply({"TrainingJobId": "train9"})

    def interrupted(*_: object, **__: object) -> JobRecord:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.backend_for("x"), "get", interrupted)
    processor = Processor("img", "true", instance_type="ecs.x", session=session)
    with refused(KeyboardInterrupt):
        processor.run(wait=False)
    assert [job.id for job in processor.jobs] == ["train9"]


def test_a_job_that_is_not_shown_is_not_looked_at(service: ScriptedServer, session: Session) -> None:
    service.answer = lambda asked: Reply({"TrainingJobId": "train9"})
    Processor("img", "true", instance_type="ecs.x", session=session).run(wait=False, show_logs=False)
    assert [asked.method for asked in service.asked] == ["POST"]


def test_every_job_is_waited_for_when_one_has_failed() -> None:
    waited: list[str] = []

    class Ends(TrainingJob):
        def wait(self, *_: object, **__: object) -> TrainingJob:
            waited.append(self.id)
            if self.id != "fine":
                raise JobFailed(f"{self.id} failed", job_id=self.id, status="Failed")
            return self

    processor = Processor("img", "true", instance_type="ecs.x")
    processor.jobs += [Ends(name, FakeBackend()) for name in ("first", "second", "fine")]
    with refused(JobFailed):
        processor.wait(all_jobs=True)
    assert waited == ["first", "second", "fine"]


@pytest.mark.parametrize("status", ["Succeed", "Running"])
def test_an_output_that_was_never_written_is_reported_as_that(
    fake_backend: FakeBackend, tmp_path: Path, status: str
) -> None:
    def nothing_there(uri: str, *_: object, **__: object) -> Path:
        raise ObjectNotFoundError(f"{uri}: no such file or folder", uri=uri)

    fake_backend.status = status
    fake_backend.extra = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://bucket/m/"}]}
    fake_backend.download = nothing_there  # type: ignore[method-assign]
    with refused(ObjectNotFoundError, code="NoSuchKey"):
        TrainingJob("train1", fake_backend).download("model", tmp_path)
