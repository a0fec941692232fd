"""Declares the model of a route's request body, for the description of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel

__all__ = ["accepts", "body_model"]

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def accepts(model: type[BaseModel]) -> Callable[[_Endpoint], _Endpoint]:
    """Declares the body of a route that reads it itself; it stands below `@router.post`."""

    def declared(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["body_model"] = model
        return endpoint

    return declared


def body_model(endpoint: Callable[..., Any]) -> type[BaseModel] | None:
    """Returns the model that `accepts` has declared."""
    model: type[BaseModel] | None = getattr(endpoint, "body_model", None)
    return model
