"""Notes requests in the audit log: those that changed something or were refused, and failed sign-ins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from pai_sdk.service.http.access import is_reading
from pai_sdk.service.http.gate import CLAIMED_KEY, REFUSED_AS, Audit
from pai_sdk.service.identity.audit import AuditLog
from pai_sdk.service.identity.principal import NOT_SIGNED_IN, Principal
from pai_sdk.service.rate import RateLimit

__all__ = ["audit_into", "note_as_done", "note_created"]

logger = logging.getLogger(__name__)

_NOTED = "noted_status"  # of the state of a request: the status with which it is in the log
_DONE = 200
_CREATED = "created_id"  # of the state of a request

# Codes of a request whose sender could not prove who they are, besides requests that do not try to.
_FAILED_SIGN_INS = frozenset({"InvalidAccessKeyId.NotFound", "SignatureDoesNotMatch", "CodeNotValid"})
# Anybody can fail: a flood must neither fill the log, whose last 100,000 entries are kept, nor keep the database
# busy. 60 at once, then one a minute: 1,440 a day.
_SIGN_INS_PER_S = 1 / 60
_SIGN_INS_AT_ONCE_S = 60 / _SIGN_INS_PER_S


def audit_into(log: AuditLog) -> Audit:
    """What a `Gate` calls with each request.

    It is noted before the response is sent, so what was confirmed is in the log.
    """
    sign_ins = RateLimit(_SIGN_INS_PER_S, burst_s=_SIGN_INS_AT_ONCE_S)

    async def note(scope: Scope, status: int) -> None:
        state = scope["state"]
        if status == state.get(_NOTED):
            return
        principal: Principal = state.get("principal", NOT_SIGNED_IN)
        method, path = scope["method"], scope["path"]
        if principal == NOT_SIGNED_IN:
            if state.get(REFUSED_AS) not in _FAILED_SIGN_INS or sign_ins.acquire():
                return
            principal = replace(principal, key_id=state.get(CLAIMED_KEY, ""))
        else:
            route = scope.get("route")  # none for an unknown path
            if status != 403 and is_reading(method, "" if route is None else route.path):
                return
        created_id = state.get(_CREATED, "") if status < 300 else ""
        try:
            await run_in_threadpool(log.record, principal, method, path, status, _client(scope), created_id)
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

    def note(session: Session, created_id: str) -> None:
        log.record_in(session, principal, scope["method"], scope["path"], _DONE, _client(scope), created_id)

    yield note
    scope["state"][_NOTED] = _DONE


def note_created(request: Request, created_id: str) -> None:
    """Records what a request creates, for its entry in the audit log."""
    setattr(request.state, _CREATED, created_id)


def _client(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])
