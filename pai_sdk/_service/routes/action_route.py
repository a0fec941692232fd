"""Routes of the actions of PAI's API, whose endpoints work with the models of bodies."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from pai_sdk._service.http.bodies import accepts, queries, read_json
from pai_sdk._service.routes.json_responses import success
from pai_sdk._service.services.budgets import BudgetedRoute
from pai_sdk._wire.base import Empty
from pai_sdk._wire.body import Query

_Model = TypeVar("_Model", bound=BaseModel)


class ActionRoute(BudgetedRoute):
    """A route that parses the body of the request and writes the one of the response.

    A parameter of its endpoint whose type is a model gets the body. The endpoint returns the model of the
    response, or None, and may put headers into `request.state.response_headers`; an endpoint that is declared to
    return a `Response` does both itself.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        signature = inspect.signature(endpoint, eval_str=True)
        response = signature.return_annotation
        if response is not Response:
            has_schema = bool(options.get("openapi_extra"))
            options["response_model"] = response or Empty
            endpoint = self._action(endpoint, signature, has_schema=has_schema)
        super().__init__(path, endpoint, **options)

    async def read_body(self, model: type[_Model], request: Request) -> _Model:
        """Parses the body of a request."""
        return await read_json(model, request)

    def _action(
        self, endpoint: Callable[..., Any], signature: inspect.Signature, *, has_schema: bool
    ) -> Callable[..., Response]:
        """Returns an endpoint as FastAPI calls it: it takes what its dependencies read, and returns a response."""
        takes_request = "request" in signature.parameters

        @functools.wraps(endpoint)
        def action(request: Request, **options: Any) -> Response:
            if takes_request:
                options["request"] = request
            body = endpoint(**options)
            return success(request, body, headers=getattr(request.state, "response_headers", None))

        parameters = {"request": inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)}
        for name, parameter in signature.parameters.items():
            model = parameter.annotation
            if isinstance(model, type) and issubclass(model, BaseModel):
                if issubclass(model, Query):
                    queries(model)(action)
                elif not has_schema:
                    accepts(model)(action)
                parameter = parameter.replace(annotation=Annotated[model, self._body(model)])
            parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        # FastAPI would build a schema of any other type that is returned, at the import.
        action.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*parameters.values()], return_annotation=Response
        )
        return action

    def _body(self, model: type[BaseModel]) -> Any:
        async def read(request: Request) -> BaseModel:
            return await self.read_body(model, request)

        return Depends(read)


class FilledFieldsRoute(ActionRoute):
    """A route in whose body an empty string means an unset field, as clients that are generated send it."""

    async def read_body(self, model: type[_Model], request: Request) -> _Model:
        """Parses the body of a request, without its empty fields."""
        return await read_json(model, request, empty_is_unset=True)
