"""Jobs on a Ray cluster while processes of it, and of the service, are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pai_sdk._host.agent.processes import session_leaders
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.ray.executor import RayExecutor
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.cluster.talking import TALKS
from tests.support.waiting import until
from tests.unit.host.execution.conformance import STOP, Harness

COUNTS = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo line $i; sleep 0.1; done"


class FaultHarness(Harness):
    def request(self, command: str, *, count: int = 1, **fields: object) -> TrainingJobRequest:
        found = super().request(command, count=count, **fields)
        outputs = [*found.output_channels, found.output_channels[0].model_copy(update={"name": "checkpoints"})]
        return found.model_copy(update={"output_channels": outputs})


@pytest.fixture
def harness(tmp_path: Path, executor: RayExecutor) -> Iterator[Harness]:
    harness = FaultHarness(tmp_path, lambda grace_s: executor)
    yield harness
    harness.close()


def mirrors_of(executor: RayExecutor) -> list[int]:
    """The process ids of mirror processes; there is one, except while it starts."""
    return [int(process.name) for process, _ in session_leaders(str(executor.hub))]


def workers_of(name: str) -> list[int]:
    """The process ids of the actors that have the instances of a job, given the name of one of these."""
    return [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if b"ray::InstanceActor" in _command_line(process) and _has_open(process, name)
    ]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _has_open(process: Path, name: str) -> bool:
    job = name.rpartition("-master")[0] or name.rpartition("-worker")[0]
    try:
        return any(f"/{job}/lock" in str(link.readlink()) for link in (process / "fd").iterdir())
    except OSError:
        return False


def test_no_line_is_lost_or_doubled_while_the_mirror_is_killed(harness: Harness, executor: RayExecutor) -> None:
    root = harness.start(COUNTS)
    for number in (1, 20, 35):
        harness.until_log(root, f"line {number}\n")
        (killed,) = until(lambda: mirrors_of(executor), "a mirror")
        os.kill(killed, signal.SIGKILL)
    assert harness.wait(root).succeeded
    assert harness.log(root) == "".join(f"line {number}\n" for number in range(1, 61))


def test_an_instance_that_is_lost_ends_the_job(harness: Harness) -> None:
    root = harness.start("echo up; sleep 1000", count=1)
    harness.until_log(root, "up")
    name = f"{root.name}-master-0"
    children = [process for process in Path("/proc").glob("[0-9]*") if _is_of(process, name)]
    assert children
    (worker,) = workers_of(name)
    os.kill(worker, signal.SIGKILL)
    state = harness.wait(root)
    assert (state.succeeded, state.reason_code, state.failed_instance) == (False, "NodeLost", name)
    assert name in state.reason_message
    assert harness.log(root) == "up\n"
    until(lambda: not any(_is_of(process, name) for process in children), "the end of its processes")


def test_an_instance_that_misses_a_lost_one_is_not_the_cause(harness: Harness) -> None:
    """It fails as soon as its connection breaks, mostly before Ray says that the other one is gone."""
    root = harness.start(TALKS, count=2)
    for rank in range(2):
        harness.until_log(root, "up", rank=rank)
    first, _ = workers_of(f"{root.name}-master-0")
    os.kill(first, signal.SIGKILL)
    state = harness.wait(root)
    assert (state.succeeded, state.reason_code) == (False, "NodeLost"), state
    assert sorted((one.exit_code is None, one.name == state.failed_instance) for one in state.instances) == [
        (False, False),
        (True, True),
    ]


def test_an_instance_without_gpus_sees_none_of_those_of_its_node(harness: Harness) -> None:
    root = harness.start('echo "<$CUDA_VISIBLE_DEVICES>"')
    chooses = harness.start('echo "<$CUDA_VISIBLE_DEVICES>"', Environments={"CUDA_VISIBLE_DEVICES": "1"})
    assert harness.wait(root).succeeded
    assert harness.wait(chooses).succeeded
    assert (harness.log(root), harness.log(chooses)) == ("<>\n", "<1>\n")


def _is_of(process: Path, name: str) -> bool:
    try:
        return f"PAI_INSTANCE_NAME={name}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_checkpoints_are_here_while_the_job_runs(harness: Harness) -> None:
    root = harness.start(
        'cd "$PAI_OUTPUT_CHECKPOINTS"; echo 1 >old; echo 2 >new; echo up; until [ -e ../model/go ]; do sleep 0.1; '
        "[ -e new ] && sleep 8 && rm -f old && touch ../model/go; done"
    )
    harness.until_log(root, "up")
    folder = Sandbox(root).output_dir("checkpoints")
    until(lambda: (folder / "new").exists() and (folder / "old").exists(), "the checkpoints")
    harness.until(root, lambda state: state.phase == "running")
    assert harness.wait(root).succeeded
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_a_job_that_has_no_room_waits_and_can_be_stopped(harness: Harness) -> None:
    root = harness.start("true", ComputeResource={"EcsCount": 1, "InstanceSpec": {"CPU": "64"}})
    state = harness.until(root, lambda state: bool(state.reason_message))
    assert (state.phase, state.reason_code) == ("preparing", "")
    assert "64 CPU" in state.reason_message
    harness.executor.stop(root, **STOP)
    state = harness.wait(root)
    assert (state.reason_code, [one.status for one in state.instances]) == ("StoppedByUser", ["Terminated"])


def test_a_variable_of_a_job_is_in_no_file_and_argument_that_others_can_read(
    harness: Harness, short_folder: Path
) -> None:
    secret = "made-up-value-49152"
    root = harness.start("echo up; sleep 1000", Environments={"TOKEN": secret})
    harness.until_log(root, "up")
    assert not [process for process in Path("/proc").glob("[0-9]*") if secret.encode() in _command_line(process)]
    for path in short_folder.rglob("*"):
        if path.is_file() and secret.encode() in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, path
            assert path.name == "job.json"
