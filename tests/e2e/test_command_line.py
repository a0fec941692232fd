"""`pai-sdk`, as a shell and as a script use it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pai_sdk import Processor, Session
from tests.faults.proxy import FaultProxy, Faults
from tests.support import ml
from tests.support.waiting import PATIENCE_S, until

PAI = [sys.executable, "-c", "from pai_sdk.cli import main; main()"]


def pai(session: Session, *arguments: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PAI, *arguments], env=environment(session), text=True, capture_output=True, timeout=timeout
    )


def environment(session: Session) -> dict[str, str]:
    """What a shell that is pointed at this session's service has set."""
    settings, key = session.settings, session.credentials()
    return {
        **os.environ,
        "PAI_REGION_ID": settings.region_id or "",
        "PAI_WORKSPACE_ID": settings.workspace_id or "",
        "PAI_ENDPOINT": settings.endpoint or "",
        "PAI_AIWORKSPACE_ENDPOINT": settings.endpoint or "",
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
    notice, log = ml.split_notice(pai(session, "logs", job_id).stdout)
    assert log == "hello\n"
    last = json.loads(pai(session, "logs", "--json", job_id).stdout.splitlines()[-1])
    assert last == {"instance": f"{job_id}-master-0", "number": 1 if notice else 0, "text": "hello"}
    assert job_id in pai(session, "ps").stdout
    assert job_id in [json.loads(row)["TrainingJobId"] for row in pai(session, "ps", "--json").stdout.splitlines()]


def test_a_failure_says_why(session: Session) -> None:
    job_id = submitted(session, "python -c 'import nothing_like_this'")
    told = pai(session, "wait", job_id)
    assert "ModuleNotFoundError" in told.stderr
    assert "exit code 1" in told.stderr


def test_not_finished_stop_and_stopped(session: Session) -> None:
    job_id = submitted(session, "sleep 600")
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
    job_id = submitted(session, "echo begun; sleep 600")
    with subprocess.Popen(
        [*PAI, "logs", "-f", job_id],
        env=environment(session),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as follower:
        assert follower.stdout is not None
        if not ml.can_be_had():
            assert follower.stdout.readline().startswith(ml.NOTICE)
        assert follower.stdout.readline() == "begun\n"
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=PATIENCE_S)
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
        session.get_job(job_id).wait(PATIENCE_S, show_logs=False)
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0


def test_wrong_key_wrong_endpoint_one_clear_sentence(session: Session) -> None:
    wrong_key = {**environment(session), "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "wrong"}
    told = subprocess.run([*PAI, "ps"], env=wrong_key, text=True, capture_output=True, timeout=PATIENCE_S)
    assert told.returncode == 1
    assert "SignatureDoesNotMatch" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_reader_that_has_seen_enough_is_no_error(session: Session) -> None:
    job_id = submitted(session, "seq 200000")
    assert pai(session, "wait", "--no-logs", job_id).returncode == 0
    with subprocess.Popen(
        [*PAI, "logs", job_id], env=environment(session), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(timeout=PATIENCE_S) == 0
    with Path("/dev/full").open("wb") as full:
        told = subprocess.run(
            [*PAI, "logs", job_id],
            env=environment(session),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
        )
    assert told.returncode == 1
    assert told.stderr.startswith(b"error: ")
    assert b"No space left" in told.stderr


def test_what_is_not_there_is_told(session: Session) -> None:
    job_id = submitted(session, "true")
    pai(session, "wait", job_id)
    told = pai(session, "logs", job_id, "--instance", "worker-7")
    assert told.returncode == 1
    assert told.stderr == "error: instance: 'worker-7' is not an instance of this job (it has master-0)\n"
    told = pai(session, "ps", "--status", "Dreaming")
    assert told.returncode == 2
    assert "available: Creating" in " ".join(told.stderr.replace("│", " ").split())


def test_a_service_on_no_address_of_this_machine(session: Session, tmp_path: Path) -> None:
    for host in (
        "192.0.2.1",
        "fe80::1%nowhere",
    ):  # one for examples, and one that is none; no name server is asked
        told = pai(session, "serve", "--host", host, "--data", str(tmp_path / "d"))
        assert told.returncode == 1, host
        assert told.stderr.endswith("; choose another address\n"), told.stderr


def test_an_interrupted_wait_without_log_tells_the_way_back(session: Session) -> None:
    job_id = submitted(session, "sleep 600")
    with FaultProxy(session.settings.endpoint or "", seed=0, faults=Faults(rate=0)) as proxy:
        command = [*PAI, "wait", "--no-logs", job_id]
        variables = {**environment(session), "PAI_ENDPOINT": proxy.url}
        with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as child:
            until(lambda: proxy.seen[f"GET /api/v1/trainingjobs/{job_id}"] > 1)  # found, and waited for
            child.send_signal(signal.SIGINT)
            _, told = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 101
    assert f"logs -f {job_id}" in told
    assert pai(session, "stop", "--wait", job_id).returncode == 0


def test_the_greeting_of_serve_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    command = [*PAI, "serve", "--port", "0", "--data", str(tmp_path / "a folder's name")]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        greeting = [server.stdout.readline() for _ in range(7)]
        exports = "".join(line for line in greeting if line.startswith("  export "))
        told = subprocess.run(
            ["sh", "-c", f'{exports}exec "$@"', "sh", *PAI, "ps"],
            text=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        server.send_signal(signal.SIGTERM)
        assert (told.returncode, told.stdout) == (0, "no jobs\n"), told.stderr
        assert server.wait(PATIENCE_S) == 0


JOB_FILE = """\
# yaml-language-server: $schema=job-file.schema.json
image_uri: python:3.11
command: python train.py $PAI_USER_ARGS
source_dir: src
hyperparameters: {lr: 0.5}
labels: {team: vision}
instance_type: ecs.c6.large
"""
TRAIN = """\
import os, sys
print("args", *sys.argv[1:])
with open(os.environ["PAI_OUTPUT_MODEL"] + "/model.txt", "w") as file:
    file.write("a model")
"""


def test_a_job_file_from_its_run_to_its_end(session: Session, tmp_path: Path) -> None:
    """run, describe, clone, diff, ps, logs, events, download, delete."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    ran = pai(session, "run", str(tmp_path / "job.yaml"), "--set", "lr=0.1", "--name", "cli-run")
    assert ran.returncode == 0, ran.stderr
    assert "args --lr 0.1" in ran.stdout
    (row,) = pai(session, "ps", "--label", "team=vision", "--json").stdout.splitlines()
    first = json.loads(row)["TrainingJobId"]
    assert "python train.py $PAI_USER_ARGS" in pai(session, "describe", first).stdout
    cloned = pai(session, "clone", first, "--set", "lr=0.2", "--json")
    assert cloned.returncode == 0, cloned.stderr
    second = json.loads(cloned.stdout)["TrainingJobId"]
    differences = [json.loads(row) for row in pai(session, "diff", first, second, "--json").stdout.splitlines()]
    changed = {(each["group"], each["name"]) for each in differences}
    assert changed - {("result", "duration")} == {("hyperparameters", "lr")}
    assert pai(session, "logs", second, "--tail", "1").stdout == "args --lr 0.2\n"
    (timed,) = pai(session, "logs", second, "--tail", "1", "--timestamps").stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z  args --lr 0.2", timed)
    assert "The job succeeded" in pai(session, "events", second).stdout
    folder = tmp_path / "model"
    assert pai(session, "download", second, "model", str(folder)).returncode == 0
    assert (folder / "model.txt").read_text() == "a model"
    assert pai(session, "delete", first, second, "--yes").returncode == 0
    assert pai(session, "status", first).returncode == 102


def test_a_saved_plan_brings_its_files(session: Session, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN + "print('saved')\n")
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    plan = tmp_path / "plan.json"
    saved = pai(session, "run", str(tmp_path / "job.yaml"), "--save", str(plan))
    assert saved.returncode == 0, saved.stderr
    ran = pai(session, "submit", str(plan))
    assert ran.returncode == 0, ran.stderr
    assert "saved" in ran.stdout
    again = pai(session, "submit", str(plan))
    assert (again.returncode, "was submitted already" in again.stderr) == (1, True)


def test_doctor_and_the_service_it_finds(session: Session, service_dir: Path) -> None:
    told = pai(session, "doctor", "--json")
    found = {row["subject"]: row["health"] for row in map(json.loads, told.stdout.splitlines())}
    assert {found[name] for name in ("settings", "access key", "API", "clock", "jobs", "bucket")} == {"ok"}
    assert told.returncode == 0
    status = pai(session, "service", "status", "--data", str(service_dir), "--json")
    facts = json.loads(status.stdout)
    assert (status.returncode, facts["running"], facts["endpoint"]) == (0, True, session.settings.endpoint)
    assert {"objects", "job folders", "environments"} <= {held["kind"] for held in facts["holds"]}


def test_ctrl_c_ends_in_a_message(session: Session) -> None:
    program = (
        "import time; from pai_sdk._client.api.training_jobs import TrainingJobs; from pai_sdk.cli import main\n"
        "TrainingJobs.list = lambda *a, **k: (print('asked', flush=True), time.sleep(60))\n"
        "main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "ps"],
        env=environment(session),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "asked\n"
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, told) == (130, "\nInterrupted.\n")


def test_a_job_by_name_prefix_and_as_the_last_one(session: Session) -> None:
    processor = Processor("python:3.11", "true", instance_type="ecs.c6.large", session=session)
    first, second = (processor.run(show_logs=False) for _ in range(2))
    for named, job in ((first.name, first), (second.id[:12], second), ("-", second)):
        assert json.loads(pai(session, "status", named, "--json").stdout)["TrainingJobId"] == job.id
    told = pai(session, "stop", "train")
    assert told.returncode == 1
    assert f"\n  {first.id}  {first.name}  Succeed" in told.stderr
    assert pai(session, "logs", "by nothing").returncode == 102


def test_two_services_and_the_options_that_name_them(session: Session, embedded_home: Path) -> None:
    """A shell points at one service; its options lead to the embedded one, to a profile, and nowhere else."""
    here = submitted(session, "true")
    assert pai(session, "wait", "-", "--embedded").returncode == 102, "there is no job in the embedded service yet"
    run = ("run", "--image", "python:3.11", "--instance-type", "ecs.c6.large", "--command", "echo embedded")
    ran = pai(session, *run, "--embedded", "--no-wait")
    there = ran.stdout.strip()
    assert f"logs -f {there} --embedded" in ran.stderr
    assert pai(session, "logs", "-f", "-", "--embedded").stdout.endswith("embedded\n")
    assert there not in pai(session, "ps", "-q").stdout
    assert there in pai(session, "ps", "-q", "--embedded").stdout
    lost = pai(session, "status", there)
    assert lost.returncode == 102
    assert "other places: --embedded, --profile NAME" in lost.stderr
    settings = session.settings
    for name in ("endpoint", "oss_endpoint", "region_id", "workspace_id", "oss_bucket_name"):
        value = str(getattr(settings, name))
        assert pai(session, "config", "set", name, value, "--profile", "lab").returncode == 0
    no_settings = {name: value for name, value in environment(session).items() if not name.startswith("PAI_")}
    for arguments, variables in ((["--profile", "lab"], {}), ([], {"PAI_PROFILE": "lab"})):
        told = subprocess.run(
            [*PAI, "ps", "-q", *arguments],
            env={**no_settings, **variables},
            text=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        assert here in told.stdout.split(), told.stderr


def test_a_command_beside_a_running_job_and_what_it_uses(session: Session) -> None:
    job_id = submitted(session, "echo begun; sleep 600")
    session.get_job(job_id).logs(follow=True).__iter__().__next__()
    until(lambda: pai(session, "exec", job_id, "true").returncode == 0)
    script = 'echo "$PAI_INSTANCE_NAME"; cat; test -d "$PAI_CONFIG_DIR" && pwd; exit 3'
    told = subprocess.run(
        [*PAI, "exec", job_id, "sh", "-c", script],
        env=environment(session),
        input="from stdin\n",
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert told.returncode == 3, told.stderr
    name, line, folder = told.stdout.splitlines()
    assert (name, line) == (f"{job_id}-master-0", "from stdin")
    assert folder == ("/ml/usercode" if ml.can_be_had() else folder)
    until(lambda: json.loads(pai(session, "top", job_id, "--json").stdout or "{}").get("cpu_percent") is not None)
    assert f"{job_id}  master-0  Running" in pai(session, "top").stdout
    assert pai(session, "stop", "--wait", job_id).returncode == 0
    gone = pai(session, "exec", job_id, "true")
    assert gone.returncode == 1
    assert f"pai-sdk download {job_id}" in gone.stderr


def test_following_a_log_ends_with_its_reader(session: Session) -> None:
    """Without another line: the job is silent."""
    job_id = submitted(session, "echo first; sleep 600")
    command = f"{' '.join(map(shlex.quote, PAI))} logs -f {job_id} | head -1; exit ${{PIPESTATUS[0]}}"
    variables, pipe = environment(session), subprocess.PIPE
    with subprocess.Popen(["bash", "-c", command], env=variables, stdout=pipe, stderr=pipe, text=True) as child:
        output, errors = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, output.rpartition("| ")[2], errors) == (0, "first\n", "")
    assert pai(session, "stop", "--wait", job_id).returncode == 0


def test_a_reader_of_a_watched_list_that_goes_away_is_no_error(session: Session) -> None:
    submitted(session, "true")
    command = f"{' '.join(map(shlex.quote, PAI))} ps --watch -q | head -1; exit ${{PIPESTATUS[0]}}"
    variables, pipe = environment(session), subprocess.PIPE
    with subprocess.Popen(["bash", "-c", command], env=variables, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("train")
        submitted(session, "sleep 1")  # the next line goes into a closed pipe
        _, told = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, told) == (0, "")
