"""The client where there is neither `fcntl` nor `os.fork`: it plans, submits, follows and fetches."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.services import Client
from tests.waiting import PATIENCE_S

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


def test_a_client_on_windows_submits_and_fetches(client_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.service.windows_client_program", "info.json", "found.json"],
        cwd=client_folder,
        env={"PYTHONPATH": str(ROOT), "HOME": str(client_folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((client_folder / "found.json").read_text())
    assert found["status"] == "Succeed"
    assert found["log"][-2:] == ["a,b", "1,2"]
    assert found["planned"]
    assert found["same"]
    assert json.loads((client_folder / "config.json").read_text())
    model = client_folder / "model"
    assert {path.name for path in model.iterdir()} == {"large.bin", "small.txt"}
    assert (model / "large.bin").read_bytes() == random.Random(1).randbytes(SIZE_BYTES)
    assert (model / "small.txt").read_bytes() == b"one\r\ntwo\n\x1athree"
    assert {"pai_sdk.session.session", "pai_sdk.cli.jobs", "pai_sdk.storage.oss"} <= set(found["modules"])
    assert all("Linux" in text and "WSL" in text for text in found["refused"].values()), found["refused"]
