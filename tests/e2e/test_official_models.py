"""The models of PAI's official client take our requests field by field, and we take its answers.

It runs in an environment of its own: nothing of it is imported here.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pai_sdk._wire.pai.record import JobRecord
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.support.peer_environment import python_with
from tests.support.wire_samples import requests

PROGRAM = Path(__file__).with_name("official_models_program.py")
PER_KIND = 150

# Settings of the build of this client that alipai brings along; the public one has no such fields.
ONLY_IN_ALIPAI = {"AIMasterType", "Priority"}
# For executors of this package; no client of PAI has them.
ONLY_OURS = {"Roles", "Mounts"}


@pytest.fixture(scope="module")
def python() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with("alibabacloud_paistudio20220112==2.6.2")


def made_up() -> list[dict[str, Any]]:
    """Many requests: with every field filled, and with any of them left out."""
    bodies: list[dict[str, Any]] = []
    for full in (True, False):

        @settings(
            max_examples=PER_KIND,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(request=requests(full=full))
        def collect(request: TrainingJobRequest) -> None:
            bodies.append(request.to_wire())

        collect()
    return bodies


def without_empty(value: Any) -> Any:
    """A list or an object with nothing in it says as much as none; that client writes `[]` for both."""
    if isinstance(value, dict):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ([], {}, None)}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def known_to_it(body: dict[str, Any]) -> dict[str, Any]:
    given = body.get("Settings", {})
    settings = {key: item for key, item in given.items() if key not in ONLY_IN_ALIPAI}
    return {key: item for key, item in body.items() if key not in ONLY_OURS} | {"Settings": settings}


@pytest.fixture(scope="module")
def spoken(python: Path) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """Our requests, what that client makes of them, and its own answers."""
    bodies = made_up()
    lines = "".join(json.dumps(body) + "\n" for body in bodies)
    command = [str(python), "-W", "ignore", str(PROGRAM)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    theirs, answers = done.stdout.split("\n\n")
    return bodies, [*map(json.loads, theirs.splitlines())], [*map(json.loads, answers.splitlines())]


@pytest.mark.timeout(1800)  # the first run installs it
def test_it_takes_our_requests_and_loses_nothing(spoken: Any) -> None:
    ours, theirs, _ = spoken
    assert len(ours) == len(theirs) >= PER_KIND
    for mine, its in zip(ours, theirs, strict=True):
        assert without_empty(its) == without_empty(known_to_it(mine))


@pytest.mark.timeout(1800)
def test_every_field_is_tried(spoken: Any) -> None:
    ours, _, _ = spoken
    assert set(TrainingJobRequest.model_validate(ours[0]).to_wire()) == {
        field.alias for field in TrainingJobRequest.model_fields.values()
    }


@pytest.mark.timeout(1800)
def test_we_take_its_answers_and_lose_nothing(spoken: Any) -> None:
    answers = spoken[2]
    assert len(answers) == 2
    for answer in answers:
        record = JobRecord.model_validate(answer)
        assert record.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True) == answer
        # Every field has a name of ours but the id of the request, which is not the job's.
        assert set(record.model_extra or {}) <= {"RequestId"}
        lists = record.instances + record.status_transitions + record.input_channels + record.output_channels
        assert [item for item in lists if item.model_extra] == []
