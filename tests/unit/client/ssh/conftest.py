"""An instance that OpenSSH reaches through the SSH server, without a service in between."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pai_sdk._client.ssh.client_config import HostSettings, write_config
from pai_sdk._client.ssh.host_key import ensure_host_key
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[4]
PROXY = (sys.executable, "-m", "tests.support.ssh_proxy")


class Host:
    """An instance of a job, as the host `job.pai` of OpenSSH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir()
        self.socket = folder / "tunnel"
        ensure_host_key(folder)
        self.config = write_config(folder, [HostSettings(("job.pai",), self.proxy(), folder)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tunnel_host", str(self.socket)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def proxy(self, *options: str) -> tuple[str, ...]:
        return (*PROXY, str(self.socket), str(self.folder), *options)

    def command(self, *arguments: str, program: str = "ssh", is_shared: bool = True) -> list[str]:
        """The command line of a client of OpenSSH; its connection is one of its own unless `is_shared`."""
        own = () if is_shared else ("-o", "ControlPath=none")
        return [program, "-F", str(self.config), *own, *arguments]

    def ssh(
        self, *arguments: str, input: bytes = b"", is_shared: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs `ssh job.pai`."""
        return self.run(self.command("job.pai", *arguments, is_shared=is_shared), input)

    def run(self, command: Sequence[str], input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Runs a client."""
        return subprocess.run(command, input=input, capture_output=True, cwd=ROOT, timeout=PATIENCE_S, check=False)

    def close(self) -> None:
        """Ends the shared connection and the instance."""
        self.run(self.command("-O", "exit", "job.pai"))
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    if shutil.which("ssh") is None:
        pytest.skip("needs the OpenSSH client")
    # The path of a Unix socket is limited, and pytest's folders have long names.
    folder = Path(tempfile.mkdtemp(prefix="pai-ssh-"))
    entered = Host(folder)
    yield entered
    entered.close()
    shutil.rmtree(folder)
