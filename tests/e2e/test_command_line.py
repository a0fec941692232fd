"""`pai-sdk`, as a shell and as a script use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pai_sdk import Processor, Session

PAI = [sys.executable, "-c", "from pai_sdk.cli import main; main()"]


def pai(session: Session, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PAI, *arguments], env=environment(session), text=True, capture_output=True, timeout=timeout
    )


def environment(session: Session) -> dict[str, str]:
    """What a shell that is pointed at this session's service has set."""
    settings, key = session.settings, session._credentials()
    return {
        **os.environ,
        "PAI_REGION_ID": settings.region_id or "",
        "PAI_WORKSPACE_ID": settings.workspace_id or "",
        "PAI_ENDPOINT": settings.endpoint or "",
        "PAI_OSS_ENDPOINT": settings.oss_endpoint or "",
        "PAI_OSS_BUCKET_NAME": settings.oss_bucket_name or "",
        "ALIBABA_CLOUD_ACCESS_KEY_ID": key.access_key_id,
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.access_key_secret,
        "NO_COLOR": "1",
    }


def submitted(session: Session, command: str) -> str:
    processor = Processor("python:3.11", command, instance_type="ecs.c6.large", session=session)
    return processor.run(wait=False, show_logs=False).id


@pytest.mark.parametrize(
    ("command", "exit_code", "status"), [("echo hello", 0, "Succeed"), ("echo hello; exit 3", 100, "Failed")]
)
def test_exit_codes_tell_how_a_job_ended(session: Session, command: str, exit_code: int, status: str) -> None:
    job_id = submitted(session, command)
    waited = pai(session, "wait", job_id)
    assert waited.returncode == exit_code, waited.stderr
    assert "hello" in waited.stdout
    told = pai(session, "status", job_id, "--json")
    assert told.returncode == exit_code
    assert json.loads(told.stdout)["Status"] == status
    assert pai(session, "logs", job_id).stdout == "hello\n"
    line = json.loads(pai(session, "logs", "--json", job_id).stdout)
    assert line == {"instance": f"{job_id}-master-0", "number": 0, "text": "hello"}
    assert job_id in pai(session, "ps").stdout
    assert job_id in [json.loads(row)["TrainingJobId"] for row in pai(session, "ps", "--json").stdout.splitlines()]


def test_a_failure_says_why(session: Session) -> None:
    job_id = submitted(session, "python -c 'import nothing_like_this'")
    told = pai(session, "wait", job_id)
    assert "ModuleNotFoundError" in told.stderr
    assert "exit code 1" in told.stderr


def test_not_finished_stop_and_stopped(session: Session) -> None:
    job_id = submitted(session, "sleep 60")
    assert pai(session, "wait", job_id, "--timeout", "0.5", "--no-logs").returncode == 101
    assert pai(session, "status", job_id).returncode == 101
    assert "Terminated" in pai(session, "stop", "--wait", job_id).stdout
    assert pai(session, "status", job_id).returncode == 103


def test_no_such_job(session: Session) -> None:
    for command in ("status", "logs", "wait", "stop"):
        told = pai(session, command, "train000000000000")
        assert told.returncode == 102, command
        assert "Traceback" not in told.stderr


def test_a_followed_log_is_there_while_the_job_runs(session: Session) -> None:
    job_id = submitted(session, "echo begun; sleep 30")
    with subprocess.Popen(
        [*PAI, "logs", "-f", job_id],
        env=environment(session),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "begun\n"
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=20)
    assert follower.returncode == 101
    assert f" stop {job_id}" in errors
    assert pai(session, "status", job_id).returncode == 101, "the job goes on"
    pai(session, "stop", "--wait", job_id)


def test_serve_tells_other_clients_all_they_need(tmp_path: Path) -> None:
    command = [*PAI, "serve", "--host", "127.0.0.1", "--port", "0", "--data", str(tmp_path / "d"), "--json"]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        info = json.loads(server.stdout.readline())
        assert {
            "endpoint",
            "oss_endpoint",
            "region_id",
            "workspace_id",
            "bucket",
            "access_key_id",
            "access_key_secret",
        } <= set(info)
        session = Session(
            info["region_id"],
            info["workspace_id"],
            oss_bucket_name=info["bucket"],
            oss_endpoint=info["oss_endpoint"],
            endpoint=info["endpoint"],
            access_key_id=info["access_key_id"],
            access_key_secret=info["access_key_secret"],
        )
        job_id = submitted(session, "echo hi")
        session.get_job(job_id).wait(30, show_logs=False)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0


def test_wrong_key_wrong_endpoint_one_clear_sentence(session: Session) -> None:
    wrong_key = {**environment(session), "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "wrong"}
    told = subprocess.run([*PAI, "ps"], env=wrong_key, text=True, capture_output=True, timeout=60)
    assert told.returncode == 1
    assert "SignatureDoesNotMatch" in told.stderr
    assert "Traceback" not in told.stderr
