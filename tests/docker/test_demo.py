"""The demo's code, unchanged, as processes and in Docker: what comes out is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.docker.engine import BASE_IMAGE, Engine
from tests.support.leftovers import end_processes_of


def _run(output: Path, *options: str) -> dict[str, object]:
    command = [sys.executable, "-m", "pai_sdk", "demo", "--output", str(output), *options]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    model: dict[str, object] = json.loads((output / "model" / "model.json").read_text())
    return model


def test_the_demo_leaves_the_same_in_docker_as_in_processes(
    docker_host: Engine, tmp_path: Path, clean_home: Path
) -> None:
    in_docker = _run(tmp_path / "docker", "--instance-type", "local", "--image", BASE_IMAGE)
    try:
        in_processes = _run(tmp_path / "processes")
    finally:
        end_processes_of(clean_home)
    assert in_docker == in_processes
