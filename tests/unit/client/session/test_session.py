"""Sessions: made without a network call, used everywhere they are passed, and shy about their secrets."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Processor, Session, TrainingJob, get_default_session, setup_default_session
from pai_sdk._core.config.credentials import Credentials
from pai_sdk._wire.pai.request import SUBMISSION_LABEL
from pai_sdk.errors import EngineNotFoundError, InvalidInputError, SettingsError
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Asked, Reply, ScriptedServer

pytestmark = pytest.mark.interpreter

KEY: dict[str, Any] = {"access_key_id": "LTAI-an-id", "access_key_secret": "very-secret"}


@pytest.fixture(autouse=True)
def no_default_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may go over the network here")

    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:  # an engine for containers is looked for on this machine
            refuse()
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_making_a_session_and_a_plan_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("pass")
    cloud = Session("cn-hangzhou", "123", oss_bucket_name="models", **KEY)
    plan = Processor(
        "python:3.11", "python run.py", source_dir=tmp_path, instance_type="ecs.c6.large", session=cloud
    ).plan({"data": tmp_path / "run.py"})
    wire = plan.request.to_wire()
    assert wire["WorkspaceId"] == "123"
    assert wire["AlgorithmSpec"]["CodeDir"]["LocationValue"]["Bucket"] == "models"
    assert wire["AlgorithmSpec"]["CodeDir"]["LocationValue"]["Endpoint"] == "oss-cn-hangzhou.aliyuncs.com"
    assert wire["InputChannels"][0]["InputUri"].startswith("oss://models/pai/input_data/")
    assert len(plan.uploads) == 2


def test_no_secret_is_shown() -> None:
    shown = Session("cn-hangzhou", "123", oss_bucket_name="models", **KEY)
    for text in (repr(shown), str(vars(shown)), repr(shown.settings)):
        assert "very-secret" not in text


def test_what_a_job_needs_is_named_all_at_once(tmp_path: Path) -> None:
    with refused(SettingsError):
        Processor("img", "true", instance_type="x", session=Session(**KEY)).plan()


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"access_key_id": "a"}, ("access_key_secret",)),
        ({"access_key_secret": "a"}, ("access_key_id",)),
        ({"security_token": "a"}, ("access_key_id", "access_key_secret")),
        ({**KEY, "credentials": Credentials("a", "b")}, ("credentials",)),
    ],
)
def test_a_half_or_doubled_key_is_refused(arguments: dict[str, Any], where: tuple[str, ...]) -> None:
    with refused(InvalidInputError, *where):
        Session("cn-hangzhou", "123", **arguments)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("kind", ["local", "local_gpu"])
def test_docker_needs_no_account_and_is_looked_for_only_at_the_submission(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    nothing_set = Session()
    plan = Processor("img", "true", instance_type=kind, session=nothing_set).plan()
    assert nothing_set.backend_for(kind) is nothing_set.local
    with refused(EngineNotFoundError):
        nothing_set.submit(plan)


def test_one_backend_however_many_threads_ask() -> None:
    cloud = Session("cn-hangzhou", "123", oss_bucket_name="models", **KEY)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(cloud.backend_for("x"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(backend) for backend in found}) == 1


def test_the_default_session_is_made_once_and_used_where_none_is_given() -> None:
    made = setup_default_session("cn-shanghai", "9", oss_bucket_name="theirs", **KEY)
    assert get_default_session() is made
    plan = Processor("img", "true", instance_type="x").plan()
    assert plan.request.workspace_id == "9"


def test_the_passed_session_wins_over_the_default() -> None:
    setup_default_session("cn-shanghai", "9", oss_bucket_name="theirs", **KEY)
    mine = Session("cn-hangzhou", "123", oss_bucket_name="mine", **KEY)
    plan = Processor("img", "true", instance_type="x", session=mine).plan(outputs={"a": "oss://mine/a/"})
    assert plan.request.workspace_id == "123"


def test_an_unknown_setting_is_no_setting() -> None:
    with pytest.raises(TypeError, match="oss_bucked"):
        setup_default_session("cn-shanghai", "9", oss_bucked="typo")  # type: ignore[call-arg]


def test_the_environment_makes_the_default_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-beijing")
    monkeypatch.setenv("PAI_WORKSPACE_ID", "77")
    assert get_default_session().settings.workspace_id == "77"


def test_with_nothing_configured_the_default_is_the_embedded_service(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = Session("local", "1", oss_bucket_name="pai-local", endpoint="http://127.0.0.1:1", **KEY)
    monkeypatch.setattr(Session, "embedded", classmethod(lambda cls: embedded))
    assert get_default_session() is embedded
    assert TrainingJob("train1", embedded.backend_for(None)).id == "train1"


@pytest.fixture
def service() -> Iterator[ScriptedServer]:
    """A service that takes every job; the id it gives is the job's name."""
    server = ScriptedServer()

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            return Reply({"TrainingJobId": asked.json["TrainingJobName"]})
        return Reply({"TrainingJobs": [], "TotalCount": 0})

    server.answer = answer
    yield server
    server.close()


