"""How a job of containers ended, told from what its instances wrote and what the engine says of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pai_sdk._host.agent.distributed import name_instances
from pai_sdk._host.execution.docker.final_state import ContainerExit, ending
from pai_sdk._host.execution.docker.shared_folder import SharedFolder

JOB = {"memory_bytes": None, "max_running_s": None}


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    shared = SharedFolder(tmp_path / "shared")
    shared.prepare({}, [])
    shared.go()
    return shared


def told(
    shared: SharedFolder,
    ends: dict[str, ContainerExit | None],
    count: int = 1,
    *,
    job: dict[str, Any] = JOB,
    has_restarted: bool | None = False,
) -> dict[str, Any]:
    shared.instances = name_instances("j", "PyTorchJob", count)
    return asdict(ending(job, shared, ends, lambda _: has_restarted))


def test_a_success_that_could_not_be_written_down_is_one(shared: SharedFolder) -> None:
    """The disk was full; the engine knows the exit code."""
    state = told(shared, {"j-master-0": ContainerExit(0)})
    assert (state["succeeded"], state["reason_code"]) == (True, "")


def test_a_failure_that_could_not_be_written_down_keeps_its_code(shared: SharedFolder) -> None:
    state = told(shared, {"j-master-0": ContainerExit(3)})
    assert (state["failed_instance"], state["reason_code"]) == ("j-master-0", "NonZeroExit")


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        (ContainerExit(137), "KilledBySignal", "killed from outside (exit code 137)"),
        (ContainerExit(255), "KilledBySignal", "killed from outside (exit code 255)"),
        (ContainerExit(137, out_of_memory=True), "OutOfMemory", "ran out of memory"),
        (ContainerExit(128, error="no GPU"), "ContainerNotStarted", "could not be started: no GPU"),
        (
            ContainerExit(2, output="sh: Permission denied"),
            "ContainerNotStarted",
            "It said: sh: Permission denied",
        ),
        (None, "SupervisorLost", "was removed by another program"),
    ],
)
def test_an_instance_that_could_not_tell_itself(
    shared: SharedFolder, end: ContainerExit | None, code: str, says: str
) -> None:
    for is_told_by_us in (False, True):
        if is_told_by_us:
            shared.write_failure("j-master-0", end.code if end else 137)
        state = told(shared, {"j-master-0": end} if end else {})
        assert (state["failed_instance"], state["reason_code"]) == ("j-master-0", code)
        assert says in state["reason_message"]


def test_an_instance_that_knows_of_its_memory_what_the_engine_missed(shared: SharedFolder) -> None:
    """The engine hears of the kernel's kill and of the end from different sides, in any order."""
    for name, text in (("memory", ""), ("exit", "137\n")):
        (shared.path / f"j-master-0.{name}").write_text(text)
    state = told(shared, {"j-master-0": ContainerExit(137)})
    assert state["reason_code"] == "OutOfMemory"
    assert "ran out of memory: it reached its limit" in state["reason_message"]


def test_an_instance_that_was_paused_too_long(shared: SharedFolder) -> None:
    """The others took it for lost; when it came back it found that the job had failed."""
    shared.write_failure("j-worker-0", 137)
    for name in ("j-master-0", "j-worker-0"):
        (shared.path / f"{name}.why").write_text("peer\n")
        (shared.path / f"{name}.exit").write_text("143\n")
    state = told(shared, {}, count=2)
    assert state["failed_instance"] == "j-worker-0"
    assert "no heartbeat" in state["reason_message"]


@pytest.mark.parametrize("code", [0, 137])
def test_an_instance_that_the_others_took_for_lost_is_not_said_to_be_killed(
    shared: SharedFolder, code: int
) -> None:
    """Whether it goes on to its end all the same, or is killed by us since it cannot hear that it is to end."""
    (shared.path / "failed").write_text("j-worker-0 137 silent\n")
    ends: dict[str, ContainerExit | None] = {}
    if code == 0:
        (shared.path / "j-worker-0.exit").write_text("0\n")
    else:
        shared.write_lost("j-worker-0")
        ends = {"j-worker-0": ContainerExit(137)}
    (shared.path / "j-master-0.why").write_text("peer\n")
    (shared.path / "j-master-0.exit").write_text("143\n")
    state = told(shared, ends, count=2, has_restarted=True)
    assert (state["failed_instance"], state["reason_code"]) == ("j-worker-0", "SupervisorLost")
    assert "no heartbeat" in state["reason_message"]


