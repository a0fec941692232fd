"""The OpenAPI description of the service's API, as it is published at `/openapi.json`."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk._wire.base import AnyResponse, Received
from pai_sdk._wire.errors import ErrorBody
from pai_sdk.service.http.bodies import body_model

__all__ = ["PATH", "describe", "description_of"]

PATH = "/openapi.json"
"""Its path, for clients with and without a key."""

_SCHEMAS = "#/components/schemas/"
_JSON = "application/json"
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
    """Returns the description of an API: what its routes declare, and the bodies and refusals that they do not.

    Args:
        app: the API.
    """
    description: dict[str, Any] = app.openapi()
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    schemas.update({model.__name__: _schema_of(model, schemas) for model in (ErrorBody, AnyResponse)})
    description["components"]["securitySchemes"] = {"signature": _SIGNATURE}
    description["security"] = [{"signature": []}]
    # Not `app.routes`: in FastAPI 0.165, an included router is one entry there, without its routes.
    for route in app.state.routes:
        if route.include_in_schema:
            for method in route.methods:
                _complete(description["paths"][route.path_format][method.lower()], route, schemas)
    return description


def _complete(operation: dict[str, Any], route: APIRoute, schemas: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # FastAPI's own; the service responds with 400
    responses["default"] = {"description": "Refused", "content": {_JSON: {"schema": _reference("ErrorBody")}}}
    if isinstance(route.response_model, type) and issubclass(route.response_model, Received):
        content = responses["200"]["content"][_JSON]
        content["schema"] = {"allOf": [content["schema"], _reference("AnyResponse")]}
    if (model := body_model(route.endpoint)) is not None:
        name = model.__name__.lstrip("_")
        schemas[name] = _schema_of(model, schemas)
        operation["requestBody"] = {"content": {_JSON: {"schema": _reference(name)}}}
    elif (route.methods or set()) & {"POST", "PUT"}:
        operation.setdefault("requestBody", {"content": {_JSON: {"schema": {"type": "object"}}}})


def _schema_of(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a model, and adds those of the models in it."""
    schema = model.model_json_schema(by_alias=True, ref_template=_SCHEMAS + "{model}")
    schemas.update(schema.pop("$defs", {}))
    return schema


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"{_SCHEMAS}{name}"}
