"""Every action of the API of DLC is there, by its version and path, for both kinds of signatures."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from typing import Any
from uuid import uuid4

import pytest
import requests

from pai_sdk._service.routes.api_app import create_api
from pai_sdk._service.routes.dlc.routers import ROUTERS
from pai_sdk._wire.dlc.actions import ACTIONS, API_VERSION
from pai_sdk._wire.signature import roa_signature
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.services import Client
from tests.support.waiting import PATIENCE_S

ROUTES = {
    (method, re.sub(r"\{\w+\}", "{}", route.path)): route.endpoint
    for router in ROUTERS
    for route in router.routes
    for method in route.methods
}
ABSENT = {"template_id": "template-x", "tensorboard_id": "tbx", "ray_history_server_id": "r-x", "signal_id": "s-x"}


@pytest.fixture(scope="module")
def dlc(service: Client) -> DlcClient:
    return DlcClient(service.info)


@pytest.fixture(scope="module")
def ids(dlc: DlcClient) -> dict[str, str]:
    job_id = dlc.create(dlc_body())
    dlc.until(job_id)
    return {**ABSENT, "job_id": job_id, "pod_id": f"{job_id}-master-0"}


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_has_a_route_that_names_it(name: str) -> None:
    action = ACTIONS[name]
    endpoint = ROUTES[action.method, re.sub(r"\{\w+\}", "{}", action.path)]
    assert (endpoint.__doc__ or "").startswith(name)


def test_no_route_is_there_twice() -> None:
    described = create_api(None)  # type: ignore[arg-type] # no request is answered by this one
    paths = [(method, route.path) for route in described.state.routes for method in route.methods]
    twice = {each for each in paths if paths.count(each) > 1}
    assert twice == {("GET", "/api/v1/tokens")}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("ListSignals", {"Signals": [], "TotalCount": 0}),
        ("GetDashboard", {}),
        ("GetRayDashboard", {}),
        ("ListJobSanityCheckResults", {"SanityCheckResults": [], "TotalCount": 0}),
        ("ListRayHistoryServers", {"RayHistoryServers": [], "TotalCount": 0}),
        ("ListJobTemplates", {"JobTemplates": [], "TotalCount": 0, "PageNumber": 1, "PageSize": 10}),
        ("ListTensorboards", {"Tensorboards": [], "TotalCount": 0}),
    ],
)
def test_lists_of_what_is_not_here_are_empty(
    dlc: DlcClient, ids: dict[str, str], name: str, fields: dict[str, Any]
) -> None:
    known = dlc.do(name, ids=ids)
    assert {key: value for key, value in known.items() if key not in ("RequestId", "JobId")} == fields


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("CreateSignal", (400, "NotSupported")),
        ("GetWebTerminal", (400, "NotSupported")),
        ("GetMetrics", (400, "NotSupported")),
        ("CreateRayHistoryServer", (400, "NotSupported")),
        ("GetSignal", (404, "NotFound")),
        ("GetJobSanityCheckResult", (404, "NotFound")),
        ("GetRayHistoryServer", (404, "NotFound")),
        ("StartRayHistoryServer", (404, "NotFound")),
        ("StopRayHistoryServer", (404, "NotFound")),
        ("DeleteRayHistoryServer", (404, "NotFound")),
        ("GetJobTemplate", (404, "NotFound")),
        ("UpdateJobTemplate", (404, "NotFound")),
        ("DeleteJobTemplate", (404, "NotFound")),
        ("SetJobTemplateDefaultVersion", (404, "NotFound")),
        ("GetTensorboard", (404, "NotFound")),
        ("StopTensorboard", (404, "NotFound")),
        ("StartTensorboard", (404, "NotFound")),
        ("UpdateTensorboard", (404, "NotFound")),
        ("DeleteTensorboard", (404, "NotFound")),
        ("GetTensorboardSharedUrl", (404, "NotFound")),
    ],
)
def test_what_is_not_here_is_refused_in_the_form_of_the_cloud(
    dlc: DlcClient, ids: dict[str, str], name: str, refusal: tuple[int, str]
) -> None:
    assert dlc.refused(name, {}, ids)[:2] == refusal


def test_the_version_selects_the_action(dlc: DlcClient, ids: dict[str, str], service: Client) -> None:
    of_dlc = {"TargetType": "job", "TargetId": ids["job_id"]}
    token = dlc.do("GetToken", **of_dlc)["Token"]
    assert dlc.do("GetJob", ids=ids, Token=token)["JobId"] == ids["job_id"]
    assert dlc.refused("GetToken")[:2] == (400, "InvalidParameter")
    assert service.get("/tokens")["Token"] != token
    for version in ("2022-01-12", "2021-02-04"):
        answer = dlc.call("GET", f"/api/v1/jobs/{ids['job_id']}", version=version)
        assert (answer.status_code, answer.json()["Code"]) == (404, "InvalidAction.NotFound")
    assert dlc.call("GET", "/api/v1/trainingjobs").status_code == 200


def roa(dlc: DlcClient, method: str, path: str, query: str = "", version: str | None = API_VERSION) -> Any:
    """A request with the older signature; its query is sent as it is."""
    headers = {
        "accept": "application/json",
        "date": formatdate(time.time(), usegmt=True),
        "host": dlc.info.endpoint.partition("://")[2],
        "x-acs-signature-nonce": str(uuid4()),
        "x-acs-signature-method": "HMAC-SHA1",
        "x-acs-signature-version": "1.0",
        **({"x-acs-version": version} if version else {}),
    }
    pairs = [part.partition("=") for part in query.split("&") if part]
    values = {key: requests.utils.unquote(value.replace("+", " ")) for key, _, value in pairs}
    signature = roa_signature(dlc.info.access_key_secret, method=method, path=path, query=values, headers=headers)
    headers["authorization"] = f"acs {dlc.info.access_key_id}:{signature}"
    url = f"{dlc.info.endpoint}{path}" + (f"?{query}" if query else "")
    return requests.request(method, url, headers=headers, timeout=PATIENCE_S)


def test_the_older_signature_and_a_space_as_plus(dlc: DlcClient) -> None:
    job_id = dlc.create(dlc_body(Settings={"Tags": {"k": "v w"}}))
    query = "ShowOwn=True&Tags=%7B%22k%22%3A%22v+w%22%7D"
    answer = roa(dlc, "GET", "/api/v1/jobs", query)
    assert answer.status_code == 200, answer.text
    assert [job["JobId"] for job in answer.json()["Jobs"]] == [job_id]


def test_a_path_of_dlc_alone_needs_no_version(dlc: DlcClient, ids: dict[str, str]) -> None:
    assert roa(dlc, "GET", f"/api/v1/jobs/{ids['job_id']}", version=None).json()["JobId"] == ids["job_id"]
    # This path is one of training jobs too, whose action it was before.
    assert "Token" in roa(dlc, "GET", "/api/v1/tokens", version=None).json()


def test_tags_of_jobs(dlc: DlcClient) -> None:
    first, second = (dlc.create(dlc_body(Settings={"Tags": {"old": "1"}})) for _ in range(2))
    tags = [{"Key": "new", "Value": "2"}, {"Key": "old", "Value": ""}]
    dlc.do("TagResources", {"ResourceType": "Job", "ResourceId": [first, second], "Tag": tags})
    for job_id in (first, second):
        assert dlc.do("GetJob", ids={"job_id": job_id})["Settings"]["Tags"] == {"new": "2", "old": ""}
    dlc.do("UntagResources", ResourceType="Job", ResourceId=f'["{first}"]', TagKey='["new"]')
    dlc.do("UntagResources", ResourceType="Job", ResourceId=f'["{second}"]', All="True")
    assert dlc.do("GetJob", ids={"job_id": first})["Settings"]["Tags"] == {"old": ""}
    assert "Settings" not in dlc.do("GetJob", ids={"job_id": second})
    missing = {"ResourceType": "Job", "ResourceId": [first, "dlcnone"], "Tag": [{"Key": "x", "Value": "1"}]}
    assert dlc.refused("TagResources", missing)[:2] == (404, "NotFound")
    assert "x" not in dlc.do("GetJob", ids={"job_id": first})["Settings"]["Tags"]
    assert dlc.refused("TagResources", {**missing, "ResourceId": []})[:2] == (400, "InvalidParameter")
    assert dlc.refused("TagResources", {**missing, "ResourceType": "Model"})[:2] == (400, "InvalidParameter")


def test_instance_types_and_counts(dlc: DlcClient, ids: dict[str, str]) -> None:
    (local,) = dlc.do("ListEcsSpecs", PageSize=10)["EcsSpecs"]
    assert local["InstanceType"] == "local"
    assert local["Cpu"] >= 1
    assert dlc.do("ListEcsSpecs", InstanceTypes="ecs.a,ecs.b")["EcsSpecs"] == []
    answer = dlc.call("GET", "/api/v1/batch/statistics/jobs", WorkspaceIds="1,2")
    counts = answer.json()["Statistics"]
    assert counts.keys() == {"1"}
    assert counts["1"]["Succeeded"] >= 1


def test_templates_have_versions_and_make_jobs(dlc: DlcClient) -> None:
    content = '{"JobType":"PyTorchJob","UserCommand":"echo of the template","Priority":2}'
    constraints = {"$.UserCommand": "locked", "$.JobSpecs[0].Image": "required"}
    new = {"TemplateName": "base", "Content": content, "Constraints": constraints, "Metadata": {"a": "b"}}
    created = dlc.do("CreateJobTemplate", new)
    ids = {"template_id": created["TemplateId"]}
    assert (created["Version"], created["DefaultVersion"], created["WorkspaceId"]) == (1, 1, "1")
    specs = dlc_body()["JobSpecs"]
    job_id = dlc.create({"DisplayName": "made", "JobSpecs": specs, "TemplateId": ids["template_id"]})
    job = dlc.until(job_id)
    assert (job["UserCommand"], job["Priority"]) == ("echo of the template", 2)
    assert (job["TemplateId"], job["TemplateVersion"]) == (ids["template_id"], 1)
    assert [each["JobId"] for each in dlc.do("ListJobs", TemplateId=ids["template_id"])["Jobs"]] == [job_id]
    locked = {"DisplayName": "x", "JobSpecs": specs, "UserCommand": "mine", "TemplateId": ids["template_id"]}
    assert "$.UserCommand: is locked" in dlc.refused("CreateJob", locked)[2]
    without = {"DisplayName": "x", "TemplateId": ids["template_id"]}
    assert "$.JobSpecs[0].Image: is required by the template" in dlc.refused("CreateJob", without)[2]

    update = dlc.do("UpdateJobTemplate", {"Content": content.replace("of", "from"), "Description": "d"}, ids)
    assert (update["Version"], update["DefaultVersion"], update["VersionCreated"]) == (2, 1, True)
    versions = dlc.do("GetJobTemplate", ids=ids)["Versions"]
    assert [each["Version"] for each in versions] == [1, 2]
    assert versions[1]["Constraints"] == constraints
    assert dlc.do("SetJobTemplateDefaultVersion", {"Version": 2}, ids)["DefaultVersion"] == 2
    assert dlc.refused("SetJobTemplateDefaultVersion", {"Version": 9}, ids)[:2] == (404, "NotFound")
    assert dlc.do("GetJobTemplate", ids=ids, Version="2")["Versions"][0]["Version"] == 2
    listed = dlc.do("ListJobTemplates", TemplateName="BAS")["JobTemplates"]
    assert [(each["TemplateId"], each["DefaultVersion"]) for each in listed] == [(ids["template_id"], 2)]
    assert dlc.refused("CreateJobTemplate", {"TemplateName": "x", "Content": "[]"})[:2] == (
        400,
        "InvalidParameter",
    )
    dlc.do("DeleteJobTemplate", ids=ids)
    assert dlc.refused("GetJobTemplate", ids=ids)[:2] == (404, "NotFound")


def test_tensorboards_are_links_to_the_page(dlc: DlcClient, ids: dict[str, str]) -> None:
    of_job = dlc.do("CreateTensorboard", {"JobId": ids["job_id"], "DisplayName": "curves"})
    of_source = dlc.do("CreateTensorboard", {"Uri": "oss://a/b/", "DisplayName": "other"})
    board = {"tensorboard_id": of_job["TensorboardId"]}
    known = dlc.do("GetTensorboard", ids=board)
    assert (known["Status"], known["JobId"]) == ("Running", ids["job_id"])
    assert known["TensorboardUrl"].endswith(f"run={ids['job_id']}")
    assert dlc.do("GetTensorboardSharedUrl", ids=board)["TensorboardSharedUrl"] == known["TensorboardUrl"]
    assert dlc.do("ListTensorboards", JobId=ids["job_id"])["TotalCount"] == 1
    dlc.do("StopTensorboard", ids=board)
    assert [each["TensorboardId"] for each in dlc.do("ListTensorboards", Status="Stopped")["Tensorboards"]] == [
        of_job["TensorboardId"]
    ]
    dlc.do("StartTensorboard", ids=board)
    dlc.do("UpdateTensorboard", ids=board, Accessibility="PUBLIC", MaxRunningTimeMinutes=60)
    known = dlc.do("GetTensorboard", ids=board)
    assert (known["Accessibility"], known["MaxRunningTimeMinutes"]) == ("PUBLIC", 60)
    both = {"JobId": ids["job_id"], "Uri": "oss://a/b/"}
    for wrong in (both, {}):
        assert dlc.refused("CreateTensorboard", wrong)[:2] == (400, "InvalidParameter")
    for each in (of_job, of_source):
        dlc.do("DeleteTensorboard", ids={"tensorboard_id": each["TensorboardId"]})


NUMBERS = ("PageNumber", "PageSize", "MaxLines", "MaxEventsNum", "Version", "NumericRangeMax", "CheckNumber")


@pytest.mark.parametrize("number", [1 << 31, 1 << 63, -1, 10**30])
@pytest.mark.parametrize("name", [name for name, action in ACTIONS.items() if action.method == "GET"])
def test_numbers_that_no_database_holds(dlc: DlcClient, ids: dict[str, str], name: str, number: int) -> None:
    action = ACTIONS[name]
    for field in NUMBERS:
        answer = dlc.call("GET", action.path_of(**ids), version=API_VERSION, **{field: str(number)})
        assert answer.status_code < 500, (field, answer.text)


@pytest.mark.parametrize("number", [1 << 31, 1 << 63, 10**30])
@pytest.mark.parametrize("field", ["Priority", "JobMaxRunningTimeMinutes", "TemplateVersion", "PodCount"])
def test_jobs_with_numbers_that_no_database_holds(dlc: DlcClient, field: str, number: int) -> None:
    body = dlc_body(**({} if field == "PodCount" else {field: number}))
    if field == "PodCount":
        body["JobSpecs"][0][field] = number
    answer = dlc.call("POST", "/api/v1/jobs", body)
    assert answer.status_code < 500, answer.text
