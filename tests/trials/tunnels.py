"""Tunnels into a job whose connections are cut again and again, and whose service is killed.

A program of the job and this process send each other numbered lines, through a proxy that cuts each connection
after a number of bytes that a seed decides. Every line must arrive once. Meanwhile the service is killed at times.
Then many forwards at once transport data both ways, and clients that never read may not fill its memory.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk._client.api.transport import Transport
from pai_sdk._client.job.entering import EnteredJob
from pai_sdk._client.tunnel.dialling import Dialler
from pai_sdk._client.tunnel.opening import JobTunnel
from pai_sdk._host.agent.tunnel import frames
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.settings import ServiceInfo
from pai_sdk._service.state.folder import is_locked, read_info
from pai_sdk.errors import PaiError
from tests.service.services import session_on
from tests.support.cutting_proxy import CuttingProxy
from tests.support.service_process import end_service

__all__ = ["Report", "main", "run"]

_STREAMS = 3
_LONGEST_S = 1800.0
_LINE = "{} " + "x" * 90 + "\n"
_MOST_GROWTH_KIB = 64 << 10
_SILENT_STREAMS = 8

# Sends numbered lines until its input ends, and checks those of its input. Then it prints both counts.
_PROGRAM = """
import sys, threading
over = threading.Event()
count, fault = 0, ""
def read():
    global count, fault
    for line in sys.stdin.buffer:
        if line != b"%d " % count + b"x" * 90 + b"\\n" and not fault:
            fault = f"{count}: {line[:200]!r}"
        count += 1
    over.set()
threading.Thread(target=read).start()
number = 0
while not over.is_set():
    for _ in range(50):
        sys.stdout.buffer.write(b"%d " % number + b"x" * 90 + b"\\n")
        number += 1
    sys.stdout.buffer.flush()
    over.wait(0.001)
