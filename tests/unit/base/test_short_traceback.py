"""What a user's script prints: the user's own line, and the message."""

from __future__ import annotations

import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk.base.short_traceback import short_traceback, short_tracebacks
from pai_sdk.errors import FunctionError, InvalidInputError, PaiError, RemoteTraceback
from tests.unit.api.scripted_server import Reply, ScriptedServer
from tests.unit.fake_backend import FakeBackend

SCRIPT = """
from pai_sdk import Processor, Session

session = Session("cn-x", "7", oss_bucket_name="models", endpoint={endpoint!r}, oss_endpoint={endpoint!r},
                  access_key_id="i", access_key_secret="s")
Processor("image", "true", instance_type="ecs.c6.large", session=session).run(**{arguments})
"""


def script(folder: Path, endpoint: str, arguments: str = "{}") -> Path:
    path = folder / "train_it.py"
    path.write_text(SCRIPT.format(endpoint=endpoint, arguments=arguments))
    return path


def test_a_refusal_ends_in_its_message(tmp_path: Path) -> None:
    server = ScriptedServer()
    server.answer = lambda asked: Reply({"Code": "Forbidden.RAM", "Message": "may not create jobs"}, 403)
    try:
        path = script(tmp_path, server.endpoint)
        ended = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    finally:
        server.close()
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert len(lines) <= 9, ended.stderr  # Python 3.11 and newer underline
    assert lines[1] == f'  File "{path}", line 6, in <module>'
    assert "may not create jobs" in lines[-1]
    assert lines[-1].startswith("pai_sdk.errors.PermissionDeniedError: ")


def test_ctrl_c_ends_in_the_commands_to_go_on(tmp_path: Path) -> None:
    server = ScriptedServer()
    server.answer = lambda asked: Reply({"TrainingJobId": "train1", "Status": "Running"})
    try:
        process = subprocess.Popen(
            [sys.executable, "-u", script(tmp_path, server.endpoint)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert "train1" in process.stdout.readline()
        while "Running" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        server.close()
    assert process.returncode == -signal.SIGINT
    assert said.splitlines()[-1].startswith("KeyboardInterrupt: train1 is still running. To follow it: ")
    assert len(said.splitlines()) <= 9, said


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_several_problems_of_an_input() -> None:
    with pytest.raises(InvalidInputError) as caught:
        Estimator("image", "", instance_type=None, session=Session("cn-x", "7", oss_bucket_name="models")).plan()
    said = printed(caught.value)
    assert "planning.py" not in said
    assert "the above exception" not in said.lower()


def test_calls_within_the_package_keep_the_whole_traceback(fake_backend: FakeBackend) -> None:
    fake_backend.status = "Failed"
    job = TrainingJob("train1", fake_backend)
    with pytest.raises(PaiError) as from_outside:
        job.raise_for_status()
    with pytest.raises(PaiError) as from_inside:
        eval("job.raise_for_status()", {"__name__": "pai_sdk.cli.jobs", "job": job})
    assert "in _raise_for_status" not in printed(from_outside.value)
    assert "in _raise_for_status" in printed(from_inside.value)


def test_the_traceback_of_a_function_in_its_job_is_kept() -> None:
    @short_traceback
    def result() -> None:
        raise FunctionError("it raised") from RemoteTraceback("File 'user.py', line 3")

    with pytest.raises(FunctionError) as caught:
        result()
    assert "File 'user.py', line 3" in printed(caught.value)


def test_the_cause_is_there_for_a_debugger_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @short_tracebacks
    class Client:
        def get(self) -> None:
            try:
                raise OSError("connection refused")
            except OSError as error:
                raise PaiError("the service does not answer") from error

        @property
        def name(self) -> str:
            self.get()
            return ""

        @classmethod
        def make(cls) -> None:
            cls().get()

        def lines(self):  # type: ignore[no-untyped-def]
            yield 1
            self.get()

    for call in (Client().get, lambda: Client().name, Client.make, lambda: [*Client().lines()]):
        with caplog.at_level("DEBUG"), pytest.raises(PaiError) as caught:
            call()
        assert "connection refused" not in printed(caught.value)
        assert isinstance(caught.value.__context__, OSError)
    assert "connection refused" in caplog.text


def test_other_errors_are_shown_whole() -> None:
    @short_traceback
    def broken() -> None:
        raise KeyError("a defect of the package")

    with pytest.raises(KeyError) as caught:
        broken()
    assert "in broken" in printed(caught.value)
