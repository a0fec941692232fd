"""The path, query and body of a request as they are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pai_sdk.api.signature import encode
from pai_sdk.errors import InvalidInputError, Problem

_T = TypeVar("_T")


def path_of(template: str, params: Mapping[str, str]) -> str:
    """Put parameters into a path.

    Raises:
        InvalidInputError: one of them is empty, `.` or `..`, which would be another path.

    Example:
        >>> path_of("/api/v1/trainingjobs/{training_job_id}", {"training_job_id": "a/b ü"})
        '/api/v1/trainingjobs/a%2Fb%20%C3%BC'
    """
    for name, value in params.items():
        if not value or value in (".", ".."):
            raise InvalidInputError([Problem(name, f"{value!r} is not an id")])
    return template.format(**{name: _encoded(name, value) for name, value in params.items()})


def query_of(query: Mapping[str, Any]) -> str:
    """The query with its question mark, or nothing. None is left out; lists and dicts are written as JSON.

    Example:
        >>> query_of({"Status": "Running", "Order": None, "Labels": {"team": "a b"}})
        '?Status=Running&Labels=%7B%22team%22%3A%22a%20b%22%7D'
    """
    pairs = [f"{name}={_encoded(name, _value(value))}" for name, value in _present(query).items()]
    return "?" + "&".join(pairs) if pairs else ""


def json_of(body: Mapping[str, Any]) -> bytes:
    """The body, compact and in UTF-8. Fields that are None are left out.

    Raises:
        InvalidInputError: a text in it holds a lone surrogate.
    """
    try:
        return json.dumps(_present(body), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError([_lone_surrogate("request", error)]) from error


def form_of(fields: Mapping[str, str | None]) -> bytes:
    """The body as a form. Fields that are None are left out.

    Raises:
        InvalidInputError: a text in it holds a lone surrogate.

    Example:
        >>> form_of({"AlgorithmName": "digits", "DisplayName": "a & b"})
        b'AlgorithmName=digits&DisplayName=a%20%26%20b'
    """
    return "&".join(f"{name}={_encoded(name, value)}" for name, value in _present(fields).items()).encode()


def _present(fields: Mapping[str, _T | None]) -> dict[str, _T]:
    return {name: value for name, value in fields.items() if value is not None}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return str(value)


def _encoded(name: str, value: str) -> str:
    try:
        return encode(value)
    except UnicodeEncodeError as error:
        raise InvalidInputError([_lone_surrogate(name, error)]) from error


def _lone_surrogate(where: str, error: UnicodeEncodeError) -> Problem:
    around = str(error.object)[max(0, error.start - 10) : error.end + 10]
    return Problem(where, f"{around!r} holds what is not a character (a lone surrogate)", "remove it")
