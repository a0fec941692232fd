"""Metrics of a service, in the format of Prometheus.

The number of label values is bounded, whatever clients send: routes are templates such as
`/api/v1/trainingjobs/{job_id}`, and no label has the id of a job, the name of a user or a path.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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

from pai_sdk._core.version import __version__
from pai_sdk._service.state.models import Job
from pai_sdk._wire.pai.status import STATUSES, JobStatus

_STATEMENTS = ("select", "insert", "update", "delete")
_REQUEST_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_JOB_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600)
_DATABASE_BUCKETS_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)


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
        self.requests = Counter(
            "pai_http_requests", "Requests that have ended", (*route, "status"), registry=registry
        )
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
        self._jobs_ended = Counter("pai_jobs_ended", "Jobs that have ended", ("status",), registry=registry)
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
