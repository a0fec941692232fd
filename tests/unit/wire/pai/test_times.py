"""Times on the wire."""

from __future__ import annotations

from pai_sdk._wire.pai.wire import seconds_of, wire_time


def test_times_have_milliseconds() -> None:
    moment = "1970-01-01T00:00:00.250Z"
    assert (wire_time(0.25), seconds_of(moment)) == (moment, 0.25)


def test_what_is_no_time_is_none() -> None:
    assert [wire_time(seconds) for seconds in (float("nan"), 1e300, None)] == [None] * 3
    assert [seconds_of(moment) for moment in ("yesterday", None)] == [None] * 2
