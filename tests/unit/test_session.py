"""Sessions: made without a network call, used everywhere they are passed, and shy about their secrets."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Processor, Session, TrainingJob, get_default_session, session, setup_default_session
from pai_sdk.credentials import Credentials
from pai_sdk.errors import InvalidInputError, SettingsError

KEY = {"access_key_id": "LTAI-an-id", "access_key_secret": "very-secret"}


@pytest.fixture(autouse=True)
def no_default_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_default", None)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may go over the network here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
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
    with pytest.raises(SettingsError) as caught:
        Processor("img", "true", instance_type="x", session=Session(**KEY)).plan()
    for name in ("region_id", "workspace_id", "oss_bucket_name", "PAI_REGION_ID", "config.json"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"access_key_id": "a"}, "access_key_secret: is missing"),
        ({"access_key_secret": "a"}, "access_key_id: is missing"),
        ({**KEY, "credentials": Credentials("a", "b")}, "contradicts"),
    ],
)
def test_a_half_or_doubled_key_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Session("cn-hangzhou", "123", **arguments)


def test_docker_is_not_there_yet_and_says_so() -> None:
    cloud = Session("cn-hangzhou", "123", oss_bucket_name="models", **KEY)
    for kind in ("local", "local_gpu"):
        with pytest.raises(InvalidInputError, match=r"Session\.embedded\(\)"):
            Processor("img", "true", instance_type=kind, session=cloud).plan()


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
    with pytest.raises(TypeError, match="oss_bucket"):
        setup_default_session("cn-shanghai", "9", oss_bucket="typo")


def test_the_environment_makes_the_default_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-beijing")
    monkeypatch.setenv("PAI_WORKSPACE_ID", "77")
    assert get_default_session().settings.workspace_id == "77"


def test_with_nothing_configured_the_default_is_the_embedded_service(monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = Session("local", "1", oss_bucket_name="pai-local", endpoint="http://127.0.0.1:1", **KEY)
    monkeypatch.setattr(Session, "embedded", classmethod(lambda cls: embedded))
    assert get_default_session() is embedded
    assert TrainingJob("train1", embedded.backend_for(None)).id == "train1"
