"""The exec calls of a Docker engine, with the programs on this machine, as a container without a container.

It does as the real one does where that surprises: a half-close with a terminal ends the output and leaves the
program, and a client that goes leaves it too.
"""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import pty
import socketserver
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from pai_sdk._host.execution.docker.engine import Engine
from tests.support.waiting import until


@dataclass
class Execution:
    config: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    terminal: int | None = None
    half_closed: bool = False

    @property
    def state(self) -> dict[str, Any]:
        code = None if self.process is None else self.process.poll()
        code = code if code is None or code >= 0 else 128 - code
        return {"Pid": self.process.pid if self.process else 0, "Running": code is None, "ExitCode": code}


@dataclass
class FakeEngine:
    """One engine below a folder; `sizes_at_start` is that of API 1.42 and later."""

    folder: Path
    sizes_at_start: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    executions: dict[str, Execution] = field(default_factory=dict)

    @contextmanager
    def up(self) -> Iterator[Engine]:
        path = self.folder / "engine.sock"
        server = _Server(str(path), _Handler)
        server.engine = self
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        client = docker.DockerClient(base_url=f"unix://{path}", version="1.44", timeout=20)
        try:
            yield Engine(f"unix://{path}", client)
        finally:
            client.close()
            server.shutdown()
            for each in self.executions.values():
                if each.process is not None:
                    with suppress(ProcessLookupError):
                        os.killpg(each.process.pid, 9)
                    each.process.wait()
            thread.join()
            server.server_close()
            until(lambda: not server.serving, "the end of all requests")

    def create(self, config: dict[str, Any]) -> str:
        name = f"exec{len(self.executions)}"
        self.executions[name] = Execution(config)
        return name

    def start(self, execution: Execution, settings: dict[str, Any]) -> None:
        config = execution.config
        variables = {"PATH": os.environ["PATH"], **self.variables}
        variables |= dict(pair.split("=", 1) for pair in config.get("Env") or ())
        ours = theirs = subprocess.PIPE
        if config["Tty"]:
            ours, theirs = pty.openpty()
            if self.sizes_at_start and settings.get("ConsoleSize"):
                resize(ours, *settings["ConsoleSize"])
            execution.terminal = ours
        stdin = theirs if config["AttachStdin"] else subprocess.DEVNULL
        execution.process = subprocess.Popen(
            ["setsid", "-c", *config["Cmd"]] if config["Tty"] else config["Cmd"],
            env=variables, stdin=stdin, stdout=theirs, stderr=theirs, cwd="/", start_new_session=not config["Tty"],
        )  # fmt: skip
        if config["Tty"]:
            os.close(theirs)


def resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    engine: FakeEngine
    serving = 0

    def process_request_thread(self, *arguments: Any) -> None:
        self.serving += 1
        try:
            super().process_request_thread(*arguments)
        finally:
            self.serving -= 1


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None: ...

    def address_string(self) -> str:
        return "engine"

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[-1] == "_ping":
            self._answer(200, "OK")
        elif parts[1] == "exec" and parts[2] in self.server.engine.executions:
            self._answer(200, self.server.engine.executions[parts[2]].state)
        elif parts[1] == "containers":
            self._answer(200, {"Config": {"Hostname": "host"}, "NetworkSettings": {"Networks": {}}})
        else:
            self._answer(404, {"message": "no such thing"})

    def do_POST(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        content = json.loads(body) if body else {}
        engine = self.server.engine
        if parts[1] == "containers" and parts[3] == "exec":
            self._answer(201, {"Id": engine.create(content)})
        elif parts[2] not in engine.executions:
            self._answer(404, {"message": f"no such exec: {parts[2]}"})
        elif parts[3] == "resize":
            size = dict(pair.split("=") for pair in self.path.split("?")[1].split("&"))
            terminal = engine.executions[parts[2]].terminal
            if terminal is not None:
                resize(terminal, int(size["h"]), int(size["w"]))
            self._answer(200, "")
        else:
            execution = engine.executions[parts[2]]
            engine.start(execution, content)
            self._serve(execution)

    def _answer(self, status: int, content: Any) -> None:
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(data)

    def _serve(self, execution: Execution) -> None:
        self.close_connection = True
        head = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
        head += b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        process = execution.process
        assert process is not None
        lock = threading.Lock()
        heads = [head]

        if execution.terminal is not None:
            sources = [(execution.terminal, 1)]
        else:
            assert process.stdout is not None
            assert process.stderr is not None
            sources = [(process.stdout.fileno(), 1), (process.stderr.fileno(), 2)]
        framed = execution.terminal is None
        threads = [
            threading.Thread(target=self._copy, args=(*source, framed, lock, heads), daemon=True)
            for source in sources
        ]
        feeder = threading.Thread(target=self._feed, args=(execution, lock, heads), daemon=True)
        feeder.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.wait()
        self.finish_stream()
        feeder.join()
        for file in (process.stdin, process.stdout, process.stderr):
            if file is not None:
                file.close()
        if execution.terminal is not None:
            os.close(execution.terminal)
            execution.terminal = None

    def _copy(self, source: int, number: int, framed: bool, lock: threading.Lock, heads: list[bytes]) -> None:
        with suppress(OSError):
            while chunk := os.read(source, 1 << 16):
                frame = struct.pack(">BxxxI", number, len(chunk)) + chunk if framed else chunk
                with lock:
                    self.connection.sendall((heads.pop() if heads else b"") + frame)
        with lock, suppress(OSError):
            if heads:
                self.connection.sendall(heads.pop())

    def finish_stream(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(2)

    def _feed(self, execution: Execution, lock: threading.Lock, heads: list[bytes]) -> None:
        process = execution.process
        assert process is not None
        target = execution.terminal if execution.terminal is not None else None
        if target is None and process.stdin is not None:
            target = process.stdin.fileno()
        with lock:
            if heads and execution.config["AttachStdin"]:
                # The client waits for them before it writes.
                self.connection.sendall(heads.pop())
        with suppress(OSError, ValueError):
            while chunk := self.connection.recv(1 << 16):
                if target is not None:
                    os.write(target, chunk)
        if execution.terminal is not None:
            execution.half_closed = True
            self.finish_stream()
        elif process.stdin is not None:
            process.stdin.close()
