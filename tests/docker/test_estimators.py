"""All that submits runs here too, and all that looks at jobs finds them; no service is started for any of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import AlgorithmEstimator, Estimator, Processor, Session
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk.errors import InvalidInputError, JobFailed, NotFoundError
from tests.docker.conftest import lines_of, remove_all
from tests.docker.engine import BASE_IMAGE, Engine
from tests.docker.test_service import session_on, silent_registry
from tests.service.services import running_service
from tests.support.waiting import PATIENCE_S, until

PAI = str(Path(sys.executable).with_name("pai-sdk"))
SPEC: dict[str, Any] = {
    "Image": BASE_IMAGE,
    "Command": ["sh", "-c", "python3 main.py $PAI_USER_ARGS; echo done >$PAI_OUTPUT_MODEL/m.txt"],
    "HyperParameters": [{"Name": "lr", "Type": "Float", "DefaultValue": "0.1"}],
    "InputChannels": [{"Name": "train", "Required": True}],
    "OutputChannels": [{"Name": "model", "Required": True}],
    "Customization": {"CodeDir": True},
}


@pytest.fixture
def home(docker_host: Engine) -> Iterator[Path]:
    """A HOME as a newcomer's: nothing is configured. No service may begin there."""
    home = Path.home()
    yield home
    for record in Session().local.list():
        remove_all(docker_host, record.training_job_id)
    assert not (home / ".pai" / "service").exists()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "my code"
    folder.mkdir()
    (folder / "main.py").write_text("import sys; print('mine', sys.argv[1:])")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "train.csv").write_text("1,2\n")
    return tmp_path / "train.csv"


def estimator(
    code: Path, command: str = "python3 main.py $PAI_USER_ARGS; cp $PAI_INPUT_TRAIN /ml/output/model/m.txt"
) -> Estimator:
    return Estimator(BASE_IMAGE, command, source_dir=code, hyperparameters={"lr": 0.1}, instance_type="local")


def pai(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PAI, *arguments], capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


def test_an_estimator_trains_and_tells_where_its_outputs_are(home: Path, code: Path, data: Path) -> None:
    trainer = estimator(code)
    job = trainer.fit({"train": data}, show_logs=False)
    assert lines_of(job) == ["mine ['--lr', '0.1']"]
    outputs = trainer.get_outputs_data()
    assert sorted(outputs) == ["checkpoints", "model", "tensorboard"]
    assert trainer.model_data() == outputs["model"]
    model = home / ".pai" / "local" / "outputs" / job.name / "model" / "m.txt"
    assert outputs["model"] == f"{model.parent.as_uri()}/"
    assert model.read_text() == "1,2\n"
    job.delete()
    with pytest.raises(NotFoundError):
        TrainingJob.get(job.id)
    assert model.exists()


