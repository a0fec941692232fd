"""Ctrl-C in a real terminal, and the interrupt of a notebook's cell: the job goes on, and how to go on is said."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from jupyter_client import KernelManager
from jupyter_client.blocking import BlockingKernelClient

from pai_sdk import Processor, Session
from tests.e2e.test_command_line import PAI, environment
from tests.support.waiting import PATIENCE_S

BAR = r"i=0; while [ $i -lt 3000 ]; do i=$((i+1)); printf '\r%d%%|##   |' $i; sleep 0.2; done"


class Terminal:
    """A terminal of its own, as a person sees it."""

    def __init__(self, session: Session, folder: Path) -> None:
        assert shutil.which("tmux"), "these tests look at a real terminal: install tmux"
        self._name = f"t-{uuid4().hex[:8]}"
        wanted = {
            k: v for k, v in environment(session).items() if k.startswith(("PAI_", "ALIBABA_", "HOME", "PATH"))
        }
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in wanted.items())
        self._tmux(
            "new-session",
            "-d",
            "-x",
            "110",
            "-y",
            "40",
            # Without noflsh, a second Ctrl-C throws away what was written and not yet drawn.
            f"cd {shlex.quote(str(folder))}; stty noflsh; env {settings} PS1='$ ' sh",
        )

    def _tmux(self, command: str, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, "-f", "/dev/null", command, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-p").rstrip()

    def until(self, text: str) -> str:
        """The screen on which this was seen: on the next one it may just be drawn anew."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in (screen := self.screen):
            assert time.monotonic() < deadline, f"no {text!r} on the screen:\n{screen}"
            time.sleep(0.05)
        return screen

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def terminal(session: Session, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(session, tmp_path)
    yield made
    made.close()


@pytest.fixture
def job_id(session: Session) -> Iterator[str]:
    processor = Processor("python:3.11", f"echo begun; {BAR}", instance_type="ecs.c6.large", session=session)
    job = processor.run(wait=False, show_logs=False)
    yield job.id
    job.stop()


def is_running(session: Session, job_id: str) -> bool:
    return session.get_job(job_id).status == "Running"


@pytest.mark.parametrize("command", ["wait", "logs -f"])
def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(
    session: Session, terminal: Terminal, job_id: str, command: str
) -> None:
    terminal.type(f"clear; {shlex.join(PAI)} {command} {job_id}; echo left with $?")
    terminal.until("%|##")
    terminal.press("C-c")
    screen = terminal.until("left with")
    assert "left with 101" in screen
    assert f"stop {job_id}" in screen
    assert "Traceback" not in screen
    assert is_running(session, job_id)


def test_impatient_fingers_change_nothing(session: Session, terminal: Terminal, job_id: str) -> None:
    # The last ones may come when the shell is back; without a trap, it would drop the rest of what it is to do.
    terminal.type(f"trap : INT; clear; {shlex.join(PAI)} wait {job_id}; echo left with $?")
    terminal.until("%|##")
    for _ in range(3):
        terminal.press("C-c")
    screen = terminal.until("left with")
    assert "left with 101" in screen
    assert f"stop {job_id}" in screen
    assert "Traceback" not in screen
    assert is_running(session, job_id)


@pytest.mark.parametrize("command", [["wait"], ["logs", "-f"]])
@pytest.mark.parametrize("apart_s", [0.0005, 0.005, 0.02])
def test_an_interrupt_at_any_moment_of_the_parting_words_cuts_none_off(
    session: Session, job_id: str, command: list[str], apart_s: float
) -> None:
    with subprocess.Popen(
        [*PAI, *command, job_id],
        env=environment(session),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any("begun" in line for line in iter(process.stdout.readline, ""))
        # Much less than the ten seconds in which further ones do nothing: the last may be handled late.
        over_at = time.monotonic() + 0.5
        while time.monotonic() < over_at and process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(apart_s)
        said = process.stdout.read()
    assert f"stop {job_id}" in said
    assert "Traceback" not in said
    assert process.returncode == 101


def test_a_progress_bar_stays_on_one_row(terminal: Terminal, job_id: str) -> None:
    terminal.type(f"clear; {shlex.join(PAI)} logs -f {job_id}")
    first = terminal.until("%|##")
    bar = next(row for row in first.splitlines() if "%|##" in row)
    deadline = time.monotonic() + PATIENCE_S
    while bar in (now := terminal.screen) or "%|##" not in now:
        assert time.monotonic() < deadline, now
    assert sum("%|##" in row for row in now.splitlines()) == 1, now
    terminal.press("C-c")


def test_ctrl_c_in_a_script_is_an_interrupt_with_the_way_back(
    session: Session, terminal: Terminal, job_id: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        f"from pai_sdk import TrainingJob\nTrainingJob.get({job_id!r}).wait()\nprint('never printed')\n"
    )
    terminal.type(f"clear; {shlex.quote(sys.executable)} script.py")
    terminal.until("%|##")
    terminal.press("C-c")
    terminal.until(f"KeyboardInterrupt: {job_id} is still running")  # earlier input would be echoed amid it
    terminal.type("echo left with $?")
    screen = terminal.until("left with 1")
    assert "left with 130" in screen
    assert f"{job_id} is still running" in screen
    assert f"stop {job_id}" in screen
    assert "never printed" not in screen
    assert "During handling" not in screen
    assert is_running(session, job_id)


@pytest.fixture
def kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    monkeypatch.chdir(tmp_path)  # the sockets lie there: a path relative to it is short enough for them
    # Ports are looked for long before the kernel takes them: somebody else may have one of them by then.
    manager = KernelManager(kernel_name="python3", transport="ipc", ip="kernel")
    manager.start_kernel()
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE_S)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_an_interrupted_cell_ends_with_one_short_message(
    session: Session, job_id: str, kernel: tuple[KernelManager, BlockingKernelClient], service_dir: Path
) -> None:
    manager, client = kernel
    code = f"from pai_sdk import Session\nSession.embedded({str(service_dir)!r}).get_job({job_id!r}).wait()"
    asked = client.execute(code)
    shown, error = "", None
    while error is None:
        message = client.get_iopub_msg(timeout=PATIENCE_S)
        if message["parent_header"].get("msg_id") != asked:
            continue
        content = message["content"]
        if "data" in content and "%|##" in str(content["data"]) and "%|##" not in shown:
            shown += str(content["data"])
            manager.interrupt_kernel()
        if message["msg_type"] == "error":
            error = content
    text = "\n".join(error["traceback"])
    assert len(text.splitlines()) <= 6, text
    assert f"{job_id} is still running" in text
    assert f"stop {job_id}" in text
    assert is_running(session, job_id)
