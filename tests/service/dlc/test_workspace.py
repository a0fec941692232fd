"""What jobs of DLC refer to: data sets with versions and labels, code sources, quotas; and who may see what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.dlc.dlc_client import WORKSPACE_VERSION, DlcClient, dlc_body
from tests.service.services import Client


@pytest.fixture(scope="module")
def dlc(service: Client) -> DlcClient:
    return DlcClient(service.info)


def ask(dlc: DlcClient, method: str, path: str, body: Any = None, **query: Any) -> dict[str, Any]:
    answer = dlc.call(method, f"/api/v1{path}", body, version=WORKSPACE_VERSION, **query)
    return {"status": answer.status_code, **answer.json()}


def dataset(uri: str = "oss://pai-local.oss-cn-x.aliyuncs.com/set/", **fields: Any) -> dict[str, Any]:
    return {"Name": "digits", "Uri": uri, "DataSourceType": "OSS", "Property": "DIRECTORY", **fields}


def test_data_sets_have_versions_and_labels(dlc: DlcClient) -> None:
    label = {"Key": "kind", "Value": "test"}
    new = dataset(
        Options='{"mountPath":"/mnt/data"}', Labels=[label], VersionDescription="first", DataType="COMMON"
    )
    path = f"/datasets/{ask(dlc, 'POST', '/datasets', new)['DatasetId']}"
    known = ask(dlc, "GET", path)
    assert (known["Name"], known["WorkspaceId"], known["Labels"]) == ("digits", "1", [label])
    assert (known["LatestVersion"]["VersionName"], known["LatestVersion"]["Description"]) == ("v1", "first")
    second = ask(dlc, "POST", f"{path}/versions", dataset("oss://pai-local/two/", Name=None))
    assert second["VersionName"] == "v2"
    assert ask(dlc, "GET", path)["LatestVersion"]["Uri"] == "oss://pai-local/two/"
    versions = ask(dlc, "GET", f"{path}/versions", PageSize=10)
    assert [each["VersionName"] for each in versions["DatasetVersions"]] == ["v2", "v1"]
    ask(dlc, "PUT", f"{path}/versions/v2", {"Description": "better"})
    ask(dlc, "PUT", f"{path}/versions/v2/labels", {"Labels": [{"Key": "a", "Value": "1"}]})
    version = ask(dlc, "GET", f"{path}/versions/v2")
    assert (version["Description"], version["Labels"]) == ("better", [{"Key": "a", "Value": "1"}])
    ask(dlc, "DELETE", f"{path}/versions/v2/labels", Keys="a")
    assert ask(dlc, "GET", f"{path}/versions/v2")["Labels"] == []
    ask(dlc, "DELETE", f"{path}/versions/v1")
    assert ask(dlc, "DELETE", f"{path}/versions/v2")["Code"] == "InvalidParameter"
    ask(dlc, "POST", f"{path}/labels", {"Labels": [{"Key": "b", "Value": "2"}]})
    ask(dlc, "DELETE", f"{path}/labels", LabelKeys="kind")
    ask(dlc, "PUT", path, {"Name": "digits-2", "Description": "about"})
    known = ask(dlc, "GET", path)
    assert (known["Name"], known["Description"]) == ("digits-2", "about")
    assert known["Labels"] == [{"Key": "b", "Value": "2"}]
    listed = ask(dlc, "GET", "/datasets", Name="DIGITS", DataSourceTypes="OSS,NAS", Properties="DIRECTORY")
    assert path.endswith(listed["Datasets"][0]["DatasetId"])
    assert ask(dlc, "GET", "/datasets", DataSourceTypes="NAS")["TotalCount"] == 0
    assert ask(dlc, "DELETE", path)["status"] == 200
    assert ask(dlc, "GET", path)["Code"] == "NotFound"
    for wrong in ({"Name": "x"}, dataset(Property="TABLE"), dataset(Options="x"), dataset(Name="-")):
        assert ask(dlc, "POST", "/datasets", wrong)["Code"] == "InvalidParameter"


def test_code_sources(dlc: DlcClient) -> None:
    new = {
        "DisplayName": "repo",
        "CodeRepo": "https://example.org/a.git",
        "MountPath": "/mnt/code",
        "CodeRepoAccessToken": "secret",
    }
    path = f"/codesources/{ask(dlc, 'POST', '/codesources', new)['CodeSourceId']}"
    ask(dlc, "PUT", path, {"CodeBranch": "main"})
    ask(dlc, "PUT", f"{path}/publish")
    known = ask(dlc, "GET", path)
    assert (known["CodeBranch"], known["MountPath"], known["Accessibility"]) == ("main", "/mnt/code", "PUBLIC")
    listed = ask(dlc, "GET", "/codesources", DisplayName="rep")
    assert listed["TotalCount"] == 1
    assert "secret" not in f"{known} {listed}"
    assert ask(dlc, "POST", "/codesources", {})["Code"] == "InvalidParameter"
    ask(dlc, "DELETE", path)
    assert ask(dlc, "GET", path)["Code"] == "NotFound"


def test_there_are_no_quotas(dlc: DlcClient) -> None:
    assert ask(dlc, "GET", "/quotas")["Quotas"] == []


def test_jobs_mount_folders_and_data_sets(dlc: DlcClient, service: Client) -> None:
    bucket = service.bucket()
    bucket.put_object("set/one.txt", b"1\n")
    bucket.put_object("old/kept.txt", b"kept")
    new = dataset(f"oss://{service.info.bucket}.oss-cn-x.aliyuncs.com/set/", Options='{"mountPath":"/mnt/data"}')
    dataset_id = ask(dlc, "POST", "/datasets", new)["DatasetId"]
    sources = [
        {"DataSourceId": dataset_id},
        {"Uri": f"oss://{service.info.bucket}/old/", "MountPath": "/mnt/out", "MountAccess": "RW"},
    ]
    specs = [
        {"Type": "Worker", "PodCount": 1, "Image": "i", "EcsSpec": "local"},
        {
            "Type": "Master",
            "PodCount": 1,
            "Image": "i",
            "EcsSpec": "local",
            "UserCommand": "cat /mnt/data/one.txt",
        },
    ]
    command = "cat /mnt/out/kept.txt; echo new > /mnt/out/new.txt"
    job_id = dlc.create(dlc_body(command, DataSources=sources, JobSpecs=specs))
    job = dlc.until(job_id)
    assert job["Status"] == "Succeeded", job
    logs = [dlc.do("GetPodLogs", ids={"job_id": job_id, "pod_id": pod["PodId"]})["Logs"] for pod in job["Pods"]]
    assert logs == [["1"], ["kept"]]
    assert bucket.get_object("old/new.txt").read() == b"new\n"
    assert job["DataSources"] == sources
    missing = {"DataSourceId": "d-none00"}
    assert dlc.refused("CreateJob", dlc_body(DataSources=[missing]))[:2] == (404, "NotFound")


def test_users_have_jobs_and_records_of_their_own(start: Callable[..., Any], tmp_path: Path) -> None:
    with start() as client:
        users: dict[str, DlcClient] = {}
        for name, right in (("ann", "submit"), ("bob", "submit"), ("eve", "read")):
            client.call("POST", "/users", body={"Name": name, "Right": right})
            key = client.call("POST", f"/users/{name}/keys", body={}).json()
            users[name] = DlcClient(client.info, (key["AccessKeyId"], key["AccessKeySecret"]))
            client.call(
                "POST",
                "/workspaces/1/members",
                body={"Members": [{"UserId": name, "Roles": ["PAI.AlgoDeveloper"]}]},
            )
        ann, bob, eve = users.values()
        job_id = ann.create(dlc_body("sleep 600"))
        ids = {"job_id": job_id, "pod_id": f"{job_id}-master-0"}
        for action in (
            "GetJob",
            "StopJob",
            "DeleteJob",
            "GetJobEvents",
            "GetPodLogs",
            "UpdateJob",
            "GetDashboard",
        ):
            assert bob.refused(action, {}, ids)[:2] == (404, "NotFound")
        tags = {"ResourceType": "Job", "ResourceId": [job_id], "Tag": [{"Key": "a", "Value": "b"}]}
        assert bob.refused("TagResources", tags)[:2] == (404, "NotFound")
        assert bob.refused("CreateTensorboard", {"JobId": job_id})[:2] == (404, "NotFound")
        assert bob.refused("GetToken", TargetType="job", TargetId=job_id)[:2] == (404, "NotFound")
        assert bob.do("ListJobs")["Jobs"] == []
        assert eve.refused("CreateJob", dlc_body())[:2] == (403, "Forbidden.NoPermission")
        private = {"Uri": "oss://pai-local-ann/a/", "MountPath": "/mnt/a"}
        assert "no bucket" in bob.refused("CreateJob", dlc_body(DataSources=[private]))[2]
        path = f"/datasets/{ask(ann, 'POST', '/datasets', dataset())['DatasetId']}"
        assert ask(bob, "GET", path)["Code"] == "NotFound"
        ann.do("UpdateJob", {"Accessibility": "PUBLIC"}, ids)
        ask(ann, "PUT", f"{path}/publish")
        assert bob.do("GetJob", ids=ids)["UserId"] == "ann"
        assert bob.refused("StopJob", ids=ids)[:2] == (403, "Forbidden.NoPermission")
        assert ask(bob, "GET", path)["Name"] == "digits"
        assert ask(bob, "DELETE", path)["Code"] == "Forbidden.NoPermission"
        ann.do("StopJob", ids=ids)
        entries = client.get("/audit", PageSize=100)["Entries"]
        created = [each for each in entries if each["Path"] == "/api/v1/jobs" and each["Status"] == 200]
        assert [(each["User"], each["CreatedId"]) for each in created] == [("ann", job_id)]
