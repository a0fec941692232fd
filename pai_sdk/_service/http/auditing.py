"""Writes requests to the audit log: those that changed something or were refused, and failed sign-ins."""

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

from pai_sdk._service.http.access import TUNNEL_SESSION_PATH, is_read_only_request
from pai_sdk._service.http.gate import CLAIMED_KEY, REFUSED_AS, Audit
from pai_sdk._service.identity.audit import AuditLog
from pai_sdk._service.identity.principal import NOT_SIGNED_IN, Principal
from pai_sdk._service.identity.rate import RateLimit

logger = logging.getLogger(__name__)

_RECORDED_STATUS = "noted_status"  # in the state of a request: the status of its entry in the log
_SUCCESS_STATUS = 200
_CREATED_ID, _EXPIRES_AT = "created_id", "created_expires_at"  # in the state of a request

# Codes of requests whose signature or code was refused. Requests without any are not recorded.
_FAILED_SIGN_INS = frozenset(
    {"InvalidAccessKeyId.NotFound", "InvalidAccessKeyId.Inactive", "SignatureDoesNotMatch", "CodeNotValid"}
)
# Failed sign-ins need no key. A flood must not displace other entries, since the log retains the last 100,000, and
# must not overload the database. So 60 at once, then one a minute, which is 1,440 a day.
_SIGN_INS_PER_S = 1 / 60
_SIGN_INS_AT_ONCE_S = 60 / _SIGN_INS_PER_S


def audit_into(log: AuditLog) -> Audit:
    """Returns the function that a `Gate` calls with each request."""
    sign_ins = RateLimit(_SIGN_INS_PER_S, burst_s=_SIGN_INS_AT_ONCE_S)

    async def record(scope: Scope, status: int) -> None:
        state = scope["state"]
        if status == state.get(_RECORDED_STATUS):
            return
        principal: Principal = state.get("principal", NOT_SIGNED_IN)
        method, path = scope["method"], scope["path"]
        if principal == NOT_SIGNED_IN:
            # With 401 it is a page whose key has expired, which repeats all its requests.
            is_recorded = status != 401 or state.get(REFUSED_AS) != "InvalidAccessKeyId.Inactive"
            if state.get(REFUSED_AS) not in _FAILED_SIGN_INS or not is_recorded or sign_ins.acquire():
                return
            principal = replace(principal, key_id=state.get(CLAIMED_KEY, ""))
        else:
            route = scope.get("route")  # none for an unknown path
            pattern = "" if route is None else route.path
            if status != 403 and is_read_only_request(method, pattern):
                return
            # Of the many requests of a tunnel, only the one that opens it.
            if pattern == TUNNEL_SESSION_PATH and status < 300 and _CREATED_ID not in state:
                return
        created = (state.get(_CREATED_ID, ""), state.get(_EXPIRES_AT)) if status < 300 else ()
        # Before the response is sent: each confirmed request is in the log.
        try:
            await run_in_threadpool(log.record, principal, method, path, status, _client(scope), *created)
        except SQLAlchemyError as error:
            # Such as a full disk. The request was carried out, so its client must get the response.
            user = principal.user or "the service's own key"
            cause = str(error.__cause__ or error).splitlines()[0]
            logger.error("not in the audit log: %s %s by %s, %d: %s", method, path, user, status, cause)

    return record


@contextmanager
def record_in_transaction(log: AuditLog, scope: Scope) -> Iterator[Callable[[Session, str], None]]:
    """Yields a function that records a successful request in the transaction that carries it out."""
    principal: Principal = scope["state"]["principal"]

    def record(session: Session, created_id: str) -> None:
        method, path = scope["method"], scope["path"]
        log.record_in(session, principal, method, path, _SUCCESS_STATUS, _client(scope), created_id)

    yield record
    # Saves a transaction: `audit_into` does not record this request again.
    scope["state"][_RECORDED_STATUS] = _SUCCESS_STATUS


def record_created_id(request: Request, created_id: str, *, expires_at: float | None = None) -> None:
    """Records what a request creates, and when that expires, for its entry in the audit log."""
    setattr(request.state, _CREATED_ID, created_id)
    setattr(request.state, _EXPIRES_AT, expires_at)


def _client(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])
