"""What the data folder of a service holds, and what is removed from it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pai_sdk._core.files import take_lock
from pai_sdk._host.agent import environments
from pai_sdk._host.agent.journal import Journal
from pai_sdk._host.agent.protocol import ExecutionState
from pai_sdk._host.agent.sandbox import TRASH_PREFIX
from pai_sdk._service.services.inventory import clean, holdings

DAY_S = 24 * 3600.0


def job(root: Path, name: str, phase: str, *, ended_s_ago: float = 0.0) -> Path:
    folder = root / "jobs" / name
    for part in ("ml/input/data/train", "ml/output/model", "ml/usercode", "state/python", "logs"):
        (folder / part).mkdir(parents=True)
        (folder / part / "file.log").write_bytes(b"x" * 8192)
    ended_at = time.time() - ended_s_ago if phase == "ended" else None
    Journal(folder / "state").write_state(ExecutionState(phase, ended_at=ended_at))
    return folder


def environment(root: Path, name: str, *, unused_s: float) -> Path:
    folder = root / "cache" / name
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"x" * 8192)
    Path(f"{folder}.lock").touch()
    environments.mark_complete(folder)
    os.utime(folder / "complete", (time.time() - unused_s,) * 2)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "objects" / "blobs").mkdir(parents=True)
    (tmp_path / "objects" / "blobs" / "a").write_bytes(b"x" * 40960)
    (tmp_path / "service.db").write_bytes(b"x" * 4096)
    return tmp_path


def test_each_kind_is_counted_once(root: Path) -> None:
    job(root, "train1", "ended")
    environment(root, "abc", unused_s=0)
    (root / "cache" / "pip").mkdir()
    (root / "cache" / "pip" / "wheel").write_bytes(b"x" * 12288)
    held = {holding.kind: holding for holding in holdings(root)}
    assert held["objects"].size_bytes >= 40960
    assert held["job folders"].size_bytes >= 4 * 8192
    assert (held["logs"].count, held["job folders"].count, held["environments"].count) == (1, 1, 1)
    assert held["pip cache"].size_bytes >= 12288
    on_disk = sum(p.lstat().st_blocks * 512 for p in root.rglob("*"))
    assert abs(sum(h.size_bytes for h in held.values()) - on_disk) <= 64 * 1024, "but for the folders at the top"


def test_only_what_ended_long_ago_and_nothing_that_is_nowhere_else(root: Path) -> None:
    old, new = job(root, "old", "ended", ended_s_ago=2 * DAY_S), job(root, "new", "ended")
    running = job(root, "running", "running")
    (root / "jobs" / f"{TRASH_PREFIX}x").mkdir()
    planned = [(each.description, each.path) for each in clean(root, older_than_s=DAY_S, dry_run=True)]
    assert (old / "state" / "python").exists()
    assert planned == [(each.description, each.path) for each in clean(root, older_than_s=DAY_S)]
    assert [path.relative_to(root).as_posix() for _, path in planned] == [
        f"jobs/{TRASH_PREFIX}x",
        "jobs/old/ml/input/data",
        "jobs/old/state/python",
    ]
    for kept in (old / "ml" / "usercode", old / "ml" / "output", old / "logs", new / "state" / "python"):
        assert kept.exists()
    assert (running / "ml" / "input" / "data").exists()
    assert not (old / "ml" / "input" / "data").exists()


def test_environments_go_when_they_were_not_used_unless_a_job_uses_them(root: Path) -> None:
    unused, used = environment(root, "unused", unused_s=2 * DAY_S), environment(root, "used", unused_s=2 * DAY_S)
    recent = environment(root, "recent", unused_s=0)
    with Path(f"{used}.lock").open() as lock:
        take_lock(lock.fileno(), shared=True)
        (dry,) = clean(root, older_than_s=DAY_S, dry_run=True)
        (removed,) = clean(root, older_than_s=DAY_S)
    assert dry.path == removed.path == unused
    assert removed.size_bytes >= 8192
    assert (unused.exists(), used.exists(), recent.exists()) == (False, True, True)
    assert len(list(clean(root, older_than_s=0))) == 2


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert {holding.size_bytes for holding in holdings(tmp_path / "nowhere")} == {0}
    assert list(clean(tmp_path / "nowhere", older_than_s=0)) == []
