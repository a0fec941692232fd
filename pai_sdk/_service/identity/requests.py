"""The user of a request."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from pai_sdk._service.identity.principal import Principal


def principal_of(request: Request) -> Principal:
    """Returns the user of a request, whom the gate has recorded in its scope."""
    principal: Principal = request.scope["state"]["principal"]
    return principal


async def _principal(request: Request) -> Principal:
    return principal_of(request)


PrincipalOf = Annotated[Principal, Depends(_principal)]
"""A parameter of a route: the user of the request."""
