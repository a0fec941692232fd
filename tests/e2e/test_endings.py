"""How a job can end: each in its state, with its reason, and with what the user reads of it."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pai_sdk import Processor, Session, TrainingJob
from pai_sdk._wire.pai.compute import InstanceSpec
from pai_sdk.errors import JobFailed, JobStopped
from tests.support.waiting import PATIENCE_S, until

TRAIN = """\
import sys
def step(rate):
    raise KeyError("rate")
print("step 1")
step(0.1)
"""
# What is not ended sleeps for longer than the tests wait.
TAKE_200_MIB = "python -c 'import time; held = bytearray(200 << 20); time.sleep(600)'"
SMALL = InstanceSpec(cpu="1", memory="100Mi")
FLOOD = 'python -c \'import sys; sys.stdout.write(("x" * 99 + "\\n") * (1 << 20))\'; echo the end; exit 6'
LATE = "if [ $RANK = 2 ]; then echo bad data; exit 3; fi; trap '' TERM; while :; do sleep 1; done"


@dataclass(frozen=True)
class Ending:
    """A command, how a job with it ends, and what the user is told."""

    name: str
    command: str
    reason_code: str
    exit_code: int | None
    told: tuple[str, ...]
    status: str = "Failed"
    instance: str = "master-0"
    parameters: dict[str, Any] = field(default_factory=dict)


ENDINGS = [
    Ending("traceback", "python train.py", "NonZeroExit", 1, ("KeyError: 'rate'", "train.py", "exit code 1")),
    Ending("segv", "kill -SEGV $$", "KilledBySignal", 139, ("SIGSEGV", "exit code 139")),
    Ending("kill", "kill -KILL $$", "KilledBySignal", 137, ("SIGKILL", "not killed because memory ran out")),
    Ending("term", "kill -TERM $$", "KilledBySignal", 143, ("SIGTERM",)),
    Ending("not-found", "no-such-program --x", "CommandNotFound", 127, ("no-such-program: not found", "spelling")),
    Ending("not-executable", "./train.py", "NotExecutable", 126, ("Permission denied", "x bit")),
    Ending(
        "memory-limit",
        TAKE_200_MIB,
        "OutOfMemory",
        137,
        ("reached its limit of 100 MiB", "smaller batch"),
        parameters={"instance_spec": SMALL, "resource_id": "quota1"},
    ),
    Ending(
        "requirement",
        "echo never",
        "RequirementsFailed",
        1,
        ("No matching distribution found for no-such-package==1.0",),
        parameters={"requirements": ["no-such-package==1.0"]},
    ),
    Ending(
        "index",
        "echo never",
        "RequirementsFailed",
        1,
        ("the package index does not respond", "Connection refused"),
        parameters={
            "requirements": ["no-such-package==2.0"],
            "environments": {"PIP_NO_INDEX": "", "PIP_INDEX_URL": "http://someone:secret@127.0.0.1:9/simple"},
        },
    ),
    Ending(
        "too-long",
        "sleep 600",
        "MaxRunningTimeExceeded",
        None,
        ("limit of 1 seconds", "max_run_time"),
        instance="",
        parameters={"max_run_time": 1},
    ),
    Ending("no-output", "exec >&- 2>&-; exit 4", "NonZeroExit", 4, ("exit code 4",)),
    Ending("no-newline", "printf 'last words'; exit 5", "NonZeroExit", 5, ("    last words\n",)),
    Ending("flood", FLOOD, "NonZeroExit", 6, ("    the end\n",)),
    Ending("daemon", "(setsid sh -c 'sleep 600' &); sleep 0.2; exit 2", "NonZeroExit", 2, ("exit code 2",)),
    Ending(
        "one-of-three",
        LATE,
        "NonZeroExit",
        3,
        ("instance worker-1", "    bad data\n"),
        instance="worker-1",
        parameters={"instance_count": 3},
    ),
]


@pytest.fixture
def run(session: Session, tmp_path: Path) -> Iterator[Any]:
    """Starts jobs; at the end none of their processes may be left."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(TRAIN)
    mark = f"PAI_TEST_MARK={uuid.uuid4().hex}"

    def start(name: str, command: str, **parameters: Any) -> TrainingJob:
        name_of_mark, value = mark.split("=")
        environments = {"PIP_NO_INDEX": "1", name_of_mark: value, **parameters.pop("environments", {})}
        if "instance_spec" not in parameters:
            parameters["instance_type"] = "ecs.c6.large"
        processor = Processor(
            "python:3.11",
            command,
            source_dir=source,
            base_job_name=name,
            environments=environments,
            session=session,
            **parameters,
        )
        return processor.run(wait=False, show_logs=False)

    yield start
    assert marked(mark) == []


