"""The names of RecIS: TRC-01, TRC-02."""

from __future__ import annotations

import pytest

from pai_sdk._data.trace.hook import add_to_trace, clear_trace_map, get_trace_map, trace
from pai_sdk._data.trace.recis import retry
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter


def test_a_function_is_called_until_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    calls: list[int] = []

    @retry(retry_count=3, interval=7)
    def third(number: int, *, more: int = 0) -> int:
        """A text."""
        calls.append(number)
        if len(calls) < 3:
            raise KeyError(len(calls))
        return number + more

    assert third(40, more=2) == 42
    assert (calls, pauses) == ([40] * 3, [7, 7])
    assert (third.__name__, third.__doc__) == ("third", "A text.")


def test_the_last_error_is_raised() -> None:
    calls: list[int] = []

    @retry(2, 0.0)
    def fail() -> None:
        calls.append(1)
        raise KeyError(len(calls))

    with pytest.raises(KeyError, match="2"):
        fail()


@pytest.mark.parametrize(("count", "interval"), [(0, 1), (-1, 1), ("3", 1), (1, -1), (1, "1"), (1, float("nan"))])
def test_a_number_of_calls_that_would_call_nothing(count: int, interval: float) -> None:
    with pytest.raises(InvalidInputError):
        retry(count, interval)


def test_what_add_to_trace_takes() -> None:
    """TRC-02: nothing but tensors, arrays and lists; the default of RecIS raises."""
    with refused(ValueError, "trace 'x'"):
        add_to_trace("x")
    with refused(ValueError, "trace 'x'"):
        add_to_trace("x", (1, 2))
    clear_trace_map()
    add_to_trace("x", tensor=[1, 2])
    trace("y", (1, 2))  # our own function takes any sequence
    assert get_trace_map() == {"x": [1, 2], "y": [1, 2]}
    clear_trace_map()
