"""The page of a folder with runs of pipelines: what it lists, and what it keeps to itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from pai_sdk import Pipeline
from pai_sdk._data.pipelines.folder_runs import FolderRuns
from pai_sdk._service.web.ui_app import UiServer, UiSettings
from pai_sdk.errors import PipelineFailed
from tests.service.web.browsing import built_page
from tests.support.waiting import PATIENCE_S

TOKEN = "a token for programs"


def _fail(value: int) -> None:
    raise ValueError(f"<b>{value}</b>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pipelines")
    good = Pipeline("good", store=root / "good")
    rate = good.parameter("rate", float, float("nan"))
    one = good.step(lambda: 1, name="one")
    good.each(one.result, lambda n: n, value="n", name="never", when=one.result > 1)
    good.step(lambda x, r: x, name="two", arguments={"x": one.result, "r": rate})
    good.run(show=False)
    bad = Pipeline("bad", store=root / "bad")
    bad.step(_fail, arguments={"value": 1})
    with pytest.raises(PipelineFailed):
        bad.run(show=False)
    # Not runs of pipelines: another program's file, something that is no file, and a link out of the folder.
    (root / "other" / "runs" / "2" / "run.json").mkdir(parents=True)
    (root / "other" / "runs" / "1").mkdir(parents=True)
    (root / "other" / "runs" / "1" / "run.json").write_text('{"my": "own"}')
    outside = tmp_path_factory.mktemp("outside")
    secret = Pipeline("secret", store=outside)
    secret.step(lambda: 1, name="one")
    secret.run(show=False)
    (root / "linked").symlink_to(outside)
    return root


@contextmanager
def _served(folder: Path, static: Path) -> Iterator[UiServer]:
    made = UiServer(UiSettings(folder, token=TOKEN, static=built_page(static), pipelines=FolderRuns(folder)))
    ready = threading.Event()
    thread = threading.Thread(target=made.run, args=(ready.set,))
    thread.start()
    assert ready.wait(PATIENCE_S)
    yield made
    made.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiServer]:
    with _served(folder, tmp_path_factory.mktemp("static")) as made:
        yield made


def _get(server: UiServer, path: str, token: str = TOKEN) -> requests.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return requests.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, timeout=PATIENCE_S)


def _rows(server: UiServer) -> list[dict[str, Any]]:
    answer = _get(server, "/ui/pipelines")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["runs"]
    return found


def test_the_runs_are_listed_the_newest_first(server: UiServer) -> None:
    assert [(row["pipeline"], row["status"], row["steps"]) for row in _rows(server)] == [
        ("bad", "failed", 1),
        ("good", "succeeded", 3),
    ]


def test_a_run_has_its_steps_its_parameters_and_a_picture(server: UiServer) -> None:
    (run_id,) = (row["id"] for row in _rows(server) if row["pipeline"] == "good")
    run = _get(server, f"/ui/pipelines/{run_id}").json()
    assert {step["name"]: step["status"] for step in run["steps"]} == {
        "one": "succeeded",
        "never": "skipped",
        "two": "succeeded",
    }
    assert run["parameters"] == {"rate": "NaN"}
    assert run["svg"].startswith("<svg")
    assert "succeeded" in run["svg"]


def test_a_failure_is_told_and_its_picture_has_no_markup_of_the_job(server: UiServer) -> None:
    run = _get(server, f"/ui/pipelines/{_rows(server)[0]['id']}").json()
    assert run["steps"][0]["error"] == "ValueError: <b>1</b>"
    assert "<b>" not in run["svg"]


@pytest.mark.parametrize(
    "run_id",
    [
        "good/runs/none",
        "other/runs/1",
        "other/runs/2",
        "linked/runs",
        "%2e%2e/secret",
        "good/%2e%2e/good",
        "~",
        "%00",
        "//etc",
    ],
)
def test_what_is_no_run_in_the_folder_is_not_found(server: UiServer, run_id: str) -> None:
    answer = _get(server, f"/ui/pipelines/{run_id}")
    assert answer.status_code == 404, answer.text
    assert "secret" not in answer.text.replace(run_id, "").replace("../secret", "")


def test_a_link_out_of_the_folder_is_not_followed(server: UiServer, folder: Path) -> None:
    (run,) = (folder / "linked" / "runs").iterdir()
    assert _get(server, f"/ui/pipelines/linked/runs/{run.name}").status_code == 404


def test_without_the_key_nothing_is_shown(server: UiServer) -> None:
    assert _get(server, "/ui/pipelines", token="").status_code == 401
    assert _get(server, f"/ui/pipelines/{_rows(server)[0]['id']}", token="wrong").status_code == 401


def test_the_link_opens_the_pipelines_of_a_folder_that_has_some(server: UiServer, tmp_path: Path) -> None:
    assert server.new_link().endswith("&view=pipelines")
    assert "view=" not in server.new_link("a run")
    with _served(tmp_path, tmp_path) as empty:
        assert "view=" not in empty.new_link()


def test_the_folder_may_be_that_of_one_pipeline_or_of_one_run(folder: Path) -> None:
    (of_pipeline,) = FolderRuns(folder / "good").rows()
    assert of_pipeline["id"].startswith("runs/")
    place = folder / "good" / of_pipeline["id"]
    (alone,) = FolderRuns(place).rows()
    assert FolderRuns(place).detail(alone["id"])["pipeline"] == "good"


def test_a_run_that_is_written_to_is_read(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    pipeline = Pipeline("live", store=tmp_path)

    def look() -> None:
        (row,) = FolderRuns(tmp_path).rows()
        seen.append(FolderRuns(tmp_path).detail(row["id"]))

    pipeline.step(look, name="look")
    pipeline.run(show=False)
    assert seen[0]["status"] == "running"
    assert [step["status"] for step in seen[0]["steps"]] == ["running"]
    json.dumps(seen[0], allow_nan=False)
