"""Encoding of numbers, tables and finish times for the responses about runs."""

from __future__ import annotations

from pai_sdk._service.services.jobs.changes import FinishTimes
from pai_sdk._service.services.runs.responses import csv_text, finite


def test_numbers_that_are_not_finite_are_null_with_their_indices() -> None:
    values = [1.5, float("nan"), None, float("-inf")]
    assert finite(values) == ([1.5, None, None, None], {"nan": [1], "-inf": [3]})


def test_a_formula_is_quoted_and_a_negative_number_is_not() -> None:
    assert csv_text(["run", "value"], [["=1+1", -2.5]]) == b"run,value\r\n'=1+1,-2.5\r\n"


def test_finish_times_are_by_job_and_of_the_last_one() -> None:
    times = FinishTimes()
    assert times.of(None) == float("-inf")
    times.add("train1")
    assert times.of("train1") == times.of(None) > 0
    assert times.of("train2") == float("-inf")
