"""ossfs, by which pandas and others read `oss://`, on the embedded object store.

It needs another oss2 than ours, so it runs in an environment of its own.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.objects.serving import BUCKET, KEY_ID, SECRET, served
from tests.support.peer_environment import python_with

PROGRAM = Path(__file__).with_name("ossfs_program.py")
STEPS = next(
    [name.id for name in node.value.elts]
    for node in ast.parse(PROGRAM.read_text(encoding="utf-8")).body
    if isinstance(node, ast.Assign) and node.targets[0].id == "STEPS"
)


@pytest.fixture(scope="module")
def python() -> Path:
    """Made before the tests' own HOME is set, so that it is kept from run to run."""
    return python_with("ossfs==2025.5.0", "fsspec==2025.9.0")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("store")) as (_, endpoint):
        yield endpoint


@pytest.mark.timeout(1800)  # the first run installs it
@pytest.mark.parametrize("step", STEPS)
def test_ossfs(python: Path, endpoint: str, step: str, tmp_path: Path) -> None:
    settings = {"TEST_ENDPOINT": endpoint, "TEST_KEY": KEY_ID, "TEST_SECRET": SECRET, "TEST_BUCKET": BUCKET}
    command = [str(python), "-W", "ignore", str(PROGRAM), step]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
