"""The OpenAPI description of the service's API, as it is published at `/openapi.json`."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk.schemas.request import TrainingJobRequest

__all__ = ["PATH", "describe", "description_of"]

PATH = "/openapi.json"
"""Its path, for clients with and without a key."""

_CREATE_JOB = ("/api/v1/trainingjobs", "post")
_SCHEMAS = "#/components/schemas/"
_OBJECT = {"type": "object"}
_TEXT = {"type": "string"}
_FAULT = {
    "type": "object",
    "properties": dict.fromkeys(("RequestId", "Code", "Message", "HostId"), _TEXT),
    "required": ["RequestId", "Code", "Message", "HostId"],
}
_SIGNATURE = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": "ACS3-HMAC-SHA256, as Alibaba Cloud's clients sign; also the older ROA scheme with HMAC-SHA1.",
}


def description_of(app: FastAPI) -> ASGIApp:
    """An application that responds to every request with the description of an API, made at the first one."""
    known = cache(lambda: JSONResponse(describe(app)))

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        response = await run_in_threadpool(known)
        await response(scope, receive, send)

    return respond


def describe(app: FastAPI) -> dict[str, Any]:
    """The description of an API: what its routes declare, and the bodies and refusals that they do not.

    Args:
        app: the API.
    """
    description: dict[str, Any] = app.openapi()
    request = TrainingJobRequest.model_json_schema(by_alias=True, ref_template=_SCHEMAS + "{model}")
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    schemas.update({**request.pop("$defs"), "TrainingJobRequest": request, "Fault": _FAULT})
    description["components"]["securitySchemes"] = {"signature": _SIGNATURE}
    description["security"] = [{"signature": []}]
    refusal = {"description": "Refused", "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}Fault"}}}}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            operation["responses"].pop("422", None)  # FastAPI's own; the service responds with 400
            operation["responses"]["default"] = refusal
            if method in ("post", "put"):
                is_job = (path, method) == _CREATE_JOB
                schema = {"$ref": f"{_SCHEMAS}TrainingJobRequest"} if is_job else _OBJECT
                operation.setdefault("requestBody", {"content": {"application/json": {"schema": schema}}})
    return description