def on(server: ScriptedServer, workspace_id: str | None = "1") -> dict[str, Any]:
    return {
        "region_id": "local",
        "workspace_id": workspace_id,
        "oss_bucket_name": "models",
        "endpoint": server.endpoint,
        **KEY,
    }


def created(server: ScriptedServer) -> list[Any]:
    return [asked.json for asked in server.asked if asked.method == "POST"]


class TestManyThreads:
    def test_submit_through_one_session(self, service: ScriptedServer) -> None:
        with Session(**on(service)) as shared, ThreadPoolExecutor(16) as pool:

            def submit(number: int) -> TrainingJob:
                processor = Processor("img", f"echo {number}", instance_type="x", session=shared)
                return shared.submit(processor.plan())

            jobs = [*pool.map(submit, range(96))]
        bodies = created(service)
        assert sorted(job.id for job in jobs) == sorted(body["TrainingJobName"] for body in bodies)
        assert len({job.id for job in jobs}) == 96
        assert (
            len({label["Value"] for b in bodies for label in b["Labels"] if label["Key"] == SUBMISSION_LABEL})
            == 96
        )
        assert len({id(job.backend) for job in jobs}) == 1

    def test_submit_through_the_default_session_while_it_is_changed(self, service: ScriptedServer) -> None:
        setup_default_session(**on(service, "1"))
        over = threading.Event()

        def change() -> None:
            number = 0
            while not over.wait(0.005):
                number += 1
                setup_default_session(**on(service, str(number % 5)))

        changer = threading.Thread(target=change)
        changer.start()
        try:
            with ThreadPoolExecutor(16) as pool:
                jobs = [
                    *pool.map(
                        lambda _: Processor("img", "true", instance_type="x").run(wait=False, show_logs=False),
                        range(64),
                    )
                ]
        finally:
            over.set()
            changer.join()
        # Each went whole into one of the workspaces, and once.
        bodies = created(service)
        assert Counter(job.id for job in jobs) == Counter(body["TrainingJobName"] for body in bodies)
        assert {body["WorkspaceId"] for body in bodies} <= set("01234")

    def test_make_one_default_session(self, service: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PAI_ENDPOINT", service.endpoint)
        with ThreadPoolExecutor(16) as pool:
            assert len({id(each) for each in pool.map(lambda _: get_default_session(), range(32))}) == 1


def test_a_workspace_that_is_not_set_is_not_sent(service: ScriptedServer) -> None:
    with Session(**on(service, None)) as anywhere:
        assert list(anywhere.list_jobs()) == []
        with refused(SettingsError):
            anywhere.submit(Processor("img", "true", instance_type="x", session=anywhere).plan())
    (asked,) = service.asked
    assert "WorkspaceId" not in asked.query
    assert "None" not in asked.query.values()


def test_workspaces_are_asked_for_at_their_own_endpoint(service: ScriptedServer) -> None:
    service.answer = lambda asked: Reply(
        {"Workspaces": [{"WorkspaceId": 7, "WorkspaceName": "vision"}], "TotalCount": 1}
    )
    elsewhere = {**on(service), "endpoint": "http://127.0.0.1:9"}
    with Session(**elsewhere, aiworkspace_endpoint=service.endpoint) as here:
        (found,) = here.workspaces.list(name="vision")
        assert (found.workspace_id, found.workspace_name) == ("7", "vision")
    (asked,) = service.asked
    assert asked.headers["x-acs-version"] == "2021-02-04"


def test_what_was_made_once_is_used_again(service: ScriptedServer) -> None:
    with Session(**on(service), oss_endpoint=service.endpoint) as shared:
        backend = shared.backend_for("x")
        assert shared.backend_for("y") is backend
        assert backend.files() is backend.files()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_a_closed_session_can_be_used_again(service: ScriptedServer) -> None:
    with Session(**on(service)) as shared:
        assert shared.local is not None
        first = shared.submit(Processor("img", "true", instance_type="x", session=shared).plan())
    shared.close()  # twice does no harm
    again = shared.submit(Processor("img", "true", instance_type="x", session=shared).plan())
    assert len({first.id, again.id}) == 2
    shared.close()


@pytest.mark.usefixtures("no_network")
def test_a_wrong_uri_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    cloud = Session("cn-hangzhou", "123", oss_bucket_name="models", **KEY)
    for wrong in ("data/", "s3://models/data/", "oss://UPPER/data/"):
        with pytest.raises(InvalidInputError):
            cloud.upload(tmp_path, wrong)
        with pytest.raises(InvalidInputError):
            cloud.download(wrong, tmp_path)


def test_settings_of_the_embedded_service_are_not_saved(tmp_path: Path) -> None:
    session = Session("local", "1", oss_bucket_name="pai-local", endpoint="http://127.0.0.1:1", **KEY)
    session._embedded.data_dir = tmp_path  # as Session.embedded() sets it
    with refused(SettingsError):
        session.save_config(tmp_path / "config.json")
    assert not (tmp_path / "config.json").exists()
