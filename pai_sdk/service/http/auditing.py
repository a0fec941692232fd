"""Notes requests in the audit log: those that changed something, and those refused for a lack of rights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from pai_sdk.service.http.access import is_reading
from pai_sdk.service.http.gate import Audit
from pai_sdk.service.identity.audit import AuditLog
from pai_sdk.service.identity.principal import NOT_SIGNED_IN, Principal

__all__ = ["audit_into", "note_as_done"]

logger = logging.getLogger(__name__)

_NOTED = "noted_status"  # of the state of a request: the status with which it is in the log
_DONE = 200


def audit_into(log: AuditLog) -> Audit:
    """What a `Gate` calls with each request.

    It is noted before the response is sent, so what was confirmed is in the log.
    """

    async def note(scope: Scope, status: int) -> None:
        if status == scope["state"].get(_NOTED):
            return
        principal: Principal = scope["state"]["principal"]
        method, path = scope["method"], scope["path"]
        route = scope.get("route")  # none for an unknown path
        changes = not is_reading(method, "" if route is None else route.path)
        if principal != NOT_SIGNED_IN and (status == 403 or changes):
            try:
                await run_in_threadpool(log.note, principal, method, path, status, _client(scope))
            except SQLAlchemyError as error:  # a full disk, say: what was done stays done, and is confirmed
                user = principal.user or "the service's own key"
                cause = str(error.__cause__ or error).splitlines()[0]
                logger.error("not in the audit log: %s %s by %s, %d: %s", method, path, user, status, cause)

    return note


@contextmanager
def note_as_done(log: AuditLog, scope: Scope) -> Iterator[Callable[[Session, str], None]]:
    """Gives what notes a request as done in the transaction that does it, to spare the log one of its own.

    If the block ends without an error, and the response has that status, it is not noted once more.
    """
    principal: Principal = scope["state"]["principal"]

    def note(session: Session, made_id: str) -> None:
        log.note_in(session, principal, scope["method"], scope["path"], _DONE, _client(scope))

    yield note
    scope["state"][_NOTED] = _DONE


def _client(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])
