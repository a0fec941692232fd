"""Measures each request of a service."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk._service.monitoring.measurements import Measurements
from pai_sdk._service.oss.oss_request import bucket_in_host, host_of
from pai_sdk._service.routes.api_app import part_of

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_LONG_POLL = re.compile(rb"\bwait\s*=")
_NO_RESPONSE = "none"


class MeasuredRequests:
    """Forwards requests to the app, and counts them."""

    def __init__(self, app: ASGIApp, measurements: Measurements) -> None:
        self._app = app
        self._measurements = measurements
        self._bytes_in = measurements.object_bytes.labels("in")
        self._bytes_out = measurements.object_bytes.labels("out")
        self._streams = measurements.log_followers.labels("stream")
        self._polls = measurements.log_followers.labels("poll")
        # `labels()` costs more than `inc()`, so its results are cached.
        self._counters: dict[tuple[str, str, str], Counter] = {}
        self._timers: dict[tuple[str, str], Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        status, response_s, is_stream, is_long_poll = _NO_RESPONSE, 0.0, False, _is_long_poll_of_log(scope)
        received_at = time.perf_counter()

        async def count_sent(message: Message) -> None:
            nonlocal status, response_s, is_stream, is_long_poll
            if message["type"] == "http.response.start":
                status, response_s = str(message["status"]), time.perf_counter() - received_at
                is_stream, has_waited = _kind_of(message)
                is_long_poll |= has_waited
                if is_stream:
                    self._streams.inc()
            elif part_of(scope) == "objects":
                self._bytes_out.inc(len(message.get("body", b"")))
            await send(message)

        async def count_received() -> Message:
            message = await receive()
            if part_of(scope) == "objects":
                self._bytes_in.inc(len(message.get("body", b"")))
            return message

        under_way = self._measurements.requests_under_way.track_inprogress()
        polls = self._polls.track_inprogress() if is_long_poll else nullcontext()
        try:
            with under_way, polls:
                await self._app(scope, count_received, count_sent)
        finally:
            if is_stream:
                self._streams.dec()
            route, method = route_of(scope), scope["method"] if scope["method"] in _METHODS else "other"
            self._counter(route, method, status).inc()
            # The time of a long poll is the time for which nothing has happened.
            if status != _NO_RESPONSE and not is_long_poll:
                self._timer(route, method).observe(response_s)

    def _counter(self, route: str, method: str, status: str) -> Counter:
        key = route, method, status
        if key not in self._counters:
            self._counters[key] = self._measurements.requests.labels(*key)
        return self._counters[key]

    def _timer(self, route: str, method: str) -> Histogram:
        key = route, method
        if key not in self._timers:
            self._timers[key] = self._measurements.request_seconds.labels(*key)
        return self._timers[key]


def route_of(scope: Scope) -> str:
    """Returns the path template of a handled request; for a refused one, the part of the service."""
    part = part_of(scope)
    if part == "objects":
        bucket, _, key = str(scope["path"]).lstrip("/").partition("/")
        # With the bucket in the host, the complete path is the key.
        if bucket_in_host(host_of(scope)) is not None:
            return "/{bucket}/{key}" if bucket else "/{bucket}"
        return "/{bucket}/{key}" if key else "/{bucket}" if bucket else "/"
    return str(getattr(scope.get("route"), "path", part))


def _is_long_poll_of_log(scope: Scope) -> bool:
    return str(scope["path"]).endswith("/logs") and any(
        name == b"prefer" and _LONG_POLL.search(value) for name, value in scope["headers"]
    )


def _kind_of(message: Message) -> tuple[bool, bool]:
    """Returns whether the response is a stream of events, and whether it may have waited for new lines."""
    is_stream = has_waited = False
    for name, value in message.get("headers", ()):
        if name == b"content-type":
            is_stream = value.startswith(b"text/event-stream")
        elif name == b"preference-applied":
            has_waited = _LONG_POLL.search(value) is not None
    return is_stream, has_waited
