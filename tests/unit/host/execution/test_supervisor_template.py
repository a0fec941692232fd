"""Supervisors that are forked from a template: found and killed like others, and independent of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pai_sdk._host.agent import supervising, supervisor_template
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._host.execution.process import executor as process_executor
from pai_sdk._host.execution.process.executor import ProcessExecutor
from tests.support.waiting import until
from tests.unit.host.execution.conftest import Jobs, make_request

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(sys.platform != "linux", reason="the command line of a process is found in /proc"),
]

_REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path of the package of its own, by which the processes of this test are recognised."""
    package = tmp_path / "package"
    package.symlink_to(_REPOSITORY)
    monkeypatch.setattr(process_executor, "_PACKAGE_PARENT", package)
    return package


@pytest.fixture
def jobs(package: Path, tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path, ProcessExecutor(tmp_path / "cache", grace_s=0.4))
    yield jobs
    for template in templates(package):
        os.kill(template, signal.SIGCONT)
    for root in jobs.roots:
        jobs.executor.stop(root, reason_code="StoppedByUser", reason_message="the test is over")
    for root in jobs.roots:
        jobs.wait(root.name)
    jobs.executor.close()


def command_lines(package: Path) -> dict[int, list[bytes]]:
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(package) in arguments:
            found[int(file.parent.name)] = arguments
    return found


def templates(package: Path) -> list[int]:
    return [
        process
        for process, arguments in command_lines(package).items()
        if any(b"template_process" in argument for argument in arguments)
    ]


def run_one(jobs: Jobs, name: str) -> None:
    state = jobs.run("true", name=name)
    assert state.succeeded, jobs.diary(name)


def test_all_jobs_of_an_executor_have_one_template(jobs: Jobs, package: Path) -> None:
    assert templates(package) == []
    run_one(jobs, "train1")
    template = templates(package)
    assert len(template) == 1
    run_one(jobs, "train2")
    assert templates(package) == template


def test_a_forked_supervisor_has_the_command_line_of_a_started_one(jobs: Jobs, package: Path) -> None:
    root = jobs.start(make_request("echo up; exec sleep 1000"))
    jobs.until_log("up")
    by_program = [line for line in command_lines(package).values() if os.fsencode(root) in line]
    assert len(by_program) == 2  # guardian and supervisor
    for line in by_program:
        assert [part for part in line if part] == [
            os.fsencode(part)
            for part in (sys.executable, "-I", "-S", "-c", supervising._SUPERVISE, str(package), str(root))
        ]
    assert supervising.kill_supervisors(lambda _, folder: folder == root) == [root.name]
    assert jobs.wait().reason_code == "SupervisorLost"


def test_a_list_of_processes_shows_no_room_for_command_lines(jobs: Jobs, package: Path) -> None:
    run_one(jobs, "train1")
    [template] = templates(package)
    shown = [part for part in command_lines(package)[template] if part]
    assert shown[-1] == os.fsencode(package)


def test_a_job_has_nothing_of_the_template(jobs: Jobs) -> None:
    """Descriptors, ignored signals and variables are those of a job whose supervisor was started."""
    command = "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Ign|Blk|Cgt)' /proc/self/status; env | sort"
    forked = jobs.run(command, name="forked")
    assert forked.succeeded
    jobs.executor._template._is_possible = False
    started = jobs.run(command, name="started")
    assert started.succeeded
    ours, theirs = (jobs.log(name=name).replace(name, "NAME").splitlines() for name in ("forked", "started"))
    # Ports are free ones.
    assert [line for line in ours if "PORT" not in line] == [line for line in theirs if "PORT" not in line]
    assert ours[0].split()[:5] == ["0", "1", "2", "3", "SigBlk:"]  # the last one is the folder that `ls` reads


def test_jobs_outlive_the_executor_and_its_template_does_not(jobs: Jobs, package: Path) -> None:
    root = jobs.start(make_request("echo up; until [ -e go ]; do sleep 0.02; done"))
    jobs.until_log("up")
    jobs.executor.close()
    until(lambda: not templates(package), "the end of the template")
    (Sandbox(root).usercode / "go").touch()
    assert jobs.wait().succeeded


