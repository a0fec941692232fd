"""`pai-sdk ui`: the page of the service in use, or of a folder; and what it says where there is none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner, Result

from pai_sdk import Session
from pai_sdk._client.session.default import default_session_from
from pai_sdk._service.settings import ForeignCloud
from pai_sdk.cli.root import app
from tests.service.fakes import ScriptedExecutor
from tests.service.services import Client, job_body, running_service
from tests.service.web.browsing import ask_as_browser, sign_in
from tests.support.messages import worded


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("ui") / "data", ScriptedExecutor()) as found:
        yield found


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with default_session_from(Session):
        yield


@pytest.fixture
def in_use(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The service as a shell uses it that has the settings that `pai-sdk serve` prints."""
    point_at(client, monkeypatch)
    return client


def point_at(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    info = client.info
    for name, value in {
        "PAI_REGION_ID": info.region_id,
        "PAI_WORKSPACE_ID": info.workspace_id,
        "PAI_ENDPOINT": info.endpoint,
        "PAI_AIWORKSPACE_ENDPOINT": info.endpoint,
        "ALIBABA_CLOUD_ACCESS_KEY_ID": info.access_key_id,
        "ALIBABA_CLOUD_ACCESS_KEY_SECRET": info.access_key_secret,
    }.items():
        monkeypatch.setenv(name, value)


def ui(*words: str) -> Result:
    return CliRunner().invoke(app, ["ui", *words], env={"COLUMNS": "500", "NO_COLOR": "1"})


def link_in(result: Result) -> str:
    assert result.exit_code == 0, (result.output, result.exception)
    found = re.search(r"^  (http://\S+)$", result.stdout, re.MULTILINE)
    assert found is not None, result.stdout
    return found[1]


def test_the_link_of_the_command_signs_in(in_use: Client) -> None:
    result = ui()
    link = link_in(result)
    assert link.startswith(f"{in_use.info.endpoint}/ui/#code=")
    port = urlsplit(link).port
    assert port is not None
    page = sign_in(port, link)
    assert ask_as_browser(port, "GET", "/api/v1/runs", **page).status == 200
    assert f"ssh -N -L {port}:127.0.0.1:{port} " in result.stdout
    assert in_use.info.access_key_secret not in result.output


@pytest.mark.parametrize("option", ["--job", "--run"])
def test_the_link_may_lead_to_a_job(in_use: Client, option: str) -> None:
    job_id = in_use.create(job_body(TrainingJobName=f"digits{option}"))
    for name in (job_id, f"digits{option}", "-"):
        assert parse_qs(urlsplit(link_in(ui(option, name))).fragment)["run"] == [job_id]
    assert type(ui(option, "nothing").exception).__name__ == "NotFoundError"
    assert ui("--job", job_id, "--run", job_id).exit_code == 2


def test_the_command_that_the_page_shows_gives_a_link(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")  # another service is in use
    job_id = client.create(job_body(TrainingJobName="by-folder"))
    port = urlsplit(client.info.endpoint).port
    assert port is not None
    refused = ask_as_browser(port, "GET", "/ui/about")
    command, *words = shlex.split(refused.json["Command"])
    assert (command, refused.status) == ("pai-sdk", 401)
    result = CliRunner().invoke(app, [*words, "--job", "by-folder"])
    assert parse_qs(urlsplit(link_in(result)).fragment)["run"] == [job_id]


def test_a_data_folder_without_a_service_is_told(tmp_path: Path) -> None:
    result = ui("--data", str(tmp_path))
    assert result.exit_code == 2
    worded(result.output)
    assert ui("--data", str(tmp_path), "--embedded").exit_code == 2


def test_the_browser_is_opened_when_asked(in_use: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    assert opened == []
    result = ui("--open")
    assert opened == [link_in(result)]


def test_the_same_from_python(in_use: Client) -> None:
    job_id = in_use.create(job_body())
    link = Session().new_page_link(job_id)
    assert link.startswith(f"{in_use.info.endpoint}/ui/#code=")
    assert link.endswith(f"&run={job_id}")


def test_the_demo_ends_with_a_link_to_the_page_of_its_job(in_use: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    trained = session.get_job(in_use.create(job_body()))
    monkeypatch.setattr(Session, "embedded", lambda: session)
    monkeypatch.setattr("pai_sdk.cli.demo._prepare", lambda *_: None)
    monkeypatch.setattr("pai_sdk.cli.demo._train", lambda *_: trained)
    monkeypatch.setattr("pai_sdk.cli.demo._show_results", lambda *_: None)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 0
    *_, last = result.stdout.splitlines()
    assert last.startswith(f"Open its page within a minute: {in_use.info.endpoint}/ui/#code=")
    assert last.endswith(f"&run={trained.id}")


def test_a_job_of_a_service_leads_to_its_page_wherever_it_is_shown(in_use: Client) -> None:
    job = Session().get_job(in_use.create(job_body()))
    address = f"{in_use.info.endpoint}/ui/#run={job.id}"
    assert job.console_url == address
    assert f'href="{address}"' in job._repr_html_()
    described = CliRunner().invoke(app, ["describe", job.id], env={"COLUMNS": "500"})
    assert address in described.output


def test_on_alibaba_cloud_the_console_shows_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAI_REGION_ID", "cn-hangzhou")
    result = ui()
    assert result.exit_code == 2
    worded(result.output)


def test_a_service_without_a_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_service(tmp_path / "data", ScriptedExecutor(), foreign=ForeignCloud()) as other:
        point_at(other, monkeypatch)
        assert "does not support page" in str(ui().exception)


@pytest.mark.parametrize("words", [("--port", "0"), ("--host", "::1"), ("--name", "a.b"), ("--token-file", "t")])
def test_options_of_a_folder_need_one(words: tuple[str, ...]) -> None:
    result = ui(*words)
    assert result.exit_code == 2
    worded(result.output)


@pytest.mark.parametrize("words", [("--job", "-"), ("--data", "x"), ("--embedded",), ("--profile", "staging")])
def test_options_of_a_service_need_no_folder(tmp_path: Path, words: tuple[str, ...]) -> None:
    for folder in ((str(tmp_path),), ("--logdir", str(tmp_path))):
        result = ui(*folder, *words)
        assert result.exit_code == 2
        worded(result.output)


@pytest.mark.parametrize("name", ["a/b", "http://a/b", "a:80", "ftp://a", "", "a b"])
def test_what_is_no_name_of_a_host_is_refused(tmp_path: Path, name: str) -> None:
    for words in (["ui", str(tmp_path)], ["serve", "--data", str(tmp_path / "data")]):
        result = CliRunner().invoke(app, [*words, "--name", name])
        assert result.exit_code == 2
        worded(result.output)
