"""The OpenAPI description of the service's API, as it is published at `/openapi.json`."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pai_sdk._service.http.bodies import body_model, query_model
from pai_sdk._service.services.budgets import BudgetedRoute
from pai_sdk._wire.base import AnyResponse, ErrorBody, Received
from pai_sdk._wire.body import Body

PATH = "/openapi.json"
"""Its path, for clients with and without a key."""

_SCHEMAS = "#/components/schemas/"
_JSON = "application/json"
_DLC = "Dlc"  # before the names of models of DLC: training jobs have models of the same names
_SIGNATURE = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": "ACS3-HMAC-SHA256, as Alibaba Cloud's clients sign; also the older ROA scheme with HMAC-SHA1.",
}


def description_of(app: FastAPI) -> ASGIApp:
    """Returns an application that responds to every request with the description of an API."""
    # Built at the first request, since it takes 0.3 s.
    description = cache(lambda: JSONResponse(describe(app)))

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        response = await run_in_threadpool(description)
        await response(scope, receive, send)

    return respond


def describe(app: FastAPI) -> dict[str, Any]:
    """Returns the description of an API: the parameters and the models of bodies that its routes declare."""
    description: dict[str, Any] = app.openapi()
    description["components"]["securitySchemes"] = {"signature": _SIGNATURE}
    description["security"] = [{"signature": []}]
    schemas = _Schemas(description["components"]["schemas"])
    # Not `app.routes`: in FastAPI 0.165, an included router is one entry there, without its routes.
    for route in app.state.routes:
        if route.include_in_schema:
            for method in route.methods:
                _add_bodies(description["paths"][route.path_format][method.lower()], method, route, schemas)
    return description


def _add_bodies(operation: dict[str, Any], method: str, route: BudgetedRoute, schemas: _Schemas) -> None:
    responses = operation["responses"]
    responses.pop("422", None)  # FastAPI's own; the service responds with 400
    responses["default"] = {"description": "Refused", "content": {_JSON: {"schema": schemas.of(ErrorBody)}}}
    if (response := route.response_body) is not None:
        schema: dict[str, Any] = schemas.of(response)
        if issubclass(response, Received):  # an action of the API; responses about runs have no id
            schema = {"allOf": [schema, schemas.of(AnyResponse)]}
        responses["200"]["content"][_JSON] = {"schema": schema}
    if (query := query_model(route.endpoint)) is not None:
        operation.setdefault("parameters", []).extend(_parameters(query))
    if (request := body_model(route.endpoint)) is not None:
        operation["requestBody"] = {"content": {_JSON: {"schema": schemas.of(request)}}}
    elif method in ("POST", "PUT"):
        operation.setdefault("requestBody", {"content": {_JSON: {"schema": {"type": "object"}}}})


def _parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Returns the parameters of a query that is read with a model; lists and objects are text there."""
    schema = model.model_json_schema(schema_generator=_SchemaGenerator)
    return [
        {"name": name, "in": "query", "required": False, "schema": _simple(field)}
        for name, field in schema["properties"].items()
    ]


def _simple(field: dict[str, Any]) -> dict[str, Any]:
    kinds = {each.get("type") for each in field.get("anyOf", [field])} & {"integer", "number", "boolean"}
    return {"type": kinds.pop()} if kinds else {"type": "string"}


class _SchemaGenerator(GenerateJsonSchema):
    # The default of a status, `JobStatus("")`, is a string; pydantic cannot know.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012


class _Schemas:
    """Collects the schemas of models by name."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas

    def of(self, model: type[BaseModel]) -> dict[str, str]:
        """Adds the schema of a model and those of the models in it; returns the reference to it."""
        prefix = _DLC if issubclass(model, Body) else ""
        name = prefix + model.__name__.lstrip("_")
        if name not in self._schemas:
            template = f"{_SCHEMAS}{prefix}{{model}}"
            schema = model.model_json_schema(ref_template=template, schema_generator=_SchemaGenerator)
            inner = {prefix + key: value for key, value in schema.pop("$defs", {}).items()}
            self._schemas.update({**inner, name: schema})
        return {"$ref": f"{_SCHEMAS}{name}"}