print("end", number, count, fault or "none", flush=True)
"""
# Echoes what it is sent, on many ports.
_ECHO = """
import asyncio, sys
async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    servers = [await asyncio.start_server(echo, "127.0.0.1", 0) for _ in range(int(sys.argv[1]))]
    print("ports", *(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.sleep(100000)
asyncio.run(main())
"""


@dataclass
class Report:
    """What was observed. `faults` is empty when all is well."""

    seed: int
    cuts: int = 0
    kills: int = 0
    reconnections: int = 0
    lines_in: int = 0
    lines_out: int = 0
    forwards: int = 0
    forwarded_bytes: int = 0
    silent: int = 0
    growth_kib: int = 0
    took_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"seed {self.seed}: {self.cuts} cuts, {self.reconnections} reconnections, "
                f"{self.kills} kills of the service in {self.took_s:.0f} s",
                f"{self.lines_out} lines from the job and {self.lines_in} to it, each once",
                f"{self.forwards} forwards at once, {self.forwarded_bytes / 1e6:.0f} MB both ways",
                f"{self.silent} clients that never read: the service grew by {self.growth_kib / 1024:.1f} MiB",
                *(f"FAULT: {fault}" for fault in self.faults),
                "no byte was lost, none came twice" if not self.faults else f"{len(self.faults)} faults",
            ]
        )


class _Trial:
    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self.data = folder / "data"
        self.info = ensure_running(self.data)
        self.report = Report(seed)
        self.over = threading.Event()
        self.proxy = stack.enter_context(CuttingProxy(self.endpoint, seed=seed))
        self.session = Session.embedded(self.data)
        self.cut_session = _through(self.info, self.proxy.url)
        self.received: list[int] = []  # by the programs of the job, in lines
        self._lock = threading.Lock()

    def endpoint(self) -> str:
        """The address of the service, which may have moved."""
        info = read_info(self.data)
        return (info or self.info).endpoint

    # ---- numbered lines both ways ----

    def lines(self, job: TrainingJob, cuts: int, kills: int) -> None:
        """Streams of lines while connections are cut."""
        with self.cut_tunnel(job) as tunnel:
            tunnel.on_reconnect = self._count
            streams = [_program(tunnel, _PROGRAM) for _ in range(_STREAMS)]
            functions: list[Callable[[], None]] = [lambda: self._kill(cuts, kills)]
            for stream in streams:
                functions += [lambda s=stream: self._read(s), lambda s=stream: self._write(s)]  # type: ignore[misc]
            threads = [threading.Thread(target=self._guarded, args=(function,)) for function in functions]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + _LONGEST_S
            while self.proxy.cuts < cuts and not self.over.is_set() and time.monotonic() < deadline:
                time.sleep(0.02)
            self.check(self.proxy.cuts >= cuts, f"only {self.proxy.cuts} cuts")
            self.over.set()
            threads[0].join()
            self.report.cuts = self.proxy.cuts
            self.proxy.calm = True
            for thread in threads:
                thread.join(120)
            self.check(not any(thread.is_alive() for thread in threads), "a stream has not ended")

    def cut_tunnel(self, job: TrainingJob) -> JobTunnel:
        """A tunnel through the proxy; opening it may need several attempts."""
        while True:
            try:
                cut_job = self.cut_session.get_job(job.id)
                return EnteredJob(cut_job.backend, cut_job.refresh()).connect(None)
            except PaiError:
                if self.over.wait(0.1):
                    raise

    def _read(self, stream: Stream) -> None:
        buffer, number = b"", 0
        while data := stream.read():
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                if line.startswith(b"end "):
                    self._check_end(line.decode(), number)
                    continue
                self.check(line == _LINE.format(number)[:-1].encode(), f"line {number} is {line[:200]!r}")
                number += 1
        with self._lock:
            self.report.lines_out += number
        self.check(stream.wait_exit(30) == 0, f"exit {stream.exit}")

    def _check_end(self, line: str, number: int) -> None:
        _, sent, received, fault = line.split(" ", 3)
        self.check(int(sent) == number, f"{sent} lines were sent, {number} have arrived")
        self.check(fault == "none", f"the job has received {fault}")
        with self._lock:
            self.received.append(int(received))

    def _write(self, stream: Stream) -> None:
        number = 0
        while not self.over.is_set():
            stream.write("".join(_LINE.format(number + each) for each in range(20)).encode())
            number += 20
            time.sleep(0.001)
        stream.end()
        with self._lock:
            self.report.lines_in += number

    def _kill(self, cuts: int, kills: int) -> None:
        """Kills the service after equal shares of the cuts, and starts it again."""
        for each in range(kills):
            while self.proxy.cuts < cuts * (each + 1) // (kills + 1):
                if self.over.wait(0.02):
                    return
            info = read_info(self.data)
            if info is not None and is_locked(self.data):
                os.kill(info.pid, signal.SIGKILL)
                self.report.kills += 1
                ensure_running(self.data)

    def _count(self, is_connected: bool) -> None:
        self.report.reconnections += is_connected

    # ---- forwards ----

    def forward(self, job: TrainingJob, forwards: int, size: int) -> None:
        """Many forwards at once, each with one connection that sends and receives."""
        with ExitStack() as stack:
            entered = EnteredJob(job.backend, job.refresh())
            tunnel = stack.enter_context(entered.connect(None))
            server = _program(tunnel, _ECHO, str(forwards))
            text = b""
            while not text.endswith(b"\n"):
                text += server.read()
            ports = [int(word) for word in text.split()[1:]]
            forward = stack.enter_context(job.forward([(0, port) for port in ports]))
            barrier = threading.Barrier(forwards)
            local = [port.local for port in forward.ports]
            with ThreadPoolExecutor(forwards) as pool:
                results = list(pool.map(lambda port: _echoed(port, size, barrier), local))
            self.check(all(results), f"{results.count(False)} of {forwards} forwards returned other data")
            self.report.forwards, self.report.forwarded_bytes = forwards, forwards * size
            server.close()

    # ---- silent clients ----

    def silent(self, job: TrainingJob, clients: int) -> None:
        """Clients that open programs which write for ever, and read nothing."""
        pid = ensure_running(self.data).pid
        before, most = _rss_kib(pid), 0
        transport = job.backend._transport  # type: ignore[attr-defined]
        with ExitStack() as stack:
            for _ in range(clients):
                _open_silently(transport, job.id, stack)
            end = time.monotonic() + 5
            while time.monotonic() < end:
                most = max(most, _rss_kib(pid))
                time.sleep(0.1)
            result = job.exec(["echo", "there"], capture=True)
            self.check(getattr(result, "text", "") == "there\n", f"beside silent clients: {result}")
        self.report.silent, self.report.growth_kib = clients, most - before
        self.check(most - before < _MOST_GROWTH_KIB, f"{clients} silent clients: {most - before} KiB more")

    # ---- results ----

    def check(self, is_right: bool, fault: str) -> None:
        if not is_right:
            with self._lock:
                self.report.faults.append(fault)

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:
            self.check(False, traceback.format_exc())
            self.over.set()


def _through(info: ServiceInfo, url: str) -> Session:
    return session_on(replace(info, endpoint=url))


def _program(tunnel: JobTunnel, script: str, *arguments: str) -> Stream:
    argv = ["python3", "-u", "-c", script, *arguments]
    return tunnel.open("program", argv=argv, terminal=None, variables={}, cwd=None)


def _echoed(port: int, size: int, barrier: threading.Barrier) -> bool:
    """Whether all that is sent to a port comes back."""
    data = random.Random(port).randbytes(size)
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        barrier.wait(60)
        sender = threading.Thread(target=_send_all, args=(connection, data))
        sender.start()
        received = hashlib.sha256()
        while part := connection.recv(1 << 16):
            received.update(part)
        sender.join()
    return received.digest() == hashlib.sha256(data).digest()


def _send_all(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def _open_silently(api_transport: Transport, job_id: str, stack: ExitStack) -> None:
    """Joins a session, opens programs, and reads no more."""
    transport = Dialler(api_transport, job_id, "first").dial()
    stack.callback(transport.close)
    hello = {"session": os.urandom(16).hex(), "epoch": 1, "received": 0, "new": True}
    transport.send(frames.with_json(frames.HELLO, hello))
    assert frames.kind_of(transport.receive(30)) == frames.WELCOME
    for stream in range(1, _SILENT_STREAMS + 1):
        body: dict[str, object] = {
            "kind": "program",
            "argv": ["cat", "/dev/zero"],
            "terminal": None,
            "variables": {},
            "cwd": None,
        }
        transport.send(frames.numbered(stream, frames.inner(frames.OPEN, 2 * stream - 1, frames.to_json(body))))


def _rss_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0])


def run(
    folder: Path, *, cuts: int, kills: int, seed: int, forwards: int = 100, megabytes: int = 1, silent: int = 32
) -> Report:
    """Does it, and returns what was observed."""
    begun = time.monotonic()
    with ExitStack() as stack:
        trial = _Trial(folder, seed, stack)
        processor = Processor(
            "python:3.11", "echo begun; sleep 7200", instance_type="ecs.c6.large", session=trial.session
        )
        job = processor.run(wait=False, show_logs=False)
        next(line for line in job.logs(follow=True) if line.text == "begun")
        try:
            trial.lines(job, cuts, kills)
            received = sum(trial.received)
            sent = trial.report.lines_in
            trial.check(received == sent, f"{sent} lines were sent to the job, {received} have arrived")
            trial.forward(job, forwards, megabytes << 20)
            trial.silent(job, silent)
        except KeyboardInterrupt:
            pass
        except Exception:
            trial.check(False, traceback.format_exc())
        finally:
            trial.over.set()
            with suppress(PaiError):
                job.stop()
                job.wait(60, show_logs=False)
            end_service(trial.data)
    trial.report.took_s = time.monotonic() - begun
    return trial.report


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials tunnels", description=__doc__)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tunnels-") as folder:
        report = run(Path(folder), cuts=given.cuts, kills=given.kills, seed=given.seed)
    sys.stdout.write(f"{report}\n")
    return int(bool(report.faults))
