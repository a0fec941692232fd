"""A service, from its folder to its socket: started in one process, served until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from pai_sdk._host.execution.base import Executor, ExecutorSetup
from pai_sdk._host.execution.node_connections import NodeConnections
from pai_sdk._host.execution.registry import open_executor
from pai_sdk._service.background.metrics import MetricsCollector
from pai_sdk._service.background.notifications import NotificationWorker, start_notifications
from pai_sdk._service.background.scheduler import Scheduler
from pai_sdk._service.background.schedules import ScheduleRunner
from pai_sdk._service.background.watch.rule_watcher import RuleWatcher
from pai_sdk._service.http.auditing import audit_into
from pai_sdk._service.http.authentication import MAX_SKEW_S, Authenticator
from pai_sdk._service.http.description import description_of
from pai_sdk._service.http.foreign_cloud import AsForeignCloud
from pai_sdk._service.http.gate import Gate
from pai_sdk._service.http.health import health_of
from pai_sdk._service.http.listening import info_of, listen, node_address
from pai_sdk._service.http.metrics_endpoint import metrics_of
from pai_sdk._service.http.nonces import NonceMemory
from pai_sdk._service.http.tls import Certificate, certificate_of
from pai_sdk._service.http.websockets import WebSocketGate
from pai_sdk._service.http_server import HttpServer, IdleWatch, Preconditions
from pai_sdk._service.identity.audit import AuditLog
from pai_sdk._service.identity.bucket_rights import BucketRights
from pai_sdk._service.identity.page_sessions import EndedPageSessions
from pai_sdk._service.identity.rate import KeyRates
from pai_sdk._service.identity.users import Users
from pai_sdk._service.identity.workspaces import WorkspaceTable
from pai_sdk._service.monitoring.job_figures import JobFigures
from pai_sdk._service.monitoring.measurements import MeasuredRequests, Measurements
from pai_sdk._service.monitoring.structured_logs import LoggedRequests, prepare_logs
from pai_sdk._service.odps.job_tables import JobTables, TableKeys
from pai_sdk._service.odps.table_store import TableStore
from pai_sdk._service.odps.tables_app import TablesApp
from pai_sdk._service.open_state import open_state
from pai_sdk._service.oss.oss_app import ObjectApp
from pai_sdk._service.oss.store import ObjectStore
from pai_sdk._service.process import allow_open_files, prepare_threads
from pai_sdk._service.routes.api_app import Dispatcher, create_api
from pai_sdk._service.routes.tunnel.node_route import NodeApp
from pai_sdk._service.routes.tunnel.websocket_route import TunnelApp
from pai_sdk._service.services.algorithms import AlgorithmRegistry
from pai_sdk._service.services.context import ServiceContext
from pai_sdk._service.services.dlc.records import Records
from pai_sdk._service.services.experiments import ExperimentTable
from pai_sdk._service.services.job_metrics import MetricPages
from pai_sdk._service.services.jobs.changes import Changes
from pai_sdk._service.services.jobs.details.costs import record_price
from pai_sdk._service.services.jobs.host_resources import capacity_now
from pai_sdk._service.services.jobs.job_table import Jobs
from pai_sdk._service.services.jobs.log_reader import JobLogReader
from pai_sdk._service.services.jobs.queueing.fair_share import Allocation
from pai_sdk._service.services.jobs.queueing.waiting import QueueReader
from pai_sdk._service.services.jobs.schedule_table import ScheduleTable
from pai_sdk._service.services.jobs.tunnel_sessions import TunnelSessions
from pai_sdk._service.services.jobs.tunnels import Tunnels
from pai_sdk._service.services.models import ModelRegistry
from pai_sdk._service.services.notifications.queue import NotificationQueue
from pai_sdk._service.services.notifications.sealing import Sealer
from pai_sdk._service.services.pipelines import JobPipelines
from pai_sdk._service.services.runs.job_runs import JobRuns
from pai_sdk._service.services.training_jobs import create_job
from pai_sdk._service.settings import DEFAULT_DATA_DIR, Pace, ServiceInfo, ServiceSettings
from pai_sdk._service.standby import Leadership, Standby
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.disk import DiskWatch, Reserve
from pai_sdk._service.state.folder import DataFolder, Keys
from pai_sdk._service.web.browser_guard import SAFETY_HEADERS
from pai_sdk._service.web.browser_keys import page_secret
from pai_sdk._service.web.host_names import names_of_address
from pai_sdk._service.web.page import Ability, Page, PageSettings
from pai_sdk._service.web.page_routes import add_page
from pai_sdk._service.web.pipeline_routes import add_pipelines
from pai_sdk._wire.pai.request import TrainingJobRequest
from pai_sdk.errors import PaiError

logger = logging.getLogger(__name__)

_OTHER_FILES = 1024  # databases, logs, objects
_ABILITIES: tuple[Ability, ...] = (
    *("stop", "rerun", "delete", "files", "trace", "usage", "media", "pipelines", "annotate"),
    "others",  # stop and delete jobs of other users
    "admin",
)


def serve(
    settings: ServiceSettings,
    *,
    on_ready: Callable[[ServiceInfo], None] | None = None,
    on_standby: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, or until the service was idle for long enough."""
    prepare_threads()
    prepare_logs(settings)
    service = Service(settings)
    allow_open_files(2 * settings.connections.max_connections + _OTHER_FILES)
    previous = {name: signal.signal(name, service.on_signal) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        service.run(on_ready=on_ready, on_standby=on_standby)
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)


