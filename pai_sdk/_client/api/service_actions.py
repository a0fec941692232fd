"""Actions of services of this package that Alibaba Cloud's API does not have."""

from __future__ import annotations

from typing import Any

from pai_sdk._client.api.transport import ApiResponse, Transport
from pai_sdk.errors import InvalidInputError, NotFoundError, Problem

_NO_SUCH_ACTION = "InvalidAction.NotFound"


def call_service_action(
    transport: Transport,
    action: str,
    method: str,
    path: str,
    path_params: dict[str, str] | None = None,
    *,
    feature: str,
    hint: str,
    **options: Any,
) -> ApiResponse:
    """Calls an action that only services of this package have; from others, raises `InvalidInputError`."""
    try:
        return transport.call(action, method, path, path_params, **options)
    except NotFoundError as error:
        if error.code != _NO_SUCH_ACTION:
            raise
        raise InvalidInputError([Problem("session", f"its service has no {feature}", hint)]) from error
