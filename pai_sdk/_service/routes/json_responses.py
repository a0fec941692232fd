"""Responses in PAI's form: a JSON object with a RequestId; refusals have a code and a message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from pai_sdk._service.http.gate import REFUSED_AS
from pai_sdk._service.services.budgets import Work
from pai_sdk._service.services.jobs.reading import join_problems
from pai_sdk._service.services.runs.responses import json_bytes, json_list
from pai_sdk._service.wire_errors import WireError, invalid_parameter, wire_error_response
from pai_sdk._wire.base import items_key, response_body, wire_names

_WAIT = re.compile(r"\bwait\s*=\s*\"?(\d{1,18})\b")


def request_id(request: Request) -> str:
    """Returns the id of the request, from the gate."""
    value: str = request.state.request_id
    return value


def success(
    request: Request,
    body: BaseModel | Mapping[str, Any] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Returns the response of an action that has succeeded."""
    fields = response_body(body) if isinstance(body, BaseModel) else body or {}
    content = json_bytes({**wire_names(request_id=request_id(request)), **fields})
    return Response(content, headers=headers, media_type="application/json")


def list_success(
    request: Request,
    work: Work,
    model: type[BaseModel],
    items: Iterable[Mapping[str, Any]],
    tail: Callable[[], BaseModel],
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Returns a response with a list in the first field of `model`; raises WireError beyond the budget."""

    # Called after the last item: `tail` may depend on the items.
    def fields() -> dict[str, Any]:
        return {**wire_names(request_id=request_id(request)), **response_body(tail())}

    content = json_list(items_key(model), items, fields, work)
    return Response(content, headers=headers, media_type="application/json")


def offering(*offers: str) -> dict[str, str]:
    """Returns the header that announces features beyond PAI's API. Clients rely on no others."""
    return {"x-pai-offers": ", ".join(offers)}


def etag(version: int) -> str:
    """Returns the tag of a job's snapshot, from the number of its last change."""
    return f'"{version}"'


class LongPoll:
    """The time for which a response waits for a change (`Prefer: wait=N`, RFC 7240), 0 s by default."""

    def __init__(self, request: Request, max_s: float) -> None:
        self._clock = asyncio.get_running_loop().time
        match = _WAIT.search(request.headers.get("prefer", ""))
        wait_s = min(float(match[1]), max_s) if match else 0.0
        self.deadline = self._clock() + wait_s  # on the clock of the event loop
        self.applied = f"wait={wait_s:g}" if match else ""

    @property
    def remaining_s(self) -> float:
        """Returns the remaining seconds; negative after the deadline."""
        return self.deadline - self._clock()

    @property
    def headers(self) -> dict[str, str]:
        """Returns the header that confirms the preference; none without a preference."""
        return {"Preference-Applied": self.applied} if self.applied else {}


def add_refusals(app: FastAPI) -> None:
    """Lets an application refuse requests in PAI's form."""

    @app.exception_handler(WireError)
    async def refused(request: Request, error: WireError) -> JSONResponse:
        return refusal(request, error)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = (f"{_field_name(problem['loc'])}: {problem['msg']}" for problem in error.errors())
        return refusal(request, invalid_parameter(join_problems(problems)))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> JSONResponse:
        codes = {404: "InvalidAction.NotFound", 405: "InvalidAction.NotFound"}
        message = f"This service has no action {request.method} {request.url.path[:200]}."
        return refusal(
            request, WireError(error.status_code, codes.get(error.status_code, "InvalidRequest"), message)
        )


def _field_name(loc: Sequence[str | int]) -> str:
    """Returns the name of a parameter, or the path of a field in the body."""
    return ".".join(str(part)[:60] for part in loc[1:] or loc)


def refusal(request: Request, error: WireError) -> JSONResponse:
    """Returns the response to a refused request."""
    setattr(request.state, REFUSED_AS, error.code)
    return wire_error_response(error, request_id=request_id(request), host=request.headers.get("host", ""))
