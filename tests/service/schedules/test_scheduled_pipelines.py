"""A pipeline by cron: the job that a schedule creates runs it, as its owner, and submits the jobs of its steps."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pai_sdk.cli.root import app
from pai_sdk.errors import InvalidInputError
from tests.service.identity.test_two_users import user
from tests.service.schedules.test_schedule_routes import NEVER, make_due, use
from tests.support.waiting import until

FLOW = """
from pai_sdk import Pipeline, Processor

nightly = Pipeline("nightly")
word = nightly.parameter("word", str, "nothing")
job = Processor("none", "echo $WORD > $PAI_OUTPUT_SAID/word.txt", instance_type="ecs.c6.large")
nightly.step(job, name="say", outputs=["said"], environments={"WORD": word})
"""


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, ["pipeline", "schedule", *words, "--json"])
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def test_a_pipeline_runs_at_its_time_as_its_owner(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "flows").mkdir()
    flow = tmp_path / "flows" / "flow.py"
    flow.write_text(FLOW)
    with start("process") as operator:
        alice = user(operator, "alice")
        use(alice, monkeypatch)
        made = run(f"{flow}:nightly", "--cron", NEVER, "--set", "word=it's night")
        shown = alice.get(f"/schedules/{made['ScheduleId']}")
        port = operator.info.endpoint.rpartition(":")[2]
    assert made["Name"] == "nightly"
    command = shlex.split(shown["Request"]["AlgorithmSpec"]["Command"][-1])
    assert command[-6:] == ["pai-sdk", "pipeline", "run", "flow.py:nightly", "--set", "word=it's night"]
    assert alice.info.access_key_secret not in json.dumps(shown)
    make_due(tmp_path / "data")
    with start("process", port=int(port)) as operator:
        until(lambda: alice.get(f"/schedules/{made['ScheduleId']}")["LastJobId"] is not None)
        job_id = alice.get(f"/schedules/{made['ScheduleId']}")["LastJobId"]
        job = alice.until(job_id)
        assert job["Status"] == "Succeed", alice.log(job_id)
        (step,) = [one for one in alice.get("/trainingjobs")["TrainingJobs"] if one["TrainingJobId"] != job_id]
        assert (step["Status"], step["UserId"]) == ("Succeed", "alice")
        folder = step["OutputChannels"][0]["OutputUri"].removeprefix(f"oss://{alice.info.bucket}/")
        assert alice.bucket().get_object(f"{folder}word.txt").read() == b"it's night\n"


def test_the_home_folder_is_not_uploaded(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Path.home() / "flow.py"
    flow.write_text(FLOW)
    with start("process") as operator:
        use(operator, monkeypatch)
        with pytest.raises(InvalidInputError, match="is in your home folder"):
            run(f"{flow}:nightly", "--cron", NEVER)
