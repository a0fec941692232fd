"""A service, from its folder to its socket: started in one process, served until somebody ends it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType

import uvicorn

from pai_sdk.errors import ServiceStartError
from pai_sdk.execution.base import Executor
from pai_sdk.execution.process import ProcessExecutor
from pai_sdk.service.app import Dispatcher, create_api
from pai_sdk.service.auth import Authenticator
from pai_sdk.service.changes import Changes
from pai_sdk.service.database import Database
from pai_sdk.service.folder import DataFolder, Keys
from pai_sdk.service.gate import Gate
from pai_sdk.service.joblogs import JobLogs
from pai_sdk.service.jobs import Jobs
from pai_sdk.service.metrics import MetricsCollector
from pai_sdk.service.objects.app import create_app
from pai_sdk.service.objects.store import ObjectStore
from pai_sdk.service.parts import Parts
from pai_sdk.service.scheduler import Scheduler
from pai_sdk.service.settings import ServiceInfo, ServiceSettings

__all__ = ["Service", "serve"]

logger = logging.getLogger(__name__)

_GRACE_S = 3
_LOOK_S = 1.0
_BACKLOG = 1024


def serve(settings: ServiceSettings, *, on_ready: Callable[[ServiceInfo], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until nobody has needed the service for long enough.

    Args:
        settings: where and how.
        on_ready: called once the service can be reached.

    Raises:
        ServiceStartError: the folder is in use, or the port is taken.
    """
    service = Service(settings)
    previous = {name: signal.signal(name, service.on_signal) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        service.run(on_ready=on_ready)
    finally:
        for name, handler in previous.items():
            signal.signal(name, handler)


class Service:
    """One service; `run` serves, `stop` ends that from any thread.

    Args:
        settings: where and how.
        executor: what runs the jobs; plain processes on this machine when not given.
    """

    def __init__(self, settings: ServiceSettings, executor: Executor | None = None) -> None:
        self._settings = settings
        self._executor = executor
        self._server: _Server | None = None
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End; returns at once."""
        self._stopped.set()
        if self._server is not None:
            self._server.should_exit = True

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """The same, as the handler of a signal."""
        self.stop()

    def run(self, *, on_ready: Callable[[ServiceInfo], None] | None = None) -> None:
        """Serve until `stop`."""
        settings = self._settings
        with ExitStack() as stack:
            folder = stack.enter_context(DataFolder(settings.data_dir))
            listener = stack.enter_context(_listen(settings, folder))
            keys = folder.keys(settings)
            info = _info(settings, folder, keys, listener)
            database = Database.in_file(folder.database_file)
            stack.callback(database.close)
            store = stack.enter_context(ObjectStore(folder.objects_dir))
            store.create_bucket(settings.bucket)
            changes = Changes()
            jobs = Jobs(database, changes)
            collector = MetricsCollector(jobs)
            executor = self._executor or ProcessExecutor(folder.root / "cache")
            scheduler = Scheduler(jobs, folder, store, executor, collector, slots=settings.slots)
            collector.start()
            stack.callback(collector.close)
            scheduler.start()
            stack.callback(scheduler.close)
            parts = Parts(settings, info, jobs, JobLogs(folder), changes, scheduler)
            gate = Gate(create_api(parts), Authenticator(keys), longest_body_bytes=settings.longest_body_bytes)
            secrets = {keys.access_key_id: keys.access_key_secret}
            objects = create_app(store, secrets, region=settings.region_id)
            dispatcher = Dispatcher(gate, objects)

            # Before anybody is answered: who is answered reads this to know by whom.
            folder.save(info)

            def ready() -> None:
                logger.info("serving %s from %s", info.endpoint, folder.root)
                if on_ready is not None:
                    on_ready(info)

            idle = _IdleWatch(settings.idle_timeout_s, dispatcher, scheduler)
            self._server = _Server(dispatcher, changes, idle, ready)
            if not self._stopped.is_set():
                self._server.run(sockets=[listener])
            logger.info("the service on %s has ended", folder.root)


class _IdleWatch:
    """Knows since when nobody has needed the service."""

    def __init__(self, timeout_s: float | None, dispatcher: Dispatcher, scheduler: Scheduler) -> None:
        self._timeout_s = timeout_s
        self._dispatcher = dispatcher
        self._scheduler = scheduler
        self._answered = 0
        self._needed_at = time.monotonic()

    def is_over(self) -> bool:
        """Whether the service can end by itself; to be asked now and then."""
        if self._timeout_s is None:
            return False
        now, answered = time.monotonic(), self._dispatcher.requests_answered
        if answered != self._answered or self._dispatcher.requests_under_way or not self._scheduler.is_idle:
            self._answered, self._needed_at = answered, now
        return now - self._needed_at >= self._timeout_s


class _Server(uvicorn.Server):
    """uvicorn, which also sends home those whose answers are held back, and ends when nobody needs it."""

    def __init__(self, app: Dispatcher, changes: Changes, idle: _IdleWatch, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._changes = changes
        self._idle = idle
        self._on_ready = on_ready
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._changes.attach(asyncio.get_running_loop())
        self._watching = asyncio.create_task(self._watch())
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._changes.release()
        if self._watching is not None:
            self._watching.cancel()
        await super().shutdown(sockets)

    async def _watch(self) -> None:
        while not self.should_exit:
            await asyncio.sleep(_LOOK_S)
            if self._idle.is_over():
                logger.info("nobody has needed the service for a while; it ends")
                self.should_exit = True


def _listen(settings: ServiceSettings, folder: DataFolder) -> socket.socket:
    """The socket: on the port that was asked for, else on the last one if it is free, else on any."""
    ports = [settings.port] if settings.port is not None else [folder.last_port() or 0, 0]
    for port in ports:
        try:
            return _bound(settings.host, port)
        except OSError as error:
            fault = error
    wrong = "address" if isinstance(fault, socket.gaierror) or fault.errno == errno.EADDRNOTAVAIL else "port"
    raise ServiceStartError(
        f"{settings.host}:{ports[-1]} cannot be listened on: {fault.strerror or fault}; choose another {wrong}"
    ) from fault


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _info(settings: ServiceSettings, folder: DataFolder, keys: Keys, listener: socket.socket) -> ServiceInfo:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 - compared, not bound
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    url = f"http://{host}:{listener.getsockname()[1]}"
    return ServiceInfo(
        endpoint=url,
        oss_endpoint=url,
        region_id=settings.region_id,
        workspace_id=settings.workspace_id,
        bucket=settings.bucket,
        access_key_id=keys.access_key_id,
        access_key_secret=keys.access_key_secret,
        pid=os.getpid(),
        data_dir=folder.root,
    )
