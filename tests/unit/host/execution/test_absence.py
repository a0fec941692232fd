"""An engine that does not answer: said once, and asked again in time."""

from __future__ import annotations

import logging

import pytest

from pai_sdk._host.execution.docker.engine import Absence


def test_it_is_said_once_that_an_engine_is_gone_and_once_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    absence = Absence(clock=lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            absence.record_failure(sent_at=0.0)
        assert "has not responded since" in absence.sentence
        for _ in range(3):
            absence.record_response()
    assert absence.sentence == ""
    gone, back = [each.getMessage() for each in caplog.records if each.name.endswith(".engine")]
    assert "has not responded since" in gone
    assert "is checked again" in gone
    assert "responds again" in back


def test_one_that_hangs_is_asked_less_often_than_one_that_is_gone() -> None:
    now = [100.0]
    for took_s, pause_s in ((0.0, 1.0), (5.0, 5.0)):
        absence = Absence(clock=lambda: now[0])
        assert absence.should_call
        asked_at, now[0] = now[0], now[0] + took_s
        absence.record_failure(sent_at=asked_at)
        now[0] += pause_s - 0.1
        assert not absence.should_call
        now[0] += 0.2
        assert absence.should_call


def test_an_engine_is_present_at_first() -> None:
    assert Absence().sentence == ""
