"""A handle on a job: how waiting ends, and what it says then."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._client.api.responses import api_error
from pai_sdk._client.display.base import Silent
from pai_sdk._client.job.follow.polling import FollowPolicy
from pai_sdk._client.job.interrupts import detached
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._wire.pai.record import ErrorInfo, JobRecord, LogLine, LogPage
from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.errors import (
    AuthenticationError,
    ConnectionFailedError,
    CredentialsError,
    CredentialsRenewalError,
    InvalidInputError,
    InvalidResponseError,
    JobFailed,
    JobStopped,
    PaiError,
    WaitTimeoutError,
)
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.messages import refused
from tests.support.simulated_time import SimulatedTime

pytestmark = pytest.mark.interpreter

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    main()",
    "ValueError: no such column: 'age'",
]


class Recorder(Silent):
    """Keeps what was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def line(self, line: LogLine) -> None:
        self.shown.append(line.text)

    def notice(self, text: str) -> None:
        self.shown.append(f"! {text}")

    def detached(self, record: JobRecord) -> None:
        self.shown.append("detached")

    def ended(self, record: JobRecord) -> None:
        self.shown.append(f"ended {record.status}")


def test_waiting_shows_the_log_and_returns_the_job(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["one", "two"]}
    fake_backend.status = "Succeed"
    display = Recorder()
    job = TrainingJob("train1", fake_backend)
    assert job.wait(display=display, policy=FAST) is job
    assert display.shown == ["one", "two", "ended Succeed"]


@pytest.mark.parametrize("status", ["Failed", "CreateFailed", "InitializeFailed"])
def test_every_kind_of_failure_ends_the_wait_and_reports_why(fake_backend: FakeBackend, status: str) -> None:
    fake_backend.lines = {"train1-master-0": ["fine"], "train1-worker-0": ["epoch 1", *TRACEBACK]}
    fake_backend.status = status
    fake_backend.extra = {"ReasonCode": "NonZeroExit", "ReasonMessage": "worker-0 ended with exit code 1"}
    info = {"Instance": "train1-worker-0", "ExitCode": 1}
    fake_backend.info = ErrorInfo(code="NonZeroExit", additional_info=json.dumps(info))
    with pytest.raises(JobFailed) as caught:
        TrainingJob("train1", fake_backend).wait(show_logs=False, policy=FAST)
    failure = caught.value
    assert (failure.job_id, failure.instance, failure.exit_code) == ("train1", "train1-worker-0", 1)
    assert (failure.status, failure.reason_code) == (status, "NonZeroExit")
    assert failure.traceback == "\n".join(TRACEBACK)
    assert failure.log_tail[0] == "epoch 1"
    text = str(failure)
    assert len(text.splitlines()) <= 24, "one screen, without scrolling"
    for fact in ("train1", "worker-0", "exit code 1", "NonZeroExit", "no such column", "logs train1"):
        assert fact in text


def test_a_kill_is_named_as_what_it_mostly_is(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["loading"]}
    fake_backend.status = "Failed"
    fake_backend.info = ErrorInfo(additional_info=json.dumps({"Instance": "train1-master-0", "ExitCode": 137}))
    with refused(JobFailed):
        TrainingJob("train1", fake_backend).raise_for_status()


def test_a_long_traceback_still_fits_on_a_screen(fake_backend: FakeBackend) -> None:
    deep = [TRACEBACK[0], *(f'  File "deep.py", line {number}' for number in range(100)), "KeyError: 'x'"]
    fake_backend.lines = {"train1-master-0": deep}
    fake_backend.status = "Failed"
    with refused(JobFailed) as caught:
        TrainingJob("train1", fake_backend).raise_for_status()
    assert len(str(caught.value).splitlines()) <= 24
    assert caught.value.traceback == "\n".join(deep)


