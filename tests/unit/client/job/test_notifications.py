"""The end of a job, announced to a webhook and to DingTalk."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pai_sdk import DingTalk, Estimator, Pipeline, Tuner, Webhook
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._core.retry import RetryPolicy
from pai_sdk._data.notify import targets as notifications
from pai_sdk.errors import InvalidInputError, JobFailed, PipelineFailed, WaitTimeoutError
from tests.support.fake_backend import FAST, FakeBackend
from tests.support.messages import refused
from tests.unit.client.api.scripted_server import Reply, ScriptedServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(notifications, "_RETRY", RetryPolicy(max_attempts=3, sleep=lambda _: None))
    made = ScriptedServer()
    yield made
    made.close()


def ended(backend: FakeBackend, status: str, *where: notifications.Notification) -> TrainingJob:
    backend.status = status
    backend.lines = {"train1-master-0": ["bye"]}
    job = TrainingJob("train1", backend)
    job.notifications = where
    return job


def test_a_webhook_gets_the_facts_once(fake_backend: FakeBackend, server: ScriptedServer) -> None:
    job = ended(fake_backend, "Succeed", Webhook(f"{server.endpoint}/hook/a-secret", headers={"X-Token": "t"}))
    job.wait(show_logs=False, policy=FAST)
    job.wait(show_logs=False, policy=FAST)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/hook/a-secret")
    facts = json.loads(asked.body)
    assert (facts["job_id"], facts["name"], facts["status"]) == ("train1", "fake", "Succeed")
    assert facts["reason_code"] is None


def test_a_failure_is_announced_with_its_first_line(fake_backend: FakeBackend, server: ScriptedServer) -> None:
    fake_backend.extra = {"ReasonCode": "OutOfMemory", "ReasonMessage": "It took too much memory."}
    job = ended(fake_backend, "Failed", Webhook(server.endpoint))
    with pytest.raises(JobFailed):
        job.wait(show_logs=False, policy=FAST)
    facts = json.loads(server.asked[0].body)
    assert facts["reason_code"] == "OutOfMemory"
    assert facts["message"] == "job fake (train1) Failed: It took too much memory."


def test_a_wait_that_ends_before_the_job_announces_nothing(
    fake_backend: FakeBackend, server: ScriptedServer
) -> None:
    job = ended(fake_backend, "Running", Webhook(server.endpoint))
    with pytest.raises(WaitTimeoutError):
        job.wait(0.05, show_logs=False, policy=FAST)
    assert server.asked == []
    fake_backend.status = "Succeed"
    job.wait(show_logs=False, policy=FAST)
    assert len(server.asked) == 1


def test_a_busy_receiver_is_asked_again(fake_backend: FakeBackend, server: ScriptedServer) -> None:
    server.script = [Reply({}, 503), Reply({"errcode": -1, "errmsg": "busy"}), Reply({"errcode": 0})]
    ended(fake_backend, "Succeed", DingTalk(server.endpoint)).wait(show_logs=False, policy=FAST)
    assert len(server.asked) == 3


def test_what_cannot_be_sent_is_a_warning_without_the_secret(
    fake_backend: FakeBackend, server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script = [Reply({}, 404)]
    refused = Webhook(f"{server.endpoint}/hunter2")
    nowhere = DingTalk("http://127.0.0.1:9/send?access_token=hunter2", "SEChunter2")

    class Broken:
        def send(self, facts: object) -> None:
            raise RuntimeError("hunter2")

    ended(fake_backend, "Succeed", refused, nowhere, Broken()).wait(show_logs=False, policy=FAST)
    assert "HTTP 404" in caplog.text
    assert "no response (Connection refused)" in caplog.text
    assert len([record for record in caplog.records if "was not sent" in record.message]) == 3
    assert len(server.asked) == 1, "a refusal is not repeated"
    assert "hunter2" not in caplog.text.replace("Broken", "")
    assert "hunter2" not in repr([refused, nowhere])


def test_dingtalk_signs_its_url(fake_backend: FakeBackend, server: ScriptedServer) -> None:
    server.script = [Reply({"errcode": 0})]
    robot = DingTalk(f"{server.endpoint}/robot/send?access_token=abc", "SECxyz")
    ended(fake_backend, "Succeed", robot).wait(show_logs=False, policy=FAST)
    (asked,) = server.asked
    text = f"{asked.query['timestamp']}\nSECxyz".encode()
    sign = base64.b64encode(hmac.new(b"SECxyz", text, hashlib.sha256).digest()).decode()
    assert (asked.query["access_token"], asked.query["sign"]) == ("abc", sign)
    body = json.loads(asked.body)
    assert body["msgtype"] == "markdown"
    assert body["markdown"]["title"] == "fake: Succeed"
    assert "train1" in body["markdown"]["text"]
    assert parse_qs(urlsplit(robot.signed_url(1.0)).query)["timestamp"] == ["1000"]


@pytest.mark.parametrize("url", ["", "hooks.example.com", "ftp://a/b", 7])
def test_wrong_urls(url: Any) -> None:
    for make in (Webhook, DingTalk):
        with refused(InvalidInputError, "url"):
            make(url)


def test_only_notifications_can_be_given() -> None:
    for wrong, where in (([7], "notify[0]"), (["https://a/b", "hunter2"], "notify[1]"), ("https://a", "notify")):
        notify: Any = wrong
        with pytest.raises(InvalidInputError) as caught:
            Estimator("image", "true", instance_type="local", notify=notify).plan()
        assert [problem.where for problem in caught.value.problems] == [where]
        assert "hunter2" not in str(caught.value)


def test_a_plan_has_the_targets_without_their_secrets() -> None:
    plan = Estimator("image", "true", instance_type="local", notify=["https://a.example.com/hunter2"]).plan()
    assert "notify: Webhook('https://a.example.com/…')" in str(plan)
    assert "hunter2" not in str(plan) + repr(plan) + plan.to_json()


# ---- pipelines and searches


def test_a_pipeline_says_how_it_ended(server: ScriptedServer, tmp_path: Path) -> None:
    targets = [f"{server.endpoint}/all", f"{server.endpoint}/failed#on=failed"]
    pipeline = Pipeline("nightly", store=tmp_path, notify=targets)
    pipeline.step(lambda x: 1 // x, name="divide", arguments={"x": pipeline.parameter("x", int)}, cache=False)
    pipeline.run(show=False, x=1)
    with pytest.raises(PipelineFailed):
        pipeline.run(show=False, x=0)
    assert [(asked.path, asked.json["code"]) for asked in server.asked] == [
        ("/all", "PipelineSucceeded"),
        ("/all", "PipelineFailed"),
        ("/failed", "PipelineFailed"),
    ]
    assert server.asked[0].json["name"] == "nightly"


def test_a_search_says_how_it_ended(server: ScriptedServer, tmp_path: Path) -> None:
    tuner = Tuner(
        lambda config: {"loss": config["x"]},
        {"x": [1, 2]},
        sampler="grid",
        study=tmp_path / "s",
        notify=[server.endpoint],
    )
    tuner.run(show=False)
    assert [asked.json["code"] for asked in server.asked] == ["SearchSucceeded"]


@pytest.mark.parametrize("notify", ["https://a", ["hunter2"], [7], 7])
def test_wrong_targets_of_pipelines_and_searches(notify: Any) -> None:
    for make in (lambda: Pipeline("p", notify=notify), lambda: Tuner(print, {"x": [1]}, notify=notify)):
        with pytest.raises(InvalidInputError) as caught:
            make()
        assert caught.value.problems[0].where.startswith("notify")
        assert "hunter2" not in str(caught.value)
