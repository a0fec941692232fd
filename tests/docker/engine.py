"""A Docker engine of the tests' own: `python -m tests.docker.engine up|down|env`.

Installs Debian's docker.io where there is no engine program (as root), starts a private engine with a folder and a
socket of its own, and makes the base image: a minimal Debian with Python, from the package mirror that apt uses
here, so that no image registry is needed. The image is kept as an archive, for the next time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import docker

from tests.support.packages import install_packages

__all__ = ["BASE_IMAGE", "CACHE", "Engine", "base_archive", "install", "remove_folder", "why_not"]

BASE_IMAGE = "pai-sdk-test:base"

_SUITE = "bookworm"
_INCLUDE = "python3,python3-pip,python-is-python3,ca-certificates"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pai-sdk-tests" / "docker"
_UP_WITHIN_S = 120.0


def why_not() -> str | None:
    """Why no engine can be had on this machine, in one line; None where one can."""
    if sys.platform != "linux":
        return "a private Docker engine needs Linux"
    if os.geteuid() != 0:
        return "a private Docker engine is started by root only"
    if shutil.which("dockerd") is None and shutil.which("apt-get") is None:
        return "there is no dockerd, and no apt-get to install Debian's docker.io with"
    return None


@dataclass(frozen=True)
class Engine:
    """One private engine, all of it below one folder.

    Attributes:
        folder: its socket, data, state and log.
    """

    folder: Path

    @property
    def socket(self) -> str:
        """What DOCKER_HOST has to be."""
        return f"unix://{self.folder / 'docker.sock'}"

    def up(self) -> None:
        """Install what is missing, start the engine and wait until it answers.

        Raises:
            RuntimeError: it does not come up; the message ends with its log.
        """
        install()
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            subprocess.run(
                [
                    *("setsid", "--fork", "dockerd"),
                    *("--host", self.socket),
                    *("--data-root", str(self.folder / "data")),
                    *("--exec-root", str(self.folder / "exec")),
                    *("--pidfile", str(self.folder / "pid")),
                    *("--log-level", "warn"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )
        deadline = time.monotonic() + _UP_WITHIN_S
        while not self.answers():
            if time.monotonic() > deadline:
                tail = (self.folder / "log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"the engine did not come up:\n{tail}")
            time.sleep(0.1)

    def answers(self) -> bool:
        """Whether it can be talked to."""
        # Without docker-py, whose client leaves its socket open where it is refused.
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(10)
                probe.connect(self.socket.removeprefix("unix://"))
                probe.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
                return b" 200 " in probe.recv(64)
        except OSError:
            return False

    @contextmanager
    def client(self) -> Iterator[docker.DockerClient]:
        """A client of this engine."""
        client = docker.DockerClient(base_url=self.socket, timeout=60)
        try:
            yield client
        finally:
            client.close()

    def load_base(self) -> None:
        """Have the base image, made first if need be (about a minute, once a machine)."""
        with self.client() as client:
            if client.images.list(BASE_IMAGE):
                return
            archive = base_archive()
            subprocess.run(
                ["docker", "--host", self.socket, "import", str(archive), BASE_IMAGE],
                check=True,
                stdout=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """Kill the engine as a power cut would; its containers may go on."""
        self._signal(signal.SIGKILL)

    def end(self) -> None:
        """Have the engine end, as when the machine is shut down; it ends its containers."""
        self._signal(signal.SIGTERM)

    def down(self) -> None:
        """Stop the engine with all that runs in it, and remove its folder."""
        if self.answers():
            with self.client() as client:
                for container in client.containers.list(all=True):
                    container.remove(force=True)
        self._signal(signal.SIGTERM)
        remove_folder(self.folder)

    def _signal(self, number: int) -> None:
        for file in (self.folder / "pid", self.folder / "exec" / "containerd" / "containerd.pid"):
            with suppress(OSError, ValueError):
                pid = int(file.read_text())
                os.kill(pid, number)
                deadline = time.monotonic() + 20
                while _is_running(pid):
                    if time.monotonic() > deadline:
                        os.kill(pid, signal.SIGKILL)
                    time.sleep(0.05)
            # The next engine would wait for the process it names, until that is reaped.
            file.unlink(missing_ok=True)


def install() -> None:
    """Install Debian's engine and what the base image is made with, where they are missing."""
    install_packages("docker.io", "iptables", "debootstrap", programs=("dockerd", "iptables", "debootstrap"))


def base_archive() -> Path:
    """The base image's files as an archive; made once, then kept."""
    CACHE.mkdir(parents=True, exist_ok=True)
    archive = CACHE / f"{_SUITE}-{hashlib.sha256(_INCLUDE.encode()).hexdigest()[:8]}.tar"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return archive
        root = CACHE / "rootfs"
        remove_folder(root)  # what an earlier, interrupted run left has its /proc mounted
        command = ["debootstrap", "--variant=minbase", f"--include={_INCLUDE}", _SUITE, str(root), _mirror()]
        with (CACHE / "debootstrap.log").open("wb") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log)
        # The authorities that this machine trusts are trusted within the image too.
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/ca-certificates.crt")
        shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
        partial = archive.with_suffix(".part")
        subprocess.run(["tar", "-C", str(root), "-cf", str(partial), "."], check=True)
        partial.replace(archive)
        remove_folder(root)
    return archive


def _mirror() -> str:
    """The package mirror that apt uses here."""
    folder = Path("/etc/apt")
    texts = [
        path.read_text() for path in (folder / "sources.list", *folder.glob("sources.list.d/*")) if path.exists()
    ]
    for text in texts:
        found = re.search(rf"^URIs:\s*(\S+)\s*\nSuites:.*\b{_SUITE}\b", text, re.MULTILINE) or re.search(
            rf"^deb\s+(?:\[.*?\]\s+)?(\S+)\s+{_SUITE}\s", text, re.MULTILINE
        )
        if found:
            return found[1]
    raise RuntimeError(f"apt's sources name no mirror of {_SUITE}; the base image cannot be made")


def remove_folder(folder: Path) -> None:
    """Remove a folder, but nothing that is mounted within it."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in sorted((point for point in points if Path(point).is_relative_to(folder)), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False, stderr=subprocess.DEVNULL)
    if folder.exists():
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 2 or arguments[0] not in ("up", "down"):
        print("usage: python -m tests.docker.engine up|down FOLDER", file=sys.stderr)
        return 2
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    engine = Engine(Path(arguments[1]).resolve())
    if arguments[0] == "down":
        engine.down()
        return 0
    if not engine.answers():
        engine.up()
    engine.load_base()
    print(f"export DOCKER_HOST={engine.socket}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
