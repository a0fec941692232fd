"""What a user's script prints: the user's own line, and the message."""

from __future__ import annotations

import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from pai_sdk import Estimator, Session, TrainingJob
from pai_sdk._core.short_traceback import error_text, short_traceback, short_tracebacks
from pai_sdk.errors import FunctionError, InvalidInputError, PaiError, RemoteTraceback
from tests.support.fake_backend import FakeBackend
from tests.unit.client.api.scripted_server import Reply, ScriptedServer

pytestmark = pytest.mark.interpreter

RAISES_AS_IS = sys.version_info >= (3, 11)  # before, the wrapper has a frame, of two lines
MOST_LINES = 5 if RAISES_AS_IS else 6  # 3.10 underlines nothing

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
    assert len(lines) <= MOST_LINES, ended.stderr
    assert lines[1] == f'  File "{path}", line 6, in <module>'
    assert "may not create jobs" in lines[-1]
    assert lines[-1].startswith("pai_sdk.errors.PermissionDeniedError: ")
    assert frames_of_the_package(ended.stderr) == []


@pytest.mark.parametrize(
    "use",
    [
        "[*session.algorithms.list()]",
        "session.algorithms.get('algo-1')",
        "session.list_jobs()[0]",
        "len(session.list_jobs())",
        "print(session.list_jobs())",
    ],
)
def test_so_do_those_of_lists_and_resources(tmp_path: Path, use: str) -> None:
    """45 lines of ours and of tenacity came before "no access key was found"."""
    server = ScriptedServer()
    server.answer = lambda asked: Reply({"Code": "Forbidden.RAM", "Message": "may not list"}, 403)
    try:
        path = script(tmp_path, server.endpoint)
        path.write_text("\n".join([*path.read_text().splitlines()[:-1], use]))
        ended = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    finally:
        server.close()
    assert "may not list" in ended.stderr.splitlines()[-1]
    assert frames_of_the_package(ended.stderr) == []


def frames(said: str) -> list[str]:
    """The lines of a traceback that show frames; on Python 3.10, without that of the wrapper."""
    found = [line for line in said.splitlines() if line.lstrip().startswith("File ")]
    return [line for line in found if RAISES_AS_IS or "short_traceback.py" not in line]


def frames_of_the_package(said: str) -> list[str]:
    """The lines of a traceback that show frames of pai_sdk."""
    return [line for line in frames(said) if "/pai_sdk/" in line]


FUNCTIONS = """
import sys
from pai_sdk._data.run.functions.function_run import FunctionRun

def train(config):
    def inner():
        yield {"loss": 1.0}
        return config["missing"]
    yield from inner()

run = FunctionRun(train, {}, folder=sys.argv[1], mode=sys.argv[2])
{use}
"""


@pytest.mark.parametrize("mode", ["thread", "process"])
@pytest.mark.parametrize("use", ["run.result()", "list(run)", "while True: run.train()"])
def test_the_error_of_a_function_shows_its_own_frames_and_none_of_the_package(
    tmp_path: Path, mode: str, use: str
) -> None:
    path = tmp_path / "tune.py"
    path.write_text(FUNCTIONS.replace("{use}", use))
    command = [sys.executable, path, tmp_path / "run", mode]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = ended.stderr.splitlines()
    assert lines[-1] == "KeyError: 'missing'"
    assert frames_of_the_package(ended.stderr) == []
    assert {line.rpartition(" in ")[2] for line in frames(ended.stderr)} == {"<module>", "train", "inner"}, (
        ended.stderr
    )


REPORTS = """
import sys
from pai_sdk._data.run.functions.calling import StatusReporter
from pai_sdk._data.run.report.session import ReportSession, report

with ReportSession(sys.argv[1]) as session, session.bound():
    {use}
"""


@pytest.mark.parametrize(
    "use",
    [
        "report({'loss': object()})",
        "report(loss='0.1')",
        "session.report({'a': {'b': 'x'}})",
        "StatusReporter()(loss=[1])",
    ],
)
def test_a_wrong_metric_ends_in_the_message(tmp_path: Path, use: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(REPORTS.replace("{use}", use))
    command = [sys.executable, path, tmp_path / "run"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stderr.splitlines()[-1].startswith(
        "TypeError: 'loss': expected" if "loss" in use else "TypeError: 'a/b': expected"
    )
    assert ended.stderr.count("Traceback") == 1
    if RAISES_AS_IS:
        assert frames_of_the_package(ended.stderr) == []


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
    assert len(said.splitlines()) <= MOST_LINES, said


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


def test_defects_of_the_package_are_shown_whole() -> None:
    @short_traceback
    def broken() -> None:
        raise KeyError("a defect of the package")

    with pytest.raises(KeyError) as caught:
        broken()
    assert "in broken" in printed(caught.value)


def test_the_message_of_an_error_is_recorded() -> None:
    assert error_text(ValueError("no rows")) == "no rows"
