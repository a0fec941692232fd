"""Jobs of an estimator with `api="dlc"`, on a service that runs them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Estimator, Processor, Session
from pai_sdk._data.storage.uri import OssUri
from pai_sdk.errors import JobFailed, JobStopped
from pai_sdk.jobs import DlcOptions
from tests.support.waiting import PATIENCE_S

TRAIN = """
import json, os, pathlib, sys
print("arguments", sys.argv[1:], os.getcwd() == os.environ["PAI_WORKING_DIR"])
print("rows", pathlib.Path(os.environ["PAI_INPUT_ROWS"]).read_text(), os.listdir(os.environ["PAI_INPUT_FOLDER"]))
print("config", json.loads(pathlib.Path(os.environ["PAI_CONFIG_DIR"], "hyperparameters.json").read_text()))
print("loss=0.5")
pathlib.Path(os.environ["PAI_OUTPUT_MODEL"], "model.txt").write_text(os.environ["PAI_HPS_LR"])
pathlib.Path("scratch").write_text("the code is a copy, which a job may change")
"""


def processor(session: Session, command: str, **parameters: Any) -> Processor:
    return Processor(
        "python:3.11", command, instance_type="ecs.c6.large", session=session, api="dlc", **parameters
    )


def lines_of(job: Any) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in job.logs():
        lines.setdefault(line.instance.removeprefix(f"{job.id}-"), []).append(line.text)
    return lines


def test_the_job_contract(session: Session, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(TRAIN)
    (tmp_path / "rows").write_text("3")
    estimator = Estimator(
        "python:3.11",
        "python train.py $PAI_USER_ARGS",
        source_dir=tmp_path / "src",
        hyperparameters={"lr": 0.1},
        metric_definitions=[{"name": "loss", "regex": "loss=([0-9.]+)"}],
        environments={f"V{number}": str(number) for number in range(25)},
        labels={"team": "x"},
        instance_type="ecs.c6.large",
        session=session,
        api="dlc",
    )
    job = estimator.fit({"rows": tmp_path / "rows", "folder": tmp_path / "src"}, show_logs=False)
    assert lines_of(job) == {
        "master-0": [
            "arguments ['--lr', '0.1'] True",
            "rows 3 ['train.py']",
            "config {'lr': '0.1'}",
            "loss=0.5",
        ]
    }
    assert (job.record.dlc_status, job.record.hyperparameter_values) == ("Succeeded", {"lr": "0.1"})
    assert job.labels["team"] == "x"
    assert [point.value for point in job.metrics("loss")] == [0.5]
    assert (job.download("model", tmp_path / "model") / "model.txt").read_text() == "0.1"
    assert job.id in [each.id for each in session.list_jobs(api="dlc", labels={"team": "x"})]
    assert job.id not in [each.id for each in session.list_jobs()]


def test_instances_and_long_logs(session: Session) -> None:
    command = 'echo "$RANK of $WORLD_SIZE"; i=0; while [ $i -lt 4500 ]; do echo "line $i"; i=$((i+1)); done'
    job = processor(session, command, instance_count=2).run(show_logs=False)
    lines = [f"line {number}" for number in range(4500)]
    assert lines_of(job) == {"master-0": ["0 of 2", *lines], "worker-0": ["1 of 2", *lines]}


def test_roles(session: Session) -> None:
    roles = {"Chief": {"instance_count": 1}, "Worker": {"instance_count": 2, "command": "echo worker"}}
    job = processor(session, "echo chief", job_type="TFJob", roles=roles).run(show_logs=False)
    assert lines_of(job)["chief-0"] == ["chief"]
    assert lines_of(job).keys() == {"chief-0", "worker-0", "worker-1"}


def test_mounts_at_any_path(session: Session) -> None:
    bucket = session.settings.oss_bucket_name
    session.files().put_bytes(OssUri.parse(f"oss://{bucket}/mounted/a"), b"1")
    options = DlcOptions(mounts=[{"path": "/mnt/x", "uri": f"oss://{bucket}/mounted/", "access": "RW"}])
    job = processor(session, "cat /mnt/x/a; echo; echo more >/mnt/x/b", dlc=options).run(show_logs=False)
    assert lines_of(job) == {"master-0": ["1"]}
    assert session.files().get_bytes(OssUri.parse(f"oss://{bucket}/mounted/b")) == b"more\n"


def test_a_failure_and_a_stop(session: Session) -> None:
    with pytest.raises(JobFailed) as caught:
        processor(session, "echo hi; exit 3").run(show_logs=False)
    assert caught.value.job_id.startswith("dlc")
    job = processor(session, "sleep 600").run(wait=False, show_logs=False)
    until_s = time.monotonic() + PATIENCE_S
    while job.status != "Running" and time.monotonic() < until_s:
        time.sleep(0.2)
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(show_logs=False)
    assert job.record.dlc_status == "Stopped"
    job.stop()
    job.delete()


def test_the_log_of_a_job_that_failed_is_complete_at_once(session: Session) -> None:
    """The service says so: nobody waits for late lines."""
    with pytest.raises(JobFailed) as failed:
        processor(session, "echo before; exit 3").run(show_logs=False)
    backend = session.get_job(failed.value.job_id).backend
    page = backend.read_log(failed.value.job_id, f"{failed.value.job_id}-master-0", start=0, limit=10)
    assert (page.lines[-1], page.complete) == ("before", True)