class Service:
    """One service; `run` serves, `stop` ends that from any thread."""

    def __init__(self, settings: ServiceSettings, executor: Executor | None = None) -> None:
        self._settings = settings
        self._executor = executor
        self._server: HttpServer | None = None
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Stops the service; returns at once."""
        # In this order, because `run` sets the server and then reads the event: one of the two sees the other.
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = True

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Stops the service, as a signal handler."""
        self.stop()

    def run(
        self,
        *,
        on_ready: Callable[[ServiceInfo], None] | None = None,
        on_standby: Callable[[str], None] | None = None,
    ) -> None:
        """Serves until `stop`. With a PostgreSQL database, the lease is acquired first and released last."""
        settings = self._settings
        certificate = certificate_of(settings)
        with ExitStack() as stack:
            # The stack closes in reverse order: scheduler and collector before the database, the lease last.
            leadership = self._acquire_leadership(stack, certificate, on_standby)
            if leadership is None:
                return
            folder = stack.enter_context(DataFolder(settings.data_dir, mark=leadership.mark))
            Reserve.of(folder.root).require_space()
            # The lambda is called only once jobs are started, when `scheduler` exists.
            setup = settings, folder, stack, (nodes := NodeConnections())
            executor = self._executor or _open_executor(*setup, lambda: scheduler.is_closing)
            listener = leadership.listener or stack.enter_context(listen(settings, folder))
            keys = folder.keys(settings)
            info = info_of(settings, folder, keys, listener, executor.capabilities, certificate)
            nodes.service = node_address(settings, listener, certificate)
            database, store = open_state(settings, folder, leadership.lease, stack)
            store.create_bucket(settings.bucket)
            jobs = _jobs(settings, database, changes := Changes())
            identity = users, *_ = _identity(database, keys, settings.workspace_id)
            announcing = _, page = _open_notifications(jobs, keys, settings, info, users.ended_page_sessions)
            measurements = _measure(settings, jobs, executor, certificate, lambda: scheduler.allocations)
            tables = TableStore(folder.tables_dir)
            table_keys = _table_keys(keys, users, jobs, tables, lambda job_id: scheduler.request_of(job_id))
            job_tables = JobTables(tables, info.endpoint, table_keys)
            scheduler = _start_scheduler(settings, folder, store, executor, jobs, job_tables, leadership, stack)
            logs = JobLogReader(lambda job_id: executor.files(folder.job_dir(job_id)))
            queue = _queue_reader(settings, executor, folder, jobs, lambda: scheduler.allocations)
            runs = stack.enter_context(closing(JobRuns(jobs, logs, folder, store, settings, queue)))
            context = ServiceContext(
                settings,
                info,
                jobs,
                logs,
                changes,
                scheduler,
                *_registries(database),
                store.bucket_exists,
                store.create_bucket,
                runs,
                executor.capabilities,
                MetricPages(jobs, folder),
                *identity,
                _tunnels(settings, jobs, executor, folder),
                *announcing,
                queue=queue,
            )
            apps = (tables, table_keys), _health(database, folder, scheduler, settings.pace), measurements
            dispatcher = _open_dispatcher(context, page, keys, folder, store, *apps, nodes, stack)
            app = _observed(dispatcher, measurements, settings)
            # Before the first response: a client that gets a response reads this file to identify the service.
            folder.save(info)

            workers = _start_workers(context, leadership, stack)
            idle = IdleWatch(settings.idle_timeout_s, dispatcher, scheduler, *workers)
            needs = Preconditions(lambda: folder.is_gone, leadership.loss, idle)
            options = changes.release, needs.must_end, certificate
            server = HttpServer(app, settings.connections, *options, has_websockets=True)
            self._serve(server, listener, partial(_on_started, changes, info, on_ready))
        _report_end(settings, needs.loss)

    def _serve(self, server: HttpServer, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        self._server, server.on_ready = server, on_ready
        if not self._stopped.is_set():  # before the server existed
            server.run(sockets=[listener])

    def _acquire_leadership(
        self, stack: ExitStack, certificate: Certificate | None, on_standby: Callable[[str], None] | None
    ) -> Leadership | None:
        """Waits until this service may start; returns None if it was stopped before."""
        if self._settings.database_url is None:
            return Leadership()
        standby = Standby(self._settings, self._stopped.is_set, certificate)
        if not self._settings.standby:
            return standby.acquire(stack)

        def serve(server: HttpServer) -> None:
            self._server = server

        def stands_by(url: str) -> None:
            logger.info("standing by on %s", url)
            if on_standby is not None:
                on_standby(url)

        return standby.wait(stack, serve=serve, on_standby=stands_by)


def _on_started(changes: Changes, info: ServiceInfo, on_ready: Callable[[ServiceInfo], None] | None) -> None:
    """Runs in the event loop once the service listens."""
    changes.attach(asyncio.get_running_loop())
    logger.info("serving %s from %s", info.endpoint, info.data_dir)
    if on_ready is not None:
        on_ready(info)


def _report_end(settings: ServiceSettings, loss: str | None) -> None:
    """Logs that a service has ended; raises `PaiError` if it cannot continue."""
    if loss is not None:
        raise PaiError(f"the service on {settings.data_dir} stops: {loss}")
    logger.info("the service on %s has ended", settings.data_dir)


def _open_executor(
    settings: ServiceSettings,
    folder: DataFolder,
    stack: ExitStack,
    nodes: NodeConnections,
    is_closing: Callable[[], bool],
) -> Executor:
    """Opens the executor of the settings; closed with the stack."""
    setup = ExecutorSetup(folder.root / "cache", is_closing, folder.jobs_dir, settings.executor_options, nodes)
    return stack.enter_context(closing(open_executor(settings.executor, setup)))


def _start_scheduler(
    settings: ServiceSettings,
    folder: DataFolder,
    store: ObjectStore,
    executor: Executor,
    jobs: Jobs,
    tables: JobTables,
    leadership: Leadership,
    stack: ExitStack,
) -> Scheduler:
    """Starts the scheduler, the metrics collector and the rules; all stop with the stack."""
    collector = MetricsCollector(jobs, usage_interval_s=settings.pace.watch_interval_s)
    capacity = partial(capacity_now, settings, executor)
    scheduler = Scheduler(
        jobs,
        folder,
        store,
        executor,
        collector,
        settings=settings,
        capacity=capacity,
        tables=tables,
        can_act=leadership.may_act,
    )
    watcher = RuleWatcher(
        jobs,
        folder,
        executor,
        collector,
        scheduler,
        config=settings.watch,
        interval_s=settings.pace.watch_interval_s,
        notify=jobs.on_finding,
        can_act=leadership.may_act,
    )
    # Closed in reverse order: the scheduler before the collector, which it uses.
    collector.start()
    stack.callback(collector.close)
    scheduler.start()
    stack.callback(scheduler.close)
    watcher.start()
    stack.callback(watcher.close)
    return scheduler


def _measure(
    settings: ServiceSettings,
    jobs: Jobs,
    executor: Executor,
    certificate: Certificate | None,
    reserved: Callable[[], Sequence[Allocation]],
) -> Measurements | None:
    """Returns the Prometheus metrics; an embedded service has none, because it belongs to one user."""
    if settings.embedded:
        return None
    measurements = Measurements(settings.executor)
    measurements.watch_database(jobs.database.engine)
    jobs.on_status = measurements.job_changed_status
    measurements.add(JobFigures(jobs.database, reserved, partial(capacity_now, settings, executor)))
    if certificate is not None:
        measurements.expire_at(lambda: certificate.expires_at)
    return measurements


def _observed(app: ASGIApp, measurements: Measurements | None, settings: ServiceSettings) -> ASGIApp:
    """Wraps the application so that its requests are measured and logged; not without measurements."""
    if measurements is None:
        return app
    return LoggedRequests(MeasuredRequests(app, measurements), access=settings.access_log)


def _health(database: Database, folder: DataFolder, scheduler: Scheduler, pace: Pace) -> ASGIApp:
    """Returns the application of the health check."""
    is_writable = Reserve.of(folder.root).is_writable
    return health_of(
        {
            "database": (database.responds, "The database does not respond."),
            "disk": (is_writable, "The data folder cannot be written, or its disk is full."),
            "scheduler": (lambda: scheduler.is_working, "Nothing starts jobs any more."),
        },
        timeout_s=pace.health_timeout_s,
    )


def _queue_reader(
    settings: ServiceSettings,
    executor: Executor,
    folder: DataFolder,
    jobs: Jobs,
    allocations: Callable[[], Sequence[Allocation]],
) -> QueueReader:
    """Returns the reader of the queue, with the capacity of the executor and its nodes."""
    capacity = partial(capacity_now, settings, executor)
    return QueueReader(jobs, capacity, allocations, lambda job_id: executor.nodes(folder.job_dir(job_id)))


def _tunnels(settings: ServiceSettings, jobs: Jobs, executor: Executor, folder: DataFolder) -> Tunnels:
    """Returns the tunnels into running jobs, which use at most half of the connections."""
    limits = settings.tunnels
    # Nodes of a cluster connect to the service too; containers do not.
    can = executor.capabilities
    uses = 2 if can.hosts == "elsewhere" and not can.uses_images else 1
    limits = replace(limits, total=min(limits.total, settings.connections.max_connections // (2 * uses)))
    return Tunnels(jobs, executor if executor.capabilities.tunnels else None, folder.job_dir, limits)


def _table_keys(
    keys: Keys,
    users: Users,
    jobs: Jobs,
    tables: TableStore,
    request_of: Callable[[str], TrainingJobRequest | None],
) -> TableKeys:
    """Returns the keys that open tables: those of users and of running jobs."""
    return TableKeys(
        keys,
        users,
        request_of=request_of,
        owner_of_job=lambda job_id: jobs.get(job_id).owner,
        owner_of_table=tables.owner,
    )


def _jobs(settings: ServiceSettings, database: Database, changes: Changes) -> Jobs:
    """Returns the jobs; each that starts records its price, if the service has prices."""
    jobs = Jobs(database, changes, dedupes=settings.foreign is None)
    if settings.prices is not None:
        jobs.record_start = partial(record_price, settings.prices)
    return jobs


def _identity(
    database: Database, keys: Keys, workspace_id: str
) -> tuple[Users, BucketRights, AuditLog, WorkspaceTable]:
    users = Users(database, keys)
    workspaces = WorkspaceTable(database, workspace_id, users.changing)
    return users, BucketRights(database, users), AuditLog(database), workspaces


def _registries(
    database: Database,
) -> tuple[AlgorithmRegistry, ExperimentTable, ModelRegistry, ScheduleTable, Records]:
    registries = AlgorithmRegistry(database), ExperimentTable(database), ModelRegistry(database)
    return (*registries, ScheduleTable(database), Records(database))


def _start_workers(
    context: ServiceContext, leadership: Leadership, stack: ExitStack
) -> tuple[NotificationWorker, ScheduleRunner]:
    """Starts what works beside the scheduler; it stops with the stack."""
    notifications = start_notifications(context, leadership.may_act, stack)
    return notifications, _start_schedules(context, leadership, stack)


def _start_schedules(context: ServiceContext, leadership: Leadership, stack: ExitStack) -> ScheduleRunner:
    """Starts the runner that creates the jobs of schedules; it stops with the stack."""
    runner = ScheduleRunner(
        context.schedules,
        partial(create_job, context),
        owner_of=context.users.with_key,
        has_finished=context.jobs.has_finished,
        audit=context.audit,
        disk=DiskWatch(context.info.data_dir),
        on_job=context.runner.wake,
        on_created=context.notifications.copy_to_job,
        on_missed=context.notifications.record_missed,
        after_missed=context.notifications.on_change,
        can_act=leadership.may_act,
    )
    runner.task.start()
    stack.callback(runner.task.close)
    return runner


def _open_notifications(
    jobs: Jobs, keys: Keys, settings: ServiceSettings, info: ServiceInfo, ended: EndedPageSessions
) -> tuple[NotificationQueue, Page | None]:
    """Returns the queue of notifications, and the page that they link to; each end of a job adds to the queue."""
    page = _page_of(settings, info, ended)
    host = urlsplit(info.endpoint).netloc
    queue = NotificationQueue(
        jobs.database,
        Sealer(keys.access_key_secret),
        link_of=lambda job_id: None if page is None else page.link(host, job_id),
    )
    # Before the scheduler starts, which may record ends at once. The worker sets `on_change` later.
    jobs.record_finish, jobs.on_finish = queue.record_finish, lambda: queue.on_change()
    jobs.on_finding = queue.enqueue
    return queue, page


def _page_of(settings: ServiceSettings, info: ServiceInfo, ended: EndedPageSessions) -> Page | None:
    """Returns the page of a service; a simulated foreign cloud has none."""
    if settings.foreign is not None:
        return None
    address = urlsplit(info.endpoint)
    port = address.port or 0
    is_default = info.data_dir == Path(DEFAULT_DATA_DIR).expanduser().absolute()
    page_settings = PageSettings(
        kind="service",
        title=f"{'embedded service' if settings.embedded else 'service'} on {socket.gethostname()}",
        command="pai-sdk ui --embedded"
        if is_default
        else shlex.join(["pai-sdk", "ui", "--data", str(info.data_dir)]),
        endpoint=info.endpoint,
        port=port,
        session=_session_of(settings, info, is_default),
        can=_ABILITIES,
        names=[*names_of_address(settings.host), *names_of_address(address.hostname or ""), *settings.names],
        secret=page_secret(info.access_key_secret, port),
        scheme="https" if info.certificate else "http",
    )
    return Page(page_settings, ended)


def _session_of(settings: ServiceSettings, info: ServiceInfo, is_default: bool) -> str:
    """Returns Python code that opens a session of the service, for the page; it contains no key."""
    if settings.embedded:
        return "Session.embedded()" if is_default else f"Session.embedded({str(info.data_dir)!r})"
    endpoints = ", ".join(f"{name}='{{url}}'" for name in ("endpoint", "aiworkspace_endpoint", "oss_endpoint"))
    return f"Session({info.region_id!r}, {info.workspace_id!r}, {endpoints})"


def _open_dispatcher(
    context: ServiceContext,
    page: Page | None,
    keys: Keys,
    folder: DataFolder,
    store: ObjectStore,
    tables: tuple[TableStore, TableKeys],
    health: ASGIApp,
    measurements: Measurements | None,
    nodes: NodeConnections,
    stack: ExitStack,
) -> Dispatcher:
    """Returns the ASGI application: the API behind its gate, objects and tables; closed with the stack."""
    settings = context.settings
    # Of users whose creation was interrupted after their row was committed.
    context.create_missing_buckets()
    nonces = NonceMemory(lifetime_s=MAX_SKEW_S, path=folder.nonces_file)
    stack.callback(nonces.close)
    rates = KeyRates(settings.requests_per_s)
    api = create_api(context)
    api.state.shares.slot_timeout_s = settings.pace.slot_timeout_s
    api.state.tunnel_sessions = TunnelSessions(context.tunnels, context.users.refusal)
    authenticator = Authenticator(context.users, nonces=nonces, rates=rates)
    guarded = partial(
        Gate,
        api,
        max_body_bytes=settings.max_body_bytes,
        audit=audit_into(context.audit),
        refusal=context.users.refusal,
    )
    gate = guarded(authenticator.admit)
    front = gate if settings.foreign is None else AsForeignCloud(gate, settings.foreign)
    browsers = None
    if page is not None:
        add_page(api, page)
        add_pipelines(api, partial(JobPipelines, context, store))
        browsers = guarded(page.guard(context.users).admit, headers=SAFETY_HEADERS)
    objects = ObjectApp(
        store, context.bucket_rights.secret, region=settings.region_id, rates=rates, rights=context.bucket_rights
    )
    table_store, table_keys = tables
    tables_app = TablesApp(table_store, table_keys, rights_of=table_keys.rights_of, rates=rates)
    metrics = None
    if measurements is not None:
        measurements.count_tunnels(lambda: context.tunnels.count)
        metrics = metrics_of(measurements.text, token=settings.metrics_token, admit=authenticator.admit)
    description = description_of(api)
    websockets = WebSocketGate(TunnelApp(context), authenticator.admit, audit=audit_into(context.audit))
    node_app = NodeApp(nodes, settings.tunnels.stall_s)
    apps = {"page": browsers, "metrics": metrics, "websockets": websockets, "nodes": node_app}
    return Dispatcher(front, objects, tables_app, description, health, **apps)
