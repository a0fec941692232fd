"""The one retry policy, on a clock that runs only when it sleeps."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pai_sdk._core.retry import RetryPolicy, RetryWarnings, single_attempt
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter


class Fault(Exception):
    def __init__(self, retry_after_s: float | None = None) -> None:
        super().__init__("a fault")
        self.retry_after_s = retry_after_s


@dataclass
class Clock:
    now_s: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def now(self) -> float:
        return self.now_s


def policy(clock: Clock, **more: Any) -> RetryPolicy:
    return RetryPolicy(sleep=clock.sleep, clock=clock.now, **more)


def failing(times: int, fault: Exception) -> Callable[[], int]:
    count = 0

    def function() -> int:
        nonlocal count
        count += 1
        if count <= times:
            raise fault
        return count

    return function


def always(_: BaseException) -> bool:
    return True


@pytest.mark.parametrize("times", [0, 1, 5, 9])
def test_until_it_works(times: int) -> None:
    clock = Clock()
    assert policy(clock).call(failing(times, Fault()), is_transient=always) == times + 1
    assert len(clock.pauses) == times


def test_the_last_error_comes_out_unchanged() -> None:
    clock = Clock()
    fault = Fault()
    with pytest.raises(Fault) as caught:
        policy(clock, max_attempts=3).call(failing(99, fault), is_transient=always)
    assert caught.value is fault
    assert len(clock.pauses) == 2


def test_an_error_that_is_not_transient_comes_at_once() -> None:
    clock = Clock()
    with pytest.raises(KeyError):
        policy(clock).call(failing(1, KeyError("x")), is_transient=lambda error: isinstance(error, Fault))
    assert clock.pauses == []


def test_pauses_grow_and_stay_in_bounds() -> None:
    clock = Clock()
    with pytest.raises(Fault):
        policy(clock, max_attempts=12, deadline_s=1e9).call(failing(99, Fault()), is_transient=always)
    bounds = [min(10.0, 0.2 * 2**n) for n in range(11)]
    assert all(bound * 0.25 <= pause <= bound for pause, bound in zip(clock.pauses, bounds, strict=True))


def test_the_deadline_counts_over_the_attempts() -> None:
    clock = Clock()

    def slow() -> None:
        clock.now_s += 25
        raise Fault

    with pytest.raises(Fault):
        policy(clock).call(slow, is_transient=always)
    assert len(clock.pauses) == 2


@pytest.mark.parametrize(("wish", "pause"), [(3.0, 3.0), (0.0, 0.0), (99.0, 10.0), (-5.0, 0.0)])
def test_the_servers_wish_wins(wish: float, pause: float) -> None:
    clock = Clock()
    policy(clock).call(failing(1, Fault(wish)), is_transient=always)
    assert clock.pauses == [pause]


def test_who_is_told() -> None:
    clock = Clock()
    told: list[tuple[int, str, float]] = []
    policy(clock).call(
        failing(2, Fault(1.5)),
        is_transient=always,
        on_retry=lambda number, error, pause_s: told.append((number, str(error), pause_s)),
    )
    assert told == [(1, "a fault", 1.5), (2, "a fault", 1.5)]


def test_an_interrupt_is_not_a_fault() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policy(Clock()).call(interrupted, is_transient=lambda error: isinstance(error, Exception))


def test_tenacity_is_loaded_only_when_needed() -> None:
    check = "import sys, pai_sdk._core.retry; sys.exit('tenacity' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=PATIENCE_S, check=False).returncode == 0


def test_whoever_waits_long_is_told_what_for(caplog: pytest.LogCaptureFixture) -> None:
    def said() -> list[str]:
        # Threads of tests that are over may be trying still.
        return [record.getMessage() for record in caplog.records if record.thread == threading.get_ident()]

    warnings = RetryWarnings(lambda: 100.0)
    with pytest.raises(Fault):
        policy(Clock(), max_attempts=3, warnings=warnings).call(failing(9, Fault()), is_transient=lambda _: True)
    assert said() == []  # over in a moment
    with pytest.raises(Fault):
        policy(Clock(), warnings=warnings).call(failing(99, Fault()), is_transient=lambda _: True)
    assert len(said()) == 1  # not one an attempt
    assert said()[0].startswith("a fault; trying again, for up to ")


def test_a_caller_that_plans_its_attempts_itself_has_one_and_no_pause() -> None:
    clock, prepared = Clock(), []
    for is_transient in (True, False):
        with single_attempt(), pytest.raises(Fault):
            policy(clock).call(
                failing(1, Fault()),
                is_transient=lambda error, said=is_transient: said,
                on_retry=lambda *told: prepared.append(told),
            )
    assert clock.pauses == []
    assert len(prepared) == 1, "what comes before a next attempt is done where there will be one"
    assert policy(clock).call(failing(1, Fault()), is_transient=always) == 2, "outside, all is as before"


def test_such_a_caller_may_say_that_it_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RetryWarnings(lambda: 100.0)
    for left_s in (570.0, 569.0):
        warnings.warn(Fault(), remaining_s=left_s)
    assert [record.message for record in caplog.records] == ["a fault; trying again, for up to 570 s"]


def test_the_deadline_rules_and_the_message_is_true(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, told_at_s = Clock(), []
    monkeypatch.setattr(
        "pai_sdk._core.retry.logger.warning", lambda *told: told_at_s.append((clock.now_s, told[-1]))
    )
    with pytest.raises(Fault):
        policy(clock, warnings=RetryWarnings(lambda: 100.0)).call(failing(999, Fault()), is_transient=always)
    assert clock.now_s == pytest.approx(60.0)
    assert len(clock.pauses) > 9
    ((at_s, left_s),) = told_at_s
    assert at_s + left_s == pytest.approx(60.0)


def test_pauses_that_are_not_made_count_too() -> None:
    """A transfer that is stopped wakes its calls; without an end, they would ask as fast as they can."""
    pauses: list[float] = []
    with pytest.raises(Fault):
        RetryPolicy(sleep=pauses.append).call(failing(99_999, Fault()), is_transient=always)
    assert sum(pauses) <= 60.001
    assert len(pauses) < 60


def test_a_server_that_asks_for_more_time_than_there_is_left_is_not_asked_earlier() -> None:
    clock = Clock()
    with pytest.raises(Fault):
        policy(clock, deadline_s=25).call(failing(99, Fault(10.0)), is_transient=always)
    assert clock.pauses == [10.0, 10.0]


def test_attempts_that_are_limited_are_told(caplog: pytest.LogCaptureFixture) -> None:
    warnings = RetryWarnings(lambda: 100.0)
    with pytest.raises(Fault):
        policy(Clock(), max_attempts=3, warnings=warnings).call(failing(9, Fault(5.0)), is_transient=always)
    assert [record.getMessage() for record in caplog.records if record.thread == threading.get_ident()] == [
        "a fault; trying again, 2 more times at most, for up to 60 s"
    ]


def test_a_single_attempt_is_not_repeated_even_if_its_error_is_transient() -> None:
    with single_attempt(), pytest.raises(ZeroDivisionError):
        RetryPolicy().call(lambda: 1 / 0, is_transient=lambda error: True)
