"""Times of DLC: three forms are read, one is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pai_sdk._wire.dlc.times import milliseconds, seconds_of, wire_time

pytestmark = pytest.mark.interpreter
AT = 1662372218.0


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("2022-09-05T10:03:38Z", AT),
        ("2022-09-05T10:03:38.000Z", AT),
        ("2022-09-05T10:03:38.123Z", AT + 0.123),
        ("2022-09-05T18:03:38+08:00", AT),
        ("2022-09-05T10:03Z", AT - 38),
        ("2022-09-05T10:03:38", AT),
        (1662372218000, AT),
        ("1662372218000", AT),
        (AT, AT),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_times_are_read(moment: str | float, seconds: float) -> None:
    assert seconds_of(moment) == pytest.approx(seconds)


@pytest.mark.parametrize("moment", [None, "", "soon", "2022-13-05T10:03Z", "9" * 40, "²", True])
def test_what_is_no_time(moment: str | None) -> None:
    assert seconds_of(moment) is None


@given(seconds=st.integers(0, 253402300799))
def test_what_is_written_reads_back(seconds: int) -> None:
    moment = wire_time(seconds)
    assert seconds_of(moment) == seconds
    assert moment is not None
    assert (len(moment), moment[-1]) == (20, "Z")


@pytest.mark.parametrize("seconds", [None, 1e20, float("inf"), -1e20])
def test_what_has_no_time(seconds: float | None) -> None:
    assert wire_time(seconds) is None


def test_seconds_are_floored_and_milliseconds_rounded() -> None:
    assert wire_time(AT + 0.999) == "2022-09-05T10:03:38Z"
    assert milliseconds(AT + 0.1239) == 1662372218124
