"""Jobs of DLC whose pods the service starts again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pai_sdk._service.settings import Pace
from pai_sdk._wire.dlc.actions import ACTIONS
from tests.service.dlc.dlc_client import DlcClient, dlc_body


def dying(**tags: str) -> dict[str, Any]:
    tags = {"pai-sdk.max_retries": "1", "pai-sdk.retry_on": "KilledBySignal", **tags}
    return dlc_body("kill -9 $$", Settings={"Tags": tags})


def test_a_job_is_restarting_until_it_runs_again(start: Callable[..., Any]) -> None:
    with start(pace=Pace(first_retry_wait_s=3600)) as client:
        dlc = DlcClient(client.info)
        job_id = dlc.create(dying())
        job = dlc.until(job_id, "Restarting")
        (restart,) = job["RestartRecord"]
        assert (restart["JobRestartCount"], restart["Reason"]) == (1, "KilledBySignal")
        assert "RestartDurationInSec" not in restart
        assert restart["DetailErrorInfoList"][0]["ErrorCode"] == "KilledBySignal"
        for status, ids in (("Restarting", [job_id]), ("Queuing", [])):
            assert [each["JobId"] for each in dlc.do("ListJobs", Status=status)["Jobs"]] == ids
        counts = dlc.call("GET", "/api/v1/batch/statistics/jobs", WorkspaceIds="1").json()
        assert counts["Statistics"] == {"1": {"Restarting": 1}}
        assert [pod["HistoryPods"][0]["Status"] for pod in job["Pods"]] == ["Failed"]


def test_a_restarted_job_says_how_often_and_how_long(start: Callable[..., Any]) -> None:
    with start(pace=Pace(first_retry_wait_s=0.2)) as client:
        dlc = DlcClient(client.info)
        job = dlc.until(dlc.create(dying()))
        assert (job["Status"], job["ReasonCode"], job["RestartTimes"]) == ("Failed", "KilledBySignal", "1")
        (restart,) = job["RestartRecord"]
        assert restart["RestartDurationInSec"] >= 1
        words = [each["Status"] for each in job["StatusHistory"]]
        attempt = ["Running", "Failed"]
        assert words == ["Creating", "Queuing", "EnvPreparing", "Running", "Restarting", "Restarting", *attempt]
        assert all(pod["Duration"] >= 1 for pod in job["Pods"])


def test_each_attempt_of_a_pod_has_its_lines(start: Callable[..., Any]) -> None:
    tags = {"pai-sdk.max_retries": "1", "pai-sdk.retry_on": "KilledBySignal"}
    # The same lines in both attempts, so each has as many as the other.
    body = dlc_body("echo begins; sleep 1.2; kill -9 $$", Settings={"Tags": tags})
    with start(pace=Pace(first_retry_wait_s=1.2)) as client:
        dlc = DlcClient(client.info)
        job = dlc.until(dlc.create(body))
        (pod,) = job["Pods"]
        ids = {"job_id": job["JobId"], "pod_id": pod["PodId"]}
        path = ACTIONS["GetPodLogs"].path_of(**ids)
        former, last, whole = (
            dlc.call("GET", path, **query)
            for query in ({"PodUid": pod["HistoryPods"][0]["PodUid"]}, {"PodUid": pod["PodUid"]}, {})
        )
        assert [each.json()["Logs"].count("begins") for each in (former, last, whole)] == [1, 1, 2]
        ended = [each.headers.get("x-pai-log-complete") for each in (former, last, whole)]
        assert ended == [None, "true", "true"]
        assert "x-pai-log-complete" not in dlc.call("GET", path, EndTime=job["GmtFinishTime"]).headers


def test_tags_that_are_no_retries_are_refused(start: Callable[..., Any]) -> None:
    with start() as client:
        code, _, message = DlcClient(client.info).refused("CreateJob", dying(**{"pai-sdk.max_retries": "many"}))
        assert (code, "max_retries" in message) == (400, True)
