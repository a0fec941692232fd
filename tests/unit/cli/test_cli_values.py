"""Values of options, and cells of tables."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import typer

from pai_sdk._wire.pai.status import JobStatus
from pai_sdk.cli import exit_codes
from pai_sdk.cli.config_commands import masked
from pai_sdk.cli.options import duration_s, moment_of, pairs, seconds
from pai_sdk.cli.pipelines.files import file_and_name, parameters_of
from pai_sdk.cli.selection.backend import ANYWHERE, SelectedBackend
from pai_sdk.cli.tables import _finite, wrapped
from pai_sdk.errors import InvalidInputError
from tests.support.messages import refused


@pytest.mark.parametrize("parse", [lambda values: pairs(values, "--set"), parameters_of])
def test_a_value_may_contain_an_equals_sign(parse: Any) -> None:
    assert parse(["lr=0.1", "note=a=b"]) == {"lr": "0.1", "note": "a=b"}
    with pytest.raises((typer.BadParameter, InvalidInputError), match="lr"):
        parse(["lr"])


@pytest.mark.parametrize(("text", "expected"), [("7d", 604800.0), ("1.5h", 5400.0), ("0", 0.0), ("90s", 90.0)])
def test_a_duration_has_a_unit(text: str, expected: float) -> None:
    assert duration_s(text, "--older-than") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90.0), ("0", 0.0), ("1h30m", 5400.0), ("5min", 300.0), ("2days", 172800.0)]
)
def test_seconds_may_be_written_with_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1x", "h"])
def test_what_is_no_number_of_seconds(text: str) -> None:
    with refused(typer.BadParameter):
        seconds(text)


@pytest.mark.parametrize("text", ["7", "h", "-1h", "1 hour"])
def test_a_number_without_a_unit_is_no_duration(text: str) -> None:
    with refused(typer.BadParameter):
        duration_s(text, "--older-than")


def test_a_moment_without_a_zone_is_in_utc() -> None:
    assert moment_of("2026-11-22T05:00", "--since").isoformat() == "2026-11-22T05:00:00+00:00"
    with refused(typer.BadParameter):
        moment_of("soon", "--since")


def test_a_duration_is_before_now_or_ahead() -> None:
    now = datetime.now(timezone.utc)
    assert moment_of("2d", "--since") < now - timedelta(days=1)
    assert moment_of("2d", "--expires", is_ahead=True) > now + timedelta(days=1)
    with refused(typer.BadParameter):
        moment_of("9" * 20 + "d", "--expires", is_ahead=True)


def test_a_file_may_have_the_name_of_a_pipeline() -> None:
    assert file_and_name("flow.py:nightly") == ("flow.py", "nightly")
    assert file_and_name("flow.py") == ("flow.py", "")


@pytest.mark.parametrize(
    ("selection", "option"),
    [
        (SelectedBackend(profile="staging"), "--profile staging"),
        (SelectedBackend(local=True), "--local"),
        (ANYWHERE, ""),
    ],
)
def test_printed_commands_select_the_same_backend(selection: SelectedBackend, option: str) -> None:
    assert selection.option == option


@pytest.mark.parametrize(
    ("status", "code"), [("Succeed", 0), ("Failed", 100), ("Running", 101), ("Terminated", 103)]
)
def test_the_exit_code_of_a_status(status: str, code: int) -> None:
    assert exit_codes.of_status(JobStatus(status)) == code


def test_a_secret_has_a_mask_of_one_length() -> None:
    assert masked("a-secret") == masked("b") == "******"
    assert masked("") == ""


def test_texts_are_wrapped_at_words() -> None:
    assert wrapped("one two three four five", 20) == ["one two three four", "five"]


def test_json_has_no_numbers_that_are_not_finite() -> None:
    values = {"loss": math.nan, "scores": [1.0, -math.inf]}
    assert _finite(values) == {"loss": "nan", "scores": [1.0, "-inf"]}