def test_a_failure_reads_the_end_of_a_long_log_only() -> None:
    read: list[int] = []

    class Counted(FakeBackend):
        def read_log(self, *args: Any, **more: Any) -> LogPage:
            page = super().read_log(*args, **more)
            read.append(len(page.lines))
            return page

    backend = Counted()
    backend.lines = {"train1-master-0": [*map(str, range(100_000)), "the reason"]}
    backend.status = "Failed"
    with refused(JobFailed):
        TrainingJob("train1", backend).raise_for_status()
    assert sum(read) < 1000


def test_stopped_is_neither_success_nor_failure(fake_backend: FakeBackend) -> None:
    job = TrainingJob("train1", fake_backend)
    job.stop()
    with refused(JobStopped):
        job.wait(show_logs=False)


def test_a_timeout_leaves_the_job_alone(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["busy"]}
    for show_logs in (True, False):
        with refused(WaitTimeoutError) as caught:
            TrainingJob("train1", fake_backend).wait(
                0.1, show_logs=show_logs, display=Silent(), policy=FollowPolicy(schedule=SimulatedTime())
            )
        assert isinstance(caught.value, TimeoutError)
    assert fake_backend.calls == []


def test_a_log_fault_does_not_fail_a_job_that_succeeded(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["one"]}
    fake_backend.status = "Succeed"

    def refuse() -> None:
        raise api_error("not for you", code="Forbidden", status_code=403, request_id="r")

    fake_backend.on_read = refuse
    display = Recorder()
    TrainingJob("train1", fake_backend).wait(display=display, policy=FAST)
    assert "not for you" in display.shown[0]
    assert display.shown[-1] == "ended Succeed"


def test_a_log_that_cannot_be_read_hides_nobody_elses(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["one"], "train1-worker-0": ["two"]}
    fake_backend.status = "Succeed"
    read = fake_backend.read_log

    def read_log(job_id: str, instance: str, **more: Any) -> LogPage:
        if instance == "train1-master-0":
            raise api_error("there are no logs", code="NotSupported", status_code=501, request_id="r")
        return read(job_id, instance, **more)

    fake_backend.read_log = read_log  # type: ignore[method-assign]
    clock, display = SimulatedTime(), Recorder()
    TrainingJob("train1", fake_backend).wait(display=display, policy=FollowPolicy(schedule=clock))
    assert sorted(display.shown)[:2] == [
        "! the log of master-0 cannot be shown: there are no logs [NotSupported, HTTP 501, RequestId r]",
        "ended Succeed",
    ]
    assert "two" in display.shown
    assert clock.time < 5, "what is never answered is not waited for"


def test_last_lines_that_come_after_the_end_are_reported_all_the_same() -> None:
    clock, backend = SimulatedTime(), FakeBackend(says_complete=False)
    backend.lines, backend.status = {"train1-master-0": []}, "Failed"
    backend.on_read = lambda: (
        None if clock.time < 2 else backend.lines.update({"train1-master-0": ["why", *TRACEBACK]})
    )
    with refused(JobFailed):
        TrainingJob("train1", backend).wait(show_logs=False, policy=FollowPolicy(schedule=clock))


def test_whose_failure_is_not_reported_is_found_by_its_traceback(fake_backend: FakeBackend) -> None:
    long = [f"waiting for master-0, {number}" for number in range(1000)]
    fake_backend.lines = {"train1-master-0": [*long, *TRACEBACK], "train1-worker-0": long}
    fake_backend.status = "Failed"
    names = [{"Name": name, "Status": "Terminated"} for name in fake_backend.lines]
    fake_backend.extra = {"Instances": names}
    with refused(JobFailed) as caught:
        TrainingJob("train1", fake_backend).raise_for_status()
    assert len(caught.value.log_tail) == 200


def test_ctrl_c_detaches_and_does_not_stop(fake_backend: FakeBackend) -> None:
    fake_backend.lines = {"train1-master-0": ["one"]}

    class Interrupted(Recorder):
        def line(self, line: LogLine) -> None:
            raise KeyboardInterrupt

    display = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        TrainingJob("train1", fake_backend).wait(display=display, policy=FAST)
    assert display.shown == ["detached"]
    assert fake_backend.calls == []


