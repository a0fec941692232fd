"""Real processes, real objects, real HTTP: what a job sees, and what is left of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.service.services import Client, job_body
from tests.support.waiting import until


def test_code_input_parameters_and_output(service: Client) -> None:
    bucket = service.bucket()
    bucket.put_object(
        "code/1/train.sh",
        'cat "$PAI_INPUT_TRAIN"; echo "lr=$PAI_HPS_LR"; echo model > "$PAI_OUTPUT_MODEL/m.txt"\n',
    )
    bucket.put_object("data/in put.csv", "1,2\n")
    job_id = service.create(
        job_body(
            "sh train.sh",
            CodeDir={"LocationType": "oss", "LocationValue": {"Bucket": service.info.bucket, "Key": "code/1/"}},
            InputChannels=[{"Name": "train", "InputUri": f"oss://{service.info.bucket}/data/in put.csv"}],
            OutputChannels=[{"Name": "model", "OutputUri": f"oss://{service.info.bucket}/out/1/"}],
            HyperParameters=[{"Name": "lr", "Value": "it's 0.1 $(x)"}],
        )
    )
    job = service.until(job_id)
    log = service.log(job_id)
    assert job["Status"] == "Succeed", (job["ReasonMessage"], log)
    assert log[-2:] == ["1,2", "lr=it's 0.1 $(x)"]
    assert bucket.get_object("out/1/m.txt").read() == b"model\n"
    assert job["OutputModel"] == {"OutputChannelName": "model", "Uri": f"oss://{service.info.bucket}/out/1/"}
    models = service.get(f"/trainingjobs/{job_id}/outputmodels")["OutputModels"]
    assert [model["Uri"] for model in models] == [job["OutputModel"]["Uri"]]
    assert job["Duration"] >= 0


@pytest.mark.parametrize(
    ("command", "status", "reason", "exit_code"),
    [
        ("echo oh; exit 3", "Failed", "NonZeroExit", 3),
        ("no-such-program", "Failed", "CommandNotFound", 127),
        ("kill -9 $$", "Failed", "KilledBySignal", 137),
    ],
)
def test_failures_keep_their_reason(
    service: Client, command: str, status: str, reason: str, exit_code: int
) -> None:
    job_id = service.create(job_body(command))
    job = service.until(job_id)
    assert (job["Status"], job["ReasonCode"]) == (status, reason)
    info = service.get(f"/trainingjobs/{job_id}/errorinfo")["ErrorInfo"]
    assert json.loads(info["AdditionalInfo"]) == {"Instance": f"{job_id}-master-0", "ExitCode": exit_code}


def test_a_missing_input_ends_before_the_beginning(service: Client) -> None:
    uri = f"oss://{service.info.bucket}/nothing/here/"
    job = service.until(service.create(job_body(InputChannels=[{"Name": "train", "InputUri": uri}])))
    assert (job["Status"], job["ReasonCode"]) == ("InitializeFailed", "InputNotFound")
    assert uri in job["ReasonMessage"]


def test_a_job_that_takes_too_long_is_ended(service: Client) -> None:
    job = service.until(service.create(job_body("sleep 60", Scheduler={"MaxRunningTimeInSeconds": 1})))
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "MaxRunningTimeExceeded")


def test_a_running_job_is_stopped_with_all_its_processes(service: Client) -> None:
    job_id = service.create(
        job_body("sleep 60 & echo started; wait", ComputeResource={"EcsSpec": "x", "EcsCount": 2})
    )
    service.until(job_id, "Running")
    service.call("PUT", f"/trainingjobs/{job_id}/stop")
    job = service.until(job_id)
    assert (job["Status"], job["ReasonCode"]) == ("Terminated", "StoppedByUser")


def test_checkpoints_of_a_killed_job_are_kept(service: Client) -> None:
    uri = f"oss://{service.info.bucket}/out/killed/"
    body = job_body(
        'echo c > "$PAI_OUTPUT_CHECKPOINTS/c.pt"; exit 1',
        OutputChannels=[{"Name": "checkpoints", "OutputUri": uri}],
    )
    assert service.until(service.create(body))["Status"] == "Failed"
    assert service.bucket().get_object("out/killed/c.pt").read() == b"c\n"


def test_a_job_does_not_train_on_an_input_that_was_cut_off(start: Any, tmp_path: Path) -> None:
    """It succeeded once, with 0 bytes."""
    with start() as client:
        client.bucket().put_object("in/train.csv", b"1,2\n" * 20_000)  # a file, not a row
        (blob,) = [path for path in (tmp_path / "data" / "objects" / "blobs").rglob("*") if path.is_file()]
        os.truncate(blob, 0)
        channels = [{"Name": "train", "InputUri": "oss://pai-local/in/"}]
        job = client.until(client.create(job_body("wc -c $PAI_INPUT_TRAIN/*", InputChannels=channels)))
        assert (job["Status"], job["ReasonCode"]) == ("InitializeFailed", "ObjectDamaged")
        assert "oss://pai-local/in/train.csv has 0 of its 80,000 bytes" in job["ReasonMessage"]


def test_a_job_reports_metrics_live_with_step_and_instance(service: Client) -> None:
    """Without a regex and without a tensorboard channel; two instances, each with its own values."""
    script = """