def test_a_plan_is_what_runs_here_or_in_another_process(
    home: Path, code: Path, data: Path, tmp_path: Path
) -> None:
    trainer = estimator(code)
    plan = trainer.plan({"train": data})
    assert not (home / ".pai" / "local" / "jobs").exists()
    plan.save(tmp_path / "plan.json")
    job = Session().submit(plan).wait(show_logs=False)
    with pytest.raises(InvalidInputError, match="submitted"):
        Session().submit(plan)

    trainer.plan({"train": data}).save(tmp_path / "another.json")
    program = (
        "import sys; from pai_sdk import Session; from pai_sdk._client.backend.base import Plan;"
        "print(Session().submit(Plan.load(sys.argv[1])).wait(show_logs=False).id)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "another.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    again = TrainingJob.get(done.stdout.strip())
    assert lines_of(again) == lines_of(job) == ["mine ['--lr', '0.1']"]


def test_a_processor_and_several_jobs_at_once(home: Path) -> None:
    processor = Processor(BASE_IMAGE, "sleep 1; echo $PAI_TRAINING_JOB_ID", instance_type="local")
    jobs = [processor.run(wait=False, show_logs=False) for _ in range(3)]
    processor.wait(PATIENCE_S, show_logs=False, all_jobs=True)
    assert [lines_of(job) for job in jobs] == [[job.id] for job in jobs]
    assert {job.id for job in TrainingJob.list(local=True)} == {job.id for job in jobs}


def test_who_does_not_wait_has_the_same_job(home: Path, code: Path, data: Path) -> None:
    """Code and inputs stay under a job that runs, and its outputs are those of its end."""
    command = (
        "echo up; while [ ! -e /ml/output/model/go ]; do sleep 0.1; done;"
        "python3 main.py; cp $PAI_INPUT_TRAIN /ml/output/model/m.txt"
    )
    trainer = estimator(code, command)
    job = trainer.fit({"train": data}, wait=False, show_logs=False)
    assert not job.status.is_terminal, "it came back before the end"
    model = Path(trainer.model_data().removeprefix("file://"))
    (code / "main.py").write_text("print('the next version')")
    del trainer
    (model / "go").touch()
    assert lines_of(job.wait(PATIENCE_S, show_logs=False)) == ["up", "mine []"]
    assert (model / "m.txt").read_text() == "1,2\n"


def test_an_estimator_is_used_again_and_goes_on_from_its_checkpoints(home: Path, tmp_path: Path) -> None:
    command = (
        "cat /ml/output/checkpoints/epoch 2>/dev/null; echo epoch $PAI_HPS_EPOCH >/ml/output/checkpoints/epoch"
    )
    trainer = Estimator(BASE_IMAGE, command, checkpoints_path=str(tmp_path / "kept"), instance_type="local")
    said = []
    for epoch in (1, 2, 3):
        trainer.set_hyperparameters(epoch=epoch)
        said.append(lines_of(trainer.fit(show_logs=False)))
    assert said == [[], ["epoch 1"], ["epoch 2"]]
    assert len({job.id for job in trainer.jobs}) == 3


def test_a_given_algorithm(home: Path, code: Path, data: Path) -> None:
    trainer = AlgorithmEstimator(algorithm_spec=SPEC, source_dir=code, instance_type="local")
    job = trainer.fit({"train": data}, show_logs=False)
    assert lines_of(job) == ["mine ['--lr', '0.1']"]
    assert Path(job.download("model", code.parent / "model"), "m.txt").read_text() == "done\n"


def test_a_registered_algorithm_with_its_own_code_or_with_mine(
    docker_host: Engine, code: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_LOCAL_DIR", str(tmp_path / "local"))
    with running_service(tmp_path / "service") as client, session_on(client.info) as session:
        client.bucket().put_object("theirs/main.py", "import sys; print('theirs', sys.argv[1:])")
        theirs = {"LocationType": "oss", "LocationValue": {"Bucket": client.info.bucket, "Key": "theirs/"}}
        algorithm_id = session.algorithms.create("digits")
        session.algorithms.create_version(algorithm_id, "v1", {**SPEC, "CodeDir": theirs})
        for own, name in ((None, "theirs"), (code, "mine")):
            trainer = AlgorithmEstimator(
                "digits", "v1", hyperparameters={"lr": 0.5}, source_dir=own, instance_type="local", session=session
            )
            job = trainer.fit({"train": data}, {"model": tmp_path / "model"}, show_logs=False)
            assert lines_of(job) == [f"{name} ['--lr', '0.5']"]
            assert (tmp_path / "model" / "m.txt").read_text() == "done\n"
        assert list(session.list_jobs()) == []


def test_the_command_line(home: Path, code: Path) -> None:
    trainer = estimator(code, "echo up; while [ ! -e /ml/output/model/go ]; do sleep 0.1; done; echo down")
    job = trainer.fit(wait=False, show_logs=False)
    shown = pai("ps", "--local")
    assert job.id in shown.stdout, shown.stderr
    assert "Running" in shown.stdout or "Initializing" in shown.stdout
    assert pai("wait", job.id, "--timeout", "0", "--no-logs").returncode == 101
    until(lambda: pai("logs", job.id).stdout == "up\n")
    status = pai("status", job.id)
    assert (status.returncode, "Running" in status.stdout) == (101, True)
    assert pai("logs", job.id).stdout == "up\n"
    with subprocess.Popen([PAI, "logs", "-f", job.id], stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline() == "up\n"
        Path(trainer.model_data().removeprefix("file://"), "go").touch()
        assert follower.stdout.read() == "down\n"
    assert pai("wait", job.id).returncode == 0
    record = json.loads(pai("status", job.id, "--json").stdout)
    assert (record["Status"], record["TrainingJobId"]) == ("Succeed", job.id)

    stuck = Processor(BASE_IMAGE, "echo up; sleep 100", instance_type="local").run(wait=False, show_logs=False)
    until(lambda: pai("logs", stuck.id).stdout == "up\n")
    assert f"{stuck.id} Terminated" in pai("stop", stuck.id, "--wait").stdout
    assert pai("status", stuck.id).returncode == 103
    for known in (job, stuck):
        known.refresh()  # what this process waits for is not pruned
    pruned = pai("prune").stdout
    assert job.id in pruned
    assert stuck.id in pruned
    assert pai("status", job.id).returncode == 102
    assert "no jobs" in pai("ps", "--local").stdout


def test_a_failure_on_the_command_line(home: Path) -> None:
    processor = Processor(BASE_IMAGE, "echo 'the reason' >&2; exit 7", instance_type="local")
    with pytest.raises(JobFailed):
        processor.run(show_logs=False)
    shown = pai("status", processor.jobs[0].id)
    assert shown.returncode == 100
    assert "exit code 7" in shown.stdout
    assert "the reason" in shown.stdout


def test_a_job_is_stopped_while_its_image_is_pulled(home: Path) -> None:
    with silent_registry() as (registry, was_asked):
        processor = Processor(f"{registry}/large:1", "true", instance_type="local")
        submitting = threading.Thread(target=processor.run, kwargs={"wait": False, "show_logs": False})
        submitting.start()
        assert was_asked.wait(PATIENCE_S)
        (job,) = TrainingJob.list(local=True)
        assert job.status == "Initializing"
        assert pai("stop", job.id, "--wait").returncode == 0
        submitting.join(PATIENCE_S)
        assert not submitting.is_alive()
        assert job.refresh().status == "Terminated"
        assert processor.jobs[0].id == job.id


@pytest.mark.parametrize("by", ["run", "wait"])
def test_an_interrupt_stops_what_runs_in_the_foreground_and_leaves_what_is_only_watched(
    home: Path, by: str
) -> None:
    call = "run()" if by == "run" else "run(wait=False).wait()"
    program = (
        "from pai_sdk import Processor;"
        f"Processor({BASE_IMAGE!r}, 'echo up; sleep 100', instance_type='local').{call}"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = ""
        while "up\n" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGINT)
        said += process.stdout.read()
    assert process.returncode == -signal.SIGINT
    (job,) = TrainingJob.list(local=True)
    if by == "run":
        assert f"stopping {job.id}" in said
        assert job.status == "Terminated"
        return
    assert f" logs -f {job.id}" in said
    assert f" stop {job.id}" in said
    assert job.status == "Running"
    job.stop()
