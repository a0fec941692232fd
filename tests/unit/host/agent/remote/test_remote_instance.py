"""An instance on a host of a cluster, as the process there that is responsible for it sees it."""

from __future__ import annotations

import json
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.protocol import ExecutionState
from pai_sdk._host.agent.remote.file_parts import pack
from pai_sdk._host.agent.remote.instance import HostedInstance
from pai_sdk._host.execution.contract import job_description, launch_spec
from pai_sdk._host.execution.ray.cluster import agent_package
from tests.support import ml
from tests.support.waiting import until
from tests.unit.host.execution.conftest import make_request

NAME = "train1-master-0"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules that a node gets, and nothing else of pai_sdk."""
    folder = tmp_path_factory.mktemp("package")
    for name, content in agent_package().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def instance(tmp_path: Path, package: Path) -> Iterator[HostedInstance]:
    found = HostedInstance(tmp_path / "base", package, "service", "node", "train1", NAME)
    yield found
    found.end()
    assert list((tmp_path / "base" / "service" / "node").iterdir()) == []


def begin(instance: HostedInstance, folder: Path, command: str) -> None:
    """Send a job and let it begin, as the service does."""
    fields = {"OutputChannels": [{"Name": "model", "OutputUri": "oss://b/m/"}]}
    spec = launch_spec(folder / "train1", "train1", make_request(command, **fields))
    (spec.sandbox.output_dir("model") / "old").write_text("old")
    assert not instance.is_filled()
    for part in pack(spec.sandbox.ml):
        instance.receive(part)
    instance.filled()
    assert instance.is_filled()
    facts: dict[str, Any] = json.loads(json.dumps({**job_description(spec, grace_s=10), "logs_at": [0, 0]}))
    instance.begin(facts)
    instance.begin(facts)


def wait(instance: HostedInstance) -> tuple[ExecutionState, str]:
    """Read until all is known: the state, and the log."""
    log, times, state = b"", 0, ""
    while True:
        found = instance.look(len(log), times, state, 5)
        log, times, state = log + found["log"], times + len(found["times"]), found["state"]
        if found["is_all"]:
            return ExecutionState.parse(state), ml.split_notice(log.decode())[1]


def test_the_package_for_nodes_is_whole(package: Path) -> None:
    check = (
        "import sys; sys.path.append(sys.argv[1]); "
        "import pai_sdk._host.agent.supervisor, pai_sdk._host.agent.remote.instance"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", check, str(package)], check=True, cwd="/")


def test_a_job_runs_and_its_log_and_outputs_are_read(instance: HostedInstance, tmp_path: Path) -> None:
    begin(
        instance, tmp_path, 'echo up; cd "$PAI_OUTPUT_MODEL"; rm old; echo new >new; mkdir a; ln -s ../new a/link'
    )
    state, log = wait(instance)
    assert state.succeeded
    assert log == "up\n"
    changed, gone = instance.outputs()
    # The mirror may be of a later release, where the modules of this one have other paths.
    results = [changed, gone, instance.look(0, 0, "", 0), instance.state(), instance.free_ports(1)]
    assert b"pai_sdk" not in pickle.dumps(results)
    assert b"pai_sdk" not in pickle.dumps([*pack(tmp_path / "train1" / "ml")])
    assert sorted(changed) == ["model/a/link", "model/new"]
    assert gone == ["model/old"]
    assert instance.outputs(["other"]) == ({}, [])
    assert instance.read_output("model/new", 1) == b"ew\n"


def test_its_folders_are_private(instance: HostedInstance, tmp_path: Path) -> None:
    begin(instance, tmp_path, "true")
    wait(instance)
    folders = [tmp_path / "base", tmp_path / "base" / "service", tmp_path / "base" / "service" / "node" / "train1"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    job = tmp_path / "base" / "service" / "node" / "train1" / NAME / "state" / "job.json"
    assert stat.S_IMODE(job.stat().st_mode) == 0o600


def test_a_look_ends_with_the_first_news(instance: HostedInstance, tmp_path: Path) -> None:
    begin(instance, tmp_path, "echo up; sleep 1000")
    until(lambda: instance.look(0, 0, "", 0)["log"].endswith(b"up\n"))
    seen, size = instance.state(), len(instance.look(0, 0, "", 0)["log"])
    instance.stop("StoppedByUser", "by Ann")
    found = instance.look(size, 0, seen, 60)
    assert found["state"] != seen
    assert wait(instance)[0].reason_message == "by Ann"


def test_the_end_of_an_instance_kills_what_runs(tmp_path: Path, package: Path) -> None:
    instance = HostedInstance(tmp_path / "base", package, "service", "node", "train1", NAME)
    begin(instance, tmp_path, "echo $$; exec sleep 1000")
    log = until(lambda: ml.split_notice(instance.look(0, 0, "", 0)["log"].decode())[1].strip())
    instance.end()
    until(lambda: not Path(f"/proc/{log}").exists(), "the end of the process")


def test_folders_that_a_killed_process_left_are_removed(tmp_path: Path, package: Path) -> None:
    left = tmp_path / "base" / "service" / "earlier" / "train0"
    left.mkdir(parents=True)
    (left / "lock").touch()
    instance = HostedInstance(tmp_path / "base", package, "service", "node", "train1", NAME)
    assert not left.exists()
    other = HostedInstance(tmp_path / "base", package, "service", "node", "train1", "train1-worker-0")
    instance.end()
    assert (tmp_path / "base" / "service" / "node" / "train1" / "ml").exists()
    other.end()
    assert not (tmp_path / "base" / "service" / "node" / "train1").exists()


def test_a_folder_that_is_a_link_is_not_used(tmp_path: Path, package: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "other")
    with pytest.raises(PermissionError):
        HostedInstance(tmp_path / "base", package, "service", "node", "train1", NAME)


def test_mounts_arrive_and_their_changes_are_listed(instance: HostedInstance, tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    for name in ("kept", "sub/removed"):
        (tmp_path / "data" / name).write_text(name)
    assert not instance.is_filled()
    for part in pack(tmp_path / "data"):
        instance.receive(part, 0)
    # The second one has no files.
    instance.filled(2)
    mounted = tmp_path / "base" / "service" / "node" / "train1" / NAME / "mounts"
    assert (mounted / "0" / "kept").read_text() == "kept"
    assert list((mounted / "1").iterdir()) == []
    assert instance.outputs(None, 0) == ({}, [])
    (mounted / "0" / "sub" / "removed").unlink()
    (mounted / "1" / "new").write_text("new")
    assert instance.outputs(None, 0)[1] == ["sub/removed"]
    assert instance.outputs(None, 1)[0].keys() == {"new"}
    assert instance.read_output("new", 1, 1) == b"ew"
