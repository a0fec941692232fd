""".ci/make-venv on machines that lack something: the first interpreter that really works, or what to do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import write_program
from tests.support.waiting import PATIENCE_S

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "make-venv"

SHIM = '#!/bin/sh\necho "no such version" >&2\nexit 127\n'
TOO_OLD = "#!/bin/sh\nexit 1\n"
WITHOUT_VENV = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *print*) echo 3.11;; esac\n'
# Says yes to every question, and instead of an environment makes a folder that tells who made it.
WORKS = '#!/bin/sh\nif [ "$1" = -m ]; then mkdir "$4"; echo "$0" >"$4/by"; else echo 3.11; fi\n'


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "id", "mkdir"):
        (folder / tool).symlink_to(str(shutil.which(tool)))
    return folder


@pytest.mark.parametrize(
    ("interpreters", "chosen"),
    [
        ({"python3.13": SHIM, "python3.12": WORKS, "python3": WORKS}, "python3.12"),
        ({"python3.12": TOO_OLD, "python3": WORKS}, "python3"),
        ({"python3.11": WITHOUT_VENV, "python3.10": WORKS}, "python3.10"),
    ],
)
def test_the_first_that_works_is_taken(bin_folder: Path, interpreters: dict[str, str], chosen: str) -> None:
    done = _make(bin_folder, interpreters)
    assert done.returncode == 0, done.stderr
    assert (bin_folder.parent / "an env" / "by").read_text().strip() == str(bin_folder / chosen)


@pytest.mark.parametrize(
    ("interpreters", "environment", "told"),
    [
        ({}, {}, "No Python 3.10 or newer"),
        ({"python3.13": SHIM, "python3": TOO_OLD}, {}, "PYTHON=/path/to/python3 make"),
        ({"python3.11": WITHOUT_VENV}, {}, "with its venv module"),
        ({"python3.12": WORKS, "mine": TOO_OLD}, {"PYTHON": "mine"}, "PYTHON=mine does not run"),
    ],
)
def test_what_is_missing_is_told(
    bin_folder: Path, interpreters: dict[str, str], environment: dict[str, str], told: str
) -> None:
    done = _make(bin_folder, interpreters, **environment)
    assert done.returncode == 1
    assert told in done.stderr
    assert not (bin_folder.parent / "an env").exists()


def _make(bin_folder: Path, interpreters: dict[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
    for name, text in interpreters.items():
        write_program(bin_folder / name, text)
    return subprocess.run(
        ["sh", str(SCRIPT), str(bin_folder.parent / "an env")],
        env={"PATH": str(bin_folder), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
