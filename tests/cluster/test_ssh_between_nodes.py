"""OpenSSH into a job of another machine, where only the port of the service is open; the client's has none."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.nodes import Node, Nodes, why_not
from tests.support.packages import install_packages
from tests.support.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "")]

PORT = 8765
ROOT = Path(__file__).parents[2]
PAI = (sys.executable, "-m", "pai_sdk")
CONFIG = "/home/.ssh/pai-sdk/config"
# All that VS Code sends: a script by standard input, which starts a server and prints its port.
VS_CODE_SCRIPT = """
set -e
mkdir -p server && cd server
echo "in the job" > index.html
python3 -u -m http.server --bind 127.0.0.1 0 > log 2>&1 &
until grep -q "port [0-9]" log; do sleep 0.1; done
echo "listeningOn==$(sed -n 's/.* port \\([0-9]*\\) .*/\\1/p' log | head -1)=="
cat
"""
SOCKS_CLIENT = """
import socket, struct, sys
proxy, port = int(sys.argv[1]), int(sys.argv[2])
with socket.create_connection(("127.0.0.1", proxy), 60) as end:
    end.sendall(b"\\x05\\x01\\x00")
    assert end.recv(2) == b"\\x05\\x00"
    end.sendall(b"\\x05\\x01\\x00\\x03\\x09localhost" + struct.pack(">H", port))
    assert end.recv(10)[1] == 0
    end.sendall(b"GET /index.html HTTP/1.0\\r\\n\\r\\n")
    data = b""
    while part := end.recv(65536):
        data += part
    print(data.decode().rpartition("\\n\\r\\n")[2].strip().splitlines()[-1])
