"""Jobs with roles and mounts on a service that runs them as processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pai_sdk import Estimator, Role
from pai_sdk._service.settings import ForeignCloud
from pai_sdk.errors import InvalidInputError
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.services import Client, job_body, session_on
from tests.support import ml

needs_mounts = pytest.mark.skipif(not ml.can_be_had(), reason="processes of this machine have no mounts")


def role(name: str, command: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"Name": name, **({"Command": ["sh", "-c", command]} if command else {}), **fields}


def logs(service: Client, job_id: str, instance: str) -> list[str]:
    return service.log(job_id, InstanceId=f"{job_id}-{instance}")


def test_roles_of_a_training_job(service: Client) -> None:
    roles = [role("Worker", Count=2), role("Evaluator", "echo evaluates; sleep 600")]
    job_id = service.create(job_body('echo "$RANK of $WORLD_SIZE"; sleep 1', Roles=roles))
    job = service.until(job_id)
    assert job["Status"] == "Succeed", job["ReasonMessage"]
    assert job["Roles"] == [{"Count": 1, **each} for each in roles]
    instances = {each["Name"]: (each["Role"], each["Status"]) for each in job["Instances"]}
    assert instances == {
        f"{job_id}-master-0": ("master", "Succeed"),
        f"{job_id}-worker-0": ("worker", "Succeed"),
        f"{job_id}-evaluator-0": ("evaluator", "Terminated"),
    }
    assert [logs(service, job_id, name) for name in ("master-0", "worker-0", "evaluator-0")] == [
        ["0 of 2"],
        ["1 of 2"],
        ["evaluates"],
    ]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"Roles": [role("Worker", RestartPolicy="OnFailure")]}, "restart_policy"),
        ({"Roles": [role("Worker", StartAfter=[{"Role": "PS", "MinCount": 2}]), role("PS")]}, "min_count"),
        ({"Roles": [role("Worker", StartAfter=[{"Role": "PS", "Phase": "Succeeded"}]), role("PS")]}, "phase"),
        ({"Roles": [role("Evaluator")]}, "roles"),
        ({"Roles": [role("Worker", Count=100_000)]}, "Roles"),
        ({"Mounts": [{"Path": "/etc", "Uri": "oss://pai-local/x/"}]}, "mounts['/etc']"),
        ({"Mounts": [{"Path": "/data", "Uri": "nas://x.cn/x/"}]}, "Mounts /data"),
        ({"Mounts": [{"Path": "/data", "Uri": "oss://another/x/"}]}, "Mounts /data"),
    ],
)
def test_what_no_executor_runs_is_refused(service: Client, fields: dict[str, Any], where: str) -> None:
    answer = service.call("POST", "/trainingjobs", body=job_body(**fields))
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    assert where in answer.json()["Message"]


def test_roles_are_sent_to_services_that_announce_them(service: Client, start: Callable[..., Any]) -> None:
    roles = {"Worker": Role(), "Evaluator": Role(command="sleep 600")}
    described: dict[str, Any] = {"roles": roles, "instance_type": "ecs.c6.large"}
    with session_on(service.info) as session:
        job = Estimator("none", "true", session=session, **described).fit(wait=False, show_logs=False)
        assert service.until(job.id)["Status"] == "Succeed"
    with start(foreign=ForeignCloud()) as client, session_on(client.info) as session:
        with pytest.raises(InvalidInputError) as caught:
            Estimator("none", "true", session=session, **described).fit(wait=False, show_logs=False)
        assert [problem.where for problem in caught.value.problems] == ["roles"]
        assert client.get("/trainingjobs")["TotalCount"] == 0


@needs_mounts
def test_a_mount_is_saved_with_what_was_deleted(service: Client) -> None:
    bucket, name = service.bucket(), service.info.bucket
    for key in ("in/a.txt", "kept/b.txt", "kept/c.txt", "kept/sub/d.txt"):
        bucket.put_object(key, key)
    mounts = [
        {"Path": "/mnt/data", "Uri": f"oss://{name}/in/", "Access": "RO"},
        {"Path": "/mnt/work", "Uri": f"oss://{name}/kept/", "Access": "RW"},
        {"Path": "/mnt/new", "Uri": f"oss://{name}/new/", "Access": "RW"},
    ]
    command = "cat /mnt/data/a.txt; cd /mnt/work; rm b.txt; echo more >>c.txt; echo new >/mnt/new/e.txt"
    job = service.until(service.create(job_body(command, Mounts=mounts)))
    assert job["Status"] == "Succeed", job["ReasonMessage"]
    listings = [bucket.list_objects(prefix).object_list for prefix in ("in/", "kept/", "new/")]
    stored = {entry.key for listing in listings for entry in listing}
    assert stored == {"in/a.txt", "kept/c.txt", "kept/sub/d.txt", "new/e.txt"}
    assert bucket.get_object("kept/c.txt").read() == b"kept/c.txtmore\n"


@needs_mounts
@pytest.mark.parametrize("access", ["RO", "RW"])
def test_a_script_in_a_mount_can_be_executed(service: Client, access: str) -> None:
    service.bucket().put_object("scripts/run.sh", "#!/bin/sh\necho ran\n")
    mounts = [{"Path": "/mnt/scripts", "Uri": f"oss://{service.info.bucket}/scripts/", "Access": access}]
    job = service.until(service.create(job_body("cd /mnt/scripts; ./run.sh", Mounts=mounts)))
    assert job["Status"] == "Succeed", job["ReasonMessage"]
    assert logs(service, job["TrainingJobId"], "master-0") == ["ran"]


@needs_mounts
def test_a_mount_without_files_ends_the_job(service: Client) -> None:
    mounts = [{"Path": "/mnt/data", "Uri": f"oss://{service.info.bucket}/nothing/", "Access": "RO"}]
    job = service.until(service.create(job_body(Mounts=mounts)))
    assert (job["Status"], job["ReasonCode"]) == ("InitializeFailed", "InputNotFound")


@needs_mounts
def test_a_job_of_dlc_has_its_data_sources_and_roles(service: Client) -> None:
    dlc, name = DlcClient(service.info), service.info.bucket
    service.bucket().put_object("data/a.txt", "data\n")
    specs = [
        {"Type": "PS", "PodCount": 1, "Image": "none", "EcsSpec": "local", "UserCommand": "sleep 600"},
        {"Type": "Worker", "PodCount": 1, "Image": "none", "EcsSpec": "local"},
    ]
    source = {"Uri": f"oss://{name}.oss-cn-hangzhou-internal.aliyuncs.com/data/", "MountPath": "/mnt/data"}
    body = dlc_body(
        'cat /mnt/data/a.txt; echo "$JOB_NAME $DLC_JOB_ID"; echo "$TF_CONFIG"; echo more >/mnt/data/b.txt',
        JobType="TFJob",
        JobSpecs=specs,
        DataSources=[{**source, "MountAccess": "RW"}],
    )
    job_id = dlc.create(body)
    job = dlc.until(job_id)
    assert job["Status"] == "Succeeded", job
    assert [(pod["PodId"], pod["Type"]) for pod in job["Pods"]] == [
        (f"{job_id}-ps-0", "ps"),
        (f"{job_id}-worker-0", "worker"),
    ]
    lines = dlc.do("GetPodLogs", ids={"job_id": job_id, "pod_id": f"{job_id}-worker-0"})["Logs"]
    assert lines[:2] == ["data", f"{job_id} {job_id}"]
    assert '"ps":' in lines[2]
    assert service.bucket().get_object("data/b.txt").read() == b"more\n"
