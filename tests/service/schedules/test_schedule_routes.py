"""Schedules over the API, by a session and by the command line: checks, rights, masks, pages, backups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, update
from typer.testing import CliRunner

from pai_sdk import Estimator, Processor, Session
from pai_sdk._service.services import backup
from pai_sdk._service.state.database import Database
from pai_sdk._service.state.models import ScheduleRow
from pai_sdk._wire.pai.request import SCHEDULE_LABEL
from pai_sdk._wire.pai.secret_values import Secret
from pai_sdk.cli.root import app
from pai_sdk.errors import ConflictError, InvalidInputError, InvalidRequestError, NotFoundError
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_page_sessions import page_of, send
from tests.service.identity.test_two_users import user
from tests.service.postgres import url_for
from tests.service.services import Client, job_body, session_on
from tests.support.messages import refused
from tests.support.waiting import until

NEVER = "0 0 29 2 *"  # not while a test runs


@pytest.fixture
def operator(start: Callable[..., Any]) -> Iterator[Client]:
    with start(ScriptedExecutor()) as client:
        yield client


def body(name: str = "nightly", cron: str = NEVER, **fields: Any) -> dict[str, Any]:
    return {"Name": name, "Cron": cron, "Request": job_body(**fields)}


def add(client: Client, *args: str, **fields: Any) -> str:
    answer = client.call("POST", "/schedules", body=body(*args, **fields))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["ScheduleId"])


def use(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables with which the command line uses a service, by the key of a client."""
    info = client.info
    for name, value in {
        "PAI_REGION_ID": info.region_id,
        "PAI_WORKSPACE_ID": info.workspace_id,
        "PAI_ENDPOINT": info.endpoint,
        "PAI_AIWORKSPACE_ENDPOINT": info.endpoint,
        "PAI_OSS_ENDPOINT": info.oss_endpoint,
        "PAI_OSS_BUCKET_NAME": info.bucket,
        "ALIBABA_CLOUD_ACCESS_KEY_ID": info.access_key_id,
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": info.access_key_secret,
    }.items():
        monkeypatch.setenv(name, value)


def make_due(folder: Path) -> None:
    """Let all schedules of a service have been due long ago, and look at them at its next start."""
    url = url_for(folder)
    database = (
        Database.in_file(folder / "service.db") if url is None else Database(create_engine(url), display_name="x")
    )
    with closing(database), database.write() as session:
        session.execute(update(ScheduleRow).values(next_time=0.0))


def test_a_schedule_is_shown_changed_and_deleted(operator: Client) -> None:
    secrets = {"TOKEN": "a-secret", "PLAIN": "x"}
    schedule_id = add(operator, Environments=secrets, HyperParameters=[{"Name": "api_key", "Value": "a-secret"}])
    shown = operator.get(f"/schedules/{schedule_id}")
    assert shown["Request"]["Environments"] == dict.fromkeys(secrets, "******")
    assert "a-secret" not in json.dumps(shown)
    assert (shown["Enabled"], shown["TimeZone"], shown["LastJobId"]) == (True, "UTC", None)
    (listed,) = operator.get("/schedules")["Schedules"]
    assert {**listed, "Request": shown["Request"], "RequestId": shown["RequestId"]} == shown
    changed = operator.call(
        "PUT", f"/schedules/{schedule_id}", body={"Cron": "0 3 1 1 *", "TimeZone": "Asia/Shanghai"}
    ).json()
    assert changed["NextTime"].endswith("-12-31T19:00:00.000Z")
    paused = operator.call("PUT", f"/schedules/{schedule_id}", body={"Enabled": False}).json()
    assert (paused["Enabled"], paused["NextTime"]) == (False, None)
    assert operator.call("DELETE", f"/schedules/{schedule_id}").status_code == 200
    assert operator.call("GET", f"/schedules/{schedule_id}").json()["Code"] == "SCHEDULE_NOT_FOUND"


