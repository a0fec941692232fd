"""Jobs on a Slurm cluster that loses its controller, its nodes, or its patience with a job."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.agent.slurm.gang_folder import GangFolder
from pai_sdk._host.execution.slurm import executor as executor_module
from pai_sdk._host.execution.slurm.executor import SlurmExecutor
from pai_sdk._host.execution.slurm.options import SlurmOptions
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.talking import TALKS
from tests.support.waiting import until
from tests.unit.host.execution.conformance import STOP, Harness

UNTIL_GO = 'echo "$RANK" >>"$PAI_OUTPUT_MODEL/begun"; echo up; until [ -e go ]; do sleep 0.1; done; echo end'


class Place(Harness):
    """Jobs on a cluster, with some options."""

    cluster: SlurmCluster

    def listed(self, root: object, states: str = "all") -> list[str]:
        """The numbers of the Slurm jobs of a job."""
        name = f"--name=pai-{getattr(root, 'name', '')}"
        return self.cluster.command("squeue", "-h", "-t", states, "-o", "%i", name).split()

    def use(self, options: SlurmOptions) -> None:
        """Run jobs with other options."""
        self.executor = SlurmExecutor(self.folder / "jobs with space", self.folder / "cache", options)


def kill_watch(job_id: str) -> None:
    """Kill the task of one instance of a job, which started its supervisor."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            is_task = words[:1] != ["srun"] and any("agent.slurm.task" in word for word in words)
            if is_task and words[-1].endswith(job_id):
                process.kill()
                return
    raise AssertionError("there is no such process")


@pytest.fixture
def place(slurm_cluster: SlurmCluster) -> Iterator[Place]:
    folder = slurm_cluster.folder / "faults" / uuid.uuid4().hex
    made: list[SlurmExecutor] = []

    def make(grace_s: int) -> SlurmExecutor:
        made.append(SlurmExecutor(folder / "jobs with space", folder / "cache", SlurmOptions(), grace_s=grace_s))
        return made[-1]

    place = Place(folder, make)
    place.executor = make(5)
    place.cluster = slurm_cluster
    yield place
    place.close()
    for one in made:
        one.close()


# ---- the controller ----


def test_a_job_that_the_controller_forgot_runs_once(place: Place) -> None:
    root = place.start(UNTIL_GO, count=3)
    place.until_log(root, "up")
    place.cluster.kill_controller()  # before it has saved that the job began
    place.cluster.start_controller()
    time.sleep(8)  # it may start the job again, cancel it since a node refuses that, or not know it any more
    (Sandbox(root).usercode / "go").touch()
    state = place.wait(root)
    assert state.succeeded or state.reason_code in ("StoppedFromOutside", "NodeLost"), state
    assert sorted((Sandbox(root).output_dir("model") / "begun").read_text().split()) == ["0", "1", "2"]
    assert [place.log(root, rank=rank).split()[0] for rank in range(3)] == ["up"] * 3


@pytest.mark.slow
def test_a_job_is_submitted_when_the_controller_is_back(place: Place) -> None:
    place.cluster.kill_controller()
    root = place.start("echo done")
    for _ in range(20):
        assert place.executor.state(root).phase == "preparing"
        time.sleep(0.1)
    place.executor = place.make(5)  # as after a restart of the service
    place.cluster.start_controller()
    assert place.wait(root).succeeded
    assert place.log(root) == "done\n"
    assert len(place.listed(root)) == 1


@pytest.mark.slow
def test_a_job_ends_and_is_stopped_without_the_controller(place: Place) -> None:
    ends, stopped = place.start(UNTIL_GO), place.start(UNTIL_GO, count=2)
    for root in (ends, stopped):
        place.until_log(root, "up")
        place.until(root, lambda state: state.phase == "running")
    place.cluster.kill_controller()
    time.sleep(5)
    assert {place.executor.state(root).phase for root in (ends, stopped)} == {"running"}
    (Sandbox(ends).usercode / "go").touch()
    place.executor.stop(stopped, **STOP)
    assert place.wait(ends).succeeded
    assert place.wait(stopped).reason_code == "StoppedByUser"


