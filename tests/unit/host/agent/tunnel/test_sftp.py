"""The server of SFTP: OpenSSH's client against it, and packets that no client sends."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.agent.tunnel.streams import Stream, Tunnel
from tests.support.tunnels import ROOT, RunningTunnel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tunnels enter Linux processes")

# OpenSSH's client talks to a program by pipes with -D; it has no descriptor for events.
_SERVER = (
    "import os, sys; sys.path.append(sys.argv[1]); os.dup2(os.open(os.devnull, os.O_WRONLY), 3); "
    "from pai_sdk._host.agent.tunnel.in_job.sftp import sftp; sys.exit(sftp({}))"
)
_OK, _EOF, _NO_SUCH_FILE, _FAILURE, _BAD_MESSAGE, _UNSUPPORTED = 0, 1, 2, 4, 5, 8
STATUS, HANDLE, DATA, NAME, ATTRS = 101, 102, 103, 104, 105


@pytest.mark.skipif(not shutil.which("sftp"), reason="needs OpenSSH's client")
def test_the_client_of_openssh(tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S -c "{_SERVER}" {ROOT}\n')
    server.chmod(0o755)
    remote, here = tmp_path / "remote", tmp_path / "here"
    remote.mkdir()
    (here / "sub" / "deep").mkdir(parents=True)
    content = os.urandom(3_000_001)
    (here / "large").write_bytes(content)
    (here / "sub/deep/file").write_bytes(b"deep")
    for number in range(250):
        (here / f"sub/number{number}").write_bytes(b"%d" % number)
    batch = f"""
        cd {remote}
        put {here}/large renamed
        put -r {here}/sub
        chmod 640 renamed
        rename renamed larger
        symlink larger link
        ln larger hard
        ls -l
        ls sub
        df
        get -r sub {tmp_path}/back
        get larger {tmp_path}/larger
        -get none {tmp_path}/none
        mkdir empty
        rmdir empty
        rm hard
        pwd
    """
    done = subprocess.run(
        ["sftp", "-D", str(server), "-b", "-"],
        input=batch,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "larger").read_bytes() == content == (remote / "larger").read_bytes()
    assert (remote / "larger").stat().st_mode & 0o777 == 0o640
    assert (remote / "link").readlink() == Path("larger")
    assert sorted(path.name for path in remote.iterdir()) == ["larger", "link", "sub"]
    assert len(list((tmp_path / "back").iterdir())) == 251
    assert f"Remote working directory: {remote}" in done.stdout


class Client:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = b""

    def request(self, kind: int, *fields: bytes | int) -> tuple[int, bytes]:
        body = b"".join(
            struct.pack(">I", field) if isinstance(field, int) else struct.pack(">I", len(field)) + field
            for field in fields
        )
        return self.send(struct.pack(">IBI", len(body) + 5, kind, 7) + body)

    def send(self, packet: bytes) -> tuple[int, bytes]:
        self._stream.write(packet)
        size, kind, number = struct.unpack(">IBI", self._receive(9))
        assert number in (7, 3)  # of a request; the version has none
        return kind, self._receive(size - 5)

    def status(self, kind: int, *fields: bytes | int) -> int:
        response, body = self.request(kind, *fields)
        assert response == STATUS
        return struct.unpack(">I", body[:4])[0]

    def _receive(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self._stream.read()
            assert data
            self._buffer += data
        content, self._buffer = self._buffer[:size], self._buffer[size:]
        return content


@pytest.fixture
def client(tunnel: Tunnel) -> Iterator[Client]:
    with tunnel.open("sftp") as stream:
        client = Client(stream)
        assert client.send(struct.pack(">IBI", 5, 1, 3))[0] == 2
        yield client


def test_paths_start_in_the_working_directory(client: Client, running: RunningTunnel) -> None:
    kind, body = client.request(16, b".")
    assert kind == NAME
    assert os.fsencode(running.folder) in body


def test_offsets_and_the_end_of_a_file(client: Client, running: RunningTunnel) -> None:
    (running.folder / "offsets").write_bytes(b"0123456789")
    kind, handle = client.request(3, b"offsets", 1, 0)
    assert kind == HANDLE
    kind, data = client.request(5, handle[4:], 0, 4, 100)
    assert (kind, data[4:]) == (DATA, b"456789")
    assert client.status(5, handle[4:], 0, 10, 100) == _EOF
    assert client.status(4, handle[4:]) == _OK
    assert client.status(4, handle[4:]) == _FAILURE


def test_what_fails(client: Client, running: RunningTunnel) -> None:
    (running.folder / "exists").touch()
    (running.folder / "other").touch()
    assert client.status(17, b"/no/such") == _NO_SUCH_FILE
    assert client.status(18, b"exists", b"other") == _FAILURE
    assert client.status(3, b"exists", 0, 0) == _BAD_MESSAGE
    assert client.status(3, b"exists", 2 + 8 + 32, 0) == _FAILURE
    assert client.status(99, b"") == _UNSUPPORTED
    assert client.status(200, b"none@example.com") == _UNSUPPORTED
    assert client.status(17, b"a\0b") == _BAD_MESSAGE
    assert client.status(5, b"none", 0, 0, 1) == _FAILURE
    assert client.status(17) == _BAD_MESSAGE


def test_the_number_of_open_files_is_limited(client: Client, running: RunningTunnel) -> None:
    (running.folder / "often").touch()
    responses = [client.request(3, b"often", 1, 0)[0] for _ in range(1001)]
    assert responses == [HANDLE] * 1000 + [STATUS]


def test_random_packets_are_answered(client: Client, running: RunningTunnel) -> None:
    """In a folder of its own: none of them can name a file that exists."""
    chance = random.Random(42)
    for _ in range(2000):
        kind = chance.choice([3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17, 19, 99, 200])
        body = chance.randbytes(chance.randrange(40))
        client.send(struct.pack(">IBI", len(body) + 5, kind, 7) + body)


@pytest.mark.parametrize(
    "header", [struct.pack(">IB", 0, 3), struct.pack(">IB", 2**32 - 1, 3)], ids=["empty", "large"]
)
def test_packets_that_end_the_session(tunnel: Tunnel, header: bytes) -> None:
    with tunnel.open("sftp") as stream:
        stream.write(header)
        assert stream.read() == b""
        assert stream.wait_exit(20) == 0
