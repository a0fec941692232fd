"""Reads the bodies of requests as models, and declares these for the description of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel

from pai_sdk._service.services.jobs.reading import read_body, read_model

_Model = TypeVar("_Model", bound=BaseModel)
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def accepts(model: type[BaseModel]) -> Callable[[_Endpoint], _Endpoint]:
    """Declares the body of a route that reads it itself; it stands below `@router.post`."""

    def declared(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["body_model"] = model
        return endpoint

    return declared


def queries(model: type[BaseModel]) -> Callable[[_Endpoint], _Endpoint]:
    """Declares the model that a route reads the parameters of its query with."""

    def declared(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["query_model"] = model
        return endpoint

    return declared


def query_model(endpoint: Callable[..., Any]) -> type[BaseModel] | None:
    """Returns the model that `queries` has declared."""
    model: type[BaseModel] | None = getattr(endpoint, "query_model", None)
    return model


def body_model(endpoint: Callable[..., Any]) -> type[BaseModel] | None:
    """Returns the model that `accepts` has declared."""
    model: type[BaseModel] | None = getattr(endpoint, "body_model", None)
    return model


async def read_json(model: type[_Model], request: Request, *, empty_is_unset: bool = False) -> _Model:
    """Reads the body of a request; the error names every unknown, missing or wrong field."""
    fields = read_body(await request.body())
    # For models in which no string field has the empty string as a value: generated clients send it.
    if empty_is_unset:
        fields = {name: value for name, value in fields.items() if value != ""}
    return read_model(model, fields)