def test_a_service_killed_before_it_noted_the_number_submits_no_second_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(executor_module, "replace_file", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            place.start(UNTIL_GO, count=2)
    place.executor = place.make(5)
    (root,) = place.roots
    for rank in range(2):
        place.until_log(root, "up", rank=rank)
    (Sandbox(root).usercode / "go").touch()
    assert place.wait(root).succeeded
    assert len(place.listed(root)) == 1
    assert sorted((Sandbox(root).output_dir("model") / "begun").read_text().split()) == ["0", "1"]


def test_a_job_of_another_that_got_the_same_number_is_not_cancelled(place: Place) -> None:
    others = place.cluster.command("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
    root = place.start(UNTIL_GO)
    place.until_log(root, "up")
    (Sandbox(root).shared_dir / "submitted").write_text(others)
    place.executor.remove(root)
    until(lambda: not place.listed(root, "running"), "the end of the job")
    assert place.cluster.command("squeue", "-h", "-j", others, "-o", "%T").strip() == "PENDING"


# ---- what Slurm ends ----


def test_a_preempted_job_says_so_and_got_its_notice(place: Place) -> None:
    place.use(SlurmOptions(partition="preemptible", cpus_per_instance="4"))
    root = place.start("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done", count=3)
    for rank in range(3):
        place.until_log(root, "up", rank=rank)
    place.cluster.command("srun", "-N3", "--exclusive", "true")
    state = place.wait(root)
    assert (state.succeeded, state.reason_code) == (False, "Preempted"), state
    assert [place.log(root, rank=rank).count("told\n") for rank in range(3)] == [1] * 3
    assert len(place.listed(root)) == 1


def test_a_job_whose_node_loses_power_is_reported_with_its_last_lines(place: Place) -> None:
    root = place.start(UNTIL_GO, count=3)
    for rank in range(3):
        place.until_log(root, "up", rank=rank)
    place.cluster.nodes[2].power_off()
    state = place.wait(root)
    assert (state.succeeded, state.reason_code) == (False, "NodeLost"), state
    assert [place.log(root, rank=rank) for rank in range(3)] == ["up\n"] * 3


@pytest.mark.parametrize("lost", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_instances_that_miss_one_on_a_lost_node_are_not_the_cause(place: Place, lost: int) -> None:
    """They fail within seconds, long before Slurm notices the node. The first one has the batch script, too."""
    root = place.start(TALKS, count=3)
    for rank in range(3):
        place.until_log(root, "up", rank=rank)
    next(node for node in place.cluster.workers if str(lost) in _ports(root, node.name)).power_off()
    state = place.wait(root)
    assert (state.reason_code, state.failed_instance) == ("NodeLost", state.instances[lost].name), state
    assert state.instances[(lost + 1) % 3].exit_code == 1


def _ports(root: Path, host: str) -> dict[str, int]:
    """The ports that a host has told the others: by rank."""
    found: dict[str, int] = json.loads((Sandbox(root).shared_dir / f"ports-{host}").read_text())["ports"]
    return found


def test_a_job_that_an_administrator_cancels_says_so(place: Place) -> None:
    runs = place.start(UNTIL_GO)
    waits = place.start(
        UNTIL_GO, ComputeResource={"EcsSpec": "local", "EcsCount": 1, "InstanceSpec": {"CPU": "400"}}
    )
    place.until_log(runs, "up")
    assert "waits" in place.until(waits, lambda state: bool(state.reason_message)).reason_message
    for root in (runs, waits):
        place.cluster.command("scancel", *place.listed(root))
        state = place.wait(root)
        assert (state.succeeded, state.reason_code) == (False, "StoppedFromOutside"), state
        assert "scancel" in state.reason_message


# ---- what waits ----


def test_a_job_that_waits_is_stopped_at_once_and_leaves_the_queue(place: Place) -> None:
    root = place.start("true", ComputeResource={"EcsSpec": "local", "EcsCount": 1, "InstanceSpec": {"CPU": "400"}})
    place.executor.stop(root, **STOP)
    state = place.executor.state(root)
    assert (state.phase, state.reason_code) == ("ended", "StoppedByUser")
    until(lambda: not place.listed(root, "pending"), "an empty queue")


def test_a_job_that_waits_is_removed_and_leaves_the_queue(place: Place) -> None:
    root = place.start("true", ComputeResource={"EcsSpec": "local", "EcsCount": 1, "InstanceSpec": {"CPU": "400"}})
    place.executor.remove(root)
    assert not root.exists()
    until(lambda: not place.listed(root, "pending"), "an empty queue")


def test_what_slurm_refuses_is_an_error_and_leaves_nothing(place: Place) -> None:
    place.use(SlurmOptions(partition="nonesuch"))
    with pytest.raises(Exception, match="invalid partition"):
        place.start("true")
    (root,) = place.roots
    assert place.executor.state(root).phase == "absent"
    place.use(SlurmOptions())
    place.start_again(root, "true")
    assert place.wait(root).succeeded


# ---- where instances are ----


def test_more_instances_than_nodes_share_them(place: Place) -> None:
    root = place.start('echo "$MASTER_ADDR $RANK $WORLD_SIZE"; cat /proc/sys/kernel/hostname', count=5)
    state = place.wait(root)
    assert state.succeeded, state
    address, rank, size, host = zip(*(place.log(root, rank=rank).split() for rank in range(5)), strict=True)
    assert (rank, set(size)) == (tuple("01234"), {"5"})
    assert len(set(host)) > 1
    assert len(set(address)) == 1
    assert address[0] in [node.address for node in place.cluster.workers]


def test_tensorflow_finds_every_instance_by_host_and_port(place: Place) -> None:
    wire = {"AlgorithmSpec": {"Image": "unused", "Command": ["sh", "-c", 'echo "$TF_CONFIG"'], "JobType": "TFJob"}}
    root = place.start("", count=2, **wire)
    assert place.wait(root).succeeded
    text = Sandbox(root).log_file(f"{root.name}-worker-1").read_text()
    assert all(node.address in text for node in place.cluster.workers[:2]), text
    assert '"index": 1' in text


def test_an_instance_whose_watch_is_killed_ends_the_job(place: Place) -> None:
    root = place.start(UNTIL_GO, count=2)
    for rank in range(2):
        place.until_log(root, "up", rank=rank)
    kill_watch(root.name)
    state = place.wait(root)
    assert (state.succeeded, state.reason_code) == (False, "SupervisorLost"), state


# ---- secrets ----


def test_secrets_of_a_job_are_in_nothing_of_slurms(place: Place) -> None:
    secret = f"secret-{uuid.uuid4().hex}"
    root = place.start(UNTIL_GO, Environments={"TOKEN": secret})
    place.until_log(root, "up")
    (number,) = place.listed(root)
    assert secret not in place.cluster.command("scontrol", "show", "job", "-dd", number)
    assert secret not in place.cluster.command("scontrol", "write", "batch_script", number, "-")
    saved = [path for path in (place.cluster.folder / "state").rglob("*") if path.is_file()]
    assert saved
    assert not [path for path in saved if secret.encode() in path.read_bytes()]
    holders = [path for path in root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert holders
    assert {path.stat().st_mode & 0o077 for path in holders} == {0}
    (Sandbox(root).usercode / "go").touch()
    assert place.wait(root).succeeded
    assert GangFolder(Sandbox(root).shared_dir).claim is not None
