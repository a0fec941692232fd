"""The official client of AIWorkspace on our service: all it can do with experiments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._service.embedded import ensure_running
from tests.support.peer_environment import python_with

pytestmark = pytest.mark.timeout(1800)  # the first run installs it

PROGRAM = Path(__file__).with_name("official_experiments_program.py")


@pytest.fixture(scope="module")
def python() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with("alibabacloud_aiworkspace20210204==8.3.5")


@pytest.fixture(scope="module")
def answers(python: Path, service_dir: Path) -> dict[str, Any]:
    """What it was answered."""
    info = ensure_running(service_dir)
    given = {name: getattr(info, name) for name in ("endpoint", "access_key_id", "access_key_secret", "region_id")}
    command = [str(python), str(PROGRAM), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_all_its_actions_are_answered(answers: dict[str, Any]) -> None:
    refused = {name: answer["code"] for name, answer in answers.items() if "error" in answer}
    assert refused == {"create again": "EXPERIMENT_ALREADY_EXISTS", "get deleted": "EXPERIMENT_NOT_FOUND"}


def test_it_finds_its_fields_filled(answers: dict[str, Any]) -> None:
    shown = answers["get"]
    assert (shown["Name"], shown["Accessibility"], shown["WorkspaceId"]) == ("official", "PUBLIC", "1")
    assert shown["ArtifactUri"] == "oss://pai-local/official/"
    assert {label["Key"]: label["Value"] for label in shown["Labels"]} == {"team": "search", "a/b": "c"}
    assert {"GmtCreateTime", "GmtModifiedTime", "OwnerId", "UserId", "TensorboardLogUri"} <= shown.keys()


def test_its_lists_are_filtered_sorted_and_paged(answers: dict[str, Any]) -> None:
    def names(which: str) -> list[str]:
        return [experiment["Name"] for experiment in answers[which]["Experiments"]]

    assert names("list") == names("list labels") == ["renamed"]
    assert [label["Key"] for label in answers["list"]["Experiments"][0]["Labels"]] == ["team"]
    assert names("list by token") + names("list next") == ["renamed", "more-1", "more-0"]
    assert answers["list by token"]["TotalCount"] == 3
    assert answers["list by token"]["requestId"]
