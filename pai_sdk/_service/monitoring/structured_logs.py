"""Logs of a service as JSON, one object per line, and a line for each request.

A line has the ids of request, user and job, if there are any. Secrets are left out: no header and no query is
logged, and what looks like a signature, a token or a password in a message is replaced.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk._service.http.guarded_connections import TRANSFERRED_OUT
from pai_sdk._service.identity.principal import LOCAL_USER, Principal
from pai_sdk._service.monitoring.measurements import route_of, status_of
from pai_sdk._service.routes.api_app import part_of
from pai_sdk._service.settings import ServiceSettings

logger = logging.getLogger(__name__)
_access = logging.getLogger("pai_sdk._service.access")

_request: ContextVar[Scope | None] = ContextVar("request", default=None)
_JOB_ID = re.compile(r"\btrain[a-z0-9]{12}\b")
_SECRETS = (
    (
        re.compile(
            r"(?i)((?:signature|security-?token|access_?key_?secret|password|token|code)[\"']?\s*[=:]\s*[\"']?)"
            r"[^\s\"'&,;)]+"
        ),
        r"\1***",
    ),
    (re.compile(r"(?i)\b(bearer|acs|ODPS|OSS)(\s+)[\w.~+/=-]+:?[\w+/=-]{8,}"), r"\1\2***"),
    (re.compile(r"(://[^\s/:@]*:)[^\s@]+@"), r"\1***@"),
)
_ID_HEADERS = (b"x-acs-request-id", b"x-oss-request-id")
_MAX_PATH_LENGTH = 500


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, without a line break."""
        message = _without_secrets(record.getMessage())
        line: dict[str, Any] = {
            "time": _rfc3339(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        scope = _request.get()
        if scope is not None:
            line |= _fields_of(scope)
        jobs = {*_JOB_ID.findall(message)}
        # A message about several jobs would be found under one of them only.
        if len(jobs) == 1:
            line["job_id"] = jobs.pop()
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = _without_secrets(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = _without_secrets(self.formatStack(record.stack_info))
        # A lone surrogate, for example of a file name, cannot be written as UTF-8.
        return json.dumps(line, ensure_ascii=False, default=str).encode(errors="replace").decode()


class LoggedRequests:
    """Forwards requests to the app; log lines of a request get its id."""

    def __init__(self, app: ASGIApp, *, access: bool) -> None:
        self._app = app
        self._access = access  # a line for each request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        token = _request.set(scope)
        try:
            if self._access:
                await self._with_line(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        finally:
            _request.reset(token)

    async def _with_line(self, scope: Scope, receive: Receive, send: Send) -> None:
        started_at, status, size_bytes, request_id = time.perf_counter(), 0, 0, ""

        async def record_and_send(message: Message) -> None:
            nonlocal status, size_bytes, request_id
            if (start := status_of(message)) is not None:
                status = start
                ids = (value.decode("latin-1") for name, value in message["headers"] if name in _ID_HEADERS)
                request_id = next(ids, "")
            else:
                size_bytes += len(message.get("body") or message.get("bytes") or b"")
            await send(message)

        try:
            await self._app(scope, receive, record_and_send)
        finally:
            fields: dict[str, Any] = {
                "method": scope["method"],
                "path": _path_of(scope),
                "status": status,
                "duration_ms": round((time.perf_counter() - started_at) * 1000, 1),
                "bytes": size_bytes + scope.get("state", {}).get(TRANSFERRED_OUT, 0),
                "client": (scope.get("client") or ("",))[0],
            }
            if request_id:
                fields["request_id"] = request_id
            text = "{method} {path} {status} in {duration_ms} ms".format(**fields)
            _access.info("%s", text, extra={"fields": fields})


def prepare_logs(settings: ServiceSettings) -> None:
    """Configures the logs of this process: request lines and JSON, as the settings select."""
    if settings.access_log:
        _access.setLevel(logging.INFO)
    if settings.log_format == "json":
        _log_as_json()


def _log_as_json() -> None:
    """Writes all logs as JSON to stderr, including errors that stop a thread."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for previous in [*root.handlers]:
        root.removeHandler(previous)
    root.addHandler(handler)
    logging.captureWarnings(True)
    # Only for this package: the root logger would also write the lines of libraries.
    if root.level > logging.INFO:
        logging.getLogger("pai_sdk").setLevel(logging.INFO)

    def log_crash(crash: threading.ExceptHookArgs) -> None:
        name = crash.thread.name if crash.thread is not None else "unknown"
        if crash.exc_value is not None:
            error = crash.exc_type, crash.exc_value, crash.exc_traceback
            logger.critical("the thread %s has stopped with an error", name, exc_info=error)

    threading.excepthook = log_crash


def _fields_of(scope: Scope) -> dict[str, str]:
    fields = {}
    state = scope.get("state", {})
    if "request_id" in state:
        fields["request_id"] = state["request_id"]
    principal: Principal | None = state.get("principal")
    if principal is not None:
        fields["user"] = principal.user or LOCAL_USER
    parameters = scope.get("path_params", {})
    job_id = parameters.get("job_id", parameters.get("run_id", ""))
    if _JOB_ID.fullmatch(job_id):
        fields["job_id"] = job_id
    return fields


def _path_of(scope: Scope) -> str:
    """Returns the path of a request; for the page its template, since the last part may be the token of a file."""
    return route_of(scope) if part_of(scope) == "page" else str(scope["path"])[:_MAX_PATH_LENGTH]


def _without_secrets(text: str) -> str:
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
