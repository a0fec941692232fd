"""Answers as PAI gives them: a JSON object with a RequestId."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Request, Response
from starlette.responses import JSONResponse

from pai_sdk.service.budgets import Work
from pai_sdk.service.runs.run_answers import json_list

__all__ = ["answer", "answer_list", "etag", "offering", "request_id", "wished_hold_s"]

_WAIT = re.compile(r"\bwait\s*=\s*\"?(\d{1,18})\b")


def request_id(request: Request) -> str:
    """The id the gate gave the request."""
    known: str = request.state.request_id
    return known


def answer(
    request: Request, fields: Mapping[str, Any] | None = None, *, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A success."""
    return JSONResponse({"RequestId": request_id(request), **(fields or {})}, headers=headers)


def answer_list(
    request: Request,
    work: Work,
    name: str,
    items: Iterable[Mapping[str, Any]],
    rest: Mapping[str, Any],
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A success with a list, whose items are made one after the other: no more than the response may have.

    Raises:
        Fault: the response is larger than the request may have, or takes longer.
    """
    content = json_list(name, items, {"RequestId": request_id(request), **rest}, work)
    return Response(content, headers=headers, media_type="application/json")


def offering(*offers: str) -> dict[str, str]:
    """The header that announces what this service can do beyond PAI's API. Clients rely on nothing else of it."""
    return {"x-pai-offers": ", ".join(offers)}


def etag(version: int) -> str:
    """The tag of a job's snapshot, from the number of its last change."""
    return f'"{version}"'


def wished_hold_s(request: Request, longest_s: float) -> float | None:
    """How long the answer may be held back for news (`Prefer: wait=N`, RFC 7240); None: not at all."""
    found = _WAIT.search(request.headers.get("prefer", ""))
    return min(float(found.group(1)), longest_s) if found else None
