"""A key that may only read, with requests that schemathesis makes from the description: they change nothing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from sqlalchemy import MetaData, create_engine, select

from pai_sdk._client.api.transport import Acs3Auth
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._service.state.models import AuditRow, JobStar, SavedViewRow
from pai_sdk._wire.dlc.actions import API_VERSION
from tests.service.dlc.dlc_client import DlcClient, dlc_body
from tests.service.fakes import ScriptedExecutor
from tests.service.http.test_openapi import DLC_PATHS, EXAMPLES, OPERATIONS, SLOWEST_S, _lead_inside
from tests.service.identity.test_tables_of_users import tables
from tests.service.identity.test_two_users import user
from tests.service.postgres import url_for
from tests.service.services import Client, job_body, running_service

# A reader puts stars on jobs, and saves views.
ITS_OWN_TABLES = (AuditRow.__tablename__, JobStar.__tablename__, SavedViewRow.__tablename__)
ITS_OWN = ("nonces", "locks", "service.log")  # what every request changes, whatever it asks for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("read-only") / "data"


@pytest.fixture(scope="module")
def operator(folder: Path) -> Iterator[Client]:
    with running_service(folder, ScriptedExecutor(), max_hold_s=0.1, max_stream_s=0.1) as client:
        yield client


@pytest.fixture(scope="module")
def reader(operator: Client) -> tuple[Client, str, str]:
    """A user with a job, objects, a table, a model, an experiment and a schedule, whose right is now to read."""
    carol = user(operator, "carol")
    job_id = carol.create(job_body(Labels=[{"Key": "a", "Value": "b"}]))
    carol.until(job_id, "Running")
    carol.bucket().put_object("file", b"x")
    tables(carol).create_table("rows", "n bigint")
    for path, body in (
        ("/models", {"ModelName": "m"}),
        ("/experiments", {"Name": "e"}),
        ("/algorithms", {"AlgorithmName": "a"}),
        ("/schedules", {"Name": "s", "Cron": "0 0 29 2 *", "Request": job_body()}),
    ):
        assert carol.call("POST", path, body=body).status_code == 200
    carol_of_dlc = DlcClient(carol.info)
    dlc_id = carol_of_dlc.create(dlc_body())
    carol_of_dlc.until(dlc_id, "Running")
    carol_of_dlc.do("CreateTensorboard", {"JobId": dlc_id})
    operator.call("PUT", "/users/carol", body={"Right": "read"})
    return carol, job_id, dlc_id


def files(folder: Path) -> dict[str, str]:
    """A digest of each file of the folder, without databases and what every request changes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        is_its_own = name.startswith(ITS_OWN) or path.name == "watch.json"  # of the rules, which time changes
        if path.is_file() and not is_its_own and ".db" not in path.name:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def rows(url: str) -> dict[str, list[Any]]:
    """All rows of a database but those of the audit log, and of the lease, which the service renews."""
    engine = create_engine(url)
    described = MetaData()
    described.reflect(engine)
    with engine.connect() as connection:
        found = {
            table.name: sorted(map(repr, connection.execute(select(table))))
            for table in described.sorted_tables
            if table.name not in (*ITS_OWN_TABLES, "service_lease")
        }
    engine.dispose()
    return found


def snapshot(folder: Path) -> dict[str, Any]:
    databases = {str(path.relative_to(folder)): rows(f"sqlite:///{path}") for path in folder.rglob("*.db")}
    url = url_for(folder)
    return {"files": files(folder), **databases, **({"jobs": rows(url)} if url else {})}


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_changes_anything(folder: Path, reader: tuple[Client, str, str], mode: GenerationMode) -> None:
    client, job_id, dlc_id = reader
    key = static_credentials(client.info.access_key_id, client.info.access_key_secret)
    before = snapshot(folder)
    assert sum(map(len, before.values())) > 10
    statuses: set[int] = set()

    for operation in OPERATIONS.values():

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            derandomize="SCHEMATHESIS_EXAMPLES" not in os.environ,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
        def check(case: Any, known: bool) -> None:
            is_of_dlc = case.path in DLC_PATHS
            auth = Acs3Auth(key, "Any", API_VERSION if is_of_dlc else "2022-01-12")
            if known:
                _lead_inside(case, job_id, dlc_id)
            if known and case.method == "DELETE":
                for name in {"job_id", "run_id"} & set(case.path_parameters or {}):
                    case.path_parameters[name] = dlc_id if is_of_dlc else job_id
            try:
                url = client.info.endpoint
                answer = case.call(base_url=url, session=client.session, auth=auth, timeout=SLOWEST_S)
            except requests.exceptions.InvalidHeader:
                return  # it never left
            statuses.add(answer.status_code)
            assert answer.status_code < 500 or answer.status_code == 501, case.as_curl_command()

        check()
    assert 403 in statuses
    assert snapshot(folder) == before