"""


class Laptop:
    """The client's machine, with a job that it can reach through the service only.

    Attributes:
        node: the machine.
        host: the name of the job for OpenSSH.
    """

    def __init__(self, node: Node, variables: dict[str, str]) -> None:
        self.node = node
        self._variables = variables
        self.host = ""

    def options(self) -> dict[str, object]:
        return {
            "env": {**self.node.environment(), **self._variables, "PYTHONPATH": str(Path(__file__).parents[2])}
        }

    def run(self, *command: str, **options: object) -> str:
        return self.node.run(*command, **self.options(), **options)

    def ssh(self, *arguments: str, **options: object) -> str:
        return self.run("ssh", "-F", CONFIG, self.host, *arguments, **options)

    def popen(self, *command: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.node.command(*command), **self.options(), stdin=pipe, stdout=pipe, text=True)  # type: ignore[call-overload, no-any-return]


def close_to_others(node: Node, *ports: int) -> None:
    """Lets a machine accept no connections but those to its ports, and all that it opens itself."""
    rules = ["-P INPUT DROP", "-P FORWARD DROP", "-A INPUT -i lo -j ACCEPT"]
    rules += ["-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT"]
    rules += [f"-A INPUT -p tcp --dport {port} -j ACCEPT" for port in ports]
    node.run("sh", "-ec", "\n".join(f"iptables {rule}" for rule in rules))


def connects(node: Node, address: str, port: int) -> bool:
    command = node.command("timeout", "1", "bash", "-c", f"</dev/tcp/{address}/{port}")
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    install_packages(
        *("iptables", "openssh-client", "rsync"), programs=["iptables", "ssh", "scp", "sftp", "rsync"]
    )
    log = tmp_path_factory.mktemp("nodes") / "service.log"
    with Nodes(2) as nodes:
        service, client = nodes
        close_to_others(service, PORT)
        close_to_others(client)
        command = (*PAI, "serve", "--host", "0.0.0.0", "--port", str(PORT), "--data", "/home/data")
        service.start(*command, log=log, PYTHONPATH=str(ROOT))
        until(lambda: connects(client, service.address, PORT), "the service", pause_s=0.3)
        info = json.loads(service.run("cat", "/home/data/service.json"))
        url = f"http://{service.address}:{PORT}"
        laptop = Laptop(
            client,
            {
                "PAI_REGION_ID": "local",
                "PAI_WORKSPACE_ID": str(info["workspace_id"]),
                "PAI_ENDPOINT": url,
                "PAI_AIWORKSPACE_ENDPOINT": url,
                "PAI_OSS_ENDPOINT": url,
                "PAI_OSS_BUCKET_NAME": info["bucket"],
                "ALIBABA_CLOUD_ACCESS_KEY_ID": info["access_key_id"],
                "ALIBABA_CLOUD_ACCESS_KEY_SECRET": info["access_key_secret"],
                "NO_COLOR": "1",
            },
        )
        script = (
            "from pai_sdk import Processor; "
            "job = Processor('python:3.11', 'echo begun; sleep 3600', instance_type='ecs.c6.large')"
            ".run(wait=False, show_logs=False); next(iter(job.logs(follow=True))); print('id', job.id)"
        )
        laptop.host = laptop.run(sys.executable, "-c", script).split()[-1]
        laptop.run(*PAI, "ssh-config", laptop.host, "--write")
        laptop.host += ".pai"
        until(lambda: not connects(service, client.address, 22) and not connects(client, service.address, 22))
        yield laptop


def test_ssh_runs_commands(laptop: Laptop) -> None:
    assert laptop.ssh("echo $PAI_INSTANCE_NAME").strip().endswith("-master-0")
    done = subprocess.run(
        laptop.node.command("ssh", "-F", CONFIG, laptop.host, "wc -c; exit 7"),
        **laptop.options(),  # type: ignore[call-overload]
        input=b"x" * 3_000_000,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout.split()) == (7, [b"3000000"])
    job_id = laptop.host.removesuffix(".pai")
    assert laptop.run(*PAI, "ssh", job_id, "echo by the command").endswith("by the command\n")


def test_files_by_scp_sftp_and_rsync(laptop: Laptop) -> None:
    host, remote = laptop.host, laptop.ssh("pwd").strip()
    laptop.run("sh", "-ec", "mkdir -p /home/files/deep; head -c 5000000 /dev/urandom >/home/files/deep/big")
    laptop.run("scp", "-F", CONFIG, "-r", "/home/files", f"{host}:{remote}/by-scp")
    laptop.run("rsync", "-a", "-e", f"ssh -F {CONFIG}", "/home/files/", f"{host}:{remote}/by-rsync/")
    lines = (f"mkdir {remote}/by-sftp", f"put /home/files/deep/big {remote}/by-sftp/")
    batch = "\n".join([*lines, f"get {remote}/by-scp/deep/big /home/again", ""])
    laptop.run("sftp", "-F", CONFIG, "-b", "-", host, input=batch, stdin=None)
    laptop.run("rsync", "-a", "-e", f"ssh -F {CONFIG}", f"{host}:{remote}/by-rsync/deep/", "/home/back/")
    expected = laptop.run("sh", "-c", "md5sum </home/files/deep/big")
    for file in ("by-scp/deep/big", "by-rsync/deep/big", "by-sftp/big"):
        assert laptop.ssh(f"md5sum <{shlex.quote(f'{remote}/{file}')}") == expected
    for file in ("again", "back/big"):
        assert laptop.run("sh", "-c", f"md5sum </home/{file}") == expected


def test_what_vs_code_does(laptop: Laptop) -> None:
    """A script by standard input, a dynamic forward to the server that it starts, and many sessions meanwhile."""
    proxy = 21080
    with laptop.popen("ssh", "-F", CONFIG, "-T", "-D", str(proxy), laptop.host, "sh") as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(VS_CODE_SCRIPT)
        first.stdin.flush()
        port = first.stdout.readline().split("==")[1]
        assert laptop.run(sys.executable, "-c", SOCKS_CLIENT, str(proxy), port).strip() == "in the job"
        with ExitStack() as stack:
            # More than the ten sessions that sshd allows on one connection.
            sessions = [
                stack.enter_context(laptop.popen("ssh", "-F", CONFIG, "-T", laptop.host, f"cat; echo {number}"))
                for number in range(20)
            ]
            started = time.monotonic()
            for number, session in enumerate(sessions):
                assert session.communicate("input\n", timeout=PATIENCE_S)[0] == f"input\n{number}\n"
            assert time.monotonic() - started < PATIENCE_S
        assert "Master running" in laptop.run("ssh", "-F", CONFIG, "-O", "check", laptop.host)
        first.stdin.close()
        assert first.wait(PATIENCE_S) == 0
