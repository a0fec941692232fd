"""`pai-sdk top` and `pai-sdk exec`, against a backend in memory."""

from __future__ import annotations

import json

import pytest

from pai_sdk._client.api.service_runs import ServiceRuns
from pai_sdk._client.job.training_job import TrainingJob
from pai_sdk._host.agent.tunnel.streams import Stream
from pai_sdk._wire.pai.record import InstanceUsage
from pai_sdk._wire.resources.queue import QueueState
from pai_sdk.cli.enter.instances import split_remote
from pai_sdk.cli.root import run
from pai_sdk.errors import InvalidInputError
from tests.support.fake_backend import FakeBackend
from tests.support.fake_tunnel import FakeInstance
from tests.support.messages import refused
from tests.unit.cli.conftest import Pai


class Recorded(FakeInstance):
    """An instance that notes the commands; each exits with its rank and 7."""

    def __init__(self) -> None:
        super().__init__(program=self.run)
        self.commands: list[list[str]] = []

    def run(self, stream: Stream) -> None:
        self.commands.append(stream.parameters["argv"])
        stream.write(b"output\n")
        stream.send_exit({"code": 6 + len(self.commands)})
        stream.close()


@pytest.fixture
def entry(memory: FakeBackend) -> Recorded:
    memory.lines = {"train1-master-0": [], "train1-worker-0": []}
    memory.instance = found = Recorded()
    return found


def test_a_row_for_each_instance_with_what_is_known(pai: Pai, memory: FakeBackend, entry: Recorded) -> None:
    memory.used = [InstanceUsage("train1-master-0", 12.34, 50.0, 99.5, None, 3 << 30)]
    title, master, worker = [row.split() for row in pai("top", "train1", "--once").stdout.splitlines()]
    assert title[:3] == ["JOB", "INSTANCE", "STATUS"]
    assert master == ["train1", "master-0", "Running", "12.3", "50.0", "3.2", "GB", "99.5", "-"]
    assert worker == ["train1", "worker-0", "Running", *"-----"]
    assert pai("top").stdout == pai("top", "-").stdout == pai("top", "train1").stdout
    assert json.loads(pai("top", "--json").stdout) == {
        "job": "train1",
        "instance": "train1-master-0",
        "cpu_percent": 12.34,
        "memory_percent": 50.0,
        "gpu_percent": 99.5,
        "gpu_memory_percent": None,
        "memory_bytes": 3 << 30,
    }


def test_nothing_runs(pai: Pai, memory: FakeBackend, entry: Recorded) -> None:
    memory.status = "Succeed"
    assert pai("top", "train1").stdout == "train1 Succeed: nothing is running\n"


def test_the_queue_of_a_service(pai: Pai, memory: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"running": 1, "queued": 1, "allocated": {"gpus": 2}, "quota": {"gpus": 2, "running": 1}}
    job = {"id": "train2", "name": "second", "owner": "alice", "needs": {"instances": 1, "gpus": 2}}
    used = {"cpu_percent": 50.0, "gpu_percent": 99.5, "gpu_memory_percent": 12.34}
    state = {
        "user": "alice",
        "capacity": [{"resource": "gpus", "total": 4, "used": 2}, {"resource": "cpus", "total": None, "used": 0}],
        "nodes": None,
        "users": [{"user": "alice", "share": 0.5, "past": 0.1, **nothing}],
        "started": [
            {
                "id": "train1",
                "name": "first",
                "owner": "alice",
                "status": "Running",
                "since": 0.0,
                "resources": {"gpus": 2},
                "instances": [{"name": "train1-master-0", "status": "Running", "node": "n1", **used}],
            }
        ],
        "queued": [
            {**job, "position": 1, "priority": 0, "created_at": 0.0, "code": "Quota", "reason": "quota of alice"}
        ],
        "more": 0,
    }
    monkeypatch.setattr(ServiceRuns, "queue", lambda self: QueueState.model_validate(state))
    monkeypatch.setenv("COLUMNS", "200")
    lines = [line.split() for line in pai("top", "--queue", "--once").stdout.splitlines()]
    assert ["gpus", "2", "4"] in lines
    assert ["cpus", "0", "-"] in lines
    assert ["alice", "50.0%", "10.0%", "1/1", "1", "0", "2/2"] in lines
    instance = next(line for line in lines if line[:1] == ["n1"])
    assert instance[1:5] == ["train1", "master-0", "alice", "Running"]
    assert instance[-4:] == ["50.0", "-", "99.5", "12.3"]
    waiting = next(line for line in lines if line[:2] == ["1", "train2"])
    assert waiting[2:6] == ["alice", "1", "instance,", "2"]
    assert waiting[-3:] == ["quota", "of", "alice"]
    assert json.loads(pai("top", "--queue", "--json").stdout)["queued"][0]["reason"] == "quota of alice"
    assert pai("top", "train1", "--queue").exit_code == 2


