"""What every executor does: the numbered behaviours of `pai_sdk._host.execution.base.Executor`, as tests.

A new executor needs one module of tests: a subclass of `ExecutorConformance` with the fixture `harness`.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._data.logs.reader import LogReader, OpenLog
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionRecord
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.base import ExecutionState, Executor
from pai_sdk._host.execution.contract import launch_spec
from pai_sdk._wire.pai.request import TrainingJobRequest
from tests.support import ml
from tests.support.waiting import PATIENCE_S, until

__all__ = ["ExecutorConformance", "Harness"]

STOP = {"reason_code": "StoppedByUser", "reason_message": "by Ann"}
SAVES = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
# Rank 0 counts the others that connect to it; each of them reads the number.
MEETING = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(address)
    peers = [server.accept()[0] for _ in range(size - 1)]
    for peer in peers:
        peer.sendall(b"%d" % size)
    met = size
else:
    while True:
        try:
            met = int(socket.create_connection(address).recv(10))
            break
        except OSError:
            time.sleep(0.05)
print("rank", rank, "met", met)
"""


# Reads from a pipe for ever.
HOLD = 'mkfifo "$PAI_OUTPUT_MODEL/pipe"; echo up; exec sleep 1000 <"$PAI_OUTPUT_MODEL/pipe"'


needs_mounts = pytest.mark.skipif(not ml.can_be_had(), reason="processes of this machine have no mounts")


@dataclass
class Harness:
    """Runs jobs with one executor, each in a folder of its own.

    Attributes:
        folder: where the folders of the jobs are.
        make: makes an executor that gives jobs this many seconds between SIGTERM and SIGKILL.
        image: what the jobs run in, for executors that need one.
        record_of: where the job in a folder and this executor write for each other.
    """

    folder: Path
    make: Callable[[int], Executor]
    image: str = "unused"
    record_of: Callable[[Path], ExecutionRecord] = lambda root: Journal(Sandbox(root).state_dir)
    executor: Executor = field(init=False)
    roots: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.executor = self.make(round(PATIENCE_S))

    def require(self, **capabilities: bool) -> None:
        """Skip the test of an executor without these capabilities."""
        missing = [
            name for name, value in capabilities.items() if getattr(self.executor.capabilities, name) != value
        ]
        if missing:
            pytest.skip(f"this executor has no {' and '.join(missing)}")

    def start(self, command: str, **fields: Any) -> Path:
        """Start a job with one output channel, `model`; gives its folder."""
        job_id = f"local-{uuid.uuid4().hex[:12]}"
        root = self.folder / "jobs with space" / job_id
        self.roots.append(root)
        self.start_again(root, command, **fields)
        return root

    def start_again(self, root: Path, command: str, **fields: Any) -> None:
        """Start a job that has an id and a folder."""
        self.executor.start(launch_spec(root, root.name, self.request(command, **fields)))

    def request(self, command: str, *, count: int = 1, **fields: Any) -> TrainingJobRequest:
        """The request of a job with one output channel, `model`."""
        wire = {
            "TrainingJobName": "conforms",
            "ComputeResource": {"EcsSpec": "local", "EcsCount": count},
            "AlgorithmSpec": {"Image": self.image, "Command": ["sh", "-c", command], "JobType": "PyTorchJob"},
            "OutputChannels": [{"Name": "model", "OutputUri": "oss://bucket/model/"}],
            **fields,
        }
        return TrainingJobRequest.model_validate(wire)

    def run(self, command: str, **fields: Any) -> tuple[Path, ExecutionState]:
        """Start a job and wait for its end."""
        root = self.start(command, **fields)
        return root, self.wait(root)

    def wait(self, root: Path) -> ExecutionState:
        """Wait for the end."""
        return self.until(root, lambda state: state.phase == "ended")

    def until(self, root: Path, condition: Callable[[ExecutionState], bool]) -> ExecutionState:
        """Poll the state until it is as wanted."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not condition(state := self.executor.state(root)):
            assert time.monotonic() < deadline, f"{state}\n{self.log(root)}"
            time.sleep(0.02)
        return state

    def until_log(self, root: Path, text: str, *, rank: int = 0) -> None:
        """Wait for a text in a log."""
        self.until(root, lambda state: text in self.log(root, rank=rank) or state.phase == "ended")
        assert text in self.log(root, rank=rank)

    def log(self, root: Path, *, rank: int = 0) -> str:
        """What an instance has printed."""
        name = f"{root.name}-worker-{rank - 1}" if rank else f"{root.name}-master-0"
        file = Sandbox(root).log_file(name)
        return ml.split_notice(file.read_text() if file.exists() else "")[1]

    def logs(self, root: Path) -> dict[str, str]:
        """What all instances have printed, by the ends of their names."""
        files = Sandbox(root).logs_dir.glob("*.log")
        return {
            file.name.removeprefix(f"{root.name}-").removesuffix(".log"): ml.split_notice(file.read_text())[1]
            for file in files
        }

    @contextmanager
    def watched(self, root: Path) -> Iterator[Callable[[], bool]]:
        """Tells whether a process of a job with the command `HOLD` is left."""
        pipe = Sandbox(root).output_dir("model") / "pipe"
        self.until_log(root, "up")
        descriptor = os.open(pipe, os.O_WRONLY)  # waits for the reader
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLERR)
            yield lambda: not poll.poll(0)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Stop and wait for what still runs."""
        for root in self.roots:
            self.executor.stop(root, **STOP)
        for root in self.roots:
            self.until(root, lambda state: state.phase in ("ended", "absent"))


