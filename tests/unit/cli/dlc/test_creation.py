"""One job of a line of a script, also where the response of its create is lost and the line is repeated."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import cast

import pytest

from pai_sdk._client.api.dlc_jobs import DlcJobs
from pai_sdk._client.backend.connection import Connection
from pai_sdk._core.config.credentials import static_credentials
from pai_sdk._core.config.settings import Settings
from pai_sdk._core.retry import RetryPolicy
from pai_sdk.cli.dlc import creation
from pai_sdk.cli.dlc.creation import SubmittingBackend, create_once
from pai_sdk.errors import ApiError, ConnectionFailedError, InvalidRequestError, PaiError
from tests.support.odd_dlc import FakeDlc, Habits
from tests.unit.cli.dlc.conftest import Dlc
from tests.unit.cli.dlc.test_commands import JOB, SUBMIT
from tests.unit.client.api.scripted_server import Asked, Reply, Reset, ScriptedServer

BODY = {"DisplayName": "train", "WorkspaceId": "1", "UserCommand": "echo 1", "Envs": {"A": "1"}}


@pytest.fixture
def service() -> FakeDlc:
    return FakeDlc()


def line(service: FakeDlc, folder: Path, body: dict[str, object] = BODY) -> str:
    """Runs a line of a script, as a process of its own; returns the id that it prints."""
    retry = RetryPolicy(max_attempts=3, sleep=service.sleep, clock=service.clock)
    connection = Connection(Settings(endpoint="http://127.0.0.1:1"), static_credentials("a", "b"), retry)
    backend = SubmittingBackend(connection, jobs=cast(DlcJobs, service), clock=service.clock)
    return create_once(backend, body, folder).job_id or ""


def test_a_lost_response_is_followed_by_a_search(service: FakeDlc, tmp_path: Path) -> None:
    service.habits = Habits(lost=1.0, list_lag_s=20.0)
    assert [line(service, tmp_path)] == [*service.jobs]
    assert [*tmp_path.iterdir()] == []


def test_a_repeated_line_finds_the_job_that_was_not_listed(service: FakeDlc, tmp_path: Path) -> None:
    service.habits = Habits(lost=1.0, list_lag_s=600.0)
    with pytest.raises(ConnectionFailedError):
        line(service, tmp_path)
    service.sleep(600)
    service.habits.lost = 0.0
    assert [line(service, tmp_path)] == [*service.jobs]
    # That job is known now: once more is another one.
    assert line(service, tmp_path) in service.jobs
    assert len(service.jobs) == 2


def test_after_a_crash_in_a_create(service: FakeDlc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        create = service.create_once

        def crash(*arguments: object, **options: object) -> None:
            create(*arguments, **options)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        patch.setattr(service, "create_once", crash)
        with pytest.raises(KeyboardInterrupt):
            line(service, tmp_path)
    assert [line(service, tmp_path)] == [*service.jobs]


def test_equal_lines_are_jobs_of_their_own(service: FakeDlc, tmp_path: Path) -> None:
    assert len({line(service, tmp_path) for _ in range(3)}) == len(service.jobs) == 3


def test_an_old_lost_response_is_no_longer_searched_for(service: FakeDlc, tmp_path: Path) -> None:
    service.habits = Habits(lost=1.0, list_lag_s=600.0)
    with pytest.raises(ConnectionFailedError):
        line(service, tmp_path)
    service.sleep(7200)
    (file,) = tmp_path.iterdir()
    os.utime(file, (0, 0))
    service.habits.lost = 0.0
    line(service, tmp_path)
    assert len(service.jobs) == 2


def test_a_refused_line_leaves_nothing(service: FakeDlc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidRequestError("no such quota", code="InvalidParameter", status_code=400, request_id="r")

    monkeypatch.setattr(service, "create_once", refuse)
    with pytest.raises(ApiError):
        line(service, tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_without_a_folder(service: FakeDlc, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    service.habits = Habits(lost=1.0)
    assert [line(service, tmp_path / "file" / "folder")] == [*service.jobs]


@pytest.mark.parametrize("seed", range(20))
def test_a_script_that_repeats_its_line_has_one_job(service: FakeDlc, tmp_path: Path, seed: int) -> None:
    service.habits, service.chance = Habits.of(seed), random.Random(seed)
    others = {service.add({**BODY, "Envs": {"A": "b"}}) for _ in range(3)}
    job_id = None
    for _ in range(10):
        try:
            job_id = line(service, tmp_path)
            break
        except PaiError:
            continue
    assert service.jobs.keys() - others == {job_id}


def test_the_command_prints_the_job(
    dlc: Dlc, server: ScriptedServer, clean_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(asked: Asked) -> Reply | type[Reset]:
        if asked.method == "POST":
            return Reset
        return Reply({"Jobs": [{**server.asked[0].json, "JobId": JOB}], "TotalCount": 1})

    server.answer = answer
    result = dlc(*SUBMIT)
    assert (result.exit_code, JOB in result.stdout) == (0, True)
    assert [asked.method for asked in server.asked] == ["POST", "GET"]
    assert [*(clean_home / creation.UNCONFIRMED_DIR.relative_to("~")).iterdir()] == []
