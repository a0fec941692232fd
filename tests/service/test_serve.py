"""`pai-sdk serve`: its options become settings, and what is wrong with them is told before anything begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pai_sdk._service import server
from pai_sdk._service.settings import ServiceSettings
from pai_sdk.cli.root import app
from pai_sdk.errors import ServiceStartError
from tests.support.messages import refused

URL = "postgresql+psycopg://me:hunter2@db/pai"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServiceSettings]:
    found: list[ServiceSettings] = []
    monkeypatch.setattr(server, "serve", lambda settings, **_: found.append(settings))
    return found


def serve(*options: str) -> str:
    done = CliRunner().invoke(app, ["serve", *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_options_become_settings(served: list[ServiceSettings], tmp_path: Path) -> None:
    serve(
        "--data",
        str(tmp_path),
        "--slots",
        "2",
        "--cpus",
        "1.5",
        "--memory",
        "4",
        "--rate",
        "9",
        "--connections",
        "50",
        "--executor",
        "docker",
        "--upload-life",
        "0.5",
    )
    (settings,) = served
    assert settings.upload_life_s == 12 * 3600
    assert settings.executor == "docker"
    assert (settings.slots, settings.cpus, settings.memory_gib, settings.requests_per_s) == (2, 1.5, 4.0, 9.0)
    assert settings.connections.max_connections == 50
    assert settings.database_url is None


def test_options_of_an_executor(served: list[ServiceSettings]) -> None:
    serve("--executor", "ray", "--ray-address", "ray://head:10001", "--executor-option", "node_folder=/srv/a=b")
    (settings,) = served
    assert settings.executor_options == {"address": "ray://head:10001", "node_folder": "/srv/a=b"}


def test_the_database_comes_from_an_option_a_file_or_the_environment(
    served: list[ServiceSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(f"{URL}\n")
    serve("--database", URL)
    serve("--database-file", str(tmp_path / "url"))
    monkeypatch.setenv("PAI_SERVICE_DATABASE", URL)
    serve()
    assert "PAI_SERVICE_DATABASE" not in os.environ  # jobs are started with what is there
    assert [settings.database_url for settings in served] == [URL] * 3
    assert "hunter2" not in repr(served)


@pytest.mark.parametrize(
    "options",
    [
        ["--slots", "0"],
        ["--cpus", "0"],
        ["--memory", "-1"],
        ["--rate", "0"],
        ["--connections", "1"],
        ["--upload-life", "0"],
        ["--port", "70000"],
        ["--executor", "podman"],
        ["--database", URL, "--database-file", "x"],
        ["--executor", "ray", "--executor-option", "address"],
        ["--executor", "ray", "--executor-option", "placement=PACK", "--executor-option", "placement=SPREAD"],
        ["--executor", "ray", "--ray-address", "auto", "--executor-option", "address=auto"],
        ["--ray-address", "auto"],
    ],
)
def test_what_cannot_be_is_refused(served: list[ServiceSettings], options: list[str]) -> None:
    assert "Invalid value" in serve(*options)
    assert not served


def test_a_file_that_cannot_be_read_is_named(served: list[ServiceSettings], tmp_path: Path) -> None:
    with refused(ServiceStartError):
        serve("--database-file", str(tmp_path / "nowhere"))
    (tmp_path / "binary").write_bytes(b"\x7fELF\xd0\xff")
    with refused(ServiceStartError):
        serve("--database-file", str(tmp_path / "binary"))


def test_help_names_every_option() -> None:
    shown = serve("--help")
    for option in (
        "--database",
        "--slots",
        "--cpus",
        "--memory",
        "--rate",
        "--connections",
        "--upload-life",
        "--executor",
        "PAI_SERVICE_DATABASE",
    ):
        assert option in shown