def role(name: str, command: str, **fields: Any) -> dict[str, Any]:
    """A role as on the wire."""
    return {"Name": name, "Command": ["sh", "-c", command], **fields}


class ExecutorConformance:
    """The tests. The names of the groups are the numbers of the behaviours."""

    @pytest.fixture
    def harness(self) -> Iterator[Harness]:
        """The executor under test."""
        raise NotImplementedError

    # ---- 1: start -----------------------------------------------------------------------------------------

    def test_a_job_that_was_started_is_not_started_again(self, harness: Harness) -> None:
        command = 'echo begun >>"$PAI_OUTPUT_MODEL/begun"; echo up; while [ ! -e go ]; do sleep 0.05; done'
        root = harness.start(command)
        harness.start_again(root, command)
        harness.until_log(root, "up")
        harness.executor = harness.make(1)
        harness.start_again(root, command)
        (Sandbox(root).usercode / "go").touch()
        ended = harness.wait(root)
        harness.start_again(root, command)
        assert harness.executor.state(root) == ended
        assert (Sandbox(root).output_dir("model") / "begun").read_text() == "begun\n"

    # ---- 2: state -----------------------------------------------------------------------------------------

    def test_the_state_of_a_job_that_was_never_started(self, harness: Harness) -> None:
        root = harness.folder / "none"
        assert harness.executor.state(root) == ExecutionState("absent")
        assert not root.exists()

    def test_a_success(self, harness: Harness) -> None:
        before = time.time() - 1  # a container may tell whole seconds
        root, state = harness.run('echo out; echo err >&2; echo "$PAI_TRAINING_JOB_ID $PAI_INSTANCE_NAME"')
        name = f"{root.name}-master-0"
        assert (state.phase, state.succeeded, state.failed_instance) == ("ended", True, None)
        assert (state.reason_code, state.reason_message) == ("", "")
        assert [(i.name, i.role, i.status, i.exit_code) for i in state.instances] == [
            (name, "master", "Succeed", 0)
        ]
        assert state.started_at
        assert state.ended_at
        assert before <= state.started_at
        assert state.ended_at <= time.time() + 1
        assert sorted(harness.log(root).splitlines()) == sorted(["out", "err", f"{root.name} {name}"])

    @pytest.mark.parametrize(
        ("command", "exit_code", "reason"),
        [
            ("exit 3", 3, "NonZeroExit"),
            ("no-such-program", 127, "CommandNotFound"),
            ("/etc/passwd", 126, "NotExecutable"),
            ("kill -9 $$", 137, "KilledBySignal"),
        ],
    )
    def test_a_failure_has_its_exit_code_and_reason(
        self, harness: Harness, command: str, exit_code: int, reason: str
    ) -> None:
        _, state = harness.run(command)
        (instance,) = state.instances
        assert (state.succeeded, state.reason_code) == (False, reason)
        assert (instance.status, instance.exit_code) == ("Failed", exit_code)
        assert state.failed_instance == instance.name
        assert instance.name in state.reason_message

    # ---- 3: nothing is kept in memory ---------------------------------------------------------------------

    def test_another_executor_sees_the_same_job(self, harness: Harness) -> None:
        root = harness.start(SAVES)
        harness.until_log(root, "up")
        other = harness.make(1)
        until(lambda: other.state(root).phase == "running", "the state, which comes after the first line")
        other.stop(root, **STOP)
        ended = harness.wait(root)
        assert harness.make(1).state(root) == other.state(root) == ended

    def test_the_end_is_in_the_journal(self, harness: Harness) -> None:
        root, ended = harness.run("exit 3")
        assert Journal(Sandbox(root).state_dir).read_state() == ended

    def test_a_stop_request_is_on_disk(self, harness: Harness) -> None:
        root = harness.start(SAVES)
        harness.until_log(root, "up")
        assert harness.record_of(root).stop_request is None
        harness.executor.stop(root, **STOP)
        assert harness.record_of(root).stop_request == ("StoppedByUser", "by Ann")

    def test_a_stop_request_of_any_process_stops_the_job(self, harness: Harness) -> None:
        root = harness.start(SAVES)
        harness.until_log(root, "up")
        (harness.record_of(root).path / "stop").touch()  # the disk was too full for the reason
        state = harness.wait(root)
        assert (state.succeeded, state.reason_code) == (False, "StoppedByUser")
        assert "could not be saved" in state.reason_message
        assert harness.log(root).endswith("saved\n")

    # ---- 4: stop ------------------------------------------------------------------------------------------

    def test_a_job_that_is_stopped_may_end_by_itself(self, harness: Harness) -> None:
        root = harness.start(SAVES)
        harness.until_log(root, "up")
        harness.executor.stop(root, **STOP)
        harness.executor.stop(root, reason_code="Other", reason_message="too late")
        state = harness.wait(root)
        assert (state.succeeded, state.reason_code, state.reason_message) == (False, "StoppedByUser", "by Ann")
        assert [one.status for one in state.instances] == ["Terminated"]
        assert harness.log(root).endswith("saved\n")  # some shells say before it what became of their `sleep`

    def test_a_job_that_ignores_the_stop_is_killed_after_the_grace_period(self, harness: Harness) -> None:
        harness.executor = harness.make(1)
        root = harness.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
        harness.until_log(root, "up")
        asked = time.time()
        harness.executor.stop(root, **STOP)
        state = harness.wait(root)
        assert (state.reason_code, state.reason_message) == ("StoppedByUser", "by Ann")
        assert [(one.status, one.exit_code) for one in state.instances] == [("Terminated", 137)]
        assert time.time() - asked >= 0.5

    def test_a_stop_right_after_the_start_is_not_lost(self, harness: Harness) -> None:
        root = harness.start("sleep 1000")
        harness.executor.stop(root, **STOP)
        assert harness.wait(root).reason_code == "StoppedByUser"

    def test_a_stop_of_a_job_that_has_ended_or_never_began_changes_nothing(self, harness: Harness) -> None:
        root, ended = harness.run("true")
        harness.executor.stop(root, **STOP)
        assert harness.executor.state(root) == ended
        nowhere = harness.folder / "none"
        harness.executor.stop(nowhere, **STOP)
        assert not nowhere.exists()

    def test_a_job_is_ended_at_its_time_limit(self, harness: Harness) -> None:
        _, state = harness.run("sleep 1000", Scheduler={"MaxRunningTimeInSeconds": 1})
        assert (state.succeeded, state.reason_code) == (False, "MaxRunningTimeExceeded")
        assert "1 seconds" in state.reason_message
        assert state.started_at
        assert state.ended_at
        assert state.ended_at - state.started_at >= 0.9

    # ---- 5: instances -------------------------------------------------------------------------------------

    def test_instances_meet_at_the_address_that_the_variables_name(self, harness: Harness) -> None:
        root, state = harness.run('python3 -c "$MEETING"', count=3, Environments={"MEETING": MEETING})
        names = [f"{root.name}-{name}" for name in ("master-0", "worker-0", "worker-1")]
        assert [one.name for one in state.instances] == names, state
        assert state.succeeded, harness.log(root)
        assert [harness.log(root, rank=rank) for rank in range(3)] == [f"rank {rank} met 3\n" for rank in range(3)]

    def test_a_job_of_one_instance_finds_itself_by_the_same_variables(self, harness: Harness) -> None:
        root, state = harness.run('python3 -c "$MEETING"', Environments={"MEETING": MEETING})
        assert state.succeeded, harness.log(root)
        assert harness.log(root) == "rank 0 met 1\n"
        root, _ = harness.run('echo "$MASTER_ADDR $NPROC_PER_NODE ${TF_CONFIG-none}"')
        assert harness.log(root) == "127.0.0.1 1 none\n"

    def test_the_first_failure_ends_the_others_and_is_the_one_reported(self, harness: Harness) -> None:
        _, state = harness.run('[ "$RANK" = 1 ] && exit 7; exec sleep 1000', count=3)
        assert (state.reason_code, state.failed_instance) == ("NonZeroExit", state.instances[1].name)
        assert [one.status for one in state.instances] == ["Terminated", "Failed", "Terminated"]
        assert state.instances[1].exit_code == 7

    def test_the_first_failure_is_in_the_state_before_the_end(self, harness: Harness) -> None:
        waits = "trap 'until [ -e go ]; do sleep 0.05; done; exit 0' TERM; touch $RANK.up; sleep 1000 & wait"
        fails = "until [ -e 0.up ] && [ -e 2.up ]; do sleep 0.05; done; exit 7"
        root = harness.start(f'if [ "$RANK" = 1 ]; then {fails}; fi; {waits}', count=3)
        state = harness.until(root, lambda state: any(one.exit_code for one in state.instances))
        assert state.phase == "running"
        assert [(one.status, one.exit_code) for one in state.instances] == [
            ("Running", None),
            ("Failed", 7),
            ("Running", None),
        ]
        assert state.failed_instance == state.instances[1].name
        (Sandbox(root).usercode / "go").touch()
        assert harness.wait(root).failed_instance == state.failed_instance

    def test_the_first_success_ends_no_other(self, harness: Harness) -> None:
        root, state = harness.run('[ "$RANK" = 0 ] || sleep 1; echo end', count=2)
        assert state.succeeded
        assert [harness.log(root, rank=rank) for rank in range(2)] == ["end\n"] * 2

    def test_roles_have_commands_names_and_ranks_of_their_own(self, harness: Harness) -> None:
        harness.require(roles=True)
        worker = role("Worker", 'echo "$RANK of $WORLD_SIZE"; python3 -c "$MEETING"', Count=2)
        evaluator = role("Evaluator", 'echo "${RANK-none} of ${WORLD_SIZE-none}"')
        fields = {"Roles": [evaluator, worker], "Environments": {"MEETING": MEETING}}
        root, state = harness.run("exit 3", **fields)
        assert state.succeeded, harness.logs(root)
        names = ["master-0", "worker-0", "evaluator-0"]
        assert [one.name for one in state.instances] == [f"{root.name}-{name}" for name in names]
        assert [one.role for one in state.instances] == ["master", "worker", "evaluator"]
        assert harness.logs(root)["master-0"] == "0 of 2\nrank 0 met 2\n"
        assert harness.logs(root)["worker-0"] == "1 of 2\nrank 1 met 2\n"
        assert harness.logs(root)["evaluator-0"] == "none of none\n"

    def test_instances_of_roles_find_each_other_by_name(self, harness: Harness) -> None:
        harness.require(roles=True)
        finds = "import os, socket; socket.gethostbyname(os.environ['PAI_TRAINING_JOB_ID'] + '-master-0')"
        waits = "until [ -e done ]; do sleep 0.05; done"
        roles = [role("Master", waits), role("Worker", f'python3 -c "{finds}" && touch done')]
        root, state = harness.run("exit 3", Roles=roles)
        assert state.succeeded, harness.logs(root)

    def test_tensorflow_is_told_all_roles(self, harness: Harness) -> None:
        harness.require(roles=True)
        shows = role("Worker", 'echo "$TF_CONFIG"')
        spec = {"Command": ["true"], "JobType": "TFJob", "Image": harness.image}
        root, state = harness.run("", Roles=[shows, role("Chief", "true")], AlgorithmSpec=spec)
        assert state.succeeded, harness.logs(root)
        config = json.loads(harness.logs(root)["worker-0"])
        assert {name: len(addresses) for name, addresses in config["cluster"].items()} == {"chief": 1, "worker": 1}
        assert config["task"] == {"type": "worker", "index": 0}

    def test_a_role_starts_after_another_one(self, harness: Harness) -> None:
        harness.require(roles=True)
        # Its start is the start of its command, before the first output.
        worker = role("Worker", "until [ -e first ]; do sleep 0.05; done", StartAfter=[{"Role": "PS"}])
        root, state = harness.run("exit 3", Roles=[worker, role("PS", "touch first; exec sleep 1000")])
        assert state.succeeded, harness.logs(root)
        assert [(one.role, one.status) for one in state.instances] == [
            ("master", "Succeed"),
            ("ps", "Terminated"),
        ]

    def test_the_job_does_not_wait_for_an_evaluator(self, harness: Harness) -> None:
        harness.require(roles=True)
        waits = "until [ -e go ]; do sleep 0.05; done"
        root = harness.start("exit 3", Roles=[role("Worker", waits), role("Evaluator", SAVES)])
        harness.until(root, lambda state: "up" in harness.logs(root).get("evaluator-0", ""))
        (Sandbox(root).usercode / "go").touch()
        state = harness.wait(root)
        assert state.succeeded, (state, harness.logs(root))
        # Some shells print that their `sleep` was ended.
        assert harness.logs(root)["evaluator-0"].endswith("saved\n")

    def test_a_role_that_does_not_count_may_fail(self, harness: Harness) -> None:
        harness.require(roles=True)
        helper = role("Helper", "exit 4", CountsForSuccess=False)
        waits = "until [ -e go ]; do sleep 0.05; done"
        root = harness.start("exit 3", Roles=[role("Worker", waits), helper])
        harness.until(root, lambda state: [one.exit_code for one in state.instances] == [None, 4])
        (Sandbox(root).usercode / "go").touch()
        state = harness.wait(root)
        assert state.succeeded, state
        assert [one.status for one in state.instances] == ["Succeed", "Failed"]

    def test_the_failure_of_an_evaluator_is_one_of_the_job(self, harness: Harness) -> None:
        harness.require(roles=True)
        roles = [role("Worker", "exec sleep 1000"), role("Evaluator", "exit 4")]
        root, state = harness.run("exit 3", Roles=roles)
        assert (state.reason_code, state.failed_instance) == ("NonZeroExit", f"{root.name}-evaluator-0")

    def test_a_stop_ends_the_instances_of_all_roles(self, harness: Harness) -> None:
        harness.require(roles=True)
        waiting = role("Late", "echo late", StartAfter=[{"Role": "Worker"}], CountsForSuccess=False)
        roles = [
            role("Worker", "echo up; exec sleep 1000"),
            role("Evaluator", "echo up; exec sleep 1000"),
            waiting,
        ]
        root = harness.start("exit 3", Roles=roles)
        logs = dict.fromkeys(("master-0", "evaluator-0"), "up\n") | {"late-0": "late\n"}
        harness.until(
            root,
            lambda state: (
                harness.logs(root) == logs
                and [one.status for one in state.instances if one.role == "late"] == ["Succeed"]
            ),
        )
        harness.executor.stop(root, **STOP)
        state = harness.wait(root)
        assert (state.reason_code, state.failed_instance) == (STOP["reason_code"], None)
        assert {one.role: one.status for one in state.instances} == {
            "master": "Terminated",
            "evaluator": "Terminated",
            "late": "Succeed",
        }

    @needs_mounts
    def test_a_mount_has_the_changes_of_all_roles(self, harness: Harness) -> None:
        harness.require(roles=True, mounts=True)
        root = harness.folder / f"local-{uuid.uuid4().hex[:12]}"
        harness.roots.append(root)
        mounted = Sandbox(root).mount_dir(0)
        mounted.mkdir(parents=True)
        for name in ("first", "second", "third"):
            (mounted / name).write_text("as before")
        changes = "mkdir -p /mnt/all/$role && echo $role >/mnt/all/$role/new && rm /mnt/all/$old"
        roles = [
            role("Master", f"role=master old=first; {changes}; echo changed >/mnt/all/third"),
            role("Worker", f"role=worker old=second; {changes}"),
        ]
        mounts = [{"Path": "/mnt/all", "Uri": "oss://bucket/folder/", "Access": "RW"}]
        harness.start_again(root, "exit 3", Roles=roles, Mounts=mounts)
        assert harness.wait(root).succeeded, harness.logs(root)
        store = harness.executor.files(root).mount(0)
        assert sorted(file.path for file in store.list(folders=False)) == ["master/new", "third", "worker/new"]
        assert (mounted / "third").read_text() == "changed\n"

    @needs_mounts
    def test_mounts_are_at_their_paths(self, harness: Harness) -> None:
        harness.require(mounts=True)
        paths = ["/mnt/data", "/mnt/data/within", "/pai-data/out", "/ml/input/data/more", "/srv"]
        mounts = [{"Path": path, "Uri": "oss://bucket/folder/", "Access": "RO"} for path in paths]
        mounts[2]["Access"] = "RW"
        root = harness.folder / f"local-{uuid.uuid4().hex[:12]}"
        harness.roots.append(root)
        for number in range(len(paths)):
            Sandbox(root).mount_dir(number).mkdir(parents=True)
            (Sandbox(root).mount_dir(number) / "number").write_text(str(number))
        Sandbox(root).mount_dir(0).joinpath("within").mkdir()
        prints = "; ".join(f"cat {path}/number" for path in paths)
        changes = "echo new >/pai-data/out/new; rm /pai-data/out/number"
        refused = "touch /mnt/data/new 2>/dev/null && echo not read-only; [ -e /etc/passwd ] || echo no /etc"
        harness.start_again(root, f"{prints}; {changes}; {refused}; exit 0", Mounts=mounts)
        state = harness.wait(root)
        assert state.succeeded, harness.log(root)
        assert harness.log(root) == "01234"
        assert [file.path for file in harness.executor.files(root).mount(2).list(folders=False)] == ["new"]
        assert not Path("/pai-data").exists()

    # ---- 6: withdraw --------------------------------------------------------------------------------------

    def test_a_job_that_has_begun_is_not_withdrawn(self, harness: Harness) -> None:
        root = harness.start("sleep 0.5; echo end")
        harness.executor.withdraw(root)
        assert harness.wait(root).succeeded
        assert harness.log(root) == "end\n"

    def test_where_nothing_was_started_there_is_nothing_to_withdraw(self, harness: Harness) -> None:
        root = harness.folder / "none"
        harness.executor.withdraw(root)
        assert not root.exists()

    # ---- 7: remove and sweep ------------------------------------------------------------------------------

    def test_a_job_is_removed_with_its_folder(self, harness: Harness) -> None:
        root, _ = harness.run("true")
        harness.executor.remove(root)
        assert not root.exists()
        assert harness.executor.state(root) == ExecutionState("absent")
        harness.executor.remove(root)

    def test_a_job_that_runs_is_killed_before_it_is_removed(self, harness: Harness) -> None:
        root = harness.start(HOLD)
        with harness.watched(root) as has_processes:
            assert has_processes()
            harness.executor.remove(root)
            until(lambda: not has_processes(), "the end of the processes")
        assert not root.exists()
        assert harness.executor.state(root) == ExecutionState("absent")

    def test_what_is_left_of_a_job_without_a_folder_is_swept_away(self, harness: Harness) -> None:
        gone, stays = harness.start(HOLD), harness.start(HOLD)
        with harness.watched(gone) as has_processes, harness.watched(stays) as other_has_processes:
            # Again and again: the job may write there meanwhile.
            until(lambda: shutil.rmtree(gone, ignore_errors=True) or not gone.exists(), "the end of the folder")
            assert gone.name in harness.executor.sweep()
            until(lambda: not has_processes(), "the end of the processes")
            assert other_has_processes()
            assert stays.name not in harness.executor.sweep()
            harness.until(stays, lambda state: state.phase == "running")

    # ---- 8: files -----------------------------------------------------------------------------------------

    def test_another_attempt_goes_on_with_files_and_logs(self, harness: Harness) -> None:
        kept = '"$PAI_OUTPUT_MODEL/kept"'
        root, state = harness.run(f"echo one; echo half > {kept}; exit 3")
        assert state.succeeded is False
        until(lambda: harness.executor.renew(root, attempt=2))
        assert harness.executor.state(root).phase == "absent"
        until(lambda: harness.executor.renew(root, attempt=2), "it may have been cut off")
        harness.start_again(root, f"cat {kept}; echo two")
        assert harness.wait(root).succeeded
        log = harness.executor.files(root).log(f"{root.name}-master-0")
        page = LogReader(OpenLog([log], root / "order"), is_open=False).page(0, 100, max_bytes=1 << 20)
        assert [text for text in page.decoded_lines if not text.startswith("[pai-sdk]")] == ["one", "half", "two"]
        assert [*log.read_times().sizes] == sorted(log.read_times().sizes)
        assert all(size <= log.size_bytes for size in log.read_times().sizes)

    def test_the_files_of_a_job_are_reached_through_its_executor(self, harness: Harness) -> None:
        root = harness.folder / "jobs with space" / f"local-{uuid.uuid4().hex[:12]}"
        files = harness.executor.files(root)
        inputs = {"InputChannels": [{"Name": "in", "InputUri": "oss://bucket/in/"}]}
        files.clear(harness.request(""))
        files.code().write("say.sh", b'cat "$PAI_INPUT_IN/word"; cp "$PAI_INPUT_IN/word" "$PAI_OUTPUT_MODEL"')
        files.input("in").write("word", b"hello\n")
        harness.roots.append(root)
        harness.start_again(root, "echo first; sh say.sh", **inputs)
        harness.wait(root)
        files = harness.make(1).files(root)
        (written,) = files.output("model").list()
        assert (written.path, b"".join(files.output("model").read("word"))) == ("word", b"hello\n")
        log = files.log(f"{root.name}-master-0")
        page = LogReader(OpenLog([log], root / "order"), is_open=False).page(0, 100, max_bytes=1 << 20)
        assert [*page.decoded_lines][-2:] == ["first", "hello"]
        assert all(size <= log.size_bytes for size in log.read_times().sizes)
        assert files.log("another").size_bytes == 0
