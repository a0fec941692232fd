"""`pai-sdk run`, `submit` and `clone`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._client.code.package import package_code
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._client.job.waiting import Waiting
from pai_sdk._wire.pai.request import SUBMISSION_LABEL, TrainingJobRequest
from pai_sdk.cli.submitting import job_file_of
from pai_sdk.errors import InvalidInputError, ObjectNotFoundError
from tests.support.fake_backend import FakeBackend
from tests.unit.cli.conftest import Pai

OPTIONS = ("--image", "python:3.11", "--command", "python train.py", "-t", "ecs.c6.large")


@pytest.fixture(autouse=True)
def ended(memory: FakeBackend) -> None:
    memory.status, memory.lines = "Succeed", {"train1-master-0": ["hello"]}


def labels_of(request: TrainingJobRequest) -> dict[str, str]:
    return {label.key: label.value for label in request.labels if label.key != SUBMISSION_LABEL}


def test_a_job_from_options(pai: Pai, memory: FakeBackend) -> None:
    result = pai("run", *OPTIONS, "--set", "lr=0.1", "-e", "A=b=c", "-l", "team=vision", "-p", "priority=3")
    assert result.exit_code == 0
    assert "hello" in result.output
    request = memory.submitted
    assert (request.hyperparameters[0].name, request.hyperparameters[0].value) == ("lr", "0.1")
    assert request.environments == {"A": "b=c"}
    assert labels_of(request) == {"team": "vision"}
    assert request.priority == 3


def test_a_job_from_a_file_and_options(pai: Pai, memory: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "kind: Processor\nimage_uri: i\ncommand: c\nparameters: {a: 1, b: 2}\ninstance_type: ecs.c6.large\n"
    )
    assert pai("run", file, "--set", "b=3", "--no-wait").exit_code == 0
    assert [(each.name, each.value) for each in memory.submitted.hyperparameters] == [("a", "1"), ("b", "3")]


def test_resume_takes_what_other_commands_take_as_a_job(
    memory: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TrainingJob("train1", memory)
    monkeypatch.setattr("pai_sdk.cli.submitting.find_job", lambda name: {"-": job, "digits": job}[name])
    for text, value in (("-", "train1"), ("digits", "train1"), ("true", True), ("./digits", "./digits")):
        assert job_file_of({"parameter": [f"resume={text}"]}).values["resume"] == value


@pytest.mark.parametrize("options", [(), ("--no-wait",), ("--json",), ("--no-wait", "--json")])
def test_warnings_of_the_plan_are_shown(pai: Pai, memory: FakeBackend, options: tuple[str, ...]) -> None:
    result = pai("run", *OPTIONS, "-c", "python -m train $PAI_HPS_RATE", *options)
    assert result.stderr.count("$PAI_HPS_RATE") == 1
    assert "PAI_HPS_RATE" not in result.stdout


def test_the_exit_code_tells_how_the_job_ended(pai: Pai, memory: FakeBackend) -> None:
    memory.status = "Failed"
    result = pai("run", *OPTIONS)
    assert result.exit_code == 100
    assert "train1" in result.output
    last = pai("run", *OPTIONS, "--json")
    assert (last.exit_code, json.loads(last.stdout)["Status"]) == (100, "Failed")


@pytest.fixture
def interrupted(memory: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the first update of a running job."""
    memory.status, presses, show = "Running", [KeyboardInterrupt], Waiting._show

    def shown(self: Waiting, *arguments: Any) -> None:
        if presses:
            raise presses.pop()
        show(self, *arguments)

    monkeypatch.setattr(Waiting, "_show", shown)
    monkeypatch.setattr("pai_sdk.cli.submitting.ignore_further_interrupts", lambda: None)


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ctrl_c_stops_a_local_job_and_the_exit_code_says_so(
    pai: Pai, memory: FakeBackend, options: tuple[str, ...]
) -> None:
    result = pai("run", "--image", "python:3.11", "--command", "train", "-t", "local", *options)
    assert memory.calls[-1] == "stop"
    assert result.exit_code == 103
    assert "still running" not in result.output
    if options:
        assert json.loads(result.stdout)["Status"] == "Terminated"


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_leaves_a_job_of_a_service_running(pai: Pai, memory: FakeBackend) -> None:
    result = pai("run", *OPTIONS)
    assert "stop" not in memory.calls
    assert result.exit_code == 101
    assert "still running" in result.output


