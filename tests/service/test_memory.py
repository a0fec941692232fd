"""No request takes the memory of the machine: what is out of bounds is refused before it is built."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oss2
import pytest

from pai_sdk._service.embedded import ensure_running
from pai_sdk._service.services.jobs.patterns import pattern_problems
from tests.service.services import Client, job_body
from tests.support.leftovers import has_ended
from tests.support.waiting import PATIENCE_S, until

# A service at rest has about 90 MiB. What its requests may add holds for all of them together.
MOST_MORE_BYTES = 100 << 20

BOMB = "((?:(?:a{1000}){1000}){1000})"
SLOW = "((?:ab){100000000})"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A service in a process of its own, whose memory can be measured."""
    info = ensure_running(tmp_path_factory.mktemp("memory") / "data", timeout_s=PATIENCE_S)
    client = Client(info)
    yield client
    client.session.close()
    os.kill(info.pid, signal.SIGTERM)
    until(lambda: has_ended(info.pid), "its end")


def peak_bytes(client: Client) -> int:
    status = Path(f"/proc/{client.info.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


def hyperparameter(pattern: str) -> dict[str, Any]:
    definition = {"Name": "a", "Range": {"Pattern": pattern}}
    return {
        "AlgorithmSpec": {"HyperParameters": [definition]},
        "HyperParameters": [{"Name": "a", "Value": "b"}],
    }


CREATES: list[dict[str, Any]] = [
    {"ComputeResource": {"EcsSpec": "x", "EcsCount": 2**31}},
    {"ComputeResource": {"InstanceCount": 10_000_000}},
    {"ComputeResource": {"InstanceCount": 2**31}, "AlgorithmSpec": {"JobType": "TFJob"}},
    {"ComputeResource": {"InstanceCount": 10**300}},
    {"ComputeResource": {"InstanceSpec": {"Memory": "9" * 308}, "InstanceCount": 1}},
    {"ComputeResource": {"InstanceSpec": {"Memory": "1" * 400}, "InstanceCount": 1}},
    {"Scheduler": {"MaxRunningTimeInMinutes": 10**18}},
    {"Priority": 10**30},
    {"AlgorithmSpec": {"MetricDefinitions": [{"Name": "m", "Regex": BOMB}]}},
    {"AlgorithmSpec": {"MetricDefinitions": [{"Name": "m", "Regex": SLOW}]}},
    {"AlgorithmSpec": {"MetricDefinitions": [{"Name": "m", "Regex": "(" + "a{9}" * 50_000 + ")"}]}},
    {"AlgorithmSpec": {"ProgressDefinitions": {"OverallProgress": {"Regex": BOMB}}}},
    hyperparameter(BOMB),
    {"Labels": [1] * 300_000},
    {"Labels": [{str(number): number for number in range(50)}] * 1000},
    {"HyperParameters": [[[1] * 500] * 500]},
    {f"Unknown{number}": 1 for number in range(40_000)},
    {"InputChannels": [{"Name": "a", "InputUri": "oss://pai-local/a/"}] * 5000},
    # Just within the bounds, and wrong in every value.
    {"Labels": [{f"Kye{number}": number for number in range(18)}] * 1000},
    {f"Unknown{number}": 1 for number in range(900)},
]


def test_hostile_requests_are_refused_in_little_memory(client: Client) -> None:
    client.create(job_body())
    before = peak_bytes(client)
    for change in CREATES:
        answer = client.call("POST", "/trainingjobs", body=job_body(**change))
        assert answer.status_code == 400, (str(change)[:100], answer.text)
        assert len(answer.text) < 20_000
    algorithm = client.call("POST", "/algorithms", body={"AlgorithmName": "a"}).json()["AlgorithmId"]
    spec = job_body(AlgorithmSpec={"MetricDefinitions": [{"Name": "m", "Regex": BOMB}]})["AlgorithmSpec"]
    for method in ("POST", "PUT"):
        answer = client.call(method, f"/algorithms/{algorithm}/versions/1", body={"AlgorithmSpec": spec})
        assert answer.status_code == 400, answer.text
    keys = {f"k{number}": "" for number in range(1000)}
    for labels in (json.dumps(keys), "[" * 10_000):
        assert client.call("GET", "/trainingjobs", Labels=labels).status_code == 400
    deletion = b"<Delete>" + b"<a/>" * 1_000_000 + b"</Delete>"
    with pytest.raises(oss2.exceptions.ServerError) as caught:
        client.bucket()._do("POST", client.info.bucket, "", params={"delete": ""}, data=deletion)
    assert (caught.value.status, caught.value.code) == (400, "MalformedXML")
    assert peak_bytes(client) - before < MOST_MORE_BYTES
    assert client.get("/workspaces")["TotalCount"] == 1


def test_each_pattern_has_its_verdict() -> None:
    good, wrong, groupless = "loss=([0-9.]{1,9})", "(", "loss"
    assert pattern_problems([good]) == [""]
    first, second, third = pattern_problems([wrong, groupless, good])
    assert "cannot be read" in first
    assert "no group" in second
    assert third == ""
    verdicts = pattern_problems([good, BOMB, good])
    assert (verdicts[0], verdicts[2]) == ("", "")
    assert "takes too much memory or time" in verdicts[1]
    assert "takes too much memory or time" in pattern_problems([BOMB], readable=False)[0]
    assert pattern_problems([wrong, groupless], readable=False) == ["", ""]
    assert "4096 characters" in pattern_problems(["(" + "a" * 5000 + ")"])[0]
    assert pattern_problems([]) == []


def test_many_patterns_together_are_bounded() -> None:
    some = [f"((?:a{{1000}}){{{number}}})" for number in range(1, 30)]
    assert any(pattern_problems(some))
    assert not any(pattern_problems(some[:3]))


def test_a_process_that_does_not_start_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(RuntimeError, match="no such module"):
        pattern_problems(["(never seen before)"])


def test_a_serving_process_looks_for_garbage_more_rarely() -> None:
    """A full collection stops all threads; cycles are still found."""
    program = (
        "import gc; from pai_sdk._service.process import prepare_threads; before = gc.get_threshold(); "
        "prepare_threads(); now = gc.get_threshold(); "
        "print(now[0] > before[0], now[1:] == before[1:], gc.isenabled())"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["True"] * 3
