"""Two services, each a process, on one PostgreSQL database; a front before them, and a wire that can be cut."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import requests

from pai_sdk._service.settings import ServiceInfo
from tests.service.certificates import Files
from tests.service.services import Client
from tests.support.waiting import PATIENCE_S, until

APART = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Before a command: it sees none of our processes, like a service on another machine."""


@dataclass
class ServiceProcess:
    """A `pai-sdk serve`.

    Attributes:
        port: where it listens.
        program: the process; of a program around the service, if one is.
        log: what it wrote.
        scheme: of its URL.
        host: the address of its URL.
    """

    port: int
    program: subprocess.Popen[bytes]
    log: Path
    scheme: str = "http"
    host: str = "127.0.0.1"

    @property
    def said(self) -> str:
        """What it wrote so far."""
        return self.log.read_text()

    def health(self) -> str:
        """`ok`, `standby`, `failing`; empty where nothing listens."""
        try:
            answer = requests.get(f"{self.scheme}://{self.host}:{self.port}/healthz", timeout=5)
            return str(answer.json()["status"])
        except (requests.RequestException, ValueError, KeyError):
            return ""

    def until_it_is(self, health: str, *, within_s: float = PATIENCE_S) -> float:
        """Wait for that health; the time at which it was seen."""
        until(
            lambda: self.health() == health or self.program.poll() is not None,
            f"{health}: {self.said}",
            within_s=within_s,
            pause_s=0.05,
        )
        assert self.program.poll() is None, self.said
        return time.monotonic()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and give the exit code."""
        self.program.send_signal(number)
        return self.program.wait(PATIENCE_S)


@dataclass
class Pair:
    """Starts services on one data folder and one database; with TLS if there is a certificate."""

    data: Path
    url: str
    home: Path
    stack: ExitStack
    certificate: Files | None = None
    started: int = field(default=0)

    @property
    def scheme(self) -> str:
        """Of the URLs of both."""
        return "http" if self.certificate is None else "https"

    def start(
        self,
        *,
        standby: bool = False,
        url: str | None = None,
        within: tuple[str, ...] = (),
        slots: int = 60,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> ServiceProcess:
        """Start one; it may not have begun to serve when this returns."""
        self.started += 1
        port, log = port or free_port(), self.home / f"service-{self.started}.log"
        command = [
            *within,
            sys.executable,
            "-m",
            "pai_sdk",
            "serve",
            "--host",
            host,
            "--port",
            str(port),
            "--data",
            str(self.data),
        ]
        command += ["--slots", str(slots), *(["--standby"] if standby else [])]
        if self.certificate is not None:
            command += ["--tls-cert", str(self.certificate.certificate), "--tls-key", str(self.certificate.key)]
        environment = {**os.environ, "HOME": str(self.home), "PAI_SERVICE_DATABASE": url or self.url}
        with log.open("wb") as output:
            program = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        self.stack.callback(_kill, program)
        return ServiceProcess(port, program, log, self.scheme, host)

    def client(self, port: int) -> Client:
        """A client of whatever listens there, with the key of the folder."""
        facts = json.loads((self.data / "service.json").read_text())
        url = f"{self.scheme}://127.0.0.1:{port}"
        info = replace(ServiceInfo(**facts), endpoint=url, oss_endpoint=url)
        return Client(info)


def _kill(program: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        program.kill()
    program.wait(PATIENCE_S)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Wire:
    """Forwards TCP connections until it is cut: then it goes on to accept them, and is silent.

    Args:
        connect: makes the connection behind; None when there is none to be had now.
    """

    def __init__(self, connect: Callable[[], socket.socket | None]) -> None:
        self._connect = connect
        self._whole = threading.Event()
        self._whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Pass nothing on from now on."""
        self._whole.clear()

    def mend(self) -> None:
        """Pass on again what came meanwhile, and all that follows."""
        self._whole.set()

    def close(self) -> None:
        """Accept no more."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._whole.wait()
        far = self._connect()
        if far is None:
            near.close()
            return
        with near, far:
            back = threading.Thread(target=self._pass_on, args=(far, near), daemon=True)
            back.start()
            self._pass_on(near, far)
            back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while some := source.recv(1 << 16):
                self._whole.wait()
                target.sendall(some)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def front_of(*services: ServiceProcess) -> Iterator[int]:
    """A proxy as a team has one: it sends each connection to the service whose health is `ok`; gives its port."""

    def connect() -> socket.socket | None:
        active = next((one for one in services if one.health() == "ok"), None)
        try:
            return None if active is None else socket.create_connection(("127.0.0.1", active.port))
        except OSError:
            return None

    with closing(Wire(connect)) as wire:
        yield wire.port


@contextmanager
def wire_to(server: str) -> Iterator[tuple[Wire, str]]:
    """A wire to a PostgreSQL server on a Unix socket; gives it, and the URL through it."""
    from sqlalchemy import make_url

    url = make_url(server)
    path = f"{url.query['host']}/.s.PGSQL.5432"

    def connect() -> socket.socket | None:
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            far.close()
            return None
        return far

    with closing(Wire(connect)) as wire:
        # As parameters: a folder is known by the rest of the URL, and that stays the same.
        through = url.update_query_dict({"host": "127.0.0.1", "port": str(wire.port)})
        yield wire, through.render_as_string(hide_password=False)
