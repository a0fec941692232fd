"""The routes of DLC: chosen by the version of the API, read tolerantly, refused in its form."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar, TypeVar, cast

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.routing import Match
from starlette.types import Scope

from pai_sdk._service.routes.action_route import ActionRoute
from pai_sdk._service.services.dlc.problems import refuse_problems
from pai_sdk._service.services.jobs.reading import read_body
from pai_sdk._service.wire_errors import WireError
from pai_sdk._wire.body import Body, Query, read_query
from pai_sdk._wire.body import read_body as read_known
from pai_sdk._wire.dlc.actions import API_VERSION

_Model = TypeVar("_Model", bound=BaseModel)

# The codes of DLC where those of training jobs are others.
_CODES: Mapping[str, str] = {
    "TRAINING_JOB_NOT_FOUND": "NotFound",
    "TRAINING_JOB_INSTANCE_NOT_FOUND": "NotFound",
    "TRAINING_JOB_NOT_ENDED": "BadRequest",
}


class BodyRoute(ActionRoute):
    """A route whose bodies and queries are read as those of DLC are: parameters of both kinds get their model."""

    async def read_body(self, model: type[_Model], request: Request) -> _Model:
        """Parses the body or the query of a request."""
        if not issubclass(model, Body):
            return await super().read_body(model, request)
        known: Any = model  # mypy does not see that it is a type of body
        if issubclass(model, Query):
            read, problems = read_query(known, dict(request.query_params))
        else:
            read, problems = read_known(known, read_body(await request.body()))
        refuse_problems(problems)
        return cast(_Model, read)


class DlcRoute(BodyRoute):
    """A route of DLC: of requests that name this API, and on its own paths also of those that name none."""

    is_shared: ClassVar[bool] = False  # another API has a path like it

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Returns whether the route is that of a request."""
        version = version_of(scope)
        if version == API_VERSION or (version is None and not self.is_shared):
            return super().matches(scope)
        return Match.NONE, {}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the handler of the route's requests, which refuses them with the codes of DLC."""
        handler = super().get_route_handler()

        async def with_codes(request: Request) -> Response:
            try:
                return await handler(request)
            except WireError as error:
                error.code = _CODES.get(error.code, error.code)
                raise

        return with_codes


class SharedPathRoute(DlcRoute):
    """A route of DLC whose path is also one of another API."""

    is_shared = True


def version_of(scope: Scope) -> str | None:
    """Returns the version of the API that a request names."""
    value = dict(scope["headers"]).get(b"x-acs-version")
    return None if value is None else value.decode("latin-1")