def test_a_killed_process_leaves_its_job_and_no_template(jobs: Jobs, package: Path, tmp_path: Path) -> None:
    root = jobs.root("train1")
    jobs.roots.append(root)
    program = (
        "import sys, time; from pathlib import Path\n"
        "from pai_sdk._host.execution.process import executor\n"
        "from tests.unit.host.execution.conftest import Jobs, make_request\n"
        f"executor._PACKAGE_PARENT = Path({str(package)!r})\n"
        f"jobs = Jobs(Path({str(jobs.folder)!r}), executor.ProcessExecutor(Path({str(tmp_path)!r}, 'cache')))\n"
        "jobs.start(make_request('echo up; until [ -e go ]; do sleep 0.02; done'))\n"
        "print(flush=True); time.sleep(1000)\n"
    )
    service = subprocess.Popen([sys.executable, "-c", program], cwd=_REPOSITORY, stdout=subprocess.PIPE)
    try:
        assert service.stdout is not None
        service.stdout.readline()
        assert len(templates(package)) == 1
    finally:
        service.kill()
        service.communicate()
    until(lambda: not templates(package), "the end of the template")
    (Sandbox(root).usercode / "go").touch()
    assert jobs.wait().succeeded


def test_a_killed_template_is_replaced(jobs: Jobs, package: Path) -> None:
    root = jobs.start(make_request("echo up; until [ -e go ]; do sleep 0.02; done"))
    jobs.until_log("up")
    [first] = templates(package)
    os.kill(first, signal.SIGKILL)
    until(lambda: first not in command_lines(package), "its end")
    run_one(jobs, "train2")  # started without a template
    run_one(jobs, "train3")
    assert len(templates(package)) == 1
    (Sandbox(root).usercode / "go").touch()
    assert jobs.wait().succeeded


def test_a_template_that_hangs_is_left_alone(jobs: Jobs, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_one(jobs, "train1")
    [first] = templates(package)
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(supervisor_template, "_MAX_START_S", 0.1)
    state = jobs.run("echo up", name="train2")
    assert state.succeeded
    os.kill(first, signal.SIGCONT)
    # Its late supervisor finds that the job was started.
    until(lambda: first not in command_lines(package), "its end")
    assert jobs.executor.state(jobs.root("train2")) == state
    assert jobs.log(name="train2") == "up\n"


def test_each_executor_has_its_own_template(jobs: Jobs, package: Path) -> None:
    other = ProcessExecutor(jobs.folder / "other cache")
    run_one(jobs, "train1")
    root = jobs.root("train2")
    jobs.roots.append(root)
    other.start(launch_spec(root, "train2", make_request("true")))
    jobs.wait("train2")
    assert len(templates(package)) == 2
    other.close()
    until(lambda: len(templates(package)) == 1, "the end of one")
    run_one(jobs, "train3")


def test_supervisors_are_forked_by_several_threads(jobs: Jobs, package: Path) -> None:
    names = [f"train{number}" for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: jobs.start(make_request("echo $PAI_INSTANCE_NAME"), name=name), names))
    for name in names:
        assert jobs.wait(name).succeeded
        assert jobs.log(name=name) == f"{name}-master-0\n"
    assert len(templates(package)) == 1


def test_a_supervisor_that_fails_leaves_its_reason(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a template: the message has the end of the supervisor's log."""
    run_one(jobs, "train1")
    root = jobs.root("train2")
    spec = launch_spec(root, "train2", make_request("true"))
    write_job = process_executor.Journal.write_job

    def damage(journal: process_executor.Journal, job: dict[str, object]) -> None:
        write_job(journal, job)
        (journal.path / "job.json").write_text("{")

    monkeypatch.setattr(process_executor.Journal, "write_job", damage)
    with pytest.raises(process_executor.PaiError) as caught:
        jobs.executor.start(spec)
    assert "JSONDecodeError" in caught.value.message


def test_where_command_lines_are_not_found_supervisors_are_started(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_template, "_PROGRAM", "import sys; sys.exit(1)")
    run_one(jobs, "train1")
    assert not jobs.executor._template._is_possible
    run_one(jobs, "train2")
