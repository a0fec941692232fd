"""The background thread of a manager."""

from __future__ import annotations

import threading
import time

import pytest

from pai_sdk._data.run.watch.poller import Poller
from tests.support.waiting import PATIENCE_S, until


def test_work_is_done_again_and_again() -> None:
    calls: list[bool] = []
    poller = Poller(calls.append, 0.001, "test-poller")
    poller.start()
    until(lambda: len(calls) > 3)
    assert poller.close(PATIENCE_S)
    number = len(calls)
    time.sleep(0.01)
    assert len(calls) == number


def test_the_time_between_two_calls_can_be_changed_while_it_waits() -> None:
    calls: list[bool] = []
    poller = Poller(calls.append, 3600, "test-poller")
    poller.start()
    until(lambda: calls)
    poller.every_s = 0.001
    until(lambda: len(calls) > 3)
    poller.every_s = 3600
    number = len(calls)
    time.sleep(0.04)
    assert len(calls) <= number + 1  # one that had begun
    assert poller.close(PATIENCE_S)


def test_without_an_interval_it_works_when_asked() -> None:
    calls: list[bool] = []
    poller = Poller(calls.append, 0, "test-poller")
    assert poller.run(PATIENCE_S)
    assert poller.run(PATIENCE_S)
    assert calls == [True, True]
    assert poller.close(PATIENCE_S)
    assert not poller.run(1)


def test_a_request_during_the_work_is_not_lost() -> None:
    """MGR-B6: a request that came while the original was loading was dropped."""
    begun, go_on = threading.Event(), threading.Event()
    calls: list[bool] = []

    def work(is_asked: bool) -> None:
        calls.append(is_asked)
        begun.set()
        assert go_on.wait(PATIENCE_S)

    poller = Poller(work, 0, "test-poller")
    poller.start()
    assert begun.wait(PATIENCE_S)
    done: list[bool] = []
    callers = [threading.Thread(target=lambda: done.append(poller.run(PATIENCE_S))) for _ in range(3)]
    for caller in callers:
        caller.start()
    until(lambda: poller._requested == 2)
    assert calls == [True]
    go_on.set()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert done == [True, True, True]
    assert len(calls) == 2  # one more for all three
    poller.close(PATIENCE_S)


def test_work_that_goes_on_is_called_at_once_and_requests_wait_for_its_end() -> None:
    calls: list[bool] = []

    def work(is_asked: bool) -> bool:
        calls.append(is_asked)
        return len(calls) < 5

    poller = Poller(work, 0, "test-poller")
    assert poller.run(PATIENCE_S)
    assert calls == [True, False, False, False, False]
    poller.close(PATIENCE_S)


def test_work_that_fails_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """MGR-B1: an exception left the original in LOADING for ever."""
    calls: list[bool] = []

    def work(is_asked: bool) -> None:
        calls.append(is_asked)
        raise OSError("disk")

    poller = Poller(work, 0, "test-poller")
    assert poller.run(PATIENCE_S)
    assert poller.run(PATIENCE_S)
    assert len(calls) == 2
    assert "test-poller failed" in caplog.text
    poller.close(PATIENCE_S)


def test_close_tells_when_work_goes_on() -> None:
    go_on, begun = threading.Event(), threading.Event()

    def work(is_asked: bool) -> None:
        begun.set()
        go_on.wait(PATIENCE_S)

    poller = Poller(work, 0, "test-poller")
    poller.start()
    assert begun.wait(PATIENCE_S)
    assert not poller.close(0.01)
    assert not poller.run(PATIENCE_S)  # after close, it returns at once
    go_on.set()
    assert poller.close(PATIENCE_S)


def test_the_thread_does_not_keep_the_interpreter_alive() -> None:
    """MGR-B12: the original's thread did."""
    poller = Poller(lambda is_asked: None, 0, "test-poller")
    poller.run(PATIENCE_S)
    assert poller._thread is not None
    assert poller._thread.daemon
    poller.close(PATIENCE_S)


def test_calls_follow_each_other_until_what_is_waited_for_is_there() -> None:
    calls: list[bool] = []
    poller = Poller(calls.append, 3600, "test-poller")
    waiting = [
        threading.Thread(target=poller.run_until, args=(lambda: len(calls) >= 5, PATIENCE_S)) for _ in range(3)
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert len(calls) >= 5
    assert not any(calls), "a plain call looks at what is due only"
    assert poller.close(PATIENCE_S)


def test_what_does_not_come_is_waited_for_no_longer_than_said() -> None:
    poller = Poller(lambda _: time.sleep(0.01), 0, "test-poller")
    begun = time.monotonic()
    assert not poller.run_until(lambda: False, 0.1)
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert poller.close(PATIENCE_S)
    assert not poller.run_until(lambda: False, PATIENCE_S), "a closed one makes no calls"
