"""The cache of virtual environments: built once, kept while used, removed when old or too large."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from pai_sdk._core.files import take_lock
from pai_sdk._host.agent import environments
from pai_sdk._host.agent.requirement_lists import pip_problem
from tests.unit.host.execution.conftest import Jobs, make_request

pytestmark = pytest.mark.interpreter


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tiny_package: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tiny_package.as_uri())


def make(folder: Path, name: str, *, size_bytes: int = 10, unused_s: float = 0.0) -> Path:
    environment = folder / name
    environment.mkdir(parents=True)
    Path(f"{environment}.lock").touch()
    (environment / "content").write_bytes(bytes(size_bytes))
    environments.mark_complete(environment)
    used_at = time.time() - unused_s
    os.utime(environment / "complete", (used_at, used_at))
    return environment


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


def test_what_nobody_used_for_long_goes(tmp_path: Path) -> None:
    make(tmp_path, "new")
    make(tmp_path, "old", unused_s=100)
    environments.prune(tmp_path, retention_s=50)
    assert left(tmp_path) == {"new"}


def test_what_was_used_least_lately_goes_when_all_are_too_large(tmp_path: Path) -> None:
    for number in range(4):
        make(tmp_path, str(number), size_bytes=100, unused_s=number)
    environments.prune(tmp_path, max_bytes=250)
    assert left(tmp_path) == {"0", "1"}


def test_one_in_use_stays_and_so_does_the_last_one_however_large(tmp_path: Path) -> None:
    make(tmp_path, "huge", size_bytes=1000)
    used = make(tmp_path, "used", unused_s=100)
    make(tmp_path, "unused", unused_s=100)
    with Path(f"{used}.lock").open() as lock:
        take_lock(lock.fileno(), shared=True)
        environments.prune(tmp_path, retention_s=50, max_bytes=500)
    assert left(tmp_path) == {"huge", "used"}


def test_a_build_that_was_cut_off_goes_but_not_one_that_goes_on(tmp_path: Path) -> None:
    make(tmp_path, "whole")
    for name in ("cut-off", "growing"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.lock").touch()
    (tmp_path / "not ours").mkdir()
    with (tmp_path / "growing.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environments.prune(tmp_path)
    assert left(tmp_path) == {"whole", "growing", "not ours"}


def test_what_no_interpreter_can_use_any_more_goes_at_once(tmp_path: Path) -> None:
    """Each `pip install` beside the service made another copy of 270 MB, and none went for 30 days."""
    prefix = str(tmp_path)
    for name, made_for in {
        "now": (prefix, "b"),
        "before": (prefix, "a"),
        "of another": ("/", "a"),
        "of a removed one": (str(tmp_path / "gone"), "b"),
        "of an older release": (),
    }.items():
        environments.mark_complete(make(tmp_path, name), made_for)
    removed = environments.prune(tmp_path, interpreter=(prefix, "b"))
    assert {path.name for path in removed} == {"before", "of a removed one"}
    assert left(tmp_path) == {"now", "of another", "of an older release"}


@pytest.mark.usefixtures("offline")
def test_two_jobs_at_once_build_once(jobs: Jobs) -> None:
    request = make_request("tiny", PythonRequirements=["tiny"])
    names = ["train1", "train2", "train3"]
    for name in names:
        jobs.start(request, name=name)
    assert all(jobs.wait(name).succeeded for name in names), [jobs.diary(name) for name in names]
    logs = [jobs.log(name=name) for name in names]
    assert ["installing" in log for log in logs].count(True) == 1
    assert all(log.endswith("tiny command\n") for log in logs)
    assert len(left(jobs.executor.cache_dir)) == 1


@pytest.mark.usefixtures("offline")
def test_an_environment_is_in_use_as_long_as_its_job_runs(jobs: Jobs) -> None:
    jobs.start(make_request("echo up; sleep 60", PythonRequirements=["tiny"]))
    jobs.until_log("up")
    make(jobs.executor.cache_dir, "newer")
    environments.prune(jobs.executor.cache_dir, retention_s=-1, max_bytes=0)
    assert len(left(jobs.executor.cache_dir)) == 2
    jobs.executor.stop(jobs.root("train1"), reason_code="StoppedByUser", reason_message="enough")
    jobs.wait()
    deadline = time.monotonic() + 60
    while left(jobs.executor.cache_dir) != {"newer"}:  # the guardian goes a moment after the job
        assert time.monotonic() < deadline, left(jobs.executor.cache_dir)
        environments.prune(jobs.executor.cache_dir, retention_s=-1, max_bytes=0)


@pytest.mark.usefixtures("offline")
def test_a_build_that_fails_leaves_nothing_and_names_the_requirement(jobs: Jobs) -> None:
    state = jobs.run("true", PythonRequirements=["no-such-package==3"])
    assert "No matching distribution found for no-such-package==3 (pip's exit code: 1)" in state.reason_message
    assert left(jobs.executor.cache_dir) == set()


_RETRY = (
    "WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'NewConnectionError("
    "'<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f38cd34e950>: Failed to establish a new "
    "connection: [Errno 111] Connection refused')': /simple/tiny/\n"
)
_NONE = (
    "ERROR: Could not find a version that satisfies the requirement tiny==9 (from versions: none)\n"
    "ERROR: No matching distribution found for tiny==9\n"
)


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("", ""),
        ("Killed\n", ""),
        (_NONE, "No matching distribution found for tiny==9"),
        (
            _RETRY + _RETRY + _NONE,
            "No matching distribution found for tiny==9; the package index does not respond: Failed to establish "
            "a new connection: [Errno 111] Connection refused",
        ),
        ("ERROR: Invalid requirement: 'not a ~~ requirement'\n", "Invalid requirement: 'not a ~~ requirement'"),
        (
            "  error: subprocess-exited-with-error\n      RuntimeError: cannot build me\n      [end of output]\n"
            "error: metadata-generation-failed\n",
            "a package could not be built: RuntimeError: cannot build me",
        ),
    ],
)
def test_what_pip_complains_of(output: str, problem: str) -> None:
    assert pip_problem(output) == problem


def test_the_last_error_of_pip_is_the_problem() -> None:
    output = "ERROR: Could not find a version\nERROR: No matching distribution found for tiny==9"
    assert pip_problem(output) == "No matching distribution found for tiny==9"
