"""Jobs of the API of DLC on a service that runs them: create, follow, stop, change, delete."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from pai_sdk._wire.dlc.times import seconds_of, wire_time
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.services import Client, job_body
from tests.support.waiting import until

GMT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def dlc(service: Client) -> DlcClient:
    return DlcClient(service.info)


def spec(role: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"Type": role, "PodCount": count, "Image": "none", "EcsSpec": "local", **fields}


def test_a_job_runs_and_tells_all_of_itself(dlc: DlcClient) -> None:
    sent = dlc_body(
        'echo "rank $RANK of $WORLD_SIZE: $GREETING $PAI_HPS"',
        DisplayName="first.job_1",
        Envs={"GREETING": "hello", "PAI_HPS": "mine"},
        CustomEnvs=[{"Key": "OTHER", "Value": "", "Visible": "public"}],
        JobSpecs=[spec("Worker", 2, ElasticSpotSpecs=[], LocalMountSpecs=[], StartupDependencies=[])],
        Settings={"Tags": {"team": "search"}, "Shell": "bash"},
        Description="a job",
        UserVpc={"VpcId": "vpc-1", "ExtendedCIDRs": ["10.0.0.0/8"]},
        JobMaxRunningTimeMinutes=5,
        ThirdpartyLibs=[],
    )
    job_id = dlc.create(sent)
    assert re.fullmatch("dlc[a-z0-9]{13}", job_id)
    job = dlc.until(job_id)
    assert (job["Status"], job["ReasonCode"]) == ("Succeeded", "JobSucceeded")
    assert job["ReasonMessage"] == f"PyTorchJob {job_id} is successfully completed."
    for name in ("DisplayName", "JobType", "UserCommand", "Envs", "CustomEnvs", "Settings", "Description"):
        assert job[name] == sent[name]
    assert job["JobSpecs"] == [spec("Worker", 2)]
    assert job["UserVpc"] == {"VpcId": "vpc-1", "ExtendedCidrs": ["10.0.0.0/8"]}
    assert job["JobMaxRunningTimeMinutes"] == 5
    statuses = [each["Status"] for each in job["StatusHistory"]]
    assert statuses == ["Creating", "Queuing", "EnvPreparing", "Running", "Succeeded"]
    times = ("Create", "Submitted", "Running", "Finish", "Successed")
    assert all(GMT.fullmatch(job[f"Gmt{name}Time"]) for name in times)
    assert not job.keys() & {"GmtFailedTime", "GmtStoppedTime"}
    pods = {pod["PodId"]: pod for pod in job["Pods"]}
    assert [*pods] == [f"{job_id}-master-0", f"{job_id}-worker-0"]
    assert [pod["Type"] for pod in pods.values()] == ["master", "worker"]
    assert {pod["Status"] for pod in pods.values()} == {"Succeeded"}
    for rank, (pod_id, pod) in enumerate(pods.items()):
        logs = dlc.do("GetPodLogs", ids={"job_id": job_id, "pod_id": pod_id})
        assert logs["Logs"] == [f"rank {rank} of 2: hello mine"]
        assert (logs["JobId"], logs["PodId"], logs["PodUid"]) == (job_id, pod_id, pod["PodUid"])
    brief = dlc.do("GetJob", ids={"job_id": job_id}, NeedDetail="False")
    assert brief.keys() & {"Pods", "StatusHistory", "Status"} == {"Status"}


def test_a_failed_job_says_why(dlc: DlcClient) -> None:
    job = dlc.until(dlc.create(dlc_body("exit 3")))
    assert (job["Status"], job["ReasonCode"], job["Pods"][0]["Status"]) == ("Failed", "NonZeroExit", "Failed")
    assert job["GmtFailedTime"] == job["GmtFinishTime"]


def test_a_command_may_be_written_for_bash(dlc: DlcClient) -> None:
    job = dlc.until(dlc.create(dlc_body("source /dev/null && [[ $0 == bash ]]")))
    assert job["Status"] == "Succeeded"


def test_a_job_is_stopped_once(dlc: DlcClient) -> None:
    ids = {"job_id": dlc.create(dlc_body("sleep 600"))}
    dlc.until(ids["job_id"], "Running")
    assert dlc.refused("DeleteJob", ids=ids)[:2] == (400, "BadRequest")
    assert dlc.do("StopJob", ids=ids)["JobId"] == ids["job_id"]
    job = dlc.until(ids["job_id"])
    assert (job["Status"], job["ReasonCode"]) == ("Stopped", "JobStoppedByUser")
    assert job["GmtStoppedTime"] == job["GmtFinishTime"]
    message = "Job can't be stopped, because it is Stopped"
    assert dlc.refused("StopJob", ids=ids) == (400, "BadRequest", message)
    assert dlc.do("DeleteJob", ids=ids)["JobId"] == ids["job_id"]
    for action in ("GetJob", "StopJob", "DeleteJob", "GetJobEvents"):
        assert dlc.refused(action, ids=ids)[:2] == (404, "NotFound")


def test_logs_and_events_of_a_window(dlc: DlcClient) -> None:
    job_id = dlc.create(dlc_body("seq 5; sleep 3; seq 6 9"))
    job, ids = dlc.until(job_id), {"job_id": job_id, "pod_id": f"{job_id}-master-0"}
    numbers = [str(number) for number in range(1, 10)]

    def lines(**query: Any) -> list[str]:
        return dlc.do("GetPodLogs", ids=ids, **query)["Logs"]

    assert lines() == numbers
    assert lines(MaxLines=3) == numbers[-3:]
    # Windows whose seconds adjoin share no line, and lose none.
    first, last = (int(seconds_of(job[f"Gmt{name}Time"]) or 0) for name in ("Create", "Finish"))
    counts = set()
    for second in range(first - 1, last + 2):
        before = lines(EndTime=wire_time(second))
        assert before + lines(StartTime=wire_time(second + 1)) == numbers
        counts.add(len(before))
    # The numbers of one `seq` may lie on both sides of a second, so other counts are possible, too.
    assert counts >= {0, 5, 9}
    assert lines(StartTime="1970-01-01T00:00:00Z", EndTime=job["GmtFinishTime"]) == numbers
    assert lines(StartTime=int((time.time() + 60) * 1000)) == []
    assert lines(PodUid=job["Pods"][0]["PodUid"]) == numbers
    assert dlc.refused("GetPodLogs", ids=ids, PodUid="another")[:2] == (404, "NotFound")
    for pod in (f"{job_id}-worker-0", "x"):
        assert dlc.refused("GetPodLogs", ids={**ids, "pod_id": pod})[:2] == (404, "NotFound")
    for query in ({"MaxLines": 0}, {"StartTime": "soon"}, {"DownloadToFile": "True"}, {"MaxLines": "many"}):
        status, code, message = dlc.refused("GetPodLogs", ids=ids, **query)
        assert (status, code) == (400, "InvalidParameter")
        assert next(iter(query)) in message
    events = dlc.do("GetJobEvents", ids=ids)["Events"]
    assert events == sorted(events, key=lambda line: line[:20])
    assert dlc.do("GetJobEvents", ids=ids, MaxEventsNum=2)["Events"] == events[-2:]
    of_pod = dlc.do("GetPodEvents", ids=ids)["Events"]
    assert of_pod == [line for line in events if ids["pod_id"] in line]
    assert dlc.refused("GetJobEvents", ids=ids, MaxEventsNum=10_001)[:2] == (400, "InvalidParameter")


def test_metrics_of_pods(dlc: DlcClient) -> None:
    ids = {"job_id": dlc.create(dlc_body("sleep 2"))}
    dlc.until(ids["job_id"])
    for metric in ("CpuCoreUsage", "GpuMemoryUsage"):
        pods = dlc.do("GetJobMetrics", ids=ids, MetricType=metric, TimeStep="10s")["PodMetrics"]
        assert [pod["PodId"] for pod in pods] == [f"{ids['job_id']}-master-0"]
    assert dlc.refused("GetJobMetrics", ids=ids)[:2] == (400, "InvalidParameter")
    assert "TimeStep" in dlc.refused("GetJobMetrics", ids=ids, MetricType="CpuCoreUsage", TimeStep="x")[2]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"DisplayName": "a b"}, "DisplayName"),
        ({"DisplayName": None}, "DisplayName"),
        ({"JobType": "pytorch"}, "JobType"),
        ({"JobType": "MPIJob"}, "JobType"),
        ({"JobSpecs": []}, "JobSpecs"),
        ({"JobSpecs": [{"Type": "Worker", "Image": "i"}]}, "EcsSpec of JobSpec(Worker) must be present"),
        ({"UserCommand": ""}, "UserCommand"),
        ({"Priority": 10}, "Priority"),
        ({"Priority": "high"}, "Priority"),
        ({"UserCommand": "x" * 66_000}, "body"),
        ({"JobSpecs": [spec("Worker", 100_000)]}, "EcsCount"),
        ({"DataSources": [{"Uri": "nas://a.cn-x/b/", "MountPath": "/mnt"}]}, "DataSources[0]"),
        ({"DataSources": [{"Uri": "oss://none/b/", "MountPath": "/mnt"}]}, "no bucket 'none'"),
        (
            {"DataSources": [{"Uri": f"oss://b/{name}/", "MountPath": "/mnt"} for name in "ab"]},
            "different datasource can't have the same mount path",
        ),
        ({"WorkspaceId": "17"}, "no workspace '17'"),
    ],
)
def test_what_cannot_run_is_refused(dlc: DlcClient, changes: dict[str, Any], where: str) -> None:
    status, code, message = dlc.refused("CreateJob", dlc_body(**changes))
    assert (status, code) in ((400, "InvalidParameter"), (404, "WORKSPACE_NOT_FOUND"))
    assert where in message


def test_all_mistakes_at_once(dlc: DlcClient) -> None:
    message = dlc.refused("CreateJob", {})[2]
    assert all(name in message for name in ("DisplayName", "JobType", "JobSpecs", "UserCommand"))


def test_a_password_is_not_read_again(dlc: DlcClient) -> None:
    config = {"DockerRegistry": "r", "Username": "u", "Password": "secret", "Auth": "secret"}
    job_id = dlc.create(dlc_body(JobSpecs=[spec("Worker", ImageConfig=config)]))
    job = dlc.until(job_id)
    assert job["JobSpecs"][0]["ImageConfig"] == {"DockerRegistry": "r", "Username": "u"}
    listed = dlc.do("ListJobs", JobId=job_id)["Jobs"][0]
    assert "secret" not in str(listed)


def test_an_unknown_field_is_kept(dlc: DlcClient) -> None:
    job = dlc.until(dlc.create(dlc_body(NewField={"a": 1})))
    assert job["NewField"] == {"a": 1}


def test_training_jobs_and_jobs_of_dlc_are_apart(dlc: DlcClient, service: Client) -> None:
    training, job_id = service.create(job_body()), dlc.create(dlc_body())
    listed = {job["TrainingJobId"] for job in service.get("/trainingjobs", PageSize=1000)["TrainingJobs"]}
    assert training in listed
    assert job_id not in listed
    of_dlc = {job["JobId"] for job in dlc.do("ListJobs", PageSize=100)["Jobs"]}
    assert job_id in of_dlc
    assert training not in of_dlc
    for action in ("GetJob", "StopJob", "DeleteJob", "GetJobEvents"):
        assert dlc.refused(action, ids={"job_id": training})[:2] == (404, "NotFound")
    # What watches runs sees both.
    until(lambda: {training, job_id} <= {run["id"] for run in service.get("/runs", limit=1000)["runs"]})


def test_a_repeated_submission_is_one_job(dlc: DlcClient) -> None:
    body = dlc_body(Settings={"Tags": {"pai-sdk-submission": "once-only"}})
    assert dlc.create(body) == dlc.create(body)


def test_metrics_of_the_log_are_named_in_a_variable(dlc: DlcClient, service: Client) -> None:
    metrics = '[{"Name":"loss","Regex":"loss=([0-9.]+)","Description":"d"},{"Name":1},"x"]'
    job_id = dlc.create(dlc_body("echo loss=0.25", Envs={"PAI_SDK_METRICS": metrics}))
    dlc.until(job_id)
    latest = service.get(f"/trainingjobs/{job_id}/latestmetrics")["Metrics"]
    assert [(each["Name"], each["Value"]) for each in latest] == [("loss", 0.25)]
    dlc.until(dlc.create(dlc_body(Envs={"PAI_SDK_METRICS": "no json"})))


def test_a_job_is_run_again_from_the_page(dlc: DlcClient, service: Client) -> None:
    body = dlc_body(
        "echo $WORD",
        DisplayName="again",
        Envs={"WORD": "one", "PAI_HPS": "mine"},
        Settings={"Tags": {"a": "b", "pai-sdk-submission": "first-of-again"}},
        JobMaxRunningTimeMinutes=10,
    )
    first = dlc.create(body)
    dlc.until(first)
    form = service.get(f"/runs/{first}/rerun")["fields"]
    assert (form["command"], form["instance_count"], form["max_runtime_s"]) == ("echo $WORD", 1, 600)

    def rerun(token: str, **changes: Any) -> str:
        body = {"changes": changes, "token": token}
        answer = service.call("POST", f"/runs/{first}/rerun", body=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    changed = {"command": "echo $WORD $WORD", "instance_count": 2, "environment": {"WORD": "two"}}
    second = rerun("t" * 32, **changed, max_runtime_s=90, image="other")
    assert rerun("t" * 32, **changed, max_runtime_s=90, image="other") == second
    job = dlc.until(second)
    assert second.startswith("dlc")
    assert job["DisplayName"].startswith("again-")
    assert (job["Envs"], job["JobMaxRunningTimeMinutes"]) == ({"WORD": "two"}, 2)
    assert job["JobSpecs"] == [spec("Worker", 2) | {"Image": "other"}]
    assert job["Settings"]["Tags"]["a"] == "b"
    logs = dlc.do("GetPodLogs", ids={"job_id": second, "pod_id": f"{second}-worker-0"})["Logs"]
    assert logs == ["two two"]