def test_an_instance_that_was_killed_before_the_others_missed_it_was_killed(shared: SharedFolder) -> None:
    (shared.path / "failed").write_text("j-worker-0 137 silent\n")
    state = told(shared, {"j-worker-0": ContainerExit(137)}, count=2)
    assert "killed from outside" in state["reason_message"]


@pytest.mark.parametrize(
    ("has_restarted", "reason", "says"),
    [
        (True, "EngineRestarted", "engine or the machine was restarted"),
        (False, "StoppedFromOutside", "by `docker stop` or a similar command"),
        (None, "StoppedFromOutside", "by `docker stop`, or because the Docker engine"),
    ],
)
def test_who_told_a_container_to_end(
    shared: SharedFolder, has_restarted: bool | None, reason: str, says: str
) -> None:
    (shared.path / "stop").write_text("signal\n")
    (shared.path / "j-master-0.why").write_text("stopped\n")
    (shared.path / "j-master-0.exit").write_text("143\n")
    state = told(shared, {}, has_restarted=has_restarted)
    assert (state["succeeded"], state["reason_code"]) == (False, reason)
    assert says in state["reason_message"]


@pytest.mark.parametrize("code", [137, 255])
def test_a_container_that_an_engine_found_dead_when_it_started(shared: SharedFolder, code: int) -> None:
    state = told(shared, {"j-master-0": ContainerExit(code)}, has_restarted=True)
    assert (state["failed_instance"], state["reason_code"]) == ("j-master-0", "EngineRestarted")


def test_a_stop_whose_reason_found_no_room_on_the_disk_is_the_users(shared: SharedFolder) -> None:
    (shared.path / "stop").touch()
    (shared.path / "j-master-0.why").write_text("stopped\n")
    (shared.path / "j-master-0.exit").write_text("143\n")
    assert told(shared, {}, has_restarted=True)["reason_code"] == "StoppedByUser"


DISK = {"small": 12 << 20, "large": 1 << 40}


@pytest.mark.parametrize(
    ("size", "free_bytes", "reason"),
    [
        ("small", 0, "DiskFull"),
        ("small", 4 << 20, "NonZeroExit"),
        ("large", 5 << 20, "DiskFull"),
        ("large", 9 << 20, "NonZeroExit"),
    ],
)
def test_an_instance_that_filled_the_disk_of_an_output_failed_for_that(
    shared: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, free_bytes: int, reason: str
) -> None:
    output, real = tmp_path / "output", shutil.disk_usage

    def disk_usage(path: Path) -> Any:
        return SimpleNamespace(total=DISK[size], free=free_bytes) if path == output else real(path)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    (shared.path / "j-master-0.exit").write_text("1\n")
    state = told(shared, {}, job=JOB | {"outputs": {"model": str(output)}})
    assert state["reason_code"] == reason
    assert (f"the disk of {output} is full" in state["reason_message"]) == (reason == "DiskFull")


def test_what_the_log_says_of_a_full_disk_counts_when_there_is_room_again(shared: SharedFolder) -> None:
    """Above all of a disk that is within the container, and gone with it."""
    logs = shared.path.parent / "logs"
    logs.mkdir()
    said = "OSError: [Errno 28] No space left on device: '/dev/shm/batch'"
    for lines, reason in (([said, "bye"], "DiskFull"), ([said, *["later"] * 30], "NonZeroExit")):
        (logs / "j-master-0.log").write_text("\n".join(lines))
        (shared.path / "j-master-0.exit").write_text("1\n")
        state = told(shared, {})
        assert (state["reason_code"], said in state["reason_message"]) == (reason, reason == "DiskFull")


