"""Metrics of a service and of each request to it, in the format of Prometheus.

The number of label values is bounded, whatever clients send: routes are templates such as
`/api/v1/trainingjobs/{job_id}`, and no label has the id of a job, the name of a user or a path.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector
from sqlalchemy import Engine, event
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pai_sdk._core.version import __version__
from pai_sdk._service.http.content_headers import RESPONSE_STARTS
from pai_sdk._service.http.guarded_connections import TRANSFERRED_IN, TRANSFERRED_OUT
from pai_sdk._service.oss.oss_request import bucket_in_host, host_of
from pai_sdk._service.routes.api_app import part_of
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.status import STATUSES, JobStatus

_STATEMENTS = ("select", "insert", "update", "delete")
_REQUEST_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_JOB_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600)
_DATABASE_BUCKETS_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_LONG_POLL = re.compile(rb"\bwait\s*=")
_NO_RESPONSE = "none"
_SWITCHING_PROTOCOLS = 101


class Measurements:
    """The metrics of one service. Thread-safe."""

    def __init__(self, executor: str) -> None:
        self.registry = registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        info = Gauge(
            "pai_service_info", "The release that serves; always 1", ("version", "executor"), registry=registry
        )
        info.labels(__version__, executor).set(1)
        route = ("route", "method")
        self.requests = Counter("pai_http_requests", "Finished requests", (*route, "status"), registry=registry)
        self.request_seconds = Histogram(
            "pai_http_request_seconds",
            "Time until a response began, without responses that were held back for news",
            route,
            buckets=_REQUEST_BUCKETS_S,
            registry=registry,
        )
        self.requests_under_way = Gauge("pai_http_requests_in_progress", "Requests under way", registry=registry)
        self.log_followers = Gauge(
            "pai_log_followers", "Clients that wait for new lines or events", ("kind",), registry=registry
        )
        for kind in ("poll", "stream"):
            self.log_followers.labels(kind)
        self.object_bytes = Counter(
            "pai_object_bytes",
            "Bytes of bodies from and to clients of the object store",
            ("direction",),
            registry=registry,
        )
        self._jobs_ended = Counter("pai_jobs_ended", "Finished jobs", ("status",), registry=registry)
        for status in sorted(STATUSES):
            if JobStatus(status).is_terminal:
                self._jobs_ended.labels(status)
        self._queue_seconds = Histogram(
            "pai_job_queue_seconds",
            "Time that jobs have waited in the queue",
            buckets=_JOB_BUCKETS_S,
            registry=registry,
        )
        self._start_seconds = Histogram(
            "pai_job_start_seconds",
            "Time from leaving the queue until a job runs",
            buckets=_JOB_BUCKETS_S,
            registry=registry,
        )
        self._database_seconds = Histogram(
            "pai_database_seconds",
            "Time of statements",
            ("statement",),
            buckets=_DATABASE_BUCKETS_S,
            registry=registry,
        )
        self._database_errors = Counter("pai_database_errors", "Statements that have failed", registry=registry)

    def add(self, collector: Collector) -> None:
        """Registers a collector, which is read at each scrape."""
        self.registry.register(collector)

    def expire_at(self, expires_at: Callable[[], float]) -> None:
        """Exports when the TLS certificate expires, in seconds since 1970."""
        name = "pai_tls_certificate_expires_timestamp_seconds"
        gauge = Gauge(name, "When the TLS certificate expires", registry=self.registry)
        gauge.set_function(expires_at)

    def count_tunnels(self, count: Callable[[], int]) -> None:
        """Exports the number of open tunnels."""
        gauge = Gauge("pai_tunnels", "Open tunnels into running jobs", registry=self.registry)
        gauge.set_function(count)

    def text(self) -> bytes:
        """Returns all metrics, in the text format of Prometheus."""
        return generate_latest(self.registry)

    def job_changed_status(self, job: Job) -> None:
        """Counts a job whose status has changed."""
        status, now = JobStatus(job.status), job.transitions[-1].started_at
        since = job.transitions[-2].started_at if len(job.transitions) > 1 else now
        if status == JobStatus.INITIALIZING:
            self._queue_seconds.observe(max(0.0, now - since))
        elif status == JobStatus.RUNNING:
            self._start_seconds.observe(max(0.0, (job.started_at or now) - since))
        elif JobStatus(status).is_terminal:
            self._jobs_ended.labels(status).inc()

    def watch_database(self, engine: Engine) -> None:
        """Measures the statements of a database."""
        kinds = {kind: self._database_seconds.labels(kind) for kind in (*_STATEMENTS, "other")}

        @event.listens_for(engine, "before_cursor_execute")
        def before_execute(connection: Any, cursor: Any, text: Any, values: Any, context: Any, many: Any) -> None:
            if context is not None:
                context.pai_started_at = time.perf_counter()

        @event.listens_for(engine, "after_cursor_execute")
        def after_execute(connection: Any, cursor: Any, text: str, values: Any, context: Any, many: Any) -> None:
            if context is not None:
                kind = text[:6].lower()
                histogram = kinds.get(kind) or kinds["other"]
                histogram.observe(time.perf_counter() - context.pai_started_at)

        @event.listens_for(engine, "handle_error")
        def count_error(context: Any) -> None:
            self._database_errors.inc()


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
            if (start := status_of(message)) is not None:
                status, response_s = str(start), time.perf_counter() - received_at
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
            state = scope.get("state", {})
            self._bytes_in.inc(state.get(TRANSFERRED_IN, 0))
            self._bytes_out.inc(state.get(TRANSFERRED_OUT, 0))
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


def status_of(message: Message) -> int | None:
    """Returns the status of the response that a message starts; 101 for an accepted WebSocket."""
    if message["type"] in RESPONSE_STARTS:
        status: int = message["status"]
        return status
    return _SWITCHING_PROTOCOLS if message["type"] == "websocket.accept" else None


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
