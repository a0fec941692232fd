"""The client on other systems, and where each warning is an error: it plans, submits, follows and fetches."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.service.services import Client
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).resolve().parents[2]

# More than one range, so that it is fetched in parts; and bytes that a file in text mode would change.
SIZE_BYTES = 20 << 20
MAKE = f"""
import os, pathlib, random
folder = pathlib.Path(os.environ["PAI_OUTPUT_MODEL"])
(folder / "large.bin").write_bytes(random.Random(1).randbytes({SIZE_BYTES}))
(folder / "small.txt").write_bytes(b"one\\r\\ntwo\\n\\x1athree")
"""


@pytest.fixture
def client_folder(tmp_path: Path, service: Client) -> Path:
    (tmp_path / "code" / "deep").mkdir(parents=True)
    (tmp_path / "code" / "make.py").write_text(MAKE)
    (tmp_path / "code" / "deep" / "unused.py").write_text("")
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "info.json").write_text(service.info.to_json())
    return tmp_path


def test_where_there_is_no_fcntl_and_no_fork(client_folder: Path) -> None:
    found = run_client(client_folder, "--windows")
    assert len(found["refusals"]) == 3
    assert all("Windows" in text and "WSL" in text for text in found["refusals"].values()), found["refusals"]


@pytest.mark.slow
def test_where_warnings_are_errors_and_nothing_is_compiled_yet(client_folder: Path) -> None:
    """Python warns of a library's source only when it compiles it, at the first import."""
    found = run_client(client_folder, options=["-W", "error", "-B", "-X", f"pycache_prefix={client_folder}/none"])
    assert {"pai_sdk._service.server", "pai_sdk._client.backend.local"} <= set(found["modules"])


# What a submission without files does without: each takes some percent of the time of its program.
UNUSED = (
    "asyncio",
    "docker",
    "oss2",
    "pai_sdk._client.api.models",
    "pai_sdk._client.api.service_runs",
    "pai_sdk._client.backend.dlc",
    "pai_sdk._data.run.store.stored_checkpoints",
    "pai_sdk._data.run.watch",
    "pai_sdk._host",
    "pai_sdk._wire.dlc.jobs",
    "pai_sdk._wire.resources",
    "pathspec",
    "rich",
    "tenacity",
)
SUBMISSION = """
import gc, json, os, sys
from pai_sdk import Processor, Session
info = json.load(open("info.json"))
session = Session(
    info["region_id"], info["workspace_id"], oss_bucket_name=info["bucket"], oss_endpoint=info["oss_endpoint"],
    endpoint=info["endpoint"], access_key_id=info["access_key_id"], access_key_secret=info["access_key_secret"],
    profile="",
)
job = Processor("python:3.11", "true", instance_type="ecs.c6.large", session=session).run(wait=False)
print("loaded:", json.dumps([job.id, gc.isenabled(), [*sys.modules]]))
"""


def test_a_submission_loads_what_it_needs(client_folder: Path, service: Client) -> None:
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(client_folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", SUBMISSION],
        cwd=client_folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    job_id, collects, modules = json.loads(done.stdout.partition("loaded:")[2])
    assert f"{job_id} (" in done.stdout  # the notice, which is written without Rich
    assert collects
    assert [name for name in UNUSED if name in modules] == []
    assert service.get(f"/trainingjobs/{job_id}")["TrainingJobId"] == job_id


def run_client(folder: Path, *arguments: str, options: list[str] | None = None) -> dict[str, Any]:
    """Run the client in its folder; what it found, after what is the same everywhere was looked at."""
    done = subprocess.run(
        [sys.executable, *(options or []), "-m", "tests.service.client_program", *arguments],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "PATH": "/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    assert "code" in found["planned"]
    assert found["status"] == "Succeed"
    assert found["log"][-2:] == ["a,b", "1,2"]
    assert found["is_complete"]
    assert {"pai_sdk._client.session.session", "pai_sdk.cli.jobs", "pai_sdk._data.storage.oss.client"} <= set(
        found["modules"]
    )
    assert json.loads((folder / "config.json").read_text())
    assert {path.name for path in (folder / "model").iterdir()} == {"large.bin", "small.txt"}
    assert (folder / "model" / "large.bin").read_bytes() == random.Random(1).randbytes(SIZE_BYTES)
    assert (folder / "model" / "small.txt").read_bytes() == b"one\r\ntwo\n\x1athree"
    return found
