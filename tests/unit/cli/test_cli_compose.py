"""`pai-sdk service compose`: the files, who may read them, and that nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pai_sdk import __version__
from tests.unit.cli.conftest import Pai


def test_the_folder_has_what_docker_compose_needs(pai: Pai, tmp_path: Path) -> None:
    told = pai("service", "compose", str(tmp_path / "team"), "--port", "9000", "--host", "train.example")
    assert told.exit_code == 0, told.output
    found = {path.relative_to(tmp_path / "team").as_posix() for path in (tmp_path / "team").rglob("*")}
    wheel = f"pai_training_sdk-{__version__}-py3-none-any.whl"
    files = {"Dockerfile", "compose.yaml", ".env", ".dockerignore", wheel}
    assert found == files | {"secrets", "secrets/database-password", "secrets/database-url"}
    settings = (tmp_path / "team" / ".env").read_text().splitlines()
    assert {f"PAI_SDK_VERSION={__version__}", "PAI_SERVICE_PORT=9000", "PAI_SERVICE_HOST=train.example"} < set(
        settings
    )
    assert "PAI_SERVICE_USER_ID=0" not in settings, "the service does not run as root"
    services = yaml.safe_load((tmp_path / "team" / "compose.yaml").read_text())["services"]
    assert all(service["read_only"] and "healthcheck" in service for service in services.values())


def test_the_password_is_new_each_time_and_in_files_of_the_owner_only(pai: Pai, tmp_path: Path) -> None:
    passwords = set()
    for name in ("one", "other"):
        told = pai("service", "compose", str(tmp_path / name))
        secrets = tmp_path / name / "secrets"
        password = (secrets / "database-password").read_text().strip()
        assert f":{password}@" in (secrets / "database-url").read_text()
        assert {path.stat().st_mode & 0o077 for path in (secrets, *secrets.iterdir())} == {0}
        others = [path for path in (tmp_path / name).rglob("*") if path.is_file() and path.parent != secrets]
        assert not any(password.encode() in path.read_bytes() for path in others)
        assert password not in told.output
        passwords.add(password)
    assert len(passwords) == 2


def test_nothing_is_overwritten(pai: Pai, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("mine")
    told = pai("service", "compose", str(tmp_path))
    assert told.exit_code == 2
    assert "not empty" in told.output
    assert [path.name for path in tmp_path.iterdir()] == ["compose.yaml"]
    assert (tmp_path / "compose.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_named(pai: Pai, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    told = pai("service", "compose", str(tmp_path / name))
    assert told.exit_code == 2
    assert "cannot be written" in told.output


def test_a_host_is_a_name(pai: Pai, tmp_path: Path) -> None:
    assert pai("service", "compose", str(tmp_path / "team"), "--host", "train.example:80/x").exit_code == 2
    assert not (tmp_path / "team").exists()
