"""Scripts in the shapes that public scripts have, on a service that runs their jobs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Session
from pai_sdk._client.api import workspaces
from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.api.transport import Transport
from pai_sdk._wire.dlc.actions import API_VERSION
from pai_sdk._wire.dlc.records import JobDetail
from pai_sdk._wire.dlc.status import is_terminal
from pai_sdk._wire.workspace.datasets import NewDataset
from tests.support.dlc_scripts import RunScript, script_runner
from tests.support.peer_environment import python_with
from tests.support.waiting import PATIENCE_S

# What the scripts take from variables, as public ones do: this service has few CPUs and no GPUs.
SMALL = {"WORKSPACE_ID": "1", "GPU": "0", "CPU": "0.1", "MEMORY": "128Mi", "SPEC": "ecs.c6.large"}
SMALL |= {"SIZE": "--worker_cpu 0.1 --worker_memory 128Mi"}

FILES = {
    ".bashrc": 'conda() { echo "conda $*"; }\n',
    "code/run.sh": 'echo "run $1 $RANK of $WORLD_SIZE"\n',
    "code/infer.sh": '#!/bin/sh\necho "infer $*"\n',
    "code/filter.py": "import sys; print('filter', *sys.argv[1:])\n",
    "run.sh": 'echo "$NCCL_IB_HCA $NCCL_DEBUG"; cat /mnt/oss/x.txt\n',
    "x.txt": "hello\n",
    "run.py": "import sys; print('ran', *sys.argv[1:])\n",
    "render.sh": 'echo "render $1 of $2"; [ "$1" != 1 ]\n',
    "ray_entrypoint.sh": 'echo "$ROLE $*"; if [ "$ROLE" = head ]; then sleep 600; fi\n',
    "easy_rec/__init__.py": "",
    "easy_rec/python/__init__.py": "",
    "easy_rec/python/train_eval.py": (
        "import json, os, sys\n"
        "task = json.loads(os.environ['TF_CONFIG'])\n"
        "print(task['task']['type'], task['task']['index'], sorted(task['cluster']), sys.argv[-1])\n"
    ),
}


@pytest.fixture
def jobs(session: Session) -> DlcJobs:
    return DlcJobs(Transport(str(session.settings.endpoint), session.credentials, version=API_VERSION))


@pytest.fixture
def run(session: Session, tmp_path: Path, clean_home: Path) -> RunScript:
    key = session.credentials()
    endpoint = str(session.settings.endpoint)
    return script_runner(tmp_path, clean_home, endpoint, key.access_key_id, key.access_key_secret)


@pytest.fixture
def folder(session: Session, tmp_path: Path) -> str:
    """The URI of the files, as DLC mounts it."""
    for name, content in FILES.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    bucket = session.settings.oss_bucket_name
    session.upload(tmp_path / "files", f"oss://{bucket}/user/")
    return f"oss://{bucket}.oss-cn-x-internal.aliyuncs.com/user/"


@pytest.fixture
def data_set(session: Session, folder: str) -> str:
    """The id of a data set with the files, which is mounted at /mnt/user."""
    transport = Transport(str(session.settings.endpoint), session.credentials, version=workspaces.VERSION)
    body = NewDataset(
        name="user",
        workspace_id="1",
        uri=folder,
        data_source_type="OSS",
        property_type="DIRECTORY",
        options='{"mountPath": "/mnt/user"}',
    )
    response = transport.call("CreateDataset", "POST", "/api/v1/datasets", body=body.to_wire())
    transport.close()
    return str(response.json["DatasetId"])


def submitted(jobs: DlcJobs, output: str) -> JobDetail:
    """Waits for the job whose id is in an output."""
    ids = re.findall(r"\|\s+(dlc[0-9a-z]+)\s+\|", output)
    assert ids, output
    job_id = ids[-1]
    deadline = time.monotonic() + PATIENCE_S
    while not is_terminal((job := jobs.get(job_id)).status):
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    return job


def logs(jobs: DlcJobs, job: JobDetail) -> dict[str, list[str]]:
    """Returns the lines of each pod, by the end of its name."""
    return {
        str(pod.pod_id).removeprefix(f"{job.job_id}-"): jobs.pod_logs(str(job.job_id), str(pod.pod_id)).logs
        for pod in job.pods
    }


def test_commands_in_a_data_set(run: RunScript, jobs: DlcJobs, data_set: str) -> None:
    data = f"--data_sources={data_set}"
    job = submitted(jobs, run("01_quoted_command.sh", "sft", **SMALL, DATA=data).stdout)
    assert logs(jobs, job) == {"master-0": ["conda activate /mnt/user/envs/train", "run sft 0 of 1"]}
    job = submitted(jobs, run("02_here_document.sh", **SMALL, DATA=data).stdout)
    assert logs(jobs, job) == {"master-0": ["infer /mnt/user/configs/plan 0.yaml 0"]}
    done = run("10_create_job.sh", **SMALL, DATA=data)
    assert (done.returncode, done.stdout.splitlines()[-1][-11:]) == (0, "[Succeeded]"), done.stderr
    assert logs(jobs, submitted(jobs, done.stdout)) == {"master-0": ["filter --columns overall_score"]}


def test_two_workers_with_mounts(run: RunScript, jobs: DlcJobs, folder: str) -> None:
    uris = f"{folder}::/mnt/cpfs,{folder}::/mnt/oss"
    job = submitted(jobs, run("03_mounts_and_ports.sh", **SMALL, DATA_SOURCE_URIS=uris).stdout)
    lines = ["mlx5_0,mlx5_1 INFO", "hello"]
    assert logs(jobs, job) == {"master-0": lines, "worker-0": lines}


def test_all_roles_of_tensorflow(run: RunScript, jobs: DlcJobs, folder: str) -> None:
    job = submitted(
        jobs, run("05_tfjob_console.sh", **SMALL, DATA=f"--data_source_uris={folder}::/mnt/data").stdout
    )
    assert job.status == "Succeeded", job.reason_message
    printed = {pod: lines[-1].split(" [")[0] for pod, lines in logs(jobs, job).items() if lines}
    counting = {"chief-0", "worker-0", "worker-1", "worker-2"}
    others = {
        "ps-0",
        "evaluator-0",
    }  # stopped when the ones that count have ended, perhaps before their first line
    assert counting <= printed.keys() <= counting | others
    assert all(line == pod.replace("-", " ") for pod, line in printed.items())


def test_a_job_file(run: RunScript, jobs: DlcJobs) -> None:
    job = submitted(jobs, run("06_job_file.sh", **SMALL).stdout)
    assert (job.display_name, job.job_type, job.status) == ("easy_rec_mmoe_eval", "TFJob", "Succeeded")
    assert [*logs(jobs, job).values()] == [["good", "="]]


def test_the_address_of_a_ray_head(run: RunScript, jobs: DlcJobs, folder: str) -> None:
    done = run("07_ray_head.sh", **SMALL, DATA=f"--data_source_uris={folder}::/vePFS/share/")
    worker = submitted(jobs, done.stdout)
    head = next(job for job in jobs.list() if job.display_name == "ray-head")
    ip = jobs.get(str(head.job_id)).pods[0].ip
    jobs.stop(str(head.job_id))
    assert logs(jobs, worker) == {"master-0": [f"worker --address={ip}:6379"]}


def test_programs_that_follow_their_jobs(run: RunScript, folder: str) -> None:
    data: dict[str, Any] = {**SMALL, "DATA": f"--data_source_uris={folder}::/mnt/user"}
    done = run("08_follow.py", **data)
    assert (done.returncode, done.stdout) == (0, "ran --task 7\n"), done.stderr
    done = run("09_bulk.py", "3", **data)
    assert (done.returncode, "failed: render_chunk1\n" in done.stdout) == (0, True), done.stderr


@pytest.fixture(scope="module")
def official() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with("alibabacloud_pai_dlc20201203==1.11.6")


@pytest.mark.timeout(1800)  # the first run installs it
def test_the_official_client(official: Path, run: RunScript, folder: str) -> None:
    done = run("11_sdk.py", python=official, WORKSPACE_ID="1", RESOURCE_ID="quota1", DATA_URI=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("listed: sdk-dict sdk-models\n")


def test_run_and_ps_with_jobs_of_dlc(run: RunScript, session: Session, tmp_path: Path, clean_home: Path) -> None:
    key = session.credentials()
    settings = session.settings
    variables = {
        "PAI_ENDPOINT": str(settings.endpoint),
        "PAI_OSS_ENDPOINT": str(settings.oss_endpoint),
        "PAI_REGION_ID": str(settings.region_id),
        "PAI_WORKSPACE_ID": "1",
        "PAI_OSS_BUCKET_NAME": str(settings.oss_bucket_name),
        "ALIBABA_CLOUD_ACCESS_KEY_ID": key.access_key_id,
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.access_key_secret,
    }
    done = run("13_run.sh", **variables)
    assert done.returncode == 0, done.stderr
    job_id, listed, log = done.stdout.splitlines()
    assert (job_id[:3], listed, log) == ("dlc", job_id, "hello from a job")
