"""Requirements of local jobs: installed once for all jobs with the same list and image, and safe from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pai_sdk._client.backend.local import LocalBackend
from tests.docker.conftest import Submit, lines_of
from tests.support.waiting import PATIENCE_S, until
from tests.support.wheels import write_wheel

INSTALLING = "[pai-sdk] installing the requirements; later jobs with the same ones reuse them"
SHOW = "python3 -c 'import tiny; print(tiny.VERSION)'"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in ("1", "2"):
        source = f"VERSION = 'tiny {version}'\ndef main():\n    print(VERSION)\n"
        write_wheel(folder, "tiny", version, source, entry_points="[console_scripts]\ntiny = tiny:main\n")
    return folder


@pytest.fixture
def run(submit: Submit, wheels: Path):
    """Submits a command with requirements; pip needs no network."""

    def run(command: str, *requirements: str, **fields: object):
        environments = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/ml/input/data/wheels"}
        channel = {"Name": "wheels", "InputUri": f"{wheels.as_uri()}/"}
        wire = {"PythonRequirements": [*requirements], "Environments": environments, "InputChannels": [channel]}
        return submit(command, **wire, **fields)

    return run


def ended(job) -> list[str]:
    job.wait(timeout=2 * PATIENCE_S, show_logs=False)
    return lines_of(job)


def kept(backend: LocalBackend) -> list[Path]:
    return [path for path in (backend.data_dir / "cache" / "requirements").iterdir() if path.is_dir()]


def test_what_was_installed_is_there_for_the_next_job_as_it_was(run, backend) -> None:
    assert ended(run(SHOW, "tiny==1", count=2)) == [INSTALLING, "tiny 1", "tiny 1"]
    assert ended(run("tiny", "tiny==1")) == ["tiny 1"]
    (folder,) = kept(backend)
    assert (folder / "image").read_text() == "pai-sdk-test:base\n"

    # The command of a job changes neither what is kept nor what other jobs see.
    write = "find /run/pai-sdk/requirements -name tiny.py -exec sh -c 'echo bad >{}' \\;"
    upgrade = "python3 -m pip install -q --user --break-system-packages tiny==2"
    lines = ended(run(f"{write}; {upgrade}; {SHOW}", "tiny==1"))
    assert ("Read-only file system" in lines[0], lines[-1]) == (True, "tiny 2")
    assert ended(run(SHOW, "tiny==1")) == ["tiny 1"]
    assert ended(run(SHOW, "tiny==2")) == [INSTALLING, "tiny 2"]
    assert len(kept(backend)) == 2


def test_jobs_that_install_at_once_and_one_that_is_stopped_meanwhile(run, backend) -> None:
    slow = run(SHOW, "tiny==1", tags={"pai-sdk.local.grace_s": "1"})
    slow.stop()
    both = [run(SHOW, "tiny==1", count=2) for _ in range(2)]
    for job in both:
        assert ended(job)[-2:] == ["tiny 1", "tiny 1"]
    assert ended(run(SHOW, "tiny==1")) == ["tiny 1"]
    (folder,) = kept(backend)
    assert {path.name for path in folder.iterdir()} >= {"python", "complete", "image"}
    until(lambda: slow.refresh().status.is_terminal)


def test_what_running_jobs_use_is_not_removed(run, backend) -> None:
    job = run(f"{SHOW}; until [ -e go ]; do sleep 0.1; done; {SHOW}", "tiny==1")
    until(lambda: "tiny 1" in lines_of(job))
    (folder,) = kept(backend)
    (folder / "kept_for").write_text("2020-01-01")  # its day is over
    assert ended(run(SHOW, "tiny==2")) == [INSTALLING, "tiny 2"]
    assert folder in kept(backend)
    (backend.data_dir / "jobs" / job.id / "ml" / "usercode" / "go").touch()
    assert ended(job)[-2:] == ["tiny 1", "tiny 1"]
    assert backend.prune()
    assert folder not in kept(backend)


def test_requirements_of_files_are_installed_for_each_job(run, backend) -> None:
    for _ in range(2):
        lines = ended(run(SHOW, "/ml/input/data/wheels/tiny-1-py3-none-any.whl"))
        assert lines == ["[pai-sdk] installing the requirements", "tiny 1"]
    assert not (backend.data_dir / "cache" / "requirements").exists()
