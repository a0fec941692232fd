"""OpenSSH, its file transfers and rsync in a running instance, with their own clients."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.support.leftovers import has_ended
from tests.support.waiting import PATIENCE_S, until
from tests.unit.client.ssh.conftest import ROOT, Host

BIG = random.Random(1).randbytes(6 << 20)


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


# ---- commands


def test_a_command_has_input_output_errors_and_an_exit_code(host: Host) -> None:
    done = host.ssh("cat; echo problem >&2; exit 7", input=b"some \x00 bytes\n")
    assert (done.stdout, done.stderr, done.returncode) == (b"some \x00 bytes\n", b"problem\n", 7)


def test_no_byte_is_lost_in_either_direction(host: Host) -> None:
    assert host.ssh("cat", input=BIG).stdout == BIG


def test_a_command_that_does_not_read_its_input_ends(host: Host) -> None:
    assert host.ssh("exit 3", input=BIG).returncode == 3


def test_programs_that_are_missing_or_killed(host: Host) -> None:
    assert host.ssh("no-such-program").returncode == 127
    assert host.ssh("kill -KILL $$").returncode == 255  # which ssh says for any signal


def test_variables_of_the_client_and_of_the_job(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")  # which no image has
    monkeypatch.setenv("MINE", "a b")
    command = host.command(
        "-o", "SendEnv=MINE LC_*", "job.pai", "echo $MINE,$LC_ALL,$PAI_INSTANCE_NAME", is_shared=False
    )
    assert host.run(command).stdout == b"a b,C.UTF-8,train1-master-0\n"


def test_thirty_sessions_on_one_connection(host: Host) -> None:
    host.ssh("true")
    with ThreadPoolExecutor(30) as pool:
        outputs = [
            *pool.map(lambda number: host.ssh(f"read x; echo {number}-$x", input=b"in\n").stdout, range(30))
        ]
    assert outputs == [f"{number}-in\n".encode() for number in range(30)]


def test_a_command_that_is_no_text_ends_no_other_session(host: Host) -> None:
    with subprocess.Popen(
        host.command("job.pai", "echo ready; read x; echo still here"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        assert host.run([*host.command("job.pai"), os.fsdecode(b"echo \xff")]).returncode != 0
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"still here\n"


# ---- files


@needs("scp")
@pytest.mark.parametrize("protocol", ["-s", "-O"])
def test_scp_copies_both_ways(host: Host, tmp_path: Path, protocol: str) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "big").write_bytes(BIG)
    (tmp_path / "folder" / "empty").touch()
    target = host.files / f"scp{protocol}"
    for source, destination in (
        (str(tmp_path / "folder"), f"job.pai:{target}"),
        (f"job.pai:{target}", str(tmp_path / "back")),
    ):
        done = host.run(host.command("-r", protocol, source, destination, program="scp"))
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "back" / "inner" / "big").read_bytes() == BIG
    assert (tmp_path / "back" / "empty").read_bytes() == b""


@needs("sftp")
def test_a_batch_of_sftp(host: Host, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(BIG)
    batch = "\n".join(
        [
            f"mkdir {host.files}/sftp",
            f"put {tmp_path}/local {host.files}/sftp/a",
            f"rename {host.files}/sftp/a {host.files}/sftp/b",
            f"ls -l {host.files}/sftp",
            f"get {host.files}/sftp/b {tmp_path}/back",
            f"rm {host.files}/sftp/b",
            f"rmdir {host.files}/sftp",
        ]
    )
    done = host.run(host.command("-b", "-", "job.pai", program="sftp"), batch.encode())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "back").read_bytes() == BIG
    assert not (host.files / "sftp").exists()


@needs("rsync")
def test_rsync_synchronizes_both_ways(host: Host, tmp_path: Path) -> None:
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "a").mkdir(parents=True)
    (source / "a" / "big").write_bytes(BIG)
    (source / "link").symlink_to("a")
    (source / "a" / "script").touch(mode=0o755)
    shell = " ".join(host.command())
    there = f"job.pai:{host.files}/rsync/"
    for arguments in ([f"{source}/", there], [there, f"{back}/"]):
        done = host.run(["rsync", "-a", "--delete", "-e", shell, *arguments])
        assert done.returncode == 0, done.stderr
    assert (back / "a" / "big").read_bytes() == BIG
    assert (back / "link").readlink() == Path("a")
    assert (back / "a" / "script").stat().st_mode & 0o777 == 0o755
    (host.files / "rsync" / "a" / "big").write_bytes(BIG[:-1])
    assert host.run(["rsync", "-a", "--delete", "-e", shell, there, f"{back}/"]).returncode == 0
    assert (back / "a" / "big").read_bytes() == BIG[:-1]


# ---- the end of sessions


@pytest.mark.parametrize("terminal", ["-tt", "-T"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_killed_client_leaves_no_process(host: Host, terminal: str, is_shared: bool) -> None:
    host.ssh("true")
    _kill_client(host, terminal, is_shared=is_shared, input=b"nobody reads this\n")


def test_a_killed_client_whose_input_nobody_reads(host: Host) -> None:
    _kill_client(host, "-T", is_shared=False, input=10 * BIG)


def test_a_client_that_is_asked_to_end_and_has_standard_streams(host: Host) -> None:
    # It ends its command by a signal.
    _kill_client(host, "-oProxyUseFdpass=no", is_shared=False, input=b"", number=signal.SIGTERM)


def test_no_byte_is_lost_by_the_standard_streams(host: Host) -> None:
    assert host.ssh("-oProxyUseFdpass=no", "cat", input=BIG, is_shared=False).stdout == BIG


def _kill_client(
    host: Host, terminal: str, *, is_shared: bool, input: bytes, number: signal.Signals = signal.SIGKILL
) -> None:
    file = host.files / f"pid{terminal}{is_shared}{len(input)}"
    # The program ignores the signal that ends most others.
    script = f"trap '' HUP; echo $$ >{file}; sleep 1000; sleep 1000"
    command = host.command(terminal, "job.pai", script, is_shared=is_shared)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, bufsize=0
    ) as client:
        assert client.stdin is not None
        feeder = threading.Thread(target=_feed, args=(client.stdin, input))
        feeder.start()
        until(lambda: file.exists() and file.read_text().endswith("\n"), "the program runs")
        process = psutil.Process(int(file.read_text()))
        client.send_signal(number)
        client.wait(PATIENCE_S)
        feeder.join(PATIENCE_S)
    until(lambda: has_ended(process.pid), "the end of the program")


def _feed(pipe: IO[bytes], content: bytes) -> None:
    view = memoryview(content)
    with suppress(OSError):
        while view:
            view = view[pipe.write(view) :]


def test_a_client_sees_the_end_of_the_job() -> None:
    folder = Path(tempfile.mkdtemp(prefix="pai-ssh-"))
    host = Host(folder)
    with subprocess.Popen(
        host.command("job.pai", "echo ready; sleep 1000", is_shared=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        host.process.send_signal(signal.SIGTERM)
        assert client.wait(PATIENCE_S) == 255
    host.close()
    shutil.rmtree(folder)


def test_a_job_that_cannot_be_reached(host: Host, tmp_path: Path) -> None:
    command = host.command(
        "-o",
        "ProxyCommand=" + " ".join(host.proxy()).replace(str(host.socket), "/none"),
        "job.pai",
        "true",
        is_shared=False,
    )
    done = host.run(command)
    assert done.returncode == 255
    assert b"FileNotFoundError" in done.stderr


def test_a_second_process_serves_where_forks_are_unsafe(host: Host) -> None:
    command = host.command(
        "-o", "ProxyCommand=" + " ".join(host.proxy("--spawn")), "job.pai", "cat", is_shared=False
    )
    assert host.run(command, BIG).stdout == BIG