def test_where_there_is_no_pip_nothing_is_said_of_its_exit_code(shared: SharedFolder) -> None:
    (shared.path / "requirements.failed").write_text("this image has no Python\n")
    (shared.path / "j-master-0.exit").write_text("1\n")
    state = told(shared, {})
    assert state["reason_code"] == "RequirementsFailed"
    assert "could not be installed: this image has no Python. Use an image" in state["reason_message"]
    assert "exit code" not in state["reason_message"]


def test_half_a_wish_to_stop_is_a_wish(shared: SharedFolder) -> None:
    (shared.path / "stop").write_text('{"reason_co')
    assert shared.stop_request == ("", "")


@pytest.mark.parametrize("text", ["", "garbage", "j-master-0 x"])
def test_a_failure_whose_note_is_broken_is_no_success(shared: SharedFolder, text: str) -> None:
    """On a full disk the note of who failed first is empty; the exit code may find free space a moment later."""
    (shared.path / "failed").write_text(text)
    (shared.path / "j-master-0.exit").write_text("3\n")
    state = told(shared, {"j-master-0": ContainerExit(3)})
    assert (state["succeeded"], state["failed_instance"]) == (False, "j-master-0")
    assert "exit code 3" in state["reason_message"]
    (shared.path / "j-master-0.why").write_text(
        "peer\n"
    )  # an instance that finds such a note ends, as if it were another's
    assert told(shared, {"j-master-0": ContainerExit(3)})["failed_instance"] == "j-master-0"


def test_who_was_killed_because_it_did_not_listen_to_a_stop_was_stopped(shared: SharedFolder) -> None:
    shared.request_stop("StoppedByUser", "The job was stopped.")
    state = told(shared, {"j-master-0": ContainerExit(137)})
    assert (state["reason_code"], state["reason_message"]) == ("StoppedByUser", "The job was stopped.")


def test_a_success_that_a_stop_came_too_late_for_is_one(shared: SharedFolder) -> None:
    shared.request_stop("StoppedByUser", "The job was stopped.")
    (shared.path / "j-master-0.exit").write_text("0\n")
    assert told(shared, {})["succeeded"]


@pytest.mark.parametrize(
    "text",
    [
        "garbage",
        "a b c",
        "",
        "x" * 1_000_000,
        '{"reason_code": 1}',
        "[]",
        "\0 \udcff",
        "[" * 60_000,
        "j-master-0 " + "9" * 5_000,
        "9" * 4_000,
        "nan",
        "1e300",
    ],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)
def test_what_a_job_writes_into_the_folder_breaks_nothing(shared: SharedFolder, text: str) -> None:
    for name in ("failed", "stop", "j-master-0.exit", "j-master-0.why", "go"):
        (shared.path / name).write_text(text, errors="surrogateescape")
    assert told(shared, {"j-master-0": ContainerExit(3)})["phase"] == "ended"


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e300"])
def test_a_beginning_that_is_no_time_is_not_known(shared: SharedFolder, text: str) -> None:
    """A record of the job has dates, and a list of all jobs has all records."""
    (shared.path / "go").write_text(text)
    assert told(shared, {"j-master-0": ContainerExit(3)})["started_at"] is None


@pytest.mark.parametrize("text", ["-1", "256000", "9" * 4_000, "0x1", "٣"])
def test_an_exit_code_that_is_none_is_asked_of_the_engine(shared: SharedFolder, text: str) -> None:
    (shared.path / "j-master-0.exit").write_text(text)
    (instance,) = told(shared, {"j-master-0": ContainerExit(3)})["instances"]
    assert instance["exit_code"] == 3


def test_the_time_of_an_exit_is_not_later_than_now(shared: SharedFolder) -> None:
    """A job can give its files any time, also one that no date can hold."""
    file = shared.path / "j-master-0.exit"
    file.write_text("0\n")
    os.utime(file, (4e9, 4e9))
    assert told(shared, {})["ended_at"] <= time.time()


