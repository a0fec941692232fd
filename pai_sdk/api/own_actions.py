"""Actions of services of this package that Alibaba Cloud's API does not have."""

from __future__ import annotations

from typing import Any

from pai_sdk.api.transport import ApiResponse, Transport
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem

__all__ = ["call_own"]

_NO_SUCH_ACTION = "InvalidAction.NotFound"


def call_own(
    transport: Transport,
    action: str,
    method: str,
    path: str,
    names: dict[str, str] | None = None,
    *,
    lacks: str,
    hint: str,
    **given: Any,
) -> ApiResponse:
    """Call an action; the arguments are those of `Transport.call`.

    Args:
        transport: to the API.
        action: the name of the action.
        method: of HTTP.
        path: with the names of its parameters.
        names: the values of these.
        lacks: what a service without the action does not have, for the message.
        hint: what to do then.
        given: query, body and so on.

    Raises:
        InvalidInputError: the service has no such action.
    """
    try:
        return transport.call(action, method, path, names, **given)
    except NotFoundError as error:
        if error.code != _NO_SUCH_ACTION:
            raise
        raise InvalidInputError([Problem("session", f"its service has no {lacks}", hint)]) from error
