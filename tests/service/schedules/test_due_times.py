"""The times of cron expressions: in zones, across changes of the clocks, and what is no expression."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._service.services.jobs.schedule_table import cron_problems, newest_time, next_time
from pai_sdk._service.wire_errors import WireError

BERLIN = "Europe/Berlin"


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def shown(seconds: float, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(seconds, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M %z")


@pytest.mark.parametrize(
    ("cron", "zone", "now", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-01-31 03:00", "2026-02-01 03:00 +0000"),
        ("0 3 * * *", "UTC", "2026-01-31 02:59", "2026-01-31 03:00 +0000"),
        ("*/15 9-17 * * MON-FRI", "UTC", "2026-11-27 17:50", "2026-11-30 09:00 +0000"),
        ("0 0 29 2 *", "UTC", "2026-03-01 00:00", "2028-02-29 00:00 +0000"),
        ("0 3 * * *", BERLIN, "2026-01-31 00:00", "2026-01-31 03:00 +0100"),
        ("0 3 * * *", "Asia/Shanghai", "2026-01-31 00:00", "2026-02-01 03:00 +0800"),
        # At 2:00 on this day, clocks are set to 3:00: 2:30 is not there, and 1:30 and 3:30 are.
        ("30 2 * * *", BERLIN, "2026-03-28 12:00", "2026-03-29 03:00 +0200"),
        ("30 2 * * *", BERLIN, "2026-03-29 01:00", "2026-03-30 02:30 +0200"),
        ("*/30 * * * *", BERLIN, "2026-03-29 00:59", "2026-03-29 03:00 +0200"),
        # At 3:00 on this day, clocks are set to 2:00: 2:30 comes twice, and counts once.
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", "2026-10-25 02:30 +0200"),
        ("30 2 * * *", BERLIN, "2026-10-25 00:30", "2026-10-26 02:30 +0100"),
        ("30 2 * * *", BERLIN, "2026-10-25 01:10", "2026-10-26 02:30 +0100"),
        ("*/30 * * * *", BERLIN, "2026-10-25 00:30", "2026-10-25 02:00 +0100"),
    ],
)
def test_the_next_time(cron: str, zone: str, now: str, expected: str) -> None:
    assert shown(next_time(cron, zone, utc(now)), zone) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "now", "since", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-02-10 12:00", "2026-01-31 03:00", "2026-02-10 03:00 +0000"),
        ("0 3 * * *", "UTC", "2026-01-31 03:00", "2026-01-31 03:00", "2026-01-31 03:00 +0000"),
        ("30 2 * * *", BERLIN, "2026-03-29 12:00", "2026-03-29 01:00", "2026-03-29 03:00 +0200"),
        # In the second pass of the hour, the newest time is that of the first pass.
        ("30 2 * * *", BERLIN, "2026-10-25 01:10", "2026-10-25 00:30", "2026-10-25 02:30 +0200"),
    ],
)
def test_of_several_times_that_have_passed_the_newest_counts(
    cron: str, zone: str, now: str, since: str, expected: str
) -> None:
    assert shown(newest_time(cron, zone, utc(now), since=utc(since)), zone) == expected


@given(
    minute=st.sampled_from(["0", "30", "*/7", "*"]),
    hour=st.sampled_from(["2", "3", "1-3", "*", "*/5"]),
    day=st.sampled_from(["*", "29", "25"]),
    now=st.floats(utc("2026-03-20 00:00"), utc("2026-11-05 00:00")),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
)
def test_each_time_comes_once_and_in_order(minute: str, hour: str, day: str, now: float, zone: str) -> None:
    cron = f"{minute} {hour} {day} * *"
    first = next_time(cron, zone, now)
    second = next_time(cron, zone, first)
    assert now < first < second
    assert newest_time(cron, zone, first, since=first) == first
    assert first <= newest_time(cron, zone, second, since=first) <= second


@pytest.mark.parametrize(
    ("cron", "zone", "problem"),
    [
        ("", "UTC", "Cron: '' has 0 fields; give 5"),
        ("0 3 * *", "UTC", "has 4 fields"),
        ("0 0 3 * * *", "UTC", "has 6 fields"),
        ("@daily", "UTC", "has 1 field;"),
        ("60 3 * * *", "UTC", "Bad minute"),
        ("0 3 * * MON#6", "UTC", "Bad day-of-week"),
        ("*/0 * * * *", "UTC", "Bad minute"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        (f"{','.join(['1'] * 200)} * * * *", "UTC", "200 are allowed"),
        ("0 3 * * *", "Berlin", "TimeZone: 'Berlin' is not the name of a time zone"),
        ("0 3 * * *", "", "TimeZone: ''"),
        ("0 3 * * *", "../../etc/passwd", "TimeZone: "),
        ("0 3 * * *", "Europe", "TimeZone: "),
        ("0 3 * * *", "z" * 5000, "TimeZone: "),
    ],
)
def test_what_cannot_be_used_is_named(cron: str, zone: str, problem: str) -> None:
    (found,) = cron_problems(cron, zone)
    assert problem in found
    with pytest.raises(WireError, match=r"Cron|TimeZone"):
        next_time(cron, zone, 0.0)


@given(st.lists(st.text("0123456789*/,-#LWMON", max_size=8), min_size=5, max_size=5), st.text(max_size=12))
def test_any_text_is_read_or_refused(fields: list[str], zone: str) -> None:
    cron = " ".join(fields)
    if not list(cron_problems(cron, "UTC")):
        assert next_time(cron, "UTC", 0.0) > 0
    for problem in cron_problems("0 3 * * *", zone):
        assert problem.startswith("TimeZone: ")
