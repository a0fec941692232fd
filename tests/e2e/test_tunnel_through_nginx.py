"""Jobs are entered through nginx, with WebSockets and, where it drops the upgrade, without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk.jobs import ExecResult
from tests.e2e.test_command_line import PAI, environment
from tests.service.two_services import free_port
from tests.support.packages import install_packages
from tests.support.waiting import PATIENCE_S, until

# As in nginx's own documentation: the first without a word of WebSockets, the second with what they need.
PLAIN = "proxy_set_header Host $http_host;"
WITH_UPGRADE = """
    proxy_http_version 1.1;
    proxy_set_header Host $http_host;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection "upgrade";
"""
CONFIG = """
daemon off;
{user}
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 512; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {endpoint};
      {headers}
    }}
  }}
}}
"""


def install_nginx() -> None:
    if shutil.which("nginx") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip("nginx is not installed")
        install_packages("nginx-light", programs=["nginx"])


class Nginx:
    """Stands before a service. Use it as a context manager.

    Attributes:
        url: where it listens.
    """

    def __init__(self, folder: Path, endpoint: str, headers: str) -> None:
        folder.mkdir()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / "access.log"
        self._config = folder / "nginx.conf"
        # As root it would give up its rights, and could not write to its own folders here.
        user = "user root;" if os.geteuid() == 0 else ""
        text = CONFIG.format(folder=folder, port=port, endpoint=endpoint, headers=headers, user=user)
        self._config.write_text(text)

    def __enter__(self) -> Nginx:
        self._process = subprocess.Popen(["nginx", "-c", str(self._config)], stdin=subprocess.DEVNULL)
        until(self._responds, "nginx")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def requests(self, words: str) -> int:
        """Returns how many requests so far have these words in the access log."""
        return sum(words in line for line in self._log.read_text().splitlines())

    def _responds(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).ok
        except requests.RequestException:
            return False


@pytest.fixture(scope="module")
def job(service_dir: Path) -> Iterator[TrainingJob]:
    session = Session.embedded(service_dir)
    processor = Processor(
        "python:3.11", "echo begun; sleep 600", instance_type="ecs.c6.large", instance_count=2, session=session
    )
    running = processor.run(wait=False, show_logs=False)
    next(iter(running.logs(follow=True)))
    yield running
    running.stop()
    until(lambda: running.status.is_terminal)


@pytest.mark.slow
@pytest.mark.parametrize("headers", [WITH_UPGRADE, PLAIN], ids=["websockets", "plain"])
def test_programs_and_files_through_nginx(
    headers: str, service_dir: Path, session: Session, job: TrainingJob, tmp_path: Path
) -> None:
    install_nginx()
    endpoint = session.settings.endpoint or ""
    assert urlsplit(endpoint).hostname == "127.0.0.1"
    big = tmp_path / "big"
    big.write_bytes(os.urandom(20 << 20))
    place = job.exec(["pwd"], capture=True)
    assert isinstance(place, ExecResult)
    there = f"{place.text.strip()}/big"
    with Nginx(tmp_path / "nginx", endpoint, headers) as nginx:

        def pai(*arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
            variables = {**environment(session), "PAI_ENDPOINT": nginx.url}
            return subprocess.run(
                [*PAI, *arguments], env=variables, input=data, capture_output=True, timeout=PATIENCE_S
            )

        done = pai("exec", f"{job.id}:1", "--", "sh", "-c", "cat; echo $RANK >&2; exit 3", data=bytes(range(256)))
        assert (done.returncode, done.stdout, done.stderr) == (3, bytes(range(256)), b"1\n"), done.stderr
        # Longer than a second without a byte, and then more than the buffers of nginx.
        done = pai("exec", job.id, "--", "sh", "-c", "sleep 2; seq 300000")
        assert done.stdout.split() == [b"%d" % number for number in range(1, 300_001)], done.stderr
        for source, target in ((str(big), f"{job.id}:{there}"), (f"{job.id}:{there}", str(tmp_path / "back"))):
            done = pai("cp", source, target)
            assert done.returncode == 0, done.stderr
        assert (tmp_path / "back").read_bytes() == big.read_bytes()
        has_polled = nginx.requests("/tunnel/sessions/") > 0
        assert has_polled == (headers is PLAIN)
        assert (nginx.requests('/tunnel HTTP/1.1" 101') > 0) == (headers is WITH_UPGRADE)
