"""`pai-sdk watch`: findings as lines or JSON, messages to targets, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.notify.targets import Webhook
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.unit.cli.conftest import Pai

_RULES = '[{"rule": "NonFiniteMetric", "points": 1, "action": "stop"}]'


@pytest.fixture
def diverging(memory: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """A job whose loss is NaN; it finishes after it was stopped, or after some reads."""
    reads = 0

    def on_read() -> None:
        nonlocal reads
        reads += 1
        memory.lines["train1-worker-0"] = ["step 1 loss=0.5", "step 2 loss=nan"][: reads + 1]
        if reads > 5:
            memory.status = "Succeed"

    memory.lines["train1-worker-0"] = ["step 1 loss=0.5"]
    memory.on_read = on_read
    monkeypatch.setattr(FakeBackend, "stop", lambda self, job_id: setattr(self, "status", "Terminated"))
    return memory


def test_a_finding_with_the_action_stop_stops_the_job(
    pai: Pai, diverging: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(Webhook, "send", lambda self, message: sent.append(message))
    options = "--interval", "0.1", "--rules", _RULES, "--notify", "https://example.com/hook"
    result = pai("watch", "train1", *options)
    assert result.stdout.startswith("NonFiniteMetric: the metric 'loss' of train1-worker-0 is nan")
    assert result.exit_code == 103
    assert [(message["code"], message["job_id"]) for message in sent] == [("NonFiniteMetric", "train1")]


def test_findings_as_json_with_evidence(pai: Pai, diverging: FakeBackend, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('[{"rule": "NonFiniteMetric", "points": 1}]')
    result = pai("watch", "train1", "--interval", "0.1", "--json", "--rules", f"@{file}")
    first = json.loads(result.stdout.splitlines()[0])
    assert (first["code"], first["status"], first["instance"]) == ("NonFiniteMetric", "raised", "train1-worker-0")
    assert first["evidence"]["curve"]
    assert result.exit_code == 0


def test_wrong_rules_are_refused(pai: Pai, memory: FakeBackend) -> None:
    with pytest.raises(InvalidInputError):
        pai("watch", "train1", "--rules", '[{"rule": "NoProgres"}]')