def marked(mark: str) -> list[int]:
    """The processes with this in their environment."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_each_ending_has_its_reason(run: Any, ending: Ending) -> None:
    job = run(ending.name, ending.command, **ending.parameters)
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE_S, show_logs=False)
    failure = caught.value
    assert (failure.status, failure.reason_code, failure.exit_code) == (
        ending.status,
        ending.reason_code,
        ending.exit_code,
    )
    assert failure.instance == (f"{job.id}-{ending.instance}" if ending.instance else None)
    text = str(failure)
    for told in ending.told:
        assert told in text, text
    assert "secret" not in text


def test_a_missing_input_is_named(session: Session) -> None:
    uri = f"oss://{session.settings.oss_bucket_name}/not/there/"
    processor = Processor("python:3.11", "true", instance_type="ecs.c6.large", session=session)
    job = processor.run(inputs={"train": uri}, wait=False, show_logs=False)
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE_S, show_logs=False)
    assert (caught.value.status, caught.value.reason_code) == ("InitializeFailed", "InputNotFound")
    assert "input channel 'train': nothing exists at" in str(caught.value)
    assert uri in str(caught.value)


def test_a_job_that_the_kernel_kills_for_memory(run: Any, memory_group: Path) -> None:
    job = run("kernel", f"echo $$ > {memory_group}/cgroup.procs; {TAKE_200_MIB}; exit $?")
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE_S, show_logs=False)
    assert (caught.value.reason_code, caught.value.exit_code) == ("OutOfMemory", 137)
    assert "most likely by the kernel since memory ran out: use a smaller batch" in str(caught.value)


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group of 64 MiB; where we may not make one, its test is skipped."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    group = (v1 if v1.is_dir() else v2) / f"pai-sdk-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no control group of our own can be had here: {error}")
    yield group
    until(lambda: removed(group), "the end of the control group")


def removed(group: Path) -> bool:
    """Whether the group is gone; the killed are counted until they are reaped."""
    try:
        group.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def test_a_stop_while_its_files_are_put_in_place(session: Session, service_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(os.urandom(100_000))  # stored as a file; a small object would be a row
    processor = Processor("python:3.11", "echo never", instance_type="ecs.c6.large", session=session)
    before = set((service_dir / "objects").rglob("*"))
    uploaded = processor.run(inputs={"train": data}, show_logs=False)
    (stored,) = [file for file in set((service_dir / "objects").rglob("*")) - before if is_copy(file, data)]
    make_huge(stored, service_dir / "objects" / "objects.db")
    (channel,) = uploaded.record.input_channels
    job = processor.run(inputs={"train": str(channel.uri)}, wait=False, show_logs=False)
    until(lambda: is_filling(service_dir / "jobs" / job.id / "ml" / "input"), "the copy of the input")
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(PATIENCE_S, show_logs=False)
    assert "never" not in [line.text for line in job.logs()]


def is_copy(file: Path, original: Path) -> bool:
    return file.is_file() and file.read_bytes() == original.read_bytes()


def make_huge(stored: Path, database: Path) -> None:
    """Give an object so many zeros, which need no space, that its copy takes longer than a test waits."""
    before, huge = stored.stat().st_size, 1 << 40
    os.truncate(stored, huge)
    with closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection, connection:
        changed = connection.execute("UPDATE oss_objects SET size_bytes = ? WHERE size_bytes = ?", (huge, before))
        assert changed.rowcount == 1


def is_filling(folder: Path) -> bool:
    """Whether some of the content of a file is there. The file may be renamed or removed at any moment."""
    with suppress(FileNotFoundError):
        return any(file.is_file() and file.stat().st_size for file in folder.rglob("*"))
    return False


# ---- stopped ----------------------------------------------------------------------------------------------


def until_log(job: TrainingJob, text: str) -> list[str]:
    """The log so far, once this stands in it."""
    lines = []
    for line in job.logs(follow=True):
        lines.append(line.text)
        if text in line.text:
            return lines
    raise AssertionError(f"{text!r} never came: {lines}")


def test_a_stop_is_a_signal_first_so_that_a_checkpoint_can_be_saved(run: Any) -> None:
    job = run("polite", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    until_log(job, "up")
    job.stop()
    with pytest.raises(JobStopped, match="stopped"):
        job.wait(PATIENCE_S, show_logs=False)
    assert [line.text for line in job.logs()][-1] == "saved"
    assert job.status == "Terminated"


def test_who_ignores_the_signal_is_killed_after_ten_seconds(run: Any) -> None:
    job = run("stubborn", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    until_log(job, "up")
    asked = time.monotonic()
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(PATIENCE_S, show_logs=False)
    assert time.monotonic() - asked > 9  # and the wait itself had its limit


def test_a_stop_while_requirements_are_installed(run: Any, tmp_path: Path) -> None:
    slow = tmp_path / "src" / "slow"
    slow.mkdir()
    (slow / "setup.py").write_text("import time\ntime.sleep(600)\n")
    job = run("slow", "echo never", requirements=["./slow"])
    until_log(job, "installing")
    job.stop()
    with pytest.raises(JobStopped):
        job.wait(PATIENCE_S, show_logs=False)
    assert "never" not in [line.text for line in job.logs()]


def test_a_stop_while_it_waits_in_the_queue(run: Any) -> None:
    first = run("all-slots", "echo up; sleep 600", instance_count=16)
    until_log(first, "up")
    queued = run("queued", "echo never")
    assert queued.status in ("Created", "Submitted", "Creating")
    queued.stop()
    with pytest.raises(JobStopped, match="before it started"):
        queued.wait(PATIENCE_S, show_logs=False)
    first.stop()
    with pytest.raises(JobStopped):
        first.wait(PATIENCE_S, show_logs=False)


# ---- whoever watches over it is killed --------------------------------------------------------------------


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("victims", [["supervisor"], ["guardian", "supervisor"]], ids="+".join)
def test_a_job_whose_watchers_are_killed_has_ended_with_all_its_processes(run: Any, victims: list[str]) -> None:
    job = run("watched", "(setsid sh -c 'sleep 600' &); (setsid env -i sleep 601 &); echo pid $$; sleep 602")
    main = int(until_log(job, "pid")[-1].split()[1])
    supervisor = parent_of(main)
    watchers = {"supervisor": supervisor, "guardian": parent_of(supervisor)}
    for victim in victims:
        os.kill(watchers[victim], signal.SIGKILL)
    with pytest.raises(JobFailed) as caught:
        job.wait(PATIENCE_S, show_logs=False)
    assert caught.value.reason_code == "SupervisorLost"
    assert "Submit it again" in str(caught.value)
    assert processes_of(job.id) == []


def processes_of(job_id: str) -> list[int]:
    """The processes that work in a job's folder, whatever they did to their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if job_id in (process / "mountinfo").read_text():
                found.append(int(process.name))
    return found
