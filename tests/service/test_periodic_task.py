"""One thread, one function, called again and again."""

from __future__ import annotations

import threading

import pytest

from pai_sdk._service.periodic_task import PeriodicTask
from tests.support.waiting import PATIENCE_S, until


def test_it_runs_at_the_start_after_each_interval_and_when_it_is_woken() -> None:
    calls: list[str] = []
    pauses = [0.0, 0.01, None]
    task = PeriodicTask(
        "counter", lambda: pauses.pop(0) if pauses else None, lambda: calls.append(threading.current_thread().name)
    )
    assert not task.is_pending
    task.start()
    assert task.is_alive
    until(lambda: len(calls) == 3 and not task.is_pending)
    task.wake()
    assert task.is_pending or len(calls) == 4
    until(lambda: len(calls) == 4 and not task.is_pending)
    task.close(PATIENCE_S)
    assert calls == ["counter"] * 4
    assert not task.is_alive


def test_an_error_is_reported_and_the_call_repeated(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = []
    faults = [OSError("full"), ValueError("wrong")]

    def run() -> None:
        if faults:
            raise faults.pop(0)

    told = PeriodicTask("told", 3600.0, run, retry_s=0.0, on_error=errors.append)
    told.start()
    until(lambda: not told.is_pending)
    told.close()
    assert [str(error) for error in errors] == ["full", "wrong"]
    faults.append(OSError("logged"))
    logged = PeriodicTask("logged", 3600.0, run, retry_s=0.0)
    logged.start()
    until(lambda: not logged.is_pending)
    logged.close()
    assert [record.message for record in caplog.records] == ["the thread logged failed, and tries again"]


def test_a_request_during_a_call_leads_to_another_one() -> None:
    inside, release, calls = threading.Event(), threading.Event(), 0

    def run() -> None:
        nonlocal calls
        calls += 1
        inside.set()
        assert release.wait(PATIENCE_S)

    task = PeriodicTask("busy", lambda: None, run)
    task.start()
    assert inside.wait(PATIENCE_S)
    task.wake()
    release.set()
    until(lambda: calls == 2 and not task.is_pending)
    task.close()


def test_nothing_is_called_while_another_service_may_act() -> None:
    calls: list[None] = []
    can_act = threading.Event()
    task = PeriodicTask("standby", 0.0, lambda: calls.append(None), can_act=can_act.is_set)
    task.start()
    assert task.is_pending
    assert not calls
    can_act.set()
    until(lambda: calls)
    task.close()


def test_a_close_says_that_a_call_still_runs() -> None:
    inside, release = threading.Event(), threading.Event()

    def run() -> None:
        inside.set()
        assert release.wait(PATIENCE_S)

    task = PeriodicTask("slow", 0.0, run)
    task.close()  # never started
    task = PeriodicTask("slow", 0.0, run)
    task.start()
    assert inside.wait(PATIENCE_S)
    with pytest.raises(TimeoutError, match="the thread slow"):
        task.close(0.01)
    assert task.closing.is_set()
    release.set()
    task.close(PATIENCE_S)
