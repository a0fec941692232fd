"""`pai-sdk config` and `pai-sdk doctor`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from typer.testing import CliRunner, Result

from pai_sdk._client.session import Session
from pai_sdk._core.extras import install_command
from pai_sdk.cli import doctor
from pai_sdk.cli.doctor import Finding
from pai_sdk.cli.root import app
from pai_sdk.errors import EngineNotFoundError, NotFoundError, ServiceStartError, SettingsError
from tests.support.messages import refused


def pai(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


# ---- config


def test_each_setting_with_its_source(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "region_id = cn-hangzhou" in pai("config", "set", "region_id", "cn-hangzhou").stdout
    monkeypatch.setenv("PAI_WORKSPACE_ID", "12345")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI5tSecretPart")
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "a-secret")
    rows = {row["setting"]: row for row in map(json.loads, pai("config", "--json").stdout.splitlines())}
    file = clean_home / ".pai" / "config.json"
    assert rows["region_id"] == {"setting": "region_id", "value": "cn-hangzhou", "source": str(file)}
    assert rows["workspace_id"]["source"] == "environment variable PAI_WORKSPACE_ID"
    assert rows["oss_bucket_name"]["value"] is None
    shown = pai("config").stdout
    assert str(file) in shown
    assert "LTAI…" in shown
    assert "******" in shown
    assert "SecretPart" not in shown
    assert "a-secret" not in shown


def test_without_anything_it_says_where_jobs_go() -> None:
    assert "jobs go to the embedded service" in pai("config").stdout


def test_a_value_of_another_region_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pai("config", "set", "region_id", "cn-hangzhou")
    pai("config", "set", "oss_bucket_name", "models")
    monkeypatch.setenv("PAI_REGION_ID", "cn-shanghai")
    assert "not used: " in pai("config").stdout
    told = pai("config", "set", "region_id", "cn-beijing")
    assert "environment variable PAI_REGION_ID is set and takes precedence" in told.stderr


def test_set_and_unset(clean_home: Path) -> None:
    file = clean_home / ".pai" / "config.json"
    assert pai("config", "path").stdout == f"{file}\n"
    pai("config", "set", "network", "vpc")
    pai("config", "set", "workspace_id", "7")
    assert json.loads(file.read_text()) == {"network": "VPC", "workspace_id": "7"}
    assert pai("config", "unset", "network").exit_code == 0
    assert json.loads(file.read_text()) == {"workspace_id": "7"}


@pytest.mark.parametrize(
    ("name", "said"),
    [("regoin_id", "did you mean 'region_id'?"), ("access_key_secret", "export ALIBABA_CLOUD_ACCESS_KEY_SECRET=")],
)
def test_what_is_no_setting_is_wrong_usage(name: str, said: str) -> None:
    told = pai("config", "set", name, "x")
    assert told.exit_code == 2
    assert said in " ".join(told.stderr.replace("│", " ").split())


def test_a_malformed_value_is_not_written(clean_home: Path) -> None:
    assert isinstance(pai("config", "set", "region_id", "Hang zhou").exception, SettingsError)
    assert not (clean_home / ".pai" / "config.json").exists()


# ---- doctor


def findings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    return {finding.subject: finding for finding in doctor.examine()}


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_engine() -> None:
        raise EngineNotFoundError(
            "no Docker engine responds on this machine. Tried:\n  nothing\nThree ways out: …"
        )

    monkeypatch.setattr("pai_sdk._host.execution.docker.engine.find_engine", find_engine)


def answering(monkeypatch: pytest.MonkeyPatch, *, date: str = "", refused: bool = False) -> None:
    def get(url: str, **_: object) -> requests.Response:
        if refused:
            raise requests.ConnectionError("refused")
        answer = requests.Response()
        answer.headers["date"] = date
        return answer

    monkeypatch.setattr(requests, "get", get)


@pytest.mark.usefixtures("no_docker")
def test_a_machine_without_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "fastapi" else object())
    found = findings(monkeypatch)
    assert found["settings"].health == "ok"
    assert (found["service"].health, found["Docker"].health) == ("broken", "note")
    assert install_command("service") in found["service"].remedy
    told = pai("doctor")
    assert told.exit_code == 1
    assert "1 broken" in told.stdout


@pytest.mark.usefixtures("no_docker")
def test_an_embedded_service_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def embedded() -> None:
        raise ServiceStartError("it does not come up")

    monkeypatch.setattr(Session, "embedded", embedded)
    assert findings(monkeypatch)["service"].text == "it does not come up"


@pytest.mark.usefixtures("no_docker")
def test_a_service_of_ones_own_needs_all_its_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")
    monkeypatch.setenv("PAI_ENDPOINT", "http://pai.example.com")
    answering(monkeypatch, refused=True)
    found = findings(monkeypatch)
    assert found["storage"].remedy.startswith("oss_endpoint is not set")
    assert found["workspaces"].remedy.startswith("aiworkspace_endpoint is not set")
    monkeypatch.setenv("PAI_OSS_ENDPOINT", "http://oss.example.com")
    assert "network" in findings(monkeypatch)["storage"].remedy


@pytest.mark.usefixtures("no_docker")
def test_missing_settings_and_keys_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")
    answering(monkeypatch, refused=True)
    found = findings(monkeypatch)
    assert "PAI_WORKSPACE_ID" in found["settings"].remedy
    assert "aliyun configure" in found["access key"].remedy
    assert {found[name].health for name in ("API", "workspaces", "storage")} == {"broken"}
    assert "jobs" not in found, "there is no use in asking"


@pytest.mark.usefixtures("no_docker")
@pytest.mark.parametrize(
    ("date", "health"), [("Sat, 22 Nov 2025 00:00:00 GMT", "broken"), ("no date", "absent"), ("", "absent")]
)
def test_a_clock_that_differs(monkeypatch: pytest.MonkeyPatch, date: str, health: str) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")
    answering(monkeypatch, date=date)
    found = findings(monkeypatch)
    assert (found["clock"].health if "clock" in found else "absent") == health


@pytest.mark.usefixtures("no_docker")
def test_jobs_and_bucket_of_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PAI_ENDPOINT": "http://127.0.0.1:1",
        "PAI_AIWORKSPACE_ENDPOINT": "http://127.0.0.1:1",
        "PAI_OSS_ENDPOINT": "http://127.0.0.1:1",
        "PAI_WORKSPACE_ID": "1",
        "PAI_OSS_BUCKET_NAME": "models",
        "ALIBABA_CLOUD_ACCESS_KEY_ID": "LTAI-example",
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": "a-secret",
    }.items():
        monkeypatch.setenv(name, value)
    answering(monkeypatch)
    stored: dict[str, bytes] = {}

    class Files:
        def put_bytes(self, uri: object, content: bytes) -> None:
            stored[str(uri)] = content

        def get_bytes(self, uri: object) -> bytes:
            return stored[str(uri)]

        def delete(self, uri: object) -> None:
            del stored[str(uri)]

    def nothing(self: Session, **_: object) -> Iterator[object]:
        return iter(())

    monkeypatch.setattr(Session, "files", lambda self: Files())
    monkeypatch.setattr(Session, "list_jobs", nothing)
    found = findings(monkeypatch)
    assert [found[name].health for name in ("API", "jobs", "bucket")] == ["ok", "ok", "ok"]
    assert "workspaces" not in found, "it is the same endpoint"
    assert stored == {}
    assert "a-secret" not in pai("doctor", "--json").stdout


def test_remedies_stand_below_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pai_sdk.cli.doctor.examine",
        lambda: iter([Finding("disk", "note", "little is free", "free some:\n  pai-sdk service clean")]),
    )
    assert pai("doctor").stdout.splitlines()[:3] == [
        "note   disk       little is free",
        "                  → free some:",
        "                      pai-sdk service clean",
    ]


# ---- profiles, and where jobs go


def test_list_shows_what_config_shows(clean_home: Path) -> None:
    pai("config", "set", "workspace_id", "7", "--profile", "staging")
    assert pai("config", "list").stdout == pai("config").stdout
    shown = pai("config", "list", "--profile", "staging").stdout
    assert "profile  staging" in shown
    assert "profile staging in" in shown
    assert pai("config", "--profile", "staging").stdout == shown


def test_get_prints_one_value(monkeypatch: pytest.MonkeyPatch) -> None:
    pai("config", "set", "workspace_id", "7", "--profile", "staging")
    told = pai("config", "get", "workspace_id")
    assert (told.exit_code, told.stdout) == (102, "")
    assert pai("config", "get", "workspace_id", "--profile", "staging").stdout == "7\n"
    monkeypatch.setenv("PAI_PROFILE", "staging")
    assert pai("config", "get", "workspace_id").stdout == "7\n"
    assert pai("config", "get", "workspaces").exit_code == 2


def test_profiles_are_made_listed_and_removed(clean_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = clean_home / ".pai" / "config.json"
    assert "no profiles" in pai("config", "profiles").stdout
    assert (
        f"in profile staging of {file}"
        in pai("config", "set", "region_id", "cn-shanghai", "--profile", "staging").stdout
    )
    pai("config", "set", "endpoint", "http://10.0.0.1:8765", "--profile", "mine")
    monkeypatch.setenv("PAI_PROFILE", "mine")
    rows = {
        row["profile"]: row for row in map(json.loads, pai("config", "profiles", "--json").stdout.splitlines())
    }
    assert (rows["staging"]["region_id"], rows["staging"]["used"], rows["mine"]["used"]) == (
        "cn-shanghai",
        False,
        True,
    )
    assert ["*", "mine", "-", "-", "http://10.0.0.1:8765"] in [
        row.split() for row in pai("config", "profiles").stdout.splitlines()
    ]
    assert pai("config", "unset", "--all", "--profile", "mine").exit_code == 0
    pai("config", "unset", "region_id", "--profile", "staging")
    assert json.loads(file.read_text()) == {}
    with refused(NotFoundError, code="ProfileNotFound"):
        raise pai("config", "unset", "region_id", "--profile", "mine").exception or AssertionError


@pytest.mark.parametrize(
    "arguments",
    [
        ("unset",),
        ("unset", "--all"),
        ("unset", "region_id", "--all", "--profile", "staging"),
        ("set", "workspace_id", "7", "--profile", "a b"),
        ("--json", "path"),
    ],
)
def test_wrong_uses_of_config(arguments: tuple[str, ...]) -> None:
    assert pai("config", *arguments).exit_code == 2


def test_a_region_that_there_is_not_is_not_written(clean_home: Path) -> None:
    told = pai("config", "set", "region_id", "cn-hangzou")
    assert told.exit_code == 2
    assert "did you mean 'cn-hangzhou'?" in " ".join(told.stderr.replace("│", " ").split())
    assert not (clean_home / ".pai" / "config.json").exists()
    assert pai("config", "set", "region_id", "cn-brand-new", "--no-check").exit_code == 0


def test_the_region_of_a_service_of_ones_own_has_any_name() -> None:
    pai("config", "set", "endpoint", "http://127.0.0.1:8765")
    assert pai("config", "set", "region_id", "lab").exit_code == 0


def test_it_says_where_jobs_go_when_that_changes() -> None:
    told = pai("config", "set", "region_id", "cn-hangzhou").stdout
    assert "Jobs now leave this machine: they go to Alibaba Cloud PAI in cn-hangzhou. `--embedded`" in told
    assert "Jobs now" not in pai("config", "set", "workspace_id", "7").stdout
    assert "Jobs now" not in pai("config", "set", "region_id", "cn-shanghai", "--profile", "staging").stdout
    assert "go to Alibaba Cloud PAI in cn-beijing." in pai("config", "set", "region_id", "cn-beijing").stdout
    assert "Jobs now go to the embedded service on this machine." in pai("config", "unset", "region_id").stdout
    assert "leave" not in pai("config", "set", "endpoint", "http://127.0.0.1:8765").stdout
