"""Python requirements of jobs that run as processes. pip is real, the network is not needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from tests.unit.host.execution.conftest import Jobs, make_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

USE_TINY = "tiny; python -c 'import tiny, pydantic; print(tiny.__file__)'"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tiny_package: Path) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", tiny_package.as_uri())


def test_requirements_are_installed_once_for_all_jobs_that_have_them(jobs: Jobs) -> None:
    state = jobs.run(USE_TINY, PythonRequirements=["tiny==1.0"], count=2)
    assert state.succeeded, jobs.diary()
    assert "installing the requirements" in jobs.log("master-0")
    assert "installing" not in jobs.log("worker-0")
    command, file = jobs.log("worker-0").splitlines()
    assert command == "tiny command"
    assert str(jobs.executor.cache_dir) in file

    assert jobs.run(USE_TINY, PythonRequirements=["tiny==1.0"], name="train2").succeeded
    assert jobs.log(name="train2").splitlines() == [command, file]
    assert jobs.run("python -c 'import tiny'", name="train3").succeeded is False


def test_a_list_without_exact_versions_is_installed_anew_on_the_next_day(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in ("2026-11-22", "2026-11-23"):
        monkeypatch.setattr("pai_sdk._host.agent.requirement_lists.today", lambda now, day=day: day)
        assert jobs.run(USE_TINY, PythonRequirements=["tiny"], name=f"first-{day}").succeeded, jobs.diary()
        assert "installing the requirements" in jobs.log(name=f"first-{day}")
        assert jobs.run(USE_TINY, PythonRequirements=["tiny"], name=f"second-{day}").succeeded, jobs.diary()
        assert "installing" not in jobs.log(name=f"second-{day}")


def test_what_our_interpreter_has_counts_as_present(jobs: Jobs) -> None:
    sandbox = Sandbox(jobs.root("train1"))
    sandbox.usercode.mkdir(parents=True)
    (sandbox.usercode / "requirements.txt").write_text("# needed\npydantic\ntiny\n")
    state = jobs.run("python -c 'import tiny, pydantic; print(pydantic.__file__)'")
    assert state.succeeded, jobs.diary()
    assert jobs.log().splitlines()[-1].startswith(sys.prefix)


def test_scripts_of_our_interpreter_see_the_requirements(jobs: Jobs) -> None:
    test = Sandbox(jobs.root("train1")).usercode / "test_it.py"
    test.parent.mkdir(parents=True)
    test.write_text("def test_tiny():\n    import tiny\n")
    assert jobs.run("pytest -q test_it.py", PythonRequirements=["tiny"]).succeeded, jobs.diary()


def test_local_packages_are_built_for_the_job_alone(jobs: Jobs) -> None:
    sandbox = Sandbox(jobs.root("train1"))
    sandbox.usercode.mkdir(parents=True)
    (sandbox.usercode / "more.txt").write_text("tiny\n")
    (sandbox.usercode / "requirements.txt").write_text('-r "${PAI_WORKING_DIR}/more.txt"\n')
    state = jobs.run("python -c 'import tiny; print(tiny.__file__)'")
    assert state.succeeded, jobs.diary()
    assert jobs.log().splitlines()[-1].startswith(str(sandbox.state_dir))


def test_a_requirement_that_cannot_be_had_ends_the_job(jobs: Jobs) -> None:
    state = jobs.run("echo never", PythonRequirements=["no-such-package-anywhere"], count=2)
    assert (state.succeeded, state.reason_code) == (False, "RequirementsFailed")
    assert state.failed_instance == "train1-master-0"
    assert "no-such-package-anywhere" in jobs.log()
    assert "never" not in jobs.log()
    assert [(i.status, i.exit_code) for i in state.instances] == [("Failed", 1), ("Terminated", None)]


def test_a_stop_while_requirements_are_installed(jobs: Jobs) -> None:
    sandbox = Sandbox(jobs.root("train1"))
    slow = sandbox.usercode / "slow"
    slow.mkdir(parents=True)
    (slow / "setup.py").write_text("import time\nopen('begun', 'w')\ntime.sleep(600)\n")
    root = jobs.start(make_request("echo never", PythonRequirements=["./slow"]))
    jobs.until(lambda state: state.phase == "preparing" and "installing" in jobs.log())
    jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="by Ann")
    state = jobs.wait()
    assert (state.reason_code, [i.status for i in state.instances]) == ("StoppedByUser", ["Terminated"])
    assert "never" not in jobs.log()
