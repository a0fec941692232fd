"""Rules about running jobs, by a real service with processes: what hangs becomes an event, and is acted upon."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pai_sdk._data.rules.codec import WATCH_VARIABLE, rules_text
from pai_sdk._data.rules.rules import (
    RULE_CODES,
    IdleCpu,
    NonFiniteMetric,
    NoProgress,
    OddRank,
    ProcessStopped,
    Rule,
)
from pai_sdk._service.settings import Pace
from tests.service.services import Client, job_body, running_service
from tests.support.waiting import until

PACE = Pace(watch_interval_s=0.5, first_retry_wait_s=0.2)
TIMEOUT_S = 60.0
LOSS = {"MetricDefinitions": [{"Name": "loss", "Regex": r"loss=([\d.]+)"}]}
TRAIN = """
import os, sys, time
def train(steps, step_s=0.1):
    for step in range(steps):
        time.sleep(step_s)
        print(f"step {step} loss={1 / (step + 1):.4f}", flush=True)
"""
# Short limits: those of a user are minutes.
HANG = NoProgress(min_s=3, first_step_s=20, busy_s=60, unmeasured_s=3)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_service(tmp_path / "data", pace=PACE) as client:
        yield client


def watched(script: str, *rules: Rule, **fields: Any) -> dict[str, Any]:
    """A job of a Python script with these rules."""
    program = [sys.executable, "-c", TRAIN + script]
    spec = {**LOSS, "Command": program}
    return job_body(AlgorithmSpec=spec, Environments={WATCH_VARIABLE: rules_text(rules)}, **fields)


def findings(client: Client, job_id: str) -> list[str]:
    codes = (
        "NoProgress",
        "OddRank",
        "ProcessStopped",
        "NonFiniteMetric",
        "MetricJump",
        "DiskNearlyFull",
        "IdleCpu",
    )
    lines = client.get(f"/trainingjobs/{job_id}/events")["Events"]
    texts = [line.partition(" ")[2] for line in lines]
    return [text for text in texts if text.startswith(codes)]


def first_finding(client: Client, job_id: str) -> str:
    return until(lambda: findings(client, job_id), within_s=TIMEOUT_S)[0]


def stop(client: Client, job_id: str) -> None:
    client.call("PUT", f"/trainingjobs/{job_id}/stop")


def test_a_hanging_job_has_one_event(client: Client) -> None:
    job_id = client.create(watched("train(20); time.sleep(600)", HANG))
    assert first_finding(client, job_id).startswith("NoProgress:")
    time.sleep(2.0)  # several samples later
    assert len(findings(client, job_id)) == 1
    job = client.get(f"/trainingjobs/{job_id}")
    assert (job["Status"], job["ReasonCode"]) == ("Running", "NoProgress")
    assert client.get(f"/runs/{job_id}/job")["message"] == job["ReasonMessage"]  # on the page
    first, *others = client.get(f"/runs/{job_id}/job")["rules"]
    assert (first["code"], first["action"], first["settings"]["min_s"]) == ("NoProgress", "notify", 3)
    (finding,) = first["findings"]
    assert (finding["is_open"], finding["message"]) == (True, job["ReasonMessage"])
    assert "loss=" in finding["lines"][-1]
    assert finding["values"]["quiet_s"] >= 3
    assert {rule["code"] for rule in others} == RULE_CODES - {"NoProgress"}
    assert not any(rule["findings"] for rule in others)
    stop(client, job_id)
    client.until(job_id)
    assert not client.get(f"/runs/{job_id}/job")["rules"][0]["findings"][0]["is_open"]


def test_a_job_that_continues_clears_its_event(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"train(20)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.1)\ntrain(600)"
    job_id = client.create(watched(script, HANG))
    first_finding(client, job_id)
    gate.touch()
    until(lambda: any(text.startswith("NoProgress cleared") for text in findings(client, job_id)))
    assert client.get(f"/trainingjobs/{job_id}").get("ReasonCode") is None
    (rule,) = [rule for rule in client.get(f"/runs/{job_id}/job")["rules"] if rule["findings"]]
    (finding,) = rule["findings"]
    assert finding["since"] < finding["cleared_at"]
    assert not finding["is_open"]
    stop(client, job_id)


def test_nan_in_the_log_is_named_with_its_step(client: Client) -> None:
    script = "train(5)\nwhile True:\n    time.sleep(0.2)\n    print('step 6 loss=nan', flush=True)"
    job_id = client.create(watched(script, NonFiniteMetric()))
    assert re.search(r"'loss' of \S+ is nan", first_finding(client, job_id))
    stop(client, job_id)


def test_nan_of_a_metric_definition_is_named(client: Client) -> None:
    script = "while True:\n    time.sleep(0.2)\n    print('accuracy: nan', flush=True)"
    body = watched(script, NonFiniteMetric())
    body["AlgorithmSpec"]["MetricDefinitions"] = [{"Name": "accuracy", "Regex": r"accuracy: (\S+)"}]
    job_id = client.create(body)
    assert re.search(r"'accuracy' of \S+ is nan", first_finding(client, job_id))
    stop(client, job_id)


def test_a_reported_nan_is_named(client: Client) -> None:
    script = (
        "from pai_sdk.reports import report\n"
        "for step in range(600):\n    time.sleep(0.1)\n"
        "    report({'accuracy': 0.5 if step < 5 else float('nan')}, step=step)"
    )
    job_id = client.create(watched(script, NonFiniteMetric()))
    assert re.search(r"'accuracy' of \S+ is nan at step", first_finding(client, job_id))
    stop(client, job_id)


def test_a_stopped_process_is_no_hang(client: Client) -> None:
    rule = ProcessStopped(min_s=1)
    job_id = client.create(watched("train(600)", HANG, rule))
    until(lambda: client.log(job_id))
    process = until(lambda: _process_of(job_id))
    process.send_signal(signal.SIGSTOP)
    assert first_finding(client, job_id).startswith("ProcessStopped:")
    time.sleep(HANG.min_s + 1)  # longer than the limit of the other rule
    process.send_signal(signal.SIGCONT)
    until(lambda: any("cleared" in text for text in findings(client, job_id)))
    assert not any(text.startswith("NoProgress") for text in findings(client, job_id))
    stop(client, job_id)


def _process_of(job_id: str) -> psutil.Process | None:
    for process in psutil.process_iter():
        try:
            if process.environ().get("PAI_INSTANCE_NAME", "").startswith(job_id) and "-c" in process.cmdline():
                return process
        except psutil.Error:
            continue
    return None


RANKS = """
import socket
rank, world, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["MASTER_PORT"])
def connect():
    if rank == 0:
        server = socket.create_server(("127.0.0.1", port))
        return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(("127.0.0.1", port))]
        except OSError:
            time.sleep(0.1)