@pytest.mark.parametrize("on_interrupt", ["detach", "stop"])
def test_impatient_fingers_cut_off_no_parting_words(
    fake_backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, on_interrupt: str
) -> None:
    monkeypatch.setattr("pai_sdk._client.job.interrupts.time", SimpleNamespace(monotonic=lambda: 100.0))
    fake_backend.lines = {"train1-master-0": ["one"]}

    class Hurried(Recorder):
        def line(self, line: LogLine) -> None:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:  # still unwinding the first
                signal.raise_signal(signal.SIGINT)

        def detached(self, record: JobRecord) -> None:
            signal.raise_signal(signal.SIGINT)
            super().detached(record)

        def ended(self, record: JobRecord) -> None:
            signal.raise_signal(signal.SIGINT)
            super().ended(record)

    before = signal.getsignal(signal.SIGINT)
    display = Hurried()
    with pytest.raises(KeyboardInterrupt):
        TrainingJob("train1", fake_backend).wait(display=display, policy=FAST, on_interrupt=on_interrupt)  # type: ignore[arg-type]
    assert display.shown[-1] == ("detached" if on_interrupt == "detach" else "ended Terminated")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_does_not_claim_that_a_job_goes_on_that_is_being_stopped() -> None:
    backend, display = FakeBackend(), Recorder()
    backend.lines = {"train1-master-0": ["one"]}

    def interrupt(*args: object, **more: object) -> Any:
        raise KeyboardInterrupt

    display.line = interrupt  # type: ignore[method-assign]
    backend.stop = lambda job_id: setattr(display, "changed", interrupt)  # type: ignore[method-assign]
    with refused(KeyboardInterrupt):
        TrainingJob("train1", backend).wait(display=display, policy=FAST, on_interrupt="stop")
    assert "detached" not in display.shown


