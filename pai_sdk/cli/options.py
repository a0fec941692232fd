"""Parses values of options: `KEY=VALUE`, durations such as `7d`, times, host names, files with a token."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from pai_sdk._client.backend.specs import APIS
from pai_sdk._data.storage.uri import uri_scheme
from pai_sdk.errors import ServiceStartError

OBJECTS_KEY_VARIABLE = "PAI_SERVICE_OBJECTS_KEY"

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, for scripts.")]
"""The option of commands that print for people, or for scripts."""

LabelFilter = Annotated[
    list[str] | None,
    typer.Option("--label", "-l", metavar="KEY=VALUE", help="Only jobs with this label; may be repeated."),
]
"""The option of commands that select jobs by their labels."""


def _checked_api(api: str | None) -> str | None:
    if api is not None and api not in APIS:
        raise typer.BadParameter(f"{api!r} is not an API of jobs; available: {', '.join(APIS)}")
    return api


Api = Annotated[
    str | None,
    typer.Option(
        metavar="API",
        help="trainingjob, or dlc for DLC jobs; defaults to PAI_API.",
        callback=_checked_api,
        autocompletion=lambda: list(APIS),
    ),
]
"""The option of commands that submit or list jobs of one of PAI's APIs."""

_TOKEN_BYTES = 32
_MIN_TOKEN_LENGTH = 16


def pairs(values: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parses `KEY=VALUE` strings; the last value of a key counts, and a value may contain `=`."""
    parsed = {}
    for text in values or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
        parsed[name.strip()] = value
    return parsed


def host_names(names: list[str] | None) -> list[str] | None:
    """Checks host names and returns them unchanged; the callback of an option."""
    from pai_sdk._service.web.host_names import check_name

    for name in names or ():
        try:
            check_name(name)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return names


_PART = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)[a-z]*")  # `5m`, `5min`
_DURATION = re.compile(r"\s*(?:\d+(?:\.\d+)?(?:s|secs?|m|mins?|h|hours?|d|days?|w|weeks?)\s*)+")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 24 * 3600.0, "w": 7 * 24 * 3600.0}


def duration_s(text: str, option: str) -> float:
    """Parses a duration: numbers with their units such as `1h30m`, or 0."""
    if re.fullmatch(r"\s*0(\.0*)?\s*", text):
        return 0.0
    if not _DURATION.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is not a duration; examples: 7d, 12h, 30m, 90s, 0", param_hint=option)
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def seconds(text: str) -> float:
    """Parses a number of seconds, or a duration such as `1h30m`; the parser of an option."""
    try:
        value = duration_s(text, "") if _DURATION.fullmatch(text) else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise typer.BadParameter(
            f"expected a number of seconds or a duration, got {text!r}; examples: 90, 90s, 30m, 2h"
        )
    return value


def integer_seconds(text: str) -> int:
    """Parses a whole number of seconds from 1 on, or a duration; the parser of an option."""
    value = seconds(text)
    if value < 1 or value != int(value):
        raise typer.BadParameter(
            f"expected a number of seconds (minimum 1) or a duration, got {text!r}; examples: 3600, 30m, 2h"
        )
    return int(value)


def moment_of(text: str, option: str, *, is_ahead: bool = False) -> datetime:
    """Parses a time: a duration before or after now such as `10m`, or ISO 8601, in UTC without a zone."""
    if _DURATION.fullmatch(text):
        distance_s = duration_s(text, option) * (1 if is_ahead else -1)
        try:
            return datetime.fromtimestamp(max(0.0, time.time() + distance_s), timezone.utc)
        except (ValueError, OverflowError, OSError) as error:
            raise typer.BadParameter(f"{text!r} is too long", param_hint=option) from error
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        examples = "examples: 10m, 2h, 2026-11-22T05:00:00"
        raise typer.BadParameter(f"{text!r} is not a duration or a time; {examples}", param_hint=option) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def token_in(file: Path) -> str:
    """Reads the token in a file; creates the file with a new token, for this user only, if it is missing."""
    try:
        try:
            # O_EXCL: of two processes that create the file, one wins, and the other reads its token.
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            token = file.read_text(encoding="utf-8").strip()
        else:
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(f"{token}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceStartError(f"the token file {file} cannot be used: {error}") from error
    if len(token) < _MIN_TOKEN_LENGTH:
        raise ServiceStartError(
            f"{file} has no token of at least {_MIN_TOKEN_LENGTH} characters; delete it for a new one"
        )
    return token


def objects_uri(uri: str | None) -> str | None:
    """Checks the URI of `--objects` and returns it unchanged."""
    if uri is None:
        return None
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    if uri_scheme(uri) not in ("s3", "oss") or not bucket or "@" in bucket:
        raise typer.BadParameter("give s3://bucket/prefix or oss://bucket/prefix, without a key.")
    if any(character in prefix for character in "?#*["):
        raise typer.BadParameter("the prefix may not contain any of ?#*[.")
    return uri
