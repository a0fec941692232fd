"""`pai-sdk pipeline`: a file with a pipeline is run, shown, resumed and stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pai_sdk._client.pipeline.pipeline_run import PipelineRun
from pai_sdk.cli import exit_codes
from pai_sdk.cli.root import run
from pai_sdk.errors import InvalidInputError, RunNotFoundError
from tests.support.messages import refused
from tests.unit.cli.conftest import Pai

FILE = """
from pathlib import Path
from pai_sdk import Processor
from pai_sdk._client.pipeline import Pipeline

HERE = Path(__file__).parent
pipeline = Pipeline("digits", store=HERE / "store")
lr = pipeline.parameter("lr", float, 0.1)


def double(x):
    if (HERE / "broken").exists():
        raise RuntimeError("the disk is full")
    return 2 * x


doubled = pipeline.step(double, arguments={"x": lr})
pipeline.step(lambda x: x + 1, name="more", arguments={"x": doubled.result})
"""
JOB = """
echo = Processor("python:3.11", "echo $LR", instance_type="ecs.c6.large")
pipeline.step(echo, name="job", environments={"LR": "1"})
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "digits.py"
    path.write_text(FILE)
    return path


def test_a_file_is_run_and_shown(pai: Pai, file: Path, tmp_path: Path) -> None:
    done = pai("pipeline", "run", file, "--set", "lr=0.5", "--quiet")
    assert done.exit_code == 0
    uri = done.stdout.strip()
    shown = pai("pipeline", "show", uri, "--svg", tmp_path / "run.svg")
    assert shown.exit_code == exit_codes.SUCCEEDED
    assert "it was not executed before" in shown.stdout
    assert (tmp_path / "run.svg").read_text().count("<rect") == 2
    facts = json.loads(pai("pipeline", "show", uri, "--json").stdout)
    assert (facts["status"], facts["parameters"]) == ("succeeded", {"lr": 0.5})
    assert [(one["name"], one["result"]) for one in facts["steps"]] == [("double", 1.0), ("more", 2.0)]
    again = pai("pipeline", "run", file, "--set", "lr=0.5")
    assert "double: cached" in again.stderr
    assert "double: succeeded" in pai("pipeline", "run", file, "--set", "lr=0.5", "--no-cache").stderr


def test_a_failed_run_is_resumed(pai: Pai, file: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    failed = pai("pipeline", "run", file, "-q")
    assert failed.exit_code == exit_codes.FAILED
    assert "double: RuntimeError: the disk is full" in failed.stderr
    uri = failed.stdout.strip()
    assert pai("pipeline", "show", uri).exit_code == exit_codes.FAILED
    (tmp_path / "broken").unlink()
    resumed = pai("pipeline", "resume", f"{file}:pipeline", "--run", PipelineRun.load(uri).id, "-q")
    assert (resumed.exit_code, resumed.stdout.strip()) == (0, uri)
    assert "has already finished: succeeded" in pai("pipeline", "stop", uri).stdout


def test_a_run_whose_process_is_gone_is_stopped_from_here(pai: Pai, file: Path) -> None:
    uri = pai("pipeline", "run", file, "-q").stdout.strip()
    run = PipelineRun.load(uri)
    run.record.status = "running"
    run.records.write_run(run.record)
    step = run["more"]
    step.status = "running"
    run.records.write_step(step)
    assert "is stopped" in pai("pipeline", "stop", uri).stdout
    assert pai("pipeline", "show", uri).exit_code == exit_codes.STOPPED
    assert pai("pipeline", "resume", file, "-q").exit_code == exit_codes.SUCCEEDED


def test_a_dry_run_prints_every_request_and_runs_nothing(pai: Pai, file: Path, tmp_path: Path) -> None:
    file.write_text(FILE + JOB)
    done = pai("pipeline", "run", file, "--dry-run")
    assert json.loads(done.stdout)["job"]["ComputeResource"]["EcsSpec"] == "ecs.c6.large"
    assert "steps: 3, requests: 1; nothing was sent" in done.stderr
    assert not (tmp_path / "store" / "runs").exists()


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        (None, []),
        ("x = 1", []),
        (FILE + "other = Pipeline('other', store=HERE)", []),
        (FILE + "1 / 0", []),
        (FILE, ["--set", "lr"]),
        (FILE, ["--set", "lr=fast"]),
        (FILE, ["--set", "policy=1"]),
        (FILE, ["--set", "rl=1"]),
    ],
)
def test_wrong_files_and_parameters(pai: Pai, tmp_path: Path, content: str | None, arguments: list[str]) -> None:
    path = tmp_path / "digits.py"
    if content is not None:
        path.write_text(content)
    with refused(InvalidInputError):
        pai("pipeline", "run", path, *arguments)


def test_a_name_that_the_file_does_not_have(pai: Pai, file: Path) -> None:
    with refused(InvalidInputError):
        pai("pipeline", "run", f"{file}:pipelin")


def test_a_folder_that_is_no_run(
    pai: Pai, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with refused(RunNotFoundError):
        pai("pipeline", "show", tmp_path)
    monkeypatch.setattr("sys.argv", ["pai-sdk", "pipeline", "show", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == exit_codes.NOT_FOUND
    assert "is not the run of a pipeline" in capfd.readouterr().err
