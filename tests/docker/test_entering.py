"""`pai-sdk exec` and `top` on jobs in Docker: in the container, with its variables, and with what it uses."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from pai_sdk._client.backend.local import LocalBackend
from tests.docker.conftest import Submit
from tests.support.waiting import PATIENCE_S, until

PAI = str(Path(sys.executable).with_name("pai-sdk"))
SCRIPT = """
echo "$PAI_INSTANCE_NAME $NOTE $RANK"; cat; pwd; echo "to stderr" >&2
echo written >"$PAI_OUTPUT_MODEL/by-exec"; printenv PAI_SDK_SHARED; exit 7
"""


def pai(backend: LocalBackend, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PAI_LOCAL_DIR": str(backend.data_dir)}
    return subprocess.run(
        [PAI, *arguments],
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_command_in_a_container_and_what_it_uses(backend: LocalBackend, submit: Submit, tmp_path: Path) -> None:
    output = tmp_path / "model"
    job = submit(
        "echo begun; while [ ! -e $PAI_OUTPUT_MODEL/by-exec ]; do :; done; sleep 600",
        count=2,
        Environments={"NOTE": "two words", "a.b": "odd"},
        OutputChannels=[{"Name": "model", "OutputUri": f"{output.as_uri()}/"}],
    )
    next(iter(job.logs(follow=True, instance="worker-0")))
    until(lambda: pai(backend, "exec", "-i", "worker-0", job.id, "true").returncode == 0)

    def measured() -> list[dict[str, float]]:
        return [json.loads(line) for line in pai(backend, "top", "--local", "--json").stdout.splitlines()]

    until(lambda: sum(usage["cpu_percent"] or 0 for usage in measured()) > 1, "the use of a busy loop")
    assert [usage["instance"] for usage in measured()] == job.record.instance_names
    assert all(usage["memory_bytes"] > 0 for usage in measured())

    done = pai(backend, "exec", "--instance", "worker-0", job.id, "sh", "-c", SCRIPT, stdin="from stdin\n")
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == [f"{job.id}-worker-0 two words 1", "from stdin", "/ml/usercode"]
    assert done.stderr == "to stderr\n"
    assert (output / "by-exec").read_text() == "written\n"
    assert pai(backend, "exec", "-", "printenv", "a.b").stdout == "odd\n"
    nothing = pai(backend, "exec", "-", "nosuch")
    assert (nothing.returncode, "nosuch" in nothing.stderr) == (127, True)
    assert pai(backend, "exec", "--local", "-", "sh", "-c", "kill -9 $$").returncode == 137
    job.stop()
    until(lambda: job.status.is_terminal)
    assert pai(backend, "exec", job.id, "true").returncode == 1


def test_the_keys_that_leave_a_container_in_docker_are_keys_of_the_command_here(
    backend: LocalBackend, submit: Submit
) -> None:
    """Ctrl-P and Ctrl-Q, one after the other: by default the engine closes the stream."""
    job = submit("echo begun; exec sleep 600")
    next(iter(job.logs(follow=True)))
    read = 'stty raw -echo; echo ready; head -c 3 | od -An -tx1; stty sane; echo "still here"'
    ours, theirs = pty.openpty()
    env = {**os.environ, "PAI_LOCAL_DIR": str(backend.data_dir)}
    command = [PAI, "exec", job.id, "sh", "-c", read]
    with subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        while b"ready" not in printed:
            printed += os.read(ours, 1024)
        os.write(ours, b"\x10\x11q")
        while b"still here" not in printed:
            printed += os.read(ours, 1024)
        assert process.wait(PATIENCE_S) == 0
    os.close(ours)
    assert b"10 11 71" in printed
    job.stop()
    until(lambda: job.status.is_terminal)
