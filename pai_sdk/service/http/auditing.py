"""Notes requests in the audit log: those that changed something, and those refused for a lack of rights."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from pai_sdk.service.http.access import is_reading
from pai_sdk.service.http.gate import Audit
from pai_sdk.service.identity.audit import AuditLog
from pai_sdk.service.identity.principal import NOT_SIGNED_IN, Principal

__all__ = ["audit_into"]

logger = logging.getLogger(__name__)


def audit_into(log: AuditLog) -> Audit:
    """What a `Gate` calls with each request.

    It is noted before the response is sent, so what was confirmed is in the log.
    """

    async def note(scope: Scope, status: int) -> None:
        principal: Principal = scope["state"]["principal"]
        method, path = scope["method"], scope["path"]
        route = scope.get("route")  # none for an unknown path
        changes = not is_reading(method, "" if route is None else route.path)
        if principal != NOT_SIGNED_IN and (status == 403 or changes):
            client = (scope.get("client") or ("",))[0]
            try:
                await run_in_threadpool(log.note, principal, method, path, status, client)
            except SQLAlchemyError as error:  # a full disk, say: what was done stays done, and is confirmed
                user = principal.user or "the service's own key"
                cause = str(error.__cause__ or error).splitlines()[0]
                logger.error("not in the audit log: %s %s by %s, %d: %s", method, path, user, status, cause)

    return note
