"""Outputs of several nodes become one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pai_sdk._host.agent.remote.file_parts import files_in
from pai_sdk._host.agent.sandbox import Sandbox
from pai_sdk._host.execution.ray.output_mirror import FileMirror, OutputMirror


class Node:
    """Another folder of this machine that answers like an instance on a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gone: list[str] = []
        self.reads: list[tuple[str, int]] = []
        (folder / "model").mkdir(parents=True)

    def call(self, method: str, *arguments: Any) -> Any:
        if method == "outputs":
            channels = arguments[0]
            found = files_in(self.folder)
            return {p: f for p, f in found.items() if channels is None or p.split("/")[0] in channels}, self.gone
        path, at = arguments[:2]
        self.reads.append((path, at))
        return (self.folder / path).read_bytes()[at : at + 4]

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    sandbox = Sandbox(tmp_path / "train1")
    sandbox.output_dir("model").mkdir(parents=True)
    sandbox.state_dir.mkdir()
    return sandbox


@pytest.fixture
def nodes(tmp_path: Path) -> list[Node]:
    return [Node(tmp_path / "first"), Node(tmp_path / "second")]


def contents(sandbox: Sandbox) -> dict[str, str]:
    folder = sandbox.ml / "output"
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_files_of_all_nodes_are_brought_and_the_lowest_rank_wins(sandbox: Sandbox, nodes: list[Node]) -> None:
    nodes[0].write("model/weights", "of the first")
    nodes[1].write("model/weights", "of the second")
    nodes[1].write("model/part/1", "only there")
    (nodes[0].folder / "model" / "link").symlink_to("weights")
    OutputMirror(sandbox).update([(0, nodes[0]), (3, nodes[1])])
    found = contents(sandbox)
    assert found == {"model/weights": "of the first", "model/link": "of the first", "model/part/1": "only there"}
    here, there = sandbox.output_dir("model") / "weights", nodes[0].folder / "model" / "weights"
    assert here.stat().st_mtime_ns == there.stat().st_mtime_ns


def test_what_has_not_changed_is_not_read_again(sandbox: Sandbox, nodes: list[Node]) -> None:
    nodes[0].write("model/a", "a")
    OutputMirror(sandbox).update([(0, nodes[0])])
    nodes[0].write("model/b", "b")
    nodes[0].reads.clear()
    OutputMirror(sandbox).update([(0, nodes[0])])  # another process, after a restart
    assert nodes[0].reads == [("model/b", 0)]


def test_what_the_job_removes_is_removed(sandbox: Sandbox, nodes: list[Node]) -> None:
    (sandbox.output_dir("model") / "sent").write_text("from an earlier job")
    (sandbox.output_dir("model") / "kept").write_text("from an earlier job")
    nodes[0].write("model/step-1", "1")
    mirror = OutputMirror(sandbox)
    mirror.update([(0, nodes[0])])
    (nodes[0].folder / "model" / "step-1").unlink()
    nodes[0].gone = ["model/sent"]
    mirror.update([(0, nodes[0])])
    assert contents(sandbox) == {"model/kept": "from an earlier job"}


def test_files_of_a_lost_node_stay(sandbox: Sandbox, nodes: list[Node]) -> None:
    nodes[0].write("model/a", "a")
    nodes[1].write("model/b", "b")
    mirror = OutputMirror(sandbox)
    mirror.update([(0, nodes[0]), (1, nodes[1])])
    mirror.update([(1, nodes[1])])
    assert contents(sandbox) == {"model/a": "a", "model/b": "b"}


def test_of_a_file_that_grows_only_the_new_end_is_read(sandbox: Sandbox, nodes: list[Node]) -> None:
    nodes[0].write("tensorboard/events", "12345678")
    mirror = OutputMirror(sandbox)
    mirror.update([(0, nodes[0])], {"tensorboard"})
    nodes[0].reads.clear()
    nodes[0].write("tensorboard/events", "12345678abcdef")
    mirror.update([(0, nodes[0])], {"tensorboard"})
    assert nodes[0].reads == [("tensorboard/events", 8), ("tensorboard/events", 12)]
    assert contents(sandbox) == {"tensorboard/events": "12345678abcdef"}


def test_a_channel_that_the_job_made_a_link_is_left_alone(sandbox: Sandbox, nodes: list[Node]) -> None:
    (nodes[0].folder / "model").rmdir()
    (nodes[0].folder / "model").symlink_to("/etc")
    OutputMirror(sandbox).update([(0, nodes[0])])
    assert not sandbox.output_dir("model").is_symlink()


def test_a_mount_has_the_changes_of_all_nodes(sandbox: Sandbox, nodes: list[Node]) -> None:
    mounted = sandbox.mount_dir(1)
    mounted.mkdir(parents=True)
    for name in ("first", "second", "third"):
        (mounted / name).write_text("as sent")
    nodes[0].write("new", "of the first")
    nodes[0].gone = ["first"]
    nodes[1].write("tensorboard/new", "of the second")
    nodes[1].gone = ["second"]
    mirror = FileMirror(sandbox, [{"access": "RO"}, {"access": "RW"}])
    mirror.update([(0, nodes[0]), (1, nodes[1])])
    files = {p.relative_to(mounted).as_posix(): p.read_text() for p in mounted.rglob("*") if p.is_file()}
    assert files == {"new": "of the first", "tensorboard/new": "of the second", "third": "as sent"}


def test_files_of_mounts_are_sent_with_the_number_of_the_mount(sandbox: Sandbox) -> None:
    sandbox.mount_dir(0).mkdir(parents=True)
    (sandbox.mount_dir(0) / "data").write_text("data")
    parts = list(FileMirror(sandbox, [{"access": "RO"}]).parts())
    assert [[entry[1] for entry in part] for part, mount in parts if mount == (0,)] == [["data"]]
    assert any(mount == () for _, mount in parts)
