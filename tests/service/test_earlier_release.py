"""A data folder that an earlier version has written: all in it is there, and new work goes on in it.

`data/record_data_folder.py` has made it, with the version of the day that is in the name of the archive: without
users, quotas, leases and retries.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from odps import ODPS

from pai_sdk._service.services import backup
from tests.service import postgres
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body, running_service

RECORDED = sorted((Path(__file__).parent / "data").glob("data-folder-*.tar.gz"))

pytestmark = pytest.mark.skipif(postgres.is_used(), reason="the folder has its jobs in SQLite")


@pytest.fixture(scope="module", params=RECORDED, ids=lambda archive: archive.name.removesuffix(".tar.gz"))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("earlier")
    with tarfile.open(request.param) as archive:
        if hasattr(tarfile, "data_filter"):  # not in Python 3.11.2, which Debian has
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(root)
    return root / "data"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with running_service(folder) as client:
        yield client


def by_status(client: Client) -> dict[str, str]:
    """The id of the job of each status."""
    return {job["Status"]: job["TrainingJobId"] for job in client.get("/trainingjobs")["TrainingJobs"]}


def test_the_keys_stay(client: Client, folder: Path) -> None:
    assert client.info.access_key_id == json.loads((folder / "service.json").read_text())["access_key_id"]
    assert client.get("/defaultWorkspaces")["WorkspaceId"] == "1"


def test_its_jobs_have_their_ends_logs_and_metrics(client: Client) -> None:
    jobs = by_status(client)
    assert sorted(jobs) == ["Failed", "Succeed"]
    ended, failed = client.get(f"/trainingjobs/{jobs['Succeed']}"), client.get(f"/trainingjobs/{jobs['Failed']}")
    assert [line for line in client.log(jobs["Succeed"]) if line.startswith("step")] == [
        "step 0",
        "step 1",
        "step 2",
    ]
    assert client.log(jobs["Failed"]) == ["before"]
    assert (failed["ReasonCode"], ended["TrainingJobName"]) == ("NonZeroExit", "recorded-1")
    assert {"Name": "lr", "Value": "0.1"} in ended["HyperParameters"]
    assert [metric["Name"] for metric in ended["LatestMetrics"]] == ["loss"]


def test_its_objects_models_experiments_and_tables_are_there(client: Client) -> None:
    assert client.bucket().get_object("kept/model.txt").read() == b"what was learned"
    experiments = client.get("/experiments")["Experiments"]
    assert [one["Name"] for one in experiments] == ["recorded"]
    (model,) = client.get("/models")["Models"]
    assert (model["ModelName"], model["LatestVersion"]["Uri"]) == ("recorded", "oss://pai-local/kept/")
    info = client.info
    tables = ODPS(
        info.access_key_id,
        info.access_key_secret,
        project="local",
        endpoint=info.endpoint,
        tunnel_endpoint=info.endpoint,
    )
    with tables.get_table("recorded").open_reader() as reader:
        assert [[*row.values] for row in reader] == [[1, "one"], [2, "two"]]


def test_new_jobs_and_users_come_after_the_old_ones(client: Client) -> None:
    before = by_status(client)
    alice = user(client, "alice")
    job_id = alice.create(job_body("echo new"))
    assert alice.until(job_id)["Status"] == "Succeed"
    listed = [job["TrainingJobId"] for job in client.get("/trainingjobs")["TrainingJobs"]]
    assert listed[0] == job_id
    assert set(listed[1:]) == set(before.values())
    assert [job["TrainingJobId"] for job in alice.get("/trainingjobs")["TrainingJobs"]] == [job_id]


def test_a_job_of_an_earlier_release_runs_with_this_one(client: Client) -> None:
    """It waited in the queue while the service was upgraded. The package in its channel has the former layout."""
    client.bucket().put_object("former/pai_sdk/run/report.py", b"")
    program = (
        "import pickle; from pai_sdk.run.report import report, get_checkpoint; report({'loss': 0.5}, step=1); "
        "print(pickle.loads(b'cpai_sdk.run.report.session\\nreport\\n.') is report)"
    )
    channels = [{"Name": "pai_sdk", "InputUri": "oss://pai-local/former/"}]
    job_id = client.create(job_body(f'python -c "{program}"', InputChannels=channels))
    assert (client.until(job_id)["Status"], client.log(job_id)[-1]) == ("Succeed", "True")
    # Other jobs are told the path of this release.
    job_id = client.create(job_body('python -c "from pai_sdk.run.report import report"'))
    assert client.until(job_id)["Status"] == "Failed"
    assert "pai_sdk.reports" in client.log(job_id)[-1]


def test_it_takes_schedules(client: Client) -> None:
    new = {"Name": "nightly", "Cron": "0 0 29 2 *", "Request": job_body()}
    assert client.call("POST", "/schedules", body=new).status_code == 200
    assert client.get("/schedules")["TotalCount"] == 1


def test_an_old_job_is_deleted_with_its_folder(client: Client, folder: Path) -> None:
    job_id = by_status(client)["Failed"]
    assert client.call("DELETE", f"/trainingjobs/{job_id}").status_code == 200
    assert client.call("GET", f"/trainingjobs/{job_id}").status_code == 404


def test_a_backup_of_it_is_restored(client: Client, folder: Path, tmp_path: Path) -> None:
    backup.back_up(folder, tmp_path / "backup", database_url=None)
    backup.restore(tmp_path / "backup", tmp_path / "other")
    with running_service(tmp_path / "other") as other:
        assert other.bucket().get_object("kept/model.txt").read() == b"what was learned"
        assert "Succeed" in by_status(other)
        assert other.get("/schedules")["TotalCount"] == client.get("/schedules")["TotalCount"]
