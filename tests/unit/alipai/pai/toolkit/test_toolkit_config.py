"""`python -m pai_sdk.toolkit.config`: region, workspace and bucket are asked for and written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def typed(home: Path, *lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pai_sdk.toolkit.config"],
        input="".join(f"{line}\n" for line in lines),
        env={
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".pai" / "config.json"


def test_what_is_typed_is_checked_and_written(tmp_path: Path, file: Path) -> None:
    done = typed(tmp_path, "Hangzhou!", "cn-hangzhou", "12345", "oss://models", "models", "")
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == {
        "region_id": "cn-hangzhou",
        "workspace_id": "12345",
        "oss_bucket_name": "models",
    }
    assert "'Hangzhou!' is not a region" in done.stderr
    assert "'oss://models' is not a bucket name" in done.stderr
    assert "Workspaces cannot be listed" in done.stderr  # there is no key
    assert "no access key was found\n" in done.stderr  # without the places that were searched
    assert "pai-sdk doctor" in done.stdout


def test_the_end_of_the_input_writes_nothing(tmp_path: Path, file: Path) -> None:
    done = typed(tmp_path, "cn-hangzhou")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("nothing was written\n")
    assert not file.exists()


def test_enter_keeps_what_is_there_but_not_that_of_another_region(tmp_path: Path, file: Path) -> None:
    file.parent.mkdir()
    kept = {"region_id": "cn-hangzhou", "workspace_id": "1", "oss_bucket_name": "models", "prices": {"ecs.x": 1}}
    file.write_text(json.dumps(kept))
    assert typed(tmp_path, "", "", "", "").returncode == 0
    assert json.loads(file.read_text()) == kept
    done = typed(tmp_path, "cn-shanghai", "2", "other", "oss-cn-shanghai-internal.aliyuncs.com")
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == {
        "region_id": "cn-shanghai",
        "workspace_id": "2",
        "oss_bucket_name": "other",
        "oss_endpoint": "oss-cn-shanghai-internal.aliyuncs.com",
        "prices": {"ecs.x": 1},
    }