import os, time
from pai_sdk import get_context, report
for step in (1, 2):
    report({"loss": step / 10, "eval": {"rank": get_context().rank}}, step=step)
while not os.path.exists(os.environ["PAI_OUTPUT_MODEL"] + "/go"):
    time.sleep(0.05)
report(last=3)
"""
    bucket = service.bucket()
    bucket.put_object("code/reports/train.py", script)
    job_id = service.create(
        job_body(
            "python train.py",
            CodeDir={
                "LocationType": "oss",
                "LocationValue": {"Bucket": service.info.bucket, "Key": "code/reports/"},
            },
            OutputChannels=[{"Name": "model", "OutputUri": f"oss://{service.info.bucket}/out/reports/"}],
            ComputeResource={"EcsSpec": "ecs.c6.large", "EcsCount": 2},
        )
    )

    def metrics(**query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = service.get(f"/trainingjobs/{job_id}/metrics", **query)["Metrics"]
        return found

    until(lambda: len(metrics()) == 8)
    values = [(m["Name"], m["Value"], m["Step"], m["Instance"]) for m in metrics(Name="loss")]
    names = (f"{job_id}-master-0", f"{job_id}-worker-0")
    assert sorted(values) == [("loss", step / 10, step, name) for step in (1, 2) for name in names]
    assert {(m["Instance"], m["Value"]) for m in metrics(Name="eval/rank")} == {(names[0], 0.0), (names[1], 1.0)}
    (service.info.data_dir / "jobs" / job_id / "ml" / "output" / "model" / "go").touch()
    assert service.until(job_id)["Status"] == "Succeed", service.log(job_id)
    assert [m["Step"] for m in metrics(Name="last")] == [3, 3]
    times = [m["Timestamp"] for m in metrics()]
    assert times == sorted(times)


def test_what_nothing_needs_after_the_end_is_removed(service: Client) -> None:
    """982 MB after 25 minutes of trying: jobs kept inputs, outputs, and what their commands installed."""
    bucket, name = service.bucket(), service.info.bucket
    bucket.put_object("points/points.csv", "1,2\n")
    command = (
        "cp $PAI_INPUT_TRAIN/points.csv $PAI_OUTPUT_MODEL/; echo note > note.txt; "
        "mkdir $PAI_OUTPUT_MODEL/../other; "
        "test -x $VIRTUAL_ENV/bin/python"
    )
    body = job_body(
        command,
        InputChannels=[{"Name": "train", "InputUri": f"oss://{name}/points/"}],
        OutputChannels=[{"Name": "model", "OutputUri": f"oss://{name}/out/cleaned/"}],
    )
    job_id = service.create(body)
    assert service.until(job_id)["Status"] == "Succeed", service.log(job_id)
    root = service.info.data_dir / "jobs" / job_id
    gone = [root / "ml" / "input" / "data", root / "ml" / "output" / "model", root / "state" / "python"]
    until(lambda: not any(folder.exists() for folder in gone))
    assert (root / "ml" / "usercode" / "note.txt").read_text() == "note\n", "it is nowhere else"
    assert (root / "ml" / "output" / "other").is_dir(), "nor is this"
    assert bucket.get_object("out/cleaned/points.csv").read() == b"1,2\n"