@pytest.mark.parametrize("name", ["failed", "stop", "j-master-0.exit", "j-master-0.why", "go"])
def test_a_link_or_a_pipe_in_the_folder_is_not_read(shared: SharedFolder, tmp_path: Path, name: str) -> None:
    """They would tell a job what this machine has, or block its reader."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret 9" if name == "failed" else "9")
    place = shared.path / name
    for put in (lambda: place.symlink_to(secret), lambda: os.mkfifo(place)):
        place.unlink(missing_ok=True)
        put()
        state = told(shared, {"j-master-0": ContainerExit(3)})
        assert "s3cret" not in str(state)
        assert shared.started_at != 9
        assert shared.read_exit("j-master-0") is None
        assert shared.first_failure is None


def test_variables_are_utf8_whatever_this_machine_writes_its_files_in(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from pai_sdk._host.execution.docker.shared_folder import SharedFolder;"
        "SharedFolder(pathlib.Path(sys.argv[1])).prepare({'one.env': '\\u635f'}, ['\\u635f'])"
    )
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=plain, check=True)
    assert (tmp_path / "one.env").read_bytes() == "损".encode()
    assert (tmp_path / "requirements.txt").read_bytes() == "损\n".encode()


def test_who_reads_a_file_of_the_run_while_it_is_written_anew_has_it_whole(shared: SharedFolder) -> None:
    """A shell reads its script piece by piece; a test that began its instances one by one met half of it."""
    shared.prepare({"one.env": "A=1\n"}, [])
    with (shared.path / "instance.sh").open() as of_script, (shared.path / "one.env").open() as of_variables:
        shared.prepare({"one.env": "B=2\n"}, [])
        script, variables = of_script.read(), of_variables.read()
    assert (script, variables) == ((shared.path / "instance.sh").read_text(), "A=1\n")
    assert (shared.path / "one.env").read_text() == "B=2\n"
    assert {path.name for path in shared.path.iterdir() if path.is_file()} == {"instance.sh", "one.env", "go"}


def test_who_looks_while_a_wish_to_stop_is_written_has_it_whole(tmp_path: Path) -> None:
    """Its reason decides whether a job was stopped or has failed, and instances end as soon as it is there."""
    reason = "by Ann " * 8000
    for attempt in range(30):
        shared = SharedFolder(tmp_path / str(attempt))
        shared.prepare({}, [])
        asking = threading.Thread(target=shared.request_stop, args=("StoppedByUser", reason))
        asking.start()
        while (wish := shared.stop_request) is None:
            pass
        asking.join()
        assert wish == ("StoppedByUser", reason)


def test_the_first_wish_to_stop_stays(shared: SharedFolder) -> None:
    shared.request_stop("StoppedByUser", "by Ann")
    shared.request_stop("StoppedByUser", "by Bob")
    assert shared.stop_request == ("StoppedByUser", "by Ann")
    assert {path.name for path in shared.path.iterdir() if path.is_file()} == {"instance.sh", "go", "stop"}


def test_an_instance_that_was_asked_to_end_has_not_succeeded(shared: SharedFolder) -> None:
    """Whatever it made of its exit code."""
    shared.request_stop("StoppedByUser", "by Ann")
    (shared.path / "j-master-0.why").write_text("stopped\n")
    (shared.path / "j-master-0.exit").write_text("0\n")
    state = told(shared, {"j-master-0": ContainerExit(0)})
    assert (state["reason_code"], state["instances"][0]["status"]) == ("StoppedByUser", "Terminated")


@pytest.mark.parametrize(
    ("kills", "reason"), [(7, "KilledBySignal"), (6, "OutOfMemory"), (8, "OutOfMemory"), (None, "OutOfMemory")]
)
def test_a_kill_is_blamed_on_memory_unless_the_kernel_has_killed_nothing(
    shared: SharedFolder, monkeypatch: pytest.MonkeyPatch, kills: int | None, reason: str
) -> None:
    """7 now; 8 before: the machine was started anew meanwhile."""
    monkeypatch.setattr("pai_sdk._host.agent.memory.kernel_kills", lambda: 7)
    (shared.path / "j-master-0.exit").write_text("137\n")
    state = told(shared, {}, job=JOB | {"kernel_kills": kills})
    assert state["reason_code"] == reason