def test_a_dry_run_prints_the_plan_and_sends_nothing(pai: Pai, memory: FakeBackend) -> None:
    result = pai("run", *OPTIONS, "-e", "TOKEN=secret", "--dry-run")
    assert json.loads(result.stdout)["AlgorithmSpec"]["Image"] == "python:3.11"
    assert "secret" not in result.stdout
    assert memory.calls == []


def test_what_else_a_plan_says_is_not_in_its_json(pai: Pai, tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text("print(1)")
    result = pai("run", *OPTIONS, "--source-dir", tmp_path, "--dry-run")
    assert json.loads(result.stdout)["TrainingJobName"]
    assert "upload: " in result.stderr


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("run", "my code/train.py"), "run --command 'python train.py' --source-dir 'my code' --image "),
        (("submit", "my code/train.py"), "run --command 'python train.py' --source-dir 'my code' --image "),
        (("submit", "job.yaml"), "pai-sdk run job.yaml"),
        (("run", "plan.json"), "pai-sdk submit plan.json"),
    ],
)
def test_a_file_of_another_kind_is_answered_by_its_command(
    pai: Pai,
    memory: FakeBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my code").mkdir()
    Path("my code/train.py").write_text("print(1)")
    Path("job.yaml").write_text("image_uri: python:3.11")
    pai("run", *OPTIONS, "--save", "plan.json")
    with pytest.raises(InvalidInputError) as caught:
        pai(*words)
    assert command in (caught.value.problems[0].hint or "")
    assert memory.calls == []


def test_a_program_with_arguments_is_answered_by_its_command(
    pai: Pai, memory: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    result = pai("run", "python", "train.py", "0.1")
    assert result.exit_code == 2
    assert "pai-sdk run --command 'python train.py 0.1' --source-dir . --image python:3." in result.stderr
    assert memory.calls == []


def test_without_waiting_the_id_is_printed_first(pai: Pai, memory: FakeBackend) -> None:
    result = pai("run", *OPTIONS, "--no-wait")
    assert result.stdout == "train1\n"
    assert "submitted" in result.stderr
    assert "logs train1" in result.stderr
    lines = [line for line in result.stderr.strip().splitlines() if not line.startswith("warning")]
    assert len(lines) == 2  # a loop of a shell submits many


def test_a_misspelt_hyperparameter_is_noticed(pai: Pai, memory: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("image_uri: i\ncommand: c\nhyperparameters: {sleep: 1, lr: 2}\ninstance_type: ecs.c6.large\n")
    assert "'sleep'" in pai("run", file, "--set", "slep=3", "--dry-run").stderr
    assert "warning" not in pai("run", file, "--set", "lr=3", "--set", "optimizer=adam", "--dry-run").stderr
    memory.extra = {
        "AlgorithmSpec": {"Command": ["c"], "Image": "i"},
        "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 1},
        "HyperParameters": [{"Name": "sleep", "Value": "1"}],
    }
    assert "'sleep'" in pai("clone", "train1", "--set", "slep=3", "--dry-run").stderr


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_missing_file_names_a_similar_one(pai: Pai, tmp_path: Path, command: str) -> None:
    (tmp_path / "job.yaml").touch()
    with pytest.raises(ObjectNotFoundError, match=r"did you mean .*job\.yaml"):  # exit code 102
        pai(command, tmp_path / "job.yml")


def test_a_saved_plan_is_submitted_as_it_is(pai: Pai, memory: FakeBackend, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert "pai-sdk submit" in pai("run", *OPTIONS, "-e", "TOKEN=secret", "--save", plan).stdout
    target = "https://example.com/hook-secret"
    assert "--notify" in pai("run", *OPTIONS, "--notify", target, "--save", tmp_path / "other.json").stderr
    assert "hook-secret" not in (tmp_path / "other.json").read_text()
    assert memory.calls == []
    memory.list = lambda **_: iter(())  # type: ignore[method-assign, assignment]
    assert "secret" not in pai("submit", plan, "--dry-run").stdout
    assert pai("submit", plan, "--no-wait").stdout == "train1\n"
    assert memory.submitted.environments == {"TOKEN": "secret"}


def test_a_clone_with_changes(pai: Pai, memory: FakeBackend) -> None:
    memory.extra = {
        "AlgorithmSpec": {"Command": ["c"], "Image": "i"},
        "ComputeResource": {"EcsSpec": "ecs.c6.large", "EcsCount": 1},
        "HyperParameters": [{"Name": "lr", "Value": "0.5"}],
    }
    assert '"Value": "0.1"' in pai("clone", "train1", "--set", "lr=0.1", "--dry-run").stdout
    assert memory.calls == []
    assert pai("clone", "train1", "--set", "lr=0.1", "-t", "ecs.g6.large", "--no-wait").exit_code == 0
    assert memory.submitted.hyperparameters[0].value == "0.1"
    assert memory.submitted.compute_resource.ecs_spec == "ecs.g6.large"
    assert pai("clone", "train1", "--notify", "https://example.com/hook", "--dry-run").exit_code == 0
    with pytest.raises(InvalidInputError) as refused:
        pai("clone", "train1", "--notify", "hook", "--dry-run")
    assert refused.value.problems[0].where == "--notify"


def test_the_schema_is_printed(pai: Pai) -> None:
    assert json.loads(pai("run", "--schema").stdout)["title"] == "A job for `pai-sdk run`"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run",), "give a job file such as"),
        (("run", *OPTIONS, "--set", "lr"), "'lr' is not KEY=VALUE"),
        (("clone", "train1", "--label", "=x"), "'=x' is not KEY=VALUE"),
    ],
)
def test_wrong_usage(pai: Pai, arguments: tuple[str, ...], said: str) -> None:
    result = pai(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_all_mistakes_of_options(pai: Pai) -> None:
    with pytest.raises(InvalidInputError) as caught:
        pai("run", "--image", "i", "-p", "priority=high", "-p", "colour=red")
    assert sorted(problem.where for problem in caught.value.problems) == [
        "colour",
        "command",
        "instance_type",
        "priority",
    ]


SCRIPT = """
import json, os, sys
from pathlib import Path
from pai_sdk import report

report({"loss": 0.5}, step=1)
found = {
    "args": sys.argv[1:],
    "lr": os.environ["PAI_HPS_LR"],
    "data": Path(os.environ["PAI_INPUT_DATA"]).read_text(),
    "config": json.loads(Path(os.environ["PAI_CONFIG_DIR"], "hyperparameters.json").read_text()),
    "rank": os.environ["RANK"],
}
Path(os.environ["PAI_OUTPUT_MODEL"], "found.json").write_text(json.dumps(found))
sys.exit(3)
"""


def here(*options: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "pai_sdk", "run", "--here", *options]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)


def test_a_script_runs_here_as_in_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], pai: Pai
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    Path("src/train.py").write_text(SCRIPT)
    Path("points.csv").write_text("1,2")
    command = f"{sys.executable} train.py $PAI_USER_ARGS"
    options = ("--image", "i", "--command", command, "--name", "try", "-d", "src", "-s", "lr=0.1")
    for _ in range(2):  # the second run uses the folders of the first
        assert here(*options, "-i", "data=points.csv").returncode == 3
    output = tmp_path / "pai-here" / "try" / "output"
    assert json.loads((output / "model" / "found.json").read_text()) == {
        "args": ["--lr", "0.1"],
        "lr": "0.1",
        "data": "1,2",
        "config": {"lr": "0.1"},
        "rank": "0",
    }
    listed = pai("runs", "pai-here", "--json")
    assert listed.stderr == ""
    (run,) = map(json.loads, listed.stdout.splitlines())
    assert (run["Status"], run["HyperParameters"], run["Metrics"]["loss"]["Last"]) == (
        "Failed",
        {"lr": "0.1"},
        0.5,
    )
    # It is no part of the code of later jobs.
    assert all("pai-here" not in entry.path for entry in package_code(tmp_path).entries)


RESUMING = """\
import os
import sys
import time
from pathlib import Path

from pai_sdk import checkpoint_dir, get_checkpoint, get_preemption_info

start = get_checkpoint()
step = start.step + 1 if start else 0
get_preemption_info()
print(step, flush=True)
if len(sys.argv) > 1:
    while get_preemption_info() is None:
        time.sleep(0.01)
with checkpoint_dir(step) as folder:
    (folder / "state").touch()
Path(os.environ["PAI_OUTPUT_MODEL"], "model").touch()
sys.exit(7)
"""


@pytest.fixture
def resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns a command that continues after the last checkpoint; the current folder has its code."""
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    Path("src/train.py").write_text(RESUMING)
    return f"{sys.executable} train.py"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_runs_here_gets_the_signals(resuming: str, number: signal.Signals) -> None:
    # The handler of the script is for SIGTERM; the others end it.
    options = ("--command", f"{resuming} wait", "-d", "src", "--name", "try")
    # What ran the tests may ignore signals, as `nohup` does, and processes inherit that.
    reset = f"import signal; signal.signal({int(number)}, signal.SIG_DFL)"
    start = "import runpy; runpy.run_module('pai_sdk', run_name='__main__')"
    program = [sys.executable, "-c", f"{reset}; {start}", "run", "--here", *options]
    with subprocess.Popen(
        program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        started = process.stdout.readline()
        os.killpg(process.pid, number)  # as `timeout` does
        after_signal = process.stdout.read()  # until nothing runs on with it
    assert (started, after_signal) == ("0\n", "")
    assert process.returncode in {7, 128 + number}  # that of the script, or of its shell
    assert Path("pai-here/try/output/checkpoints/0").is_dir() == (number == signal.SIGTERM)


def test_outputs_of_a_run_here_go_to_their_folders(resuming: str) -> None:
    options = ("--command", resuming, "-d", "src", "-o", "model=out", "-p", "checkpoints_path=saved")
    for _ in range(2):
        assert here(*options, "--name", "first").returncode == 7
    assert Path("out/model").is_file()
    assert {path.name for path in Path("saved").iterdir()} == {"0", "1"}
    resumed = here("--command", resuming, "-d", "src", "-p", "resume=./saved", "--name", "second")
    assert resumed.stdout == "2\n"
    assert not Path("saved/2").exists()


def test_outputs_of_an_earlier_run_here_are_not_replaced(resuming: str) -> None:
    options = ("--command", resuming, "-d", "src", "--name", "try")
    assert here(*options).returncode == 7
    refused = here(*options, "-o", "model=out")
    assert refused.returncode == 1
    assert "outputs['model']" in refused.stderr
    assert Path("pai-here/try/output/model/model").is_file()


@pytest.mark.usefixtures("resuming")
def test_a_breakpoint_of_a_run_here_is_that_of_python() -> None:
    hook = "pai_sdk.reports.wait_for_debugger"
    done = here("--command", "echo hook=$PYTHONBREAKPOINT", "--env", f"PYTHONBREAKPOINT={hook}", "-d", "src")
    assert (done.returncode, "hook=\n" in done.stdout) == (0, True), done.stderr


def test_a_run_here_shows_the_warnings_of_its_plan(resuming: str) -> None:
    assert "warning: " in here("--command", "python src/train.py").stderr


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (("--input", "data=oss://models/a.csv"), "inputs['data']"),
        (("--instance-count", "2"), "instance_count"),
        (("--source-dir", "oss://models/code/"), "source_dir"),
    ],
)
def test_what_cannot_run_here_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, str], where: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = here("--image", "i", "--command", "true", *options)
    assert result.returncode == 1
    assert where in result.stderr
    assert not (tmp_path / "pai-here").exists()
