""".ci/run with made-up suites: what is run once more, what the closing summary says of it, and the exit code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import write_program
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

# Runs the real target of one suite, in the environment that these tests run in; other targets do nothing.
MAKE = """#!/bin/sh
case "$1" in
    "$SUITE") exec {make} --old-file={venv}/.dev VENV={venv} "$1" ;;
    "$BROKEN") exit 2 ;;
    "$SLOW") echo slow; sleep 600 ;;
    demo) ls -A "$HOME" | sed "s/^/in the HOME of the demo: /" ;;
esac
"""

# Fails as often as its file says: once more at each start.
SUITE = """
from pathlib import Path

import pytest

@pytest.mark.slow
def test_steady(): pass

def test_moody():
    left = Path(__file__).with_suffix(".failures")
    failures = int(left.read_text())
    left.write_text(str(failures - 1))
    assert failures <= 0
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone"
    for name in (".ci/run", "Makefile", "pyproject.toml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("unit", "ci", "service", "faults", "docs", "docker", "e2e"):
        (folder / "tests" / name).mkdir(parents=True)
        (folder / "tests" / name / "__init__.py").touch()
        (folder / "tests" / name / "test_made_up.py").write_text(SUITE)
        (folder / "tests" / name / "test_made_up.failures").write_text("0")
    (folder / "tests" / "__init__.py").touch()
    page = folder / "pai_sdk" / "_service" / "web" / "src"
    (page / "node_modules").mkdir(parents=True)
    (page / "package-lock.json").touch()
    (page / "node_modules" / ".made").touch()  # its packages are installed
    (folder / "bin").mkdir()
    write_program(folder / "bin" / "make", MAKE.format(make=shutil.which("make"), venv=sys.prefix))
    write_program(folder / "bin" / "apt-get", "#!/bin/sh\n")
    return folder


@pytest.mark.parametrize(("failures", "code", "then"), [(0, 0, None), (1, 0, "passed"), (2, 1, "failed")])
def test_a_test_in_docker_that_fails_is_tried_once_more(
    clone: Path, failures: int, code: int, then: str | None
) -> None:
    (clone / "tests" / "docker" / "test_made_up.failures").write_text(str(failures))
    done = run_ci(clone, suite="test-docker")
    assert min(done.returncode, 1) == code, done.stdout
    assert tried_again(done.stdout) == (
        [f"failed, then {then}: tests/docker/test_made_up.py::test_moody"] if then else []
    )
    assert done.stdout.count("assert 1 <= 0") == (1 if failures == 1 else failures)
    assert ("== all steps passed" in done.stdout) == (code == 0)


@pytest.mark.slow
def test_so_is_a_whole_job_in_a_process_of_its_own(clone: Path) -> None:
    (clone / "tests" / "e2e" / "test_made_up.failures").write_text("1")
    done = run_ci(clone, suite="e2e")
    assert done.returncode == 0, done.stdout
    assert tried_again(done.stdout) == ["failed, then passed: tests/e2e/test_made_up.py::test_moody"]


@pytest.mark.parametrize("broken", ["check", "test-docker", "docs"])
def test_a_step_that_fails_ends_it(clone: Path, broken: str) -> None:
    done = run_ci(clone, suite="none", broken=broken)
    assert done.returncode == 2
    assert done.stdout.endswith(f"FAILED (2): make {broken}\n")


def test_a_step_that_fails_ends_what_runs_beside_it(clone: Path) -> None:
    done = run_ci(clone, suite="none", broken="e2e", slow="test-docker")
    assert done.returncode == 2
    assert done.stdout.endswith("FAILED (2): make e2e\n")


def test_what_ran_beside_others_is_shown_as_a_step(clone: Path) -> None:
    done = run_ci(clone, suite="test-docker")
    assert done.stdout.index("== make e2e") < done.stdout.index("== make test-docker")
    assert "1 passed" in done.stdout.rpartition("== make test-docker")[2].partition("== summary")[0]
    assert "make test-docker" in done.stdout.rpartition("== summary")[2]


def test_the_demo_has_a_home_of_its_own(clone: Path) -> None:
    folder = Path.home() / ".pai" / "service"  # of another release, say
    folder.mkdir(parents=True)
    done = run_ci(clone, suite="none")
    assert done.returncode == 0, done.stdout
    assert "in the HOME of the demo" not in done.stdout
    assert folder.is_dir()


def run_ci(clone: Path, *, suite: str, broken: str = "", slow: str = "") -> subprocess.CompletedProcess[str]:
    path = f"{clone / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(clone / ".ci" / "run")],
        env={**os.environ, "PATH": path, "SUITE": suite, "BROKEN": broken, "SLOW": slow},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )


def tried_again(output: str) -> list[str]:
    """What the closing summary says of tests that were tried again."""
    summary = output.rpartition("== summary")[2]
    return [line.strip() for line in summary.splitlines() if "failed, then" in line]