@pytest.mark.parametrize("goes_on_for_s", [9.0, 11.0])
def test_parting_words_that_take_long_are_said_but_lock_nobody_in(
    fake_backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, goes_on_for_s: float
) -> None:
    now = 100.0
    monkeypatch.setattr("pai_sdk._client.job.interrupts.time", SimpleNamespace(monotonic=lambda: now))
    fake_backend.lines = {"train1-master-0": ["one"]}

    class Blocked(Recorder):
        """A terminal that takes nothing for a while."""

        def line(self, line: LogLine) -> None:
            nonlocal now
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                now += 3
                signal.raise_signal(signal.SIGINT)

        def detached(self, record: JobRecord) -> None:
            nonlocal now
            now += goes_on_for_s
            signal.raise_signal(signal.SIGINT)
            super().detached(record)

    display, before = Blocked(), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        TrainingJob("train1", fake_backend).wait(display=display, policy=FollowPolicy(schedule=SimulatedTime()))
    assert display.shown == (["detached"] if goes_on_for_s < 10 else [])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_leaves_the_job_that_the_first_one_stops(
    fake_backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("pai_sdk._client.job.interrupts.time", SimpleNamespace(monotonic=lambda: now))
    fake_backend.lines = {"train1-master-0": ["one"]}

    class Pressed(Recorder):
        def line(self, line: LogLine) -> None:
            signal.raise_signal(signal.SIGINT)

    def stop(job_id: str) -> None:
        nonlocal now
        signal.raise_signal(signal.SIGINT)  # in a hurry
        fake_backend.calls.append("stop")
        now += 2
        signal.raise_signal(signal.SIGINT)

    fake_backend.stop = stop  # type: ignore[method-assign]
    display = Pressed()
    with pytest.raises(KeyboardInterrupt):
        TrainingJob("train1", fake_backend).wait(
            display=display, policy=FollowPolicy(schedule=SimulatedTime()), on_interrupt="stop"
        )
    assert fake_backend.calls == ["stop"]
    assert display.shown[-1] == "detached"


def test_ctrl_c_at_the_very_end_of_a_wait_leaves_no_handler_of_ours_behind(
    fake_backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stays would be deaf for ten seconds after each Ctrl-C."""
    before, put, pressed = signal.getsignal(signal.SIGINT), signal.signal, []

    def press_first(number: int, handler: Any) -> Any:
        if handler is before and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return put(number, handler)

    fake_backend.status = "Succeed"
    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", press_first)
        with pytest.raises(KeyboardInterrupt):
            TrainingJob("train1", fake_backend).wait(display=Recorder(), policy=FAST)
    assert pressed
    assert signal.getsignal(signal.SIGINT) is before


def test_outputs_are_fetched_by_channel(fake_backend: FakeBackend, tmp_path: object) -> None:
    fake_backend.extra = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://bucket/m/"}]}
    job = TrainingJob("train1", fake_backend)
    job.download("model", str(tmp_path))
    assert fake_backend.calls == ["download oss://bucket/m/"]
    with refused(InvalidInputError, "channel"):
        job.download("modle", str(tmp_path))


def test_an_output_is_downloaded_to_a_folder_of_its_name(fake_backend: FakeBackend) -> None:
    fake_backend.extra = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://bucket/m/"}]}
    assert TrainingJob("train1", fake_backend).download("model") == Path("model")


def test_an_unknown_status_and_a_bare_answer_are_no_crash() -> None:
    record = JobRecord.model_validate(
        {"TrainingJobId": "t", "Status": "Dreaming", "Instances": None, "New": {"a": 1}}
    )
    assert record.status == "Dreaming"
    assert not record.status.is_terminal
    assert record.instance_names == []
    assert JobRecord.model_validate({"TrainingJobId": "t", "OutputChannels": [{"Name": "x"}]}).outputs == {}


@pytest.mark.parametrize(
    ("status", "terminal", "success"),
    [
        ("Succeed", True, True),
        ("Failed", True, False),
        ("CreateFailed", True, False),
        ("InitializeFailed", True, False),
        ("Terminated", True, False),
        ("Running", False, False),
        ("", False, False),
    ],
)
def test_a_status_knows_what_it_means(status: str, terminal: bool, success: bool) -> None:
    assert (JobStatus(status).is_terminal, JobStatus(status).is_success) == (terminal, success)


def test_repr_needs_no_network(fake_backend: FakeBackend) -> None:
    assert repr(TrainingJob("train1", fake_backend)) == "<TrainingJob train1>"
    fake_backend.extra = {"Duration": 192}
    fake_backend.status = "Succeed"
    job = TrainingJob("train1", fake_backend)
    job.refresh()
    assert repr(job) == "<TrainingJob train1 Succeed 3m12s>"
    assert "Succeed" in (job._repr_html_() or "")


def test_a_cell_that_has_the_card_does_not_show_it_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = 3
    monkeypatch.setattr("pai_sdk._client.job.notebook_card.notebook_cell", lambda: cell)
    backend = FakeBackend()
    backend.status = "Succeed"
    job = TrainingJob("train1", backend).wait(policy=FAST)
    assert job._repr_html_() is None  # IPython shows the plain repr then
    cell = 4
    assert "Succeed" in (job._repr_html_() or "")


def test_an_interrupted_wait_ends_with_the_way_back() -> None:
    backend, recorder = FakeBackend(), Recorder()

    def interrupt() -> None:
        raise KeyboardInterrupt

    recorder.line = lambda line: interrupt()  # type: ignore[method-assign]
    backend.lines["train1-master-0"] = ["hello"]
    with refused(KeyboardInterrupt) as caught:
        TrainingJob("train1", backend).wait(display=recorder, policy=FAST)
    assert recorder.shown == ["detached"]
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("show_logs", [True, False])
def test_a_wait_outlives_minutes_without_a_network(show_logs: bool) -> None:
    clock, backend = SimulatedTime(), FakeBackend()
    backend.lines = {"train1-master-0": ["one"]}
    answer = backend.get

    def get(job_id: str, **more: object) -> JobRecord:
        if 10 <= clock.time < 500:
            raise ConnectionFailedError("the lid is closed", endpoint="fake")
        backend.status = "Succeed" if clock.time > 600 else "Running"
        return answer(job_id)

    backend.get = get  # type: ignore[method-assign]
    job = TrainingJob("train1", backend)
    job.wait(3600, show_logs=show_logs, display=Recorder(), policy=FollowPolicy(schedule=clock))
    assert job.status == "Succeed"
    assert 600 < clock.time < 620


@pytest.mark.parametrize("show_logs", [True, False])
@pytest.mark.parametrize(
    ("fault", "gives_up_after_s"),
    [
        (ConnectionFailedError("the lid is closed", endpoint="fake"), 600),
        (InvalidResponseError("please log in to the hotel's network", status_code=200, body="<html>"), 600),
        (
            InvalidResponseError("unexpected response", status_code=200, is_from_service=True),
            20,
        ),
        (api_error("no such job", code="NotFound", status_code=404, request_id="r"), 0),
        (api_error("your clock is wrong", code="IllegalTimestamp", status_code=400, request_id="r"), 0),
    ],
)
def test_a_wait_gives_up_when_its_patience_is_used_up_and_once(
    show_logs: bool, fault: PaiError, gives_up_after_s: float
) -> None:
    clock, backend, display = SimulatedTime(), FakeBackend(), Recorder()
    backend.lines = {"train1-master-0": ["one"]}
    answer = backend.get

    def get(job_id: str, **more: object) -> JobRecord:
        if clock.time >= 10:
            raise fault
        return answer(job_id)

    backend.get = get  # type: ignore[method-assign]
    with refused(type(fault)):
        TrainingJob("train1", backend).wait(
            show_logs=show_logs, display=display, policy=FollowPolicy(schedule=clock)
        )
    assert gives_up_after_s <= clock.time - 10 < gives_up_after_s + 15
    assert display.shown == (["one"] if show_logs else []), "the log could be read"


@pytest.mark.parametrize("was_seen", [True, False])
def test_a_wait_that_ends_without_an_answer_reports_why_there_is_none(was_seen: bool) -> None:
    clock, backend = SimulatedTime(), FakeBackend()
    job = TrainingJob("train1", backend)
    if was_seen:
        job.refresh()

    def get(job_id: str, **more: object) -> JobRecord:
        raise ConnectionFailedError("nothing listens at pai.example:1", endpoint="fake")

    backend.get = get  # type: ignore[method-assign]
    with refused(WaitTimeoutError) as caught:
        job.wait(300, show_logs=False, policy=FollowPolicy(schedule=clock))
    assert isinstance(caught.value.__context__, ConnectionFailedError)
    assert caught.value.status == ("Running" if was_seen else "")


def test_a_timeout_counts_for_one_who_is_slow_to_show_the_lines() -> None:
    clock, backend = SimulatedTime(), FakeBackend()
    backend.lines = {"train1-master-0": [str(number) for number in range(30_000)]}

    class Slow(Recorder):
        def line(self, line: LogLine) -> None:
            clock.time += 0.1
            super().line(line)

    display = Slow()
    with refused(WaitTimeoutError):
        TrainingJob("train1", backend).wait(60, display=display, policy=FollowPolicy(schedule=clock))
    assert clock.time < 61
    assert display.shown == [str(number) for number in range(len(display.shown))]

    clock.time, backend.status, display.shown = 0, "Succeed", []
    TrainingJob("train1", backend).wait(60, display=display, policy=FollowPolicy(schedule=clock))
    assert display.shown[-1] == "ended Succeed"
    assert "timed out before the log was complete" in display.shown[-2]


@pytest.mark.parametrize("show_logs", [True, False])
def test_a_wait_outlives_a_temporary_key_that_is_renewed_late(
    show_logs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock, backend = SimulatedTime(), FakeBackend()
    backend.lines = {"train1-master-0": ["one"]}
    answer, renewed_at = backend.get, 300.0

    def get(job_id: str, **more: object) -> JobRecord:
        if 10 <= clock.time < renewed_at:
            raise api_error("it is old", code="InvalidSecurityToken.Expired", status_code=400, request_id="r")
        backend.status = "Succeed" if clock.time > 600 else "Running"
        return answer(job_id)

    backend.get = get  # type: ignore[method-assign]
    job = TrainingJob("train1", backend)
    with caplog.at_level("WARNING"):
        job.wait(show_logs=show_logs, display=Recorder(), policy=FollowPolicy(schedule=clock))
    assert job.status == "Succeed"
    reported = [record for record in caplog.records if record.name.startswith("pai_sdk._client.job.")]
    assert len(reported) == 1, "the fault of the key is reported once"
    assert "InvalidSecurityToken.Expired" in caplog.text

    clock.time, renewed_at, backend.status = 0, float("inf"), "Running"
    with pytest.raises(AuthenticationError):
        TrainingJob("train1", backend).wait(show_logs=False, policy=FollowPolicy(schedule=clock))
    assert 600 < clock.time < 700


@pytest.mark.parametrize("show_logs", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        CredentialsRenewalError("the access key could not be renewed: the metadata server does not answer"),
        api_error("the request came twice", code="SignatureNonceUsed", status_code=400, request_id="r"),
    ],
)
def test_a_wait_outlives_what_passes(fault: Exception, show_logs: bool) -> None:
    clock, backend = SimulatedTime(), FakeBackend()
    backend.lines = {"train1-master-0": ["one"]}
    answer = backend.get

    def get(job_id: str, **more: object) -> JobRecord:
        if 10 <= clock.time < 200:
            raise fault
        backend.status = "Succeed" if clock.time > 300 else "Running"
        return answer(job_id)

    backend.get = get  # type: ignore[method-assign]
    job = TrainingJob("train1", backend)
    job.wait(show_logs=show_logs, display=Recorder(), policy=FollowPolicy(schedule=clock))
    assert job.status == "Succeed"


def test_a_wait_ends_where_there_is_no_key() -> None:
    clock, backend = SimulatedTime(), FakeBackend()

    def get(job_id: str, **more: object) -> JobRecord:
        raise CredentialsError("no access key was found")

    backend.get = get  # type: ignore[method-assign]
    with refused(CredentialsError):
        TrainingJob("train1", backend).wait(show_logs=False, policy=FollowPolicy(schedule=clock))


def test_a_timeout_is_kept_on_a_clock_that_nobody_sets(fake_backend: FakeBackend) -> None:
    clock = SimulatedTime()
    with refused(WaitTimeoutError):
        TrainingJob("train1", fake_backend).wait(7200, show_logs=False, policy=FollowPolicy(schedule=clock))
    assert clock.time == 7200


def test_a_notebook_shows_an_interrupt_in_a_few_lines() -> None:
    text = "\n".join(detached("train1", ["pai-sdk logs -f train1", "pai-sdk stop train1"])._render_traceback_())
    assert text.splitlines() == [
        "Interrupted. train1 is still running. To follow or stop it:",
        "  job = TrainingJob.get('train1'), then job.wait() or job.stop()",
        "  pai-sdk logs -f train1",
        "  pai-sdk stop train1",
    ]


def test_handles_of_one_job_are_equal() -> None:
    first, same, other = (TrainingJob(job_id, FakeBackend()) for job_id in ("train1", "train1", "train2"))
    assert first == same
    assert len({first, same, other}) == 2
    assert first not in (other, "train1", None)