def test_jobs_beyond_the_limit_are_announced(
    pai: Pai, memory: FakeBackend, entry: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pai("top", "--once").stderr == ""
    (job,) = TrainingJob.list()
    monkeypatch.setattr(TrainingJob, "list", lambda **_: iter([job] * 21))
    assert "more jobs are running" in pai("top", "--once").stderr


@pytest.mark.parametrize(
    ("arguments", "instance", "command"),
    [
        (("train1", "nvidia-smi", "-l", "1"), "master-0", ["nvidia-smi", "-l", "1"]),
        (("--instance", "worker-0", "train1", "--", "ls", "--all"), "worker-0", ["ls", "--all"]),
        (("-", "sh", "-c", "echo $RANK; exit 7"), "master-0", ["sh", "-c", "echo $RANK; exit 7"]),
        (("fake", "--", "--help"), "master-0", ["--help"]),
        (("train1:1", "ls"), "worker-0", ["ls"]),
        (("train1:worker-0", "ls"), "worker-0", ["ls"]),
    ],
)
def test_a_command_goes_to_the_instance_as_it_is(
    pai: Pai, memory: FakeBackend, entry: Recorded, arguments: tuple[str, ...], instance: str, command: list[str]
) -> None:
    assert pai("exec", *arguments).exit_code == 7
    assert entry.commands == [command]
    assert memory.calls[-1].endswith(instance)


def test_without_a_command_it_is_a_shell(pai: Pai, entry: Recorded) -> None:
    pai("exec", "train1")
    pai("exec", "train1", "--")
    assert entry.commands[0] == entry.commands[1]
    assert entry.commands[0][0] == "sh"


def test_what_cannot_be_entered(pai: Pai, memory: FakeBackend, entry: Recorded) -> None:
    with refused(InvalidInputError, "instance"):
        pai("exec", "--instance", "worker-5", "train1", "ls")
    memory.status = "Queuing"
    with refused(InvalidInputError, "JOB"):
        pai("exec", "train1", "ls")
    memory.status = "Running"
    with refused(InvalidInputError, "instance"):
        pai("exec", "train1:2", "ls")
    with refused(InvalidInputError, "JOB"):
        pai("exec", "--instance", "0", "train1:1", "ls")
    with refused(InvalidInputError, "COMMAND"):
        pai("exec", "--all", "train1")
    with refused(InvalidInputError, "COMMAND"):
        pai("exec", "train1", "--all", "ls")
    assert entry.commands == []


def test_the_exit_code_of_an_interrupted_program_is_no_interrupt_of_this_one(
    entry: Recorded, memory: FakeBackend, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TrainingJob, "exec", lambda *_, **__: 130)
    monkeypatch.setattr("sys.argv", ["pai-sdk", "exec", "train1", "ls"])
    with pytest.raises(SystemExit) as end:
        run()
    assert (end.value.code, capfd.readouterr().err) == (130, "")


def test_a_command_in_all_instances(pai: Pai, entry: Recorded) -> None:
    result = pai("exec", "--all", "train1", "--", "ls")
    assert result.exit_code == 8
    assert entry.commands == [["ls"], ["ls"]]
    assert result.stdout == "[0] output\n[1] output\n"


def test_a_shell_is_one_of_the_job(pai: Pai, memory: FakeBackend, entry: Recorded) -> None:
    assert pai("shell", "train1:1").exit_code == 7
    assert entry.commands[0][0] == "sh"
    assert memory.calls[-1].endswith("worker-0")


def test_an_instance_of_the_newest_job(pai: Pai, memory: FakeBackend, entry: Recorded) -> None:
    """`-:1` is no option, and neither is a word of the command."""
    assert pai("exec", "-:1", "ls", "-:x").exit_code == 7
    assert entry.commands == [["ls", "-:x"]]
    assert memory.calls[-1].endswith("worker-0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train1:/ml/a b", ("train1", "/ml/a b")),
        ("train1:0:/ml", ("train1:0", "/ml")),
        ("train1:worker-1:/ml", ("train1:worker-1", "/ml")),
        ("-:/ml", ("-", "/ml")),
        ("-:1:/ml", ("-:1", "/ml")),
        ("oss://bucket/a", None),
        ("file:/ml", None),
        ("C:/ml", None),
        ("./a:/ml", None),
        ("a:b", None),
    ],
)
def test_paths_in_jobs(text: str, expected: tuple[str, str] | None) -> None:
    assert split_remote(text) == expected


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("train1:/a", "train1:/b"), "cp"),
        (("train1:/a", "oss://models/a"), "cp"),
        (("train1:/a*", "."), "path"),
        (("train1:a", "."), "cp"),
        (("note.txt", "-:a"), "cp"),
    ],
)
def test_copies_that_cannot_be(pai: Pai, entry: Recorded, arguments: tuple[str, str], where: str) -> None:
    with refused(InvalidInputError, where):
        pai("cp", *arguments)
