"""Whatever a client with the key sends: an answer in the right form and in time, never a fault of ours.

The OpenAPI description that the service publishes is the source (schemathesis). With SCHEMATHESIS_EXAMPLES=200, it
tries more than CI does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.http.description import describe
from pai_sdk._service.routes.api_app import create_api
from pai_sdk._service.routes.dlc.routers import ROUTERS
from pai_sdk._wire.dlc.actions import API_VERSION
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import PATIENCE_S

EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "3"))
SLOWEST_S = PATIENCE_S

DESCRIPTION = describe(create_api(None))  # type: ignore[arg-type] # no request is answered by this one
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
OPERATIONS = {
    f"{operation.ok().method.upper()} {operation.ok().path}": operation.ok()
    for operation in SCHEMA.get_all_operations()
    if isinstance(operation, Ok)
}


def _response_schema(operation: dict[str, Any]) -> dict[str, Any] | None:
    content = operation["responses"]["200"].get("content", {})
    return content.get("application/json", {}).get("schema") or None


DLC_PATHS = {route.path for router in ROUTERS for route in router.routes}

VALIDATORS = {
    f"{method.upper()} {path}": Draft202012Validator({**schema, "components": DESCRIPTION["components"]})
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
    if (schema := _response_schema(operation)) is not None
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, str]]:
    """A service with a job that has some of everything."""
    folder = tmp_path_factory.mktemp("openapi") / "data"
    with running_service(folder, ScriptedExecutor(), max_hold_s=0.1, max_stream_s=0.1) as client:
        job_id = client.create(job_body(Labels=[{"Key": "a", "Value": "b"}]))
        client.until(job_id, "Running")
        yield client, job_id


@pytest.fixture(scope="module")
def dlc_job(service: tuple[Client, str]) -> str:
    return DlcClient(service[0].info).create(dlc_body())


def test_the_description_is_published_with_and_without_a_key(service: tuple[Client, str]) -> None:
    client, _ = service
    url = f"{client.info.endpoint}/openapi.json"
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    for auth in (None, Acs3Auth(key, "Any", "2022-01-12")):
        answer = requests.get(url, auth=auth, timeout=PATIENCE_S)
        assert answer.status_code == 200
        assert answer.json() == DESCRIPTION
    assert requests.head(url, timeout=PATIENCE_S).status_code == 200
    assert requests.put(url, data=b"x", timeout=PATIENCE_S).status_code == 403
    create = DESCRIPTION["paths"]["/api/v1/trainingjobs"]["post"]
    assert create["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/TrainingJobRequest")
    assert "TrainingJobName" in DESCRIPTION["components"]["schemas"]["TrainingJobRequest"]["properties"]


def test_every_route_describes_its_response() -> None:
    silent = {
        f"{method.upper()} {path}"
        for path, methods in DESCRIPTION["paths"].items()
        for method in methods
        if f"{method.upper()} {path}" not in VALIDATORS
    }
    of_run = "GET /api/v1/runs/{run_id}"
    # Streams, files, an image and frames: their types are no JSON.
    assert silent == {
        "GET /api/v1/events",
        "GET /api/v1/trainingjobs/{job_id}/instances/{instance}/tunnel/sessions/{session_id}",
        *(f"{of_run}/{part}" for part in ("log/search", "log/file", "media/image", "files/preview")),
    }


def test_what_was_created_is_returned_as_described(service: tuple[Client, str]) -> None:
    client, job_id = service
    label = {"Key": "a", "Value": "b"}
    member = {"UserId": "digits", "Roles": ["PAI.AlgoDeveloper"]}
    spec = {"Image": "i", "Command": ["true"], "HyperParameters": [{"Name": "lr", "Range": {"Enum": ["1"]}}]}
    created: dict[str, Any] = {}
    for path, body in (
        ("/algorithms", {"AlgorithmName": "digits"}),
        ("/algorithms/{algorithm_id}/versions/{version}", {"AlgorithmSpec": spec}),
        ("/experiments", {"Name": "digits", "Labels": [label]}),
        ("/models", {"ModelName": "digits", "Labels": [label], "ExtraInfo": {"a": [None, 1]}}),
        ("/models/{model_id}/versions", {"Uri": "oss://a/b/", "Metrics": {"acc": 0.5}, "Labels": [label]}),
        ("/schedules", {"Name": "digits", "Cron": "0 3 * * *", "Request": job_body()}),
        ("/trainingjobs/changes", {"Known": {job_id: ""}}),
        ("/workspaces", {"WorkspaceName": "digits"}),
        ("/users", {"Name": "digits"}),
        (
            "/workspaces/{workspace_id}/members",
            {"Members": [member]},
        ),
    ):
        created |= _described(client, "POST", path, created, body)
        created = {**{_snake(name): value for name, value in created.items()}, "version": "v1"}
    created |= {"version": created["version_name"], "name": "digits", "job_id": job_id, "run_id": job_id}
    for path in (
        "/models/{model_id}/versions/{version}",
        "/models/{model_id}/versions",
        "/models/{model_id}",
        "/models",
        "/experiments/{experiment_id}",
        "/experiments",
        "/algorithms/{algorithm_id}",
        "/algorithms/{algorithm_id}/versions",
        "/algorithms",
        "/images",
        "/workspaces/{workspace_id}",
        "/workspaces/{workspace_id}/members",
        "/workspaces",
        "/users/{name}/quota",
        "/users/{name}",
        "/users",
        "/audit",
        "/trainingjobs/{job_id}",
        "/trainingjobs/{job_id}/errorinfo",
        "/trainingjobs/{job_id}/events",
        "/trainingjobs/{job_id}/latestmetrics",
        "/trainingjobs/{job_id}/logs",
        "/trainingjobs/{job_id}/metrics",
        "/trainingjobs/{job_id}/outputmodels",
        "/runs",
        "/runs/{run_id}",
        "/runs/{run_id}/events",
        "/runs/{run_id}/files",
        "/runs/{run_id}/job",
        "/runs/{run_id}/log",
        "/runs/{run_id}/rerun",
        "/runs/{run_id}/tags",
        "/runs/{run_id}/usage",
        "/schedules/{schedule_id}",
        "/schedules",
        "/trainingjobs",
    ):
        _described(client, "GET", path, created)
    _described(client, "GET", "/algorithms/{algorithm_id}/versions/{version}", {**created, "version": "v1"})


def _described(client: Client, method: str, path: str, names: dict[str, Any], body: Any = None) -> dict[str, Any]:
    answer = client.call(method, path.format(**names), body=body)
    assert answer.status_code == 200, answer.text
    VALIDATORS[f"{method} /api/v1{path}"].validate(answer.json())
    return answer.json()


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_a_key_of_that_name_is_an_object(service: tuple[Client, str]) -> None:
    client, _ = service
    host = client.info.oss_endpoint.removeprefix("http://").replace("127.0.0.1", "pai-local.localhost")
    url = f"{client.info.oss_endpoint}/openapi.json"
    assert requests.get(url, headers={"Host": host}, timeout=PATIENCE_S).status_code == 403


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_no_request_meets_a_fault(
    service: tuple[Client, str], dlc_job: str, name: str, mode: GenerationMode
) -> None:
    client, known_job = service
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    auth = Acs3Auth(key, "Any", API_VERSION if OPERATIONS[name].path in DLC_PATHS else "2022-01-12")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        derandomize="SCHEMATHESIS_EXAMPLES" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[name].as_strategy(generation_mode=mode), known=st.booleans())
    def check(case: Any, known: bool) -> None:
        if known:
            _lead_inside(case, known_job, dlc_job)
        try:
            answer = case.call(base_url=client.info.endpoint, session=client.session, auth=auth, timeout=SLOWEST_S)
        except requests.exceptions.InvalidHeader:
            return  # it never left
        status, what = answer.status_code, f"{case.as_curl_command()}\n{answer.content[:500]!r}"
        assert status < 500 or status == 501, what
        if status == 431:
            return  # the head was too long for the connection, before any route
        if status != 304 and (status >= 400 or answer.headers["content-type"] == "application/json"):
            said = answer.json()
            if answer.status_code == 200 and (validator := VALIDATORS.get(name)) is not None:
                validator.validate(said)
            # The same runs give the same bytes, so their answers have the id in a header only.
            assert "RequestId" in said or (status < 400 and _is_of_runs(case.path)), what
            assert answer.headers["x-acs-request-id"], what
            assert status < 400 or set(said) == {"RequestId", "Code", "Message", "HostId"}, what

    check()


def _is_of_runs(path: str) -> bool:
    return path.startswith(("/api/v1/runs", "/api/v1/compare", "/api/v1/hparams"))


def _lead_inside(case: Any, job_id: str, dlc_id: str) -> None:
    """Past the first refusals: to a job that is there, without a random token, with a body that lacks nothing."""
    for name in {"job_id", "run_id"} & set(case.path_parameters or {}):
        if case.method != "DELETE":
            case.path_parameters[name] = dlc_id if case.path in DLC_PATHS else job_id
    if isinstance(case.query, dict):
        single = {
            name: value[-1] if isinstance(value, list) and value else value for name, value in case.query.items()
        }
        case.query = {name: value for name, value in single.items() if name != "Token"}
    if case.path == "/api/v1/jobs" and isinstance(case.body, dict):
        case.body = {**dlc_body(), **case.body}
    if case.path == "/api/v1/trainingjobs" and isinstance(case.body, dict):
        case.body = {**job_body(), **case.body}
        spec = case.body["AlgorithmSpec"]
        if isinstance(spec, dict):
            case.body["AlgorithmSpec"] = {**job_body()["AlgorithmSpec"], **spec}
