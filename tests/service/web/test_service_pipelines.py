"""Pipelines on the page of a service: from the labels of jobs, and from a bucket that the user may read."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pai_sdk._data.pipelines.records import FOLDER_LABEL, PIPELINE_LABEL, RUN_LABEL, STEP_LABEL
from pai_sdk._service.services import pipelines
from pai_sdk._wire.pai.request import ACCESSIBILITY_LABEL
from tests.service.fakes import ScriptedExecutor
from tests.service.identity.test_page_sessions import page_of, send
from tests.service.identity.test_two_users import user
from tests.service.services import Client, job_body

RUN = "20261129-120000-abcdef"


@pytest.fixture
def operator(start: Callable[..., Any]) -> Iterator[Client]:
    with start(ScriptedExecutor()) as client:
        yield client


@pytest.fixture
def alice(operator: Client) -> Client:
    return user(operator, "alice")


def submit(client: Client, step: str, run_id: str = RUN, *, folder: str = "", **labels: str) -> str:
    labels |= {RUN_LABEL: run_id, STEP_LABEL: step, PIPELINE_LABEL: "digits"}
    if folder:
        labels[FOLDER_LABEL] = folder
    pairs = [{"Key": key, "Value": value} for key, value in labels.items()]
    return client.create(job_body(TrainingJobName=step, Labels=pairs))


def store(client: Client, **changes: Any) -> str:
    """Writes the state of a run into the bucket of a user; returns the URI of its folder."""
    run = {
        "run_id": RUN,
        "pipeline": "digits",
        "parameters": {"rows": 10},
        "steps": [
            {"name": "split", "kind": "job", "needs": []},
            {"name": "train", "kind": "job", "needs": ["split"]},
        ],
        "status": "failed",
        "created_at": 1.0,
        "ended_at": 2.0,
        **changes,
    }
    step = {"name": "split", "status": "cached", "reason": "all that it depends on is the same"}
    client.bucket().put_object(f"flow/runs/{RUN}/run.json", json.dumps(run))
    client.bucket().put_object(f"flow/runs/{RUN}/steps/split.json", json.dumps(step))
    return f"oss://{client.info.bucket}/flow/runs/{RUN}/"


def rows(client: Client) -> list[dict[str, Any]]:
    answer = send(client, page_of(client), "GET", "/ui/pipelines")
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer.json["runs"]
    return found


def detail(client: Client, run_id: str = RUN) -> Any:
    return send(client, page_of(client), "GET", f"/ui/pipelines/{run_id}")


def test_a_run_is_known_by_its_jobs(operator: Client, alice: Client) -> None:
    split = submit(alice, "split")
    alice.until(split, "Running")
    assert alice.call("PUT", f"/trainingjobs/{split}/stop").status_code == 200
    alice.until(split, "Terminated")
    again, train = submit(alice, "split"), submit(alice, "train")
    alice.until(again, "Running")
    (row,) = rows(alice)
    assert (row["id"], row["pipeline"], row["steps"], row["is_stored"]) == (RUN, "digits", 2, False)
    assert (row["status"], row["ended_at"]) == ("running", None)
    run = detail(alice).json
    assert [(step["name"], step["job_id"]) for step in run["steps"]] == [("split", again), ("train", train)]
    assert (run["steps"][0]["status"], run["svg"]) == ("running", "")


def test_other_users_see_neither_the_run_nor_its_number(operator: Client, alice: Client) -> None:
    bob = user(operator, "bob")
    submit(alice, "train", folder=store(alice))
    assert len(rows(operator)) == len(rows(alice)) == 1
    assert rows(bob) == []
    missing, refused = detail(bob, "20261129-120000-000000"), detail(bob)
    assert (
        (missing.status, missing.json["Code"]) == (refused.status, refused.json["Code"]) == (404, "RUN_NOT_FOUND")
    )
    assert missing.json["Message"].replace("000000", "") == refused.json["Message"].replace("abcdef", "")


def test_the_stored_state_has_the_picture_and_the_reasons(operator: Client, alice: Client) -> None:
    submit(alice, "train", folder=store(alice))
    for client in (alice, operator):
        (row,) = rows(client)
        assert (row["status"], row["steps"], row["is_stored"]) == ("failed", 2, True)
        run = detail(client).json
        assert [(step["name"], step["status"]) for step in run["steps"]] == [
            ("split", "cached"),
            ("train", "waiting"),
        ]
        assert run["steps"][0]["reason"] == "all that it depends on is the same"
        assert run["svg"].startswith("<svg")
        assert run["parameters"] == {"rows": "10"}


def test_a_label_opens_no_bucket(operator: Client, alice: Client) -> None:
    """Neither a label with the folder of another user, nor a public job with one, opens the folder."""
    bob = user(operator, "bob")
    folder = store(alice)
    mine = submit(bob, "train", folder=folder)
    assert detail(bob).json["is_stored"] is False
    submit(alice, "train", folder=folder, **{ACCESSIBILITY_LABEL: "PUBLIC"})
    assert [step["job_id"] for step in detail(bob).json["steps"]] == [mine]
    assert {row["is_stored"] for row in rows(bob)} == {False}
    assert detail(alice).json["is_stored"] is True


@pytest.mark.parametrize(
    "changes",
    [
        {"run_id": "another"},
        {"steps": [{"name": "a", "needs": ["b"]}]},
        {"steps": [{"name": ["a"], "needs": []}]},
        {"steps": "split"},
        {"parameters": None},
        {"pipeline": {"<b>": 1}},
        {"created_at": "now"},
        {"created_at": None},
        {"ended_at": 10**400},
        {"padding": "x" * (17 << 20)},
    ],
    ids=lambda changes: f"{next(iter(changes))}-{str(next(iter(changes.values())))[:5]}",
)
def test_a_state_that_another_program_has_written_is_left_out(
    operator: Client, alice: Client, changes: dict[str, Any]
) -> None:
    submit(alice, "train", folder=store(alice, **changes))
    assert rows(alice)[0]["is_stored"] is False
    assert detail(alice).json["is_stored"] is False


def test_a_state_with_deeply_nested_objects_is_left_out(operator: Client, alice: Client) -> None:
    folder = store(alice)
    submit(alice, "train", folder=folder)
    folder_key = f"flow/runs/{RUN}"
    for key in (f"{folder_key}/steps/split.json", f"{folder_key}/run.json"):
        alice.bucket().put_object(key, '{"parameters":' + "[" * 100_000 + "]" * 100_000 + "}")
        assert detail(alice).json["is_stored"] is False
    assert rows(operator)[0]["is_stored"] is False


def test_a_list_waits_for_a_slow_store_for_some_seconds_only(
    operator: Client, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(alice, "train", folder=store(alice))
    assert rows(alice)[0]["is_stored"] is True
    monkeypatch.setattr(pipelines, "_MAX_READ_S", -1.0)
    assert [(row["id"], row["is_stored"]) for row in rows(alice)] == [(RUN, False)]
    assert detail(alice).json["is_stored"] is True


@pytest.mark.parametrize(
    "claim",
    [
        {"renewed_at": "now"},
        {"renewed_at": 10**400},
        {"renewed_at": float("nan")},
        {"renewed_at": 1e11, "host": socket.gethostname(), "pid": []},
        {"renewed_at": 1e11, "padding": "x" * (2 << 20)},
        "[" * 100_000 + "]" * 100_000,
    ],
    ids=["text", "large", "nan", "pid", "long", "nested"],
)
def test_a_claim_that_another_program_has_written_is_none(operator: Client, alice: Client, claim: Any) -> None:
    submit(alice, "train", folder=store(alice, status="running"))
    content = claim if isinstance(claim, str) else json.dumps(claim)
    alice.bucket().put_object(f"flow/runs/{RUN}/driver.json", content)
    assert [row["status"] for row in rows(operator)] == ["interrupted"]


def test_a_run_of_very_many_steps_has_no_picture(operator: Client, alice: Client) -> None:
    """Of 9 MB of steps the picture would have 110 MB."""
    steps = [{"name": f"s{at}", "kind": "job", "needs": [f"s{each}" for each in range(at)]} for at in range(210)]
    submit(alice, "train", folder=store(alice, steps=steps))
    run = detail(alice).json
    assert (run["is_stored"], len(run["steps"]), run["svg"]) == (True, 211, "")


def test_a_step_that_another_program_has_written_is_left_out(operator: Client, alice: Client) -> None:
    folder = store(alice)
    submit(alice, "train", folder=folder)
    for step in ({"status": "<b>"}, {"children": "<b>"}, {"error": ["<b>"]}, {"started_at": float("nan")}):
        content = json.dumps({"name": "split", **step})
        alice.bucket().put_object(f"flow/runs/{RUN}/steps/split.json", content)
        assert detail(alice).json["is_stored"] is False, step


@pytest.mark.parametrize("folder", ["file:///etc/", "/etc/", "oss://", "oss://none/x/", "s3://x/y"])
def test_a_service_reads_its_own_objects_only(operator: Client, alice: Client, folder: str) -> None:
    submit(alice, "train", folder=folder)
    assert detail(alice).json["is_stored"] is False
    assert detail(alice, "%00").status == 404