def test_a_page_pauses_and_resumes_and_changes_nothing_else(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    schedule_id = add(alice, cron="0 3 * * *")
    before = alice.get(f"/schedules/{schedule_id}")
    page, other = page_of(alice), page_of(bob)
    for action, enabled in (("pause", False), ("pause", False), ("resume", True)):
        path = f"/api/v1/schedules/{schedule_id}/{action}"
        assert send(bob, other, "POST", path, {}).json["Code"] == "SCHEDULE_NOT_FOUND"
        answer = send(alice, page, "POST", path, {})
        assert (answer.status, answer.json["Enabled"], answer.json["NextTime"] is not None) == (
            200,
            enabled,
            enabled,
        )
    after = alice.get(f"/schedules/{schedule_id}")
    changing = ("RequestId", "GmtModifiedTime")
    assert {**after, **dict.fromkeys(changing)} == {**before, **dict.fromkeys(changing)}
    assert send(alice, page, "PUT", f"/api/v1/schedules/{schedule_id}", {"Enabled": False}).status == 403
    reader = user(operator, "carol", "read")
    assert send(reader, page_of(reader), "POST", f"/api/v1/schedules/{schedule_id}/pause", {}).status in (403, 404)


def test_schedules_come_in_pages_the_newest_first(operator: Client) -> None:
    ids = [add(operator, f"s{number}") for number in range(5)]
    page = operator.get("/schedules", PageNumber=2, PageSize=2)
    assert ([one["ScheduleId"] for one in page["Schedules"]], page["TotalCount"]) == (ids[::-1][2:4], 5)


def test_all_that_is_wrong_is_named_at_once(operator: Client) -> None:
    wrong = body("-x", "0 3 * *", TrainingJobName=" ", ComputeResource={"EcsSpec": "x", "EcsCount": 0})
    answer = operator.call("POST", "/schedules", body={**wrong, "TimeZone": "Mars"})
    assert (answer.status_code, answer.json()["Code"]) == (400, "InvalidParameter")
    for part in ("Name: '-x'", "Cron: '0 3 * *' has 4 fields", "TimeZone: 'Mars'", "EcsCount: 0 instances"):
        assert part in answer.json()["Message"]
    unknown = operator.call("POST", "/schedules", body={**body(), "Color": "red"})
    assert "Color" in unknown.json()["Message"]
    bucket = body(InputChannels=[{"Name": "x", "InputUri": "oss://missing/x/"}])
    assert "no bucket 'missing'" in operator.call("POST", "/schedules", body=bucket).json()["Message"]
    schedule_id = add(operator)
    again = operator.call("POST", "/schedules", body=body())
    assert (again.status_code, again.json()["Code"]) == (409, "SCHEDULE_ALREADY_EXISTS")
    change = operator.call("PUT", f"/schedules/{schedule_id}", body={"Cron": "x", "TimeZone": "Mars"})
    assert (change.status_code, change.json()["Message"].count(": ")) == (400, 3)


def test_a_user_has_a_hundred_schedules_at_most(operator: Client) -> None:
    for number in range(100):
        add(operator, f"s{number}")
    answer = operator.call("POST", "/schedules", body=body("one-more"))
    assert (answer.status_code, answer.json()["Code"]) == (400, "TOO_MANY_SCHEDULES")


def test_two_users_do_not_see_each_others_schedules(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    mine, theirs = add(alice), add(bob)  # of the same name
    assert [one["ScheduleId"] for one in alice.get("/schedules")["Schedules"]] == [mine]
    assert operator.get("/schedules")["TotalCount"] == 2
    for method, change in (("GET", None), ("PUT", {"Enabled": False}), ("DELETE", None)):
        answer = alice.call(method, f"/schedules/{theirs}", body=change)
        assert (answer.status_code, answer.json()["Code"]) == (404, "SCHEDULE_NOT_FOUND")
        assert (
            answer.json()["Message"]
            == f"There is no schedule '{theirs}' here; `pai-sdk schedule list` lists them."
        )
    assert operator.call("PUT", f"/schedules/{theirs}", body={"Enabled": False}).status_code == 200
    assert bob.get(f"/schedules/{theirs}")["Enabled"] is False


def test_an_administrator_of_the_workspace_sees_and_changes_them(operator: Client) -> None:
    alice, bob = user(operator, "alice"), user(operator, "bob")
    schedule_id = add(alice)
    member = [{"UserId": "bob", "Roles": ["PAI.WorkspaceAdmin"]}]
    assert operator.call("POST", "/workspaces/1/members", body={"Members": member}).status_code == 200
    assert bob.get("/schedules")["TotalCount"] == 1
    assert bob.call("PUT", f"/schedules/{schedule_id}", body={"Enabled": False}).status_code == 200
    operator.call("PUT", "/users/bob", body={"Right": "read"})
    assert bob.get(f"/schedules/{schedule_id}")["Enabled"] is False
    assert bob.call("DELETE", f"/schedules/{schedule_id}").status_code == 403


def test_a_key_that_may_only_read_adds_none(operator: Client) -> None:
    reader = user(operator, "carol", "read")
    assert reader.call("POST", "/schedules", body=body()).status_code == 403
    assert reader.get("/schedules")["TotalCount"] == 0


def test_the_quota_of_the_user_counts_and_not_how_many_jobs_wait(operator: Client) -> None:
    alice = user(operator, "alice")
    operator.call("PUT", "/users/alice/quota", body={"CPUs": 1, "QueuedJobs": 0})
    large = {"EcsCount": None, "InstanceCount": 1, "InstanceSpec": {"CPU": "2"}}
    answer = alice.call("POST", "/schedules", body=body(ComputeResource=large))
    assert (answer.status_code, answer.json()["Code"]) == (400, "UserQuotaExceeded")
    add(alice)


def test_a_workspace_with_schedules_is_not_removed(operator: Client) -> None:
    workspace_id = operator.call("POST", "/workspaces", body={"WorkspaceName": "vision"}).json()["WorkspaceId"]
    schedule_id = add(operator, WorkspaceId=workspace_id)
    answer = operator.call("DELETE", f"/workspaces/{workspace_id}")
    assert (answer.status_code, "has schedules" in answer.json()["Message"]) == (409, True)
    operator.call("DELETE", f"/schedules/{schedule_id}")
    assert operator.call("DELETE", f"/workspaces/{workspace_id}").status_code == 200


# ---- at the due time ------------------------------------------------------------------------------------------


def test_a_restarted_service_creates_the_job_of_the_missed_times(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    with start(ScriptedExecutor()) as client:
        alice = user(client, "alice")
        schedule_id = add(alice, Environments={"TOKEN": "a-secret"})
        client.call("PUT", "/users/alice/quota", body={"RunningJobs": 2})
    make_due(tmp_path / "data")
    with start(ScriptedExecutor()) as client:
        until(lambda: client.get(f"/schedules/{schedule_id}")["LastJobId"] is not None)
        job_id = client.get(f"/schedules/{schedule_id}")["LastJobId"]
        job = client.until(job_id, "Running")
        assert (job["UserId"], job["Environments"]) == ("alice", {"TOKEN": "a-secret"})
        assert {"Key": SCHEDULE_LABEL, "Value": schedule_id} in job["Labels"]
        assert client.get("/trainingjobs")["TotalCount"] == 1
        (entry,) = [one for one in client.get("/audit")["Entries"] if one["Client"] == schedule_id]
        assert (entry["User"], entry["Path"], entry["Status"]) == ("alice", "/api/v1/trainingjobs", 200)


@pytest.mark.parametrize("change", ["key", "right", "member", "user"])
def test_a_revoked_user_gets_no_more_jobs(start: Callable[..., Any], tmp_path: Path, change: str) -> None:
    with start(ScriptedExecutor()) as client:
        alice = user(client, "alice")
        schedule_id = add(alice)
        method, path, sent = {
            "key": ("DELETE", f"/users/alice/keys/{alice.info.access_key_id}", None),
            "right": ("PUT", "/users/alice", {"Right": "read"}),
            "member": ("DELETE", "/workspaces/1/members?MemberIds=alice", None),
            "user": ("DELETE", "/users/alice", None),
        }[change]
        answer = client.call(method, path, body=sent)
        assert answer.status_code == 200, answer.text
    make_due(tmp_path / "data")
    with start(ScriptedExecutor()) as client:
        until(lambda: client.get(f"/schedules/{schedule_id}")["Enabled"] is False)
        shown = client.get(f"/schedules/{schedule_id}")
        assert shown["LastError"].startswith("The schedule was disabled: user 'alice' has no key that may submit")
        assert client.get("/trainingjobs")["TotalCount"] == 0


def test_a_backup_has_the_schedules(start: Callable[..., Any], tmp_path: Path) -> None:
    with start(ScriptedExecutor()) as client:
        schedule_id = add(client, Environments={"TOKEN": "a-secret"})
        before = client.get(f"/schedules/{schedule_id}")
        data = tmp_path / "data"
        backup.back_up(data, tmp_path / "backup", database_url=url_for(data))
    other = tmp_path / "other"
    backup.restore(tmp_path / "backup", other, database_url=url_for(other))
    with start(ScriptedExecutor(), data_dir=other) as client:
        after = client.get(f"/schedules/{schedule_id}")
        assert {**after, "RequestId": ""} == {**before, "RequestId": ""}
        add(client, "another")


# ---- clients --------------------------------------------------------------------------------------------------


@pytest.fixture
def session(operator: Client) -> Iterator[Session]:
    with session_on(operator.info) as session:
        yield session


def test_a_session_schedules_a_plan_with_its_files(
    operator: Client, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')")
    monkeypatch.setenv("HF_TOKEN", "a-secret")
    plan = Estimator(
        "none",
        "python train.py",
        source_dir=str(tmp_path / "src"),
        environments={"HF_TOKEN": Secret("HF_TOKEN")},
        instance_type="ecs.c6.large",
        session=session,
    ).plan()
    made = session.schedules.create("nightly", NEVER, plan, time_zone="Asia/Shanghai")
    assert (made.name, made.enabled, made.time_zone) == ("nightly", True, "Asia/Shanghai")
    assert made.next_time is not None
    assert made.next_time.endswith("02-28T16:00:00.000Z")
    folder = plan.uploads[0].uri.removeprefix(f"oss://{operator.info.bucket}/")
    assert operator.bucket().object_exists(f"{folder}train.py")
    schedules = session.schedules
    request = schedules.get(made.schedule_id).request
    assert request is not None
    assert request["Environments"] == {"HF_TOKEN": "******"}
    assert [each.schedule_id for each in schedules.list()] == [made.schedule_id]
    assert (
        schedules.find("nightly").schedule_id == schedules.find(made.schedule_id).schedule_id == made.schedule_id
    )
    assert schedules.change(made.schedule_id, cron="0 5 * * *").cron == "0 5 * * *"
    assert schedules.pause(made.schedule_id).enabled is False
    assert schedules.resume(made.schedule_id).enabled is True
    with refused(ConflictError):
        schedules.create("nightly", NEVER, plan)
    with refused(InvalidRequestError):
        schedules.create("other", "x", plan, time_zone="Mars")
    schedules.delete(made.schedule_id)
    with refused(NotFoundError):
        schedules.find("nightly")


def test_a_plan_that_only_the_client_can_carry_out_is_refused(session: Session) -> None:
    def processor(**given: Any) -> Processor:
        return Processor("none", "true", session=session, **{"instance_type": "ecs.c6.large", **given})

    with refused(InvalidInputError):
        session.schedules.create("x", NEVER, processor(instance_type="local").plan())
    with refused(InvalidInputError):
        session.schedules.create("x", NEVER, processor(fallback=["ecs.c6.xlarge"]).plan())
    assert list(session.schedules.list()) == []


def test_a_name_of_two_users_is_not_guessed(operator: Client) -> None:
    ids = [add(user(operator, name)) for name in ("alice", "bob")]
    with session_on(operator.info) as session, pytest.raises(InvalidInputError) as caught:
        session.schedules.find("nightly")
    assert all(each in str(caught.value) for each in ids)


def test_the_command_line(operator: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(operator, monkeypatch)
    job = tmp_path / "job.yaml"
    job.write_text("kind: Processor\nimage_uri: none\ncommand: echo hello\ninstance_type: ecs.c6.large\n")

    def run(*words: str, fails: bool = False) -> str:
        result = CliRunner().invoke(app, ["schedule", *words])
        assert (result.exception is not None) == fails, result.output
        return str(result.exception or result.output)

    assert run("add", str(job), "--cron", NEVER, "--zone", "Asia/Shanghai").startswith("job: next job 20")
    assert run("list").splitlines()[1].split()[:6] == ["job", *NEVER.split()]
    assert "never, it is paused" in run("pause", "job")
    assert json.loads(run("show", "job", "--json"))["Enabled"] is False
    assert f"{NEVER} in Asia/Shanghai" in run("show", "job")
    assert json.loads(run("resume", "job", "--json"))["Enabled"] is True
    (line,) = run("list", "--json").splitlines()
    run("delete", json.loads(line)["ScheduleId"])
    assert "no schedule 'job'" in run("show", "job", fails=True)
    assert "Cron: 'x' has 1 field" in run("add", str(job), "--cron", "x", fails=True)
