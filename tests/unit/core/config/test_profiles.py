"""Profiles of the config file: which settings are in force, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pai_sdk import Session, get_default_session
from pai_sdk._core.config.file import is_of_another_program, profiles_in, write_config
from pai_sdk._core.config.settings import active_profile, load_settings, save_config
from pai_sdk.errors import SettingsError
from tests.support.messages import refused

pytestmark = pytest.mark.interpreter

STAGING = {"region_id": "cn-shanghai", "workspace_id": "7"}
TOP = {"region_id": "cn-hangzhou", "workspace_id": "1", "oss_bucket_name": "of-top", "prices": {"ecs.c6.large": 1}}


@pytest.fixture
def file(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = clean_home / ".pai" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**TOP, "profiles": {"staging": STAGING, "empty": {"workspace_id": "9"}}}))
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)
    return path


def test_a_profile_takes_the_place_of_the_file_and_of_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_OSS_BUCKET_NAME", "of-environment")
    found = Session(profile="staging").settings
    assert (found.region_id, found.workspace_id, found.oss_bucket_name) == ("cn-shanghai", "7", None)
    assert found.sources["region_id"] == f"profile staging in {file}"
    assert found.prices == {"ecs.c6.large": 1}
    with refused(SettingsError):
        found.require("oss_bucket_name")


def test_arguments_win_over_a_profile(file: Path) -> None:
    assert Session(workspace_id="8", profile="staging").settings.workspace_id == "8"


@pytest.mark.parametrize(
    ("argument", "variable", "region"),
    [
        (None, "staging", "cn-shanghai"),
        (None, "", "cn-hangzhou"),
        ("", "staging", "cn-hangzhou"),
        ("staging", "nowhere", "cn-shanghai"),
    ],
)
def test_who_names_the_profile(
    file: Path, monkeypatch: pytest.MonkeyPatch, argument: str | None, variable: str, region: str
) -> None:
    monkeypatch.setenv("PAI_PROFILE", variable)
    assert load_settings(profile=argument).region_id == region


def test_an_unknown_profile_names_those_that_there_are(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_PROFILE", "stagign")
    with refused(SettingsError):
        Session()
    file.unlink()
    with refused(SettingsError):
        Session()


def test_a_profile_without_a_service_is_not_the_embedded_service(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAI_PROFILE", "empty")
    session = get_default_session()
    assert not session.is_embedded
    with refused(SettingsError):
        session.backend_for("ecs.c6.large")


@pytest.mark.parametrize("written", ['{"profiles": ["staging"]}', '{"profiles": {"staging": "cn-shanghai"}}'])
def test_profiles_of_another_shape_are_an_error(file: Path, written: str) -> None:
    file.write_text(written)
    with refused(SettingsError):
        Session(profile="staging")


def test_other_parts_of_the_file_stay_when_a_profile_is_written(file: Path) -> None:
    save_config(Session(oss_bucket_name="of-staging", profile="staging").settings)
    write_config(file, {"region_id": "cn-beijing"}, profile="new")
    write_config(file, {"workspace_id": None}, profile="empty")
    assert json.loads(file.read_text()) == {
        **TOP,
        "profiles": {"staging": {**STAGING, "oss_bucket_name": "of-staging"}, "new": {"region_id": "cn-beijing"}},
    }


def test_alipai_finds_its_settings_where_they_were(file: Path) -> None:
    """It reads the keys at the top that it knows, and passes over the others."""
    write_config(file, {"region_id": "cn-beijing"}, profile="new")
    content = json.loads(file.read_text())
    assert {name: content[name] for name in TOP} == TOP


# ---- the file of another program


OF_PAI_COMMAND = {
    "current": "default",
    "endpoint": {"dlc": "x"},
    "profiles": [
        {"name": "default", "mode": "AK", "access_key_id": "id", "access_key_secret": "s", "region": "r"}
    ],
}


@pytest.fixture
def foreign(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = clean_home / ".pai" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(OF_PAI_COMMAND))
    monkeypatch.setattr("pai_sdk._client.session.default._default", None)
    return path


def test_settings_of_another_program_are_ignored(foreign: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = load_settings({"region_id": "cn-hangzhou"})
    assert (found.region_id, found.endpoint) == ("cn-hangzhou", None)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_profiles_of_another_program_are_named_as_such(foreign: Path) -> None:
    with refused(SettingsError):
        load_settings(profile="default")


def test_profiles_of_another_program_are_not_overwritten(foreign: Path) -> None:
    with refused(SettingsError):
        write_config(foreign, {"region_id": "cn-shanghai"}, profile="default")
    assert json.loads(foreign.read_text()) == OF_PAI_COMMAND
    write_config(foreign, {"region_id": "cn-shanghai"})
    assert json.loads(foreign.read_text()) == {**OF_PAI_COMMAND, "region_id": "cn-shanghai"}
    assert load_settings().region_id == "cn-shanghai"


def test_a_profile_with_keys_is_not_overwritten(foreign: Path) -> None:
    content = {
        "current": None,
        "profiles": {"default": {"access_key_id": "id", "region_id": "r", "workspace_id": None}, "empty": {}},
    }
    foreign.write_text(json.dumps(content))
    with refused(SettingsError):
        write_config(foreign, {"region_id": "cn-shanghai"}, profile="default")
    assert json.loads(foreign.read_text()) == content
    write_config(foreign, {"region_id": "cn-shanghai"}, profile="mine")
    profiles = {**content["profiles"], "mine": {"region_id": "cn-shanghai"}}  # type: ignore[dict-item]
    assert json.loads(foreign.read_text()) == {**content, "profiles": profiles}
    write_config(foreign, {"region_id": None}, profile="mine")
    assert json.loads(foreign.read_text()) == content


def test_the_argument_has_precedence_over_the_profile_of_the_environment() -> None:
    assert active_profile(None, {"PAI_PROFILE": "staging"}) == "staging"
    assert active_profile("", {"PAI_PROFILE": "staging"}) is None


def test_the_profiles_of_a_file_are_an_object_of_objects() -> None:
    content = {"profiles": {"staging": {"region_id": "cn-shanghai"}}}
    assert profiles_in(content, Path("config.json")) == content["profiles"]


def test_a_profile_with_keys_is_that_of_another_program() -> None:
    assert is_of_another_program({"access_key_id": "id"})
    assert not is_of_another_program({"region_id": "cn-shanghai"})
