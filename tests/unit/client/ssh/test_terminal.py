"""Terminals: sizes, keys and signals; and clients other than OpenSSH."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncssh

from tests.support.waiting import PATIENCE_S
from tests.unit.client.ssh.conftest import ROOT, Host


class Terminal:
    """A terminal with a client of OpenSSH in it."""

    def __init__(self, controller: int, client: subprocess.Popen[bytes]) -> None:
        self.controller = controller
        self.client = client
        self.output = b""

    def type(self, keys: bytes) -> None:
        os.write(self.controller, keys)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.client.send_signal(signal.SIGWINCH)

    def expect(self, text: bytes) -> None:
        """Reads until the output has a text, and forgets it up to there."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output:
            assert select.select([self.controller], [], [], deadline - time.monotonic())[0], self.output
            self.output += os.read(self.controller, 65536)
        self.output = self.output.partition(text)[2]


@contextmanager
def terminal(host: Host, *command: str) -> Iterator[Terminal]:
    controller, device = os.openpty()
    fcntl.ioctl(controller, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    client = subprocess.Popen(
        host.command("-tt", "job.pai", *command),
        stdin=device,
        stdout=device,
        stderr=device,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(device)
    try:
        yield Terminal(controller, client)
    finally:
        client.kill()
        client.wait(PATIENCE_S)
        os.close(controller)


def test_the_size_of_the_terminal_and_its_changes(host: Host) -> None:
    host.ssh("true")
    script = "trap 'echo now $(stty size)' WINCH; stty size; while :; do sleep 0.1; done"
    with terminal(host, script) as screen:
        screen.expect(b"30 100")
        screen.resize(40, 123)
        screen.expect(b"now 40 123")


def test_keys_interrupt_the_program_and_not_the_shell(host: Host) -> None:
    with terminal(host) as screen:
        # One process: bash may miss a key between two of them.
        screen.type(b"sh -c 'echo $TERM-$((6 * 7)); exec sleep 1000'\r")
        screen.expect(b"xterm-42")
        screen.type(b"\x03")
        screen.type(b"echo code $?\r")
        screen.expect(b"code 130")
        screen.type(b"exit 9\r")
        assert screen.client.wait(PATIENCE_S) == 9


def connected(host: Host) -> Any:
    """Connects with asyncssh, by the descriptor that the command passes to OpenSSH."""
    near, far = socket.socketpair()
    with near, far:
        subprocess.run(host.proxy(), stdin=far, stdout=far, cwd=ROOT, check=True, timeout=PATIENCE_S)
        _, descriptors, _, _ = socket.recv_fds(near, 1, 1)
    return asyncssh.connect(
        "job",
        sock=socket.socket(fileno=descriptors[0]),
        known_hosts=None,
        username="me",
        client_keys=None,
        agent_path=None,
        config=None,
    )


def test_signals_of_a_client_that_sends_them(host: Host) -> None:
    # OpenSSH sends none.
    async def run() -> tuple[int | None, str]:
        async with connected(host) as connection:
            script = "trap 'echo caught; exit 4' USR1; echo ready; while :; do sleep 0.1; done"
            async with connection.create_process(script) as process:
                assert await process.stdout.readline() == "ready\n"
                process.send_signal("USR1")
                assert await process.stdout.readline() == "caught\n"
                await process.wait_closed()
            killed = await connection.run("kill -TERM $$; sleep 10")
            return process.exit_status, killed.exit_signal[0]

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == (4, "TERM")


def test_a_channel_that_is_closed_with_its_input_full(host: Host) -> None:
    file = host.files / "full"

    async def run() -> str:
        async with connected(host) as connection:
            process = await connection.create_process(f"echo $$ > {file}; echo ready; sleep 1000", encoding=None)
            assert await process.stdout.readline() == b"ready\n"
            process.stdin.write(bytes(16 << 20))
            await asyncio.sleep(0)
            process.channel.abort()
            await process.wait_closed()
            check = f"while kill -0 $(cat {file}) 2>/dev/null; do sleep 0.1; done; echo ended"
            return str((await connection.run(check)).stdout)

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == "ended\n"
