""".ci/pip-install, where the network fails now and then."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import write_program
from tests.support.waiting import PATIENCE_S

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "pip-install"

# Notes what it is asked for, and fails as often as it is told to.
PYTHON = """#!/bin/sh
echo "$*" >>calls
if [ "$(wc -l <calls)" -le "$FAILURES" ]; then echo "Read timed out." >&2; exit 2; fi
"""


@pytest.mark.parametrize(("failures", "code", "calls"), [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 2, 3)])
def test_a_download_that_fails_is_tried_again(tmp_path: Path, failures: int, code: int, calls: int) -> None:
    write_program(tmp_path / "python", PYTHON)
    write_program(tmp_path / "sleep", "#!/bin/sh\n")
    done = subprocess.run(
        ["sh", str(SCRIPT), "./python", "-e", ".[dev]", "a b"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILURES": str(failures)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code
    asked = (tmp_path / "calls").read_text().splitlines()
    assert len(asked) == calls
    assert {line.partition("--no-warn-script-location ")[2] for line in asked} == {"-e .[dev] a b"}
    assert done.stderr.count("Read timed out.") == failures
    assert done.stderr.count("trying again") == calls - 1