def all_reduce():
    if rank == 0:
        for peer in peers:
            peer.recv(1)
    for peer in peers:
        peer.send(b"x")
    if rank:
        peers[0].recv(1)
def load_data():
    while True:
        time.sleep(600)
peers = connect()
step = 0
while True:
    step += 1
    time.sleep(0.05)
    if rank == 2 and step == 40:
        load_data()
    all_reduce()
    if rank == 0:
        print(f"step {step} loss={1 / step:.4f}", flush=True)
"""


def test_the_rank_that_the_others_wait_for_is_named(client: Client) -> None:
    body = watched(RANKS, HANG, OddRank(apart_s=1), ComputeResource={"EcsSpec": "local", "EcsCount": 4})
    job_id = client.create(body)
    text = until(
        lambda: next((text for text in findings(client, job_id) if text.startswith("OddRank:")), None),
        within_s=TIMEOUT_S,
    )
    assert "rank 2," in text
    stop(client, job_id)


def test_a_healthy_job_has_no_event(client: Client) -> None:
    # Longer than the limit of a hang without CPU.
    script = "train(20)\nend = time.monotonic() + 6\nwhile time.monotonic() < end: pass\ntrain(20)"
    job_id = client.create(watched(script, HANG))
    assert client.until(job_id, timeout_s=TIMEOUT_S)["Status"] == "Succeed"
    assert findings(client, job_id) == []


def test_a_restarted_service_neither_repeats_nor_forgets(tmp_path: Path) -> None:
    with running_service(tmp_path / "data", pace=PACE) as client:
        job_id = client.create(watched("train(20); time.sleep(600)", HANG))
        quiet_id = client.create(watched("train(600, 0.3)", HANG))
        first_finding(client, job_id)
    time.sleep(HANG.min_s)  # nobody watches
    with running_service(tmp_path / "data", pace=PACE) as client:
        time.sleep(2.0)
        assert len(findings(client, job_id)) == 1
        assert findings(client, quiet_id) == []
        for each in (job_id, quiet_id):
            stop(client, each)
            client.until(each)


def test_stop_ends_the_job_with_the_code_of_the_rule(client: Client) -> None:
    rule = NoProgress(min_s=3, unmeasured_s=3, action="stop")
    job_id = client.create(watched("train(20); time.sleep(600)", rule))
    job = client.until(job_id, timeout_s=TIMEOUT_S)
    assert (job["Status"], job["ReasonCode"]) == ("Failed", "NoProgress")


def test_restart_starts_the_job_again_as_often_as_the_rule_says(client: Client, tmp_path: Path) -> None:
    rule = NoProgress(min_s=3, unmeasured_s=3, action="restart", max_restarts=2)
    count = tmp_path / "count"
    script = (
        f"open({str(count)!r}, 'a').write('x')\ntrain(20)\n"
        f"if len(open({str(count)!r}).read()) < 3: time.sleep(600)\nprint('done')"
    )
    job_id = client.create(watched(script, rule))
    job = client.until(job_id, timeout_s=2 * TIMEOUT_S)
    assert (job["Status"], count.read_text()) == ("Succeed", "xxx")


def test_a_snapshot_has_stacks_and_last_lines(client: Client, tmp_path: Path) -> None:
    rule = NoProgress(min_s=3, unmeasured_s=3, action="snapshot")
    job_id = client.create(watched("train(20); time.sleep(600)", rule))
    first_finding(client, job_id)
    folder = tmp_path / "data" / "jobs" / job_id / "snapshots"
    path = until(lambda: next(folder.glob("NoProgress-*.json"), None))
    content = json.loads(path.read_text())
    assert any("loss=" in line for lines in content["last_lines"].values() for line in lines)
    assert content["stacks"] is not None
    stop(client, job_id)


def test_rules_of_a_workspace_apply_to_its_jobs(tmp_path: Path) -> None:
    from pai_sdk._data.rules.codec import WatchConfig

    config = WatchConfig.parse({"default": [{"rule": "NoProgress", "min_s": 3}], "workspaces": {"9": []}})
    with running_service(tmp_path / "data", pace=PACE, watch=config) as client:
        job_id = client.create(watched("train(20); time.sleep(600)"))
        assert first_finding(client, job_id).startswith("NoProgress:")
        stop(client, job_id)


def test_a_disabled_rule_reports_nothing(client: Client) -> None:
    off = NoProgress(min_s=1, enabled=False), IdleCpu(minutes=0.02)
    job_id = client.create(watched("train(20); time.sleep(600)", *off))
    assert first_finding(client, job_id).startswith("IdleCpu:")
    stop(client, job_id)
